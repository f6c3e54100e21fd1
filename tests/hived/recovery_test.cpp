// apiary/tests/hived/recovery_test.cpp - gangs that run on after a restart, and elsewhere.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_documents.h"
#include "support/hived_names.h"
#include "support/hived_play.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/queries.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::all_devices;
using apiary_test::any_device;
using apiary_test::changed_cluster;
using apiary_test::copy_health;
using apiary_test::devices_of;
using apiary_test::hived_play;
using apiary_test::placements_of;
using apiary_test::task_devices;
using apiary_test::those_there;

// A gang as the host has written it down.
struct note {
  gang_request request{};
  std::string tenant{};
  std::vector<task_devices> tasks{};
  std::vector<level_t> levels{};
  bool guaranteed = false;
};

std::vector<note> running(const hived& h) {
  std::vector<note> all;
  for (const gang_slot s : h.gangs().by_job()) {
    const gang_record& gang = h.gangs()[s];
    if (gang.state != gang_state::allocated) continue;
    all.push_back({gang.request, h.layout().tenants[gang.request.tenant.value].name,
                   devices_of(h, gang), hived_queries::whole_cell_levels(h, gang),
                   gang.guaranteed()});
  }
  return all;
}

// After all its gangs have ended and all is repaired, a scheduler is as good as new.
void check_forgets(hived& h, const hived_config& config) {
  while (h.gangs().size() > 0)
    REQUIRE(h.finish(h.gangs()[h.gangs().by_job().front()].request.job).ok());
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n)
    REQUIRE(h.mark_healthy(node_id(n)).ok());
  REQUIRE(apiary_test::faults_of(h) == "");
  REQUIRE(h.hash() == hived::create(config)->hash());
}

const hived_play::habits habits{.gangs = 50, .ends = 14, .misuses = 1};

// A host after up to 99 steps.
hived_play played(const hived_config& config, rng& random) {
  hived_play host(config, random(), habits);
  for (std::uint32_t i = 0, n = random.uniform(100); i < n; ++i) host.step();
  return host;
}

// Of the tenants' cells some as the cells that are in them.
hived_config divided(hived_config config, rng& random) {
  for (virtual_cluster_config& tenant : config.virtual_clusters) {
    for (std::size_t i = 0; i < tenant.cells.size();) {
      const std::string all = tenant.cells[i].type;
      const std::string type = all.substr(all.rfind('.') + 1);
      const auto known = std::find_if(config.cell_types.begin(), config.cell_types.end(),
                                      [&](const auto& t) { return t.name == type; });
      if (known == config.cell_types.end() || random.uniform(3) == 0) {
        ++i;
        continue;
      }
      const std::uint32_t count = known->child_count * tenant.cells[i].count;
      tenant.cells.erase(tenant.cells.begin() + static_cast<std::ptrdiff_t>(i));
      tenant.cells.insert(tenant.cells.end(), count, {all + "." + known->child_type, 1});
    }
  }
  return config;
}

// In half of the runs whole cells were divided before: then a task may lie in several.
TEST_CASE("gangs replayed with the levels of their whole cells keep them, if they come first") {
  std::uint64_t guaranteed = 0;
  std::uint64_t spread = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{10'000});
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(run);
    hived_config config = apiary_test::random_cluster(random);
    hived_play host = played(config, random);
    if (run % 2 == 1) {
      config = divided(config, random);
      REQUIRE(host.scheduler.reconfigure(config).ok());
    }
    std::vector<note> notes = running(host.scheduler);
    random.shuffle(notes);
    std::stable_partition(notes.begin(), notes.end(), [](const note& n) { return n.guaranteed; });
    hived again = *hived::create(config);
    if (random.uniform(2) == 0) copy_health(host.scheduler, again);
    for (const note& n : notes) {
      const auto recovered = again.recover(n.request, placements_of(again, n.tasks), n.levels);
      REQUIRE(recovered.ok());
      if (n.guaranteed) REQUIRE(*recovered);
      guaranteed += n.guaranteed ? 1U : 0U;
      REQUIRE(apiary_test::faults_of(again) == "");
    }
    for (const note& n : notes) {
      const gang_record& gang = *again.find(n.request.job);
      if (!n.guaranteed) continue;
      REQUIRE(hived_queries::whole_cell_levels(again, gang) == n.levels);
      std::size_t i = 0;
      for (const task_devices& task : n.tasks) {
        const auto first = n.levels.begin() + static_cast<std::ptrdiff_t>(i);
        const auto last = first + static_cast<std::ptrdiff_t>(task.size());
        spread += std::adjacent_find(first, last, std::not_equal_to<>()) != last ? 1U : 0U;
        i += task.size();
      }
    }
    if (notes.empty()) continue;
    std::vector<level_t> one_too_many(1);
    for (const task_devices& task : notes[0].tasks)
      one_too_many.resize(one_too_many.size() + task.size());
    gang_request r = notes[0].request;
    r.job = job_id(1'000'000);
    const std::uint64_t before = again.hash();
    const auto refused = again.recover(r, placements_of(again, notes[0].tasks), one_too_many);
    REQUIRE(refused.status().code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(again.hash() == before);
  }
  MESSAGE("guaranteed " << guaranteed << ", all with their cells; tasks in cells of several levels "
                        << spread);
  CHECK(guaranteed > runs / 2);
  if (apiary_test::scale() >= 0.1) CHECK(spread > 0);
}

TEST_CASE("a task in whole cells of two levels comes back without another one's cell") {
  hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2}, {"NODE", "PAIR", 2, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE.PAIR", 2}, {"NODE.PAIR.GPU", 1}}}};
  const gang_request pair{
      .job = job_id(1), .tenant = tenant_id(0), .priority = 0, .groups = {{1, 2}}};
  const gang_request three{
      .job = job_id(2), .tenant = tenant_id(0), .priority = 0, .groups = {{1, 3}}};
  const std::vector<hived_placement> left = {{node_id(0), 0b0011}};
  const std::vector<hived_placement> right = {{node_id(1), 0b0111}};
  hived h = *hived::create(config);
  REQUIRE(*h.recover(pair, left));
  REQUIRE(*h.recover(three, right));  // a whole pair, and of the other one a GPU
  const std::vector<level_t> levels = hived_queries::whole_cell_levels(h, *h.find(three.job));
  CHECK(levels == std::vector<level_t>{1, 1, 0});

  hived again = *hived::create(config);
  REQUIRE(*again.recover(three, right, levels));
  CHECK(*again.recover(pair, left, hived_queries::whole_cell_levels(h, *h.find(pair.job))));
  CHECK(hived_queries::whole_cell_levels(again, *again.find(three.job)) == levels);
  CHECK(again.find(three.job)->guaranteed());
  CHECK(apiary_test::faults_of(again) == "");
}

// Without levels a gang takes the largest whole cell that it can have, and that one may have been
// another's: of those that come later some do not find a cell of their size any more.
TEST_CASE("gangs replayed after a restart, in any order, run where they ran") {
  std::uint64_t replayed = 0;
  std::uint64_t guaranteed = 0;
  std::uint64_t downgraded = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{10'000});
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(run);
    const hived_config config = apiary_test::random_cluster(random);
    hived_play host = played(config, random);
    std::vector<note> notes = running(host.scheduler);
    random.shuffle(notes);
    hived again = *hived::create(config);
    const bool health_first = random.uniform(2) == 0;
    if (health_first) copy_health(host.scheduler, again);
    for (const note& n : notes) {
      const auto recovered = again.recover(n.request, placements_of(again, n.tasks));
      REQUIRE(recovered.ok());
      REQUIRE(apiary_test::faults_of(again) == "");
      const gang_record* gang = again.find(n.request.job);
      REQUIRE(gang != nullptr);
      REQUIRE(*recovered == !gang->downgraded);
      REQUIRE(devices_of(again, *gang) == n.tasks);
      ++replayed;
      guaranteed += n.guaranteed ? 1 : 0;
      downgraded += n.guaranteed && gang->downgraded ? 1 : 0;
    }
    if (!health_first) copy_health(host.scheduler, again);
    REQUIRE(apiary_test::faults_of(again) == "");
    check_forgets(again, config);
  }
  MESSAGE(replayed << " gangs replayed, " << guaranteed << " had their tenant's cells, of these "
                   << downgraded << " lost them");
  CHECK(downgraded * 10 <= guaranteed);
}

// Whether each cell of a tenant is bound to the same physical cell in both.
bool are_bound_alike(const hived& a, const hived& b) {
  for (std::uint32_t c = 0; c < a.cells().num_clusters(); ++c) {
    const virtual_cluster& cluster = a.cells().cluster(vc_chain_id(c));
    for (std::uint32_t v = 0; v < cluster.tree().num_cells(); ++v)
      if (cluster.image(cell_id(v)) != b.cells().cluster(vc_chain_id(c)).image(cell_id(v)))
        return false;
  }
  return true;
}

TEST_CASE(
    "gangs replayed in the order of their commits: the hash says whether cells are the same") {
  std::uint64_t alike = 0;
  std::uint64_t others = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{4'000});
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(run + 4'000'000);
    const hived_config config = apiary_test::random_cluster(random);
    hived h = *hived::create(config);
    std::vector<job_id> order;
    for (std::uint32_t i = 0, n = 1 + random.uniform(12); i < n; ++i) {
      const auto plan = h.propose(apiary_test::random_gang(h.layout(), job_id(i), random));
      if (!plan.ok() || plan->result != plan_result::bind || !plan->downgraded.empty()) continue;
      REQUIRE(h.commit(*plan).ok());
      order.push_back(job_id(i));
    }
    hived again = *hived::create(config);
    for (const job_id job : order) {
      const gang_record& gang = *h.find(job);
      const auto own =
          again.recover(gang.request, h.tasks(gang), hived_queries::whole_cell_levels(h, gang));
      REQUIRE((own.ok() && *own));
    }
    REQUIRE(apiary_test::faults_of(again) == "");
    const bool same = are_bound_alike(h, again);
    REQUIRE((again.hash() == h.hash()) == same);
    ++(same ? alike : others);
  }
  MESSAGE(alike << " with the same cells, " << others << " with others");
  CHECK(alike * 2 > runs);
  if (runs >= 100) CHECK(others > 0);
}

TEST_CASE("gangs run on in a changed configuration, as long as a leaf of theirs is there") {
  std::uint64_t kept = 0;
  std::uint64_t downgraded = 0;
  std::uint64_t gone = 0;
  std::uint64_t returned = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{10'000});
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(run + 1'000'000);
    hived_config before = apiary_test::random_cluster(random);
    rng hosts(run);
    if (run % 8 == 7) apiary_test::share_hosts(before, hosts);
    hived_play host = played(before, random);
    hived& h = host.scheduler;
    const hived old = h;
    const std::vector<note> notes = running(old);
    const hived_config after = changed_cluster(before, random);
    const auto report = h.reconfigure(after);
    REQUIRE(report.ok());
    REQUIRE(apiary_test::faults_of(h) == "");
    const auto has = [](const std::vector<job_id>& jobs, job_id job) {
      return std::find(jobs.begin(), jobs.end(), job) != jobs.end();
    };
    REQUIRE(notes.size() + report->cancelled.size() == old.gangs().size());
    REQUIRE(notes.size() == h.gangs().size() + report->gone.size());
    for (const job_id job : report->cancelled) {
      REQUIRE(old.find(job)->state == gang_state::preempting);
      REQUIRE(h.find(job) == nullptr);
    }
    const auto present = all_devices(h);
    for (const note& n : notes) {
      const std::vector<task_devices> left = those_there(n.tasks, present);
      const bool any = any_device(left);
      const gang_record* gang = h.find(n.request.job);
      REQUIRE((gang != nullptr) == any);
      REQUIRE(has(report->gone, n.request.job) == !any);
      REQUIRE(has(report->shrunk, n.request.job) == (any && left != n.tasks));
      gone += any ? 0 : 1;
      if (!any) continue;
      REQUIRE(devices_of(h, *gang) == left);
      REQUIRE((!gang->guaranteed() || gang->request.tenant == h.layout().find_tenant(n.tenant)));
      REQUIRE(has(report->downgraded, n.request.job) == (n.guaranteed && !gang->guaranteed()));
      ++(n.guaranteed && !gang->guaranteed() ? downgraded : kept);
    }

    // Back again: a gang that still runs has all its leaves again.
    hived back = h;
    const auto reported = back.reconfigure(before);
    REQUIRE(reported.ok());
    REQUIRE(apiary_test::faults_of(back) == "");
    REQUIRE((reported->gone.empty() && reported->cancelled.empty()));
    for (const note& n : notes) {
      const gang_record* gang = back.find(n.request.job);
      REQUIRE((gang == nullptr) == has(report->gone, n.request.job));
      if (gang == nullptr) continue;
      REQUIRE(devices_of(back, *gang) == n.tasks);
      returned += has(report->shrunk, n.request.job) ? 1U : 0U;
    }

    // A restart with the new configuration: in any order, what is no more is named by nothing.
    hived fresh = *hived::create(after);
    std::vector<note> order = notes;
    random.shuffle(order);
    for (const note& n : order) {
      gang_request r = n.request;
      r.tenant = fresh.layout().find_tenant(n.tenant).value_or(tenant_id());
      r.leaf_type = {};
      if (r.pinned) {
        r.pinned = fresh.layout().find_pinned(old.layout().pinned[*r.pinned].id);
        if (!r.pinned || fresh.layout().pinned[*r.pinned].tenant != r.tenant) r.tenant = {};
        if (!r.tenant.valid()) r.pinned.reset();
      }
      const auto recovered = fresh.recover(r, placements_of(fresh, n.tasks));
      if (has(report->gone, r.job)) {
        REQUIRE(recovered.status().code() == absl::StatusCode::kInvalidArgument);
        continue;
      }
      REQUIRE(recovered.ok());
      REQUIRE(apiary_test::faults_of(fresh) == "");
      REQUIRE(devices_of(fresh, *fresh.find(r.job)) == devices_of(h, *h.find(r.job)));
    }
    check_forgets(h, after);
    check_forgets(fresh, after);
  }
  MESSAGE(kept << " gangs kept what they had, " << downgraded << " lost their tenant's cells, "
               << gone << " had no leaf left, " << returned << " had some and later all again");
  CHECK(returned > runs / 10);
}

TEST_CASE("in the same configuration no gang is downgraded, and all run where they ran") {
  std::uint64_t guaranteed = 0;
  std::uint64_t restored = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{10'000});
  for (std::uint64_t run = 0; run < runs; ++run) {
    CAPTURE(run);
    rng random(run + 2'000'000);
    const hived_config config = apiary_test::random_cluster(random);
    hived_play host = played(config, random);
    hived& h = host.scheduler;
    const hived old = h;
    const auto report = h.reconfigure(config);
    REQUIRE(report.ok());
    REQUIRE(apiary_test::faults_of(h) == "");
    REQUIRE(report->downgraded.empty());
    REQUIRE(report->gone.empty());
    for (const gang_slot s : old.gangs().by_job()) {
      const gang_record& before = old.gangs()[s];
      if (before.state == gang_state::preempting) continue;
      const gang_record* after = h.find(before.request.job);
      REQUIRE(after != nullptr);
      REQUIRE(devices_of(h, *after) == devices_of(old, before));
      if (before.guaranteed()) REQUIRE(after->cluster == before.cluster);
      guaranteed += before.guaranteed() ? 1U : 0U;
      restored += before.downgraded && !after->downgraded ? 1U : 0U;
    }
    check_forgets(h, config);
  }
  MESSAGE(guaranteed << " gangs kept their tenant's cells, " << restored << " had them again");
  if (apiary_test::scale() >= 1) CHECK(guaranteed > 0);
}

TEST_CASE("every invariant holds over restarts and changes of the configuration") {
  hived_play::counts all;
  const hived_play::habits often{
      .gangs = 40, .ends = 12, .tasks = 14, .misuses = 1, .moves = 6, .restarts = 3};
  const auto runs = apiary_test::scaled(std::uint64_t{1000});
  for (std::uint64_t run = 0; run < runs; ++run) {
    rng random(run + 3'000'000);
    hived_play host(apiary_test::random_cluster(random), random(), often);
    for (std::uint32_t i = 0; i < 300; ++i) {
      CAPTURE(run);
      CAPTURE(i);
      host.step();
      REQUIRE(apiary_test::faults_of(host.scheduler) == "");
    }
    CAPTURE(run);
    host.tidy_up();
    REQUIRE(host.scheduler.hash() == hived::create(host.config())->hash());
    all.moved += host.seen.moved;
    all.restarted += host.seen.restarted;
    all.returned += host.seen.returned;
    all.outlived += host.seen.outlived;
  }
  MESSAGE(all.moved << " other configurations, " << all.restarted << " restarts; " << all.returned
                    << " gangs had devices again that were gone, " << all.outlived
                    << " ran on with none but such");
  CHECK(all.returned * 10 > runs);
  CHECK(all.outlived * 50 > runs);
}

TEST_CASE("what cannot be recovered is refused, and changes nothing") {
  hived h = *hived::create(apiary_test::small_cluster());
  gang_request r{.job = job_id(1), .tenant = tenant_id(1), .priority = 0, .groups = {{2, 2}}};
  const node_id n2 = *h.layout().find_node("n2");
  const node_id n3 = *h.layout().find_node("n3");
  const std::vector<hived_placement> good = {{n2, 0b0011}, {n3, 0b1100}};
  const std::uint64_t fresh = h.hash();
  const auto code = [&](const gang_request& request, const std::vector<hived_placement>& tasks) {
    const std::uint64_t before = h.hash();
    const absl::StatusCode found = h.recover(request, tasks).status().code();
    CHECK(h.hash() == before);
    return found;
  };
  using absl::StatusCode;
  CHECK(code(r, {good[0]}) == StatusCode::kInvalidArgument);
  CHECK(code(r, {good[0], good[1], good[1]}) == StatusCode::kInvalidArgument);
  CHECK(code(r, {good[0], {n3, 0b0111}}) == StatusCode::kInvalidArgument);
  CHECK(code(r, {good[0], {n3, 0b110000}}) == StatusCode::kInvalidArgument);
  CHECK(code(r, {good[0], good[0]}) == StatusCode::kInvalidArgument);
  CHECK(code(r, {{n2, 0}, {n3, 0}}) == StatusCode::kInvalidArgument);
  CHECK(code(r, {good[0], {node_id(99), 0b11}}) == StatusCode::kNotFound);
  gang_request wrong = r;
  wrong.tenant = tenant_id(9);
  CHECK(code(wrong, good) == StatusCode::kNotFound);
  wrong = r;
  wrong.priority = 1001;
  CHECK(code(wrong, good) == StatusCode::kInvalidArgument);
  wrong = r;
  wrong.pinned = 0;  // the other tenant's
  CHECK(code(wrong, good) == StatusCode::kFailedPrecondition);

  // A gang may have been larger than this cluster, but there are limits.
  wrong = r;
  wrong.groups = {{1025, 64}};
  std::vector<hived_placement> one_known(1025);
  one_known[7] = {n2, 0b0011};
  CHECK(code(wrong, one_known) == StatusCode::kInvalidArgument);
  wrong.groups = {{1024, 64}};
  one_known.pop_back();
  CHECK(h.recover(wrong, one_known).ok());
  CHECK(apiary_test::faults_of(h) == "");
  CHECK(h.finish(wrong.job).ok());

  CHECK(*h.recover(r, good));
  CHECK(code(r, good) == StatusCode::kAlreadyExists);
  gang_request other = r;
  other.job = job_id(2);
  CHECK(code(other, {{n2, 0b1100}, {n3, 0b1001}}) == StatusCode::kFailedPrecondition);
  CHECK(*h.recover(other, std::vector<hived_placement>{{n2, 0b1100}, {node_id(), 0}}));
  CHECK(apiary_test::faults_of(h) == "");

  // The tenant has no more than this rack, and of another nothing: these run on without cells.
  gang_request elsewhere = r;
  elsewhere.job = job_id(3);
  const node_id n0 = *h.layout().find_node("n0");
  CHECK_FALSE(*h.recover(elsewhere, std::vector<hived_placement>{{n0, 0b0011}, {node_id(), 0}}));
  CHECK(h.find(job_id(3))->downgraded);
  gang_request orphan = r;
  orphan.job = job_id(4);
  orphan.tenant = tenant_id();
  CHECK_FALSE(*h.recover(orphan, std::vector<hived_placement>{{n0, 0b1000}, {node_id(), 0}}));
  CHECK(apiary_test::faults_of(h) == "");
  for (std::uint32_t job = 1; job <= 4; ++job) CHECK(h.finish(job_id(job)).ok());
  CHECK(h.hash() == fresh);
}

}  // namespace
