// Makes HiveD's requests and placements of the fields of a line.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/json.h"
#include "session_request.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// The error with the names of gangs instead of their ids, where each gang is first mentioned.
inline absl::Status by_name(const absl::Status& status,
                            std::vector<std::pair<apiary::job_id, std::string>> gangs) {
  const std::string message(status.message());
  const std::string word = "gang ";
  std::string named;
  std::size_t done = 0;
  for (std::size_t at = message.find(word); at != std::string::npos;
       at = message.find(word, done)) {
    const std::size_t digits = at + word.size();
    std::uint32_t id = 0;
    const char* const last = message.data() + message.size();
    const std::from_chars_result read = std::from_chars(message.data() + digits, last, id);
    const auto gang = std::find_if(gangs.begin(), gangs.end(), [&](const auto& g) {
      return read.ec == std::errc() && g.first.value == id;
    });
    named.append(message, done, digits - done);
    done = digits;
    if (gang == gangs.end()) continue;
    named += json_text(gang->second);
    done = static_cast<std::size_t>(read.ptr - message.data());
    gangs.erase(gang);
  }
  named.append(message, done);
  return {status.code(), named};
}

inline std::vector<apiary::task_group> groups_of(const std::vector<session_member>& members) {
  std::vector<apiary::task_group> groups;
  for (const session_member& m : members) groups.push_back({.tasks = m.pods, .gpus = m.leafs});
  return groups;
}
inline std::uint64_t num_tasks(const std::vector<apiary::task_group>& groups) {
  std::uint64_t n = 0;
  for (const apiary::task_group& g : groups) n += g.tasks;
  return n;
}
inline absl::StatusOr<apiary::node_id> node_of(const apiary::hived_layout& layout,
                                               const std::string& name) {
  if (name.empty()) return missing("node");
  const auto node = layout.find_node(name);
  if (!node) return unknown("node", name);
  return *node;
}
// The node of a host where most of these devices are: a host in several chains has several nodes.
inline std::optional<apiary::node_id> node_with(const apiary::hived_layout& layout,
                                                const std::string& name,
                                                const std::vector<std::uint32_t>& devices) {
  const auto first = layout.find_node(name);
  if (!first) return std::nullopt;
  const auto found_in = [&](apiary::node_id n) {
    return std::count_if(devices.begin(), devices.end(), [&](std::uint32_t device) {
      return layout.find_position(n, device).has_value();
    });
  };
  apiary::node_id best = *first;
  for (auto n = layout.next_of_host(*first); n != *first; n = layout.next_of_host(n))
    if (found_in(n) > found_in(best)) best = n;
  return best;
}
// The nodes with these names. Unknown names are ignored, because they may belong to another
// scheduler.
inline apiary::summary_bitset nodes_of(const apiary::hived_layout& layout,
                                       const std::vector<std::string>& names) {
  apiary::summary_bitset nodes(layout.num_nodes());
  for (const std::string& name : names) {
    const auto first = layout.find_node(name);
    if (!first) continue;
    nodes.set(first->value);
    for (auto n = layout.next_of_host(*first); n != *first; n = layout.next_of_host(n))
      nodes.set(n.value);
  }
  return nodes;
}

// Converts pods to tasks. Nodes and devices that the configuration lacks are left out.
inline absl::StatusOr<std::vector<apiary::hived_placement>> placements_of(
    const apiary::hived_layout& layout, const std::vector<session_place>& pods) {
  std::vector<apiary::hived_placement> tasks;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    apiary::hived_placement& task = tasks.emplace_back();
    const auto node = node_with(layout, pods[i].node, pods[i].devices);
    if (!node) continue;
    task.node = *node;
    for (const std::uint32_t device : pods[i].devices) {
      const auto position = layout.find_position(*node, device);
      if (!position) continue;
      const std::uint64_t bit = std::uint64_t{1} << *position;
      if ((task.leaves & bit) != 0) {
        return absl::InvalidArgumentError("pods[" + std::to_string(i) + "].devices: " +
                                          std::to_string(device) + " appears twice");
      }
      task.leaves |= bit;
    }
  }
  return tasks;
}
// The devices of pods that the configuration lacks, for hived::recover; those with a node only.
// Requires: tasks = placements_of(layout, pods); as many pods as the members have.
inline std::vector<apiary::gang_record::missing_leaf> missing_of(
    const apiary::hived_layout& layout, const std::vector<apiary::task_group>& members,
    const std::vector<session_place>& pods, const std::vector<apiary::hived_placement>& tasks) {
  std::vector<apiary::gang_record::missing_leaf> missing;
  std::size_t t = 0;
  std::uint32_t first = 0;
  for (const apiary::task_group& m : members) {
    for (std::uint32_t i = 0; i < m.tasks; ++i, ++t, first += m.gpus) {
      const auto node = node_with(layout, pods[t].node, pods[t].devices);
      auto next = first + static_cast<std::uint32_t>(std::popcount(tasks[t].leaves));
      for (const std::uint32_t device : pods[t].devices) {
        const bool there = node && layout.find_position(*node, device);
        if (!there && next < first + m.gpus && !pods[t].node.empty())
          missing.push_back({next++, pods[t].node, device});
      }
    }
  }
  return missing;
}
// The levels of the whole cells around the devices of placements_of, for each task by position;
// empty if the host gives none.
inline absl::StatusOr<std::vector<apiary::level_t>> levels_of(
    const apiary::hived_layout& layout, const std::vector<session_place>& pods) {
  std::vector<apiary::level_t> levels;
  if (std::all_of(pods.begin(), pods.end(),
                  [](const session_place& pod) { return pod.whole_cells.empty(); }))
    return levels;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const session_place& pod = pods[i];
    if (pod.devices.empty()) continue;
    const std::string path = "pods[" + std::to_string(i) + "].wholeCell";
    const std::size_t known = pod.whole_cells.size();
    if (known == 0) return missing(path);
    if (known != 1 && known != pod.devices.size()) {
      return absl::InvalidArgumentError(path + ": " + std::to_string(known) + " levels for " +
                                        std::to_string(pod.devices.size()) + " devices");
    }
    const auto node = node_with(layout, pod.node, pod.devices);
    if (!node) continue;
    std::vector<std::pair<std::uint32_t, apiary::level_t>> by_position;
    for (std::size_t d = 0; d < pod.devices.size(); ++d) {
      if (const auto position = layout.find_position(*node, pod.devices[d]))
        by_position.emplace_back(*position, pod.whole_cells[known == 1 ? 0 : d]);
    }
    std::sort(by_position.begin(), by_position.end());
    for (const auto& [position, level] : by_position) levels.push_back(level);
  }
  return levels;
}

// The level of a cell type, which is the same in every chain that has the type; any_level for "".
// `leaf` is the leaf type of these chains; if it is empty, it is set.
inline absl::StatusOr<apiary::level_t> level_of(const apiary::hived_layout& layout,
                                                const std::string& type, std::string& leaf) {
  if (type.empty()) return apiary::any_level;
  for (const apiary::chain_layout& chain : layout.chains) {
    const auto found = std::find(chain.level_types.begin(), chain.level_types.end(), type);
    if (found == chain.level_types.end()) continue;
    if (leaf.empty()) leaf = chain.level_types[0];
    if (leaf != chain.level_types[0]) {
      return absl::InvalidArgumentError("cell type '" + type + "' is made of '" +
                                        chain.level_types[0] + "', not of '" + leaf + "'");
    }
    return static_cast<apiary::level_t>(found - chain.level_types.begin());
  }
  return unknown("cell type", type);
}
// The topology constraints of an event; `leaf` as for level_of.
inline absl::StatusOr<apiary::request_constraints> constraints_of(
    const apiary::hived_layout& layout, const session_request& e, std::string& leaf) {
  apiary::request_constraints constraints;
  APIARY_ASSIGN_OR_RETURN(constraints.required, level_of(layout, e.required, leaf));
  APIARY_ASSIGN_OR_RETURN(constraints.preferred, level_of(layout, e.preferred, leaf));
  const bool any = std::any_of(e.members.begin(), e.members.end(), [](const session_member& r) {
    return r.leader || !r.slices.empty() || !r.spread.empty();
  });
  for (const session_member& r : e.members) {
    if (!any) break;
    apiary::request_constraints::of_group& to = constraints.groups.emplace_back();
    to.leader = r.leader.value_or(apiary::no_task_group);
    for (const session_level& s : r.slices) {
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level, level_of(layout, s.level, leaf));
      to.slices.push_back({level, s.pods});
    }
    for (const session_level& s : r.spread) {
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level, level_of(layout, s.level, leaf));
      to.spread.push_back({level, s.pods});
    }
  }
  return constraints;
}

// The chains that an event names, or all but those that it excludes; empty: any. If the gang runs
// already, unknown names are left out.
inline absl::StatusOr<std::vector<std::uint32_t>> chains_of(const apiary::hived_layout& layout,
                                                            const session_request& e, bool runs) {
  const bool excludes = !e.excluded_chains.empty();
  const std::vector<std::string>& names = excludes ? e.excluded_chains : e.chains;
  if (excludes && !e.chains.empty())
    return absl::InvalidArgumentError("excludedChains: chains is given, too");
  std::vector<bool> named(layout.chains.size(), false);
  for (const std::string& name : names) {
    const auto chain = std::find_if(layout.chains.begin(), layout.chains.end(),
                                    [&](const auto& c) { return c.name == name; });
    if (chain == layout.chains.end() && !runs) return unknown("chain", name);
    if (chain != layout.chains.end())
      named[static_cast<std::size_t>(chain - layout.chains.begin())] = true;
  }
  std::vector<std::uint32_t> chains;
  for (std::uint32_t c = 0; !names.empty() && c < named.size(); ++c)
    if (named[c] != excludes) chains.push_back(c);
  if (chains.empty() && !names.empty() && !runs)
    return absl::InvalidArgumentError("excludedChains: no chain is left");
  return chains;
}

// The request of an event. If the gang runs already, its tenant may be missing in the
// configuration; the request then has no tenant.
inline absl::StatusOr<apiary::gang_request> request_of(const apiary::hived& scheduler,
                                                       const session_request& e, apiary::job_id job,
                                                       bool runs) {
  const apiary::hived_layout& layout = scheduler.layout();
  if (!e.group.valid()) return missing("group");
  if (e.vc.empty()) return missing("vc");
  if (!e.priority) return missing("priority");
  if (e.members.empty()) return missing("members");
  apiary::gang_request r{
      .job = job, .priority = *e.priority, .groups = groups_of(e.members), .lazy = e.lazy};
  std::string leaf = e.leaf_type;
  APIARY_ASSIGN_OR_RETURN(r.constraints, constraints_of(layout, e, leaf));
  if (const auto tenant = layout.find_tenant(e.vc)) r.tenant = *tenant;
  if (!r.tenant.valid() && !runs) return unknown("virtual cluster", e.vc);
  if (!leaf.empty()) {
    if (const auto type = scheduler.find_leaf_type(leaf)) r.leaf_type = *type;
    if (!r.leaf_type.valid() && !runs) return unknown("leaf type", leaf);
  }
  APIARY_ASSIGN_OR_RETURN(r.chains, chains_of(layout, e, runs));
  if (e.pinned.empty()) return r;
  r.pinned = layout.find_pinned(e.pinned);
  if (r.pinned && (!runs || layout.pinned[*r.pinned].tenant == r.tenant)) return r;
  if (!runs) return unknown("pinned cell", e.pinned);
  r.pinned.reset();
  r.tenant = apiary::tenant_id();
  return r;
}

// The types of cells that the constraints of an event name.
inline std::vector<std::string> types_in(const session_request& e) {
  std::vector<std::string> types{e.required, e.preferred};
  for (const session_member& m : e.members) {
    for (const session_level& s : m.slices) types.push_back(s.level);
    for (const session_level& s : m.spread) types.push_back(s.level);
  }
  std::erase(types, "");
  return types;
}
// Whether the gang may use a chain, and its constraints are valid there.
inline bool are_constraints_valid_in(const apiary::hived& scheduler, const apiary::gang_request& r,
                                     std::uint32_t c) {
  const apiary::hived_layout& layout = scheduler.layout();
  if (r.leaf_type.valid() && scheduler.catalog().type_of(c) != r.leaf_type) return false;
  if (r.pinned && layout.pinned[*r.pinned].chain.value != c) return false;
  if (!r.chains.empty() && std::find(r.chains.begin(), r.chains.end(), c) == r.chains.end())
    return false;
  const bool own = !r.pinned && r.priority >= 0;
  if (own && !scheduler.cells().cluster_of(r.tenant, c).valid()) return false;
  const apiary::chain_layout& chain = layout.chains[c];
  return apiary::constraints_of(r).valid(chain.node_level, chain.tree.num_levels());
}
// kInvalidArgument: a constraint names a cell type, and in a chain that the gang may use, another
// type has the same level.
inline absl::Status check_types(const apiary::hived& scheduler, const session_request& e,
                                const apiary::gang_request& r) {
  const std::vector<std::string> types = types_in(e);
  const std::vector<apiary::chain_layout>& chains = scheduler.layout().chains;
  for (std::uint32_t c = 0; c < chains.size(); ++c) {
    if (types.empty() || !are_constraints_valid_in(scheduler, r, c)) continue;
    for (const std::string& type : types) {
      std::string leaf;
      APIARY_ASSIGN_OR_RETURN(const apiary::level_t level,
                              level_of(scheduler.layout(), type, leaf));
      const std::string& here = chains[c].level_types[level];
      if (here == type) continue;
      return absl::InvalidArgumentError(
          "cell type '" + type + "' is of level " + std::to_string(level) + ", which is '" + here +
          "' in chain '" + chains[c].level_types.back() + "', and the gang may use that");
    }
  }
  return absl::OkStatus();
}

// The request of an event that places a gang. Its cell types must mean the same level in all chains
// that the gang may use.
inline absl::StatusOr<apiary::gang_request> request_to_place(const apiary::hived& scheduler,
                                                             const session_request& e,
                                                             apiary::job_id job) {
  APIARY_ASSIGN_OR_RETURN(apiary::gang_request r, request_of(scheduler, e, job, false));
  APIARY_RETURN_IF_ERROR(check_types(scheduler, e, r));
  return r;
}

// The request of an event whose gang runs already. Constraints are left out if the configuration
// lacks their cell type, or has it with another leaf type.
inline absl::StatusOr<apiary::gang_request> request_of_running(const apiary::hived& scheduler,
                                                               session_request e,
                                                               apiary::job_id job) {
  std::string leaf = e.leaf_type;
  const auto lost = [&](const std::string& type) {
    return !level_of(scheduler.layout(), type, leaf).ok();
  };
  const auto lost_level = [&](const session_level& s) { return lost(s.level); };
  if (lost(e.required)) e.required.clear();
  if (lost(e.preferred)) e.preferred.clear();
  for (session_member& m : e.members) {
    std::erase_if(m.slices, lost_level);
    std::erase_if(m.spread, lost_level);
  }
  return request_of(scheduler, e, job, true);
}

// The first field of a line that describes the gang, and is not null or ""; "" if there is none.
// `places`: the fields that say where it runs, too.
inline std::string description_in(const session_request& e, bool places) {
  for (std::size_t i = 0; i < e.document.items.size(); ++i) {
    const json_value& value = e.document.items[i];
    if (value.null() || (value.is_text() && value.scalar.empty())) continue;
    for (const std::string name : {"vc", "priority", "members", "leafType", "lazy", "pinned",
                                   "required", "preferred", "chains", "excludedChains", "pods"})
      if (e.document.names[i] == name && (places || name != "pods")) return name;
  }
  return "";
}

// Fills an event `recover` from its fields spec and bindInfo, the annotations of any pod of the
// gang. A pod that is not in bindInfo has ended. A gang of one pod has no affinityGroup: the event
// names it.
class annotation_reader {
 public:
  // kInvalidArgument: the line has another field that describes the gang, an annotation is not
  // YAML, or a field has the wrong type, an index that no device can have, more pods than the gang,
  // or a pod that no member has.
  static absl::Status read(const apiary::hived_layout& layout, session_request& e) {
    if (const std::string other = description_in(e, true); !other.empty())
      return absl::InvalidArgumentError(other +
                                        ": spec and bindInfo describe the gang; leave it out");
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
  static absl::Status read_all(const apiary::hived_layout& layout, session_request& e) {
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
      std::string name = e.group.text();
      set(group["name"], name);
      e.group = name;
      for (const YAML::Node& m : group["members"]) {
        session_member& member = e.members.emplace_back();
        set(m["podNumber"], member.pods);
        set(m["leafCellNumber"], member.leafs);
      }
    } else {
      session_member& member = e.members.emplace_back();
      member.pods = 1;
      set(spec["leafCellNumber"], member.leafs);
    }
    const std::uint64_t pods = num_tasks(groups_of(e.members));
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
  // Puts the pods into the order of the members: a pod belongs to a member with its number of
  // devices. kInvalidArgument: a pod has another number of devices than all members whose pods are
  // not yet found.
  static absl::Status arrange(std::vector<place> places, session_request& e) {
    bool levels = true;
    for (const place& p : places)
      levels = levels && (p.devices.empty() || p.whole_cells.size() == p.devices.size());
    // By number of devices, in the order of bindInfo.
    std::map<std::size_t, std::queue<place>> left;
    for (place& p : places) left[p.devices.size()].push(std::move(p));
    for (const session_member& m : e.members) {
      std::queue<place>& fit = left[m.leafs];
      for (std::uint32_t t = 0; t < m.pods; ++t) {
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
