// apiary/fgd/detail/errors.h - the errors of FGD's schedulers, and why a task waits, as texts.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
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

// The largest number of tasks in a gang.
inline constexpr std::uint32_t max_gang_tasks = 1'000'000;

// OK, or kInvalidArgument for a task that is not valid(), or more than max_gang_tasks tasks.
[[nodiscard]] inline absl::Status check_tasks(const topology_constraints& gang) {
  std::uint64_t tasks = 0;
  for (std::size_t m = 0; m < gang.groups.size(); ++m) {
    APIARY_RETURN_IF_ERROR(check_task(absl::StrCat("task group ", m), gang.groups[m].task()));
    tasks += gang.groups[m].tasks;
  }
  if (tasks <= max_gang_tasks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a gang has ", tasks, " tasks; the limit is ", max_gang_tasks));
}
// OK, or kInvalidArgument for a gang, a tree or a node level that do not match.
template <CellTree Tree>
[[nodiscard]] absl::Status check_gang(const topology_constraints& gang, const Tree& tree,
                                      level_t node_level, std::uint32_t nodes) {
  if (node_level >= tree.num_levels())
    return absl::InvalidArgumentError(
        absl::StrCat("node level ", node_level, " in a tree with ", tree.num_levels(), " levels"));
  if (tree.cells(node_level).size() != nodes)
    return absl::InvalidArgumentError(absl::StrCat("level ", node_level, " of the tree has ",
                                                   tree.cells(node_level).size(), " cells for ",
                                                   nodes, " nodes"));
  APIARY_RETURN_IF_ERROR(check_tasks(gang));
  const std::string fault = gang.fault(node_level, tree.num_levels());
  if (!fault.empty()) return absl::InvalidArgumentError(fault);
  for (std::size_t m = 0; m < gang.groups.size(); ++m)
    if (gang.groups[m].leader_level != any_level)
      return absl::InvalidArgumentError(
          absl::StrCat("task group ", m,
                       " has a leader level; FGD places workers only on the node of their leader"));
  return absl::OkStatus();
}

// Whether no task group has slices, anti-affinity or a leader: only the cell of the gang counts.
[[nodiscard]] inline bool tasks_are_independent(const topology_constraints& gang) noexcept {
  return std::all_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
    return m.slices.empty() && m.spread.empty() && m.leader == no_task_group;
  });
}
// kNotFound: the job is no running gang.
[[nodiscard]] inline absl::Status no_such_gang(job_id job, bool runs) {
  if (!runs) return does_not_run(job);
  return absl::NotFoundError(absl::StrCat(name_of(job), " is no gang"));
}
// kNotFound: no task of the job runs on the node at a placement.
[[nodiscard]] inline absl::Status no_such_task(job_id job, std::uint32_t group, node_id n) {
  return absl::NotFoundError(absl::StrCat(name_of(job), " has no task of task group ", group,
                                          " on these GPUs of node ", n.value));
}

// "1 core", "2.5 cores".
[[nodiscard]] inline std::string cores(std::uint32_t milli) {
  std::string text = absl::StrCat(milli / 1000);
  if (milli % 1000 != 0) {
    absl::StrAppend(&text, ".", absl::Dec(milli % 1000, absl::kZeroPad3));
    text.resize(text.find_last_not_of('0') + 1);
  }
  return text + (milli == 1000 ? " core" : " cores");
}
// "1 GPU", "2 GPUs".
[[nodiscard]] inline std::string gpu_count(std::uint32_t gpus) {
  return absl::StrCat(gpus, gpus == 1 ? " GPU" : " GPUs");
}

// The greatest amounts of some nodes.
struct greatest_amounts {
  resources host{};
  std::uint32_t gpus = 0;
  bool any = false;  // whether there is a node

  void add(const node_shape& node) noexcept {
    host.cpu_milli = (std::max)(host.cpu_milli, node.host.cpu_milli);
    host.memory_mib = (std::max)(host.memory_mib, node.host.memory_mib);
    gpus = (std::max)(gpus, node.gpus);
    any = true;
  }
};

// Which limit keeps a task from every node, also if all are idle and healthy. Requires: one does.
[[nodiscard]] inline std::string limit_of(const node_table& nodes, const task_request& task) {
  task_request gpus = task;
  gpus.cpu_milli = gpus.memory_mib = 0;
  greatest_amounts all, with_model, with_gpus;  // those with its models; with enough GPUs of them
  for (const node_id n : nodes.ids()) {
    if (!nodes.contains(n)) continue;
    const node_shape& node = nodes.shape(n);
    all.add(node);
    if (node.gpus > 0 && (task.models >> node.model & 1) != 0) with_model.add(node);
    if (node.fits(gpus)) with_gpus.add(node);
  }
  const auto exceeds = [&](const greatest_amounts& most, const char* node) -> std::string {
    if (task.memory_mib > most.host.memory_mib)
      return absl::StrCat("it requests ", task.memory_mib, " MiB of memory; ", node,
                          " has at most ", most.host.memory_mib, " MiB");
    if (task.cpu_milli > most.host.cpu_milli)
      return absl::StrCat("it requests ", cores(task.cpu_milli), "; ", node, " has at most ",
                          cores(most.host.cpu_milli));
    return "";
  };
  if (!all.any) return "the cluster has no node";
  if (const std::string limit = exceeds(all, "a node"); !limit.empty()) return limit;
  const char* const models = task.models == any_model ? "" : " of the models that it accepts";
  if (task.wants_gpu() && !with_model.any) return absl::StrCat("no node has a GPU", models);
  if (!with_gpus.any)
    return absl::StrCat("it requests ", gpu_count(task.gpus), models, "; a node has at most ",
                        with_model.gpus);
  const std::string limit =
      exceeds(with_gpus, absl::StrCat("a node with ", gpu_count(task.gpus), models).c_str());
  return limit.empty() ? "no node has all the CPU, memory and GPUs that it requests" : limit;
}

// What a task lacks on nodes that could run it if they were idle and healthy. Each node counts
// once: as not suggested, as bad, or for the first of GPUs, CPU and memory that it lacks.
class task_shortage {
 public:
  // Whether no node was added.
  [[nodiscard]] bool empty() const noexcept { return nodes_ == 0; }
  // Adds a node that the host does not suggest.
  void add_not_suggested(bool fits_now) noexcept {
    ++nodes_;
    ++not_suggested_;
    not_suggested_fit_ += fits_now ? 1 : 0;
  }
  // Adds a node. Requires: the task does not fit now.
  void add(const node_state& node, const task_request& task) noexcept {
    ++nodes_;
    if (!node.healthy) {
      ++bad_;
      return;
    }
    std::uint32_t enough = 0;
    milli_gpu largest = 0;
    for (const milli_gpu left : node.each_gpu()) {
      enough += left >= task.gpu_milli ? 1 : 0;
      largest = (std::max)(largest, left);
    }
    if (enough < task.gpus) {
      gpus_.add(task.wants_part_of_gpu() ? largest : enough);
    } else if (node.left.cpu_milli < task.cpu_milli) {
      cpu_.add(node.left.cpu_milli);
    } else {
      memory_.add(node.left.memory_mib);
    }
  }
  // "of 5 nodes that could run it, 3 lack free GPUs (the freest has 1; it needs 2), 2 are bad"
  [[nodiscard]] std::string text(const task_request& task) const {
    std::string said = absl::StrCat(
        nodes_ == 1 ? "of 1 node" : absl::StrCat("of ", nodes_, " nodes"), " that could run it");
    const auto say = [&](std::uint32_t nodes, const char* one, const char* several,
                         const std::string& what) {
      if (nodes > 0) absl::StrAppend(&said, ", ", nodes, nodes == 1 ? one : several, what);
    };
    const auto freest = [](const std::string& most, const std::string& wanted) {
      return absl::StrCat(" (the freest has ", most, "; it needs ", wanted, ")");
    };
    const auto amounts = [&](std::uint32_t most, std::uint32_t wanted, const char* unit) {
      return freest(absl::StrCat(most, unit), absl::StrCat(wanted, unit));
    };
    say(gpus_.nodes, " lacks", " lack",
        task.wants_part_of_gpu()
            ? " a GPU with enough left" + amounts(gpus_.most, task.gpu_milli, "/1000")
            : " free GPUs" + amounts(gpus_.most, task.gpus, ""));
    say(cpu_.nodes, " lacks", " lack", " CPU" + freest(cores(cpu_.most), cores(task.cpu_milli)));
    say(memory_.nodes, " lacks", " lack",
        " memory" + amounts(memory_.most, task.memory_mib, " MiB"));
    say(bad_, " is bad", " are bad", "");
    say(not_suggested_, " is not suggested", " are not suggested",
        absl::StrCat(" (", not_suggested_fit_, " could run it now)"));
    return said;
  }

 private:
  struct lacking {
    std::uint32_t nodes = 0;
    std::uint32_t most = 0;  // the most that one of them has left
    void add(std::uint32_t left) noexcept {
      ++nodes;
      most = (std::max)(most, left);
    }
  };
  std::uint32_t nodes_ = 0, bad_ = 0, not_suggested_ = 0, not_suggested_fit_ = 0;
  lacking gpus_{}, cpu_{}, memory_{};
};

// Why the task waits: "never: " and the limit, or "not now: " and what it lacks, by GPU model if
// the cluster has others than model 0; empty if it fits now, on a suggested node if `suggested` is
// not null. Requires: task.valid(); `suggested` has a bit for each node. Cost: O(nodes).
[[nodiscard]] inline std::string explain_task(const node_table& nodes, const task_request& task,
                                              const summary_bitset* suggested) {
  std::array<task_shortage, max_gpu_models> by_model{};  // all in the first one without GPUs
  bool never = true;
  bool has_models = false;  // others than model 0
  for (const node_id n : nodes.ids()) {
    if (nodes.contains(n) && nodes.shape(n).gpus > 0 && nodes.shape(n).model != 0)
      has_models = true;
    if (!nodes.contains(n) || !nodes.shape(n).fits(task)) continue;
    const bool fits = nodes[n].fits(task);
    const bool may_run = suggested == nullptr || suggested->test(n.value);
    if (fits && may_run) return "";
    never = false;
    task_shortage& of_model = by_model[task.wants_gpu() ? nodes.shape(n).model : 0];
    if (may_run) {
      of_model.add(nodes[n], task);
    } else {
      of_model.add_not_suggested(fits);
    }
  }
  if (never) return "never: " + limit_of(nodes, task);
  std::string text;
  for (std::size_t model = 0; model < by_model.size(); ++model) {
    if (by_model[model].empty()) continue;
    absl::StrAppend(&text, text.empty() ? "not now: " : "; ",
                    task.wants_gpu() && has_models ? absl::StrCat("GPU model ", model, ": ") : "",
                    by_model[model].text(task));
  }
  return text;
}

}  // namespace detail
APIARY_NAMESPACE_END
