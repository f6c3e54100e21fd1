# apiary/tests/cmake/expect_failure.cmake - a command that must fail, for the stated reason.
# SPDX-License-Identifier: MIT
#
# cmake -DMATCH=<regex> [-DRESULT=<regex>] [-DERRORS=<number>] -P expect_failure.cmake -- command argument...
#
# MATCH:  must match what the command prints.
# RESULT: must match how it ended (an exit code other than 0, or "Subprocess aborted").
# ERRORS: so many lines of a compiler must say "error: ".
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/read_command.cmake")

execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "succeeded, but should have failed: ${command}\n${output}")
endif()
if(DEFINED RESULT AND NOT result MATCHES "${RESULT}")
  message(FATAL_ERROR "ended with '${result}', not with '${RESULT}': ${command}\n${output}")
endif()
if(NOT output MATCHES "${MATCH}")
  message(FATAL_ERROR "failed without saying '${MATCH}': ${command}\n${output}")
endif()
if(DEFINED ERRORS)
  string(REGEX MATCHALL "error: [^\n]*" found "${output}")
  list(LENGTH found count)
  if(NOT count EQUAL ERRORS)
    message(FATAL_ERROR "${count} errors, not ${ERRORS}: ${command}\n${output}")
  endif()
endif()
