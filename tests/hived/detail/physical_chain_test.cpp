// apiary/tests/hived/detail/physical_chain_test.cpp - what follows from holders and health, recounted.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

static_assert(leaf_holders{}.idle() && !leaf_holders{}.taken());
static_assert(!leaf_holders{.user = gang_slot(0)}.idle());
static_assert(!leaf_holders{.user = gang_slot(0)}.taken());
static_assert(leaf_holders{.user = gang_slot(0), .guaranteed = true}.taken());
static_assert(leaf_holders{.claimer = gang_slot(0)}.taken());

namespace {

// The state of each leaf, and of each node whether a cell of its rack is granted.
struct notes {
  std::vector<leaf_holders> holders;
  std::vector<bool> good;
  std::vector<bool> granted;
};

void check(const physical_chain& chain, const notes& known) {
  const uniform_tree& tree = chain.tree();
  const std::uint32_t first = tree.cells(0).first.value;
  const auto opportunistic = [&](std::uint32_t i) {
    return known.holders[i].user.valid() && !known.holders[i].taken();
  };
  bool any_bad = false;
  for (std::uint32_t i = 0; i < tree.num_leaves(); ++i) {
    REQUIRE(chain.holders(cell_id(first + i)) == known.holders[i]);
    any_bad = any_bad || !known.good[i];
  }
  REQUIRE(chain.any_bad() == any_bad);
  for (std::uint32_t c = 0; c < tree.num_cells(); ++c) {
    std::uint32_t opportunistic_count = 0;
    std::uint32_t taken = 0;
    std::uint32_t bad = 0;
    for (const cell_id leaf : tree.descendants(cell_id(c), 0)) {
      const std::uint32_t i = leaf.value - first;
      opportunistic_count += opportunistic(i) ? 1U : 0U;
      taken += known.holders[i].taken() ? 1U : 0U;
      bad += known.good[i] ? 0U : 1U;
    }
    REQUIRE(chain.opportunistic_leaves(cell_id(c)) == opportunistic_count);
    REQUIRE(chain.use().used(cell_id(c), physical_chain::guaranteed) == taken);
    REQUIRE(chain.healthy().healthy(cell_id(c)) == (bad == 0));
    REQUIRE(chain.without_opportunistic().test(c) == (bad == 0 && opportunistic_count == 0));
    for (std::uint32_t most = 0; most < chain.node_leaves(); ++most)
      REQUIRE(chain.few_opportunistic(most).test(c) == (bad == 0 && opportunistic_count <= most));
  }
  for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
    std::uint64_t idle = 0;
    std::uint32_t count = 0;
    std::uint32_t opportunistic_count = 0;
    for (std::uint32_t k = 0; k < chain.node_leaves(); ++k) {
      const std::uint32_t i = n * chain.node_leaves() + k;
      REQUIRE(chain.node_of(cell_id(first + i)) == n);
      opportunistic_count += opportunistic(i) ? 1U : 0U;
      if (!known.holders[i].idle() || !known.good[i]) continue;
      idle |= std::uint64_t{1} << k;
      ++count;
    }
    REQUIRE(chain.idle(n) == idle);
    REQUIRE(chain.idle_nodes().class_of(node_id(chain.from_end(n))) ==
            (count == 0 ? node_index::none
                        : chain.idle_class(known.granted[n], opportunistic_count, count)));
    REQUIRE(chain.granted(n) == known.granted[n]);
  }
}

}  // namespace

TEST_CASE("physical_chain: the sizes of cells up to a level") {
  const std::array<std::uint32_t, 4> fan_outs{3, 4, 2, 2};
  const std::vector<std::uint32_t> of_leaves{1, 2, 4, 16};
  const physical_chain chain(uniform_tree(fan_outs), 2);
  for (level_t l = 0; l < of_leaves.size(); ++l) {
    const auto up_to = chain.cell_sizes(l);
    CHECK(std::equal(up_to.begin(), up_to.end(), of_leaves.begin(), of_leaves.begin() + l + 1));
  }
}

TEST_CASE("nodes, racks and their numbers") {
  const physical_chain racks(uniform_tree({3, 4, 2, 2}), 2);
  CHECK(racks.num_nodes() == 12);
  CHECK(racks.node_leaves() == 4);
  CHECK(racks.rack_size() == 4);
  CHECK(racks.node_cell(5) == racks.tree().at(2, 5));
  CHECK(racks.first_leaf(5) == racks.tree().at(0, 20));
  CHECK(racks.idle(5) == 0b1111);
  const physical_chain top(uniform_tree({3, 64}), 1);
  CHECK(top.rack_size() == 3);
  CHECK(top.idle(2) == ~std::uint64_t{0});
  CHECK(top.node_level() == 1);
}

TEST_CASE("classes of opportunistic and idle leaves are dense and distinct") {
  for (const std::uint32_t size : {1U, 4U, 8U, 64U}) {
    const physical_chain chain(uniform_tree({2, size}), 1);
    std::set<node_index::class_t> classes;
    std::uint32_t pairs = 0;
    for (const bool granted : {false, true}) {
      for (std::uint32_t opportunistic_count = 0; opportunistic_count <= size;
           ++opportunistic_count) {
        for (std::uint32_t idle = 0; idle + opportunistic_count <= size; ++idle, ++pairs)
          classes.insert(chain.idle_class(granted, opportunistic_count, idle));
      }
    }
    CHECK(classes.size() == pairs);
    CHECK(*classes.begin() == 0);
    CHECK(*classes.rbegin() + 1 == pairs);
    for (std::uint32_t opportunistic_count = 0; opportunistic_count < size; ++opportunistic_count)
      CHECK(chain.idle_class(true, opportunistic_count, size - opportunistic_count) <
            chain.idle_nodes().num_classes());
  }
}

TEST_CASE("random holders and faults against a recount") {
  rng random(31);
  const std::vector<std::pair<uniform_tree, level_t>> chains = {{uniform_tree({2, 3, 2, 2}), 2},
                                                                {uniform_tree({4, 4}), 1},
                                                                {uniform_tree({3, 2}), 0},
                                                                {uniform_tree({1, 2, 5}), 2},
                                                                {uniform_tree({2, 65, 2}), 1}};
  for (const auto& [tree, node_level] : chains) {
    physical_chain chain(tree, node_level);
    notes known{std::vector<leaf_holders>(tree.num_leaves()),
                std::vector<bool>(tree.num_leaves(), true),
                std::vector<bool>(tree.cells(node_level).size(), false)};
    std::vector<cell_id> tenants;
    check(chain, known);
    for (int step = 0; step < apiary_test::scaled(2000); ++step) {
      const std::uint32_t i = random.uniform(tree.num_leaves());
      const cell_id leaf = tree.at(0, i);
      if (random.uniform(8) == 0) {
        const cell_id c(random.uniform(tree.num_cells()));
        const auto at = std::find(tenants.begin(), tenants.end(), c);
        if (at == tenants.end()) {
          const bool could = chain.cells().can_allocate_at(c);
          REQUIRE(chain.grant(c) == could);
          if (!could) continue;
          tenants.push_back(c);
        } else {
          chain.revoke(c);
          tenants.erase(at);
        }
        const level_t racks = std::min<level_t>(node_level + 1, tree.num_levels() - 1);
        for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
          const cell_id rack = tree.ancestor(chain.node_cell(n), racks);
          known.granted[n] = chain.rack_size() <= 64 &&
                             std::any_of(tenants.begin(), tenants.end(), [&](cell_id t) {
                               const level_t l = chain.tree().level(t);
                               return l <= racks ? chain.tree().ancestor(t, racks) == rack
                                                 : chain.tree().ancestor(rack, l) == t;
                             });
        }
      } else if (random.uniform(3) == 0) {
        const bool good = random.uniform(3) != 0;
        REQUIRE(chain.mark(leaf, good) == (known.good[i] != good));
        known.good[i] = good;
      } else if (random.uniform(3) == 0) {  // leaves of one node, alike or claimed as they are
        std::vector<cell_id> leaves;
        const std::uint32_t node = chain.node_of(leaf);
        const std::uint32_t in = 1 + random.uniform(3);  // one leaf in so many stays as it is
        for (std::uint32_t k = 0; k < chain.node_leaves(); ++k) {
          const cell_id other(chain.first_leaf(node).value + k);
          if (other == leaf || random.uniform(4) >= in) leaves.push_back(other);
        }
        leaf_holders same;
        if (random.uniform(2) == 0) same.user = gang_slot(random.uniform(5));
        same.guaranteed = same.user.valid() && random.uniform(2) == 0;
        const bool claims = random.uniform(3) == 0;
        std::vector<leaf_holders> next;
        for (const cell_id l : leaves) {
          leaf_holders to = claims ? chain.holders(l) : same;
          if (claims) to.claimer = gang_slot(7);
          next.push_back(to);
          known.holders[l.value - tree.cells(0).first.value] = to;
        }
        chain.hold_all(leaves, next);
      } else {
        leaf_holders to;
        if (random.uniform(2) == 0) to.user = gang_slot(random.uniform(5));
        if (random.uniform(4) == 0) to.claimer = gang_slot(random.uniform(5));
        to.guaranteed = to.user.valid() && random.uniform(2) == 0;
        chain.hold(leaf, to);
        known.holders[i] = to;
      }
      check(chain, known);
    }
    for (std::uint32_t i = 0; i < tree.num_leaves(); ++i) {
      chain.hold(tree.at(0, i), leaf_holders());
      chain.mark(tree.at(0, i), true);
    }
    CHECK(!chain.any_bad());
    for (std::uint32_t most = 0; most < chain.node_leaves(); ++most)
      CHECK(chain.few_opportunistic(most).all());
  }
}

TEST_CASE("the holder of a leaf is the preempting gang that claimed it, else its guaranteed user") {
  const gang_slot user(1);
  const gang_slot claimer(2);
  for (const bool guaranteed : {false, true}) {
    CHECK(leaf_holders{user, claimer, guaranteed}.holder() == claimer);
    CHECK(leaf_holders{user, gang_slot(), guaranteed}.holder() ==
          (guaranteed ? user : gang_slot()));
  }
  CHECK(!leaf_holders().holder().valid());
}

TEST_CASE("owners of cells") {
  physical_chain chain(uniform_tree({2, 2}), 1);
  CHECK(!chain.owner(cell_id(3)).cell.valid());
  chain.set_owner(cell_id(3), {vc_chain_id(1), cell_id(4)});
  CHECK(chain.owner(cell_id(3)) == virtual_cell{vc_chain_id(1), cell_id(4)});
  chain.set_owner(cell_id(3), virtual_cell());
  CHECK(chain.owner(cell_id(3)) == virtual_cell());
  CHECK(chain.memory_bytes() > 0);
}
