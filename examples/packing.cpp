// When do two jobs do more side by side on one GPU than in time slices? If neither keeps the GPU
// busy. A pair is tried, the host measures it, and the pair is kept or separated.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gandiva/packing.h>

#include <array>
#include <cstdint>
#include <cstdio>

using namespace apiary;

int main() {
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
