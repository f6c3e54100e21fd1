// apiary/tests/support/naive_pool.h - servers in racks for gangs: a list of devices, walked over.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace apiary_test {

// What a server_pool answers, from a list of devices. Places are found server by server: a part of the gang
// on the server with the most idle GPUs, the last one on the tightest.
class naive_pool {
 public:
  using u32 = std::uint32_t;
  using servers_range = apiary::id_range<apiary::node_id>;

  naive_pool(std::span<const u32> gpus, u32 per_rack) : per_rack_(per_rack) {
    for (const u32 g : gpus) servers_.push_back({.gpus = g});
  }

  [[nodiscard]] u32 num_servers() const { return static_cast<u32>(servers_.size()); }
  [[nodiscard]] servers_range servers() const { return range(0, num_servers()); }
  [[nodiscard]] u32 num_racks() const { return (num_servers() + per_rack_ - 1) / per_rack_; }
  [[nodiscard]] servers_range servers_of(u32 r) const {
    return range(r * per_rack_, std::min(num_servers(), (r + 1) * per_rack_));
  }
  [[nodiscard]] u32 rack_of(apiary::node_id n) const { return n.value / per_rack_; }
  [[nodiscard]] bool healthy(apiary::node_id n) const { return servers_[n.value].healthy; }
  [[nodiscard]] u32 gpus(apiary::node_id n) const { return servers_[n.value].gpus; }
  [[nodiscard]] u32 total() const { return gpus_in(servers()); }
  [[nodiscard]] u32 total(u32 r) const { return gpus_in(servers_of(r)); }
  [[nodiscard]] u32 usable() const {
    u32 sum = 0;
    for (const server& s : servers_) sum += s.healthy ? s.gpus : 0;
    return sum;
  }
  [[nodiscard]] u32 idle() const { return idle_in(servers()); }
  [[nodiscard]] u32 idle(u32 r) const { return idle_in(servers_of(r)); }
  [[nodiscard]] u32 idle(apiary::node_id n) const {
    u32 count = 0;
    for (u32 d = 0; d < gpus(n); ++d) count += owner(n, d).valid() ? 0U : 1U;
    return servers_[n.value].healthy ? count : 0;
  }
  [[nodiscard]] std::vector<apiary::node_id> most_idle(servers_range among, u32 most) const {
    std::vector<apiary::node_id> found;
    while (found.size() < std::min(most, among.size())) {
      const apiary::node_id* best = nullptr;
      std::vector<apiary::node_id> rest;
      for (const apiary::node_id n : among) {
        if (std::find(found.begin(), found.end(), n) == found.end()) rest.push_back(n);
      }
      for (const apiary::node_id& n : rest) {
        if (best == nullptr || idle(n) > idle(*best)) best = &n;
      }
      found.push_back(*best);
    }
    return found;
  }
  [[nodiscard]] apiary::job_placement fit(servers_range among, u32 gpus, u32 most) const {
    std::vector<apiary::node_id> open = most_idle(among, among.size());
    apiary::job_placement place;
    while (gpus > 0) {
      if (open.empty() || place.size() == most || idle(open.front()) == 0) return {};
      auto at = open.begin();
      for (auto i = open.begin(); i != open.end(); ++i) {
        if (idle(*i) >= gpus && (idle(*i) < idle(*at) || (idle(*i) == idle(*at) && *i < *at)))
          at = i;
      }
      place.push_back(pick_idle(*at, std::min(gpus, idle(*at))));
      gpus -= place.back().num_gpus();
      open.erase(at);
    }
    std::sort(place.begin(), place.end(),
              [](const auto& a, const auto& b) { return a.node < b.node; });
    return place;
  }
  [[nodiscard]] apiary::placement pick_idle(apiary::node_id n, u32 k) const {
    apiary::placement p{n, 0};
    for (u32 d = 0; p.num_gpus() < k; ++d) p.gpu_mask |= owner(n, d).valid() ? 0 : u32{1} << d;
    return p;
  }
  void take(apiary::job_id job, std::span<const apiary::placement> place) { set(place, job); }
  void give(std::span<const apiary::placement> place) { set(place, {}); }
  [[nodiscard]] apiary::job_id owner(apiary::node_id n, u32 device) const {
    return servers_[n.value].owners[device];
  }
  void set_health(apiary::node_id n, bool healthy) { servers_[n.value].healthy = healthy; }

 private:
  struct server {
    u32 gpus = 0;
    bool healthy = true;
    std::array<apiary::job_id, apiary::max_gpus_per_node> owners{};
  };

  [[nodiscard]] static servers_range range(u32 first, u32 last) {
    return {apiary::node_id(first), apiary::node_id(last)};
  }
  [[nodiscard]] u32 gpus_in(servers_range among) const {
    u32 sum = 0;
    for (const apiary::node_id n : among) sum += gpus(n);
    return sum;
  }
  [[nodiscard]] u32 idle_in(servers_range among) const {
    u32 sum = 0;
    for (const apiary::node_id n : among) sum += idle(n);
    return sum;
  }
  void set(std::span<const apiary::placement> place, apiary::job_id job) {
    for (const apiary::placement& p : place) {
      for (u32 d = 0; d < gpus(p.node); ++d)
        if ((p.gpu_mask >> d & 1) != 0) servers_[p.node.value].owners[d] = job;
    }
  }

  u32 per_rack_;
  std::vector<server> servers_;
};

}  // namespace apiary_test
