// apiary/tests/hived/detail/catalog_test.cpp - what requests may say, and leaves by other names.
// SPDX-License-Identifier: MIT
#include "support/hived_documents.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

hived_catalog catalog_of(const hived_config& config) {
  return hived_catalog(hived_layout::create(config).value());
}

// The cluster otherwise written: its racks the other way round, node n3 gone for n9, the devices of
// n0 in another order, tenant "a" before "b", and "c" new.
hived_config rewritten_cluster() {
  hived_config config = apiary_test::small_cluster();
  std::swap(config.physical_cells[0], config.physical_cells[2]);
  config.physical_cells[0].children[1].address = "n9";
  physical_cell_config& n0 = config.physical_cells[2].children[0];
  REQUIRE(n0.address == "n0");
  for (const auto& [left, right] : {std::pair("2", "0"), std::pair("1", "3")})
    n0.children.push_back({.children = {{.address = left}, {.address = right}}});
  std::swap(config.virtual_clusters[0], config.virtual_clusters[1]);
  config.virtual_clusters.push_back({.name = "c"});
  return config;
}

// A gang of tenant "b" that nothing is wrong with.
gang_request faultless_gang(const hived_catalog& catalog) {
  gang_request r;
  r.job = job_id(7);
  r.tenant = catalog.layout().find_tenant("b").value();
  r.groups = {{2, 2}, {1, 1}};
  return r;
}

void check_refused(const absl::Status& status, absl::StatusCode code, const std::string& what) {
  CHECK(status.code() == code);
  CHECK(std::string(status.message()) == what);
}

// All leaves of the chains.
std::vector<chain_leaf> all_chain_leaves(const hived_layout& layout) {
  std::vector<chain_leaf> all;
  for (std::uint32_t c = 0; c < layout.chains.size(); ++c)
    for (const cell_id leaf : layout.chains[c].tree.cells(0)) all.push_back({c, leaf});
  return all;
}

// The names of a leaf's node and device: leaves of a chain in order, node by node.
std::map<chain_leaf, std::pair<std::string, std::uint32_t>> names_of_leaves(
    const hived_layout& layout) {
  std::map<chain_leaf, std::pair<std::string, std::uint32_t>> names;
  for (const chain_leaf& l : all_chain_leaves(layout)) {
    const chain_layout& in = layout.chains[l.chain];
    const std::uint32_t i = l.leaf.value - in.tree.cells(0).first.value;
    const std::size_t size = in.device_of_leaf.size() / in.node_names.size();
    names[l] = {in.node_names[i / size], in.device_of_leaf[i]};
  }
  return names;
}

}  // namespace

TEST_CASE("hived_catalog: each fault of a request has its words") {
  const hived_catalog catalog = catalog_of(apiary_test::small_cluster());
  const auto mine = catalog.layout().find_pinned("mine").value();
  const auto a = catalog.layout().find_tenant("a").value();
  summary_bitset five(5, true);
  summary_bitset six(6, true);
  using change = std::function<void(gang_request&)>;
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  constexpr auto not_found = absl::StatusCode::kNotFound;
  const std::vector<std::tuple<change, absl::StatusCode, std::string>> faults{
      {[](gang_request& r) { r.job = job_id(); }, invalid, "a gang needs a job id"},
      {[](gang_request& r) { r.tenant = tenant_id(2); }, not_found, "gang 7: there is no tenant 2"},
      {[](gang_request& r) { r.tenant = tenant_id(); }, not_found, "gang 7: no tenant"},
      {[](gang_request& r) { r.priority = -2; }, invalid,
       "gang 7: priority -2 is not in -1, ..., 1000"},
      {[](gang_request& r) { r.priority = 1001; }, invalid,
       "gang 7: priority 1001 is not in -1, ..., 1000"},
      {[](gang_request& r) { r.groups.clear(); }, invalid, "gang 7: no tasks"},
      {[](gang_request& r) { r.groups[1].tasks = 0; }, invalid,
       "gang 7: a task group with 0 tasks"},
      {[](gang_request& r) { r.groups[1].gpus = 0; }, invalid,
       "gang 7: a task group with 0 GPUs for each task"},
      {[](gang_request& r) { r.groups[0].gpus = 65; }, invalid,
       "gang 7: a task of 65 GPUs; a node has at most 64"},
      {[](gang_request& r) { r.groups[0].tasks = 1'000'000; }, invalid,
       "gang 7: 1000001 tasks; the limit is 1000000"},
      {[](gang_request& r) {
         r.groups.assign(2, {~0U, 1});
       },
       invalid, "gang 7: 8589934590 tasks; the limit is 1000000"},
      {[](gang_request& r) { r.leaf_type = leaf_type_id(2); }, not_found,
       "gang 7: there is no leaf type 2"},
      {[&](gang_request& r) { r.suggested = &five; }, invalid,
       "gang 7: suggested nodes: 5 bits for 6 nodes"},
      {[](gang_request& r) { r.pinned = 1; }, not_found, "gang 7: there is no pinned cell 1"},
      {[&](gang_request& r) {
         r.pinned = mine;
         r.priority = -1;
       },
       invalid, "gang 7: an opportunistic gang cannot use a pinned cell"},
      {[&](gang_request& r) {
         r.pinned = mine;
         r.tenant = a;
       },
       absl::StatusCode::kFailedPrecondition, "gang 7: pinned cell mine belongs to another tenant"},
  };
  for (const auto& fault : faults) {
    CAPTURE(std::get<2>(fault));
    gang_request r = faultless_gang(catalog);
    CHECK(catalog.check(r).ok());
    std::get<0>(fault)(r);
    check_refused(catalog.check(r), std::get<1>(fault), std::get<2>(fault));
    // Only a tenant may be missing of a gang that runs, and only if it is none.
    CHECK(catalog.check(r, true).ok() == (r.tenant == tenant_id()));
  }
  const std::vector<change> faultless{
      [](gang_request& r) { r.priority = -1; },
      [](gang_request& r) { r.priority = 1000; },
      [](gang_request& r) {
        r.groups[0] = {999'999, 64};
      },
      [](gang_request& r) { r.leaf_type = leaf_type_id(1); },
      [&](gang_request& r) { r.suggested = &six; },
      [&](gang_request& r) { r.pinned = mine; },
  };
  for (const change& c : faultless) {
    gang_request r = faultless_gang(catalog);
    c(r);
    CHECK(catalog.check(r).ok());
  }
}

TEST_CASE("hived_catalog: types of leaves") {
  const hived_catalog catalog = catalog_of(apiary_test::small_cluster());
  CHECK(!catalog.find_leaf_type("TPU"));
  CHECK(!catalog.find_leaf_type("PAIR"));
  for (std::uint32_t c = 0; c < catalog.layout().chains.size(); ++c) {
    const std::string type = catalog.layout().chains[c].name == "RACK" ? "GPU" : "NPU";
    CHECK(catalog.find_leaf_type(type) == catalog.type_of(c));
    CHECK(catalog.name(catalog.type_of(c)) == type);
  }
  // Two chains of one type of leaf.
  hived_config config = apiary_test::small_cluster();
  config.cell_types[3].child_type = "GPU";
  const hived_catalog same = catalog_of(config);
  CHECK(same.type_of(0) == same.type_of(1));
  CHECK(!same.find_leaf_type("NPU"));
}

TEST_CASE("hived_catalog: a leaf is a bit of its node, and is found by it") {
  const hived_catalog catalog = catalog_of(apiary_test::small_cluster());
  const hived_layout& layout = catalog.layout();
  for (const chain_leaf& l : all_chain_leaves(layout)) {
    const chain_layout& in = layout.chains[l.chain];
    const std::uint32_t i = l.leaf.value - in.tree.cells(0).first.value;
    const std::uint32_t size = l.chain == 0 ? 4 : 8;  // "RACK" comes before "BOX"
    const hived_placement at{node_id(in.first_node + i / size), std::uint64_t{1} << (i % size)};
    REQUIRE(catalog.placement_of(l) == at);
    gang_request r = faultless_gang(catalog);
    r.groups = {{1, 2}};
    const auto found = catalog.find_leaves(r, std::vector{at});
    REQUIRE(found.ok());
    REQUIRE(found->size() == 2);
    CHECK((*found)[0] == l);
    CHECK(!(*found)[1].leaf.valid());
    std::vector<hived_placement> listed;
    catalog.list_tasks(*found, r.groups, listed);
    CHECK(listed == std::vector{at});
  }
}

TEST_CASE("hived_catalog: placements of tasks as a host reports them, right and wrong") {
  const hived_catalog catalog = catalog_of(apiary_test::small_cluster());
  const hived_layout& layout = catalog.layout();
  const gang_request r = faultless_gang(catalog);
  const node_id n0 = layout.find_node("n0").value();
  const node_id b1 = layout.find_node("b1").value();
  // One task has ended, one lacks a leaf, one is whole.
  const std::vector<hived_placement> reported{{n0, 0b0110}, {node_id(), 0}, {b1, 0b10000000}};
  const auto found = catalog.find_leaves(r, reported);
  REQUIRE(found.ok());
  REQUIRE(found->size() == 5);
  CHECK((*found)[0] != (*found)[1]);
  CHECK(!(*found)[2].leaf.valid());
  CHECK(!(*found)[3].leaf.valid());
  std::vector<hived_placement> listed{{n0, 1}};
  catalog.list_tasks(*found, r.groups, listed);
  REQUIRE(listed.size() == 4);
  for (std::size_t t = 0; t < 3; ++t) CHECK(listed[t + 1] == reported[t]);

  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  const auto refused = [&](const std::vector<hived_placement>& tasks, absl::StatusCode code,
                           const std::string& what) {
    check_refused(catalog.find_leaves(r, tasks).status(), code, what);
  };
  refused({{n0, 3}}, invalid, "gang 7 has 3 tasks; there are placements for 1");
  refused({{n0, 3}, {n0, 12}, {b1, 1}, {b1, 2}}, invalid,
          "gang 7 has 3 tasks; there are placements for 4");
  refused({{node_id(6), 3}, {n0, 12}, {b1, 1}}, absl::StatusCode::kNotFound,
          "gang 7: there is no node 6");
  refused({{n0, 3}, {n0, 0b10100}, {b1, 1}}, invalid, "gang 7: node n0 has only 4 leaf cells");
  refused({{n0, 3}, {n0, 12}, {b1, 0x101}}, invalid, "gang 7: node b1 has only 8 leaf cells");
  refused({{n0, 3}, {n0, 12}, {b1, 0b11}}, invalid,
          "gang 7: node b1: more leaf cells than the task requests");
  refused({{n0, 0b0011}, {b1, 0b11}, {n0, 0b0010}}, invalid,
          "gang 7: two tasks have the same leaf cell");
  CHECK(catalog.find_leaves(r, std::vector<hived_placement>{{n0, 3}, {n0, 12}, {b1, 128}}).ok());
}

TEST_CASE("hived_catalog: a leaf of another configuration, by the names of node and device") {
  const hived_catalog before = catalog_of(apiary_test::small_cluster());
  const hived_catalog after = catalog_of(rewritten_cluster());
  std::size_t gone = 0;
  std::size_t elsewhere = 0;
  for (const auto& [from, to] : {std::pair(&before, &after), std::pair(&after, &before)}) {
    const auto there = names_of_leaves(from->layout());
    const auto here = names_of_leaves(to->layout());
    for (const auto& leaf : there) {
      chain_leaf expected;
      for (const auto& other : here)
        if (other.second == leaf.second) expected = other.first;
      CHECK(to->find_leaf(*from, leaf.first) == expected);
      gone += expected.leaf.valid() ? 0U : 1U;
      elsewhere += expected.leaf.valid() && expected != leaf.first ? 1U : 0U;
    }
  }
  CHECK(gone == 8);  // of n3, and of n9
  CHECK(elsewhere > 8);
}

TEST_CASE("hived_catalog: a request of another configuration") {
  const hived_catalog before = catalog_of(apiary_test::small_cluster());
  hived_config config = rewritten_cluster();
  const hived_catalog after = catalog_of(config);
  gang_request r = faultless_gang(before);
  r.leaf_type = before.find_leaf_type("NPU").value();
  r.priority = 3;
  gang_request now = after.translate(before, r);
  CHECK(now.tenant == after.layout().find_tenant("b").value());
  CHECK(now.tenant != r.tenant);
  CHECK(now.leaf_type == after.find_leaf_type("NPU").value());
  CHECK(now.job == r.job);
  CHECK(now.groups == r.groups);
  CHECK(now.priority == 3);
  CHECK(!now.pinned);

  r.pinned = before.layout().find_pinned("mine").value();
  now = after.translate(before, r);
  CHECK(now.pinned == after.layout().find_pinned("mine"));
  CHECK(now.tenant == after.layout().find_tenant("b").value());

  // The pinned cell is another tenant's, or no tenant owns it, or it is gone; or the tenant is gone.
  const auto check_of_none = [&](const hived_catalog& next) {
    const gang_request lost = next.translate(before, r);
    CHECK(!lost.pinned);
    CHECK(!lost.tenant.valid());
  };
  REQUIRE(config.virtual_clusters[1].name == "b");
  config.virtual_clusters[1].pinned_ids.clear();
  check_of_none(catalog_of(config));
  config.virtual_clusters[2].pinned_ids = {"mine"};
  check_of_none(catalog_of(config));
  config.virtual_clusters[2].name = "b";
  config.virtual_clusters[1].name = "d";
  CHECK(catalog_of(config).translate(before, r).tenant == tenant_id(2));
  config.virtual_clusters[2].name = "e";
  check_of_none(catalog_of(config));
  r.pinned.reset();
  check_of_none(catalog_of(config));
  r.tenant = tenant_id();
  check_of_none(after);

  // No more leaves of its type: of any.
  config = rewritten_cluster();
  config.cell_types[3].child_type = "APU";
  now = catalog_of(config).translate(before, r);
  CHECK(!now.leaf_type.valid());
}
