// apiary/examples/text/json.h - reads JSON strictly, and writes it from any texts. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace example {

// The number of bytes of the first UTF-8 character; 0 if the text does not begin with one.
inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xc0U) == 0x80U; };
  const unsigned c = at(0);
  const unsigned d = at(1);
  if (text.empty() || (c > 0x7f && c < 0xc2) || c > 0xf4) return 0;
  if (c <= 0x7f) return 1;
  if (!follows(1)) return 0;
  if (c < 0xe0) return 2;
  if (!follows(2) || (c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f)) return 0;
  if (c < 0xf0) return 3;
  return follows(3) && (c > 0xf0 || d >= 0x90) && (c < 0xf4 || d <= 0x8f) ? 4 : 0;
}

// The text as a JSON string. Bytes that are not UTF-8 become U+FFFD.
inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (n == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      (out += '\\') += text[0];
    } else if (c == '\n' || c == '\t') {
      out += c == '\n' ? "\\n" : "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      constexpr const char* digits = "0123456789abcdef";
      ((out += "\\u00") += digits[c >> 4]) += digits[c & 15];
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out += '"';
}

inline std::string hex(std::uint64_t value) {
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[value >> shift & 15];
  return digits;
}

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

// A JSON value. Names and values of an object stay in their order, and a name may occur twice: the
// reader of an event refuses it, a JSON library would drop one. A number stays as it is written.
struct json_value {
  enum class kind : std::uint8_t { word, number, text, array, object };
  kind is = kind::word;              // word: null, true or false
  std::string scalar{};              // of a word, a number or a text
  std::vector<std::string> names{};  // of an object
  std::vector<json_value> items{};   // of an array or object

  [[nodiscard]] bool null() const { return is == kind::word && scalar == "null"; }
  [[nodiscard]] bool is_text() const { return is == kind::text; }
  [[nodiscard]] bool is_bool() const { return is == kind::word && scalar != "null"; }
  [[nodiscard]] bool is_array() const { return is == kind::array; }
  [[nodiscard]] bool is_object() const { return is == kind::object; }
  // The whole number, as JSON writes it; nullopt: it is none, or the type is too small for it.
  template <class Number>
  [[nodiscard]] std::optional<Number> number() const {
    Number value = 0;
    const char* const last = scalar.data() + scalar.size();
    const auto [end, error] = std::from_chars(scalar.data(), last, value);
    if (is != kind::number || error != std::errc() || end != last) return std::nullopt;
    return value;
  }
  // The member of an object with this name, or null.
  [[nodiscard]] const json_value& operator[](std::string_view name) const {
    static const json_value none{.scalar = "null"};
    const json_value* const found = find(name);
    return found == nullptr ? none : *found;
  }
  // The text; empty if it is none.
  [[nodiscard]] std::string text() const { return is_text() ? scalar : std::string(); }
  // The value of the first member with this name; null pointer: there is none.
  [[nodiscard]] const json_value* find(std::string_view name) const {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? nullptr : &items[static_cast<std::size_t>(found - names.begin())];
  }
  // The value as JSON, which is YAML, too, if there is a space behind commas and colons.
  [[nodiscard]] std::string str(std::string_view space = " ") const {
    if (is == kind::text) return json_text(scalar);
    if (is == kind::word || is == kind::number) return scalar;
    std::string all(1, is == kind::array ? '[' : '{');
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) (all += ',') += space;
      if (is == kind::object) ((all += json_text(names[i])) += ':') += space;
      all += items[i].str(space);
    }
    return all += is == kind::array ? ']' : '}';
  }
};

// Writes one JSON object, or a list, from left to right, with commas where they are needed.
class json_object {
 public:
  explicit json_object(char bracket = '{') : text_(1, bracket) {}

  json_object& key(std::string_view name) {
    separate();
    (text_ += json_text(name)) += ':';
    first_ = true;
    return *this;
  }
  json_object& value(std::string_view text) {
    separate();
    text_ += json_text(text);
    return *this;
  }
  json_object& value(std::uint64_t number) {
    separate();
    text_ += std::to_string(number);
    return *this;
  }
  json_object& value(std::int64_t number) {
    separate();
    text_ += std::to_string(number);
    return *this;
  }
  json_object& value(std::int32_t number) {
    separate();
    text_ += std::to_string(number);
    return *this;
  }
  json_object& value(const json_value& of) {
    separate();
    text_ += of.str("");
    return *this;
  }
  json_object& open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  json_object& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  [[nodiscard]] std::string str() const { return text_ + (text_[0] == '{' ? '}' : ']'); }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  std::string text_;
  bool first_ = true;
};

// Reads one JSON value strictly (RFC 8259), in time linear in its length.
class json_reader {
 public:
  static constexpr std::size_t max_depth = 64;
  static constexpr std::size_t max_values =
      1'000'000;                                 // and names; the limit of a caller may be another
  static constexpr std::size_t max_name = 1000;  // yaml-cpp reads no longer ones

  // kInvalidArgument: what is wrong, and where; `end` is then the number of bytes before the fault.
  static absl::StatusOr<json_value> read(std::string_view json, std::size_t limit = max_values,
                                         std::size_t* end = nullptr) {
    json_reader reader(json);
    reader.limit_ = limit;
    json_value all;
    if (reader.value(all) && (reader.space(), !reader.rest_.empty()))
      reader.fail("nothing more expected");
    if (end != nullptr) *end = json.size() - reader.rest_.size();
    if (!reader.fault_.empty()) return absl::InvalidArgumentError(reader.fault_);
    return all;
  }

 private:
  explicit json_reader(std::string_view json) : size_(json.size()), rest_(json) {}

  bool fail(const std::string& what) {
    fault_ = "no JSON, byte " + std::to_string(size_ - rest_.size() + 1) + ": " + what;
    return false;
  }
  [[nodiscard]] char next() const noexcept { return rest_.empty() ? '\0' : rest_[0]; }
  void space() noexcept {
    while (next() == ' ' || next() == '\t' || next() == '\r' || next() == '\n')
      rest_.remove_prefix(1);
  }
  void take(std::string& to) {
    to += rest_[0];
    rest_.remove_prefix(1);
  }
  bool skip_if(char c) {
    if (next() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool value(json_value& to) {
    if (++values_ > limit_) return fail("too many values");
    space();
    if (next() == '{') {
      to.is = json_value::kind::object;
      return list('}', [&] { return member(to); });
    }
    if (next() == '[') {
      to.is = json_value::kind::array;
      return list(']', [&] { return value(to.items.emplace_back()); });
    }
    if (next() == '"') {
      to.is = json_value::kind::text;
      return text(to.scalar);
    }
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!rest_.starts_with(word)) continue;
      to.scalar = word;
      rest_.remove_prefix(word.size());
      return true;
    }
    to.is = json_value::kind::number;
    return number(to.scalar);
  }
  template <class Item>
  bool list(char end, Item item) {
    if (++depth_ > max_depth) return fail("nested too deeply");
    rest_.remove_prefix(1);
    space();
    while (next() != end) {
      if (!item()) return false;
      space();
      if (next() == end) break;
      if (!skip_if(',')) return fail(std::string("',' or '") + end + "' expected");
      space();
      if (next() == end) return fail("a value expected");
    }
    rest_.remove_prefix(1);
    --depth_;
    return true;
  }
  bool member(json_value& of) {
    if (next() != '"') return fail("a name in '\"' expected");
    if (++values_ > limit_) return fail("too many values");
    std::string& name = of.names.emplace_back();
    if (!text(name)) return false;
    if (name.size() > max_name) return fail("the name before is too long");
    space();
    if (!skip_if(':')) return fail("':' expected");
    return value(of.items.emplace_back());
  }

  bool digits(std::string& to) {
    if (next() < '0' || next() > '9') return fail("a value expected");
    while (next() >= '0' && next() <= '9') take(to);
    return true;
  }
  bool number(std::string& to) {
    if (next() == '-') take(to);
    if (next() == '0') {
      take(to);
    } else if (!digits(to)) {
      return false;
    }
    if (next() == '.') {
      take(to);
      if (!digits(to)) return false;
    }
    if (next() != 'e' && next() != 'E') return true;
    take(to);
    if (next() == '-' || next() == '+') take(to);
    return digits(to);
  }

  bool text(std::string& to) {
    rest_.remove_prefix(1);
    while (!skip_if('"')) {
      const std::size_t n = utf8_length(rest_);
      if (rest_.empty()) return fail("the text does not end");
      if (n == 0) return fail("not UTF-8");
      if (n == 1 && static_cast<unsigned char>(rest_[0]) < 0x20)
        return fail("a control character in a text");
      if (rest_[0] == '\\') {
        if (!escape(to)) return false;
      } else {
        to += rest_.substr(0, n);
        rest_.remove_prefix(n);
      }
    }
    return true;
  }
  bool escape(std::string& to) {
    rest_.remove_prefix(1);
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
    if (rest_.empty()) return fail("the text does not end");
    if (const std::size_t i = letters.find(rest_[0]); i != std::string_view::npos) {
      to += meant[i];
      rest_.remove_prefix(1);
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
    append_utf8(point, to);
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
  std::size_t values_ = 0;
  std::size_t limit_ = max_values;
  std::string_view rest_;
  std::string fault_;
};

}  // namespace example
