// apiary/tests/hived/layout_test.cpp - what each tenant owns, and that all of it can be granted.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <support/hived_documents.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::faults_of;
using apiary_test::named;
using apiary_test::small_cluster;

namespace {

// Writes random cells down: to the nodes, and some of them to the cells in a node; pins a few.
struct writer {
  rng& random;
  const std::vector<cell_type_config>& types;
  std::uint32_t nodes = 0;
  std::uint32_t pins = 0;

  physical_cell_config write(std::size_t type, bool below_node, bool inside_pinned) {
    physical_cell_config cell;
    if (!inside_pinned && random.uniform(10) == 0) {
      cell.pinned_id = "p" + std::to_string(pins++);
      inside_pinned = true;
    }
    if (type == types.size()) return cell;
    if (types[type].is_node) {
      cell.address = "n" + std::to_string(nodes++);
      below_node = true;
    }
    if (below_node && random.uniform(2) == 0) return cell;
    for (std::uint32_t i = 0; i < types[type].child_count; ++i)
      cell.children.push_back(write(type + 1, below_node, inside_pinned));
    return cell;
  }
};

// One chain of random shape, pins and quotas.
hived_config random_config(rng& random) {
  hived_config config;
  const std::uint32_t depth = 1 + random.uniform(4);
  const std::uint32_t node = random.uniform(depth);
  for (std::uint32_t i = 0; i < depth; ++i) {
    config.cell_types.push_back({.name = "t" + std::to_string(i),
                                 .child_type = "t" + std::to_string(i + 1),
                                 .child_count = 1 + random.uniform(depth < 4 ? 3 : 2),
                                 .is_node = i == node});
  }
  writer w{random, config.cell_types};
  for (std::uint32_t i = 1 + random.uniform(3); i > 0; --i) {
    config.physical_cells.push_back(w.write(0, false, false));
    config.physical_cells.back().type = "t0";
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    virtual_cluster_config tenant{.name = "vc" + std::to_string(i)};
    std::string type = "t0";
    for (std::uint32_t l = 0; l <= depth; type += ".t" + std::to_string(++l))
      if (random.uniform(2) == 0) tenant.cells.push_back({type, random.uniform(3)});
    config.virtual_clusters.push_back(tenant);
  }
  for (std::uint32_t p = 0; p < w.pins; ++p) {
    const std::uint32_t owner = random.uniform(4);
    if (owner < 3) config.virtual_clusters[owner].pinned_ids.push_back("p" + std::to_string(p));
  }
  return config;
}

// Whether an allocator reserves all quotas and the tenants' pinned cells of the chain and grants the
// latter.
bool can_keep(const hived_layout& layout, chain_id c) {
  reserving_buddy_allocator cells(layout.chain(c).tree);
  for (const tenant_layout& tenant : layout.tenants)
    for (level_t l = 0; l < cells.tree().num_levels(); ++l)
      if (!cells.reserve(l, tenant.quota[c.value][l])) return false;
  for (const pinned_layout& pin : layout.pinned)
    if (pin.chain == c && pin.tenant.valid() && !cells.reserve(cells.tree().level(pin.cell), 1))
      return false;
  for (const pinned_layout& pin : layout.pinned)
    if (pin.chain == c && pin.tenant.valid() && !cells.allocate_at(pin.cell)) return false;
  return cells.invariant_holds();
}

}  // namespace

TEST_CASE("a layout knows nodes, devices, tenants and pinned cells by name") {
  hived_config config = small_cluster();
  physical_cell_config& box = config.physical_cells[3];
  box.children.resize(8);
  for (std::uint32_t i = 0; i < 8; ++i)
    box.children[i].address = std::to_string(100 + i / 2 + i % 2 * 4);
  const auto made = hived_layout::create(config);
  REQUIRE(made.ok());
  const hived_layout& layout = *made;
  CHECK(layout.num_nodes() == 6);
  for (std::uint32_t i = 0; i < 6; ++i) {
    const node_id n(i);
    CHECK(layout.find_node(layout.node_name(n)) == n);
    CHECK(layout.chain_of(n) == chain_id(i < 4 ? 0 : 1));
    const chain_layout& chain = layout.chain(layout.chain_of(n));
    CHECK(chain.tree.index(layout.node_cell(n), chain.node_level) == i - chain.first_node);
  }
  CHECK(layout.find_node("n2") == node_id(2));
  CHECK(layout.find_node("b1") == node_id(5));
  CHECK_FALSE(layout.find_node("n4").has_value());
  CHECK_FALSE(layout.find_node("").has_value());

  CHECK(layout.device(node_id(4), 3) == 3);
  CHECK(layout.find_position(node_id(4), 3) == 3);
  CHECK_FALSE(layout.find_position(node_id(4), 8).has_value());
  CHECK(layout.device(node_id(5), 3) == 105);
  CHECK(layout.find_position(node_id(5), 105) == 3);
  CHECK_FALSE(layout.find_position(node_id(5), 3).has_value());
  using indices = std::vector<std::uint32_t>;
  CHECK(layout.devices({node_id(4), 0b10000101}) == indices{0, 2, 7});
  CHECK(layout.devices({node_id(5), 0b10000111}) == indices{100, 104, 101, 107});
  CHECK(layout.devices({}).empty());

  CHECK(layout.find_tenant("b") == tenant_id(0));
  CHECK(layout.find_tenant("a") == tenant_id(1));
  CHECK_FALSE(layout.find_tenant("c").has_value());
  CHECK(layout.tenants[0].quota == std::vector<std::vector<std::uint32_t>>{{0, 1, 0, 0}, {0, 0}});
  CHECK(layout.tenants[1].quota == std::vector<std::vector<std::uint32_t>>{{0, 0, 0, 1}, {0, 0}});
  CHECK(layout.find_pinned("mine") == 0);
  CHECK_FALSE(layout.find_pinned("yours").has_value());
  CHECK(layout.pinned[0].tenant == tenant_id(0));
}

TEST_CASE("layouts that differ in anything have different hashes, equal ones the same") {
  const auto hash_of = [](const hived_config& config) {
    const auto layout = hived_layout::create(config);
    REQUIRE(layout.ok());
    return layout->hash();
  };
  // Two racks of two nodes, then what is another of them but for one thing.
  std::vector<hived_config> all(1, small_cluster());
  const auto change = [&](auto&& f) {
    hived_config config = small_cluster();
    f(config);
    all.push_back(std::move(config));
  };
  using config_t = hived_config;
  change([](config_t& c) { c.physical_cells[0].children[0].address = "n9"; });
  change(
      [](config_t& c) { std::swap(c.physical_cells[0].children, c.physical_cells[2].children); });
  change([](config_t& c) { std::swap(c.physical_cells[1].address, c.physical_cells[3].address); });
  change([](config_t& c) {
    c.physical_cells[1].children.resize(8);
    for (std::uint32_t i = 0; i < 8; ++i)
      c.physical_cells[1].children[i].address = std::to_string(7 - i);
  });
  change([](config_t& c) { c.physical_cells.pop_back(); });
  change([](config_t& c) { c.cell_types[0].child_count = 4; });
  change([](config_t& c) { c.cell_types[0].child_type = "NPU"; });
  change([](config_t& c) {
    c.cell_types[0].name = c.cell_types[1].child_type = "SOCKET";
    c.virtual_clusters[0].cells[0].type = "RACK.NODE.SOCKET";
  });
  change([](config_t& c) {
    c.cell_types[3].name = c.physical_cells[1].type = c.physical_cells[3].type = "BAX";
  });
  change([](config_t& c) { c.physical_cells[1].pinned_id = "nobody's"; });
  change([](config_t& c) {
    c.physical_cells[0].children[1].pinned_id = c.virtual_clusters[0].pinned_ids[0] = "yours";
  });
  change([](config_t& c) {
    std::swap(c.physical_cells[0].children[0].pinned_id, c.physical_cells[0].children[1].pinned_id);
  });
  change([](config_t& c) { c.virtual_clusters[0].pinned_ids.clear(); });
  change([](config_t& c) {
    c.virtual_clusters[0].pinned_ids.swap(c.virtual_clusters[1].pinned_ids);
    c.virtual_clusters[1].cells = {{"RACK.NODE", 1}};
  });
  change([](config_t& c) { c.virtual_clusters[1].cells = {{"RACK.NODE", 1}}; });
  change([](config_t& c) { c.virtual_clusters[1].cells = {{"RACK.NODE", 2}}; });
  change([](config_t& c) { c.virtual_clusters[1].cells = {{"BOX", 1}}; });
  change([](config_t& c) { c.virtual_clusters[1].name = "c"; });
  change([](config_t& c) { std::swap(c.virtual_clusters[0], c.virtual_clusters[1]); });
  change([](config_t& c) { c.virtual_clusters.push_back({.name = "nothing"}); });
  // A node of a pair, and a box that is all a node.
  for (const bool node_is_box : {false, true}) {
    hived_config config;
    config.cell_types = {{"NODE", "GPU", 2, !node_is_box}, {"BOX", "NODE", 1, node_is_box}};
    config.physical_cells = {{.type = "BOX", .children = {named("n")}}};
    if (node_is_box) config.physical_cells = {{.type = "BOX", .address = "n"}};
    all.push_back(config);
  }
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    CHECK(seen.insert(hash_of(all[i])).second);
    CHECK(hash_of(all[i]) == hash_of(hived_config(all[i])));
  }
  // Defaults written out, and another order of the chains.
  hived_config config = small_cluster();
  config.physical_cells[0].children[0].type = "NODE";
  std::swap(config.physical_cells[0], config.physical_cells[1]);
  std::swap(config.cell_types[0], config.cell_types[3]);
  CHECK(hash_of(config) == hash_of(all[0]));
}

TEST_CASE("tenants may own nothing, the same twice, and nothing of a chain") {
  hived_config config = small_cluster();
  config.virtual_clusters.push_back({.name = "nothing"});
  config.virtual_clusters.push_back({.name = "none", .cells = {{"BOX", 0}}});
  config.virtual_clusters.push_back({.name = "boxes", .cells = {{"BOX", 1}, {"BOX", 1}}});
  const auto layout = hived_layout::create(config);
  REQUIRE(layout.ok());
  CHECK(layout->tenants[4].quota[1] == std::vector<std::uint32_t>{0, 2});
  config.virtual_clusters.clear();
  CHECK(faults_of(config).empty());
}

TEST_CASE("each fault of a tenant is reported with its path") {
  hived_config config = small_cluster();
  config.virtual_clusters[0].cells = {{"NODE", 1}, {"RACK.PAIR", 1}, {"RACK.NODE.PAIR.GPU.X", 1},
                                      {"", 1},     {"RACK.", 1},     {".", 1}};
  config.virtual_clusters[0].pinned_ids = {"mine", "yours", "mine", ""};
  config.virtual_clusters[1].pinned_ids = {"mine"};
  config.virtual_clusters.push_back({.name = "a"});
  config.virtual_clusters.push_back({});
  const std::string b = "virtualClusters.b.";
  CHECK(
      faults_of(config) ==
      b +
          "virtualCells[0].cellType: no physical cell is of type \"NODE\"; write "
          "\"RACK.NODE\"\n" +
          b + "virtualCells[1].cellType: \"RACK\" is not made of \"PAIR\"\n" + b +
          "virtualCells[2].cellType: \"GPU\" is not made of \"X\"\n" + b +
          "virtualCells[3].cellType: is missing\n" + b +
          "virtualCells[4].cellType: \"RACK\" is not made of \"\"\n" + b +
          "virtualCells[5].cellType: no physical cell is of type \"\", the first name of \".\"\n" +
          b + "pinnedCells[1].pinnedCellId: no physical cell is pinned as \"yours\"\n" + b +
          "pinnedCells[2].pinnedCellId: \"mine\" already belongs to virtual cluster \"b\"\n" + b +
          "pinnedCells[3].pinnedCellId: is missing\n"
          "virtualClusters.a.pinnedCells[0].pinnedCellId: \"mine\" already belongs to virtual "
          "cluster \"b\"\n"
          "virtualClusters.a: is defined twice\n"
          "virtualClusters.: a virtual cluster without name");
}

TEST_CASE("a faulty chain causes no further faults where it is used") {
  hived_config config = small_cluster();
  config.cell_types[1].is_node = false;
  CHECK(faults_of(config) ==
        "physicalCluster.physicalCells[0].cellType: \"RACK\" has 0 node levels instead of one; "
        "it ends at \"GPU\", which is not one of the cellTypes");
  config = small_cluster();
  config.physical_cells[0].children.pop_back();
  CHECK(faults_of(config) ==
        "physicalCluster.physicalCells[0].cellChildren: 1 cells instead of 2 in a cell of type "
        "\"RACK\"");
}

TEST_CASE("the quotas must fit beside the pinned cells") {
  hived_config config = small_cluster();
  std::vector<virtual_cell_config>& cells = config.virtual_clusters[1].cells;
  const auto short_of = [](int wanted, const std::string& type, int left) {
    return "virtualClusters: " + std::to_string(wanted) + " cells of type \"" + type +
           "\" are requested; chain \"RACK\" has " + std::to_string(left) +
           " besides pinned and larger cells";
  };
  cells = {{"RACK", 2}};
  CHECK(faults_of(config) == short_of(2, "RACK", 1));
  std::vector<std::string> pinned;
  pinned.swap(config.virtual_clusters[0].pinned_ids);
  CHECK(faults_of(config) == short_of(1, "PAIR", 0));  // pinned for no tenant: an ordinary cell
  pinned.swap(config.virtual_clusters[0].pinned_ids);
  cells = {{"RACK", 1}, {"RACK.NODE.PAIR.GPU", 2}};
  CHECK(faults_of(config).empty());
  cells = {{"RACK", 1}, {"RACK.NODE.PAIR.GPU", 3}};
  CHECK(faults_of(config) == short_of(3, "GPU", 2));
  cells = {{"RACK.NODE", 3}};
  CHECK(faults_of(config) == short_of(1, "PAIR", 0));
  // Numbers that would wrap around.
  cells = {{"RACK", ~0U}, {"RACK", 2}};
  CHECK(faults_of(config).find("4294967297 cells of type") != std::string::npos);
  cells = {{"RACK", 1}, {"RACK.NODE.PAIR.GPU", ~0U}};
  CHECK(faults_of(config).find("4294967295 cells of type") != std::string::npos);
  // Each chain by itself, and beside other faults.
  cells = {{"RACK", 3}, {"BOX", 3}, {"BAX", 1}};
  const std::string all = faults_of(config);
  CHECK(all.find("virtualClusters.a.virtualCells[2]") == 0);
  CHECK(all.find("3 cells of type \"RACK\"") != std::string::npos);
  CHECK(all.find("3 cells of type \"BOX\"") != std::string::npos);
}

TEST_CASE("pinned nodes that leave no whole rack to another tenant are a fault") {
  hived_config config = small_cluster();
  config.physical_cells[2].children[0].pinned_id = "another";
  config.virtual_clusters[0].pinned_ids.push_back("another");
  CHECK(faults_of(config) ==
        "virtualClusters: 1 cells of type \"RACK\" are requested; chain \"RACK\" has 0 "
        "besides pinned and larger cells");
}

TEST_CASE("the quotas of an accepted configuration can be reserved, its pinned cells granted") {
  rng random(77);
  std::uint32_t accepted = 0;
  std::uint32_t refused = 0;
  std::uint32_t with_pins = 0;
  for (int round = 0; round < apiary_test::scaled(20'000); ++round) {
    CAPTURE(round);
    const hived_config config = random_config(random);
    const auto layout = hived_layout::create(config);
    if (!layout.ok()) {
      REQUIRE(layout.status().message().find("virtualClusters: ") == 0);
      ++refused;
      continue;
    }
    for (std::uint32_t c = 0; c < layout->chains.size(); ++c)
      REQUIRE(can_keep(*layout, chain_id(c)));
    ++accepted;
    with_pins += layout->pinned.empty() ? 0U : 1U;
  }
  MESSAGE(accepted, " accepted, ", with_pins, " of them with pinned cells, ", refused, " refused");
  CHECK(refused > 0);
  CHECK(with_pins > 0);
}
