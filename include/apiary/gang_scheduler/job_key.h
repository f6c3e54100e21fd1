// apiary/gang_scheduler/job_key.h - the host's own id of a job: a 64-bit number or a text.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

APIARY_NAMESPACE_BEGIN

// Names a job as its host does: by a number below 2^64, or by a text that is not empty. Numbers
// come before texts in the order of keys. The number 7 and the text "7" are different keys.
class job_key {
 public:
  // The number 0.
  job_key() = default;
  // A number.
  template <std::integral Number>
  job_key(Number number) noexcept : number_(static_cast<std::uint64_t>(number)) {}
  // A text. An empty text is not a valid key.
  job_key(std::string text) : is_text_(true), text_(std::move(text)) {}
  // A text.
  job_key(std::string_view text) : job_key(std::string(text)) {}
  // A text. Requires: text is not null.
  job_key(const char* text) : job_key(std::string(text)) {}

  // Whether it names a job: false for an empty text.
  [[nodiscard]] bool valid() const noexcept { return !is_text_ || !text_.empty(); }
  // Whether it is a text.
  [[nodiscard]] bool is_text() const noexcept { return is_text_; }
  // The number; 0 for a text.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  // The number in decimal, or the text.
  [[nodiscard]] std::string text() const { return is_text_ ? text_ : std::to_string(number_); }
  // A hash, the same on every platform. Cost: O(length of the text).
  [[nodiscard]] std::uint64_t hash() const noexcept {
    return is_text_ ? digest().add(text_).value() : digest().add(number_).value();
  }
  friend auto operator<=>(const job_key&, const job_key&) = default;
  friend bool operator==(const job_key&, const job_key&) = default;

 private:
  bool is_text_ = false;
  std::uint64_t number_ = 0;
  std::string text_;
};

APIARY_NAMESPACE_END
