// apiary/tests/alloc/server_pool_test.cpp - places on the fewest servers, against all subsets.
// SPDX-License-Identifier: MIT
#include "support/naive_pool.h"
#include "support/scale.h"
#include <apiary/alloc/server_pool.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

std::uint32_t size_of(const job_placement& place) {
  std::uint32_t gpus = 0;
  for (const placement& p : place) gpus += p.num_gpus();
  return gpus;
}

// The fewest servers of `among` that have so many idle GPUs together; more than all when none have.
std::uint32_t fewest(const server_pool& pool, id_range<node_id> among, std::uint32_t gpus) {
  const std::uint32_t n = among.size();
  std::uint32_t best = n + 1;
  for (std::uint32_t set = 1; set < 1U << n; ++set) {
    std::uint32_t idle = 0;
    for (std::uint32_t i = 0; i < n; ++i) idle += (set >> i & 1) != 0 ? pool.idle(among[i]) : 0;
    if (idle >= gpus) best = std::min(best, static_cast<std::uint32_t>(std::popcount(set)));
  }
  return best;
}

}  // namespace

TEST_CASE("server_pool: best fit on one server, whole servers and a rest over several") {
  const std::vector<std::uint32_t> gpus{4, 4, 4, 4, 2};
  server_pool pool(gpus, 2);
  CHECK(pool.total() == 18);
  CHECK(pool.num_racks() == 3);
  CHECK(pool.total(2) == 2);
  CHECK(pool.servers_of(2) == id_range<node_id>{node_id(4), node_id(5)});
  CHECK(pool.fit(pool.servers(), 1, 9) == job_placement{{node_id(4), 1}});
  pool.take(job_id(7), job_placement{{node_id(1), 0b0101}});
  CHECK(pool.owner(node_id(1), 2) == job_id(7));
  CHECK(!pool.owner(node_id(1), 1).valid());
  CHECK(pool.fit(pool.servers(), 2, 9) == job_placement{{node_id(1), 0b1010}});
  CHECK(pool.fit(pool.servers(), 3, 9) == job_placement{{node_id(0), 0b0111}});
  CHECK(pool.fit(pool.servers(), 10, 9) ==
        job_placement{{node_id(0), 0b1111}, {node_id(1), 0b1010}, {node_id(2), 0b1111}});
  CHECK(pool.fit(pool.servers(), 10, 2).empty());
  CHECK(pool.fit(pool.servers_of(0), 6, 2) ==
        job_placement{{node_id(0), 0b1111}, {node_id(1), 0b1010}});
  CHECK(pool.fit(pool.servers_of(0), 7, 2).empty());
  CHECK(pool.fit(pool.servers(), 17, 9).empty());
  pool.give(job_placement{{node_id(1), 0b0101}});
  CHECK(pool.idle() == 18);
}

TEST_CASE("server_pool: a bad server offers nothing and keeps what runs there") {
  const std::vector<std::uint32_t> gpus{4, 4};
  server_pool pool(gpus, 1);
  pool.take(job_id(1), job_placement{{node_id(0), 0b0011}});
  CHECK(pool.usable() == 8);
  pool.set_health(node_id(0), false);
  CHECK(pool.usable() == 4);
  CHECK(pool.idle() == 4);
  CHECK(pool.idle(0U) == 0);
  CHECK(pool.fit(pool.servers(), 2, 1) == job_placement{{node_id(1), 0b0011}});
  CHECK(!pool.can_take(job_placement{{node_id(0), 0b0100}}));
  pool.give(job_placement{{node_id(0), 0b0011}});
  CHECK(pool.idle() == 4);
  pool.set_health(node_id(0), true);
  CHECK(pool.idle() == 8);
  CHECK(pool.usable() == 8);
  CHECK(pool.idle(0U) == 4);
}

TEST_CASE("server_pool: random jobs take the fewest servers and never a device twice") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(60U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(8));
    for (std::uint32_t& g : gpus) g = random.uniform(seed % 3 == 0 ? 17 : 5);
    server_pool pool(gpus, 1 + random.uniform(4));
    std::vector<job_placement> running;
    for (std::uint32_t step = 0; step < 80; ++step) {
      const std::uint32_t rack = random.uniform(pool.num_racks());
      const id_range<node_id> among =
          random.uniform(3) == 0 ? pool.servers_of(rack) : pool.servers();
      const std::uint32_t wanted = 1 + random.uniform(12);
      const std::uint32_t most = 1 + random.uniform(4);
      const job_placement place = pool.fit(among, wanted, most);
      const std::uint32_t least = fewest(pool, among, wanted);
      REQUIRE(place.empty() == (least > most || least > among.size()));
      if (!place.empty()) {
        REQUIRE(place.size() == least);
        REQUIRE(size_of(place) == wanted);
        REQUIRE(pool.can_take(place));
        for (const placement& p : place) REQUIRE(among.contains(p.node));
        if (place.size() == 1) {
          for (const node_id n : among) {
            REQUIRE((pool.idle(n) < wanted || pool.idle(n) >= pool.idle(place[0].node)));
          }
        }
        pool.take(job_id(step), place);
        running.push_back(place);
      }
      if (!running.empty() && random.uniform(2) == 0) {
        const auto gone =
            running.begin() + random.uniform(static_cast<std::uint32_t>(running.size()));
        pool.give(*gone);
        running.erase(gone);
      }
      std::vector<node_id> servers;
      for (const node_id n : among) servers.push_back(n);
      std::stable_sort(servers.begin(), servers.end(),
                       [&](node_id a, node_id b) { return pool.idle(a) > pool.idle(b); });
      servers.resize(std::min<std::size_t>(servers.size(), most));
      REQUIRE(pool.most_idle(among, most) == servers);
      const node_id flipped(random.uniform(pool.num_servers()));
      if (random.uniform(8) == 0) pool.set_health(flipped, !pool.healthy(flipped));
      std::uint32_t idle = 0;
      for (const node_id n : pool.servers()) {
        std::uint32_t here = 0;
        for (std::uint32_t d = 0; d < pool.gpus(n); ++d) here += pool.owner(n, d).valid() ? 0U : 1U;
        REQUIRE(pool.idle(n) == (pool.healthy(n) ? here : 0));
        idle += pool.idle(n);
      }
      REQUIRE(pool.idle() == idle);
      std::uint32_t in_racks = 0;
      for (std::uint32_t r = 0; r < pool.num_racks(); ++r) in_racks += pool.idle(r);
      REQUIRE(in_racks == idle);
    }
  }
}

TEST_CASE("server_pool: the answers of a list of devices") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(12));
    for (std::uint32_t& g : gpus) g = random.uniform(seed % 3 == 0 ? 17 : 5);
    const std::uint32_t per_rack = 1 + random.uniform(4);
    server_pool pool(gpus, per_rack);
    apiary_test::naive_pool naive(gpus, per_rack);
    std::vector<job_placement> running;
    for (std::uint32_t step = 0; step < 80; ++step) {
      const std::uint32_t rack = random.uniform(pool.num_racks());
      const id_range<node_id> among =
          random.uniform(3) == 0 ? pool.servers_of(rack) : pool.servers();
      const std::uint32_t most = 1 + random.uniform(5);
      const job_placement place = pool.fit(among, 1 + random.uniform(3) * random.uniform(9), most);
      const std::uint32_t wanted = place.empty() ? 1 + random.uniform(20) : size_of(place);
      REQUIRE(pool.fit(among, wanted, most) == naive.fit(among, wanted, most));
      REQUIRE(pool.most_idle(among, most) == naive.most_idle(among, most));
      if (!place.empty()) {
        pool.take(job_id(step), place);
        naive.take(job_id(step), place);
        running.push_back(place);
      }
      if (!running.empty() && random.uniform(2) == 0) {
        const auto gone =
            running.begin() + random.uniform(static_cast<std::uint32_t>(running.size()));
        pool.give(*gone);
        naive.give(*gone);
        running.erase(gone);
      }
      const node_id flipped(random.uniform(pool.num_servers()));
      if (random.uniform(8) == 0) {
        naive.set_health(flipped, !naive.healthy(flipped));
        pool.set_health(flipped, naive.healthy(flipped));
      }
      REQUIRE(pool.idle() == naive.idle());
      REQUIRE(pool.usable() == naive.usable());
      REQUIRE(pool.total() == naive.total());
      for (std::uint32_t r = 0; r < pool.num_racks(); ++r) {
        REQUIRE(pool.servers_of(r) == naive.servers_of(r));
        REQUIRE(pool.idle(r) == naive.idle(r));
        REQUIRE(pool.total(r) == naive.total(r));
      }
      for (const node_id n : pool.servers()) {
        REQUIRE(pool.idle(n) == naive.idle(n));
        const std::uint32_t k = random.uniform(naive.idle(n) + 1);
        REQUIRE(pool.pick_idle(n, k) == naive.pick_idle(n, k));
        for (std::uint32_t d = 0; d < pool.gpus(n); ++d)
          REQUIRE(pool.owner(n, d) == naive.owner(n, d));
      }
    }
  }
}
