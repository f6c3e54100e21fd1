// apiary/gang_scheduler/detail/job_demand.h - what a job of a gang_queue needs and has; GPUs of nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/resources.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// "8 GPUs with 2.5 cores and 64 GiB each, of model "a" or "b"": CPU and memory beside each GPU.
[[nodiscard]] inline std::string text_of_demand(std::uint32_t gpus, const resources& per_gpu,
                                                std::span<const std::string> models) {
  std::string text = absl::StrCat(gpus, gpus == 1 ? " GPU" : " GPUs");
  const std::uint32_t cpu = per_gpu.cpu_milli;
  const std::uint32_t memory = per_gpu.memory_mib;
  if (cpu > 0) {
    absl::StrAppend(&text, " with ", cpu / 1000);
    if (cpu % 1000 != 0) {
      absl::StrAppend(&text, ".", absl::Dec(cpu % 1000, absl::kZeroPad3));
      text.resize(text.find_last_not_of('0') + 1);
    }
    text += cpu == 1000 ? " core" : " cores";
  }
  if (memory > 0) {
    const bool gib = memory % 1024 == 0;
    absl::StrAppend(&text, cpu > 0 ? " and " : " with ", gib ? memory / 1024 : memory,
                    gib ? " GiB" : " MiB");
  }
  const bool host = cpu > 0 || memory > 0;
  if (host && gpus > 1) text += " each";
  const char* before = host ? ", of model \"" : " of model \"";
  for (const std::string& model : models) {
    absl::StrAppend(&text, before, model, "\"");
    before = " or \"";
  }
  return text;
}

// The GPUs of nodes, by GPU model.
class node_sizes {
 public:
  struct gpus {
    std::uint32_t total = 0;
    std::uint32_t most = 0;  // of one node
  };
  void add(const std::string& model, std::uint32_t node_gpus) {
    for (gpus* const g : {&all_, &by_model_[model]}) {
      g->total += node_gpus;
      g->most = (std::max)(g->most, node_gpus);
    }
  }
  // Of the nodes that have one of these models; of all nodes if there are none.
  [[nodiscard]] gpus of(std::span<const std::string> models) const {
    if (models.empty()) return all_;
    gpus sum;
    for (const auto& [model, g] : by_model_) {
      if (std::find(models.begin(), models.end(), model) == models.end()) continue;
      sum.total += g.total;
      sum.most = (std::max)(sum.most, g.most);
    }
    return sum;
  }

 private:
  gpus all_;
  std::map<std::string, gpus> by_model_;
};

// Where a job with these tasks runs: each node once, ascending.
[[nodiscard]] inline job_placement by_node(std::vector<placement> tasks) {
  std::sort(tasks.begin(), tasks.end(),
            [](const placement& a, const placement& b) { return a.node < b.node; });
  job_placement all;
  for (const placement& p : tasks) {
    if (all.empty() || all.back().node != p.node) all.push_back({p.node, 0});
    all.back().gpu_mask |= p.gpu_mask;
  }
  return all;
}

}  // namespace detail
APIARY_NAMESPACE_END
