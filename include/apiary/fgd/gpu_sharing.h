// apiary/fgd/gpu_sharing.h - a scheduler of tasks that share GPUs, over any score.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/fraction_pool.h>
#include <apiary/alloc/journal.h>
#include <apiary/alloc/journaled.h>
#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/best_score_placer.h>
#include <apiary/fgd/node_score.h>
#include <apiary/fgd/request_checks.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where a gang would go, or why it waits.
struct gang_answer {
  fit_verdict verdict = fit_verdict::does_not_fit;
  // If it fits: each task; with slices, consecutive tasks of a member are one.
  std::vector<member_placement> places{};
  // Whether it is certain that no other placement at its level costs less by the score's cost().
  bool least = false;
  // If it does not fit: a proof for proof_check(tree, node_level, nodes(), gang).
  infeasibility_proof why{};
};

// Places tasks one at a time on the node that a score prefers, and gangs of tasks all at once or
// not at all; keeps who runs where, and takes departures and broken nodes. Calls with bad arguments
// return an error and change nothing.
//
// A gang without rules goes where its tasks, largest first, would go one after the other, if they
// all find room. Otherwise shared_gpu_fit decides: it finds a place whenever there is one, and prefers
// the least sum of the score's cost(before, after), if it has one, or says why there is none; where
// its budget ends, some place if one is easily found.
//
// Not const, and not to be called concurrently: propose() brings scores up to date that others left
// behind; it changes no placement.
//
// Cost: propose as best_score_placer::place; commit, finish and health O(GPUs of a node) and a hash
//       look-up. The scores of at most max_kinds kinds of request are kept, about a byte a node and
//       kind; a request of a kind that is not among them costs a scan of the nodes and replaces the
//       one unused for longest. Of a gang: so much for each task; then as shared_gpu_fit.
template <NodeScore Score>
class gpu_sharing_scheduler {
 public:
  static constexpr std::uint32_t max_kinds = 1024;
  static constexpr std::uint64_t default_gang_budget = 10'000'000;

  // kInvalidArgument: no node, or a node whose state is not what is left of its shape.
  [[nodiscard]] static absl::StatusOr<gpu_sharing_scheduler> create(node_table nodes, Score score) {
    if (nodes.size() == 0) return absl::InvalidArgumentError("a cluster needs at least one node");
    for (const node_id n : nodes.ids()) {
      if (consistent(nodes[n], nodes.shape(n))) continue;
      return absl::InvalidArgumentError("node " + std::to_string(n.value) +
                                        ": its state is not what is left of its shape");
    }
    return gpu_sharing_scheduler(std::move(nodes), std::move(score));
  }

  // Where the task would go now; nothing is taken.
  // kResourceExhausted, with an empty message: it fits nowhere now.
  // kInvalidArgument: not a valid task.
  [[nodiscard]] absl::StatusOr<placement> propose(const task_request& task) {
    APIARY_RETURN_IF_ERROR(check(task));
    return answer(placer_.place(nodes_, kind_of(task)));
  }
  // The same among the nodes in `suggested`, a bit a node.
  // kInvalidArgument also: not one bit for each node.
  [[nodiscard]] absl::StatusOr<placement> propose(const task_request& task,
                                                  const summary_bitset& suggested) {
    APIARY_RETURN_IF_ERROR(check(task));
    APIARY_RETURN_IF_ERROR(detail::check_suggested(suggested, nodes_.size()));
    return answer(placer_.place(nodes_, kind_of(task), suggested));
  }

  // Where all tasks of the gang would go now; nothing is taken. Node i of the table is cell i of
  // the node level of the tree. The budget is that of shared_gpu_fit; budget_ended is an answer, too.
  // kInvalidArgument: no valid rules for the tree, or no valid tasks, or too many; or the tree has
  // another number of nodes.
  template <CellTree Tree>
  [[nodiscard]] absl::StatusOr<gang_answer> propose(const topology_constraints& gang,
                                                    const Tree& tree, level_t node_level = 0,
                                                    std::uint64_t budget = default_gang_budget) {
    return decide(gang, tree, node_level, nullptr, budget);
  }
  // The same among the nodes in `suggested`, a bit a node. A proof is then one for
  // suggested_alone(nodes(), suggested).
  // kInvalidArgument also: not one bit for each node.
  template <CellTree Tree>
  [[nodiscard]] absl::StatusOr<gang_answer> propose(const topology_constraints& gang,
                                                    const Tree& tree, level_t node_level,
                                                    const summary_bitset& suggested,
                                                    std::uint64_t budget = default_gang_budget) {
    return decide(gang, tree, node_level, &suggested, budget);
  }
  // The same without a tree: level 0 is that of the nodes, and there is no other.
  [[nodiscard]] absl::StatusOr<gang_answer> propose(const topology_constraints& gang,
                                                    std::uint64_t budget = default_gang_budget) {
    return propose(gang, uniform_tree{nodes_.size()}, 0, budget);
  }
  [[nodiscard]] absl::StatusOr<gang_answer> propose(const topology_constraints& gang,
                                                    const summary_bitset& suggested,
                                                    std::uint64_t budget = default_gang_budget) {
    return propose(gang, uniform_tree{nodes_.size()}, 0, suggested, budget);
  }

  // Takes a placement, proposed here or chosen by the host.
  // kAlreadyExists: the job runs. kNotFound: no such node. kInvalidArgument: not a valid task, or
  // no job id. kAborted: the place is not free for the task (any more).
  absl::Status commit(const task_request& task, placement where) {
    APIARY_RETURN_IF_ERROR(check(task));
    if (!task.job.valid()) return absl::InvalidArgumentError("a task to commit needs a job id");
    if (!nodes_.contains(where.node)) return no_such(where.node);
    if (runs(task.job)) return runs_already(task.job);
    if (!can_place_task(nodes_, task, where)) return not_free(task.job, where);
    running_.try_emplace(task.job.value, running{task, where});
    place_task(nodes_, task, where);
    placer_.update(nodes_, where.node);
    return absl::OkStatus();
  }

  // Takes the placement of a gang, all of it or nothing. Its rules are not looked at again.
  // kAlreadyExists: the job runs. kNotFound: no such node. kInvalidArgument: no job id, no tasks or
  // not valid ones, or not one place for each. kAborted: a place is not free for its task (any more).
  absl::Status commit(job_id job, const topology_constraints& gang,
                      std::span<const member_placement> places) {
    APIARY_RETURN_IF_ERROR(detail::check_tasks(gang));
    if (!job.valid()) return absl::InvalidArgumentError("a gang to commit needs a job id");
    std::vector<std::uint32_t> missing;
    for (const constrained_task_group& m : gang.members) missing.push_back(m.tasks);
    for (const member_placement& p : places) {
      if (p.member >= missing.size() || missing[p.member]-- == 0)
        return absl::InvalidArgumentError("gang " + std::to_string(job.value) + ": member " +
                                          std::to_string(p.member) + " has more places than tasks");
      if (!nodes_.contains(p.where.node)) return no_such(p.where.node);
    }
    for (std::size_t m = 0; m < missing.size(); ++m) {
      if (missing[m] > 0)
        return absl::InvalidArgumentError("gang " + std::to_string(job.value) + ": " +
                                          std::to_string(missing[m]) + " tasks of member " +
                                          std::to_string(m) + " have no place");
    }
    if (places.empty()) {
      return absl::InvalidArgumentError("gang " + std::to_string(job.value) + " has no task");
    }
    if (runs(job)) return runs_already(job);
    journal log;
    transaction tx(log);
    std::vector<running> tasks;
    for (const member_placement& p : places) {
      task_request task = task_of(gang.members[p.member]);
      task.job = job;
      if (!can_place_task(nodes_, task, p.where)) return not_free(job, p.where);
      journaled::place_task(tx, nodes_, task, p.where);
      tasks.push_back({task, p.where});
    }
    tx.commit();
    for (const running& r : tasks) placer_.update(nodes_, r.where.node);
    gangs_.try_emplace(job.value, running_gang{{places.begin(), places.end()}, std::move(tasks)});
    return absl::OkStatus();
  }

  // The job has ended, a gang with all its tasks. kNotFound: it does not run.
  absl::Status finish(job_id job) {
    const auto found = running_.find(job.value);
    if (found == running_.end()) return finish_gang(job);
    const running ended = found->second;
    running_.erase(found);
    remove_task(nodes_, ended.task, ended.where);
    placer_.update(nodes_, ended.where.node);
    return absl::OkStatus();
  }

  // A bad node gets no new task; what runs there runs on. Repeated calls change nothing.
  // kNotFound: no such node.
  absl::Status mark_bad(node_id n) { return set_health(n, false); }
  absl::Status mark_healthy(node_id n) { return set_health(n, true); }

  [[nodiscard]] const node_table& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Score& score() const noexcept { return placer_.score(); }
  // Jobs, a gang being one.
  [[nodiscard]] std::size_t num_running() const noexcept { return running_.size() + gangs_.size(); }
  // Where a gang runs, empty if it does not; as committed.
  [[nodiscard]] std::span<const member_placement> find_gang(job_id job) const {
    const auto found = gangs_.find(job.value);
    if (found == gangs_.end()) return {};
    return found->second.places;
  }
  // Where a job of one task runs.
  [[nodiscard]] std::optional<placement> find(job_id job) const {
    const auto found = running_.find(job.value);
    if (found == running_.end()) return std::nullopt;
    return found->second.where;
  }

 private:
  using kind_key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, milli_gpu, model_set>;
  struct running {
    task_request task;
    placement where;
  };
  struct running_gang {
    std::vector<member_placement> places;
    std::vector<running> tasks;
  };
  static constexpr bool has_cost = requires(const Score& s, const node_state& n) {
    { s.cost(n, n) } -> std::same_as<std::int64_t>;
  };
  struct known_kind {
    kind_id kind;
    std::uint64_t last_use = 0;
  };

  gpu_sharing_scheduler(node_table nodes, Score score)
      : nodes_(std::move(nodes)), placer_(nodes_, std::move(score)) {}

  [[nodiscard]] static bool consistent(const node_state& state, const node_shape& shape) noexcept {
    if (state.gpus != shape.gpus || state.model != shape.model || !state.left.fits_in(shape.host))
      return false;
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) {
      if (state.gpu_left[i] > (i < shape.gpus ? whole_gpu : 0)) return false;
    }
    return true;
  }
  [[nodiscard]] static absl::Status check(const task_request& task) {
    if (task.valid()) return absl::OkStatus();
    return detail::check_task("job " + std::to_string(task.job.value), task);
  }
  [[nodiscard]] static absl::Status runs_already(job_id job) {
    return absl::AlreadyExistsError("job " + std::to_string(job.value) + " runs already");
  }
  [[nodiscard]] static absl::Status not_free(job_id job, placement where) {
    return absl::AbortedError("job " + std::to_string(job.value) + ": devices " +
                              std::to_string(where.device_mask) + " of node " +
                              std::to_string(where.node.value) + " are not free for it");
  }
  [[nodiscard]] bool runs(job_id job) const {
    return running_.contains(job.value) || (!gangs_.empty() && gangs_.contains(job.value));
  }
  [[nodiscard]] static absl::Status no_such(node_id n) {
    return absl::NotFoundError("there is no node " + std::to_string(n.value));
  }
  [[nodiscard]] static absl::StatusOr<placement> answer(const std::optional<placement>& where) {
    if (!where) return absl::Status(absl::StatusCode::kResourceExhausted, "");
    return *where;
  }
  [[nodiscard]] static kind_key key_of(const task_request& task) noexcept {
    if (!task.wants_gpu()) return {task.cpu_milli, task.memory_mib, 0, 0, any_model};
    return {task.cpu_milli, task.memory_mib, task.gpus, task.gpu_milli, task.models};
  }

  [[nodiscard]] kind_id kind_of(const task_request& task) {
    ++uses_;
    known_kind& known = kinds_[key_of(task)];
    known.last_use = uses_;
    if (known.kind.valid()) return known.kind;
    if (placer_.num_kinds() < max_kinds) return known.kind = placer_.prepare(nodes_, task);
    auto oldest = kinds_.begin();
    for (auto i = kinds_.begin(); i != kinds_.end(); ++i) {
      if (i->second.last_use < oldest->second.last_use) oldest = i;
    }
    known.kind = oldest->second.kind;
    const kind_id kind = known.kind;
    kinds_.erase(oldest);
    placer_.replace(kind, nodes_, task);
    return kind;
  }

  template <CellTree Tree>
  absl::StatusOr<gang_answer> decide(const topology_constraints& gang, const Tree& tree,
                                     level_t node_level, const summary_bitset* suggested,
                                     std::uint64_t budget) {
    APIARY_RETURN_IF_ERROR(detail::check_gang(gang, tree, node_level, nodes_.size()));
    if (suggested != nullptr)
      APIARY_RETURN_IF_ERROR(detail::check_suggested(*suggested, nodes_.size()));
    gang_answer answer;
    if (without_constraints(gang)) {
      answer.places = place_one_by_one(gang, suggested);
      if (!answer.places.empty()) {
        answer.verdict = fit_verdict::fits;
        return answer;
      }
    }
    shared_gpu_fit<Tree> fit(budget);
    const auto cost = [&](const node_state& before, const node_state& after) -> std::int64_t {
      if constexpr (has_cost) return score().cost(before, after);
      return 0;
    };
    const auto found = suggested == nullptr
                           ? fit(nodes_, tree, node_level, gang, cost)
                           : fit(suggested_alone(nodes_, *suggested), tree, node_level, gang, cost);
    answer.verdict = found.verdict;
    answer.places.assign(found.placements.begin(), found.placements.end());
    answer.least = has_cost && found.verdict == fit_verdict::fits && found.is_least;
    if (answer.verdict == fit_verdict::does_not_fit) answer.why = fit.explain(gang);
    return answer;
  }

  [[nodiscard]] static bool without_constraints(const topology_constraints& gang) {
    const auto free = [](const constrained_task_group& m) {
      return m.slices.empty() && m.spread.empty() && m.leader == no_task_group;
    };
    return gang.required == any_level && gang.preferred == any_level &&
           std::all_of(gang.members.begin(), gang.members.end(), free);
  }
  // Tasks one after the other, those of most GPUs first; nothing if one of them finds no room.
  [[nodiscard]] std::vector<member_placement> place_one_by_one(const topology_constraints& gang,
                                                               const summary_bitset* suggested) {
    std::vector<std::uint32_t> order(gang.members.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return task_of(gang.members[a]).total_gpu_milli() >
             task_of(gang.members[b]).total_gpu_milli();
    });
    std::vector<member_placement> places;
    journal log;
    transaction tx(log);
    bool all = true;
    for (std::size_t i = 0; i < order.size() && all; ++i) {
      const task_request task = task_of(gang.members[order[i]]);
      for (std::uint32_t t = 0; t < gang.members[order[i]].tasks && all; ++t) {
        const kind_id kind = kind_of(task);
        const std::optional<placement> where = suggested == nullptr
                                                   ? placer_.place(nodes_, kind)
                                                   : placer_.place(nodes_, kind, *suggested);
        all = where.has_value();
        if (!all) break;
        journaled::place_task(tx, nodes_, task, *where);
        placer_.update(nodes_, where->node);
        places.push_back({order[i], *where});
      }
    }
    tx.rollback();
    for (const member_placement& p : places) placer_.update(nodes_, p.where.node);
    if (!all) places.clear();
    std::stable_sort(places.begin(), places.end(),
                     [](const auto& a, const auto& b) { return a.member < b.member; });
    return places;
  }
  absl::Status finish_gang(job_id job) {
    const auto found = gangs_.find(job.value);
    if (found == gangs_.end())
      return absl::NotFoundError("job " + std::to_string(job.value) + " does not run");
    for (const running& r : found->second.tasks) {
      remove_task(nodes_, r.task, r.where);
      placer_.update(nodes_, r.where.node);
    }
    gangs_.erase(found);
    return absl::OkStatus();
  }

  absl::Status set_health(node_id n, bool healthy) {
    if (!nodes_.contains(n)) return no_such(n);
    if (nodes_[n].healthy == healthy) return absl::OkStatus();
    nodes_[n].healthy = healthy;
    placer_.update(nodes_, n);
    return absl::OkStatus();
  }

  node_table nodes_;
  best_score_placer<Score> placer_;
  absl::flat_hash_map<std::uint32_t, running> running_;
  absl::flat_hash_map<std::uint32_t, running_gang> gangs_;
  absl::flat_hash_map<kind_key, known_kind> kinds_;
  std::uint64_t uses_ = 0;
};

APIARY_NAMESPACE_END
