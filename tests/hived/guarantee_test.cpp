// apiary/tests/hived/guarantee_test.cpp - what fits in a cluster of the tenant's own also fits here.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/naive_hived.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// The same physical cluster with this tenant only; pinned cells of others have no tenant.
hived_config only(const hived_config& config, std::size_t tenant) {
  hived_config alone = config;
  alone.virtual_clusters = {config.virtual_clusters[tenant]};
  return alone;
}

// A shared cluster ("here"), and for each tenant a cluster of its own ("there"). Both get the same
// guaranteed gangs; gangs end and shrink task by task. Opportunistic gangs are only here.
// Victims end at once, because the guarantee holds only after they have ended. Until then the
// clusters may differ: a gang that waits for opportunistic gangs here runs there. A gang of higher
// priority then cancels it here, which is cheaper than to end it, and may have other victims there.
//
// On healthy hardware, every gang that is placed there is also placed here. On bad hardware a gang
// may be refused here only: there the tenant may use all healthy cells, here only those that the
// other tenants' reservations leave. A gang refused there may run here, so that a later gang does
// not fit here. Each refusal is checked: no choice of cells that leaves the other tenants their
// cells has a placement for the gang.
class duel {
 public:
  struct counts {
    std::uint64_t events = 0, asked = 0, granted = 0, opportunistic = 0, victims = 0,
                  downgraded = 0, waiting = 0, refused_here_only = 0, unchecked_here_only = 0,
                  refused_there_only = 0, checked = 0, missed = 0, proven = 0, proven_for_some = 0,
                  too_large = 0, undecided = 0, shrunk = 0;
    void add(const counts& o) {
      events += o.events, asked += o.asked, granted += o.granted;
      opportunistic += o.opportunistic, victims += o.victims, downgraded += o.downgraded;
      waiting += o.waiting, refused_here_only += o.refused_here_only;
      unchecked_here_only += o.unchecked_here_only;
      refused_there_only += o.refused_there_only, checked += o.checked, proven += o.proven;
      missed += o.missed, proven_for_some += o.proven_for_some;
      too_large += o.too_large, undecided += o.undecided;
      shrunk += o.shrunk;
    }
  };

  // `marks`: of 100 events, how many mark hardware; where none do, both must answer alike.
  duel(const hived_config& config, std::uint64_t seed, std::uint32_t marks)
      : shared(*hived::create(config)), random(seed), marks_(marks) {
    for (std::size_t t = 0; t < config.virtual_clusters.size(); ++t)
      alone.push_back(*hived::create(only(config, t)));
  }

  hived shared;
  std::vector<hived> alone;  // of each tenant
  rng random;
  counts seen{};

  void step() {
    ++seen.events;
    if (random.uniform(100) < marks_) return mark();
    const std::uint32_t what = random.uniform(100);
    if (what < 60 || owner_.empty()) return ask();
    const auto at =
        std::next(owner_.begin(), random.uniform(static_cast<std::uint32_t>(owner_.size())));
    if (what < 80) return end(at->first);
    end_task(at->first, random.uniform(3));
  }
  // The same leaves of every tenant are in use here and there.
  void compare() const {
    for (std::uint32_t t = 0; t < alone.size(); ++t) {
      for (std::uint32_t c = 0; c < shared.cells().num_chains(); ++c)
        compare(t, shared.cells().cluster_of(tenant_id(t), c),
                alone[t].cells().cluster_of(tenant_id(0), c));
      for (std::uint32_t p = 0; p < shared.layout().pinned.size(); ++p) {
        if (shared.layout().pinned[p].tenant == tenant_id(t))
          compare(t, shared.cells().cluster_of_pinned(p), alone[t].cells().cluster_of_pinned(p));
      }
    }
  }

 private:
  void compare(std::uint32_t t, vc_chain_id here, vc_chain_id there) const {
    REQUIRE(here.valid() == there.valid());
    if (!here.valid()) return;
    const virtual_cluster& a = shared.cells().cluster(here);
    const virtual_cluster& b = alone[t].cells().cluster(there);
    REQUIRE(a.num_nodes() == b.num_nodes());
    for (std::uint32_t n = 0; n < a.num_nodes(); ++n) REQUIRE(a.free(n) == b.free(n));
  }

  void mark() {
    const node_id node(random.uniform(shared.layout().num_nodes()));
    const bool good = random.uniform(100) < 55;
    const chain_layout& in = shared.layout().chain(shared.layout().chain_of(node));
    const std::uint32_t leaf = random.uniform(in.tree.leaves_per_cell(in.node_level));
    const bool whole = random.uniform(3) == 0;
    const auto in_one = [&](hived& h) {
      if (whole) {
        REQUIRE((good ? h.mark_healthy(node) : h.mark_bad(node)).ok());
      } else {
        REQUIRE((good ? h.mark_healthy(node, leaf) : h.mark_bad(node, leaf)).ok());
      }
    };
    in_one(shared);
    for (hived& h : alone) in_one(h);
  }

  void end(job_id job) {
    hived& there = alone[owner_.at(job)];
    REQUIRE(shared.finish(job).ok());
    if (there.find(job) != nullptr) REQUIRE(there.finish(job).ok());
    owner_.erase(job);
  }
  void end_task(job_id job, std::uint32_t task) {
    hived& there = alone[owner_.at(job)];
    const bool had = there.find(job) != nullptr;
    const bool here = shared.finish_task(job, task).ok();
    const bool done = had && there.finish_task(job, task).ok();
    REQUIRE((!had || here == done));
    if (shared.find(job) == nullptr) owner_.erase(job);
    seen.shrunk += here && owner_.contains(job) ? 1U : 0U;
  }
  void commit(hived& h, const gang_plan& plan) {
    REQUIRE(plan.cancelled.empty());
    REQUIRE(h.commit(plan).ok());
  }
  // The victims have ended: the gang can run.
  void bind(hived& h, const gang_request& r) {
    const gang_record* gang = h.find(r.job);
    REQUIRE(gang != nullptr);
    if (gang->state == gang_state::allocated) return;
    const auto bound = h.propose(r);
    REQUIRE((bound.ok() && bound->result == plan_result::bind));
    REQUIRE(h.commit(*bound).ok());
  }
  void ask() {
    gang_request r = random_gang_of_ours();
    const std::uint32_t tenant = r.tenant.value;
    if (r.priority < 0) {
      const auto plan = shared.propose(r);
      if (!plan.ok() || plan->result != plan_result::bind) return;
      REQUIRE(shared.commit(*plan).ok());
      owner_[r.job] = tenant;
      ++seen.opportunistic;
      return;
    }
    const summary_bitset nodes = apiary_test::random_nodes(shared.layout(), random);
    if (marks_ > 0 && random.uniform(3) == 0) r.suggested = &nodes;
    gang_request r_alone = r;
    r_alone.tenant = tenant_id(0);
    const auto here = shared.propose(r);
    const auto there = alone[tenant].propose(r_alone);
    CAPTURE(r.job.value);
    REQUIRE(here.status().code() == there.status().code());
    if (!here.ok()) return;
    ++seen.asked;
    const bool granted_here = here->result != plan_result::wait;
    const bool granted_there = there->result != plan_result::wait;
    if (marks_ == 0) {
      REQUIRE((granted_here || !granted_there));
      REQUIRE(here->downgraded == there->downgraded);
    }
    seen.refused_here_only += granted_there && !granted_here ? 1 : 0;
    seen.refused_there_only += granted_here && !granted_there ? 1 : 0;
    if (!granted_here) {
      ++seen.waiting;
      const std::uint64_t open = seen.too_large + seen.undecided;
      check_refusal(r, *here);
      if (granted_there && seen.too_large + seen.undecided > open) ++seen.unchecked_here_only;
      return;
    }
    ++seen.granted;
    seen.downgraded += here->downgraded.size();
    owner_[r.job] = tenant;
    commit(shared, *here);
    if (granted_there) commit(alone[tenant], *there);
    std::set<job_id> victims(here->victims.begin(), here->victims.end());
    if (granted_there) victims.insert(there->victims.begin(), there->victims.end());
    for (const job_id victim : victims) end(victim);
    seen.victims += victims.size();
    bind(shared, r);
    if (granted_there) bind(alone[tenant], r_alone);
  }
  gang_request random_gang_of_ours() {
    gang_request r = apiary_test::random_gang(shared.layout(), job_id(next_++), random);
    if (marks_ > 0 && r.priority > 3) r.priority = 3;
    return r;
  }
  void check_refusal(const gang_request& r, const gang_plan& plan) {
    const std::vector<vc_chain_id> clusters = apiary_test::clusters_for(shared, r);
    if (plan.wait.reason == wait_reason::undecided) {
      ++seen.undecided;  // it says so, and may be wrong
      return;
    }
    for (const vc_chain_id c : clusters) {
      apiary_test::naive_tenant naive(shared, r, c);
      if (marks_ == 0) {
        if (shared.cells().cluster(c).chain() == plan.wait.chain && plan.wait.shortage)
          REQUIRE(naive.slots(plan.wait.shortage->gpus) == plan.wait.shortage->present);
      }
      if (naive.unbound() > (marks_ == 0 ? 2U : 4U)) {
        ++seen.too_large;
        continue;
      }
      ++seen.checked;
      if (naive.fits()) {
        ++seen.missed;
        continue;
      }
      if (marks_ == 0) continue;
      if (shared.cells().cluster(c).chain() != plan.wait.chain || !plan.wait.shortage) continue;
      ++seen.proven;
      seen.proven_for_some += naive.proven_by(*plan.wait.shortage) ? 0U : 1U;
    }
  }

  std::uint32_t marks_;
  std::map<job_id, std::uint32_t> owner_{};  // of each gang in the shared cluster, its tenant
  std::uint32_t next_ = 0;
};

duel::counts fight(std::uint64_t runs, std::uint64_t events, std::uint32_t marks,
                   std::uint64_t first_seed) {
  duel::counts all;
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(first_seed + run);
    rng random(first_seed + run);
    const hived_config config = apiary_test::random_cluster(random);
    duel d(config, random(), marks);
    for (std::uint64_t i = 0; i < events; ++i) {
      CAPTURE(i);
      d.step();
      if (marks == 0) d.compare();
    }
    all.add(d.seen);
  }
  MESSAGE("events " << all.events << ", asked " << all.asked << ", granted " << all.granted
                    << ", opportunistic " << all.opportunistic << ", victims " << all.victims
                    << ", downgraded " << all.downgraded << ", waiting " << all.waiting
                    << ", refused here only " << all.refused_here_only << " ("
                    << all.unchecked_here_only << " not checked), there only "
                    << all.refused_there_only << ", checked " << all.checked << ", missed "
                    << all.missed << ", proven " << all.proven << " (" << all.proven_for_some
                    << " not for all choices of cells)"
                    << ", too large " << all.too_large << ", undecided " << all.undecided
                    << ", shrunk " << all.shrunk);
  CHECK(all.missed == 0);
  // Everything happens often.
  CHECK(all.granted * 10 >= all.events);
  CHECK(all.waiting * 10 >= all.events);
  CHECK(all.checked * 10 >= all.events);
  CHECK(all.opportunistic * 20 >= all.events);
  CHECK(all.victims * 100 >= all.events);
  CHECK(all.downgraded * 1000 >= all.events);
  CHECK(all.shrunk * 200 >= all.events);
  return all;
}

TEST_CASE("a tenant waits for nothing that it could run alone, while all hardware is well") {
  const duel::counts all = fight(apiary_test::scaled(std::uint64_t{2000}), 500, 0, 1);
  CHECK(all.refused_here_only == 0);
}

TEST_CASE(
    "on bad hardware, a gang waits only if no placement leaves the other tenants their cells") {
  const duel::counts all = fight(apiary_test::scaled(std::uint64_t{1000}), 400, 15, 1'000'000);
  CHECK(all.refused_here_only * 10 <= all.asked);
  CHECK(all.unchecked_here_only * 10 <= all.refused_here_only);
  CHECK(all.proven_for_some == 0);
  CHECK(all.undecided * 1000 <= all.waiting);
  CHECK(all.proven * 10 >= all.events);
}

}  // namespace
