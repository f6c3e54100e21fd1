// apiary/gang_scheduler/detail/scheduled_gangs.h - the gangs of a gang scheduler and the nodes that they use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/candidate_gangs.h>
#include <apiary/gang_scheduler/detail/cluster_state.h>
#include <apiary/gang_scheduler/detail/gang_allocations.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The gangs and nodes of a gang scheduler. Its functions do not check; while a trial is open they
// record how to undo what they do.
// Cost: insert, erase and set_preempting O(tasks), and for each node of the gang what a change of
//       the node costs. Besides, insert and erase of a preempting gang: O(its victims and their
//       nodes); erase of a victim: O(log victims); erase: O(gangs on the nodes of the gang).
class scheduled_gangs : public candidate_gangs {
 public:
  using gang = gang_scheduler_types::running_gang;

  struct entry {
    gang record{};
    std::vector<on_node> nodes{};
    std::uint64_t hash = 0;
    bool alive = false;
    // Whether another gang may preempt it.
    [[nodiscard]] bool is_candidate() const noexcept {
      return alive && !record.preempting && !record.ends_for;
    }
  };

  // A gang in the order of jobs.
  struct ordered_gang {
    bool is_text = false;
    std::uint64_t number = 0;
    std::uint32_t slot = 0;
  };

  using candidate_gangs::candidate_gangs;

  [[nodiscard]] std::uint32_t slot_of(const job_key& job) const {
    const auto at = slots_.find(job);
    return at == slots_.end() ? none : at->second;
  }
  [[nodiscard]] const entry& at(std::uint32_t slot) const noexcept { return gangs_[slot]; }
  [[nodiscard]] std::uint32_t num_gangs() const noexcept {
    return static_cast<std::uint32_t>(slots_.size());
  }
  // Whether one job is before another one.
  [[nodiscard]] bool is_before(const ordered_gang& a, const ordered_gang& b) const {
    if (a.is_text != b.is_text) return b.is_text;
    if (!a.is_text) return a.number < b.number;
    return gangs_[a.slot].record.what.job < gangs_[b.slot].record.what.job;
  }
  [[nodiscard]] ordered_gang ordered(std::uint32_t slot) const {
    const job_key& job = gangs_[slot].record.what.job;
    return {job.is_text(), job.number(), slot};
  }
  // Whether in_order() has nothing to sort.
  [[nodiscard]] bool is_in_order() const noexcept { return sorted_ == order_.size(); }
  // All gangs in ascending order of their jobs. Cost: O(gangs) after a change.
  [[nodiscard]] std::span<const ordered_gang> in_order() {
    drop_dead();
    const auto middle = order_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto before = [&](const ordered_gang& a, const ordered_gang& b) {
      return is_before(a, b);
    };
    std::sort(middle, order_.end(), before);
    if (middle != order_.end())
      std::inplace_merge(std::lower_bound(order_.begin(), middle, *middle, before), middle,
                         order_.end(), before);
    sorted_ = order_.size();
    return order_;
  }
  // What each candidate gives back on nodes of the whole cluster, without CPU and memory. Cost:
  // O(nodes of the gangs that have changed since the last call); all the first time.
  [[nodiscard]] const gang_allocations& allocations() {
    if (!allocations_.active()) allocations_.begin(static_cast<std::uint32_t>(gangs_.size()));
    allocations_.refresh(
        [&](std::uint32_t slot, std::vector<gpus_on_node>& to) { list_allocations(slot, to); });
    return allocations_;
  }
  // Whether an entry of allocations() is wrong whose gang is not marked as changed.
  [[nodiscard]] bool has_wrong_allocation() const {
    std::vector<gpus_on_node> again;
    for (std::uint32_t slot = 0; allocations_.active() && slot < gangs_.size(); ++slot) {
      again.clear();
      list_allocations(slot, again);
      const auto [first, last] = allocations_.of(slot);
      if (!allocations_.is_marked(slot) &&
          !std::ranges::equal(again, allocations_.all().subspan(first, last - first),
                              [](const gpus_on_node& a, const gpus_on_node& b) {
                                return a.node == b.node && a.gpus == b.gpus;
                              }))
        return true;
    }
    return false;
  }
  // What a gang has on each of its nodes, ascending.
  [[nodiscard]] static std::vector<on_node> nodes_of(const topology_constraints& gang,
                                                     std::span<const placement> tasks) {
    std::vector<on_node> nodes;
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
    if (!std::is_sorted(nodes.begin(), nodes.end(), before))
      std::sort(nodes.begin(), nodes.end(), before);
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
    order_.push_back(ordered(slot));
    for (const on_node& o : e.nodes) {
      use(o, e.record.preempting, true);
      nodes_[o.node].gangs.push_back({slot, o.mask});
      changed(o.node);
    }
    add_candidate(e, slot);
    if (e.record.preempting)
      for (const job_key& v : e.record.victims) set_ends_for(v, e.record.what.job);
    if (e.record.ends_for) {
      gangs_[slot_of(*e.record.ends_for)].record.victims.insert(e.record.what.job);
      hash_ += hash_of_link(e.record.what.job, *e.record.ends_for);
    }
    if (trials_ > 0)
      on_undo([job = e.record.what.job](cluster_state& s) {
        scheduled_gangs& all = static_cast<scheduled_gangs&>(s);
        all.erase(all.slot_of(job));
      });
  }
  // Removes a gang.
  void erase(std::uint32_t slot) {
    entry& e = gangs_[slot];
    if (trials_ > 0)
      on_undo([erased = e.record](cluster_state& s) {
        static_cast<scheduled_gangs&>(s).insert(erased);
      });
    forget_candidate(slot, e.nodes);
    briefs_[slot].alive = false;
    if (e.record.preempting)
      for (const job_key& v : e.record.victims) set_ends_for(v, std::nullopt);
    if (e.record.ends_for) {
      gangs_[slot_of(*e.record.ends_for)].record.victims.erase(e.record.what.job);
      hash_ -= hash_of_link(e.record.what.job, *e.record.ends_for);
    }
    for (const on_node& o : e.nodes) {
      use(o, e.record.preempting, false);
      std::vector<used_node::gang_here>& here = nodes_[o.node].gangs;
      const auto is_it = [&](const used_node::gang_here& g) { return g.slot == slot; };
      *std::find_if(here.begin(), here.end(), is_it) = here.back();
      here.pop_back();
      changed(o.node);
    }
    hash_ -= e.hash;
    slots_.erase(e.record.what.job);
    e = {};
    if (++dead_ > 64 && dead_ > order_.size() / 2) drop_dead();
  }
  // A preempting gang whose victims have ended starts to run, or the reverse.
  void set_preempting(std::uint32_t slot, bool preempting, time_ms started) {
    entry& e = gangs_[slot];
    on_undo([job = e.record.what.job, was = e.record.preempting,
             before = e.record.started](cluster_state& s) {
      scheduled_gangs& all = static_cast<scheduled_gangs&>(s);
      all.set_preempting(all.slot_of(job), was, before);
    });
    forget_candidate(slot, e.nodes);
    for (const on_node& o : e.nodes) use(o, e.record.preempting, false);
    hash_ -= e.hash;
    e.record.preempting = preempting;
    e.record.started = started;
    e.hash = hash_of(e.record);
    hash_ += e.hash;
    for (const on_node& o : e.nodes) {
      use(o, e.record.preempting, true);
      set_usable(o.node);
    }
    add_candidate(e, slot);
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
    for (const placement& p : g.tasks) d.add(nodes_[p.node.value].name_hash).add(p.gpu_mask);
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
  void use(const on_node& o, bool preempting, bool more) {
    used_node& n = nodes_[o.node];
    std::uint32_t& mask = preempting ? n.reserved : n.used;
    APIARY_VERIFY((mask & o.mask) == (more ? 0 : o.mask));
    mask ^= o.mask;
    n.cpu_milli += more ? o.cpu_milli : 0 - o.cpu_milli;
    n.memory_mib += more ? o.memory_mib : 0 - o.memory_mib;
  }
  void add_candidate(const entry& e, std::uint32_t slot) {
    candidate_gangs::add_candidate(
        slot,
        {e.record.gpus, e.record.started, static_cast<std::uint32_t>(e.nodes.size()),
         e.record.what.priority, true, e.is_candidate()},
        e.nodes);
  }
  void list_allocations(std::uint32_t slot, std::vector<gpus_on_node>& to) const {
    if (!gangs_[slot].is_candidate()) return;
    for (const on_node& o : gangs_[slot].nodes) {
      const auto gpus = static_cast<std::uint32_t>(std::popcount(o.mask & usable(o.node).gpus));
      if (gpus > 0) to.push_back({usable(o.node).position, gpus});
    }
  }
  void set_ends_for(const job_key& victim, const std::optional<job_key>& by) {
    const std::uint32_t slot = slot_of(victim);
    entry& e = gangs_[slot];
    forget_candidate(slot, e.nodes);
    if (e.record.ends_for) hash_ -= hash_of_link(victim, *e.record.ends_for);
    e.record.ends_for = by;
    if (by) hash_ += hash_of_link(victim, *by);
    add_candidate(e, slot);
  }
  // Removes slots without a gang from order_, so that they can be used again.
  void drop_dead() {
    if (dead_ == 0) return;
    std::size_t kept = 0;
    std::size_t sorted = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (i == sorted_) sorted = kept;
      if (briefs_[order_[i].slot].alive) {
        order_[kept++] = order_[i];
      } else {
        free_slots_.push_back(order_[i].slot);
      }
    }
    sorted_ = sorted_ == order_.size() ? kept : sorted;
    order_.resize(kept);
    dead_ = 0;
  }

  struct key_hash {
    std::size_t operator()(const job_key& k) const noexcept {
      return static_cast<std::size_t>(k.hash());
    }
  };

  std::vector<entry> gangs_;  // by slot
  std::unordered_map<job_key, std::uint32_t, key_hash> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<ordered_gang> order_;  // the first sorted_ in ascending order of jobs
  std::size_t sorted_ = 0;
  std::size_t dead_ = 0;  // entries of order_ without a gang
};

}  // namespace detail
APIARY_NAMESPACE_END
