// Reads YAML strictly: each field must be known and of the right type, and each fault has its path and line.
// To be copied; needs only yaml-cpp.
// SPDX-License-Identifier: MIT
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <system_error>
#include <yaml-cpp/yaml.h>

namespace example {

// The base of a reader of one document. Most functions return true, so that a visitor can return their
// result.
class strict_yaml {
 public:
  std::string faults{};  // one on each line, as "path (line N): what is wrong"

 protected:
  // The line of a node in its text, from 1.
  static std::size_t line_of(const YAML::Node& node) {
    return static_cast<std::size_t>(node.Mark().line + 1);
  }
  bool fault(const YAML::Node& at, const std::string& path, const std::string& what) {
    faults += (faults.empty() ? "" : "\n") + (path.empty() ? "document" : path) + " (line " +
              std::to_string(line_of(at)) + "): " + what;
    return true;
  }
  // Whether the node has this type; if not, adds a fault unless the node is empty.
  bool is(YAML::NodeType::value type, const char* what, const YAML::Node& node,
          const std::string& path) {
    if (node.Type() != type && !node.IsNull()) fault(node, path, what + std::string(" expected"));
    return node.Type() == type;
  }

  // Calls visit(name, value, path of the value) -> whether the name is known, for each entry.
  template <class Visit>
  bool entries(const YAML::Node& node, const std::string& path, Visit visit) {
    if (!is(YAML::NodeType::Map, "a mapping", node, path)) return true;
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!counts(entry.first, path)) break;
      if (!entry.first.IsScalar()) {
        fault(entry.first, path, "a name expected");
        continue;
      }
      const std::string& name = entry.first.Scalar();
      const std::string place = path.empty() ? name : path + '.' + name;
      if (!seen.insert(name).second) {
        fault(entry.first, place, "is given twice");
      } else if (!visit(name, entry.second, place)) {
        fault(entry.first, place, "is not a field here");
      }
    }
    return true;
  }
  // Calls visit(item, path of the item) for each item.
  template <class Visit>
  bool items(const YAML::Node& node, const std::string& path, Visit visit) {
    if (!is(YAML::NodeType::Sequence, "a list", node, path)) return true;
    std::size_t i = 0;
    for (const auto& item : node) {
      if (!counts(item, path)) break;
      visit(item, path + '[' + std::to_string(i++) + ']');
    }
    return true;
  }
  bool text(const YAML::Node& node, const std::string& path, std::string& value) {
    if (is(YAML::NodeType::Scalar, "a text", node, path)) value = node.Scalar();
    return true;
  }
  bool number(const YAML::Node& node, const std::string& path, std::uint32_t& value) {
    const std::string digits = node.IsScalar() ? node.Scalar() : "";
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value);
    if (error == std::errc() && end == last) return true;
    return fault(node, path, "a whole number from 0 to 4294967295 expected");
  }
  bool truth(const YAML::Node& node, const std::string& path, bool& value) {
    return YAML::convert<bool>::decode(node, value) || fault(node, path, "true or false expected");
  }

 private:
  // A limit, because YAML aliases can make many entries in few lines.
  static constexpr std::size_t max_entries =
      2'000'000;  // of mappings and lists; an alias counts each time

  // Counts an entry. Returns whether it is within the limit; adds a fault for the first entry beyond.
  bool counts(const YAML::Node& at, const std::string& path) {
    if (num_entries_ == max_entries) return false;
    return ++num_entries_ < max_entries || !fault(at, path, "too many entries");
  }

  std::size_t num_entries_ = 0;
};

}  // namespace example
