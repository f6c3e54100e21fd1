// apiary/sim/detail/gpu_tenants.h - which jobs of a simulation have which GPUs, and which share them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/placement.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs on the GPUs of each server. On a GPU, all jobs but one must have come to share it.
// Cost: O(jobs on the server) a call.
class gpu_tenants {
 public:
  // Two jobs that have the same GPUs, but neither has come to share them. Both are the same job if it
  // has a GPU twice.
  struct conflict {
    job_id job{};
    job_id other{};
    placement where{};  // these GPUs
    [[nodiscard]] std::string text() const {
      const bool self = other == job;
      return (self ? "`where`" : "job " + std::to_string(other.value)) +
             (" has GPUs " + std::to_string(where.gpu_mask)) + " (as bits) of server " +
             std::to_string(where.node.value) + (self ? " twice" : "");
    }
  };

  // The job gets GPUs of a server, and may share them. Calls other(job) for each job that has one of
  // them. Returns how many of them no job had.
  template <class Other>
  std::uint32_t put(job_id job, const placement& at, bool shares, Other&& other) {
    const std::uint32_t alone = others(job, at, other);
    tenants(at.node).push_back({job, at.gpu_mask, shares, true});
    came_.emplace_back(at.node, job);
    return alone;
  }
  // The job leaves the server; otherwise as put(). A job that is then alone on its GPUs shares them
  // no more, unless it came after the last check().
  template <class Other>
  std::uint32_t remove(job_id job, const placement& at, Other&& other) {
    std::vector<tenant>& here = tenants(at.node);
    std::erase_if(here, [&](const tenant& t) { return t.job == job; });
    for (tenant& t : here) t.shares = t.shares && (t.fresh || !is_alone(here, t));
    return others(job, at, other);
  }
  // Calls other(job) for each other job that has one of these GPUs. Returns how many no job has.
  template <class Other>
  std::uint32_t others(job_id job, const placement& at, Other&& other) {
    std::uint32_t used = 0;
    for (const tenant& t : tenants(at.node)) {
      used |= t.gpus;
      if (t.job != job && (t.gpus & at.gpu_mask) != 0) other(t.job);
    }
    return static_cast<std::uint32_t>(std::popcount(at.gpu_mask & ~used));
  }
  // A conflict of the last job that has one and came since the last call.
  [[nodiscard]] std::optional<conflict> check() {
    for (; !came_.empty(); came_.pop_back()) {
      const auto [n, job] = came_.back();
      std::vector<tenant>& here = tenants(n);
      for (tenant& t : here) {
        if (t.job != job) continue;
        for (const tenant& o : here) {
          const std::uint32_t both = t.gpus & o.gpus;
          if (&o != &t && both != 0 && (o.job == job || (!t.shares && !o.shares)))
            return conflict{job, o.job, {n, both}};
        }
        t.shares = t.shares && !is_alone(here, t);
        t.fresh = false;
      }
    }
    return std::nullopt;
  }
  // A job on the server; not valid: there is none.
  [[nodiscard]] job_id any_on(node_id n) {
    const std::vector<tenant>& here = tenants(n);
    return here.empty() ? job_id() : here.front().job;
  }

 private:
  struct tenant {
    job_id job{};
    std::uint32_t gpus = 0;  // as bits
    bool shares = false;     // it came to share GPUs, and has not been alone since the next check()
    bool fresh = false;      // it came after the last check()
  };
  [[nodiscard]] std::vector<tenant>& tenants(node_id n) {
    if (n.value >= servers_.size()) servers_.resize(n.value + std::size_t{1});
    return servers_[n.value];
  }
  [[nodiscard]] static bool is_alone(const std::vector<tenant>& here, const tenant& t) noexcept {
    std::uint32_t used = 0;
    for (const tenant& o : here) used |= &o == &t ? 0U : o.gpus;
    return (used & t.gpus) == 0;
  }

  std::vector<std::vector<tenant>> servers_;
  std::vector<std::pair<node_id, job_id>> came_;  // since the last check()
};

}  // namespace detail
APIARY_NAMESPACE_END
