// apiary/tests/hived/detail/guest_choice_test.cpp - few gangs end, and a tenant's cells stay as they are.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/naive_binding.h"
#include "support/scale.h"
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// A small cluster whose nodes have up to eight leaves.
hived_config small_cluster(rng& random) {
  if (random.uniform(3) == 0) return apiary_test::random_cluster(random);
  static const std::vector<std::vector<std::uint32_t>> shapes = {
      {2, 2, 2}, {2, 2, 2, 2}, {4, 2, 3}, {8, 4}, {2, 2, 4}, {2, 4, 2, 2}};
  static const std::vector<std::uint32_t> node_levels = {3, 3, 2, 1, 2, 2};
  const std::uint32_t s = random.uniform(6);
  apiary_test::random_chain chain{.name = "C",
                                  .leaf_type = "GPU",
                                  .fan_outs = shapes[s],
                                  .node_level = node_levels[s],
                                  .roots = 1 + random.uniform(2)};
  hived_config config;
  for (std::size_t l = 1; l <= chain.fan_outs.size(); ++l) {
    config.cell_types.push_back({.name = chain.type(l),
                                 .child_type = chain.type(l - 1),
                                 .child_count = chain.fan_outs[l - 1],
                                 .is_node = l == chain.node_level});
  }
  std::uint32_t nodes = 0;
  std::vector<std::string> pinned;
  for (std::uint32_t r = 0; r < chain.roots; ++r) {
    config.physical_cells.push_back(
        apiary_test::make_cell(chain, chain.fan_outs.size(), nodes, 0, pinned, random));
  }
  config.virtual_clusters = {{.name = "a"}, {.name = "b"}};
  for (std::uint32_t tries = 0, n = 3 + random.uniform(10); tries < n; ++tries) {
    auto& cells = config.virtual_clusters[random.uniform(2)].cells;
    const auto levels = static_cast<std::uint32_t>(chain.fan_outs.size()) + 1;
    cells.push_back({.type = chain.qualified(random.uniform(levels)), .count = 1});
    if (!hived_layout::create(config).ok()) cells.pop_back();
  }
  return config;
}

// A cluster with guests (opportunistic gangs), and the same without them. Victims end at once.
class guest_play {
 public:
  struct counts {
    std::uint64_t events = 0, preemptions = 0, own = 0, guests = 0, least = 0, worse = 0,
                  needless = 0, incomplete = 0;
  };
  // `compared`: victims are compared with naive_binding.
  guest_play(const hived_config& config, std::uint64_t seed, bool compared)
      : with(*hived::create(config)),
        without(*hived::create(config)),
        random(seed),
        compared_(compared) {}

  void step(counts& seen) {
    ++seen.events;
    const std::uint32_t what = random.uniform(100);
    if (what < 45) return ask(seen, gang_request::opportunistic_priority);
    if (what < 75 || jobs_.empty()) return ask(seen, static_cast<std::int32_t>(random.uniform(3)));
    const job_id job =
        *std::next(jobs_.begin(), random.uniform(static_cast<std::uint32_t>(jobs_.size())));
    end(job);
  }
  // A hash of the virtual leaves of these gangs, those that are opportunistic left out.
  [[nodiscard]] static std::uint64_t cells_of(const hived& h, const std::set<job_id>& jobs) {
    digest all;
    for (const job_id job : jobs) {
      if (h.find(job) == nullptr || !h.find(job)->guaranteed()) continue;
      const gang_record& gang = *h.find(job);
      all.add(gang.request.job.value).add(gang.cluster.value);
      for (const chain_leaf& l : gang.leaves)
        all.add(h.cells().chain(l.chain).owner(l.leaf).cell.value);
    }
    return all.value();
  }
  // The tenants' gangs have the same virtual cells in both clusters.
  void compare_all() const { REQUIRE(cells_of(with, jobs_) == cells_of(without, jobs_)); }
  hived with, without;
  rng random;

 private:
  void end(job_id job) {
    for (hived* h : {&with, &without})
      if (h->find(job) != nullptr) REQUIRE(h->finish(job).ok());
    jobs_.erase(job);
  }
  // Ends the victims; those of the tenant end in both clusters.
  void carry_out(hived& h, const gang_request& r, counts* seen) const {
    auto plan = h.propose(r);
    REQUIRE(plan.ok());
    if (plan->result == plan_result::wait) return;
    REQUIRE(h.commit(*plan).ok());
    if (plan->result != plan_result::preempt) return;
    if (seen != nullptr && compared_) compare(h, r.job, plan->victims.size(), *seen);
    if (seen != nullptr && !compared_) ++seen->preemptions;
    for (const job_id v : plan->victims) REQUIRE(h.finish(v).ok());
    plan = h.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(plan->result == plan_result::bind);
    REQUIRE(h.commit(*plan).ok());
  }
  static void compare(const hived& h, job_id job, std::size_t victims, counts& seen) {
    const gang_slot slot = *h.gangs().find(job);
    const apiary_test::naive_binding best(h, h.gangs()[slot]);
    REQUIRE(best.own() + best.guests() == victims);
    if (!best.complete()) {
      ++seen.incomplete;
      return;
    }
    REQUIRE(best.least() <= best.guests());
    ++seen.preemptions;
    seen.own += best.own();
    seen.guests += best.guests();
    seen.least += best.least();
    seen.worse += best.least() < best.guests() ? 1U : 0U;
    seen.needless += best.own() + best.least() == 0 ? 1U : 0U;
  }
  void ask(counts& seen, std::int32_t priority) {
    gang_request r{.job = job_id(next_++), .priority = priority};
    r.tenant = tenant_id(random.uniform(static_cast<std::uint32_t>(with.layout().tenants.size())));
    for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m)
      r.groups.push_back({1 + random.uniform(3), 1U << random.uniform(priority < 0 ? 3 : 4)});
    if (random.uniform(4) == 0) r.groups[0].gpus = 3;
    r.lazy = priority >= 0 && random.uniform(4) == 0;
    if (const auto plan = with.propose(r); !plan.ok()) return;
    carry_out(with, r, &seen);
    if (priority >= 0) carry_out(without, r, nullptr);
    const gang_record* here = with.find(r.job);
    if (here != nullptr) jobs_.insert(r.job);
    if (priority < 0) return;
    const gang_record* there = without.find(r.job);
    REQUIRE((here != nullptr) == (there != nullptr));
    REQUIRE(cells_of(with, {r.job}) == cells_of(without, {r.job}));
  }

  bool compared_;
  std::set<job_id> jobs_;
  std::uint32_t next_ = 0;
};

guest_play::counts play(std::uint64_t preemptions, std::uint64_t events, bool compared,
                        std::uint64_t seed) {
  guest_play::counts seen;
  for (; seen.preemptions < preemptions && seen.events < events; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    guest_play host(small_cluster(random), random(), compared);
    for (int i = 0; i < 150; ++i) host.step(seen);
    host.compare_all();
    REQUIRE(apiary_test::faults_of(host.with) == "");
  }
  return seen;
}

TEST_CASE("guests: among all bindings of the same virtual cells, one that ends the fewest gangs") {
  const guest_play::counts seen =
      play(apiary_test::scaled(std::uint64_t{20'000}), ~std::uint64_t{0}, true, 0);
  MESSAGE("preemptions " << seen.preemptions << ", victims of the tenant " << seen.own
                         << ", guests " << seen.guests << ", least " << seen.least
                         << ", preemptions with more " << seen.worse << ", not compared "
                         << seen.incomplete);
  CHECK(seen.needless == 0);
  CHECK(1000 * seen.guests <= 1002 * seen.least);
  CHECK(100 * seen.incomplete <= seen.preemptions);
}

// Two racks of four nodes with eight GPUs. Each tenant may use one rack.
hived racks_of_two_tenants() {
  hived_config config;
  config.cell_types = {{"node", "gpu", 8, true}, {"rack", "node", 4}};
  for (const char* const rack : {"0", "1"}) {
    config.physical_cells.push_back({.type = "rack"});
    for (const char* const node : {"0", "1", "2", "3"})
      config.physical_cells.back().children.push_back({.address = rack + std::string(node)});
  }
  for (const char* const tenant : {"a", "b"})
    config.virtual_clusters.push_back({.name = tenant, .cells = {{"rack", 1}}});
  return *hived::create(config);
}
// The least number of gangs that must end so that a rack has `tasks` nodes with `gpus` idle GPUs each: all
// sets of gangs are tried.
std::uint32_t fewest_victims(const std::vector<gang_plan>& gangs, std::uint32_t tasks,
                             std::uint32_t gpus) {
  std::uint32_t least = ~std::uint32_t{0};
  for (std::uint32_t ending = 0; ending < 1U << gangs.size(); ++ending) {
    const auto victims = static_cast<std::uint32_t>(std::popcount(ending));
    if (victims >= least) continue;
    std::array<std::uint32_t, 8> idle{8, 8, 8, 8, 8, 8, 8, 8};
    for (std::uint32_t g = 0; g < gangs.size(); ++g)
      if ((ending >> g & 1U) == 0)
        for (const hived_placement& task : gangs[g].tasks)
          idle[task.node.value] -= static_cast<std::uint32_t>(std::popcount(task.leaves));
    for (const std::size_t rack : {0U, 4U}) {
      const auto first = idle.begin() + static_cast<std::ptrdiff_t>(rack);
      if (std::count_if(first, first + 4, [&](std::uint32_t n) { return n >= gpus; }) >= tasks)
        least = victims;
    }
  }
  return least;
}

TEST_CASE("guests: few end for a gang that has some GPUs of each of its nodes") {
  std::uint32_t victims = 0, least = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(1000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived h = racks_of_two_tenants();
    std::vector<gang_plan> guests;
    for (std::uint32_t job = 0; job < 40 && guests.size() < 12; ++job) {
      auto plan = h.propose({.job = job_id(job),
                             .tenant = tenant_id(1),
                             .priority = gang_request::opportunistic_priority,
                             .groups = {{1 + random.uniform(4), 1 + random.uniform(4)}}});
      if (plan->result != plan_result::bind) continue;
      REQUIRE(h.commit(*plan).ok());
      guests.push_back(*std::move(plan));
    }
    gang_request r{.job = job_id(100),
                   .tenant = tenant_id(0),
                   .groups = {{2 + random.uniform(3), 1 + random.uniform(6)}}};
    r.constraints =
        request_constraints{.required = 2, .groups = {{.spread = {{.level = 1, .tasks = 1}}}}};
    const auto plan = h.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(plan->result != plan_result::wait);
    const std::uint32_t must = fewest_victims(guests, r.groups[0].tasks, r.groups[0].gpus);
    REQUIRE(plan->victims.size() >= must);
    victims += static_cast<std::uint32_t>(plan->victims.size());
    least += must;
  }
  MESSAGE("victims " << victims << ", least " << least);
  CHECK(least > 0);
  CHECK(1000 * victims <= 1002 * least);
}

TEST_CASE("guests: they never decide which virtual cells a gang gets") {
  const guest_play::counts seen =
      play(~std::uint64_t{0}, apiary_test::scaled(std::uint64_t{1'000'000}), false, 1'000'000);
  MESSAGE("events " << seen.events << ", preemptions " << seen.preemptions);
  CHECK(seen.preemptions * 100 > seen.events);
}

}  // namespace
