// apiary/examples/hosts/slurm/slurm_host.h - the calls of libslurm: reads nodes and jobs, releases and requeues.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_records.h"
#include "slurm_scheduler.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <string>
#include <vector>

namespace apiary_slurm {

// The error of the last call of libslurm.
[[nodiscard]] inline absl::Status slurm_error(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", slurm_strerror(errno)));
}

// "n[0-1]" as names.
[[nodiscard]] inline std::vector<std::string> expand(const char* list) {
  std::vector<std::string> names;
  if (list == nullptr || *list == '\0') return names;
  const auto hosts = slurm_hostlist_create(list);
  while (char* const name = slurm_hostlist_shift(hosts)) {
    names.emplace_back(name);
    std::free(name);
  }
  slurm_hostlist_destroy(hosts);
  return names;
}
// Names as Slurm prints them: "n[0-1]".
[[nodiscard]] inline std::string contract(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const auto hosts = slurm_hostlist_create(absl::StrJoin(names, ",").c_str());
  std::string list(64 * names.size(), '\0');
  while (slurm_hostlist_ranged_string(hosts, list.size(), list.data()) < 0)
    list.resize(2 * list.size());
  list.resize(std::strlen(list.c_str()));
  slurm_hostlist_destroy(hosts);
  return list;
}

[[nodiscard]] inline std::string text_of(const char* text) { return text == nullptr ? "" : text; }

// After a restart, slurmctld 22.05 may count GPUs as in use on a node without jobs, and starts no job
// that needs them; such a node is not usable.
[[nodiscard]] inline node_record record_of(const node_info_t& node) {
  const std::uint32_t base = node.node_state & NODE_STATE_BASE;
  constexpr std::uint32_t bad = NODE_STATE_DRAIN | NODE_STATE_FAIL | NODE_STATE_NO_RESPOND;
  const bool leaked = base == NODE_STATE_IDLE && (node.node_state & NODE_STATE_COMPLETING) == 0 &&
                      gpus_of(text_of(node.gres_used)).value_or(0) > 0;
  return {.name = text_of(node.name),
          .gres = text_of(node.gres),
          .features = text_of(node.features_act),
          .cpus = node.cpus,
          .usable = base != NODE_STATE_DOWN && base != NODE_STATE_UNKNOWN &&
                    (node.node_state & bad) == 0 && !leaked};
}

[[nodiscard]] inline job_record record_of(const slurm_job_info_t& job) {
  job_record to{.id = job.job_id,
                .account = text_of(job.account),
                .num_nodes = job.num_nodes,
                .cpus = job.num_cpus,
                .tres_per_node = text_of(job.tres_per_node),
                .features = text_of(job.features),
                .dependency = text_of(job.dependency),
                .comment = text_of(job.comment),
                .restarts = job.restart_cnt,
                .switches = job.req_switch == NO_VAL ? 0 : job.req_switch,
                .exclusive = job.shared == 0,
                .several = job.array_job_id != 0 || job.het_job_id != 0};
  for (const char* gpus : {job.tres_per_job, job.tres_per_socket, job.tres_per_task})
    if (text_of(gpus).find("gpu") != std::string::npos) to.other_gpus = gpus;
  const std::uint32_t base = job.job_state & JOB_STATE_BASE;
  const char* nodes = nullptr;
  if ((job.job_state & JOB_COMPLETING) != 0) {
    to.phase = job_phase::ending;
  } else if (base == JOB_RUNNING || base == JOB_SUSPENDED) {
    to.phase = job_phase::running;
    nodes = job.nodes;
    for (std::uint32_t i = 0; i < job.gres_detail_cnt; ++i)
      to.gres_detail.push_back(text_of(job.gres_detail_str[i]));
  } else if (base != JOB_PENDING) {
    to.phase = job_phase::ended;
  } else {
    to.phase = pending_phase(job.priority, text_of(job.req_nodes), to.comment);
  }
  if (to.phase == job_phase::released) {
    nodes = job.req_nodes;
    to.stuck = job.state_reason == WAIT_NODE_NOT_AVAIL || job.state_reason == WAIT_TIME ||
               job.state_reason == FAIL_BAD_CONSTRAINTS;
  }
  to.nodes = expand(nodes);
  return to;
}

// Everything that Slurm reports. update() asks only for what has changed.
class slurm_report {
 public:
  // Whether anything has changed. kUnavailable: slurmctld does not answer.
  [[nodiscard]] absl::StatusOr<bool> update() {
    job_info_msg_t* new_jobs = nullptr;
    bool changed = false;
    if (slurm_load_jobs(jobs_time_, &new_jobs, SHOW_ALL | SHOW_DETAIL) == SLURM_SUCCESS) {
      jobs_time_ = new_jobs->last_update;
      jobs_.clear();
      for (std::uint32_t i = 0; i < new_jobs->record_count; ++i)
        jobs_.push_back(record_of(new_jobs->job_array[i]));
      slurm_free_job_info_msg(new_jobs);
      changed = true;
    } else if (errno != SLURM_NO_CHANGE_IN_DATA) {
      return slurm_error("slurm_load_jobs");
    }
    node_info_msg_t* new_nodes = nullptr;
    if (slurm_load_node(nodes_time_, &new_nodes, SHOW_ALL | SHOW_DETAIL) == SLURM_SUCCESS) {
      nodes_time_ = new_nodes->last_update;
      nodes_.clear();
      for (std::uint32_t i = 0; i < new_nodes->record_count; ++i)
        if (new_nodes->node_array[i].name != nullptr)
          nodes_.push_back(record_of(new_nodes->node_array[i]));
      slurm_free_node_info_msg(new_nodes);
      changed = true;
    } else if (errno != SLURM_NO_CHANGE_IN_DATA) {
      return slurm_error("slurm_load_node");
    }
    return changed;
  }
  [[nodiscard]] const std::vector<node_record>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const std::vector<job_record>& jobs() const noexcept { return jobs_; }

 private:
  std::time_t jobs_time_ = 0;
  std::time_t nodes_time_ = 0;
  std::vector<node_record> nodes_;
  std::vector<job_record> jobs_;
};

// The switches, as `scontrol -o show topology` prints them: slurm_load_topo returns nothing usable
// in Slurm 24.11.
[[nodiscard]] inline std::string read_topology() {
  std::string text;
  std::FILE* const from = popen("scontrol -o show topology 2> /dev/null", "r");
  if (from == nullptr) return text;
  char part[4096];
  while (const std::size_t read = std::fread(part, 1, sizeof part, from)) text.append(part, read);
  pclose(from);
  return text;
}

// Does what was decided.
[[nodiscard]] inline absl::Status execute(action todo) {
  // JOB_RUNNING: a job that has just completed must not run once more.
  if (todo.what == action::kind::requeue)
    return slurm_requeue(todo.job, static_cast<std::uint32_t>(JOB_REQUEUE_HOLD | JOB_RUNNING)) ==
                   SLURM_SUCCESS
               ? absl::OkStatus()
               : slurm_error("slurm_requeue");
  job_desc_msg_t change;
  slurm_init_job_desc_msg(&change);
  change.job_id = todo.job;
  std::string nodes = contract(todo.nodes);
  if (!todo.comment.empty()) change.comment = todo.comment.data();
  if (todo.what == action::kind::release) {
    change.req_nodes = nodes.data();
    change.min_nodes = change.max_nodes = static_cast<std::uint32_t>(todo.nodes.size());
    change.priority = INFINITE;
    change.begin_time = std::time(nullptr);  // else a requeued job may wait for two minutes
  } else if (todo.what == action::kind::take_back) {
    change.req_nodes = nodes.data();  // none
    change.priority = 0;
  }
  return slurm_update_job(&change) == SLURM_SUCCESS ? absl::OkStatus()
                                                    : slurm_error("slurm_update_job");
}

}  // namespace apiary_slurm
