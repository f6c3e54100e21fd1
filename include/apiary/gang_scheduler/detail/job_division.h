// apiary/gang_scheduler/detail/job_division.h - jobs as gangs of tasks, and why one never fits.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
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

// Divides jobs into tasks for the nodes of a cluster. per_gpu, models: as in gang_job_demand.
class job_division {
 public:
  // A node of this model, on which jobs may run.
  void add(const std::string& model, std::uint32_t gpus) { sizes_.add(model, gpus); }

  // Whether all nodes of these models together have so many GPUs.
  [[nodiscard]] bool has(std::uint32_t gpus, const std::vector<std::string>& models) const {
    return gpus <= sizes_.of(models).total;
  }
  // The GPUs of the largest tasks of a job of so many GPUs.
  [[nodiscard]] std::uint32_t task_gpus(std::uint32_t gpus,
                                        const std::vector<std::string>& models) const {
    const std::uint32_t most = sizes_.of(models).most;
    return (std::min)(gpus, (std::max)(most > 0 ? most : sizes_.of({}).most, 1U));
  }
  // A gang of tasks with so many GPUs, and one with the rest.
  [[nodiscard]] static gang_scheduler_types::request gang_of(
      const job_request& job, std::uint32_t size, const resources& per_gpu,
      const std::vector<std::string>& models) {
    gang_scheduler_types::request gang{
        .job = job.job.value, .tenant = job.tenant, .priority = job.priority};
    gang.gang.groups.push_back({.tasks = job.gpus / size, .gpus = size});
    if (job.gpus % size != 0) gang.gang.groups.push_back({.tasks = 1, .gpus = job.gpus % size});
    gang.filter.models = models;
    for (constrained_task_group& group : gang.gang.groups) {
      group.host = {group.gpus * per_gpu.cpu_milli, group.gpus * per_gpu.memory_mib};
    }
    return gang;
  }
  // kInvalidArgument: the CPU or the memory of the largest task is 2^32 units or more.
  [[nodiscard]] absl::Status check_products(const job_request& job, const resources& per_gpu,
                                            const std::vector<std::string>& models) const {
    const std::uint64_t gpus = task_gpus(job.gpus, models);
    const std::uint64_t cpu = gpus * per_gpu.cpu_milli;
    const std::uint64_t memory = gpus * per_gpu.memory_mib;
    if ((std::max)(cpu, memory) <= std::uint64_t{~0U}) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        name_of(job.job), " asks for ", text_of_demand(job.gpus, per_gpu, models), "; a task of ",
        gpus, " GPUs needs ",
        cpu > memory ? absl::StrCat(cpu, " thousandths of a core") : absl::StrCat(memory, " MiB"),
        ", more than ", ~0U));
  }
  // kInvalidArgument: the job never fits on a cluster of `all` GPUs. The message names what it
  // needs.
  [[nodiscard]] absl::Status never_fits(const job_request& job, const resources& per_gpu,
                                        const std::vector<std::string>& models,
                                        std::uint32_t all) const {
    return absl::InvalidArgumentError(
        absl::StrCat(name_of(job.job), " asks for ", text_of_demand(job.gpus, per_gpu, models),
                     ", which ", job.gpus == 1 ? "does" : "do",
                     " not fit even in the idle cluster; ", text_of_limit(job.gpus, models, all)));
  }

 private:
  // Why the job never fits: "it has 16 such GPUs", or what a task needs.
  [[nodiscard]] std::string text_of_limit(std::uint32_t gpus,
                                          const std::vector<std::string>& models,
                                          std::uint32_t all) const {
    const std::uint32_t total = sizes_.of(models).total;
    if (total < gpus)
      return absl::StrCat("it has ", total, models.empty() ? "" : " such",
                          total == 1 ? " GPU" : " GPUs",
                          sizes_.of({}).total < all ? " on nodes without taints" : "");
    return "each task, even of 1 GPU, must run on one node with its CPU and memory";
  }

  node_sizes sizes_;
};

}  // namespace detail
APIARY_NAMESPACE_END
