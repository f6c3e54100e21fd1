// apiary/model/request.h - what a task or a gang requests.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/resources.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// An amount of one GPU in thousandths.
using milli_gpu = std::uint16_t;
// A whole GPU.
inline constexpr milli_gpu whole_gpu = 1000;

// A GPU model (T4, V100, ...) as a number below max_gpu_models.
using gpu_model = std::uint8_t;
// A set of GPU models: bit i is set if model i is in the set.
using model_set = std::uint64_t;
// The number of GPU models that can be distinguished.
inline constexpr gpu_model max_gpu_models = 64;
// The set of all GPU models.
inline constexpr model_set any_model = ~model_set{0};

// A request for a task that runs on one node. It takes CPU, memory, and either no GPU, a fraction
// of one GPU, or whole GPUs. Valid requests have:
//   gpus == 0                        no GPU; gpu_milli and models are ignored
//   gpus == 1, 0 < gpu_milli < 1000  a fraction of one GPU
//   gpus >= 1, gpu_milli == 1000     whole GPUs that are completely free
struct task_request {
  job_id job{};                  // id of the job
  std::uint32_t cpu_milli = 0;   // thousandths of a core
  std::uint32_t memory_mib = 0;  // memory in MiB
  std::uint32_t gpus = 0;        // number of GPUs
  milli_gpu gpu_milli = 0;       // of each GPU
  model_set models = any_model;  // the GPU models that it accepts
  // CPU and memory.
  [[nodiscard]] constexpr resources host() const noexcept { return {cpu_milli, memory_mib}; }
  // Whether it asks for a GPU.
  [[nodiscard]] constexpr bool wants_gpu() const noexcept { return gpus != 0; }
  // Whether it asks for whole GPUs.
  [[nodiscard]] constexpr bool wants_whole_gpus() const noexcept {
    return wants_gpu() && gpu_milli == whole_gpu;
  }
  // Whether it asks for a fraction of a GPU.
  [[nodiscard]] constexpr bool wants_part_of_gpu() const noexcept {
    return wants_gpu() && gpu_milli != whole_gpu;
  }
  // Whether the request is one of the three cases above.
  [[nodiscard]] constexpr bool valid() const noexcept {
    return gpus == 0 || gpu_milli == whole_gpu ||
           (gpus == 1 && gpu_milli > 0 && gpu_milli < whole_gpu);
  }
  // Thousandths of all its GPUs together.
  [[nodiscard]] constexpr std::uint64_t total_gpu_milli() const noexcept {
    return wants_gpu() ? std::uint64_t{gpus} * gpu_milli : 0;
  }
};

// A group of equal tasks of a gang, each on whole GPUs of one node. All tasks of a gang run at the
// same time or none does.
struct task_group {
  std::uint32_t tasks = 0;  // how many tasks
  std::uint32_t gpus = 0;   // GPUs of each task
  friend constexpr bool operator==(task_group, task_group) noexcept = default;
};

APIARY_NAMESPACE_END
