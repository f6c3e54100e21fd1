// apiary/tests/support/hived_documents.h - configurations of HiveD, right ones and wrong ones.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

[[nodiscard]] inline apiary::physical_cell_config named(const std::string& address) {
  return {.address = address};
}
[[nodiscard]] inline apiary::physical_cell_config rack(
    std::vector<apiary::physical_cell_config> nodes) {
  return {.type = "RACK", .children = std::move(nodes)};
}

// Two racks of two nodes of two pairs, and two nodes of eight devices that no rack holds.
// Tenant "a" has a rack, "b" a pair and the node n1.
[[nodiscard]] inline apiary::hived_config small_cluster() {
  apiary::hived_config c;
  c.cell_types = {{.name = "PAIR", .child_type = "GPU", .child_count = 2},
                  {.name = "NODE", .child_type = "PAIR", .child_count = 2, .is_node = true},
                  {.name = "RACK", .child_type = "NODE", .child_count = 2},
                  {.name = "BOX", .child_type = "NPU", .child_count = 8, .is_node = true}};
  c.physical_cells = {rack({named("n0"), named("n1")}),
                      {.type = "BOX", .address = "b0"},
                      rack({named("n2"), named("n3")}),
                      {.type = "BOX", .address = "b1"}};
  c.physical_cells[0].children[1].pinned_id = "mine";
  c.virtual_clusters = {
      {.name = "b", .cells = {{.type = "RACK.NODE.PAIR", .count = 1}}, .pinned_ids = {"mine"}},
      {.name = "a", .cells = {{.type = "RACK", .count = 1}}}};
  return c;
}

// The message of create; empty when it accepts.
[[nodiscard]] inline std::string faults_of(const apiary::hived_config& config) {
  const auto layout = apiary::hived_layout::create(config);
  if (layout.ok()) return "";
  CHECK(layout.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(layout.status().message());
}

}  // namespace apiary_test
