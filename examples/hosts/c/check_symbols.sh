#!/bin/sh
# apiary/examples/hosts/c/check_symbols.sh - the shared object exports the five functions of apiary_session.h, and
# nothing of apiary's C++.
# SPDX-License-Identifier: MIT
#
# sh check_symbols.sh NM LIBRARY
set -eu
functions=$("$1" -D --defined-only "$2" | awk '{ print $3 }' | grep '^apiary_session_' | sort | tr '\n' ' ')
wanted="apiary_session_abi_version apiary_session_clone apiary_session_free apiary_session_line apiary_session_new "
if [ "$functions" != "$wanted" ]; then
  echo "it exports: $functions"
  exit 1
fi
others=$("$1" -D -C --defined-only "$2" | grep -c ' T apiary::\| T example::' || true)
if [ "$others" -ne 0 ]; then
  echo "it exports $others functions of apiary's C++"
  exit 1
fi
