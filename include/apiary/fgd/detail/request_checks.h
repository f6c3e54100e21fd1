// apiary/fgd/detail/request_checks.h - error messages for wrong requests for shared GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>

#include <cstdint>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// OK, or kInvalidArgument for a task that is not valid(); the message starts with `name`.
[[nodiscard]] inline absl::Status check_task(const std::string& name, const task_request& task) {
  if (task.valid()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      name + ": " + std::to_string(task.gpus) + " GPUs with " + std::to_string(task.gpu_milli) +
      "/1000 of each; a task can have a fraction of one GPU, or whole GPUs (1000/1000 of each)");
}

// OK, or kInvalidArgument if `suggested` does not have one bit for each node.
[[nodiscard]] inline absl::Status check_suggested(const summary_bitset& suggested,
                                                  std::uint32_t nodes) {
  if (suggested.size() == nodes) return absl::OkStatus();
  return absl::InvalidArgumentError("suggested nodes: " + std::to_string(suggested.size()) +
                                    " bits for " + std::to_string(nodes) + " nodes");
}

}  // namespace detail
APIARY_NAMESPACE_END
