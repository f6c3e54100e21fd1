# apiary/tests/cmake/pkg_config.cmake - a program built with the flags of an installed .pc file, and run.
# SPDX-License-Identifier: MIT
#
# cmake -DPKG_CONFIG=<program> -DPREFIX=<of the installation> -DFILES=<apiary | apiary-compiled>
#       -DVERSION=<of the project> -DCOMPILER=<path> -DSOURCE=<program> -DWORK=<directory> -P pkg_config.cmake
cmake_minimum_required(VERSION 3.25)

# run(<what failed> command...): sets output, or fails.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what}: ${result}\n${output}\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# The installation is moved first: the flags must follow it.
file(REMOVE_RECURSE ${WORK})
file(COPY ${PREFIX}/ DESTINATION ${WORK}/moved)
file(GLOB folders ${WORK}/moved/share/pkgconfig ${WORK}/moved/lib*/pkgconfig ${WORK}/moved/lib*/*/pkgconfig)
list(JOIN folders ":" folders)
set(ENV{PKG_CONFIG_PATH} "${folders}")

run("its version" ${PKG_CONFIG} --modversion ${FILES})
if(NOT output STREQUAL VERSION)
  message(FATAL_ERROR "${FILES}.pc: version ${output}, the project's is ${VERSION}")
endif()
run("its flags" ${PKG_CONFIG} --cflags --libs ${FILES})
separate_arguments(flags UNIX_COMMAND "${output}")
run("the compiler" ${COMPILER} -std=c++20 ${SOURCE} -o ${WORK}/program ${flags})
run("the program" ${WORK}/program)
