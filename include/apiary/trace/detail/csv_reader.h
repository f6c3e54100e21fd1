// apiary/trace/detail/csv_reader.h - the named columns of a comma-separated text.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A column to look for in the header line; other columns are ignored.
struct csv_column {
  std::string_view name;
  bool required = true;
};

// Reads comma-separated rows under a header line that names the columns in any order.
// Errors: kInvalidArgument: the text is empty, a required column is missing, a column is named
//         twice, a row has more or fewer fields than the header line, or a quote occurs.
class csv_reader {
 public:
  // Reads the header line. Requires: the names in `columns` outlive the reader.
  [[nodiscard]] static absl::StatusOr<csv_reader> create(line_reader lines,
                                                         std::span<const csv_column> columns) {
    csv_reader csv(std::move(lines), columns);
    APIARY_ASSIGN_OR_RETURN(const bool any, csv.split());
    if (!any) return csv.lines_.error_in_all("the file is empty");
    std::vector<std::string_view> names = csv.fields_;
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) return csv.error("two columns " + line_reader::quoted(*twice));
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto at = std::find(csv.fields_.begin(), csv.fields_.end(), columns[c].name);
      if (at != csv.fields_.end()) {
        csv.position_[c] = static_cast<std::size_t>(at - csv.fields_.begin());
      } else if (columns[c].required) {
        return csv.error("no column " + line_reader::quoted(columns[c].name));
      }
    }
    csv.width_ = csv.fields_.size();
    return csv;
  }
  // Goes to the next row; returns false at the end.
  [[nodiscard]] absl::StatusOr<bool> next() {
    APIARY_ASSIGN_OR_RETURN(const bool more, split());
    if (more && fields_.size() != width_) {
      return error(std::to_string(fields_.size()) + " fields; the header line has " +
                   std::to_string(width_));
    }
    return more;
  }
  // The field of this row in column `c` of create's list; empty if there is no such column.
  [[nodiscard]] std::string_view operator[](std::size_t c) const noexcept {
    return position_[c] == absent ? std::string_view() : fields_[position_[c]];
  }
  // The same field as a number from 0 to `max`, decimal digits only.
  [[nodiscard]] absl::StatusOr<std::uint32_t> number(
      std::size_t c, std::uint32_t max = (std::numeric_limits<std::uint32_t>::max)()) const {
    const std::string_view text = (*this)[c];
    const std::optional<std::uint64_t> value = read_digits(text, max);
    if (!value) {
      return error(std::string(columns_[c].name) + " is " + line_reader::quoted(text) +
                   ", not a whole number from 0 to " + std::to_string(max));
    }
    return static_cast<std::uint32_t>(*value);
  }
  // The same field as a name: not empty, without spaces.
  [[nodiscard]] absl::StatusOr<std::string> name(std::size_t c) const {
    const std::string_view text = (*this)[c];
    if (text.empty() || text.find(' ') != std::string_view::npos) {
      return error(std::string(columns_[c].name) + " is " + line_reader::quoted(text) +
                   ", not a name without spaces");
    }
    return std::string(text);
  }
  [[nodiscard]] const line_reader& lines() const noexcept { return lines_; }
  [[nodiscard]] absl::Status error(const std::string& what) const { return lines_.error(what); }

 private:
  static constexpr std::size_t absent = ~std::size_t{0};

  csv_reader(line_reader lines, std::span<const csv_column> columns)
      : lines_(std::move(lines)),
        columns_(columns.begin(), columns.end()),
        position_(columns.size(), absent) {}
  absl::StatusOr<bool> split() {
    std::string_view line;
    APIARY_ASSIGN_OR_RETURN(const bool more, lines_.next(line));
    if (!more) return false;
    if (line.find('"') != std::string_view::npos) return error("quotes are not supported");
    fields_.clear();
    while (true) {
      const std::size_t comma = line.find(',');
      fields_.push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) return true;
      line.remove_prefix(comma + 1);
    }
  }

  line_reader lines_;
  std::vector<csv_column> columns_;
  std::vector<std::size_t> position_;  // the position of each of columns_ among the fields
  std::vector<std::string_view> fields_;
  std::size_t width_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
