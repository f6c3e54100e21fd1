// apiary/trace/line_reader.h - reads a text by lines, or the named columns of a CSV text.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/status.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
// Reads a text line by line; the text may be larger than memory.
// Accepts: LF and CRLF, a last line without line end, blank lines at the end, a byte order mark.
// Errors:  kInvalidArgument: a control character (NUL; tabs unless allow_tabs() was called), or a
//          blank line before one that is not. kOutOfRange: a line longer than max_line bytes.
// Cost:    O(bytes); memory for two lines of max_line bytes.
class line_reader {
 public:
  static constexpr std::size_t max_line = 65536;  // bytes
  // Opens the file at `path`. Errors: kNotFound, kPermissionDenied, ... as the system says.
  [[nodiscard]] static absl::StatusOr<line_reader> open(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return absl::ErrnoToStatus(errno, path);
    line_reader lines(path, {});
    lines.file_.reset(file);
    lines.buffer_.resize(2 * max_line);
    return lines;
  }
  // Reads `text`; messages name it `name`. Requires: the text outlives the reader.
  line_reader(std::string name, std::string_view text) : name_(std::move(name)), rest_(text) {}
  // Accepts tabs from now on.
  void allow_tabs() noexcept { tabs_ = true; }
  // Sets `line`, valid until the next call, to the next line without its end; false: no more.
  [[nodiscard]] absl::StatusOr<bool> next(std::string_view& line) {
    std::uint64_t blank_at = 0;
    while (true) {
      APIARY_ASSIGN_OR_RETURN(const bool more, cut(line));
      if (!more) return false;
      if (!line.empty()) break;
      if (blank_at == 0) blank_at = number_;
    }
    if (blank_at != 0) {
      number_ = blank_at;
      return error("the line is blank");
    }
    const auto control = std::find_if(line.begin(), line.end(), [this](char c) {
      return (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) && !(tabs_ && c == '\t');
    });
    if (control != line.end()) {
      return error("control character " + line_reader::quoted({&*control, 1}) + " at byte " +
                   std::to_string(control - line.begin() + 1));
    }
    return true;
  }
  // The text in quotes for a message: cut at 60 bytes, with unprintable bytes as \xNN.
  [[nodiscard]] static std::string quoted(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text.substr(0, 60)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7f) {
        out += c;
      } else {
        out += "\\x";
        out += digits[byte >> 4];
        out += digits[byte & 15];
      }
    }
    return out += text.size() > 60 ? "...\"" : "\"";
  }
  // The name of the file, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // The number of the last line read, from 1; 0 before the first.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  // A kInvalidArgument about the last line read: "name:number: what".
  [[nodiscard]] absl::Status error(const std::string& what) const {
    return absl::InvalidArgumentError(name_ + ":" + std::to_string(number_) + ": " + what);
  }
  // A kInvalidArgument about the whole text: "name: what".
  [[nodiscard]] absl::Status error_in_all(const std::string& what) const {
    return absl::InvalidArgumentError(name_ + ": " + what);
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  absl::StatusOr<bool> cut(std::string_view& line) {
    std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos && file_ != nullptr) {
      APIARY_RETURN_IF_ERROR(refill());
      end = rest_.find('\n');
    }
    if (rest_.empty()) return false;
    ++number_;
    line = rest_.substr(0, end);
    if (line.size() > max_line) {
      return absl::OutOfRangeError(name_ + ":" + std::to_string(number_) + ": longer than " +
                                   std::to_string(max_line) + " bytes");
    }
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    return true;
  }
  // Moves the unread bytes to the start of the buffer and fills the rest from the file.
  absl::Status refill() {
    std::copy(rest_.begin(), rest_.end(), buffer_.begin());
    std::size_t filled = rest_.size();
    while (filled < buffer_.size() && std::feof(file_.get()) == 0) {
      filled += std::fread(buffer_.data() + filled, 1, buffer_.size() - filled, file_.get());
      if (std::ferror(file_.get()) != 0)
        return absl::ErrnoToStatus(errno != 0 ? errno : EIO, name_);
    }
    rest_ = {buffer_.data(), filled};
    return absl::OkStatus();
  }

  std::string name_;
  std::unique_ptr<std::FILE, closer> file_;
  std::vector<char> buffer_;
  std::string_view rest_;  // what is not read yet, of the text or of the buffer
  std::uint64_t number_ = 0;
  bool tabs_ = false;
};

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
