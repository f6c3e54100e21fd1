// apiary/tests/hived/detail/bindings_test.cpp - bindings and holders, compared with simple lists.
// SPDX-License-Identifier: MIT
#include "support/hived_documents.h"
#include "support/scale.h"
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// small_cluster() with a tenant "c" that has a node, a pair and a GPU of the racks, and a box.
hived_layout layout_to_bind() {
  hived_config config = apiary_test::small_cluster();
  for (const char* name : {"n4", "n6"}) {
    config.physical_cells.push_back(
        apiary_test::rack({apiary_test::named(name), apiary_test::named(std::string(name) + "b")}));
  }
  config.virtual_clusters.push_back(
      {.name = "c",
       .cells = {{"RACK.NODE", 1}, {"RACK.NODE.PAIR", 1}, {"RACK.NODE.PAIR.GPU", 1}, {"BOX", 1}}});
  return hived_layout::create(config).value();
}

// A virtual cell, by its cluster, and a leaf or cell of a chain.
using bound_cell = std::pair<std::uint32_t, std::uint32_t>;
using chain_cell = std::pair<std::uint32_t, std::uint32_t>;

// The facts alone.
struct known_bindings {
  std::map<bound_cell, std::uint32_t> image;   // of those that are bound
  std::map<chain_cell, leaf_holders> holders;  // of those that are not idle
  std::set<chain_cell> bad;

  friend bool operator==(const known_bindings&, const known_bindings&) = default;
};

bool operator<(const known_bindings& a, const known_bindings& b) {
  const auto all = [](const known_bindings& k) {
    std::vector<std::array<std::uint32_t, 5>> facts;
    for (const auto& [leaf, h] : k.holders)
      facts.push_back({leaf.first, leaf.second, h.user.value, h.claimer.value, h.guaranteed});
    return facts;
  };
  return std::tuple(a.image, all(a), a.bad) < std::tuple(b.image, all(b), b.bad);
}

void check_bindings(const hived_cells& is, const known_bindings& known) {
  std::map<chain_cell, virtual_cell> owners;
  for (std::uint32_t c = 0; c < is.num_clusters(); ++c) {
    const virtual_cluster& cluster = is.cluster(vc_chain_id(c));
    const quota_tree& tree = cluster.tree();
    const physical_chain& chain = is.chain(cluster.chain());
    std::vector<std::uint64_t> free(cluster.num_nodes());
    for (std::uint32_t v = 0; v < tree.num_cells(); ++v) {
      const auto found = known.image.find({c, v});
      const cell_id image = found == known.image.end() ? cell_id() : cell_id(found->second);
      REQUIRE(cluster.image(cell_id(v)) == image);
      if (image.valid()) owners[{cluster.chain(), image.value}] = {vc_chain_id(c), cell_id(v)};
      if (!tree.cells(0).contains(cell_id(v))) continue;
      bool usable = true;
      if (image.valid()) {
        const auto holders = known.holders.find({cluster.chain(), image.value});
        usable = !known.bad.contains({cluster.chain(), image.value}) &&
                 (holders == known.holders.end() || !holders->second.taken());
      }
      const std::uint32_t n = cluster.node_of(cell_id(v));
      if (usable) free[n] |= std::uint64_t{1} << (v - cluster.first_leaf(n).value);
    }
    for (std::uint32_t n = 0; n < free.size(); ++n) REQUIRE(cluster.free(n) == free[n]);
    // Leaves in use below each cell.
    for (level_t l = 1; l < chain.tree().num_levels(); ++l) {
      for (const cell_id v : tree.cells(l)) {
        std::uint32_t active = 0;
        for (const cell_id leaf : tree.cells(0)) {
          cell_id above = leaf;
          for (level_t k = 0; k < l && above.valid(); ++k) above = tree.parent(above, k);
          const auto at = known.image.find({c, leaf.value});
          if (above != v || at == known.image.end()) continue;
          const auto holders = known.holders.find({cluster.chain(), at->second});
          active += holders != known.holders.end() && holders->second.taken() ? 1U : 0U;
        }
        REQUIRE(cluster.active(v) == active);
      }
    }
  }
  for (std::uint32_t c = 0; c < is.num_chains(); ++c) {
    const physical_chain& chain = is.chain(c);
    for (std::uint32_t p = 0; p < chain.tree().num_cells(); ++p) {
      const auto found = owners.find({c, p});
      REQUIRE(chain.owner(cell_id(p)) == (found == owners.end() ? virtual_cell() : found->second));
    }
    for (const cell_id leaf : chain.tree().cells(0)) {
      const auto found = known.holders.find({c, leaf.value});
      REQUIRE(chain.holders(leaf) ==
              (found == known.holders.end() ? leaf_holders() : found->second));
      REQUIRE(chain.healthy().healthy(leaf) == !known.bad.contains({c, leaf.value}));
    }
  }
}

// The physical cells that v can be bound to now; none if it is bound.
std::vector<cell_id> bindable_to(const hived_cells& is, vc_chain_id c, cell_id v, level_t l) {
  const virtual_cluster& cluster = is.cluster(c);
  const physical_chain& chain = is.chain(cluster.chain());
  const cell_id above = cluster.tree().parent(v, l);
  std::vector<cell_id> all;
  if (cluster.image(v).valid()) return all;
  if (above.valid()) {
    const cell_id image = cluster.image(above);
    if (!image.valid()) return all;
    for (const cell_id p : chain.tree().children(image, l + 1))
      if (!chain.owner(p).cell.valid()) all.push_back(p);
    return all;
  }
  for (const cell_id p : chain.tree().cells(l)) {
    reserving_buddy_allocator copy = chain.cells();
    if (copy.allocate_at(p)) all.push_back(p);
  }
  return all;
}

// One random change, in both.
void change_bindings(hived_cells& is, known_bindings& known, rng& random) {
  const auto pick = [&](std::size_t n) { return random.uniform(static_cast<std::uint32_t>(n)); };
  const vc_chain_id c(pick(is.num_clusters()));
  const virtual_cluster& cluster = is.cluster(c);
  const physical_chain& chain = is.chain(cluster.chain());
  const std::uint32_t what = random.uniform(3);
  if (what == 0) {
    const cell_id v(pick(cluster.tree().num_cells()));
    const level_t l = cluster.tree().level(v);
    const std::vector<cell_id> to = bindable_to(is, c, v, l);
    if (to.empty()) return;
    const cell_id p = to[pick(to.size())];
    is.bind(c, v, l, p);
    known.image[{c.value, v.value}] = p.value;
  } else if (what == 1) {
    const cell_id v(pick(cluster.tree().num_cells()));
    const level_t l = cluster.tree().level(v);
    const cell_id p = cluster.image(v);
    if (!p.valid() || (is.is_pinned(c) && !cluster.tree().parent(v, l).valid())) return;
    if (l == 0 && chain.holders(p).taken()) return;
    if (l > 0)
      for (const cell_id child : cluster.tree().children(v, l))
        if (cluster.image(child).valid()) return;
    is.unbind(c, v, l);
    known.image.erase({c.value, v.value});
  } else {
    const cell_id leaf = chain.tree().cells(0)[pick(chain.tree().num_leaves())];
    const bool alone = random.uniform(2) == 0;
    std::vector<cell_id> leaves;  // or several of its node
    bool bound = true;
    for (std::uint32_t k = 0; k < chain.node_leaves(); ++k) {
      const cell_id other(chain.first_leaf(chain.node_of(leaf)).value + k);
      if (other != leaf && (alone || random.uniform(3) == 0)) continue;
      leaves.push_back(other);
      bound = bound && chain.owner(other).cell.valid();
    }
    leaf_holders same;
    if (random.uniform(3) > 0) same.user = gang_slot(pick(3));
    if (bound) {
      same.guaranteed = same.user.valid() && random.uniform(2) == 0;
      if (random.uniform(3) == 0) same.claimer = gang_slot(pick(3));
    }
    const bool claims = bound && random.uniform(3) == 0;
    std::vector<leaf_holders> next;
    for (const cell_id l : leaves) {
      leaf_holders to = claims ? chain.holders(l) : same;
      if (claims) to.claimer = gang_slot(2);
      next.push_back(to);
      known.holders.erase({cluster.chain(), l.value});
      if (!to.idle()) known.holders[{cluster.chain(), l.value}] = to;
    }
    if (alone) {
      is.hold(cluster.chain(), leaf, next[0]);
    } else {
      is.hold_all(cluster.chain(), leaves, next);
    }
  }
}

}  // namespace

TEST_CASE("hived_cells: tenants' clusters, and pinned cells that are bound from the start") {
  const hived_layout layout = layout_to_bind();
  const hived_cells is(layout);
  REQUIRE(is.num_chains() == layout.chains.size());
  std::size_t clusters = 0;
  for (std::uint32_t chain = 0; chain < is.num_chains(); ++chain) {
    for (std::uint32_t t = 0; t < layout.tenants.size(); ++t) {
      std::uint32_t reserved = 0;
      for (const std::uint32_t n : layout.tenants[t].quota[chain]) reserved += n;
      const vc_chain_id c = is.cluster_of(tenant_id(t), chain);
      REQUIRE(c.valid() == (reserved > 0));
      if (!c.valid()) continue;
      ++clusters;
      CHECK(!is.is_pinned(c));
      CHECK(is.cluster(c).tenant() == tenant_id(t));
      CHECK(is.cluster(c).chain() == chain);
      for (level_t l = 0; l < layout.chains[chain].tree.num_levels(); ++l)
        CHECK(is.cluster(c).tree().roots(l).size() == layout.tenants[t].quota[chain][l]);
    }
  }
  REQUIRE(layout.pinned.size() == 1);
  const vc_chain_id mine = is.cluster_of_pinned(0);
  REQUIRE(mine.valid());
  CHECK(is.is_pinned(mine));
  CHECK(is.num_clusters() == clusters + 1);
  CHECK(is.cluster(mine).tenant() == layout.pinned[0].tenant);
  known_bindings known;
  const level_t level = layout.chain(layout.pinned[0].chain).tree.level(layout.pinned[0].cell);
  const cell_id root = is.cluster(mine).tree().roots(level).first;
  known.image[{mine.value, root.value}] = layout.pinned[0].cell.value;
  check_bindings(is, known);
}

TEST_CASE("hived_cells: any changes, kept or taken back, and the hash tells what is equal") {
  const hived_layout layout = layout_to_bind();
  std::map<known_bindings, std::uint64_t> hashes;
  std::map<std::uint64_t, known_bindings> of_hash;
  std::size_t seen_again = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(150U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived_cells is(layout);
    known_bindings known;
    for (std::uint32_t c = 0; c < is.num_clusters(); ++c)
      for (std::uint32_t v = 0; v < is.cluster(vc_chain_id(c)).tree().num_cells(); ++v)
        if (const cell_id p = is.cluster(vc_chain_id(c)).image(cell_id(v)); p.valid())
          known.image[{c, v}] = p.value;
    const auto check = [&] {
      check_bindings(is, known);
      const auto [at, is_new] = hashes.try_emplace(known, is.hash());
      REQUIRE(at->second == is.hash());
      REQUIRE(of_hash.try_emplace(is.hash(), known).first->second == known);
      seen_again += is_new ? 0U : 1U;
    };
    for (int step = 0; step < 30; ++step) {
      const bool keep = random.uniform(2) == 0;
      const known_bindings before = known;
      std::vector<reserving_buddy_allocator> cells;
      std::vector<quota_ledger> ledgers;
      for (std::uint32_t c = 0; c < is.num_chains(); ++c) {
        cells.push_back(is.chain(c).cells());
        ledgers.push_back(is.ledger(c));
      }
      if (random.uniform(4) == 0) {
        // Marks are for good: made outside of what may be taken back.
        const std::uint32_t c = random.uniform(is.num_chains());
        const uniform_tree& tree = is.chain(c).tree();
        const cell_id leaf = tree.cells(0)[random.uniform(tree.num_leaves())];
        const bool good = random.uniform(2) == 0;
        const bool changed =
            good ? known.bad.erase({c, leaf.value}) > 0 : known.bad.insert({c, leaf.value}).second;
        REQUIRE(is.set_health(c, leaf, good) == changed);
        check();
        continue;
      }
      if (random.uniform(3) == 0) {
        change_bindings(is, known, random);  // not recorded
        check();
        continue;
      }
      is.begin();
      for (std::uint32_t n = random.uniform(30); n > 0; --n) change_bindings(is, known, random);
      check();
      if (keep) {
        is.keep();
      } else {
        is.rollback();
        known = before;
        for (std::uint32_t c = 0; c < is.num_chains(); ++c) {
          REQUIRE(is.chain(c).cells() == cells[c]);
          REQUIRE(is.ledger(c) == ledgers[c]);
        }
      }
      check();
    }
  }
  MESSAGE(hashes.size(), " states, met again ", seen_again, " times");
  CHECK(seen_again > 0);
}

TEST_CASE("hived_cells: the hash differs for different holders and different leaves") {
  hived_cells is(layout_to_bind());
  // The four leaves of the node that is pinned and so bound.
  const vc_chain_id mine = is.cluster_of_pinned(0);
  const std::uint32_t chain = is.cluster(mine).chain();
  std::vector<cell_id> leaves;
  const quota_tree& tree = is.cluster(mine).tree();
  for (const level_t l : {2U, 1U}) {
    for (const cell_id v : tree.cells(l)) {
      const cell_id image = is.cluster(mine).image(v);
      for (std::uint32_t i = 0; i < 2; ++i) {
        const cell_id child = is.chain(chain).tree().children(image, l)[i];
        is.bind(mine, tree.children(v, l)[i], l - 1, child);
        if (l == 1) leaves.push_back(child);
      }
    }
  }
  REQUIRE(leaves.size() == 4);
  std::set<std::uint64_t> hashes{is.hash()};
  std::size_t states = 1;
  const std::uint64_t idle = is.hash();
  for (const cell_id leaf : leaves) {
    for (std::uint32_t user = 0; user < 4; ++user) {
      for (std::uint32_t claimer = 0; claimer < 4; ++claimer) {
        for (const bool guaranteed : {false, true}) {
          leaf_holders to{gang_slot(), gang_slot(), guaranteed};
          if (user < 3) to.user = gang_slot(user);
          if (claimer < 3) to.claimer = gang_slot(claimer);
          if (to.idle() || (guaranteed && user == 3)) continue;
          is.hold(chain, leaf, to);
          hashes.insert(is.hash());
          ++states;
        }
      }
    }
    is.hold(chain, leaf, {});
    CHECK(is.hash() == idle);
  }
  CHECK(hashes.size() == states);
}

TEST_CASE("hived_cells: a whole cell costs its tenant quota as long as it is bound") {
  const hived_layout layout = layout_to_bind();
  hived_cells is(layout);
  const tenant_id b = layout.find_tenant("b").value();
  std::optional<std::uint32_t> racks;
  for (std::uint32_t c = 0; c < layout.chains.size(); ++c)
    if (layout.chains[c].name == "RACK") racks = c;
  const vc_chain_id cluster = is.cluster_of(b, racks.value());
  constexpr level_t pair = 1;
  const cell_id v = is.cluster(cluster).tree().roots(pair).first;
  const quota_ledger before = is.ledger(*racks);
  const std::vector<cell_id> to = bindable_to(is, cluster, v, pair);
  REQUIRE(!to.empty());
  is.bind(cluster, v, pair, to[0]);
  CHECK(!(is.ledger(*racks) == before));
  CHECK(is.cluster(cluster).image(v) == to[0]);
  is.unbind(cluster, v, pair);
  CHECK(is.ledger(*racks) == before);
  // Bad from before it is bound: it is not shown as free.
  const cell_id leaf = is.chain(*racks).tree().children(to[0], pair)[0];
  CHECK(is.set_health(*racks, leaf, false));
  CHECK(!is.set_health(*racks, leaf, false));
  is.bind(cluster, v, pair, to[0]);
  const cell_id virtual_leaf = is.cluster(cluster).tree().children(v, pair)[0];
  const std::uint32_t n = is.cluster(cluster).node_of(virtual_leaf);
  CHECK(std::popcount(is.cluster(cluster).free(n)) == 2);
  is.bind(cluster, virtual_leaf, 0, leaf);
  CHECK(std::popcount(is.cluster(cluster).free(n)) == 1);
  is.unbind(cluster, virtual_leaf, 0);
  CHECK(std::popcount(is.cluster(cluster).free(n)) == 2);
  is.bind(cluster, virtual_leaf, 0, leaf);
  // Healthy again while a gang has it: still not free.
  is.hold(*racks, leaf, {gang_slot(0), gang_slot(), true});
  CHECK(is.set_health(*racks, leaf, true));
  CHECK(std::popcount(is.cluster(cluster).free(n)) == 1);
  is.hold(*racks, leaf, {});
  CHECK(std::popcount(is.cluster(cluster).free(n)) == 2);
}
