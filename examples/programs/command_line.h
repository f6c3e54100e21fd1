// apiary/examples/programs/command_line.h - flags and their values, as replay and simulate are given them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

using flag_values = std::vector<std::pair<std::string, std::string>>;

// Reads "--flag value" and "--flag=value" of known flags, and --help, which takes no value; in the
// order in which they are given. kInvalidArgument that names the flag.
inline absl::StatusOr<flag_values> read_flags(std::span<const char* const> arguments,
                                              std::span<const std::string_view> known) {
  flag_values given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view flag = arguments[i];
    const std::size_t equals = flag.find('=');
    std::optional<std::string> value;
    if (flag.starts_with("--") && equals != std::string_view::npos) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    }
    const std::string name(flag);
    if (flag != "--help" && std::find(known.begin(), known.end(), flag) == known.end()) {
      return absl::InvalidArgumentError(apiary::line_reader::quoted(flag) +
                                        " is not an option; --help lists them");
    }
    if (std::any_of(given.begin(), given.end(), [&](const auto& g) { return g.first == name; }))
      return absl::InvalidArgumentError(name + " is given twice");
    if (flag == "--help") {
      if (value) return absl::InvalidArgumentError("--help takes no value");
      given.emplace_back(name, "");
      continue;
    }
    if (!value && i + 1 < arguments.size()) value = arguments[++i];
    if (!value || value->empty() || value->starts_with("--")) {
      return absl::InvalidArgumentError(name + " needs a value");
    }
    given.emplace_back(name, *value);
  }
  return given;
}

}  // namespace example
