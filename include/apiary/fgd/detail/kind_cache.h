// apiary/fgd/detail/kind_cache.h - the best node for a task, with cached scores for kinds of request.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/best_score_placer.h>
#include <apiary/fgd/detail/unfit_requests.h>
#include <apiary/fgd/node_score.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Keeps a best_score_placer, and which kind of it a request is. If there are more kinds than
// max_kinds, a new one replaces the one that was not used for the longest time.
//
// If a score falls with CPU (see NodeScore) and there are many kinds, a rare kind has no cached
// scores of its own. If it is known that a task with no more requests fits on no node, nothing is
// scored. If the host suggests few nodes, each of them is scored for the task. Otherwise the task uses
// the scores of a kind with less CPU: they are upper bounds. This kind has the two highest bits of
// the task's CPU. The best nodes by them that have enough CPU and memory left are scored for the
// task, until no other node can be better. If that takes too many nodes, the bounds are too high for
// tasks like this one: these then use the kind with three bits of their CPU, and so on, in the end
// their own.
template <NodeScore Score>
class kind_cache : public best_score_placer<Score> {
  using base = best_score_placer<Score>;

 public:
  // The most kinds with cached scores.
  static constexpr std::uint32_t max_kinds = 1024;
  // While fewer kinds have cached scores, a rare kind also gets scores of its own.
  static constexpr std::uint32_t kinds_before_bounds = 256;
  // The most nodes that are scored for a task of a rare kind; in a large cluster an eighth of all
  // nodes, up to max_scored_in_large.
  static constexpr std::uint32_t max_scored = 64;
  static constexpr std::uint32_t max_scored_in_large = 1024;
  // What a score prepared for a rare kind is kept for so many kinds, one for each hash value.
  static constexpr std::size_t max_prepared = 8192;
  // A kind is rare if nodes have changed more often than this since its last use.
  static constexpr std::uint64_t changes_until_rare = 128;

  using base::base;

  // Where the task would run, in `allowed` only if that is not null; nullopt: nowhere now.
  // Requires: task.valid().
  [[nodiscard]] std::optional<placement> place(const node_table& nodes, const task_request& task,
                                               const summary_bitset* allowed) {
    if constexpr (base::falls_with_cpu()) {
      if (kinds_.size() >= kinds_before_bounds && is_rare(task)) {
        if (!unfit_) unfit_.emplace(nodes);
        if (unfit_->fits_nowhere(task)) return std::nullopt;
        auto found = place_rare(nodes, task, allowed);
        if (!found.decided)
          found.where = base::place(nodes, kind_of(nodes, task).kind, allowed, task.memory_mib);
        if (!found.where && allowed == nullptr) unfit_->learn(task);
        return found.where;
      }
    }
    return base::place(nodes, kind_of(nodes, task).kind, allowed, task.memory_mib);
  }
  // As best_score_placer::place_apart. The kind of the task gets scores of its own, even a rare one.
  [[nodiscard]] bool place_apart(const node_table& nodes, const task_request& task,
                                 id_range<node_id> among, std::uint32_t count,
                                 std::vector<placement>& where) {
    return base::place_apart(nodes, kind_of(nodes, task).kind, among, count, where);
  }
  // Whether the task fits on any node now. Requires: task.valid().
  [[nodiscard]] bool fits_somewhere(const node_table& nodes, const task_request& task) {
    if constexpr (base::falls_with_cpu()) return place(nodes, task, nullptr).has_value();
    return base::fits_somewhere(nodes, kind_of(nodes, task).kind, task.memory_mib);
  }
  // Must be called after each change of node n.
  void update(const node_table& nodes, node_id n) {
    base::update(nodes, n);
    if (unfit_) unfit_->update(nodes, n);
  }
  // Must be called for each new id of the table, in their order.
  void add(const node_table& nodes, node_id n) {
    base::add(nodes, n);
    if (unfit_) unfit_->update(nodes, n);
  }
  // Takes another score. The kinds stay.
  void set_score(const node_table& nodes, Score score) {
    base::set_score(nodes, std::move(score));
    prepared_.clear();
  }

 private:
  // What tells kinds of request apart.
  struct kind_key {
    std::uint64_t host;  // CPU, and memory unless the score ignores it
    std::uint64_t gpus;  // the number of GPUs, and the thousandths of each
    model_set models;
    friend auto operator<=>(const kind_key&, const kind_key&) noexcept = default;
  };
  // What the score prepared for a kind.
  struct prepared_kind {
    kind_key key{.host = 0, .gpus = 0, .models = 0};  // no kind has this key
    [[no_unique_address]] typename prepared_for<Score>::type prepared{};
  };
  // A kind with cached scores.
  struct cached_kind {
    kind_key key;
    kind_id kind;
    std::uint64_t last_use = 0;
    // Its scores are too high as bounds for kinds that have so many highest bits of CPU in common.
    std::uint32_t too_few_bits = 0;
  };

  [[nodiscard]] static kind_key key_of(const task_request& task) noexcept {
    const std::uint32_t memory = base::kinds_ignore_memory() ? 0 : task.memory_mib;
    const std::uint64_t host = std::uint64_t{task.cpu_milli} << 32 | memory;
    if (!task.wants_gpu()) return {host, 0, any_model};
    return {host, std::uint64_t{task.gpus} << 32 | task.gpu_milli, task.models};
  }
  // Where a kind with this key is in kinds_, or would be.
  [[nodiscard]] auto position_of(const kind_key& key) {
    return std::lower_bound(kinds_.begin(), kinds_.end(), key,
                            [](const cached_kind& a, const kind_key& b) { return a.key < b; });
  }
  // The cached kind with this key; kinds_.end() if there is none.
  [[nodiscard]] auto find_kind(const kind_key& key) {
    const auto at = position_of(key);
    return at != kinds_.end() && at->key == key ? at : kinds_.end();
  }
  // The kind of the task, which is cached from now on; valid until the next call.
  [[nodiscard]] cached_kind& kind_of(const node_table& nodes, const task_request& task) {
    const kind_key key = key_of(task);
    auto found = find_kind(key);
    if (found == kinds_.end()) {
      cached_kind added{.key = key, .kind = {}};
      if (kinds_.size() < max_kinds) {
        added.kind = base::prepare(nodes, task);
      } else {
        const auto oldest =
            std::min_element(kinds_.begin(), kinds_.end(),
                             [](const auto& a, const auto& b) { return a.last_use < b.last_use; });
        added.kind = oldest->kind;
        base::replace(added.kind, nodes, task);
        kinds_.erase(oldest);
      }
      found = kinds_.insert(position_of(key), added);
    }
    found->last_use = ++uses_;
    return *found;
  }
  // Whether the cached scores of the task's kind are missing, or old.
  [[nodiscard]] bool is_rare(const task_request& task) {
    const auto found = find_kind(key_of(task));
    return found == kinds_.end() || base::changes_since(found->kind) > changes_until_rare;
  }
  // Where a task of a rare kind would run. Not decided: its kind needs scores of its own.
  [[nodiscard]] auto place_rare(const node_table& nodes, const task_request& task,
                                const summary_bitset* allowed) -> typename base::limited_placement {
    if (allowed != nullptr && are_few(*allowed)) {
      if (few_.empty()) return {.decided = true};
      return {.decided = true, .where = base::place_among(nodes, ask(nodes, task), few_)};
    }
    const std::uint32_t limit =
        (std::max)(max_scored, (std::min)(max_scored_in_large, nodes.size() / 8));
    const auto bits = static_cast<std::uint32_t>(std::bit_width(task.cpu_milli));
    const auto candidates = unfit_->candidates_for(task);
    const auto may_fit = [&](node_id n) { return candidates.contain(n); };
    const auto asked = ask(nodes, task);
    task_request with_less_cpu = task;  // only the highest bits of its CPU
    for (std::uint32_t kept = 2; kept < bits; ++kept) {
      const std::uint32_t dropped = bits - kept;
      with_less_cpu.cpu_milli = task.cpu_milli >> dropped << dropped;
      if (with_less_cpu.cpu_milli == task.cpu_milli) break;
      cached_kind& less = kind_of(nodes, with_less_cpu);
      if (kept <= less.too_few_bits) continue;
      const auto found = base::place_by_bounds(nodes, less.kind, asked, allowed, limit, may_fit);
      // If not all nodes are allowed, perhaps only the best ones are not.
      if (!found.decided && allowed == nullptr) less.too_few_bits = kept;
      return found;
    }
    return {};
  }
  // As base::ask(), but known for kinds that arrived lately.
  [[nodiscard]] auto ask(const node_table& nodes, const task_request& task) ->
      typename base::asked_task {
    if constexpr (PreparedScore<Score>) {
      if (prepared_.empty()) prepared_.resize(max_prepared);
      const kind_key key = key_of(task);
      const std::uint64_t hash = digest().add(key.host).add(key.gpus).add(key.models).value();
      prepared_kind& known = prepared_[hash % max_prepared];
      if (known.key != key) known = {key, base::ask(nodes, task).prepared};
      return {task, known.prepared};
    } else {
      return base::ask(nodes, task);
    }
  }
  // Whether few nodes are allowed, which few_ then has.
  [[nodiscard]] bool are_few(const summary_bitset& allowed) {
    few_.clear();
    std::uint32_t n = allowed.find_first();
    for (; n != summary_bitset::npos && few_.size() < max_scored; n = allowed.find_next(n + 1))
      few_.push_back(node_id(n));
    return n == summary_bitset::npos;
  }

  std::vector<cached_kind> kinds_;  // by key
  std::uint64_t uses_ = 0;
  std::optional<unfit_requests> unfit_{};  // from the first task of a rare kind on
  std::vector<node_id> few_{};             // candidates for a task
  std::vector<prepared_kind> prepared_{};  // by hash value
};

}  // namespace detail
APIARY_NAMESPACE_END
