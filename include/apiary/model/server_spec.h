// apiary/model/server_spec.h - a cluster of servers with GPUs, in racks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/node_table.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A cluster: servers with GPUs, in racks.
struct server_spec {
  std::vector<std::uint32_t> gpus{};   // GPUs of each server
  std::uint32_t servers_per_rack = 1;  // rack r has the servers from r * servers_per_rack on
  bool anywhere = false;  // a job may span more servers than it would in an empty cluster

  // kInvalidArgument: no server, more than max_gpus_per_node GPUs, or racks without servers.
  [[nodiscard]] absl::Status check() const {
    if (gpus.empty()) return absl::InvalidArgumentError("a cluster needs at least one server");
    if (servers_per_rack == 0) return absl::InvalidArgumentError("a rack has 0 servers");
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i] <= max_gpus_per_node) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("server ", i, ": ", gpus[i], " GPUs; the limit is ", max_gpus_per_node));
    }
    return absl::OkStatus();
  }
};

APIARY_NAMESPACE_END
