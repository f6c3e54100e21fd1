// apiary/tests/hived/constraints_test.cpp - HiveD gangs under constraints against trying every place.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_constraints.h"
#include "support/hived_play.h"
#include "support/naive_gang.h"
#include "support/naive_hived.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/hived_topology_fit.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::hived_play;

bool understood(const hived& h, const gang_request& r, std::uint32_t c) {
  const chain_layout& in = h.layout().chains[c];
  return constraints_of(r).valid(in.node_level, in.tree.num_levels());
}

// Whether an opportunistic gang has a place in a chain.
bool guest_fits(const hived& h, const gang_request& r, std::uint32_t c) {
  const physical_chain& chain = h.cells().chain(c);
  const std::uint32_t first = h.layout().chains[c].first_node;
  std::vector<std::uint32_t> free;
  for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
    free.push_back(0);
    if (r.suggested != nullptr && !r.suggested->test(first + n)) continue;
    for (const cell_id leaf : chain.tree().descendants(chain.node_cell(n), 0))
      free.back() += chain.healthy().healthy(leaf) && chain.holders(leaf).idle() ? 1U : 0U;
  }
  const level_t top = chain.tree().num_levels() - 1;
  const std::vector<level_t> whole(chain.tree().cells(top).size(), top);
  return apiary_test::fits_in_whole_cells(chain.tree(), chain.node_level(), whole, free, r);
}

// Whether a guaranteed gang has a place in a cluster on good hardware that none of its tenant's
// gangs has to leave; in one cell of a level, if that is given.
bool fits_beside_others(const hived& h, const gang_request& r, vc_chain_id c,
                        level_t within = any_level) {
  const virtual_cluster& cluster = h.cells().cluster(c);
  const physical_chain& chain = h.cells().chain(cluster.chain());
  std::vector<level_t> whole;
  std::vector<std::uint32_t> free;
  for (level_t l = 0; l < chain.tree().num_levels(); ++l) {
    for (const cell_id root : cluster.tree().roots(l)) {
      whole.push_back(l);
      for (const cell_id node : cluster.tree().descendants(root, std::min(l, chain.node_level()))) {
        free.push_back(0);
        for (const cell_id leaf : cluster.tree().descendants(node, 0)) {
          const cell_id image = cluster.image(leaf);
          free.back() += !image.valid() || !chain.holders(image).taken() ? 1U : 0U;
        }
      }
    }
  }
  return apiary_test::fits_in_whole_cells(chain.tree(), chain.node_level(), whole, free, r, within);
}

struct answers {
  std::uint64_t placed = 0, preferred = 0, preempting = 0, waiting = 0, checked = 0, too_large = 0,
                undecided = 0, missed = 0;
};

// Judges a plan for a gang under constraints in the state it was proposed for.
void judge(const hived& h, const gang_request& r, const gang_plan& plan, bool well, answers& seen) {
  if (!r.constraints.any()) return;
  if (plan.result != plan_result::wait) {
    ++seen.placed;
    REQUIRE(apiary_test::broken_rule(h.layout(), r, plan.tasks) == "");
    if (!well || r.priority < 0 || h.find(r.job) != nullptr) return;
    bool own_victims = false;
    for (const job_id v : plan.victims) own_victims = own_victims || h.find(v)->guaranteed();
    own_victims = own_victims || !plan.cancelled.empty() || !plan.downgraded.empty();
    seen.preempting += own_victims ? 1U : 0U;
    const std::uint32_t chain = h.layout().chain_of(plan.tasks[0].node).value;
    for (const vc_chain_id c : apiary_test::clusters_for(h, r)) {
      const virtual_cluster& cluster = h.cells().cluster(c);
      if (!understood(h, r, cluster.chain()) || apiary_test::depends_on_bindings(r, cluster))
        return;
      const bool fits = fits_beside_others(h, r, c);
      REQUIRE((!fits || !own_victims));
      if (cluster.chain() != chain) {
        REQUIRE((!fits || own_victims));
        continue;
      }
      REQUIRE((fits || own_victims));
      if (!fits || r.constraints->preferred == any_level) return;
      const level_t last =
          std::min(r.constraints->required, h.cells().chain(chain).tree().num_levels());
      for (level_t l = r.constraints->preferred; l < last; ++l) {
        if (!fits_beside_others(h, r, c, l)) continue;
        REQUIRE(apiary_test::in_one_cell(h.layout(), plan.tasks, l));
        ++seen.preferred;
        return;
      }
      return;
    }
    return;
  }
  ++seen.waiting;
  if (plan.wait.reason == wait_reason::undecided) {
    ++seen.undecided;
    REQUIRE(!well);
    return;
  }
  if (r.priority < 0) {
    for (std::uint32_t c = 0; c < h.cells().num_chains(); ++c) {
      const auto& types = h.layout().chains[c].level_types;
      if (r.leaf_type.valid() && h.find_leaf_type(types[0]) != r.leaf_type) continue;
      if (!understood(h, r, c)) continue;
      ++seen.checked;
      seen.missed += guest_fits(h, r, c) ? 1U : 0U;
    }
    return;
  }
  for (const vc_chain_id c : apiary_test::clusters_for(h, r)) {
    const virtual_cluster& cluster = h.cells().cluster(c);
    if (!understood(h, r, cluster.chain()) || apiary_test::depends_on_bindings(r, cluster))
      continue;
    apiary_test::naive_tenant naive(h, r, c);
    if (naive.unbound() > (well ? 2U : 3U)) {
      ++seen.too_large;
      continue;
    }
    ++seen.checked;
    seen.missed += naive.fits() ? 1U : 0U;
  }
}

answers play_under_rules(std::uint64_t runs, std::uint64_t events, const hived_play::habits& habits,
                         std::uint64_t first_seed) {
  answers all;
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(first_seed + run);
    rng random(first_seed + run);
    hived_play host(apiary_test::random_cluster(random), random(), habits);
    const std::uint64_t fresh = host.scheduler.hash();
    const bool well = habits.marks == 0 && !habits.suggested;
    host.observe = [&](const gang_request& r, const gang_plan& plan) {
      judge(host.scheduler, r, plan, well, all);
    };
    for (std::uint64_t i = 0; i < events; ++i) {
      CAPTURE(i);
      host.step();
      REQUIRE(apiary_test::faults_of(host.scheduler) == "");
      REQUIRE(host.broken_rules() == "");
    }
    host.tidy_up();
    REQUIRE(host.scheduler.hash() == fresh);
  }
  MESSAGE("under constraints: placed "
          << all.placed << " (" << all.preempting << " for which gangs of the tenant give way, "
          << all.preferred << " at a preferred level), waiting " << all.waiting << ", checked "
          << all.checked << ", missed " << all.missed << ", too large " << all.too_large
          << ", undecided " << all.undecided);
  CHECK(all.missed == 0);
  CHECK(all.placed * 20 >= runs * events);
  CHECK(all.waiting * 20 >= runs * events);
  CHECK(all.checked * 20 >= runs * events);
  return all;
}

TEST_CASE(
    "placements satisfy topology constraints; a gang waits only if none exists, with a proof") {
  const answers all = play_under_rules(apiary_test::scaled(std::uint64_t{400}), 400,
                                       {.gangs = 50,
                                        .ends = 20,
                                        .tasks = 5,
                                        .pursued = 20,
                                        .marks = 0,
                                        .suggested = false,
                                        .proofs = true,
                                        .constraints = 8},
                                       1);
  CHECK(all.preferred * 100 >= all.placed);
  CHECK(all.preempting * 50 >= all.placed);
  CHECK(all.undecided * 20 <= all.waiting);
}

TEST_CASE("gangs under constraints keep them where hardware is bad and hosts name nodes") {
  const answers all = play_under_rules(apiary_test::scaled(std::uint64_t{300}), 400,
                                       {.proofs = true, .constraints = 8}, 100'000);
  CHECK(all.undecided * 5 <= all.waiting);
}

}  // namespace
