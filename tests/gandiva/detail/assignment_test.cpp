// apiary/tests/gandiva/detail/assignment_test.cpp - servers for waiting jobs, against the rule in plain loops.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace gandiva_assignment_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;

// A server by its words.
struct naive_server {
  std::uint32_t gpus = 0;
  bool healthy = true;
  std::vector<std::pair<job_id, std::uint32_t>> jobs{};  // with the GPUs that count
  std::uint32_t pinned = 0;                              // GPUs of jobs on several servers
  std::uint32_t affinity = 0;                            // GPUs of the first job

  [[nodiscard]] std::uint32_t load() const {
    std::uint32_t sum = 0;
    for (const auto& [job, counted] : jobs) sum += counted;
    return sum;
  }
  [[nodiscard]] std::uint32_t unsubscribed() const {
    return healthy && load() <= gpus ? gpus - load() : 0;
  }
};

constexpr std::size_t none = ~std::size_t{0};

// The server with the least key among those for which is(server); the first of several.
template <class Is, class Key>
std::size_t least_of(const std::vector<naive_server>& servers, const Is& is, const Key& key) {
  std::size_t best = none;
  for (std::size_t n = 0; n < servers.size(); ++n)
    if (servers[n].healthy && is(servers[n]) &&
        (best == none || key(servers[n]) < key(servers[best])))
      best = n;
  return best;
}

// Where the published rule puts a job: {server, GPUs}; several servers: it runs there at once.
std::map<std::size_t, std::uint32_t> naive_place(const std::vector<naive_server>& servers,
                                                 std::uint32_t gpus) {
  const auto load = [](const naive_server& s) { return s.load(); };
  const std::size_t same = least_of(
      servers,
      [&](const naive_server& s) { return s.affinity == gpus && s.pinned + gpus <= s.gpus; }, load);
  if (same != none && servers[same].unsubscribed() >= gpus) return {{same, gpus}};
  const std::size_t empty = least_of(
      servers, [&](const naive_server& s) { return s.jobs.empty() && s.gpus >= gpus; },
      [](const naive_server&) { return 0; });
  if (empty != none) return {{empty, gpus}};
  const std::size_t tightest = least_of(
      servers, [&](const naive_server& s) { return s.unsubscribed() >= gpus; },
      [](const naive_server& s) { return s.unsubscribed(); });
  if (tightest != none) return {{tightest, gpus}};
  std::map<std::size_t, std::uint32_t> split;
  for (std::uint32_t left = gpus; left > 0;) {
    const std::size_t most = least_of(
        servers,
        [&](const naive_server& s) {
          return s.unsubscribed() > 0 &&
                 !split.contains(static_cast<std::size_t>(&s - servers.data()));
        },
        [](const naive_server& s) { return -std::int64_t{s.unsubscribed()}; });
    if (most == none) {
      split.clear();
      break;
    }
    split[most] = std::min(left, servers[most].unsubscribed());
    left -= split[most];
  }
  if (!split.empty()) return split;
  if (same != none) return {{same, gpus}};
  return {};
}

// Gandiva's jobs beside the naive servers.
struct scene {
  gandiva_jobs jobs;
  gandiva_queue queue{};
  std::vector<naive_server> servers{};
  std::vector<job_action> actions{};

  explicit scene(const std::vector<std::uint32_t>& gpus) : jobs(gpus, 2) {
    for (const std::uint32_t g : gpus) servers.push_back({.gpus = g});
  }
  void come(job_id job, std::uint32_t asked, const std::map<std::size_t, std::uint32_t>& on) {
    for (const auto& [n, gpus] : on) {
      if (servers[n].jobs.empty()) servers[n].affinity = asked;
      servers[n].jobs.emplace_back(job, gpus);
      if (on.size() > 1) servers[n].pinned += gpus;
    }
  }
  void end(job_id job, time_ms now) {
    const bool several = !jobs.at(job).home.valid();
    jobs.leave(jobs.at(job), now);
    jobs.erase(job);
    for (naive_server& s : servers) {
      const auto at = std::find_if(s.jobs.begin(), s.jobs.end(),
                                   [&](const auto& here) { return here.first == job; });
      if (at == s.jobs.end()) continue;
      if (several) s.pinned -= at->second;
      s.jobs.erase(at);
      if (s.jobs.empty()) s.affinity = 0;
    }
  }
};

TEST_CASE("gandiva_assignment: each job gets the server of the published rule") {
  std::uint32_t placed = 0, split = 0, stay = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(5));
    for (std::uint32_t& g : gpus) g = 1 + random.uniform(6);
    scene all(gpus);
    for (std::size_t n = 0; n < gpus.size(); ++n)
      if (random.uniform(8) == 0) {
        all.servers[n].healthy = false;
        all.jobs.set_health(node_id(static_cast<std::uint32_t>(n)), false);
      }
    std::vector<job_id> here;
    for (std::uint32_t job = 0; job < 16; ++job) {
      CAPTURE(job);
      const time_ms now = job;
      if (!here.empty() && random.uniform(3) == 0) {
        const std::size_t i = random.uniform(static_cast<std::uint32_t>(here.size()));
        all.end(here[i], now);
        here.erase(here.begin() + static_cast<std::ptrdiff_t>(i));
      }
      const job_request request{.job = job_id(job),
                                .priority = static_cast<std::int32_t>(random.uniform(3)),
                                .gpus = 1 + random.uniform(8)};
      const auto expected = naive_place(all.servers, request.gpus);
      gandiva_job& r = all.jobs.add(request, now);
      all.queue.enter(r, now);
      all.actions.clear();
      all.jobs.begin(now, all.actions);
      assign_queued(all.jobs, all.queue, now);
      all.jobs.end();
      REQUIRE(all.queue.empty() == !expected.empty());
      if (expected.empty()) {
        ++stay;
        all.queue.leave(r, now);
        all.jobs.erase(request.job);
        continue;
      }
      here.push_back(request.job);
      if (expected.size() == 1) {
        ++placed;
        REQUIRE(r.home.value == expected.begin()->first);
        REQUIRE(!r.runs());  // it waits there for a time slice
      } else {
        ++split;
        REQUIRE(r.runs());
        REQUIRE(r.where.size() == expected.size());
        for (const placement& p : r.where) REQUIRE(expected.at(p.node.value) == p.num_gpus());
      }
      all.come(request.job, request.gpus, expected);
    }
  }
  CHECK(placed > 0);
  CHECK(split > 0);
  CHECK(stay > 0);
}

}  // namespace
}  // namespace gandiva_assignment_tests
