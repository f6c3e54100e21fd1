// apiary/tests/hived/gang_table_test.cpp - gangs by slot, job and cluster against a map.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

gang_record record(std::uint32_t job, vc_chain_id cluster, std::int32_t priority = 0) {
  gang_record gang;
  gang.request.job = job_id(job);
  gang.request.priority = priority;
  gang.cluster = cluster;
  gang.leaves = {{0, cell_id(job)}, {0, cell_id()}, {0, cell_id(job + 1)}};
  return gang;
}

void check(const gang_table& table, const std::map<std::uint32_t, vc_chain_id>& known,
           std::uint32_t clusters) {
  REQUIRE(table.size() == known.size());
  std::vector<std::set<std::uint32_t>> of_cluster(clusters);
  std::set<gang_slot> slots;
  for (const auto& [job, cluster] : known) {
    const std::optional<gang_slot> slot = table.find(job_id(job));
    REQUIRE(slot);
    REQUIRE(slots.insert(*slot).second);
    REQUIRE(table[*slot].request.job == job_id(job));
    REQUIRE(table[*slot].cluster == cluster);
    if (cluster.valid()) of_cluster[cluster.value].insert(job);
  }
  for (std::uint32_t c = 0; c < clusters; ++c) {
    std::set<std::uint32_t> listed;
    const gang_table::ranked* before = nullptr;
    for (const auto& [g, slot] : table.of_cluster(vc_chain_id(c))) {
      const gang_record& gang = table[slot];
      REQUIRE(listed.insert(gang.request.job.value).second);
      REQUIRE(g.runs == (gang.state == gang_state::allocated));
      REQUIRE(g.priority == gang.request.priority);
      REQUIRE(g.leaves == gang.count_live(0, gang.leaves.size()));
      REQUIRE((before == nullptr || *before < g));
      before = &g;
    }
    REQUIRE(listed == of_cluster[c]);
  }
  std::vector<std::uint32_t> in_order;
  for (const gang_slot s : table.by_job()) in_order.push_back(table[s].request.job.value);
  REQUIRE(in_order.size() == known.size());
  REQUIRE(std::equal(in_order.begin(), in_order.end(), known.begin(),
                     [](std::uint32_t job, const auto& k) { return job == k.first; }));
}

}  // namespace

TEST_CASE("random gangs come, go and change clusters") {
  constexpr std::uint32_t clusters = 3;
  rng random(53);
  const auto any_cluster = [&] {
    const std::uint32_t c = random.uniform(clusters + 1);
    return c < clusters ? vc_chain_id(c) : vc_chain_id();
  };
  gang_table table(clusters);
  std::map<std::uint32_t, vc_chain_id> known;
  for (int step = 0; step < apiary_test::scaled(5000); ++step) {
    const std::uint32_t job = random.uniform(40);
    const auto slot = table.find(job_id(job));
    REQUIRE(slot.has_value() == known.contains(job));
    if (!slot) {
      known[job] = any_cluster();
      REQUIRE(
          table[table.add(record(job, known[job], static_cast<std::int32_t>(random.uniform(3))))]
              .request.job == job_id(job));
    } else if (random.uniform(3) == 0) {
      known[job] = any_cluster();
      table.move(*slot, known[job]);
    } else if (random.uniform(2) == 0) {
      gang_record& gang = table[*slot];
      gang.state = random.uniform(2) == 0 ? gang_state::allocated : gang_state::preempting;
      for (chain_leaf& l : gang.leaves)
        l.leaf = random.uniform(2) == 0 ? cell_id() : cell_id(random.uniform(9));
      table.rank(*slot);
    } else {
      table.remove(*slot);
      known.erase(job);
    }
    check(table, known, clusters);
  }
}

TEST_CASE("a slot is used again, and nothing of its last gang is left") {
  gang_table table(1);
  gang_record first = record(7, vc_chain_id(0));
  first.leaves.push_back({0, cell_id(3)});
  first.downgraded = true;
  const gang_slot slot = table.add(std::move(first));
  CHECK(table.add(record(8, vc_chain_id())) != slot);
  table.remove(slot);
  CHECK(!table.find(job_id(7)));
  CHECK(table.add(record(9, vc_chain_id(0))) == slot);
  CHECK(table[slot].leaves.size() == 3);
  CHECK(!table[slot].downgraded);
}

TEST_CASE("an empty table gives its slots in the order that was set, the last first") {
  gang_table table(1);
  table.set_vacant({gang_slot(1), gang_slot(2), gang_slot(0)});
  gang_record gang;
  for (const std::uint32_t slot : {0U, 2U, 1U, 3U}) {
    gang.request.job = job_id(slot);
    CHECK(table.add(gang) == gang_slot(slot));
  }
  CHECK(table.vacant().empty());
}

TEST_CASE("a gang without a cluster counts as opportunistic, whatever its priority was") {
  CHECK(record(1, vc_chain_id(0), 5).guaranteed());
  CHECK(record(1, vc_chain_id(0), 5).effective_priority() == 5);
  CHECK(!record(1, vc_chain_id(), 5).guaranteed());
  CHECK(record(1, vc_chain_id(), 5).effective_priority() == gang_request::opportunistic_priority);
}

TEST_CASE("tasks have their leaves one after another") {
  gang_record gang = record(1, vc_chain_id());
  gang.request.groups = {{2, 3}, {0, 5}, {1, 4}};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  gang.for_each_task([&](const task_group& m, std::uint32_t first, std::uint32_t last) {
    CHECK(last - first == m.gpus);
    ranges.emplace_back(first, last);
  });
  CHECK(ranges == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 3}, {3, 6}, {6, 10}});
}

TEST_CASE("leaves are ordered by chain, then by cell") {
  CHECK(chain_leaf{0, cell_id(9)} < chain_leaf{1, cell_id(0)});
  CHECK(chain_leaf{1, cell_id(0)} < chain_leaf{1, cell_id(2)});
  CHECK(!chain_leaf{}.leaf.valid());
}

TEST_CASE("leaves_of gives the leaves of a task that for_each_task gives") {
  gang_record gang;
  gang.request.groups = {{2, 3}, {1, 1}, {3, 2}};
  gang.leaves.resize(13);
  for (std::uint32_t i = 0; i < 13; ++i)
    if (i % 3 != 1) gang.leaves[i].leaf = cell_id(i);
  std::uint32_t task = 0;
  gang.for_each_task([&](const task_group&, std::uint32_t first, std::uint32_t last) {
    CHECK(gang.leaves_of(task++) == std::pair<std::size_t, std::size_t>(first, last));
    std::size_t live = 0;
    for (std::uint32_t i = first; i < last; ++i) live += i % 3 != 1 ? 1U : 0U;
    CHECK(gang.count_live(first, last) == live);
  });
  CHECK(task == 6);
  for (const std::uint32_t none : {6U, 7U, ~0U})
    CHECK(gang.leaves_of(none) == std::pair<std::size_t, std::size_t>());
}
