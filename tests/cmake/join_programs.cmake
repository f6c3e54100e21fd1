# apiary/tests/cmake/join_programs.cmake - several programs compiled as one.
# SPDX-License-Identifier: MIT
#
# Most of the work of compiling a short program is what it includes. Each program becomes a namespace
# of one file; the name by which the executable is called says which main runs.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/extract_readme.cmake")

# apiary_write_joined(<output> <name>=<source>...): the one file. What the programs include comes first,
# in the order of the first one that asks for it.
function(apiary_write_joined output)
  set(includes "#include <cstdio>" "#include <string>")
  set(bodies)
  set(choices)
  foreach(program IN LISTS ARGN)
    string(REGEX MATCH "^([^=]+)=(.*)$" program "${program}")
    set(name "${CMAKE_MATCH_1}")
    set(source "${CMAKE_MATCH_2}")
    cmake_path(GET source PARENT_PATH folder)
    file(READ "${source}" text)
    set(text "\n${text}")
    string(REGEX MATCHALL "\n#include [<\"][^>\"\n]+[>\"]" found "${text}")
    foreach(include IN LISTS found)
      string(REPLACE "\n" "" include "${include}")
      if(include MATCHES "\"(.*)\"" AND EXISTS "${folder}/${CMAKE_MATCH_1}")
        set(include "#include \"${folder}/${CMAKE_MATCH_1}\"")
      endif()
      list(APPEND includes "${include}")
    endforeach()
    string(REGEX REPLACE "\n#include [<\"][^\n]*" "\n" text "${text}")
    string(REGEX REPLACE "^\n" "" text "${text}")
    if(NOT "\n${text}" MATCHES "\nint main\\(([^)]*)\\)")
      message(FATAL_ERROR "${source}: no function main")
    endif()
    set(arguments "")
    if(CMAKE_MATCH_1)
      set(arguments "argc, argv")
    endif()
    # Only a main outside every namespace ends with 0 by itself.
    string(REGEX REPLACE "\n}\n*$" "\n  return 0;\n}\n" text "${text}")
    string(APPEND bodies "\nnamespace program_${name} {\n#line 1 \"${source}\"\n${text}}\n")
    string(APPEND choices "  if (name == \"${name}\") return program_${name}::main(${arguments});\n")
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  apiary_write_if_changed("${output}" "${includes}\n${bodies}
#line 1 \"${output}\"
int main([[maybe_unused]] int argc, char** argv) {
  const std::string path = argv[0];
  const std::string name = path.substr(path.find_last_of('/') + 1);
${choices}  std::fprintf(stderr, \"no program is called %s\\n\", name.c_str());
  return 125;
}
")
endfunction()

# apiary_add_joined(<folder> <name> <source>): remembers a program; <folder>/<name> will run it.
function(apiary_add_joined folder name source)
  set_property(GLOBAL APPEND PROPERTY APIARY_JOINED ${name}=${source})
  set_property(GLOBAL APPEND PROPERTY APIARY_JOINED_LINKS ${folder}/${name})
endfunction()

# apiary_join_programs(<target>): the executable of all that are remembered, and the links to it.
function(apiary_join_programs target)
  get_property(programs GLOBAL PROPERTY APIARY_JOINED)
  get_property(paths GLOBAL PROPERTY APIARY_JOINED_LINKS)
  set(links)
  foreach(path IN LISTS paths)
    cmake_path(GET path PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    list(APPEND links COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:${target}> ${path})
  endforeach()
  foreach(program IN LISTS programs)
    string(REGEX REPLACE "^[^=]+=" "" source "${program}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  endforeach()
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  apiary_write_joined(${unit} ${programs})
  add_executable(${target} ${unit})
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM ${links})
endfunction()
