// apiary/gang_scheduler/detail/slurm_reader.h - reads lines of Slurm's configuration: switches and nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/status.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Reads the key=value lines of a Slurm configuration.
class slurm_reader {
 public:
  using line = std::vector<std::pair<std::string, std::string>>;  // keys in lower case
  // The most names that one list may have.
  static constexpr std::uint64_t max_names = 1'000'000;

  explicit slurm_reader(std::string_view text, const char* what) : left_(text), what_(what) {}
  // Reads the next line that is neither empty nor a comment; false at the end of the text.
  [[nodiscard]] absl::StatusOr<bool> next(line& to) {
    to.clear();
    while (to.empty()) {
      if (left_.empty()) return false;
      const std::size_t end = left_.find('\n');
      std::string_view rest = left_.substr(0, end);
      left_ = end == std::string_view::npos ? std::string_view() : left_.substr(end + 1);
      ++number_;
      rest = rest.substr(0, rest.find('#'));
      while (true) {
        constexpr const char* spaces = " \t\r";
        const std::size_t first = rest.find_first_not_of(spaces);
        if (first == std::string_view::npos) break;
        rest = rest.substr(first);
        const std::string_view word = rest.substr(0, rest.find_first_of(spaces));
        rest = rest.substr(word.size());
        const std::size_t equals = word.find('=');
        if (equals == std::string_view::npos || equals == 0)
          return fault(absl::StrCat("\"", std::string(word), "\" is not key=value"));
        std::string key(word.substr(0, equals));
        for (char& c : key)
          if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        to.emplace_back(std::move(key), std::string(word.substr(equals + 1)));
      }
    }
    return true;
  }
  [[nodiscard]] absl::Status fault(const std::string& fault) const {
    return absl::InvalidArgumentError(absl::StrCat(what_, ", line ", number_, ": ", fault));
  }
  // Expands "n[1-3,07],m" to names.
  [[nodiscard]] absl::StatusOr<std::vector<std::string>> names(std::string_view list) const {
    std::vector<std::string> all;
    std::string_view rest = list;
    const auto wrong = [&](const char* why) {
      return fault(absl::StrCat("the list \"", std::string(list), "\" ", why));
    };
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      const std::size_t open = rest.substr(0, comma).find('[');
      if (open == std::string_view::npos) {
        if (comma == 0) return wrong("has an empty name");
        if (all.size() >= max_names) return wrong("has more than 1000000 names");
        all.emplace_back(rest.substr(0, comma));
        rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
        continue;
      }
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos || close < open) return wrong("lacks a \"]\"");
      const std::string_view prefix = rest.substr(0, open);
      std::string_view ranges = rest.substr(open + 1, close - open - 1);
      rest = rest.substr(close + 1);
      if (!rest.empty() && rest[0] != ',') return wrong("has text behind \"]\"");
      if (!rest.empty()) rest = rest.substr(1);
      while (true) {
        const std::size_t end = ranges.find(',');
        const std::string_view range = ranges.substr(0, end);
        const std::size_t dash = range.find('-');
        const std::string_view first = range.substr(0, dash);
        const std::string_view last =
            dash == std::string_view::npos ? first : range.substr(dash + 1);
        const std::optional<std::uint64_t> from = read_digits(first);
        const std::optional<std::uint64_t> to = read_digits(last);
        if (!from || !to || *to < *from || (std::max)(first.size(), last.size()) > 10)
          return wrong("has a range that is not a number or two in ascending order");
        if (*to - *from >= max_names - all.size()) return wrong("has more than 1000000 names");
        for (std::uint64_t i = *from; i <= *to; ++i) {
          std::string digits = std::to_string(i);
          if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
          all.push_back(std::string(prefix) + digits);
        }
        if (end == std::string_view::npos) break;
        ranges = ranges.substr(end + 1);
      }
    }
    if (all.empty()) return wrong("is empty");
    return all;
  }
  // "a,b" as words.
  [[nodiscard]] static std::vector<std::string> words(std::string_view list) {
    std::vector<std::string> all;
    for (bool more = !list.empty(); more;) {
      const std::size_t comma = list.find(',');
      all.emplace_back(list.substr(0, comma));
      more = comma != std::string_view::npos;
      if (more) list = list.substr(comma + 1);
    }
    return all;
  }

 private:
  std::string_view left_;
  const char* what_;
  std::uint32_t number_ = 0;
};

// A switch of a topology.conf.
struct slurm_switch {
  std::string name;
  std::size_t level = 0;  // 1: it lists nodes
  std::string above{};    // the switch that lists it
};

// Reads the switches; `leaf_of` maps each node to the switch that lists it.
[[nodiscard]] inline absl::Status read_switches(
    std::string_view topology, std::vector<slurm_switch>& switches,
    std::unordered_map<std::string, std::size_t>& number_of,
    std::unordered_map<std::string, std::string>& leaf_of) {
  slurm_reader from(topology, "topology");
  slurm_reader::line line;
  std::vector<std::pair<std::string, std::vector<std::string>>> upper;
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, from.next(line));
    if (!more) break;
    std::string name;
    std::vector<std::string> nodes;
    std::vector<std::string> below;
    for (const auto& [key, value] : line) {
      if (key == "switchname") {
        name = value;
      } else if (key == "nodes") {
        APIARY_ASSIGN_OR_RETURN(nodes, from.names(value));
      } else if (key == "switches") {
        APIARY_ASSIGN_OR_RETURN(below, from.names(value));
      } else if (key != "linkspeed") {
        return from.fault(absl::StrCat(
            "unknown key \"", key, "\"",
            key == "nodename" ? "; the topology is the first text, the nodes are the second" : ""));
      }
    }
    if (name.empty()) return from.fault("no SwitchName");
    if (nodes.empty() == below.empty())
      return from.fault(absl::StrCat("switch \"", name, "\" needs either Nodes or Switches"));
    if (!number_of.emplace(name, switches.size()).second)
      return from.fault(absl::StrCat("switch \"", name, "\" is described twice"));
    switches.push_back({name, nodes.empty() ? std::size_t{0} : std::size_t{1}});
    for (const std::string& n : nodes)
      if (!leaf_of.emplace(n, name).second)
        return from.fault(absl::StrCat("node \"", n, "\" is in two switches"));
    if (!below.empty()) upper.emplace_back(name, std::move(below));
  }
  for (const auto& [name, below] : upper) {
    for (const std::string& b : below) {
      const auto at = number_of.find(b);
      if (at == number_of.end() || b == name || !switches[at->second].above.empty())
        return absl::InvalidArgumentError(
            absl::StrCat("topology: switch \"", name, "\" lists switch \"", b,
                         "\", which is not described, is in another switch, or is the same"));
      switches[at->second].above = name;
    }
  }
  // A level is known when those of all switches below are; each pass decides one level.
  for (std::size_t decided = 1; decided > 0;) {
    decided = 0;
    for (const auto& [name, below] : upper) {
      slurm_switch& at = switches[number_of.at(name)];
      std::size_t lowest = ~std::size_t{0};
      std::size_t highest = 0;
      for (const std::string& b : below) {
        lowest = (std::min)(lowest, switches[number_of.at(b)].level);
        highest = (std::max)(highest, switches[number_of.at(b)].level);
      }
      if (at.level > 0 || lowest == 0) continue;
      if (lowest != highest)
        return absl::InvalidArgumentError(
            absl::StrCat("topology: switch \"", name, "\" lists switches of different heights"));
      at.level = lowest + 1;
      ++decided;
    }
  }
  return absl::OkStatus();
}

}  // namespace detail
APIARY_NAMESPACE_END
