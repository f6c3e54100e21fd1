// apiary/tests/consume/main.cpp - a host: the library is found, compiles and links.
// SPDX-License-Identifier: MIT
#include <apiary/core/status.h>
#include <apiary/topology/uniform_tree.h>

absl::Status run() {
  const apiary::uniform_tree tree({2, 4});
  if (tree.num_leaves() != 8) return absl::InternalError("a tree of 8 leaves has others");
  return absl::OkStatus();
}

int main() { return run().ok() ? 0 : 1; }
