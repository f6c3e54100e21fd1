// apiary/examples/kubernetes/kubernetes_json.h - reads nodes and pods from the JSON of Kubernetes.
// SPDX-License-Identifier: MIT
#pragma once

#include "kubernetes_records.h"
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#define JSON_USE_IMPLICIT_CONVERSIONS 0
#include <nlohmann/json.hpp>

namespace apiary_kubernetes {

using json = nlohmann::json;

// Objects and lists may be nested so deep; copies and prints of a document use the stack.
inline constexpr int max_nesting = 64;

// Parses a document. kInvalidArgument: it is no JSON, or nested too deep.
[[nodiscard]] inline absl::StatusOr<json> parse(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_nesting)
        return absl::InvalidArgumentError(
            absl::StrCat("the JSON is nested deeper than ", max_nesting, " levels"));
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) return absl::InvalidArgumentError("the body is no valid JSON");
  return document;
}

// The document as text; what is no UTF-8 is replaced.
[[nodiscard]] inline std::string print(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The member of an object; null if there is none, or if it is no object.
[[nodiscard]] inline const json& member(const json& object, const char* name) {
  static const json none;
  if (!object.is_object()) return none;
  const auto at = object.find(name);
  return at == object.end() ? none : *at;
}
// The text of a member; empty if there is none.
[[nodiscard]] inline std::string text_of(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}
// All members that are texts.
[[nodiscard]] inline text_map texts_of(const json& object) {
  text_map all;
  if (object.is_object())
    for (const auto& [key, value] : object.items())
      if (value.is_string()) all[key] = value.get<std::string>();
  return all;
}

// A whole number: 8 or "8". kInvalidArgument: it is none, or not within the limits.
template <class Number>
[[nodiscard]] absl::StatusOr<Number> number_of(const json& value, Number least, Number most) {
  const std::string text = value.is_string() ? value.get<std::string>() : print(value);
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text.substr(0, 40), "\" is no number from ", least, " to ", most));
  return number;
}

// The GPUs that each container of a list asks for.
[[nodiscard]] inline absl::StatusOr<std::vector<std::uint32_t>> gpus_of(const json& containers) {
  std::vector<std::uint32_t> all;
  if (!containers.is_array()) return all;
  for (const json& container : containers) {
    const json& resources = member(container, "resources");
    const json& request = member(member(resources, "requests"), gpu_resource);
    const json& limit = member(member(resources, "limits"), gpu_resource);
    if (request.is_null() && limit.is_null()) continue;
    const auto count = number_of<std::uint32_t>(request.is_null() ? limit : request, 0, 1000);
    if (!count.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(gpu_resource, ": ", std::string(count.status().message())));
    all.push_back(*count);
  }
  return all;
}

// A node. kInvalidArgument: it has no name, or its GPUs are no number.
[[nodiscard]] inline absl::StatusOr<node_record> read_node(const json& from) {
  const json& metadata = member(from, "metadata");
  const json& spec = member(from, "spec");
  const json& status = member(from, "status");
  node_record node{.name = text_of(metadata, "name"),
                   .labels = texts_of(member(metadata, "labels"))};
  if (node.name.empty()) return absl::InvalidArgumentError("a node has no metadata.name");
  if (const json& gpus = member(member(status, "allocatable"), gpu_resource); !gpus.is_null()) {
    const auto count = number_of<std::uint32_t>(gpus, 0, apiary::gang_cluster::max_gpus);
    if (!count.ok())
      return absl::InvalidArgumentError(absl::StrCat("node ", node.name, ": ", gpu_resource, ": ",
                                                     std::string(count.status().message())));
    node.gpus = *count;
  }
  if (const json& taints = member(spec, "taints"); taints.is_array())
    for (const json& one : taints) {
      taint_record taint{text_of(one, "key"), text_of(one, "value"), text_of(one, "effect")};
      // Those of Kubernetes itself repeat what the conditions say.
      if (taint.effect == "PreferNoSchedule" || taint.key.starts_with("node.kubernetes.io/"))
        continue;
      node.taints.push_back(std::move(taint));
    }
  bool ready = false;
  if (const json& conditions = member(status, "conditions"); conditions.is_array())
    for (const json& one : conditions)
      if (text_of(one, "type") == "Ready") ready = text_of(one, "status") == "True";
  const json& cordoned = member(spec, "unschedulable");
  node.usable = ready && !(cordoned.is_boolean() && cordoned.get<bool>());
  return node;
}

// Whether the text can be the name of an object, and be used in a path.
[[nodiscard]] inline bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string_view::npos;
}

// A pod. kInvalidArgument: it has no name, namespace or uid, a wrong number, or an annotation
// "apiary/..." that does not exist.
[[nodiscard]] inline absl::StatusOr<pod_record> read_pod(const json& from) {
  const json& metadata = member(from, "metadata");
  const json& spec = member(from, "spec");
  pod_record pod{.uid = text_of(metadata, "uid"),
                 .name_space = text_of(metadata, "namespace"),
                 .name = text_of(metadata, "name")};
  if (pod.uid.empty() || !is_name(pod.name_space) || !is_name(pod.name))
    return absl::InvalidArgumentError("a pod has no valid metadata.uid, namespace or name");
  const auto fault = [&](const auto&... words) {
    return absl::InvalidArgumentError(
        absl::StrCat("pod ", pod.name_space, "/", pod.name, ": ", words...));
  };
  for (const auto& [key, value] : texts_of(member(metadata, "annotations"))) {
    if (!key.starts_with("apiary/")) continue;
    if (key == size_annotation) {
      const auto size = number_of<std::uint32_t>(value, 1, apiary::gang_scheduler::max_tasks);
      if (!size.ok()) return fault(key, ": ", std::string(size.status().message()));
      pod.gang_size = *size;
    } else if (key == level_annotation) {
      pod.required_level = value;
    } else if (key == plan_annotation) {
      pod.plan = absl::StrSplit(value, ',', absl::SkipEmpty());
    } else {
      return fault("there is no annotation \"", key, "\"");
    }
  }
  if (pod.gang_size > 1) {
    pod.gang = text_of(member(metadata, "labels"), gang_label);
    if (pod.gang.empty()) return fault(size_annotation, " needs the label \"", gang_label, "\"");
  }
  if (const json& priority = member(spec, "priority"); !priority.is_null()) {
    using limits = std::numeric_limits<std::int32_t>;
    const auto number = number_of<std::int32_t>(priority, (limits::min)(), (limits::max)());
    if (!number.ok()) return fault("priority: ", std::string(number.status().message()));
    pod.priority = *number;
  }
  // As Kubernetes counts: all containers together, or the largest of those that run before them.
  const auto together = gpus_of(member(spec, "containers"));
  if (!together.ok()) return fault(std::string(together.status().message()));
  for (const std::uint32_t gpus : *together) pod.gpus += gpus;
  const auto before = gpus_of(member(spec, "initContainers"));
  if (!before.ok()) return fault(std::string(before.status().message()));
  for (const std::uint32_t gpus : *before) pod.gpus = (std::max)(pod.gpus, gpus);
  pod.node_selector = texts_of(member(spec, "nodeSelector"));
  if (const json& tolerations = member(spec, "tolerations"); tolerations.is_array())
    for (const json& one : tolerations)
      pod.tolerations.push_back({text_of(one, "key"), text_of(one, "operator"),
                                 text_of(one, "value"), text_of(one, "effect")});
  pod.node = text_of(spec, "nodeName");
  const std::string phase = text_of(member(from, "status"), "phase");
  pod.ending = member(metadata, "deletionTimestamp").is_string();
  pod.ended = phase == "Succeeded" || phase == "Failed";
  return pod;
}

// The nodes or pods of a list (`kubectl get nodes -o json`): `read` is read_node or read_pod. What
// cannot be read is left out, and said in `faults`.
template <class Read>
[[nodiscard]] auto read_list(const json& list, const Read& read, std::vector<std::string>& faults) {
  std::vector<typename decltype(read(list))::value_type> all;
  const json& items = member(list, "items");
  if (!items.is_array()) {
    faults.emplace_back("the list has no items");
    return all;
  }
  for (const json& item : items) {
    auto one = read(item);
    if (one.ok())
      all.push_back(*std::move(one));
    else
      faults.emplace_back(one.status().message());
  }
  return all;
}

}  // namespace apiary_kubernetes
