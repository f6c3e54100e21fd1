// apiary/examples/hosts/kubernetes/extender_service.h - the protocol of scheduler extenders: JSON in, JSON out.
// SPDX-License-Identifier: MIT
#pragma once

#include "gang_extender.h"
#include "kubernetes_json.h"
#include "kubernetes_records.h"
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// What the API server lists.
struct cluster_lists {
  std::vector<node_record> nodes{};
  std::vector<pod_record> pods{};
};

// The calls of the API server, which may come from several threads. Without one, the service neither
// binds nor evicts, and learns of no pod that ends.
struct api_calls {
  std::function<absl::StatusOr<cluster_lists>()> list{};
  std::function<absl::Status(const pod_record&, const std::string& node, const std::string& plan)>
      bind{};
  std::function<absl::Status(const pod_record&)> evict{};
  std::function<apiary::time_ms()> now{};              // never null
  std::function<void(const std::string& line)> say{};  // writes a line of the log; never null
};

// An answer of HTTP.
struct answer {
  int status = 200;
  std::string body{};
};

// Answers the calls of a kube-scheduler. Several threads may call it.
class extender_service {
 public:
  extender_service(gang_extender extender, api_calls api)
      : extender_(std::move(extender)), api_(std::move(api)) {}

  // The answer to one call: `verb` is filter, prioritize, preempt or bind. A body that is wrong gets
  // status 400 and {"Error": ...}; what cannot be done now is in the field Error of status 200.
  [[nodiscard]] answer call(std::string_view verb, std::string_view body) {
    const absl::StatusOr<json> document = parse(body);
    if (!document.ok()) return refuse(verb, 400, std::string(document.status().message()));
    absl::StatusOr<std::string> result =
        absl::NotFoundError(absl::StrCat("no verb ", std::string(verb)));
    if (verb == "filter") result = filter(*document);
    if (verb == "prioritize") result = prioritize(*document);
    if (verb == "preempt") result = preempt(*document);
    if (verb == "bind") result = bind(*document);
    if (result.ok()) return {200, *std::move(result)};
    const absl::Status why = result.status();
    const int status = absl::IsNotFound(why) ? 404 : absl::IsUnavailable(why) ? 503 : 400;
    return refuse(verb, status, std::string(why.message()));
  }
  // The answer {"Error": why}, which is logged, too.
  [[nodiscard]] answer refuse(std::string_view verb, int status, const std::string& why) const {
    answer to{status, error(why)};
    api_.say(absl::StrCat("refuse ", std::string(verb), " ", status, " ", to.body));
    return to;
  }

  // Compares the gangs with what the API server lists now, and evicts what is to be evicted.
  // kUnavailable: there are no lists; nothing changes.
  absl::Status refresh() {
    if (!api_.list) return absl::OkStatus();
    const std::lock_guard<std::mutex> one_at_a_time(
        refreshing_);  // lists are applied in their order
    const apiary::time_ms now = api_.now();
    const absl::StatusOr<cluster_lists> lists = api_.list();
    if (!lists.ok()) return absl::UnavailableError(lists.status().message());
    std::vector<pod_record> evict;
    locked([&] { evict = extender_.update(lists->nodes, lists->pods, now); });
    for (const pod_record& pod : evict) {
      const absl::Status done = api_.evict ? api_.evict(pod) : absl::OkStatus();
      api_.say(absl::StrCat("evict ", pod.full_name(), done.ok() ? "" : " error ",
                            std::string(done.message())));
    }
    return absl::OkStatus();
  }

 private:
  static std::string error(std::string_view why) {
    return json_object().key("Error").value(why).str();
  }
  static absl::Status fault(const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  }
  // Calls `what` while no other thread uses the extender, and writes its log.
  template <class What>
  void locked(const What& what) {
    std::vector<std::string> log;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      what();
      log = extender_.take_log();
    }
    for (const std::string& line : log) api_.say(line);
  }
  // The document is an object with these fields alone: one that is misspelt must not be overlooked.
  static absl::Status check_fields(const json& document,
                                   std::initializer_list<std::string_view> fields) {
    if (!document.is_object()) return fault("the body is no JSON object");
    for (const std::string& key : document.names)
      if (std::find(fields.begin(), fields.end(), key) == fields.end())
        return fault("unknown field \"", key.substr(0, 100), "\"");
    return absl::OkStatus();
  }

  // The arguments of filter and prioritize: a pod, and whole nodes or their names.
  struct node_arguments {
    pod_record pod{};
    std::vector<std::string> names{};
    const json* items = nullptr;  // the whole nodes, in the order of `names`; null: names alone
  };
  static absl::StatusOr<node_arguments> read_nodes(const json& document) {
    if (const absl::Status checked = check_fields(document, {"Pod", "Nodes", "NodeNames"});
        !checked.ok())
      return checked;
    auto pod = read_pod(document["Pod"]);
    if (!pod.ok()) return pod.status();
    node_arguments to{.pod = *std::move(pod)};
    const json& nodes = document["Nodes"];
    const json& names = document["NodeNames"];
    if (nodes.null() == names.null()) return fault("either Nodes or NodeNames must be given");
    if (names.null()) {
      to.items = &nodes["items"];
      if (!to.items->is_array()) return fault("Nodes has no list of items");
      for (const json& item : to.items->items) to.names.push_back(item["metadata"]["name"].text());
    } else {
      if (!names.is_array()) return fault("NodeNames is no list");
      for (const json& name : names.items) to.names.push_back(name.text());
    }
    if (std::find(to.names.begin(), to.names.end(), "") != to.names.end())
      return fault("a node has no name");
    return to;
  }

  absl::StatusOr<std::string> filter(const json& document) {
    const auto asked = read_nodes(document);
    if (!asked.ok()) return asked.status();
    absl::StatusOr<gang_extender::filtered> found;
    const auto ask = [&] { found = extender_.filter(asked->pod, asked->names, api_.now()); };
    locked(ask);
    // kube-scheduler asks again at once when a pod has ended; a list that is older would not show it.
    if (found.ok() && found->nodes.empty() && api_.list && refresh().ok()) locked(ask);
    json_object to;
    to.key("FailedNodes").open('{');
    if (found.ok())
      for (const auto& [name, why] : found->failed) to.key(name).value(why);
    to.close('}').key("Error").value(std::string(found.status().message()));
    if (!found.ok()) return to.str();
    if (asked->items == nullptr) {
      to.key("NodeNames").open('[');
      for (const std::string& name : found->nodes) to.value(name);
      return to.close(']').str();
    }
    to.key("Nodes").open('{').key("metadata").open('{').close('}').key("items").open('[');
    for (const json& item : asked->items->items)
      if (std::find(found->nodes.begin(), found->nodes.end(), item["metadata"]["name"].text()) !=
          found->nodes.end())
        to.value(item);
    return to.close(']').close('}').str();
  }

  absl::StatusOr<std::string> prioritize(const json& document) {
    const auto asked = read_nodes(document);
    if (!asked.ok()) return asked.status();
    std::string best;
    locked([&] { best = extender_.node_of(asked->pod); });
    json_object to('[');
    for (const std::string& name : asked->names) {
      to.open('{').key("Host").value(name);
      to.key("Score").value(std::uint64_t{name == best ? 10U : 0U}).close('}');  // 10: the highest
    }
    return to.str();
  }

  absl::StatusOr<std::string> preempt(const json& document) {
    if (const absl::Status checked =
            check_fields(document, {"Pod", "NodeNameToVictims", "NodeNameToMetaVictims"});
        !checked.ok())
      return checked;
    const auto pod = read_pod(document["Pod"]);
    if (!pod.ok()) return pod.status();
    const json& whole = document["NodeNameToVictims"];
    const json& meta = document["NodeNameToMetaVictims"];
    const json& offered = whole.null() ? meta : whole;
    if (!offered.is_object())
      return fault("either NodeNameToVictims or NodeNameToMetaVictims must be given");
    // No pod is to be evicted for GPUs that are free by now.
    if (const absl::Status fresh = refresh(); !fresh.ok()) return fresh;
    absl::StatusOr<std::map<std::string, std::vector<std::string>>> found;
    locked([&] { found = extender_.preempt(*pod, offered.names, api_.now()); });
    if (!found.ok()) return found.status();
    json_object to;
    to.key("NodeNameToMetaVictims").open('{');
    for (const auto& [name, uids] : *found) {
      to.key(name).open('{').key("Pods").open('[');
      for (const std::string& uid : uids) to.open('{').key("UID").value(uid).close('}');
      const auto violations = offered[name]["NumPDBViolations"].number<std::int64_t>();
      to.close(']').key("NumPDBViolations").value(violations.value_or(0)).close('}');
    }
    return to.close('}').str();
  }

  absl::StatusOr<std::string> bind(const json& document) {
    if (const absl::Status checked =
            check_fields(document, {"PodName", "PodNamespace", "PodUID", "Node"});
        !checked.ok())
      return checked;
    const std::string uid = document["PodUID"].text();
    const std::string node = document["Node"].text();
    if (uid.empty() || node.empty()) return fault("PodUID or Node is missing");
    absl::StatusOr<gang_extender::binding> bound;
    locked([&] { bound = extender_.bind(uid, node); });
    absl::Status done = bound.status();
    if (done.ok() && api_.bind) done = api_.bind(bound->pod, node, bound->plan);
    if (bound.ok() && !done.ok()) locked([&] { extender_.bind_failed(uid); });
    if (done.ok()) api_.say(absl::StrCat("bind ", bound->pod.full_name(), " ", node));
    return error(std::string(done.message()));
  }

  std::mutex refreshing_;
  std::mutex mutex_;
  gang_extender extender_;
  api_calls api_;
};

}  // namespace apiary_kubernetes
