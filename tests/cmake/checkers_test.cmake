# apiary/tests/cmake/checkers_test.cmake - the checkers themselves: silent on a good tree, and each
# offence named on a bad one.
# SPDX-License-Identifier: MIT
#
# cmake -DCHECKER=<layers|umbrella|banners|budget|readme|output|failure|discovery> -DWORK=<directory>
#       -DCOMPILER=<path> -P checkers_test.cmake
cmake_minimum_required(VERSION 3.25)
set(here "${CMAKE_CURRENT_LIST_DIR}")
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

# run(<regex or OK> script argument...): the script must end well, or fail saying <regex>.
function(run expected)
  execute_process(COMMAND "${CMAKE_COMMAND}" ${ARGN} RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(expected STREQUAL "OK")
    if(NOT result EQUAL 0)
      message(SEND_ERROR "should have passed: ${ARGN}\n${output}")
    endif()
  elseif(result EQUAL 0)
    message(SEND_ERROR "should have said '${expected}', but passed: ${ARGN}")
  elseif(NOT output MATCHES "${expected}")
    message(SEND_ERROR "should have said '${expected}': ${ARGN}\n${output}")
  endif()
endfunction()

function(write path)
  list(JOIN ARGN "\n" text)
  file(WRITE "${WORK}/${path}" "${text}\n")
endfunction()

set(licence "// SPDX-License-Identifier: MIT")

if(CHECKER STREQUAL "layers")
  set(check "-DROOT=${WORK}" -P "${here}/check_layers.cmake")
  run("no headers" ${check})
  write(apiary/core/a.h "#include <vector>")
  write(apiary/core/status.h "#include <absl/status/status.h>")
  write(apiary/model/a.h "#include <apiary/core/a.h>" "#include <apiary/model/b.h>")
  write(apiary/model/a_spec.h "#include <apiary/core/status.h>")
  write(apiary/alloc/a.h "#include <apiary/model/a.h>")
  write(apiary/sched/a.h "#include <absl/status/statusor.h>" "#include <apiary/policy/a.h>")
  write(apiary/apiary.h "#include <apiary/sim/a.h>")
  run(OK ${check})
  foreach(case
      "core/x.h|<apiary/model/a.h>|core/x.h: goes up or sideways"
      "alloc/x.h|<apiary/metric/a.h>|alloc/x.h: goes up or sideways"
      "metric/x.h|<apiary/alloc/a.h>|metric/x.h: goes up or sideways"
      "policy/x.h|<apiary/sched/a.h>|policy/x.h: goes up or sideways"
      "policy/x.h|<apiary/apiary.h>|policy/x.h: includes the umbrella"
      "model/x.h|<absl/status/status.h>|model/x.h: brings Abseil to floor 1"
      "metric/x.h|<absl/types/span.h>|metric/x.h: brings Abseil to floor 2"
      "alloc/x.h|<apiary/model/a_spec.h>|alloc/x.h: brings Abseil to floor 2"
      "core/x.h|<apiary/core/status.h>|core/x.h: brings Abseil to floor 0"
      "policy/x.h|<absl/container/flat_hash_map.h>|policy/x.h: brings Abseil to floor 3"
      "policy/x.h|<apiary/core/status.h>|policy/x.h: brings Abseil to floor 3"
      "core/x.h|\"a.h\"|core/x.h: includes with quotes"
      "sched/x.h|<thread>|sched/x.h: includes <thread>"
      "sim/x.h|<chrono>|sim/x.h: includes <chrono>"
      "extra/x.h|<vector>|extra/x.h: lies on no floor"
      "sim/x.h|<apiary/extra/a.h>|sim/x.h: includes apiary/extra/a.h, which lies on no floor")
    string(REPLACE "|" ";" case "${case}")
    list(GET case 0 header)
    list(GET case 1 include)
    list(GET case 2 message)
    write(apiary/${header} "#include ${include}")
    run("${message}" ${check})
    file(REMOVE "${WORK}/apiary/${header}")
  endforeach()
  run(OK ${check})

elseif(CHECKER STREQUAL "umbrella")
  set(check "-DROOT=${WORK}" "-DREADME=${WORK}/readme" -P "${here}/check_umbrella.cmake")
  write(readme "`core/a.h` `c.h`")
  write(apiary/core/a.h "")
  write(apiary/model/b.h "")
  write(apiary/apiary.h "#include <apiary/core/a.h>" "#include <apiary/model/b.h>")
  run("README does not name apiary/model/b.h" ${check})
  write(readme "`core/a.h` `model/b.h` `c.h`")
  run(OK ${check})
  write(apiary/model/c.h "")
  run("should be:.*<apiary/model/c.h>" ${check})
  file(REMOVE "${WORK}/apiary/model/c.h" "${WORK}/apiary/model/b.h")
  run("should be:" ${check})

elseif(CHECKER STREQUAL "banners")
  set(check "-DROOT=${WORK}" -P "${here}/check_banners.cmake")
  run("no source files" ${check})
  set(pragma "#pragma once")
  write(include/apiary/core/a.h "// apiary/core/a.h - a." ${licence} ${pragma})
  write(include/apiary/apiary.h "// apiary/apiary.h - all." ${licence} ${pragma})
  write(tests/core/a_test.cpp "// apiary/tests/core/a_test.cpp - a." ${licence})
  write(tests/run.sh "#!/bin/sh" "# SPDX-License-Identifier: MIT")
  run(OK ${check})
  write(include/apiary/core/b.h "// apiary/core/a.h - a." ${licence} ${pragma})
  run("core/b.h: does not begin with" ${check})
  write(include/apiary/core/b.h "// apiary/core/b.h - b. SPDX-License-Identifier: MIT" ${pragma})
  run("core/b.h: no licence line" ${check})
  write(include/apiary/core/b.h "// apiary/core/b.h - b." ${licence})
  run("core/b.h: no #pragma once" ${check})
  write(include/apiary/core/b.h "// apiary/core/b.h - b." ${licence} ${pragma})
  run(OK ${check})
  write(tests/CMakeLists.txt "add_executable(a a.cpp)")
  run("tests/CMakeLists.txt: no licence line" ${check})

elseif(CHECKER STREQUAL "budget")
  write(a.h "int a;" "int b;" "int c;")
  write(broken.h "#include <no_such_header>")
  set(check -P "${here}/check_budget.cmake" -- "${COMPILER}")
  run(OK "-DHEADER=${WORK}/a.h" -DBUDGET=3 ${check})
  run("3 lines, budget 2" "-DHEADER=${WORK}/a.h" -DBUDGET=2 ${check})
  run("preprocessor failed" "-DHEADER=${WORK}/broken.h" -DBUDGET=9 ${check})

elseif(CHECKER STREQUAL "readme")
  write(extract.cmake "include(\"${here}/extract_readme.cmake\")"
    "apiary_extract_readme(\"${WORK}/README.md\" \"${WORK}/out\" count)"
    "message(STATUS \"programs: \${count}\")")
  set(check -P "${WORK}/extract.cmake")
  set(program "```cpp" "int a[] = {1}@ // [x]" "```")
  set(text "Prints:" "" "```text" "1@ [2]" "```")
  set(fragment "```cpp" "// fragment" "int f()@" "```")
  # "@" stands for a semicolon, which a CMake list cannot hold.
  function(write_readme)
    list(JOIN ARGN "\n" content)
    string(REPLACE "@" ";" content "${content}")
    file(WRITE "${WORK}/README.md" "${content}\n")
  endfunction()
  write_readme("# A" "" ${program} ${text} ${fragment} ${program} ${text})
  run(OK ${check})
  foreach(n 1 2)
    file(READ "${WORK}/out/${n}.cpp" code)
    file(READ "${WORK}/out/${n}.expected" expected)
    if(NOT code STREQUAL "int a[] = {1}; // [x]\n" OR NOT expected STREQUAL "1; [2]\n")
      message(SEND_ERROR "program ${n} was extracted as '${code}' with output '${expected}'")
    endif()
  endforeach()
  if(EXISTS "${WORK}/out/3.cpp")
    message(SEND_ERROR "a fragment was taken for a program")
  endif()
  write_readme(${program})
  run("program 1 has no text block" ${check})
  write_readme(${program} ${program} ${text})
  run("program 1 has no text block" ${check})
  write_readme(${text})
  run("text block without a program" ${check})
  write_readme("```cpp" "int a@")
  run("does not end" ${check})
  write_readme(${fragment} ${fragment} ${fragment})
  run("3 fragments" ${check})

elseif(CHECKER STREQUAL "output")
  write(hello.txt "hello")
  write(same.expected "hello")
  write(other.expected "hello " "")
  write(print "#!/bin/sh" "echo hello")
  write(fail "#!/bin/sh" "echo hello" "exit 3")
  file(CHMOD "${WORK}/print" "${WORK}/fail" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(check -P "${here}/run_and_compare.cmake")
  run(OK "-DPROGRAM=${WORK}/print" "-DEXPECTED=${WORK}/same.expected" ${check})
  run("printed:" "-DPROGRAM=${WORK}/print" "-DEXPECTED=${WORK}/other.expected" ${check})
  run("ended with 3" "-DPROGRAM=${WORK}/fail" "-DEXPECTED=${WORK}/same.expected" ${check})
  run("does not exist" "-DPROGRAM=${WORK}/print" "-DEXPECTED=${WORK}/none.expected" ${check})
  write(timed.expected "hello 12")
  write(timed "#!/bin/sh" "echo hello 345")
  file(CHMOD "${WORK}/timed" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(timed "-DEXPECTED=${WORK}/timed.expected" "-DTIMES= [0-9]+" ${check})
  run(OK "-DPROGRAM=${WORK}/timed" ${timed})
  run("no times" "-DPROGRAM=${WORK}/print" ${timed})
  run("printed:" "-DPROGRAM=${WORK}/timed" "-DEXPECTED=${WORK}/timed.expected" ${check})

elseif(CHECKER STREQUAL "failure")
  set(check -P "${here}/expect_failure.cmake" --)
  run(OK "-DMATCH=whoops" ${check} sh -c "echo whoops >&2 && exit 1")
  run("should have failed" "-DMATCH=whoops" ${check} sh -c "echo whoops")
  run("without saying" "-DMATCH=whoops" ${check} sh -c "echo sorry && exit 1")
  run(OK "-DMATCH=whoops" "-DRESULT=abort" ${check} sh -c "echo whoops && kill -ABRT $$")
  run("ended with" "-DMATCH=whoops" "-DRESULT=abort" ${check} sh -c "echo whoops && exit 1")

elseif(CHECKER STREQUAL "discovery")
  set(check "-DPREFIX=a." "-DFILE=${WORK}/tests.cmake" "-DPROPERTIES=SKIP_RETURN_CODE 77"
            "-DPROGRAM=${WORK}/list" -P "${here}/discover_tests.cmake")
  # The program that stands for a test binary prints these names; "@" stands for a semicolon.
  function(write_list)
    list(JOIN ARGN "\n" names)
    string(REPLACE "@" ";" names "${names}")
    file(WRITE "${WORK}/list" "#!/bin/sh\ncat << 'END'\n[doctest] names\n====\n${names}\nEND\n")
    file(CHMOD "${WORK}/list" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endfunction()
  write_list("one, two@ three" "a [range) of \"cells\"")
  run(OK ${check})
  file(READ "${WORK}/tests.cmake" script)
  foreach(expected "([==[a.one, two; three]==]" "[==[--test-case=one\\, two; three]==]"
                   "([==[a.a [range) of \"cells\"]==]" "PROPERTIES SKIP_RETURN_CODE 77)")
    string(FIND "${script}" "${expected}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "no '${expected}' in:\n${script}")
    endif()
  endforeach()
  write_list("twice" "once" "twice")
  run("two test cases 'twice'" ${check})
  write_list()
  run("has no test case" ${check})
  file(WRITE "${WORK}/list" "#!/bin/sh\nexit 1\n")
  run("does not list" ${check})

else()
  message(FATAL_ERROR "no such checker: ${CHECKER}")
endif()
