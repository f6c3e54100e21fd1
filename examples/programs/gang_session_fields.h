// Reads the fields of one JSON object, and reports wrong and unknown ones by their path.
// SPDX-License-Identifier: MIT
#pragma once

#include "../hosts/kubernetes/kubernetes_json.h"
#include <apiary/gang_scheduler/gang_scheduler_types.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace example {

using session_json = apiary_kubernetes::json;

// The first fault of a line.
class session_fault {
 public:
  void add(const std::string& path, const std::string& what) {
    if (text_.empty()) text_ = absl::StrCat(path, ": ", what);
  }
  [[nodiscard]] absl::Status status() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

// The fields of an object. A field that is missing or null is empty. Call done() at the end: it reports
// fields that were not asked for.
class session_fields {
 public:
  session_fields(const session_json& object, std::string path, session_fault& fault)
      : object_(&object), path_(std::move(path)), fault_(&fault) {
    if (!object.is_object()) fault.add(path_.empty() ? "line" : path_, "an object expected");
  }

  [[nodiscard]] bool has(const char* name) { return !get(name).is_null(); }
  [[nodiscard]] bool is_text(const char* name) { return get(name).is_string(); }
  [[nodiscard]] std::string path(const char* name) const {
    return path_.empty() ? name : path_ + '.' + name;
  }
  void require(const char* name) {
    if (!has(name)) fault_->add(path(name), "is missing");
  }

  [[nodiscard]] std::string text(const char* name) {
    const session_json& value = get(name);
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_null()) fault_->add(path(name), "a text expected");
    return {};
  }
  // A whole number; `missing` if there is none.
  template <class Number>
  [[nodiscard]] Number number(const char* name, Number missing = 0,
                              Number most = std::numeric_limits<Number>::max()) {
    const session_json& value = get(name);
    if (value.is_null()) return missing;
    return whole(value, path(name), most);
  }
  // A job: a number or a text that is not empty.
  [[nodiscard]] apiary::job_key job(const char* name) {
    const session_json& value = get(name);
    if (value.is_string() && !value.get_ref<const std::string&>().empty())
      return value.get<std::string>();
    if (value.is_number_unsigned()) return value.get<std::uint64_t>();
    fault_->add(path(name), "a text that is not empty, or a whole number from 0 expected");
    return {};
  }
  [[nodiscard]] std::vector<std::string> texts(const char* name) {
    std::vector<std::string> all;
    each(name, [&](const session_json& item, const std::string& at) {
      if (item.is_string())
        all.push_back(item.get<std::string>());
      else
        fault_->add(at, "a text expected");
    });
    return all;
  }
  template <class Number>
  [[nodiscard]] std::vector<Number> numbers(const char* name) {
    std::vector<Number> all;
    each(name, [&](const session_json& item, const std::string& at) {
      all.push_back(whole(item, at, std::numeric_limits<Number>::max()));
    });
    return all;
  }
  // Calls visit(fields) for each object of a list, or for the one object.
  template <class Visit>
  void objects(const char* name, Visit visit) {
    each(name, [&](const session_json& item, const std::string& at) {
      session_fields fields(item, at, *fault_);
      visit(fields);
      fields.done();
    });
  }
  template <class Visit>
  void object(const char* name, Visit visit) {
    const session_json& value = get(name);
    if (value.is_null()) return;
    session_fields fields(value, path(name), *fault_);
    visit(fields);
    fields.done();
  }

  void done() {
    if (!object_->is_object()) return;
    for (const auto& [name, value] : object_->items())
      if (!asked_.contains(name))
        fault_->add(path(name.substr(0, 40).c_str()), "is not a field here");
  }
  void fault(const char* name, const std::string& what) { fault_->add(path(name), what); }

 private:
  const session_json& get(const char* name) {
    asked_.insert(name);
    return apiary_kubernetes::member(*object_, name);
  }
  template <class Number>
  Number whole(const session_json& value, const std::string& at, Number most) {
    if (value.is_number_integer())
      if (const auto number =
              apiary_kubernetes::number_of<Number>(value, std::numeric_limits<Number>::min(), most);
          number.ok())
        return *number;
    fault_->add(at, absl::StrCat("a whole number from ", std::numeric_limits<Number>::min(), " to ",
                                 most, " expected"));
    return 0;
  }
  template <class Visit>
  void each(const char* name, Visit visit) {
    const session_json& list = get(name);
    if (list.is_null()) return;
    if (!list.is_array()) return fault_->add(path(name), "an array expected");
    for (std::size_t i = 0; i < list.size(); ++i)
      visit(list[i], absl::StrCat(path(name), "[", i, "]"));
  }

  const session_json* object_;
  std::string path_;
  session_fault* fault_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace example
