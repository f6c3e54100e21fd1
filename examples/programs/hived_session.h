// Runs a HiveD scheduler on lines of JSON: reads one line (hived_session_event.h), answers with one
// line (hived_session_answer.h). To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_addresses.h"
#include "hived_session_annotations.h"
#include "hived_session_answer.h"
#include "hived_session_event.h"
#include "hived_session_json.h"
#include "hived_session_names.h"
#include "hived_session_queries.h"
#include "hived_session_request.h"
#include "hived_session_words.h"
#include "hived_yaml.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// A session with one scheduler. An answer depends only on the line and the lines before it, so that a
// recorded log, read again, gives the same answers and the same hashes.
//
// An error changes nothing except the count of lines. If memory runs out while a line is carried out,
// the program ends, because the change may be incomplete.
class hived_session {
 public:
  // The answer to a line, without a line break.
  std::string answer(const std::string& line) {
    json_object out = begin();
    auto event = session_event_reader::read(line);
    absl::Status status = event.status();
    if (status.ok()) status = complete(*event);
    if (status.ok()) status = carry_out(*event, out);
    return end(status, std::move(out));
  }
  // The answer to a line `config` with this configuration.
  std::string configure(const absl::StatusOr<apiary::hived_config>& config) {
    json_object out = begin();
    const absl::Status status = start(config, out);
    return end(status, std::move(out));
  }
  // The answer to a line that cannot be read.
  std::string refuse(const absl::Status& why) { return end(why, begin()); }

  // The scheduler; null until a configuration has been accepted.
  [[nodiscard]] const apiary::hived* scheduler() const noexcept {
    return scheduler_ ? &*scheduler_ : nullptr;
  }
  [[nodiscard]] std::size_t num_names() const noexcept { return names_.size(); }

 private:
  using job_id = apiary::job_id;
  using plan_result = apiary::plan_result;

  [[nodiscard]] json_object begin() const {
    json_object out;
    out.key("i").value(lines_);
    return out;
  }
  std::string end(const absl::Status& status, json_object out) {
    if (!status.ok()) {
      out = begin();
      out.key("result").value("error");
      out.key("code").value(absl::StatusCodeToString(status.code()));
      out.key("message").value(std::string(status.message()));
    }
    ++lines_;
    const std::uint64_t state = scheduler_ ? scheduler_->hash() ^ names_.hash() : 0;
    return out.key("hash").value(hex(state)).str();
  }
  static absl::Status ok(json_object& out) {
    out.key("result").value("ok");
    return absl::OkStatus();
  }

  absl::Status start(const absl::StatusOr<apiary::hived_config>& config, json_object& out) {
    if (scheduler_) return absl::FailedPreconditionError("there is a configuration: reconfigure");
    APIARY_RETURN_IF_ERROR(config.status());
    APIARY_ASSIGN_OR_RETURN(scheduler_, apiary::hived::create(*config));
    config_ = *config;
    return ok(out);
  }
  // Finds the pod by its name, and reads annotations.
  absl::Status complete(session_event& e) {
    if (!scheduler_) return absl::OkStatus();
    if (e.op == "recover" && !(e.spec.empty() && e.bind_info.empty()))
      APIARY_RETURN_IF_ERROR(annotation_reader::read(scheduler_->layout(), e));
    if (e.pod_name.empty()) return absl::OkStatus();
    const auto job = names_.find(e.group);
    const std::vector<std::string>& names = job ? names_.pods(*job) : e.pod_names;
    const auto found = std::find(names.begin(), names.end(), e.pod_name);
    if (found == names.end())
      return absl::NotFoundError("gang " + json_text(e.group) + " has no pod " +
                                 json_text(e.pod_name));
    e.pod = static_cast<std::uint32_t>(found - names.begin());
    return absl::OkStatus();
  }
  // The addresses of the devices; null if the event does not ask for them.
  const cell_addresses* addresses_for(const session_event& e) {
    if (!e.addresses) return nullptr;
    if (!addresses_) addresses_.emplace(config_, scheduler_->layout());
    return &*addresses_;
  }

  absl::Status carry_out(const session_event& e, json_object& out) {
    if (e.op == "note" || e.op == "final") return ok(out);
    if (e.op == "config") return start(parse_hived_yaml(e.document.str()), out);
    if (!scheduler_) return absl::FailedPreconditionError("there is no configuration");
    if (e.op == "reconfigure") return reconfigure(e, out);
    if (e.op == "audit") return audit(out);
    if (const auto answered = session_queries(*scheduler_, names_, addresses_for(e)).answer(e, out))
      return *answered;
    if (e.op == "node_bad" || e.op == "node_healthy") return mark_node(e, out);
    if (e.op == "device_bad" || e.op == "device_healthy") return mark_device(e, out);
    if (e.op == "delete_pod") return finish_task(e, out);
    if (e.op == "delete")
      return finish(e, out, [&](job_id job) { return scheduler_->finish(job); });
    if (e.op == "cancel")
      return finish(e, out, [&](job_id job) { return scheduler_->cancel(job); });
    if (e.op == "recover") return recover(e, out);
    if (e.op == "schedule") return schedule(e, out);
    if (e.op == "schedule_pod") return schedule_task(e, out);
    return absl::UnimplementedError("op: there is no " + json_text(e.op));
  }

  absl::Status reconfigure(const session_event& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::hived_config config, parse_hived_yaml(e.document.str()));
    APIARY_ASSIGN_OR_RETURN(const auto report, scheduler_->reconfigure(config));
    config_ = config;
    addresses_.reset();
    out.key("result").value("ok");
    write_gangs(out, "lazyPreempted", names_, report.downgraded);
    write_gangs(out, "cancelled", names_, report.cancelled);
    write_gangs(out, "restored", names_, report.restored);
    write_gangs(out, "shrunk", names_, report.shrunk);
    write_gangs(out, "gone", names_, report.gone);
    forget(report.cancelled);
    forget(report.gone);
    return absl::OkStatus();
  }
  absl::Status audit(json_object& out) {
    const std::vector<apiary::violation> found = apiary::audit(*scheduler_);
    if (found.empty()) return ok(out);
    std::string all;
    for (const apiary::violation& v : found)
      all += (all.empty() ? "" : "; ") + v.invariant + ": " + v.witness;
    return absl::InternalError(all);
  }

  absl::Status mark_node(const session_event& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(scheduler_->layout(), e.node));
    return mark(e, node, std::nullopt, out);
  }
  absl::Status mark(const session_event& e, apiary::node_id node,
                    std::optional<std::uint32_t> position, json_object& out) {
    apiary::hived& to = *scheduler_;
    if (e.op.ends_with("_bad")) {
      APIARY_RETURN_IF_ERROR(position ? to.mark_bad(node, *position) : to.mark_bad(node));
    } else {
      APIARY_RETURN_IF_ERROR(position ? to.mark_healthy(node, *position) : to.mark_healthy(node));
    }
    return ok(out);
  }
  absl::Status mark_device(const session_event& e, json_object& out) {
    if (!e.device) return missing("device");
    APIARY_RETURN_IF_ERROR(node_of(scheduler_->layout(), e.node).status());
    const auto node = node_with(scheduler_->layout(), e.node, {*e.device});
    const auto position = scheduler_->layout().find_position(*node, *e.device);
    if (position) return mark(e, *node, position, out);
    return unknown("device " + std::to_string(*e.device) + " of node", e.node);
  }

  // `change` is the call that ends the gang or one task of it.
  template <class Change>
  absl::Status finish(const session_event& e, json_object& out, Change change) {
    if (e.group.empty()) return missing("group");
    const auto job = names_.find(e.group);
    if (!job) return unknown("gang", e.group);
    APIARY_RETURN_IF_ERROR(by_name(change(*job), {{*job, e.group}}));
    forget({*job});
    out.key("result").value("ok");
    write_gangs(out, "restored", names_, scheduler_->restored());
    return absl::OkStatus();
  }
  absl::Status finish_task(const session_event& e, json_object& out) {
    if (!e.pod) return missing("pod");
    return finish(e, out, [&](job_id job) { return scheduler_->finish_task(job, *e.pod); });
  }

  absl::Status recover(const session_event& e, json_object& out) {
    const job_id job = names_.id_for(e.group);
    APIARY_ASSIGN_OR_RETURN(const apiary::gang_request r, request_of_running(*scheduler_, e, job));
    APIARY_ASSIGN_OR_RETURN(const std::vector<apiary::hived_placement> tasks,
                            placements_of(scheduler_->layout(), e.pods));
    APIARY_ASSIGN_OR_RETURN(const std::vector<apiary::level_t> whole_cells,
                            levels_of(scheduler_->layout(), e.pods));
    APIARY_RETURN_IF_ERROR(by_name(scheduler_->catalog().check(r, true), {{job, e.group}}));
    const bool gone = std::none_of(tasks.begin(), tasks.end(),
                                   [](apiary::hived_placement task) { return task.leaves != 0; });
    std::vector<job_id> lost;  // gangs that lost cells of their tenant
    if (!gone || names_.find(e.group) || tasks.size() != num_tasks(r.groups)) {
      std::vector<apiary::gang_record::missing_leaf> lost_leaves;
      if (tasks.size() == num_tasks(r.groups))
        lost_leaves = missing_of(scheduler_->layout(), r.groups, e.pods, tasks);
      const absl::StatusOr<bool> recovered =
          scheduler_->recover(r, tasks, whole_cells, lost_leaves);
      if (!recovered.ok()) return by_name(recovered.status(), {{job, e.group}});
      names_.add(e.group, e.pod_names);
      lost = scheduler_->downgraded();
      if (!*recovered) lost.push_back(job);
    }
    out.key("result").value("ok");
    write_gangs(out, "lazyPreempted", names_, lost);
    write_names(out, "gone", gone ? std::vector<std::string>{e.group} : std::vector<std::string>());
    return absl::OkStatus();
  }
  absl::Status schedule(const session_event& e, json_object& out) {
    const bool filtering = e.phase == "Filtering";
    if (!filtering && !e.phase.empty() && e.phase != "Preempting")
      return absl::InvalidArgumentError("phase: Filtering or Preempting expected");
    const job_id job = names_.id_for(e.group);
    const apiary::gang_record* known = scheduler_->find(job);
    const bool short_form = known != nullptr && e.brief;
    auto r = short_form ? known->request : request_to_place(*scheduler_, e, job);
    APIARY_RETURN_IF_ERROR(r.status());
    std::optional<apiary::summary_bitset> nodes;
    if (e.suggested) nodes = nodes_of(scheduler_->layout(), *e.suggested);
    if (!e.suggested && short_form) nodes = names_.suggested(job);
    if (nodes && !e.ignore_suggested) r->suggested = &*nodes;
    auto plan = scheduler_->propose(*r);
    if (!plan.ok()) return by_name(plan.status(), {{job, e.group}});
    if (plan->result != plan_result::wait) std::erase(plan->cancelled, job);
    std::vector<job_id> restored;
    const bool changes = plan->result == plan_result::preempt || !plan->cancelled.empty();
    if (plan->result == plan_result::bind || (changes && !filtering)) {
      APIARY_RETURN_IF_ERROR(by_name(scheduler_->commit(*plan), {{job, e.group}}));
      restored = scheduler_->restored();
      if (plan->result != plan_result::wait) names_.add(e.group, e.pod_names);
      const bool proposes_again = plan->result == plan_result::preempt && r->suggested != nullptr;
      names_.suggest(job, proposes_again ? nodes : std::nullopt);
    } else {  // nothing was committed
      plan->downgraded.clear();
      plan->cancelled.clear();
    }
    const std::vector<std::string>& pods = names_.find(e.group) ? names_.pods(job) : e.pod_names;
    write_plan(out, *scheduler_, names_, *r, *plan, e.op == "schedule_pod" ? e.pod : std::nullopt,
               {{}, pods, addresses_for(e)});
    write_gangs(out, "restored", names_, restored);
    forget(plan->cancelled);
    return absl::OkStatus();
  }
  // Answers with the placement of a task if the gang runs; schedules the gang otherwise.
  absl::Status schedule_task(const session_event& e, json_object& out) {
    if (!e.pod) return missing("pod");
    const auto job = names_.find(e.group);
    const apiary::gang_record* gang = job ? scheduler_->find(*job) : nullptr;
    if (gang == nullptr && e.members.empty()) return unknown("gang", e.group);
    const auto& members = e.members.empty() ? gang->request.groups : e.members;
    const std::uint64_t size = num_tasks(members);
    if (*e.pod >= size) {
      return absl::NotFoundError("gang " + json_text(e.group) + " has " + std::to_string(size) +
                                 " tasks; it has no task " + std::to_string(*e.pod));
    }
    if (gang == nullptr) return schedule(e, out);
    if (members != gang->request.groups)
      return absl::InvalidArgumentError("members: differ from those of gang " + json_text(e.group));
    const std::vector<apiary::hived_placement> tasks = scheduler_->tasks(*gang);
    if (tasks[*e.pod].leaves == 0) {
      const auto [first, last] = gang->leaves_of(*e.pod);
      return absl::NotFoundError(
          "task " + std::to_string(*e.pod) + " of gang " + json_text(e.group) +
          (gang->misses(first, last) ? " is not on the configuration's nodes" : " has ended"));
    }
    if (gang->state == apiary::gang_state::preempting) return schedule(e, out);
    apiary::gang_plan recorded;
    recorded.result = plan_result::bind;
    recorded.tasks = tasks;
    write_plan(out, *scheduler_, names_, gang->request, recorded, e.pod,
               {{}, names_.pods(*job), addresses_for(e)});
    write_gangs(out, "restored", names_, {});
    return absl::OkStatus();
  }

  // Forgets the names of the gangs that the scheduler no longer has.
  void forget(const std::vector<job_id>& jobs) {
    for (const job_id job : jobs)
      if (scheduler_->find(job) == nullptr) names_.remove(job);
  }

  std::optional<apiary::hived> scheduler_;
  apiary::hived_config config_;
  std::optional<cell_addresses> addresses_;  // made when they are first asked for
  gang_names names_;
  std::uint64_t lines_ = 0;
};

}  // namespace example
