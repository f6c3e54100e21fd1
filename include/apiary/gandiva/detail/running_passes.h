// apiary/gandiva/detail/running_passes.h - running jobs in order of how long they ran, by their weights.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The passes of running jobs, which grow with time.
// Cost: insert, erase O(log jobs); least O(distinct weights).
class running_passes {
  // The pass is base + (now * slice_pass_unit + rest) / weight, rounded down; rest is in (-weight,
  // 0]. So of equal weights the least entry has the least pass at any time.
  struct entry {
    std::int64_t base = 0;
    std::int64_t rest = 0;
    job_id job{};
    friend auto operator<=>(const entry&, const entry&) noexcept = default;
  };

 public:
  // Whether no job runs.
  [[nodiscard]] bool empty() const noexcept { return by_weight_.empty(); }
  // A job runs from `since` on and had this pass then. Requires: weight > 0, 0 <= since < 2^43.
  void insert(job_id job, std::uint32_t weight, std::int64_t pass, time_ms since) {
    by_weight_[weight].insert(entry_of(job, weight, pass, since));
  }
  // Requires: the job was inserted with these.
  void erase(job_id job, std::uint32_t weight, std::int64_t pass, time_ms since) {
    const auto jobs = by_weight_.find(weight);
    jobs->second.erase(entry_of(job, weight, pass, since));
    if (jobs->second.empty()) by_weight_.erase(jobs);
  }
  // The least pass at this time; nullopt: no job runs. Requires: now is not before any `since`.
  [[nodiscard]] std::optional<std::int64_t> least(time_ms now) const {
    std::optional<std::int64_t> pass;
    for (const auto& [weight, jobs] : by_weight_) {
      const std::int64_t at = pass_of(*jobs.begin(), weight, now);
      pass = (std::min)(pass.value_or(at), at);
    }
    return pass;
  }

  // Reads the jobs in order of their passes at one time, the highest first, then of their ids, the
  // highest first. Jobs may be inserted and erased meanwhile: an erased job may still be read, an
  // inserted one may be left out. Cost: for each job O(distinct weights + log jobs).
  class descending {
   public:
    descending(const running_passes& jobs, time_ms now) : jobs_(&jobs), now_(now) {
      for (const auto& [weight, some] : jobs.by_weight_)
        nexts_.emplace_back(weight, *some.rbegin());
    }
    // Appends the next jobs, all that have the next pass. Returns whether there is one.
    bool read(std::vector<job_id>& to) {
      if (nexts_.empty()) return false;
      std::int64_t pass = pass_at(nexts_.front());
      for (const next& n : nexts_) pass = (std::max)(pass, pass_at(n));
      const auto first = static_cast<std::ptrdiff_t>(to.size());
      for (std::size_t i = 0; i < nexts_.size();) {
        bool has_more = true;
        while (has_more && pass_at(nexts_[i]) == pass) {
          to.push_back(nexts_[i].second.job);
          has_more = advance(nexts_[i]);
        }
        if (has_more) {
          ++i;
        } else {
          nexts_[i] = nexts_.back();
          nexts_.pop_back();
        }
      }
      std::sort(to.begin() + first, to.end(), [](job_id a, job_id b) { return a > b; });
      return true;
    }

   private:
    using next = std::pair<std::uint32_t, entry>;  // of a weight, the job that is read next
    [[nodiscard]] std::int64_t pass_at(const next& n) const noexcept {
      return pass_of(n.second, n.first, now_);
    }
    [[nodiscard]] bool advance(next& n) const {
      const auto jobs = jobs_->by_weight_.find(n.first);
      if (jobs == jobs_->by_weight_.end()) return false;
      const auto at = jobs->second.lower_bound(n.second);
      if (at == jobs->second.begin()) return false;
      n.second = *std::prev(at);
      return true;
    }

    const running_passes* jobs_;
    time_ms now_;
    std::vector<next> nexts_{};
  };

 private:
  [[nodiscard]] static std::int64_t pass_of(const entry& e, std::uint32_t weight,
                                            time_ms now) noexcept {
    return e.base + (now * slice_pass_unit + e.rest) / weight;
  }
  [[nodiscard]] static entry entry_of(job_id job, std::uint32_t weight, std::int64_t pass,
                                      time_ms since) noexcept {
    const std::int64_t had = since * slice_pass_unit;
    return {pass - had / weight, -(had % weight), job};
  }

  std::map<std::uint32_t, std::set<entry>> by_weight_;
};

}  // namespace detail
APIARY_NAMESPACE_END
