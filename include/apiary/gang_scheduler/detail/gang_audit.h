// apiary/gang_scheduler/detail/gang_audit.h - recomputes what a gang scheduler keeps.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/detail/name_order.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Builds a second state from the nodes and gangs, and compares.
class gang_audit {
 public:
  explicit gang_audit(const scheduled_gangs& state) : state_(state) {}

  [[nodiscard]] std::vector<std::string> operator()() {
    check_nodes();
    check_gangs();
    check_views();
    return std::move(found_);
  }

 private:
  template <class... Words>
  void expect(bool holds, const Words&... words) {
    if (!holds) found_.push_back(absl::StrCat(words...));
  }
  void check_nodes() {
    const cluster_layout& layout = state_.layout();
    std::uint64_t hash = 0;
    std::uint32_t present = 0;
    std::uint64_t free = 0;
    std::uint32_t unused_id = state_.num_ids();  // the lowest
    for (std::uint32_t id = 0; id < state_.num_ids(); ++id) {
      const used_node& n = state_.node(id);
      if (!n.present()) unused_id = (std::min)(unused_id, id);
      if (!n.present()) continue;
      ++present;
      expect(n.name_hash == used_node::hash_of_name(n.shape.name), "node ", id,
             " has the hash of another name");
      hash += n.hash();
      const auto counted = static_cast<std::uint32_t>(std::popcount(n.free_gpus()));
      expect(n.counted == counted, "node ", id, " has ", counted, " free GPUs, not ", n.counted);
      free += counted;
      most_gpus_ = (std::max)(most_gpus_, n.shape.gpus);
      expect(layout.node_at(n.position) == id, "node ", id, " is not at its position");
      expect(state_.find_node(n.shape.name) == std::optional(id), "node ", id, " has no name");
      std::uint32_t c = n.position;
      for (level_t l = 1; l < layout.num_levels(); ++l) {
        c = layout.tree().index(layout.tree().parent(layout.tree().at(l - 1, c), l - 1), l);
        expect(layout.cell_name(l, c) == n.shape.cells[l - 1], "node ", id,
               " is in another cell of level ", l);
      }
      used_node again = n;
      again.used = again.reserved = 0;
      again.cpu_milli = again.memory_mib = 0;
      again.gangs.clear();
      nodes_.push_back(std::move(again));
      ids_.push_back(id);
      expect(state_.bad_nodes().contains(id) == (n.bad || n.bad_gpus != 0), "node ", id,
             " is wrongly listed as bad or healthy");
    }
    hash_ = hash;
    expect(state_.free_gpus() == free, free, " GPUs are free, not ", state_.free_gpus());
    expect(state_.num_nodes() == present, present, " nodes have ", state_.num_nodes(), " names");
    std::uint32_t at_positions = 0;
    for (std::uint32_t p = 0; p < layout.num_positions(); ++p)
      at_positions += layout.node_at(p) != cluster_layout::none ? 1U : 0U;
    expect(at_positions == present, present, " nodes have ", at_positions, " positions");
    const std::vector<std::uint32_t> order = layout.nodes();
    for (std::size_t i = 1; i < order.size(); ++i)
      expect(is_node_before(state_.node(order[i - 1]).shape, state_.node(order[i]).shape), "node ",
             order[i], " is out of order");
    expect(!layout.is_too_large(), present, " nodes have as much as ", layout.num_positions(),
           " positions");
    expect(state_.next_id() == unused_id, "the next id is ", unused_id, ", not ", state_.next_id());
  }
  used_node& again(std::uint32_t id) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
    return nodes_[static_cast<std::size_t>(at - ids_.begin())];
  }
  void check_gangs() {
    scheduled_gangs copy = state_;
    std::vector<std::uint32_t> slots;
    for (const scheduled_gangs::ordered_gang& g : copy.in_order()) slots.push_back(g.slot);
    std::map<std::int32_t, scheduled_gangs::priority_class> classes;
    expect(slots.size() == state_.num_gangs(), "gangs are missing in their order");
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const scheduled_gangs::entry& e = copy.at(slots[i]);
      const gang_scheduler_types::running_gang& gang = e.record;
      const std::string job = gang.what.job.text();
      expect(i == 0 || copy.at(slots[i - 1]).record.what.job < gang.what.job, "job ", job,
             " is out of order");
      expect(state_.slot_of(gang.what.job) == slots[i], "job ", job, " is not found");
      expect(e.hash == state_.hash_of(gang), "job ", job, " has the hash of another gang");
      hash_ += e.hash;
      const auto nodes = static_cast<std::uint32_t>(e.nodes.size());
      expect(state_.brief_of(slots[i]) == scheduled_gangs::brief{gang.gpus, gang.started, nodes,
                                                                 gang.what.priority, true,
                                                                 e.is_candidate()},
             "job ", job, " has another cost as a victim");
      if (e.is_candidate()) {
        scheduled_gangs::priority_class& c = classes[gang.what.priority];
        ++c.gangs;
        c.nodes += nodes;
        c.gpus += gang.gpus;
        c.gpu_starts += gang.gpus * static_cast<std::uint64_t>(gang.started);
      }
      std::uint64_t gpus = 0;
      for (const placement& p : gang.tasks) gpus += p.num_gpus();
      expect(gpus == gang.gpus, "job ", job, " has another number of GPUs");
      const auto on_nodes = scheduled_gangs::nodes_of(gang.what.gang, gang.tasks);
      expect(e.nodes == on_nodes, "job ", job, " has other nodes");
      for (const scheduled_gangs::on_node& o : on_nodes) {
        used_node& n = again(o.node);
        std::uint32_t& mask = gang.preempting ? n.reserved : n.used;
        expect((mask & o.mask) == 0, "job ", job, " has GPUs of another gang");
        expect((o.mask & ~n.all_gpus()) == 0, "job ", job, " has GPUs that do not exist");
        mask |= o.mask;
        n.cpu_milli += o.cpu_milli;
        n.memory_mib += o.memory_mib;
        n.gangs.push_back({slots[i], o.mask});
      }
      for (const job_key& v : gang.victims) {
        const std::uint32_t slot = state_.slot_of(v);
        expect(gang.preempting && slot != scheduled_gangs::none &&
                   copy.at(slot).record.ends_for == std::optional(gang.what.job),
               "job ", job, " has a victim that does not end for it");
      }
      if (gang.ends_for) {
        const std::uint32_t slot = state_.slot_of(*gang.ends_for);
        expect(
            slot != scheduled_gangs::none && copy.at(slot).record.victims.contains(gang.what.job),
            "job ", job, " ends for a gang that does not wait for it");
        hash_ += scheduled_gangs::hash_of_link(gang.what.job, *gang.ends_for);
      }
    }
    expect(hash_ == state_.hash(), "the hash of the state is another one");
    expect(classes == state_.classes(), "the candidates by priority are others");
    expect(!state_.has_wrong_cell(), "a cell has other candidates");
    expect(!state_.has_wrong_allocation(), "a candidate gives back other GPUs");
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const used_node& n = state_.node(ids_[i]);
      const used_node& a = nodes_[i];
      expect(n.used == a.used && n.reserved == a.reserved && n.cpu_milli == a.cpu_milli &&
                 n.memory_mib == a.memory_mib && n.gangs.size() == a.gangs.size() &&
                 std::is_permutation(n.gangs.begin(), n.gangs.end(), a.gangs.begin()),
             "node ", ids_[i], " has other gangs");
      expect(state_.usable(ids_[i]) ==
                 scheduled_gangs::usable_node{n.position, n.healthy_gpus() & ~n.reserved},
             "node ", ids_[i], " has other GPUs that victims can give back");
    }
  }
  void check_views() {
    for (const node_view& kept : state_.views()) {
      const node_view v = state_.up_to_date(kept);
      node_view fresh(v.filter, state_.layout().tree(), most_gpus_);
      for (const std::uint32_t id : ids_)
        if (fresh.accepts(state_.node(id).shape))
          fresh.update(state_.node(id).position, &state_.node(id));
      expect(v.members == fresh.members && v.num_members == fresh.num_members &&
                 v.hosts == fresh.hosts && v.whole_hosts == fresh.whole_hosts &&
                 same(v.free, fresh.free) && same(v.whole, fresh.whole),
             "the index of a filter for ", v.filter.text(), " differs");
    }
  }
  [[nodiscard]] static bool same(const capacity_index<ragged_tree>& a,
                                 const capacity_index<ragged_tree>& b) {
    if (a.max_free() != b.max_free() || !std::ranges::equal(a.free(), b.free())) return false;
    for (level_t l = 1; l <= a.top(); ++l) {
      for (std::uint32_t c = 0; c < a.num_cells(l); ++c)
        if (!std::ranges::equal(a.histogram(l, c), b.histogram(l, c))) return false;
      for (std::uint32_t t = 1; t <= a.max_free(); ++t)
        if (!std::ranges::equal(a.slots(l, t), b.slots(l, t))) return false;
    }
    return true;
  }

  const scheduled_gangs& state_;
  std::vector<std::uint32_t> ids_;  // of the nodes, ascending
  std::vector<used_node> nodes_;    // as recomputed
  std::uint64_t hash_ = 0;
  std::uint32_t most_gpus_ = 1;
  std::vector<std::string> found_;
};

}  // namespace detail
APIARY_NAMESPACE_END
