// apiary/fgd/detail/task_explanation.h - why a task waits, as a text for its user.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

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
