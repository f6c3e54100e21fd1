// apiary/tests/support/hived_clusters.h - random HiveD clusters and random gangs.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_audit.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

// A chain of a random cluster: fan-outs from the leaf's parent up to the root, and how many roots.
struct random_chain {
  std::string name{};
  std::string leaf_type{};
  std::vector<std::uint32_t> fan_outs{};
  std::uint32_t node_level = 1;
  std::uint32_t roots = 1;

  [[nodiscard]] std::string type(std::size_t level) const {
    return level == 0 ? leaf_type : name + "-" + std::to_string(level);
  }
  // As virtualCells have it: "C0-3.C0-2" is level 2 of a chain of three levels above the leaves.
  [[nodiscard]] std::string qualified(std::size_t level) const {
    std::string all = type(fan_outs.size());
    for (std::size_t l = fan_outs.size(); l-- > level;) all += "." + type(l);
    return all;
  }
};

[[nodiscard]] inline random_chain make_chain(const std::string& name, apiary::rng& random) {
  static const std::vector<std::vector<std::uint32_t>> nodes = {{2}, {4}, {2, 2}, {3}, {2, 2}};
  static const std::vector<std::vector<std::uint32_t>> racks = {{}, {2}, {3}, {2, 2}};
  random_chain c;
  c.name = name;
  c.leaf_type = random.uniform(2) == 0 ? "GPU" : "NPU";
  c.fan_outs = nodes[random.uniform(5)];
  c.node_level = static_cast<std::uint32_t>(c.fan_outs.size());
  const std::vector<std::uint32_t>& above = racks[random.uniform(4)];
  c.fan_outs.insert(c.fan_outs.end(), above.begin(), above.end());
  c.roots = 1 + random.uniform(above.empty() ? 4 : 2);
  return c;
}

// The cell and all cells in it; pins some.
[[nodiscard]] inline apiary::physical_cell_config make_cell(const random_chain& chain,
                                                            std::size_t level, std::uint32_t& nodes,
                                                            std::uint32_t pin_one_in,
                                                            std::vector<std::string>& pinned,
                                                            apiary::rng& random) {
  apiary::physical_cell_config cell;
  cell.type = chain.type(level);
  if (level == chain.node_level) cell.address = chain.name + "n" + std::to_string(nodes++);
  if (pin_one_in > 0 && random.uniform(pin_one_in) == 0) {
    cell.pinned_id = "p" + std::to_string(pinned.size());
    pinned.push_back(cell.pinned_id);
    pin_one_in = 0;
  }
  if (level == 0 || (pin_one_in == 0 && level <= chain.node_level)) return cell;
  for (std::uint32_t i = 0; i < chain.fan_outs[level - 1]; ++i)
    cell.children.push_back(make_cell(chain, level - 1, nodes, pin_one_in, pinned, random));
  return cell;
}

// One to three chains of up to 24 nodes in all, and two or three tenants. Some have pinned cells,
// with or without a tenant. The quotas mostly use up the cluster.
[[nodiscard]] inline apiary::hived_config random_cluster(apiary::rng& random) {
  apiary::hived_config config;
  std::vector<random_chain> chains;
  std::vector<std::string> pinned;
  const std::uint32_t pin_one_in = random.uniform(2) == 0 ? 0 : 8 + random.uniform(8);
  for (std::uint32_t c = 0, n = 1 + random.uniform(2) * random.uniform(3); c < n || c == 0; ++c) {
    chains.push_back(make_chain("C" + std::to_string(c), random));
    const random_chain& chain = chains.back();
    for (std::size_t l = 1; l <= chain.fan_outs.size(); ++l) {
      config.cell_types.push_back({.name = chain.type(l),
                                   .child_type = chain.type(l - 1),
                                   .child_count = chain.fan_outs[l - 1],
                                   .is_node = l == chain.node_level});
    }
    std::uint32_t nodes = 0;
    for (std::uint32_t r = 0; r < chain.roots; ++r) {
      config.physical_cells.push_back(
          make_cell(chain, chain.fan_outs.size(), nodes, pin_one_in, pinned, random));
    }
  }
  const std::uint32_t tenants = 2 + random.uniform(2);
  for (std::uint32_t t = 0; t < tenants; ++t)
    config.virtual_clusters.push_back({.name = std::string(1, static_cast<char>('a' + t))});
  for (const std::string& id : pinned) {
    const std::uint32_t t = random.uniform(tenants + 1);
    if (t < tenants) config.virtual_clusters[t].pinned_ids.push_back(id);
  }
  for (std::uint32_t tries = 0, n = 4 + random.uniform(20); tries < n; ++tries) {
    auto& cells = config.virtual_clusters[random.uniform(tenants)].cells;
    const random_chain& chain = chains[random.uniform(static_cast<std::uint32_t>(chains.size()))];
    const auto levels = static_cast<std::uint32_t>(chain.fan_outs.size()) + 1;
    cells.push_back({.type = chain.qualified(random.uniform(levels)), .count = 1});
    if (!apiary::hived_layout::create(config).ok()) cells.pop_back();
  }
  return config;
}

// All cells below a node, with the device indices from `next` on.
inline void number_devices(const apiary::hived_config& config, apiary::physical_cell_config& cell,
                           const std::string& type, std::uint32_t& next) {
  const auto found =
      std::find_if(config.cell_types.begin(), config.cell_types.end(),
                   [&](const apiary::cell_type_config& t) { return t.name == type; });
  if (found == config.cell_types.end()) {
    cell.address = std::to_string(next++);
    return;
  }
  if (cell.children.empty()) cell.children.resize(found->child_count);
  for (apiary::physical_cell_config& child : cell.children)
    number_devices(config, child, found->child_type, next);
}
// Gives some nodes of different chains one name: hosts with several GPU models. Each chain has its own
// device indices there.
inline void share_hosts(apiary::hived_config& config, apiary::rng& random) {
  std::vector<std::string> types;
  const auto visit = [&](const auto& self, apiary::physical_cell_config& cell,
                         const std::string& type, std::uint32_t chain,
                         std::uint32_t& node) -> void {
    const auto found =
        std::find_if(config.cell_types.begin(), config.cell_types.end(),
                     [&](const apiary::cell_type_config& t) { return t.name == type; });
    if (found->is_node) {
      if (++node > 3) return;
      cell.address = "host" + std::to_string(node);
      std::uint32_t next = 16 * chain;
      number_devices(config, cell, type, next);
      return;
    }
    for (apiary::physical_cell_config& child : cell.children)
      self(self, child, found->child_type, chain, node);
  };
  std::vector<std::uint32_t> nodes;
  for (apiary::physical_cell_config& cell : config.physical_cells) {
    const auto known = std::find(types.begin(), types.end(), cell.type);
    const auto chain = static_cast<std::uint32_t>(known - types.begin());
    if (known == types.end()) {
      types.push_back(cell.type);
      nodes.push_back(random.uniform(2));
    }
    visit(visit, cell, cell.type, chain, nodes[chain]);
  }
}

// A random change of a configuration: tenants in another order, missing or with fewer cells; nodes
// missing, or swapped with other nodes, which may be in other chains.
[[nodiscard]] inline apiary::hived_config changed_cluster(apiary::hived_config config,
                                                          apiary::rng& random) {
  std::vector<apiary::physical_cell_config*> nodes;
  const auto collect = [&](const auto& self, apiary::physical_cell_config& cell) -> void {
    if (!cell.address.empty()) return nodes.push_back(&cell);
    for (apiary::physical_cell_config& child : cell.children) self(self, child);
  };
  auto& tenants = config.virtual_clusters;
  if (random.uniform(3) == 0 && config.physical_cells.size() > 1) {
    config.physical_cells.erase(
        config.physical_cells.begin() +
        random.uniform(static_cast<std::uint32_t>(config.physical_cells.size())));
  }
  for (apiary::physical_cell_config& cell : config.physical_cells) collect(collect, cell);
  const auto num_nodes = static_cast<std::uint32_t>(nodes.size());
  if (random.uniform(2) == 0) {
    for (std::uint32_t i = random.uniform(4); i > 0; --i) {
      std::string& one = nodes[random.uniform(num_nodes)]->address;
      std::string& other = nodes[random.uniform(num_nodes)]->address;
      std::swap(one, other);
      apiary::hived_config cells = config;
      cells.virtual_clusters.clear();
      if (!apiary::hived_layout::create(cells).ok())
        std::swap(one, other);  // a host twice in a chain
    }
  }
  if (random.uniform(4) == 0) nodes[random.uniform(num_nodes)]->address = "new";
  if (random.uniform(3) == 0) random.shuffle(tenants);
  if (random.uniform(4) == 0) tenants.pop_back();
  for (apiary::virtual_cluster_config& t : tenants) {
    while (!t.cells.empty() && random.uniform(3) == 0) {
      std::swap(t.cells.back(),
                t.cells[random.uniform(static_cast<std::uint32_t>(t.cells.size()))]);
      t.cells.pop_back();
    }
    if (!t.pinned_ids.empty() && random.uniform(4) == 0) t.pinned_ids.pop_back();
  }
  // Until the quotas fit, and their cells exist.
  while (!apiary::hived_layout::create(config).ok()) {
    apiary::virtual_cluster_config& t =
        tenants[random.uniform(static_cast<std::uint32_t>(tenants.size()))];
    if (!t.cells.empty())
      t.cells.erase(t.cells.begin() + random.uniform(static_cast<std::uint32_t>(t.cells.size())));
    if (!t.pinned_ids.empty() && t.cells.empty()) t.pinned_ids.pop_back();
  }
  return config;
}

// A gang of any tenant, from one task to many. The tenant may have no cells for it.
[[nodiscard]] inline apiary::gang_request random_gang(const apiary::hived_layout& layout,
                                                      apiary::job_id job, apiary::rng& random) {
  apiary::gang_request r;
  r.job = job;
  r.tenant = apiary::tenant_id(random.uniform(static_cast<std::uint32_t>(layout.tenants.size())));
  r.priority = static_cast<std::int32_t>(random.uniform(5)) - 1;
  if (random.uniform(16) == 0) r.priority = 1000;
  const std::uint32_t groups = random.uniform(4) == 0 ? 2 + random.uniform(2) : 1;
  for (std::uint32_t m = 0; m < groups; ++m)
    r.groups.push_back({1 + random.uniform(3), 1 + random.uniform(random.uniform(2) == 0 ? 2 : 4)});
  r.lazy = random.uniform(2) == 0;
  const auto pins = static_cast<std::uint32_t>(layout.pinned.size());
  if (pins > 0 && r.priority >= 0 && random.uniform(2) == 0) {
    const std::uint32_t pin = random.uniform(pins);
    if (layout.pinned[pin].tenant == r.tenant) r.pinned = pin;
  }
  if (random.uniform(4) == 0) r.leaf_type = apiary::leaf_type_id(0);
  return r;
}

// Two of three nodes.
[[nodiscard]] inline apiary::summary_bitset random_nodes(const apiary::hived_layout& layout,
                                                         apiary::rng& random) {
  apiary::summary_bitset nodes(layout.num_nodes(), true);
  for (std::uint32_t n = 0; n < layout.num_nodes(); ++n)
    if (random.uniform(3) == 0) nodes.reset(n);
  return nodes;
}

// What an audit finds, a line each; empty: nothing. A scheduler is audited afresh.
[[nodiscard]] inline std::string faults_of(const std::vector<apiary::violation>& found) {
  std::string all;
  for (const apiary::violation& v : found) all += v.invariant + ": " + v.witness + "\n";
  return all;
}
[[nodiscard]] inline std::string faults_of(const apiary::hived& scheduler) {
  return faults_of(afresh::audit_afresh(scheduler));
}

// Two racks of two nodes of four GPUs: tenant 0 ("a") has two nodes, 1 ("b") one, 2 ("none") none.
[[nodiscard]] inline apiary::hived_config two_racks() {
  apiary::hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 2}};
  config.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}},
                           {.type = "RACK", .children = {{.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK.NODE", 2}}},
                             {.name = "b", .cells = {{"RACK.NODE", 1}}},
                             {.name = "none", .cells = {}}};
  return config;
}

}  // namespace apiary_test
