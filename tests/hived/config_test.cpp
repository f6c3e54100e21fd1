// apiary/tests/hived/config_test.cpp - a configuration is plain data.
// SPDX-License-Identifier: MIT
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <type_traits>

using namespace apiary;

static_assert(std::is_aggregate_v<hived_config> && std::is_aggregate_v<physical_cell_config>);
static_assert(std::is_nothrow_move_constructible_v<hived_config>);

TEST_CASE("a document in code: what is not said is empty") {
  const hived_config config{
      .cell_types = {{.name = "NODE", .child_type = "GPU", .child_count = 8, .is_node = true}},
      .physical_cells = {{.type = "NODE", .address = "n0"}},
      .virtual_clusters = {{.name = "a", .cells = {{.type = "NODE", .count = 1}}}}};
  CHECK(config.physical_cells[0].children.empty());
  CHECK(config.physical_cells[0].pinned_id.empty());
  CHECK(config.virtual_clusters[0].pinned_ids.empty());
  CHECK_FALSE(cell_type_config().is_node);
  CHECK(hived_layout::create(config).ok());
}
