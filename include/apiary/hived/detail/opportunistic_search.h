// apiary/hived/detail/opportunistic_search.h - places opportunistic gangs on idle leaves.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/node_index.h>
#include <apiary/core/ids.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/gang_placer.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/gang_place.h>
#include <apiary/hived/detail/lazy_value.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/topology_fit.h>
#include <apiary/hived/request.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds placements for opportunistic gangs.
//
// Model: HiveD (OSDI 2020) section 3.3: opportunistic tasks are packed together, away from guaranteed
//        tasks. Differs: complete (gang_fit), and avoids racks with cells granted to a tenant.
// Cost:  as gang_placer, and O((leaves of a node)^2); with a filter O(nodes) more. Under topology
//        constraints as hived_topology_fit.
class opportunistic_search {
 public:
  // Searches the idle leaves of chain `c`. Nodes with the most opportunistic leaves come first. Ties: the
  // most idle leaves; then, unless that takes more racks, racks without cells granted to a tenant; then
  // the last nodes. For a gang under topology constraints hived_topology_fit chooses the nodes. `usable`
  // says which leaves may be used; null: all healthy ones. Returns whether it found a placement.
  bool operator()(const hived_cells& cells, const gang_request& request, std::uint32_t c,
                  const health<uniform_tree>* usable) {
    const physical_chain& chain = cells.chain(c);
    place_ = {};
    place_.chain = c;
    if (usable != nullptr) filter(chain, *usable);
    if (request.constraints.any()) return by_constraints(chain, request, c, usable != nullptr);
    const node_index& index = usable != nullptr ? *filtered_ : chain.guest_nodes();
    classes_.clear();
    const std::uint32_t size = chain.node_leaves();
    for (std::uint32_t guests = size; guests-- > 0;) {
      for (std::uint32_t idle = size - guests; idle > 0; --idle) {
        classes_.push_back(
            {chain.guest_class(false, guests, idle), idle, chain.guest_class(true, guests, idle)});
      }
    }
    const gang_fit::result& packed = placer_.fit(index, classes_, request.groups);
    verdict_ = packed.verdict;
    cut_ = packed.cut;
    if (verdict_ != fit_verdict::fits) return false;
    placer_.choose_nodes(index, rack_choice::fullest);
    sizes_.assign(chain.tree());
    nodes_.clear();
    for (const std::uint32_t picked : placer_.nodes())
      add_node(chain, chain.from_end(picked), usable != nullptr);
    for (const cell_id leaf : placer_.choose_gpus_of(nodes_, request.groups))
      place_.leaves.push_back({cell_id(), leaf});
    return true;
  }

  // After a search that found a placement.
  [[nodiscard]] const gang_place& place() const noexcept { return place_; }
  // After a search that found none: what is known of the fit, and a count that is too small, if any.
  [[nodiscard]] fit_verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] const std::optional<gang_fit::shortage>& cut() const noexcept { return cut_; }

 private:
  bool by_constraints(const physical_chain& chain, const gang_request& request, std::uint32_t c,
                      bool filtered) {
    cut_.reset();
    verdict_ = constrained_->in_chain(chain, c, request, [&](std::uint32_t n) {
      return static_cast<std::uint32_t>(std::popcount(filtered ? masks_[n] : chain.idle(n)));
    });
    if (verdict_ != fit_verdict::fits) return false;
    sizes_.assign(chain.tree());
    nodes_.clear();
    for (const std::uint32_t n : constrained_->nodes()) add_node(chain, n, filtered);
    for (const cell_id leaf : constrained_->choose_gpus_of(nodes_, request.groups))
      place_.leaves.push_back({cell_id(), leaf});
    return true;
  }
  void add_node(const physical_chain& chain, std::uint32_t n, bool filtered) {
    const std::uint64_t idle = filtered ? masks_[n] : chain.idle(n);
    nodes_.push_back({idle, idle, chain.first_leaf(n), sizes_.up_to(chain.node_level())});
  }
  // Sets masks_ to the idle usable leaves of each node, and filtered_ to the nodes by their class.
  void filter(const physical_chain& chain, const health<uniform_tree>& usable) {
    filtered_.emplace(chain.num_nodes(), chain.guest_nodes().num_classes(), chain.rack_size());
    masks_.resize(chain.num_nodes());
    for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
      masks_[n] = 0;
      for (std::uint64_t m = chain.idle(n); m != 0; m &= m - 1) {
        const auto i = static_cast<std::uint32_t>(std::countr_zero(m));
        if (usable.healthy(cell_id(chain.first_leaf(n).value + i))) masks_[n] |= m & -m;
      }
      if (masks_[n] == 0) continue;
      const auto idle = static_cast<std::uint32_t>(std::popcount(masks_[n]));
      filtered_->assign(
          node_id(chain.from_end(n)),
          chain.guest_class(chain.granted(n), chain.guests(chain.node_cell(n)), idle));
    }
  }

  gang_placer placer_;
  lazy_value<hived_topology_fit> constrained_;
  std::optional<gang_fit::shortage> cut_;
  fit_verdict verdict_ = fit_verdict::fits;
  gang_place place_;
  std::vector<indexed_class> classes_;
  std::vector<node_gpus> nodes_;
  std::vector<std::uint64_t> masks_;    // of each node, with a filter
  std::optional<node_index> filtered_;  // as guest_nodes(), with a filter
  level_sizes sizes_;
};

}  // namespace detail
APIARY_NAMESPACE_END
