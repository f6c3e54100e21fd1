// apiary/tests/philly/detail/locality_search_test.cpp - where a gang fits, and which gangs stop for it.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/server_pool.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/philly/detail/locality_search.h>
#include <apiary/philly/options.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <support/scale.h>
#include <vector>

namespace locality_search_tests {
namespace {

using namespace apiary;
using search_of_pool = detail::locality_search;

constexpr job_locality localities[] = {job_locality::packed, job_locality::one_rack,
                                       job_locality::anywhere};

// One to three racks of so many servers, one to four GPUs each; in the pool some are in use or bad.
struct cluster {
  std::vector<std::uint32_t> gpus{};
  std::uint32_t per_rack = 1;

  explicit cluster(rng& random) : per_rack(1 + random.uniform(3)) {
    for (std::uint32_t n = per_rack * (1 + random.uniform(3)); n > 0; --n)
      gpus.push_back(1 + random.uniform(4));
  }
  // A set of servers: those of one rack, or all.
  using servers = std::vector<std::uint32_t>;
  [[nodiscard]] std::vector<servers> racks() const {
    std::vector<servers> all(gpus.size() / per_rack);
    for (std::uint32_t n = 0; n < gpus.size(); ++n) all[n / per_rack].push_back(n);
    return all;
  }
  [[nodiscard]] servers everywhere() const {
    servers all(gpus.size());
    std::iota(all.begin(), all.end(), 0U);
    return all;
  }
};

// The fewest of some servers that have enough of these GPUs; 0: they have too few.
std::size_t fewest(const cluster::servers& of, const std::vector<std::uint32_t>& gpus,
                   std::uint32_t wanted) {
  std::vector<std::uint32_t> here;
  for (const std::uint32_t n : of) here.push_back(gpus[n]);
  std::sort(here.begin(), here.end(), std::greater<>());
  std::uint32_t sum = 0;
  for (std::size_t k = 0; k < here.size(); ++k) {
    sum += here[k];
    if (sum >= wanted) return k + 1;
  }
  return 0;
}

// The servers on which the job must be; empty: it does not fit. As job_locality says.
cluster::servers naive_servers(const cluster& c, const std::vector<std::uint32_t>& idle,
                               std::uint32_t wanted, job_locality locality) {
  const cluster::servers all = c.everywhere();
  const bool for_one_server = fewest(all, c.gpus, wanted) == 1;
  if (for_one_server && fewest(all, idle, wanted) == 1) return all;
  if (for_one_server && locality == job_locality::packed) return {};
  const auto fits = [&](const cluster::servers& of) {
    const std::size_t on = fewest(of, idle, wanted);
    return on > 0 && (locality != job_locality::packed || on <= fewest(of, c.gpus, wanted));
  };
  const std::vector<cluster::servers> racks = c.racks();
  const bool in_a_rack = std::any_of(racks.begin(), racks.end(), [&](const auto& rack) {
    return fewest(rack, c.gpus, wanted) > 0;
  });
  if (locality == job_locality::anywhere || !in_a_rack) return fits(all) ? all : cluster::servers();
  // Of the racks where it fits, the one with the most idle GPUs.
  cluster::servers best;
  std::uint32_t most = 0;
  for (const cluster::servers& rack : racks) {
    std::uint32_t here = 0;
    for (const std::uint32_t n : rack) here += idle[n];
    if (here <= most || !fits(rack)) continue;
    most = here;
    best = rack;
  }
  return best;
}

struct random_pool {
  cluster of;
  search_of_pool search;
  std::vector<detail::philly_candidate> jobs{};

  explicit random_pool(rng& random) : of(random), search(server_pool(of.gpus, of.per_rack)) {
    for (std::uint32_t job = random.uniform(6); job > 0; --job) {
      const auto wanted = 1 + random.uniform(5);
      if (wanted > search.pool().idle()) continue;
      const job_placement where = search.look(wanted, job_locality::anywhere);
      search.take(job_id(job), where);
      jobs.push_back({job_id(job), 0, where});
    }
    if (random.uniform(3) > 0) return;
    const auto stopped = search.set_health(node_id(random.uniform(of_servers())), false);
    REQUIRE(stopped.ok());
    for (const job_id job : *stopped) {
      const auto is = [&](const detail::philly_candidate& c) { return c.job == job; };
      const auto at = std::find_if(jobs.begin(), jobs.end(), is);
      search.give(at->where);
      jobs.erase(at);
    }
  }
  [[nodiscard]] std::uint32_t of_servers() const {
    return static_cast<std::uint32_t>(of.gpus.size());
  }
  [[nodiscard]] std::vector<std::uint32_t> idle() const {
    std::vector<std::uint32_t> gpus;
    for (const node_id n : search.pool().servers()) gpus.push_back(search.pool().idle(n));
    return gpus;
  }
};

// Calls check(pool, idle GPUs of each server, GPUs that are wanted, locality) for all gangs and random pools.
template <class Check>
void for_gangs_in_pools(std::uint64_t pools, const Check& check) {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(pools); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    random_pool pool(random);
    const std::vector<std::uint32_t> idle = pool.idle();
    for (std::uint32_t wanted = 1; wanted <= pool.search.pool().total(); ++wanted) {
      CAPTURE(wanted);
      for (const job_locality locality : localities) {
        CAPTURE(static_cast<int>(locality));
        check(pool, idle, wanted, locality);
      }
    }
  }
}
using idle_gpus = std::vector<std::uint32_t>;  // of each server

TEST_CASE("locality_search: a gang runs where its locality allows, on the fewest servers") {
  std::size_t found = 0;
  std::size_t none = 0;
  for_gangs_in_pools(3'000, [&](random_pool& pool, const idle_gpus& idle, std::uint32_t wanted,
                                job_locality locality) {
    const cluster::servers on = naive_servers(pool.of, idle, wanted, locality);
    const job_placement where = pool.search.look(wanted, locality);
    REQUIRE(where.empty() == on.empty());
    ++(where.empty() ? none : found);
    if (where.empty()) return;
    REQUIRE(where.size() == fewest(on, idle, wanted));
    REQUIRE(detail::gpus_of(where) == wanted);
    for (const placement& p : where) {
      REQUIRE(std::find(on.begin(), on.end(), p.node.value) != on.end());
      for (std::uint32_t d = 0; d < 32; ++d)
        if ((p.gpu_mask >> d & 1) != 0) REQUIRE(!pool.search.pool().owner(p.node, d).valid());
    }
  });
  CHECK(found > 0);
  CHECK(none > 0);
}

// The servers on which a job collects.
cluster::servers naive_aim(const cluster& c, const idle_gpus& idle, std::uint32_t wanted,
                           job_locality locality) {
  cluster::servers on = c.everywhere();
  const auto limit = [&] {
    return locality == job_locality::packed ? fewest(on, c.gpus, wanted) : on.size();
  };
  if (locality != job_locality::anywhere && limit() > 1) {
    std::uint32_t most = 0;
    for (const cluster::servers& rack : c.racks()) {
      std::uint32_t here = 1;  // a rack without idle GPUs may be the only one
      for (const std::uint32_t n : rack) here += idle[n];
      if (here <= most || fewest(rack, c.gpus, wanted) == 0) continue;
      most = here;
      on = rack;
    }
  }
  const std::size_t count = limit();
  std::stable_sort(on.begin(), on.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return idle[a] > idle[b]; });
  cluster::servers best(on.begin(), on.begin() + static_cast<std::ptrdiff_t>(count));
  if (fewest(best, c.gpus, wanted) > 0) return best;
  std::stable_sort(on.begin(), on.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return c.gpus[a] > c.gpus[b]; });
  on.resize(count);
  return on;
}

TEST_CASE(
    "locality_search: a gang collects where it could run, on the servers with the most idle") {
  std::size_t in_later_rack = 0;
  for_gangs_in_pools(1'000, [&](random_pool& pool, const idle_gpus& idle, std::uint32_t wanted,
                                job_locality locality) {
    cluster::servers aimed;
    for (const node_id n : pool.search.aim(wanted, locality)) aimed.push_back(n.value);
    REQUIRE(aimed == naive_aim(pool.of, idle, wanted, locality));
    in_later_rack += aimed.front() >= pool.of.per_rack ? 1U : 0U;
  });
  CHECK(in_later_rack > 0);
}

TEST_CASE("locality_search: a failure holds until GPUs become idle") {
  const std::vector<std::uint32_t> gpus{2, 2};
  search_of_pool search(server_pool(gpus, 2));
  const job_placement where = search.find(3, job_locality::packed);
  REQUIRE(where.size() == 2);
  search.take(job_id(1), where);
  CHECK(search.find(2, job_locality::packed).empty());
  CHECK(search.failed(2, job_locality::packed));
  CHECK(!search.failed(2, job_locality::anywhere));
  CHECK(!search.failed(3, job_locality::packed));
  search.begin_round();
  CHECK(search.failed(2, job_locality::packed));
  search.give(where);
  CHECK(search.failed(2, job_locality::packed));
  search.begin_round();
  CHECK(!search.failed(2, job_locality::packed));
}

TEST_CASE("choose_victims: each victim is needed, and nothing changes") {
  std::size_t several = 0;
  for_gangs_in_pools(1'000, [&](random_pool& pool, const idle_gpus& idle, std::uint32_t wanted,
                                job_locality locality) {
    if (!naive_servers(pool.of, idle, wanted, locality).empty()) return;
    const auto fits_without = [&](const std::vector<std::size_t>& victims) {
      idle_gpus left = idle;
      for (const std::size_t i : victims)
        for (const placement& p : pool.jobs[i].where) left[p.node.value] += p.num_gpus();
      return !naive_servers(pool.of, left, wanted, locality).empty();
    };
    const std::vector<std::size_t> victims =
        detail::choose_victims(pool.search, pool.jobs, wanted, locality);
    REQUIRE(pool.idle() == idle);
    std::vector<std::size_t> all(pool.jobs.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    REQUIRE(victims.empty() != fits_without(all));
    if (victims.empty()) return;
    several += victims.size() > 1 ? 1U : 0U;
    REQUIRE(fits_without(victims));
    for (const std::size_t i : victims) {
      std::vector<std::size_t> others = victims;
      std::erase(others, i);
      REQUIRE(!fits_without(others));
    }
    // The last of them is the first job with which, and the jobs before it, the new one fits.
    const std::size_t last = *std::max_element(victims.begin(), victims.end());
    all.resize(last);
    REQUIRE(!fits_without(all));
  });
  CHECK(several > 0);
}

}  // namespace
}  // namespace locality_search_tests
