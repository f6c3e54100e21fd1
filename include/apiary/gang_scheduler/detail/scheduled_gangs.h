// apiary/gang_scheduler/detail/scheduled_gangs.h - gangs, and the nodes that they use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/cluster_nodes.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The gangs of each cell of one level. refresh() lists them again for the cells that have changed.
// Cost: mark O(1); refresh O(nodes and gangs of the changed cells), of all cells the first time.
class cell_gangs {
 public:
  struct gang {
    std::uint32_t slot = 0;
    std::uint32_t gpus = 0;   // in the cell
    std::uint32_t nodes = 0;  // in the cell
    friend bool operator==(const gang&, const gang&) = default;
  };
  // The most GPUs, and the most nodes, that 1, ..., few gangs have in a cell; [few]: all gangs.
  static constexpr std::size_t few = 7;
  struct sums {
    std::array<std::uint32_t, few + 1> gpus{};
    std::array<std::uint32_t, few + 1> nodes{};
    friend bool operator==(const sums&, const sums&) = default;
  };

  // Whether begin() has been called.
  [[nodiscard]] bool active() const noexcept { return !sums_.empty(); }
  // All cells have changed.
  void begin(std::uint32_t cells) {
    gangs_.assign(cells, {});
    sums_.assign(cells, {});
    is_marked_.assign(cells, 1);
    marked_.clear();
    for (std::uint32_t c = 0; c < cells; ++c) marked_.push_back(c);
  }
  // The cell has changed.
  void mark(std::uint32_t c) {
    if (is_marked_[c] != 0) return;
    is_marked_[c] = 1;
    marked_.push_back(c);
  }
  // list(c, gangs) appends the gangs of cell c, once for each of their nodes.
  template <class List>
  void refresh(const List& list) {
    for (const std::uint32_t c : marked_) {
      is_marked_[c] = 0;
      gangs_[c].clear();
      list(c, gangs_[c]);
      join(gangs_[c]);
      sums_[c] = sums_of(gangs_[c]);
    }
    marked_.clear();
  }
  // Whether all cells have the same gangs. Requires: both are up to date.
  friend bool operator==(const cell_gangs& a, const cell_gangs& b) {
    return a.gangs_ == b.gangs_ && a.sums_ == b.sums_;
  }
  [[nodiscard]] std::uint32_t num_cells() const noexcept {
    return static_cast<std::uint32_t>(sums_.size());
  }
  [[nodiscard]] std::span<const gang> in(std::uint32_t c) const noexcept { return gangs_[c]; }
  [[nodiscard]] const sums& most(std::uint32_t c) const noexcept { return sums_[c]; }
  // The gangs of a cell, and their nodes there: what a search reads of them.
  [[nodiscard]] std::uint64_t entries(std::uint32_t c) const noexcept {
    return gangs_[c].size() + std::uint64_t{sums_[c].nodes[few]};
  }

 private:
  // One entry for each gang, in the order of slots.
  static void join(lean_vector<gang>& gangs) {
    merge_sort(gangs, [](const gang& a, const gang& b) { return a.slot < b.slot; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < gangs.size(); ++i) {
      if (kept > 0 && gangs[kept - 1].slot == gangs[i].slot) {
        gangs[kept - 1].gpus += gangs[i].gpus;
        gangs[kept - 1].nodes += gangs[i].nodes;
      } else {
        gangs[kept++] = gangs[i];
      }
    }
    gangs.resize(kept);
  }
  [[nodiscard]] static sums sums_of(std::span<const gang> gangs) {
    sums at;
    add_up(gangs, &gang::gpus, at.gpus);
    add_up(gangs, &gang::nodes, at.nodes);
    return at;
  }
  static void add_up(std::span<const gang> gangs, std::uint32_t gang::*number,
                     std::array<std::uint32_t, few + 1>& sums) {
    std::array<std::uint32_t, few> greatest{};  // descending
    for (const gang& g : gangs) {
      sums[few] += g.*number;
      std::uint32_t n = g.*number;
      for (std::uint32_t& at : greatest)
        if (n > at) std::swap(n, at);
    }
    std::uint32_t sum = 0;
    for (std::size_t k = 0; k < few; ++k) sums[k] = sum += greatest[k];
  }

  std::vector<lean_vector<gang>> gangs_;  // by cell
  lean_vector<sums> sums_;                // by cell
  lean_vector<unsigned char> is_marked_;  // by cell
  std::vector<std::uint32_t> marked_;
};

// The gangs and nodes of a gang scheduler. Its functions do not check; while a trial is open they
// record how to undo what they do. It keeps what a search for victims reads of gangs: a candidate
// is a gang that runs and that is not about to end for another gang.
// Cost: insert, erase and set_preempting O(tasks + priorities), and for each node of the gang
//       what a change of the node costs and O(levels). Besides, insert and erase of a preempting
//       gang: O(its victims and their nodes); erase of a victim: O(log victims); erase: O(gangs on
//       the nodes of the gang).
class scheduled_gangs {
 public:
  static constexpr std::uint32_t none = cluster_nodes::none;
  using gang = gang_scheduler_types::running_gang;
  using on_node = gang_on_node;

  struct entry {
    gang record{};
    lean_vector<on_node> nodes{};
    std::uint64_t hash = 0;
    bool alive = false;
    // Whether another gang may preempt it.
    [[nodiscard]] bool is_candidate() const noexcept {
      return alive && !record.preempting && !record.ends_for;
    }
  };
  // The values that decide the cost of a gang. They are stored apart because a search reads them
  // for many gangs.
  struct brief {
    std::uint64_t gpus = 0;
    time_ms started = 0;
    std::uint32_t nodes = 0;
    std::int32_t priority = 0;
    bool alive = false;
    bool is_candidate = false;
    friend bool operator==(const brief&, const brief&) = default;
  };
  // The candidates of one priority.
  struct priority_class {
    std::int32_t priority = 0;
    std::uint64_t gangs = 0;
    std::uint64_t nodes = 0;  // of all gangs, each gang apart
    friend bool operator==(const priority_class&, const priority_class&) = default;
  };
  // A gang in the order of jobs.
  struct ordered_gang {
    bool is_text = false;
    std::uint64_t number = 0;
    std::uint32_t slot = 0;
  };

  // view_bytes: as filter_views::filter_views.
  explicit scheduled_gangs(const gang_cluster& cluster,
                           std::uint64_t view_bytes = filter_views::default_bytes)
      : nodes_(cluster, view_bytes) {}

  [[nodiscard]] const cluster_nodes& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const cluster_layout& layout() const noexcept { return nodes_.layout(); }
  // Requires: as cluster_nodes::node.
  [[nodiscard]] const used_node& node(std::uint32_t n) const noexcept { return nodes_.node(n); }
  // As cluster_nodes::refresh, view and unknown_name.
  void refresh() { nodes_.refresh(); }
  [[nodiscard]] node_view& view(const node_filter& filter) { return nodes_.view(filter); }
  [[nodiscard]] const std::string* unknown_name(const node_filter& filter) {
    return nodes_.unknown_name(filter);
  }

  // A hash of nodes and gangs.
  [[nodiscard]] std::uint64_t hash() const noexcept { return nodes_.hash() + hash_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  // What was proposed before is out of date. An epoch of a trial is never that of a later state.
  void next_epoch() noexcept { epoch_ = ++last_epoch_; }

  [[nodiscard]] std::uint32_t slot_of(const job_key& job) const {
    const auto at = slots_.find(job);
    return at == slots_.end() ? none : at->second;
  }
  [[nodiscard]] const entry& at(std::uint32_t slot) const noexcept { return gangs_[slot]; }
  [[nodiscard]] std::uint32_t num_gangs() const noexcept {
    return static_cast<std::uint32_t>(slots_.size());
  }
  // All slots are below this number.
  [[nodiscard]] std::uint32_t num_slots() const noexcept {
    return static_cast<std::uint32_t>(briefs_.size());
  }
  // The values that decide the cost of the gang in a slot.
  [[nodiscard]] const brief& brief_of(std::uint32_t slot) const noexcept { return briefs_[slot]; }
  // Whether one job is before another one.
  [[nodiscard]] bool is_before(const ordered_gang& a, const ordered_gang& b) const {
    if (a.is_text != b.is_text) return b.is_text;
    if (!a.is_text) return a.number < b.number;
    return gangs_[a.slot].record.what.job < gangs_[b.slot].record.what.job;
  }
  // Sorts gangs in ascending order of their jobs.
  void sort(lean_vector<ordered_gang>& gangs) const { merge_sort(gangs, job_order{*this}); }
  // Whether gangs are in this order.
  [[nodiscard]] bool is_sorted(std::span<const ordered_gang> gangs) const {
    return std::is_sorted(gangs.begin(), gangs.end(), job_order{*this});
  }
  [[nodiscard]] ordered_gang ordered(std::uint32_t slot) const {
    const job_key& job = gangs_[slot].record.what.job;
    return {job.is_text(), job.number(), slot};
  }
  // All gangs in ascending order of their jobs. Cost: O(gangs), and the log of those that are new
  // since the last call.
  [[nodiscard]] std::span<const ordered_gang> in_order() {
    std::size_t kept = 0;
    for (const ordered_gang& g : order_)
      if (is_ordered_[g.slot] != 0) order_[kept++] = g;
    order_.resize(kept);
    lean_vector<ordered_gang> added;
    for (std::uint32_t slot = 0; slot < num_slots(); ++slot)
      if (briefs_[slot].alive && std::exchange(is_ordered_[slot], std::uint8_t{1}) == 0)
        added.push_back(ordered(slot));
    if (added.empty()) return order_;
    sort(added);
    lean_vector<ordered_gang> all(order_.size() + added.size());
    std::merge(order_.begin(), order_.end(), added.begin(), added.end(), all.begin(),
               job_order{*this});
    order_.swap(all);
    return order_;
  }
  // The candidates by priority, ascending.
  [[nodiscard]] const lean_vector<priority_class>& classes() const noexcept { return classes_; }
  // Whether a gang of lower priority runs and is not already ending.
  [[nodiscard]] bool has_candidate(std::int32_t below) const noexcept {
    return !classes_.empty() && classes_.front().priority < below;
  }
  // The candidates of lower priority, and their nodes: what a search reads of them. Cost:
  // O(priorities).
  [[nodiscard]] std::uint64_t entries(std::int32_t below) const noexcept {
    std::uint64_t sum = 0;
    for (const priority_class& c : classes_)
      if (c.priority < below) sum += c.gangs + c.nodes;
    return sum;
  }
  // The GPU-time that the candidates of lower priority have used: the sum of GPUs * (now -
  // started), where negative times count as 0. Cost: O(slots).
  [[nodiscard]] std::uint64_t gpu_time(std::int32_t below, time_ms now) const {
    std::uint64_t sum = 0;
    for (const brief& b : briefs_)
      if (b.is_candidate && b.priority < below)
        sum += (std::min)(gpu_time_of(b, now), ~std::uint64_t{0} - sum);
    return sum;
  }
  [[nodiscard]] static std::uint64_t gpu_time_of(const brief& b, time_ms now) noexcept {
    if (b.started >= now) return 0;
    const std::uint64_t run =
        static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(b.started);
    if (run >> 32 == 0 && b.gpus >> 31 == 0) return b.gpus * run;  // a quotient takes longer
    const std::uint64_t most = ~std::uint64_t{0} / 2 / (std::max)(b.gpus, std::uint64_t{1});
    return b.gpus * (std::min)(run, most);
  }
  // The candidates in each cell of a level above the nodes. Cost: O(nodes of the cells that have
  // changed since the last call for this level); all the first time.
  [[nodiscard]] const cell_gangs& in_cells(level_t level) {
    if (of_layout_ != nodes_.layout_version()) cells_.clear();
    of_layout_ = nodes_.layout_version();
    cells_.resize(layout().num_levels());
    cell_gangs& cells = cells_[level];
    if (!cells.active()) cells.begin(layout().tree().cells(level).size());
    cells.refresh(
        [&](std::uint32_t c, lean_vector<cell_gangs::gang>& to) { list_candidates(level, c, to); });
    return cells;
  }
  // The lists of in_cells() are made anew.
  void forget_cells() { cells_.clear(); }
  // What a gang has on each of its nodes, ascending.
  [[nodiscard]] static lean_vector<on_node> nodes_of(const topology_constraints& gang,
                                                     std::span<const placement> tasks) {
    lean_vector<on_node> nodes;
    nodes.reserve(tasks.size());
    std::size_t t = 0;
    for (const constrained_task_group& m : gang.groups) {
      for (std::uint32_t i = 0; i < m.tasks; ++i, ++t) {
        const auto [node, mask] = tasks[t];
        if (!nodes.empty() && nodes.back().node == node.value) {
          nodes.back().mask |= mask;
          nodes.back().cpu_milli += m.host.cpu_milli;
          nodes.back().memory_mib += m.host.memory_mib;
        } else {
          nodes.push_back({node.value, mask, m.host.cpu_milli, m.host.memory_mib});
        }
      }
    }
    const auto before = [](const on_node& a, const on_node& b) { return a.node < b.node; };
    if (!std::is_sorted(nodes.begin(), nodes.end(), before)) merge_sort(nodes, before);
    std::size_t kept = 0;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      if (nodes[i].node != nodes[kept].node) {
        nodes[++kept] = nodes[i];
        continue;
      }
      nodes[kept].mask |= nodes[i].mask;
      nodes[kept].cpu_milli += nodes[i].cpu_milli;
      nodes[kept].memory_mib += nodes[i].memory_mib;
    }
    if (!nodes.empty()) nodes.resize(kept + 1);
    return nodes;
  }

  // Adds a gang. Requires: its GPUs are free, or it is preempting and they are its victims'.
  void insert(gang added) {
    std::uint32_t slot = static_cast<std::uint32_t>(gangs_.size());
    if (free_slots_.empty()) {
      gangs_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    entry& e = gangs_[slot];
    e.record = std::move(added);
    e.nodes = nodes_of(e.record.what.gang, e.record.tasks);
    e.hash = hash_of(e.record);
    e.alive = true;
    hash_ += e.hash;
    slots_.emplace(e.record.what.job, slot);
    for (const on_node& o : e.nodes) nodes_.take(slot, o, e.record.preempting);
    add_candidate(slot);
    if (e.record.preempting)
      for (const job_key& v : e.record.victims) set_ends_for(v, e.record.what.job);
    if (e.record.ends_for) {
      gangs_[slot_of(*e.record.ends_for)].record.victims.insert(e.record.what.job);
      hash_ += hash_of_link(e.record.what.job, *e.record.ends_for);
    }
    if (trials_ > 0)
      on_undo([job = e.record.what.job](scheduled_gangs& s) { s.erase(s.slot_of(job)); });
  }
  // Removes a gang.
  void erase(std::uint32_t slot) {
    entry& e = gangs_[slot];
    if (trials_ > 0) on_undo([erased = e.record](scheduled_gangs& s) { s.insert(erased); });
    forget_candidate(slot);
    briefs_[slot].alive = false;
    if (e.record.preempting)
      for (const job_key& v : e.record.victims) set_ends_for(v, std::nullopt);
    if (e.record.ends_for) {
      gangs_[slot_of(*e.record.ends_for)].record.victims.erase(e.record.what.job);
      hash_ -= hash_of_link(e.record.what.job, *e.record.ends_for);
    }
    for (const on_node& o : e.nodes) nodes_.give_back(slot, o, e.record.preempting);
    hash_ -= e.hash;
    slots_.erase(e.record.what.job);
    e = {};
    is_ordered_[slot] = 0;
    free_slots_.push_back(slot);
  }
  // A preempting gang whose victims have ended starts to run, or the reverse.
  void set_preempting(std::uint32_t slot, bool preempting, time_ms started) {
    entry& e = gangs_[slot];
    on_undo([job = e.record.what.job, was = e.record.preempting, before = e.record.started](
                scheduled_gangs& s) { s.set_preempting(s.slot_of(job), was, before); });
    forget_candidate(slot);
    if (e.record.preempting != preempting)
      for (const on_node& o : e.nodes) nodes_.set_reserved(o, preempting);
    hash_ -= e.hash;
    e.record.preempting = preempting;
    e.record.started = started;
    e.hash = hash_of(e.record);
    hash_ += e.hash;
    add_candidate(slot);
  }

  // As cluster_nodes::insert_node.
  void insert_node(std::uint32_t id, const gang_cluster::node& shape) {
    on_undo([id](scheduled_gangs& s) { s.erase_node(id); });
    nodes_.insert_node(id, shape);
  }
  // As cluster_nodes::erase_node.
  void erase_node(std::uint32_t id) {
    set_health(id, false, 0);
    if (trials_ > 0)
      on_undo([id, shape = node(id).shape](scheduled_gangs& s) { s.insert_node(id, shape); });
    nodes_.erase_node(id);
  }
  // As cluster_nodes::resize_node.
  void resize_node(std::uint32_t id, std::uint32_t gpus, resources host) {
    const gang_cluster::node& before = node(id).shape;
    on_undo([id, gpus_before = before.gpus, host_before = before.host](scheduled_gangs& s) {
      s.resize_node(id, gpus_before, host_before);
    });
    nodes_.resize_node(id, gpus, host);
  }
  // As cluster_nodes::set_health.
  void set_health(std::uint32_t id, bool bad, std::uint32_t bad_gpus) {
    on_undo([id, was = node(id).bad, gpus = node(id).bad_gpus](scheduled_gangs& s) {
      s.set_health(id, was, gpus);
    });
    nodes_.set_health(id, bad, bad_gpus);
  }

  // What a gang adds to the hash, besides its victims.
  [[nodiscard]] std::uint64_t hash_of(const gang& g) const noexcept {
    digest d;
    d.add(g.what.job.hash()).add(g.what.tenant.value).add(g.preempting ? 1 : 0);
    d.add(static_cast<std::uint64_t>(g.what.priority));
    d.add(static_cast<std::uint64_t>(g.started));
    d.add(g.what.gang.required).add(g.what.gang.preferred);
    for (const constrained_task_group& m : g.what.gang.groups) {
      d.add(m.tasks).add(m.gpus).add(m.host.cpu_milli).add(m.host.memory_mib);
      d.add(m.leader).add(m.leader_level);
      for (const auto* const limits : {&m.slices, &m.spread}) {
        d.add(limits->size());
        for (const level_count& l : *limits) d.add(l.level).add(l.tasks);
      }
    }
    const node_filter& filter = g.what.filter;
    d.add(filter.nodes.hash());
    for (const auto* const texts : {&filter.labels, &filter.models, &filter.tolerations}) {
      d.add(texts->size());
      for (const std::string& text : *texts) d.add(text);
    }
    for (const placement& p : g.tasks) d.add(nodes_.node(p.node.value).name_hash).add(p.gpu_mask);
    return d.value();
  }
  // What a victim and the gang for which it ends add to the hash.
  [[nodiscard]] static std::uint64_t hash_of_link(const job_key& victim, const job_key& by) {
    return digest().add(victim.hash()).add(by.hash()).value();
  }
  // Calls f, then undoes every change since, also if f throws.
  template <class F>
  void try_out(const F& f) {
    struct trial {
      scheduled_gangs& state;
      std::size_t mark;
      std::uint64_t epoch;
      ~trial() {
        state.roll_back(mark);
        --state.trials_;
        state.epoch_ = epoch;
      }
    };
    const trial open{*this, undo_.size(), epoch_};
    ++trials_;
    f();
  }
  // Of a copy that is made in a trial: what it has is final.
  void end_trials() {
    trials_ = 0;
    undo_.clear();
  }

 private:
  using undo_function = std::function<void(scheduled_gangs&)>;
  struct job_order {
    const scheduled_gangs& state;
    bool operator()(const ordered_gang& a, const ordered_gang& b) const {
      return state.is_before(a, b);
    }
  };

  template <class F>
  void on_undo(F&& f) {
    if (trials_ > 0) undo_.push_back(std::forward<F>(f));
  }
  // Undoes what was recorded after `mark`.
  void roll_back(std::size_t mark) {
    const std::uint32_t open = std::exchange(trials_, 0);
    while (undo_.size() > mark) {
      const undo_function undo = std::move(undo_.back());
      undo_.pop_back();
      undo(*this);
    }
    trials_ = open;
  }
  // The gang in a slot runs, and may be preempted if it is a candidate.
  void add_candidate(std::uint32_t slot) {
    const entry& e = gangs_[slot];
    if (slot >= briefs_.size()) {
      briefs_.resize(slot + std::size_t{1});
      is_ordered_.resize(slot + std::size_t{1}, 0);
    }
    briefs_[slot] = {e.record.gpus,
                     e.record.started,
                     static_cast<std::uint32_t>(e.nodes.size()),
                     e.record.what.priority,
                     true,
                     e.is_candidate()};
    if (!e.is_candidate()) return;
    const std::int32_t priority = e.record.what.priority;
    std::size_t of = index_of_class(priority);
    if (of == classes_.size() || classes_[of].priority != priority) {
      classes_.push_back({});
      for (std::size_t i = classes_.size() - 1; i > of; --i) classes_[i] = classes_[i - 1];
      classes_[of] = {priority, 0, 0};
    }
    ++classes_[of].gangs;
    classes_[of].nodes += e.nodes.size();
    mark_cells(e.nodes);
  }
  void forget_candidate(std::uint32_t slot) {
    brief& b = briefs_[slot];
    if (!std::exchange(b.is_candidate, false)) return;
    std::size_t of = index_of_class(b.priority);
    classes_[of].nodes -= b.nodes;
    if (--classes_[of].gangs == 0) {
      for (; of + 1 < classes_.size(); ++of) classes_[of] = classes_[of + 1];
      classes_.pop_back();
    }
    mark_cells(gangs_[slot].nodes);
  }
  // Where the candidates of a priority are, or would be.
  [[nodiscard]] std::size_t index_of_class(std::int32_t priority) const {
    const auto at =
        std::lower_bound(classes_.begin(), classes_.end(), priority,
                         [](const priority_class& c, std::int32_t p) { return c.priority < p; });
    return static_cast<std::size_t>(at - classes_.begin());
  }
  // The candidates in the cells of these nodes have changed.
  void mark_cells(std::span<const on_node> nodes) {
    if (of_layout_ != nodes_.layout_version()) return;
    const ragged_tree& tree = layout().tree();
    for (const on_node& o : nodes) {
      std::uint32_t c = node(o.node).position;
      for (level_t l = 1; l < cells_.size(); ++l) {
        c = tree.index(tree.parent(tree.at(l - 1, c), l - 1), l);
        if (cells_[l].active()) cells_[l].mark(c);
      }
    }
  }
  void list_candidates(level_t level, std::uint32_t c, lean_vector<cell_gangs::gang>& to) const {
    for (const cell_id p : positions_inside(layout().tree(), level, c, 0)) {
      const std::uint32_t id = layout().node_at(p.value);
      if (id == none) continue;
      for (const used_node::gang_here& g : node(id).gangs)
        if (briefs_[g.slot].is_candidate)
          to.push_back({g.slot, static_cast<std::uint32_t>(std::popcount(g.mask)), 1});
    }
  }
  void set_ends_for(const job_key& victim, const std::optional<job_key>& by) {
    const std::uint32_t slot = slot_of(victim);
    entry& e = gangs_[slot];
    forget_candidate(slot);
    if (e.record.ends_for) hash_ -= hash_of_link(victim, *e.record.ends_for);
    e.record.ends_for = by;
    if (by) hash_ += hash_of_link(victim, *by);
    add_candidate(slot);
  }

  struct key_hash {
    std::size_t operator()(const job_key& k) const noexcept {
      return static_cast<std::size_t>(k.hash());
    }
  };

  cluster_nodes nodes_;
  std::vector<entry> gangs_;   // by slot
  lean_vector<brief> briefs_;  // by slot
  std::unordered_map<job_key, std::uint32_t, key_hash> slots_;
  std::vector<std::uint32_t> free_slots_;
  lean_vector<ordered_gang> order_;       // of in_order(), when it was called last
  lean_vector<std::uint8_t> is_ordered_;  // by slot: this gang was in it
  lean_vector<priority_class> classes_;
  std::vector<cell_gangs> cells_;  // by level; of the layout of_layout_
  std::uint64_t of_layout_ = 0;
  std::uint64_t hash_ = 0;  // of the gangs
  std::uint64_t epoch_ = 0;
  std::uint64_t last_epoch_ = 0;  // trials included
  std::uint32_t trials_ = 0;
  std::vector<undo_function> undo_;
};

}  // namespace detail
APIARY_NAMESPACE_END
