// apiary/gandiva/detail/available_gpus.h - the GPUs of servers that jobs of one priority can get.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gandiva/detail/jobs.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A heap from which an entry may be out of date: its reader says which entries still hold.
template <class Entry>
class gandiva_heap {
 public:
  void push(const Entry& e) {
    entries_.push_back(e);
    std::push_heap(entries_.begin(), entries_.end(), later);
  }
  // Requires: there is an entry.
  void pop() {
    std::pop_heap(entries_.begin(), entries_.end(), later);
    entries_.pop_back();
  }
  // The first entry for which holds(entry); the others before it are removed. Null: there is none.
  template <class Holds>
  [[nodiscard]] const Entry* first(const Holds& holds) {
    while (!entries_.empty() && !holds(entries_.front())) pop();
    return entries_.empty() ? nullptr : &entries_.front();
  }

 private:
  static bool later(const Entry& a, const Entry& b) noexcept { return b.before(a); }
  std::vector<Entry> entries_;
};

// Which of the servers that a decision touches a reader has not read yet.
class gandiva_changes {
 public:
  explicit gandiva_changes(const gandiva_jobs& jobs) : read_(jobs.touched().size()) {}
  // Calls visit(server) for each server that was touched since the last call, or since it was made.
  template <class Visit>
  void read(const gandiva_jobs& jobs, Visit&& visit) {
    const std::vector<node_id>& touched = jobs.touched();
    if (read_ == touched.size()) return;
    fresh_.assign(touched.begin() + static_cast<std::ptrdiff_t>(read_), touched.end());
    read_ = touched.size();
    sort_unique(fresh_);
    for (const node_id n : fresh_) visit(n);
  }

 private:
  std::size_t read_;
  std::vector<node_id> fresh_{};
};

// The available GPUs of each server: those that jobs on several servers and jobs of higher priority
// leave to jobs of one priority. Finds a server by available GPUs, load and affinity.
// Requires: no take_touched() since it was made.
// Cost: to make O(servers and their priorities); a query O(max_gpus_per_node), and O(log servers +
//       priorities of the server) for each server that changed since the last one.
class gandiva_available_gpus {
 public:
  gandiva_available_gpus(const gandiva_jobs& jobs, std::int32_t priority)
      : priority_(priority),
        changes_(jobs),
        servers_(jobs.pool().num_servers()),
        heaps_(num_groups * (max_gpus_per_node + 1)) {
    for (const node_id n : jobs.pool().servers()) refresh(jobs, n);
  }
  // The server where such a job of so many GPUs would get time slices: the least loaded one of its
  // affinity; else of another affinity, the lowest among equals. Here and below: ties go to the lowest
  // id; not valid: there is none. Only servers where jobs of their affinity can get time slices count.
  [[nodiscard]] node_id better(const gandiva_jobs& jobs, std::uint32_t gpus) {
    changes_.read(jobs, [&](node_id n) { refresh(jobs, n); });
    const node_id same = least(gpus, gpus);
    return same.valid() ? same : least(any_affinity, gpus);
  }
  // The least loaded one of the other servers where it would get time slices.
  [[nodiscard]] node_id other(const gandiva_jobs& jobs, std::uint32_t gpus) {
    changes_.read(jobs, [&](node_id n) { refresh(jobs, n); });
    return least(no_affinity, gpus);
  }

 private:
  static constexpr std::uint32_t no_affinity = 0;  // groups of servers; the others: their affinity
  static constexpr std::uint32_t any_affinity = max_gpus_per_node + 1;
  static constexpr std::size_t num_groups = std::size_t{max_gpus_per_node} + 2;
  struct entry {
    std::uint32_t load = 0;
    std::uint32_t affinity = 0;  // 0: no job of its affinity can get time slices
    node_id server{};
    [[nodiscard]] bool before(const entry& o) const noexcept {
      if (load != o.load) return load < o.load;
      return affinity != o.affinity ? affinity < o.affinity : server < o.server;
    }
  };
  struct state {
    std::uint32_t available = 0;
    std::uint32_t load = 0;
    std::uint32_t affinity = 0;
    friend bool operator==(const state&, const state&) noexcept = default;
  };
  [[nodiscard]] gandiva_heap<entry>& heap(std::uint32_t group, std::uint32_t available) {
    return heaps_[group * std::size_t{max_gpus_per_node + 1} + available];
  }
  void refresh(const gandiva_jobs& jobs, node_id n) {
    const gandiva_servers& servers = jobs.servers();
    state now;
    if (jobs.pool().healthy(n)) {
      const std::uint32_t held = servers.held(n, priority_);
      const std::uint32_t gpus = jobs.pool().gpus(n);
      now.available = gpus - (std::min)(gpus, held);
      now.load = servers.load(n);
      now.affinity = servers.takes_affinity(n) ? servers.affinity(n) : 0;
    }
    if (std::exchange(servers_[n.value], now) == now || now.available == 0) return;
    heap(now.affinity, now.available).push({now.load, now.affinity, n});
    if (now.affinity > 0) heap(any_affinity, now.available).push({now.load, now.affinity, n});
  }
  // The first server of the group with at least so many available GPUs.
  [[nodiscard]] node_id least(std::uint32_t group, std::uint32_t gpus) {
    const entry* best = nullptr;
    for (std::uint32_t k = gpus; k <= max_gpus_per_node; ++k) {
      const entry* const first = heap(group, k).first([&](const entry& e) {
        return servers_[e.server.value] == state{k, e.load, e.affinity};
      });
      if (first != nullptr && (best == nullptr || first->before(*best))) best = first;
    }
    return best == nullptr ? node_id() : best->server;
  }

  std::int32_t priority_;
  gandiva_changes changes_;
  std::vector<state> servers_;
  std::vector<gandiva_heap<entry>> heaps_;  // by group and available GPUs
};

// The GPUs of each server that a job of one priority may take: the available ones without those of
// suspended jobs of its priority that wait longer. Finds the fewest servers.
// Requires: as gandiva_available_gpus.
// Cost: to make O(servers and their jobs). A query O(servers chosen * log servers); O(jobs of the server
//       * log jobs) for each server that changed since the last one; O(log jobs) for each job that waits
//       longer than this one, but not longer than the last one; if this one waits longer than the last
//       one, as much as to make it.
class gandiva_servers_left {
 public:
  gandiva_servers_left(const gandiva_jobs& jobs, const gandiva_job& r)
      : priority_(r.request.priority), changes_(jobs) {
    begin(jobs, since_of(r));
  }
  // The servers with the most such GPUs, then the least load, then the lowest ids, until there are
  // enough for the job; empty: all have too few.
  [[nodiscard]] gpus_by_server fewest(const gandiva_jobs& jobs, const gandiva_job& r) {
    const waits_since now = since_of(r);
    if (now < since_) begin(jobs, now);
    since_ = now;
    changes_.read(jobs, [&](node_id n) { refresh(jobs, n); });
    const auto holds = [&](const waiting_job& w) {
      return servers_[w.server.value].version == w.version;
    };
    for (const waiting_job* w = waiting_.first(holds); w != nullptr && w->since < since_;
         w = waiting_.first(holds)) {
      hold(jobs, w->server, servers_[w->server.value].held + w->gpus);
      waiting_.pop();
    }
    gpus_by_server on;
    std::uint32_t wanted = r.request.gpus;
    if (sum_ < wanted) return on;
    std::vector<entry> chosen;
    while (wanted > 0) {
      const entry* const best = most_.first([&](const entry& e) {
        const state& s = servers_[e.server.value];
        return s.listed && s.left == e.left && s.load == e.load;
      });
      chosen.push_back(*best);
      servers_[best->server.value].listed = false;
      on.emplace_back(best->server, (std::min)(wanted, best->left));
      wanted -= on.back().second;
    }
    for (const entry& e : chosen) {
      servers_[e.server.value].listed = true;
      most_.push(e);
    }
    return on;
  }

 private:
  using waits_since = std::pair<time_ms, job_id>;  // since when a job waits, and its id
  struct entry {
    std::uint32_t left = 0;
    std::uint32_t load = 0;
    node_id server{};
    [[nodiscard]] bool before(const entry& o) const noexcept {
      if (left != o.left) return left > o.left;
      return load != o.load ? load < o.load : server < o.server;
    }
  };
  struct waiting_job {
    waits_since since{};
    node_id server{};
    std::uint32_t version = 0;
    std::uint32_t gpus = 0;
    [[nodiscard]] bool before(const waiting_job& o) const noexcept { return since < o.since; }
  };
  struct state {
    std::uint32_t held = 0;
    std::uint32_t left = 0;
    std::uint32_t load = 0;
    std::uint32_t version = 0;  // waiting jobs of other versions do not count
    bool listed = false;        // in most_, with its GPUs and load
  };
  [[nodiscard]] static waits_since since_of(const gandiva_job& r) noexcept {
    return {r.waits_since(), r.request.job};
  }
  void begin(const gandiva_jobs& jobs, const waits_since& now) {
    since_ = now;
    sum_ = 0;
    most_ = {};
    waiting_ = {};
    servers_.assign(jobs.pool().num_servers(), {});
    for (const node_id n : jobs.pool().servers()) refresh(jobs, n);
  }
  void refresh(const gandiva_jobs& jobs, node_id n) {
    ++servers_[n.value].version;
    const std::uint32_t gpus = jobs.pool().gpus(n);
    std::uint32_t held = jobs.pool().healthy(n) ? jobs.servers().held(n, priority_) : gpus;
    if (held >= gpus) return hold(jobs, n, held);
    for (const job_id job : jobs.servers().jobs(n)) {
      const gandiva_job& other = jobs.at(job);
      if (other.home != n || !other.waits_for_slice() || other.request.priority != priority_)
        continue;
      if (since_of(other) < since_) {
        held += other.request.gpus;
      } else {
        waiting_.push({since_of(other), n, servers_[n.value].version, other.request.gpus});
      }
    }
    hold(jobs, n, held);
  }
  // So many GPUs of the server are held.
  void hold(const gandiva_jobs& jobs, node_id n, std::uint32_t held) {
    state& s = servers_[n.value];
    const std::uint32_t gpus = jobs.pool().gpus(n);
    const entry now{gpus - (std::min)(gpus, held), jobs.servers().load(n), n};
    sum_ = sum_ - s.left + now.left;
    if (now.left > 0 && (!s.listed || s.left != now.left || s.load != now.load)) most_.push(now);
    s.held = held;
    s.left = now.left;
    s.load = now.load;
    s.listed = now.left > 0;
  }

  std::int32_t priority_;
  gandiva_changes changes_;
  waits_since since_{};
  std::uint32_t sum_ = 0;
  std::vector<state> servers_{};
  gandiva_heap<entry> most_{};
  gandiva_heap<waiting_job> waiting_{};
};

// Both of these for the last few priorities that were asked for, made when they are needed.
class gandiva_available_by_priority {
 public:
  [[nodiscard]] gandiva_available_gpus& gpus(const gandiva_jobs& jobs, std::int32_t priority) {
    std::optional<gandiva_available_gpus>& of = at(priority).available;
    if (!of) of.emplace(jobs, priority);
    return *of;
  }
  [[nodiscard]] gandiva_servers_left& left(const gandiva_jobs& jobs, const gandiva_job& r) {
    std::optional<gandiva_servers_left>& of = at(r.request.priority).left;
    if (!of) of.emplace(jobs, r);
    return *of;
  }

 private:
  static constexpr std::size_t max_priorities = 8;
  struct indices {
    std::int32_t priority = 0;
    std::optional<gandiva_available_gpus> available{};
    std::optional<gandiva_servers_left> left{};
  };
  [[nodiscard]] indices& at(std::int32_t priority) {
    for (indices& o : known_) {
      if (o.priority == priority) return o;
    }
    if (known_.size() < max_priorities) {
      known_.push_back({priority});
      return known_.back();
    }
    indices& replaced = known_[next_++ % max_priorities];
    replaced = {priority};
    return replaced;
  }
  std::vector<indices> known_{};
  std::size_t next_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
