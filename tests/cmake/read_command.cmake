# apiary/tests/cmake/read_command.cmake - the command that a script was given behind "--".
# SPDX-License-Identifier: MIT
#
# Included by the script; `command` becomes the list of the arguments behind the first "--".
set(command)
set(seen FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(seen)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(seen TRUE)
  endif()
endforeach()
