# apiary/tests/cmake/checkout_command.cmake - README.md's program, compiled by README.md's command in a
# checkout, and run.
# SPDX-License-Identifier: MIT
#
# cmake -DSOURCE=<checkout> -DCODE=<the program> -DEXPECTED=<file with its output> -DWORK=<directory>
#       -P checkout_command.cmake
cmake_minimum_required(VERSION 3.25)

file(READ ${SOURCE}/README.md readme)
if(NOT readme MATCHES "`(g\\+\\+ [^`]* my\\.cpp [^`]*)`")
  message(FATAL_ERROR "README.md has no command that compiles my.cpp")
endif()
set(command "${CMAKE_MATCH_1}")
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
file(CREATE_LINK ${SOURCE}/include ${WORK}/include SYMBOLIC)
file(COPY_FILE ${CODE} ${WORK}/my.cpp)
execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY ${WORK} RESULT_VARIABLE result
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${command}: ${result}\n${output}")
endif()
set(PROGRAM ${WORK}/a.out)
include(${CMAKE_CURRENT_LIST_DIR}/run_and_compare.cmake)
