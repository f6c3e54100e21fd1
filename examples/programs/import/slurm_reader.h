// apiary/examples/programs/import/slurm_reader.h - reads lines of Slurm's configuration.
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
#include <utility>
#include <vector>

namespace example {

// Reads the key=value lines of a Slurm configuration.
class slurm_reader {
 public:
  using line = std::vector<std::pair<std::string, std::string>>;  // keys in lower case
  // The most names that the lists of nodes and switches of a text may have.
  static constexpr std::uint64_t max_names = 1'000'000;
  // The most bytes of a text's copies: names that ranges stand for, and what each node of a list gets.
  static constexpr std::uint64_t max_copied = std::uint64_t{256} << 20;

  slurm_reader(std::string_view text, const char* what, std::uint64_t most_names = max_names)
      : left_(text), what_(what), most_names_(most_names) {}
  // Reads the next line that is neither empty nor a comment; false at the end of the text. A line that
  // ends in "\\" goes on in the next one. After a fault, it can be called again for the line behind.
  [[nodiscard]] absl::StatusOr<bool> next(line& to) {
    to.clear();
    while (to.empty()) {
      if (left_.empty()) return false;
      number_ += 1 + more_lines_;
      more_lines_ = 0;
      std::string whole;
      for (bool goes_on = true; goes_on && !left_.empty();) {
        const std::size_t end = left_.find('\n');
        std::string_view one = left_.substr(0, end);
        left_ = end == std::string_view::npos ? std::string_view() : left_.substr(end + 1);
        one = one.substr(0, one.find('#'));
        while (!one.empty() && spaces.find(one.back()) != std::string_view::npos)
          one.remove_suffix(1);
        goes_on = !one.empty() && one.back() == '\\';
        if (goes_on) one.remove_suffix(1);
        if (goes_on && !left_.empty()) ++more_lines_;
        absl::StrAppend(&whole, whole.empty() ? "" : " ", std::string(one));
      }
      APIARY_RETURN_IF_ERROR(split(whole, to));
    }
    return true;
  }
  // The number of the line that was read last, from 1.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] absl::Status fault(const std::string& fault) const {
    return absl::InvalidArgumentError(absl::StrCat(what_, ", line ", number_, ": ", fault));
  }
  // Expands "n[1-3,07],m" to names. If the lists of all calls have too many names, or too many bytes, the
  // text ends: next() returns false.
  [[nodiscard]] absl::StatusOr<std::vector<std::string>> names(std::string_view list) {
    absl::StatusOr<std::vector<std::string>> all = expand(list, lists_, most_names_);
    if (!absl::IsOutOfRange(all.status())) return all;
    left_ = std::string_view();
    return absl::InvalidArgumentError(all.status().message());
  }
  // Counts bytes of copies. If they are too many, with those of names(), the text ends.
  [[nodiscard]] absl::Status count_copied(std::uint64_t bytes) {
    lists_.copied += bytes;
    if (lists_.copied <= max_copied) return absl::OkStatus();
    left_ = std::string_view();
    return fault(absl::StrCat("the nodes up to here need more than ", max_copied,
                              " bytes for their names, labels, taints and models"));
  }
  // Expands a list of files in the same way. They do not count as names.
  [[nodiscard]] absl::StatusOr<std::vector<std::string>> files(std::string_view list) const {
    sizes of_files;
    absl::StatusOr<std::vector<std::string>> all = expand(list, of_files, max_files);
    if (!absl::IsOutOfRange(all.status())) return all;
    return absl::InvalidArgumentError(all.status().message());
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
  static constexpr std::string_view spaces = " \t\r";
  // The most files that one list may have.
  static constexpr std::uint64_t max_files = 4'096;

  // Of lists.
  struct sizes {
    std::uint64_t names = 0;
    std::uint64_t copied = 0;  // bytes of the names that ranges stand for
  };

  // Expands a list, and adds its names to `size`, also if a fault stops it. kOutOfRange: there are more
  // names than the limit, or more than max_copied bytes.
  [[nodiscard]] absl::StatusOr<std::vector<std::string>> expand(std::string_view list, sizes& size,
                                                                std::uint64_t limit) const {
    const std::uint64_t before = size.names;
    std::vector<std::string> all;
    std::string_view rest = list;
    const auto wrong = [&](const char* why) {
      return fault(absl::StrCat("the list \"", std::string(list), "\" ", why));
    };
    const auto too_many = [&](std::uint64_t most, const char* what) {
      const std::string why =
          absl::StrCat(before > 0 ? "and those before it have" : "has", " more than ", most, what);
      return absl::OutOfRangeError(wrong(why.c_str()).message());
    };
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      const std::size_t open = rest.substr(0, comma).find('[');
      if (open == std::string_view::npos) {
        if (comma == 0) return wrong("has an empty name");
        if (size.names >= limit) return too_many(limit, " names");
        ++size.names;
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
        const std::optional<std::uint64_t> from = apiary::detail::read_digits(first);
        const std::optional<std::uint64_t> to = apiary::detail::read_digits(last);
        if (!from || !to || *to < *from || (std::max)(first.size(), last.size()) > 10)
          return wrong("has a range that is not a number or two in ascending order");
        if (*to - *from >= limit - size.names) return too_many(limit, " names");
        const std::uint64_t names = *to - *from + 1;
        size.names += names;
        size.copied += names * (prefix.size() + (std::max)(first.size(), last.size()));
        if (size.copied > max_copied) return too_many(max_copied, " bytes of names");
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

  // Appends the pairs of a line. There may be spaces around "=", and the value may be in quotes.
  absl::Status split(std::string_view rest, line& to) const {
    const auto skip = [&rest] {
      const std::size_t first = rest.find_first_not_of(spaces);
      rest = first == std::string_view::npos ? std::string_view() : rest.substr(first);
    };
    for (skip(); !rest.empty(); skip()) {
      std::string key(rest.substr(0, rest.find_first_of(" \t\r=")));
      const std::string_view word = rest.substr(0, rest.find_first_of(spaces));
      rest = rest.substr(key.size());
      skip();
      if (key.empty() || rest.empty() || rest[0] != '=')
        return fault(absl::StrCat("\"", std::string(word), "\" is not key=value"));
      rest = rest.substr(1);
      skip();
      std::string_view value = rest.substr(0, rest.find_first_of(spaces));
      std::size_t size = value.size();
      if (!rest.empty() && rest[0] == '"') {
        const std::size_t quote = rest.find('"', 1);
        if (quote == std::string_view::npos)
          return fault(absl::StrCat("the value of \"", key, "\" lacks its closing quote"));
        value = rest.substr(1, quote - 1);
        size = quote + 1;
      }
      rest = rest.substr(size);
      for (char& c : key)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      to.emplace_back(std::move(key), std::string(value));
    }
    return absl::OkStatus();
  }

  std::string_view left_;
  const char* what_;
  std::uint64_t most_names_;
  sizes lists_{};  // of all calls of names(), with count_copied()
  std::uint32_t number_ = 0;
  std::uint32_t more_lines_ = 0;  // of the line that was read last
};

// The faults of two texts, one below the other.
[[nodiscard]] inline absl::Status faults_of_both(const absl::Status& first,
                                                 const absl::Status& second) {
  if (first.ok() || second.ok()) return first.ok() ? second : first;
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(first.message()), "\n", std::string(second.message())));
}

// Collects the faults of a text, one on each line.
class slurm_faults {
 public:
  // The most faults that are listed.
  static constexpr std::size_t max_listed = 20;

  // Returns whether the status is OK; if not, adds it.
  bool ok(const absl::Status& status) {
    if (status.ok()) return true;
    if (++size_ <= max_listed)
      absl::StrAppend(&text_, text_.empty() ? "" : "\n", std::string(status.message()));
    return false;
  }
  [[nodiscard]] absl::Status status() const {
    if (size_ == 0) return absl::OkStatus();
    if (size_ <= max_listed) return absl::InvalidArgumentError(text_);
    return absl::InvalidArgumentError(
        absl::StrCat(text_, "\n", size_ - max_listed, " more faults"));
  }

 private:
  std::string text_;
  std::size_t size_ = 0;
};

// Reads all lines of a text, each with read_line(line), which returns a status. Adds the faults.
template <class ReadLine>
void read_lines(slurm_reader& from, slurm_faults& faults, const ReadLine& read_line) {
  slurm_reader::line line;
  while (true) {
    const absl::StatusOr<bool> more = from.next(line);
    if (more.ok() && !*more) return;
    faults.ok(more.ok() ? read_line(line) : more.status());
  }
}

}  // namespace example
