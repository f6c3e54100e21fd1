// apiary/tests/support/proof_mutations.h - proofs that are almost right.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/gang/infeasibility_proof.h>

#include <concepts>
#include <cstddef>
#include <functional>

namespace apiary_test {

// With bit 31 changed, or bit 32 if it has so many.
template <std::unsigned_integral Number>
constexpr Number with_high_bit(Number is) {
  return is ^ (Number{1} << (sizeof(Number) > 4 ? 32 : 31));
}

// Each number of it made greater and less by one, each with a high bit changed, and each part left
// out.
inline void for_each_mutation(const apiary::infeasibility_proof& why,
                              const std::function<void(const apiary::infeasibility_proof&)>& use) {
  using apiary::infeasibility_proof;
  infeasibility_proof other = why;
  const auto shift = [&](auto& number) {
    const auto is = number;
    number = is + 1;
    use(other);
    number = is - 1;
    use(other);
    number = with_high_bit(is);
    use(other);
    number = is;
  };
  shift(other.level);
  shift(other.node_level);
  for (auto& kind : other.groups) shift(kind);
  for (auto& tasks : other.tasks) shift(tasks);
  for (auto& gap : other.gaps) {
    shift(gap.level);
    shift(gap.cell);
    shift(gap.tasks);
  }
  if (other.gaps.size() > 1) {
    other.gaps.pop_back();
    use(other);
    other.gaps = why.gaps;
  }
  for (auto& w : other.weighings) {
    shift(w.needed);
    for (auto& weight : w.weights) shift(weight);
  }
  for (auto& r : other.cells) {
    shift(r.cell);
    shift(r.most);
    for (auto& count : r.counts) shift(count);
    const infeasibility_proof::refusal is = r;
    r.weighing = is.weighing == infeasibility_proof::listed ? 0 : infeasibility_proof::listed;
    use(other);
    r = is;
    if (!is.counts.empty()) {
      r.counts.pop_back();
      use(other);
      r.counts.resize(is.counts.size() - why.groups.size());
      use(other);
      r = is;
      r.counts.insert(r.counts.end(), is.counts.begin(),
                      is.counts.begin() + static_cast<std::ptrdiff_t>(why.groups.size()));
      use(other);
      r = is;
    }
  }
  other.cells.pop_back();
  use(other);
  other.cells = why.cells;
  other.cells.push_back(why.cells.front());
  use(other);
}

}  // namespace apiary_test
