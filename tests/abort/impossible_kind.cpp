// apiary/tests/abort/impossible_kind.cpp - a mix of tasks that no task can be.
// SPDX-License-Identifier: MIT
// EXPECT: kind\.valid\(\) does not hold
#include <apiary/metric/task_mix.h>

int main() {
  using namespace apiary;
  const task_mix mix({{{.cpu_milli = 1, .gpus = 1, .gpu_milli = 1500}, 1}});
  return mix.tasks().empty() ? 1 : 0;
}
