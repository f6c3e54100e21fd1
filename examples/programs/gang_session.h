// The verbs of a session of the gang scheduler. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/json.h"
#include "import/slurm_texts.h"
#include "session.h"
#include "session_request.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace example {

using apiary::gang_cluster;
using apiary::gang_scheduler;

// Carries out the lines of a session. examples/README.md describes the answers.
class gang_verbs {
 public:
  static constexpr session_kind kind = session_kind::gang;

  [[nodiscard]] const gang_scheduler* scheduler() const noexcept {
    return scheduler_ ? &*scheduler_ : nullptr;
  }
  [[nodiscard]] std::uint64_t hash() const { return scheduler_ ? scheduler_->hash() : 0; }

 private:
  using request = session_request;
  using job_key = apiary::job_key;

  // -- the cluster

  absl::Status config(const request& e, json_object& out) {
    if (scheduler_) return absl::FailedPreconditionError("there is a configuration");
    gang_cluster cluster{.levels = e.levels};
    if (!e.nodes.text.empty()) {
      APIARY_ASSIGN_OR_RETURN(cluster, read_slurm(e.topology, e.nodes.text, e.gres));
    } else if (e.nodes.empty()) {
      return missing("nodes");
    }
    for (const session_node& node : e.nodes) cluster.nodes.push_back(cluster_node(node));
    APIARY_ASSIGN_OR_RETURN(gang_scheduler made, gang_scheduler::create(cluster));
    scheduler_.emplace(std::move(made));
    levels_ = cluster.levels;
    for (const gang_cluster::node& node : cluster.nodes) nodes_.insert(node.name);
    return session_ok(out);
  }
  static gang_cluster::node cluster_node(const session_node& from) {
    return {.name = from.name,
            .cells = from.cells,
            .gpus = from.gpus,
            .host = {.cpu_milli = from.cpu_milli, .memory_mib = from.memory_mib},
            .model = from.model,
            .labels = from.labels,
            .taints = from.taints};
  }
  absl::StatusOr<apiary::node_id> node_of(const request& e) const {
    if (e.node.name.empty()) return missing("node");
    return scheduler_->find_node(e.node.name);
  }
  absl::Status mark(const request& e, json_object& out) {
    const bool of_device = e.op.starts_with("device");
    if (of_device && !e.device) return missing("device");
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(e));
    if (e.op.ends_with("_bad")) {
      APIARY_RETURN_IF_ERROR(scheduler_->mark_bad(node, e.device));
      bad_[e.node.name].insert(e.device);
    } else {
      APIARY_RETURN_IF_ERROR(scheduler_->mark_healthy(node, e.device));
      bad_[e.node.name].erase(e.device);
    }
    return session_ok(out);
  }
  absl::Status add_node(const request& e, json_object& out) {
    if (e.node.name.empty()) return missing("node.name");
    APIARY_RETURN_IF_ERROR(scheduler_->add_node(cluster_node(e.node)).status());
    nodes_.insert(e.node.name);
    return session_ok(out);
  }
  absl::Status remove_node(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(e));
    APIARY_RETURN_IF_ERROR(scheduler_->remove_node(node));
    nodes_.erase(e.node.name);
    bad_.erase(e.node.name);
    return session_ok(out);
  }
  absl::Status resize_node(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(e));
    const gang_cluster::node& now = *scheduler_->node(node);
    const std::uint32_t gpus = e.gpus.value_or(now.gpus);
    const apiary::resources host{.cpu_milli = e.cpu_milli.value_or(now.host.cpu_milli),
                                 .memory_mib = e.memory_mib.value_or(now.host.memory_mib)};
    APIARY_RETURN_IF_ERROR(scheduler_->resize_node(node, gpus, host));
    std::erase_if(bad_[e.node.name], [gpus](const auto& gpu) { return gpu && *gpu >= gpus; });
    return session_ok(out);
  }
  absl::Status free_capacity(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::level_t level, scheduler_->find_level(e.level));
    APIARY_ASSIGN_OR_RETURN(const auto cells, scheduler_->free_capacity(level));
    out.key("result").value("ok").key("cells").open('[');
    for (const gang_scheduler::cell_capacity& cell : cells) {
      out.open('{').key("name").value(cell.name);
      out.key("nodes").value(std::uint64_t{cell.nodes});
      out.key("freeNodes").value(std::uint64_t{cell.free_nodes});
      out.key("gpus").value(cell.gpus).key("freeGpus").value(cell.free_gpus).close('}');
    }
    out.close(']');
    return absl::OkStatus();
  }
  absl::Status audit(const request&, json_object& out) {
    std::string all;
    for (const std::string& what : scheduler_->audit())
      absl::StrAppend(&all, all.empty() ? "" : "; ", what);
    return all.empty() ? session_ok(out) : absl::InternalError(all);
  }

  // -- gangs

  // A level by its name; `none` if there is no name.
  absl::StatusOr<apiary::level_t> level_of(const std::string& name, const std::string& path,
                                           apiary::level_t none = apiary::any_level) const {
    if (name.empty()) return none;
    const auto level = scheduler_->find_level(name);
    if (level.ok()) return level;
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", level.status().message()));
  }
  absl::Status read_levels(const std::vector<session_level>& from, const std::string& path,
                           std::vector<apiary::level_count>& to) const {
    for (const session_level& s : from) {
      const std::string place = absl::StrCat(path, "[", to.size(), "].level");
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level, level_of(s.level, place, 0));
      to.push_back({level, s.pods});
    }
    return absl::OkStatus();
  }
  absl::StatusOr<gang_scheduler::request> request_of(const request& e) const {
    if (!e.group.valid()) return missing("group");
    if (e.members.empty()) return missing("members");
    gang_scheduler::request r{.job = e.group,
                              .tenant = apiary::tenant_id(e.tenant.value_or(0)),
                              .priority = e.priority.value_or(0),
                              .filter = {.labels = e.filter.labels,
                                         .models = e.filter.models,
                                         .nodes = e.filter.nodes,
                                         .tolerations = e.filter.tolerations}};
    APIARY_ASSIGN_OR_RETURN(r.gang.required, level_of(e.required, "required"));
    APIARY_ASSIGN_OR_RETURN(r.gang.preferred, level_of(e.preferred, "preferred"));
    for (const session_member& m : e.members) {
      const std::string path = absl::StrCat("members[", r.gang.groups.size(), "].");
      auto& group = r.gang.groups.emplace_back();
      group.tasks = m.pods;
      group.gpus = m.leafs;
      group.host = {.cpu_milli = m.cpu_milli, .memory_mib = m.memory_mib};
      group.leader = m.leader.value_or(apiary::no_task_group);
      APIARY_ASSIGN_OR_RETURN(group.leader_level, level_of(m.leader_level, path + "leaderLevel"));
      APIARY_RETURN_IF_ERROR(read_levels(m.slices, path + "slices", group.slices));
      APIARY_RETURN_IF_ERROR(read_levels(m.spread, path + "spread", group.spread));
    }
    return r;
  }
  absl::StatusOr<std::vector<apiary::placement>> tasks_of(const request& e) const {
    std::vector<apiary::placement> tasks;
    if (e.pods.empty()) return missing("pods");
    for (const session_place& pod : e.pods) {
      const std::string path = absl::StrCat("pods[", tasks.size(), "].");
      const auto node = scheduler_->find_node(pod.node);
      if (!node.ok())
        return absl::InvalidArgumentError(absl::StrCat(path, "node: ", node.status().message()));
      apiary::placement& task = tasks.emplace_back();
      task.node = *node;
      for (const std::uint32_t gpu : pod.devices) {
        if (gpu >= gang_cluster::max_gpus || (task.gpu_mask >> gpu & 1) != 0)
          return absl::InvalidArgumentError(
              absl::StrCat(path, "devices: GPU ", gpu, " is given twice, or does not exist"));
        task.gpu_mask |= std::uint32_t{1} << gpu;
      }
    }
    return tasks;
  }

  absl::Status propose(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const gang_scheduler::request r, request_of(e));
    return keep(scheduler_->propose(r, e.now), r.job, out);
  }
  absl::Status replace(const request& e, json_object& out) {
    if (!e.group.valid()) return missing("group");
    return keep(scheduler_->propose_replacement(e.group), e.group, out);
  }
  // Writes the plan, and keeps it for commit.
  absl::Status keep(absl::StatusOr<gang_scheduler::plan> plan, const job_key& job,
                    json_object& out) {
    APIARY_RETURN_IF_ERROR(plan.status());
    write_plan(*plan, out);
    plan_ = *std::move(plan);
    planned_ = job;
    return absl::OkStatus();
  }
  absl::Status commit(const request&, json_object& out) {
    if (!plan_) return absl::FailedPreconditionError("there is no plan: propose first");
    APIARY_RETURN_IF_ERROR(scheduler_->commit(*plan_));
    jobs_.insert(planned_);
    plan_.reset();
    return session_ok(out);
  }
  absl::Status schedule(const request& e, json_object& out) {
    APIARY_RETURN_IF_ERROR(propose(e, out));
    if (plan_->result == apiary::plan_result::wait) return absl::OkStatus();
    json_object committed;
    return commit(e, committed);
  }
  absl::Status why(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const gang_scheduler::request r, request_of(e));
    APIARY_ASSIGN_OR_RETURN(const auto found, scheduler_->explain(r, e.now));
    write_plan(found.plan, out);
    out.key("text").value(found.text);
    std::vector<std::string> nodes;
    for (const apiary::node_id n : found.nodes_to_free) nodes.push_back(scheduler_->node(n)->name);
    write_names(out, "nodesToFree", nodes);
    out.key("gpusToFree").value(found.gpus_to_free);
    return absl::OkStatus();
  }
  absl::Status recover(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const gang_scheduler::request r, request_of(e));
    APIARY_ASSIGN_OR_RETURN(const std::vector<apiary::placement> tasks, tasks_of(e));
    APIARY_RETURN_IF_ERROR(scheduler_->recover(r, tasks, e.started));
    jobs_.insert(r.job);
    return session_ok(out);
  }
  absl::Status finish(const request& e, json_object& out) {
    if (!e.group.valid()) return missing("group");
    APIARY_RETURN_IF_ERROR(scheduler_->finish(e.group));
    jobs_.erase(e.group);
    return session_ok(out);
  }
  absl::Status gang_state(const request& e, json_object& out) {
    if (!e.group.valid()) return missing("group");
    const gang_scheduler::running_gang* gang = scheduler_->find(e.group);
    if (gang == nullptr)
      return absl::NotFoundError(absl::StrCat("job ", e.group.text(), " does not run"));
    out.key("result").value("ok").key("state").value(gang->preempting ? "preempting"
                                                     : gang->ends_for ? "being_preempted"
                                                                      : "allocated");
    write_request(out, gang->what);
    write_tasks(out, gang->tasks);
    out.key("started").value(gang->started);
    write_jobs(out, "victims", {gang->victims.begin(), gang->victims.end()});
    if (gang->ends_for) write_job(out.key("endsFor"), *gang->ends_for);
    return absl::OkStatus();
  }

  // The lines: config, the marks of bad hardware, recover for each running gang.
  absl::Status snapshot(const request&, json_object& out) {
    std::vector<std::string> lines;
    json_object config;
    config.key("op").value("config");
    write_names(config, "levels", levels_);
    config.key("nodes").open('[');
    for (const std::string& name : nodes_)
      write_node(config, *scheduler_->node(*scheduler_->find_node(name)));
    lines.push_back(config.close(']').str());
    for (const auto& [node, marks] : bad_)
      for (const std::optional<std::uint32_t>& gpu : marks) {
        json_object mark;
        mark.key("op").value(gpu ? "device_bad" : "node_bad").key("node").value(node);
        if (gpu) mark.key("device").value(std::uint64_t{*gpu});
        lines.push_back(mark.str());
      }
    std::vector<job_key> preempting;
    for (const job_key& job : jobs_) {
      const gang_scheduler::running_gang& gang = *scheduler_->find(job);
      if (gang.preempting) {
        preempting.push_back(job);
        continue;
      }
      json_object recover;
      recover.key("op").value("recover");
      write_request(recover, gang.what);
      write_tasks(recover, gang.tasks);
      lines.push_back(recover.key("started").value(gang.started).str());
    }
    out.key("result").value("ok");
    write_names(out, "lines", lines);
    write_jobs(out, "preempting", preempting);
    return absl::OkStatus();
  }

  // -- answers

  // The name of a level; "cluster" for the level above all others.
  [[nodiscard]] std::string level_name(apiary::level_t l) const {
    if (l == 0) return "node";
    return l <= levels_.size() ? levels_[l - 1] : "cluster";
  }
  void write_plan(const gang_scheduler::plan& plan, json_object& out) const {
    using apiary::plan_result;
    if (plan.result == plan_result::wait) {
      out.key("result").value("wait").key("reason").value(reason_name(plan.reason));
      return;
    }
    out.key("result").value(plan.result == plan_result::bind ? "bind" : "preempt");
    write_tasks(out, plan.tasks);
    if (plan.level != apiary::any_level) out.key("level").value(level_name(plan.level));
    if (!plan.replaced.empty()) write_numbers(out, "replaced", plan.replaced);
    if (plan.result == plan_result::bind) return;
    write_jobs(out, "victims", plan.victims);
    out.key("cost").value(plan.cost).key("lowerBound").value(plan.lower_bound);
  }
  static void write_job(json_object& out, const job_key& job) {
    if (job.is_text())
      out.value(job.text());
    else
      out.value(job.number());
  }
  static void write_jobs(json_object& out, const char* key, const std::vector<job_key>& jobs) {
    out.key(key).open('[');
    for (const job_key& job : jobs) write_job(out, job);
    out.close(']');
  }
  void write_tasks(json_object& out, const std::vector<apiary::placement>& tasks) const {
    out.key("pods").open('[');
    for (const apiary::placement& task : tasks) {
      const gang_cluster::node* node = scheduler_->node(task.node);
      std::vector<std::uint32_t> gpus;
      for (std::uint32_t gpu = 0; gpu < gang_cluster::max_gpus; ++gpu)
        if ((task.gpu_mask >> gpu & 1) != 0) gpus.push_back(gpu);
      out.open('{').key("node").value(node == nullptr ? std::string() : node->name);
      write_numbers(out, "devices", gpus);
      out.close('}');
    }
    out.close(']');
  }
  static void write_node(json_object& out, const gang_cluster::node& node) {
    out.open('{').key("name").value(node.name);
    write_names(out, "cells", node.cells);
    out.key("gpus").value(std::uint64_t{node.gpus});
    out.key("cpuMilli").value(std::uint64_t{node.host.cpu_milli});
    out.key("memoryMib").value(std::uint64_t{node.host.memory_mib});
    out.key("model").value(node.model);
    write_names(out, "labels", node.labels);
    write_names(out, "taints", node.taints);
    out.close('}');
  }
  // The fields that request_of reads as this request.
  void write_request(json_object& out, const gang_scheduler::request& r) const {
    const auto level = [&](const char* key, apiary::level_t l) {
      if (l != apiary::any_level) out.key(key).value(level_name(l));
    };
    const auto counts = [&](const char* key, const std::vector<apiary::level_count>& all) {
      out.key(key).open('[');
      for (const apiary::level_count& c : all) {
        out.open('{').key("level").value(level_name(c.level));
        out.key("pods").value(std::uint64_t{c.tasks}).close('}');
      }
      out.close(']');
    };
    write_job(out.key("group"), r.job);
    out.key("tenant").value(std::uint64_t{r.tenant.value});
    out.key("priority").value(r.priority);
    out.key("members").open('[');
    for (const apiary::constrained_task_group& g : r.gang.groups) {
      out.open('{').key("pods").value(std::uint64_t{g.tasks});
      out.key("leafs").value(std::uint64_t{g.gpus});
      out.key("cpuMilli").value(std::uint64_t{g.host.cpu_milli});
      out.key("memoryMib").value(std::uint64_t{g.host.memory_mib});
      if (g.leader != apiary::no_task_group) out.key("leader").value(std::uint64_t{g.leader});
      level("leaderLevel", g.leader_level);
      counts("slices", g.slices);
      counts("spread", g.spread);
      out.close('}');
    }
    out.close(']');
    level("required", r.gang.required);
    level("preferred", r.gang.preferred);
    out.key("filter").open('{');
    write_names(out, "labels", r.filter.labels);
    write_names(out, "models", r.filter.models);
    const auto nodes = r.filter.nodes.names();
    write_names(out, "nodes", {nodes.begin(), nodes.end()});
    write_names(out, "tolerations", r.filter.tolerations);
    out.close('}');
  }

  std::optional<gang_scheduler> scheduler_;
  std::vector<std::string> levels_;
  std::optional<gang_scheduler::plan> plan_;  // the last one that was proposed
  job_key planned_;                           // its job
  std::set<job_key> jobs_;                    // running and preempting
  std::set<std::string> nodes_;
  // node -> bad GPUs; nullopt: the node
  std::map<std::string, std::set<std::optional<std::uint32_t>>> bad_;

 public:
  static constexpr const char* gang_fields =
      "group tenant priority members required preferred filter now";
  static constexpr session_verb<gang_verbs> verbs[] = {
      {"config", "the cluster: texts of Slurm, or levels and a list of nodes; once",
       &gang_verbs::config, "topology nodes gres levels"},
      {"propose", "where the gang would run, whom it would preempt, or that it waits",
       &gang_verbs::propose, gang_fields},
      {"commit", "applies the last plan of propose or replace", &gang_verbs::commit, ""},
      {"schedule", "propose and commit", &gang_verbs::schedule, gang_fields},
      {"why", "as propose, with a sentence and the nodes that would help", &gang_verbs::why,
       gang_fields},
      {"replace", "as propose, for the tasks of a gang on bad hardware", &gang_verbs::replace,
       "group"},
      {"delete", "the gang has ended", &gang_verbs::finish, "group"},
      {"recover", "the gang runs already; pods as in the answers", &gang_verbs::recover,
       "group tenant priority members required preferred filter pods started"},
      {"node_bad", "", &gang_verbs::mark, "node"},
      {"node_healthy", "", &gang_verbs::mark, "node"},
      {"device_bad", "one GPU", &gang_verbs::mark, "node device"},
      {"device_healthy", "one GPU", &gang_verbs::mark, "node device"},
      {"add_node", "node is an object, as in config", &gang_verbs::add_node, "node"},
      {"remove_node", "no gang is on it", &gang_verbs::remove_node, "node"},
      {"resize_node", "what is missing stays as it is", &gang_verbs::resize_node,
       "node gpus cpuMilli memoryMib"},
      {"gang_state", "request, tasks and victims of a gang", &gang_verbs::gang_state, "group"},
      {"free", "the free nodes and GPUs of each cell of a level", &gang_verbs::free_capacity,
       "level"},
      {"snapshot", "the lines that make a new session the same, but for preempting gangs",
       &gang_verbs::snapshot, ""},
      {"audit", "whether all invariants hold", &gang_verbs::audit, ""}};
};

using gang_session = session<gang_verbs>;

}  // namespace example
