// apiary/hived/detail/chain_reader.h - reads the physical cells of a HiveD configuration.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/digits.h>
#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cell_types.h>
#include <apiary/hived/detail/name_index.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Reads the physical cells of a configuration document. The address of a cell that is neither a
// node nor a leaf is ignored. An entry with a fault is reported and left out; that causes no
// further report. Cost: O(cells of the document + leaves).
class hived_chain_reader {
 public:
  std::vector<chain_layout> chains{};   // by descending name
  std::vector<bool> complete{};         // by chain: all its cells are known
  bool all_complete = true;             // no chain is left out, and all chains are complete
  std::vector<pinned_layout> pinned{};  // in the order of the document
  name_index chain_of_type{};           // chain_id values; not valid: the chain is left out
  name_index node_of_name{};            // node_id values; of a host in several chains, the first
  // The other nodes of a host in several chains, by its first.
  std::map<std::uint32_t, std::vector<std::uint32_t>> more_of_host{};
  name_index pinned_of_id{};  // indices in `pinned`

  hived_chain_reader(const hived_config& config, document_faults& faults) : faults_(faults) {
    add_chains(config.physical_cells, hived_cell_types(config.cell_types, faults));
    add_cells(config.physical_cells);
    check_hosts();
  }

 private:
  // An entry below physicalCells.
  struct place {
    const place* above;
    std::size_t child;
  };
  // The cell of the tree for an entry.
  struct position {
    chain_id chain;
    level_t level;
    std::uint32_t index;
  };

  [[nodiscard]] static std::string path_of(const place& at) {
    if (at.above == nullptr) return text_of({"physicalCluster.physicalCells[", at.child, "]"});
    return text_of({path_of(*at.above), ".cellChildren[", at.child, "]"});
  }
  [[nodiscard]] chain_layout& chain(chain_id c) noexcept { return chains[c.value]; }
  // Adds one chain for each cell type in physicalCells; reports faults at the first such entry.
  void add_chains(std::span<const physical_cell_config> cells, const hived_cell_types& types) {
    struct use {
      std::size_t first;
      std::uint32_t count;
    };
    std::map<std::string_view, use, std::greater<>> uses;
    for (std::size_t i = 0; i < cells.size(); ++i)
      ++uses.try_emplace(cells[i].type, use{i, 0}).first->second.count;
    if (uses.empty()) faults_.add({"physicalCluster.physicalCells"}, {"no cells"});
    std::uint32_t nodes = 0;
    for (const auto& [type, used] : uses) {
      const std::string path = text_of({path_of({nullptr, used.first}), ".cellType"});
      std::optional<cell_shape> shape = types.shape_of(std::string(type), path, faults_);
      if (shape) shape->fan_outs.insert(shape->fan_outs.begin(), used.count);
      if (shape && !has_tree(shape->fan_outs)) {
        faults_.add({path}, {"more than 2^31 - 1 cells in total"});
        shape.reset();
      }
      if (shape && !has_node_index(*shape, path)) shape.reset();
      if (!shape) {
        all_complete = false;
        chain_of_type.add(type, chain_id().value);
        continue;
      }
      const chain_id c(static_cast<std::uint32_t>(chains.size()));
      chain_of_type.add(type, c.value);
      chains.push_back({.name = std::string(type),
                        .tree = uniform_tree(shape->fan_outs),
                        .level_types = std::move(shape->types),
                        .node_level = shape->node_level,
                        .first_node = nodes});
      nodes += chain(c).tree.cells(shape->node_level).size();
    }
    complete.assign(chains.size(), true);
  }
  [[nodiscard]] static bool has_tree(const std::vector<std::uint32_t>& fan_outs) noexcept {
    std::uint64_t width = 1;
    std::uint64_t cells = 0;
    for (const std::uint32_t n : fan_outs) {
      width *= n;
      cells += width;
      if (cells >= std::uint64_t{1} << 31) return false;
    }
    return true;
  }
  // Whether physical_chain can index the nodes by idle_class in one bitset. Requires: has_tree.
  [[nodiscard]] bool has_node_index(const cell_shape& shape, const std::string& path) {
    std::uint64_t nodes = 1;
    std::uint64_t leaves = 1;
    const std::size_t levels = shape.fan_outs.size();
    for (std::size_t i = 0; i < levels; ++i)
      (i + shape.node_level < levels ? nodes : leaves) *= shape.fan_outs[i];
    const std::uint64_t most = (summary_bitset::npos - 64) / ((leaves + 1) * (leaves + 2));
    if (nodes <= most) return true;
    faults_.add({path}, {"chain ", in_quotes(shape.types.back()), ": ", nodes, " nodes of ", leaves,
                         " leaf cells; the limit is ", most, " nodes"});
    return false;
  }
  void add_cells(std::span<const physical_cell_config> cells) {
    std::vector<std::uint32_t> roots(chains.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const physical_cell_config& cell = cells[i];
      const chain_id c(*chain_of_type.find(cell.type));
      if (!c.valid()) continue;
      const level_t top = chain(c).tree.num_levels() - 1;
      add_cell({nullptr, i}, cell, {c, top, roots[c.value]++}, false);
    }
  }
  void add_cell(const place& at, const physical_cell_config& cell, position where,
                bool inside_pinned) {
    chain_layout& in = chain(where.chain);
    const std::string& type = in.level_types[where.level];
    if (!cell.type.empty() && cell.type != type) {
      faults_.add({path_of(at), ".cellType"},
                  {in_quotes(cell.type), " instead of ", in_quotes(type)});
    }
    if (!cell.pinned_id.empty()) {
      if (inside_pinned) faults_.add({path_of(at), ".pinnedCellId"}, {"inside a pinned cell"});
      add_pinned(at, cell.pinned_id, where);
      inside_pinned = true;
    }
    if (where.level == in.node_level) add_node(at, cell.address, where);
    if (where.level == 0) {
      add_device(at, cell.address, where);
    } else if (cell.children.empty() && where.level <= in.node_level) {
      const cell_id c = in.tree.at(where.level, where.index);
      for (const cell_id leaf : in.tree.descendants(c, 0))
        add_device(at, "", {where.chain, 0, in.tree.index(leaf, 0)});
      return;
    }
    const std::uint32_t n = in.tree.fan_out(where.level);
    if (cell.children.size() != n) {
      const std::string path = text_of({path_of(at), ".cellChildren"});
      if (cell.children.empty()) {
        faults_.add({path}, {"is missing; it holds the names of the nodes"});
      } else {
        faults_.add({path}, {cell.children.size(), " cells instead of ", n, " in a cell of type ",
                             in_quotes(type)});
      }
      complete[where.chain.value] = false;
      all_complete = false;
      return;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      const place child{&at, i};
      add_cell(child, cell.children[i], {where.chain, where.level - 1, where.index * n + i},
               inside_pinned);
    }
  }
  void add_pinned(const place& at, const std::string& id, position where) {
    const auto index = static_cast<std::uint32_t>(pinned.size());
    if (!pinned_of_id.add(id, index)) {
      faults_.add({path_of(at), ".pinnedCellId"}, {in_quotes(id), " already pins another cell"});
    }
    const cell_id c = chain(where.chain).tree.at(where.level, where.index);
    pinned.push_back({.id = id, .chain = where.chain, .cell = c});
  }
  void add_node(const place& at, const std::string& name, position where) {
    chain_layout& in = chain(where.chain);
    first_leaf_of_node_ = in.device_of_leaf.size();
    in.node_names.push_back(name);
    if (name.empty()) {
      faults_.add({path_of(at), ".cellAddress"}, {"a node without name"});
      return;
    }
    const std::uint32_t node = in.first_node + where.index;
    if (node_of_name.add(name, node)) return;
    const std::uint32_t first = *node_of_name.find(name);
    std::vector<std::uint32_t>& more = more_of_host[first];
    const auto here = [&](std::uint32_t n) { return n >= in.first_node && n < node; };
    if (here(first) || std::any_of(more.begin(), more.end(), here)) {
      faults_.add({path_of(at), ".cellAddress"}, {"node ", in_quotes(name), " is named twice"});
    } else {
      more.push_back(node);
    }
  }
  // A device of a host must be in one chain only: otherwise two gangs could get it.
  void check_hosts() {
    if (!all_complete) return;
    for (const auto& [first, more] : more_of_host) {
      std::map<std::uint32_t, const chain_layout*> chain_of_device;
      add_devices_of(first, chain_of_device);
      for (const std::uint32_t node : more) add_devices_of(node, chain_of_device);
    }
  }
  void add_devices_of(std::uint32_t node,
                      std::map<std::uint32_t, const chain_layout*>& chain_of_device) {
    std::size_t c = 0;
    while (c + 1 < chains.size() && chains[c + 1].first_node <= node) ++c;
    const chain_layout& in = chains[c];
    if (in.device_of_leaf.size() != in.tree.num_leaves()) return;  // a device has a fault
    const std::size_t leaves = in.tree.leaves_per_cell(in.node_level);
    const std::size_t index = node - in.first_node;
    for (std::size_t i = index * leaves; i < (index + 1) * leaves; ++i) {
      const auto [other, fresh] = chain_of_device.try_emplace(in.device_of_leaf[i], &in);
      if (fresh || other->second == &in) continue;
      faults_.add({"physicalCluster.physicalCells"},
                  {"device ", in.device_of_leaf[i], " of node ", in_quotes(in.node_names[index]),
                   " is in chain ", in_quotes(other->second->name), " and in chain ",
                   in_quotes(in.name), "; two gangs could get it: give each its cellAddress"});
      return;
    }
  }
  // Adds a leaf. Without an address, its device index is its position in the node.
  void add_device(const place& at, const std::string& address, position where) {
    chain_layout& in = chain(where.chain);
    std::uint32_t device = where.index % in.tree.leaves_per_cell(in.node_level);
    if (!address.empty()) {
      const std::optional<std::uint64_t> index = read_digits(address);
      if (!index) {
        faults_.add({path_of(at), ".cellAddress"}, {in_quotes(address), " is not a device index"});
        return;
      }
      device = static_cast<std::uint32_t>(*index);
    }
    std::vector<std::uint32_t>& devices = in.device_of_leaf;
    for (std::size_t i = first_leaf_of_node_; i < devices.size(); ++i) {
      if (devices[i] != device) continue;
      faults_.add({path_of(at), ".cellAddress"}, {"device ", device, " is in this node twice"});
      break;
    }
    devices.push_back(device);
  }

  document_faults& faults_;
  std::size_t first_leaf_of_node_ = 0;  // in device_of_leaf
};

}  // namespace detail
APIARY_NAMESPACE_END
