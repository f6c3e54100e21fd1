// Gandiva: more jobs than GPUs. They share a server in time slices, two jobs are packed on the same
// GPUs if that pays, and one of them moves when another server becomes idle. Then, without a
// scheduler: which pair of jobs is tried on one GPU.
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

namespace {

// When do two jobs do more side by side on one GPU than in time slices? If neither keeps the GPU
// busy. A pair is tried, the host measures it, and the pair is kept or separated.
void choose_pair() {
  // Utilisation in thousandths and gigabytes, as profiled alone.
  const std::array<pair_packing::job_profile, 3> waiting{
      {{.job = job_id(1), .utilization = 616, .memory = 5},
       {.job = job_id(2), .utilization = 872, .memory = 9},
       {.job = job_id(3), .utilization = 87, .memory = 12}}};
  const std::array<pair_packing::gpu_profile, 2> gpus{
      {{.gpu = 0, .utilization = 940, .memory_left = 16},
       {.gpu = 1, .utilization = 141, .memory_left = 8}}};
  pair_packing trials;
  while (const auto trial = trials.next(waiting, gpus)) {
    // The measured rate falls if the two jobs together need more than a whole GPU.
    const std::uint32_t wanted =
        waiting[trial->job.value - 1].utilization + gpus[trial->gpu].utilization;
    const std::uint64_t sliced = 100;
    const std::uint64_t packed = wanted <= 1000 ? 150 : 80;
    const bool pays = pair_packing::pays(packed, sliced);
    std::printf("job %u on GPU %u: rate %llu packed, %llu in time slices: %s\n", trial->job.value,
                trial->gpu, static_cast<unsigned long long>(packed),
                static_cast<unsigned long long>(sliced), pays ? "kept" : "undone");
    if (pays) break;
    trials.fail(*trial);
  }
}

}  // namespace

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
  choose_pair();
}
