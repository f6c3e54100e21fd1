// Answers the queries of a session about gangs, tenants, nodes and the cluster. They change nothing.
// SPDX-License-Identifier: MIT
#pragma once

#include "../hived_drawing.h"
#include "hived_session_addresses.h"
#include "hived_session_answer.h"
#include "hived_session_event.h"
#include "hived_session_json.h"
#include "hived_session_names.h"
#include "hived_session_words.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>

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

// Answers the ops usage, vc_state, node_state, gang_state, gangs and draw (hived_session_event.h).
class session_queries {
 public:
  // Requires: addresses if the event asks for them.
  session_queries(const apiary::hived& scheduler, const gang_names& names,
                  const cell_addresses* addresses)
      : scheduler_(scheduler), names_(names), addresses_(addresses) {}

  // Answers the event. nullopt: it is not a query. kInvalidArgument: a name is missing. kNotFound: the
  // name is unknown.
  std::optional<absl::Status> answer(const session_event& e, json_object& out) const {
    if (e.op == "usage") return usage(e, out);
    if (e.op == "vc_state") return vc_state(e, out);
    if (e.op == "node_state") return node_state(e, out);
    if (e.op == "gang_state") return gang_state(e, out);
    if (e.op == "gangs") return gangs(e, out);
    if (e.op == "draw") return draw(out);
    return std::nullopt;
  }

 private:
  // Writes numbers with their names, in this order.
  static void write_numbers(json_object& out,
                            std::initializer_list<std::pair<const char*, std::uint64_t>> all) {
    for (const auto& [name, n] : all) out.key(name).value(n);
  }
  [[nodiscard]] absl::StatusOr<apiary::tenant_id> tenant_of(const session_event& e) const {
    if (e.vc.empty()) return missing("vc");
    const auto tenant = layout().find_tenant(e.vc);
    if (!tenant) return unknown("virtual cluster", e.vc);
    return *tenant;
  }
  [[nodiscard]] std::string name_of(apiary::tenant_id tenant) const {
    return tenant.valid() ? layout().tenants[tenant.value].name : "";
  }

  absl::Status usage(const session_event& e, json_object& out) const {
    APIARY_ASSIGN_OR_RETURN(const apiary::tenant_id tenant, tenant_of(e));
    APIARY_ASSIGN_OR_RETURN(const apiary::hived_queries::tenant_usage used,
                            apiary::hived_queries::usage_of(scheduler_, tenant));
    out.key("result").value("ok");
    write_numbers(out, {{"owned", used.owned},
                        {"guaranteed", used.guaranteed},
                        {"opportunistic", used.opportunistic},
                        {"claimed", used.claimed},
                        {"running", used.running},
                        {"preempting", used.preempting},
                        {"downgraded", used.downgraded}});
    return absl::OkStatus();
  }
  absl::Status vc_state(const session_event& e, json_object& out) const {
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
                                scheduler_.doomed(tenant, apiary::chain_id(c), l));
        out.open('{').key("cellType").value(type);
        write_numbers(out, {{"cellNumber", owned},
                            {"bound", scheduler_.cells().ledger(c).allocated(tenant, l)},
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
  absl::Status node_state(const session_event& e, json_object& out) const {
    APIARY_ASSIGN_OR_RETURN(const apiary::node_id node, node_of(layout(), e.node));
    apiary::hived_queries::cell_state state;
    apiary::node_id n = node;
    do {
      APIARY_ASSIGN_OR_RETURN(
          const apiary::hived_queries::cell_state more,
          apiary::hived_queries::state_of(scheduler_, layout().chain_of(n), layout().node_cell(n)));
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
    write_numbers(out, {{"leaves", state.leaves},
                        {"idle", state.idle},
                        {"guaranteed", state.guaranteed},
                        {"opportunistic", state.opportunistic},
                        {"claimed", state.claimed},
                        {"bad", state.bad}});
    return absl::OkStatus();
  }

  absl::Status gang_state(const session_event& e, json_object& out) const {
    if (e.group.empty()) return missing("group");
    const auto job = names_.find(e.group);
    if (!job) return unknown("gang", e.group);
    const apiary::gang_record& gang = *scheduler_.find(*job);
    out.key("result").value("ok");
    write_gang(out, gang);
    const std::vector<apiary::level_t> levels =
        apiary::hived_queries::whole_cell_levels(scheduler_, gang);
    write_places(out, "pods", layout(), scheduler_.tasks(gang),
                 {levels, names_.pods(*job), e.addresses ? addresses_ : nullptr});
    write_gangs(out, "victims", names_, victims_of(*job));
    write_gangs(out, "preemptors", names_, preemptors_of(gang));
    return absl::OkStatus();
  }
  absl::Status gangs(const session_event& e, json_object& out) const {
    apiary::tenant_id of;
    if (!e.vc.empty()) {
      APIARY_ASSIGN_OR_RETURN(of, tenant_of(e));
    }
    out.key("result").value("ok").key("gangs").open('[');
    for (const apiary::gang_slot s : scheduler_.gangs().by_job()) {
      const apiary::gang_record& gang = scheduler_.gangs()[s];
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
    out.key("state").value(preempting                         ? "preempting"
                           : scheduler_.being_preempted(gang) ? "being_preempted"
                                                              : "allocated");
    out.key("as").value(gang.guaranteed()           ? "guaranteed"
                        : gang.request.priority < 0 ? "opportunistic"
                                                    : "downgraded");
  }
  // The preempting gangs that have claimed devices of a gang, or wait for its end.
  [[nodiscard]] std::vector<apiary::job_id> preemptors_of(const apiary::gang_record& gang) const {
    std::vector<apiary::job_id> all;
    const auto add = [&](apiary::gang_slot s) {
      if (s.valid()) all.push_back(scheduler_.gangs()[s].request.job);
    };
    add(gang.ends_for);
    for (const apiary::chain_leaf& l : gang.leaves) {
      if (l.leaf.valid() && gang.state == apiary::gang_state::allocated)
        add(scheduler_.cells().chain(l.chain).holders(l.leaf).claimer);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  // The gangs on leaves that a preempting gang has claimed, and the gangs that must end for its cells.
  [[nodiscard]] std::vector<apiary::job_id> victims_of(apiary::job_id job) const {
    const auto own = scheduler_.gangs().find(job);
    std::vector<apiary::job_id> victims;
    for (const apiary::gang_slot s : scheduler_.gangs().by_job()) {
      const apiary::gang_record& gang = scheduler_.gangs()[s];
      const bool claimed =
          s != own && std::any_of(gang.leaves.begin(), gang.leaves.end(), [&](const auto& l) {
            return l.leaf.valid() &&
                   scheduler_.cells().chain(l.chain).holders(l.leaf).claimer == own;
          });
      if (claimed || gang.ends_for == own) victims.push_back(gang.request.job);
    }
    return victims;
  }

  absl::Status draw(json_object& out) const {
    out.key("result").value("ok").key("lines").open('[');
    const std::string text = example::draw(scheduler_);
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = text.find('\n', from);
      out.value(text.substr(from, end - from));
      from = end + 1;
    }
    out.close(']').key("jobs").open('[');
    for (const apiary::gang_slot s : scheduler_.gangs().by_job()) {
      const apiary::job_id job = scheduler_.gangs()[s].request.job;
      out.open('{').key("job").value(std::uint64_t{job.value});
      out.key("group").value(names_[job]).close('}');
    }
    out.close(']');
    return absl::OkStatus();
  }

  [[nodiscard]] const apiary::hived_layout& layout() const { return scheduler_.layout(); }

  const apiary::hived& scheduler_;
  const gang_names& names_;
  const cell_addresses* addresses_;
};

}  // namespace example
