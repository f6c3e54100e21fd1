// apiary/tests/examples/hived_drawing_test.cpp - drawings as they should be; every leaf and gang in its line.
// SPDX-License-Identifier: MIT
#include "../../examples/hived_drawing.h"

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <support/hived_documents.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using example::draw;

namespace {

void run(hived& h, const gang_request& gang) {
  const auto plan = h.propose(gang);
  REQUIRE(plan.ok());
  REQUIRE(plan->result != plan_result::wait);
  REQUIRE(h.commit(*plan).ok());
}

// Racks of eight nodes of sockets, and one tenant after another.
hived_config racks_of_sockets(std::uint32_t count, std::uint32_t sockets,
                              std::uint32_t per_socket) {
  hived_config c;
  c.cell_types = {
      {"SOCKET", "GPU", per_socket}, {"NODE", "SOCKET", sockets, true}, {"RACK", "NODE", 8}};
  for (std::uint32_t r = 0; r < count; ++r) {
    c.physical_cells.push_back({.type = "RACK"});
    for (std::uint32_t n = 0; n < 8; ++n)
      c.physical_cells.back().children.push_back({.address = "n" + std::to_string(r * 8 + n)});
  }
  c.virtual_clusters = {{.name = "alpha", .cells = {{"RACK", 1}}},
                        {.name = "all", .cells = {{"RACK.NODE", 2}}}};
  return c;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The leaves at the beginning of a line: two signs and a mark each.
std::vector<std::string> leaves_in(const std::string& line) {
  std::vector<std::string> leaves;
  for (std::size_t i = 0; i + 1 < line.size();) {
    if (line[i] == ' ' || line[i] == '|') {
      ++i;
      continue;
    }
    const std::string leaf = line.substr(i, 2);
    const bool used = std::isalpha(static_cast<unsigned char>(leaf[0])) != 0 &&
                      std::isdigit(static_cast<unsigned char>(leaf[1])) != 0;
    if (!used && leaf != ".." && leaf != "xx") break;
    const bool bad = i + 2 < line.size() && line[i + 2] == '!';
    leaves.push_back(bad ? leaf + '!' : leaf);
    i += bad ? 3 : 2;
  }
  return leaves;
}

// As it should be drawn: tenants "alpha" and "all" have the letters A and L.
std::string sign(const hived& h, std::uint32_t c, cell_id leaf) {
  const leaf_holders holders = h.cells().chain(c).holders(leaf);
  const bool good = h.cells().chain(c).healthy().healthy(leaf);
  if (!holders.user.valid()) return good ? ".." : "xx";
  const gang_request& r = h.gangs()[holders.user].request;
  const std::string letter = r.tenant.value == 0 ? "Aa" : "Ll";
  return letter[holders.guaranteed ? 0 : 1] + std::to_string(r.job.value % 10) + (good ? "" : "!");
}

// The gang's line as it should be, or what stands in it of each of those summed up.
std::string words_of(const hived& h, const gang_record& gang) {
  const std::string leaves = std::to_string(gang.count_live(0, gang.leaves.size())) + " GPU";
  std::string text = gang.request.priority < 0
                         ? "opportunistic"
                         : "priority " + std::to_string(gang.request.priority);
  text += gang.state == gang_state::preempting ? ", claims " + leaves : ", runs on " + leaves;
  if (gang.downgraded) text += ", now opportunistic";
  if (h.being_preempted(gang)) text += ", must end";
  return text;
}
// Finds each gang below its tenant, or in what is summed up; the highest ranks first.
void check_gangs(const hived& h, const std::string& text) {
  std::vector<std::pair<tenant_id, std::string>> drawn;  // of each gang, in the order of lines
  tenant_id tenant;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("A alpha")) tenant = tenant_id(0);
    if (line.starts_with("L all")) tenant = tenant_id(1);
    if (!tenant.valid() || !line.starts_with("  ")) continue;
    std::size_t more = 0;
    if (line.starts_with("  ... ")) {
      more = std::stoul(line.substr(6));
      CHECK(line.ends_with(" more like it"));
      REQUIRE(!drawn.empty());
      CHECK(drawn.back().first == tenant);
    } else {
      REQUIRE(line.find(", ") != std::string::npos);
      const gang_record* gang =
          h.find(job_id(static_cast<std::uint32_t>(std::stoul(line.substr(10)))));
      REQUIRE(gang != nullptr);
      const std::string letter = tenant.value == 0 ? "Aa" : "Ll";
      CHECK(line == "  " + std::string(1, letter[gang->guaranteed() ? 0 : 1]) +
                        std::to_string(gang->request.job.value % 10) + "  job " +
                        std::to_string(gang->request.job.value) + ", " + words_of(h, *gang));
      drawn.emplace_back(tenant, words_of(h, *gang));
    }
    const auto last = drawn.back();
    drawn.insert(drawn.end(), more, last);
  }
  std::vector<gang_slot> order = h.gangs().by_job();
  std::stable_sort(order.begin(), order.end(), [&](gang_slot a, gang_slot b) {
    const gang_record& first = h.gangs()[a];
    const gang_record& second = h.gangs()[b];
    return std::pair(second.request.tenant, first.rank()) >
           std::pair(first.request.tenant, second.rank());
  });
  std::vector<std::pair<tenant_id, std::string>> there;
  for (const gang_slot s : order)
    there.emplace_back(h.gangs()[s].request.tenant, words_of(h, h.gangs()[s]));
  CHECK(drawn == there);
}

// Finds each leaf in the drawing, or in what is summed up.
void check_leaves(const hived& h, const std::string& text) {
  const hived_layout& layout = h.layout();
  std::uint32_t seen = 0;
  std::vector<std::string> last;
  std::uint32_t last_node = 0;
  for (const std::string& line : lines_of(text)) {
    const std::size_t from = line.find_first_not_of(' ');
    REQUIRE(from != std::string::npos);
    if (line.starts_with("A alpha")) break;
    const std::string first = line.substr(from, line.find(' ', from) - from);
    if (first == "...") {
      const auto n = static_cast<std::uint32_t>(std::stoul(line.substr(from + 4)));
      const bool racks = line.find("idle RACK") != std::string::npos;
      const bool more = line.find("more like it") != std::string::npos;
      for (std::uint32_t k = 0; k < n; ++k) {
        for (std::uint32_t i = 0; i < (racks ? 8U : 1U); ++i) {
          const node_id node(++last_node);
          std::vector<std::string> signs;
          for (const cell_id leaf : layout.chains[0].tree.descendants(layout.node_cell(node), 0))
            signs.push_back(sign(h, 0, leaf));
          CHECK(signs == (more ? last : std::vector<std::string>(signs.size(), "..")));
          ++seen;
        }
      }
      continue;
    }
    const auto node = layout.find_node(first);
    if (!node) continue;
    CHECK(node->value == seen);
    last_node = node->value;
    last = leaves_in(line.substr(from + first.size()));
    std::vector<std::string> signs;
    for (const cell_id leaf : layout.chains[0].tree.descendants(layout.node_cell(*node), 0))
      signs.push_back(sign(h, 0, leaf));
    CHECK(last == signs);
    ++seen;
  }
  CHECK(seen == layout.num_nodes());
}

}  // namespace

TEST_CASE("an idle cluster of two chains") {
  const auto h = hived::create(apiary_test::small_cluster());
  REQUIRE(h.ok());
  CHECK(draw(*h) == R"(RACK: 16 GPU
  RACK 0
    n0    .. .. | .. ..
    n1    .. .. | .. ..  b (mine)
  RACK 1
    n2    .. .. | .. ..
    n3    .. .. | .. ..
BOX: 16 NPU
  b0    .. .. .. .. .. .. .. ..
  b1    .. .. .. .. .. .. .. ..
B b  bound: 0 of 1 PAIR
A a  bound: 0 of 1 RACK
)");
}

TEST_CASE("users, claims, owners, bad leaves and their legend") {
  auto h = hived::create(apiary_test::small_cluster());
  REQUIRE(h.ok());
  const tenant_id b(0);
  const tenant_id a(1);
  const auto gpu = h->find_leaf_type("GPU");
  REQUIRE(gpu);
  run(*h, {.job = job_id(7), .tenant = a, .groups = {{1, 3}}, .leaf_type = *gpu});
  run(*h, {.job = job_id(12), .tenant = b, .priority = 7, .groups = {{1, 2}}});
  run(*h, {.job = job_id(3), .tenant = b, .priority = -1, .groups = {{1, 4}}, .leaf_type = *gpu});
  run(*h, {.job = job_id(4), .tenant = a, .groups = {{1, 4}}, .leaf_type = *gpu});
  run(*h, {.job = job_id(5), .tenant = b, .groups = {{1, 3}}, .pinned = 0});
  REQUIRE(h->mark_bad(*h->layout().find_node("n0"), 2).ok());
  REQUIRE(h->mark_bad(*h->layout().find_node("n2"), 1).ok());
  REQUIRE(h->mark_bad(*h->layout().find_node("b1"), 7).ok());
  CHECK(draw(*h) == R"(RACK: 16 GPU, 8 guaranteed, 4 opportunistic, 4 claimed, 2 bad
  RACK 0
    n0    B2 B2 | xx ..  b 0-1
    n1    B5 B5 | B5 ..  b (mine)
  RACK 1: a
    n2    A7 A7!| A7 ..
    n3    b3 b3 | b3 b3
    next  A4 A4   A4 A4
BOX: 16 NPU, 1 bad
  b0    .. .. .. .. .. .. .. ..
  b1    .. .. .. .. .. .. .. xx
B b  bound: 1 of 1 PAIR
  B2  job 12, priority 7, runs on 2 GPU
  B5  job 5, priority 0, runs on 3 GPU
  b3  job 3, opportunistic, runs on 4 GPU, must end
A a  bound: 1 of 1 RACK
  A4  job 4, priority 0, claims 4 GPU
  A7  job 7, priority 0, runs on 3 GPU
capitals: guaranteed; small letters: opportunistic; digit: last digit of the job
xx: bad; !: used and bad; next: claimed by
)");
}

TEST_CASE("every leaf and every gang is drawn once, or is like those that are summed up") {
  rng random(3);
  for (int round = 0; round < apiary_test::scaled(60); ++round) {
    auto h = hived::create(
        racks_of_sockets(2 + random.uniform(6), 1 + random.uniform(2), 1 + random.uniform(4)));
    REQUIRE(h.ok());
    const std::uint32_t size = h->cells().chain(0).node_leaves();
    for (std::uint32_t job = 0; job < 40; ++job) {
      if (random.uniform(5) == 0) {
        REQUIRE(h->mark_bad(node_id(random.uniform(h->layout().num_nodes())), random.uniform(size))
                    .ok());
      }
      const auto plan = h->propose({.job = job_id(job),
                                    .tenant = tenant_id(random.uniform(2)),
                                    .priority = static_cast<std::int32_t>(random.uniform(4)) - 1,
                                    .groups = {{1 + random.uniform(6), 1 + random.uniform(size)}},
                                    .lazy = random.uniform(2) == 0});
      REQUIRE(plan.ok());
      if (plan->result != plan_result::wait) REQUIRE(h->commit(*plan).ok());
      if (random.uniform(3) == 0) static_cast<void>(h->finish(job_id(random.uniform(40))));
    }
    CAPTURE(round);
    const std::string text = draw(*h);
    CAPTURE(text);
    check_leaves(*h, text);
    check_gangs(*h, text);
  }
}

TEST_CASE("gangs by tenant, the highest first, those alike in a line") {
  hived_config c;
  c.cell_types = {{"NODE", "GPU", 4, true}};
  for (const char* node : {"n0", "n1", "n2", "n3", "n4", "n5"})
    c.physical_cells.push_back({.type = "NODE", .address = node});
  c.virtual_clusters = {{.name = "red", .cells = {{"NODE", 2}}},
                        {.name = "sold", .cells = {{"NODE", 1}}}};
  auto h = hived::create(c);
  REQUIRE(h.ok());
  const tenant_id red(0);
  for (std::uint32_t job = 0; job < 4; ++job)
    run(*h, {.job = job_id(job), .tenant = red, .priority = 2, .groups = {{1, 1}}});
  run(*h, {.job = job_id(14), .tenant = red, .priority = 1, .groups = {{2, 2}}, .lazy = true});
  run(*h, {.job = job_id(5), .tenant = tenant_id(1), .groups = {{1, 4}}});
  run(*h, {.job = job_id(6), .tenant = red, .priority = 3, .groups = {{1, 4}}});
  run(*h, {.job = job_id(7), .tenant = tenant_id(1), .priority = -1, .groups = {{2, 3}}});
  CHECK(draw(*h) == R"(NODE: 24 GPU, 12 guaranteed, 10 opportunistic
  n0    R0 R1 R2 R3  red
  n1    r4 r4 r4 r4
  n2    S5 S5 S5 S5  sold
  n3    R6 R6 R6 R6  red
  n4    s7 s7 s7 ..
  n5    s7 s7 s7 ..
R red   bound: 2 of 2 NODE
  R6  job 6, priority 3, runs on 4 GPU
  R0  job 0, priority 2, runs on 1 GPU
  ... 3 more like it
  r4  job 14, priority 1, runs on 4 GPU, now opportunistic
S sold  bound: 1 of 1 NODE
  S5  job 5, priority 0, runs on 4 GPU
  s7  job 7, opportunistic, runs on 6 GPU
capitals: guaranteed; small letters: opportunistic; digit: last digit of the job
)");
  // A node less, and the second tenant is no more.
  c.physical_cells.pop_back();
  c.virtual_clusters.pop_back();
  REQUIRE(h->reconfigure(c).ok());
  CHECK(draw(*h) == R"(NODE: 20 GPU, 8 guaranteed, 11 opportunistic
  n0    R0 R1 R2 R3  red
  n1    r4 r4 r4 r4
  n2    ?5 ?5 ?5 ?5
  n3    R6 R6 R6 R6  red
  n4    ?7 ?7 ?7 ..
R red  bound: 2 of 2 NODE
  R6  job 6, priority 3, runs on 4 GPU
  R0  job 0, priority 2, runs on 1 GPU
  ... 3 more like it
  r4  job 14, priority 1, runs on 4 GPU, now opportunistic
? without tenant
  ?5  job 5, priority 0, runs on 4 GPU, now opportunistic
  ?7  job 7, opportunistic, runs on 3 GPU, 3 missing
capitals: guaranteed; small letters: opportunistic; digit: last digit of the job
)");
}

TEST_CASE("lines are as wide as asked, whatever the nodes, names and letters") {
  hived_config c = racks_of_sockets(3, 8, 8);
  c.physical_cells[1].children[2].address = "a-node-with-a-name-that-is-long-\xc3\xa9-12";
  c.virtual_clusters[0].name = "\xc3\xa9t\xc3\xa9 and something that is longer than a line may be";
  for (std::uint32_t t = 0; t < 40; ++t)
    c.virtual_clusters.push_back({.name = "t" + std::to_string(t)});
  auto h = hived::create(c);
  REQUIRE(h.ok());
  run(*h, {.job = job_id(5), .tenant = tenant_id(0), .groups = {{3, 50}}});
  run(*h, {.job = job_id(6), .tenant = tenant_id(41), .priority = -1, .groups = {{20, 64}}});
  run(*h, {.job = job_id(8), .tenant = tenant_id(0), .priority = 2, .groups = {{6, 64}}});
  REQUIRE(h->mark_bad(node_id(3)).ok());
  for (const std::size_t width : {0U, 40U, 41U, 60U, 77U, 100U, 300U}) {
    CAPTURE(width);
    std::size_t drawn = 0;
    for (const std::string& line : lines_of(draw(*h, width))) {
      CAPTURE(line);
      CHECK(line.size() <= std::max(width, std::size_t{40}));
      CHECK(std::all_of(line.begin(), line.end(), [](char x) { return x >= ' ' && x <= '~'; }));
      CHECK(line.back() != ' ');
      // Behind the longest name, where claims and what is no leaf are left out.
      if (line.size() > 22 && line.starts_with("    ") && !line.starts_with("    next"))
        drawn += leaves_in(line.substr(22)).size();
    }
    CHECK(drawn == 10 * 64);
  }
}

TEST_CASE("much that is idle, or alike, is a few lines") {
  auto h = hived::create(racks_of_sockets(2000, 2, 4));
  REQUIRE(h.ok());
  CHECK(draw(*h) == R"(RACK: 128000 GPU
  ... 2000 idle RACK
A alpha  bound: 0 of 1 RACK
L all    bound: 0 of 2 NODE
)");
  run(*h, {.job = job_id(1), .tenant = tenant_id(0), .groups = {{6, 8}}});
  CHECK(draw(*h) == R"(RACK: 128000 GPU, 48 guaranteed
  RACK 0: alpha
    n0      A1 A1 A1 A1 | A1 A1 A1 A1
    ... 5 more like it
    n6      .. .. .. .. | .. .. .. ..
    n7      .. .. .. .. | .. .. .. ..
  ... 1999 idle RACK
A alpha  bound: 1 of 1 RACK
  A1  job 1, priority 0, runs on 48 GPU
L all    bound: 0 of 2 NODE
capitals: guaranteed; small letters: opportunistic; digit: last digit of the job
)");
}
