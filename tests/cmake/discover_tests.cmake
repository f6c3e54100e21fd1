# apiary/tests/cmake/discover_tests.cmake - every test case of a binary is a test of CTest.
# SPDX-License-Identifier: MIT
#
# cmake -DPROGRAM=<test binary> -DPREFIX=<text> -DFILE=<output> -DPROPERTIES=<text>
#       -P discover_tests.cmake
#
# Names are sentences: commas, semicolons and brackets are characters like others.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${PROGRAM}" --list-test-cases --no-colors=true RESULT_VARIABLE result
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} does not list its test cases (${result}):\n${output}")
endif()
set(script)
set(names "\n")
while(output MATCHES "^([^\n]*)\n")
  set(name "${CMAKE_MATCH_1}")
  string(LENGTH "${CMAKE_MATCH_0}" length)
  string(SUBSTRING "${output}" ${length} -1 output)
  if(name MATCHES "^(\\[doctest\\].*|=*)$")
    continue()
  endif()
  string(FIND "${names}" "\n${name}\n" twice)
  if(NOT twice EQUAL -1)
    message(FATAL_ERROR "${PROGRAM} has two test cases '${name}'")
  endif()
  string(APPEND names "${name}\n")
  string(REPLACE "," "\\," filter "${name}")  # a comma separates filters
  set(test "[==[${PREFIX}${name}]==]")
  string(APPEND script "add_test(${test} [==[${PROGRAM}]==] [==[--test-case=${filter}]==])\n")
  if(PROPERTIES)
    string(APPEND script "set_tests_properties(${test} PROPERTIES ${PROPERTIES})\n")
  endif()
endwhile()
if(NOT script)
  message(FATAL_ERROR "${PROGRAM} has no test case")
endif()
file(WRITE "${FILE}" "${script}")
