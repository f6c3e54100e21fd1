// apiary/sched/hived.h - HiveD: virtual private clusters with guarantees, on shared hardware.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/healthy_free.h>
#include <apiary/core/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/model/health.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived_cells.h>
#include <apiary/sched/hived_config.h>
#include <apiary/sched/hived_layout.h>
#include <apiary/sched/hived_search.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What hived::propose answers, for hived::commit.
//
//   bind     `tasks` says where each task runs
//   preempt  these leaves become the gang's once the victims have ended: after commit the host ends
//            them and proposes again
//   wait     `wait` says why
class gang_plan {
 public:
  outcome result = outcome::wait;
  std::vector<task_place> tasks{};   // in the order of the members
  std::vector<job_id> victims{};     // whole gangs, ascending
  std::vector<job_id> downgraded{};  // lose their tenant's cells and run on as opportunistic
  std::vector<job_id> cancelled{};   // preempting gangs that give way, back to waiting
  gang_wait wait{};

 private:
  friend class hived;
  std::uint64_t epoch_ = 0;
  bool placed_ = false;  // a preempting gang's place stays as it is
  gang_request request_{};
  gang_place place_{};
};

// Gives tenants virtual private clusters: whatever a tenant's cells could run as a cluster of its
// own, they run now, wherever they are and whoever else uses the hardware meanwhile.
//
// Guaranteed gangs (priority 0 to 1000) use their tenant's cells and preempt lower ones of the same
// tenant and opportunistic gangs (priority -1) of all. What a host sends is checked: an error names
// what is wrong and leaves the state as it was. propose() changes nothing that can be observed;
// commit() takes a plan as long as nothing has changed since.
//
// Model:   "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI 2020).
//          Differs: see hived_cells.h and hived_search.h; every refusal has a reason.
// Cost:    propose as hived_search; commit and finish O(leaves of the gang * levels); marking a leaf
//          O(levels * fan-out). Nothing depends on the size of the cluster but requests with
//          suggested nodes (O(nodes)), doomed and reconfigure.
// Example: examples/hived_guarantee.cpp
class hived {
 public:
  explicit hived(hived_layout layout)
      : layout_(std::move(layout)), cells_(layout_), gangs_(cells_.num_clusters()) {
    for (const chain_layout& chain : layout_.chains) {
      const auto known = std::find(leaf_types_.begin(), leaf_types_.end(), chain.level_types[0]);
      type_of_chain_.push_back(
          leaf_type_id(static_cast<std::uint32_t>(known - leaf_types_.begin())));
      if (known == leaf_types_.end()) leaf_types_.push_back(chain.level_types[0]);
    }
  }
  // kInvalidArgument: every fault of the configuration (hived_layout.h).
  [[nodiscard]] static absl::StatusOr<hived> create(const hived_config& config) {
    APIARY_ASSIGN_OR_RETURN(hived_layout layout, hived_layout::create(config));
    return hived(std::move(layout));
  }

  // Where the gang would go now. A preempting gang asks again in the same words.
  // kInvalidArgument: a request that is wrong in itself. kNotFound: no such tenant, pinned cell or
  // type of leaf. kFailedPrecondition: the tenant has none of it. kAlreadyExists: the gang runs.
  [[nodiscard]] absl::StatusOr<gang_plan> propose(const gang_request& request) {
    APIARY_RETURN_IF_ERROR(check(request));
    gang_plan plan;
    plan.epoch_ = epoch_;
    const std::optional<gang_slot> slot = gangs_.find(request.job);
    if (slot) {
      APIARY_RETURN_IF_ERROR(check_again(request, gangs_[*slot]));
      if (place_is_good(gangs_[*slot], request.suggested)) {
        plan.placed_ = true;
        plan.request_.job = request.job;
        describe(gangs_[*slot].leaves, request.members, plan);
        plan.result = plan.victims.empty() ? outcome::bind : outcome::preempt;
        return plan;
      }
      plan.cancelled.push_back(request.job);
    }
    if (!search(request, slot)) {
      plan.request_.job = request.job;
      plan.wait = why(request);
      return plan;
    }
    plan.request_ = request;
    plan.request_.suggested = nullptr;
    plan.place_ = search_.place();
    scratch_.clear();
    for (const bound_leaf& l : plan.place_.leaves) scratch_.push_back({plan.place_.chain, l.image});
    describe(scratch_, request.members, plan);
    for (const gang_slot s : plan.place_.downgraded)
      plan.downgraded.push_back(gangs_[s].request.job);
    for (const gang_slot s : plan.place_.cancelled) plan.cancelled.push_back(gangs_[s].request.job);
    std::sort(plan.downgraded.begin(), plan.downgraded.end());
    std::sort(plan.cancelled.begin(), plan.cancelled.end());
    plan.result = plan.victims.empty() ? outcome::bind : outcome::preempt;
    return plan;
  }

  // Carries a plan out: binds the gang, or reserves its leaves while the victims end.
  // A plan to wait is carried out only where it cancels the gang's own preemption, whose leaves
  // have become bad or are not suggested any more.
  // kAborted: something has changed since it was proposed. kFailedPrecondition: it says wait.
  absl::Status commit(const gang_plan& plan) {
    if (plan.result == outcome::wait && plan.cancelled.empty())
      return absl::FailedPreconditionError("a plan that says wait cannot be committed");
    if (plan.epoch_ != epoch_)
      return absl::AbortedError(name(plan.request_.job) + ": the plan is stale, propose again");
    ++epoch_;
    if (plan.result == outcome::wait) return cancel(plan.cancelled.front());
    if (plan.placed_) {
      if (plan.result == outcome::bind) bind_reserved(*gangs_.find(plan.request_.job));
      return absl::OkStatus();
    }
    std::vector<job_id> to_restore;
    if (const auto slot = gangs_.find(plan.request_.job)) drop_preempting(*slot, to_restore);
    for (const gang_slot s : plan.place_.cancelled) drop_preempting(s, to_restore);
    for (const gang_slot s : plan.place_.downgraded) downgrade(s);
    gang_record gang;
    gang.request = plan.request_;
    gang.cluster = plan.place_.cluster;
    gang.state = plan.result == outcome::bind ? gang_state::allocated : gang_state::preempting;
    if (plan.result == outcome::preempt) gang.downgraded_by = plan.downgraded;
    for (const bound_leaf& l : plan.place_.leaves)
      gang.leaves.push_back({plan.place_.chain, l.image});
    const gang_slot slot = gangs_.add(std::move(gang));
    for (const bound_leaf& l : plan.place_.leaves) {
      if (l.leaf.valid()) cells_.place_at(plan.place_.cluster, l);
      leaf_holders h = cells_.chain(plan.place_.chain).holders(l.image);
      if (plan.result == outcome::preempt) {
        h.claimer = slot;
      } else {
        h = {slot, gang_slot(), l.leaf.valid()};
      }
      cells_.hold(plan.place_.chain, l.image, h);
    }
    reveal(plan.place_);
    hash_ ^= fact(slot);
    for (const job_id job : to_restore) restore(job);
    return absl::OkStatus();
  }

  // A preempting gang is withdrawn: its victims keep their leaves, and gangs that lost their
  // tenant's cells to it get them back if they are still to be had.
  // kNotFound: no such gang. kFailedPrecondition: it is not preempting.
  absl::Status cancel(job_id job) {
    APIARY_ASSIGN_OR_RETURN(const gang_slot slot, existing(job));
    if (gangs_[slot].state != gang_state::preempting)
      return absl::FailedPreconditionError(name(job) + " runs, it is not preempting");
    ++epoch_;
    std::vector<job_id> to_restore;
    drop_preempting(slot, to_restore);
    for (const job_id j : to_restore) restore(j);
    return absl::OkStatus();
  }

  // All tasks of a gang have ended. kNotFound: no such gang.
  absl::Status finish(job_id job) {
    APIARY_ASSIGN_OR_RETURN(const gang_slot slot, existing(job));
    if (gangs_[slot].state == gang_state::preempting) return cancel(job);
    ++epoch_;
    drop(slot);
    return absl::OkStatus();
  }
  // One task has ended; the gang ends with the last. kNotFound: no such gang or task, or the task
  // has ended before.
  absl::Status finish_task(job_id job, std::uint32_t task) {
    APIARY_ASSIGN_OR_RETURN(const gang_slot slot, existing(job));
    gang_record& gang = gangs_[slot];
    std::uint32_t i = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    gang.for_each_task([&](const gang_member&, std::uint32_t first, std::uint32_t last) {
      if (i++ != task) return;
      from = first;
      to = last;
    });
    const auto lives = [](const chain_leaf& l) { return l.leaf.valid(); };
    const auto first = gang.leaves.begin() + from;
    if (task >= i || std::none_of(first, gang.leaves.begin() + to, lives)) {
      return absl::NotFoundError(name(job) + " has no task " + std::to_string(task) +
                                 " (any more)");
    }
    if (std::count_if(gang.leaves.begin(), gang.leaves.end(), lives) ==
        std::count_if(first, gang.leaves.begin() + to, lives)) {
      return finish(job);
    }
    ++epoch_;
    hash_ ^= fact(slot);
    for (std::uint32_t k = from; k < to; ++k) {
      if (!gang.leaves[k].leaf.valid()) continue;
      let_go(gang, gang.leaves[k]);
      gang.leaves[k].leaf = cell_id();
    }
    hash_ ^= fact(slot);
    return absl::OkStatus();
  }

  // New gangs avoid what is bad; what runs there runs on. Repeated calls change nothing.
  // kNotFound: no such node, or no such leaf of it.
  absl::Status mark_bad(node_id node) { return mark(node, std::nullopt, false); }
  absl::Status mark_healthy(node_id node) { return mark(node, std::nullopt, true); }
  absl::Status mark_bad(node_id node, std::uint32_t leaf) { return mark(node, leaf, false); }
  absl::Status mark_healthy(node_id node, std::uint32_t leaf) { return mark(node, leaf, true); }

  // Takes a gang that runs already, as after a restart: tasks in the order of the members, those
  // with no leaves have ended or are not known here. Whether it has its tenant's cells (again);
  // if they are not to be had, it runs on as opportunistic. Errors as propose, and
  // kFailedPrecondition: a leaf is another gang's. kInvalidArgument: the number of tasks or leaves.
  absl::StatusOr<bool> recover(const gang_request& request, std::span<const task_place> tasks) {
    APIARY_RETURN_IF_ERROR(check_form(request));
    if (gangs_.find(request.job))
      return absl::AlreadyExistsError(name(request.job) + " is here already");
    std::vector<chain_leaf> leaves;
    APIARY_RETURN_IF_ERROR(leaves_of(request, tasks, leaves));
    return readmit(request, std::move(leaves));
  }

  // What became of the gangs in a new configuration.
  struct reconfiguration {
    std::vector<job_id> downgraded{};  // lost their tenant's cells, run on as opportunistic
    std::vector<job_id> cancelled{};   // were preempting, wait again
    std::vector<job_id> gone{};        // none of their leaves exists any more
  };
  // Goes over to another configuration; gangs run on where they are, found by the names of nodes
  // and devices, the highest priority first, then by job. Health is kept. kInvalidArgument, and
  // nothing changes: a faulty configuration.
  absl::StatusOr<reconfiguration> reconfigure(const hived_config& config) {
    APIARY_ASSIGN_OR_RETURN(hived next, create(config));
    next.epoch_ = epoch_ + 1;
    for (std::uint32_t c = 0; c < cells_.num_chains(); ++c) {
      const physical_chain& chain = cells_.chain(c);
      if (!chain.any_bad()) continue;
      for (const cell_id leaf : chain.tree().cells(0)) {
        if (chain.healthy().healthy(leaf)) continue;
        const chain_leaf there = next.same_leaf(*this, {c, leaf});
        if (there.leaf.valid()) next.mark(there, false);
      }
    }
    std::vector<gang_slot> order = gangs_.by_job();
    std::stable_sort(order.begin(), order.end(), [&](gang_slot a, gang_slot b) {
      return gangs_[a].effective_priority() > gangs_[b].effective_priority();
    });
    reconfiguration report;
    for (const gang_slot s : order) next.take_over(*this, gangs_[s], report);
    *this = std::move(next);
    return report;
  }

  [[nodiscard]] const hived_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] const hived_cells& cells() const noexcept { return cells_; }
  [[nodiscard]] const gang_table& gangs() const noexcept { return gangs_; }
  // The type of leaf of that name.
  [[nodiscard]] std::optional<leaf_type_id> find_leaf_type(std::string_view type) const noexcept {
    for (std::uint32_t i = 0; i < leaf_types_.size(); ++i)
      if (leaf_types_[i] == type) return leaf_type_id(i);
    return std::nullopt;
  }
  // Over everything that decisions depend on: same calls, same value. Cost: O(1).
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_ ^ cells_.hash(); }

  // Where the gang's tasks are; null: no such gang. The pointer holds until the next change.
  [[nodiscard]] const gang_record* find(job_id job) const {
    const auto slot = gangs_.find(job);
    return slot ? &gangs_[*slot] : nullptr;
  }
  // Whether another gang has claimed a leaf of it.
  [[nodiscard]] bool being_preempted(const gang_record& gang) const noexcept {
    return gang.state == gang_state::allocated &&
           std::any_of(gang.leaves.begin(), gang.leaves.end(), [&](const chain_leaf& l) {
             return l.leaf.valid() && cells_.chain(l.chain).holders(l.leaf).claimer.valid();
           });
  }
  // The node and leaves of each task.
  [[nodiscard]] std::vector<task_place> tasks(const gang_record& gang) const {
    std::vector<task_place> all;
    list_tasks(gang.leaves, gang.request.members, all);
    return all;
  }
  // How many of the tenant's whole cells of a level that are not in use must land on bad hardware.
  // Cost: O(cells of the chain).
  [[nodiscard]] std::uint32_t doomed(tenant_id tenant, chain_id chain, level_t level) const {
    const physical_chain& at = cells_.chain(chain.value);
    const healthy_free<uniform_tree> healthy(at.cells().cells(), at.healthy());
    return cells_.ledger(chain.value).doomed(tenant, {level, healthy.count(level)});
  }
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return cells_.memory_bytes(); }

 private:
  [[nodiscard]] static std::string name(job_id job) { return "gang " + std::to_string(job.value); }
  [[nodiscard]] absl::StatusOr<gang_slot> existing(job_id job) const {
    const std::optional<gang_slot> slot = gangs_.find(job);
    if (!slot) return absl::NotFoundError("there is no " + name(job));
    return *slot;
  }

  // What can be said without the cluster's state.
  [[nodiscard]] absl::Status check_form(const gang_request& r) const {
    const auto wrong = [&](const std::string& what) {
      return absl::InvalidArgumentError(name(r.job) + ": " + what);
    };
    if (!r.job.valid()) return absl::InvalidArgumentError("a gang needs a job id");
    if (r.tenant.value >= layout_.tenants.size()) {
      return absl::NotFoundError(name(r.job) + ": there is no tenant " +
                                 std::to_string(r.tenant.value));
    }
    if (r.priority < opportunistic_priority || r.priority > max_priority)
      return wrong("priority " + std::to_string(r.priority) + " is not in -1, ..., 1000");
    if (r.members.empty()) return wrong("no tasks");
    std::uint64_t tasks = 0;
    for (const gang_member& m : r.members) {
      if (m.tasks == 0) return wrong("a member with 0 tasks");
      if (m.leaves == 0) return wrong("tasks with 0 leaf cells");
      tasks += m.tasks;
    }
    if (tasks > max_tasks) {
      return wrong(std::to_string(tasks) + " tasks, where " + std::to_string(max_tasks) +
                   " are the limit");
    }
    if (r.leaf_type.valid() && r.leaf_type.value >= leaf_types_.size()) {
      return absl::NotFoundError(name(r.job) + ": there is no leaf type " +
                                 std::to_string(r.leaf_type.value));
    }
    if (r.suggested != nullptr && r.suggested->size() != layout_.num_nodes()) {
      return wrong("suggested nodes: " + std::to_string(r.suggested->size()) + " bits for " +
                   std::to_string(layout_.num_nodes()) + " nodes");
    }
    if (!r.pinned) return absl::OkStatus();
    if (r.priority < 0) return wrong("an opportunistic gang cannot use a pinned cell");
    if (*r.pinned >= layout_.pinned.size()) {
      return absl::NotFoundError(name(r.job) + ": there is no pinned cell " +
                                 std::to_string(*r.pinned));
    }
    if (layout_.pinned[*r.pinned].tenant == r.tenant) return absl::OkStatus();
    return absl::FailedPreconditionError(name(r.job) + ": pinned cell " +
                                         layout_.pinned[*r.pinned].id + " is not its tenant's");
  }
  [[nodiscard]] absl::Status check(const gang_request& r) {
    APIARY_RETURN_IF_ERROR(check_form(r));
    const std::optional<gang_slot> slot = gangs_.find(r.job);
    if (slot && gangs_[*slot].state == gang_state::allocated)
      return absl::AlreadyExistsError(name(r.job) + " runs already");
    list_candidates(r);
    if (chains_.empty()) {
      return absl::FailedPreconditionError(
          name(r.job) + ": tenant " + layout_.tenants[r.tenant.value].name + " has no cells" +
          (r.leaf_type.valid() ? " of type " + leaf_types_[r.leaf_type.value] : ""));
    }
    std::uint32_t largest = 0;
    for (const std::uint32_t c : chains_)
      largest = std::max(largest, cells_.chain(c).node_leaves());
    for (const gang_member& m : r.members) {
      if (m.leaves <= largest) continue;
      return absl::InvalidArgumentError(name(r.job) + ": a task of " + std::to_string(m.leaves) +
                                        " leaf cells, where a node has " + std::to_string(largest));
    }
    return absl::OkStatus();
  }
  [[nodiscard]] static absl::Status check_again(const gang_request& r, const gang_record& gang) {
    const gang_request& first = gang.request;
    if (r.tenant == first.tenant && r.priority == first.priority && r.members == first.members &&
        r.pinned == first.pinned)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        name(r.job) + " is preempting: it asks again in other words; cancel it first");
  }

  // The chains a gang may use, in the order of trying them, and of a guaranteed one the clusters.
  void list_candidates(const gang_request& r) {
    chains_.clear();
    clusters_.clear();
    for (std::uint32_t c = 0; c < cells_.num_chains(); ++c) {
      if (r.leaf_type.valid() && type_of_chain_[c] != r.leaf_type) continue;
      if (r.pinned) {
        if (layout_.pinned[*r.pinned].chain.value != c) continue;
        clusters_.push_back(cells_.cluster_of_pinned(*r.pinned));
      } else if (r.priority >= 0) {
        const cluster_id cluster = cells_.cluster_of(r.tenant, c);
        if (!cluster.valid()) continue;
        clusters_.push_back(cluster);
      }
      chains_.push_back(c);
    }
  }

  // Requires: candidates listed.
  bool search(const gang_request& r, std::optional<gang_slot> restarted) {
    filters_.clear();
    const bool filtered = r.suggested != nullptr && !r.suggested->all();
    if (filtered)
      for (const std::uint32_t c : chains_) filters_.push_back(suggested_leaves(c, *r.suggested));
    const auto filter = [&](std::size_t i) { return filtered ? &filters_[i] : nullptr; };
    if (r.priority < 0) {
      for (std::size_t i = 0; i < chains_.size(); ++i)
        if (search_.opportunistic(cells_, r, chains_[i], filter(i))) return true;
      return false;
    }
    for (const bool preempting : {false, true}) {
      for (std::size_t i = 0; i < clusters_.size(); ++i) {
        if (search_.guaranteed(cells_, gangs_, r, clusters_[i], preempting, filter(i), restarted))
          return true;
      }
    }
    return false;
  }
  // The healthy leaves of a chain on suggested nodes.
  [[nodiscard]] health<uniform_tree> suggested_leaves(std::uint32_t c,
                                                      const summary_bitset& suggested) const {
    const physical_chain& chain = cells_.chain(c);
    health<uniform_tree> usable(chain.tree(), false);
    for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
      if (!suggested.test(layout_.chains[c].first_node + n)) continue;
      usable.mark_healthy(chain.node_cell(n));
      if (chain.healthy().healthy(chain.node_cell(n))) continue;
      for (const cell_id leaf : leaves(chain.tree(), chain.node_cell(n)))
        if (!chain.healthy().healthy(leaf)) usable.mark_bad(leaf);
    }
    return usable;
  }

  // Why a search has found nothing.
  [[nodiscard]] gang_wait why(gang_request r) {
    gang_wait wait{.reason = wait_reason::never, .shortage = search_.cut()};
    bool unhealthy = false;
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const physical_chain& chain = cells_.chain(chains_[i]);
      const bool fits = r.priority < 0
                            ? search_.fits_empty(chain, r.members)
                            : search_.fits_empty(cells_.cluster(clusters_[i]), r.members);
      if (!fits) continue;
      wait.reason = wait_reason::busy;
      unhealthy =
          unhealthy || (chain.any_bad() &&
                        (r.priority < 0 ? search_.fits_repaired(chain, r.members)
                                        : search_.fits_repaired(cells_, gangs_, r, clusters_[i])));
    }
    if (unhealthy) wait.reason = wait_reason::unhealthy;
    if (wait.reason == wait_reason::never || r.suggested == nullptr) return wait;
    r.suggested = nullptr;
    if (search(r, std::nullopt)) wait.reason = wait_reason::not_suggested;
    return wait;
  }

  // Of a preempting gang: whether all its leaves are healthy and suggested.
  [[nodiscard]] bool place_is_good(const gang_record& gang, const summary_bitset* suggested) const {
    return std::all_of(gang.leaves.begin(), gang.leaves.end(), [&](const chain_leaf& l) {
      return !l.leaf.valid() || (cells_.chain(l.chain).healthy().healthy(l.leaf) &&
                                 (suggested == nullptr || suggested->test(node_of(l).value)));
    });
  }
  [[nodiscard]] node_id node_of(chain_leaf l) const noexcept {
    return node_id(layout_.chains[l.chain].first_node + cells_.chain(l.chain).node_of(l.leaf));
  }
  void list_tasks(std::span<const chain_leaf> leaves, std::span<const gang_member> members,
                  std::vector<task_place>& out) const {
    std::size_t i = 0;
    for (const gang_member& m : members) {
      for (std::uint32_t t = 0; t < m.tasks; ++t) {
        task_place& at = out.emplace_back();
        for (const std::size_t last = i + m.leaves; i < last; ++i) {
          const auto [c, leaf] = leaves[i];
          if (!leaf.valid()) continue;
          const physical_chain& chain = cells_.chain(c);
          const std::uint32_t node = chain.node_of(leaf);
          at.node = node_id(layout_.chains[c].first_node + node);
          at.leaves |= std::uint64_t{1} << (leaf.value - chain.first_leaf(node).value);
        }
      }
    }
  }
  // The tasks on these leaves, and who runs there.
  void describe(std::span<const chain_leaf> leaves, std::span<const gang_member> members,
                gang_plan& plan) const {
    list_tasks(leaves, members, plan.tasks);
    for (const auto& [c, leaf] : leaves) {
      if (!leaf.valid()) continue;
      const gang_slot user = cells_.chain(c).holders(leaf).user;
      if (user.valid()) plan.victims.push_back(gangs_[user].request.job);
    }
    std::sort(plan.victims.begin(), plan.victims.end());
    plan.victims.erase(std::unique(plan.victims.begin(), plan.victims.end()), plan.victims.end());
  }

  // What of a gang its leaves do not say.
  [[nodiscard]] std::uint64_t fact(gang_slot s) const noexcept {
    const gang_record& gang = gangs_[s];
    rng word((std::uint64_t{gang.request.job.value} << 32) | s.value);
    std::uint64_t h = word();
    const auto add = [&](std::uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15U ^ (h >> 29); };
    add(gang.request.tenant.value);
    add(static_cast<std::uint64_t>(gang.request.priority + 1));
    add((gang.state == gang_state::preempting ? 4U : 0U) | (gang.downgraded ? 2U : 0U) |
        (gang.request.lazy ? 1U : 0U));
    for (const gang_member& m : gang.request.members)
      add((std::uint64_t{m.tasks} << 32) | m.leaves);
    add(static_cast<std::uint64_t>(
        std::count_if(gang.leaves.begin(), gang.leaves.end(),
                      [](const chain_leaf& l) { return l.leaf.valid(); })));
    for (const job_id job : gang.downgraded_by) add(job.value);
    return h;
  }

  void bind_reserved(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    gang.state = gang_state::allocated;
    gang.downgraded_by.clear();
    hash_ ^= fact(slot);
  }
  void let_go(const gang_record& gang, chain_leaf l) {
    if (gang.state == gang_state::preempting) {
      cells_.unclaim(l.chain, l.leaf);
    } else {
      cells_.unuse(l.chain, l.leaf);
    }
  }
  void drop(gang_slot slot) {
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) let_go(gangs_[slot], l);
    gangs_.remove(slot);
  }
  // The gangs that it downgraded may be restored when its leaves are settled.
  void drop_preempting(gang_slot slot, std::vector<job_id>& to_restore) {
    const std::vector<job_id>& jobs = gangs_[slot].downgraded_by;
    to_restore.insert(to_restore.end(), jobs.begin(), jobs.end());
    drop(slot);
  }
  void downgrade(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    hash_ ^= fact(slot);
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.demote(l.chain, l.leaf);
    gangs_.move(slot, cluster_id());
    gang.downgraded = true;
    hash_ ^= fact(slot);
  }
  // Gives a downgraded gang its tenant's cells back if it can have them where it runs.
  void restore(job_id job) {
    const std::optional<gang_slot> slot = gangs_.find(job);
    if (slot && gangs_[*slot].downgraded) upgrade(*slot);
  }
  bool upgrade(gang_slot slot) {
    gang_record& gang = gangs_[slot];
    std::uint32_t c = ~std::uint32_t{0};
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (c != ~std::uint32_t{0} && l.chain != c) return false;
      c = l.chain;
    }
    if (c == ~std::uint32_t{0} || !gang.request.tenant.valid()) return false;
    cluster_id cluster = cells_.cluster_of(gang.request.tenant, c);
    if (gang.request.pinned) cluster = cells_.cluster_of_pinned(*gang.request.pinned);
    if (!cluster.valid() || cells_.cluster(cluster).chain() != c) return false;
    for (const bool highest_first : {true, false}) {
      if (!adopt(gang, slot, cluster, highest_first)) continue;
      hash_ ^= fact(slot);
      gangs_.move(slot, cluster);
      gang.downgraded = false;
      hash_ ^= fact(slot);
      return true;
    }
    return false;
  }
  bool adopt(const gang_record& gang, gang_slot slot, cluster_id cluster, bool highest_first) {
    cells_.begin();
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (!cells_.adopt(cluster, l.leaf, highest_first)) {
        cells_.rollback();
        return false;
      }
      cells_.hold(l.chain, l.leaf, {slot, gang_slot(), true});
    }
    cells_.keep();
    for (const chain_leaf& l : gang.leaves)
      if (l.leaf.valid()) cells_.reveal(cluster, cells_.chain(l.chain).owner(l.leaf).cell);
    return true;
  }
  void reveal(const gang_place& place) {
    if (!place.cluster.valid() || !cells_.chain(place.chain).any_bad()) return;
    for (const bound_leaf& l : place.leaves) cells_.reveal(place.cluster, l.leaf);
  }

  void mark(chain_leaf l, bool good) { cells_.mark(l.chain, l.leaf, good); }
  absl::Status mark(node_id node, std::optional<std::uint32_t> position, bool good) {
    if (node.value >= layout_.num_nodes())
      return absl::NotFoundError("there is no node " + std::to_string(node.value));
    const std::uint32_t c = layout_.chain_of(node).value;
    const physical_chain& chain = cells_.chain(c);
    if (position && *position >= chain.node_leaves()) {
      return absl::NotFoundError("node " + layout_.node_name(node) + " has no leaf cell " +
                                 std::to_string(*position));
    }
    ++epoch_;
    const id_range<cell_id> all = leaves(chain.tree(), layout_.node_cell(node));
    for (std::uint32_t i = 0; i < all.size(); ++i)
      if (!position || *position == i) mark(chain_leaf{c, all[i]}, good);
    return absl::OkStatus();
  }

  absl::Status leaves_of(const gang_request& r, std::span<const task_place> tasks,
                         std::vector<chain_leaf>& out) const {
    std::size_t t = 0;
    for (const gang_member& m : r.members) {
      for (std::uint32_t k = 0; k < m.tasks; ++k, ++t) {
        const std::size_t end = out.size() + m.leaves;
        if (t < tasks.size() && tasks[t].leaves != 0)
          APIARY_RETURN_IF_ERROR(leaves_of(r.job, tasks[t], m.leaves, out));
        out.resize(end);
      }
    }
    if (t != tasks.size()) {
      return absl::InvalidArgumentError(name(r.job) + " has " + std::to_string(t) +
                                        " tasks, places are given for " +
                                        std::to_string(tasks.size()));
    }
    return absl::OkStatus();
  }
  absl::Status leaves_of(job_id job, task_place task, std::uint32_t limit,
                         std::vector<chain_leaf>& out) const {
    if (task.node.value >= layout_.num_nodes()) {
      return absl::NotFoundError(name(job) + ": there is no node " +
                                 std::to_string(task.node.value));
    }
    const std::uint32_t c = layout_.chain_of(task.node).value;
    const id_range<cell_id> all = leaves(cells_.chain(c).tree(), layout_.node_cell(task.node));
    const std::string where = name(job) + ": node " + layout_.node_name(task.node);
    if (all.size() < 64 && task.leaves >> all.size() != 0)
      return absl::InvalidArgumentError(where + " has only " + std::to_string(all.size()) +
                                        " leaf cells");
    if (static_cast<std::uint32_t>(std::popcount(task.leaves)) > limit)
      return absl::InvalidArgumentError(where + ": more leaf cells than the task asks for");
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if ((task.leaves >> i & 1) == 0) continue;
      const chain_leaf l{c, all[i]};
      if (!cells_.chain(c).holders(all[i]).idle() ||
          std::find(out.begin(), out.end(), l) != out.end())
        return absl::FailedPreconditionError(where + ": leaf cell " + std::to_string(i) +
                                             " is in use");
      out.push_back(l);
    }
    return absl::OkStatus();
  }
  // Whether it has its tenant's cells, if it should.
  bool readmit(const gang_request& request, std::vector<chain_leaf> leaves) {
    ++epoch_;
    gang_record gang;
    gang.request = request;
    gang.request.suggested = nullptr;
    gang.leaves = std::move(leaves);
    gang.downgraded = request.priority >= 0;
    const gang_slot slot = gangs_.add(std::move(gang));
    for (const chain_leaf& l : gangs_[slot].leaves)
      if (l.leaf.valid()) cells_.hold(l.chain, l.leaf, {slot, gang_slot(), false});
    hash_ ^= fact(slot);
    return request.priority < 0 || upgrade(slot);
  }

  // The leaf of this configuration that is the given one of another.
  [[nodiscard]] chain_leaf same_leaf(const hived& other, chain_leaf l) const {
    const node_id node = other.node_of(l);
    const std::optional<node_id> here = layout_.find_node(other.layout_.node_name(node));
    if (!here) return {};
    const physical_chain& chain = other.cells_.chain(l.chain);
    const std::uint32_t position = l.leaf.value - chain.first_leaf(chain.node_of(l.leaf)).value;
    const auto at = layout_.find_position(*here, other.layout_.device(node, position));
    if (!at) return {};
    const std::uint32_t c = layout_.chain_of(*here).value;
    return {c, leaves(cells_.chain(c).tree(), layout_.node_cell(*here))[*at]};
  }
  void take_over(const hived& other, const gang_record& gang, reconfiguration& report) {
    const job_id job = gang.request.job;
    if (gang.state == gang_state::preempting) {
      report.cancelled.push_back(job);
      return;
    }
    std::vector<chain_leaf> leaves;
    bool any = false;
    for (const chain_leaf& l : gang.leaves) {
      leaves.push_back(l.leaf.valid() ? same_leaf(other, l) : chain_leaf());
      any = any || leaves.back().leaf.valid();
    }
    if (!any) {
      report.gone.push_back(job);
      return;
    }
    gang_request r = gang.request;
    const auto tenant = layout_.find_tenant(
        r.tenant.valid() ? other.layout_.tenants[r.tenant.value].name : std::string());
    r.tenant = tenant ? *tenant : tenant_id();
    if (r.leaf_type.valid()) {
      const auto type = find_leaf_type(other.leaf_types_[r.leaf_type.value]);
      r.leaf_type = type ? *type : leaf_type_id();
    }
    if (r.pinned) {
      r.pinned = layout_.find_pinned(other.layout_.pinned[*r.pinned].id);
      if (!r.pinned || layout_.pinned[*r.pinned].tenant != r.tenant) {
        r.pinned.reset();
        r.tenant = tenant_id();  // its cells are gone
      }
    }
    if (!readmit(r, std::move(leaves)) && gang.guaranteed()) report.downgraded.push_back(job);
  }

  static constexpr std::uint64_t max_tasks = 1'000'000;

  hived_layout layout_;
  hived_cells cells_;
  gang_table gangs_;
  hived_search search_;
  std::vector<std::string> leaf_types_;
  std::vector<leaf_type_id> type_of_chain_;
  std::uint64_t epoch_ = 0;
  std::uint64_t hash_ = 0;
  std::vector<std::uint32_t> chains_;          // candidates
  std::vector<cluster_id> clusters_;           // of each candidate chain
  std::vector<health<uniform_tree>> filters_;  // of each candidate chain
  std::vector<chain_leaf> scratch_;
};

APIARY_NAMESPACE_END
