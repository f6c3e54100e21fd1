# apiary/tests/cmake/check_modules.cmake - which header may include what.
# SPDX-License-Identifier: MIT
#
# cmake -DROOT=<include directory> [-DTABLE=<file>] -P check_modules.cmake
#
# A folder is a module; modules.txt, beside this file, says which others it may include, and has no
# cycles. A module includes only the public headers of another one: X/detail/ is for X alone, and all of
# it is in namespace apiary::detail, but for bodies of public headers (X/detail/*_inl.h). Nobody includes apiary.h. Abseil is for preempt/ and above, and for
# the few headers below that speak Status.
cmake_minimum_required(VERSION 3.25)

if(NOT DEFINED TABLE)
  set(TABLE ${CMAKE_CURRENT_LIST_DIR}/modules.txt)
endif()
# Modules that may use Abseil, and headers of others that may.
set(status_modules "^(preempt|explain|gang_scheduler|fgd|hived|queue|philly|gandiva|trace|sim)/")
set(status_headers
  "^(core/status|topology/named_tree|model/(job_scheduler|placer|server_spec))\\.h$")
# Time, threads, files and random devices belong to the host.
set(banned "^(iostream|fstream|thread|mutex|chrono|ctime|regex|random)$")

set(errors)
macro(complain what)
  list(APPEND errors "${header}: ${what}")
endmacro()

# Each row may name only modules of rows above it, so there are no cycles.
file(STRINGS "${TABLE}" rows REGEX "^[a-z_]+:")
set(modules)
foreach(row IN LISTS rows)
  string(REGEX MATCH "^([a-z_]+):(.*)$" row "${row}")
  set(module "${CMAKE_MATCH_1}")
  string(REGEX MATCHALL "[a-z_]+" uses_${module} "${CMAKE_MATCH_2}")
  foreach(other IN LISTS uses_${module})
    if(NOT other IN_LIST modules)
      list(APPEND errors "${TABLE}: ${module} uses ${other}, which is not above it")
    endif()
  endforeach()
  list(APPEND modules ${module})
endforeach()

file(GLOB_RECURSE headers RELATIVE "${ROOT}/apiary" "${ROOT}/apiary/*.h")
if(NOT headers OR NOT modules)
  message(FATAL_ERROR "no headers in ${ROOT}/apiary, or no modules in ${TABLE}")
endif()
foreach(header IN LISTS headers)
  if(header STREQUAL "apiary.h")
    continue()
  endif()
  if(NOT header MATCHES "^([a-z_]+)/(detail/)?[a-z0-9_]+\\.h$")
    complain("lies neither in a module nor in its detail/")
    continue()
  endif()
  set(module ${CMAKE_MATCH_1})
  set(is_part "${CMAKE_MATCH_2}")
  if(NOT module IN_LIST modules)
    complain("lies in no module")
    continue()
  endif()
  file(STRINGS "${ROOT}/apiary/${header}" includes REGEX "^[ \t]*#[ \t]*include")
  foreach(include IN LISTS includes)
    if(NOT include MATCHES "include[ \t]*<([^>]+)>")
      complain("includes with quotes: ${include}")
      continue()
    endif()
    set(name "${CMAKE_MATCH_1}")
    if(name MATCHES "^apiary/apiary\\.h$")
      complain("includes the umbrella")
    elseif(name MATCHES "^apiary/(([a-z_]+)/(detail/)?.*)$")
      set(target "${CMAKE_MATCH_1}")
      set(other "${CMAKE_MATCH_2}")
      set(of_other "${CMAKE_MATCH_3}")
      if(NOT other STREQUAL module AND NOT other IN_LIST uses_${module})
        complain("includes ${name}, and ${module} may not use ${other}")
      elseif(NOT other STREQUAL module AND of_other)
        complain("includes ${name}, a part of ${other}")
      elseif(target MATCHES "${status_headers}" AND NOT header MATCHES "${status_modules}"
             AND NOT header MATCHES "${status_headers}")
        complain("brings Abseil to ${module}: includes ${name}")
      endif()
    elseif(name MATCHES "^absl/" AND NOT header MATCHES "${status_modules}"
           AND NOT header MATCHES "${status_headers}")
      complain("brings Abseil to ${module}: includes ${name}")
    elseif(name MATCHES "${banned}")
      complain("includes <${name}>")
    endif()
  endforeach()
  if(is_part AND NOT header MATCHES "_inl\\.h$")
    # Between the begin and the end of the namespace: one namespace detail, from first to last. Behind
    # it there may be its bodies, or the end of an include guard.
    file(READ "${ROOT}/apiary/${header}" text)
    if(NOT text MATCHES
       "APIARY_NAMESPACE_BEGIN\nnamespace detail {\n.*\n}  // namespace detail\nAPIARY_NAMESPACE_END\n(\n#ifndef APIARY_COMPILED\n#include <apiary/[a-z_/]+_inl\\.h>\n#endif\n)?(\n#endif  // [A-Z_]+\n)?$")
      complain("is not in namespace apiary::detail as a whole")
    endif()
  endif()
endforeach()

if(errors)
  list(JOIN errors "\n" text)
  message(FATAL_ERROR "${text}")
endif()
