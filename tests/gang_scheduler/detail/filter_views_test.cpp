// apiary/tests/gang_scheduler/detail/filter_views_test.cpp - views of many filters, against views that are made anew.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/gang_scheduler_core.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <support/scale.h>
#include <vector>

namespace filter_views_tests {
namespace {

using namespace apiary;
using detail::gang_audit;
using detail::node_view;
using detail::scheduled_gangs;

using views_state = scheduled_gangs;

node_filter nth_filter(std::uint32_t i) {
  node_filter filter;
  if (i % 3 == 0) {
    filter.nodes = {"n" + std::to_string(i), "n" + std::to_string(i / 2), "n1"};
  } else {
    filter.labels = {"zone=" + std::to_string(i % 4)};
    filter.tolerations = {std::to_string(i)};
  }
  if (i % 5 == 0) filter.tolerations.emplace_back("slow");
  return filter;
}

gang_cluster::node some_node(rng& random) {
  gang_cluster::node n{.name = "n" + std::to_string(random.uniform(60)),
                       .cells = {"r" + std::to_string(random.uniform(4))},
                       .gpus = random.uniform(40) == 0 ? 9 : 1 + random.uniform(4),
                       .host = {random.uniform(3) * 1000, random.uniform(3)},
                       .labels = {"zone=" + std::to_string(random.uniform(4))}};
  if (random.uniform(4) == 0) n.taints = {"slow"};
  return n;
}

void some_event(views_state& s, rng& random) {
  const node_id id(random.uniform(30));
  const std::uint32_t kind = random.uniform(8);
  if (kind < 2 && s.nodes().num_nodes() < 25) {
    const gang_cluster::node n = some_node(random);
    if (!s.nodes().find_node(n.name)) s.insert_node(s.nodes().next_id(), n);
  } else if (!s.nodes().has_node(id)) {
    return;
  } else if (kind < 4) {
    s.erase_node(id.value);
  } else if (kind == 4) {
    s.resize_node(id.value, random.uniform(6), {random.uniform(3) * 1000, random.uniform(3)});
  } else {
    const bool bad = random.uniform(3) == 0;
    const std::uint32_t gpu = random.uniform(2);
    s.set_health(id.value, bad, gpu);
  }
}

void check_no_faults(const views_state& s) {
  const std::vector<std::string> faults = gang_audit(s)();
  REQUIRE((faults.empty() ? "" : faults[0]) == "");
}

TEST_CASE("filter_views: a filter that is used again shows what has changed, in trials, too") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    // Memory for all filters, or for the least number of them.
    views_state s(gang_cluster{.levels = {"rack"}}, seed % 2 == 0 ? std::uint64_t{1} << 30 : 1);
    for (std::uint32_t round = 0; round < 80; ++round) {
      CAPTURE(round);
      for (std::uint32_t e = random.uniform(6); e > 0; --e) some_event(s, random);
      if (random.uniform(5) == 0)
        s.try_out([&] {
          for (std::uint32_t e = random.uniform(6); e > 0; --e) some_event(s, random);
          (void)s.view(nth_filter(random.uniform(60)));
        });
      for (std::uint32_t asked = random.uniform(8); asked > 0; --asked) {
        const node_filter filter = nth_filter(random.uniform(60));
        const node_view& v = s.view(filter);
        REQUIRE(v.filter == filter);
        std::uint32_t members = 0;
        for (std::uint32_t id = 0; id < s.nodes().num_ids(); ++id) {
          if (!s.nodes().has_node(node_id(id))) continue;
          REQUIRE((v.members[s.node(id).position] != 0) == v.accepts(s.node(id).shape));
          members += v.members[s.node(id).position];
        }
        REQUIRE(v.num_members == members);
      }
      REQUIRE(s.nodes().views().size() <= (seed % 2 == 0 ? 60U : 32U));
      if (round % 4 == 0) check_no_faults(s);
    }
    CHECK(s.nodes().views().size() > 30);
  }
}

TEST_CASE("filter_views: a filter that was not used during many changes is made anew") {
  rng random(3);
  views_state s(gang_cluster{.levels = {"rack"}}, std::uint64_t{1} << 30);
  for (std::uint32_t n = 0; n < 40; ++n) some_event(s, random);
  const std::uint32_t before = s.view(nth_filter(1)).num_members;
  std::uint64_t changed = 0;
  for (std::uint32_t round = 0; round < 8; ++round) {
    for (std::uint32_t e = 0; e < 700; ++e) some_event(s, random);
    (void)s.view(nth_filter(1));
    // No node joins or leaves here.
    for (std::uint32_t e = 0; e < 4'000; ++e) {
      const std::uint32_t id = random.uniform(s.nodes().num_ids());
      const bool bad = random.uniform(2) == 0;
      const std::uint32_t gpu = random.uniform(2);
      if (s.nodes().has_node(node_id(id))) s.set_health(id, bad, gpu);
    }
    (void)s.view(nth_filter(2));
    check_no_faults(s);  // also filter 1, which is not used
    changed += s.view(nth_filter(4)).num_members != before ? 1U : 0U;
  }
  CHECK(changed > 0);
}

TEST_CASE("filter_views: as many filters are kept as memory allows, at least 32") {
  const gang_cluster cluster{.levels = {"rack"},
                             .nodes = {{.name = "n1", .cells = {"r"}, .gpus = 8}}};
  views_state s(cluster, 0);
  const std::uint64_t bytes = s.view(nth_filter(1)).bytes;
  CHECK(bytes > 0);
  for (const std::uint64_t fit : {10U, 32U, 50U}) {
    CAPTURE(fit);
    views_state of_memory(cluster, fit * bytes);
    for (std::uint32_t i = 0; i < 100; ++i)
      (void)of_memory.view({.tolerations = {std::to_string(i)}});
    CHECK(of_memory.nodes().views().size() == (fit < 32 ? 32 : fit));
    // Nodes join, and a filter that is used again takes more memory: others are dropped.
    for (std::uint32_t n = 0; n < 200; ++n)
      of_memory.insert_node(
          of_memory.nodes().next_id(),
          {.name = "x" + std::to_string(n), .cells = {"r" + std::to_string(n)}, .gpus = 1});
    CHECK(of_memory.view({.tolerations = {"99"}}).num_members == 201);
    CHECK(of_memory.nodes().views().size() == 32);
    check_no_faults(of_memory);
  }
}

TEST_CASE("filter_views: the filter that was not used for the longest time is dropped") {
  views_state s(gang_cluster{.nodes = {{.name = "n1", .gpus = 8}}});
  const auto filter = [](std::uint32_t i) {
    return node_filter{.tolerations = {std::to_string(i)}};
  };
  const auto is_kept = [&](const node_filter& wanted) {
    for (const auto& v : s.nodes().views())
      if (v->filter == wanted) return true;
    return false;
  };
  constexpr std::uint32_t most = gang_scheduler_types::max_filters;
  for (std::uint32_t i = 0; i < most; ++i) (void)s.view(filter(i));
  for (std::uint32_t i = 0; i < most; i += 2) (void)s.view(filter(i));  // the even ones again
  for (std::uint32_t i = 0; i < most / 2; ++i) {
    CHECK(is_kept(filter(2 * i + 1)));
    (void)s.view(filter(most + i));
    CHECK(!is_kept(filter(2 * i + 1)));
    CHECK(s.nodes().views().size() == most);
  }
  for (std::uint32_t i = 0; i < most; i += 2) CHECK(is_kept(filter(i)));
}

}  // namespace
}  // namespace filter_views_tests
