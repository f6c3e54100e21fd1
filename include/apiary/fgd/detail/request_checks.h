// apiary/fgd/detail/request_checks.h - errors for wrong calls of a scheduler with shared GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// OK, or kInvalidArgument for a task that is not valid(); the message starts with `name`.
[[nodiscard]] inline absl::Status check_task(const std::string& name, const task_request& task) {
  if (task.valid()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ", task.gpus, " GPUs with ", task.gpu_milli,
      "/1000 of each; a task can have a fraction of one GPU, or whole GPUs (1000/1000 of each)"));
}
// The same for a task that is known by its job.
[[nodiscard]] inline absl::Status check_task(const task_request& task) {
  return task.valid() ? absl::OkStatus() : check_task(name_of(task.job), task);
}

// OK, or kInvalidArgument if `suggested` does not have one bit for each node.
[[nodiscard]] inline absl::Status check_suggested(const summary_bitset& suggested,
                                                  std::uint32_t nodes) {
  if (suggested.size() == nodes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("suggested nodes: ", suggested.size(), " bits for ", nodes, " nodes"));
}

// Whether a node of this shape can have this state: the same GPUs, and no more left than it has.
[[nodiscard]] inline bool consistent(const node_state& state, const node_shape& shape) noexcept {
  if (state.gpus != shape.gpus || state.model != shape.model || !state.left.fits_in(shape.host))
    return false;
  for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) {
    if (state.gpu_left[i] > (i < shape.gpus ? whole_gpu : 0)) return false;
  }
  return true;
}
// OK, or kInvalidArgument for a shape that is not valid(); the message starts with `name`.
[[nodiscard]] inline absl::Status check_shape(const std::string& name, const node_shape& shape) {
  if (shape.gpus > max_gpus_per_node)
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", shape.gpus, " GPUs; a node can have at most ", max_gpus_per_node));
  if (shape.model >= max_gpu_models)
    return absl::InvalidArgumentError(absl::StrCat(name, " has GPUs of model ", shape.model,
                                                   "; a model is a number below ", max_gpu_models));
  return absl::OkStatus();
}
// OK, or kInvalidArgument for a node whose shape is not valid().
[[nodiscard]] inline absl::Status check_shapes(const node_table& nodes) {
  for (const node_id n : nodes.ids()) {
    if (!nodes.shape(n).valid()) return check_shape(absl::StrCat("node ", n.value), nodes.shape(n));
  }
  return absl::OkStatus();
}
// OK, or kInvalidArgument: no node, a shape that is not valid(), or a node that is not consistent.
[[nodiscard]] inline absl::Status check_nodes(const node_table& nodes) {
  if (nodes.size() == 0) return absl::InvalidArgumentError("a cluster needs at least one node");
  APIARY_RETURN_IF_ERROR(check_shapes(nodes));
  for (const node_id n : nodes.ids()) {
    if (consistent(nodes[n], nodes.shape(n))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("node ", n.value, ": its state does not match its shape"));
  }
  return absl::OkStatus();
}

// OK, or the error of score.check() if the score has one.
template <class Score>
[[nodiscard]] absl::Status check_score(const Score& score) {
  if constexpr (requires { score.check(); }) {
    return score.check();
  } else {
    return absl::OkStatus();
  }
}
// OK, or kInvalidArgument for a mix without tasks: with it, all placements are equally good.
[[nodiscard]] inline absl::Status check_mix(std::uint64_t total_weight) {
  if (total_weight > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("the task mix is empty; a score needs typical tasks");
}

// kAlreadyExists: the job runs already.
[[nodiscard]] inline absl::Status runs_already(job_id job) {
  return absl::AlreadyExistsError(absl::StrCat(name_of(job), " runs already"));
}
// kNotFound: the job does not run.
[[nodiscard]] inline absl::Status does_not_run(job_id job) {
  return absl::NotFoundError(job.valid() ? name_of(job) + " does not run" : missing(job));
}
// kNotFound: there is no such node.
[[nodiscard]] inline absl::Status no_such_node(node_id n) {
  return absl::NotFoundError(absl::StrCat("there is no node ", n.value));
}
// kAborted: the GPUs of a placement are not free for the job.
[[nodiscard]] inline absl::Status not_free(job_id job, placement where) {
  return absl::AbortedError(absl::StrCat(name_of(job), ": GPUs ", where.gpu_mask,
                                         " (a bit mask) of node ", where.node.value,
                                         " are not free"));
}
// kAborted: the node of a placement is bad.
[[nodiscard]] inline absl::Status is_bad(job_id job, node_id n) {
  return absl::AbortedError(absl::StrCat(name_of(job), ": node ", n.value, " is bad"));
}
// kFailedPrecondition: jobs run on a node that is to be removed.
[[nodiscard]] inline absl::Status in_use(node_id n, const std::vector<job_id>& jobs) {
  std::string list;
  for (const job_id job : jobs) absl::StrAppend(&list, list.empty() ? "" : ", ", job.value);
  return absl::FailedPreconditionError(absl::StrCat("node ", n.value, ": ", jobs.size(),
                                                    jobs.size() == 1 ? " job runs" : " jobs run",
                                                    " on it: ", list));
}
// kFailedPrecondition: tasks use more of a node than it would have.
[[nodiscard]] inline absl::Status uses_more(const node_table& nodes, node_id n) {
  const resources used = nodes.used(n);
  return absl::FailedPreconditionError(
      absl::StrCat("node ", n.value, ": its tasks use GPUs below ", nodes.used_gpus(n), ", ",
                   used.cpu_milli, " thousandths of a core and ", used.memory_mib, " MiB"));
}

}  // namespace detail
APIARY_NAMESPACE_END
