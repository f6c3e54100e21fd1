// apiary/tests/support/victim_loads.h - clusters full of gangs, and three simple ways to choose victims.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <support/levels.h>
#include <utility>
#include <vector>

namespace apiary_test {

// Blocks of racks of nodes with eight GPUs, 96 cores and 1 TiB, full of running gangs, and a gang
// that has to preempt some of them.
struct victim_load {
  static constexpr std::uint64_t no_set = std::numeric_limits<std::uint64_t>::max();
  static constexpr apiary::resources whole_host{96'000, 1U << 20};

  apiary::capacity_index<apiary::uniform_tree> capacities;
  std::vector<apiary::resources> hosts;  // of each node
  std::vector<apiary::eviction_candidate> candidates;
  std::vector<apiary::gpus_on_node> allocations;
  std::vector<apiary::resources> freed;  // of each allocation
  apiary::topology_constraints gang;
  bool hosted = false;  // CPU and memory count

  victim_load(std::uint32_t blocks, std::uint32_t racks, std::uint32_t nodes)
      : capacities(apiary::uniform_tree{blocks, racks, nodes, 8}, node, 8),
        hosts(capacities.num_nodes(), whole_host) {
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  }
  // Runs a gang on the first nodes from this one on; false if they are too few.
  bool run(std::uint32_t from, std::uint32_t tasks, std::uint32_t gpus, apiary::resources host) {
    std::vector<std::uint32_t> where;
    const std::uint32_t nodes = capacities.num_nodes();
    std::uint32_t misses = 0;
    for (std::uint32_t i = 0; i < nodes && where.size() < tasks && misses < 64; ++i) {
      const std::uint32_t n = (from + i) % nodes;
      if (capacities.free(n) >= gpus && host.fits_in(hosts[n])) {
        where.push_back(n);
      } else {
        ++misses;
      }
    }
    if (where.size() < tasks) return false;
    const auto first = static_cast<std::uint32_t>(allocations.size());
    for (const std::uint32_t n : where) {
      capacities.set(n, capacities.free(n) - gpus);
      hosts[n] -= host;
      allocations.push_back({n, gpus});
      freed.push_back(host);
    }
    candidates.push_back({0, first, static_cast<std::uint32_t>(allocations.size())});
    return true;
  }
  [[nodiscard]] std::uint32_t gpus_of(std::uint32_t j) const {
    std::uint32_t sum = 0;
    for (std::uint32_t a = candidates[j].first; a < candidates[j].last; ++a)
      sum += allocations[a].gpus;
    return sum;
  }
  [[nodiscard]] std::uint64_t cost_of(const std::vector<std::uint32_t>& victims) const {
    std::uint64_t sum = 0;
    for (const std::uint32_t j : victims) sum += candidates[j].cost;
    return sum;
  }
  apiary::victim_set solve(apiary::topology_victim_search<apiary::uniform_tree>& search) {
    if (hosted) return search(capacities, gang, candidates, allocations, hosts, freed);
    return search(capacities, gang, candidates, allocations);
  }
  void evict(std::uint32_t j, bool to) {
    for (std::uint32_t a = candidates[j].first; a < candidates[j].last; ++a) {
      const auto [n, gpus] = allocations[a];
      capacities.set(n, to ? capacities.free(n) + gpus : capacities.free(n) - gpus);
      if (to) {
        hosts[n] += freed[a];
      } else {
        hosts[n] -= freed[a];
      }
    }
  }
  [[nodiscard]] bool fits() const {
    apiary::topology_fit<apiary::uniform_tree> fit;
    return fit(capacities, gang, hosted ? hosts : std::vector<apiary::resources>{}).verdict ==
           apiary::fit_verdict::fits;
  }
};

enum class victim_gang : std::uint8_t {
  anywhere,
  in_rack,
  slices,
  slices_in_block,
  spread,
  hosted,
  slices_spread_hosted
};
inline constexpr std::uint32_t victim_gangs = 7;

// A load of about this many gangs (not below 100): 90 to 100 % of the GPUs are in use. A gang costs
// one and its GPUs, or one of three priorities, or a random number.
inline victim_load random_victim_load(std::uint64_t seed, std::uint32_t gangs, victim_gang kind) {
  constexpr std::uint32_t kinds[][2] = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8},
                                        {4, 8}, {8, 4}, {8, 8}, {16, 8}};
  constexpr std::uint32_t small[] = {5, 6, 7, 8};  // of the nine kinds that a load has
  apiary::rng random(seed);
  const std::uint32_t num_kinds = small[random.uniform(4)] + 1;
  double gpus = 0;
  for (std::uint32_t k = 0; k < num_kinds; ++k) gpus += kinds[k][0] * kinds[k][1];
  const double racks = gangs * gpus / num_kinds / 128 / 0.95;
  const std::uint32_t blocks = racks < 20 ? 2 : racks < 100 ? 4 : 16;
  victim_load in(blocks, static_cast<std::uint32_t>(racks / blocks) + 1, 16);
  const auto start = [&](std::uint32_t k) {
    const auto [tasks, each] = kinds[k];
    // Up to 16 cores and 180 GiB for each GPU; more than a node has for all of them.
    const apiary::resources host{each * (4'000 + 1'000 * random.uniform(13)),
                                 each * (40'000 + 10'000 * random.uniform(15))};
    const apiary::resources capped{std::min(host.cpu_milli, 96'000U),
                                   std::min(host.memory_mib, 1U << 20)};
    in.run(random.uniform(in.capacities.num_nodes()), tasks, each, capped);
  };
  for (std::uint32_t tries = 0; tries < gangs * 2 && in.candidates.size() < gangs; ++tries)
    start(random.uniform(num_kinds));
  for (std::uint32_t tries = 0; tries < gangs; ++tries) start(random.uniform(3));
  const std::uint32_t costs = random.uniform(3);
  for (std::uint32_t j = 0; j < in.candidates.size(); ++j) {
    std::uint64_t& cost = in.candidates[j].cost;
    const std::uint32_t size = in.gpus_of(j);
    if (costs == 0) cost = (std::uint64_t{1} << 40) + size;
    if (costs == 1) cost = (std::uint64_t{1} << (14 * random.uniform(3) + 8)) + random.uniform(200);
    if (costs == 2) cost = 1 + random.uniform(100);
  }
  const std::uint32_t slices = std::min(2 + random.uniform(7), in.capacities.num_nodes() / 16);
  const std::uint32_t each = random.uniform(2) == 0 ? 8 : 4;
  auto& group = in.gang.groups.emplace_back();
  group.gpus = each;
  group.tasks = 8 * slices;
  if (kind == victim_gang::in_rack) {
    in.gang.required = rack;
    group.tasks = 8;
  }
  if (kind == victim_gang::slices || kind == victim_gang::slices_in_block ||
      kind == victim_gang::slices_spread_hosted)
    group.slices = {{rack, 8}};
  if (kind == victim_gang::slices_in_block) {
    in.gang.required = block;
    group.tasks = 8 * std::min(slices, in.capacities.num_cells(rack) / blocks);
  }
  if (kind == victim_gang::spread)
    group.spread = {random.uniform(2) == 0 ? apiary::level_count{node, 1}
                                           : apiary::level_count{rack, 4}};
  if (kind == victim_gang::spread && group.spread[0].level == rack)
    group.tasks = std::min(group.tasks, 4 * in.capacities.num_nodes() / 16);
  if (kind == victim_gang::slices_spread_hosted) group.spread = {{node, 1}};
  if (kind == victim_gang::hosted || kind == victim_gang::slices_spread_hosted) {
    in.hosted = true;
    group.host = {each * 9'000, each * 90'000};
  }
  return in;
}

// Ten blocks of eight racks, full of gangs that are on several nodes and often in two racks. The
// new gang takes four racks as a whole.
inline victim_load wide_gangs_load(std::uint64_t seed) {
  constexpr std::uint32_t sizes[] = {1, 1, 2, 2, 4, 8, 8, 8};
  apiary::rng random(seed);
  victim_load in(10, 8, 16);
  for (std::uint32_t tries = 0; tries < 3'000; ++tries)
    in.run(random.uniform(in.capacities.num_nodes()), 1 + random.uniform(8),
           sizes[random.uniform(8)], {});
  for (apiary::eviction_candidate& c : in.candidates) c.cost = std::uint64_t{1} << 50;
  in.gang.groups = {{.tasks = 64, .gpus = 8, .slices = {{rack, 16}}}};
  return in;
}

// What the three rivals have in common: evicts, asks topology_fit, reprieves what is not needed.
class simple_preemption {
 public:
  explicit simple_preemption(const victim_load& in) : in_(in), evicted_(in.candidates.size()) {}

  // Gangs with the fewest GPUs first, until the gang fits.
  std::uint64_t fewest_gpus_first() {
    std::vector<std::uint32_t> order(in_.candidates.size());
    for (std::uint32_t j = 0; j < order.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(in_.gpus_of(a), in_.candidates[a].cost) <
             std::pair(in_.gpus_of(b), in_.candidates[b].cost);
    });
    std::size_t too_few = 0;
    std::size_t enough = order.size() + 1;
    std::size_t now = 0;
    while (too_few + 1 < enough) {  // more victims never hurt
      const std::size_t half = too_few + (enough - too_few) / 2;
      for (; now < half; ++now) evict(order[now]);
      for (; now > half; --now) reprieve(order[now - 1]);
      (in_.fits() ? enough : too_few) = half;
    }
    if (enough > order.size()) return victim_load::no_set;
    for (; now < enough; ++now) evict(order[now]);
    return reprieve_what_is_not_needed();
  }

  // Best fit, rack by rack: for each slice (or task) the rack where it is cheapest to empty node
  // after node, the cheapest node first.
  std::uint64_t best_rack_for_each_slice() {
    for (std::uint32_t slice = 0; !in_.fits(); ++slice) {
      if (slice >= in_.gang.groups[0].tasks) return victim_load::no_set;
      std::uint64_t best = victim_load::no_set;
      std::vector<std::uint32_t> best_set;
      const std::uint32_t cells = in_.capacities.num_cells(rack);
      for (std::uint32_t r = 0; r < cells; ++r) {
        std::vector<std::uint32_t> set;
        const std::uint64_t cost = cost_of_one_more(r, set);
        if (cost < best) {
          best = cost;
          best_set = set;
        }
      }
      if (best == victim_load::no_set) return best;
      for (const std::uint32_t j : best_set) evict(j);
    }
    return reprieve_what_is_not_needed();
  }

  // One call of topology_victim_search for each slice (for each task if there are none): in one
  // cell of the slice's level, with the victims and the tasks of the calls before.
  std::uint64_t own_call_for_each_slice() {
    const apiary::constrained_task_group& group = in_.gang.groups[0];
    victim_load left = in_;
    left.gang = {};
    apiary::constrained_task_group slice = group;
    slice.slices.clear();
    slice.spread.clear();
    slice.tasks = group.slices.empty() ? 1 : group.slices[0].tasks;
    const bool spread_by_node = !group.spread.empty() && group.spread[0].level == node;
    if (spread_by_node) slice.spread = {{node, 1}};
    left.gang.groups = {slice};
    left.gang.required = group.slices.empty() ? node : group.slices[0].level;
    if (in_.gang.required == block) return own_calls_in_each_block(left, group.tasks / slice.tasks);
    return own_calls(left, group.tasks / slice.tasks, {0, in_.capacities.num_nodes()});
  }

 private:
  void evict(std::uint32_t j) {
    if (!evicted_[j]) in_.evict(j, true);
    evicted_[j] = true;
  }
  void reprieve(std::uint32_t j) {
    if (evicted_[j]) in_.evict(j, false);
    evicted_[j] = false;
  }
  std::uint64_t reprieve_what_is_not_needed() {
    std::vector<std::uint32_t> victims;
    for (std::uint32_t j = 0; j < evicted_.size(); ++j)
      if (evicted_[j]) victims.push_back(j);
    std::stable_sort(victims.begin(), victims.end(), [&](std::uint32_t a, std::uint32_t b) {
      return in_.candidates[a].cost > in_.candidates[b].cost;
    });
    std::uint64_t cost = 0;
    for (const std::uint32_t j : victims) {
      reprieve(j);
      if (in_.fits()) continue;
      evict(j);
      cost += in_.candidates[j].cost;
    }
    return cost;
  }
  // The gangs that still run on a node.
  std::vector<std::uint32_t> running_on(std::uint32_t n) {
    if (on_.empty()) {
      on_.resize(in_.capacities.num_nodes());
      for (std::uint32_t j = 0; j < in_.candidates.size(); ++j)
        for (std::uint32_t a = in_.candidates[j].first; a < in_.candidates[j].last; ++a)
          on_[in_.allocations[a].node].push_back(j);
    }
    std::vector<std::uint32_t> running;
    for (const std::uint32_t j : on_[n])
      if (!evicted_[j]) running.push_back(j);
    return running;
  }
  [[nodiscard]] std::uint32_t capacity_of(std::uint32_t n) const {
    const apiary::constrained_task_group& group = in_.gang.groups[0];
    std::uint32_t tasks = in_.capacities.free(n) / group.gpus;
    if (in_.hosted) {
      tasks = std::min(tasks, in_.hosts[n].cpu_milli / group.host.cpu_milli);
      tasks = std::min(tasks, in_.hosts[n].memory_mib / group.host.memory_mib);
    }
    return !group.spread.empty() && group.spread[0].level == node ? std::min(tasks, 1U) : tasks;
  }
  [[nodiscard]] std::uint32_t slices_of(std::uint32_t r) const {
    const apiary::constrained_task_group& group = in_.gang.groups[0];
    std::uint32_t tasks = 0;
    for (const apiary::cell_id n : in_.capacities.nodes(rack, r)) tasks += capacity_of(n.value);
    if (!group.spread.empty() && group.spread[0].level == rack)
      tasks = std::min(tasks, group.spread[0].tasks);
    return tasks / (group.slices.empty() ? 1 : group.slices[0].tasks);
  }
  std::uint64_t cost_of_one_more(std::uint32_t r, std::vector<std::uint32_t>& set) {
    const std::uint32_t before = slices_of(r);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> nodes;
    for (const apiary::cell_id n : in_.capacities.nodes(rack, r))
      nodes.emplace_back(in_.cost_of(running_on(n.value)), n.value);
    std::sort(nodes.begin(), nodes.end());
    for (const auto& [cost, n] : nodes) {
      if (slices_of(r) > before) break;
      for (const std::uint32_t j : running_on(n)) {
        evict(j);
        set.push_back(j);
      }
    }
    const bool more = slices_of(r) > before;
    for (const std::uint32_t j : set) reprieve(j);
    return more ? in_.cost_of(set) : victim_load::no_set;
  }
  std::uint64_t own_calls_in_each_block(const victim_load& left, std::uint32_t calls) {
    std::uint64_t best = victim_load::no_set;
    for (std::uint32_t b = 0; b < in_.capacities.num_cells(block); ++b) {
      const auto nodes = in_.capacities.nodes(block, b);
      best = std::min(best, own_calls(left, calls, {nodes.first.value, nodes.last.value}));
    }
    return best;
  }
  // Only nodes from `within.first` up to `within.second` count.
  std::uint64_t own_calls(victim_load left, std::uint32_t calls,
                          std::pair<std::uint32_t, std::uint32_t> within) {
    const apiary::constrained_task_group& group = in_.gang.groups[0];
    const apiary::level_count spread =
        group.spread.empty() ? apiary::level_count{} : group.spread[0];
    std::vector<std::uint32_t> tasks_in(in_.capacities.num_cells(rack));
    std::vector<bool> closed(left.capacities.num_nodes());
    for (std::uint32_t n = 0; n < closed.size(); ++n)
      closed[n] = n < within.first || n >= within.second;
    std::vector<bool> gone(left.candidates.size());
    std::vector<std::uint32_t> victims;
    apiary::topology_victim_search<apiary::uniform_tree> search;
    apiary::topology_fit<apiary::uniform_tree> fit;
    for (std::uint32_t call = 0; call < calls; ++call) {
      // The gangs that still run, without what they have on closed nodes, which are full.
      victim_load now = left;
      now.candidates.clear();
      now.allocations.clear();
      now.freed.clear();
      std::vector<std::uint32_t> ids;
      for (std::uint32_t j = 0; j < left.candidates.size(); ++j) {
        if (gone[j]) continue;
        const auto first = static_cast<std::uint32_t>(now.allocations.size());
        for (std::uint32_t a = left.candidates[j].first; a < left.candidates[j].last; ++a) {
          if (closed[left.allocations[a].node]) continue;
          now.allocations.push_back(left.allocations[a]);
          now.freed.push_back(left.freed[a]);
        }
        const auto last = static_cast<std::uint32_t>(now.allocations.size());
        if (first == last) continue;
        now.candidates.push_back({left.candidates[j].cost, first, last});
        ids.push_back(j);
      }
      for (std::uint32_t n = 0; n < closed.size(); ++n) {
        if (!closed[n]) continue;
        now.capacities.set(n, 0);
      }
      const apiary::victim_set found = now.solve(search);
      if (found.verdict != apiary::fit_verdict::fits) return victim_load::no_set;
      for (const std::uint32_t i : found.victims) {
        gone[ids[i]] = true;
        victims.push_back(ids[i]);
        left.evict(ids[i], true);
        now.evict(i, true);
      }
      const auto placed =
          fit(now.capacities, now.gang, now.hosted ? now.hosts : std::vector<apiary::resources>{});
      if (placed.verdict != apiary::fit_verdict::fits) return victim_load::no_set;
      for (const apiary::tasks_on_node& p : placed.portions) {
        left.capacities.set(p.node, left.capacities.free(p.node) - p.tasks * group.gpus);
        left.hosts[p.node] -= {p.tasks * group.host.cpu_milli, p.tasks * group.host.memory_mib};
        const std::uint32_t r = p.node / in_.capacities.nodes(rack, 0).size();
        tasks_in[r] += p.tasks;
        if (spread.tasks > 0 && spread.level == node) closed[p.node] = true;
        if (spread.tasks > 0 && spread.level == rack && tasks_in[r] >= spread.tasks)
          for (const apiary::cell_id n : in_.capacities.nodes(rack, r)) closed[n.value] = true;
      }
    }
    for (const std::uint32_t j : victims) evict(j);
    if (!in_.fits()) return victim_load::no_set;
    return reprieve_what_is_not_needed();
  }

  victim_load in_;
  std::vector<bool> evicted_;
  std::vector<std::vector<std::uint32_t>> on_;  // gangs by node
};

// The least cost of the three rivals; victim_load::no_set if none of them finds a set.
inline std::uint64_t cheapest_simple_set(const victim_load& in) {
  std::uint64_t best = simple_preemption(in).fewest_gpus_first();
  best = std::min(best, simple_preemption(in).best_rack_for_each_slice());
  return std::min(best, simple_preemption(in).own_call_for_each_slice());
}

}  // namespace apiary_test
