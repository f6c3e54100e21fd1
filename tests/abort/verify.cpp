// apiary/tests/abort/verify.cpp - a condition that must hold in every build does not.
// SPDX-License-Identifier: MIT
// EXPECT: verify\.cpp:8: apiary: granted == 1 does not hold
#include <apiary/core/config.h>

int main(int argc, char** /*argv*/) {
  const int granted = argc + 1;
  APIARY_VERIFY(granted == 1);
  return 0;
}
