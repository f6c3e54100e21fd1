// apiary/tests/gang_scheduler/detail/node_view_test.cpp - a node with what uses it, and which nodes a filter accepts.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace node_view_tests {
namespace {

using namespace apiary;
using detail::node_view;
using detail::used_node;

TEST_CASE("used_node: free is what is healthy, not in use and not reserved") {
  used_node n;
  CHECK(!n.present);
  n.shape = {.name = "n", .gpus = 8, .host = {4'000, 100}};
  n.bad_gpus = 0b1000'0000;
  n.used = 0b1100'0011;
  n.reserved = 0b0000'0101;
  n.cpu_milli = 1'000;
  n.memory_mib = 101;  // more than there is
  CHECK(n.all_gpus() == 0b1111'1111);
  CHECK(n.healthy_gpus() == 0b0111'1111);
  CHECK(n.free_gpus() == 0b0011'1000);
  CHECK(n.free_host() == resources{3'000, 0});
  n.bad = true;
  CHECK(n.healthy_gpus() == 0);
  CHECK(n.free_gpus() == 0);
  CHECK(n.free_host() == resources{});
  n.shape.gpus = 32;
  CHECK(n.all_gpus() == ~0U);
  n.shape.gpus = 0;
  CHECK(n.all_gpus() == 0);
}

TEST_CASE("used_node: one gang frees what it uses, less what is in use too much") {
  for (std::uint32_t has = 0; has < 5; ++has)
    for (std::uint32_t used = 0; used < 8; ++used)
      for (std::uint32_t own = 0; own <= used; ++own) {
        const auto free = [&](std::uint32_t in_use) {
          return used_node::left_of({has, has}, in_use, in_use).cpu_milli;
        };
        CAPTURE(has);
        CAPTURE(used);
        CAPTURE(own);
        REQUIRE(used_node::freed(own, used, has) == free(used - own) - free(used));
      }
}

TEST_CASE("used_node: each part of a node counts in the hash, what uses it does not") {
  used_node n;
  n.shape = {.name = "n", .cells = {"r"}, .gpus = 4, .host = {1, 2}, .model = "m"};
  n.shape.labels = {"a"};
  n.shape.taints = {"b"};
  n.name_hash = used_node::hash_of_name("n");
  const std::uint64_t before = n.hash();
  used_node other = n;
  other.used = other.reserved = other.counted = 1;
  other.cpu_milli = other.memory_mib = 1;
  other.position = 7;
  CHECK(other.hash() == before);
  const auto differs = [&](auto&& change) {
    used_node changed = n;
    change(changed);
    return changed.hash() != before;
  };
  CHECK(differs([](used_node& u) { u.name_hash = used_node::hash_of_name("m"); }));
  CHECK(differs([](used_node& u) { u.shape.gpus = 5; }));
  CHECK(differs([](used_node& u) { u.shape.host.cpu_milli = 2; }));
  CHECK(differs([](used_node& u) { u.shape.host.memory_mib = 1; }));
  CHECK(differs([](used_node& u) { u.shape.model = "n"; }));
  CHECK(differs([](used_node& u) { u.bad = true; }));
  CHECK(differs([](used_node& u) { u.bad_gpus = 1; }));
  CHECK(differs([](used_node& u) { u.shape.cells = {"s"}; }));
  CHECK(differs([](used_node& u) { u.shape.labels = {"b"}; }));
  CHECK(differs([](used_node& u) { u.shape.taints.clear(); }));
  // A label is not a taint.
  CHECK(differs([](used_node& u) {
    u.shape.labels.clear();
    u.shape.taints = {"a", "b"};
  }));
}

TEST_CASE("node_view: a filter accepts nodes by labels, models, taints and names") {
  const ragged_tree tree({{1}, {1}});
  const gang_cluster::node plain{.name = "n1", .model = "a"};
  gang_cluster::node labelled = plain;
  labelled.labels = {"zone=a", "fast"};
  gang_cluster::node tainted = plain;
  tainted.taints = {"x", "y"};
  const auto accepts = [&](node_filter filter, const gang_cluster::node& n) {
    return node_view(std::move(filter), tree, 8).accepts(n);
  };
  CHECK(accepts({}, plain));
  CHECK(accepts({}, labelled));
  CHECK(!accepts({}, tainted));
  CHECK(!accepts({.tolerations = {"x"}}, tainted));
  CHECK(accepts({.tolerations = {"y", "z", "x"}}, tainted));
  CHECK(!accepts({.labels = {"zone=a"}}, plain));
  CHECK(accepts({.labels = {"zone=a"}}, labelled));
  CHECK(accepts({.labels = {"zone", "fast"}}, labelled));  // any value
  CHECK(!accepts({.labels = {"zone=b"}}, labelled));
  CHECK(!accepts({.labels = {"zone=a", "slow"}}, labelled));
  CHECK(!accepts({.labels = {"zon"}}, labelled));
  CHECK(!accepts({.labels = {"fast="}}, labelled));
  CHECK(accepts({.models = {"b", "a"}}, plain));
  CHECK(!accepts({.models = {"b"}}, plain));
  node_filter named;
  named.nodes = {"n3", "n1", "n2"};  // in any order
  CHECK(accepts(named, plain));
  named.nodes = {"n3", "n2"};
  CHECK(!accepts(named, plain));
}

TEST_CASE("node_view: filters that differ have other keys") {
  node_filter named;
  named.nodes = {"a"};
  const std::vector<node_filter> filters{
      {},    {.labels = {"a"}},     {.models = {"a"}}, {.tolerations = {"a"}},
      named, {.labels = {"a", "a"}}};
  for (std::size_t i = 0; i < filters.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(i);
      CAPTURE(j);
      CHECK(node_view::hash_of(filters[i]) != node_view::hash_of(filters[j]));
    }
}

TEST_CASE("node_view: whatever changes, it has what its members have") {
  using detail::filter_views;
  const ragged_tree tree({{2}, {3, 2}});
  const node_filter filter{.labels = {"in"}};
  std::vector<used_node> nodes(6);
  std::vector<std::uint32_t> order;  // ids are no positions
  for (std::uint32_t p = 0; p < 5; ++p) {
    order.push_back(5 - p);
    nodes[5 - p].position = p;
  }
  filter_views views(filter_views::default_bytes);
  const filter_views::source from{tree, order, nodes, 8};
  views.change_nodes(order.size());
  rng random(3);
  for (std::uint32_t i = 0; i < apiary_test::scaled(20'000U); ++i) {
    used_node& n = nodes[1 + random.uniform(5)];
    if (random.uniform(8) == 0) {
      n.shape.gpus = random.uniform(9);
      n.shape.host = {random.uniform(5), random.uniform(5)};
      n.shape.labels.clear();
      if (random.uniform(3) > 0) n.shape.labels = {"in"};
      views.change_nodes(order.size());
    }
    n.used = random.uniform(256);
    n.reserved = random.uniform(256);
    n.bad = random.uniform(4) == 0;
    n.cpu_milli = random.uniform(7);
    views.change_use(order[n.position]);
    if (random.uniform(2) == 0) continue;  // the next use takes over both changes
    const node_view& view = views.view(filter, from);
    std::uint32_t members = 0;
    std::uint64_t slots = 0;
    for (std::uint32_t q = 0; q < 5; ++q) {
      const used_node& m = nodes[order[q]];
      const bool member = !m.shape.labels.empty();
      const auto free = static_cast<std::uint32_t>(std::popcount(m.free_gpus()));
      REQUIRE((view.members[q] != 0) == member);
      REQUIRE(view.free.free(q) == (member ? free : 0));
      REQUIRE(view.whole.free(q) == (member ? m.shape.gpus : 0));
      REQUIRE(view.hosts[q] == (member ? m.free_host() : resources{}));
      REQUIRE(view.whole_hosts[q] == (member ? m.shape.host : resources{}));
      members += member ? 1U : 0U;
      slots += member ? free / 2 : 0U;
    }
    REQUIRE(view.num_members == members);
    REQUIRE(view.free.slots(view.free.top(), 2)[0] == slots);
  }
}

}  // namespace
}  // namespace node_view_tests
