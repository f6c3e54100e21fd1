# apiary/tests/cmake/check_umbrella.cmake - apiary.h includes every header, in order, and README names each.
# SPDX-License-Identifier: MIT
#
# cmake -DROOT=<include directory> -DREADME=<file> -P check_umbrella.cmake
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/apiary/*.h")
list(REMOVE_ITEM headers apiary/apiary.h)
list(SORT headers)
file(READ "${README}" readme)
foreach(header IN LISTS headers)
  cmake_path(GET header FILENAME name)
  if(NOT readme MATCHES "[`/]${name}`")
    message(FATAL_ERROR "README does not name ${header}")
  endif()
endforeach()
list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>")
file(STRINGS "${ROOT}/apiary/apiary.h" includes REGEX "^#include")
if(NOT includes STREQUAL headers)
  list(JOIN headers "\n" text)
  message(FATAL_ERROR "the includes of apiary.h should be:\n${text}")
endif()
