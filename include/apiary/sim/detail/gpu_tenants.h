// apiary/sim/detail/gpu_tenants.h - which jobs of a simulation have or share which GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/placement.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// How a job gets GPUs: it must have them alone; it may share them; or it is resized: it shares the
// GPUs of a server that it shared before, and must have the others alone.
enum class tenancy : std::uint8_t { alone, shared, resized };

// The jobs on the GPUs of each server. On a GPU, all jobs but one must have come to share it.
// check() judges that, so the order of the changes between two calls of it does not matter.
// Cost: O(jobs on the server) a call; check for each server with a change O(jobs that came, are
//       resized or share GPUs) times that.
class gpu_tenants {
 public:
  // Two jobs that have the same GPUs, but neither has come to share them. Both are the same job if
  // it has a GPU twice.
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

  // The job gets GPUs of a server. Calls other(job) for each job that has one of them. Returns how
  // many of them no job had.
  template <class Other>
  std::uint32_t put(job_id job, const placement& at, tenancy how, Other&& other) {
    const std::uint32_t alone = others(job, at, other);
    std::vector<tenant>& here = change(at.node);
    const auto kept = std::find_if(here.begin(), here.end(), [&](const tenant& t) {
      return how == tenancy::resized && t.job == job && t.gpus == 0;
    });
    if (kept != here.end())
      kept->gpus = at.gpu_mask;
    else
      here.push_back({job, at.gpu_mask, how == tenancy::shared ? at.gpu_mask : 0, 0});
    return alone;
  }
  // The job leaves the server; otherwise as put(). `resized`: for a put() that is `resized`, too.
  template <class Other>
  std::uint32_t remove(job_id job, const placement& at, tenancy how, Other&& other) {
    std::vector<tenant>& here = change(at.node);
    for (tenant& t : here) t.gpus = t.job == job ? 0 : t.gpus;
    if (how != tenancy::resized) std::erase_if(here, [&](const tenant& t) { return t.job == job; });
    return others(job, at, other);
  }
  // Calls other(job) for each other job that has one of these GPUs. Returns how many no job has.
  template <class Other>
  std::uint32_t others(job_id job, const placement& at, Other&& other) {
    std::uint32_t used = 0;
    for (const tenant& t : on(at.node).tenants) {
      used |= t.gpus;
      if (t.job != job && (t.gpus & at.gpu_mask) != 0) other(t.job);
    }
    return static_cast<std::uint32_t>(std::popcount(at.gpu_mask & ~used));
  }
  // A conflict since the last call: of the last job that has one on its server. A job that was
  // there at the last call shares only while it and another such job keep a GPU that both had.
  [[nodiscard]] std::optional<conflict> check() {
    for (; !changed_.empty(); changed_.pop_back()) {
      server& s = servers_[changed_.back().value];
      s.changed = false;
      std::vector<tenant>& here = s.tenants;
      std::erase_if(here, [](const tenant& t) { return t.gpus == 0; });
      for (tenant& t : here) {
        if (t.shared != 0 && t.before != 0 && is_alone(here, t, true)) t.shared = 0;
      }
      for (std::size_t i = here.size(); i-- > 0;) {
        const tenant& t = here[i];
        if (t.gpus == t.before) continue;
        for (const tenant& o : here) {
          const std::uint32_t shared = o.job == t.job ? 0 : t.shared | o.shared;
          const std::uint32_t both = t.gpus & o.gpus & ~shared;
          if (&o != &t && both != 0) return conflict{t.job, o.job, {changed_.back(), both}};
        }
      }
      for (tenant& t : here) {
        t.shared = t.shared == 0 || is_alone(here, t, false) ? 0 : t.shared & t.gpus;
        t.before = t.gpus;
      }
    }
    return std::nullopt;
  }
  // A job on the server; not valid: there is none.
  [[nodiscard]] job_id any_on(node_id n) {
    const std::vector<tenant>& here = on(n).tenants;
    return here.empty() ? job_id() : here.front().job;
  }

 private:
  struct tenant {
    job_id job{};
    std::uint32_t gpus = 0;    // as bits; 0: it is being resized
    std::uint32_t shared = 0;  // those that it came to share, if it has not been alone since
    std::uint32_t before = 0;  // those that it had at the last check(), if it has not left since
  };
  struct server {
    std::vector<tenant> tenants{};
    bool changed = false;  // since the last check()
  };
  [[nodiscard]] server& on(node_id n) {
    if (n.value >= servers_.size()) servers_.resize(n.value + std::size_t{1});
    return servers_[n.value];
  }
  [[nodiscard]] std::vector<tenant>& change(node_id n) {
    server& s = on(n);
    if (!s.changed) changed_.push_back(n);
    s.changed = true;
    return s.tenants;
  }
  // Whether no other job has its GPUs. kept: only GPUs count that both also had before.
  [[nodiscard]] static bool is_alone(const std::vector<tenant>& here, const tenant& t,
                                     bool kept) noexcept {
    std::uint32_t used = 0;
    for (const tenant& o : here) {
      if (&o != &t) used |= kept ? o.gpus & o.before : o.gpus;
    }
    return (used & t.gpus & (kept ? t.before : t.gpus)) == 0;
  }

  std::vector<server> servers_;
  std::vector<node_id> changed_;  // servers, since the last check()
};

}  // namespace detail
APIARY_NAMESPACE_END
