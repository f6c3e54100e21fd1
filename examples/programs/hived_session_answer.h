// What the answers of a session of HiveD say: names of gangs, placements, addresses, why a gang
// waits.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/json.h"
#include "session_request.h"
#include <apiary/container/bitset.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace example {

// A gang has a job id as long as the scheduler has the gang. New gangs get the next free id; after
// the largest id they start at 0 again. Memory: O(gangs + nodes suggested for them).
class gang_names {
 public:
  [[nodiscard]] std::optional<apiary::job_id> find(const std::string& name) const {
    const auto found = jobs_.find(name);
    return found == jobs_.end() ? std::nullopt : std::optional(apiary::job_id(found->second));
  }
  // The id of the gang with this name; if there is none, the id that add would give it.
  [[nodiscard]] apiary::job_id id_for(const std::string& name) const {
    const auto job = find(name);
    return job ? *job : apiary::job_id(next_);
  }
  // Requires: the job has a name.
  [[nodiscard]] const std::string& operator[](apiary::job_id job) const {
    return names_.find(job.value)->second.name;
  }
  // The names of the pods of the gang, in the order of its tasks; empty: they have none.
  [[nodiscard]] const std::vector<std::string>& pods(apiary::job_id job) const {
    static const std::vector<std::string> none;
    const auto found = names_.find(job.value);
    return found == names_.end() ? none : found->second.pods;
  }
  // The nodes suggested last for the gang; nullopt: all nodes, or there is no such gang.
  [[nodiscard]] std::optional<apiary::summary_bitset> suggested(apiary::job_id job) const {
    const auto found = names_.find(job.value);
    return found == names_.end() ? std::nullopt : found->second.suggested;
  }
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
  // A hash of the nodes suggested for each gang; it does not depend on the order of calls. 0: none.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  // Adds a name unless it exists.
  void add(const std::string& name, std::vector<std::string> pods = {}) {
    if (!jobs_.try_emplace(name, next_).second) return;
    names_.try_emplace(next_, gang{name, std::move(pods), std::nullopt});
    do {
      next_ = apiary::job_id(next_ + 1).valid() ? next_ + 1 : 0;
    } while (names_.contains(next_));
  }
  // Stores the nodes suggested for a gang, if the gang has a name. Cost: O(nodes, old and new).
  void suggest(apiary::job_id job, std::optional<apiary::summary_bitset> nodes) {
    const auto found = names_.find(job.value);
    if (found == names_.end()) return;
    hash_ ^= fact(job, found->second.suggested) ^ fact(job, nodes);
    found->second.suggested = std::move(nodes);
  }
  void remove(apiary::job_id job) {
    const auto found = names_.find(job.value);
    if (found == names_.end()) return;
    hash_ ^= fact(job, found->second.suggested);
    jobs_.erase(found->second.name);
    names_.erase(found);
  }

 private:
  struct gang {
    std::string name{};
    std::vector<std::string> pods{};
    std::optional<apiary::summary_bitset> suggested{};
  };
  static std::uint64_t fact(apiary::job_id job,
                            const std::optional<apiary::summary_bitset>& suggested) {
    if (!suggested) return 0;
    apiary::digest all;
    all.add(job.value);
    for (std::uint32_t n = suggested->find_first(); n < suggested->size();
         n = suggested->find_next(n + 1))
      all.add(n);
    return all.value();
  }

  std::unordered_map<std::string, std::uint32_t> jobs_;
  std::unordered_map<std::uint32_t, gang> names_;
  std::uint32_t next_ = 0;
  std::uint64_t hash_ = 0;
};

// The addresses of all devices of a configuration. A part of an address is the cellAddress of the
// cell. Without one it is the index of the cell: among physicalCells, above the nodes among the
// cells of its level in the same cell of physicalCells, and below among those of its level in the
// same node. Cost: O(devices * levels), also in memory.
class cell_addresses {
 public:
  // Requires: the layout of this configuration.
  cell_addresses(const apiary::hived_config& config, const apiary::hived_layout& layout)
      : of_leaf_(layout.chains.size()) {
    std::vector<std::uint32_t> roots(layout.chains.size(), 0);
    for (std::size_t i = 0; i < config.physical_cells.size(); ++i) {
      std::size_t c = 0;
      while (layout.chains[c].name != config.physical_cells[i].type) ++c;
      const apiary::level_t top = layout.chains[c].tree.num_levels() - 1;
      walk(layout.chains[c], of_leaf_[c], &config.physical_cells[i], top, roots[c]++,
           std::to_string(i), "");
    }
  }
  // The addresses of the devices of a task, by ascending position in the node.
  [[nodiscard]] std::vector<std::string> of(const apiary::hived_layout& layout,
                                            apiary::hived_placement task) const {
    std::vector<std::string> all;
    if (task.leaves == 0) return all;
    const apiary::chain_id c = layout.chain_of(task.node);
    const apiary::chain_layout& chain = layout.chain(c);
    const std::size_t first = std::size_t{task.node.value - chain.first_node} *
                              chain.tree.leaves_per_cell(chain.node_level);
    for (std::uint64_t left = task.leaves; left != 0; left &= left - 1)
      all.push_back(of_leaf_[c.value][first + static_cast<std::size_t>(std::countr_zero(left))]);
    return all;
  }

 private:
  // `cell` is null for a cell that the configuration does not list.
  static void walk(const apiary::chain_layout& chain, std::vector<std::string>& out,
                   const apiary::physical_cell_config* cell, apiary::level_t level,
                   std::uint32_t index, const std::string& otherwise, const std::string& above) {
    const bool named = cell != nullptr && !cell->address.empty();
    const std::string address = above + (named ? cell->address : otherwise);
    if (level == 0) return out.push_back(address);
    const apiary::level_t around =
        level <= chain.node_level ? chain.node_level : chain.tree.num_levels() - 1;
    const std::uint32_t siblings =
        chain.tree.leaves_per_cell(around) / chain.tree.leaves_per_cell(level - 1);
    const std::uint32_t n = chain.tree.fan_out(level);
    for (std::uint32_t i = 0; i < n; ++i) {
      const bool listed = cell != nullptr && !cell->children.empty();
      const std::uint32_t child = index * n + i;
      walk(chain, out, listed ? &cell->children[i] : nullptr, level - 1, child,
           std::to_string(child % siblings), address + '/');
    }
  }

  std::vector<std::vector<std::string>> of_leaf_;  // by chain and index of the leaf
};

// An answer is {"i": line, "result": ..., "hash": ...}. The hash covers the scheduling state, and
// the nodes that were suggested last for preempting gangs. By result:
//
//   bind     pods: [{node, devices, wholeCell}] in the order of the task groups; for schedule_pod
//            only the requested pod, where it runs now. wholeCell is the level of the whole cell that
//            contains the devices, 0 for a single device. It is a list with one level for each device
//            if they differ, which only recover and reconfigure can cause. It is absent if the gang does
//            not use cells of its tenant. A host should store it and pass it to recover. It is void
//            after the gang was in lazyPreempted; it may change when the gang is in restored, and after
//            reconfigure.
//            name, if the gang's members named their pods. addresses, if the event asks for them: each
//            device with its path, as "0/node-2/1/3".
//   preempt  victims: gangs that the host must end before it schedules the gang again;
//            reserved: as pods of bind; without wholeCell in phase Filtering, which reserves nothing
//   wait     reason: never, busy, unhealthy, not_suggested or undecided;
//            why: a sentence;
//            proof, if there is one: for never and busy an apiary::infeasibility_proof, as {chain,
//            level, groups, weighings: [{weights, needed}], cells: [{cell, weighing, most} or {cell,
//            counts}], others: the same for other chains that the gang may use}; for other reasons
//            {gpus, needed, present}: how many slots of `gpus` devices are needed and present
//   ok       after recover and reconfigure: gone: gangs without any devices left;
//            after reconfigure: shrunk: running gangs that lost some devices from the configuration;
//            after a query:
//              usage       the numbers of apiary::hived_queries::tenant_usage
//              vc_state    cells: [{cellType, cellNumber: quota, bound: how many are bound to hardware,
//                          doomed: how many unused ones can only be bound to bad hardware}],
//                          pinnedCells: ids
//              node_state  vc: the owner of the cell, or "" (of a host in several chains, the first
//                          owner); the numbers of apiary::hived_queries::cell_state, over all chains
//              gang_state  vc: the tenant, or "" if it is no longer configured; priority;
//                          state: allocated, being_preempted or preempting;
//                          as: guaranteed (on cells of its tenant), downgraded (it has lost them) or
//                          opportunistic; pods: as in bind, also for a preempting gang;
//                          victims: gangs that must still end for it; preemptors: gangs that have
//                          claimed its devices or its tenant's cells, and wait for its end
//              gangs       gangs: [{group, vc, priority, state, as}] in the order of their job ids
//              draw        lines: the text of apiary::draw; jobs: [{job: number in the text, group}]
//   error    code, message; nothing has changed
//
// All answers except errors list the gangs that lost their tenant's cells and keep running
// (lazyPreempted), the preempting gangs that must be scheduled again (cancelled), and the gangs
// that got their tenant's cells back (restored), if the operation can cause such changes. In phase
// Filtering only a bind is carried out; for other results these lists are empty.

inline void write_gangs(json_object& out, std::string_view key, const gang_names& names,
                        const std::vector<apiary::job_id>& jobs) {
  out.key(key).open('[');
  for (const apiary::job_id job : jobs) out.value(names[job]);
  out.close(']');
}

// The levels of the whole cells of devices; one number if all are equal.
inline void write_whole_cell(json_object& out, std::span<const apiary::level_t> levels) {
  if (std::all_of(levels.begin(), levels.end(), [&](auto level) { return level == levels[0]; }))
    out.key("wholeCell").value(std::uint64_t{levels[0]});
  else
    write_numbers(out, "wholeCell", levels);
}
// What an answer says of tasks besides their nodes and devices.
struct task_details {
  std::span<const apiary::level_t> whole_cells{};  // a level for each device of each task, or empty
  std::span<const std::string> names{};            // of each task, or empty
  const cell_addresses* addresses = nullptr;       // null: not asked for
};
// A task that has ended has no node and no devices.
inline void write_places(json_object& out, std::string_view key, const apiary::hived_layout& layout,
                         const std::vector<apiary::hived_placement>& tasks,
                         task_details more = {}) {
  out.key(key).open('[');
  std::span<const apiary::level_t>& whole_cells = more.whole_cells;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const apiary::hived_placement& task = tasks[t];
    const std::vector<std::uint32_t> devices = layout.devices(task);
    out.open('{');
    if (!more.names.empty()) out.key("name").value(more.names[t]);
    out.key("node").value(devices.empty() ? "" : layout.node_name(task.node));
    write_numbers(out, "devices", devices);
    if (more.addresses != nullptr) write_names(out, "addresses", more.addresses->of(layout, task));
    if (!whole_cells.empty() && !devices.empty()) {
      write_whole_cell(out, whole_cells.first(devices.size()));
      whole_cells = whole_cells.subspan(devices.size());
    }
    out.close('}');
  }
  out.close(']');
}

// The name of a level of a chain; `everything` for the level above the roots.
inline std::string level_name(const apiary::chain_layout& chain, apiary::level_t level,
                              const std::string& everything) {
  return level < chain.level_types.size() ? chain.level_types[level] : everything;
}
// The numbers of a proof.
inline void write_proof(json_object& out, const apiary::chain_layout& chain,
                        const apiary::infeasibility_proof& why, const std::string& everything) {
  out.key("chain").value(chain.level_types.back());
  out.key("level").value(level_name(chain, why.level, everything));
  write_numbers(out, "groups", why.groups);
  out.key("weighings").open('[');
  for (const apiary::infeasibility_proof::weighing& w : why.weighings) {
    out.open('{');
    write_numbers(out, "weights", w.weights);
    out.key("needed").value(w.needed).close('}');
  }
  out.close(']').key("cells").open('[');
  for (const apiary::infeasibility_proof::refusal& r : why.cells) {
    out.open('{').key("cell").value(std::uint64_t{r.cell});
    if (r.weighing == apiary::infeasibility_proof::listed) {
      write_numbers(out, "counts", r.counts);
    } else {
      out.key("weighing").value(std::uint64_t{r.weighing}).key("most").value(r.most);
    }
    out.close('}');
  }
  out.close(']');
}

// The text of a proof about a tenant's cells with "in one RACK of the tenant's cells" for "in one
// RACK": nodes that a tenant owns one by one are in no rack of it, even if they stand in one.
inline std::string name_owner(std::string text, const apiary::chain_layout& chain) {
  for (apiary::level_t l = chain.node_level + 1; l < chain.tree.num_levels(); ++l) {
    const std::string rack = " in one " + chain.level_types[l];
    for (std::size_t at = text.find(rack); at != std::string::npos; at = text.find(rack, at)) {
      at += rack.size();
      if (at == text.size() || std::string_view(" ,;.").find(text[at]) != std::string_view::npos)
        text.insert(at, " of the tenant's cells");
    }
  }
  return text;
}
// Writes why a gang waits: a reason, a sentence, and a proof.
inline void write_wait(json_object& out, const apiary::hived_layout& layout,
                       const apiary::gang_request& request, const apiary::gang_wait& wait) {
  const bool own = request.priority >= 0;
  const std::string whose =
      own ? "the cells of " + layout.tenants[request.tenant.value].name : "the cluster";
  const std::string everything = own ? "virtual cluster" : "cluster";
  const std::string reasons[] = {
      "the gang would not fit even if " + whose + " were idle and healthy",
      "gangs that it may not preempt use " + whose,
      "it would fit into " + whose + " if all hardware were healthy",
      "it would fit, but not on the suggested nodes",
      "the search ended before it found a placement in " + whose};
  std::string text = reasons[static_cast<std::size_t>(wait.reason)];
  const apiary::infeasibility_proof* why = wait.why();
  const apiary::chain_layout& chain = layout.chains[wait.chain];
  if (why != nullptr) {
    const std::string proof = why->text(apiary::constraints_of(request),
                                        apiary::cell_names(chain.level_types, everything));
    text += "; " + (own ? name_owner(proof, chain) : proof);
  } else if (wait.shortage) {
    text += "; it needs " + std::to_string(wait.shortage->needed) + " slots of " +
            std::to_string(wait.shortage->gpus) + " devices on one node and may use " +
            std::to_string(wait.shortage->present);
  }
  out.key("result").value("wait").key("reason").value(reason_name(wait.reason));
  out.key("why").value(text);
  if (why != nullptr) {
    out.key("proof").open('{');
    write_proof(out, chain, *why, everything);
    out.key("others").open('[');
    for (const apiary::gang_wait::chain_refusal& r : wait.proof) {
      if (r.chain == wait.chain) continue;
      out.open('{');
      write_proof(out, layout.chains[r.chain], r.why, everything);
      out.close('}');
    }
    out.close(']').close('}');
  } else if (wait.shortage) {
    out.key("proof").open('{').key("gpus").value(std::uint64_t{wait.shortage->gpus});
    out.key("needed").value(wait.shortage->needed);
    out.key("present").value(wait.shortage->present).close('}');
  }
}

// `pod`: writes only this task. `more`: names and addresses. Requires: a plan to bind has been
// committed.
inline void write_plan(json_object& out, const apiary::hived& scheduler, const gang_names& names,
                       const apiary::gang_request& request, const apiary::gang_plan& plan,
                       std::optional<std::uint32_t> pod, task_details more) {
  const apiary::hived_layout& layout = scheduler.layout();
  const apiary::gang_record* const gang = scheduler.find(request.job);  // null: only proposed
  std::vector<apiary::level_t> levels;
  if (gang != nullptr) levels = apiary::hived_queries::whole_cell_levels(scheduler, *gang);
  more.whole_cells = levels;
  if (plan.result == apiary::plan_result::bind) {
    std::vector<apiary::hived_placement> tasks = plan.tasks;
    if (pod) {
      std::span<const apiary::level_t>& whole_cells = more.whole_cells;
      for (std::uint32_t t = 0; t < *pod && !whole_cells.empty(); ++t)
        whole_cells = whole_cells.subspan(layout.devices(tasks[t]).size());
      tasks = {tasks[*pod]};
      if (!more.names.empty()) more.names = more.names.subspan(*pod, 1);
    }
    out.key("result").value("bind");
    write_places(out, "pods", layout, tasks, more);
  } else if (plan.result == apiary::plan_result::preempt) {
    out.key("result").value("preempt");
    write_gangs(out, "victims", names, plan.victims);
    write_places(out, "reserved", layout, plan.tasks, more);
  } else {
    write_wait(out, layout, request, plan.wait);
  }
  write_gangs(out, "lazyPreempted", names, plan.downgraded);
  write_gangs(out, "cancelled", names, plan.cancelled);
}

}  // namespace example
