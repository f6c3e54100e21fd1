// apiary/tests/abort/doomed_of_nobody.cpp - what is doomed of a tenant that the layout does not have.
// SPDX-License-Identifier: MIT
// EXPECT: hived\.h:[0-9]+: apiary: tenant\.value < .* does not hold
#include <apiary/core/ids.h>
#include <apiary/sched/hived.h>
#include <apiary/sched/hived_config.h>

int main() {
  apiary::hived_config config;
  config.cell_types = {{.name = "NODE", .child_type = "GPU", .child_count = 4, .is_node = true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}};
  const auto scheduler = apiary::hived::create(config);
  if (!scheduler.ok()) return 0;
  return static_cast<int>(scheduler->doomed(apiary::tenant_id(0), apiary::chain_id(0), 1));
}
