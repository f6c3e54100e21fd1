// apiary/explain/unblock_search.h - what would let a gang fit: nodes to be freed or healed.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches nodes that would let a gang fit if they were wholly free: emptied, or healed. In each of
// the cells that the gang may have that are closest to enough pieces of its largest tasks, nodes are
// freed, those first that give a piece for the fewest leaves, until the gang fits; then those that
// turn out not to be needed are given back. The answer is the cell where the fewest leaves are
// freed. None of its nodes can be spared, but cheaper sets may exist. Where none of these cells will
// do, all nodes are freed, and those where the gang is then placed are the answer.
//
// What topology_fit does not decide within its budget counts as no, and is not passed off as one:
// verdict() and all_needed().
//
// All is tried on the rooms themselves and taken back.
// Requires: valid(gang); capacity: leaves of each node. hosts: CPU and memory left of each node, or
//           nothing if they do not count; host_capacity: what each has when it is wholly free, or
//           nothing if they stay as they are. Which level the gang prefers does not count.
// Invalid:  a capacity below what the node has free or above rooms.most(), or not one for each
//           node, aborts (APIARY_VERIFY); for CPU and memory likewise.
// Cost:     O(nodes); for each cell tried O(nodes of the cell * log) and topology_fit for each node
//           freed; if none of them will do, once more O(nodes * levels).
// Example:  examples/what_would_it_take.cpp
template <CellTree Tree>
class unblock_search {
 public:
  explicit unblock_search(std::uint32_t cells_tried = 8, std::uint64_t budget = 100'000) noexcept
      : cells_tried_(cells_tried), fit_(budget) {}

  // Whether there is a remedy that was found; none is needed when the gang fits.
  bool operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
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
    verdict_ = fit_now();
    if (verdict_ == fit_verdict::fits) return true;
    bool found = false;
    for (const std::uint32_t c : closest()) {
      if (!free_in(c)) continue;
      const std::uint64_t leaves = leaves_of(freed_);
      if (!found || leaves < leaves_) keep(c, leaves);
      found = true;
    }
    verdict_ = found ? fit_verdict::fits : free_all();
    return verdict_ == fit_verdict::fits;
  }

  // fits: with nodes(); does_not_fit: not even with all nodes wholly free; budget_ended: not known.
  [[nodiscard]] fit_verdict verdict() const noexcept { return verdict_; }
  // After a yes: the nodes to free, ascending; the leaves on them that are not free; the cell of the
  // required level they are in, by its place.
  [[nodiscard]] std::span<const std::uint32_t> nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::uint64_t leaves() const noexcept { return leaves_; }
  [[nodiscard]] std::uint32_t cell() const noexcept { return cell_; }
  // After a yes: whether it is certain that none of the nodes can be spared.
  [[nodiscard]] bool all_needed() const noexcept { return all_needed_; }

 private:
  // What a node has free.
  struct room {
    std::uint32_t leaves = 0;
    resources host{};
    friend bool operator==(const room&, const room&) = default;
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
    piece_ = {};
    for (const constrained_task_group& m : gang.members)
      if (m.tasks > 0 && m.gpus >= piece_.leaves) piece_ = {m.gpus, m.host};
    nodes_.clear();
    leaves_ = 0;
    cell_ = 0;
    all_needed_ = true;
  }
  fit_verdict fit_now() { return fit_(*capacities_, gang_, hosts_); }
  [[nodiscard]] room now(std::uint32_t n) const {
    return {capacities_->free(n), hosts_.empty() ? resources{} : hosts_[n]};
  }
  [[nodiscard]] room whole(std::uint32_t n) const {
    return {capacity_[n], host_capacity_.empty() ? now(n).host : host_capacity_[n]};
  }
  void set_room(transaction& tx, std::uint32_t n, const room& to) {
    journaled::set_free(tx, *capacities_, n, to.leaves);
    if (!host_capacity_.empty()) set(tx, hosts_[n], to.host);
  }
  // The largest tasks that there is room for.
  [[nodiscard]] std::uint32_t pieces(const room& in) const noexcept {
    std::uint32_t n = in.leaves / std::max(piece_.leaves, 1U);
    if (piece_.leaves == 0) n = capacities_->max_free();
    if (hosts_.empty()) return n;
    const auto share = [&](std::uint32_t has, std::uint32_t each) {
      if (each > 0) n = std::min(n, has / each);
    };
    share(in.host.cpu_milli, piece_.host.cpu_milli);
    share(in.host.memory_mib, piece_.host.memory_mib);
    return n;
  }
  [[nodiscard]] std::uint64_t leaves_of(std::span<const std::uint32_t> nodes) const {
    std::uint64_t leaves = 0;
    for (const std::uint32_t n : nodes) leaves += capacity_[n] - capacities_->free(n);
    return leaves;
  }
  void keep(std::uint32_t cell, std::uint64_t leaves) {
    cell_ = cell;
    leaves_ = leaves;
    nodes_ = freed_;
    std::sort(nodes_.begin(), nodes_.end());
    all_needed_ = !in_doubt_;
  }

  // The cells with most pieces of the largest tasks, at most cells_tried.
  [[nodiscard]] std::vector<std::uint32_t> closest() const {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> cells;
    for (std::uint32_t c = 0; c < capacities_->num_cells(level_); ++c) {
      std::uint64_t sum = 0;
      if (!hosts_.empty() || piece_.leaves == 0) {
        for (const cell_id n : capacities_->nodes(level_, c)) sum += pieces(now(n.value));
      } else if (level_ == capacities_->node_level()) {
        sum = capacities_->free(c);
      } else if (piece_.leaves <= capacities_->max_free()) {
        sum = capacities_->slots(level_, piece_.leaves)[c];
      }
      cells.emplace_back(sum, c);
    }
    std::stable_sort(cells.begin(), cells.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::uint32_t> first;
    for (std::size_t i = 0; i < std::min<std::size_t>(cells.size(), cells_tried_); ++i)
      first.push_back(cells[i].second);
    return first;
  }

  // Whether the gang is known to fit with nodes of a cell freed; they are freed_ then.
  bool free_in(std::uint32_t c) {
    // By leaves freed for each piece gained; what gains none comes last.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> order;
    for (const cell_id i : capacities_->nodes(level_, c)) {
      const std::uint32_t n = i.value;
      if (now(n) == whole(n)) continue;
      const std::uint32_t more = capacity_[n] - capacities_->free(n);
      const std::uint32_t gain = pieces(whole(n)) - pieces(now(n));
      order.emplace_back(gain == 0 ? 1'000'000 + more : more * 1'000 / gain, n);
    }
    std::sort(order.begin(), order.end());
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
  // The verdict with all nodes wholly free; after a yes the answer is kept.
  fit_verdict free_all() {
    std::vector<std::uint32_t> placed;
    {
      transaction tx(log_);
      for (std::uint32_t n = 0; n < capacity_.size(); ++n) set_room(tx, n, whole(n));
      const fit_verdict verdict = fit_now();
      if (verdict != fit_verdict::fits) return verdict;
      for (const gang_portion& p : fit_.portions()) placed.push_back(p.node);
      std::sort(placed.begin(), placed.end());
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
    keep(cell, leaves_of(freed_));
    return fit_verdict::fits;
  }
  void free_node(transaction& tx, std::uint32_t n) {
    freed_.push_back(n);
    before_.push_back(now(n));
    set_room(tx, n, whole(n));
  }
  // Takes those out of freed_ that can be spared. One that is needed now is needed when others are
  // spared, too.
  void give_back() {
    in_doubt_ = false;
    for (std::size_t i = freed_.size(); i-- > 0;) {
      transaction back(log_);
      set_room(back, freed_[i], before_[i]);
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
  room piece_{};  // what one of the largest tasks needs
  std::vector<std::uint32_t> freed_;
  std::vector<room> before_;  // of these; more follow that were spared
  bool in_doubt_ = false;     // whether one of these can be spared
  fit_verdict verdict_ = fit_verdict::budget_ended;
  std::vector<std::uint32_t> nodes_;
  std::uint64_t leaves_ = 0;
  std::uint32_t cell_ = 0;
  bool all_needed_ = true;
};

APIARY_NAMESPACE_END
