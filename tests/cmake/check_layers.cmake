# apiary/tests/cmake/check_layers.cmake - which header may include what.
# SPDX-License-Identifier: MIT
#
# cmake -DROOT=<include directory> -P check_layers.cmake
#
# A header includes headers of its own folder and of lower floors only; nobody includes apiary.h;
# floors 0 to 3 know no Abseil, except where a user hands something in.
cmake_minimum_required(VERSION 3.25)

set(floor_core 0)
set(floor_model 1)
set(floor_alloc 2)
set(floor_metric 2)
set(floor_policy 3)
set(floor_sched 4)
set(floor_sim 5)
# Headers that may use Abseil's Status below floor 4.
set(status_headers "^(core/status|model/[a-z0-9_]+_spec)\\.h$")
# Time, threads, files and random devices belong to the host.
set(banned "^(iostream|fstream|thread|mutex|chrono|ctime|regex|random)$")

set(errors)
macro(complain what)
  list(APPEND errors "${header}: ${what}")
endmacro()

file(GLOB_RECURSE headers RELATIVE "${ROOT}/apiary" "${ROOT}/apiary/*.h")
if(NOT headers)
  message(FATAL_ERROR "no headers in ${ROOT}/apiary")
endif()
foreach(header IN LISTS headers)
  if(header MATCHES "^apiary\\.h$")
    continue()
  endif()
  string(REGEX REPLACE "/.*" "" folder "${header}")
  if(NOT DEFINED floor_${folder})
    complain("lies on no floor")
    continue()
  endif()
  set(floor ${floor_${folder}})
  file(STRINGS "${ROOT}/apiary/${header}" includes REGEX "^[ \t]*#[ \t]*include")
  foreach(include IN LISTS includes)
    if(NOT include MATCHES "include[ \t]*<([^>]+)>")
      complain("includes with quotes: ${include}")
      continue()
    endif()
    set(name "${CMAKE_MATCH_1}")
    if(name MATCHES "^apiary/apiary\\.h$")
      complain("includes the umbrella")
    elseif(name MATCHES "^apiary/(([a-z]+)/.*)$")
      set(target "${CMAKE_MATCH_1}")
      set(other "${CMAKE_MATCH_2}")
      if(NOT DEFINED floor_${other})
        complain("includes ${name}, which lies on no floor")
      elseif(NOT other STREQUAL folder AND NOT floor_${other} LESS floor)
        complain("goes up or sideways: includes ${name}")
      elseif(floor LESS 4 AND target MATCHES "${status_headers}"
             AND NOT header MATCHES "${status_headers}")
        complain("brings Abseil to floor ${floor}: includes ${name}")
      endif()
    elseif(name MATCHES "^absl/" AND floor LESS 4 AND NOT header MATCHES "${status_headers}")
      complain("brings Abseil to floor ${floor}: includes ${name}")
    elseif(name MATCHES "${banned}")
      complain("includes <${name}>")
    endif()
  endforeach()
endforeach()

if(errors)
  list(JOIN errors "\n" text)
  message(FATAL_ERROR "${text}")
endif()
