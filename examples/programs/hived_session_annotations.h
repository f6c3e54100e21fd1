// Reads the annotations that the open-source HiveD gives to a running pod: the specification of its gang
// (pod-scheduling-spec) and where the gang runs (pod-bind-info). To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_event.h"
#include "hived_session_json.h"
#include "hived_session_json_reader.h"
#include "hived_session_words.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/layout.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// Fills an event `recover` from its fields spec and bindInfo, the annotations of any pod of the gang. A
// pod that is not in bindInfo has ended. A gang of one pod has no affinityGroup: the event names it.
class annotation_reader {
 public:
  // kInvalidArgument: the line has another field that describes the gang, an annotation is not YAML, or a
  // field has the wrong type, an index that no device can have, more pods than the gang, or a pod that no
  // member has.
  static absl::Status read(const apiary::hived_layout& layout, session_event& e) {
    APIARY_RETURN_IF_ERROR(check_alone(e));
    try {
      return read_all(layout, e);
    } catch (const YAML::Exception& error) {
      return absl::InvalidArgumentError(std::string("annotation: ") + error.what());
    }
  }

 private:
  using place = session_place;

  // The annotations say what the gang is and where it runs; a second description might differ.
  static absl::Status check_alone(const session_event& e) {
    for (std::size_t i = 0; i < e.document.items.size(); ++i) {
      const json_value& value = e.document.items[i];
      if (value.null() || (value.is == json_value::kind::text && value.scalar.empty())) continue;
      for (const char* other : {"vc", "priority", "members", "leafType", "lazy", "pinned",
                                "required", "preferred", "chains", "excludedChains", "pods"})
        if (e.document.names[i] == other)
          return absl::InvalidArgumentError(std::string(other) +
                                            ": spec and bindInfo describe the gang; leave it out");
    }
    return absl::OkStatus();
  }
  template <class Value>
  static void set(const YAML::Node& node, Value& value) {
    if (node.IsDefined() && !node.IsNull()) value = node.as<Value>();
  }
  static absl::Status read_all(const apiary::hived_layout& layout, session_event& e) {
    const YAML::Node spec = YAML::Load(e.spec);
    const YAML::Node bound = YAML::Load(e.bind_info);
    if (!spec.IsMap()) return absl::InvalidArgumentError("spec: a mapping expected");
    if (!bound.IsMap()) return absl::InvalidArgumentError("bindInfo: a mapping expected");
    set(spec["virtualCluster"], e.vc);
    set(spec["priority"], e.priority.emplace(0));
    set(spec["pinnedCellId"], e.pinned);
    set(spec["leafCellType"], e.leaf_type);
    set(spec["lazyPreemptionEnable"], e.lazy);
    const YAML::Node group = spec["affinityGroup"];
    if (group.IsDefined() && group.IsMap()) {
      set(group["name"], e.group);
      for (const YAML::Node& m : group["members"]) {
        apiary::task_group& member = e.members.emplace_back();
        set(m["podNumber"], member.tasks);
        set(m["leafCellNumber"], member.gpus);
      }
    } else {
      apiary::task_group& member = e.members.emplace_back();
      member.tasks = 1;
      set(spec["leafCellNumber"], member.gpus);
    }
    e.constraints.assign(e.members.size(), {});
    const std::uint64_t pods = num_tasks(e.members);
    if (pods > max_pods) return absl::InvalidArgumentError("spec: too many pods");
    APIARY_ASSIGN_OR_RETURN(std::vector<place> places, read_places(layout, bound));
    if (places.size() > pods) {
      return absl::InvalidArgumentError("bindInfo: " + std::to_string(places.size()) +
                                        " pods, but spec has " + std::to_string(pods));
    }
    return arrange(std::move(places), e);
  }
  // Where the pods run. A pod whose cell types are unknown gets no levels.
  static absl::StatusOr<std::vector<place>> read_places(const apiary::hived_layout& layout,
                                                        const YAML::Node& bound) {
    std::vector<place> all;
    const YAML::Node members = bound["affinityGroupBindInfo"];
    if (!members.IsDefined() || members.size() == 0) {
      place& only = all.emplace_back();
      set(bound["node"], only.node);
      set(bound["leafCellIsolation"], only.devices);
      return all;
    }
    for (const YAML::Node& member : members) {
      for (const YAML::Node& pod : member["podPlacements"]) {
        place& at = all.emplace_back();
        set(pod["physicalNode"], at.node);
        std::vector<std::int64_t> devices;  // -1: the scheduler did not find the device
        std::vector<std::string> types;
        set(pod["physicalLeafCellIndices"], devices);
        set(pod["preassignedCellTypes"], types);
        for (const std::int64_t device : devices) {
          if (device >= std::int64_t{no_device}) {
            return absl::InvalidArgumentError(
                "bindInfo: physicalLeafCellIndices: " + std::to_string(device) + " is too large");
          }
          at.devices.push_back(device < 0 ? no_device : static_cast<std::uint32_t>(device));
        }
        const auto node = node_with(layout, at.node, at.devices);
        if (!node || types.size() != devices.size()) continue;
        const std::vector<std::string>& levels = layout.chain(layout.chain_of(*node)).level_types;
        for (const std::string& type : types) {
          const auto found = std::find(levels.begin(), levels.end(), type);
          if (found != levels.end())
            at.whole_cells.push_back(static_cast<apiary::level_t>(found - levels.begin()));
        }
      }
    }
    return all;
  }
  // Puts the pods into the order of the members: a pod belongs to a member with its number of devices.
  // kInvalidArgument: a pod has another number of devices than all members whose pods are not yet found.
  static absl::Status arrange(std::vector<place> places, session_event& e) {
    bool levels = true;
    for (const place& p : places)
      levels = levels && (p.devices.empty() || p.whole_cells.size() == p.devices.size());
    // By number of devices, in the order of bindInfo.
    std::map<std::size_t, std::queue<place>> left;
    for (place& p : places) left[p.devices.size()].push(std::move(p));
    for (const apiary::task_group& m : e.members) {
      std::queue<place>& fit = left[m.gpus];
      for (std::uint32_t t = 0; t < m.tasks; ++t) {
        place& to = e.pods.emplace_back();
        if (fit.empty()) continue;
        to = std::move(fit.front());
        fit.pop();
        if (!levels) to.whole_cells.clear();
      }
    }
    for (const auto& [devices, rest] : left) {
      if (rest.empty()) continue;
      return absl::InvalidArgumentError(
          "bindInfo: the pod on node " + json_text(rest.front().node) + " has " +
          std::to_string(devices) + " devices; spec has no more pods with leafCellNumber " +
          std::to_string(devices));
    }
    return absl::OkStatus();
  }

  static constexpr std::uint64_t max_pods = 100'000;
  static constexpr std::uint32_t no_device = ~std::uint32_t{0};
};

}  // namespace example
