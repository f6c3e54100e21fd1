// apiary/tests/metric/fragmentation_test.cpp - the exact form against the definition.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/metric/fragmentation.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

node_state node_with(std::uint32_t cpu_milli, std::initializer_list<milli_gpu> left,
                     gpu_model model = 0) {
  node_state node;
  node.left = {cpu_milli, 1};
  node.model = model;
  for (const milli_gpu l : left) node.gpu_left[node.gpus++] = l;
  return node;
}

TEST_CASE("what no kind can use is fragmentation, what every kind can use is none") {
  const fragmentation f(task_mix({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 1}}));
  CHECK(f(node_with(4000, {1000, 500, 499, 0})) == 499);
  CHECK(f(node_with(3999, {1000, 500, 499, 0})) == 1999);  // no CPU: nothing can be used
  CHECK(f(node_with(4000, {1000, 500})) == 0);
}

TEST_CASE("kinds count by weight") {
  const fragmentation f(task_mix({{{.cpu_milli = 0, .gpus = 1, .gpu_milli = 500}, 3},
                                  {{.cpu_milli = 0, .gpus = 2, .gpu_milli = 1000}, 1}}));
  // One free device: three quarters of the tasks use 1000 + 600, two devices that no task gets.
  CHECK(f.weighted(node_with(0, {1000, 600})) == 4 * 1600 - 3 * 1600);
  CHECK(f.weighted(node_with(0, {1000, 1000, 100})) == 4 * 2100 - 3 * 2000 - 1 * 2000);
  CHECK(f.total_weight() == 4);
}

TEST_CASE("to kinds that want no GPU or another model all of it is lost") {
  const fragmentation none(task_mix({{{.cpu_milli = 1000}, 1}}));
  CHECK(none(node_with(4000, {1000, 300})) == 1300);
  CHECK(none(node_with(0, {1000, 300})) == 1300);
  const fragmentation other(task_mix({{{.gpus = 1, .gpu_milli = 100, .models = 0b10}, 1}}));
  CHECK(other(node_with(0, {1000, 300}, 0)) == 1300);
  CHECK(other(node_with(0, {1000, 300}, 1)) == 0);
}

TEST_CASE("a GPU that is used by a thousandth serves no task on two GPUs") {
  const fragmentation f(task_mix({{{.gpus = 2, .gpu_milli = 1000}, 1}}));
  CHECK(f(node_with(1, {1000, 1000})) == 0);
  CHECK(f(node_with(1, {1000, 999})) == 1999);
}

TEST_CASE("an empty mix knows no fragmentation") {
  const fragmentation f{task_mix()};
  CHECK(f(node_with(4000, {1000, 300})) == 0);
  CHECK(f.weighted(node_with(4000, {1000, 300})) == 0);
}

TEST_CASE("a kind of more devices than any node has is served nowhere") {
  const fragmentation f(task_mix({{{.gpus = max_gpus_per_node + 1, .gpu_milli = 1000}, 1}}));
  node_state node = node_with(1, {});
  for (milli_gpu& left : node.gpu_left) left = 1000;
  node.gpus = max_gpus_per_node;
  CHECK(f(node) == 1000 * max_gpus_per_node);
}

TEST_CASE("a kind of more devices than any node has changes no count of another kind") {
  // Two demands of CPU: there is a row of the table after that of the large kind.
  const task_kind small{.cpu_milli = 2000, .gpus = 1, .gpu_milli = 10};
  const task_kind large{.cpu_milli = 1000, .gpus = max_gpus_per_node + 1, .gpu_milli = 1000};
  const fragmentation f(task_mix({{small, 1}, {large, 1}}));
  for (const std::uint32_t cpu : {999U, 1000U, 1999U, 2000U}) {
    for (const milli_gpu left : {milli_gpu{5}, milli_gpu{10}, milli_gpu{1000}}) {
      CAPTURE(cpu);
      CAPTURE(left);
      const bool serves = cpu >= 2000 && left >= 10;
      CHECK(f.weighted(node_with(cpu, {left})) == left * (serves ? 1U : 2U));
    }
  }
}

TEST_CASE("the published example of a node that lacks CPU") {
  const fragmentation f(task_mix({{{.cpu_milli = 6000, .gpus = 1, .gpu_milli = 465}, 933},
                                  {{.cpu_milli = 0, .gpus = 1, .gpu_milli = 1}, 10000 - 933}}));
  CHECK(f.weighted(node_with(1000, {200, 1000, 1000, 500})) == 933 * 2700);  // F = 251.91
}

TEST_CASE("the table gives what the definition gives, exactly") {
  const std::uint32_t mixes = apiary_test::scaled(400U);
  for (std::uint32_t seed = 0; seed < mixes; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    const fragmentation f(mix);
    for (int i = 0; i < 400; ++i) {
      node_state node;
      node.left.cpu_milli = 500 * random.uniform(26);
      node.model = static_cast<gpu_model>(random.uniform(3));
      node.gpus = static_cast<std::uint8_t>(random.uniform(max_gpus_per_node + 1));
      for (std::uint32_t d = 0; d < node.gpus; ++d) {
        node.gpu_left[d] =
            static_cast<milli_gpu>(random.uniform(3) == 0 ? 1000 : 25 * random.uniform(41));
      }
      REQUIRE(f.weighted(node) == apiary_test::weighted_fragmentation(mix, node));
    }
  }
}

TEST_CASE("a table for thousands of kinds gives what the definition gives") {
  for (std::uint32_t seed = 0; seed < apiary_test::scaled(3U); ++seed) {
    rng random(seed);
    std::vector<std::pair<task_kind, std::uint32_t>> kinds;
    for (std::uint32_t k = 0; k < 4000; ++k) {
      task_kind kind{.cpu_milli = 10 * random.uniform(2000), .gpus = 1, .gpu_milli = 1000};
      const std::uint32_t what = random.uniform(8);
      if (what == 0) kind.gpus = random.uniform(max_gpus_per_node + 2);
      if (what > 1) kind.gpu_milli = static_cast<milli_gpu>(1 + random.uniform(1000));
      if (kind.gpus == 1 && k % 4 == 0) kind.cpu_milli = 5000;  // many with the same CPU
      if (random.uniform(4) == 0) kind.models = 0b101;
      kinds.push_back({kind, 1 + random.uniform(9)});
    }
    const task_mix mix(kinds);
    const fragmentation f(mix);
    CHECK(f.table_bytes() == fragmentation::table_bytes(mix));
    for (std::uint32_t i = 0; i < 60; ++i) {
      node_state node;
      node.left.cpu_milli = i % 3 == 0 ? 5000 : random.uniform(20'100);
      node.model = static_cast<gpu_model>(random.uniform(3));
      node.gpus = static_cast<std::uint8_t>(random.uniform(max_gpus_per_node + 1));
      for (std::uint32_t d = 0; d < node.gpus; ++d)
        node.gpu_left[d] =
            static_cast<milli_gpu>(random.uniform(3) == 0 ? 1000 : random.uniform(1001));
      REQUIRE(f.weighted(node) == apiary_test::weighted_fragmentation(mix, node));
    }
  }
}

TEST_CASE("a kind of weight 0 changes nothing, and all weights times k is F the same") {
  rng random(5);
  const task_mix mix = apiary_test::random_mix(random);
  std::vector<std::pair<task_kind, std::uint32_t>> zero;
  std::vector<std::pair<task_kind, std::uint32_t>> tenfold;
  for (const task_mix::weighted_kind& t : mix.tasks()) {
    zero.push_back({t.kind, t.weight});
    tenfold.push_back({t.kind, 10 * t.weight});
  }
  zero.push_back({{.cpu_milli = 777, .gpus = 1, .gpu_milli = 333}, 0});
  const fragmentation a(mix);
  const fragmentation b{task_mix(zero)};
  const fragmentation c{task_mix(tenfold)};
  for (int i = 0; i < 1000; ++i) {
    node_table nodes;
    const node_id n = nodes.add(apiary_test::random_shape(random));
    REQUIRE(a.weighted(nodes[n]) == b.weighted(nodes[n]));
    REQUIRE(10 * a.weighted(nodes[n]) == c.weighted(nodes[n]));
  }
}

TEST_CASE("fragmentation: tables are as large as was said before they were made") {
  CHECK(fragmentation::table_bytes(task_mix()) == 72);  // no row but that of no CPU, no share
  const model_set odd = 0xaaaaaaaaaaaaaaaa;
  const task_mix few({{{.cpu_milli = 1, .gpus = 1, .gpu_milli = 5}, 1},
                      {{.cpu_milli = 2, .gpus = 1, .gpu_milli = 6, .models = odd}, 1},
                      {{.cpu_milli = 2, .gpus = 2, .gpu_milli = 1000, .models = odd}, 1},
                      {{.cpu_milli = 3}, 1}});
  CHECK(fragmentation::table_bytes(few) == 4 * (2 * 19 + 3 * 20));
  for (const task_mix& mix : {task_mix(), few, task_mix({{{.cpu_milli = 7}, 2}})})
    CHECK(fragmentation(mix).table_bytes() == fragmentation::table_bytes(mix));
}

}  // namespace
