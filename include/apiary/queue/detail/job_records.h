// apiary/queue/detail/job_records.h - the jobs of a queue, waiting and running.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/book.h>
#include <apiary/queue/detail/wait_queues.h>

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
namespace detail {

// What job_records keeps about a job; the record of a queue derives from it.
struct booked_job {
  job_request request{};
  std::int64_t key = 0;  // its position in the order while it waits
  delays entered{};      // the clock of its kind when it began to wait
  bool running = false;
};

// Accepts every placement.
struct accept_any {
  constexpr bool operator()(const job_placement&) const noexcept { return true; }
};

// Keeps the jobs of a queue, the wait queues and the placer consistent. The queue decides which job
// starts when. Cost: a call O(log waiting jobs), and what the placer takes.
template <JobPlacer Placer, class Record>
class job_records {
 public:
  explicit job_records(Placer placer) : placer_(std::move(placer)) {}

  // Adds a job that neither waits nor runs yet; valid until forget(). kInvalidArgument: no job id,
  // an estimate below `least` or above `most`, or too large. kAlreadyExists: the id is in use.
  [[nodiscard]] absl::StatusOr<Record*> add(const job_request& r, time_ms least, time_ms most) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.estimate < least || r.estimate > most) {
      const bool small = r.estimate < least;
      return absl::InvalidArgumentError(
          absl::StrCat(name_of(r.job), ": an estimate of ", r.estimate, ", which is not ",
                       small ? "at least " : "at most ", small ? least : most));
    }
    APIARY_RETURN_IF_ERROR(placer_.check(r));
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return absl::AlreadyExistsError(name_of(r.job) + " exists already");
    at->second.request = r;
    return &at->second;
  }
  // kNotFound: there is no such job.
  [[nodiscard]] absl::StatusOr<Record*> find(job_id job) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError(missing(job));
    return &found->second;
  }
  // Requires: there is such a job.
  [[nodiscard]] Record& operator[](job_id job) { return jobs_.at(job.value); }
  [[nodiscard]] const Record* look_up(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] Record* look_up(job_id job) {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  void forget(job_id job) { jobs_.erase(job.value); }

  // The job waits from now on, with its key. Requires: it does not run.
  void wait(Record& r, time_ms now) { r.entered = queues_.enter(r.request, r.key, now); }
  // The job does not wait any more. Returns how long it has waited, by cause. Requires: it waits.
  delays leave(const Record& r, time_ms now) {
    return queues_.leave(r.request, r.key, r.entered, now);
  }
  // Where the job would run now; nullopt: it does not fit now.
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const Record& r) {
    return placer_.propose(r.request);
  }
  // Starts a waiting job if it fits now and accept(placement) is true; returns whether it has. If it
  // does not fit, its kind (GPU count and demand) fails in this round.
  template <class Accept = accept_any>
  [[nodiscard]] absl::StatusOr<bool> start(Record& r, time_ms now, std::vector<job_action>& actions,
                                           Accept&& accept = {}) {
    APIARY_ASSIGN_OR_RETURN(std::optional<job_placement> where, propose(r));
    if (!where) {
      queues_.fail(r.request);
      return false;
    }
    if (!accept(*where)) return false;
    APIARY_RETURN_IF_ERROR(placer_.commit(r.request, *where));
    const delays waited = leave(r, now);
    r.running = true;
    actions.push_back({job_action::verb::start, r.request.job, *std::move(where), waited});
    return true;
  }
  // A waiting job runs at `where` again, without an action; false, and no change, if it cannot.
  [[nodiscard]] bool go_on(Record& r, const job_placement& where, time_ms now) {
    if (!put_at(r, where)) return false;
    leave(r, now);
    return true;
  }
  // The job runs at `where` from now on, as far as the placer knows; false, and no change, if it
  // cannot. If it waited, the caller must call leave(). Requires: it does not run.
  [[nodiscard]] bool put_at(Record& r, const job_placement& where) {
    r.running = placer_.commit(r.request, where).ok();
    return r.running;
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
  [[nodiscard]] absl::Status mark_healthy(node_id n) {
    const std::uint32_t idle = placer_.idle_gpus();
    APIARY_RETURN_IF_ERROR(placer_.mark_healthy(n));
    servers_changed_ = placer_.idle_gpus() != idle;
    return absl::OkStatus();
  }
  // Whether the last mark_bad or mark_healthy changed something: the server was not so before, and
  // it has GPUs.
  [[nodiscard]] bool servers_changed() const noexcept { return servers_changed_; }

  [[nodiscard]] wait_queues& queues() noexcept { return queues_; }
  [[nodiscard]] const wait_queues& queues() const noexcept { return queues_; }
  [[nodiscard]] const Placer& placer() const noexcept { return placer_; }
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.size() - queues_.size(); }

 private:
  Placer placer_;
  std::unordered_map<std::uint32_t, Record> jobs_;
  wait_queues queues_;
  bool servers_changed_ = false;
};

}  // namespace detail
APIARY_NAMESPACE_END
