// apiary/tests/queue/book_test.cpp - jobs that wait and run, kept beside a list of them.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/book.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// GPUs that are counted and nothing else; answers as answer_for() says.
class counted_gpus : public job_placer_types {
 public:
  explicit counted_gpus(std::uint32_t gpus) : idle_(gpus), total_(gpus) {}

  [[nodiscard]] absl::Status check(const job_request& r) const {
    if (r.gpus <= total_) return absl::OkStatus();
    return absl::InvalidArgumentError("too large");
  }
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    APIARY_RETURN_IF_ERROR(answer_for(r.job));
    if (r.gpus > idle_) return std::nullopt;
    return job_placement{{node_id(0), r.gpus}};
  }
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    if (r.tenant == tenant_id(13)) return absl::AbortedError("not this tenant");
    REQUIRE(where == job_placement{{node_id(0), r.gpus}});
    idle_ -= r.gpus;
    REQUIRE(running_.try_emplace(r.job, r.gpus).second);
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status finish(job_id job) {
    const auto found = running_.find(job);
    if (found == running_.end()) return absl::NotFoundError("it does not run");
    idle_ += found->second;
    running_.erase(found);
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status mark_bad(node_id n) { return known(n); }
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return known(n); }
  [[nodiscard]] std::vector<job_id> jobs_on(node_id /*n*/) const {
    std::vector<job_id> jobs;
    for (const auto& [job, gpus] : running_) jobs.push_back(job);
    return jobs;
  }
  [[nodiscard]] std::uint32_t idle_gpus() const { return idle_; }
  [[nodiscard]] std::uint32_t total_gpus() const { return total_; }

 private:
  [[nodiscard]] static absl::Status answer_for(job_id job) {
    if (job == job_id(666)) return absl::InternalError("no such job, please");
    return absl::OkStatus();
  }
  [[nodiscard]] static absl::Status known(node_id n) {
    return n == node_id(0) ? absl::OkStatus() : absl::NotFoundError("one server is all there is");
  }

  std::uint32_t idle_;
  std::uint32_t total_;
  std::map<job_id, std::uint32_t> running_;
};
static_assert(JobPlacer<counted_gpus>);

struct numbered_job : booked_job<counted_gpus> {
  int number = 0;
};
using counted_book = job_book<counted_gpus, numbered_job>;

job_request book_request(std::uint32_t job, std::uint32_t gpus, time_ms estimate = 10) {
  return {.job = job_id(job), .gpus = gpus, .estimate = estimate};
}

// Adds a job and has it wait.
numbered_job& enter_job(counted_book& book, const job_request& r, std::int64_t key, time_ms now) {
  numbered_job* const record = book.add(r, r.estimate).value();
  record->key = key;
  book.wait(*record, now);
  return book[r.job];
}

}  // namespace

TEST_CASE("job_book: which jobs can be added, and what is said of others") {
  counted_book book(counted_gpus(8));
  const auto refused = [&](const job_request& r, absl::StatusCode code, const std::string& what) {
    const absl::Status status = book.add(r, r.estimate).status();
    CHECK(status.code() == code);
    CHECK(std::string(status.message()) == what);
  };
  refused({.job = job_id(), .gpus = 1, .estimate = 7}, absl::StatusCode::kInvalidArgument,
          "a job needs an id");
  refused(book_request(3, 1, -4), absl::StatusCode::kInvalidArgument,
          "job 3: an estimate of -4, which is not at least 0");
  refused(book_request(3, 9), absl::StatusCode::kInvalidArgument, "too large");
  CHECK(book.find(job_id(3)).status().code() == absl::StatusCode::kNotFound);
  CHECK(book.look_up(job_id(3)) == nullptr);
  for (const std::uint32_t job : {5U, 10U}) CHECK(book.add(book_request(job, 8, job), job).ok());
  book[job_id(5)].number = 7;
  refused(book_request(5, 1), absl::StatusCode::kAlreadyExists, "job 5 exists already");
  REQUIRE(book.find(job_id(5)).ok());
  CHECK(book.find(job_id(5)).value() == book.look_up(job_id(5)));
  CHECK(book.look_up(job_id(5))->number == 7);
  CHECK(book.look_up(job_id(5))->request.gpus == 8);
  CHECK(book.look_up(job_id(10))->request.estimate == 10);
  CHECK(!book.look_up(job_id(5))->running);
  book.forget(job_id(5));
  CHECK(book.look_up(job_id(5)) == nullptr);
  CHECK(std::string(book.find(job_id(5)).status().message()) == "there is no job 5");
  CHECK(book.add(book_request(5, 1), 10).ok());
  CHECK(book[job_id(5)].number == 0);
}

TEST_CASE("job_book: a job starts whole or not at all") {
  counted_book book(counted_gpus(8));
  std::vector<job_action> actions;
  numbered_job& large = enter_job(book, book_request(1, 6), 0, 10);
  CHECK(book.num_running() == 0);
  CHECK(book.queues().gpus() == 6);
  REQUIRE(book.start(large, 25, actions).value());
  CHECK(large.running);
  CHECK(book.num_running() == 1);
  CHECK(book.queues().empty());
  CHECK(book.placer().idle_gpus() == 2);
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].what == job_action::verb::start);
  CHECK(actions[0].job == job_id(1));
  CHECK(actions[0].where == job_placement{{node_id(0), 6}});
  CHECK(actions[0].waited[delay_cause::capacity] == 15);
  CHECK(actions[0].waited.total() == 15);

  // It does not fit: its queue has failed until the next round, and no other queue.
  enter_job(book, book_request(2, 3), 0, 30);
  enter_job(book, book_request(3, 2), 1, 30);
  CHECK(book.queues().first_that_may(8)->job == job_id(2));
  CHECK(!book.start(book[job_id(2)], 31, actions).value());
  CHECK(!book[job_id(2)].running);
  CHECK(actions.size() == 1);
  CHECK(book.queues().size() == 2);
  CHECK(book.queues().first_that_may(8)->job == job_id(3));
  book.queues().begin_round();
  CHECK(book.queues().first_that_may(8)->job == job_id(2));

  // The placer's own errors, before and after it has proposed a placement.
  job_request request = book_request(666, 1);
  numbered_job& hated = enter_job(book, request, 2, 31);
  CHECK(book.start(hated, 32, actions).status().code() == absl::StatusCode::kInternal);
  request = book_request(4, 1);
  request.tenant = tenant_id(13);
  numbered_job& refused = enter_job(book, request, 2, 31);
  CHECK(book.start(refused, 32, actions).status().code() == absl::StatusCode::kAborted);
  CHECK(!refused.running);
  CHECK(actions.size() == 1);
  CHECK(book.queues().size() == 4);
  CHECK(book.num_running() == 1);
  CHECK(book.placer().idle_gpus() == 2);
  CHECK(book.queues().first_that_may(1)->job == job_id(4));

  CHECK(book.stop(refused).code() == absl::StatusCode::kNotFound);
  REQUIRE(book.stop(book[job_id(1)]).ok());
  CHECK(!book[job_id(1)].running);
  CHECK(book.placer().idle_gpus() == 8);
}

TEST_CASE("job_book: a server that breaks, job by job") {
  counted_book book(counted_gpus(8));
  std::vector<job_action> actions;
  for (const std::uint32_t job : {5U, 2U, 9U})
    REQUIRE(book.start(enter_job(book, book_request(job, 2), 0, 0), 0, actions).value());
  enter_job(book, book_request(7, 2), 0, 0);
  std::vector<job_id> stopped;
  const auto stop = [&](numbered_job& r) {
    stopped.push_back(r.request.job);
    return book.stop(r);
  };
  CHECK(book.mark_bad(node_id(1), stop).status().code() == absl::StatusCode::kNotFound);
  CHECK(book.mark_healthy(node_id(1)).code() == absl::StatusCode::kNotFound);
  CHECK(stopped.empty());
  const std::vector<job_id> all{job_id(2), job_id(5), job_id(9)};
  CHECK(book.mark_bad(node_id(0), stop).value() == all);
  CHECK(stopped == all);
  CHECK(book.placer().idle_gpus() == 8);
  for (const job_id job : all) CHECK(!book[job].running);
  CHECK(book.mark_healthy(node_id(0)).ok());

  REQUIRE(book.start(book[job_id(7)], 1, actions).value());
  const auto fail = [](numbered_job& /*r*/) { return absl::AbortedError("not now"); };
  CHECK(book.mark_bad(node_id(0), fail).status().code() == absl::StatusCode::kAborted);
}

TEST_CASE("job_book: any calls, against a list of jobs") {
  struct known_job {
    std::uint32_t gpus = 0;
    time_ms since = 0;
    bool running = false;
  };
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(150U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    counted_book book(counted_gpus(12));
    std::map<job_id, known_job> jobs;
    time_ms now = 0;
    for (std::uint32_t step = 0; step < 120; ++step) {
      now += random.uniform(4);
      std::vector<job_action> actions;
      auto at = jobs.begin();
      if (!jobs.empty()) std::advance(at, random.uniform(static_cast<std::uint32_t>(jobs.size())));
      const std::uint32_t idle = book.placer().idle_gpus();
      if (jobs.empty() || random.uniform(3) == 0) {
        const std::uint32_t gpus = 1 + random.uniform(6);
        enter_job(book, book_request(step, gpus), random.uniform(3), now);
        jobs[job_id(step)] = {gpus, now, false};
      } else if (at->second.running) {
        numbered_job& r = book[at->first];
        REQUIRE(book.stop(r).ok());
        if (random.uniform(2) == 0) {
          book.forget(at->first);
          jobs.erase(at);
        } else {
          book.wait(r, now);
          at->second = {at->second.gpus, now, false};
        }
      } else if (random.uniform(4) == 0) {
        CHECK(book.leave(book[at->first], now).total() == now - at->second.since);
        book.forget(at->first);
        jobs.erase(at);
      } else {
        const bool started = book.start(book[at->first], now, actions).value();
        REQUIRE(started == (at->second.gpus <= idle));
        REQUIRE(actions.size() == (started ? 1 : 0));
        if (started) CHECK(actions[0].waited.total() == now - at->second.since);
        at->second.running = started;
        book.queues().end_round(book.placer().idle_gpus(), delay_cause::order, now);
        book.queues().begin_round();
      }
      std::size_t running = 0;
      std::uint64_t waiting_gpus = 0;
      std::uint32_t used = 0;
      for (const auto& [id, job] : jobs) {
        REQUIRE(book.look_up(id) != nullptr);
        CHECK(book.look_up(id)->running == job.running);
        running += job.running ? 1U : 0U;
        used += job.running ? job.gpus : 0;
        waiting_gpus += job.running ? 0 : job.gpus;
      }
      CHECK(book.num_running() == running);
      CHECK(book.queues().size() == jobs.size() - running);
      CHECK(book.queues().gpus() == waiting_gpus);
      CHECK(book.placer().idle_gpus() == 12 - used);
    }
  }
}
