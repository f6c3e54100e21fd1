// apiary/tests/gang_scheduler/detail/cluster_state_test.cpp - nodes that change, against a state that is made anew.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/cluster_state.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <support/scale.h>
#include <vector>

namespace cluster_state_tests {
namespace {

using namespace apiary;
using detail::cluster_state;
using detail::node_view;
using detail::used_node;

struct state : cluster_state {
  using cluster_state::cluster_state;
  void begin_trial() { ++trials_; }
  void end_trial() {
    roll_back(0);
    --trials_;
  }
};

// A node as the test knows it.
struct known_node {
  gang_cluster::node shape{};
  bool bad = false;
  std::uint32_t bad_gpus = 0;
};

const std::vector<node_filter>& filters() {
  static const std::vector<node_filter> all = {{},
                                               {.labels = {"zone=a"}},
                                               {.models = {"h100"}},
                                               {.tolerations = {"slow"}},
                                               {.nodes = {"n1", "n2", "n3"}}};
  return all;
}

gang_cluster::node random_node(rng& random, std::uint32_t name) {
  gang_cluster::node n{.name = "n" + std::to_string(name),
                       .cells = {"r" + std::to_string(random.uniform(3))},
                       .gpus = random.uniform(5),
                       .host = {random.uniform(3) * 1000, random.uniform(3)}};
  if (random.uniform(2) == 0) n.model = "h100";
  if (random.uniform(2) == 0) n.labels = {"zone=a"};
  if (random.uniform(4) == 0) n.taints = {"slow"};
  return n;
}

// Whether the state is that of these nodes. Nothing here depends on ids or positions but through
// the state's own answers. Of filter i, if bit i of `asked` is set.
void check(state& s, const std::map<std::uint32_t, known_node>& nodes, std::uint32_t asked) {
  gang_cluster cluster{.levels = {"rack"}, .nodes = {}};
  for (const auto& [id, n] : nodes) cluster.nodes.push_back(n.shape);
  state fresh(cluster);
  std::vector<std::uint32_t> bad;
  std::uint64_t free = 0;
  std::uint32_t next = 0;
  bool has_gpus = false;
  for (const auto& [id, n] : nodes) {
    fresh.set_health(*fresh.find_node(n.shape.name), n.bad, n.bad_gpus);
    if (n.bad || n.bad_gpus != 0) bad.push_back(id);
    if (id == next) ++next;
    has_gpus = has_gpus || n.shape.gpus > 0;
    REQUIRE(s.has_node(node_id(id)));
    const used_node& is = s.node(id);
    REQUIRE(is.shape == n.shape);
    REQUIRE(s.find_node(n.shape.name) == id);
    REQUIRE(s.layout().node_at(is.position) == id);
    REQUIRE(s.usable(id) == cluster_state::usable_node{is.position, is.healthy_gpus()});
    free += static_cast<std::uint64_t>(std::popcount(is.free_gpus()));
  }
  REQUIRE(s.num_nodes() == nodes.size());
  REQUIRE(!s.has_node(node_id(next)));
  REQUIRE(s.next_id() == next);
  REQUIRE(std::ranges::equal(s.bad_nodes(), bad));
  REQUIRE(s.bad_nodes().size() == bad.size());
  REQUIRE(s.has_gpus() == has_gpus);
  REQUIRE(s.free_gpus() == free);
  REQUIRE(s.free_gpus() == fresh.free_gpus());
  REQUIRE(s.hash() == fresh.hash());
  for (const node_filter& filter : filters()) {
    const bool is_asked = asked % 2 != 0;
    asked /= 2;
    if (!is_asked) continue;  // it shows an earlier state until it is asked again
    std::uint32_t members = 0;
    for (const auto& [id, n] : nodes) {
      const node_view& is = s.view(filter);
      const node_view& expected = fresh.view(filter);
      const std::uint32_t p = s.node(id).position;
      const std::uint32_t q = fresh.node(*fresh.find_node(n.shape.name)).position;
      REQUIRE((is.members[p] != 0) == is.accepts(n.shape));
      REQUIRE(is.members[p] == expected.members[q]);
      REQUIRE(is.free.free(p) == expected.free.free(q));
      REQUIRE(is.whole.free(p) == expected.whole.free(q));
      REQUIRE(is.hosts[p] == expected.hosts[q]);
      REQUIRE(is.whole_hosts[p] == expected.whole_hosts[q]);
      members += is.members[p];
    }
    REQUIRE(s.view(filter).num_members == members);
    REQUIRE(s.view(filter).free.free(s.layout().num_levels(), 0) ==
            fresh.view(filter).free.free(fresh.layout().num_levels(), 0));
  }
}

TEST_CASE("cluster_state: nodes join, leave and change, also in trials") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    state s(gang_cluster{.levels = {"rack"}, .nodes = {}});
    std::map<std::uint32_t, known_node> nodes;
    std::map<std::uint32_t, known_node> before;  // the trial
    bool is_trial = false;
    for (std::uint32_t step = 0; step < 120; ++step) {
      CAPTURE(step);
      const std::uint32_t kind = random.uniform(6);
      const std::uint32_t id = random.uniform(12);
      const auto at = nodes.find(id);
      if (kind == 0) {
        if (is_trial) {
          s.end_trial();
          nodes = before;
        } else {
          s.begin_trial();
          before = nodes;
        }
        is_trial = !is_trial;
      } else if (kind <= 2) {
        const std::uint32_t next = s.next_id();
        gang_cluster::node shape = random_node(random, step);
        if (next >= 12) continue;
        s.insert_node(next, shape);
        nodes[next] = {shape};
      } else if (at == nodes.end()) {
        continue;
      } else if (kind == 3) {
        s.erase_node(id);
        nodes.erase(at);
      } else if (kind == 4) {
        at->second.shape.gpus = random.uniform(9);
        at->second.shape.host = {random.uniform(3) * 1000, random.uniform(3)};
        s.resize_node(id, at->second.shape.gpus, at->second.shape.host);
      } else {
        at->second.bad = random.uniform(3) == 0;
        at->second.bad_gpus = random.uniform(3);
        s.set_health(id, at->second.bad, at->second.bad_gpus);
      }
      check(s, nodes, random.uniform(32));
    }
  }
}

TEST_CASE(
    "cluster_state: the filter that was used first is dropped, and names of removed nodes are "
    "known") {
  state s(gang_cluster{.nodes = {{.name = "a", .gpus = 1}, {.name = "b", .gpus = 2}}});
  for (std::uint32_t i = 0; i < gang_scheduler_types::max_filters; ++i)
    CHECK(s.view({.labels = {std::to_string(i)}}).num_members == 0);
  CHECK(s.views().size() == gang_scheduler_types::max_filters + 1);
  const node_filter both{.nodes = {"b", "a"}};
  CHECK(s.view({.labels = {"0"}}).num_members == 0);  // so label 1 was used first
  CHECK(s.view(both).num_members == 2);
  CHECK(s.views().size() == gang_scheduler_types::max_filters + 1);
  CHECK(s.views()[1].filter.labels == std::vector<std::string>{"0"});
  CHECK(s.views()[2].filter == both);
  CHECK(s.unknown_name(both) == nullptr);
  s.erase_node(0);
  REQUIRE(s.unknown_name(both) != nullptr);
  CHECK(*s.unknown_name(both) == "a");
  CHECK(s.view(both).num_members == 1);
  CHECK(s.unknown_name({.nodes = {"b"}}) == nullptr);
}

}  // namespace
}  // namespace cluster_state_tests
