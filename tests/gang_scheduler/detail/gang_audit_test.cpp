// apiary/tests/gang_scheduler/detail/gang_audit_test.cpp - states that are wrong in one way, which the audit must notice.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/detail/gang_audit.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gang_audit_tests {
namespace {

using namespace apiary;
using detail::node_view;
using detail::scheduled_gangs;
using detail::used_node;

// Removes const from a member, to damage it.
template <class T>
[[nodiscard]] T& broken(const T& member) {
  return const_cast<T&>(member);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

// Two racks of 40 nodes with 4 GPUs each. Jobs 1 and 2 run on node 0, job 1 also on node 1, and job 3
// on node 2; job 4 waits for the end of job 3. Job 5 runs on node 40, job "x" on node 41. Node 3 is
// bad, and node 4 has a bad GPU. No node has id 79. What searches read has been listed.
struct audited_gangs : scheduled_gangs {
  audited_gangs() : scheduled_gangs(cluster()) {
    insert(gang(1, 0, {{node_id(0), 3}, {node_id(1), 3}}));
    insert(gang(2, 1, {{node_id(0), 12}}));
    insert(gang(3, 0, {{node_id(2), 15}}));
    running_gang preempting = gang(4, 5, {{node_id(2), 15}});
    preempting.preempting = true;
    preempting.victims = {3};
    insert(preempting);
    insert(gang(5, 2, {{node_id(40), 1}}));
    insert(gang("x", 2, {{node_id(41), 1}}));
    set_health(3, true, 0);
    set_health(4, false, 2);
    erase_node(79);
    view({.labels = {"zone=a"}});
    cells_of_racks = &in_cells(1);
    listed = &allocations();
  }
  using running_gang = gang_scheduler_types::running_gang;

  [[nodiscard]] static gang_cluster cluster() {
    gang_cluster all{.levels = {"rack"}, .nodes = {}};
    for (int n = 0; n < 80; ++n) {
      all.nodes.push_back({.name = "n" + std::to_string(n),
                           .cells = {n < 40 ? "r0" : "r1"},
                           .gpus = 4,
                           .host = {8000, 100}});
      if (n % 2 == 0) all.nodes.back().labels = {"zone=a"};
    }
    return all;
  }
  // A gang with two GPUs, or another number, for each task; each task has CPU and memory.
  [[nodiscard]] static running_gang gang(job_key job, std::int32_t priority,
                                         std::vector<placement> tasks) {
    running_gang g;
    g.what.job = std::move(job);
    g.what.priority = priority;
    for (const placement& p : tasks) {
      g.what.gang.groups.push_back({.tasks = 1, .gpus = p.num_gpus(), .host = {1000, 10}});
      g.gpus += p.num_gpus();
    }
    g.tasks = std::move(tasks);
    g.started = 10;
    return g;
  }
  [[nodiscard]] entry& entry_of(const job_key& job) { return broken(at(slot_of(job))); }
  [[nodiscard]] running_gang& record(const job_key& job) { return entry_of(job).record; }
  [[nodiscard]] brief& brief_of_job(const job_key& job) { return briefs_[slot_of(job)]; }
  [[nodiscard]] priority_class& class_of(std::int32_t priority) {
    return broken(classes().at(priority));
  }
  // The first rack with gangs.
  [[nodiscard]] std::uint32_t rack_in_use() const {
    std::uint32_t c = 0;
    while (cells_of_racks->in(c).empty()) ++c;
    return c;
  }
  [[nodiscard]] std::string& rack_name(std::uint32_t node) {
    const auto& tree = layout_.tree();
    return broken(
        layout_.cell_name(1, tree.index(tree.parent(tree.at(0, nodes_[node].position), 0), 1)));
  }

  const detail::cell_gangs* cells_of_racks = nullptr;
  const detail::gang_allocations* listed = nullptr;

  [[nodiscard]] node_view& nth_view(std::size_t i) { return broken(views()[i]); }

  // What damages change.
  using scheduled_gangs::allocations_;
  using scheduled_gangs::bad_;
  using scheduled_gangs::briefs_;
  using scheduled_gangs::by_name_;
  using scheduled_gangs::free_gpus_;
  using scheduled_gangs::free_ids_;
  using scheduled_gangs::hash_;
  using scheduled_gangs::layout_;
  using scheduled_gangs::nodes_;
  using scheduled_gangs::usable_;
};

// A damage, and what the audit says about it, among other things.
struct damage {
  const char* says;
  void (*inflict)(audited_gangs& s);
};

const damage damages_of_nodes[] = {
    {"node 0 is not at its position",
     [](audited_gangs& s) { std::swap(s.nodes_[0].position, s.nodes_[1].position); }},
    {"node 7 has no name", [](audited_gangs& s) { s.by_name_.erase("n7"); }},
    {"node 7 has no name", [](audited_gangs& s) { s.by_name_["n7"] = 8; }},
    {"79 nodes have 80 names", [](audited_gangs& s) { s.by_name_["n79"] = 79; }},
    {"node 0 is in another cell of level 1",
     [](audited_gangs& s) { s.nodes_[0].shape.cells = {"r1"}; }},
    {"node 0 is in another cell of level 1", [](audited_gangs& s) { s.rack_name(0) = "r1"; }},
    {"node 3 is wrongly listed as bad or healthy", [](audited_gangs& s) { s.bad_ = {4}; }},
    {"node 4 is wrongly listed as bad or healthy", [](audited_gangs& s) { s.bad_ = {3}; }},
    {"node 5 is wrongly listed as bad or healthy",
     [](audited_gangs& s) {
       s.bad_ = {3, 4, 5};
     }},
    {"node 5 has 4 free GPUs, not 3", [](audited_gangs& s) { s.nodes_[5].counted = 3; }},
    {"299 GPUs are free, not 300", [](audited_gangs& s) { ++s.free_gpus_; }},
    {"79 nodes have 78 positions",
     [](audited_gangs& s) { s.layout_.remove(s.nodes_[5].position); }},
    {"node 6 is out of order", [](audited_gangs& s) { s.nodes_[5].shape.name = "n6a"; }},
    {"79 nodes have as much as ",
     [](audited_gangs& s) {
       for (std::uint32_t n = 0; n < 79; ++n) s.layout_.remove(s.nodes_[n].position);
     }},
    {"the next id is 79, not 78",
     [](audited_gangs& s) {
       s.free_ids_ = {78, 79};
     }},
    {"the next id is 79, not 80", [](audited_gangs& s) { s.free_ids_ = {}; }},
    {"the hash of the state is another one", [](audited_gangs& s) { ++s.nodes_[5].shape.gpus; }},
    {"node 5 has the hash of another name", [](audited_gangs& s) { ++s.nodes_[5].name_hash; }},
    {"node 5 has the hash of another name",
     [](audited_gangs& s) {
       s.hash_ -= s.nodes_[5].hash();
       ++s.nodes_[5].name_hash;
       s.hash_ += s.nodes_[5].hash();
     }},
    {"node 0 has other gangs", [](audited_gangs& s) { s.nodes_[0].used ^= 1; }},
    {"node 2 has other gangs", [](audited_gangs& s) { s.nodes_[2].reserved ^= 1; }},
    {"node 0 has other gangs", [](audited_gangs& s) { ++s.nodes_[0].cpu_milli; }},
    {"node 0 has other gangs", [](audited_gangs& s) { ++s.nodes_[0].memory_mib; }},
    {"node 0 has other gangs", [](audited_gangs& s) { s.nodes_[0].gangs.pop_back(); }},
    {"node 0 has other gangs",
     [](audited_gangs& s) { s.nodes_[0].gangs.push_back(s.nodes_[0].gangs[0]); }},
    {"node 0 has other gangs",
     [](audited_gangs& s) { std::swap(s.nodes_[0].gangs[0].slot, s.nodes_[0].gangs[1].slot); }},
    {"node 7 has other GPUs that victims can give back",
     [](audited_gangs& s) { s.usable_[7].gpus ^= 1; }},
    {"node 7 has other GPUs that victims can give back",
     [](audited_gangs& s) { ++s.usable_[7].position; }},
};

const damage damages_of_gangs[] = {
    {"gangs are missing in their order",
     [](audited_gangs& s) {
       s.erase(s.slot_of(5));  // the order is cleared when it is read next
       s.brief_of_job(1).alive = false;
     }},
    {"job 1 is out of order",
     [](audited_gangs& s) {
       const auto order = s.in_order();
       std::swap(broken(order[0]), broken(order[1]));
     }},
    {"job 7 is not found", [](audited_gangs& s) { s.record(5).what.job = 7; }},
    {"job 1 is not found",
     [](audited_gangs& s) { s.record(2).what.job = 1; }},  // found, but as another gang
    {"job 1 has another cost as a victim", [](audited_gangs& s) { ++s.brief_of_job(1).gpus; }},
    {"job 1 has another cost as a victim", [](audited_gangs& s) { ++s.brief_of_job(1).started; }},
    {"job 1 has another cost as a victim", [](audited_gangs& s) { ++s.brief_of_job(1).nodes; }},
    {"job 1 has another cost as a victim", [](audited_gangs& s) { ++s.brief_of_job(1).priority; }},
    {"job 1 has another cost as a victim",
     [](audited_gangs& s) { s.brief_of_job(1).alive = false; }},
    {"job 3 has another cost as a victim",
     [](audited_gangs& s) { s.brief_of_job(3).is_candidate = true; }},
    {"job 1 has another cost as a victim", [](audited_gangs& s) { ++s.record(1).started; }},
    {"job 1 has another number of GPUs", [](audited_gangs& s) { ++s.record(1).gpus; }},
    {"job 1 has other nodes", [](audited_gangs& s) { s.entry_of(1).nodes[0].mask = 1; }},
    {"job 1 has other nodes", [](audited_gangs& s) { ++s.entry_of(1).nodes[0].cpu_milli; }},
    {"job 1 has other nodes", [](audited_gangs& s) { ++s.entry_of(1).nodes[0].memory_mib; }},
    {"job 1 has other nodes", [](audited_gangs& s) { s.entry_of(1).nodes[0].node = 5; }},
    {"job 2 has GPUs of another gang", [](audited_gangs& s) { s.record(2).tasks[0].gpu_mask = 6; }},
    {"job 5 has GPUs that do not exist",
     [](audited_gangs& s) { s.record(5).tasks[0].gpu_mask = 16; }},
    {"job 1 has a victim that does not end for it",
     [](audited_gangs& s) {
       s.record(1).victims = {3};
       s.record(3).ends_for = 1;
     }},
    {"job 4 has a victim that does not end for it",
     [](audited_gangs& s) {
       s.record(4).victims = {3, 77};
     }},
    {"job 4 has a victim that does not end for it",
     [](audited_gangs& s) { s.record(3).ends_for = std::nullopt; }},
    {"job 4 has a victim that does not end for it",
     [](audited_gangs& s) { s.record(3).ends_for = 5; }},
    {"job 3 ends for a gang that does not wait for it",
     [](audited_gangs& s) { s.record(4).victims.clear(); }},
    {"job 3 ends for a gang that does not wait for it",
     [](audited_gangs& s) { s.record(3).ends_for = 77; }},
    {"the hash of the state is another one", [](audited_gangs& s) { ++s.hash_; }},
    {"the hash of the state is another one", [](audited_gangs& s) { ++s.entry_of(1).hash; }},
    {"job 1 has the hash of another gang",
     [](audited_gangs& s) {
       ++s.entry_of(1).hash;
       ++s.hash_;
     }},
    {"the hash of the state is another one",
     [](audited_gangs& s) {
       s.record(4).victims = {2, 3};  // but the link is not in the hash
       s.record(2).ends_for = 4;
     }},
    {"the candidates by priority are others", [](audited_gangs& s) { ++s.class_of(0).gangs; }},
    {"the candidates by priority are others", [](audited_gangs& s) { ++s.class_of(0).nodes; }},
    {"the candidates by priority are others", [](audited_gangs& s) { ++s.class_of(0).gpus; }},
    {"the candidates by priority are others", [](audited_gangs& s) { ++s.class_of(0).gpu_starts; }},
    {"a cell has other candidates",
     [](audited_gangs& s) { ++broken(s.cells_of_racks->in(s.rack_in_use())[0].gpus); }},
    {"a cell has other candidates",
     [](audited_gangs& s) { ++broken(s.cells_of_racks->most(s.rack_in_use())).nodes[1]; }},
    {"a candidate gives back other GPUs",
     [](audited_gangs& s) { ++broken(s.listed->all()[0].gpus); }},
    {"a candidate gives back other GPUs",
     [](audited_gangs& s) { ++broken(s.listed->all()[0].node); }},
};

// Views are those of all nodes without taints, and of the label zone=a; node 6 is idle, and in both.
const damage damages_of_views[] = {
    {"for nodes differs",
     [](audited_gangs& s) { s.nth_view(0).members[s.nodes_[6].position] = 0; }},
    {"for nodes with label \"zone=a\" differs",
     [](audited_gangs& s) { ++s.nth_view(1).num_members; }},
    {"for nodes with label \"zone=a\" differs",
     [](audited_gangs& s) { ++s.nth_view(1).hosts[s.nodes_[6].position].cpu_milli; }},
    {"for nodes with label \"zone=a\" differs",
     [](audited_gangs& s) { ++s.nth_view(1).whole_hosts[s.nodes_[6].position].memory_mib; }},
    {"for nodes differs",
     [](audited_gangs& s) { s.nth_view(0).free.set(s.nodes_[6].position, 3); }},
    {"for nodes differs",
     [](audited_gangs& s) { s.nth_view(0).whole.set(s.nodes_[6].position, 3); }},
    // The sums of the cells alone.
    {"for nodes differs",
     [](audited_gangs& s) { ++broken(s.nth_view(0).free.histogram(1, s.rack_in_use())[2]); }},
    {"for nodes differs",
     [](audited_gangs& s) { ++broken(s.nth_view(0).free.histogram(2, 0)[4]); }},
    {"for nodes differs",
     [](audited_gangs& s) { ++broken(s.nth_view(0).whole.slots(1, 1)[s.rack_in_use()]); }},
    {"for nodes differs", [](audited_gangs& s) { ++broken(s.nth_view(0).whole.slots(2, 4)[0]); }},
    // As if a node had five GPUs.
    {"for nodes differs",
     [](audited_gangs& s) {
       const node_view before = s.nth_view(0);
       s.nth_view(0) = node_view({}, s.layout_.tree(), 5);
       s.nth_view(0).layout = before.layout;
       s.nth_view(0).seen = before.seen;
       for (const used_node& n : s.nodes_)
         if (n.present()) s.nth_view(0).update(n.position, &n);
       REQUIRE(std::ranges::equal(before.free.free(), s.nth_view(0).free.free()));
     }},
};

template <std::size_t Size>
void check_damages(const damage (&damages)[Size]) {
  for (std::size_t i = 0; i < Size; ++i) {
    CAPTURE(i);
    const std::string says = damages[i].says;
    CAPTURE(says);
    audited_gangs s;
    damages[i].inflict(s);
    const std::vector<std::string> found = detail::gang_audit(s)();
    std::string all;
    for (const std::string& f : found) all += f + "\n";
    CAPTURE(all);
    CHECK(all.find(says) != std::string::npos);
  }
}

TEST_CASE("gang_audit: a right state, also while what searches read waits to be listed again") {
  audited_gangs s;
  CHECK(detail::gang_audit(s)() == std::vector<std::string>{});
  s.erase(s.slot_of(2));
  s.insert(audited_gangs::gang(8, 0, {{node_id(50), 15}}));
  CHECK(detail::gang_audit(s)() == std::vector<std::string>{});
  s.insert_node(79, {.name = "new", .cells = {"r2"}, .gpus = 8});
  CHECK(detail::gang_audit(s)() == std::vector<std::string>{});
}

TEST_CASE("gang_audit: wrong nodes are noticed") { check_damages(damages_of_nodes); }
TEST_CASE("gang_audit: wrong gangs are noticed") { check_damages(damages_of_gangs); }
TEST_CASE("gang_audit: a wrong index of a filter is noticed") { check_damages(damages_of_views); }

}  // namespace
}  // namespace gang_audit_tests
