// apiary/tests/metric/task_mix_test.cpp - the typical tasks of a history.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/metric/task_mix.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace {

using namespace apiary;

std::vector<task_kind> times(std::vector<task_kind> seen, const task_kind& kind, int n) {
  for (int i = 0; i < n; ++i) seen.push_back(kind);
  return seen;
}

const task_kind small{1000, 1, 500};
const task_kind large{9000, 8, 1000};
const task_kind rare{2000, 1, 250};

TEST_CASE("the shortest prefix of the most frequent kinds that covers enough is taken") {
  const std::vector<task_kind> seen = times(times(times({}, rare, 5), small, 60), large, 35);
  const task_mix mix = task_mix::from_history(seen);  // 60 + 35 of 100 are 95 percent
  REQUIRE(mix.tasks().size() == 2);
  CHECK(mix.tasks()[0].kind == small);
  CHECK(mix.tasks()[0].weight == 60);
  CHECK(mix.tasks()[1].kind == large);
  CHECK(mix.total_weight() == 95);
  CHECK(mix.tasks()[0].probability == (60.0 / 100.0) / (95.0 / 100.0));

  const task_mix all = task_mix::from_history(seen, 96);
  REQUIRE(all.tasks().size() == 3);
  CHECK(all.tasks()[2].kind == rare);
  CHECK(all.tasks()[2].probability == 0.05);
}

TEST_CASE("equally frequent kinds stand in descending order of what they ask for") {
  const task_kind a{1000, 1, 500, any_model, 0};
  const task_kind b{1000, 1, 500, any_model, 1};  // other words for the same
  const task_kind c{1000, 1, 501, any_model, 0};
  const task_kind d{2000, 0, 0, any_model, 0};
  const task_mix mix = task_mix::from_history(std::vector<task_kind>{a, b, c, d}, 100);
  REQUIRE(mix.tasks().size() == 4);
  CHECK(mix.tasks()[0].kind == d);
  CHECK(mix.tasks()[1].kind == c);
  CHECK(mix.tasks()[2].kind == b);
  CHECK(mix.tasks()[3].kind == a);
}

TEST_CASE("of kinds that differ in spec and models the spec decides") {
  const task_kind low_spec{1000, 1, 500, 0b10, 3};
  const task_kind high_spec{1000, 1, 500, 0b01, 4};
  for (const bool low_first : {false, true}) {
    const std::vector<task_kind> seen = low_first ? std::vector<task_kind>{low_spec, high_spec}
                                                  : std::vector<task_kind>{high_spec, low_spec};
    const task_mix mix = task_mix::from_history(seen, 100);
    REQUIRE(mix.tasks().size() == 2);
    CHECK(mix.tasks()[0].kind == high_spec);
    CHECK(mix.tasks()[1].kind == low_spec);
  }
}

TEST_CASE("kinds that differ in the models alone are different kinds") {
  const task_kind t4{1000, 1, 500, 0b01};
  const task_kind v100{1000, 1, 500, 0b10};
  const task_mix mix = task_mix::from_history(times(times({}, t4, 30), v100, 30), 100);
  REQUIRE(mix.tasks().size() == 2);
  CHECK(mix.tasks()[0].kind == v100);
  CHECK(mix.tasks()[1].kind == t4);
  CHECK(mix.tasks()[1].weight == 30);
}

TEST_CASE("kinds of weight 0 are none") {
  const task_mix mix({{small, 0}, {large, 2}});
  REQUIRE(mix.tasks().size() == 1);
  CHECK(mix.tasks()[0].kind == large);
  CHECK(task_mix({{small, 0}}).tasks().empty());
}

TEST_CASE("which kinds make sense") {
  CHECK(small.valid());
  CHECK(large.valid());
  CHECK(task_kind{1000}.valid());
  CHECK_FALSE(task_kind{1000, 1, 1500}.valid());
  CHECK_FALSE(task_kind{1000, 1, 0}.valid());
  CHECK_FALSE(task_kind{1000, 2, 500}.valid());
}

TEST_CASE("no history, no mix") {
  CHECK(task_mix::from_history({}).tasks().empty());
  CHECK(task_mix().total_weight() == 0);
}

TEST_CASE("kinds with weights of the caller's") {
  const task_mix mix({{small, 3}, {large, 1}});
  CHECK(mix.total_weight() == 4);
  CHECK(mix.tasks()[1].probability == 0.25);
}

TEST_CASE("a recent mix weighs arrivals by an exponential average") {
  rng random(11);
  for (const std::uint32_t window : {1u, 7u, 100u, 5000u}) {
    CAPTURE(window);
    recent_mix recent(window);
    std::map<std::uint32_t, double> expected;  // by CPU
    for (std::uint32_t i = 0; i < apiary_test::scaled(20'000u); ++i) {
      const std::uint32_t cpu = 1000 * (1 + random.uniform(i < 9000 ? 5 : 8));
      recent.add({.cpu_milli = cpu, .gpus = 1, .gpu_milli = 500});
      for (auto& [other, weight] : expected) weight *= 1.0 / (1.0 + 1.0 / window);
      expected[cpu] += 1.0;
      if (i % 997 != 0 && i > 20) continue;
      const task_mix mix = recent.mix();
      double sum = 0.0;
      for (const auto& [other, weight] : expected) sum += weight;
      for (const auto& [other, weight] : expected) {
        double counted = 0.0;
        for (const auto& t : mix.tasks())
          if (t.kind.cpu_milli == other) counted = t.probability;
        REQUIRE(counted == doctest::Approx(weight / sum).epsilon(0.002).scale(0.005));
      }
      for (std::size_t k = 1; k < mix.tasks().size(); ++k)
        CHECK(mix.tasks()[k - 1].weight >= mix.tasks()[k].weight);
    }
    CHECK(recent.arrivals() == apiary_test::scaled(20'000u));
  }
}

TEST_CASE("with a long window a recent mix is that of the history") {
  recent_mix recent(1'000'000);
  std::vector<task_kind> seen;
  for (const task_kind& kind : {small, large, small, rare, small, large}) {
    recent.add(kind);
    seen.push_back(kind);
  }
  const task_mix learned = recent.mix();
  const task_mix known = task_mix::from_history(seen, 100);
  REQUIRE(learned.tasks().size() == 3);
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK(learned.tasks()[k].kind == known.tasks()[k].kind);
    CHECK(learned.tasks()[k].probability == doctest::Approx(known.tasks()[k].probability));
  }
  CHECK(recent_mix(5).mix().tasks().empty());
}

TEST_CASE("a recent mix forgets the rarest kinds first when there are too many") {
  recent_mix recent(1'000'000);
  for (int i = 0; i < 3; ++i) recent.add(large);
  for (std::uint32_t k = 0; k < 2 * recent_mix::max_kinds; ++k)
    recent.add({.cpu_milli = k, .gpus = 1, .gpu_milli = 100});
  const task_mix mix = recent.mix();
  CHECK(mix.tasks().size() == recent_mix::max_kinds);
  CHECK(mix.tasks()[0].kind == large);
}

}  // namespace
