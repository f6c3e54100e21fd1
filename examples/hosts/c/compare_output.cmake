# apiary/examples/hosts/c/compare_output.cmake - runs a command; what it prints must equal a file.
# SPDX-License-Identifier: MIT
#
# cmake -DEXPECTED=<file> -P compare_output.cmake -- <command>...
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../../../tests/cmake/read_command.cmake")
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output)
file(READ "${EXPECTED}" expected)
if(NOT result EQUAL 0 OR NOT output STREQUAL expected)
  message(FATAL_ERROR "${command} ended with ${result} and printed:\n${output}\nexpected:\n${expected}")
endif()
