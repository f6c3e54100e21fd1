// apiary/examples/hosts/kubernetes/kubernetes_json.h - reads nodes and pods from the JSON of Kubernetes.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../text/json.h"
#include "kubernetes_records.h"
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

using json = example::json_value;
using example::json_object;

// Parses a document. kInvalidArgument: it is no JSON, or nested too deep.
[[nodiscard]] inline absl::StatusOr<json> parse(std::string_view text) {
  constexpr std::size_t no_limit = ~std::size_t{0};  // of values: a list may have many nodes
  auto document = example::json_reader::read(text, no_limit);
  if (document.ok()) return document;
  return absl::InvalidArgumentError(absl::StrCat("the body is ", document.status().message()));
}

// All members that are texts.
[[nodiscard]] inline text_map texts_of(const json& object) {
  text_map all;
  for (std::size_t i = 0; i < object.names.size(); ++i)
    if (object.items[i].is_text()) all[object.names[i]] = object.items[i].scalar;
  return all;
}

// A whole number. kInvalidArgument: the text is none, or not within the limits.
template <class Number>
[[nodiscard]] absl::StatusOr<Number> number_of(std::string_view text, Number least, Number most) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text.substr(0, 40)),
                                                   "\" is no number from ", least, " to ", most));
  return number;
}
// The same of 8 or "8".
template <class Number>
[[nodiscard]] absl::StatusOr<Number> number_of(const json& value, Number least, Number most) {
  return number_of(value.is_text() ? value.scalar : value.str(""), least, most);
}

// The GPUs that each container of a list asks for.
[[nodiscard]] inline absl::StatusOr<std::vector<std::uint32_t>> gpus_of(const json& containers) {
  std::vector<std::uint32_t> all;
  if (!containers.is_array()) return all;
  for (const json& container : containers.items) {
    const json& resources = container["resources"];
    const json& request = resources["requests"][gpu_resource];
    const json& limit = resources["limits"][gpu_resource];
    if (request.null() && limit.null()) continue;
    const auto count = number_of<std::uint32_t>(request.null() ? limit : request, 0, 1000);
    if (!count.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(gpu_resource, ": ", std::string(count.status().message())));
    all.push_back(*count);
  }
  return all;
}

// A node. kInvalidArgument: it has no name, or its GPUs are no number.
[[nodiscard]] inline absl::StatusOr<node_record> read_node(const json& from) {
  const json& metadata = from["metadata"];
  const json& spec = from["spec"];
  const json& status = from["status"];
  node_record node{.name = metadata["name"].text(), .labels = texts_of(metadata["labels"])};
  if (node.name.empty()) return absl::InvalidArgumentError("a node has no metadata.name");
  if (const json& gpus = status["allocatable"][gpu_resource]; !gpus.null()) {
    const auto count = number_of<std::uint32_t>(gpus, 0, apiary::gang_cluster::max_gpus);
    if (!count.ok())
      return absl::InvalidArgumentError(absl::StrCat("node ", node.name, ": ", gpu_resource, ": ",
                                                     std::string(count.status().message())));
    node.gpus = *count;
  }
  if (const json& taints = spec["taints"]; taints.is_array())
    for (const json& one : taints.items) {
      taint_record taint{one["key"].text(), one["value"].text(), one["effect"].text()};
      // Those of Kubernetes itself repeat what the conditions say.
      if (taint.effect == "PreferNoSchedule" || taint.key.starts_with("node.kubernetes.io/"))
        continue;
      node.taints.push_back(std::move(taint));
    }
  bool ready = false;
  if (const json& conditions = status["conditions"]; conditions.is_array())
    for (const json& one : conditions.items)
      if (one["type"].text() == "Ready") ready = one["status"].text() == "True";
  const json& cordoned = spec["unschedulable"];
  node.usable = ready && !(cordoned.is_bool() && cordoned.scalar == "true");
  return node;
}

// Whether the text can be the name of an object, and be used in a path.
[[nodiscard]] inline bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string_view::npos;
}

// A time as Kubernetes writes it, "2026-11-23T02:18:48Z", in ms since 1970; 0: the text is none.
[[nodiscard]] inline apiary::time_ms time_of(const std::string& text) {
  int year = 0;
  unsigned month = 0, day = 0, hour = 0, minute = 0, second = 0;
  int length = 0;
  if (std::sscanf(text.c_str(), "%4d-%2u-%2uT%2u:%2u:%2uZ%n", &year, &month, &day, &hour, &minute,
                  &second, &length) != 6 ||
      static_cast<std::size_t>(length) != text.size())
    return 0;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok()) return 0;
  const std::chrono::milliseconds since_1970 =
      std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
      std::chrono::minutes(minute) + std::chrono::seconds(second);
  return since_1970.count();
}

// What the annotations and the label of a pod say about its gang. kInvalidArgument: a wrong number, no
// label, or an annotation "apiary/..." that does not exist.
[[nodiscard]] inline absl::Status read_gang(const json& metadata, pod_record& pod) {
  const auto fault = [&](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("pod ", pod.full_name(), ": ", words...));
  };
  for (const auto& [key, value] : texts_of(metadata["annotations"])) {
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
  if (pod.gang_size == 1) return absl::OkStatus();
  pod.gang = metadata["labels"][gang_label].text();
  if (pod.gang.empty()) return fault(size_annotation, " needs the label \"", gang_label, "\"");
  return absl::OkStatus();
}

// A pod of a list. If it is bound and its gang cannot be read, its field gang_fault says why: its GPUs
// are in use all the same. kInvalidArgument: it has no name, namespace or uid, a wrong number, or it is
// not bound and its gang cannot be read.
[[nodiscard]] inline absl::StatusOr<pod_record> read_listed_pod(const json& from) {
  const json& metadata = from["metadata"];
  const json& spec = from["spec"];
  pod_record pod{.uid = metadata["uid"].text(),
                 .name_space = metadata["namespace"].text(),
                 .name = metadata["name"].text()};
  if (pod.uid.empty() || !is_name(pod.name_space) || !is_name(pod.name))
    return absl::InvalidArgumentError("a pod has no valid metadata.uid, namespace or name");
  pod.node = spec["nodeName"].text();
  pod_record with_gang = pod;
  const absl::Status gang = read_gang(metadata, with_gang);
  if (!gang.ok() && pod.node.empty()) return gang;
  if (gang.ok()) pod = std::move(with_gang);
  pod.gang_fault = std::string(gang.message());
  const auto fault = [&](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("pod ", pod.full_name(), ": ", words...));
  };
  if (const json& priority = spec["priority"]; !priority.null()) {
    using limits = std::numeric_limits<std::int32_t>;
    const auto number = number_of<std::int32_t>(priority, (limits::min)(), (limits::max)());
    if (!number.ok()) return fault("priority: ", std::string(number.status().message()));
    pod.priority = *number;
  }
  // As Kubernetes counts: all containers together, or the largest of those that run before them.
  const auto together = gpus_of(spec["containers"]);
  if (!together.ok()) return fault(std::string(together.status().message()));
  for (const std::uint32_t gpus : *together) pod.gpus += gpus;
  const auto before = gpus_of(spec["initContainers"]);
  if (!before.ok()) return fault(std::string(before.status().message()));
  for (const std::uint32_t gpus : *before) pod.gpus = (std::max)(pod.gpus, gpus);
  pod.node_selector = texts_of(spec["nodeSelector"]);
  if (const json& tolerations = spec["tolerations"]; tolerations.is_array())
    for (const json& one : tolerations.items)
      pod.tolerations.push_back(
          {one["key"].text(), one["operator"].text(), one["value"].text(), one["effect"].text()});
  const json& status = from["status"];
  const std::string phase = status["phase"].text();
  pod.started = time_of(status["startTime"].text());
  pod.ending = metadata["deletionTimestamp"].is_text();
  pod.ended = phase == "Succeeded" || phase == "Failed";
  return pod;
}

// A pod that kube-scheduler asks about. kInvalidArgument: as read_listed_pod, or its gang cannot be read.
[[nodiscard]] inline absl::StatusOr<pod_record> read_pod(const json& from) {
  auto pod = read_listed_pod(from);
  if (pod.ok() && !pod->gang_fault.empty()) return absl::InvalidArgumentError(pod->gang_fault);
  return pod;
}

// The nodes or pods of a list (`kubectl get nodes -o json`): `read` is read_node or read_listed_pod. What
// cannot be read is left out, and said in `faults`. kInvalidArgument: it is no list.
template <class Read>
[[nodiscard]] auto read_list(const json& list, const Read& read, std::vector<std::string>& faults)
    -> absl::StatusOr<std::vector<typename decltype(read(list))::value_type>> {
  std::vector<typename decltype(read(list))::value_type> all;
  const json& items = list["items"];
  if (!items.is_array())
    return absl::InvalidArgumentError(
        absl::StrCat("a list has no items: ", list.str("").substr(0, 100)));
  for (const json& item : items.items) {
    auto one = read(item);
    if (one.ok())
      all.push_back(*std::move(one));
    else
      faults.emplace_back(one.status().message());
  }
  return all;
}

}  // namespace apiary_kubernetes
