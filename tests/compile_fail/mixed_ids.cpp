// apiary/tests/compile_fail/mixed_ids.cpp - a node is no cell.
// SPDX-License-Identifier: MIT
// EXPECT: no match for call|no matching|no viable|could not convert|no known conversion
#include <apiary/container/dense_map.h>

using namespace apiary;

float load_of(const dense_map<cell_id, float>& load, cell_id cell, [[maybe_unused]] node_id node) {
#if BAD
  return load[cell] + load[node];
#else
  return load[cell];
#endif
}
