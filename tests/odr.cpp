// apiary/tests/odr.cpp - the whole library in a second translation unit of every test binary.
// SPDX-License-Identifier: MIT
#include <apiary/apiary.h>
