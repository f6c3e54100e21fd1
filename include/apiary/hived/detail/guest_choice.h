// apiary/hived/detail/guest_choice.h - binds virtual leaves so that few opportunistic gangs end.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Counts the reasons for which each gang on the leaves of a chain ends, and sums up what the gangs
// cost that end. It asks for the cost of a gang only when it is needed.
// Cost: O(leaves of the cell) for each call about a cell.
class guest_fates {
 public:
  // Lower bounds of the cost of ending a gang: `gang`, and `leaf` for each of its leaves.
  struct least_cost {
    std::uint64_t gang = 0;
    std::uint64_t leaf = 0;
  };

  // Forgets everything. The chain must not be destroyed before the next call.
  void begin(const physical_chain& chain, least_cost least) noexcept {
    chain_ = &chain;
    least_ = least;
    ++epoch_;
    undo_.clear();
  }
  [[nodiscard]] gang_slot user(cell_id leaf) const noexcept { return chain_->holders(leaf).user; }
  // The gang ends, whatever undo() undoes.
  void end(gang_slot s) { ++at(s).ended; }
  [[nodiscard]] bool ends(gang_slot s) { return at(s).ended > 0; }
  // The users of the leaves of a cell end. Returns what those cost that did not end before;
  // cost(slot) is the cost of one.
  template <class Cost>
  std::uint64_t end_users(cell_id p, const Cost& cost) {
    std::uint64_t all = 0;
    if (chain_->opportunistic_leaves(p) == 0) return all;
    for (const cell_id leaf : chain_->tree().descendants(p, 0)) {
      const gang_slot s = user(leaf);
      if (!s.valid()) continue;
      if (at(s).ended++ == 0) all += cost_of(s, cost);
      undo_.push_back(s);
    }
    return all;
  }
  // undo(position()) takes back what end_users() has done since position().
  [[nodiscard]] std::size_t position() const noexcept { return undo_.size(); }
  void undo(std::size_t to) {
    for (; undo_.size() > to; undo_.pop_back()) --fates_[undo_.back().value].ended;
  }
  template <class Cost>
  [[nodiscard]] std::uint64_t cost_of(gang_slot s, const Cost& cost) {
    fate& f = at(s);
    if (f.known) return f.cost;
    f.known = true;
    return f.cost = cost(s);
  }
  // A lower bound on the cost of ending all users of a cell that do not end yet. Adds to `steps`
  // one for each eight of them, for each leaf.
  [[nodiscard]] std::uint64_t least_cost_in(cell_id p, std::uint64_t& steps) {
    ++scan_;
    std::uint64_t gangs = 0;
    std::uint64_t leaves = 0;
    for (const cell_id leaf : chain_->tree().descendants(p, 0)) {
      const gang_slot s = user(leaf);
      if (!s.valid()) continue;
      fate& f = at(s);
      if (f.ended > 0) continue;
      ++leaves;
      gangs += f.scan == scan_ ? 0U : 1U;
      f.scan = scan_;
      steps += gangs / 8;
    }
    return gangs * least_.gang + leaves * least_.leaf;
  }

 private:
  struct fate {
    std::uint64_t epoch = 0;  // of the begin() after which the rest was set
    std::uint64_t scan = 0;   // of the last least_cost_in() that has counted it
    std::uint64_t cost = 0;   // if known
    std::uint32_t ended = 0;  // for how many leaves or other reasons it ends
    bool known = false;
  };
  [[nodiscard]] fate& at(gang_slot s) {
    if (fates_.size() <= s.value) fates_.resize(std::size_t{s.value} + 1);
    fate& f = fates_[s.value];
    if (f.epoch != epoch_) f = {.epoch = epoch_};
    return f;
  }

  const physical_chain* chain_ = nullptr;
  least_cost least_{};
  std::uint64_t epoch_ = 0;
  std::uint64_t scan_ = 0;
  lean_vector<fate> fates_;      // by slot
  lean_vector<gang_slot> undo_;  // gangs whose `ended` was raised by end_users()
};

// Chooses the physical leaves of a gang whose virtual leaves are chosen, so that the gangs that end
// cost least. The virtual leaves stay as they are, because they must not depend on opportunistic
// gangs; otherwise these would decide what a tenant is granted later. Bound cells stay bound, too.
// The choice is which physical cells the unbound ones get. First each cell, the largest first, gets
// the cell where the gangs that end cost least. Then all other choices are tried. The result is the
// best if the budget does not end, at most max_exact cells are bound, and each has at most
// max_candidates.
// Cost: O(leaves of the gang) until an opportunistic gang must end. Then at most a budget of leaves
//       and candidates, and for each cell bound the first choice of hived_cells::bind_leaf.
class guest_choice {
 public:
  // Changes the images of the leaves if others cost less. cost(slot) is the cost of ending a gang;
  // the gangs `ending` end in any case, as do the users of leaves that were bound before.
  // `fixed[i]` says whether leaf i was; `least` are lower bounds of cost(). Requires:
  // hived_cells::begin() was called; the images are possible, and the leaves that are not fixed are
  // unbound.
  template <class Cost>
  void operator()(hived_cells& cells, vc_chain_id c, std::span<bound_leaf> leaves,
                  std::span<const bool> fixed, std::span<const gang_slot> ending,
                  guest_fates::least_cost least, const Cost& cost) {
    cells_ = &cells;
    cluster_ = &cells.cluster(c);
    chain_ = &cells.chain(cluster_->chain());
    c_ = c;
    ++epoch_;
    fates_.begin(*chain_, least);
    used_.resize((std::max)(used_.size(), std::size_t{chain_->tree().num_cells()}), 0);
    order_.clear();
    for (std::uint32_t i = 0; i < leaves.size(); ++i) {
      if (!fixed[i]) order_.push_back(i);
      const gang_slot s = fates_.user(leaves[i].image);
      if (fixed[i] && s.valid()) fates_.end(s);
    }
    for (const gang_slot s : ending) fates_.end(s);
    best_cost_ = 0;
    for (const std::uint32_t i : order_) best_cost_ += fates_.end_users(leaves[i].image, cost);
    fates_.undo(0);
    if (best_cost_ == 0) return;
    merge_sort(order_,
               [&](std::uint32_t a, std::uint32_t b) { return leaves[a].leaf < leaves[b].leaf; });
    list_parts(leaves);
    best_.clear();
    images_.assign(parts_.size(), cell_id());
    lists_.resize((std::max)(lists_.size(), parts_.size()));
    const std::size_t before = cells.position();
    const bool is_best = choose_each(cost);
    cells.rollback_to(before);
    if (!is_best && parts_.size() <= max_exact && best_cost_ > 0) {
      budget_ = exact_budget;
      try_all(0, 0, cost);
    }
    cells.rollback_to(before);
    if (best_.empty()) return;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].full) continue;
      std::uint32_t at = parts_[i].first;
      for (const cell_id p : chain_->tree().descendants(best_[i], 0))
        leaves[order_[at++]].image = p;
    }
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::size_t max_exact = 256;             // parts for which all choices are tried
  static constexpr std::uint64_t greedy_budget = 1U << 14;  // leaves and candidates looked at
  static constexpr std::uint64_t exact_budget = 1U << 13;
  static constexpr std::size_t max_candidates = 256;  // physical cells for one whole cell

  // An unbound virtual cell with leaves of the gang. It comes after the cell around it, if that is
  // unbound. A cell of which the gang has all leaves (full) is not divided.
  struct part {
    cell_id cell{};
    cell_id above{};  // no parent: the image of the cell around it, if there is one
    level_t level = 0;
    std::uint32_t leaves = 0;  // of the gang, from position `first` of order_ on
    std::uint32_t first = 0;
    std::uint32_t parent = none;
    std::uint32_t end = 0;      // the first part after it that is not inside it
    std::uint32_t twin = none;  // an equal part before it, which has the same candidates
    bool full = false;
  };
  struct candidate {
    std::uint64_t cost = 0;
    std::uint32_t opportunistic = 0;
    cell_id cell{};
    [[nodiscard]] static bool costs_less(const candidate& a, const candidate& b) noexcept {
      return std::tie(a.cost, a.opportunistic) < std::tie(b.cost, b.opportunistic);
    }
  };
  // Sets parts_: the highest unbound cells, the largest first, each followed by the cells in it.
  void list_parts(std::span<const bound_leaf> leaves) {
    parts_.clear();
    tops_.clear();
    for (std::uint32_t i = 0; i < order_.size(); ++i) {
      part p{.cell = leaves[order_[i]].leaf, .leaves = 1, .first = i};
      cell_id above = cluster_->tree().parent(p.cell, 0);
      while (above.valid() && !cluster_->image(above).valid()) {
        p.cell = above;
        above = cluster_->tree().parent(above, ++p.level);
      }
      if (!tops_.empty() && tops_.back().cell == p.cell) {
        ++tops_.back().leaves;
        continue;
      }
      if (above.valid()) p.above = cluster_->image(above);
      tops_.push_back(p);
    }
    merge_sort(tops_, [](const part& a, const part& b) {
      return std::tie(b.level, b.leaves, a.above) < std::tie(a.level, a.leaves, b.above);
    });
    std::uint32_t before = none;
    for (const part& p : tops_) before = add_part(p, before, leaves);
  }
  // `before` is the part before it in the same cell. Returns its index.
  std::uint32_t add_part(part p, std::uint32_t before, std::span<const bound_leaf> leaves) {
    p.full = p.leaves == cluster_->tree().leaves_per_cell(p.level);
    const auto at = static_cast<std::uint32_t>(parts_.size());
    if (before != none) {
      const part& b = parts_[before];
      const bool leaves_decide = p.full || (p.level == 1 && !is_root(p));
      if (leaves_decide && b.level == p.level && b.leaves == p.leaves && b.parent == p.parent &&
          b.above == p.above)
        p.twin = before;
    }
    parts_.push_back(p);
    if (!p.full) {
      lean_vector<part> inside;
      std::uint32_t i = p.first;
      for (const cell_id child : cluster_->tree().children(p.cell, p.level)) {
        part q{.cell = child, .level = p.level - 1, .first = i, .parent = at};
        const cell_id last = cluster_->tree().descendants(child, 0).last;
        for (; i < p.first + p.leaves && leaves[order_[i]].leaf < last; ++i) ++q.leaves;
        if (q.leaves > 0) inside.push_back(q);
      }
      merge_sort(inside, [](const part& a, const part& b) { return a.leaves > b.leaves; });
      std::uint32_t child = none;
      for (const part& q : inside) child = add_part(q, child, leaves);
    }
    parts_[at].end = static_cast<std::uint32_t>(parts_.size());
    return at;
  }
  [[nodiscard]] bool is_root(const part& p) const noexcept {
    return p.parent == none && !p.above.valid();
  }
  // The physical cells that the i-th part may get, at most `most` whole cells, with estimated
  // costs. Of a full part, only those that cost less than `limit` have their cost; the others have
  // a lower bound that is not less. `falling`: the cheapest cell so far is the limit for the next
  // ones.
  template <class Cost>
  void list_candidates(std::uint32_t i, std::size_t most, lean_vector<candidate>& list,
                       candidate limit, bool falling, const Cost& cost) {
    const part& p = parts_[i];
    list.clear();
    const bool rated = budget_ > 0;
    const auto add = [&](cell_id q) {
      candidate c{0, chain_->opportunistic_leaves(q), q};
      if (rated) c.cost = estimate(i, q, cost, &limit);
      list.push_back(c);
      if (falling && candidate::costs_less(c, limit)) limit = c;
    };
    if (!is_root(p)) {
      const cell_id above = p.parent == none ? p.above : images_[p.parent];
      for (const cell_id q : chain_->tree().children(above, p.level + 1))
        if (!chain_->owner(q).cell.valid() && used_[q.value] != epoch_) add(q);
      return;
    }
    std::uint32_t equals = 1;  // how many equal cells can be of use: one for each twin
    while (i + equals < parts_.size() && parts_[i + equals].twin != none) ++equals;
    const cell_id first = choose_whole_cell(*chain_, p.level).value_or(cell_id());
    if (first.valid()) add(first);
    const summary_bitset& free = chain_->cells().cells().free_cells();
    for (level_t from = p.level; from <= chain_->cells().highest_safe(p.level); ++from) {
      const id_range<cell_id> all = chain_->tree().cells(from);
      for (std::uint32_t f = free.find_next(all.first.value);
           f < all.last.value && list.size() < most; f = free.find_next(f + 1)) {
        cell_id in;  // cells in one cell without opportunistic leaves are equal
        std::uint32_t idle = 0;
        for (const cell_id q : chain_->tree().descendants(cell_id(f), p.level)) {
          if (list.size() >= most || budget_ == 0) break;
          if (!chain_->healthy().healthy(q) || q == first) continue;
          if (chain_->opportunistic_leaves(q) == 0) {
            const cell_id around = idle_around(q, p.level, from);
            if (around != in) idle = 0;
            in = around;
            if (idle++ >= equals) continue;
          }
          add(q);
        }
      }
    }
  }
  // The largest cell around q, of level l, up to level `top`, without opportunistic leaves.
  [[nodiscard]] cell_id idle_around(cell_id q, level_t l, level_t top) const noexcept {
    for (; l < top; ++l) {
      const cell_id above = chain_->tree().parent(q, l);
      if (chain_->opportunistic_leaves(above) > 0) break;
      q = above;
    }
    return q;
  }
  // The cost of the gangs that end if the i-th part gets the cell q, given those that end already.
  // For a part that is not full, each part inside gets the child that costs least, one after
  // another; a gang may then count several times. Of a full part, the result may be a lower bound
  // that is not less than `limit`.
  template <class Cost>
  std::uint64_t estimate(std::uint32_t i, cell_id q, const Cost& cost,
                         const candidate* limit = nullptr) {
    const part& p = parts_[i];
    spend(1);
    if (chain_->opportunistic_leaves(q) == 0) return 0;
    if (p.full || p.level == 1) {
      const id_range<cell_id> all = chain_->tree().descendants(q, 0);
      spend(all.size());
      if (p.full && limit != nullptr) {
        std::uint64_t steps = 0;
        const candidate least{fates_.least_cost_in(q, steps), chain_->opportunistic_leaves(q), q};
        if (!candidate::costs_less(least, *limit)) {
          spend(steps);
          return least.cost;
        }
      }
      std::uint32_t idle = 0;
      counts_.clear();
      for (const cell_id leaf : all) {
        const gang_slot s = fates_.user(leaf);
        if (!s.valid() || fates_.ends(s)) {
          ++idle;
          continue;
        }
        const auto at = std::find_if(counts_.begin(), counts_.end(),
                                     [&](const gang_leaves& g) { return g.slot == s; });
        at == counts_.end() ? counts_.push_back({s, 1}) : void(++at->leaves);
        spend(counts_.size() / 8);
      }
      std::uint64_t total = 0;
      while (idle < p.leaves && !counts_.empty()) {
        const auto largest = std::max_element(
            counts_.begin(), counts_.end(),
            [](const gang_leaves& x, const gang_leaves& y) { return x.leaves < y.leaves; });
        idle += largest->leaves;
        total += fates_.cost_of(largest->slot, cost);
        *largest = counts_.back();
        counts_.pop_back();
      }
      return total;
    }
    std::uint64_t total = 0, taken = 0;  // bit k: child k is taken
    const id_range<cell_id> children = chain_->tree().children(q, p.level);
    for (std::uint32_t j = i + 1; j < p.end; j = parts_[j].end) {
      std::uint64_t least = ~std::uint64_t{0};
      std::uint32_t best = 0;
      for (std::uint32_t k = 0; k < children.size() && k < 64 && least > 0; ++k) {
        if ((taken >> k & 1U) != 0) continue;
        const std::uint64_t there = estimate(j, children[k], cost);
        if (there >= least) continue;
        least = there;
        best = k;
      }
      taken |= std::uint64_t{1} << best;
      total += least == ~std::uint64_t{0} ? 0 : least;
    }
    return total;
  }
  void spend(std::uint64_t steps) noexcept { budget_ -= (std::min)(budget_, steps); }

  // Gives the i-th part a cell. Returns false if it is not possible any more.
  bool set(std::uint32_t i, cell_id q) {
    const part& p = parts_[i];
    if (is_root(p)) {
      if (!chain_->cells().can_allocate_at(q)) return false;
      cells_->bind(c_, p.cell, p.level, q);
      spend(chain_->tree().leaves_per_cell(p.level));
    } else if (used_[q.value] == epoch_) {
      return false;
    }
    used_[q.value] = epoch_;
    images_[i] = q;
    return true;
  }
  // Gives one part after another the cell of least cost. Returns whether there is only one part,
  // and all cells that try_all() would try have been compared.
  template <class Cost>
  [[nodiscard]] bool choose_each(const Cost& cost) {
    budget_ = greedy_budget;
    bool all_compared = false;
    std::uint64_t total = 0;
    std::uint32_t i = 0;
    for (; i < parts_.size(); ++i) {
      const auto each = static_cast<std::size_t>(
          budget_ / ((parts_.size() - i) * (std::size_t{parts_[i].leaves} + 1)));
      list_candidates(i, (std::clamp)(each, std::size_t{4}, max_candidates), lists_[i],
                      candidate{~std::uint64_t{0}, none, {}}, true, cost);
      all_compared = each >= max_candidates && budget_ > 0;
      const auto least =
          std::min_element(lists_[i].begin(), lists_[i].end(), candidate::costs_less);
      if (least == lists_[i].end() || !set(i, least->cell)) break;
      if (parts_[i].full) total += fates_.end_users(least->cell, cost);
    }
    if (i == parts_.size()) keep_if_better(total);
    fates_.undo(0);
    for (const cell_id q : images_)
      if (q.valid()) used_[q.value] = 0;
    return i == 1 && i == parts_.size() && all_compared;
  }
  void keep_if_better(std::uint64_t total) {
    if (total < best_cost_) best_ = images_;
    best_cost_ = (std::min)(best_cost_, total);
  }
  // Tries all cells for the parts from the i-th on; those before cost `total`.
  template <class Cost>
  void try_all(std::uint32_t i, std::uint64_t total, const Cost& cost) {
    if (total >= best_cost_ || budget_ == 0) return;
    if (i == parts_.size()) return keep_if_better(total);
    const part& p = parts_[i];
    lean_vector<candidate>& list = lists_[i];
    std::size_t k = 0;
    if (p.twin != none) {
      list = lists_[p.twin];
      while (list[k++].cell != images_[p.twin]) continue;
    } else {
      // A twin tries all cells of this list, too. Those that have a lower bound only come last; a
      // set of such cells only cannot be better, because each of them alone costs too much.
      list_candidates(i, max_candidates, list, candidate{best_cost_ - total, 0, {}}, false, cost);
      merge_sort(list, candidate::costs_less);
    }
    const std::size_t before = tried_.size();
    for (; k < list.size() && budget_ > 0; ++k) {
      const cell_id q = list[k].cell;
      // The costs in the list are those of now, and exact if the part is full.
      if (p.full && p.twin == none && total + list[k].cost >= best_cost_) break;
      // Of the children of a cell, those without opportunistic leaves are equal, and so are leaves
      // with the same user. A leaf whose user ends already is as good as an idle one.
      const bool is_idle = list[k].opportunistic == 0;
      const bool has_equals = !is_root(p) && (is_idle || p.level == 0);
      gang_slot user = is_idle || !has_equals ? gang_slot() : fates_.user(q);
      if (user.valid() && fates_.ends(user)) user = gang_slot();
      if (has_equals && std::find(tried_.begin() + static_cast<std::ptrdiff_t>(before),
                                  tried_.end(), user) != tried_.end())
        continue;
      const std::size_t bound = cells_->position();
      const std::size_t ended = fates_.position();
      if (!set(i, q)) continue;
      if (has_equals) tried_.push_back(user);
      spend(p.leaves);
      try_all(i + 1, total + (p.full ? fates_.end_users(q, cost) : 0), cost);
      fates_.undo(ended);
      used_[q.value] = 0;
      cells_->rollback_to(bound);
    }
    tried_.resize(before);
  }
  struct gang_leaves {
    gang_slot slot{};
    std::uint32_t leaves = 0;
  };
  hived_cells* cells_ = nullptr;
  const virtual_cluster* cluster_ = nullptr;
  const physical_chain* chain_ = nullptr;
  vc_chain_id c_{};
  std::uint64_t epoch_ = 0;
  std::uint64_t budget_ = 0;
  lean_vector<std::uint32_t> order_;  // the leaves that are not fixed, by virtual leaf
  lean_vector<part> tops_;
  lean_vector<part> parts_;
  lean_vector<cell_id> images_;  // for each part
  lean_vector<cell_id> best_;
  std::uint64_t best_cost_ = 0;
  std::vector<lean_vector<candidate>> lists_;  // for each part
  lean_vector<std::uint64_t> used_;  // by physical cell: the epoch in which a part has got it
  guest_fates fates_;
  lean_vector<gang_leaves> counts_;
  lean_vector<gang_slot> tried_;  // by try_all(): the users of leaves, or no user of an idle cell
};

}  // namespace detail
APIARY_NAMESPACE_END
