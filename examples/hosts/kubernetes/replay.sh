#!/bin/sh
# apiary/examples/hosts/kubernetes/replay.sh - asks an extender what a real kube-scheduler asked; shows its answers.
# SPDX-License-Identifier: MIT
#
# sh replay.sh PROGRAM   the extender that CMake builds: build/examples/hosts/kubernetes/kubernetes_extender
#
# Starts the extender on a free port of the loopback device, once for requests with the names of nodes and
# once for requests with whole nodes. Ends with 0 if each answer has status 200 and no Error, the extender
# listens on the loopback device alone, answers wrong requests with an error, and ends well; with 77 where
# curl is not installed.
set -u
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
program=$1
command -v curl > /dev/null || { echo "skipped: no curl"; exit 77; }
folder=$(mktemp -d)
extender=
ended() {
  status=$?
  trap '' HUP INT TERM
  [ -z "$extender" ] || kill "$extender" 2> /dev/null
  rm -rf "$folder"
  exit "$status"
}
trap ended EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "FAILED: $1"
  cat "$folder/log"
  exit 1
}
# ask <verb> <file>: the answer is in $folder/answer, its status in $code.
ask() {
  code=$(curl -s -m 10 -o "$folder/answer" -w '%{http_code}' -H 'Content-Type: application/json' \
    --data-binary "@$2" "http://127.0.0.1:$port/v1/extender/$1")
}
for mode in cache full; do
  "$program" --nodes "$here/recordings/nodes.json" --port 0 \
    --levels rack=cloud.provider.com/topology-rack,block=cloud.provider.com/topology-block \
    > "$folder/log" 2>&1 &
  extender=$!
  patience=100
  until port=$(sed -n 's/^begin .*:\([0-9]*\)$/\1/p' "$folder/log") && [ -n "$port" ]; do
    patience=$((patience - 1))
    [ "$patience" -gt 0 ] || fail "the extender does not start"
    sleep 0.1
  done
  hex=$(printf ':%04X' "$port")
  [ "$(awk -v port="$hex" 'index($2, port) && $4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6)" \
    = "0100007F$hex" ] || fail "the extender listens elsewhere than on 127.0.0.1"

  echo "$mode: what is asked, the pod, the answer"
  tab=$(printf '\t')
  asked=0
  while IFS="$tab" read -r verb request recorded; do
    printf '%s' "$request" > "$folder/request"
    ask "$verb" "$folder/request"
    pod=$(printf '%s' "$request" | sed 's/.*"PodName":"\([^"]*\)".*"Node":"\([^"]*\)".*/\1 on \2/
      t
      s/^{"Pod":{"metadata":{"name":"\([^"]*\)".*/\1/')
    printf '%-10s %-13s %s\n' "$verb" "$pod" "$(cut -c 1-120 "$folder/answer")"
    [ "$code" = 200 ] || fail "status $code"
    if grep -q '"Error":"[^"]' "$folder/answer"; then fail "an error"; fi
    [ -n "$recorded" ] || fail "a line without a recorded answer"
    asked=$((asked + 1))
  done < "$here/recordings/$mode.tsv"
  [ "$asked" -eq 23 ] || fail "$asked requests, not 23"

  printf '{"Pod": nonsense' > "$folder/request"
  ask filter "$folder/request"
  [ "$code" = 400 ] || fail "no valid JSON: status $code"
  head -c 1048576 /dev/zero | tr '\0' ' ' > "$folder/request"
  ask filter "$folder/request"
  [ "$code" = 413 ] || fail "a body of 1 MB: status $code"
  curl -s -m 10 "http://127.0.0.1:$port/healthz" | grep -q ok || fail "it does not answer any more"
  kill "$extender"
  wait "$extender" || fail "the extender ends with an error"
  extender=
done
echo "46 requests answered"
