# apiary/tests/cmake/check_umbrella.cmake - apiary.h includes every public header, in order, and no other.
# SPDX-License-Identifier: MIT
#
# cmake -DROOT=<include directory> -P check_umbrella.cmake
cmake_minimum_required(VERSION 3.25)
file(GLOB headers RELATIVE "${ROOT}" "${ROOT}/apiary/*/*.h")
list(SORT headers)
list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>")
file(STRINGS "${ROOT}/apiary/apiary.h" includes REGEX "^#include")
if(NOT includes STREQUAL headers)
  list(JOIN headers "\n" text)
  message(FATAL_ERROR "the includes of apiary.h should be:\n${text}")
endif()
