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
  // One on each line, as "path (line N): what is wrong"; behind the first max_faults, the first entry
  // beyond the limits of the file, if there is one, and "N more faults".
  std::string faults{};
  static constexpr std::size_t max_faults = 20;

 protected:
  // The line of a node in its text, from 1.
  static std::size_t line_of(const YAML::Node& node) {
    return static_cast<std::size_t>(node.Mark().line + 1);
  }
  bool fault(const YAML::Node& at, const std::string& path, const std::string& what) {
    if (full_) return true;  // what is behind the limit was not read
    if (++num_faults_ <= max_faults)
      list(at, path, what);
    else
      count_others();
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
      const std::size_t name_size = size_of(entry.first);
      if (!counts(entry.first, path, name_size + size_of(entry.second), path.size() + name_size))
        break;
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
      if (!counts(item, path, size_of(item), path.size())) break;
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
  // Limits, because YAML aliases can make many entries and long texts in few lines. An alias counts each
  // time.
  static constexpr std::size_t max_entries = 2'000'000;            // of mappings and lists
  static constexpr std::size_t max_bytes = std::size_t{64} << 20;  // of names and texts
  static constexpr std::size_t path_share =
      16;  // so many bytes of a path, which is not kept, count as one

  // Counts an entry. Returns whether it is within the limits; lists the first entry beyond, even behind
  // max_faults others.
  bool counts(const YAML::Node& at, const std::string& path, std::size_t bytes,
              std::size_t path_bytes) {
    if (full_) return false;
    num_bytes_ += bytes + path_bytes / path_share;
    if (++num_entries_ < max_entries && num_bytes_ <= max_bytes) return true;
    full_ = true;
    faults.resize(listed_);
    list(at, path, num_bytes_ > max_bytes ? "the entries have too many bytes" : "too many entries");
    if (num_faults_ > max_faults) count_others();
    return false;
  }
  void list(const YAML::Node& at, const std::string& path, const std::string& what) {
    faults += (faults.empty() ? "" : "\n") + (path.empty() ? "document" : path) + " (line " +
              std::to_string(line_of(at)) + "): " + what;
    listed_ = faults.size();
  }
  // The last line: how many faults are not listed.
  void count_others() {
    const std::size_t more = num_faults_ - max_faults;
    faults.resize(listed_);
    faults += '\n' + std::to_string(more) + (more == 1 ? " more fault" : " more faults");
  }
  static std::size_t size_of(const YAML::Node& node) {
    return node.IsScalar() ? node.Scalar().size() : 0;
  }

  std::size_t num_entries_ = 0;
  std::size_t num_bytes_ = 0;
  bool full_ = false;  // an entry was beyond a limit
  std::size_t num_faults_ = 0;
  std::size_t listed_ = 0;  // bytes of the faults that are listed
};

}  // namespace example
