#!/bin/sh
# apiary/tests/packages.sh - installs the packages of Debian or Ubuntu that are missing.
# SPDX-License-Identifier: MIT
#
# sh tests/packages.sh PACKAGE...
#
# Needs root or sudo only where a package is missing. Does nothing on a system without dpkg.
set -eu
command -v dpkg-query > /dev/null || exit 0
missing=
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' ||
    missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -eq 0 ]; then
  sudo=
elif command -v sudo > /dev/null; then
  sudo=sudo
else
  echo "error: packages are missing, and without root or sudo they cannot be installed;" >&2
  echo "ask your administrator for: apt-get install --no-install-recommends$missing" >&2
  exit 1
fi
$sudo apt-get -q update
$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing
