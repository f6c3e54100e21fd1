// apiary/examples/programs/import/xml_tags.h - the tags of an XML text, one after the other, with their lines.
// SPDX-License-Identifier: MIT
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// Reads what tools such as lstopo write: elements, attributes and texts. Comments, declarations and the
// document type are skipped; entities other than the five of XML and numbers are an error.
class xml_tags {
 public:
  struct tag {
    std::string name{};
    std::map<std::string, std::string> attributes{};
    bool ends = false;     // </name>; <name/> is reported as two tags
    std::string before{};  // the text between the last tag and this one
    std::size_t line = 0;
  };

  explicit xml_tags(std::string_view text) : left_(text) {}

  // Reads the next tag; false at the end of the text. Checks that elements end in order.
  // kInvalidArgument: "line N: what is wrong".
  absl::StatusOr<bool> next(tag& to) {
    to = {};
    if (closes_) {
      closes_ = false;
      to.name = open_.back();
      to.ends = true;
      to.line = line_;
      open_.pop_back();
      return true;
    }
    while (true) {
      const std::size_t at = left_.find('<');
      to.before += left_.substr(0, at);
      if (at == std::string_view::npos) {
        skip(left_.size());
        if (!open_.empty()) return fault("<", open_.back(), "> does not end");
        return false;
      }
      skip(at);
      bool skipped = false;
      for (const auto& [begin, end] : skipped_marks) {
        if (left_.substr(0, begin.size()) != begin) continue;
        const std::size_t last = left_.find(end, begin.size());
        if (last == std::string_view::npos)
          return fault("\"", std::string(begin), "\" does not end");
        skip(last + end.size());
        skipped = true;
        break;
      }
      if (!skipped) break;
    }
    to.line = line_;
    std::size_t end = 1;  // of the tag: the first ">" outside of quotes
    for (char quote = 0; end < left_.size() && (quote != 0 || left_[end] != '>'); ++end) {
      const char c = left_[end];
      if (quote == 0 ? c == '"' || c == '\'' : c == quote) quote = quote == 0 ? c : '\0';
    }
    if (end >= left_.size()) return fault("a tag does not end");
    std::string_view body = left_.substr(1, end - 1);
    to.ends = body.substr(0, 1) == "/";
    if (to.ends) body.remove_prefix(1);
    closes_ = !to.ends && !body.empty() && body.back() == '/';
    if (closes_) body.remove_suffix(1);
    to.name = word(body);
    if (to.name.empty()) return fault("a tag has no name");
    if (absl::Status status = read_attributes(body, to); !status.ok()) return status;
    skip(end + 1);
    if (to.ends && (open_.empty() || open_.back() != to.name || !to.attributes.empty()))
      return fault("</", to.name, "> ends ", open_.empty() ? "nothing" : "<" + open_.back() + ">");
    if (to.ends)
      open_.pop_back();
    else if (open_.size() == max_depth)
      return fault("elements are nested more than ", max_depth, " deep");
    else
      open_.push_back(to.name);
    return true;
  }

 private:
  static constexpr std::size_t max_depth = 100;
  static constexpr std::string_view spaces = " \t\r\n";
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> skipped_marks{
      {{"<?", "?>"}, {"<!--", "-->"}, {"<!DOCTYPE", ">"}}};

  template <class... Words>
  [[nodiscard]] absl::Status fault(const Words&... words) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", words...));
  }
  void skip(std::size_t bytes) {
    line_ += static_cast<std::size_t>(
        std::count(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n'));
    left_.remove_prefix(bytes);
  }
  // Takes a name from the front, without the spaces before it.
  static std::string word(std::string_view& from) {
    from.remove_prefix((std::min)(from.find_first_not_of(spaces), from.size()));
    const std::size_t end = (std::min)(from.find_first_of(" \t\r\n=\"'<"), from.size());
    std::string name(from.substr(0, end));
    from.remove_prefix(end);
    from.remove_prefix((std::min)(from.find_first_not_of(spaces), from.size()));
    return name;
  }
  absl::Status read_attributes(std::string_view body, tag& to) const {
    while (!body.empty()) {
      const std::string key = word(body);
      if (body.substr(0, 1) != "=") return fault("<", to.name, ">: \"", key, "\" has no value");
      body.remove_prefix(1);
      body.remove_prefix((std::min)(body.find_first_not_of(spaces), body.size()));
      const char quote = body.empty() ? '\0' : body[0];
      const std::size_t end =
          quote == '"' || quote == '\'' ? body.find(quote, 1) : std::string_view::npos;
      if (key.empty() || end == std::string_view::npos)
        return fault("<", to.name, ">: the value of \"", key, "\" is not in quotes");
      std::string value;
      if (!plain(body.substr(1, end - 1), value))
        return fault("<", to.name, ">: \"", key, "\" has an unknown entity");
      if (!to.attributes.emplace(key, std::move(value)).second)
        return fault("<", to.name, ">: \"", key, "\" is given twice");
      body.remove_prefix(end + 1);
      body.remove_prefix((std::min)(body.find_first_not_of(spaces), body.size()));
    }
    return absl::OkStatus();
  }
  // The text with its entities replaced. Numbers of characters become "?": nothing here reads them.
  static bool plain(std::string_view text, std::string& to) {
    constexpr std::array<std::pair<std::string_view, char>, 5> entities{
        {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};
    while (!text.empty()) {
      const std::size_t at = (std::min)(text.find('&'), text.size());
      to += text.substr(0, at);
      text.remove_prefix(at);
      if (text.empty()) break;
      const auto found = std::find_if(entities.begin(), entities.end(), [&](const auto& one) {
        return text.substr(0, one.first.size()) == one.first;
      });
      const std::size_t end = text.find(';');
      if (end == std::string_view::npos || (found == entities.end() && text.substr(0, 2) != "&#"))
        return false;
      to += found == entities.end() ? '?' : found->second;
      text.remove_prefix(end + 1);
    }
    return true;
  }

  std::string_view left_;
  std::size_t line_ = 1;
  bool closes_ = false;  // the last tag was <name/>
  std::vector<std::string> open_;
};

}  // namespace example
