# SPDX-License-Identifier: MIT
# The Debian package:
#
#   cmake -S . -B build -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_TESTING=OFF
#   cmake --build build --target package
#
# It is made for the release that it is built on, by the libraries there. Who
# builds it is its maintainer: DEBFULLNAME and DEBEMAIL, as Debian's tools read
# them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME likesyncd)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "likes and follows over RESP, through Redis into PostgreSQL")
set(CPACK_PACKAGE_DESCRIPTION
  "likesyncd takes likes and follows from app servers, which talk to it with any
Redis client. It records each of them in Redis, answers, and makes it a row in
PostgreSQL about a second later, in batches. Counts equal the rows at every
commit, and nothing that was answered is lost or doubled when it is killed.
.
It needs a Redis (or Valkey) and a PostgreSQL, here or elsewhere.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# What the install rules make is put where Debian wants it, just before packing.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/stage.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/check.cmake)
set(CPACK_LIKESYNCD_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_LIKESYNCD_DEBIAN ${CMAKE_CURRENT_LIST_DIR})

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(DEBFULLNAME "The likesyncd authors")
set(DEBEMAIL root@localhost)
foreach(name DEBFULLNAME DEBEMAIL)
  if(DEFINED ENV{${name}})
    set(${name} $ENV{${name}})
  endif()
endforeach()
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${DEBFULLNAME} <${DEBEMAIL}>")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
  "redis-server | valkey-server, postgresql")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS prometheus)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
foreach(script conffiles postinst prerm postrm)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_LIST_DIR}/${script})
endforeach()
# Executable scripts, whatever the mode of their files here.
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

include(CPack)
