// apiary/tests/hived/detail/cells_test.cpp - bindings that come and go, recounted, and taken back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <support/hived_documents.h>
#include <support/scale.h>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

constexpr leaf_holders used{gang_slot(1), gang_slot(), true};
constexpr leaf_holders opportunistic_user{gang_slot(2), gang_slot(), false};

// Five racks of two nodes of two pairs, and two boxes. Tenant "b" has a pair and the node n1, "a" a
// rack, "c" two nodes, a pair and a leaf of the racks and a box.
hived_layout layout_of_three() {
  hived_config c = apiary_test::small_cluster();
  for (const char* names : {"45", "67", "89"}) {
    c.physical_cells.push_back(
        apiary_test::rack({apiary_test::named(std::string("n") + names[0]),
                           apiary_test::named(std::string("n") + names[1])}));
  }
  c.virtual_clusters.push_back(
      {.name = "c",
       .cells = {{"RACK.NODE", 2}, {"RACK.NODE.PAIR", 1}, {"RACK.NODE.PAIR.GPU", 1}, {"BOX", 1}}});
  auto layout = hived_layout::create(c);
  REQUIRE(layout.ok());
  return *std::move(layout);
}

// All that can be seen of the cells.
using picture = std::tuple<std::uint64_t, std::vector<std::uint64_t>,
                           std::vector<reserving_buddy_allocator>, std::vector<quota_ledger>>;
picture picture_of(const hived_cells& cells) {
  picture p;
  auto& [hash, words, free, ledgers] = p;
  hash = cells.hash();
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    const physical_chain& chain = cells.chain(c);
    free.push_back(chain.cells());
    ledgers.push_back(cells.ledger(c));
    for (std::uint32_t i = 0; i < chain.tree().num_cells(); ++i) {
      const virtual_cell owner = chain.owner(cell_id(i));
      words.insert(words.end(),
                   {owner.cluster.value, owner.cell.value, chain.healthy().bad_leaves(cell_id(i)),
                    chain.opportunistic_leaves(cell_id(i))});
    }
    for (const cell_id leaf : chain.tree().cells(0)) {
      const leaf_holders h = chain.holders(leaf);
      words.insert(words.end(), {h.user.value, h.claimer.value, h.guaranteed ? 1U : 0U});
    }
    for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) words.push_back(chain.idle(n));
  }
  for (std::uint32_t c = 0; c < cells.num_clusters(); ++c) {
    const virtual_cluster& cluster = cells.cluster(vc_chain_id(c));
    for (std::uint32_t i = 0; i < cluster.tree().num_cells(); ++i)
      words.push_back(cluster.image(cell_id(i)).value);
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) words.push_back(cluster.free(n));
  }
  return p;
}

// Recounts what must follow from holders, health and images.
void check(const hived_cells& cells) {
  std::vector<std::vector<std::uint32_t>> roots(cells.num_chains());  // bound, not pinned
  std::vector<std::uint32_t> owned(cells.num_chains(), 0);
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    const physical_chain& chain = cells.chain(c);
    roots[c].resize(chain.tree().num_levels(), 0);
    for (std::uint32_t i = 0; i < chain.tree().num_cells(); ++i)
      owned[c] += chain.owner(cell_id(i)).cell.valid() ? 1U : 0U;
    for (const cell_id leaf : chain.tree().cells(0)) {
      if (chain.holders(leaf).taken()) REQUIRE(chain.owner(leaf).cell.valid());
    }
    REQUIRE(chain.cells().invariant_holds());
  }
  for (std::uint32_t k = 0; k < cells.num_clusters(); ++k) {
    const vc_chain_id id(k);
    const virtual_cluster& cluster = cells.cluster(id);
    const physical_chain& chain = cells.chain(cluster.chain());
    const quota_tree& tree = cluster.tree();
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      const cell_id v(i);
      const level_t l = tree.level(v);
      std::uint32_t active = 0;
      for (const cell_id leaf : tree.descendants(v, 0)) {
        const cell_id image = cluster.image(leaf);
        active += image.valid() && chain.holders(image).taken() ? 1U : 0U;
      }
      if (l > 0) REQUIRE(cluster.active(v) == active);
      const cell_id image = cluster.image(v);
      if (!image.valid()) {
        REQUIRE(active == 0);
        continue;
      }
      --owned[cluster.chain()];
      REQUIRE(chain.tree().level(image) == l);
      REQUIRE(chain.owner(image) == virtual_cell{id, v});
      const cell_id above = tree.parent(v, l);
      if (above.valid()) {
        REQUIRE(cluster.image(above) == chain.tree().parent(image, l));
        REQUIRE((active > 0 || !chain.healthy().healthy(image)));
      } else {
        REQUIRE((active > 0 || cells.is_pinned(id)));
        REQUIRE(!chain.cells().cells().enclosing_free_level(image));
        if (!cells.is_pinned(id)) ++roots[cluster.chain()][l];
      }
      for (const cell_id child : chain.tree().children(image, l))
        REQUIRE((chain.healthy().healthy(child) || chain.owner(child).cluster == id));
    }
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      for (std::uint32_t i = 0; i < cluster.range_of_node(n).leaves; ++i) {
        const cell_id image = cluster.image(cell_id(cluster.first_leaf(n).value + i));
        const bool usable =
            !image.valid() || (!chain.holders(image).taken() && chain.healthy().healthy(image));
        REQUIRE((cluster.free(n) >> i & 1) == (usable ? 1U : 0U));
      }
    }
  }
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    REQUIRE(owned[c] == 0);  // nothing belongs to no virtual cell
    for (level_t l = 0; l < roots[c].size(); ++l) {
      std::uint32_t allocated = 0;
      for (std::uint32_t t = 0; t < cells.ledger(c).num_tenants(); ++t)
        allocated += cells.ledger(c).allocated(tenant_id(t), l);
      REQUIRE(allocated == roots[c][l]);
    }
  }
}

// Takes a random free virtual leaf, with the user of the physical leaf as its victim.
bool take(hived_cells& cells, rng& random) {
  const vc_chain_id id(random.uniform(cells.num_clusters()));
  const virtual_cluster& cluster = cells.cluster(id);
  const cell_id leaf = cluster.tree().cells(0)[random.uniform(cluster.tree().num_leaves())];
  const std::uint32_t n = cluster.node_of(leaf);
  if ((cluster.free(n) >> (leaf.value - cluster.first_leaf(n).value) & 1) == 0) return false;
  std::optional<cell_id> image = cluster.image(leaf);
  if (!image->valid()) image = cells.bind_leaf(id, leaf);
  if (!image) return false;
  const physical_chain& chain = cells.chain(cluster.chain());
  REQUIRE(chain.healthy().healthy(*image));
  leaf_holders to = chain.holders(*image);
  if (to.user.valid()) {
    to.claimer = gang_slot(3);
  } else {
    to = used;
  }
  cells.hold(cluster.chain(), *image, to);
  return true;
}
// Changes the holders of a random leaf: removes its user, claimer or guarantee, or adds an
// opportunistic gang.
void change(hived_cells& cells, rng& random) {
  const std::uint32_t c = random.uniform(cells.num_chains());
  const physical_chain& chain = cells.chain(c);
  const cell_id leaf = chain.tree().cells(0)[random.uniform(chain.tree().num_leaves())];
  const leaf_holders h = chain.holders(leaf);
  if (h.claimer.valid() && random.uniform(2) == 0) {
    cells.unclaim(c, leaf);
  } else if (h.user.valid()) {
    random.uniform(3) == 0 ? cells.downgrade(c, leaf) : cells.release(c, leaf);
  } else if (h.idle() && chain.healthy().healthy(leaf)) {
    cells.hold(c, leaf, opportunistic_user);
  }
}
// Gives a random leaf to a cluster, if it can be had.
void bind_any(hived_cells& cells, rng& random) {
  const vc_chain_id id(random.uniform(cells.num_clusters()));
  const std::uint32_t c = cells.cluster(id).chain();
  const physical_chain& chain = cells.chain(c);
  const cell_id leaf = chain.tree().cells(0)[random.uniform(chain.tree().num_leaves())];
  const picture before = picture_of(cells);
  cells.begin();
  const auto v = cells.bind_any_leaf(id, leaf, random.uniform(2) == 0);
  if (!v) {
    cells.rollback();
    REQUIRE(picture_of(cells) == before);
    return;
  }
  REQUIRE(cells.cluster(id).image(*v) == leaf);
  cells.hold(c, leaf, used);
  cells.keep();
  cells.bind_unhealthy(id, *v);
}

}  // namespace

TEST_CASE("a leaf in use binds what is above it, until it goes") {
  const hived_layout layout = layout_of_three();
  hived_cells cells(layout);
  check(cells);
  const picture empty = picture_of(cells);
  const vc_chain_id rack = cells.cluster_of(tenant_id(1), 0);
  REQUIRE(rack.valid());
  CHECK(!cells.cluster_of(tenant_id(1), 1).valid());
  CHECK(cells.is_pinned(cells.cluster_of_pinned(0)));
  const virtual_cluster& cluster = cells.cluster(rack);
  const cell_id leaf = cluster.tree().cells(0).first;
  const auto image = cells.bind_leaf(rack, leaf);
  REQUIRE(image);
  cells.hold(0, *image, used);
  check(cells);
  CHECK(cells.ledger(0).allocated(tenant_id(1), 3) == 1);
  // Rack 0 has the pinned node.
  CHECK(*image == layout.chains[0].tree.at(0, 8));
  CHECK(cluster.image(cluster.tree().cells(3).first) == layout.chains[0].tree.at(3, 1));

  // Elsewhere in the same rack: bound cells keep their images.
  const cell_id last = cluster.tree().cells(0)[7];
  cells.bind_leaf_at(rack, {last, layout.chains[0].tree.at(0, 13)});
  cells.hold(0, layout.chains[0].tree.at(0, 13), used);
  check(cells);
  cells.release(0, *image);
  check(cells);
  CHECK(!cluster.image(leaf).valid());
  CHECK(cells.ledger(0).allocated(tenant_id(1), 3) == 1);
  cells.release(0, layout.chains[0].tree.at(0, 13));
  CHECK(picture_of(cells) == empty);
}

TEST_CASE("cells without opportunistic leaves are bound first; a claim keeps a cell bound") {
  const hived_layout layout = layout_of_three();
  hived_cells cells(layout);
  const uniform_tree& tree = layout.chains[0].tree;
  for (const std::uint32_t i : {8U, 17U}) cells.hold(0, tree.at(0, i), opportunistic_user);
  const vc_chain_id rack = cells.cluster_of(tenant_id(1), 0);
  const cell_id leaf = cells.cluster(rack).tree().cells(0).first;
  const auto image = cells.bind_leaf(rack, leaf);
  REQUIRE(image);
  CHECK(*image == tree.at(0, 24));
  cells.hold(0, *image, {gang_slot(1), gang_slot(4), true});
  check(cells);
  cells.release(0, *image);
  CHECK(cells.chain(0).holders(*image) == leaf_holders{gang_slot(), gang_slot(4), false});
  CHECK(cells.cluster(rack).image(leaf) == *image);
  cells.hold(0, *image, {gang_slot(1), gang_slot(4), true});
  cells.unclaim(0, *image);
  cells.downgrade(0, *image);
  CHECK(cells.chain(0).holders(*image) == leaf_holders{gang_slot(1), gang_slot(), false});
  CHECK(!cells.cluster(rack).image(leaf).valid());
  check(cells);
}

// Eight racks of two nodes of two pairs, most of which are owned.
hived_layout layout_of_racks() {
  hived_config c;
  c.cell_types = {{"PAIR", "GPU", 2}, {"NODE", "PAIR", 2, true}, {"RACK", "NODE", 2}};
  for (std::uint32_t r = 0; r < 8; ++r) {
    c.physical_cells.push_back(apiary_test::rack({apiary_test::named(std::to_string(2 * r)),
                                                  apiary_test::named(std::to_string(2 * r + 1))}));
  }
  c.virtual_clusters = {
      {.name = "a",
       .cells = {{"RACK", 2}, {"RACK.NODE", 3}, {"RACK.NODE.PAIR", 2}, {"RACK.NODE.PAIR.GPU", 2}}},
      {.name = "b", .cells = {{"RACK", 2}, {"RACK.NODE", 2}}}};
  auto layout = hived_layout::create(c);
  REQUIRE(layout.ok());
  return *std::move(layout);
}
// The cell to which an unbound whole one of this level is to be bound, of all healthy ones that can
// be granted: one without opportunistic leaves, or else with the fewest of them in the smallest free
// cells.
std::optional<cell_id> best_root(const physical_chain& chain, level_t l) {
  std::optional<cell_id> best;
  std::tuple<bool, level_t, std::uint32_t> least;
  for (const cell_id p : chain.tree().cells(l)) {
    if (!chain.cells().can_allocate_at(p) || !chain.healthy().healthy(p)) continue;
    const std::uint32_t opportunistic = chain.opportunistic_leaves(p);
    const std::tuple now(opportunistic > 0, *chain.cells().cells().enclosing_free_level(p),
                         opportunistic);
    if (best && now >= least) continue;
    best = p;
    least = now;
  }
  return best;
}

TEST_CASE("a whole cell is bound to the cell with the fewest opportunistic leaves") {
  const hived_layout layout = layout_of_racks();
  rng random(83);
  std::uint32_t with_opportunistic[4] = {0, 0, 0, 0};  // of each level
  std::uint32_t none = 0;
  for (int round = 0; round < apiary_test::scaled(600); ++round) {
    hived_cells cells(layout);
    const physical_chain& chain = cells.chain(0);
    const std::uint32_t density = 2 + random.uniform(4);
    for (const cell_id leaf : chain.tree().cells(0)) {
      if (random.uniform(5) < density) cells.hold(0, leaf, opportunistic_user);
      if (random.uniform(20) == 0) cells.mark(0, leaf, false);
    }
    for (int step = 0; step < 30; ++step) {
      const vc_chain_id id(random.uniform(cells.num_clusters()));
      const quota_tree& tree = cells.cluster(id).tree();
      const level_t l = random.uniform(tree.num_levels());
      if (tree.roots(l).empty()) continue;
      const cell_id root = tree.roots(l)[random.uniform(tree.roots(l).size())];
      const cell_id leaf = tree.descendants(root, 0).first;
      if (cells.cluster(id).image(root).valid()) {
        const cell_id image = cells.cluster(id).image(leaf);
        if (!image.valid()) continue;
        if (chain.holders(image).claimer.valid()) cells.unclaim(0, image);
        if (chain.holders(image).guaranteed) cells.release(0, image);
        continue;
      }
      const std::optional<cell_id> expected = best_root(chain, l);
      const std::uint32_t opportunistic = expected ? chain.opportunistic_leaves(*expected) : 0;
      const std::optional<cell_id> image = cells.bind_leaf(id, leaf);
      REQUIRE(image.has_value() == expected.has_value());
      none += expected ? 0U : 1U;
      if (!expected) continue;
      REQUIRE(chain.tree().ancestor(*image, l) == *expected);
      with_opportunistic[l] += opportunistic > 0 ? 1U : 0U;
      leaf_holders to = chain.holders(*image);
      if (to.user.valid()) {
        to.claimer = gang_slot(3);
      } else {
        to = used;
      }
      cells.hold(0, *image, to);
    }
  }
  for (const std::uint32_t n : with_opportunistic) CHECK(n >= apiary_test::scaled(100U));
  CHECK(none >= apiary_test::scaled(10U));
}

TEST_CASE("what is bad in a bound cell is shown to its tenant, and only while it is") {
  const hived_layout layout = layout_of_three();
  hived_cells cells(layout);
  const uniform_tree& tree = layout.chains[0].tree;
  const vc_chain_id rack = cells.cluster_of(tenant_id(1), 0);
  const virtual_cluster& cluster = cells.cluster(rack);
  const cell_id leaf = cluster.tree().cells(0).first;
  const auto image = cells.bind_leaf(rack, leaf);
  REQUIRE(image);
  cells.hold(0, *image, used);
  const picture healthy = picture_of(cells);
  CHECK(cells.mark(0, tree.at(0, 15), false));
  CHECK(!cells.mark(0, tree.at(0, 15), false));
  check(cells);
  CHECK(cells.chain(0).owner(tree.at(0, 15)).cluster == rack);
  CHECK(cluster.free(0) == 0b1110);
  CHECK(cluster.free(1) == 0b0111);
  CHECK(cells.mark(0, tree.at(0, 15), true));
  CHECK(picture_of(cells) == healthy);
  CHECK(cells.mark(0, *image, false));
  check(cells);
  cells.release(0, *image);
  check(cells);
  CHECK(!cluster.image(cluster.tree().cells(3).first).valid());
}

TEST_CASE("bind_whole_cells binds what is unusable; unbound cells stand for usable ones") {
  const hived_layout layout = layout_of_three();
  hived_cells cells(layout);
  rng random(5);
  for (int round = 0; round < apiary_test::scaled(300); ++round) {
    const std::uint32_t k = random.uniform(cells.num_clusters());
    const virtual_cluster& cluster = cells.cluster(vc_chain_id(k));
    const physical_chain& chain = cells.chain(cluster.chain());
    health<uniform_tree> usable(chain.tree());
    for (const cell_id leaf : chain.tree().cells(0))
      if (random.uniform(3) == 0) usable.mark_bad(leaf);
    const picture before = picture_of(cells);
    cells.begin();
    const bool all =
        cells.bind_whole_cells(vc_chain_id(k), usable, 1 + random.uniform(4)).all_usable;
    const quota_tree& tree = cluster.tree();
    bool whole = true;
    for (level_t l = 0; l < tree.num_levels(); ++l)
      for (const cell_id root : tree.roots(l)) whole = whole && usable.healthy(cluster.image(root));
    REQUIRE(all == whole);
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      const cell_id v(i);
      const level_t l = tree.level(v);
      const cell_id image = cluster.image(v);
      if (!tree.parent(v, l).valid()) REQUIRE(image.valid());
      if (!image.valid() || l == 0) continue;
      for (const cell_id child : chain.tree().children(image, l))
        REQUIRE((usable.healthy(child) || chain.owner(child).cluster == vc_chain_id(k)));
    }
    cells.rollback();
    REQUIRE(picture_of(cells) == before);
    take(cells, random);
    change(cells, random);
  }
}

TEST_CASE("random binding, vacating, adopting and marking against a recount") {
  const hived_layout layout = layout_of_three();
  hived_cells cells(layout);
  const picture empty = picture_of(cells);
  rng random(77);
  std::uint32_t taken = 0;
  for (int step = 0; step < apiary_test::scaled(4000); ++step) {
    switch (random.uniform(8)) {
      case 0: {
        const std::uint32_t c = random.uniform(cells.num_chains());
        const physical_chain& chain = cells.chain(c);
        const cell_id leaf = chain.tree().cells(0)[random.uniform(chain.tree().num_leaves())];
        cells.mark(c, leaf, random.uniform(3) != 0);
        break;
      }
      case 1:
        bind_any(cells, random);
        break;
      case 2:
      case 3:
      case 4:
        taken += take(cells, random) ? 1U : 0U;
        break;
      case 5: {
        // Tried, and taken back.
        const picture before = picture_of(cells);
        cells.begin();
        for (std::uint32_t i = random.uniform(12); i > 0; --i)
          random.uniform(2) == 0 ? static_cast<void>(take(cells, random)) : change(cells, random);
        cells.rollback();
        REQUIRE(picture_of(cells) == before);
        break;
      }
      default:
        change(cells, random);
    }
    check(cells);
  }
  CHECK(taken > apiary_test::scaled(100U));
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    for (const cell_id leaf : cells.chain(c).tree().cells(0)) {
      if (cells.chain(c).holders(leaf).claimer.valid()) cells.unclaim(c, leaf);
      if (cells.chain(c).holders(leaf).user.valid()) cells.release(c, leaf);
      cells.mark(c, leaf, true);
      check(cells);
    }
  }
  CHECK(picture_of(cells) == empty);
  CHECK(cells.memory_bytes() > 0);
}

TEST_CASE("bind_any_leaf: a leaf gets the lowest whole cell, or the highest, as is asked for") {
  const hived_layout layout = layout_of_three();
  hived_cells cells(layout);
  const vc_chain_id c = cells.cluster_of(layout.find_tenant("c").value(), 0);
  const cell_id first = cells.chain(0).first_leaf(4);  // of n4
  for (const bool highest : {false, true}) {
    CAPTURE(highest);
    cells.begin();
    REQUIRE(cells.bind_any_leaf(c, first, highest));
    CHECK(cells.whole_cell_level(0, first) == (highest ? 2 : 0));
    cells.rollback();
  }
  // One leaf of n4 and one of n5, two pairs: there are a leaf, a pair and two nodes for them. With the
  // nodes first, the last two leaves get none.
  const auto leaf = [&](std::uint32_t n, std::uint32_t i) {
    return cell_id(cells.chain(0).first_leaf(n).value + i);
  };
  const std::vector<cell_id> leaves{leaf(4, 0), leaf(5, 0), leaf(6, 0),
                                    leaf(6, 2), leaf(7, 0), leaf(7, 2)};
  for (const bool highest : {false, true}) {
    CAPTURE(highest);
    cells.begin();
    bool all = true;
    for (const cell_id l : leaves) all = all && cells.bind_any_leaf(c, l, highest);
    CHECK(all == !highest);
    cells.rollback();
  }
}
