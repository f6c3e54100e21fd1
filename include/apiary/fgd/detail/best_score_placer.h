// apiary/fgd/detail/best_score_placer.h - the node with the highest score for a task, without a scan.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/dense_map.h>
#include <apiary/container/score_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/node_score.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A kind of request: all tasks that are equal except for their job id, and except for their memory
// if the score ignores it.
using kind_id = id<struct kind_tag>;

// What a score prepares for a kind of request: the type of prepare(), or nothing.
template <class Score>
struct prepared_for {
  struct type {};
};
template <PreparedScore Score>
struct prepared_for<Score> {
  using type = decltype(std::declval<const Score&>().prepare(std::declval<const node_table&>(),
                                                             std::declval<const task_request&>()));
};

// Finds the node with the highest score for a task. It keeps a score_tree for each kind of request,
// and the nodes in the order of their last change: a decision scores again only the nodes that
// changed since the last decision for the same kind.
// Model:    the argmin over nodes of the change of a metric, "Beware of Fragmentation" (USENIX ATC
//           2023), section 4, for any score and any filter.
// Requires: every call gets the same table, update() is called after each change of a node, and add()
//           when the table gets a new id.
// Cost:     place: one score for each node that changed since the last call for this kind, then
//           O(log64 nodes); with `allowed`, or with memory that the score ignores, as
//           score_tree::best_of. place_apart: the same scores, then O(log64 nodes) for each task and
//           each other node; a score that chooses gets a set of the range for each call, O(nodes /
//           64). update, add: O(score.update), add amortized. After set_score, the next call for
//           each kind scores all nodes.
//           Memory: 1.02 bytes for each node and kind, and 16 bytes for each node.
template <NodeScore Score>
class best_score_placer {
  static constexpr bool chooses =
      requires(Score & s, const score_tree& candidates, const summary_bitset* allowed) {
    { s.choose(candidates, allowed) } -> std::same_as<std::uint32_t>;
  };
  // Kinds then differ in other requests than memory only.
  static constexpr bool ignores_memory = [] {
    if constexpr (requires { Score::ignores_memory; }) return Score::ignores_memory && !chooses;
    return false;
  }();
  static_assert(
      chooses || !requires { &Score::choose; },
      "choose() does not have the signature that NodeScore describes");

 public:
  // Calls score.update() for every node.
  best_score_placer(const node_table& nodes, Score score) : score_(std::move(score)), order_(1) {
    order_.reserve(nodes.size() + std::size_t{1});
    for (const node_id n : nodes.ids()) add(nodes, n);
  }

  // Adds a kind for requests like `task`. Requires: task.valid(). Cost: O(nodes).
  kind_id prepare(const node_table& nodes, const task_request& task) {
    return fill(kinds_.push_back({}), nodes, task);
  }
  // Makes k the kind of requests like `task`. Requires: task.valid(). Cost: O(nodes).
  void replace(kind_id k, const node_table& nodes, const task_request& task) {
    fill(k, nodes, task);
  }

  // The number of kinds.
  [[nodiscard]] std::uint32_t num_kinds() const noexcept { return kinds_.size(); }
  // Whether a kind has tasks with any memory: the caller then passes the task's memory to place().
  [[nodiscard]] static constexpr bool kinds_ignore_memory() noexcept { return ignores_memory; }
  // Where a task of kind k would run, in `allowed` only (one bit for each node) if that is not null;
  // nullopt if it fits on no node now.
  [[nodiscard]] std::optional<placement> place(const node_table& nodes, kind_id k,
                                               const summary_bitset* allowed = nullptr,
                                               std::uint32_t memory_mib = 0) {
    const kind& wanted = refresh(nodes, k);
    std::uint32_t n = 0;
    if constexpr (chooses) {
      n = score_.choose(wanted.scores, allowed);
    } else if (ignores_memory && memory_mib > 0) {
      n = wanted.scores.best_where([&](std::uint32_t i) {
        return nodes[node_id(i)].left.memory_mib >= memory_mib &&
               (allowed == nullptr || allowed->test(i));
      });
    } else {
      n = allowed == nullptr ? wanted.scores.best() : wanted.scores.best_of(*allowed);
    }
    return placement_on(nodes, n, wanted.request);
  }
  // Appends to `where` the placements of up to `count` tasks of kind k, each on a different node of
  // `among`, the best one first. Nodes that are in `where` do not count. Returns whether all tasks
  // fit. Requires: `where` has no node twice; the tasks have no memory if the score ignores it.
  [[nodiscard]] bool place_apart(const node_table& nodes, kind_id k, id_range<node_id> among,
                                 std::uint32_t count, std::vector<placement>& where) {
    kind& wanted = refresh(nodes, k);
    std::vector<std::pair<std::uint32_t, std::uint8_t>> hidden;  // nodes and what the tree had
    const std::size_t last = where.size() + count;
    where.reserve(last);
    hidden.reserve(last);
    const auto hide = [&](std::uint32_t n) {
      hidden.emplace_back(n, wanted.scores[n]);
      wanted.scores.set(n, 0);
    };
    for (const placement& other : where) hide(other.node.value);
    while (where.size() < last) {
      const std::uint32_t n = best_in(wanted.scores, among);
      if (n == score_tree::npos) break;
      where.push_back(*placement_on(nodes, n, wanted.request));
      if (where.size() < last) hide(n);
    }
    for (const auto& [n, entry] : hidden) wanted.scores.set(n, entry);
    return where.size() == last;
  }
  // Whether the scores of a task bound those of a task that requests more CPU.
  [[nodiscard]] static constexpr bool falls_with_cpu() noexcept {
    if constexpr (requires { Score::falls_with_cpu; })
      return Score::falls_with_cpu && ignores_memory &&
             (BoundedScore<Score> || !PreparedScore<Score>);
    return false;
  }
  // A task that is scored on some nodes, and what score() gets for it.
  struct asked_task {
    const task_request& task;
    [[no_unique_address]] typename prepared_for<Score>::type prepared;
  };
  // Prepares the scores of a task. The result refers to `task`.
  [[nodiscard]] asked_task ask(const node_table& nodes, const task_request& task) const {
    return {task, prepared_of(nodes, task)};
  }
  // A placement for which a limited number of nodes was scored.
  struct limited_placement {
    bool decided = false;              // false: more nodes would have to be scored
    std::optional<placement> where{};  // nullopt: nowhere
  };
  // Where a task would run that differs from those of kind k in memory, and in CPU: it requests as
  // much or more. Scores at most `limit` nodes, of those where may_fit(node) is true only.
  // Requires: falls_with_cpu(); the task fits on no node where may_fit(node) is false.
  template <class MayFit>
  [[nodiscard]] limited_placement place_by_bounds(const node_table& nodes, kind_id k,
                                                  const asked_task& asked,
                                                  const summary_bitset* allowed,
                                                  std::uint32_t limit, const MayFit& may_fit) {
    const kind& less = refresh(nodes, k);
    const auto accept = [&](std::uint32_t n) {
      return may_fit(node_id(n)) && (allowed == nullptr || allowed->test(n));
    };
    const auto exact = [&](std::uint32_t n) {
      return entry_of(nodes, node_id(n), asked.task, asked.prepared);
    };
    std::array<std::uint8_t, max_score + 2> known{};  // by entry; 0: not computed yet
    const auto bound = [&](std::uint8_t entry) {
      if constexpr (PreparedScore<Score>) {
        if (entry > 0 && known[entry] == 0) {
          const std::uint32_t cpu = asked.task.cpu_milli - less.request.cpu_milli;
          known[entry] = static_cast<std::uint8_t>(
              score_.bound(entry - 1U, less.prepared, asked.prepared, cpu) + 1);
        }
        return known[entry];
      } else {
        return entry;
      }
    };
    const std::optional<std::uint32_t> n = less.scores.best_by_bounds(accept, exact, limit, bound);
    if (!n) return {};
    return {.decided = true, .where = placement_on(nodes, *n, asked.task)};
  }
  // Where a task would run on these nodes only, by a score for each. Requires: they ascend; the score
  // has no choose().
  [[nodiscard]] std::optional<placement> place_among(const node_table& nodes,
                                                     const asked_task& asked,
                                                     std::span<const node_id> candidates) {
    std::uint32_t best = score_tree::npos;
    std::uint8_t most = 0;
    for (const node_id n : candidates) {
      const std::uint8_t entry = entry_of(nodes, n, asked.task, asked.prepared);
      if (entry <= most) continue;
      best = n.value;
      most = entry;
    }
    return placement_on(nodes, best, asked.task);
  }
  // How many changes of nodes the scores of kind k have not seen yet.
  [[nodiscard]] std::uint64_t changes_since(kind_id k) const noexcept {
    return changes_ - kinds_[k].seen;
  }
  // Whether any node can take a task of kind k now.
  [[nodiscard]] bool fits_somewhere(const node_table& nodes, kind_id k,
                                    std::uint32_t memory_mib = 0) {
    const score_tree& scores = refresh(nodes, k).scores;
    if (!ignores_memory || memory_mib == 0) return scores.best() != score_tree::npos;
    return scores.best_where([&](std::uint32_t i) {
      return nodes[node_id(i)].left.memory_mib >= memory_mib;
    }) != score_tree::npos;
  }

  // Must be called after each change of node n.
  void update(const node_table& nodes, node_id n) {
    score_.update(nodes, n);
    unlink(n.value + 1);
    link_last_changed(n.value + 1);
  }
  // Must be called for each new id of the table, in their order.
  void add(const node_table& nodes, node_id n) {
    APIARY_ASSERT(n.value + 1 == order_.size());
    score_.update(nodes, n);
    order_.emplace_back();
    link_last_changed(n.value + 1);
  }
  // Takes another score. The kinds stay.
  void set_score(const node_table& nodes, Score score) {
    score_ = std::move(score);
    for (const node_id n : nodes.ids()) score_.update(nodes, n);
    ++score_version_;
  }

  // The score.
  [[nodiscard]] const Score& score() const noexcept { return score_; }

 private:
  using prepared_type = typename prepared_for<Score>::type;
  // The scores of so many nodes are loaded ahead.
  static constexpr std::uint32_t ahead = 8;

  struct kind {
    task_request request{};
    [[no_unique_address]] prepared_type prepared{};  // what score() gets
    score_tree scores;
    std::uint64_t seen = 0;           // changes up to this number are in the scores
    std::uint32_t score_version = 0;  // which score gave them
  };
  // A ring through all nodes, least recently changed first. Element 0 is its anchor, element n + 1
  // is node n.
  struct link {
    std::uint64_t change = 0;  // number of the node's last change
    std::uint32_t before = 0;
    std::uint32_t after = 0;
  };

  void unlink(std::uint32_t n) noexcept {
    order_[order_[n].before].after = order_[n].after;
    order_[order_[n].after].before = order_[n].before;
  }
  void link_last_changed(std::uint32_t n) noexcept {
    const std::uint32_t last = order_[0].before;
    order_[n] = {++changes_, last, 0};
    order_[last].after = n;
    order_[0].before = n;
  }

  kind_id fill(kind_id k, const node_table& nodes, const task_request& task) {
    APIARY_ASSERT(task.valid());
    kinds_[k].request = task;
    if (ignores_memory) kinds_[k].request.memory_mib = 0;
    kinds_[k].prepared = prepared_of(nodes, task);
    kinds_[k].scores = score_tree(nodes.size());
    kinds_[k].seen = changes_;
    kinds_[k].score_version = score_version_;
    for (const node_id n : nodes.ids()) rescore(nodes, kinds_[k], n);
    return k;
  }
  kind& refresh(const node_table& nodes, kind_id k) {
    kind& wanted = kinds_[k];
    if (wanted.score_version != score_version_) fill(k, nodes, task_request(wanted.request));
    if (wanted.scores.size() < nodes.size()) wanted.scores.grow(nodes.size());
    const auto changed = [&](std::uint32_t n) {  // since the scores of this kind were read
      return n != 0 && order_[n].change > wanted.seen;
    };
    // Most scores are not in the cache: the loads of some nodes run side by side.
    std::uint32_t loaded = order_[0].before;
    const auto load = [&] {
      if (!changed(loaded)) return;
      wanted.scores.prefetch(loaded - 1);
      __builtin_prefetch(&nodes[node_id(loaded - 1)]);
      loaded = order_[loaded].before;
    };
    for (std::uint32_t i = 0; i < ahead; ++i) load();
    for (std::uint32_t n = order_[0].before; changed(n); n = order_[n].before) {
      load();
      rescore(nodes, wanted, node_id(n - 1));
    }
    wanted.seen = changes_;
    return wanted;
  }
  void rescore(const node_table& nodes, kind& k, node_id n) {
    k.scores.set(n.value, entry_of(nodes, n, k.request, k.prepared));
  }
  // What score() gets for the task.
  [[nodiscard]] prepared_type prepared_of(const node_table& nodes, const task_request& task) const {
    if constexpr (PreparedScore<Score>) {
      return score_.prepare(nodes, task);
    } else {
      return {};
    }
  }
  // What a score_tree has for node n: the score + 1; 0: the task does not fit there.
  [[nodiscard]] std::uint8_t entry_of(const node_table& nodes, node_id n, const task_request& task,
                                      const prepared_type& prepared) const {
    if (!nodes[n].fits(task)) return 0;
    std::uint32_t score = 0;
    if constexpr (PreparedScore<Score>) {
      score = score_.score(nodes, n, task, prepared);
    } else {
      score = score_.score(nodes, n, task);
    }
    APIARY_ASSERT(score <= max_score);
    return static_cast<std::uint8_t>((score < max_score ? score : max_score) + 1);
  }
  // The best candidate of these nodes; npos: none.
  [[nodiscard]] std::uint32_t best_in(const score_tree& scores, id_range<node_id> among) {
    if constexpr (chooses) {
      if (among.size() == scores.size()) return score_.choose(scores, nullptr);
      summary_bitset allowed(scores.size());
      allowed.set_range(among.first.value, among.last.value);
      return score_.choose(scores, &allowed);
    } else {
      return scores.best_in(among.first.value, among.last.value);
    }
  }
  // The placement on node n; nullopt if n is npos.
  [[nodiscard]] std::optional<placement> placement_on(const node_table& nodes, std::uint32_t n,
                                                      const task_request& task) {
    if (n == score_tree::npos) return std::nullopt;
    return placement{node_id(n), score_.gpu_mask(nodes, node_id(n), task)};
  }

  Score score_;
  dense_map<kind_id, kind> kinds_;
  std::vector<link> order_;
  std::uint64_t changes_ = 0;
  std::uint32_t score_version_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
