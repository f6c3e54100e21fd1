// apiary/tests/support/skip.h - what cannot be tried here, and is then skipped, not passed.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace apiary_test {

// How often skip() was called: main() answers 77 where every test case that ran called it.
inline unsigned& skipped_cases() {
  static unsigned n = 0;
  return n;
}
// Says why the present test case is skipped, which then has to return.
inline void skip(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  ++skipped_cases();
}

// The folders that data_folder() (data.h) was asked for in vain: main() runs nothing without them.
inline std::vector<std::string>& missing_folders() {
  static std::vector<std::string> missing;
  return missing;
}

}  // namespace apiary_test
