// apiary/tests/gandiva/detail/migration_test.cpp - moves against a naive reading of the rules.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/metric/buddy_fragmentation.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/request.h>
#include <apiary/topology/locality.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

struct small_cluster {
  std::vector<server_capacity> servers{};
  std::vector<running_job> jobs{};
  [[nodiscard]] running_job& record_of(job_id job) {
    const auto found =
        std::find_if(jobs.begin(), jobs.end(), [&](const running_job& r) { return r.job == job; });
    REQUIRE(found != jobs.end());
    return *found;
  }
};

// The free GPUs of servers as free cells: a server with f of them is one of level f - 1. So
// unusable(g - 1) is the fraction of the free GPUs that a job of g GPUs on one server cannot have.
// Requires: at most 32 GPUs free on a server.
buddy_fragmentation server_fragmentation(std::span<const server_capacity> servers) {
  buddy_fragmentation result;
  for (const server_capacity& s : servers) {
    if (s.free == 0) continue;
    REQUIRE(s.free <= buddy_fragmentation::max_levels);
    ++result.free_cells[s.free - 1];
    result.free_leaves[s.free - 1] += s.free;
  }
  return result;
}

// Servers of so many GPUs, on each jobs of the given sizes.
small_cluster cluster_with(std::uint32_t gpus,
                           const std::vector<std::vector<std::uint32_t>>& sizes) {
  small_cluster c;
  for (std::uint32_t s = 0; s < sizes.size(); ++s) {
    c.servers.push_back({node_id(s), gpus, gpus});
    for (const std::uint32_t g : sizes[s]) {
      c.jobs.push_back({job_id(static_cast<std::uint32_t>(c.jobs.size())), s, g});
      c.servers[s].free -= g;
    }
  }
  return c;
}

// Free GPUs that a job of 1, 2, ... GPUs can have, summed over these sizes.
std::uint64_t usable(const std::vector<server_capacity>& servers) {
  const buddy_fragmentation f = server_fragmentation(servers);
  std::uint64_t sum = 0;
  for (level_t l = 0; l < buddy_fragmentation::max_levels; ++l) sum += f.leaves_from(l);
  return sum;
}
std::size_t in_use(const std::vector<server_capacity>& servers) {
  return static_cast<std::size_t>(std::count_if(
      servers.begin(), servers.end(), [](const server_capacity& s) { return s.free < s.gpus; }));
}
void carry_out(small_cluster& c, const migration& m) {
  running_job* const job = &c.record_of(m.job);
  REQUIRE(c.servers[m.to.value].free >= job->gpus);
  c.servers[job->server].free += job->gpus;
  c.servers[m.to.value].free -= job->gpus;
  job->server = m.to.value;
}

// A typical workload: so many GPUs, how often.
using typical_jobs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// By how much the cluster is better, counted over all its free GPUs: less of no use to typical jobs,
// then more of use to jobs of every size.
move_gain counted_gain(const std::vector<server_capacity>& before,
                       const std::vector<server_capacity>& after, const typical_jobs& typical) {
  const auto wasted = [&](const std::vector<server_capacity>& servers) {
    std::int64_t sum = 0;
    for (const server_capacity& s : servers) {
      for (const auto& [gpus, weight] : typical)
        sum += s.free < gpus ? std::int64_t{1000} * weight * s.free : 0;
    }
    return sum;
  };
  return {wasted(before) - wasted(after),
          static_cast<std::int64_t>(usable(after)) - static_cast<std::int64_t>(usable(before))};
}
migration_gains gains_of(const typical_jobs& typical) {
  if (typical.empty()) return {};
  std::vector<std::pair<task_kind, std::uint32_t>> kinds;
  for (const auto& [gpus, weight] : typical)
    kinds.push_back({{.cpu_milli = 8000, .gpus = gpus, .gpu_milli = whole_gpu}, weight});
  return migration_gains(fragmentation(task_mix(kinds)));
}

// The same rules, everything looked through anew at every step.
std::vector<migration> naive_defragment(small_cluster c, std::uint32_t threshold,
                                        const typical_jobs& typical) {
  std::vector<migration> moves;
  std::set<std::uint32_t> left_alone;
  std::set<job_id> moved;
  while (true) {
    std::uint32_t from = ~0U;
    for (std::uint32_t s = 0; s < c.servers.size(); ++s) {
      const server_capacity& server = c.servers[s];
      if (server.free == server.gpus || server.free < threshold || left_alone.contains(s)) continue;
      if (from == ~0U || server.free > c.servers[from].free) from = s;
    }
    if (from == ~0U) return moves;
    left_alone.insert(from);
    std::set<std::pair<std::int64_t, std::uint32_t>> order;
    for (const running_job& r : c.jobs) {
      if (r.server == from && r.movable && !moved.contains(r.job))
        order.emplace(-std::int64_t{r.gpus}, r.job.value);
    }
    for (const auto& [size, job] : order) {
      const auto gpus = static_cast<std::uint32_t>(-size);
      std::uint32_t to = ~0U;
      move_gain most;
      for (std::uint32_t s = 0; s < c.servers.size(); ++s) {
        const server_capacity& server = c.servers[s];
        if (s == from || server.free == server.gpus || server.free < gpus) continue;
        if (server.free > c.servers[from].free) continue;
        std::vector<server_capacity> after = c.servers;
        after[from].free += gpus;
        after[s].free -= gpus;
        const move_gain gain = counted_gain(c.servers, after, typical);
        if (gain < most || gain == move_gain{}) continue;
        if (gain == most && to != ~0U && server.free >= c.servers[to].free) continue;
        most = gain;
        to = s;
      }
      if (to == ~0U) continue;
      moves.push_back({job_id(job), node_id(to)});
      moved.insert(job_id(job));
      carry_out(c, moves.back());
    }
  }
}

// Defragments until nothing moves, checking every move; how many there were.
std::size_t check_defragmentation(small_cluster c, std::uint32_t threshold,
                                  const typical_jobs& typical = {}) {
  const migration_gains gains = gains_of(typical);
  std::size_t total = 0;
  while (true) {
    const std::vector<migration> moves = defragment(c.servers, c.jobs, threshold, gains);
    REQUIRE(moves == naive_defragment(c, threshold, typical));
    if (moves.empty()) break;
    std::set<job_id> moved;
    for (const migration& m : moves) {
      REQUIRE(moved.insert(m.job).second);
      const std::vector<server_capacity> before = c.servers;
      carry_out(c, m);
      REQUIRE(counted_gain(before, c.servers, typical) > move_gain{});
      REQUIRE(in_use(c.servers) <= in_use(before));
      if (!typical.empty()) continue;
      const std::uint64_t gpus = c.record_of(m.job).gpus;
      REQUIRE(usable(c.servers) >= usable(before) + 2 * gpus * gpus);
    }
    total += moves.size();
  }
  if (!typical.empty()) return total;
  // It stopped because each server in use has less than the threshold free or a job that stays.
  for (const running_job& r : c.jobs) {
    const server_capacity& own = c.servers[r.server];
    if (own.free < threshold || !r.movable) continue;
    for (std::uint32_t s = 0; s < c.servers.size(); ++s) {
      const server_capacity& other = c.servers[s];
      REQUIRE((s == r.server || other.free == other.gpus || other.free < r.gpus ||
               other.free > own.free));
    }
  }
  return total;
}

}  // namespace

TEST_CASE("migrate: the free GPUs of four servers come together, the published way") {
  // Free: 3, 1, 2, 3 of 4.
  small_cluster c = cluster_with(4, {{1}, {1, 2}, {2}, {1}});
  CHECK(server_fragmentation(c.servers).unusable(3) == 1.0);
  CHECK(server_fragmentation(c.servers).unusable(1) == doctest::Approx(1.0 / 9));
  const std::vector<migration> moves = defragment(c.servers, c.jobs, 3);
  CHECK(moves == std::vector<migration>{{job_id(0), node_id(1)}, {job_id(4), node_id(2)}});
  for (const migration& m : moves) carry_out(c, m);
  CHECK(in_use(c.servers) == 2);
  CHECK(server_fragmentation(c.servers).unusable(3) == doctest::Approx(1.0 / 9));
  CHECK(defragment(c.servers, c.jobs, 3).empty());
  // With a lower threshold nothing more can move either: what is free elsewhere is too little.
  CHECK(defragment(c.servers, c.jobs, 1).empty());
}

TEST_CASE(
    "migrate: a job that must not migrate stays, broken servers are neither left nor entered") {
  small_cluster c = cluster_with(4, {{1}, {1, 1, 1}});
  c.jobs[0].movable = false;
  CHECK(defragment(c.servers, c.jobs, 3).empty());
  c.jobs[0].movable = true;
  CHECK(defragment(c.servers, c.jobs, 3).size() == 1);
  c.servers[1].free = 0;
  CHECK(defragment(c.servers, c.jobs, 3).empty());
  CHECK(defragment({}, {}, 3).empty());
}

TEST_CASE("migrate: what is typical decides where a job goes, and whether") {
  using moves = std::vector<migration>;
  // Free: 4, 2, 3 of 8; one GPU of the first server may move.
  small_cluster c = cluster_with(8, {{1, 3}, {6}, {5}});
  c.jobs[1].movable = false;
  CHECK(defragment(c.servers, c.jobs, 4) == moves{{job_id(0), node_id(1)}});
  // Of two free GPUs and three a pair is left of the three.
  CHECK(defragment(c.servers, c.jobs, 4, gains_of({{2, 1}})) == moves{{job_id(0), node_id(2)}});
  c = cluster_with(8, {{1, 3}, {4}});
  c.jobs[1].movable = c.jobs[2].movable = false;
  CHECK(defragment(c.servers, c.jobs, 4) == moves{{job_id(0), node_id(1)}});
  CHECK(defragment(c.servers, c.jobs, 4, gains_of({{4, 1}})).empty());  // two fours became one
}

TEST_CASE("migrate: the gain of a move is what the fragmentation of its two servers falls by") {
  const typical_jobs typical{{1, 2}, {4, 3}, {16, 1}};
  const migration_gains gains = gains_of(typical);
  for (std::uint32_t from = 0; from < 32; ++from) {
    for (std::uint32_t to = 1; to <= 32; ++to) {
      for (std::uint32_t gpus = 1; gpus <= std::min(to, 32 - from); ++gpus) {
        REQUIRE(gains(from, to, gpus) == counted_gain({{{}, 32, from}, {{}, 32, to}},
                                                      {{{}, 32, from + gpus}, {{}, 32, to - gpus}},
                                                      typical));
        REQUIRE(migration_gains()(from, to, gpus) ==
                counted_gain({{{}, 32, from}, {{}, 32, to}},
                             {{{}, 32, from + gpus}, {{}, 32, to - gpus}}, {}));
      }
    }
  }
}

TEST_CASE("migrate: every state of three servers of four GPUs") {
  const std::vector<std::vector<std::uint32_t>> contents{
      {}, {1}, {1, 1}, {2}, {1, 1, 1}, {1, 2}, {3}, {1, 1, 1, 1}, {1, 1, 2}, {2, 2}, {1, 3}, {4}};
  std::size_t moves = 0;
  std::size_t typical = 0;
  for (const auto& a : contents) {
    for (const auto& b : contents) {
      for (const auto& d : contents) {
        for (std::uint32_t threshold = 1; threshold <= 4; ++threshold)
          moves += check_defragmentation(cluster_with(4, {a, b, d}), threshold);
        typical += check_defragmentation(cluster_with(4, {a, b, d}), 1, {{2, 1}, {4, 2}});
      }
    }
  }
  CHECK(moves > 1000);
  CHECK(typical > 100);
}

TEST_CASE("migrate: random clusters of servers that differ") {
  std::size_t moves = 0;
  std::size_t typical_moves = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    small_cluster c;
    for (std::uint32_t s = 1 + random.uniform(12); s-- > 0;) {
      const std::uint32_t gpus = random.uniform(9);
      c.servers.push_back({node_id(static_cast<std::uint32_t>(c.servers.size())), gpus, gpus});
    }
    for (std::uint32_t s = 0; s < c.servers.size(); ++s) {
      std::uint32_t& free = c.servers[s].free;
      while (free > 0 && random.uniform(3) > 0) {
        const std::uint32_t gpus = 1 + random.uniform(free);
        c.jobs.push_back(
            {job_id(static_cast<std::uint32_t>(c.jobs.size())), s, gpus, random.uniform(5) > 0});
        free -= gpus;
      }
    }
    random.shuffle(c.jobs);
    const std::uint32_t threshold = 1 + random.uniform(4);
    moves += check_defragmentation(c, threshold);
    typical_jobs typical;
    for (std::uint32_t k = 0; k < 1 + random.uniform(3); ++k)
      typical.emplace_back(1 + random.uniform(8), 1 + random.uniform(9));
    typical_moves += check_defragmentation(c, threshold, typical);
  }
  CHECK(moves > 0);
  CHECK(typical_moves > 0);
}

TEST_CASE("migrate: a scattered job comes together where it fits, where it has most already") {
  using counts = std::vector<std::uint32_t>;
  const auto consolidated = [](const counts& free, const counts& own) {
    std::vector<server_capacity> servers;
    for (std::uint32_t n = 0; n < free.size(); ++n)
      servers.push_back({node_id(n), 4, free[n], own[n]});
    return consolidate(servers);
  };
  using shares = gpus_by_server;
  const counts own{1, 2, 1, 0};
  CHECK(consolidated({0, 0, 0, 3}, own) == shares{{node_id(0), 1}, {node_id(3), 3}});
  CHECK(consolidated({0, 2, 0, 4}, own) == shares{{node_id(1), 4}});  // rather than all over there
  CHECK(consolidated({0, 1, 0, 3}, own) == shares{{node_id(0), 1}, {node_id(1), 3}});
  CHECK(consolidated({0, 1, 0, 1}, own) == shares{{node_id(0), 1}, {node_id(1), 3}});
  CHECK(consolidated({0, 0, 0, 1}, own).empty());
  // Of servers with equally many free GPUs, one where it runs already.
  CHECK(consolidated({4, 2, 0, 0}, {0, 2, 2, 0}) == shares{{node_id(1), 4}});
  CHECK(consolidated({4, 4, 0, 4}, {0, 0, 4, 0}).empty());  // is together
}

TEST_CASE("migrate: the fewest servers of all sets of servers") {
  std::size_t gathered = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(3000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t n = 2 + random.uniform(6);
    std::vector<server_capacity> servers;
    gpus_by_server now;
    std::uint32_t gpus = 0;
    for (std::uint32_t s = 0; s < n; ++s) {
      const std::uint32_t own = random.uniform(2) == 0 ? 0 : 1 + random.uniform(4);
      if (own > 0) now.emplace_back(node_id(s), own);
      gpus += own;
      servers.push_back({node_id(s), 4, random.uniform(5 - own), own});
    }
    if (now.empty()) continue;
    std::vector<std::uint32_t> idle(n);
    for (std::uint32_t s = 0; s < n; ++s) idle[s] = servers[s].free + servers[s].own;
    std::size_t fewest = n;
    for (std::uint32_t set = 1; set < 1U << n; ++set) {
      std::uint32_t sum = 0;
      for (std::uint32_t s = 0; s < n; ++s) sum += (set >> s & 1) != 0 ? idle[s] : 0;
      if (sum >= gpus) fewest = std::min(fewest, static_cast<std::size_t>(std::popcount(set)));
    }
    const gpus_by_server to = consolidate(servers);
    REQUIRE(to.empty() == (fewest >= now.size()));
    if (to.empty()) continue;
    ++gathered;
    REQUIRE(to.size() == fewest);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < to.size(); ++i) {
      REQUIRE((i == 0 || to[i - 1].first < to[i].first));
      REQUIRE(to[i].second <= idle[to[i].first.value]);
      sum += to[i].second;
    }
    REQUIRE(sum == gpus);
    // The metric of the library agrees: servers are the cells of level 1.
    const uniform_tree tree{n, 4};
    const auto spanned = [&](const gpus_by_server& shares) {
      std::vector<cell_id> cells;
      for (const auto& [server, share] : shares) {
        for (std::uint32_t k = 0; k < share; ++k)
          cells.push_back(tree.cells(0)[server.value * 4 + k]);
      }
      return spanned_cells(tree, cells, 1);
    };
    REQUIRE(spanned(to) < spanned(now));
  }
  CHECK(gathered > 0);
}
