// apiary/tests/support/naive_gang_scheduler.h - a gang scheduler that recomputes everything, to compare with.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/plan.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <support/naive_constraints.h>
#include <utility>
#include <vector>

namespace apiary_test {

// Keeps the nodes and the gangs, and nothing else. It judges the answers of a gang_scheduler: where
// several are right it takes over the one that was given.
class naive_gang_scheduler {
 public:
  using request = apiary::gang_scheduler::request;
  using plan = apiary::gang_scheduler::plan;
  struct node {
    apiary::gang_cluster::node shape{};
    bool bad = false;
    std::uint32_t bad_gpus = 0;
  };
  struct gang {
    request what{};
    std::vector<apiary::placement> tasks{};
    apiary::time_ms started = 0;
    bool preempting = false;
    std::set<apiary::job_key> victims{};
    std::optional<apiary::job_key> ends_for{};
  };
  std::uint32_t levels = 0;  // above the nodes
  // Plans whose victims allow the lowest level that any victims of the same cost allow, and others.
  std::uint64_t lowest = 0;
  std::uint64_t not_lowest = 0;
  apiary::time_ms now = 0;
  std::map<std::uint32_t, node> nodes{};
  std::map<apiary::job_key, gang> gangs{};
  std::map<std::uint32_t, apiary::disruption_budget> budgets{};  // by tenant
  // Of a gang; else the number of gangs by priority, then their GPU-time.
  std::uint64_t (*cost)(const request&) = nullptr;

  // Whether the answer to a request of a gang that does not run is right; empty, or what is wrong.
  // `optimal` counts the plans whose victims were proved to be the cheapest.
  [[nodiscard]] std::string fault(const request& r, const plan& p, std::uint64_t& optimal) {
    const apiary::level_t top = levels + 1;
    const apiary::level_t last = std::min(r.gang.required, top);
    const std::optional<apiary::level_t> first = first_level(r, {});
    if (p.result == apiary::plan_result::bind) {
      if (!first) return "it does not fit, and it is bound";
      if (p.level != *first) return "it is bound at another level than the lowest";
      return fault_of_tasks(r, p, {});
    }
    if (first) return "it fits, and it is not bound";
    const std::vector<apiary::job_key> all = candidates(r);
    if (p.result == apiary::plan_result::preempt) {
      const std::set<apiary::job_key> victims(p.victims.begin(), p.victims.end());
      if (victims.empty() || victims.size() != p.victims.size()) return "wrong victims";
      for (const apiary::job_key& v : victims)
        if (!std::binary_search(all.begin(), all.end(), v)) return "a victim is no candidate";
      if (!within_budgets(victims)) return "a disruption budget is exceeded";
      for (const apiary::job_key& v : victims) {
        std::set<apiary::job_key> fewer = victims;
        fewer.erase(v);
        if (first_level(r, fewer)) return "a victim is not needed";
      }
      if (!(p.level <= last)) return "the wrong level";
      const std::string wrong = fault_of_tasks(r, p, victims);
      if (!wrong.empty()) return wrong;
    }
    if (all.size() <= 7) {
      const auto [best, exists] = least(r, all);
      if (!exists && p.result == apiary::plan_result::preempt) return "no set of victims is enough";
      if (exists && p.result == apiary::plan_result::wait)
        return p.reason == apiary::wait_reason::undecided || overcommitted()
                   ? ""
                   : "victims were not found";
      if (exists) {
        const std::vector<std::uint64_t> got = cost_of({p.victims.begin(), p.victims.end()});
        if (got < best) return "it costs less than possible";
        if (p.cost == p.lower_bound) {
          if (got != best) return "it is called the cheapest, and is not";
          ++optimal;
          if (r.gang.preferred < last)
            ++(p.level == lowest_level(r, all, best) ? lowest : not_lowest);
        }
      }
    }
    if (p.result == apiary::plan_result::preempt) return "";
    if (!p.tasks.empty() || !p.victims.empty()) return "it waits, with tasks or victims";
    request without_list = r;
    without_list.filter.nodes = {};
    if (!r.filter.nodes.empty() && first_level(without_list, {}))
      return p.reason == apiary::wait_reason::not_suggested ? "" : "it would fit without its list";
    switch (p.reason) {
      case apiary::wait_reason::undecided:
        return "";
      case apiary::wait_reason::never:
        return fits_somewhere(r, cluster(r, use::whole)) ? "it is not never" : "";
      case apiary::wait_reason::unhealthy:
        return !fits_somewhere(r, cluster(r, use::whole)) ||
                       fits_somewhere(r, cluster(r, use::healthy))
                   ? "it is not the health"
                   : "";
      case apiary::wait_reason::busy:
        return fits_somewhere(r, cluster(r, use::healthy)) ? "" : "it is not busy";
      default:
        return "a reason that does not exist";
    }
  }
  void commit(const request& r, const plan& p) {
    gang& g = gangs[r.job];
    const bool starts = g.preempting && p.result != apiary::plan_result::preempt;
    if (g.tasks.empty() || starts) g.started = now;
    g.preempting = p.result == apiary::plan_result::preempt;
    if (!g.tasks.empty()) return;
    g.what = r;
    g.tasks = p.tasks;
    g.victims = {p.victims.begin(), p.victims.end()};
    for (const apiary::job_key& v : g.victims) gangs.at(v).ends_for = r.job;
  }
  void finish(const apiary::job_key& job) {
    const gang& g = gangs.at(job);
    for (const apiary::job_key& v : g.victims) gangs.at(v).ends_for.reset();
    if (g.ends_for) gangs.at(*g.ends_for).victims.erase(job);
    gangs.erase(job);
  }
  [[nodiscard]] std::vector<apiary::job_key> jobs_on(std::uint32_t n) const {
    std::vector<apiary::job_key> jobs;
    for (const auto& [job, g] : gangs)
      if (std::any_of(g.tasks.begin(), g.tasks.end(),
                      [&](const apiary::placement& p) { return p.node.value == n; }))
        jobs.push_back(job);
    return jobs;
  }
  // GPUs of the node in use or reserved, without these gangs.
  [[nodiscard]] std::uint32_t used(std::uint32_t n,
                                   const std::set<apiary::job_key>& without = {}) const {
    std::uint32_t mask = 0;
    for (const auto& [job, g] : gangs)
      for (const apiary::placement& p : g.tasks)
        if (p.node.value == n && !without.contains(job)) mask |= p.gpu_mask;
    return mask;
  }
  [[nodiscard]] std::uint32_t healthy_gpus(std::uint32_t n) const {
    const node& at = nodes.at(n);
    return at.bad ? 0 : ((std::uint32_t{1} << at.shape.gpus) - 1) & ~at.bad_gpus;
  }
  // CPU and memory of the node that no gang uses, besides these gangs; none if they use more.
  [[nodiscard]] apiary::resources left(std::uint32_t n,
                                       const std::set<apiary::job_key>& without = {}) const {
    apiary::resources host = nodes.at(n).shape.host;
    for (const auto& [job, g] : gangs) {
      if (without.contains(job)) continue;
      std::size_t t = 0;
      for (const apiary::constrained_task_group& m : g.what.gang.groups)
        for (std::uint32_t i = 0; i < m.tasks; ++i, ++t) {
          if (g.tasks[t].node.value != n) continue;
          host.cpu_milli -= std::min(host.cpu_milli, m.host.cpu_milli);
          host.memory_mib -= std::min(host.memory_mib, m.host.memory_mib);
        }
    }
    return host;
  }
  [[nodiscard]] bool accepts(const apiary::node_filter& f, const node& n) const {
    for (const std::string& label : f.labels)
      if (std::none_of(n.shape.labels.begin(), n.shape.labels.end(), [&](const std::string& l) {
            return l == label || l.rfind(label + "=", 0) == 0;
          }))
        return false;
    const auto has = [](const auto& all, const auto& one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    for (const std::string& t : n.shape.taints)
      if (!has(f.tolerations, t)) return false;
    return (f.models.empty() || has(f.models, n.shape.model)) &&
           (f.nodes.empty() || has(f.nodes.names(), n.shape.name));
  }

 private:
  enum class use { free, healthy, whole };

  // Whether the gangs of a node use more CPU or memory than it has. A scheduler then counts less as
  // freed by several victims there than they free.
  [[nodiscard]] bool overcommitted() const {
    for (const auto& [id, n] : nodes) {
      std::uint64_t cpu = 0;
      std::uint64_t memory = 0;
      for (const auto& [job, g] : gangs) {
        std::size_t t = 0;
        for (const apiary::constrained_task_group& m : g.what.gang.groups)
          for (std::uint32_t i = 0; i < m.tasks; ++i, ++t) {
            if (g.tasks[t].node.value != id) continue;
            cpu += m.host.cpu_milli;
            memory += m.host.memory_mib;
          }
      }
      if (cpu > n.shape.host.cpu_milli || memory > n.shape.host.memory_mib) return true;
    }
    return false;
  }
  // The accepted nodes by rack; node i of the cluster is ids_[i]. Levels are one higher.
  [[nodiscard]] test_cluster cluster(const request& r, use what,
                                     const std::set<apiary::job_key>& without = {}) {
    std::map<std::vector<std::string>, std::vector<std::uint32_t>> by_cells;
    for (const auto& [id, n] : nodes) {
      if (!accepts(r.filter, n)) continue;
      by_cells[{n.shape.cells.rbegin(), n.shape.cells.rend()}].push_back(id);
    }
    ids_.clear();
    std::vector<std::vector<std::uint32_t>> fans(levels + 2);
    std::vector<std::string> before;
    bool begun = false;
    for (const auto& [cells, there] : by_cells) {
      std::size_t same = 0;
      while (begun && same < cells.size() && cells[same] == before[same]) ++same;
      for (std::size_t d = same; d < cells.size(); ++d) {
        if (d == 0 && fans[0].empty()) fans[0].push_back(0);
        ++fans[d].back();
        fans[d + 1].push_back(0);
      }
      if (cells.empty()) fans[0].push_back(0);
      for (const std::uint32_t id : there) {
        ++fans[levels].back();
        fans[levels + 1].push_back(1);
        ids_.push_back(id);
      }
      before = cells;
      begun = true;
    }
    if (ids_.empty())
      return {apiary::ragged_tree(std::vector<std::vector<std::uint32_t>>{{1}}), {}, {}};
    test_cluster made{apiary::ragged_tree(fans), {}, {}};
    for (const std::uint32_t id : ids_) {
      const node& n = nodes.at(id);
      std::uint32_t mask =
          what == use::whole ? (std::uint32_t{1} << n.shape.gpus) - 1 : healthy_gpus(id);
      apiary::resources host = n.bad && what != use::whole ? apiary::resources{} : n.shape.host;
      if (what == use::free) {
        mask &= ~used(id, without);
        host = left(id, without);
        if (n.bad) host = {};
      }
      made.free.push_back(static_cast<std::uint32_t>(std::popcount(mask)));
      made.hosts.push_back(host);
    }
    return made;
  }
  [[nodiscard]] static apiary::topology_constraints one_higher(apiary::topology_constraints gang) {
    const auto raise = [](apiary::level_t& l) { l += l == apiary::any_level ? 0 : 1; };
    raise(gang.required);
    raise(gang.preferred);
    for (apiary::constrained_task_group& m : gang.groups) {
      raise(m.leader_level);
      for (apiary::level_count& s : m.slices) raise(s.level);
      for (apiary::level_count& s : m.spread) raise(s.level);
    }
    return gang;
  }
  [[nodiscard]] bool fits_at(const request& r, const test_cluster& in,
                             apiary::level_t level) const {
    if (in.free.empty()) return false;
    const apiary::topology_constraints gang = one_higher(r.gang);
    return node_after_node(in, gang)(std::min(level, levels + 1) + 1);
  }
  [[nodiscard]] bool fits_somewhere(const request& r, const test_cluster& in) const {
    return fits_at(r, in, r.gang.required == apiary::any_level ? levels + 1 : r.gang.required);
  }
  [[nodiscard]] std::optional<apiary::level_t> first_level(
      const request& r, const std::set<apiary::job_key>& without) {
    const test_cluster in = cluster(r, use::free, without);
    const apiary::level_t last = std::min(r.gang.required, levels + 1);
    for (apiary::level_t l = std::min(r.gang.preferred, last); l <= last; ++l)
      if (fits_at(r, in, l)) return l;
    return std::nullopt;
  }
  [[nodiscard]] std::vector<apiary::job_key> candidates(const request& r) const {
    std::vector<apiary::job_key> all;
    for (const auto& [job, g] : gangs)
      if (!g.preempting && !g.ends_for && g.what.priority < r.priority) all.push_back(job);
    return all;
  }
  // Fewer gangs of a higher priority come first, then less GPU-time.
  [[nodiscard]] std::vector<std::uint64_t> cost_of(const std::set<apiary::job_key>& victims) const {
    std::map<std::int32_t, std::uint64_t, std::greater<>> by_priority;
    for (const auto& [job, g] : gangs) by_priority[g.what.priority] = 0;
    std::uint64_t sum = 0;
    std::uint64_t gpu_time = 0;
    for (const apiary::job_key& v : victims) {
      ++by_priority[gangs.at(v).what.priority];
      if (cost != nullptr) sum += cost(gangs.at(v).what);
      const apiary::time_ms run = std::max<apiary::time_ms>(now - gangs.at(v).started, 0);
      for (const apiary::placement& p : gangs.at(v).tasks)
        gpu_time += p.num_gpus() * static_cast<std::uint64_t>(run);
    }
    if (cost != nullptr) return {sum};
    std::vector<std::uint64_t> counts;
    for (const auto& [priority, n] : by_priority) counts.push_back(n);
    counts.push_back(gpu_time);
    return counts;
  }
  [[nodiscard]] bool within_budgets(const std::set<apiary::job_key>& victims) const {
    std::map<std::uint32_t, apiary::disruption_budget> lost;
    for (const auto& [tenant, most] : budgets) lost[tenant] = {0, 0};
    for (const apiary::job_key& v : victims) {
      const gang& g = gangs.at(v);
      apiary::disruption_budget& at = lost[g.what.tenant.value];
      if (!budgets.contains(g.what.tenant.value)) continue;
      ++at.gangs;
      for (const apiary::placement& p : g.tasks) at.gpus += p.num_gpus();
    }
    for (const auto& [tenant, most] : budgets)
      if (lost[tenant].gangs > most.gangs || lost[tenant].gpus > most.gpus) return false;
    return true;
  }
  [[nodiscard]] std::pair<std::vector<std::uint64_t>, bool> least(
      const request& r, const std::vector<apiary::job_key>& all) {
    std::pair<std::vector<std::uint64_t>, bool> best{{}, false};
    for (std::uint32_t set = 1; set < 1U << all.size(); ++set) {
      std::set<apiary::job_key> victims;
      for (std::size_t i = 0; i < all.size(); ++i)
        if ((set >> i & 1) != 0) victims.insert(all[i]);
      const std::vector<std::uint64_t> cost_here = cost_of(victims);
      if ((best.second && !(cost_here < best.first)) || !within_budgets(victims) ||
          !first_level(r, victims))
        continue;
      best = {cost_here, true};
    }
    return best;
  }
  // The lowest level from the preferred one on that victims of this cost allow, all of them needed.
  [[nodiscard]] apiary::level_t lowest_level(const request& r,
                                             const std::vector<apiary::job_key>& all,
                                             const std::vector<std::uint64_t>& cost_of_best) {
    apiary::level_t best = apiary::any_level;
    for (std::uint32_t set = 1; set < 1U << all.size(); ++set) {
      std::set<apiary::job_key> victims;
      for (std::size_t i = 0; i < all.size(); ++i)
        if ((set >> i & 1) != 0) victims.insert(all[i]);
      if (cost_of(victims) != cost_of_best || !within_budgets(victims)) continue;
      const std::optional<apiary::level_t> level = first_level(r, victims);
      if (!level || *level >= best) continue;
      bool needed = true;
      for (const apiary::job_key& v : victims) {
        std::set<apiary::job_key> fewer = victims;
        fewer.erase(v);
        needed = needed && !first_level(r, fewer);
      }
      if (needed) best = *level;
    }
    return best;
  }
  // Whether the tasks have free GPUs of accepted nodes and keep all constraints.
  [[nodiscard]] std::string fault_of_tasks(const request& r, const plan& p,
                                           const std::set<apiary::job_key>& victims) {
    const test_cluster in = cluster(r, use::free, victims);
    assignment where(r.gang.groups.size());
    std::map<std::uint32_t, std::uint32_t> taken;
    std::size_t t = 0;
    for (std::size_t m = 0; m < r.gang.groups.size(); ++m) {
      for (std::uint32_t i = 0; i < r.gang.groups[m].tasks; ++i, ++t) {
        if (t >= p.tasks.size()) return "tasks are missing";
        const std::uint32_t id = p.tasks[t].node.value;
        const auto at = std::find(ids_.begin(), ids_.end(), id);
        if (at == ids_.end()) return "a task is on a node that is not accepted";
        if (p.tasks[t].num_gpus() != r.gang.groups[m].gpus) return "wrong number of GPUs";
        if ((p.tasks[t].gpu_mask & ~(healthy_gpus(id) & ~used(id, victims))) != 0)
          return "a GPU is in use or bad";
        if ((taken[id] & p.tasks[t].gpu_mask) != 0) return "a GPU has two tasks";
        taken[id] |= p.tasks[t].gpu_mask;
        where[m].push_back(static_cast<std::uint32_t>(at - ids_.begin()));
      }
    }
    if (t != p.tasks.size()) return "too many tasks";
    const apiary::topology_constraints gang = one_higher(r.gang);
    for (std::size_t m = 0; m < where.size(); ++m)
      for (const apiary::level_count& s : gang.groups[m].slices)
        for (std::size_t i = 0; i < where[m].size(); ++i)
          if (in.cell(where[m][i], s.level) != in.cell(where[m][i / s.tasks * s.tasks], s.level))
            return "a slice is not in one cell";
    return meets_constraints(in, gang, where, p.level + 1) ? "" : "a constraint is broken";
  }

  std::vector<std::uint32_t> ids_;  // of the nodes of the last cluster
};

}  // namespace apiary_test
