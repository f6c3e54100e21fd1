// apiary/tests/sim/detail/gpu_tenants_test.cpp - which job has which GPUs, against a table of every GPU.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/core/sort.h>
#include <apiary/sim/detail/gpu_tenants.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("gpu_tenants: random jobs, against a table of every GPU") {
  constexpr std::uint32_t servers = 2;
  constexpr std::uint32_t gpus = 4;
  struct naive {
    placement where{};
    std::uint32_t shared = 0;
  };
  using table = std::map<job_id, naive>;
  struct change {
    job_id job{};
    placement from{};  // without a node: it comes
    placement to{};    // without a node: it leaves
    tenancy how = tenancy::alone;
  };
  const auto neighbours = [](const table& jobs, job_id job, placement where) {
    std::vector<job_id> found;
    for (const auto& [id, j] : jobs) {
      if (id != job && j.where.node == where.node && (j.where.gpu_mask & where.gpu_mask) != 0)
        found.push_back(id);
    }
    return found;
  };
  std::uint32_t conflicts = 0;
  std::uint32_t shared_resizes = 0;
  for (std::uint64_t seed = 0; seed < std::max(60U, apiary_test::scaled(400U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gpu_tenants tenants;
    table jobs;
    bool wrong = false;
    for (int step = 0; step < 60 && !wrong; ++step) {
      const table before = jobs;
      gpu_tenants backwards = tenants;
      std::vector<change> changes;
      std::vector<job_id> came;  // since the last check, and has not only been resized
      bool again = false;        // a job changes twice
      for (std::uint32_t n = random.uniform(4); n > 0; --n) {
        const job_id job(random.uniform(8));
        for (const change& c : changes) again = again || c.job == job;
        std::vector<job_id> others;
        const auto add = [&](job_id other) { others.push_back(other); };
        // The neighbours of the job and the GPUs without one are as in the table.
        const auto check = [&](placement where, std::uint32_t alone) {
          std::uint32_t free = 0;
          for (std::uint32_t g = 0; g < gpus; ++g) {
            if ((where.gpu_mask >> g & 1) != 0)
              free += neighbours(jobs, job, {where.node, 1U << g}).empty() ? 1U : 0U;
          }
          sort_unique(others);
          CHECK(others == neighbours(jobs, job, where));
          CHECK(alone == free);
          others.clear();
        };
        change c{.job = job};
        const bool runs = jobs.contains(job);
        if (runs) {
          c.from = jobs[job].where;
          c.how = random.uniform(2) == 0 ? tenancy::resized : tenancy::alone;
        } else {
          c.how = random.uniform(2) == 0 ? tenancy::shared : tenancy::alone;
        }
        if (!runs || c.how == tenancy::resized) {
          c.to = {runs ? c.from.node : node_id(random.uniform(servers)), 1 + random.uniform(15)};
        }
        changes.push_back(c);
        std::uint32_t shared = c.how == tenancy::shared ? c.to.gpu_mask : 0;
        if (runs) {
          if (c.to.node.valid()) shared = jobs[job].shared;
          if (c.to.node.valid() && !neighbours(jobs, job, c.to).empty()) ++shared_resizes;
          const std::uint32_t alone = tenants.remove(job, c.from, c.how, add);
          jobs.erase(job);
          check(c.from, alone);
        } else {
          came.push_back(job);
        }
        if (c.to.node.valid()) {
          const std::uint32_t alone = tenants.put(job, c.to, c.how, add);
          check(c.to, alone);
          jobs[job] = {c.to, shared};
        }
      }
      for (std::uint32_t s = 0; s < servers; ++s) {
        const job_id any = tenants.any_on(node_id(s));
        const bool empty = std::none_of(jobs.begin(), jobs.end(), [&](const auto& j) {
          return j.second.where.node == node_id(s);
        });
        CHECK(any.valid() != empty);
        if (any.valid()) CHECK(jobs.at(any).where.node == node_id(s));
      }
      // A job that stayed shares beside another one that stayed, on a GPU that both kept.
      const auto kept = [&](job_id job) {
        placement where = jobs[job].where;
        where.gpu_mask &= before.contains(job) ? before.at(job).where.gpu_mask : 0;
        return std::find(came.begin(), came.end(), job) != came.end() ? placement{} : where;
      };
      for (auto& [id, j] : jobs) {
        bool stays = !kept(id).node.valid();
        for (const job_id other : neighbours(jobs, id, j.where))
          stays = stays || (kept(other).gpu_mask & kept(id).gpu_mask) != 0;
        if (!stays) j.shared = 0;
      }
      for (std::uint32_t gpu = 0; gpu < servers * gpus; ++gpu) {
        const placement one{node_id(gpu / gpus), 1U << gpu % gpus};
        int alone = 0;
        for (const job_id job : neighbours(jobs, job_id(), one))
          alone += (jobs[job].shared & one.gpu_mask) == 0 ? 1 : 0;
        wrong = wrong || alone > 1;
      }
      const auto conflict = tenants.check();
      REQUIRE(conflict.has_value() == wrong);
      // The order of the changes does not matter.
      const auto ignore = [](job_id /*other*/) {};
      for (auto c = changes.rbegin(); c != changes.rend() && !again; ++c) {
        if (c->from.node.valid()) backwards.remove(c->job, c->from, c->how, ignore);
        if (c->to.node.valid()) backwards.put(c->job, c->to, c->how, ignore);
      }
      if (!again) REQUIRE(backwards.check().has_value() == wrong);
      if (!conflict) {  // jobs that are alone share no more
        for (auto& [id, j] : jobs)
          j.shared = neighbours(jobs, id, j.where).empty() ? 0 : j.shared & j.where.gpu_mask;
        continue;
      }
      ++conflicts;
      const naive& job = jobs[conflict->job];
      const naive& other = jobs[conflict->other];
      CHECK(conflict->where.node == job.where.node);
      CHECK(conflict->where.gpu_mask ==
            (job.where.gpu_mask & other.where.gpu_mask & ~job.shared & ~other.shared));
      CHECK(conflict->where.gpu_mask != 0);
    }
  }
  CHECK(conflicts > apiary_test::scaled(100U));
  CHECK(shared_resizes > apiary_test::scaled(100U));
}
