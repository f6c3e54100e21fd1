// apiary/tests/fgd/detail/load_program_test.cpp - the linear program against duality and all columns.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/load_program.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace apiary;
using detail::load_kind;
using detail::load_program;
using detail::node_class;

std::vector<load_kind> random_kinds(rng& random, std::uint32_t count) {
  std::vector<load_kind> kinds(count);
  for (load_kind& kind : kinds) {
    kind.cpu_milli = 500 * random.uniform(20);
    kind.gpus = random.uniform(4);
    kind.gpu_milli = static_cast<milli_gpu>(
        kind.gpus == 1 ? (random.uniform(3) == 0 ? 1000 : 130 + 10 * random.uniform(80)) : 1000);
    if (random.uniform(3) == 0) kind.models = 1U + random.uniform(3);
    kind.reward = kind.gpus == 0 ? kind.cpu_milli / 20'000.0 : kind.gpus * kind.gpu_milli / 1000.0;
    kind.demand = random.uniform(40);
  }
  return kinds;
}

// The most reduced reward of all multisets of kinds of one GPU from `first` on in `left` thousandths.
double best_pattern(const load_program& program, const node_class& c, std::size_t at,
                    const std::vector<load_kind>& kinds, std::size_t first, std::uint32_t left) {
  double best = 0.0;
  for (std::size_t m = first; m < kinds.size(); ++m) {
    const load_kind& kind = kinds[m];
    if (kind.gpus != 1 || kind.gpu_milli > left || !c.serves(kind)) continue;
    const double net =
        kind.reward - program.task_price(m) - program.core_price(at) * kind.cpu_milli / 1000.0;
    const double rest = best_pattern(program, c, at, kinds, m, left - kind.gpu_milli);
    best = std::max(best, net + rest);
  }
  return best;
}

// That the answer is feasible, and that its dual values prove that none is better.
void check_optimal(const load_program& program, const std::vector<node_class>& classes,
                   const std::vector<load_kind>& kinds) {
  REQUIRE(program.optimal());
  // The columns of the basis fill the limits exactly; each has a row once.
  std::vector<double> used(program.limits().size());
  for (std::size_t i = 0; i < used.size(); ++i) {
    REQUIRE(program.amounts()[i] > -1e-6);
    std::vector<bool> seen(used.size());
    for (const auto& [row, amount] : program.basis()[i].rows) {
      REQUIRE(!seen[row]);
      seen[row] = true;
      used[row] += amount * program.amounts()[i];
    }
  }
  double priced = 0.0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    REQUIRE(std::abs(used[i] - program.limits()[i]) < 1e-6);
    REQUIRE(program.duals()[i] > -1e-6);
    priced += program.duals()[i] * program.limits()[i];
  }
  REQUIRE(std::abs(priced - program.objective()) < 1e-6);
  // No more than all tasks; the limits are larger by millionths.
  double all = 0.0;
  for (const load_kind& kind : kinds) all += kind.demand * kind.reward;
  REQUIRE(program.objective() < all + 1e-4);
  // No column has a reduced reward.
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (classes[c].gpus > 0)
      REQUIRE(best_pattern(program, classes[c], c, kinds, 0, 1000) < program.gpu_price(c) + 1e-6);
    for (std::size_t m = 0; m < kinds.size(); ++m) {
      if (!classes[c].serves(kinds[m])) continue;
      REQUIRE(kinds[m].reward < program.task_price(m) + kinds[m].gpus * program.gpu_price(c) +
                                    program.core_price(c) * kinds[m].cpu_milli / 1000.0 + 1e-6);
    }
  }
}

TEST_CASE("the program's answer is feasible, and its dual values prove that none is better") {
  const std::uint32_t programs = apiary_test::scaled(300U);
  for (std::uint32_t seed = 0; seed < programs; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::vector<load_kind> kinds = random_kinds(random, 1 + random.uniform(8));
    std::vector<node_class> classes;
    for (std::uint32_t c = 0; c < 1 + seed % 3; ++c)
      classes.push_back({1000 * random.uniform(40), random.uniform(5),
                         static_cast<gpu_model>(random.uniform(2)), 1.0 + random.uniform(20)});
    check_optimal(load_program(classes, kinds), classes, kinds);
  }
}

TEST_CASE("the same with fractions that fill a GPU in many ways") {
  const std::uint32_t programs = apiary_test::scaled(600U);
  for (std::uint32_t seed = 0; seed < programs; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<milli_gpu> fractions = {50,  80,  100, 150, 200, 250, 300,
                                        350, 400, 500, 600, 750, 1000};
    random.shuffle(fractions);
    std::vector<load_kind> kinds(3 + random.uniform(4));
    for (std::size_t m = 0; m < kinds.size(); ++m)
      kinds[m] = {.cpu_milli = 500 * (1 + random.uniform(16)),
                  .gpus = 1,
                  .gpu_milli = fractions[m],
                  .demand = 5.0 + random.uniform(56),
                  .reward = fractions[m] / 1000.0};
    std::vector<node_class> classes;
    for (std::uint32_t c = 0; c < 1 + seed % 2; ++c)
      classes.push_back(
          {1000 * (8 + random.uniform(57)), 2U << random.uniform(3), 0, 2.0 + random.uniform(11)});
    check_optimal(load_program(classes, kinds), classes, kinds);
  }
}

TEST_CASE("a cluster with enough GPUs and cores earns all rewards") {
  for (const milli_gpu small : {milli_gpu{100}, milli_gpu{50}}) {
    const load_kind small_kind{
        .cpu_milli = 1000, .gpus = 1, .gpu_milli = small, .demand = 5.0, .reward = small / 1000.0};
    const load_kind large_kind{
        .cpu_milli = 1000, .gpus = 1, .gpu_milli = 200, .demand = 5.0, .reward = 0.2};
    const load_program program({{64'000, 8, 0, 2.0}}, {small_kind, large_kind});
    CHECK(program.optimal());
    CHECK(std::abs(program.objective() - 5.0 * (small / 1000.0 + 0.2)) < 1e-4);
  }
}

TEST_CASE("a program that is not solved is not optimal") {
  const std::vector<node_class> classes = {{10'000, 2, 0, 1.0}};
  const load_kind kind{
      .cpu_milli = 8000, .gpus = 1, .gpu_milli = 500, .demand = 5.0, .reward = 0.5};
  CHECK(load_program(classes, {kind}).optimal());
  const load_program stopped(classes, {kind}, 0);
  CHECK(!stopped.optimal());
  CHECK(stopped.steps() == 0);
  const double infinite = std::numeric_limits<double>::infinity();
  load_kind other = kind;
  other.reward = infinite;
  CHECK(!load_program(classes, {other}).optimal());
  other = kind;
  other.demand = infinite;
  CHECK(!load_program(classes, {other, kind}).optimal());
  CHECK(!load_program({{10'000, 2, 0, infinite}}, {kind}).optimal());
}

TEST_CASE("a program of known answer") {
  // Two GPUs, 10 cores; thirds of a GPU with 2 cores, and whole GPUs with 8 cores.
  const load_program program(
      {{10'000, 2, 0, 1.0}},
      {{.cpu_milli = 2000, .gpus = 1, .gpu_milli = 330, .demand = 2.0, .reward = 0.33},
       {.cpu_milli = 8000, .gpus = 1, .gpu_milli = 1000, .demand = 5.0, .reward = 1.0}});
  REQUIRE(program.optimal());
  // Both thirds take 4 cores, and 6/8 of a whole GPU the others.
  CHECK(std::abs(program.objective() - (0.66 + 0.75)) < 1e-4);
  CHECK(std::abs(program.core_price(0) - 0.125) < 1e-6);
  CHECK(std::abs(program.gpu_price(0)) < 1e-6);
  CHECK(std::abs(program.task_price(0) - (0.33 - 0.25)) < 1e-6);
}

}  // namespace
