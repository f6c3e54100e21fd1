# apiary/.packaging/pkg_config.cmake - apiary.pc and, with APIARY_COMPILED, apiary-compiled.pc.
# SPDX-License-Identifier: MIT
#
# The files find the headers from where they lie themselves: an installation may be moved.

# write_pc(file folder description lines): of the folder, relative to the prefix, the file is in.
function(write_pc file folder description lines)
  file(RELATIVE_PATH up /prefix/${folder} /prefix)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc
"prefix=\${pcfiledir}/${up}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}

Name: ${file}
Description: ${description}
Version: ${PROJECT_VERSION}
${lines}
")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc DESTINATION ${folder})
endfunction()

write_pc(apiary ${CMAKE_INSTALL_DATAROOTDIR}/pkgconfig
  "GPU-cluster scheduling algorithms, header-only (C++20)"
"Requires: absl_function_ref absl_status absl_statusor absl_strings
Cflags: -I\${includedir}")
if(APIARY_COMPILED)
  write_pc(apiary-compiled ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    "apiary with HiveD and other large bodies compiled once"
"Requires: apiary
Libs: -L\${libdir} -lapiary_compiled
Cflags: -DAPIARY_COMPILED")
endif()
