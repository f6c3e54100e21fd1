// apiary/alloc/server_pool.h - whole GPUs of servers in racks, for jobs on one or several servers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps which whole GPUs are idle and which job has each of the others, and finds placements on the
// fewest servers. Server i is in rack i / servers_per_rack.
//
// Cost: fit O(servers of the placement + GPUs of a server) steps of O(log64 servers); take and give
//       O(log64 servers + GPUs) for each server. Memory: 2 bits for each server and number of GPUs,
//       4 bytes for each GPU slot, 4 bytes for each server.
class server_pool {
 public:
  // gpus: of each server. Requires: each at most max_gpus_per_node; servers_per_rack > 0.
  server_pool(std::span<const std::uint32_t> gpus, std::uint32_t servers_per_rack)
      : per_rack_(servers_per_rack), servers_(gpus.size()) {
    APIARY_ASSERT(servers_per_rack > 0);
    const auto n = static_cast<std::uint32_t>(gpus.size());
    racks_.resize(n / per_rack_ + (n % per_rack_ != 0 ? 1 : 0));
    for (summary_bitset& members : by_idle_) members = summary_bitset(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      APIARY_ASSERT(gpus[i] <= max_gpus_per_node);
      servers_[i].idle = static_cast<std::uint32_t>((std::uint64_t{1} << gpus[i]) - 1);
      servers_[i].gpus = gpus[i];
      total_ += gpus[i];
      usable_ += gpus[i];
      racks_[rack_of(node_id(i))].gpus += gpus[i];
      count(node_id(i), true);
    }
    largest_.assign(gpus.begin(), gpus.end());
    std::sort(largest_.rbegin(), largest_.rend());
    for (std::size_t i = 1; i < largest_.size(); ++i) largest_[i] += largest_[i - 1];
  }

  // The number of servers.
  [[nodiscard]] std::uint32_t num_servers() const noexcept {
    return static_cast<std::uint32_t>(servers_.size());
  }
  // The number of racks.
  [[nodiscard]] std::uint32_t num_racks() const noexcept {
    return static_cast<std::uint32_t>(racks_.size());
  }
  // All servers.
  [[nodiscard]] id_range<node_id> servers() const noexcept {
    return {node_id(0), node_id(num_servers())};
  }
  // The servers of rack r.
  [[nodiscard]] id_range<node_id> servers_of(std::uint32_t r) const noexcept {
    APIARY_ASSERT(r < num_racks());
    return {node_id(r * per_rack_), node_id((std::min)(num_servers(), (r + 1) * per_rack_))};
  }
  // The rack of a server.
  [[nodiscard]] std::uint32_t rack_of(node_id n) const noexcept { return n.value / per_rack_; }
  // GPUs of all servers, including bad ones.
  [[nodiscard]] std::uint32_t total() const noexcept { return total_; }
  // GPUs of rack r, including bad ones.
  [[nodiscard]] std::uint32_t total(std::uint32_t r) const noexcept { return racks_[r].gpus; }
  // GPUs of healthy servers, idle or not.
  [[nodiscard]] std::uint32_t usable() const noexcept { return usable_; }
  // Idle GPUs of all healthy servers.
  [[nodiscard]] std::uint32_t idle() const noexcept { return idle_; }
  // Idle GPUs of the healthy servers of rack r.
  [[nodiscard]] std::uint32_t idle(std::uint32_t r) const noexcept { return racks_[r].idle; }
  // Idle GPUs of a server; 0 if it is bad.
  [[nodiscard]] std::uint32_t idle(node_id n) const noexcept {
    const server& s = at(n);
    return s.healthy ? static_cast<std::uint32_t>(std::popcount(s.idle)) : 0;
  }
  // GPUs of a server, idle or not.
  [[nodiscard]] std::uint32_t gpus(node_id n) const noexcept { return at(n).gpus; }
  // The fewest servers that could hold so many GPUs if all were idle and healthy. O(log servers).
  // Requires: gpus <= total().
  [[nodiscard]] std::uint32_t fewest_servers(std::uint32_t gpus) const noexcept {
    const auto enough = std::lower_bound(largest_.begin(), largest_.end(), gpus);
    return static_cast<std::uint32_t>(enough - largest_.begin()) + 1;
  }
  // Whether a server is healthy.
  [[nodiscard]] bool healthy(node_id n) const noexcept { return at(n).healthy; }

  // Up to `most` servers of `among` in descending order of idle GPUs; ties go to the lowest id.
  [[nodiscard]] std::vector<node_id> most_idle(id_range<node_id> among, std::uint32_t most) const {
    std::vector<node_id> servers;
    for (std::uint32_t k = max_gpus_per_node; k > 0; --k) {
      std::uint32_t n = by_idle_[k].find_next(among.first.value);
      for (; n < among.last.value && servers.size() < most; n = by_idle_[k].find_next(n + 1)) {
        servers.push_back(node_id(n));
      }
    }
    for (const node_id n : among) {
      if (servers.size() == most) break;
      if (idle(n) == 0) servers.push_back(n);  // including bad servers
    }
    return servers;
  }
  // A placement of `gpus` GPUs on the fewest servers of `among`, at most `most`; empty if there is
  // none. The job takes all idle GPUs of the servers with the most of them (ties: the lowest id);
  // its rest goes to the server with the fewest idle GPUs that fits. Requires: gpus > 0.
  [[nodiscard]] job_placement fit(id_range<node_id> among, std::uint32_t gpus,
                                  std::uint32_t most) const {
    job_placement place;
    if (gpus > idle_ || most == 0) return place;
    std::uint32_t left = gpus;
    for (std::uint32_t k = max_gpus_per_node; k > 0; --k) {
      std::uint32_t n = among.first.value;
      while ((n = by_idle_[k].find_next(n)) < among.last.value) {
        if (left <= k) {  // all servers with more idle GPUs are in the placement already
          std::uint32_t last = n;
          for (std::uint32_t i = left; i < k; ++i) {
            const std::uint32_t tighter = by_idle_[i].find_next(among.first.value);
            if (tighter >= among.last.value) continue;
            last = tighter;
            break;
          }
          place.push_back(pick_idle(node_id(last), left));
          detail::merge_sort(place, [](placement a, placement b) { return a.node < b.node; });
          return place;
        }
        if (place.size() + 1 == most) return {};
        place.push_back(pick_idle(node_id(n), k));
        left -= k;
        ++n;
      }
    }
    return {};
  }

  // The k lowest idle GPUs of a server. Requires: k <= idle(n).
  [[nodiscard]] placement pick_idle(node_id n, std::uint32_t k) const noexcept {
    APIARY_ASSERT(k <= idle(n));
    std::uint32_t rest = servers_[n.value].idle;
    for (std::uint32_t i = 0; i < k; ++i) rest &= rest - 1;
    return {n, servers_[n.value].idle & ~rest};
  }
  // Whether all GPUs of the placement are idle and healthy, and its servers ascend.
  [[nodiscard]] bool can_take(std::span<const placement> place) const noexcept {
    for (std::size_t i = 0; i < place.size(); ++i) {
      const placement& p = place[i];
      if (p.node.value >= num_servers() || (i > 0 && place[i - 1].node >= p.node)) return false;
      const server& s = servers_[p.node.value];
      if (!s.healthy || p.gpu_mask == 0 || (p.gpu_mask & ~s.idle) != 0) return false;
    }
    return !place.empty();
  }
  // Assigns the GPUs of the placement to the job. Requires: can_take(place).
  void take(job_id job, std::span<const placement> place) noexcept {
    APIARY_VERIFY(can_take(place));
    for (const placement& p : place) change(p, job);
  }
  // Makes the GPUs of the placement idle again. Requires: one job has all of them.
  void give(std::span<const placement> place) noexcept {
    for (const placement& p : place) {
      APIARY_ASSERT(p.gpu_mask >> gpus(p.node) == 0);
      APIARY_VERIFY((p.gpu_mask & servers_[p.node.value].idle) == 0);
      change(p, job_id());
    }
  }
  // The job that has GPU `gpu` of server n; not valid if it is idle. Requires: gpu < gpus(n).
  [[nodiscard]] job_id owner(node_id n, std::uint32_t gpu) const noexcept {
    APIARY_ASSERT(gpu < gpus(n));
    return servers_[n.value].owners[gpu];
  }

  // Marks a server bad or healthy. A bad server has no idle GPUs; its jobs stay.
  void set_health(node_id n, bool healthy) noexcept {
    if (at(n).healthy == healthy) return;
    if (!healthy) count(n, false);
    servers_[n.value].healthy = healthy;
    usable_ = healthy ? usable_ + gpus(n) : usable_ - gpus(n);
    if (healthy) count(n, true);
  }

 private:
  struct server {
    std::uint32_t idle = 0;  // bit i: GPU i
    std::uint32_t gpus = 0;
    bool healthy = true;
    std::array<job_id, max_gpus_per_node> owners{};
  };
  struct rack {
    std::uint32_t gpus = 0;
    std::uint32_t idle = 0;
  };

  [[nodiscard]] const server& at(node_id n) const noexcept {
    APIARY_ASSERT(n.value < num_servers());
    return servers_[n.value];
  }
  // Adds the idle GPUs of a healthy server to the counts, or subtracts them.
  void count(node_id n, bool in) noexcept {
    const std::uint32_t k = idle(n);
    rack& r = racks_[rack_of(n)];
    if (in) {
      idle_ += k;
      r.idle += k;
      by_idle_[k].set(n.value);
    } else {
      idle_ -= k;
      r.idle -= k;
      by_idle_[k].reset(n.value);
    }
  }
  void change(const placement& p, job_id to) noexcept {
    server& s = servers_[p.node.value];
    if (s.healthy) count(p.node, false);
    s.idle ^= p.gpu_mask;
    for (std::uint32_t mask = p.gpu_mask; mask != 0; mask &= mask - 1) {
      s.owners[static_cast<std::size_t>(std::countr_zero(mask))] = to;
    }
    if (s.healthy) count(p.node, true);
  }

  std::uint32_t per_rack_;
  std::vector<server> servers_;
  std::vector<rack> racks_;
  std::vector<std::uint32_t> largest_;  // GPUs of the 1, 2, ... largest servers
  std::array<summary_bitset, max_gpus_per_node + 1> by_idle_;  // healthy servers
  std::uint32_t total_ = 0;
  std::uint32_t usable_ = 0;
  std::uint32_t idle_ = 0;
};

APIARY_NAMESPACE_END
