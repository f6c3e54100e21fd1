// apiary/hived/detail/layout_inl.h - reads a HiveD configuration: bodies of hived/layout.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/digest.h>
#include <apiary/core/digits.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/cell_types.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Reads a configuration document, and checks that the cluster has enough cells for all quotas. The
// address of a cell that is neither a node nor a leaf is ignored. An entry with a fault is reported
// and left out; that causes no further report.
// Cost: O(cells of the document + leaves + entries of the tenants + tenants * levels).
class hived_config_reader {
 public:
  // Reads everything into an empty layout, and adds the faults. Requires: both outlive the object.
  hived_config_reader(const hived_config& config, hived_layout& out, document_faults& faults)
      : faults_(faults), out_(out) {
    add_chains(config.physical_cells, hived_cell_types(config.cell_types, faults));
    add_cells(config.physical_cells);
    check_hosts();
    reserved_.resize(out_.chains.size());
    for (const virtual_cluster_config& cluster : config.virtual_clusters) add_tenant(cluster);
    for (std::uint32_t c = 0; c < out_.chains.size(); ++c)
      if (complete_[c]) check_reservations(chain_id(c));
  }

 private:
  // An entry below physicalCells.
  struct place {
    const place* above;
    std::size_t child;
  };
  // A device of a host that is in several chains, and its chain.
  struct host_device {
    std::uint32_t device;
    const chain_layout* chain;
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
  [[nodiscard]] chain_layout& chain(chain_id c) noexcept { return out_.chains[c.value]; }
  // Adds one chain for each cell type in physicalCells; reports faults at the first such entry.
  void add_chains(std::span<const physical_cell_config> cells, const hived_cell_types& types) {
    lean_vector<std::uint32_t> order(cells.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    merge_sort(order,
               [&](std::uint32_t x, std::uint32_t y) { return cells[x].type > cells[y].type; });
    if (cells.empty()) faults_.add({"physicalCluster.physicalCells"}, {"no cells"});
    for (std::size_t i = 0; i < order.size();) {
      const std::string& type = cells[order[i]].type;
      const std::string path = text_of({path_of({nullptr, order[i]}), ".cellType"});
      std::vector<std::uint32_t> fan_outs{0};
      for (; i < order.size() && cells[order[i]].type == type; ++i) ++fan_outs[0];
      std::optional<cell_shape> shape = types.shape_of(type, path, faults_);
      if (shape)
        for (const std::uint32_t n : shape->fan_outs) fan_outs.push_back(n);
      if (!shape || !has_tree(fan_outs, path) ||
          !has_node_index(type, fan_outs, shape->node_level, path)) {
        all_complete_ = false;
        chain_of_type_.try_emplace(type, chain_id().value);
        continue;
      }
      const chain_id c(static_cast<std::uint32_t>(out_.chains.size()));
      chain_of_type_.try_emplace(type, c.value);
      out_.chains.push_back({.name = type,
                             .tree = uniform_tree(fan_outs),
                             .level_types = std::move(shape->types),
                             .node_level = shape->node_level,
                             .first_node = out_.num_nodes()});
      out_.chain_of_node_.append(chain(c).tree.cells(shape->node_level).size(), c);
    }
    complete_.assign(out_.chains.size(), true);
    for (std::uint32_t n = 0; n < out_.num_nodes(); ++n) out_.next_of_host_.push_back(node_id(n));
  }
  [[nodiscard]] bool has_tree(const std::vector<std::uint32_t>& fan_outs, const std::string& path) {
    std::uint64_t width = 1;
    std::uint64_t cells = 0;
    for (const std::uint32_t n : fan_outs) {
      width *= n;
      cells += width;
      if (cells < std::uint64_t{1} << 31) continue;
      faults_.add({path}, {"more than 2^31 - 1 cells in total"});
      return false;
    }
    return true;
  }
  // Whether physical_chain can index the nodes by idle_class in one bitset. Requires: has_tree.
  [[nodiscard]] bool has_node_index(const std::string& type,
                                    const std::vector<std::uint32_t>& fan_outs, level_t node_level,
                                    const std::string& path) {
    std::uint64_t nodes = 1;
    std::uint64_t leaves = 1;
    for (std::size_t i = 0; i < fan_outs.size(); ++i)
      (i + node_level < fan_outs.size() ? nodes : leaves) *= fan_outs[i];
    const std::uint64_t most = (summary_bitset::npos - 64) / ((leaves + 1) * (leaves + 2));
    if (nodes <= most) return true;
    faults_.add({path}, {"chain ", in_quotes(type), ": ", nodes, " nodes of ", leaves,
                         " leaf cells; the limit is ", most, " nodes"});
    return false;
  }
  void add_cells(std::span<const physical_cell_config> cells) {
    std::vector<std::uint32_t> roots(out_.chains.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const physical_cell_config& cell = cells[i];
      const chain_id c(chain_of_type_.at(cell.type));
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
      complete_[where.chain.value] = false;
      all_complete_ = false;
      return;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      const place child{&at, i};
      add_cell(child, cell.children[i], {where.chain, where.level - 1, where.index * n + i},
               inside_pinned);
    }
  }
  void add_pinned(const place& at, const std::string& id, position where) {
    const auto index = static_cast<std::uint32_t>(out_.pinned.size());
    if (!out_.pinned_.try_emplace(id, index).second) {
      faults_.add({path_of(at), ".pinnedCellId"}, {in_quotes(id), " already pins another cell"});
    }
    const cell_id c = chain(where.chain).tree.at(where.level, where.index);
    out_.pinned.push_back({.id = id, .chain = where.chain, .cell = c});
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
    const auto [named, fresh] = out_.nodes_.try_emplace(name, node);
    if (fresh) return;
    const node_id first(named->second);
    node_id last = first;
    const auto is_here = [&] { return last.value >= in.first_node && last.value < node; };
    while (!is_here() && out_.next_of_host_[last.value] != first)
      last = out_.next_of_host_[last.value];
    if (is_here()) {
      faults_.add({path_of(at), ".cellAddress"}, {"node ", in_quotes(name), " is named twice"});
      return;
    }
    out_.next_of_host_[last.value] = node_id(node);
    out_.next_of_host_[node] = first;
  }
  // A device of a host must be in one chain only: otherwise two gangs could get it.
  void check_hosts() {
    if (!all_complete_) return;
    for (std::uint32_t n = 0; n < out_.next_of_host_.size(); ++n) {
      const std::string& name = out_.node_name(node_id(n));
      if (out_.next_of_host_[n] == node_id(n) || out_.nodes_.find(name)->second != n) continue;
      devices_of_host_.clear();
      std::uint32_t node = n;
      do {
        add_devices_of(node);
        node = out_.next_of_host_[node].value;
      } while (node != n);
    }
  }
  // Adds the devices of a node to devices_of_host_, up to one that is in another chain: a fault.
  void add_devices_of(std::uint32_t node) {
    const chain_layout& in = chain(out_.chain_of(node_id(node)));
    if (in.device_of_leaf.size() != in.tree.num_leaves()) return;  // a device has a fault
    const std::uint32_t leaves = in.tree.leaves_per_cell(in.node_level);
    const std::uint32_t index = node - in.first_node;
    for (std::uint32_t i = index * leaves; i < (index + 1) * leaves; ++i) {
      const std::uint32_t device = in.device_of_leaf[i];
      for (const host_device& other : devices_of_host_) {
        if (other.device != device || other.chain == &in) continue;
        faults_.add({"physicalCluster.physicalCells"},
                    {"device ", device, " of node ", in_quotes(in.node_names[index]),
                     " is in chain ", in_quotes(other.chain->name), " and in chain ",
                     in_quotes(in.name), "; two gangs could get it: give each its cellAddress"});
        return;
      }
      devices_of_host_.push_back({device, &in});
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

  void add_tenant(const virtual_cluster_config& cluster) {
    const std::string path = text_of({"virtualClusters.", escaped(cluster.name)});
    const tenant_id tenant(static_cast<std::uint32_t>(out_.tenants.size()));
    if (cluster.name.empty()) faults_.add({path}, {"a virtual cluster without name"});
    if (!out_.tenants_.try_emplace(cluster.name, tenant.value).second) {
      faults_.add({path}, {"is defined twice"});
    }
    out_.tenants.push_back({.name = cluster.name});
    for (const chain_layout& c : out_.chains)
      out_.tenants.back().quota.emplace_back(c.tree.num_levels());
    for (std::size_t i = 0; i < cluster.cells.size(); ++i) {
      add_quota(text_of({path, ".virtualCells[", i, "].cellType"}), cluster.cells[i]);
    }
    for (std::size_t i = 0; i < cluster.pinned_ids.size(); ++i) {
      own_pinned(text_of({path, ".pinnedCells[", i, "].pinnedCellId"}), cluster.pinned_ids[i],
                 tenant);
    }
  }
  // A quota of 32 bits overflows only if the sum in reserved_ is more than the chain can have.
  void add_quota(const std::string& path, const virtual_cell_config& cells) {
    const auto where = find_level(path, cells.type);
    if (!where) return;
    out_.tenants.back().quota[where->chain.value][where->level] += cells.count;
    reserved_[where->chain.value][where->level] += cells.count;
  }
  // The chain and level of a qualified cell type, such as rack.node; nullopt if there is no such
  // type (a fault is added), or if its chain has faults.
  [[nodiscard]] std::optional<position> find_level(const std::string& path, std::string_view type) {
    std::size_t dot = type.find('.');
    std::string_view part = type.substr(0, dot);
    const auto found = chain_of_type_.find(part);
    if (found == chain_of_type_.end()) {
      faults_.add({path}, {type.empty() ? std::string("is missing") : no_chain(part, type)});
      return std::nullopt;
    }
    const chain_id chain(found->second);
    if (!chain.valid()) return std::nullopt;
    const std::vector<std::string>& types = out_.chains[chain.value].level_types;
    auto level = static_cast<level_t>(types.size() - 1);
    while (dot != std::string_view::npos) {
      type.remove_prefix(dot + 1);
      dot = type.find('.');
      part = type.substr(0, dot);
      if (level == 0 || part != types[level - 1]) {
        faults_.add({path}, {in_quotes(types[level]), " is not made of ", in_quotes(part)});
        return std::nullopt;
      }
      --level;
    }
    return position{chain, level, 0};
  }
  // Says that no physical cell is of type `first`, with which the qualified type starts, and which
  // qualified types end with it.
  [[nodiscard]] std::string no_chain(std::string_view first, std::string_view type) const {
    std::string text = text_of({"no physical cell is of type ", in_quotes(first)});
    if (first != type) text += text_of({", the first name of ", in_quotes(type)});
    const char* separator = "; write ";
    for (const chain_layout& chain : out_.chains) {
      const std::vector<std::string>& types = chain.level_types;
      const auto at = std::find(types.begin(), types.end(), first);
      if (first.empty() || at == types.end()) continue;
      std::string qualified;
      for (auto above = types.end(); --above != at;) qualified += text_of({*above, "."});
      text += text_of({separator, in_quotes(qualified.append(type))});
      separator = " or ";
    }
    return text;
  }
  // Sets the owner of the pinned cell with this id, if there is one.
  void own_pinned(const std::string& path, const std::string& id, tenant_id tenant) {
    const auto found = out_.pinned_.find(id);
    if (id.empty()) {
      faults_.add({path}, {"is missing"});
    } else if (found != out_.pinned_.end()) {
      tenant_id& owner = out_.pinned[found->second].tenant;
      if (owner.valid()) {
        faults_.add({path}, {in_quotes(id), " already belongs to virtual cluster ",
                             in_quotes(out_.tenants[owner.value].name)});
      }
      owner = tenant;
    } else if (all_complete_) {
      faults_.add({path}, {"no physical cell is pinned as ", in_quotes(id)});
    }
  }
  // Allocates the pinned cells and reserves the quotas, the largest cells first. Reports the first
  // quota that cannot be reserved.
  void check_reservations(chain_id c) {
    const chain_layout& in = out_.chains[c.value];
    reserving_buddy_allocator free(in.tree);
    for (const pinned_layout& pin : out_.pinned) {
      if (pin.chain != c || !pin.tenant.valid()) continue;
      if (!free.cells().enclosing_free_level(pin.cell)) continue;
      APIARY_VERIFY(free.reserve(in.tree.level(pin.cell), 1) && free.allocate_at(pin.cell));
    }
    for (level_t l = in.tree.num_levels(); l-- > 0;) {
      const std::uint64_t wanted = reserved_[c.value][l];
      const std::uint32_t left = free.splittable(l);
      if (wanted > left) {
        faults_.add({"virtualClusters"}, {wanted, " cells of type ", in_quotes(in.level_types[l]),
                                          " are requested; chain ", in_quotes(in.name), " has ",
                                          left, " besides pinned and larger cells"});
        return;
      }
      APIARY_VERIFY(free.reserve(l, static_cast<std::uint32_t>(wanted)));
    }
  }

  document_faults& faults_;
  hived_layout& out_;
  name_index chain_of_type_;            // chain_id values; not valid: the chain is left out
  lean_vector<bool> complete_;          // by chain: all its cells are known
  bool all_complete_ = true;            // no chain is left out, and all chains are complete
  std::size_t first_leaf_of_node_ = 0;  // in device_of_leaf
  lean_vector<host_device> devices_of_host_;
  lean_vector<std::array<std::uint64_t, uniform_tree::max_levels>> reserved_;  // [chain][level]
};

}  // namespace detail

APIARY_INLINE absl::StatusOr<hived_layout> hived_layout::create(const hived_config& config) {
  hived_layout layout;
  detail::document_faults faults;
  const detail::hived_config_reader read(config, layout, faults);
  APIARY_RETURN_IF_ERROR(faults.status());
  return layout;
}

APIARY_INLINE std::uint64_t hived_layout::hash() const noexcept {
  digest all;
  all.add(chains.size());
  for (const chain_layout& in : chains) {
    all.add(in.name).add(in.tree.num_levels()).add(in.node_level);
    for (level_t l = 0; l < in.tree.num_levels(); ++l)
      all.add(in.tree.cells(l).size()).add(in.level_types[l]);
    for (const std::string& node : in.node_names) all.add(node);
    for (const std::uint32_t device : in.device_of_leaf) all.add(device);
  }
  all.add(pinned.size());
  for (const pinned_layout& pin : pinned)
    all.add(pin.id).add(pin.chain.value).add(pin.cell.value).add(pin.tenant.value);
  for (const tenant_layout& tenant : tenants) {
    all.add(tenant.name);
    for (const std::vector<std::uint32_t>& cells : tenant.quota)
      for (const std::uint32_t count : cells) all.add(count);
  }
  return all.value();
}

APIARY_NAMESPACE_END
