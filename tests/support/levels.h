// apiary/tests/support/levels.h - what tests call the levels of their trees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

namespace apiary_test {

// From the leaf up.
enum : apiary::level_t { leaf, node, rack, block };

}  // namespace apiary_test
