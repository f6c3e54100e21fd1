// The verbs of a session of HiveD. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "../hived_drawing.h"
#include "../text/json.h"
#include "hived_session_answer.h"
#include "hived_session_request.h"
#include "hived_yaml.h"
#include "session.h"
#include "session_request.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace example {

// Carries out the lines of a session. examples/README.md and hived_session_answer.h describe the
// answers.
class hived_verbs {
 public:
  static constexpr session_kind kind = session_kind::hived;

  // Takes the configuration, unless there is one.
  absl::Status start(const absl::StatusOr<apiary::hived_config>& config, json_object& out) {
    if (scheduler_) return absl::FailedPreconditionError("there is a configuration: reconfigure");
    APIARY_RETURN_IF_ERROR(config.status());
    APIARY_ASSIGN_OR_RETURN(scheduler_, apiary::hived::create(*config));
    config_ = *config;
    return session_ok(out);
  }
  [[nodiscard]] const apiary::hived* scheduler() const noexcept {
    return scheduler_ ? &*scheduler_ : nullptr;
  }
  // Names of gangs.
  [[nodiscard]] std::size_t num_names() const noexcept { return names_.size(); }
  // Covers the nodes that were suggested last for preempting gangs, too.
  [[nodiscard]] std::uint64_t hash() const {
    return scheduler_ ? scheduler_->hash() ^ names_.hash() : 0;
  }

 private:
  using job_id = apiary::job_id;
  using plan_result = apiary::plan_result;
  using request = session_request;

  [[nodiscard]] const apiary::hived_layout& layout() const { return scheduler_->layout(); }
  // The gang of a line.
  absl::StatusOr<job_id> gang_of(const request& e) const {
    if (!e.group.valid()) return missing("group");
    const auto job = names_.find(e.group.text());
    if (!job) return unknown("gang", e.group.text());
    return *job;
  }
  // The number of the pod; pods may have names.
  absl::StatusOr<std::uint32_t> pod_of(const request& e) const {
    if (e.pod) return *e.pod;
    if (e.pod.name.empty()) return missing("pod");
    const auto job = names_.find(e.group.text());
    const std::vector<std::string>& names = job ? names_.pods(*job) : e.pod_names;
    const auto found = std::find(names.begin(), names.end(), e.pod.name);
    if (found == names.end())
      return absl::NotFoundError("gang " + json_text(e.group.text()) + " has no pod " +
                                 json_text(e.pod.name));
    return static_cast<std::uint32_t>(found - names.begin());
  }
  // The addresses of the devices; null if the line does not ask for them.
  const cell_addresses* addresses_for(const request& e) {
    if (!e.addresses) return nullptr;
    if (!addresses_) addresses_.emplace(config_, layout());
    return &*addresses_;
  }

  // -- the cluster

  absl::Status config(const request& e, json_object& out) {
    return start(parse_hived_yaml(e.document.str()), out);
  }
  absl::Status reconfigure(const request& e, json_object& out) {
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
  absl::Status audit(const request&, json_object& out) {
    const std::vector<apiary::violation> found = apiary::audit(*scheduler_);
    if (found.empty()) return session_ok(out);
    std::string all;
    for (const apiary::violation& v : found)
      all += (all.empty() ? "" : "; ") + v.invariant + ": " + v.witness;
    return absl::InternalError(all);
  }

  absl::Status mark(const request& e, json_object& out) {
    const bool bad = e.op.ends_with("_bad");
    apiary::hived& to = *scheduler_;
    if (e.op.starts_with("device") && !e.device) return missing("device");
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(layout(), e.node.name));
    if (!e.device) {
      APIARY_RETURN_IF_ERROR(bad ? to.mark_bad(node) : to.mark_healthy(node));
      return session_ok(out);
    }
    const apiary::node_id with = *node_with(layout(), e.node.name, {*e.device});
    const auto position = layout().find_position(with, *e.device);
    if (!position) return unknown("device " + std::to_string(*e.device) + " of node", e.node.name);
    APIARY_RETURN_IF_ERROR(bad ? to.mark_bad(with, *position) : to.mark_healthy(with, *position));
    return session_ok(out);
  }

  // -- gangs

  // `change` is the call that ends the gang or one task of it.
  template <class Change>
  absl::Status end(const request& e, json_object& out, Change change) {
    APIARY_ASSIGN_OR_RETURN(const job_id job, gang_of(e));
    APIARY_RETURN_IF_ERROR(by_name(change(job), {{job, e.group.text()}}));
    forget({job});
    out.key("result").value("ok");
    write_gangs(out, "restored", names_, scheduler_->restored());
    return absl::OkStatus();
  }
  absl::Status finish(const request& e, json_object& out) {
    return end(e, out, [this](job_id job) { return scheduler_->finish(job); });
  }
  absl::Status cancel(const request& e, json_object& out) {
    return end(e, out, [this](job_id job) { return scheduler_->cancel(job); });
  }
  absl::Status finish_task(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const std::uint32_t pod, pod_of(e));
    return end(e, out, [&](job_id job) { return scheduler_->finish_task(job, pod); });
  }

  absl::Status recover(const request& line, json_object& out) {
    if (line.spec.empty() && line.bind_info.empty()) return recover_described(line, out);
    request e = line;
    APIARY_RETURN_IF_ERROR(annotation_reader::read(layout(), e));
    return recover_described(e, out);
  }
  absl::Status recover_described(const request& e, json_object& out) {
    const std::string group = e.group.text();
    const job_id job = names_.id_for(group);
    APIARY_ASSIGN_OR_RETURN(const apiary::gang_request r, request_of_running(*scheduler_, e, job));
    APIARY_ASSIGN_OR_RETURN(const std::vector<apiary::hived_placement> tasks,
                            placements_of(layout(), e.pods));
    APIARY_ASSIGN_OR_RETURN(const std::vector<apiary::level_t> whole_cells,
                            levels_of(layout(), e.pods));
    APIARY_RETURN_IF_ERROR(by_name(scheduler_->catalog().check(r, true), {{job, group}}));
    const bool gone = std::none_of(tasks.begin(), tasks.end(),
                                   [](apiary::hived_placement task) { return task.leaves != 0; });
    std::vector<job_id> lost;  // gangs that lost cells of their tenant
    if (!gone || names_.find(group) || tasks.size() != num_tasks(r.groups)) {
      std::vector<apiary::gang_record::missing_leaf> lost_leaves;
      if (tasks.size() == num_tasks(r.groups))
        lost_leaves = missing_of(layout(), r.groups, e.pods, tasks);
      const absl::StatusOr<bool> recovered =
          scheduler_->recover(r, tasks, whole_cells, lost_leaves);
      if (!recovered.ok()) return by_name(recovered.status(), {{job, group}});
      names_.add(group, e.pod_names);
      lost = scheduler_->downgraded();
      if (!*recovered) lost.push_back(job);
    }
    out.key("result").value("ok");
    write_gangs(out, "lazyPreempted", names_, lost);
    write_names(out, "gone", gone ? std::vector<std::string>{group} : std::vector<std::string>());
    return absl::OkStatus();
  }
  absl::Status schedule(const request& e, json_object& out) {
    return schedule(e, std::nullopt, out);
  }
  // `pod`: the answer has this task only.
  absl::Status schedule(const request& e, std::optional<std::uint32_t> pod, json_object& out) {
    const bool filtering = e.phase == "Filtering";
    if (!filtering && !e.phase.empty() && e.phase != "Preempting")
      return absl::InvalidArgumentError("phase: Filtering or Preempting expected");
    const std::string group = e.group.text();
    const job_id job = names_.id_for(group);
    const apiary::gang_record* known = scheduler_->find(job);
    const bool short_form = known != nullptr && description_in(e, false).empty();
    auto r = short_form ? known->request : request_to_place(*scheduler_, e, job);
    APIARY_RETURN_IF_ERROR(r.status());
    std::optional<apiary::summary_bitset> nodes;
    if (e.suggested) nodes = nodes_of(layout(), *e.suggested);
    if (!e.suggested && short_form) nodes = names_.suggested(job);
    if (nodes && !e.ignore_suggested) r->suggested = &*nodes;
    auto plan = scheduler_->propose(*r);
    if (!plan.ok()) return by_name(plan.status(), {{job, group}});
    if (plan->result != plan_result::wait) std::erase(plan->cancelled, job);
    std::vector<job_id> restored;
    const bool changes = plan->result == plan_result::preempt || !plan->cancelled.empty();
    if (plan->result == plan_result::bind || (changes && !filtering)) {
      APIARY_RETURN_IF_ERROR(by_name(scheduler_->commit(*plan), {{job, group}}));
      restored = scheduler_->restored();
      if (plan->result != plan_result::wait) names_.add(group, e.pod_names);
      const bool proposes_again = plan->result == plan_result::preempt && r->suggested != nullptr;
      names_.suggest(job, proposes_again ? nodes : std::nullopt);
    } else {  // nothing was committed
      plan->downgraded.clear();
      plan->cancelled.clear();
    }
    const std::vector<std::string>& pods = names_.find(group) ? names_.pods(job) : e.pod_names;
    write_plan(out, *scheduler_, names_, *r, *plan, pod, {{}, pods, addresses_for(e)});
    write_gangs(out, "restored", names_, restored);
    forget(plan->cancelled);
    return absl::OkStatus();
  }
  // Answers with the placement of a task if the gang runs; schedules the gang otherwise.
  absl::Status schedule_task(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const std::uint32_t pod, pod_of(e));
    const std::string group = e.group.text();
    const auto job = names_.find(group);
    const apiary::gang_record* gang = job ? scheduler_->find(*job) : nullptr;
    if (gang == nullptr && e.members.empty()) return unknown("gang", group);
    const auto members = e.members.empty() ? gang->request.groups : groups_of(e.members);
    const std::uint64_t size = num_tasks(members);
    if (pod >= size) {
      return absl::NotFoundError("gang " + json_text(group) + " has " + std::to_string(size) +
                                 " tasks; it has no task " + std::to_string(pod));
    }
    if (gang == nullptr) return schedule(e, pod, out);
    if (members != gang->request.groups)
      return absl::InvalidArgumentError("members: differ from those of gang " + json_text(group));
    const std::vector<apiary::hived_placement> tasks = scheduler_->tasks(*gang);
    if (tasks[pod].leaves == 0) {
      const auto [first, last] = gang->leaves_of(pod);
      return absl::NotFoundError(
          "task " + std::to_string(pod) + " of gang " + json_text(group) +
          (gang->misses(first, last) ? " is not on the configuration's nodes" : " has ended"));
    }
    if (gang->state == apiary::gang_state::preempting) return schedule(e, pod, out);
    apiary::gang_plan recorded;
    recorded.result = plan_result::bind;
    recorded.tasks = tasks;
    write_plan(out, *scheduler_, names_, gang->request, recorded, pod,
               {{}, names_.pods(*job), addresses_for(e)});
    write_gangs(out, "restored", names_, {});
    return absl::OkStatus();
  }

  // Forgets the names of the gangs that the scheduler no longer has.
  void forget(const std::vector<job_id>& jobs) {
    for (const job_id job : jobs)
      if (scheduler_->find(job) == nullptr) names_.remove(job);
  }

  // -- queries: they change nothing

  // Writes numbers with their names, in this order.
  static void write_each(json_object& out,
                         std::initializer_list<std::pair<const char*, std::uint64_t>> all) {
    for (const auto& [name, n] : all) out.key(name).value(n);
  }
  [[nodiscard]] absl::StatusOr<apiary::tenant_id> tenant_of(const request& e) const {
    if (e.vc.empty()) return missing("vc");
    const auto tenant = layout().find_tenant(e.vc);
    if (!tenant) return unknown("virtual cluster", e.vc);
    return *tenant;
  }
  [[nodiscard]] std::string name_of(apiary::tenant_id tenant) const {
    return tenant.valid() ? layout().tenants[tenant.value].name : "";
  }

  absl::Status usage(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::tenant_id tenant, tenant_of(e));
    APIARY_ASSIGN_OR_RETURN(const apiary::hived_queries::tenant_usage used,
                            apiary::hived_queries::usage_of(*scheduler_, tenant));
    out.key("result").value("ok");
    write_each(out, {{"owned", used.owned},
                     {"guaranteed", used.guaranteed},
                     {"opportunistic", used.opportunistic},
                     {"claimed", used.claimed},
                     {"running", used.running},
                     {"preempting", used.preempting},
                     {"downgraded", used.downgraded}});
    return absl::OkStatus();
  }
  absl::Status vc_state(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::tenant_id tenant, tenant_of(e));
    out.key("result").value("ok").key("cells").open('[');
    for (std::uint32_t c = 0; c < layout().chains.size(); ++c) {
      const apiary::chain_layout& chain = layout().chains[c];
      std::string type;  // as in the configuration
      for (apiary::level_t l = chain.tree.num_levels(); l-- > 0;) {
        type += (type.empty() ? "" : ".") + chain.level_types[l];
        const std::uint32_t owned = layout().tenants[tenant.value].quota[c][l];
        if (owned == 0) continue;
        APIARY_ASSIGN_OR_RETURN(const std::uint32_t doomed,
                                scheduler_->doomed(tenant, apiary::chain_id(c), l));
        out.open('{').key("cellType").value(type);
        write_each(out, {{"cellNumber", owned},
                         {"bound", scheduler_->cells().ledger(c).allocated(tenant, l)},
                         {"doomed", doomed}});
        out.close('}');
      }
    }
    out.close(']').key("pinnedCells").open('[');
    for (const apiary::pinned_layout& pinned : layout().pinned)
      if (pinned.tenant == tenant) out.value(pinned.id);
    out.close(']');
    return absl::OkStatus();
  }
  absl::Status node_state(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(layout(), e.node.name));
    apiary::hived_queries::cell_state state;
    apiary::node_id n = node;
    do {
      APIARY_ASSIGN_OR_RETURN(const apiary::hived_queries::cell_state more,
                              apiary::hived_queries::state_of(*scheduler_, layout().chain_of(n),
                                                              layout().node_cell(n)));
      if (!state.bound_to.valid()) state.bound_to = more.bound_to;
      state.leaves += more.leaves;
      state.idle += more.idle;
      state.guaranteed += more.guaranteed;
      state.opportunistic += more.opportunistic;
      state.claimed += more.claimed;
      state.bad += more.bad;
      n = layout().next_of_host(n);
    } while (n != node);
    out.key("result").value("ok").key("vc").value(name_of(state.bound_to));
    write_each(out, {{"leaves", state.leaves},
                     {"idle", state.idle},
                     {"guaranteed", state.guaranteed},
                     {"opportunistic", state.opportunistic},
                     {"claimed", state.claimed},
                     {"bad", state.bad}});
    return absl::OkStatus();
  }

  absl::Status gang_state(const request& e, json_object& out) {
    APIARY_ASSIGN_OR_RETURN(const job_id job, gang_of(e));
    const apiary::gang_record& gang = *scheduler_->find(job);
    out.key("result").value("ok");
    write_gang(out, gang);
    const std::vector<apiary::level_t> levels =
        apiary::hived_queries::whole_cell_levels(*scheduler_, gang);
    write_places(out, "pods", layout(), scheduler_->tasks(gang),
                 {levels, names_.pods(job), addresses_for(e)});
    write_gangs(out, "victims", names_, victims_of(job));
    write_gangs(out, "preemptors", names_, preemptors_of(gang));
    return absl::OkStatus();
  }
  absl::Status gangs(const request& e, json_object& out) {
    apiary::tenant_id of;
    if (!e.vc.empty()) {
      APIARY_ASSIGN_OR_RETURN(of, tenant_of(e));
    }
    out.key("result").value("ok").key("gangs").open('[');
    for (const apiary::gang_slot s : scheduler_->gangs().by_job()) {
      const apiary::gang_record& gang = scheduler_->gangs()[s];
      if (of.valid() && gang.request.tenant != of) continue;
      out.open('{').key("group").value(names_[gang.request.job]);
      write_gang(out, gang);
      out.close('}');
    }
    out.close(']');
    return absl::OkStatus();
  }
  void write_gang(json_object& out, const apiary::gang_record& gang) const {
    const bool preempting = gang.state == apiary::gang_state::preempting;
    out.key("vc").value(name_of(gang.request.tenant));
    out.key("priority").value(gang.request.priority);
    out.key("state").value(preempting                          ? "preempting"
                           : scheduler_->being_preempted(gang) ? "being_preempted"
                                                               : "allocated");
    out.key("as").value(gang.guaranteed()           ? "guaranteed"
                        : gang.request.priority < 0 ? "opportunistic"
                                                    : "downgraded");
  }
  // The preempting gangs that have claimed devices of a gang, or wait for its end.
  [[nodiscard]] std::vector<apiary::job_id> preemptors_of(const apiary::gang_record& gang) const {
    std::vector<apiary::job_id> all;
    const auto add = [&](apiary::gang_slot s) {
      if (s.valid()) all.push_back(scheduler_->gangs()[s].request.job);
    };
    add(gang.ends_for);
    for (const apiary::chain_leaf& l : gang.leaves) {
      if (l.leaf.valid() && gang.state == apiary::gang_state::allocated)
        add(scheduler_->cells().chain(l.chain).holders(l.leaf).claimer);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  // The gangs on leaves that a preempting gang has claimed, and the gangs that must end for its
  // cells.
  [[nodiscard]] std::vector<apiary::job_id> victims_of(apiary::job_id job) const {
    const auto own = scheduler_->gangs().find(job);
    std::vector<apiary::job_id> victims;
    for (const apiary::gang_slot s : scheduler_->gangs().by_job()) {
      const apiary::gang_record& gang = scheduler_->gangs()[s];
      const bool claimed =
          s != own && std::any_of(gang.leaves.begin(), gang.leaves.end(), [&](const auto& l) {
            return l.leaf.valid() &&
                   scheduler_->cells().chain(l.chain).holders(l.leaf).claimer == own;
          });
      if (claimed || gang.ends_for == own) victims.push_back(gang.request.job);
    }
    return victims;
  }

  absl::Status draw(const request&, json_object& out) {
    out.key("result").value("ok").key("lines").open('[');
    const std::string text = example::draw(*scheduler_);
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = text.find('\n', from);
      out.value(text.substr(from, end - from));
      from = end + 1;
    }
    out.close(']').key("jobs").open('[');
    for (const apiary::gang_slot s : scheduler_->gangs().by_job()) {
      const apiary::job_id job = scheduler_->gangs()[s].request.job;
      out.open('{').key("job").value(std::uint64_t{job.value});
      out.key("group").value(names_[job]).close('}');
    }
    out.close(']');
    return absl::OkStatus();
  }

  std::optional<apiary::hived> scheduler_;
  apiary::hived_config config_;
  std::optional<cell_addresses> addresses_;  // made when they are first asked for
  gang_names names_;

 public:
  static constexpr const char* gang_fields =
      "group vc priority members leafType lazy pinned required preferred chains excludedChains "
      "suggested ignoreSuggested phase addresses pod";
  static constexpr session_verb<hived_verbs> verbs[] = {
      {"config", "the configuration, as in YAML; once", &hived_verbs::config, "*"},
      {"reconfigure", "another configuration; the answer lists the gangs that it affects",
       &hived_verbs::reconfigure, "*"},
      {"schedule",
       "places the gang, or preempts for it; a preempting gang may be sent again by name alone",
       &hived_verbs::schedule, gang_fields},
      {"schedule_pod", "as schedule; the answer has this task only", &hived_verbs::schedule_task,
       gang_fields},
      {"delete", "the gang has ended", &hived_verbs::finish, "group"},
      {"delete_pod", "one task has ended", &hived_verbs::finish_task, "group pod"},
      {"cancel", "ends the preemption of a gang", &hived_verbs::cancel, "group"},
      {"recover", "the gang runs already; pods as in the answers, or spec and bindInfo",
       &hived_verbs::recover,
       "group vc priority members leafType lazy pinned required preferred chains excludedChains "
       "suggested ignoreSuggested phase spec bindInfo pods"},
      {"node_bad", "", &hived_verbs::mark, "node"},
      {"node_healthy", "", &hived_verbs::mark, "node"},
      {"device_bad", "one GPU", &hived_verbs::mark, "node device"},
      {"device_healthy", "one GPU", &hived_verbs::mark, "node device"},
      {"usage", "how many devices the tenant owns and uses", &hived_verbs::usage, "vc"},
      {"vc_state", "the tenant's quota, and how many of the cells are bound and doomed",
       &hived_verbs::vc_state, "vc"},
      {"node_state", "who owns the node's cell now, and what its devices are used for",
       &hived_verbs::node_state, "node"},
      {"gang_state", "tenant, state, tasks and victims of a gang", &hived_verbs::gang_state,
       "group addresses"},
      {"gangs", "all gangs, or those of a tenant", &hived_verbs::gangs, "vc"},
      {"draw", "the whole cluster as text", &hived_verbs::draw, ""},
      {"audit", "whether all invariants hold", &hived_verbs::audit, ""}};
};

using hived_session = session<hived_verbs>;

}  // namespace example
