// apiary/tests/consume/main.cpp - a host: the whole library is found, compiles and links.
// SPDX-License-Identifier: MIT
#include <apiary/apiary.h>

absl::Status run() {
  const apiary::uniform_tree tree({2, 4});
  if (tree.num_leaves() != 8) return absl::InternalError("a tree of 8 leaves has others");
  return absl::OkStatus();
}

int main() { return run().ok() ? 0 : 1; }
