# SPDX-License-Identifier: MIT
# Read by cpack before it does anything. Units and manual pages hold full paths,
# so that a build for another place makes a package that cannot run.
if(NOT CPACK_LIKESYNCD_PREFIX STREQUAL "/usr")
  message(FATAL_ERROR "The package is for /usr, and this build is for "
    "${CPACK_LIKESYNCD_PREFIX}: configure with -DCMAKE_INSTALL_PREFIX=/usr")
endif()
