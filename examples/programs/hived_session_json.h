// Writes valid JSON from any texts.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

// Writes one JSON object from left to right, with commas where they are needed.
class json_object {
 public:
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
  [[nodiscard]] std::string str() const { return text_ + '}'; }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  std::string text_ = "{";
  bool first_ = true;
};

}  // namespace example
