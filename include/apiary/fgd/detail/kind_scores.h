// apiary/fgd/detail/kind_scores.h - the node with the highest score for a task, without a scan.
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

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

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
//
// A kind is all tasks that are equal except for their job id, and except for their memory if the
// score ignores it. If there are more kinds than max_kinds, a new one replaces the one that was not
// used for the longest time.
//
// Model:    the argmin over nodes of the change of a metric, "Beware of Fragmentation" (USENIX ATC
//           2023), section 4, for any score and any filter.
// Requires: every call gets the same table, update() is called after each change of a node, and
//           add() when the table gets a new id; tasks are valid().
// Cost:     place: one score for each node that changed since the last call for this kind, then
//           O(log64 nodes); with `allowed`, or with memory that the score ignores, as
//           score_tree::best_of. A kind that is new, or was replaced, first scores all nodes where
//           it fits. update, add: O(score.update), add amortized. After set_score, the next call
//           for each kind scores all nodes.
//           Memory: 1.02 bytes for each node and kind, and 16 bytes for each node.
template <NodeScore Score>
class kind_scores {
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
  // The most kinds with cached scores.
  static constexpr std::uint32_t max_kinds = 1024;

  // Calls score.update() for every node.
  kind_scores(const node_table& nodes, Score score) : score_(std::move(score)), order_(1) {
    order_.reserve(nodes.size() + std::size_t{1});
    for (const node_id n : nodes.ids()) add(nodes, n);
  }

  // Where the task would run, in `allowed` only (one bit for each node) if that is not null;
  // nullopt if it fits on no node now.
  [[nodiscard]] std::optional<placement> place(const node_table& nodes, const task_request& task,
                                               const summary_bitset* allowed) {
    const kind& wanted = kind_of(nodes, task);
    std::uint32_t n = 0;
    if constexpr (chooses) {
      n = score_.choose(wanted.scores, allowed);
    } else if (ignores_memory && task.memory_mib > 0) {
      n = wanted.scores.best_where([&](std::uint32_t i) {
        return nodes[node_id(i)].left.memory_mib >= task.memory_mib &&
               (allowed == nullptr || allowed->test(i));
      });
    } else {
      n = allowed == nullptr ? wanted.scores.best() : wanted.scores.best_of(*allowed);
    }
    return placement_on(nodes, n, wanted.request);
  }
  // Whether the task fits on any node now.
  [[nodiscard]] bool fits_somewhere(const node_table& nodes, const task_request& task) {
    const score_tree& scores = kind_of(nodes, task).scores;
    if (!ignores_memory || task.memory_mib == 0) return scores.candidates() > 0;
    return scores.best_where([&](std::uint32_t i) {
      return nodes[node_id(i)].left.memory_mib >= task.memory_mib;
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
    score_tree scores{};
    std::uint64_t seen = 0;           // changes up to this number are in the scores
    std::uint32_t score_version = 0;  // which score gave them
  };
  // What tells kinds of request apart.
  struct kind_key {
    std::uint64_t host;  // CPU, and memory unless the score ignores it
    std::uint64_t gpus;  // the number of GPUs, and the thousandths of each
    model_set models;
    friend auto operator<=>(const kind_key&, const kind_key&) noexcept = default;
  };
  struct known_kind {
    kind_key key;
    std::uint32_t number;  // in kinds_
    std::uint64_t last_use;
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

  [[nodiscard]] static kind_key key_of(const task_request& task) noexcept {
    const std::uint32_t memory = ignores_memory ? 0 : task.memory_mib;
    const std::uint64_t host = std::uint64_t{task.cpu_milli} << 32 | memory;
    if (!task.wants_gpu()) return {host, 0, any_model};
    return {host, std::uint64_t{task.gpus} << 32 | task.gpu_milli, task.models};
  }
  // The kind of the task, with the scores of all nodes as they are; valid until the next call.
  [[nodiscard]] kind& kind_of(const node_table& nodes, const task_request& task) {
    const kind_key key = key_of(task);
    const auto position = [&] {
      return std::lower_bound(known_.begin(), known_.end(), key,
                              [](const known_kind& a, const kind_key& b) { return a.key < b; });
    };
    auto found = position();
    if (found == known_.end() || found->key != key) {
      auto number = static_cast<std::uint32_t>(kinds_.size());
      if (number < max_kinds) {
        kinds_.emplace_back();
      } else {
        const auto oldest = std::min_element(
            known_.begin(), known_.end(),
            [](const known_kind& a, const known_kind& b) { return a.last_use < b.last_use; });
        number = oldest->number;
        known_.erase(oldest);
        found = position();
      }
      found = known_.insert(found, {key, number, 0});
      fill(kinds_[number], nodes, task);
    }
    found->last_use = ++uses_;
    kind& wanted = kinds_[found->number];
    refresh(wanted, nodes);
    return wanted;
  }
  void fill(kind& k, const node_table& nodes, const task_request& task) {
    APIARY_ASSERT(task.valid());
    k.request = task;
    if (ignores_memory) k.request.memory_mib = 0;
    if constexpr (PreparedScore<Score>) k.prepared = score_.prepare(nodes, k.request);
    k.scores = score_tree(nodes.size());
    k.seen = changes_;
    k.score_version = score_version_;
    for (const node_id n : nodes.ids()) rescore(nodes, k, n);
  }
  void refresh(kind& wanted, const node_table& nodes) {
    if (wanted.score_version != score_version_) fill(wanted, nodes, task_request(wanted.request));
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
  }
  void rescore(const node_table& nodes, kind& k, node_id n) const {
    k.scores.set(n.value, entry_of(nodes, n, k));
  }
  // What a tree has for node n: the score + 1; 0: the task does not fit there.
  [[nodiscard]] std::uint8_t entry_of(const node_table& nodes, node_id n, const kind& k) const {
    if (!nodes[n].fits(k.request)) return 0;
    std::uint32_t score = 0;
    if constexpr (PreparedScore<Score>) {
      score = score_.score(nodes, n, k.request, k.prepared);
    } else {
      score = score_.score(nodes, n, k.request);
    }
    APIARY_ASSERT(score <= max_score);
    return static_cast<std::uint8_t>((std::min)(score, max_score) + 1);
  }
  // The placement on node n; nullopt if n is npos.
  [[nodiscard]] std::optional<placement> placement_on(const node_table& nodes, std::uint32_t n,
                                                      const task_request& task) {
    if (n == score_tree::npos) return std::nullopt;
    return placement{node_id(n), score_.gpu_mask(nodes, node_id(n), task)};
  }

  Score score_;
  std::vector<known_kind> known_{};  // by key
  std::vector<kind> kinds_{};
  std::vector<link> order_;
  std::uint64_t changes_ = 0;
  std::uint64_t uses_ = 0;
  std::uint32_t score_version_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
