// apiary/gandiva/detail/gandiva_jobs.h - the jobs of Gandiva, and what each change does to them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gandiva/detail/servers.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/gandiva/packing.h>
#include <apiary/model/job.h>
#include <apiary/queue/kinds.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What a job does: waits for a server, waits for a time slice, or runs.
enum class gandiva_phase : std::uint8_t { queued, suspended, run };

// A job of Gandiva.
struct gandiva_job {
  job_request request{};
  time_ms key = 0;  // its arrival
  gandiva_phase phase = gandiva_phase::queued;
  node_id home{};         // its server; not valid if it is queued or runs on several servers
  job_placement where{};  // while it runs
  std::int64_t pass = 0;  // slice_pass(), without its present run
  time_ms since = 0;      // when it last began to run, or to wait for a time slice
  delays waited{};        // from its arrival or last stop until it was last queued or suspended
  delays entered{};       // reading of its queue's clock when it was queued
  time_ms moved = 0;      // when it last started or migrated
  job_id leader{};        // valid: this job is packed onto the leader's GPUs and runs when it runs
  job_id follower{};      // valid: that job is packed onto the GPUs of this one
  bool kept = false;      // it is a follower, and its packing has proved to pay
  pair_packing::sample alone{};   // what was measured when it ran alone; a rate of 0: nothing
  std::uint64_t packed_rate = 0;  // rate since it was packed; 0: not measured
  std::uint64_t decision = 0;     // the last decision that has an action for it
  std::size_t action = 0;         // index of that decision's action
  [[nodiscard]] bool runs() const noexcept { return phase == gandiva_phase::run; }
  // Whether it waits for a time slice of its own.
  [[nodiscard]] bool waits_for_slice() const noexcept {
    return phase == gandiva_phase::suspended && !leader.valid();
  }
  [[nodiscard]] bool packed() const noexcept { return leader.valid() || follower.valid(); }
  [[nodiscard]] bool profiled() const noexcept { return alone.rate > 0; }
  [[nodiscard]] std::uint32_t num_gpus() const noexcept {
    std::uint32_t sum = 0;
    for (const placement& p : where) sum += p.num_gpus();
    return sum;
  }
};

// A running job that may use more GPUs of its server than it asked for.
struct elastic_job {
  job_id job{};
  std::uint32_t asked = 1;
  std::uint32_t has = 1;   // asked, ..., most
  std::uint32_t most = 1;  // the most that it can use
};
// A job and the number of GPUs that it has from now on.
struct resize {
  job_id job{};
  std::uint32_t gpus = 0;
  friend constexpr bool operator==(resize, resize) noexcept = default;
};

// Gives `gpus` idle GPUs of a server (`more`) one by one to the job with the fewest that can use
// more (ties: the lower id), or takes GPUs from the job with the most that has grown (ties: the
// higher id), while there is such a job. Returns the jobs that changed, in order. O(jobs * gpus).
// Model: "Gandiva" (OSDI 2018), §3.2, grow-shrink, for jobs that opted in.
[[nodiscard]] inline std::vector<resize> resized(std::span<const elastic_job> jobs,
                                                 std::uint32_t gpus, bool more) {
  std::vector<elastic_job> now(jobs.begin(), jobs.end());
  for (; gpus > 0; --gpus) {
    elastic_job* next = nullptr;
    for (elastic_job& j : now) {
      if (more ? j.has >= j.most : j.has <= j.asked) continue;
      if (next == nullptr || (std::pair(j.has, j.job) < std::pair(next->has, next->job)) == more)
        next = &j;
    }
    if (next == nullptr) break;
    next->has += more ? 1U : ~0U;
  }
  std::vector<resize> changed;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].has != jobs[i].has) changed.push_back({now[i].job, now[i].has});
  }
  return changed;
}

// The jobs, their servers and the actions of a decision. A decision has at most one action for each
// job: if a job shrinks and then stops, only the stop remains. A change costs O(log servers + jobs
// of the server), but it reads these only if a job comes. Of two packed jobs, one is the leader and
// the other its follower. Both run on the leader's GPUs, and start and stop together; in the pool
// only the leader has the GPUs. A follower counts in its server's load until its packing is kept.
// When one of the two ends, the other keeps the GPUs.
class gandiva_jobs {
 public:
  gandiva_jobs(std::span<const std::uint32_t> gpus, std::uint32_t servers_per_rack)
      : servers_(gpus, servers_per_rack) {}
  [[nodiscard]] const gandiva_servers& servers() const noexcept { return servers_; }
  [[nodiscard]] const server_pool& pool() const noexcept { return servers_.pool(); }
  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  [[nodiscard]] gandiva_job* find(job_id job) {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const gandiva_job* find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  // Requires: there is such a job. The reference is valid while the job exists.
  [[nodiscard]] gandiva_job& at(job_id job) { return jobs_.at(job.value); }
  [[nodiscard]] const gandiva_job& at(job_id job) const { return jobs_.at(job.value); }
  // The followers, and the jobs on more servers than they need. Both in ascending order.
  [[nodiscard]] const std::vector<job_id>& followers() const noexcept { return followers_; }
  [[nodiscard]] const std::vector<job_id>& dispersed() const noexcept { return dispersed_; }
  // Requires: there is no job of this id.
  gandiva_job& add(const job_request& r, time_ms now) {
    gandiva_job& job = jobs_[r.job.value];
    job.request = r;
    job.key = job.since = now;
    return job;
  }
  // Requires: the job is on no server.
  void erase(job_id job) { jobs_.erase(job.value); }
  void set_health(node_id n, bool healthy) {
    servers_.set_health(n, healthy);
    touch(n);
  }
  void touch(node_id n) { touched_.push_back(n); }
  // Servers that were touched, or whose jobs changed, since the last call, ascending.
  [[nodiscard]] std::vector<node_id> take_touched() {
    std::vector<node_id> touched = std::move(touched_);
    touched_.clear();
    sort_unique(touched);
    return touched;
  }
  // Begins a decision that appends to `actions`, which must not shrink before end().
  void begin(time_ms now, std::vector<job_action>& actions) {
    ++decision_;
    now_ = now;
    actions_ = &actions;
  }
  void end() noexcept { actions_ = nullptr; }
  // Whether this decision has an action for the job.
  [[nodiscard]] bool acted(const gandiva_job& r) const noexcept { return r.decision == decision_; }
  // Puts the job on the server, suspended. Requires: the job is on no server, or it is suspended
  // and not packed.
  void settle(gandiva_job& r, node_id n) {
    std::optional<std::int64_t> least;  // pass of the jobs whose home the server is
    for (const job_id job : servers_.jobs(n)) {
      const gandiva_job& other = at(job);
      if (other.home == n && (!least || other.pass < *least)) least = other.pass;
    }
    edit(r, [&] {
      r.pass = least.value_or(0);
      r.home = n;
      r.phase = gandiva_phase::suspended;
    });
  }
  // Starts the job, and its follower if it has one. Requires: it does not run; the GPUs are idle.
  void start(gandiva_job& r, job_placement where) {
    servers_.pool().take(r.request.job, where);
    run(r, job_action::verb::start, std::move(where));
    if (r.follower.valid()) run(at(r.follower), job_action::verb::pack, r.where);
  }
  // Starts the job on unsubscribed GPUs of several servers. Requires: it is on none.
  void start_multi_server(gandiva_job& r, const gpus_by_server& on) {
    job_placement where = pick(on);
    pin_all(r, where);
    start(r, std::move(where));
  }
  // Suspends the job, and its follower if it has one. Requires: it runs and has a home.
  void suspend(gandiva_job& r) {
    servers_.pool().give(r.where);
    halt(r, job_action::verb::suspend);
    if (r.follower.valid()) halt(at(r.follower), job_action::verb::suspend);
  }
  // Takes the job off its servers without an action, and queues it.
  void leave(gandiva_job& r, time_ms now) {
    if (r.follower.valid()) {
      gandiva_job& follower = at(r.follower);
      if (r.runs()) {
        servers_.pool().give(r.where);
        servers_.pool().take(follower.request.job, r.where);
      }
      unlink(r, follower);
    } else if (r.leader.valid()) {
      unlink(at(r.leader), r);
    } else if (r.runs()) {
      servers_.pool().give(r.where);
    }
    unpin_all(r);
    edit(r, [&] {
      if (r.runs()) {
        r.pass += slice_pass(now - r.since, r.request.weight);
      } else {
        r.waited[delay_cause::order] += now - r.since;
      }
      r.since = now;
      r.phase = gandiva_phase::queued;
      r.home = {};
      r.where.clear();
    });
  }
  // Shrinks grown jobs of the server until `gpus` GPUs are idle. Requires: so many are idle or were
  // added to jobs that have grown.
  void free_grown(node_id n, std::uint32_t gpus) {
    const std::uint32_t idle = pool().idle(n);
    if (idle >= gpus) return;
    for (const resize& change : resized(elastic(n), gpus - idle, false)) {
      gandiva_job& r = at(change.job);
      std::uint32_t mask = r.where[0].gpu_mask;
      while (static_cast<std::uint32_t>(std::popcount(mask)) > change.gpus) {
        mask ^= std::bit_floor(mask);
      }
      const job_placement freed{{n, r.where[0].gpu_mask ^ mask}};
      servers_.pool().give(freed);
      r.where[0].gpu_mask = mask;
      emit(r, {job_action::verb::shrink, r.request.job, r.where, {}});
      touched_.push_back(n);
    }
  }
  // The running jobs of the server that may grow or have grown.
  [[nodiscard]] std::vector<elastic_job> elastic(node_id n) const {
    std::vector<elastic_job> jobs;
    for (const job_id job : servers_.jobs(n)) {
      const gandiva_job& r = at(job);
      if (!r.runs() || r.packed() || r.home != n || r.request.max_gpus <= r.request.gpus) continue;
      jobs.push_back({job, r.request.gpus, r.num_gpus(), r.request.max_gpus});
    }
    return jobs;
  }
  // Grows the job to `gpus` GPUs of its server. Requires: it has fewer, and enough GPUs are idle.
  void enlarge(gandiva_job& r, std::uint32_t gpus) {
    const job_placement more{pool().pick_idle(r.home, gpus - r.num_gpus())};
    servers_.pool().take(r.request.job, more);
    r.where[0].gpu_mask |= more[0].gpu_mask;
    emit(r, {job_action::verb::grow, r.request.job, r.where, {}});
  }
  // Migrates the job to so many GPUs of each server, and undoes its packing. Requires: the job runs
  // and has no follower; these are as many GPUs as it asked for, and are unsubscribed or its own.
  void migrate(gandiva_job& r, const gpus_by_server& to) {
    if (r.leader.valid()) {
      unlink(at(r.leader), r);
    } else {
      servers_.pool().give(r.where);
    }
    unpin_all(r);
    job_placement where = pick(to);
    servers_.pool().take(r.request.job, where);
    const bool alone = where.size() == 1;
    edit(r, [&] { r.home = alone ? where[0].node : node_id(); });
    if (!alone) pin_all(r, where);
    r.where = where;
    r.moved = now_;
    touched_.push_back(where[0].node);
    emit(r, {job_action::verb::migrate, r.request.job, std::move(where), {}});
  }
  // Starts or migrates the follower on the GPUs of the leader, on the same server. Requires:
  // neither is packed, both asked for the same number of GPUs, and the leader runs on so many.
  void pack(gandiva_job& leader, gandiva_job& follower) {
    if (follower.runs()) {
      servers_.pool().give(follower.where);
      follower.where = leader.where;
      follower.moved = now_;
      emit(follower, {job_action::verb::migrate, follower.request.job, follower.where, {}});
    } else {
      run(follower, job_action::verb::pack, leader.where);
    }
    const gandiva_claim before = claim(follower);
    follower.leader = leader.request.job;
    servers_.change(follower.request.job, before, claim(follower));
    leader.follower = follower.request.job;
    follower.packed_rate = leader.packed_rate = 0;
    insert_sorted(followers_, follower.request.job);
  }
  // The packing has proved to pay.
  void keep(gandiva_job& follower) {
    edit(follower, [&] { follower.kept = true; });
  }
  // The follower stops and waits for a time slice. Requires: it runs.
  void unpack(gandiva_job& follower) {
    unlink(at(follower.leader), follower);
    halt(follower, job_action::verb::unpack);
  }
  // Undoes the packing of two jobs without an action.
  void unlink(gandiva_job& leader, gandiva_job& follower) {
    erase_sorted(followers_, follower.request.job);
    leader.follower = {};
    edit(follower, [&] {
      follower.leader = {};
      follower.kept = false;
    });
  }

 private:
  [[nodiscard]] static gandiva_claim claim(const gandiva_job& r) noexcept {
    if (!r.home.valid()) return {};
    return {r.home,
            r.request.gpus,
            r.kept ? 0 : r.request.gpus,
            r.waits_for_slice(),
            false,
            r.leader.valid() ? 0 : r.request.gpus,
            r.request.priority};
  }
  // So many GPUs of each server, ascending; jobs that have grown there shrink if necessary.
  [[nodiscard]] job_placement pick(const gpus_by_server& from) {
    job_placement picked;
    for (const auto& [n, gpus] : from) {
      free_grown(n, gpus);
      picked.push_back(pool().pick_idle(n, gpus));
    }
    std::sort(picked.begin(), picked.end(),
              [](placement a, placement b) { return a.node < b.node; });
    return picked;
  }
  // Changes a job, and its data in the servers.
  template <class Change>
  void edit(gandiva_job& r, Change&& change) {
    const gandiva_claim before = claim(r);
    change();
    const gandiva_claim after = claim(r);
    servers_.change(r.request.job, before, after);
    if (before.server.valid()) touched_.push_back(before.server);
    if (after.server.valid() && after.server != before.server) touched_.push_back(after.server);
  }
  // Takes or releases the GPUs of a job on one of its several servers.
  void pin(const gandiva_job& r, const placement& p, bool comes) {
    const gandiva_claim on_server{p.node, r.request.gpus, p.num_gpus(), false, true};
    servers_.change(r.request.job, comes ? gandiva_claim{} : on_server,
                    comes ? on_server : gandiva_claim{});
    touched_.push_back(p.node);
  }
  // The job gets these GPUs of several servers.
  void pin_all(const gandiva_job& r, const job_placement& where) {
    for (const placement& p : where) pin(r, p, true);
    if (where.size() > pool().fewest_servers(r.request.gpus))
      insert_sorted(dispersed_, r.request.job);
  }
  // The job releases its GPUs if they are on several servers.
  void unpin_all(const gandiva_job& r) {
    if (r.where.size() < 2) return;
    for (const placement& p : r.where) pin(r, p, false);
    erase_sorted(dispersed_, r.request.job);
  }
  void run(gandiva_job& r, job_action::verb what, job_placement where) {
    delays waited = std::exchange(r.waited, {});
    waited[delay_cause::order] += now_ - r.since;
    edit(r, [&] { r.phase = gandiva_phase::run; });
    r.where = std::move(where);
    r.since = r.moved = now_;
    emit(r, {what, r.request.job, r.where, waited});
  }
  void halt(gandiva_job& r, job_action::verb what) {
    const std::int64_t ran = slice_pass(now_ - r.since, r.request.weight);
    r.since = now_;
    r.where.clear();
    edit(r, [&] {
      r.pass += ran;
      r.phase = gandiva_phase::suspended;
    });
    emit(r, {what, r.request.job, {}, {}});
  }
  // Appends the action, or replaces that of a job that shrank in this decision.
  void emit(gandiva_job& r, job_action action) {
    if (acted(r)) {
      APIARY_VERIFY((*actions_)[r.action].what == job_action::verb::shrink);
      APIARY_VERIFY(action.what == job_action::verb::shrink ||
                    action.what == job_action::verb::suspend);
      (*actions_)[r.action] = std::move(action);
      return;
    }
    r.decision = decision_;
    r.action = actions_->size();
    actions_->push_back(std::move(action));
  }

  gandiva_servers servers_;
  std::unordered_map<std::uint32_t, gandiva_job> jobs_;
  std::vector<job_id> followers_;  // ascending
  std::vector<job_id> dispersed_;  // ascending
  std::vector<node_id> touched_;
  std::vector<job_action>* actions_ = nullptr;  // between begin() and end()
  std::uint64_t decision_ = 0;
  time_ms now_ = 0;
};

// The jobs that wait for a server, by arrival. Those with as many GPUs and the same priority are of
// one kind (queue/kinds.h).
// Cost: enter, leave O(log waiting jobs); the rest O(kinds), callbacks excluded.
class gandiva_queue {
 public:
  // Adds a job that waits from now on.
  void enter(gandiva_job& r, time_ms now) {
    r.entered = waiting_.enter(kind_of(r), r.request.job, r.key, 0, now);
  }
  // Removes a waiting job, and adds the time that it waited to r.waited.
  void leave(gandiva_job& r, time_ms now) {
    r.waited += waiting_.leave(kind_of(r), r.request.job, r.key, r.entered, now);
    r.since = now;
  }
  // Whether no job waits.
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  // Calls place(job) by arrival; it returns whether the job left the queue. If a job stays, the
  // others of its kind are not tried.
  template <class Place>
  void place_all(Place&& place) {
    waiting_.visit_in_order([&](const auto& next) { return place(next.job); });
  }
  // Sets the cause of each kind, from the number of idle GPUs.
  void explain(std::uint32_t idle, time_ms now) {
    waiting_.set_causes(
        [&](const kind& k, bool) {
          return k.gpus > idle ? delay_cause::capacity : delay_cause::fragmentation;
        },
        now);
  }

 private:
  struct kind {
    std::uint32_t gpus = 0;
    std::int32_t priority = 0;
    friend constexpr auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  [[nodiscard]] static kind kind_of(const gandiva_job& r) noexcept {
    return {r.request.gpus, r.request.priority};
  }
  kind_queues<kind> waiting_;
};

// Assigns queued jobs to servers by arrival, by the published rule (see the module's page).
// Cost: O(GPUs of a server * log64 servers) for each number of GPUs and priority.
inline void assign_queued(gandiva_jobs& jobs, gandiva_queue& queue, time_ms now) {
  const gandiva_servers& servers = jobs.servers();
  queue.place_all([&](job_id job) {
    gandiva_job& r = jobs.at(job);
    const std::uint32_t gpus = r.request.gpus;
    const node_id same = servers.least_loaded(gpus);
    node_id home = same;
    if (!same.valid() || servers.unsubscribed(same) < gpus) {
      home = servers.empty(gpus);
      if (!home.valid()) home = servers.tightest(gpus);
    }
    if (!home.valid()) {
      if (const gpus_by_server split = servers.spread(gpus); !split.empty()) {
        queue.leave(r, now);
        jobs.start_multi_server(r, split);
        return true;
      }
      home = same;
    }
    if (!home.valid()) return false;
    queue.leave(r, now);
    jobs.settle(r, home);
    return true;
  });
}

}  // namespace detail
APIARY_NAMESPACE_END
