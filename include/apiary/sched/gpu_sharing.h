// apiary/sched/gpu_sharing.h - a scheduler of tasks that share GPUs, over any score.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/fraction_pool.h>
#include <apiary/core/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/policy/gradient_placer.h>
#include <apiary/policy/node_score.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Places tasks one at a time on the node that a score prefers, keeps who runs where, and takes
// departures and broken nodes. Calls with bad arguments return an error and change nothing.
//
// Not const, and not to be called concurrently: propose() brings scores up to date that others left
// behind; it changes no placement.
//
// Cost: propose as gradient_placer::place; commit, finish and health O(GPUs of a node) and a hash
//       look-up. The scores of at most max_kinds kinds of request are kept, about a byte a node and
//       kind; a request of a kind that is not among them costs a scan of the nodes and replaces the
//       one unused for longest.
template <NodeScore Score>
class gpu_sharing {
 public:
  static constexpr std::uint32_t max_kinds = 1024;

  // kInvalidArgument: no node, or a node whose state is not what is left of its shape.
  [[nodiscard]] static absl::StatusOr<gpu_sharing> create(node_table nodes, Score score) {
    if (nodes.size() == 0) return absl::InvalidArgumentError("a cluster needs at least one node");
    for (const node_id n : nodes.ids()) {
      if (consistent(nodes[n], nodes.shape(n))) continue;
      return absl::InvalidArgumentError("node " + std::to_string(n.value) +
                                        ": its state is not what is left of its shape");
    }
    return gpu_sharing(std::move(nodes), std::move(score));
  }

  // Where the task would go now; nothing is taken.
  // kResourceExhausted, with an empty message: it fits nowhere now.
  // kInvalidArgument: not a valid task.
  [[nodiscard]] absl::StatusOr<placement> propose(const share& task) {
    APIARY_RETURN_IF_ERROR(check(task));
    return answer(placer_.place(nodes_, kind_of(task)));
  }
  // The same among the nodes in `suggested`, a bit a node.
  // kInvalidArgument also: not one bit for each node.
  [[nodiscard]] absl::StatusOr<placement> propose(const share& task,
                                                  const summary_bitset& suggested) {
    APIARY_RETURN_IF_ERROR(check(task));
    if (suggested.size() != nodes_.size()) {
      return absl::InvalidArgumentError("suggested nodes: " + std::to_string(suggested.size()) +
                                        " bits for " + std::to_string(nodes_.size()) + " nodes");
    }
    return answer(placer_.place(nodes_, kind_of(task), suggested));
  }

  // Takes a placement, proposed here or chosen by the host.
  // kAlreadyExists: the job runs. kNotFound: no such node. kInvalidArgument: not a valid task, or
  // no job id. kAborted: the place is not free for the task (any more).
  absl::Status commit(const share& task, placement where) {
    APIARY_RETURN_IF_ERROR(check(task));
    if (!task.job.valid()) return absl::InvalidArgumentError("a task to commit needs a job id");
    if (!nodes_.contains(where.node)) return no_such(where.node);
    if (running_.contains(task.job.value)) {
      return absl::AlreadyExistsError("job " + std::to_string(task.job.value) + " runs already");
    }
    if (!can_take(nodes_, task, where)) {
      return absl::AbortedError("job " + std::to_string(task.job.value) + ": devices " +
                                std::to_string(where.device_mask) + " of node " +
                                std::to_string(where.node.value) + " are not free for it");
    }
    running_.try_emplace(task.job.value, running{task, where});
    take(nodes_, task, where);
    placer_.update(nodes_, where.node);
    return absl::OkStatus();
  }

  // The job has ended. kNotFound: it does not run.
  absl::Status finish(job_id job) {
    const auto found = running_.find(job.value);
    if (found == running_.end()) {
      return absl::NotFoundError("job " + std::to_string(job.value) + " does not run");
    }
    const running ended = found->second;
    running_.erase(found);
    give(nodes_, ended.task, ended.where);
    placer_.update(nodes_, ended.where.node);
    return absl::OkStatus();
  }

  // A bad node gets no new task; what runs there runs on. Repeated calls change nothing.
  // kNotFound: no such node.
  absl::Status mark_bad(node_id n) { return set_health(n, false); }
  absl::Status mark_healthy(node_id n) { return set_health(n, true); }

  [[nodiscard]] const node_table& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Score& score() const noexcept { return placer_.score(); }
  [[nodiscard]] std::size_t num_running() const noexcept { return running_.size(); }
  // Where a job runs.
  [[nodiscard]] std::optional<placement> find(job_id job) const {
    const auto found = running_.find(job.value);
    if (found == running_.end()) return std::nullopt;
    return found->second.where;
  }

 private:
  using kind_key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, milli_gpu, model_set>;
  struct running {
    share task;
    placement where;
  };
  struct known_kind {
    kind_id kind;
    std::uint64_t last_use = 0;
  };

  gpu_sharing(node_table nodes, Score score)
      : nodes_(std::move(nodes)), placer_(nodes_, std::move(score)) {}

  [[nodiscard]] static bool consistent(const node_state& state, const node_shape& shape) noexcept {
    if (state.gpus != shape.gpus || state.model != shape.model || !fits(state.left, shape.host))
      return false;
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) {
      if (state.gpu_left[i] > (i < shape.gpus ? whole_gpu : 0)) return false;
    }
    return true;
  }
  [[nodiscard]] static absl::Status check(const share& task) {
    if (task.valid()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "job " + std::to_string(task.job.value) + ": " + std::to_string(task.devices) +
        " GPUs of " + std::to_string(task.gpu_milli) +
        " thousandths each: a share of one GPU or whole GPUs can be asked for");
  }
  [[nodiscard]] static absl::Status no_such(node_id n) {
    return absl::NotFoundError("there is no node " + std::to_string(n.value));
  }
  [[nodiscard]] static absl::StatusOr<placement> answer(const std::optional<placement>& where) {
    if (!where) return absl::Status(absl::StatusCode::kResourceExhausted, "");
    return *where;
  }
  [[nodiscard]] static kind_key key_of(const share& task) noexcept {
    if (!task.wants_gpu()) return {task.cpu_milli, task.memory_mib, 0, 0, any_model};
    return {task.cpu_milli, task.memory_mib, task.devices, task.gpu_milli, task.models};
  }

  [[nodiscard]] kind_id kind_of(const share& task) {
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

  absl::Status set_health(node_id n, bool healthy) {
    if (!nodes_.contains(n)) return no_such(n);
    if (nodes_[n].healthy == healthy) return absl::OkStatus();
    nodes_[n].healthy = healthy;
    placer_.update(nodes_, n);
    return absl::OkStatus();
  }

  node_table nodes_;
  gradient_placer<Score> placer_;
  absl::flat_hash_map<std::uint32_t, running> running_;
  absl::flat_hash_map<kind_key, known_kind> kinds_;
  std::uint64_t uses_ = 0;
};

APIARY_NAMESPACE_END
