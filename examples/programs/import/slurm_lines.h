// apiary/examples/programs/import/slurm_lines.h - lines for read_slurm that stand for lines of another file.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digits.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace example {

// A text for read_slurm that an importer makes from another file. Each of its lines knows the
// line of that file.
class slurm_lines {
 public:
  template <class... Words>
  void add(std::size_t line, const Words&... words) {
    absl::StrAppend(&text_, words..., "\n");
    lines_.push_back(line);
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  // The status, where each "WHAT, line N" at the beginning or at the end of a line names the line of the
  // other file.
  [[nodiscard]] absl::Status with_lines(std::string_view what, const absl::Status& status) const {
    if (status.ok()) return status;
    std::string all;
    const std::string message(status.message());
    std::string_view rest = message;
    while (!rest.empty()) {
      const std::size_t end = (std::min)(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix((std::min)(end + 1, rest.size()));
      const std::string before = absl::StrCat(std::string(what), ", line ");
      const std::size_t colon = (std::min)(line.find(':'), line.size());
      absl::StrAppend(&all, all.empty() ? "" : "\n");
      if (line.substr(0, before.size()) == before) {
        if (const std::size_t own = own_line(line.substr(before.size(), colon - before.size()))) {
          absl::StrAppend(&all, before, own);
          line.remove_prefix(colon);
        }
      }
      const std::size_t last = line.rfind(before);
      const std::size_t own =
          last == std::string_view::npos ? 0 : own_line(line.substr(last + before.size()));
      absl::StrAppend(&all, std::string(line.substr(0, own > 0 ? last : line.size())));
      if (own > 0) absl::StrAppend(&all, before, own);
    }
    return {status.code(), all};
  }

  // Whether a text can be a word of such a line.
  [[nodiscard]] static bool is_word(std::string_view text) {
    return !text.empty() && text.back() != '\\' &&
           std::none_of(text.begin(), text.end(), [](char c) {
             return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '#';
           });
  }
  // Why a text is no list of names in such a line; empty: it is one.
  [[nodiscard]] static std::string fault_of_list(std::string_view text) {
    if (!is_word(text)) return "is empty, or has a space, \", # or a backslash at its end";
    const std::string all = absl::StrCat(",", std::string(text), ",");
    return all.find(",DEFAULT,") == std::string::npos ? "" : no_default;
  }
  // Why it is no single name.
  [[nodiscard]] static std::string fault_of_name(std::string_view text) {
    if (!is_word(text) || text.find_first_of(",[]") != std::string_view::npos)
      return "a name without a space, \", #, a comma or a bracket expected";
    return text == "DEFAULT" ? no_default : "";
  }

 private:
  // The line of the other file for the number of a line; 0: the text is no such number.
  [[nodiscard]] std::size_t own_line(std::string_view number) const {
    const std::optional<std::uint64_t> line = apiary::detail::read_digits(number);
    if (!line || *line < 1 || *line > lines_.size()) return 0;
    return lines_[static_cast<std::size_t>(*line - 1)];
  }

  static constexpr const char* no_default = "DEFAULT is no name: in Slurm it means default values";
  std::string text_;
  std::vector<std::size_t> lines_;  // of the other file
};

}  // namespace example
