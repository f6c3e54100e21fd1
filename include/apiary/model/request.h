// apiary/model/request.h - what is asked of a scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/resources.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// A GPU in thousandths: 1000 is a whole one.
using milli_gpu = std::uint16_t;
inline constexpr milli_gpu whole_gpu = 1000;

// Kinds of GPU (T4, V100, ...) as small numbers, and sets of them; any_model is the set of all.
using gpu_model = std::uint8_t;
using model_set = std::uint64_t;
inline constexpr gpu_model max_gpu_models = 64;
inline constexpr model_set any_model = ~model_set{0};

[[nodiscard]] constexpr bool contains_model(model_set set, gpu_model model) noexcept {
  return (set >> model & 1) != 0;
}

// A task for one node that takes CPU, memory and a share of one GPU, some whole GPUs, or no GPU:
//   devices == 0                        no GPU; gpu_milli and models do not count
//   devices == 1, gpu_milli < 1000      a share of one device
//   devices >= 1, gpu_milli == 1000     whole devices that are completely free
// and nothing else is valid.
struct task_request {
  job_id job{};
  std::uint32_t cpu_milli = 0;
  std::uint32_t memory_mib = 0;
  std::uint32_t gpus = 0;
  milli_gpu gpu_milli = 0;       // of each device
  model_set models = any_model;  // the kinds of GPU that will do

  [[nodiscard]] constexpr resources host() const noexcept { return {cpu_milli, memory_mib}; }
  [[nodiscard]] constexpr bool wants_gpu() const noexcept { return gpus != 0; }
  [[nodiscard]] constexpr bool wants_whole_gpus() const noexcept {
    return wants_gpu() && gpu_milli == whole_gpu;
  }
  [[nodiscard]] constexpr bool wants_part_of_gpu() const noexcept {
    return wants_gpu() && gpu_milli != whole_gpu;
  }
  [[nodiscard]] constexpr bool valid() const noexcept {
    return gpus == 0 || gpu_milli == whole_gpu ||
           (gpus == 1 && gpu_milli > 0 && gpu_milli < whole_gpu);
  }
  // Thousandths of GPUs in all.
  [[nodiscard]] constexpr std::uint64_t total_gpu_milli() const noexcept {
    return wants_gpu() ? std::uint64_t{gpus} * gpu_milli : 0;
  }
};

// A part of a gang: `tasks` tasks of `leaves` whole GPUs each, every one of them on one node. All
// members of a gang run at once or none does.
struct task_group {
  std::uint32_t tasks = 0;
  std::uint32_t gpus = 0;
  friend constexpr bool operator==(task_group, task_group) noexcept = default;
};

APIARY_NAMESPACE_END
