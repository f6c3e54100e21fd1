// Gandiva: more jobs than GPUs. They share a server in time slices, two jobs are packed on the same
// GPUs if that pays, and one of them moves when another server becomes idle.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/gandiva/packing.h>
#include <apiary/model/job.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

int main() {
  constexpr time_ms minute = 60'000;
  constexpr std::uint64_t gigabyte = 1'000'000'000;
  auto scheduler = gandiva::create(
      {.servers = {.gpus = {2, 2}}, .quantum = minute, .packs = true, .gpu_memory = 16 * gigabyte});
  if (!scheduler.ok()) return 1;

  const auto decide = [&](time_ms now) {
    static constexpr std::array<const char*, 7> verbs{
        "starts", "is suspended", "is packed", "is unpacked", "migrates", "grows", "shrinks"};
    std::vector<job_action> actions;
    if (!scheduler->decide(now, actions).ok()) return;
    for (const job_action& a : actions) {
      std::printf("minute %d: job %u %s", static_cast<int>(now / minute), a.job.value,
                  verbs[static_cast<std::size_t>(a.what)]);
      for (const placement& p : a.where) {
        const bool moves = a.what == job_action::verb::migrate;
        std::printf(" %s server %u", moves ? "to" : "on", p.node.value);
      }
      std::printf("\n");
    }
  };
  for (unsigned job = 1; job <= 3; ++job)
    if (!scheduler->submit({.job = job_id(job), .gpus = 2}, 0).ok()) return 1;
  decide(0);
  for (time_ms now = minute; now <= 4 * minute; now += minute) {
    // The host measures the jobs that run. Alone, a job uses 40 % of its GPUs.
    for (unsigned job = 1; job <= 3; ++job) {
      const auto its = scheduler->find(job_id(job));
      if (!its || its->phase != gandiva::phase::run) continue;
      const std::uint64_t rate = its->beside.valid() ? 90 : 100;  // mini-batches in a minute
      if (!scheduler->report(job_id(job), {400, 6 * gigabyte, rate}, now).ok()) return 1;
    }
    decide(now);
  }
  if (!scheduler->finish(job_id(2), 5 * minute).ok()) return 1;
  std::printf("minute 5: job 2 has ended\n");
  decide(5 * minute);
}
