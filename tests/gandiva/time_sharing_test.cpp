// apiary/tests/gandiva/time_sharing_test.cpp - time slices on a counter of GPUs, against a version that tries all.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace time_sharing_tests {
namespace {

using namespace apiary;

// A request without a kind.
struct plain_request {
  job_id job{};
  std::int32_t priority = 0;
  std::uint32_t gpus = 1;
};

// The kind of a request.
struct any_kind {
  std::uint32_t gpus = 0;
  std::uint32_t tenant = 0;
  std::int32_t priority = 0;
  job_id job{};
  friend auto operator<=>(const any_kind&, const any_kind&) noexcept = default;
};
any_kind kind_of_request(const job_request& r) { return {r.gpus, r.tenant.value, r.priority, {}}; }
any_kind kind_of_request(const plain_request& r) { return {0, 0, 0, r.job}; }

// Counts GPUs of one node. A guaranteed job stops jobs of lower numbers, first those of the lowest number
// and, of these, of the highest id. A placement is the number of GPUs.
template <class Request>
struct gpu_counter {
  using request = Request;
  using placement_type = std::uint32_t;
  using kind = any_kind;
  static constexpr bool guarantees = true;
  std::uint32_t all = 0;
  bool healthy = true;
  std::uint64_t tries = 0;  // calls of propose_preempting() and propose()
  std::map<job_id, request> running{};

  [[nodiscard]] std::uint32_t left() const {
    std::uint32_t used = 0;
    for (const auto& [job, r] : running) used += r.gpus;
    return all - used;
  }
  [[nodiscard]] std::uint32_t idle_gpus() const { return healthy ? left() : 0; }
  [[nodiscard]] std::uint32_t total_gpus() const { return all; }
  [[nodiscard]] kind kind_of(const request& r) const { return kind_of_request(r); }
  absl::Status check(const request& r) {
    return r.gpus > all ? absl::InvalidArgumentError("too large") : absl::OkStatus();
  }
  absl::StatusOr<std::optional<std::uint32_t>> propose(const request& r) {
    ++tries;
    return healthy && r.gpus <= left() ? std::optional(r.gpus) : std::nullopt;
  }
  absl::StatusOr<placer_answer<std::uint32_t>> propose_preempting(const request& r) {
    ++tries;
    placer_answer<std::uint32_t> answer;
    if (!healthy) return answer;
    std::vector<std::pair<std::int32_t, job_id>> others;
    for (const auto& [job, other] : running)
      if (r.priority >= 0 && other.priority < r.priority) others.emplace_back(-other.priority, job);
    std::sort(others.begin(), others.end());
    std::uint32_t idle = left();
    for (; idle < r.gpus && !others.empty(); others.pop_back()) {
      answer.victims.push_back(others.back().second);
      idle += running.at(answer.victims.back()).gpus;
    }
    if (idle < r.gpus) return placer_answer<std::uint32_t>();
    answer.result = answer.victims.empty() ? plan_result::bind : plan_result::preempt;
    answer.where = r.gpus;
    return answer;
  }
  absl::Status reserve(job_id) { return absl::OkStatus(); }
  absl::Status commit(const request& r, const placement_type&) {
    if (r.gpus > left()) return absl::AbortedError("not idle");
    running.emplace(r.job, r);
    return absl::OkStatus();
  }
  absl::Status finish(job_id job) {
    return running.erase(job) > 0 ? absl::OkStatus() : absl::NotFoundError("it does not run");
  }
  absl::Status mark(node_id n, bool good) {
    if (n.value > 0) return absl::NotFoundError("one node");
    healthy = good;
    return absl::OkStatus();
  }
  absl::Status mark_bad(node_id n) { return mark(n, false); }
  absl::Status mark_healthy(node_id n) { return mark(n, true); }
  [[nodiscard]] std::vector<job_id> jobs_on(node_id) const {
    std::vector<job_id> jobs;
    for (const auto& [job, r] : running) jobs.push_back(job);
    return jobs;
  }
};
static_assert(GuaranteeingPlacer<gpu_counter<job_request>>);
static_assert(GuaranteeingPlacer<gpu_counter<plain_request>>);

// The same by the words of the module's page: no kinds, no indices, every job is tried at every tick.
template <class Request>
struct naive_sharing {
  using action = typename time_sharing<gpu_counter<Request>>::action;
  using verb = typename action::verb;
  struct entry {
    Request r{};
    std::uint32_t weight = 1;
    bool runs = false, ran = false;
    std::int64_t pass = 0;
    time_ms since = 0;
    std::uint64_t round = 0;
  };
  gpu_counter<Request> backend;
  time_sharing_options options;
  std::map<job_id, entry> jobs{};
  std::uint64_t round = 0;
  time_ms now = 0, slice = -1;

  [[nodiscard]] static bool is_sliced(const entry& e) { return e.r.priority < 0; }
  [[nodiscard]] std::int64_t pass(const entry& e) const {
    return e.runs ? e.pass + detail::slice_pass(now - e.since, e.weight) : e.pass;
  }
  void act(entry& e, verb what, std::vector<action>& actions) {
    e.round = round;
    actions.push_back({what, e.r.job, what == verb::suspend ? 0 : e.r.gpus});
  }
  void suspend(entry& e, std::vector<action>& actions) {
    e.pass = pass(e);
    e.runs = false;
    e.since = now;
    act(e, verb::suspend, actions);
  }
  bool try_start(entry& e, std::vector<action>& actions) {
    const auto answer = *backend.propose_preempting(e.r);
    if (answer.result == plan_result::wait) return false;
    for (const job_id victim : answer.victims) {
      REQUIRE(backend.finish(victim).ok());
      suspend(jobs.at(victim), actions);
    }
    REQUIRE(backend.commit(e.r, e.r.gpus).ok());
    run(e, actions);
    return true;
  }
  void run(entry& e, std::vector<action>& actions) {
    e.runs = true;
    e.since = now;
    act(e, e.ran ? verb::resume : verb::start, actions);
    e.ran = true;
  }
  void submit(const Request& r, std::uint32_t weight, time_ms at, std::vector<action>& actions) {
    now = at;
    ++round;
    std::optional<std::int64_t> least;
    for (const auto& [job, e] : jobs)
      if (is_sliced(e)) least = std::min(least.value_or(pass(e)), pass(e));
    entry& e = jobs[r.job];
    e = {.r = r, .weight = weight, .pass = least.value_or(0), .since = now};
    try_start(e, actions);
  }
  void finish(job_id job, time_ms at) {
    now = at;
    if (jobs.at(job).runs) REQUIRE(backend.finish(job).ok());
    jobs.erase(job);
  }
  // The waiting jobs for which key(entry) is a value, in its order.
  template <class Key>
  std::vector<entry*> waiting(const Key& key) {
    std::vector<std::pair<std::int64_t, entry*>> all;
    for (auto& [job, e] : jobs)
      if (const std::optional<std::int64_t> k = e.runs ? std::nullopt : key(e))
        all.emplace_back(*k, &e);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<entry*> order;
    for (const auto& [k, e] : all) order.push_back(e);
    return order;
  }
  void tick(time_ms at, std::vector<action>& actions) {
    using key = std::optional<std::int64_t>;
    now = at;
    ++round;
    for (entry* e :
         waiting([](const entry& w) { return is_sliced(w) ? key() : key(-w.r.priority); }))
      try_start(*e, actions);
    const bool is_new = options.quantum != max_time && now / options.quantum != slice;
    slice = now / options.quantum;
    std::vector<entry*> others;  // the one that ran longest first
    for (auto& [job, e] : jobs)
      if (is_new && e.runs && is_sliced(e) && e.round != round) others.push_back(&e);
    std::sort(others.begin(), others.end(), [&](const entry* a, const entry* b) {
      return std::tuple(pass(*a), a->r.job) > std::tuple(pass(*b), b->r.job);
    });
    const time_ms max_wait = detail::starving_time(options.max_wait, options.quantum);
    for (entry* e : waiting([&](const entry& w) {
           return is_sliced(w) && is_new && w.since <= now - max_wait ? key(w.since) : key();
         }))
      try_to_run(*e, true, others, actions);
    for (entry* e : waiting([](const entry& w) { return is_sliced(w) ? key(w.pass) : key(); }))
      try_to_run(*e, false, others, actions);
  }
  void try_to_run(entry& e, bool any, const std::vector<entry*>& others,
                  std::vector<action>& actions) {
    if (e.runs || e.round == round || try_start(e, actions)) return;
    std::vector<entry*> stopped;
    bool fits = false;
    for (entry* other : others) {
      if (fits || !(any || pass(*other) > e.pass)) break;
      if (!other->runs) continue;
      REQUIRE(backend.finish(other->r.job).ok());
      stopped.push_back(other);
      fits = backend.propose(e.r)->has_value();
      if (fits) REQUIRE(backend.commit(e.r, e.r.gpus).ok());
    }
    for (auto other = stopped.rbegin(); other != stopped.rend(); ++other)
      if (!backend.commit((*other)->r, 0).ok()) suspend(**other, actions);
    if (fits) run(e, actions);
  }
};

template <class Request>
void compare(std::uint64_t seeds) {
  using sharing = time_sharing<gpu_counter<Request>>;
  using action = typename sharing::action;
  std::map<typename action::verb, std::uint64_t> verbs;
  std::uint64_t starved = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const gpu_counter<Request> backend{.all = 2 + random.uniform(7)};
    const time_sharing_options options{.quantum = 1 + random.uniform(6),
                                       .max_wait = random.uniform(4),
                                       .shares_gpu_time = random.uniform(2) == 0};
    const bool has_prioritized = random.uniform(3) > 0;
    sharing fast = sharing::create(backend, options).value();
    naive_sharing<Request> slow{.backend = backend, .options = options};
    std::map<job_id, std::pair<time_ms, std::int64_t>> waits;  // since when, for how long at most
    std::uint32_t next_id = 0;
    for (time_ms now = 0; now < 60; ++now) {
      CAPTURE(now);
      std::vector<action> actions, expected;
      bool event = now == 0;
      while (random.uniform(3) == 0) {
        Request r{};
        r.job = job_id(next_id++);
        r.priority = has_prioritized && random.uniform(3) == 0
                         ? static_cast<std::int32_t>(random.uniform(3))
                         : -1 - static_cast<std::int32_t>(random.uniform(2));
        r.gpus = 1 + random.uniform(backend.all);
        const std::uint32_t weight = 1 + random.uniform(3);
        const bool shares = options.shares_gpu_time && std::is_same_v<Request, job_request>;
        const std::uint32_t shared = shares ? detail::gpu_time_weight(weight, r.gpus) : weight;
        REQUIRE(fast.submit(r, {.weight = weight}, now, actions).ok());
        slow.submit(r, shared, now, expected);
        event = true;
      }
      if (!slow.jobs.empty() && random.uniform(3) == 0) {
        const auto at = std::next(slow.jobs.begin(),
                                  random.uniform(static_cast<std::uint32_t>(slow.jobs.size())));
        const job_id job = at->first;
        REQUIRE(fast.finish(job, now).ok());
        slow.finish(job, now);
        event = true;
      }
      if (has_prioritized && random.uniform(12) == 0) {
        const bool good = random.uniform(3) > 0;
        REQUIRE((good ? fast.mark_healthy(node_id(0)) : fast.mark_bad(node_id(0))).ok());
        slow.backend.healthy = good;
        event = true;
      }
      if (event || fast.wake() <= now) {
        REQUIRE(fast.decide(now, actions).ok());
        slow.tick(now, expected);
      } else {
        naive_sharing<Request> copy = slow;  // nothing would happen before wake()
        copy.tick(now, expected);
      }
      REQUIRE(actions == expected);
      REQUIRE(fast.wake() > now);
      REQUIRE(fast.num_jobs() == slow.jobs.size());
      for (const action& a : actions) ++verbs[a.what];
      const auto num_waiting = static_cast<std::int64_t>(fast.num_waiting());
      for (const auto& [job, e] : slow.jobs) {
        const auto runs = naive_sharing<Request>::is_sliced(e) ? sharing::phase::sliced
                                                               : sharing::phase::guaranteed;
        REQUIRE(fast.find(job) == (e.runs ? runs : sharing::phase::wait));
        REQUIRE(fast.pass(job) == slow.pass(e));
        // Without prioritized jobs and bad nodes, the wait of a job has a bound.
        if (e.runs) waits.erase(job);
        if (e.runs || has_prioritized || options.max_wait == 0) continue;
        const auto [wait, is_new] =
            waits.try_emplace(job, now, (options.max_wait + 2 + num_waiting) * options.quantum);
        REQUIRE(now - wait->second.first <= wait->second.second);
        starved += now - wait->second.first >= options.max_wait * options.quantum ? 1U : 0U;
      }
    }
  }
  CHECK(verbs.size() == 3);  // starts, suspensions and resumptions
  CHECK(starved > 0);
}

TEST_CASE(
    "time_sharing: the same actions as a version without kinds and indices, for jobs with kinds") {
  compare<job_request>(apiary_test::scaled(1'000U));
}

TEST_CASE("time_sharing: the same for requests without kinds") {
  compare<plain_request>(apiary_test::scaled(1'000U));
}

// 30 guaranteed jobs of two tenants and two sizes wait, and a job ends: so many proposals does
// the next tick make, and so many does it make when nothing has changed.
template <class Request>
std::pair<std::uint64_t, std::uint64_t> tries_after_an_end() {
  using sharing = time_sharing<gpu_counter<Request>>;
  sharing scheduler = sharing::create({.all = 4}, {.quantum = 10}).value();
  std::vector<typename sharing::action> actions;
  const auto submit = [&](std::uint32_t job, std::uint32_t tenant, std::uint32_t gpus) {
    Request r{};
    r.job = job_id(job);
    r.priority = 1;
    r.gpus = gpus;
    if constexpr (requires { r.tenant; }) r.tenant = tenant_id(tenant);
    REQUIRE(scheduler.submit(r, {}, 0, actions).ok());
  };
  submit(0, 0, 3);
  submit(1, 0, 1);
  for (std::uint32_t job = 2; job < 32; ++job) submit(job, job % 2, job < 12 ? 3 : 4);
  REQUIRE(scheduler.decide(0, actions).ok());
  REQUIRE(scheduler.finish(job_id(1), 1).ok());
  std::pair<std::uint64_t, std::uint64_t> tries;
  const std::uint64_t before = scheduler.placer().tries;
  REQUIRE(scheduler.decide(1, actions).ok());
  tries.first = scheduler.placer().tries - before;
  REQUIRE(scheduler.decide(2, actions).ok());
  tries.second = scheduler.placer().tries - before - tries.first;
  REQUIRE(scheduler.num_waiting() == 30);
  return tries;
}

TEST_CASE("time_sharing: of waiting prioritized jobs, a tick tries one of each kind") {
  using counts = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(tries_after_an_end<job_request>() == counts(4, 0));
  CHECK(tries_after_an_end<plain_request>() == counts(30, 0));  // without kinds
}

TEST_CASE("time_sharing: an error changes nothing") {
  using sharing = time_sharing<gpu_counter<plain_request>>;
  CHECK(sharing::create({.all = 4}, {.quantum = 0}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  gpu_counter<plain_request> used{.all = 4};
  used.running[job_id(9)] = {.job = job_id(9)};
  CHECK(sharing::create(used, {}).status().code() == absl::StatusCode::kFailedPrecondition);

  sharing scheduler = sharing::create({.all = 4}, {.quantum = 10}).value();
  std::vector<sharing::action> actions;
  const plain_request first{.job = job_id(1), .priority = -1, .gpus = 3};
  REQUIRE(scheduler.submit(first, {}, 5, actions).ok());
  REQUIRE(actions.size() == 1);
  const plain_request more{.job = job_id(2), .priority = -1, .gpus = 5};
  CHECK(scheduler.submit(more, {}, 5, actions).message() == "too large");
  CHECK(scheduler.submit(first, {}, 5, actions).code() == absl::StatusCode::kAlreadyExists);
  CHECK(scheduler.submit(plain_request{.job = job_id(3)}, {.weight = 0}, 5, actions).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.submit(plain_request{.job = job_id(3)}, {.weight = 1001}, 5, actions).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.submit({.job = job_id(3)}, {}, 4, actions).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.decide(sharing::end_of_time, actions).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.finish(job_id(2), 5).code() == absl::StatusCode::kNotFound);
  CHECK(scheduler.mark_bad(node_id(1)).code() == absl::StatusCode::kNotFound);
  CHECK(actions.size() == 1);
  CHECK(scheduler.num_jobs() == 1);
  CHECK(scheduler.may_start({.job = job_id(3), .priority = -1, .gpus = 1}));
  CHECK(!scheduler.may_start({.job = job_id(3), .priority = -1, .gpus = 2}));
  CHECK(scheduler.may_start({.job = job_id(3), .priority = 0, .gpus = 2}));
}

}  // namespace
}  // namespace time_sharing_tests
