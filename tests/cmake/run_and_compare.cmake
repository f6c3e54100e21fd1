# apiary/tests/cmake/run_and_compare.cmake - runs a program; its output must equal a file.
# SPDX-License-Identifier: MIT
#
# cmake -DPROGRAM=<path> -DEXPECTED=<file> [-DTIMES=<regex>] [-DINPUT=<file>] -P run_and_compare.cmake
#
# The program reads INPUT, if it is there, as its standard input.
# What matches TIMES, measured times that no two runs share, is cut out of both before they are
# compared; both must have some.
cmake_minimum_required(VERSION 3.25)
if(NOT EXISTS "${EXPECTED}")
  message(FATAL_ERROR "${EXPECTED} does not exist: what should ${PROGRAM} print?")
endif()
set(input)
if(INPUT AND EXISTS "${INPUT}")
  set(input INPUT_FILE "${INPUT}")
endif()
execute_process(COMMAND "${PROGRAM}" ${input} RESULT_VARIABLE result OUTPUT_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${result} after printing:\n${output}")
endif()
file(READ "${EXPECTED}" expected)
if(TIMES)
  foreach(text output expected)
    if(NOT ${text} MATCHES "${TIMES}")
      message(FATAL_ERROR "no times (${TIMES}) in the ${text} text:\n${${text}}")
    endif()
    string(REGEX REPLACE "${TIMES}" "" ${text} "${${text}}")
  endforeach()
endif()
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed:\n${output}\nexpected (${EXPECTED}):\n${expected}")
endif()
