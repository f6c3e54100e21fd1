// apiary/tests/gang/gang_fit_test.cpp - gangs into classes of nodes against trying node by node.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <support/naive_gang.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

using classes_t = std::vector<gang_fit::node_class>;
using gang_t = std::vector<task_group>;

bool divisible(const gang_t& gang) {
  for (const task_group& a : gang)
    for (const task_group& b : gang)
      if (a.gpus % b.gpus != 0 && b.gpus % a.gpus != 0) return false;
  return true;
}

// Asks and checks whatever can be checked; the result.
gang_fit::result checked(gang_fit& fit, const classes_t& classes, const gang_t& gang) {
  const auto found = fit(classes, gang);
  const fit_verdict verdict = found.verdict;
  if (verdict == fit_verdict::fits) {
    REQUIRE(is_packing(found, classes, gang));
  } else {
    REQUIRE(found.nodes.empty());
    REQUIRE(found.portions.empty());
  }
  if (found.shortage) {
    REQUIRE(verdict == fit_verdict::does_not_fit);
    REQUIRE(is_cut(*found.shortage, nodes_of(classes), tasks_of(gang)));
  }
  if (divisible(gang)) {
    REQUIRE(verdict != fit_verdict::budget_ended);
    REQUIRE(found.steps == 0);
    REQUIRE(found.shortage.has_value() == (verdict == fit_verdict::does_not_fit));
  }
  return found;
}

// Each multiset of at most `most` numbers of low, ..., high, in ascending order.
void for_each_multiset(std::uint32_t low, std::uint32_t high, std::size_t most, leaf_counts& begun,
                       const std::function<void()>& use) {
  use();
  if (begun.size() == most) return;
  for (std::uint32_t v = begun.empty() ? low : begun.back(); v <= high; ++v) {
    begun.push_back(v);
    for_each_multiset(low, high, most, begun, use);
    begun.pop_back();
  }
}

// Equal numbers together now and then, the rest apart; in random order.
classes_t classes_of(const leaf_counts& free, rng& random) {
  classes_t classes;
  for (const std::uint32_t f : free) {
    if (!classes.empty() && classes.back().free == f && random.uniform(4) != 0) {
      ++classes.back().nodes;
    } else {
      classes.push_back({f, 1});
    }
  }
  random.shuffle(classes);
  return classes;
}
gang_t gang_of(leaf_counts tasks, rng& random) {
  std::sort(tasks.begin(), tasks.end());
  gang_t gang;
  for (const std::uint32_t t : tasks) {
    if (!gang.empty() && gang.back().gpus == t && random.uniform(4) != 0) {
      ++gang.back().tasks;
    } else {
      gang.push_back({.tasks = 1, .gpus = t});
    }
  }
  random.shuffle(gang);
  return gang;
}

// Nodes of 64 leaves, each cut into three tasks of 14 to 30 leaves; then `moves` leaves wander.
gang_t triples(std::uint32_t nodes, std::uint32_t moves, rng& random) {
  gang_t gang;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    const std::uint32_t a = 17 + random.uniform(9);
    const std::uint32_t b = 17 + random.uniform(9);
    for (const std::uint32_t leaves : {a, b, 64 - a - b}) gang.push_back({1, leaves});
  }
  for (; moves > 0; --moves) {
    task_group& a = gang[random.uniform(3 * nodes)];
    task_group& b = gang[random.uniform(3 * nodes)];
    if (&a == &b || a.gpus < 15 || b.gpus > 30) continue;
    --a.gpus;
    ++b.gpus;
  }
  random.shuffle(gang);
  return gang;
}

}  // namespace

TEST_CASE("a gang goes to the first classes, on as few of their nodes as it fills") {
  gang_fit fit;
  const classes_t classes{{2, 3}, {4, 1}, {8, 10}};
  const gang_t gang{{.tasks = 3, .gpus = 1}, {.tasks = 1, .gpus = 4}, {.tasks = 2, .gpus = 2}};
  const auto found = fit(classes, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  // 4 on the node with 4, each 2 on a node with 2, the ones: two on the third node with 2, one more
  // on a node with 8.
  REQUIRE(found.nodes.size() == 5);
  CHECK(is_packing(found, classes, gang));
  CHECK(found.nodes[0].node_class == 1);
  CHECK(found.nodes[1].node_class == 0);
  CHECK(found.nodes[4].node_class == 2);
  CHECK_FALSE(found.shortage);
}

TEST_CASE("a shortage says which slots are missing") {
  gang_fit fit;
  const gang_t gang{{.tasks = 2, .gpus = 8}, {.tasks = 1, .gpus = 4}};
  const auto found = fit(classes_t{{8, 1}, {4, 9}}, gang);
  CHECK(found.verdict == fit_verdict::does_not_fit);
  REQUIRE(found.shortage);
  CHECK(found.shortage->gpus == 5);  // only tasks of 8 have slots of 5
  CHECK(found.shortage->needed == 2);
  CHECK(found.shortage->present == 1);
  const auto next = fit(classes_t{{8, 2}}, gang);
  CHECK(next.verdict == fit_verdict::does_not_fit);
  CHECK(next.shortage->gpus == 1);
  CHECK(next.shortage->needed == 20);
  CHECK(next.shortage->present == 16);
  CHECK(fit(classes_t{}, gang).verdict == fit_verdict::does_not_fit);
  const auto third = fit(classes_t{{8, 3}}, gang);
  CHECK(third.verdict == fit_verdict::fits);
  CHECK_FALSE(third.shortage);
}

TEST_CASE("nothing fits anywhere") {
  gang_fit fit;
  const auto found = fit({}, {});
  CHECK(found.verdict == fit_verdict::fits);
  CHECK(found.nodes.empty());
  CHECK(fit({}, gang_t{{.tasks = 0, .gpus = 4}}).verdict == fit_verdict::fits);
  CHECK(fit(classes_t{{0, 5}, {8, 0}}, gang_t{{.tasks = 1, .gpus = 1}}).verdict ==
        fit_verdict::does_not_fit);
}

TEST_CASE("where largest first fails in any order the search packs") {
  gang_fit fit;
  // 5+2 and 3+3.
  const classes_t classes{{7, 1}, {6, 1}};
  const gang_t gang{{.tasks = 2, .gpus = 3}, {.tasks = 1, .gpus = 2}, {.tasks = 1, .gpus = 5}};
  CHECK(checked(fit, classes, gang).verdict == fit_verdict::fits);
  // Best fit puts 5 on 6, then no node is left for 3+3.
  CHECK(checked(fit, {{6, 1}, {8, 1}}, {{2, 3}, {1, 5}, {1, 3}}).verdict == fit_verdict::fits);
}

TEST_CASE("gang_fit: without a search, each task on the node where it leaves least") {
  // The first node would take the tasks of 5 and then of no other size; the second is filled by it.
  gang_fit fit(0);
  const classes_t classes{{7, 1}, {5, 1}};
  const gang_t gang{{1, 5}, {1, 4}, {1, 3}};
  CHECK(checked(fit, classes, gang).verdict == fit_verdict::fits);
}

TEST_CASE("every gang of up to four tasks on up to four nodes") {
  rng random(1);
  gang_fit fit;
  leaf_counts free;
  leaf_counts tasks;
  std::uint32_t cases = 0;
  for_each_multiset(0, 4, 4, free, [&] {
    for_each_multiset(1, 4, 4, tasks, [&] {
      CAPTURE(free);
      CAPTURE(tasks);
      leaf_counts nodes = free;
      const bool fits = fits_by_trying(nodes, tasks);
      REQUIRE(fits_by_sets(free, tasks) == fits);
      REQUIRE(checked(fit, classes_of(free, random), gang_of(tasks, random)).verdict ==
              (fits ? fit_verdict::fits : fit_verdict::does_not_fit));
      ++cases;
    });
  });
  CHECK(cases == 126 * 70);
}

TEST_CASE("larger gangs, most of them tight, against the sets of their tasks") {
  gang_fit fit;
  std::uint32_t yes = 0;
  std::uint32_t no_by_cut = 0;
  std::uint32_t no_by_search = 0;
  std::uint32_t searched = 0;
  const int cases = scaled(150'000);
  for (int round = 0; round < cases; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const std::uint32_t node = random.uniform(3) == 0   ? 64
                               : random.uniform(2) == 0 ? 16
                                                        : 8 + random.uniform(20);
    // Nodes are cut into tasks, then something is changed.
    leaf_counts free;
    leaf_counts tasks;
    const std::uint32_t nodes = 1 + random.uniform(5);
    const std::uint32_t largest = 1 + random.uniform(node);
    while (free.size() < nodes && tasks.size() < 9) {
      std::uint32_t left = 1 + random.uniform(node);
      for (free.push_back(left); left > 0 && tasks.size() < 9; left -= tasks.back())
        tasks.push_back(1 + random.uniform(std::min(left, largest)));
      free.back() -= left;
    }
    // Leaves wander from node to node and from task to task.
    const auto wander = [&](leaf_counts& counts, std::uint32_t least) {
      for (std::uint32_t changes = random.uniform(4); changes > 0; --changes) {
        std::uint32_t& a = counts[random.uniform(static_cast<std::uint32_t>(counts.size()))];
        std::uint32_t& b = counts[random.uniform(static_cast<std::uint32_t>(counts.size()))];
        if (a > least && b < 64) {
          --a;
          ++b;
        }
      }
    };
    wander(free, 0);
    wander(tasks, 1);
    if (random.uniform(4) == 0) free.push_back(random.uniform(4));
    if (random.uniform(16) == 0 && tasks.size() < 10) tasks.push_back(1);
    CAPTURE(free);
    CAPTURE(tasks);
    const bool fits = fits_by_sets(free, tasks);
    const gang_fit::result found = checked(fit, classes_of(free, random), gang_of(tasks, random));
    const fit_verdict verdict = found.verdict;
    REQUIRE(verdict == (fits ? fit_verdict::fits : fit_verdict::does_not_fit));
    yes += fits ? 1U : 0U;
    no_by_cut += found.shortage ? 1U : 0U;
    no_by_search += !fits && !found.shortage ? 1U : 0U;
    searched += found.steps > 0 ? 1U : 0U;
  }
  MESSAGE(yes, " fit, ", no_by_cut, " do not by a cut, ", no_by_search, " by search, ", searched,
          " had steps");
  if (scale() >= 1) {
    CHECK(yes > 10'000);
    CHECK(no_by_cut > 5'000);
    CHECK(no_by_search > 1'000);
    CHECK(searched > 1'000);
  }
}

TEST_CASE("a million tasks are a matter of the nodes they use") {
  gang_fit fit;
  const classes_t classes{{0, 1000}, {3, 7}, {8, 124'997}, {16, 2}};
  gang_t gang{{62'500, 8}, {62'500, 4}, {62'500, 2}, {125'000, 1}};
  CHECK(checked(fit, classes, gang).verdict == fit_verdict::fits);
  // 21 + 999,976 + 32 leaves, of which 29 are too many.
  gang[3].tasks += 29;
  CHECK(checked(fit, classes, gang).verdict == fit_verdict::fits);
  ++gang[3].tasks;
  const gang_fit::result refused = checked(fit, classes, gang);
  CHECK(refused.verdict == fit_verdict::does_not_fit);
  CHECK(refused.shortage->gpus == 1);
  const gang_fit::result equal = checked(fit, {{8, 125'000}}, {{.tasks = 1'000'000, .gpus = 1}});
  CHECK(equal.verdict == fit_verdict::fits);
  CHECK(equal.nodes.size() == 125'000);
  CHECK(equal.portions.size() == 1);  // all nodes name it
}

TEST_CASE("a packing that is there is found, or the budget ends") {
  const std::uint64_t budget = 2000;
  gang_fit fit(budget);
  int ended = 0;
  int found = 0;
  const int rounds = scaled(300);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const std::uint32_t nodes = 10 + random.uniform(20);
    const gang_fit::result packed = checked(fit, {{64, nodes}}, triples(nodes, 0, random));
    const fit_verdict verdict = packed.verdict;
    REQUIRE(verdict != fit_verdict::does_not_fit);
    REQUIRE(packed.steps <= budget);
    if (verdict == fit_verdict::budget_ended) REQUIRE(packed.steps == budget);
    ended += verdict == fit_verdict::budget_ended ? 1 : 0;
    found += verdict == fit_verdict::fits ? 1 : 0;
  }
  MESSAGE(found, " found, ", ended, " ended");
  if (scale() >= 1) {
    CHECK(ended > 10);
    CHECK(found > 10);
  }
}

TEST_CASE("a smaller budget gives the same answer or none") {
  gang_fit patient(1'000'000);
  gang_fit hasty(20);
  int no = 0;
  const int rounds = scaled(300);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const gang_t gang = triples(4 + random.uniform(4), 6, random);
    const classes_t classes{{64, static_cast<std::uint32_t>(gang.size() / 3)}};
    const gang_fit::result sure = checked(patient, classes, gang);
    const fit_verdict answer = sure.verdict;
    REQUIRE(answer != fit_verdict::budget_ended);
    const fit_verdict early = checked(hasty, classes, gang).verdict;
    REQUIRE((early == answer || early == fit_verdict::budget_ended));
    no += answer == fit_verdict::does_not_fit && !sure.shortage ? 1 : 0;
    gang_fit none(0);
    const fit_verdict at_once = none(classes, gang).verdict;
    REQUIRE((at_once == answer || at_once == fit_verdict::budget_ended));
  }
  if (scale() >= 1) CHECK(no > 10);
}

TEST_CASE("many equal tasks of sizes that do not divide end within the budget") {
  gang_fit fit(10'000);
  // Ten leaves are all used by 4 + 3 + 3 alone.
  const gang_fit::result found =
      checked(fit, {{10, 80'000}}, {{.tasks = 110'000, .gpus = 4}, {.tasks = 120'000, .gpus = 3}});
  CHECK(found.verdict != fit_verdict::fits);
  CHECK(found.steps <= 10'000);
  CHECK(checked(fit, {{10, 8'000}}, {{.tasks = 8'000, .gpus = 4}, {.tasks = 16'000, .gpus = 3}})
            .verdict == fit_verdict::fits);
}

namespace {

// Up to 1,000 nodes of up to 16 GPUs, and up to five sizes of tasks. Every third gang is made of
// filled nodes, with a task more or none; the others take about as many GPUs as there are.
struct large_case {
  classes_t classes;
  gang_t gang;
};
large_case random_large_case(rng& random) {
  const std::uint32_t most = 2 + random.uniform(15);
  constexpr std::uint32_t ranges[][2] = {{1, 8}, {4, 28}, {16, 112}, {100, 900}};
  const auto& [at_least, more] = ranges[random.uniform(4)];
  const std::uint32_t nodes = at_least + random.uniform(more);
  leaf_counts values;
  for (std::uint32_t n = 1 + random.uniform(most); n > 0; --n)
    values.push_back(random.uniform(3) == 0 ? most : 1 + random.uniform(most));
  leaf_counts free;
  std::uint64_t sum = 0;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    free.push_back(values[random.uniform(static_cast<std::uint32_t>(values.size()))]);
    sum += free.back();
  }
  const std::uint32_t style = random.uniform(3);
  gang_t gang(1 + random.uniform(5));
  const auto sizes = static_cast<std::uint32_t>(gang.size());
  for (task_group& g : gang) g.gpus = 1 + random.uniform(style == 2 ? (most + 1) / 2 : most);
  if (style == 0) {
    for (std::uint32_t left : free) {
      for (int t = 0; t < 8; ++t) {
        task_group& g = gang[random.uniform(sizes)];
        while (g.gpus <= left && random.uniform(4) > 0) {
          left -= g.gpus;
          ++g.tasks;
        }
      }
    }
    gang[random.uniform(sizes)].tasks += random.uniform(2);
  } else {
    const std::uint64_t target = sum * (85 + random.uniform(18)) / 100;
    std::uint64_t used = 0;
    for (std::uint32_t i = 0; i < 4 * nodes; ++i) {
      task_group& g = gang[random.uniform(sizes)];
      for (std::uint32_t t = 1 + random.uniform(10); t > 0 && used + g.gpus <= target; --t) {
        used += g.gpus;
        ++g.tasks;
      }
    }
  }
  std::sort(free.begin(), free.end());
  return {classes_of(free, random), gang};
}

}  // namespace

TEST_CASE("gang_fit: five sizes on nodes of 16 GPUs are decided within 100,000 steps") {
  gang_fit fit;
  std::uint32_t fits = 0;
  std::uint32_t refused = 0;
  for (std::uint64_t seed = 0; seed < scaled(20'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const large_case c = random_large_case(random);
    const gang_fit::result found = checked(fit, c.classes, c.gang);
    REQUIRE(found.verdict != fit_verdict::budget_ended);
    fits += found.verdict == fit_verdict::fits ? 1U : 0U;
    refused += found.verdict == fit_verdict::does_not_fit ? 1U : 0U;
  }
  CHECK(fits > scaled(20'000U) / 4);
  CHECK(refused > scaled(20'000U) / 10);
}

TEST_CASE("gang_fit: a linear program places most tasks of a large gang") {
  // Undecided after 100,000 steps of the search alone. Groups of one size share nodes.
  gang_fit fit;
  const classes_t classes{{9, 100}, {1, 226}, {4, 218}, {5, 214}, {9, 120}};
  const gang_fit::result found =
      checked(fit, classes, {{.tasks = 300, .gpus = 3}, {.tasks = 919, .gpus = 2}, {295, 3}});
  CHECK(found.verdict == fit_verdict::fits);
  CHECK(found.steps < 20'000);
  CHECK(checked(fit, {{8, 249}, {9, 246}}, {{433, 3}, {670, 2}, {699, 2}}).verdict ==
        fit_verdict::fits);
}
