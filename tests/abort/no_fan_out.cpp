// apiary/tests/abort/no_fan_out.cpp - a shape whose cells have no children.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: fan_outs\[i\] >= 1 does not hold
#include <apiary/topology/uniform_tree.h>

int main() { return static_cast<int>(apiary::uniform_tree({2, 0}).num_cells()); }
