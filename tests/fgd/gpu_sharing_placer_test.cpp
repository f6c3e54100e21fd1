// apiary/tests/fgd/gpu_sharing_placer_test.cpp - jobs of whole GPUs where fragmentation sends them.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/metric/fragmentation.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace jobs_by_score {
namespace {

using namespace apiary;
using fgd_placer = gpu_sharing_placer<fragmentation_gradient>;

job_request job_of(std::uint32_t job, std::uint32_t gpus) {
  return {.job = job_id(job), .gpus = gpus};
}
// Tasks of one GPU and of four, equally many.
fragmentation_gradient ones_and_fours() {
  return fragmentation_gradient(fragmentation(task_mix(
      {{{.gpus = 1, .gpu_milli = whole_gpu}, 1}, {{.gpus = 4, .gpu_milli = whole_gpu}, 1}})));
}
fgd_placer servers_of(const std::vector<std::uint32_t>& gpus) {
  return fgd_placer::create({.gpus = gpus}, ones_and_fours()).value();
}

TEST_CASE("sharing_placer: what is no cluster") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(fgd_placer::create({}, ones_and_fours()).status().code() == invalid);
  CHECK(fgd_placer::create({.gpus = {17}}, ones_and_fours()).status().code() == invalid);
  CHECK(fgd_placer::create({.gpus = {0, 0}}, ones_and_fours()).status().code() == invalid);
}

TEST_CASE("sharing_placer: a job goes where it fragments least, another score sends it elsewhere") {
  // The four GPUs of server 0 are left to a job that wants four.
  fgd_placer placer = servers_of({4, 6});
  CHECK(placer.propose(job_of(0, 1)).value() == job_placement{{node_id(1), 1}});
  auto other = gpu_sharing_placer<best_fit>::create({.gpus = {4, 6}}, best_fit()).value();
  CHECK(other.propose(job_of(0, 1)).value() == job_placement{{node_id(0), 1}});
}

TEST_CASE("sharing_placer: what cannot be committed or finished") {
  fgd_placer placer = servers_of({4, 4});
  CHECK(placer.commit(job_of(0, 6), {{node_id(0), 15}, {node_id(1), 3}}).ok());
  CHECK(placer.idle_gpus() == 2);
  CHECK(placer.jobs_on(node_id(1)) == std::vector{job_id(0)});
  CHECK(placer.jobs_on(node_id(2)).empty());
  CHECK(placer.commit(job_of(0, 1), {{node_id(1), 4}}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(placer.commit(job_of(1, 1), {{node_id(1), 2}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.commit(job_of(1, 1), {{node_id(1), 16}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.commit(job_of(1, 1), {{node_id(2), 1}}).code() == absl::StatusCode::kNotFound);
  CHECK(placer.commit(job_of(1, 2), {{node_id(1), 4}}).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(placer.commit(job_of(1, 0), {}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(placer.commit({.gpus = 1}, {{node_id(1), 4}}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(placer.finish(job_id(1)).code() == absl::StatusCode::kNotFound);
  CHECK(placer.mark_bad(node_id(2)).code() == absl::StatusCode::kNotFound);
  CHECK(placer.mark_bad(node_id(1)).ok());
  CHECK(placer.mark_bad(node_id(1)).ok());
  CHECK(placer.commit(job_of(1, 1), {{node_id(1), 4}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.idle_gpus() == 0);
  CHECK(placer.finish(job_id(0)).ok());
  CHECK(placer.idle_gpus() == 4);
  CHECK(placer.mark_healthy(node_id(1)).ok());
  CHECK(placer.idle_gpus() == placer.total_gpus());
}

TEST_CASE("sharing_placer: a server that a placement names twice counts once") {
  fgd_placer placer = servers_of({4, 4, 4});
  REQUIRE(placer.commit(job_of(1, 2), {{node_id(0), 1}, {node_id(0), 2}}).ok());
  CHECK(placer.propose(job_of(2, 8)).value() == job_placement{{node_id(1), 15}, {node_id(2), 15}});
  REQUIRE(placer.finish(job_id(1)).ok());
  CHECK(placer.propose(job_of(2, 12)).value().has_value());
}

namespace {

// The same GPUs in a random division, in random order.
job_placement divided(const job_placement& where, rng& random) {
  job_placement parts;
  for (const placement& p : where) {
    std::uint32_t left = p.gpu_mask;
    while (left != 0) {
      std::uint32_t part = left & static_cast<std::uint32_t>(random());
      if (part == 0) part = left;
      parts.push_back({p.node, part});
      left ^= part;
    }
  }
  random.shuffle(parts);
  return parts;
}

// Whether idle servers hold a job: on one of them, or in tasks of the smallest one's size and a rest,
// the fullest server last; all tasks but the last being equal that order is as good as any.
bool servers_hold(std::vector<std::uint32_t> free, std::uint32_t wanted) {
  std::uint32_t task = 16;
  for (const std::uint32_t g : free) task = g > 0 ? std::min(task, g) : task;
  if (wanted <= *std::max_element(free.begin(), free.end())) return wanted > 0;
  while (wanted > 0) {
    const std::uint32_t part = std::min(wanted, task);
    const auto most = std::max_element(free.begin(), free.end());
    if (*most < part) return false;
    *most -= part;
    wanted -= part;
  }
  return true;
}

}  // namespace

TEST_CASE("sharing_placer: what the servers can hold is what an empty cluster takes") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(4));
    for (std::uint32_t& g : gpus) g = random.uniform(9);
    gpus[0] = 1 + random.uniform(8);
    fgd_placer placer = servers_of(gpus);
    for (std::uint32_t wanted = 0; wanted <= placer.total_gpus() + 1; ++wanted) {
      CAPTURE(wanted);
      const auto where = placer.propose(job_of(0, wanted));
      REQUIRE(where.ok() == servers_hold(gpus, wanted));
      REQUIRE(placer.check(job_of(0, wanted)).ok() == where.ok());
      if (!where.ok()) REQUIRE(where.status().code() == absl::StatusCode::kInvalidArgument);
    }
    REQUIRE(placer.check(job_of(0, ~0U)).code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE(
    "sharing_placer: random jobs: no GPU twice, a no only where equal servers lack capacity") {
  std::uint64_t refused = 0;
  std::uint64_t multi_server = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t servers = 2 + random.uniform(5);
    const std::uint32_t size = 1 + random.uniform(8);
    fgd_placer placer = servers_of(std::vector<std::uint32_t>(servers, size));
    std::vector<std::uint32_t> idle(servers, (1U << size) - 1);
    std::vector<bool> bad(servers, false);
    std::map<std::uint32_t, job_placement> running;
    for (std::uint32_t step = 0; step < 60; ++step) {
      if (random.uniform(8) == 0) {
        const std::uint32_t n = random.uniform(servers);
        bad[n] = random.uniform(2) == 0;
        REQUIRE((bad[n] ? placer.mark_bad(node_id(n)) : placer.mark_healthy(node_id(n))).ok());
      }
      if (random.uniform(3) == 0 && !running.empty()) {
        const auto first = running.begin();
        REQUIRE(placer.finish(job_id(first->first)).ok());
        for (const placement& p : first->second) idle[p.node.value] |= p.gpu_mask;
        running.erase(first);
      } else {
        const job_request r = job_of(step, 1 + random.uniform(random.uniform(3) * size + size));
        std::vector<std::uint32_t> free;
        std::uint32_t all = 0;
        for (std::uint32_t n = 0; n < servers; ++n) {
          free.push_back(bad[n] ? 0 : static_cast<std::uint32_t>(std::popcount(idle[n])));
          all += free.back();
        }
        REQUIRE(placer.idle_gpus() == all);
        std::sort(free.rbegin(), free.rend());
        std::uint32_t whole = 0;
        while (whole < servers && free[whole] == size) ++whole;
        const std::uint32_t tasks = r.gpus / size;
        const std::uint32_t rest = r.gpus % size;
        const bool fits = whole >= tasks && (rest == 0 || (tasks < servers && free[tasks] >= rest));
        const auto where = placer.propose(r);
        if (!placer.check(r).ok()) {
          REQUIRE(where.status() == placer.check(r));
          continue;
        }
        REQUIRE(where.ok());
        REQUIRE(where->has_value() == fits);
        if (!fits) {
          ++refused;
          continue;
        }
        const job_placement& at = **where;
        REQUIRE(placer.commit(r, random.uniform(2) == 0 ? at : divided(at, random)).ok());
        multi_server += at.size() > 1 ? 1U : 0U;
        for (std::size_t i = 0; i < at.size(); ++i) {
          const placement& p = at[i];
          REQUIRE((i == 0 || at[i - 1].node < p.node));
          REQUIRE((p.gpu_mask & ~idle[p.node.value]) == 0);
          REQUIRE(!bad[p.node.value]);
          idle[p.node.value] ^= p.gpu_mask;
        }
        running[step] = at;
      }
      for (std::uint32_t n = 0; n < servers; ++n) {
        std::vector<job_id> here;
        for (const auto& [job, at] : running) {
          for (const placement& p : at)
            if (p.node == node_id(n)) here.push_back(job_id(job));
        }
        REQUIRE(placer.jobs_on(node_id(n)) == here);
      }
    }
  }
  CHECK(refused > 0);
  CHECK(multi_server > 0);
}

}  // namespace
}  // namespace jobs_by_score
