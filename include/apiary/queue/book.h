// apiary/queue/book.h - the jobs of a queue, waiting and running, and the placer of those that run.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/kinds.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What job_book keeps about a job; the record of a queue derives from it.
template <Placer P>
struct booked_job {
  typename P::request request{};  // what it asks for
  typename P::kind kind{};        // its kind
  time_ms estimate = max_time;    // for limits on estimates while it waits
  std::int64_t key = 0;           // its position in the order while it waits
  delays entered{};               // the clock of its kind when it began to wait
  bool running = false;           // whether it runs
};

// Keeps the jobs of a queue, its kind_queues and the placer consistent. The queue decides which job
// starts when.
// Cost: a call O(log waiting jobs), and what the placer takes.
template <Placer P, class Record = booked_job<P>>
class job_book {
 public:
  using request = typename P::request;                // what jobs ask for
  using placement_type = typename P::placement_type;  // where they run
  using queue_type = kind_queues<typename P::kind>;   // of the waiting jobs
  explicit job_book(P placer) : placer_(std::move(placer)) {}

  // Adds a job that neither waits nor runs yet; valid until forget(). kInvalidArgument: no job id,
  // an estimate below 0, or too large. kAlreadyExists: the id is in use.
  [[nodiscard]] absl::StatusOr<Record*> add(const request& r, time_ms estimate) {
    const job_id job = r.job;
    if (!job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (estimate < 0) {
      return absl::InvalidArgumentError(absl::StrCat(detail::name_of(job), ": an estimate of ",
                                                     estimate, ", which is not at least 0"));
    }
    APIARY_RETURN_IF_ERROR(placer_.check(r));
    const auto [at, is_new] = jobs_.try_emplace(job.value);
    if (!is_new) return absl::AlreadyExistsError(detail::name_of(job) + " exists already");
    at->second.request = r;
    at->second.kind = placer_.kind_of(r);
    at->second.estimate = estimate;
    return &at->second;
  }
  // kNotFound: there is no such job.
  [[nodiscard]] absl::StatusOr<Record*> find(job_id job) {
    Record* const found = look_up(job);
    if (found == nullptr) return absl::NotFoundError(detail::missing(job));
    return found;
  }
  // The record of a job. Requires: there is such a job.
  [[nodiscard]] Record& operator[](job_id job) { return jobs_.at(job.value); }
  // The record of a job; null: there is none.
  [[nodiscard]] const Record* look_up(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] Record* look_up(job_id job) {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  // The job is no job of the queue any more. Requires: it neither waits nor runs.
  void forget(job_id job) { jobs_.erase(job.value); }

  // The job waits from now on, with its key. Requires: it does not run.
  void wait(Record& r, time_ms now) {
    r.entered = queues_.enter(r.kind, r.request.job, r.key, r.estimate, now);
  }
  // The job does not wait any more. Returns how long it has waited, by cause. Requires: it waits.
  delays leave(const Record& r, time_ms now) {
    return queues_.leave(r.kind, r.request.job, r.key, r.entered, now);
  }
  // Where the job would run now; nullopt: it does not fit now.
  [[nodiscard]] absl::StatusOr<std::optional<placement_type>> propose(const Record& r) {
    return placer_.propose(r.request);
  }
  // Starts a waiting job if it fits now and accept(placement) is true; returns whether it has, and
  // adds the action. If it does not fit, its kind fails in this round.
  template <class Accept>
  [[nodiscard]] absl::StatusOr<bool> start(Record& r, time_ms now, std::vector<job_action>& actions,
                                           Accept&& accept) requires JobPlacer<P> {
    APIARY_ASSIGN_OR_RETURN(std::optional<job_placement> where, propose(r));
    if (!where) {
      queues_.fail(r.kind);
      return false;
    }
    if (!accept(*where)) return false;
    APIARY_RETURN_IF_ERROR(start_at(r, *std::move(where), now, actions));
    return true;
  }
  // Starts a waiting job where it was proposed, and adds the action.
  [[nodiscard]] absl::Status start_at(Record& r, job_placement where, time_ms now,
                                      std::vector<job_action>& actions) requires JobPlacer<P> {
    APIARY_RETURN_IF_ERROR(put(r, where));
    const delays waited = leave(r, now);
    actions.push_back({job_action::verb::start, r.request.job, std::move(where), waited});
    return absl::OkStatus();
  }
  // The same for any placement.
  [[nodiscard]] absl::StatusOr<bool> start(Record& r, time_ms now,
                                           std::vector<job_action>& actions) requires JobPlacer<P> {
    return start(r, now, actions, [](const job_placement&) { return true; });
  }
  // The job runs at `where` from now on, as far as the placer knows. An error, and no change, if it
  // cannot. If it waited, call leave(), too. Requires: it does not run.
  [[nodiscard]] absl::Status put(Record& r, const placement_type& where) {
    APIARY_RETURN_IF_ERROR(placer_.commit(r.request, where));
    r.running = true;
    return absl::OkStatus();
  }
  // The job does not run any more. Requires: it runs.
  [[nodiscard]] absl::Status stop(Record& r) {
    APIARY_RETURN_IF_ERROR(placer_.finish(r.request.job));
    r.running = false;
    return absl::OkStatus();
  }
  // Calls stopped(record) for jobs on the server; returns them, ascending. kNotFound: no server.
  template <class F>
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, F&& stopped) {
    const std::uint32_t idle = placer_.idle_gpus();
    APIARY_RETURN_IF_ERROR(placer_.mark_bad(n));
    std::vector<job_id> jobs = placer_.jobs_on(n);
    servers_changed_ = !jobs.empty() || placer_.idle_gpus() != idle;
    for (const job_id job : jobs) APIARY_RETURN_IF_ERROR(stopped((*this)[job]));
    return jobs;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n) {
    const std::uint32_t idle = placer_.idle_gpus();
    APIARY_RETURN_IF_ERROR(placer_.mark_healthy(n));
    servers_changed_ = placer_.idle_gpus() != idle;
    return absl::OkStatus();
  }
  // Whether the last mark_bad or mark_healthy changed something: the server was not so before, and
  // it has GPUs.
  [[nodiscard]] bool servers_changed() const noexcept { return servers_changed_; }

  // The waiting jobs.
  [[nodiscard]] queue_type& queues() noexcept { return queues_; }
  [[nodiscard]] const queue_type& queues() const noexcept { return queues_; }
  // Where the running jobs run.
  [[nodiscard]] P& placer() noexcept { return placer_; }
  [[nodiscard]] const P& placer() const noexcept { return placer_; }
  // All jobs.
  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  // Running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.size() - queues_.size(); }

 private:
  P placer_;
  std::unordered_map<std::uint32_t, Record> jobs_;
  queue_type queues_;
  bool servers_changed_ = false;
};

namespace detail {

// What is left of a job's work, in ms, after a failure of its server: whole intervals; nothing if
// the interval is 0.
[[nodiscard]] constexpr time_ms kept_work(time_ms work, time_ms interval) noexcept {
  return interval == 0 ? 0 : work - work % interval;
}

}  // namespace detail
APIARY_NAMESPACE_END
