# apiary/tests/cmake/check_budget.cmake - how many lines a header costs whoever includes it.
# SPDX-License-Identifier: MIT
#
# cmake -DHEADER=<path below the include directory> -DBUDGET=<lines> -P check_budget.cmake
#       -- compiler argument...
#
# Counts the lines that the preprocessor hands to the compiler.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/read_command.cmake")
execute_process(COMMAND ${command} -std=c++20 -E -P -x c++ "${HEADER}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the preprocessor failed on ${HEADER}:\n${error}")
endif()
string(REGEX REPLACE "[^\n]+" "" newlines "${output}")
string(LENGTH "${newlines}" lines)
message(STATUS "${HEADER}: ${lines} lines of ${BUDGET}")
if(lines EQUAL 0 OR lines GREATER BUDGET)
  message(FATAL_ERROR "${HEADER}: ${lines} lines, budget ${BUDGET}")
endif()
