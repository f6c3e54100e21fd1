// apiary/tests/examples/load_curves_test.cpp - buckets, roundings and means of curves.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/load_curves.h"

#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using example::curves_of;
using example::load_curves;
using example::load_sample;
using example::pairwise_sum;
using example::round2;

namespace {

// Samples of a cluster of `gpus` GPUs after loads given in thousandths of GPUs, all placed.
std::vector<load_sample> placed(const std::vector<std::uint64_t>& arrived) {
  std::vector<load_sample> samples;
  for (const std::uint64_t a : arrived) samples.push_back({a, a, 0.0});
  return samples;
}

}  // namespace

TEST_CASE("an arrival belongs to the nearest per cent, halves to even") {
  // 100 GPUs: 1000 milli are 1 %.
  const load_curves c = curves_of(placed({500, 1500, 2500, 3500, 3501, 4499}), 100, 5);
  CHECK(c.allocation[0] == 0.5);                    // 500 -> 0
  CHECK(c.allocation[2] == 2.0);                    // 1500 and 2500 -> 2
  CHECK(c.allocation[4] == doctest::Approx(3.83));  // 3500, 3501, 4499 -> 4
  CHECK(c.allocation[1] == doctest::Approx(1.5));   // none: 0 and 2
  CHECK(c.allocation[3] == doctest::Approx(3.1));   // none: 2 and 4
  CHECK(c.allocation[5] == doctest::Approx(3.83));  // none: 4 and 6
}

TEST_CASE("loads beyond the last column count for none but its neighbour") {
  const load_curves c = curves_of(placed({1000, 6000, 7000}), 100, 5);
  CHECK(c.allocation[5] == 6.0);
  CHECK(c.allocation.size() == 6);
  CHECK(std::isnan(c.allocation[3]));
  CHECK(std::isnan(c.fragmentation_amount[3]));
  CHECK(std::isnan(c.fragmentation_ratio[3]));
}

TEST_CASE("fragmentation is a part of all GPUs and of the idle ones") {
  const std::vector<load_sample> samples{{1000, 1000, 500.006}, {1000, 1000, 700.0}};
  const load_curves c = curves_of(samples, 4, 30);
  CHECK(c.allocation[25] == 25.0);
  CHECK(c.fragmentation_amount[25] == 15.0);  // 100 * (500.01 + 700) / 2 / 4000 to two decimals
  CHECK(c.fragmentation_ratio[25] == (16.67 + 23.33) / 2);
}

TEST_CASE("nothing idle is not fragmented") {
  const load_curves c = curves_of(placed({1000}), 1, 100);
  CHECK(c.fragmentation_ratio[100] == 0.0);
  CHECK(c.allocation[100] == 100.0);
}

TEST_CASE("no arrival or no GPU, no values") {
  for (const double value : curves_of({}, 1).allocation) CHECK(std::isnan(value));
  const load_curves without = curves_of(placed({0, 500}), 0);
  CHECK(without.fragmentation_ratio.size() == 131);
  for (const double value : without.fragmentation_ratio) CHECK(std::isnan(value));
}

TEST_CASE("two decimals, halves of the product to even") {
  CHECK(round2(0.0) == 0.0);
  CHECK(round2(1.0) == 1.0);
  CHECK(round2(12.344) == 12.34);
  CHECK(round2(12.346) == 12.35);
  CHECK(round2(0.125) == 0.12);
  CHECK(round2(0.375) == 0.38);
  CHECK(round2(94.745000000000005) == 94.74);
  CHECK(round2(-1.005) == -1.0);
}

TEST_CASE("pairwise sums group their terms in a fixed way") {
  const auto sum = [](const std::vector<double>& x) { return pairwise_sum(x); };
  CHECK(sum({}) == 0.0);
  CHECK(sum({0.5}) == 0.5);
  // 1e17 + 1 is 1e17: what is lost tells the order.
  CHECK(sum({1.0, 0.0, 1e17, -1e17}) == 0.0);                      // one after another below eight
  CHECK(sum({1.0, 0.0, 1e17, -1e17, 0.0, 0.0, 0.0, 0.0}) == 1.0);  // eight: by pairs
  CHECK(sum({0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1e17, -1e17}) == 1.0);
  CHECK(sum({0.0, 0.0, 1.0, 0.0, 1e17, 0.0, -1e17, 0.0}) == 1.0);  // by pairs of pairs
  std::vector<double> columns(17, 0.0);
  columns[0] = 1e17;
  columns[1] = 1.0;
  columns[8] = -1e17;
  CHECK(sum(columns) == 1.0);  // every eighth first
  columns[16] = 1e17;
  CHECK(sum(columns) == 1e17);  // the rest last
  std::vector<double> halves(136, 0.0);
  halves[0] = 1e17;
  halves[64] = -1e17;
  halves[65] = 1.0;
  CHECK(sum(halves) == 0.0);  // above 128 by halves, the first one 64 long
  rng random(1);
  std::vector<double> many(1000);
  long double exact = 0;
  for (double& x : many) {
    x = static_cast<double>(random() >> 11) * 0x1.0p-53;
    exact += x;
  }
  CHECK(sum(many) == doctest::Approx(static_cast<double>(exact)).epsilon(1e-14));
}
