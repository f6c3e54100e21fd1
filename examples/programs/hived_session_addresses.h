// The addresses of devices with their path, as the open-source HiveD writes them: "3/node-2/0/1/2" is
// device 2 of a node in the fourth cell of physicalCells. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace example {

// The addresses of all devices of a configuration. A part of an address is the cellAddress of the cell.
// Without one it is the index of the cell: among physicalCells, above the nodes among the cells of its
// level in the same cell of physicalCells, and below among those of its level in the same node.
// Cost: O(devices * levels), also in memory.
class cell_addresses {
 public:
  // Requires: the layout of this configuration.
  cell_addresses(const apiary::hived_config& config, const apiary::hived_layout& layout)
      : of_leaf_(layout.chains.size()) {
    std::vector<std::uint32_t> roots(layout.chains.size(), 0);
    for (std::size_t i = 0; i < config.physical_cells.size(); ++i) {
      std::size_t c = 0;
      while (layout.chains[c].name != config.physical_cells[i].type) ++c;
      const apiary::level_t top = layout.chains[c].tree.num_levels() - 1;
      walk(layout.chains[c], of_leaf_[c], &config.physical_cells[i], top, roots[c]++,
           std::to_string(i), "");
    }
  }
  // The addresses of the devices of a task, by ascending position in the node.
  [[nodiscard]] std::vector<std::string> of(const apiary::hived_layout& layout,
                                            apiary::hived_placement task) const {
    std::vector<std::string> all;
    if (task.leaves == 0) return all;
    const apiary::chain_id c = layout.chain_of(task.node);
    const apiary::chain_layout& chain = layout.chain(c);
    const std::size_t first = std::size_t{task.node.value - chain.first_node} *
                              chain.tree.leaves_per_cell(chain.node_level);
    for (std::uint64_t left = task.leaves; left != 0; left &= left - 1)
      all.push_back(of_leaf_[c.value][first + static_cast<std::size_t>(std::countr_zero(left))]);
    return all;
  }

 private:
  // `cell` is null for a cell that the configuration does not list.
  static void walk(const apiary::chain_layout& chain, std::vector<std::string>& out,
                   const apiary::physical_cell_config* cell, apiary::level_t level,
                   std::uint32_t index, const std::string& otherwise, const std::string& above) {
    const bool named = cell != nullptr && !cell->address.empty();
    const std::string address = above + (named ? cell->address : otherwise);
    if (level == 0) return out.push_back(address);
    const apiary::level_t around =
        level <= chain.node_level ? chain.node_level : chain.tree.num_levels() - 1;
    const std::uint32_t siblings =
        chain.tree.leaves_per_cell(around) / chain.tree.leaves_per_cell(level - 1);
    const std::uint32_t n = chain.tree.fan_out(level);
    for (std::uint32_t i = 0; i < n; ++i) {
      const bool listed = cell != nullptr && !cell->children.empty();
      const std::uint32_t child = index * n + i;
      walk(chain, out, listed ? &cell->children[i] : nullptr, level - 1, child,
           std::to_string(child % siblings), address + '/');
    }
  }

  std::vector<std::vector<std::string>> of_leaf_;  // by chain and index of the leaf
};

}  // namespace example
