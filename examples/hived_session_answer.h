// What a session answers: places, lists of gangs, why a gang waits.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_json.h"
#include "hived_session_names.h"
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// An answer is {"i": line, "result": ..., "hash": of the scheduling state, and of the nodes that
// preempting gangs were suggested last}, with
//
//   bind     pods [{node, devices}] in the order of the members, or the one that was asked for;
//            where the gang has its tenant's cells each with wholeCell, the level of the one that
//            it lies in, 0 for a single device: to be kept, and handed in by recover after a
//            restart. A pod that lies in several of different levels has a list of them, one for
//            each device: it came back so, or reconfigure has left it so. It may change while the
//            gang runs: it is none once the gang was named in lazyPreempted, and may be another if
//            the gang was named in restored, or after reconfigure. schedule_pod tells it as it is
//            now
//   preempt  victims [gangs] that the host is to end before it asks again,
//            reserved [{node, devices}]
//   wait     reason never, busy, unhealthy, not_suggested or undecided; why, a sentence; where
//            there is one, a certificate: if it is never or busy, apiary::certificate as {chain,
//            level, kinds, weighings [{weights, needed}], cells [{cell, weighing, most} or {cell,
//            counts}]}, with those of other chains that the gang may use in others; otherwise
//            {piece, needed, present}, a count in pieces of so many devices
//   ok       after recover and reconfigure: gone [gangs of which nothing is left]; after
//            reconfigure shrunk [gangs that run on, some of their devices no longer in the
//            configuration]; after a query:
//              usage       the numbers of apiary::tenant_usage
//              vc_state    cells [{cellType, cellNumber: promised, bound: of these to hardware now,
//                          doomed: that are not in use and must be bad}], pinnedCells [ids]
//              node_state  vc, "" if it is nobody's cell now; the numbers of apiary::cell_state
//              gang_state  vc, "" if it is no more; priority; state allocated, being_preempted or
//                          preempting; as guaranteed (on its tenant's cells), downgraded (it has
//                          lost them) or opportunistic; pods as in bind, where it runs or is to run;
//                          victims [gangs that are yet to end for it]
//              draw        lines, what apiary::draw says; jobs [{job: as it stands there, group}]
//   error    code, message; nothing has changed
//
// All of them but error name the gangs that have lost their tenant's cells and run on
// (lazyPreempted), the preempting ones that have to ask anew (cancelled), and those that have their
// tenant's cells back (restored), since the gang that took them was withdrawn or gave way or the
// configuration changed, where there can be any. In phase Filtering only a bind is carried out, and
// with it what it brings to others: otherwise these lists are empty.

inline void write_names(json_object& out, std::string_view key,
                        const std::vector<std::string>& names) {
  out.key(key).open('[');
  for (const std::string& name : names) out.value(name);
  out.close(']');
}
inline void write_gangs(json_object& out, std::string_view key, const gang_names& names,
                        const std::vector<apiary::job_id>& jobs) {
  out.key(key).open('[');
  for (const apiary::job_id job : jobs) out.value(names[job]);
  out.close(']');
}

// The levels of whole cells, one of each device: as one if they are all the same.
inline void write_whole_cell(json_object& out, std::span<const apiary::level_t> levels) {
  out.key("wholeCell");
  if (std::all_of(levels.begin(), levels.end(), [&](auto level) { return level == levels[0]; })) {
    out.value(std::uint64_t{levels[0]});
    return;
  }
  out.open('[');
  for (const apiary::level_t level : levels) out.value(std::uint64_t{level});
  out.close(']');
}
// A task that has ended has no node and no devices. whole_cells: a level for each device of each
// task, or empty.
inline void write_places(json_object& out, std::string_view key, const apiary::hived_layout& layout,
                         const std::vector<apiary::task_place>& tasks,
                         std::span<const apiary::level_t> whole_cells = {}) {
  out.key(key).open('[');
  for (const apiary::task_place& task : tasks) {
    const std::vector<std::uint32_t> devices = layout.devices(task);
    out.open('{').key("node").value(devices.empty() ? "" : layout.node_name(task.node));
    out.key("devices").open('[');
    for (const std::uint32_t device : devices) out.value(std::uint64_t{device});
    out.close(']');
    if (!whole_cells.empty() && !devices.empty()) {
      write_whole_cell(out, whole_cells.first(devices.size()));
      whole_cells = whole_cells.subspan(devices.size());
    }
    out.close('}');
  }
  out.close(']');
}

inline void write_counts(json_object& out, std::string_view key,
                         const std::vector<std::uint32_t>& counts) {
  out.key(key).open('[');
  for (const std::uint32_t n : counts) out.value(std::uint64_t{n});
  out.close(']');
}
// The name of a level of a chain; of the one above all `everything`.
inline std::string level_name(const apiary::chain_layout& chain, apiary::level_t level,
                              const std::string& everything) {
  return level < chain.level_types.size() ? chain.level_types[level] : everything;
}
// The numbers of a certificate.
inline void write_certificate(json_object& out, const apiary::chain_layout& chain,
                              const apiary::infeasibility_proof& why,
                              const std::string& everything) {
  out.key("chain").value(chain.level_types.back());
  out.key("level").value(level_name(chain, why.level, everything));
  write_counts(out, "kinds", why.groups);
  out.key("weighings").open('[');
  for (const apiary::infeasibility_proof::weighing& w : why.weighings) {
    out.open('{');
    write_counts(out, "weights", w.weights);
    out.key("needed").value(w.needed).close('}');
  }
  out.close(']').key("cells").open('[');
  for (const apiary::infeasibility_proof::refusal& r : why.cells) {
    out.open('{').key("cell").value(std::uint64_t{r.cell});
    if (r.weighing == apiary::infeasibility_proof::listed) {
      write_counts(out, "counts", r.counts);
    } else {
      out.key("weighing").value(std::uint64_t{r.weighing}).key("most").value(r.most);
    }
    out.close('}');
  }
  out.close(']');
}

// A code, a sentence, and the numbers in it.
inline void write_wait(json_object& out, const apiary::hived_layout& layout,
                       const apiary::gang_request& request, const apiary::gang_wait& wait) {
  const bool own = request.priority >= 0;
  const std::string whose =
      own ? "the cells of " + layout.tenants[request.tenant.value].name : "the cluster";
  const std::string everything = own ? "virtual cluster" : "cluster";
  const auto reason = [&]() -> std::pair<const char*, std::string> {
    switch (wait.reason) {
      case apiary::wait_reason::never:
        return {"never", "the gang would not fit even if " + whose + " were idle and healthy"};
      case apiary::wait_reason::busy:
        return {"busy", "gangs that it may not preempt use " + whose};
      case apiary::wait_reason::unhealthy:
        return {"unhealthy", "it would fit into " + whose + " if all hardware were healthy"};
      case apiary::wait_reason::not_suggested:
        return {"not_suggested", "it would fit, but not on the suggested nodes"};
      case apiary::wait_reason::undecided:
        break;
    }
    return {"undecided", "the search ended before it found a placement in " + whose};
  }();
  std::string text = reason.second;
  const apiary::infeasibility_proof* why = wait.why();
  const apiary::chain_layout& chain = layout.chains[wait.chain];
  if (why != nullptr) {
    text += "; " + apiary::to_string(*why, apiary::constraints_of(request),
                                     level_name(chain, why->level, everything));
  } else if (wait.shortage) {
    text += "; it needs " + std::to_string(wait.shortage->needed) + " slots of " +
            std::to_string(wait.shortage->gpus) + " devices on one node and may use " +
            std::to_string(wait.shortage->present);
  }
  out.key("result").value("wait").key("reason").value(reason.first).key("why").value(text);
  if (why != nullptr) {
    out.key("certificate").open('{');
    write_certificate(out, chain, *why, everything);
    out.key("others").open('[');
    for (const apiary::chain_refusal& r : wait.proof) {
      if (r.chain == wait.chain) continue;
      out.open('{');
      write_certificate(out, layout.chains[r.chain], r.why, everything);
      out.close('}');
    }
    out.close(']').close('}');
  } else if (wait.shortage) {
    out.key("certificate").open('{').key("piece").value(std::uint64_t{wait.shortage->gpus});
    out.key("needed").value(wait.shortage->needed);
    out.key("present").value(wait.shortage->present).close('}');
  }
}

// `pod`: of the places, this one only. Requires: a plan to bind was carried out.
inline void write_plan(json_object& out, const apiary::hived& scheduler, const gang_names& names,
                       const apiary::gang_request& request, const apiary::gang_plan& plan,
                       std::optional<std::uint32_t> pod) {
  const apiary::hived_layout& layout = scheduler.layout();
  if (plan.result == apiary::plan_result::bind) {
    const std::vector<apiary::level_t> levels =
        apiary::whole_cell_levels(scheduler, *scheduler.find(request.job));
    std::vector<apiary::task_place> tasks = plan.tasks;
    std::span<const apiary::level_t> whole_cells = levels;
    if (pod) {
      for (std::uint32_t t = 0; t < *pod && !whole_cells.empty(); ++t)
        whole_cells = whole_cells.subspan(layout.devices(tasks[t]).size());
      tasks = {tasks[*pod]};
    }
    out.key("result").value("bind");
    write_places(out, "pods", layout, tasks, whole_cells);
  } else if (plan.result == apiary::plan_result::preempt) {
    out.key("result").value("preempt");
    write_gangs(out, "victims", names, plan.victims);
    write_places(out, "reserved", layout, plan.tasks);
  } else {
    write_wait(out, layout, request, plan.wait);
  }
  write_gangs(out, "lazyPreempted", names, plan.downgraded);
  write_gangs(out, "cancelled", names, plan.cancelled);
}

}  // namespace example
