# apiary/tests/cmake/check_compile_seconds.cmake - what README.md says a program takes to compile.
# SPDX-License-Identifier: MIT
#
# cmake -DREADME=<path> -DROOT=<checkout> -P check_compile_seconds.cmake -- compiler argument...
#
# Each row "| `program.cpp` | 12.3 | 4.5 |" of README.md, or with a link around the name, says how many
# seconds of processor time the program takes with the headers alone and with apiary::compiled; a dash says
# that the second figure would be the first. "Abseil alone" is an empty program with Abseil's headers. A
# machine has a speed of its own, so what counts is a program's time divided by that of Abseil alone: it may
# be half as much again as the table says. A figure that is above its bound is measured up to three times.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/read_command.cmake")

# milliseconds(<variable> <argument>...): processor time in user mode, of the compiler and what
# it starts.
function(milliseconds variable)
  execute_process(COMMAND sh -c "\"$@\" || exit 1; times" sh ${command} -O2 -c -o /dev/null ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error)
  # The second line of `times` is of the children: 0m1.230000s 0m0.120000s
  if(NOT result EQUAL 0 OR NOT output MATCHES "\n([0-9]+)m([0-9]+)[.,]([0-9][0-9])")
    message(FATAL_ERROR "cannot time ${ARGN}:\n${output}${error}")
  endif()
  math(EXPR time "${CMAKE_MATCH_1} * 60000 + ${CMAKE_MATCH_2} * 1000 + 1${CMAKE_MATCH_3} * 10 - 1000")
  set(${variable} ${time} PARENT_SCOPE)
endfunction()

# stated(<variable> <text>): "12.3" is 12300.
function(stated variable text)
  string(REGEX REPLACE "^([0-9]+)\\.([0-9])$" "\\1\\200" time "${text}")
  math(EXPR time "${time}")
  set(${variable} ${time} PARENT_SCOPE)
endfunction()

set(name "\\[?`([a-z_/]+\\.cpp|Abseil alone)`(\\]\\([^)]*\\))?")
file(STRINGS "${README}" rows REGEX "^\\| ${name} \\| [0-9]+\\.[0-9] \\| ")
set(reference)
set(checked 0)
foreach(row IN LISTS rows)
  if(NOT row MATCHES "^\\| ${name} \\| ([0-9]+\\.[0-9]) \\| (-|[0-9]+\\.[0-9]) \\|$")
    message(FATAL_ERROR "not a row of seconds: ${row}")
  endif()
  set(program "${CMAKE_MATCH_1}")
  stated(headers "${CMAKE_MATCH_3}")
  set(figures ${headers})
  if(NOT CMAKE_MATCH_4 STREQUAL "-")
    stated(compiled "${CMAKE_MATCH_4}")
    list(APPEND figures ${compiled})
  endif()
  if(program STREQUAL "Abseil alone")
    set(reference ${headers})
    continue()
  elseif(NOT reference)
    message(FATAL_ERROR "${README}: the first row of seconds is not that of Abseil alone")
  endif()
  set(option)
  foreach(figure IN LISTS figures)
    set(round 0)
    while(TRUE)
      milliseconds(abseil -x c++ "${CMAKE_CURRENT_LIST_DIR}/abseil_alone.cpp")
      milliseconds(time ${option} "${ROOT}/examples/${program}")
      math(EXPR allowed "${figure} * ${abseil} / ${reference} * 3 / 2")
      math(EXPR round "${round} + 1")
      message(STATUS "${program} ${option}: ${time} ms, Abseil alone ${abseil} ms, allowed ${allowed} ms")
      if(time LESS_EQUAL allowed)
        break()
      elseif(round EQUAL 3)
        message(SEND_ERROR "${program} ${option} takes ${time} ms to compile, and by the table of "
                "${README} ${allowed} ms at most: ${row}")
        break()
      endif()
    endwhile()
    set(option -DAPIARY_COMPILED)
    math(EXPR checked "${checked} + 1")
  endforeach()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "${README} has no rows of seconds")
endif()
