# SPDX-License-Identifier: MIT
# Writes OUT: one `const char PREFIX_NAME[]`, as HEADER declares it, for each of
# FILES. For a page (.html) also PREFIX_NAME_policy: the Content-Security-Policy
# that lets its own script and style run, by their hashes, and no other.

# The text between <TAG> and </TAG>, of which FILE has one: its SHA-256 in base64.
function(hash_of file tag hash_r)
  file(READ ${file} text)
  string(FIND "${text}" "<${tag}>" start)
  string(FIND "${text}" "</${tag}>" end)
  string(LENGTH "<${tag}>" len)
  math(EXPR start "${start} + ${len}")
  math(EXPR len "${end} - ${start}")
  string(SUBSTRING "${text}" ${start} ${len} text)
  string(SHA256 hex "${text}")
  set(digits
    ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(hash "")
  foreach(at RANGE 0 60 6) # three bytes make four digits; 32 want one more
    string(SUBSTRING "${hex}00" ${at} 6 part)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${part} >> ${shift}) & 63")
      string(SUBSTRING ${digits} ${digit} 1 digit)
      string(APPEND hash ${digit})
    endforeach()
  endforeach()
  string(SUBSTRING ${hash} 0 43 hash)
  set(${hash_r} "sha256-${hash}=" PARENT_SCOPE)
endfunction()

set(text "/* Made by embed.cmake; do not edit. */\n#include \"${HEADER}\"\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND text "const char ${PREFIX}_${name}[] = {${bytes}0x00};\n")
  if(file MATCHES "\\.html$")
    hash_of(${file} script script)
    hash_of(${file} style style)
    string(APPEND text "const char ${PREFIX}_${name}_policy[] =\n"
      "    \"default-src 'none'; connect-src 'self'; img-src data:; \"\n"
      "    \"script-src '${script}'; \"\n"
      "    \"style-src '${style}'; \"\n"
      "    \"base-uri 'none'; form-action 'none'; frame-ancestors 'none'\";\n")
  endif()
endforeach()
file(WRITE ${OUT} "${text}")
