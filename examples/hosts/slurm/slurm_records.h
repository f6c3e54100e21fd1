// apiary/examples/hosts/slurm/slurm_records.h - Slurm's nodes and jobs as plain values, and what they mean to apiary.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../programs/import/slurm_texts.h"
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace apiary_slurm {

// A node, as slurm_load_node reports it.
struct node_record {
  std::string name{};
  std::string gres{};      // "gpu:v100:8(S:0-1)"
  std::string features{};  // "fast,a"
  std::uint32_t cpus = 0;
  bool usable = true;  // it is not DOWN, DRAIN, FAIL or NO_RESPOND
};

// What Slurm does with a job.
enum class job_phase : std::uint8_t {
  held,      // pending, priority 0: it waits for a decision
  released,  // pending on the nodes of the last decision
  queued,    // pending, not released by this scheduler: Slurm decides about it
  running,   // it has nodes
  ending,    // its nodes are being cleaned up
  ended,     // finished, failed or cancelled
};

// A job, as slurm_load_jobs reports it.
struct job_record {
  std::uint32_t id = 0;
  job_phase phase = job_phase::held;
  std::string account{};
  std::uint32_t num_nodes = 0;
  std::uint32_t cpus = 0;       // of the whole job
  std::string tres_per_node{};  // "gres:gpu:8" (22.05), "gres/gpu:8" (24.11)
  std::string other_gpus{};     // GPUs asked for otherwise: by job, task or socket
  std::string features{};       // "a&b"
  std::string dependency{};
  std::string comment{};
  std::uint32_t restarts = 0;  // how often it was requeued
  std::uint32_t switches = 0;  // --switches
  bool exclusive = false;
  bool several = false;                    // an array or a heterogeneous job
  bool stuck = false;                      // released, and Slurm says that it cannot start as it is
  std::vector<std::string> nodes{};        // running: its nodes; released: the required ones
  std::vector<std::string> gres_detail{};  // running: "gpu:v100:2(IDX:0-1)", one for each node
};

// The words between separators, without empty ones.
[[nodiscard]] inline std::vector<std::string_view> words(std::string_view text, char separator) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const std::size_t end = (std::min)(text.find(separator), text.size());
    if (end > 0) all.push_back(text.substr(0, end));
    text.remove_prefix((std::min)(end + 1, text.size()));
  }
  return all;
}
// Removes the prefix; false: there is none.
inline bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}
// Reads the whole text as a decimal number.
template <class Number>
[[nodiscard]] bool read_number(std::string_view text, Number& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc() && end == text.data() + text.size();
}

// The number of GPUs in a list of Slurm's generic resources: "gres:gpu:v100:2(IDX:0-1),nic:1" is 2;
// "gpu" is 1. Nullopt: a count is no number.
[[nodiscard]] inline std::optional<std::uint32_t> gpus_of(std::string_view gres) {
  std::uint64_t all = 0;
  while (!gres.empty()) {
    std::size_t end = gres.find_first_of("(,");
    std::string_view one = gres.substr(0, end);
    if (end != std::string_view::npos && gres[end] == '(')
      end = gres.find(')', end);  // "(IDX:0,2)"
    if (end != std::string_view::npos) end = gres.find(',', end);
    gres = end == std::string_view::npos ? std::string_view() : gres.substr(end + 1);
    if (!skip(one, "gres:")) skip(one, "gres/");
    if (!skip(one, "gpu") || (!one.empty() && one[0] != ':')) continue;
    const std::size_t colon = one.rfind(':');
    if (colon == std::string_view::npos) {
      ++all;
      continue;
    }
    const std::string_view last = one.substr(colon + 1);
    std::uint32_t count = 1;  // "gpu:v100" is one
    if (!read_number(last, count)) {
      if (colon > 0 || last.empty() || last.find_first_not_of("0123456789") != 0)
        return std::nullopt;
      count = 1;
    }
    all += count;
    if (all > 1'000'000) return std::nullopt;
  }
  return static_cast<std::uint32_t>(all);
}

// The first GPU model in such a list, with a colon: "v100:"; empty: none.
[[nodiscard]] inline std::string_view model_of(std::string_view gres) {
  const std::size_t at = gres.find("gpu:");
  if (at == std::string_view::npos) return {};
  gres = gres.substr(at + 4);
  const std::size_t colon = gres.find(':');
  return colon < gres.find_first_of("(,") ? gres.substr(0, colon + 1) : std::string_view();
}

// The priority at the beginning of a job's comment: "priority=-1; waits: ..."; 0 without one.
[[nodiscard]] inline std::int32_t priority_of(std::string_view comment) {
  if (!skip(comment, "priority=")) return 0;
  std::int32_t priority = 0;
  return read_number(comment.substr(0, comment.find_first_not_of("-0123456789")), priority)
             ? priority
             : 0;
}

// The comment of a job that keeps its priority and says what happens to it.
[[nodiscard]] inline std::string comment_with(std::int32_t priority, const std::string& text) {
  return absl::StrCat("priority=", priority, "; ", text);
}
// A release sets this comment, and the job keeps it while it waits to start and runs. So it marks the
// jobs that this scheduler has released. `cells` is what the decider needs after a restart.
[[nodiscard]] inline std::string released_comment(std::int32_t priority,
                                                  std::string_view cells = {}) {
  return comment_with(
      priority, cells.empty() ? "released" : absl::StrCat("released; cells=", std::string(cells)));
}
// Whether the comment is that of a release; the scheduler may have added what a restart needs.
[[nodiscard]] inline bool has_released_mark(std::string_view comment) {
  return skip(comment, released_comment(priority_of(comment))) &&
         (comment.empty() || comment.starts_with("; cells="));
}
// The phase of a pending job. A job with required nodes (-w) and no mark is the user's: it is queued.
[[nodiscard]] inline job_phase pending_phase(std::uint32_t slurm_priority,
                                             std::string_view required_nodes,
                                             std::string_view comment) {
  if (slurm_priority == 0) return job_phase::held;
  return !required_nodes.empty() && has_released_mark(comment) ? job_phase::released
                                                               : job_phase::queued;
}

// The cluster. The topology is the output of `scontrol -o show topology`: leaf switches are racks.
// kInvalidArgument: see read_slurm and gang_cluster::check.
[[nodiscard]] inline absl::StatusOr<apiary::gang_cluster> cluster_of(
    std::string_view topology, const std::vector<node_record>& nodes) {
  std::string switches;
  for (const std::string_view line : words(topology, '\n')) {
    std::string_view name, leaves, below;
    for (const std::string_view word : words(line, ' ')) {
      if (word.starts_with("SwitchName=")) name = word;
      if (word.starts_with("Nodes=")) leaves = word;
      if (word.starts_with("Switches=") && word != "Switches=") below = word;
    }
    if (name.empty()) continue;  // "No topology information available"
    switches += std::string(name) + ' ' + std::string(below.empty() ? leaves : below) + '\n';
  }
  std::string text;
  for (const node_record& node : nodes) {
    const std::optional<std::uint32_t> gpus = gpus_of(node.gres);
    if (!gpus) return absl::InvalidArgumentError(absl::StrCat("node ", node.name, ": ", node.gres));
    absl::StrAppend(&text, "NodeName=", node.name, " CPUs=", node.cpus);
    if (*gpus > 0) absl::StrAppend(&text, " Gres=gpu:", std::string(model_of(node.gres)), *gpus);
    if (!node.features.empty()) absl::StrAppend(&text, " Feature=", node.features);
    text += '\n';
  }
  return example::read_slurm(switches, text);
}

// What a held or released job asks for: a task on each of its nodes.
struct job_needs {
  std::int32_t priority = 0;
  std::uint32_t nodes = 0;
  std::uint32_t gpus = 0;  // of each node
  std::uint32_t cpus = 0;  // of each node
  bool one_rack = false;
  std::vector<std::string_view> features{};  // that all nodes must have
};

// Reads -N nodes with --gpus-per-node GPUs each, CPUs, -C features, --switches=1. The message of
// kUnimplemented says what to ask for instead.
[[nodiscard]] inline absl::StatusOr<job_needs> needs_of(const job_record& job) {
  const auto no = [](const std::string& why) { return absl::UnimplementedError(why); };
  if (job.several)
    return no("job arrays and heterogeneous jobs are not supported: submit single jobs");
  if (!job.other_gpus.empty())
    return no(
        absl::StrCat("\"", job.other_gpus, "\" is not supported: use -N and --gpus-per-node"));
  if (job.exclusive) return no("--exclusive is not supported: ask for all GPUs of the nodes");
  if (!job.dependency.empty()) return no(absl::StrCat("its dependency: ", job.dependency));
  const std::optional<std::uint32_t> gpus = gpus_of(job.tres_per_node);
  if (!gpus || *gpus == 0 || *gpus > apiary::gang_cluster::max_gpus)
    return no(absl::StrCat("\"", job.tres_per_node, "\" is no number of GPUs from 1 to ",
                           apiary::gang_cluster::max_gpus, ": use --gpus-per-node"));
  if (job.num_nodes == 0) return no("it asks for no node");
  if (job.switches > 1) return no("--switches=N is supported for N = 1 alone");
  if (job.features.find_first_of("|[]*()!,") != std::string::npos)
    return no(absl::StrCat("-C \"", job.features, "\" is not supported: join features by & alone"));
  return job_needs{.priority = priority_of(job.comment),
                   .nodes = job.num_nodes,
                   .gpus = *gpus,
                   .cpus = (job.cpus + job.num_nodes - 1) / job.num_nodes,
                   .one_rack = job.switches == 1,
                   .features = words(job.features, '&')};
}

// The GPUs that Slurm gave a running job on its i-th node. Nullopt: the record cannot be read.
[[nodiscard]] inline std::optional<std::uint32_t> gpus_on(const job_record& job, std::size_t i) {
  return gpus_of(i < job.gres_detail.size() ? job.gres_detail[i] : "");
}

// The answer about a held job.
struct decision {
  apiary::plan_result result = apiary::plan_result::wait;
  std::vector<std::string> nodes{};      // bind: where it starts, sorted
  std::vector<std::uint32_t> victims{};  // preempt: jobs to end
  bool withdraws = false;                // wait: it gives up the GPUs that it has reserved
};

// The state of a job's gang.
enum class gang_state : std::uint8_t {
  none,        // it has no GPUs
  runs,        // it has GPUs
  preempting,  // it has reserved GPUs and waits for the end of its victims
  ends,        // it is a victim
};

}  // namespace apiary_slurm
