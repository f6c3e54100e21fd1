// apiary/gandiva/backend.h - the concept of what Gandiva's turns and moves stand on.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What moving jobs may cost.
struct move_limits {
  std::uint32_t moves = 1;  // at most
  std::uint32_t cost = 0;   // a move lowers the measure by more than so many thousandths for each
                            // GPU moved
};

// What turns and moves are made on: it knows where jobs go and who runs where, and nothing of time.
//
// (g: of such a type, r: a request, w: a place, j: a job, n: a node)
// | expression           | meaning                                                          |
// |----------------------|------------------------------------------------------------------|
// | r.job                | the job that the request is of                                   |
// | g.priority(r)        | below 0: the job takes turns with its like; else it is served at |
// |                      | once, the highest first, and stopped only for a higher one       |
// | g.start(r, stopped)  | whether r runs now; appends the jobs that had to be stopped for  |
// |                      | it, none if r takes turns. An error, always the same for the same|
// |                      | words: it can never run                                          |
// | g.may_start(r)       | whether start(r) would now; nothing changes                      |
// | g.stop(j)            | j, which runs, does so no more; where it was                     |
// | g.restart(r, w)      | whether r runs at w, where it was before stop: it does if nobody |
// |                      | else came there. Stopping some and restarting them in reverse    |
// |                      | order changes nothing                                            |
// | g.place_of(j)        | where j runs                                                     |
// | g.improve(jobs, limits, moved) | moves some of the jobs, which run, are ascending and may be|
// |                      | moved, each once at most, so that a measure is lowered each time;|
// |                      | appends those moved                                              |
// | g.mark(n, healthy)   | n gets nothing new, or does again; kNotFound                     |
// | g.empty()            | whether nothing runs                                             |
template <class G>
concept TimeSharingBackend = requires(G& g, const G& constant, const typename G::request& r,
                                      const typename G::place& w, job_id j, node_id n,
                                      std::span<const job_id> jobs, const move_limits& limits,
                                      std::vector<job_id>& appended) {
  { r.job } -> std::convertible_to<job_id>;
  { constant.priority(r) } -> std::same_as<std::int32_t>;
  { g.start(r, appended) } -> std::same_as<absl::StatusOr<bool>>;
  { g.may_start(r) } -> std::same_as<bool>;
  { g.stop(j) } -> std::same_as<typename G::place>;
  { g.restart(r, w) } -> std::same_as<bool>;
  { constant.place_of(j) } -> std::same_as<typename G::place>;
  { g.improve(jobs, limits, appended) } -> std::same_as<void>;
  { g.mark(n, true) } -> std::same_as<absl::Status>;
  { constant.empty() } -> std::same_as<bool>;
};

// Tries to move jobs, `trials` a call, those from `next` on and then the first again, until so many
// in all have moved. try_move(job) says whether it did; `next` is then behind the last one tried.
template <class Move>
void move_in_turn(std::span<const job_id> movable, std::uint32_t trials, std::uint32_t most,
                  job_id& next, std::vector<job_id>& moved, Move&& try_move) {
  const auto first = static_cast<std::size_t>(
      std::lower_bound(movable.begin(), movable.end(), next) - movable.begin());
  trials = static_cast<std::uint32_t>(std::min<std::size_t>(movable.size(), trials));
  for (std::size_t i = 0; i < trials && moved.size() < most; ++i) {
    const job_id job = movable[(first + i) % movable.size()];
    if (try_move(job)) moved.push_back(job);
    next = job_id(job.value + 1);
  }
}

APIARY_NAMESPACE_END
