// apiary/tests/gandiva/detail/available_gpus_test.cpp - the GPUs that jobs can get, against counts of all jobs.
// SPDX-License-Identifier: MIT
#include "support/gandiva_scene.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/assignment.h>
#include <apiary/gandiva/detail/available_gpus.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/packing.h>
#include <apiary/gandiva/detail/queue.h>
#include <apiary/gandiva/detail/relocation.h>
#include <apiary/gandiva/detail/servers.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace gandiva_available_gpus_tests {
namespace {

using namespace apiary;
using namespace apiary::detail;

constexpr std::int32_t num_priorities = 3;

// Random jobs on a few servers, and every answer by counting all jobs.
class crowd {
 public:
  crowd(const std::vector<std::uint32_t>& gpus, std::uint64_t seed) : scene_(gpus), random_(seed) {}
  // Makes a random change.
  void change() {
    const auto n = node_id(random_.uniform(pool().num_servers()));
    now_ += random_.uniform(3);
    switch (random_.uniform(9)) {
      case 0:
        if (random_.uniform(4) == 0) toggle(n);
        break;
      case 1:
        add();
        break;
      case 2:
      case 3:
        settle(any(), n);
        break;
      case 4:
        start(any());
        break;
      case 5:
        start_on_several(any());
        break;
      case 6:
        pack(any());
        break;
      case 7:
        if (gandiva_job& r = any(); r.runs() && r.home.valid() && !r.leader.valid())
          scene_.decide(now_, [&] { jobs().suspend(r); });
        break;
      default:
        if (random_.uniform(2) == 0) leave(any());
    }
  }
  [[nodiscard]] gandiva_jobs& jobs() { return scene_.jobs; }
  [[nodiscard]] const server_pool& pool() const { return scene_.jobs.pool(); }
  // A job that waits for a server.
  [[nodiscard]] gandiva_job& queued() {
    for (int tries = 0; tries < 20; ++tries)
      if (gandiva_job& r = any(); r.phase == gandiva_phase::queued) return r;
    return add();
  }
  [[nodiscard]] std::uint32_t held(node_id n, std::int32_t priority) const {
    std::uint32_t sum = 0;
    for (std::uint32_t id = 0; id < next_; ++id) {
      const gandiva_job& r = scene_.jobs.at(job_id(id));
      for (const placement& p : r.where)
        if (p.node == n && !r.home.valid()) sum += p.num_gpus();
      if (r.home == n && !r.leader.valid() && r.request.priority > priority) sum += r.request.gpus;
    }
    return sum;
  }
  [[nodiscard]] node_id better(std::int32_t priority, std::uint32_t gpus) const {
    node_id same;
    node_id best;
    const auto less = [&](node_id a, node_id b, bool by_affinity) {
      if (!b.valid()) return true;
      if (servers().load(a) != servers().load(b)) return servers().load(a) < servers().load(b);
      return by_affinity && servers().affinity(a) < servers().affinity(b);
    };
    for (const node_id n : pool().servers()) {
      if (!fits(n, priority, gpus) || !takes_affinity(n)) continue;
      if (servers().affinity(n) == gpus && less(n, same, false)) same = n;
      if (less(n, best, true)) best = n;
    }
    return same.valid() ? same : best;
  }
  [[nodiscard]] node_id other(std::int32_t priority, std::uint32_t gpus) const {
    node_id best;
    for (const node_id n : pool().servers()) {
      if (!fits(n, priority, gpus) || takes_affinity(n)) continue;
      if (!best.valid() || servers().load(n) < servers().load(best)) best = n;
    }
    return best;
  }
  [[nodiscard]] gpus_by_server fewest(const gandiva_job& r) const {
    std::vector<std::pair<std::uint32_t, node_id>> left;
    std::uint32_t sum = 0;
    for (const node_id n : pool().servers()) {
      if (!pool().healthy(n)) continue;
      std::uint32_t taken = held(n, r.request.priority);
      for (std::uint32_t id = 0; id < next_; ++id) {
        const gandiva_job& o = scene_.jobs.at(job_id(id));
        if (o.home != n || o.leader.valid() || o.phase != gandiva_phase::suspended) continue;
        if (o.request.priority != r.request.priority) continue;
        if (std::pair(o.waits_since(), id) < std::pair(r.waits_since(), r.request.job.value))
          taken += o.request.gpus;
      }
      if (taken >= pool().gpus(n)) continue;
      left.emplace_back(pool().gpus(n) - taken, n);
      sum += left.back().first;
    }
    gpus_by_server on;
    if (sum < r.request.gpus) return on;
    std::stable_sort(left.begin(), left.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first > b.first;
      return servers().load(a.second) < servers().load(b.second);
    });
    for (std::uint32_t wanted = r.request.gpus; wanted > 0; wanted -= on.back().second)
      on.emplace_back(left[on.size()].second, std::min(wanted, left[on.size()].first));
    return on;
  }

 private:
  [[nodiscard]] const gandiva_servers& servers() const { return scene_.jobs.servers(); }
  [[nodiscard]] bool fits(node_id n, std::int32_t priority, std::uint32_t gpus) const {
    return pool().healthy(n) && held(n, priority) + gpus <= pool().gpus(n);
  }
  [[nodiscard]] bool takes_affinity(node_id n) const {
    const std::uint32_t affinity = servers().affinity(n);
    return affinity > 0 && servers().pinned(n) + affinity <= pool().gpus(n);
  }
  gandiva_job& add() {
    const auto priority = static_cast<std::int32_t>(random_.uniform(num_priorities));
    return jobs().add(
        {.job = job_id(next_++), .priority = priority, .gpus = 1 + random_.uniform(9)}, now_);
  }
  [[nodiscard]] gandiva_job& any() {
    return next_ < 5 ? add() : jobs().at(job_id(random_.uniform(next_)));
  }
  void settle(gandiva_job& r, node_id n) {
    const bool may = r.phase == gandiva_phase::queued ||
                     (r.phase == gandiva_phase::suspended && !r.packed() && r.home != n);
    if (!may || !pool().healthy(n) || r.request.gpus > pool().gpus(n)) return;
    std::int64_t least = INT64_MAX;
    for (std::uint32_t id = 0; id < next_; ++id)
      if (const gandiva_job& o = jobs().at(job_id(id)); o.home == n)
        least = std::min(least, o.pass);
    jobs().settle(r, n);
    REQUIRE(r.pass == (least == INT64_MAX ? 0 : least));
  }
  void start(gandiva_job& r) {
    if (!r.waits_for_slice() || pool().idle(r.home) < r.request.gpus) return;
    scene_.decide(now_, [&] { jobs().start(r, {pool().pick_idle(r.home, r.request.gpus)}); });
  }
  void start_on_several(gandiva_job& r) {
    gpus_by_server on;
    std::uint32_t wanted = r.request.gpus;
    for (const node_id n : pool().servers()) {
      const std::uint32_t some = std::min(pool().healthy(n) ? pool().idle(n) : 0, wanted);
      if (some > 0) on.emplace_back(n, some);
      wanted -= some;
    }
    if (r.phase == gandiva_phase::queued && wanted == 0 && on.size() > 1)
      scene_.decide(now_, [&] { jobs().start_multi_server(r, on); });
  }
  // Packs it on another job, or undoes its packing.
  void pack(gandiva_job& r) {
    if (r.leader.valid()) {
      scene_.decide(now_, [&] {
        if (r.runs() && random_.uniform(2) == 0) return jobs().keep(r);
        if (r.runs()) return jobs().unpack(r);
        jobs().unlink(jobs().at(r.leader), r);
      });
      return;
    }
    if (!r.waits_for_slice() || r.packed()) return;
    for (std::uint32_t id = 0; id < next_; ++id) {
      gandiva_job& o = jobs().at(job_id(id));
      if (o.home != r.home || !o.runs() || o.packed() || o.request.gpus != r.request.gpus) continue;
      scene_.decide(now_, [&] { jobs().pack(o, r); });
      return;
    }
  }
  void leave(gandiva_job& r) {
    if (r.phase != gandiva_phase::queued) jobs().leave(r, now_);
  }
  void toggle(node_id n) {
    const bool healthy = pool().healthy(n);
    jobs().set_health(n, !healthy);
    const std::vector<job_id> here = servers().jobs(n);
    for (const bool followers : {true, false})
      for (const job_id job : here)
        if (jobs().at(job).leader.valid() == followers) leave(jobs().at(job));
  }

  apiary_test::gandiva_scene scene_;
  rng random_;
  std::uint32_t next_ = 0;
  time_ms now_ = 0;
};

TEST_CASE(
    "gandiva_available_gpus, gandiva_servers_left: after each change the answers are those of a "
    "count") {
  std::array<std::uint64_t, 3> found{};
  for (std::uint64_t seed = 0; seed < std::max(20U, apiary_test::scaled(150U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(6));
    for (std::uint32_t& g : gpus) g = random.uniform(9);
    crowd c(gpus, seed);
    for (std::uint32_t step = random.uniform(40); step > 0; --step) c.change();
    std::vector<gandiva_available_gpus> available;
    for (std::int32_t p = 0; p < num_priorities; ++p) available.emplace_back(c.jobs(), p);
    std::map<std::int32_t, gandiva_servers_left> left;
    for (std::uint32_t step = 0; step < 150; ++step) {
      CAPTURE(step);
      for (std::uint32_t changes = random.uniform(4); changes > 0; --changes) c.change();
      const std::int32_t p = static_cast<std::int32_t>(random.uniform(num_priorities));
      for (const node_id n : c.pool().servers())
        REQUIRE(c.jobs().servers().held(n, p) == c.held(n, p));
      for (std::uint32_t g = 1; g <= 9; ++g) {
        const node_id better = c.better(p, g);
        const node_id other = c.other(p, g);
        REQUIRE(available[static_cast<std::size_t>(p)].better(c.jobs(), g) == better);
        REQUIRE(available[static_cast<std::size_t>(p)].other(c.jobs(), g) == other);
        found[0] += better.valid() ? 1U : 0U;
        found[1] += other.valid() ? 1U : 0U;
      }
      const gandiva_job& r = c.queued();
      const auto of = left.try_emplace(r.request.priority, c.jobs(), r).first;
      const gpus_by_server on = c.fewest(r);
      REQUIRE(of->second.fewest(c.jobs(), r) == on);
      found[2] += on.size() > 1 ? 1U : 0U;
    }
  }
  for (const std::uint64_t times : found) CHECK(times > 100);
}

TEST_CASE("gandiva_available_by_priority: those of many priorities are forgotten and made anew") {
  crowd c({8, 8}, 1);
  for (int changes = 0; changes < 60; ++changes) c.change();
  gandiva_available_by_priority available;
  for (int round = 0; round < 3; ++round) {
    for (std::int32_t p = -9; p < 9; ++p)
      REQUIRE(available.gpus(c.jobs(), p).better(c.jobs(), 1) == c.better(p, 1));
    c.change();
  }
}

// Every server of 8 GPUs has sixteen jobs of one GPU. Then jobs of 16 GPUs starve, which come before
// these, and for which half of the servers are emptied; the jobs there go to the other half.
TEST_CASE("gandiva: half of the servers are emptied for jobs that starve, and their jobs go on") {
  constexpr std::uint32_t num_servers = 16;
  apiary_test::gandiva_scene s(std::vector<std::uint32_t>(num_servers, 8));
  const gandiva_assignment assignment(10);
  gandiva_queue queue;
  gandiva_packing packing(0, 0);
  const auto submit = [&](std::uint32_t job, std::uint32_t gpus) {
    queue.enter(s.jobs.add({.job = job_id(job), .gpus = gpus}, 0), 0);
  };
  for (std::uint32_t i = 0; i < 16 * num_servers; ++i) submit(num_servers + i, 1);
  s.decide(0, [&] {
    assignment.place_all(s.jobs, queue, true, gandiva_relocation::no_priority, 0);
    for (const node_id n : s.jobs.pool().servers())
      for (std::size_t i = 0; i < 8; ++i)
        s.jobs.start(s.jobs.at(s.jobs.servers().jobs(n)[i]), {s.jobs.pool().pick_idle(n, 1)});
  });
  for (std::uint32_t i = 0; i < num_servers / 4; ++i) submit(i, 16);
  s.decide(10, [&] {
    assignment.place_all(s.jobs, queue, true, gandiva_relocation::no_priority, 10);
    gandiva_relocation::from_held(s.jobs, packing);
  });
  CHECK(queue.empty());
  std::uint32_t emptied = 0;
  for (const node_id n : s.jobs.pool().servers()) {
    emptied += s.jobs.servers().pinned(n) == 8 ? 1U : 0U;
    CHECK(s.jobs.servers().load(n) == (s.jobs.servers().pinned(n) == 8 ? 8 : 32));
  }
  CHECK(emptied == num_servers / 2);
}

}  // namespace
}  // namespace gandiva_available_gpus_tests
