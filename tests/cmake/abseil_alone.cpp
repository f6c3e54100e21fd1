// apiary/tests/cmake/abseil_alone.cpp - what a program takes to compile before it includes apiary.
// SPDX-License-Identifier: MIT
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstdio>
#include <string>
#include <vector>

int main() {
  const absl::StatusOr<std::vector<std::string>> words = std::vector<std::string>{"a", "b"};
  for (const std::string& word : *words) std::puts(absl::StrCat(word, 1).c_str());
}
