# apiary/tests/cmake/debian_package.cmake - the package for Debian: its fields, and its files, unpacked.
# SPDX-License-Identifier: MIT
#
# cmake -DDPKG_DEB=<program> -DVERSION=<of the project> -DBUILD=<directory with the package>
#       -DROOT=<directory to unpack into> -P debian_package.cmake
cmake_minimum_required(VERSION 3.25)
set(package ${BUILD}/libapiary-dev_${VERSION}_all.deb)

foreach(field "Package|libapiary-dev" "Version|${VERSION}" "Architecture|all" "Section|libdevel"
              "Depends|libabsl-dev (>= 20220623)")
  string(REPLACE "|" ";" field "${field}")
  list(POP_FRONT field name)
  execute_process(COMMAND ${DPKG_DEB} --field ${package} ${name} OUTPUT_VARIABLE value
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT value STREQUAL field)
    message(FATAL_ERROR "${package}: ${name} is '${value}', not '${field}'")
  endif()
endforeach()

file(REMOVE_RECURSE ${ROOT})
execute_process(COMMAND ${DPKG_DEB} --extract ${package} ${ROOT} COMMAND_ERROR_IS_FATAL ANY)
foreach(file include/apiary/apiary.h share/cmake/apiary/apiaryConfig.cmake share/pkgconfig/apiary.pc
             share/doc/apiary/LICENSE)
  if(NOT EXISTS ${ROOT}/usr/${file})
    message(FATAL_ERROR "${package} has no /usr/${file}")
  endif()
endforeach()
