// apiary/explain/unblock_search.h - which nodes to free or repair, so that a waiting gang fits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches nodes that would let a waiting gang fit if they were wholly free: emptied or repaired.
// Use it to tell a user or an operator what would help.
//
// In each of the cells with most slots for the largest tasks it frees nodes, those first that give
// a slot for the fewest GPUs, until the gang fits. The answer is the cell with the fewest GPUs
// freed; cheaper sets may exist. If no cell is enough, it frees all nodes and answers with those
// that the gang then uses. The search changes the capacity index, and restores it at the end.
//
// Requires: gang.valid(). The level that the gang prefers does not count.
// Invalid:  a capacity below what the node has free or above capacities.max_free(), or not one for
//           each node, aborts (APIARY_VERIFY); CPU and memory likewise.
// Cost:     O(nodes); for each cell tried O(nodes of the cell * log) and topology_fit for each node
//           freed; if none of them is enough, once more O(nodes * levels).
// Example:  examples/what_would_it_take.cpp
template <CellTree Tree>
class unblock_search {
 public:
  // What a search found.
  struct result {
    // fits:         the gang fits with these nodes free; no nodes if it fits now.
    // does_not_fit: the gang does not fit even if all nodes are wholly free.
    // budget_ended: it is not known.
    fit_verdict verdict = fit_verdict::budget_ended;
    std::span<const std::uint32_t> nodes{};  // ascending; valid until the next call
    std::uint64_t gpus = 0;                  // GPUs of these nodes that are not free now
    std::uint32_t cell = 0;                  // position of their cell in the required level
    bool all_needed = true;  // the gang does not fit without any one of them; false if not certain
    // A sentence for users: "it would fit if nodes 3 and 9 were free (12 more GPUs)".
    [[nodiscard]] std::string text() const {
      std::vector<std::string> names;
      for (const std::uint32_t n : nodes) names.push_back(std::to_string(n));
      return std::string("it would fit if ") + (nodes.size() == 1 ? "node " : "nodes ") +
             detail::listing(names) + " were free (" + std::to_string(gpus) +
             (gpus == 1 ? " more GPU)" : " more GPUs)");
    }
  };

  // cells_tried: cells in which nodes are freed one by one. budget: steps of each topology_fit; if
  // it ends, that counts as a no, and then the verdict is no proof.
  explicit unblock_search(std::uint32_t cells_tried = 8, std::uint64_t budget = 100'000) noexcept
      : cells_tried_(cells_tried), fit_(budget) {}

  // Searches the nodes.
  //   capacity       GPUs of each node when it is wholly free
  //   hosts          free CPU and memory of each node, or empty if they do not count
  //   host_capacity  CPU and memory of each node when it is wholly free, or empty if freeing a node
  //                  does not change them
  result operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
                    std::span<const std::uint32_t> capacity, std::span<const resources> hosts = {},
                    std::span<const resources> host_capacity = {}) {
    APIARY_VERIFY(capacity.size() == capacities.num_nodes());
    APIARY_VERIFY(hosts.empty() ? host_capacity.empty() : hosts.size() == capacity.size());
    APIARY_VERIFY(host_capacity.empty() || host_capacity.size() == capacity.size());
    for (std::uint32_t n = 0; n < capacity.size(); ++n) {
      APIARY_VERIFY(capacities.free(n) <= capacity[n] && capacity[n] <= capacities.max_free());
      APIARY_VERIFY(host_capacity.empty() || hosts[n].fits_in(host_capacity[n]));
    }
    begin(capacities, gang, capacity, hosts, host_capacity);
    best_.verdict = fit_now();
    if (best_.verdict != fit_verdict::fits) {
      bool found = false;
      for (const std::uint32_t c : closest()) {
        if (!free_in(c)) continue;
        const std::uint64_t gpus = gpus_of(freed_);
        if (!found || gpus < best_.gpus) keep(c, gpus);
        found = true;
      }
      best_.verdict = found ? fit_verdict::fits : free_all();
    }
    best_.nodes = nodes_;
    return best_;
  }

 private:
  struct node_free {
    std::uint32_t gpus = 0;
    resources host{};
    friend bool operator==(const node_free&, const node_free&) = default;
  };

  void begin(capacity_index<Tree>& capacities, const topology_constraints& gang,
             std::span<const std::uint32_t> capacity, std::span<const resources> hosts,
             std::span<const resources> host_capacity) {
    capacities_ = &capacities;
    gang_ = gang;
    gang_.preferred = any_level;
    capacity_ = capacity;
    hosts_.assign(hosts.begin(), hosts.end());
    host_capacity_ = host_capacity;
    level_ = gang.required == any_level ? capacities.top() : gang.required;
    task_ = {};
    for (const constrained_task_group& m : gang.groups)
      if (m.tasks > 0 && m.gpus >= task_.gpus) task_ = {m.gpus, m.host};
    nodes_.clear();
    best_ = {};
  }
  typename topology_fit<Tree>::result fit() { return fit_(*capacities_, gang_, hosts_); }
  fit_verdict fit_now() { return fit().verdict; }
  [[nodiscard]] node_free now(std::uint32_t n) const {
    return {capacities_->free(n), hosts_.empty() ? resources{} : hosts_[n]};
  }
  [[nodiscard]] node_free whole(std::uint32_t n) const {
    return {capacity_[n], host_capacity_.empty() ? now(n).host : host_capacity_[n]};
  }
  void set_node(transaction& tx, std::uint32_t n, const node_free& to) {
    tx.set(*capacities_, n, to.gpus);
    if (!host_capacity_.empty()) detail::set_host(tx, hosts_[n], to.host);
  }
  // The number of the largest tasks that fit.
  [[nodiscard]] std::uint32_t tasks_in(const node_free& in) const noexcept {
    std::uint32_t n = in.gpus / (std::max)(task_.gpus, 1U);
    if (task_.gpus == 0) n = capacities_->max_free();
    if (hosts_.empty()) return n;
    const auto limit = [&](std::uint32_t has, std::uint32_t each) {
      if (each > 0) n = (std::min)(n, has / each);
    };
    limit(in.host.cpu_milli, task_.host.cpu_milli);
    limit(in.host.memory_mib, task_.host.memory_mib);
    return n;
  }
  [[nodiscard]] std::uint64_t gpus_of(std::span<const std::uint32_t> nodes) const {
    std::uint64_t gpus = 0;
    for (const std::uint32_t n : nodes) gpus += capacity_[n] - capacities_->free(n);
    return gpus;
  }
  void keep(std::uint32_t cell, std::uint64_t gpus) {
    nodes_ = freed_;
    detail::merge_sort(nodes_);
    best_.gpus = gpus;
    best_.cell = cell;
    best_.all_needed = !in_doubt_;
  }
  // The cells with most slots for the largest tasks, at most cells_tried.
  [[nodiscard]] std::vector<std::uint32_t> closest() const {
    std::vector<keyed_number> cells;
    for (std::uint32_t c = 0; c < capacities_->num_cells(level_); ++c) {
      std::uint64_t sum = 0;
      if (!hosts_.empty() || task_.gpus == 0) {
        for (const cell_id n : capacities_->nodes(level_, c)) sum += tasks_in(now(n.value));
      } else if (level_ == capacities_->node_level()) {
        sum = capacities_->free(c);
      } else if (task_.gpus <= capacities_->max_free()) {
        sum = capacities_->slots(level_, task_.gpus)[c];
      }
      cells.push_back({~sum, c});
    }
    keyed_number::sort(cells);
    std::vector<std::uint32_t> first;
    for (std::size_t i = 0; i < (std::min<std::size_t>)(cells.size(), cells_tried_); ++i)
      first.push_back(cells[i].number);
    return first;
  }
  // Whether the gang is known to fit with the nodes in freed_ free.
  bool free_in(std::uint32_t c) {
    // By GPUs freed for each slot gained; nodes that gain none come last.
    std::vector<keyed_number> order;
    for (const cell_id i : capacities_->nodes(level_, c)) {
      const std::uint32_t n = i.value;
      if (now(n) == whole(n)) continue;
      const std::uint32_t more = capacity_[n] - capacities_->free(n);
      const std::uint32_t gain = tasks_in(whole(n)) - tasks_in(now(n));
      order.push_back({gain == 0 ? 1'000'000 + more : more * 1'000 / gain, n});
    }
    keyed_number::sort(order);
    freed_.clear();
    before_.clear();
    transaction tx(log_);
    for (const auto& [rank, n] : order) {
      free_node(tx, n);
      if (fit_now() != fit_verdict::fits) continue;
      give_back();
      return true;
    }
    return false;
  }
  // The verdict with all nodes wholly free; after a yes keeps the answer.
  fit_verdict free_all() {
    std::vector<std::uint32_t> placed;
    {
      transaction tx(log_);
      for (std::uint32_t n = 0; n < capacity_.size(); ++n) set_node(tx, n, whole(n));
      const auto found = fit();
      if (found.verdict != fit_verdict::fits) return found.verdict;
      for (const tasks_on_node& p : found.portions) placed.push_back(p.node);
      detail::merge_sort(placed);
      placed.erase(std::unique(placed.begin(), placed.end()), placed.end());
    }
    freed_.clear();
    before_.clear();
    {
      transaction tx(log_);
      for (const std::uint32_t n : placed)
        if (now(n) != whole(n)) free_node(tx, n);
      give_back();
    }
    std::uint32_t cell = 0;
    while (!placed.empty() && !capacities_->nodes(level_, cell).contains(cell_id(placed[0])))
      ++cell;
    keep(cell, gpus_of(freed_));
    return fit_verdict::fits;
  }
  void free_node(transaction& tx, std::uint32_t n) {
    freed_.push_back(n);
    before_.push_back(now(n));
    set_node(tx, n, whole(n));
  }
  // Takes nodes out of freed_ that are not needed. A node needed now stays needed later.
  void give_back() {
    in_doubt_ = false;
    for (std::size_t i = freed_.size(); i-- > 0;) {
      transaction back(log_);
      set_node(back, freed_[i], before_[i]);
      const fit_verdict verdict = fit_now();
      in_doubt_ = in_doubt_ || verdict == fit_verdict::budget_ended;
      if (verdict != fit_verdict::fits) continue;
      back.commit();
      freed_.erase(freed_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  std::uint32_t cells_tried_;
  topology_fit<Tree> fit_;
  journal log_;
  capacity_index<Tree>* capacities_ = nullptr;
  topology_constraints gang_;
  std::span<const std::uint32_t> capacity_;
  std::vector<resources> hosts_;
  std::span<const resources> host_capacity_;
  level_t level_ = 0;
  node_free task_{};  // what one of the largest tasks needs
  std::vector<std::uint32_t> freed_;
  std::vector<node_free> before_;  // of freed_; more follow that were given back
  bool in_doubt_ = false;          // it is not known whether each of freed_ is needed
  std::vector<std::uint32_t> nodes_;
  result best_;
};

APIARY_NAMESPACE_END
