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

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// OK, or kInvalidArgument for a task that is not valid(); the message starts with `name`.
[[nodiscard]] inline absl::Status check_task(const std::string& name, const task_request& task) {
  if (task.valid()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ", task.gpus, task.gpus == 1 ? " GPU with " : " GPUs with ", task.gpu_milli,
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

// Why a node of this shape cannot have this state: it has other GPUs, or more is left than it has.
// Empty if it can.
[[nodiscard]] inline std::string state_fault(const node_state& state, const node_shape& shape) {
  if (state.gpus != shape.gpus)
    return absl::StrCat("the state has ", state.gpus, " GPUs; the shape has ", shape.gpus);
  if (state.model != shape.model)
    return absl::StrCat("the state has GPU model ", state.model, "; the shape has ", shape.model);
  if (state.left.cpu_milli > shape.host.cpu_milli)
    return absl::StrCat(state.left.cpu_milli, " thousandths of a core are left; the shape has ",
                        shape.host.cpu_milli);
  if (state.left.memory_mib > shape.host.memory_mib)
    return absl::StrCat(state.left.memory_mib, " MiB of memory are left; the shape has ",
                        shape.host.memory_mib);
  for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) {
    if (i >= shape.gpus && state.gpu_left[i] > 0)
      return absl::StrCat(state.gpu_left[i], "/1000 of GPU ", i, " are left; the shape has ",
                          shape.gpus, " GPUs, numbered from 0");
    if (state.gpu_left[i] > whole_gpu)
      return absl::StrCat(state.gpu_left[i], "/1000 of GPU ", i,
                          " are left; a GPU has at most 1000/1000");
  }
  return "";
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
// OK, or kInvalidArgument: no node, a shape that is not valid(), or a node with a state_fault().
[[nodiscard]] inline absl::Status check_nodes(const node_table& nodes) {
  if (nodes.size() == 0) return absl::InvalidArgumentError("a cluster needs at least one node");
  APIARY_RETURN_IF_ERROR(check_shapes(nodes));
  for (const node_id n : nodes.ids()) {
    const std::string fault = state_fault(nodes[n], nodes.shape(n));
    if (!fault.empty())
      return absl::InvalidArgumentError(absl::StrCat("node ", n.value, ": ", fault));
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
  return absl::NotFoundError(job.valid() ? absl::StrCat(name_of(job), " does not run")
                                         : missing(job));
}
// kNotFound: there is no such node.
[[nodiscard]] inline absl::Status no_such_node(node_id n) {
  return absl::NotFoundError(n.valid() ? absl::StrCat("there is no node ", n.value) : "no node id");
}
// The same for the node of a placement of the job.
[[nodiscard]] inline absl::Status no_such_node(job_id job, node_id n) {
  return absl::NotFoundError(absl::StrCat(name_of(job), ": ", no_such_node(n).message()));
}
// kAborted: what of a placement is not free for the task. Requires: the node exists, and
// !nodes.is_free(task, where).
[[nodiscard]] inline absl::Status not_free(const node_table& nodes, const task_request& task,
                                           placement where) {
  const node_state& node = nodes[where.node];
  const auto aborted = [&](const std::string& what) {
    return absl::AbortedError(absl::StrCat(name_of(task.job), ": node ", where.node.value, what));
  };
  const auto lacks = [&](std::uint32_t left, std::uint32_t requested, const char* unit) {
    return aborted(absl::StrCat(" has ", left, unit, " left; the task requests ", requested));
  };
  if (where.num_gpus() != task.gpus)
    return aborted(absl::StrCat(": the placement has ", where.num_gpus(),
                                " GPUs; the task requests ", task.gpus));
  const auto last = static_cast<std::uint32_t>(std::bit_width(where.gpu_mask));
  if (last > node.gpus)
    return aborted(absl::StrCat(" has ", node.gpus,
                                " GPUs, numbered from 0; the placement has GPU ", last - 1));
  if (task.wants_gpu() && !node.accessible(task.models))
    return aborted(absl::StrCat(" has GPU model ", node.model, ", which the task does not accept"));
  if (node.left.cpu_milli < task.cpu_milli)
    return lacks(node.left.cpu_milli, task.cpu_milli, " thousandths of a core");
  if (node.left.memory_mib < task.memory_mib)
    return lacks(node.left.memory_mib, task.memory_mib, " MiB of memory");
  std::uint32_t gpu = 0;
  while (gpu + 1 < last &&
         ((where.gpu_mask >> gpu & 1) == 0 || node.gpu_left[gpu] >= task.gpu_milli)) {
    ++gpu;
  }
  return lacks(node.gpu_left[gpu], task.gpu_milli, absl::StrCat("/1000 of GPU ", gpu).c_str());
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
// kFailedPrecondition: more of a node is in use than it would have with another shape.
// Requires: !nodes.can_resize(n, shape).
[[nodiscard]] inline absl::Status uses_more(const node_table& nodes, node_id n,
                                            const node_shape& shape) {
  const resources used = nodes.used(n);
  const auto in_use = [&](std::uint32_t amount, const char* unit, std::uint32_t limit) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", n.value, ": ", amount, unit, " are in use; it would have ", limit));
  };
  if (used.cpu_milli > shape.host.cpu_milli)
    return in_use(used.cpu_milli, " thousandths of a core", shape.host.cpu_milli);
  if (used.memory_mib > shape.host.memory_mib)
    return in_use(used.memory_mib, " MiB of memory", shape.host.memory_mib);
  return absl::FailedPreconditionError(
      absl::StrCat("node ", n.value, ": GPU ", nodes.used_gpus(n) - 1, " is in use; it would have ",
                   shape.gpus, " GPUs, numbered from 0"));
}

}  // namespace detail
APIARY_NAMESPACE_END
