// Reads the annotations that the open-source HiveD gives to a running pod: the specification of its gang
// (pod-scheduling-spec) and where the gang runs (pod-bind-info). To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_event.h"
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
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// Fills an event `recover` from its fields spec and bindInfo, the annotations of any pod of the gang. A
// pod that is not in bindInfo has ended. A gang of one pod has no affinityGroup: the event names it.
class annotation_reader {
 public:
  // kInvalidArgument: an annotation is not YAML, or a field has the wrong type.
  static absl::Status read(const apiary::hived_layout& layout, session_event& e) {
    try {
      return read_all(layout, e);
    } catch (const YAML::Exception& error) {
      return absl::InvalidArgumentError(std::string("annotation: ") + error.what());
    }
  }

 private:
  using place = session_place;

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
    e.members.clear();
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
    std::uint64_t pods = 0;
    for (const apiary::task_group& m : e.members) pods += m.tasks;
    if (pods > max_pods) return absl::InvalidArgumentError("spec: too many pods");
    arrange(read_places(layout, bound), e);
    return absl::OkStatus();
  }
  // Where the pods run. A pod whose cell types are unknown gets no levels.
  static std::vector<place> read_places(const apiary::hived_layout& layout,
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
        for (const std::int64_t device : devices)
          at.devices.push_back(device < 0 ? no_device : static_cast<std::uint32_t>(device));
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
  static void arrange(std::vector<place> places, session_event& e) {
    bool levels = true;
    for (const place& p : places)
      levels = levels && (p.devices.empty() || p.whole_cells.size() == p.devices.size());
    e.pods.clear();
    for (const apiary::task_group& m : e.members) {
      for (std::uint32_t t = 0; t < m.tasks; ++t) {
        place& to = e.pods.emplace_back();
        const auto found = std::find_if(places.begin(), places.end(),
                                        [&](const place& p) { return p.devices.size() == m.gpus; });
        if (found == places.end()) continue;
        to = std::move(*found);
        if (!levels) to.whole_cells.clear();
        places.erase(found);
      }
    }
  }

  static constexpr std::uint64_t max_pods = 100'000;
  static constexpr std::uint32_t no_device = ~std::uint32_t{0};
};

}  // namespace example
