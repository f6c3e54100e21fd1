# apiary/tests/cmake/check_banners.cmake - every source file says what it is and its licence.
# SPDX-License-Identifier: MIT
#
# cmake -DROOT=<checkout> -P check_banners.cmake
#
# Headers, tests and benchmarks begin with "// apiary/<path> - what."; every file names the licence
# on a line of its own; headers have "#pragma once".
cmake_minimum_required(VERSION 3.25)

set(errors)
set(checked 0)
foreach(folder include examples benchmarks tests .ci)
  file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/${folder}/*.h" "${ROOT}/${folder}/*.cpp"
    "${ROOT}/${folder}/*.cmake" "${ROOT}/${folder}/*.sh" "${ROOT}/${folder}/CMakeLists.txt"
    "${ROOT}/${folder}/run")
  foreach(path IN LISTS files)
    math(EXPR checked "${checked} + 1")
    file(STRINGS "${ROOT}/${path}" lines LIMIT_COUNT 8)
    list(JOIN lines "\n" head)
    string(REGEX REPLACE "^include/" "" name "${path}")
    string(REGEX REPLACE "^apiary/" "" name "${name}")
    string(FIND "${head}" "// apiary/${name} - " banner)
    if(path MATCHES "^(include|tests|benchmarks)/.*\\.(h|cpp)$" AND NOT banner EQUAL 0)
      list(APPEND errors "${path}: does not begin with \"// apiary/${name} - \"")
    endif()
    if(NOT "\n${head}\n" MATCHES "\n(//|#) SPDX-License-Identifier: MIT\n")
      list(APPEND errors "${path}: no licence line of its own near the top")
    endif()
    if(path MATCHES "\\.h$" AND NOT "\n${head}\n" MATCHES "\n#pragma once\n")
      list(APPEND errors "${path}: no #pragma once")
    endif()
  endforeach()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no source files in ${ROOT}")
endif()
if(errors)
  list(JOIN errors "\n" text)
  message(FATAL_ERROR "${text}")
endif()
