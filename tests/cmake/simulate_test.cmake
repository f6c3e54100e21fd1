# apiary/tests/cmake/simulate_test.cmake - the program simulate: its files, and what it refuses.
# SPDX-License-Identifier: MIT
#
# cmake -DPROGRAM=<path> -DWORK=<folder> -DEXPECTED=<file> -DREADME=<file> -P simulate_test.cmake
#
# WORK is made anew. README shows the table in EXPECTED.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(errors)

# run(argument...): sets status, out and err; names are relative to WORK.
macro(run)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} WORKING_DIRECTORY "${WORK}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
endmacro()
macro(failed what)
  string(APPEND errors "${what}: status ${status}, out\n${out}err\n${err}\n")
endmacro()
macro(list_files variable)
  file(GLOB ${variable} RELATIVE "${WORK}" "${WORK}/*")
endmacro()

file(WRITE "${WORK}/philly" "timestamp,duration,num_gpus,gpu_time,cluster\n"
  "2020-01-01 00:00:00,60,2,0,a\n" "2020-01-01 00:00:10,30,1,0,b\n"
  "2020-01-01 00:00:20,30.5,2,0,a<&>\n" "2020-01-01 00:00:30,30,9,0,b\n")
file(WRITE "${WORK}/swf" "; a comment\n"
  "1  0 0 60 2 -1 -1 2 90 -1 1 1 -1 -1 -1 -1 -1 -1\n"
  "2 10 0 30 1 -1 -1 1 30 -1 1 2 -1 -1 -1 -1 -1 -1\n")
file(WRITE "${WORK}/old" "old text")

# What is refused says why, with 2, and leaves everything as it was.
function(refused why)
  list_files(before)
  run(${ARGN})
  list_files(after)
  file(READ "${WORK}/old" old)
  if(NOT (status EQUAL 2 AND out STREQUAL "" AND err STREQUAL "simulate: ${why}\n" AND
          before STREQUAL after AND old STREQUAL "old text"))
    failed("refused: ${ARGN}")
  endif()
  set(errors "${errors}" PARENT_SCOPE)
endfunction()
set(cluster --nodes 2 --gpus-per-node 2)
set(list --jobs philly --format philly ${cluster})
set(together "--jobs, --format, --nodes and --gpus-per-node need each other")
refused("\"philly\" is not an option; --help lists them" philly)
refused("\"--job\" is not an option; --help lists them" --job=philly)
refused("--jobs needs a value" --jobs)
refused("--jobs needs a value" --jobs=)
refused("--jobs needs a value" --jobs --format philly)
refused("--help takes no value" --help=1)
refused("--jobs is given twice" --jobs philly --jobs philly)
refused("${together}" --jobs philly)
refused("${together}" --format philly)
refused("${together}" ${cluster})
refused("${together}" --jobs philly --format philly --nodes 2)
refused("--format \"csv\" is neither philly nor swf" --jobs philly --format csv ${cluster})
refused("--policy \"best\" is none of fifo, backfill, easy, easy_gpus, conservative, qssf, srtf, las, tiresias, philly, gandiva, gandiva_fgd, hived, gandiva_hived, all" --policy best)
foreach(bad 0 -1 1.5 0x1 100001 99999999999 x)
  refused("--nodes \"${bad}\" is not a whole number from 1 to 100000" --nodes ${bad})
endforeach()
refused("--gpus-per-node \"17\" is not a whole number from 1 to 16" --gpus-per-node 17)

# Files that are wrong, with the line where.
file(READ "${WORK}/philly" philly)
file(READ "${WORK}/swf" swf)
# bad(name text why): the file in both outputs' presence.
function(bad name format text why)
  file(WRITE "${WORK}/${name}" "${text}")
  refused("${name}${why}" --jobs ${name} --format ${format} ${cluster} --report old --plot new.svg)
  set(errors "${errors}" PARENT_SCOPE)
endfunction()
bad(p1 philly "${philly}2020-02-30 00:00:00,1,1,0,a\n"
    ":6: timestamp is \"2020-02-30 00:00:00\", not YYYY-MM-DD HH:MM:SS")
bad(p2 philly "${philly}2020-02-20 00:00:00,-1,1,0,a\n" ":6: duration is \"-1\", not seconds")
bad(p3 philly "${philly}2020-02-20 00:00:00,1,x,0,a\n"
    ":6: num_gpus is \"x\", not a whole number from 0 to 4294967295")
bad(p4 philly "${philly}2020-02-20 00:00:00,1,1\n" ":6: 3 fields; the header line has 5")
bad(p5 philly "${swf}" ":1: no column \"timestamp\"")
bad(p6 philly "timestamp,duration,num_gpus,cluster\n" ": no job after the header line")
bad(p7 philly "timestamp,duration,num_gpus,cluster\n2020-02-20 00:00:00,1,5,a\n"
    ": every job requests more than the 4 GPUs of the cluster")
bad(s1 swf "${swf}3 1 2\n" ":4: 3 fields, not 18")
bad(s2 swf "${swf}3 x 0 30 1 -1 -1 1 30 -1 1 2 -1 -1 -1 -1 -1 -1\n"
    ":4: field 2 is \"x\", not a number from -1 to 10^12")
bad(s3 swf "; nothing\n" ": no job that ran")
bad(s4 swf "1 0 0 99999999999 1 -1 -1 1 -1 -1 1 2 -1 -1 -1 -1 -1 -1\n"
    ": the jobs take more time than can be counted")
refused("none: No such file or directory" --jobs none --format swf ${cluster})
refused(".: Is a directory" --jobs . --format swf ${cluster})
set(twice "one file cannot be two of inputs and outputs")
refused("philly: ${twice}" ${list} --plot philly)
refused("./new: ${twice}" ${list} --plot ./new --report new)
refused("no/new: No such file or directory" ${list} --report old --plot no/new)

# Whole runs.
set(header "policy              jobs done   mean delay    p99 delay  mean completion   makespan  GPUs in use      scattered  suspensions  migrations\n")
run(${list} --policy fifo --report report --plot plot.svg)
if(NOT (status EQUAL 0 AND out STREQUAL
  "${header}fifo                        3      0.1 min      0.3 min          0.8 min      0.0 h      74.48 %        42.76 %            0           0\n"))
  failed("a list")
endif()
if(NOT (err MATCHES
  "^1 jobs are left out\nwrote [^\n]*/report\nwrote [^\n]*/plot.svg\n$"))
  failed("what is said of it")
endif()
file(READ "${WORK}/report" report)
string(JSON left ERROR_VARIABLE fault GET "${report}" left_out)
string(JSON policy GET "${report}" policies 0 policy)
string(JSON most GET "${report}" policies 0 completion most)
if(NOT (left EQUAL 1 AND policy STREQUAL fifo AND most EQUAL 61000))
  failed("the report: ${report}${fault}")
endif()
file(READ "${WORK}/plot.svg" plot)
if(NOT (plot MATCHES "^<svg .*</svg>\n$" AND plot MATCHES "a&lt;&amp;>"))
  failed("the plot")
endif()
run(--jobs swf --format swf ${cluster} --report report)
string(REGEX MATCHALL "\n" lines "${out}")
list(LENGTH lines lines)
if(NOT (status EQUAL 0 AND lines EQUAL 15))
  failed("all policies")
endif()
file(READ "${WORK}/report" report)
string(JSON count LENGTH "${report}" policies)
if(NOT (count EQUAL 14))
  failed("all policies, the report")
endif()
run(--help)
if(NOT (status EQUAL 0 AND out MATCHES "^usage: simulate " AND err STREQUAL ""))
  failed("help")
endif()
if(UNIX)
  run(--policy fifo --plot /dev/null)
  if(NOT (status EQUAL 0 AND err MATCHES "^wrote /dev/null\n$"))
    failed("a device")
  endif()
  execute_process(COMMAND "${PROGRAM}" --policy fifo --plot /dev/null OUTPUT_FILE /dev/full
                  RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT (status EQUAL 1 AND err MATCHES "^simulate: standard output: "))
    failed("a full disk")
  endif()
endif()

file(READ "${EXPECTED}" expected)
file(READ "${README}" readme)
string(FIND "${readme}" "```console\n${expected}```\n" at)
if(at EQUAL -1)
  string(APPEND errors "${README} does not show ${EXPECTED}\n")
endif()

if(errors)
  message(FATAL_ERROR "${errors}")
endif()
