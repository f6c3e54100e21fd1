// apiary/tests/gandiva/detail/servers_test.cpp - the indices of Gandiva's servers against scans.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/servers.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// The same questions, asked of all jobs and servers.
struct scanned_servers {
  std::vector<std::uint32_t> gpus{};
  std::vector<bool> healthy{};
  std::vector<std::uint32_t> affinity{};
  std::map<job_id, std::vector<gandiva_claim>> claims{};

  [[nodiscard]] std::uint32_t sum(std::uint32_t n, bool pinned_only) const {
    std::uint32_t load = 0;
    for (const auto& [job, list] : claims) {
      for (const gandiva_claim& c : list) {
        if (c.server == node_id(n) && (c.pinned || !pinned_only)) load += c.load;
      }
    }
    return load;
  }
  [[nodiscard]] std::uint32_t load(std::uint32_t n) const { return sum(n, false); }
  [[nodiscard]] std::uint32_t unsubscribed(std::uint32_t n) const {
    return healthy[n] && load(n) < gpus[n] ? gpus[n] - load(n) : 0;
  }
  [[nodiscard]] node_id least_loaded(std::uint32_t g) const {
    node_id best;
    for (std::uint32_t n = 0; n < gpus.size(); ++n) {
      if (!healthy[n] || affinity[n] != g || sum(n, true) + g > gpus[n]) continue;
      if (!best.valid() || load(n) < load(best.value)) best = node_id(n);
    }
    return best;
  }
  [[nodiscard]] node_id empty(std::uint32_t g) const {
    for (std::uint32_t n = 0; n < gpus.size(); ++n) {
      if (healthy[n] && affinity[n] == 0 && gpus[n] >= g) return node_id(n);
    }
    return {};
  }
  [[nodiscard]] node_id tightest(std::uint32_t g) const {
    node_id best;
    for (std::uint32_t n = 0; n < gpus.size(); ++n) {
      if (unsubscribed(n) >= g && (!best.valid() || unsubscribed(n) < unsubscribed(best.value)))
        best = node_id(n);
    }
    return best;
  }
  [[nodiscard]] node_id fullest(std::uint32_t most) const {
    node_id best;
    std::uint32_t excess = 0;
    for (const auto& [job, list] : claims) {
      for (const gandiva_claim& c : list) {
        const std::uint32_t n = c.server.value;
        if (!c.suspended || c.gpus > most || !healthy[n] || load(n) <= gpus[n]) continue;
        const std::uint32_t here = load(n) - gpus[n];
        if (here < excess || (here == excess && best.valid() && best < c.server)) continue;
        best = c.server;
        excess = here;
      }
    }
    return best;
  }
  [[nodiscard]] std::vector<std::pair<node_id, std::uint32_t>> spread(std::uint32_t g) const {
    std::vector<std::uint32_t> order(gpus.size());
    for (std::uint32_t n = 0; n < order.size(); ++n) order[n] = n;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return unsubscribed(a) > unsubscribed(b);
    });
    std::vector<std::pair<node_id, std::uint32_t>> parts;
    for (const std::uint32_t n : order) {
      const std::uint32_t k = std::min(g, unsubscribed(n));
      if (k > 0) parts.emplace_back(node_id(n), k);
      g -= k;
    }
    if (g > 0) parts.clear();
    return parts;
  }
};

}  // namespace

TEST_CASE("gandiva_servers: every question is answered as a scan would") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    scanned_servers naive;
    naive.gpus.resize(1 + random.uniform(8));
    for (std::uint32_t& g : naive.gpus) g = random.uniform(9);
    naive.healthy.assign(naive.gpus.size(), true);
    naive.affinity.assign(naive.gpus.size(), 0);
    gandiva_servers servers(naive.gpus, 3);
    const auto count = static_cast<std::uint32_t>(naive.gpus.size());
    // Changes one claim of a job, both here and there.
    const auto change = [&](job_id job, const gandiva_claim& before, const gandiva_claim& after) {
      servers.change(job, before, after);
      std::vector<gandiva_claim>& list = naive.claims[job];
      if (before.server.valid()) list.erase(std::find(list.begin(), list.end(), before));
      if (after.server.valid()) list.push_back(after);
      if (list.empty()) naive.claims.erase(job);
      if (before.server == after.server) return;
      const auto others = [&](node_id n) {
        return std::count_if(naive.claims.begin(), naive.claims.end(), [&](const auto& entry) {
          return std::any_of(entry.second.begin(), entry.second.end(),
                             [&](const gandiva_claim& c) { return c.server == n; });
        });
      };
      if (before.server.valid() && others(before.server) == 0)
        naive.affinity[before.server.value] = 0;
      if (after.server.valid() && others(after.server) == 1)
        naive.affinity[after.server.value] = after.gpus;
    };
    for (std::uint32_t step = 0; step < 200; ++step) {
      const job_id job(random.uniform(20));
      const node_id n(random.uniform(count));
      const auto found = naive.claims.find(job);
      if (random.uniform(12) == 0) {
        naive.healthy[n.value] = !naive.healthy[n.value];
        servers.set_health(n, naive.healthy[n.value]);
      } else if (found == naive.claims.end()) {
        const std::uint32_t gpus = 1 + random.uniform(8);
        if (random.uniform(4) == 0) {  // over two servers
          change(job, {}, {n, gpus + 8, gpus, false, true});
          const node_id other((n.value + 1) % count);
          if (other != n) change(job, {}, {other, gpus + 8, 8, false, true});
        } else if (gpus <= naive.gpus[n.value]) {
          change(job, {}, {n, gpus, gpus, random.uniform(2) == 0, false});
        }
      } else if (found->second[0].pinned || random.uniform(3) == 0) {
        for (const gandiva_claim& c : std::vector<gandiva_claim>(found->second)) change(job, c, {});
      } else {
        const gandiva_claim before = found->second[0];
        gandiva_claim after = before;
        after.load = random.uniform(2) * before.gpus;
        after.suspended = random.uniform(2) == 0;
        if (random.uniform(3) == 0 && naive.gpus[n.value] >= before.gpus) after.server = n;
        change(job, before, after);
      }
      std::uint32_t max_unsubscribed = 0;
      std::array<std::uint32_t, max_gpus_per_node + 1> num{};
      for (std::uint32_t s = 0; s < count; ++s) {
        REQUIRE(servers.load(node_id(s)) == naive.load(s));
        REQUIRE(servers.pinned(node_id(s)) == naive.sum(s, true));
        REQUIRE(servers.affinity(node_id(s)) == naive.affinity[s]);
        REQUIRE(servers.unsubscribed(node_id(s)) == naive.unsubscribed(s));
        REQUIRE(servers.over().test(s) == (naive.healthy[s] && naive.load(s) > naive.gpus[s]));
        for (std::uint32_t k = 1; k <= max_gpus_per_node; ++k) {
          REQUIRE(servers.with_unsubscribed(k).test(s) == (naive.unsubscribed(s) == k));
        }
        max_unsubscribed = std::max(max_unsubscribed, naive.unsubscribed(s));
        ++num[naive.unsubscribed(s)];
      }
      for (std::uint32_t k = 1; k <= max_gpus_per_node; ++k) {
        REQUIRE(servers.num_with_unsubscribed(k) == num[k]);
      }
      REQUIRE(servers.max_unsubscribed() == max_unsubscribed);
      for (std::uint32_t g = 1; g <= 18; ++g) {
        REQUIRE(servers.least_loaded(g) == naive.least_loaded(g));
        REQUIRE(servers.empty(g) == naive.empty(g));
        REQUIRE(servers.tightest(g) == naive.tightest(g));
        REQUIRE(servers.spread(g) == naive.spread(g));
        REQUIRE(servers.fullest(g) == naive.fullest(g));
      }
    }
  }
}
