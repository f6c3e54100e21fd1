# apiary/tests/cmake/build_reference.cmake - runs Doxygen; every public name must be documented.
# SPDX-License-Identifier: MIT
#
# cmake -DDOXYGEN=<path> -DDOXYFILE=<file> -DLOG=<file> -P build_reference.cmake
#
# LOG is the file that the Doxyfile names for warnings. Every warning is an error, but one: a member of
# a class may go without a comment where its name says it all. Those are counted.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${DOXYGEN}" "${DOXYFILE}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "doxygen ended with ${result}")
endif()
file(READ "${LOG}" text)
string(REGEX REPLACE "[][;]" " " text "${text}")
string(REPLACE "\n" ";" lines "${text}")
set(errors)
set(members 0)
foreach(line IN LISTS lines)
  if(line MATCHES "Member .* of (class|struct) .* is not documented")
    math(EXPR members "${members} + 1")
  elseif(NOT line STREQUAL "")
    list(APPEND errors "${line}")
  endif()
endforeach()
message(STATUS "${members} members of classes have no comment")
if(errors)
  list(LENGTH errors count)
  list(JOIN errors "\n" text)
  message(FATAL_ERROR "${count} warnings:\n${text}")
endif()
