// Reads a line of JSON into a YAML::Node, strictly.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_json.h"
#include <apiary/core/status.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <yaml-cpp/yaml.h>

namespace example {

inline void append_utf8(std::uint32_t point, std::string& out) {
  const auto last_six = [&](int shift) {
    return static_cast<char>(0x80U | (point >> shift & 0x3fU));
  };
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    (out += static_cast<char>(0xc0U | point >> 6)) += last_six(0);
  } else if (point < 0x10000) {
    ((out += static_cast<char>(0xe0U | point >> 12)) += last_six(6)) += last_six(0);
  } else {
    (out += static_cast<char>(0xf0U | point >> 18)) += last_six(12);
    (out += last_six(6)) += last_six(0);
  }
}

// Reads one JSON value strictly (RFC 8259) and writes it as YAML with the same meaning. The result has
// no YAML escapes, anchors or tags that the JSON text does not have as plain text.
class json_as_yaml {
 public:
  static constexpr std::size_t max_depth = 64;
  static constexpr std::size_t max_nodes =
      1'000'000;                                // values and names; YAML needs half a GB for them
  static constexpr std::size_t max_key = 1000;  // yaml-cpp has a limit for keys

  // kInvalidArgument: what is wrong, and where.
  static absl::StatusOr<std::string> convert(std::string_view json) {
    json_as_yaml reader(json);
    if (reader.value() && (reader.space(), !reader.rest_.empty()))
      reader.fail("nothing more expected");
    if (!reader.fault_.empty()) return absl::InvalidArgumentError(reader.fault_);
    return std::move(reader.yaml_);
  }

 private:
  explicit json_as_yaml(std::string_view json) : size_(json.size()), rest_(json) {}

  bool fail(const std::string& what) {
    fault_ = "no JSON, byte " + std::to_string(size_ - rest_.size() + 1) + ": " + what;
    return false;
  }
  [[nodiscard]] char next() const noexcept { return rest_.empty() ? '\0' : rest_[0]; }
  void space() noexcept {
    while (next() == ' ' || next() == '\t' || next() == '\r' || next() == '\n')
      rest_.remove_prefix(1);
  }
  void take() {
    yaml_ += rest_[0];
    rest_.remove_prefix(1);
  }
  bool take_if(char c) {
    if (next() != c) return false;
    take();
    return true;
  }

  bool value() {
    if (++nodes_ > max_nodes) return fail("too many values");
    space();
    if (next() == '{') return list('}', [this] { return member(); });
    if (next() == '[') return list(']', [this] { return value(); });
    if (next() == '"') return text();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (rest_.substr(0, word.size()) != word) continue;
      yaml_ += word;
      rest_.remove_prefix(word.size());
      return true;
    }
    return number();
  }
  template <class Item>
  bool list(char end, Item item) {
    if (++depth_ > max_depth) return fail("nested too deeply");
    take();
    space();
    while (next() != end) {
      if (!item()) return false;
      space();
      if (next() == end) break;
      if (!take_if(',')) return fail(std::string("',' or '") + end + "' expected");
      space();
      if (next() == end) return fail("a value expected");
    }
    take();
    --depth_;
    return true;
  }
  bool member() {
    const std::size_t from = yaml_.size();
    if (next() != '"') return fail("a name in '\"' expected");
    if (++nodes_ > max_nodes) return fail("too many values");
    if (!text()) return false;
    if (yaml_.size() - from > max_key) return fail("the name before is too long");
    space();
    if (!take_if(':')) return fail("':' expected");
    yaml_ += ' ';
    return value();
  }

  bool digits() {
    if (next() < '0' || next() > '9') return fail("a value expected");
    while (next() >= '0' && next() <= '9') take();
    return true;
  }
  bool number() {
    take_if('-');
    if (!take_if('0') && !digits()) return false;
    if (take_if('.') && !digits()) return false;
    if (next() != 'e' && next() != 'E') return true;
    take();
    if (!take_if('-')) take_if('+');
    return digits();
  }

  bool text() {
    take();
    while (!take_if('"')) {
      const std::size_t n = utf8_length(rest_);
      if (rest_.empty()) return fail("the text does not end");
      if (n == 0) return fail("not UTF-8");
      if (n == 1 && static_cast<unsigned char>(rest_[0]) < 0x20)
        return fail("a control character in a text");
      if (rest_[0] == '\\') {
        if (!escape()) return false;
      } else {
        yaml_ += rest_.substr(0, n);
        rest_.remove_prefix(n);
      }
    }
    return true;
  }
  bool escape() {
    rest_.remove_prefix(1);
    constexpr std::string_view letters = "\"\\/bfnrt";
    if (rest_.empty()) return fail("the text does not end");
    if (letters.find(rest_[0]) != std::string_view::npos) {
      if (rest_[0] != '/') yaml_ += '\\';
      take();
      return true;
    }
    std::uint32_t point = 0;
    if (!unit(point)) return false;
    if (point >= 0xd800 && point < 0xe000) {  // a surrogate pair of UTF-16
      std::uint32_t low = 0;
      if (point >= 0xdc00 || next() != '\\') return fail("half a surrogate pair");
      rest_.remove_prefix(1);
      if (!unit(low)) return false;
      if (low < 0xdc00 || low >= 0xe000) return fail("half a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    if (point < 0x20 || point == '"' || point == '\\') {  // escaped for YAML
      constexpr const char* hex = "0123456789abcdef";
      ((yaml_ += "\\x") += hex[point >> 4]) += hex[point & 15];
    } else {
      append_utf8(point, yaml_);
    }
    return true;
  }
  bool unit(std::uint32_t& value) {
    if (next() != 'u' || rest_.size() < 5) return fail("not an escape of JSON");
    for (std::size_t i = 1; i < 5; ++i) {
      const auto c = static_cast<unsigned char>(rest_[i]);
      const unsigned letter = c | 0x20U;
      if ((c < '0' || c > '9') && (letter < 'a' || letter > 'f'))
        return fail("not an escape of JSON");
      value = value << 4 | (c <= '9' ? c - '0' : letter - 'a' + 10);
    }
    rest_.remove_prefix(5);
    return true;
  }

  std::size_t size_;
  std::size_t depth_ = 0;
  std::size_t nodes_ = 0;
  std::string_view rest_;
  std::string yaml_;
  std::string fault_;
};

// kInvalidArgument: not JSON.
inline absl::StatusOr<YAML::Node> parse_json(std::string_view line) {
  APIARY_ASSIGN_OR_RETURN(const std::string yaml, json_as_yaml::convert(line));
  try {
    return YAML::Load(yaml);
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(e.what());
  }
}

}  // namespace example
