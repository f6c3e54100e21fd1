// apiary/gandiva/detail/servers.h - servers by load, affinity and unsubscribed GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

using gpus_by_server = std::vector<std::pair<node_id, std::uint32_t>>;
// What a job contributes to its server.
struct gandiva_claim {
  node_id server{};           // not valid: it is on no server
  std::uint32_t gpus = 0;     // GPUs that it asked for
  std::uint32_t load = 0;     // the number of these that count: all or none
  bool suspended = false;     // it waits for a time slice, and may migrate
  bool pinned = false;        // it runs on several servers, without time slices
  std::uint32_t sliced = 0;   // GPUs that it gets in its time slices; 0: none of its own
  std::int32_t priority = 0;  // of these time slices
  friend constexpr bool operator==(const gandiva_claim&, const gandiva_claim&) noexcept = default;
};

// The servers of a cluster and their jobs, indexed so that no query scans all servers. The module's
// page defines load, affinity and unsubscribed GPUs; a broken or over-subscribed server has none.
// Cost: change O(log servers), and O(distinct numbers of GPUs of suspended jobs) if the server is
//       over-subscribed; held O(priorities of the server); other queries O(max_gpus_per_node *
//       log64 servers). About 200 bytes a server.
class gandiva_servers {
 public:
  using by_load = std::map<std::pair<std::uint32_t, std::uint32_t>, node_id>;  // by load, id
  // Requires: as server_pool.
  gandiva_servers(std::span<const std::uint32_t> gpus, std::uint32_t servers_per_rack)
      : pool_(gpus, servers_per_rack), servers_(gpus.size()), over_(pool_.num_servers()) {
    for (std::size_t k = 0; k <= max_gpus_per_node; ++k) {
      empty_[k] = unsubscribed_[k] = summary_bitset(pool_.num_servers());
    }
    for (const node_id n : pool_.servers()) index(n, true);
  }
  [[nodiscard]] const server_pool& pool() const noexcept { return pool_; }
  [[nodiscard]] server_pool& pool() noexcept { return pool_; }
  [[nodiscard]] std::uint32_t load(node_id n) const noexcept { return servers_[n.value].load; }
  // The load of jobs on several servers.
  [[nodiscard]] std::uint32_t pinned(node_id n) const noexcept { return servers_[n.value].pinned; }
  // GPUs of the server that jobs on several servers and of higher priority hold. May be more than
  // it has.
  [[nodiscard]] std::uint32_t held(node_id n, std::int32_t priority) const noexcept {
    const server& s = servers_[n.value];
    std::uint32_t sum = s.pinned;
    for (auto at = s.levels.rbegin(); at != s.levels.rend() && at->first > priority; ++at)
      sum += at->second;
    return sum;
  }
  [[nodiscard]] std::uint32_t affinity(node_id n) const noexcept {
    return servers_[n.value].affinity;
  }
  // Whether jobs on several servers leave the GPUs that its affinity says. False: it has none.
  [[nodiscard]] bool takes_affinity(node_id n) const noexcept {
    const server& s = servers_[n.value];
    return s.affinity > 0 && s.affinity <= pool_.gpus(n) && s.pinned + s.affinity <= pool_.gpus(n);
  }
  // Ascending.
  [[nodiscard]] const std::vector<job_id>& jobs(node_id n) const noexcept {
    return servers_[n.value].jobs;
  }
  [[nodiscard]] bool over_subscribed(node_id n) const noexcept { return load(n) > pool_.gpus(n); }
  [[nodiscard]] std::uint32_t unsubscribed(node_id n) const noexcept {
    return pool_.healthy(n) && !over_subscribed(n) ? pool_.gpus(n) - load(n) : 0;
  }
  // The over-subscribed servers.
  [[nodiscard]] const summary_bitset& over() const noexcept { return over_; }
  // The servers with exactly k unsubscribed GPUs. Requires: k > 0.
  [[nodiscard]] const summary_bitset& with_unsubscribed(std::uint32_t k) const noexcept {
    return unsubscribed_[k];
  }
  // How many they are.
  [[nodiscard]] std::uint32_t num_with_unsubscribed(std::uint32_t k) const noexcept {
    return num_unsubscribed_[k];
  }
  // The least loaded healthy server of affinity `gpus` on which a job of that size can get time
  // slices. Here and below: ties go to the lowest id; not valid: there is none; requires gpus > 0.
  [[nodiscard]] node_id least_loaded(std::uint32_t gpus) const noexcept {
    if (gpus > max_gpus_per_node || by_affinity_[gpus].empty()) return {};
    return by_affinity_[gpus].begin()->second;
  }
  // The lowest empty server of at least `gpus` GPUs.
  [[nodiscard]] node_id empty(std::uint32_t gpus) const noexcept {
    std::uint32_t best = summary_bitset::npos;
    for (; gpus <= max_gpus_per_node; ++gpus) best = (std::min)(best, empty_[gpus].find_first());
    return best == summary_bitset::npos ? node_id() : node_id(best);
  }
  // The server with the fewest unsubscribed GPUs that are at least `gpus`.
  [[nodiscard]] node_id tightest(std::uint32_t gpus) const noexcept {
    for (; gpus <= max_gpus_per_node; ++gpus) {
      const std::uint32_t n = unsubscribed_[gpus].find_first();
      if (n != summary_bitset::npos) return node_id(n);
    }
    return {};
  }
  // The most unsubscribed GPUs of any server.
  [[nodiscard]] std::uint32_t max_unsubscribed() const noexcept {
    std::uint32_t k = max_gpus_per_node;
    while (k > 0 && unsubscribed_[k].none()) --k;
    return k;
  }
  // Unsubscribed GPUs of several servers, those with the most first; empty if all have too few.
  [[nodiscard]] gpus_by_server spread(std::uint32_t gpus) const {
    gpus_by_server split;
    if (gpus > unsubscribed_gpus_) return split;
    for (std::uint32_t k = max_gpus_per_node; k > 0 && gpus > 0; --k) {
      for (std::uint32_t n = unsubscribed_[k].find_first(); n != summary_bitset::npos && gpus > 0;
           n = unsubscribed_[k].find_next(n + 1)) {
        split.emplace_back(node_id(n), (std::min)(gpus, k));
        gpus -= split.back().second;
      }
    }
    return split;
  }
  // The most over-subscribed server with a suspended job of at most `most` GPUs.
  [[nodiscard]] node_id fullest(std::uint32_t most) const noexcept {
    const by_excess::value_type* best = nullptr;
    for (std::uint32_t k = 1; k <= (std::min)(most, max_gpus_per_node); ++k) {
      if (movable_[k].empty()) continue;
      if (best == nullptr || movable_[k].begin()->first < best->first) best = &*movable_[k].begin();
    }
    return best == nullptr ? node_id() : best->second;
  }
  // Records that a job's claim was `before` and is `after`.
  void change(job_id job, const gandiva_claim& before, const gandiva_claim& after) {
    const bool stays = before.server == after.server;
    if (!stays || before.sliced != after.sliced) {
      hold(before, false);
      hold(after, true);
    }
    if (stays && before.load == after.load) {
      if (before.suspended != after.suspended) wait(after.server, after.gpus, after.suspended);
      return;
    }
    if (before.server.valid()) {
      index(before.server, false);
      server& s = servers_[before.server.value];
      s.load -= before.load;
      s.pinned -= before.pinned ? before.load : 0;
      if (before.suspended) --s.suspended[before.gpus];
      if (!stays) {
        erase_sorted(s.jobs, job);
        if (s.jobs.empty()) s.affinity = 0;
        index(before.server, true);
      }
    }
    if (!after.server.valid()) return;
    if (!stays) index(after.server, false);
    server& s = servers_[after.server.value];
    s.load += after.load;
    s.pinned += after.pinned ? after.load : 0;
    if (after.suspended) ++s.suspended[after.gpus];
    if (!stays) {
      if (s.jobs.empty()) s.affinity = after.gpus;
      insert_sorted(s.jobs, job);
    }
    index(after.server, true);
  }
  void set_health(node_id n, bool healthy) {
    index(n, false);
    pool_.set_health(n, healthy);
    index(n, true);
  }

 private:
  using by_excess = std::map<std::pair<std::int64_t, std::uint32_t>, node_id>;  // GPUs - load, id
  struct server {
    std::vector<job_id> jobs{};
    std::uint32_t load = 0;
    std::uint32_t pinned = 0;
    std::uint32_t affinity = 0;
    std::vector<std::pair<std::int32_t, std::uint32_t>> levels{};  // sliced GPUs by priority
    std::array<std::uint32_t, max_gpus_per_node + 1> suspended{};  // jobs by GPUs
  };
  // Counts the sliced GPUs of a job in, or out.
  void hold(const gandiva_claim& c, bool more) {
    if (!c.server.valid() || c.sliced == 0) return;
    auto& levels = servers_[c.server.value].levels;
    auto at = std::lower_bound(levels.begin(), levels.end(), std::pair(c.priority, 0U));
    if (at == levels.end() || at->first != c.priority) at = levels.insert(at, {c.priority, 0});
    at->second += more ? c.sliced : 0U - c.sliced;
    if (at->second == 0) levels.erase(at);
  }
  // Counts one more suspended job of so many GPUs, or one less; nothing else changes.
  void wait(node_id n, std::uint32_t gpus, bool more) {
    server& s = servers_[n.value];
    s.suspended[gpus] += more ? 1U : ~0U;
    if (s.suspended[gpus] == (more ? 1U : 0U) && pool_.healthy(n) && over_subscribed(n)) {
      put(movable_[gpus], std::int64_t{pool_.gpus(n)} - s.load, n, more);
    }
  }
  // Adds the server to the indices, or removes it.
  void index(node_id n, bool in) {
    if (!pool_.healthy(n)) return;
    const server& s = servers_[n.value];
    const std::uint32_t gpus = pool_.gpus(n);
    if (s.affinity == 0) empty_[gpus].assign(n.value, in);
    if (takes_affinity(n)) put(by_affinity_[s.affinity], s.load, n, in);
    if (s.load < gpus) {
      unsubscribed_[gpus - s.load].assign(n.value, in);
      num_unsubscribed_[gpus - s.load] += in ? 1U : ~0U;
      unsubscribed_gpus_ += in ? gpus - s.load : s.load - gpus;
    }
    if (s.load <= gpus) return;
    over_.assign(n.value, in);
    for (std::uint32_t k = 1; k <= gpus; ++k) {
      if (s.suspended[k] > 0) put(movable_[k], std::int64_t{gpus} - s.load, n, in);
    }
  }
  template <class Key>
  static void put(std::map<std::pair<Key, std::uint32_t>, node_id>& index, Key key, node_id n,
                  bool in) {
    if (in) {
      index.emplace(std::pair(key, n.value), n);
    } else {
      index.erase({key, n.value});
    }
  }

  template <class T>
  using by_gpus = std::array<T, max_gpus_per_node + 1>;
  server_pool pool_;
  std::vector<server> servers_;
  by_gpus<by_load> by_affinity_;
  by_gpus<summary_bitset> empty_;              // by GPUs
  by_gpus<summary_bitset> unsubscribed_;       // by unsubscribed GPUs
  by_gpus<std::uint32_t> num_unsubscribed_{};  // servers, by unsubscribed GPUs
  by_gpus<by_excess> movable_;                 // by the GPUs of a suspended job
  summary_bitset over_;
  std::uint32_t unsubscribed_gpus_ = 0;  // of all servers
};

}  // namespace detail
APIARY_NAMESPACE_END
