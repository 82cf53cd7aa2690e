# SPDX-License-Identifier: MIT
# Run by cpack on the staged files: what Debian's policy asks for beyond what the
# install rules make.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(doc ${root}/usr/share/doc/likesyncd)

# The license is in the copyright file. The configuration is a conffile; the
# copy beside the README is for those who install without the package.
file(REMOVE ${doc}/LICENSE ${doc}/likesyncd.ini)
file(READ ${CPACK_LIKESYNCD_DEBIAN}/../../LICENSE license)
string(REGEX REPLACE "^[^\n]*\n\n([^\n]*)\n\n" "" license "${license}")
set(holder "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n" "\n.\n" license "${license}")
string(REGEX REPLACE "\n(.)" "\n \\1" license "\n${license}")
string(REPLACE "Copyright (c) " "" holder "${holder}")
configure_file(${CPACK_LIKESYNCD_DEBIAN}/copyright.in ${doc}/copyright @ONLY)

string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${CPACK_LIKESYNCD_DEBIAN}/changelog.in ${doc}/changelog @ONLY)

# Not for everybody, though passwords belong in files of their own. The group is set
# by postinst, since it has no number before.
file(CHMOD ${root}/etc/likesyncd/likesyncd.ini
  PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ)

configure_file(${CPACK_LIKESYNCD_DEBIAN}/lintian-overrides
  ${root}/usr/share/lintian/overrides/likesyncd COPYONLY)

file(GLOB pages ${root}/usr/share/man/man*/*.[1-8])
foreach(text ${pages} ${doc}/changelog)
  execute_process(COMMAND gzip -9n ${text} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
