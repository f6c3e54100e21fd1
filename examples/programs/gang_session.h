// Runs a gang scheduler on lines of JSON: reads one line, answers with one line. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "gang_session_fields.h"
#include "gang_session_request.h"
#include "hived_session_json.h"
#include "import/slurm_texts.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// The operations and their fields; examples/README.md describes the answers:
//
//   config         topology, nodes, gres: texts as in Slurm's files; or levels: [names], and
//                  nodes: [{name, cells, gpus, cpuMilli, memoryMib, model, labels, taints}]. Once.
//   propose        job: a text or a number; groups: [{tasks, gpus, cpuMilli, memoryMib, slices:
//                  [{level, tasks}], spread: [{level, tasks}], leader, leaderLevel}]; tenant (a
//                  number), priority, required, preferred, filter: {labels, models, nodes,
//                  tolerations}, now (ms). Levels by name: "node", "rack", ... Changes nothing.
//   why            as propose; explains the answer
//   replace        job: as propose, for its tasks on bad hardware
//   commit         applies the last plan of propose or replace
//   finish         job: it has ended
//   recover        as propose, and tasks: [{node, gpus: [indices]}], started (ms): it runs already
//   node_bad, node_healthy   node, gpu
//   add_node       node: {name, ...}
//   remove_node    node
//   resize_node    node, gpus, cpuMilli, memoryMib: what is missing stays as it is
//   gang           job: its tasks and its victims
//   free           level: the free GPUs of its cells
//   snapshot       the lines that make a new session the same, but for preempting gangs
//   audit          whether all invariants hold
//   note           does nothing
//
// A field that is unknown is an error: a constraint with a wrong name must not be left out.

// A session with one scheduler. An answer depends only on the line and the lines before it. An error
// changes nothing but the count of lines. A copy is independent.
class gang_session {
 public:
  // The longest line.
  static constexpr std::size_t max_line = std::size_t{1} << 24;

  // The answer to a line, without a line break.
  std::string answer(std::string_view line) {
    json_object out;
    out.key("i").value(lines_);
    const absl::Status status = line.size() > max_line
                                    ? absl::InvalidArgumentError("a line longer than 16 MiB")
                                    : carry_out(line, out);
    if (!status.ok()) {
      out = json_object();
      out.key("i").value(lines_).key("result").value("error");
      out.key("code").value(absl::StatusCodeToString(status.code()));
      out.key("message").value(std::string(status.message()));
    }
    ++lines_;
    return out.key("hash").value(hex(scheduler_ ? scheduler_->hash() : 0)).str();
  }

  // The scheduler; null until a configuration has been accepted.
  [[nodiscard]] const gang_scheduler* scheduler() const noexcept {
    return scheduler_ ? &*scheduler_ : nullptr;
  }

 private:
  using job_key = apiary::job_key;

  static absl::Status ok(json_object& out) {
    out.key("result").value("ok");
    return absl::OkStatus();
  }

  absl::Status carry_out(std::string_view line, json_object& out) {
    const auto document = apiary_kubernetes::parse(line);
    if (!document.ok()) {
      const bool deep = document.status().message().find("nested") != std::string_view::npos;
      return deep ? document.status() : absl::InvalidArgumentError("line: no valid JSON");
    }
    session_fault fault;
    session_fields from(*document, "", fault);
    from.require("op");
    const std::string op = from.text("op");
    APIARY_RETURN_IF_ERROR(fault.status());
    const auto read_all = [&] {
      from.done();
      return fault.status();
    };
    if (op == "note") return ok(out);
    if (op == "config") return configure(from, read_all, out);
    if (!scheduler_) return absl::FailedPreconditionError("there is no configuration");
    gang_scheduler& to = *scheduler_;
    if (op == "propose" || op == "why") {
      const gang_scheduler::request r = read_session_request(from, to);
      const auto now = from.number<std::int64_t>("now");
      APIARY_RETURN_IF_ERROR(read_all());
      return op == "why" ? explain(to.explain(r, now), out)
                         : propose(to.propose(r, now), r.job, out);
    }
    if (op == "recover") {
      const gang_scheduler::request r = read_session_request(from, to);
      const auto started = from.number<std::int64_t>("started");
      const std::vector<apiary::placement> tasks = read_tasks(from);
      APIARY_RETURN_IF_ERROR(read_all());
      APIARY_RETURN_IF_ERROR(to.recover(r, tasks, started));
      jobs_.insert(r.job);
      return ok(out);
    }
    if (op == "finish" || op == "gang" || op == "replace") {
      const job_key job = from.job("job");
      APIARY_RETURN_IF_ERROR(read_all());
      if (op == "gang") return describe(job, out);
      if (op == "replace") return propose(to.propose_replacement(job), job, out);
      APIARY_RETURN_IF_ERROR(to.finish(job));
      jobs_.erase(job);
      return ok(out);
    }
    if (op == "commit") {
      APIARY_RETURN_IF_ERROR(read_all());
      if (!plan_) return absl::FailedPreconditionError("there is no plan: propose first");
      APIARY_RETURN_IF_ERROR(to.commit(*plan_));
      jobs_.insert(planned_);
      plan_.reset();
      return ok(out);
    }
    if (op == "add_node") {
      gang_cluster::node node;
      from.require("node");
      from.object("node", [&](session_fields& n) { node = read_session_node(n); });
      APIARY_RETURN_IF_ERROR(read_all());
      APIARY_RETURN_IF_ERROR(to.add_node(node).status());
      nodes_.insert(node.name);
      return ok(out);
    }
    if (op == "node_bad" || op == "node_healthy" || op == "remove_node" || op == "resize_node")
      return change_node(op, from, read_all, out);
    if (op == "free") {
      const std::string level = from.text("level");
      APIARY_RETURN_IF_ERROR(read_all());
      return write_free(level, out);
    }
    if (op == "snapshot" || op == "audit") {
      APIARY_RETURN_IF_ERROR(read_all());
      if (op == "snapshot") return write_snapshot(out);
      const std::vector<std::string> found = to.audit();
      if (found.empty()) return ok(out);
      std::string all;
      for (const std::string& what : found) absl::StrAppend(&all, all.empty() ? "" : "; ", what);
      return absl::InternalError(all);
    }
    return absl::UnimplementedError("op: there is no " + json_text(op));
  }

  template <class ReadAll>
  absl::Status configure(session_fields& from, ReadAll read_all, json_object& out) {
    if (scheduler_) return absl::FailedPreconditionError("there is a configuration");
    gang_cluster cluster;
    if (from.is_text("nodes")) {
      const std::string topology = from.text("topology");
      const std::string nodes = from.text("nodes");
      const std::string gres = from.text("gres");
      APIARY_RETURN_IF_ERROR(read_all());
      APIARY_ASSIGN_OR_RETURN(cluster, example::read_slurm(topology, nodes, gres));
    } else {
      cluster.levels = from.texts("levels");
      from.require("nodes");
      from.objects("nodes",
                   [&](session_fields& n) { cluster.nodes.push_back(read_session_node(n)); });
      APIARY_RETURN_IF_ERROR(read_all());
    }
    APIARY_ASSIGN_OR_RETURN(gang_scheduler made, gang_scheduler::create(cluster));
    scheduler_.emplace(std::move(made));
    levels_ = cluster.levels;
    for (const gang_cluster::node& node : cluster.nodes) nodes_.insert(node.name);
    return ok(out);
  }

  std::vector<apiary::placement> read_tasks(session_fields& from) {
    std::vector<apiary::placement> tasks;
    from.require("tasks");
    from.objects("tasks", [&](session_fields& t) {
      const auto node = scheduler_->find_node(t.text("node"));
      if (!node.ok()) t.fault("node", std::string(node.status().message()));
      apiary::placement task{.node = node.value_or(apiary::node_id(0))};
      for (const std::uint32_t gpu : t.numbers<std::uint32_t>("gpus")) {
        if (gpu >= gang_cluster::max_gpus || (task.gpu_mask >> gpu & 1) != 0)
          t.fault("gpus", absl::StrCat("GPU ", gpu, " is given twice, or does not exist"));
        else
          task.gpu_mask |= std::uint32_t{1} << gpu;
      }
      tasks.push_back(task);
    });
    return tasks;
  }

  // Writes the plan, and keeps it for commit.
  absl::Status propose(absl::StatusOr<gang_scheduler::plan> plan, const job_key& job,
                       json_object& out) {
    APIARY_RETURN_IF_ERROR(plan.status());
    write_plan(*plan, out);
    plan_ = *std::move(plan);
    planned_ = job;
    return absl::OkStatus();
  }
  void write_plan(const gang_scheduler::plan& plan, json_object& out) const {
    using apiary::plan_result;
    if (plan.result == plan_result::wait) {
      constexpr const char* names[] = {"never", "busy", "unhealthy", "not_suggested", "undecided"};
      out.key("result").value("wait");
      out.key("reason").value(names[static_cast<std::size_t>(plan.reason)]);
      return;
    }
    out.key("result").value(plan.result == plan_result::bind ? "bind" : "preempt");
    write_task_list(out, *scheduler_, plan.tasks);
    if (plan.level != apiary::any_level)
      out.key("level").value(level_name({.levels = levels_}, plan.level));
    if (!plan.replaced.empty()) {
      out.key("replaced").open('[');
      for (const std::uint32_t task : plan.replaced) out.value(std::uint64_t{task});
      out.close(']');
    }
    if (plan.result == plan_result::bind) return;
    write_job_list(out, "victims", plan.victims);
    out.key("cost").value(plan.cost).key("lowerBound").value(plan.lower_bound);
  }

  absl::Status explain(const absl::StatusOr<gang_scheduler::explanation>& why, json_object& out) {
    APIARY_RETURN_IF_ERROR(why.status());
    write_plan(why->plan, out);
    out.key("text").value(why->text);
    std::vector<std::string> nodes;
    for (const apiary::node_id n : why->nodes_to_free) nodes.push_back(scheduler_->node(n)->name);
    write_text_list(out, "nodesToFree", nodes);
    out.key("gpusToFree").value(why->gpus_to_free);
    return absl::OkStatus();
  }

  absl::Status describe(const job_key& job, json_object& out) const {
    const gang_scheduler::running_gang* gang = scheduler_->find(job);
    if (gang == nullptr)
      return absl::NotFoundError(absl::StrCat("job ", job.text(), " does not run"));
    out.key("result").value("ok").key("state").value(gang->preempting ? "preempting" : "running");
    write_session_request(out, levels_, gang->what);
    write_task_list(out, *scheduler_, gang->tasks);
    out.key("started").value(gang->started);
    write_job_list(out, "victims", {gang->victims.begin(), gang->victims.end()});
    if (gang->ends_for) write_job(out.key("endsFor"), *gang->ends_for);
    return absl::OkStatus();
  }

  absl::Status write_free(const std::string& level, json_object& out) const {
    APIARY_ASSIGN_OR_RETURN(const apiary::level_t l, scheduler_->find_level(level));
    APIARY_ASSIGN_OR_RETURN(const auto cells, scheduler_->free_capacity(l));
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

  // The lines: config, node_bad for each mark, recover for each running gang.
  absl::Status write_snapshot(json_object& out) const {
    std::vector<std::string> lines;
    json_object config;
    config.key("op").value("config");
    write_text_list(config, "levels", levels_);
    config.key("nodes").open('[');
    for (const std::string& name : nodes_)
      write_session_node(config, *scheduler_->node(*scheduler_->find_node(name)));
    lines.push_back(config.close(']').str());
    for (const auto& [node, marks] : bad_)
      for (const std::optional<std::uint32_t>& gpu : marks) {
        json_object mark;
        mark.key("op").value("node_bad").key("node").value(node);
        if (gpu) mark.key("gpu").value(std::uint64_t{*gpu});
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
      write_session_request(recover, levels_, gang.what);
      write_task_list(recover, *scheduler_, gang.tasks);
      recover.key("started").value(gang.started);
      lines.push_back(recover.str());
    }
    out.key("result").value("ok");
    write_text_list(out, "lines", lines);
    write_job_list(out, "preempting", preempting);
    return absl::OkStatus();
  }

  template <class ReadAll>
  absl::Status change_node(const std::string& op, session_fields& from, ReadAll read_all,
                           json_object& out) {
    gang_scheduler& to = *scheduler_;
    from.require("node");
    const std::string name = from.text("node");
    std::optional<std::uint32_t> gpu;
    const bool marks = op == "node_bad" || op == "node_healthy";
    if (marks && from.has("gpu")) gpu = from.number<std::uint32_t>("gpu");
    const absl::StatusOr<apiary::node_id> found = to.find_node(name);
    std::uint32_t gpus = found.ok() ? to.node(*found)->gpus : 0;
    apiary::resources host = found.ok() ? to.node(*found)->host : apiary::resources{};
    if (op == "resize_node") {  // what is missing stays
      gpus = from.number("gpus", gpus);
      host.cpu_milli = from.number("cpuMilli", host.cpu_milli);
      host.memory_mib = from.number("memoryMib", host.memory_mib);
    }
    APIARY_RETURN_IF_ERROR(read_all());
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id id, found);
    if (op == "remove_node") {
      APIARY_RETURN_IF_ERROR(to.remove_node(id));
      nodes_.erase(name);
      bad_.erase(name);
    } else if (op == "resize_node") {
      APIARY_RETURN_IF_ERROR(to.resize_node(id, gpus, host));
      std::erase_if(bad_[name], [gpus](const auto& mark) { return mark && *mark >= gpus; });
    } else if (op == "node_bad") {
      APIARY_RETURN_IF_ERROR(to.mark_bad(id, gpu));
      bad_[name].insert(gpu);
    } else {
      APIARY_RETURN_IF_ERROR(to.mark_healthy(id, gpu));
      bad_[name].erase(gpu);
    }
    return ok(out);
  }

  std::optional<gang_scheduler> scheduler_;
  std::vector<std::string> levels_;
  std::optional<gang_scheduler::plan> plan_;  // the last one that was proposed
  job_key planned_;                           // its job
  std::set<job_key> jobs_;                    // running and preempting
  std::set<std::string> nodes_;
  std::map<std::string, std::set<std::optional<std::uint32_t>>>
      bad_;  // node -> marks; nullopt: all
  std::uint64_t lines_ = 0;
};

}  // namespace example
