# SPDX-License-Identifier: MIT
# Writes OUT: one `const char lua_NAME[]` for each of FILES.
set(text "/* Made by embed.cmake from daemon/lua; do not edit. */\n#include \"services/lua.h\"\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND text "const char lua_${name}[] = {${bytes}0x00};\n")
endforeach()
file(WRITE ${OUT} "${text}")
