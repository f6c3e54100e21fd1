// apiary/philly/detail/locality_search.h - where a gang runs, and which gangs must stop for it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/philly/options.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The number of GPUs of a placement.
[[nodiscard]] inline std::uint32_t gpus_of(std::span<const placement> where) noexcept {
  std::uint32_t gpus = 0;
  for (const placement& p : where) gpus += p.num_gpus();
  return gpus;
}

// Finds GPUs of a pool by locality, and takes and gives them. A job for one server goes anywhere in
// the pool, a larger job to the least occupied rack in which it fits. The pool chooses the servers.
// Cost: a search: one fit() for a job of one server, else O(racks), and a fit() and O(log racks)
//       for each rack that is tried. aim: O(racks) and a most_idle(); O(servers log servers) if
//       servers differ in size and those with the most idle GPUs are too small.
class locality_search {
 public:
  // Requires: the pool has a server.
  explicit locality_search(server_pool pool) : pool_(std::move(pool)) {
    for (std::uint32_t rack = 0; rack < pool_.num_racks(); ++rack) {
      largest_.push_back(sums_of_largest(pool_.servers_of(rack)));
    }
  }

  // The pool.
  [[nodiscard]] const server_pool& pool() const noexcept { return pool_; }

  // A placement of `gpus` GPUs; empty if there is none now. Requires: 0 < gpus <= pool().total().
  [[nodiscard]] job_placement look(std::uint32_t gpus, job_locality locality) {
    if (gpus > pool_.idle()) return {};
    if (pool_.fewest_servers(gpus) == 1) {
      job_placement where = pool_.fit(pool_.servers(), gpus, 1);
      if (!where.empty() || locality == job_locality::packed) return where;
    }
    if (locality != job_locality::anywhere && in_a_rack(gpus)) {
      open_racks_.clear();  // a heap with the rack with the most idle GPUs first
      for (std::uint32_t r = 0; r < pool_.num_racks(); ++r)
        if (pool_.idle(r) >= gpus) open_racks_.push_back(r);
      const auto later = [&](std::uint32_t a, std::uint32_t b) { return is_before(b, a); };
      std::make_heap(open_racks_.begin(), open_racks_.end(), later);
      while (!open_racks_.empty()) {
        const std::uint32_t rack = open_racks_.front();
        job_placement where =
            pool_.fit(pool_.servers_of(rack), gpus, max_servers_of(rack, gpus, locality));
        if (!where.empty()) return where;
        std::pop_heap(open_racks_.begin(), open_racks_.end(), later);
        open_racks_.pop_back();
      }
      return {};
    }
    return pool_.fit(pool_.servers(), gpus, max_servers(gpus, locality));
  }
  // As look(); remembers a failure for failed().
  [[nodiscard]] job_placement find(std::uint32_t gpus, job_locality locality) {
    job_placement where = look(gpus, locality);
    if (where.empty()) failed_.emplace_back(gpus, locality);
    return where;
  }
  // Begins a round. Earlier failures still hold, unless GPUs have become idle since.
  void begin_round() noexcept {
    if (std::exchange(given_, false)) failed_.clear();
  }
  // Whether a search for so many GPUs at this locality has failed.
  [[nodiscard]] bool failed(std::uint32_t gpus, job_locality locality) const noexcept {
    return std::find(failed_.begin(), failed_.end(), std::pair(gpus, locality)) != failed_.end();
  }

  // The servers on which a job that does not fit collects, large enough together: those with the
  // most idle GPUs, in the rack with the most idle GPUs of those that could hold the job.
  [[nodiscard]] std::vector<node_id> aim(std::uint32_t gpus, job_locality locality) const {
    id_range<node_id> among = pool_.servers();
    std::uint32_t most = max_servers(gpus, locality);
    if (locality != job_locality::anywhere && in_a_rack(gpus) && most > 1) {
      std::optional<std::uint32_t> rack;
      for (std::uint32_t r = 0; r < pool_.num_racks(); ++r)
        if (pool_.total(r) >= gpus && (!rack || is_before(r, *rack))) rack = r;
      among = pool_.servers_of(*rack);
      most = max_servers_of(*rack, gpus, locality);
    }
    std::vector<node_id> servers = pool_.most_idle(among, most);
    std::uint32_t size = 0;
    for (const node_id n : servers) size += pool_.gpus(n);
    if (size >= gpus) return servers;
    servers = pool_.most_idle(among, among.size());
    std::stable_sort(servers.begin(), servers.end(),
                     [&](node_id a, node_id b) { return pool_.gpus(a) > pool_.gpus(b); });
    servers.resize((std::min<std::size_t>)(servers.size(), most));
    return servers;
  }

  // The job gets these idle GPUs.
  void take(job_id job, std::span<const placement> where) { pool_.take(job, where); }
  // These GPUs become idle.
  void give(std::span<const placement> where) {
    pool_.give(where);
    given_ = true;
  }
  // The job gets k more GPUs of a server; they are added to `where`. Requires: k <= pool().idle(n).
  void add(job_id job, node_id n, std::uint32_t k, job_placement& where) {
    const placement more = pool_.pick_idle(n, k);
    pool_.take(job, {&more, 1});
    const auto at =
        std::lower_bound(where.begin(), where.end(), n,
                         [](const placement& p, node_id node) { return p.node < node; });
    if (at != where.end() && at->node == n) {
      at->gpu_mask |= more.gpu_mask;
    } else {
      where.insert(at, more);
    }
  }
  // Sets the health of a server. Returns the jobs with GPUs there, ascending. kNotFound: no server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> set_health(node_id n, bool healthy) {
    if (n.value >= pool_.num_servers()) {
      return absl::NotFoundError(absl::StrCat("there is no server ", n.value));
    }
    pool_.set_health(n, healthy);
    given_ = true;
    std::vector<job_id> there;
    for (std::uint32_t d = 0; d < pool_.gpus(n); ++d) {
      if (pool_.owner(n, d).valid()) there.push_back(pool_.owner(n, d));
    }
    sort_unique(there);
    return there;
  }

 private:
  // The GPUs of the 1, 2, ... largest of these servers.
  [[nodiscard]] std::vector<std::uint32_t> sums_of_largest(id_range<node_id> servers) const {
    std::vector<std::uint32_t> sums;
    for (const node_id n : servers) sums.push_back(pool_.gpus(n));
    std::sort(sums.begin(), sums.end(), std::greater<>());
    for (std::size_t i = 1; i < sums.size(); ++i) sums[i] += sums[i - 1];
    return sums;
  }
  // Whether a rack has so many GPUs.
  [[nodiscard]] bool in_a_rack(std::uint32_t gpus) const noexcept {
    return std::any_of(largest_.begin(), largest_.end(),
                       [&](const auto& sums) { return sums.back() >= gpus; });
  }
  // How many servers a job of so many GPUs may span: of all, and of a rack that could hold it.
  [[nodiscard]] std::uint32_t max_servers(std::uint32_t gpus, job_locality locality) const {
    return locality == job_locality::packed ? pool_.fewest_servers(gpus) : pool_.num_servers();
  }
  [[nodiscard]] std::uint32_t max_servers_of(std::uint32_t rack, std::uint32_t gpus,
                                             job_locality locality) const {
    const std::vector<std::uint32_t>& sums = largest_[rack];
    if (locality != job_locality::packed) return static_cast<std::uint32_t>(sums.size());
    const auto enough = std::lower_bound(sums.begin(), sums.end(), gpus);
    return static_cast<std::uint32_t>(enough - sums.begin()) + 1;
  }
  // Whether rack a is tried before rack b.
  [[nodiscard]] bool is_before(std::uint32_t a, std::uint32_t b) const {
    return pool_.idle(a) != pool_.idle(b) ? pool_.idle(a) > pool_.idle(b) : a < b;
  }

  server_pool pool_;
  std::vector<std::vector<std::uint32_t>> largest_;  // sums_of_largest for each rack
  std::vector<std::pair<std::uint32_t, job_locality>> failed_;
  std::vector<std::uint32_t> open_racks_;  // of the search that runs
  bool given_ = false;                     // GPUs have become idle since failed_ was cleared
};

// A running job that may be preempted.
struct philly_candidate {
  job_id job{};
  time_ms started = 0;
  job_placement where{};
};

// Indices of the candidates that must stop so that a job with `gpus` GPUs fits; empty if it does
// not fit even without all. Removes candidates in order until the job fits; then puts back, from
// the last one on, each one that is not needed. At the end `search` is unchanged.
// Requires: the candidates run at their placements. Cost: O(candidates) searches for a placement.
[[nodiscard]] inline std::vector<std::size_t> choose_victims(
    locality_search& search, std::span<const philly_candidate> candidates, std::uint32_t gpus,
    job_locality locality) {
  std::size_t n = 0;
  bool fits = false;
  while (n < candidates.size() && !fits) {
    search.give(candidates[n++].where);
    fits = !search.look(gpus, locality).empty();
  }
  std::vector<std::size_t> victims;
  while (n > 0) {
    --n;
    search.take(candidates[n].job, candidates[n].where);
    if (!fits || !search.look(gpus, locality).empty()) continue;
    search.give(candidates[n].where);
    victims.push_back(n);
  }
  for (const std::size_t i : victims) search.take(candidates[i].job, candidates[i].where);
  return victims;
}

}  // namespace detail
APIARY_NAMESPACE_END
