// apiary/gandiva/detail/moves.h - which running jobs Gandiva migrates, and which grow.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/timer_queue.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/elastic.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/migration.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Brings jobs on several servers together after departures, and empties servers
// (gandiva/detail/migration.h). A job that started or moved less than `rest` ago does not move: it would
// lose too much of its time.
//
// Cost: gather O(16 s log s) a job over s servers; defragment O(servers in use with GPUs to spare
//       and the jobs of those that are left), and nothing where none has the threshold to spare.
class gandiva_migration {
 public:
  gandiva_migration(std::uint32_t threshold, time_ms rest, const move_gains& gains)
      : threshold_(threshold), rest_(rest), gains_(gains) {}

  void gather(gandiva_jobs& jobs, time_ms now) const {
    for (const job_id job : std::vector<job_id>(jobs.wide().begin(), jobs.wide().end())) {
      gandiva_job& r = jobs.at(job);
      if (!may_move(jobs, r, now)) continue;
      std::vector<node_id> some;
      for (const placement& p : r.place) some.push_back(p.node);
      for (std::uint32_t k = 1; k <= max_gpus_per_node; ++k) {
        const summary_bitset& sparing = jobs.servers().sparing(k);
        std::size_t left = r.place.size();
        for (std::uint32_t n = sparing.find_first(); n != summary_bitset::npos && left > 0;
             n = sparing.find_next(n + 1), --left) {
          some.push_back(node_id(n));
        }
      }
      const view v(jobs, std::move(some));
      std::vector<gpus_on_server> own;
      for (const placement& p : r.place) own.push_back({v.index_of(p.node), p.num_gpus()});
      const std::vector<gpus_on_server> to = detail::gather(v.capacities, own);
      if (!to.empty()) jobs.migrate(r, v.places(to));
    }
  }

  // Returns whether a job moved, or may move later.
  bool defragment(gandiva_jobs& jobs, time_ms now) const {
    bool any = false;
    std::vector<node_id> some;
    for (std::uint32_t k = max_gpus_per_node; k > 0 && (any || k >= threshold_); --k) {
      const summary_bitset& sparing = jobs.servers().sparing(k);
      for (std::uint32_t n = sparing.find_first(); n != summary_bitset::npos;
           n = sparing.find_next(n + 1)) {
        if (jobs.servers().load(node_id(n)) == 0) continue;
        any = true;
        some.push_back(node_id(n));
      }
    }
    const view v(jobs, std::move(some));
    std::vector<resident> residents;
    bool more = false;
    for (std::uint32_t at = 0; at < v.servers.size(); ++at) {
      if (v.capacities[at].free < threshold_) continue;
      for (const job_id job : jobs.servers().jobs(v.servers[at])) {
        const gandiva_job& r = jobs.at(job);
        if (r.home != v.servers[at] || !r.runs() || r.packed()) continue;
        const bool may = may_move(jobs, r, now);
        more |= !may;
        residents.push_back({job, at, r.request.gpus, may});
      }
    }
    for (const migration& m : detail::defragment(v.capacities, residents, threshold_, gains_)) {
      more = true;
      gandiva_job& r = jobs.at(m.job);
      if (jobs.acted(r)) break;  // it shrank for a new job: the other moves wait for the next time
      jobs.migrate(r, v.places(m.to));
    }
    return more;
  }

 private:
  // Some of the servers, numbered in ascending order.
  struct view {
    view(const gandiva_jobs& jobs, std::vector<node_id> some) : servers(std::move(some)) {
      std::sort(servers.begin(), servers.end());
      servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
      for (const node_id n : servers)
        capacities.push_back({jobs.pool().gpus(n), jobs.servers().spare(n)});
    }
    [[nodiscard]] std::uint32_t index_of(node_id n) const {
      return static_cast<std::uint32_t>(std::lower_bound(servers.begin(), servers.end(), n) -
                                        servers.begin());
    }
    [[nodiscard]] std::vector<std::pair<node_id, std::uint32_t>> places(
        const std::vector<gpus_on_server>& shares) const {
      std::vector<std::pair<node_id, std::uint32_t>> to;
      for (const gpus_on_server& share : shares) to.emplace_back(servers[share.server], share.gpus);
      return to;
    }

    std::vector<node_id> servers;
    std::vector<server_capacity> capacities{};
  };

  [[nodiscard]] bool may_move(const gandiva_jobs& jobs, const gandiva_job& r, time_ms now) const {
    return !jobs.acted(r) && add_time(r.moved, rest_) <= now;
  }

  std::uint32_t threshold_;
  time_ms rest_;
  move_gains gains_;
};

// Lets jobs grow to GPUs of their server on which nothing has changed for a while
// (gandiva/detail/elastic.h).
//
// Cost: watch O(jobs of the server + log servers); grow the same for each server whose period is over.
class gandiva_growth {
 public:
  explicit gandiva_growth(time_ms idle_period) : period_(idle_period) {}

  // When jobs of a server may grow next; max_time: none.
  [[nodiscard]] time_ms next() const noexcept {
    return timers_.empty() ? max_time : timers_.first().at;
  }
  // Something changed on the server: starts its idle period anew.
  void watch(const gandiva_jobs& jobs, node_id n, time_ms now) {
    const std::vector<elastic_job> elastic = jobs.elastic(n);
    const bool may = jobs.servers().spare(n) > 0 && jobs.pool().idle(n) > 0 &&
                     std::any_of(elastic.begin(), elastic.end(),
                                 [](const elastic_job& j) { return j.has < j.most; });
    if (may) {
      timers_.set(n.value, add_time(now, period_));
    } else {
      timers_.cancel(n.value);
    }
  }
  // Grows the jobs of the servers whose idle period is over.
  void grow(gandiva_jobs& jobs, time_ms now) {
    while (!timers_.empty() && timers_.first().at <= now) {
      const node_id n(timers_.pop().id);
      for (const resize& r : detail::grow(jobs.elastic(n), jobs.pool().idle(n), period_, period_)) {
        jobs.enlarge(jobs.at(r.job), r.gpus);
      }
    }
  }

 private:
  time_ms period_;
  timer_queue timers_;  // by server
};

}  // namespace detail
APIARY_NAMESPACE_END
