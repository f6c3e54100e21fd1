// apiary/gang/fit_verdict.h - the verdict of a search for a placement, and a short proof of no.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The answer of every search for a placement: the gang fits, it does not fit (which is proved), or
// the step budget ended before the search knew.
enum class fit_verdict : std::uint8_t { fits, does_not_fit, budget_ended };

// A proof of does_not_fit: in slots of `gpus` GPUs, the gang needs more than all nodes have.
struct gpu_shortage {
  std::uint32_t gpus = 0;     // GPUs of a slot
  std::uint64_t needed = 0;   // sum of tasks * floor(GPUs of the task / gpus)
  std::uint64_t present = 0;  // sum of nodes * floor(free / gpus)
};

APIARY_NAMESPACE_END
