// apiary/gang_scheduler/detail/gang_audit.h - recomputes what a gang scheduler keeps.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/cluster_layout.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/topology/ragged_tree.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Builds a second state from the nodes and the gangs, as after a restart, and compares what is
// kept.
class gang_audit {
 public:
  explicit gang_audit(const scheduled_gangs& state) : state_(state), again_(description(state)) {}

  [[nodiscard]] std::vector<std::string> operator()() {
    recover();
    if (found_.empty()) {
      compare_nodes();
      compare_gangs();
      compare_views();
    }
    return std::move(found_);
  }

 private:
  template <class... Words>
  void expect(bool holds, const Words&... words) {
    if (!holds) found_.push_back(absl::StrCat(words...));
  }
  // The nodes in the order of their ids.
  [[nodiscard]] static gang_cluster description(const scheduled_gangs& state) {
    gang_cluster all;
    const auto levels = state.layout().level_names().subspan(1);
    all.levels.assign(levels.begin(), levels.end());
    for (std::uint32_t id = 0; id < state.nodes().num_ids(); ++id)
      if (state.node(id).present()) all.nodes.push_back(state.node(id).shape);
    return all;
  }
  // Puts the gangs into the second state; only if no GPU is given out twice.
  void recover() {
    std::vector<std::uint32_t> taken[2];
    for (std::uint32_t id = 0; id < state_.nodes().num_ids(); ++id) {
      new_id_.push_back(static_cast<std::uint32_t>(ids_.size()));
      if (!state_.node(id).present()) continue;
      ids_.push_back(id);
      again_.set_health(new_id_.back(), state_.node(id).bad, state_.node(id).bad_gpus);
    }
    for (std::vector<std::uint32_t>& of : taken) of.resize(ids_.size());
    for (const bool preempting : {false, true}) {
      for (std::uint32_t slot = 0; slot < state_.num_slots(); ++slot) {
        if (!state_.at(slot).alive || state_.at(slot).record.preempting != preempting) continue;
        gang_scheduler_types::running_gang gang = state_.at(slot).record;
        const std::string job = gang.what.job.text();
        expect(state_.slot_of(gang.what.job) == slot, "job ", job, " is not found");
        for (const job_key& v : gang.victims) {
          const std::uint32_t of = state_.slot_of(v);
          expect(preempting && of != scheduled_gangs::none &&
                     state_.at(of).record.ends_for == std::optional(gang.what.job),
                 "job ", job, " has a victim that does not end for it");
        }
        gang.ends_for.reset();
        gang.gpus = 0;
        for (placement& p : gang.tasks) {
          p.node = node_id(new_id_[p.node.value]);
          std::uint32_t& mask = taken[preempting ? 1 : 0][p.node.value];
          expect((mask & p.gpu_mask) == 0, "job ", job, " has GPUs of another gang");
          mask |= p.gpu_mask;
          gang.gpus += p.num_gpus();
        }
        if (found_.empty()) again_.insert(std::move(gang));
      }
    }
  }
  void compare_nodes() {
    const cluster_layout& layout = state_.layout();
    const cluster_nodes& nodes = state_.nodes();
    expect(nodes.num_nodes() == ids_.size(), ids_.size(), " nodes have ", nodes.num_nodes(),
           " names");
    expect(nodes.free_gpus() == again_.nodes().free_gpus(), again_.nodes().free_gpus(),
           " GPUs are free, not ", nodes.free_gpus());
    expect(nodes.bad_nodes().size() == again_.nodes().bad_nodes().size(),
           "other nodes are listed as bad");
    for (std::uint32_t i = 0; i < ids_.size(); ++i) {
      const std::uint32_t id = ids_[i];
      const used_node& n = state_.node(id);
      const used_node& a = again_.node(i);
      expect(n.used == a.used && n.reserved == a.reserved && n.cpu_milli == a.cpu_milli &&
                 n.memory_mib == a.memory_mib && n.gangs.size() == a.gangs.size(),
             "node ", id, " has other gangs");
      expect((n.used & ~n.all_gpus()) == 0, "node ", id, " has gangs on GPUs that do not exist");
      expect(n.counted == a.counted, "node ", id, " has other free GPUs");
      expect(nodes.bad_nodes().contains(id) == again_.nodes().bad_nodes().contains(i), "node ", id,
             " is wrongly listed as bad or healthy");
      expect(nodes.find_node(n.shape.name) == std::optional(id), "node ", id, " has no name");
      expect(layout.node_at(n.position) == id, "node ", id, " is not at its position");
      std::uint32_t c = n.position;
      for (level_t l = 1; l < layout.num_levels(); ++l) {
        c = layout.tree().index(layout.tree().parent(layout.tree().at(l - 1, c), l - 1), l);
        expect(layout.cell_name(l, c) == n.shape.cells[l - 1], "node ", id,
               " is in another cell of level ", l);
      }
      most_gpus_ = (std::max)(most_gpus_, n.shape.gpus);
    }
    std::vector<std::uint32_t> order = layout.nodes();
    for (std::uint32_t& id : order) id = new_id_[id];
    expect(order == again_.layout().nodes(), "nodes are out of order");
    expect(!layout.is_too_large(), ids_.size(), " nodes have as much as ", layout.num_positions(),
           " positions");
    expect(nodes.next_id() == nodes.num_ids() || !state_.node(nodes.next_id()).present(),
           "the next id is not free");
  }
  void compare_gangs() {
    scheduled_gangs kept = state_;
    const auto order = kept.in_order();
    const auto order_again = again_.in_order();
    expect(order.size() == order_again.size(), "gangs are missing in their order");
    for (std::size_t i = 0; i < order.size() && found_.empty(); ++i) {
      const scheduled_gangs::entry& e = kept.at(order[i].slot);
      const scheduled_gangs::entry& a = again_.at(order_again[i].slot);
      const std::string job = e.record.what.job.text();
      expect(e.record.what == a.record.what, "job ", job, " is out of order");
      expect(e.record.victims == a.record.victims && e.record.ends_for == a.record.ends_for, "job ",
             job, " ends for another gang, or other gangs for it");
      expect(e.record.gpus == a.record.gpus && e.nodes.size() == a.nodes.size(), "job ", job,
             " has other nodes");
      expect(e.hash == a.hash, "job ", job, " has the hash of another gang");
      expect(kept.brief_of(order[i].slot) == again_.brief_of(order_again[i].slot), "job ", job,
             " has another cost as a victim");
    }
    expect(state_.hash() == again_.hash(), "the hash of the state is another one");
    expect(state_.classes() == again_.classes(), "the candidates by priority are others");
    scheduled_gangs listed = kept;
    listed.forget_cells();
    for (level_t l = 1; l < state_.layout().num_levels(); ++l)
      expect(kept.in_cells(l) == listed.in_cells(l), "a cell of level ", l,
             " has other candidates");
  }
  void compare_views() {
    for (const node_view& kept : state_.nodes().views()) {
      const node_view v = state_.nodes().up_to_date(kept);
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
  scheduled_gangs again_;              // its ids are the indices of ids_
  std::vector<std::uint32_t> ids_;     // of the nodes, ascending
  std::vector<std::uint32_t> new_id_;  // by id
  std::uint32_t most_gpus_ = 1;
  std::vector<std::string> found_;
};

}  // namespace detail
APIARY_NAMESPACE_END
