// Reads the fields of a line of JSON. What they mean is checked later.
// SPDX-License-Identifier: MIT
#pragma once

#include "hived_session_json_reader.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace example {

// The operations and their fields:
//
//   config         physicalCluster, virtualClusters, as in YAML; once, before all others
//   schedule       group, vc, priority, members: [{pods, leafs}], the task groups. Optional: leafType,
//                  lazy, pinned, suggested: [nodes], ignoreSuggested, phase: Preempting or Filtering;
//                  chains: [cell types of physicalCells], the gang uses only these, or excludedChains,
//                  all but these; names of a member: [the name of each pod]; addresses: true, then the
//                  answer has the devices of each pod with their path, too.
//                  Topology constraints name levels by types of cells, such as "RACK". A type is
//                  refused if another chain that the gang may use has another type at that level.
//                    required, preferred: all pods in one cell of this type
//                    slices of a member: [{level, pods}]: so many consecutive pods share one cell
//                    spread of a member: [{level, pods}]: at most so many pods in each cell
//                    leader of a member: another member, counted from 0; each of its pods runs on one
//                    node with an equal number of this member's pods
//                  To continue a preempting gang, send it again, either with all fields or without
//                  those that describe it (vc, priority, members, leafType, lazy, pinned, constraints).
//                  In the short form without `suggested`, the nodes suggested last are used again.
//   schedule_pod   as schedule, and pod: the answer has the placement of this task only; tasks are
//                  counted over all members, or go by the names that members gave them. schedule takes
//                  pod, too, and ignores it: its answer has all tasks
//   delete, delete_pod   group; pod: the gang, or one task of it, has ended. A task of a preempting gang
//                  is left out as long as the gang keeps its reservation; if the gang has to move, all
//                  its tasks are placed again.
//   cancel         group: ends the preemption of a gang
//   node_bad, node_healthy       node
//   device_bad, device_healthy   node, device
//   recover        a gang that runs already: as schedule, and pods: [{node, devices, wholeCell}], as
//                  in the answers. A tenant, a device or a cell type of a constraint that the
//                  configuration lacks is left out. The current placement may violate
//                  constraints. wholeCell is given for all pods with devices, or for
//                  none: one level for the pod, or a list with one level for each device. Recover gangs
//                  with a wholeCell first: in the same configuration each of them then gets cells of its
//                  tenant again, in whatever order they are recovered. Instead of all this: spec and
//                  bindInfo, two texts, the annotations pod-scheduling-spec and pod-bind-info of a pod of
//                  the open-source scheduler; and group, for a gang of one pod. A pod whose node the
//                  configuration lacks is lost; it still ends with delete_pod, and the gang with its
//                  last pod.
//   reconfigure    as config
//   usage          vc: how many devices the tenant owns and uses, guaranteed and opportunistic
//   vc_state       vc: the tenant's quota, and how many of the cells are bound and doomed
//   node_state     node: the tenant that owns the cell now, and what the devices are used for
//   gang_state     group: tenant, state and devices of a gang; optional: addresses, as for schedule
//   gangs          all gangs; optional: vc, those of a tenant
//   draw           the whole cluster as text
//   audit          whether all invariants hold
//   note, final    does nothing
//
// A field that the operation does not have is an error, so that a misspelt one is noticed; but every line
// may have i, out and free, with which a recording says what the answer was. config and reconfigure ignore
// what a configuration file may hold besides; note and final take any field. Nodes in `suggested` that the
// configuration lacks are ignored, because they may belong to another scheduler.

// The placement of one task in an event.
struct session_place {
  std::string node{};
  std::vector<std::uint32_t> devices{};
  std::vector<apiary::level_t> whole_cells{};  // one for each device, or one for all
};

// A cell type and a number of tasks.
struct session_level {
  std::string type{};
  std::uint32_t pods = 0;
};
// Topology constraints of a task group.
struct session_constraints {
  std::vector<session_level> slices{};
  std::vector<session_level> spread{};
  std::optional<std::uint32_t> leader{};
};

// The fields of an event. A field that is missing, null or "" is empty.
struct session_event {
  std::string op{};
  std::string group{};
  std::string vc{};
  std::string leaf_type{};
  std::string pinned{};
  std::string phase{};
  std::string node{};
  std::optional<std::int32_t> priority{};
  std::optional<std::uint32_t> pod{};
  std::string pod_name{};  // instead of pod
  std::optional<std::uint32_t> device{};
  bool brief = true;  // no field describes the gang
  bool lazy = false;
  bool ignore_suggested = false;
  bool addresses = false;
  std::string required{};
  std::string preferred{};
  std::string spec{};  // annotations
  std::string bind_info{};
  std::vector<std::string> chains{};
  std::vector<std::string> excluded_chains{};
  std::vector<std::string> pod_names{};  // of all tasks, or empty
  std::vector<apiary::task_group> members{};
  std::vector<session_constraints> constraints{};  // of each task group
  std::optional<std::vector<std::string>> suggested{};
  std::vector<session_place> pods{};
  json_value document{};
};

// Reads events. Its functions return whether a field is correct; if not, they set the error.
class session_event_reader {
 public:
  // kInvalidArgument: the first fault, as "path: what is wrong". kResourceExhausted: no memory.
  static absl::StatusOr<session_event> read(const std::string& line) {
    session_event_reader reader;
    try {
      APIARY_ASSIGN_OR_RETURN(reader.event_.document, json_reader::read(line));
      if (!reader.read_all()) return absl::InvalidArgumentError(reader.fault_);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory to read the line");
    }
    return std::move(reader.event_);
  }

 private:
  bool read_all() {
    session_event& e = event_;
    const auto op = [&](auto& key, auto& n, auto& p) { return key != "op" || text(n, p, e.op); };
    if (!entries(e.document, "", op)) return false;
    if (e.op.empty()) return fail("op", "is missing");
    for (const char* other : {"config", "reconfigure", "note", "final"})
      if (e.op == other) return true;
    const std::string_view known = fields_of(e.op);
    if (known.empty()) return true;  // there is no such operation: hived_session says so
    return entries(
               e.document, "",
               [&](auto& key, auto& n, auto& p) {
                 if (!has(std::string_view(" op i out free "), key) && !has(known, key))
                   return fail(p, "is not a field of " + e.op);
                 if (n.null()) return true;
                 for (const char* what : {"vc", "priority", "members", "leafType", "lazy", "pinned",
                                          "required", "preferred", "chains", "excludedChains"})
                   if (key == what && !(n.is == json_value::kind::text && n.scalar.empty()))
                     e.brief = false;
                 if (key == "group") return text(n, p, e.group);
                 if (key == "vc") return text(n, p, e.vc);
                 if (key == "leafType") return text(n, p, e.leaf_type);
                 if (key == "pinned") return text(n, p, e.pinned);
                 if (key == "phase") return text(n, p, e.phase);
                 if (key == "node") return text(n, p, e.node);
                 if (key == "priority") return number(n, p, e.priority.emplace());
                 if (key == "pod") {
                   if (n.is == json_value::kind::text) return text(n, p, e.pod_name);
                   return number(n, p, e.pod.emplace());
                 }
                 if (key == "addresses") return truth(n, p, e.addresses);
                 if (key == "chains") return read_names(n, p, e.chains);
                 if (key == "excludedChains") return read_names(n, p, e.excluded_chains);
                 if (key == "spec") return text(n, p, e.spec);
                 if (key == "bindInfo") return text(n, p, e.bind_info);
                 if (key == "device") return number(n, p, e.device.emplace());
                 if (key == "lazy") return truth(n, p, e.lazy);
                 if (key == "ignoreSuggested") return truth(n, p, e.ignore_suggested);
                 if (key == "required") return text(n, p, e.required);
                 if (key == "preferred") return text(n, p, e.preferred);
                 if (key == "members") return read_members(n, p);
                 if (key == "suggested") return read_names(n, p, e.suggested.emplace());
                 return key != "pods" || read_places(n, p);
               }) &&
           are_names_good();
  }
  // The names of pods: one for each, all different.
  bool are_names_good() {
    const std::vector<std::string>& names = event_.pod_names;
    if (names.empty()) return true;
    std::uint64_t pods = 0;
    for (const apiary::task_group& m : event_.members) pods += m.tasks;
    if (names.size() != pods) {
      return fail("members",
                  std::to_string(names.size()) + " names for " + std::to_string(pods) + " pods");
    }
    std::set<std::string_view> seen;
    for (const std::string& name : names)
      if (!seen.insert(name).second) return fail("members", "two pods are " + json_text(name));
    return true;
  }
  // The fields of an operation; "" for one that does not exist.
  static std::string_view fields_of(std::string_view op) {
    constexpr std::pair<std::string_view, std::string_view> all[] = {
        {"schedule",
         " group vc priority members leafType lazy pinned required preferred chains"
         " excludedChains suggested"
         " ignoreSuggested phase addresses pod "},
        {"schedule_pod",
         " group vc priority members leafType lazy pinned required preferred chains"
         " excludedChains suggested"
         " ignoreSuggested phase addresses pod "},
        {"recover",
         " group vc priority members leafType lazy pinned required preferred chains"
         " excludedChains suggested"
         " ignoreSuggested phase spec bindInfo pods "},
        {"delete", " group "},
        {"delete_pod", " group pod "},
        {"cancel", " group "},
        {"node_bad", " node "},
        {"node_healthy", " node "},
        {"device_bad", " node device "},
        {"device_healthy", " node device "},
        {"usage", " vc "},
        {"vc_state", " vc "},
        {"node_state", " node "},
        {"gang_state", " group addresses "},
        {"gangs", " vc "},
        {"audit", " "},
        {"draw", " "}};
    for (const auto& [name, fields] : all)
      if (name == op) return fields;
    return "";
  }
  static bool has(std::string_view fields, const std::string& name) {
    return fields.find(' ' + name + ' ') != std::string_view::npos;
  }
  bool read_members(const json_value& list, const std::string& path) {
    return items(list, path, [&](auto& item, auto& place) {
      apiary::task_group& member = event_.members.emplace_back();
      session_constraints& constraints = event_.constraints.emplace_back();
      return entries(item, place, [&](auto& key, auto& n, auto& p) {
        if (key == "pods") return number(n, p, member.tasks);
        if (key == "names") return read_names(n, p, event_.pod_names);
        if (key == "slices") return read_levels(n, p, constraints.slices);
        if (key == "spread") return read_levels(n, p, constraints.spread);
        if (key == "leader") return number(n, p, constraints.leader.emplace());
        return key == "leafs" ? number(n, p, member.gpus) : fail(p, "is not a field of a member");
      });
    });
  }
  bool read_levels(const json_value& list, const std::string& path,
                   std::vector<session_level>& to) {
    return items(list, path, [&](auto& item, auto& place) {
      session_level& level = to.emplace_back();
      return entries(item, place, [&](auto& key, auto& n, auto& p) {
        if (key == "level") return text(n, p, level.type);
        return key == "pods" ? number(n, p, level.pods) : fail(p, "is not a field of a level");
      });
    });
  }
  bool read_names(const json_value& list, const std::string& path, std::vector<std::string>& to) {
    return items(list, path, [&](auto& n, auto& p) { return text(n, p, to.emplace_back()); });
  }
  bool read_places(const json_value& list, const std::string& path) {
    return items(list, path, [&](auto& item, auto& place) {
      session_place& task = event_.pods.emplace_back();
      return entries(item, place, [&](auto& key, auto& n, auto& p) {
        if (key == "node") return text(n, p, task.node);
        if (key == "wholeCell") {
          if (n.is == json_value::kind::array) return read_numbers(n, p, task.whole_cells);
          return n.null() || number(n, p, task.whole_cells.emplace_back());
        }
        if (key == "name" || key == "addresses") return true;  // as in the answers
        return key == "devices" ? read_numbers(n, p, task.devices)
                                : fail(p, "is not a field of a pod");
      });
    });
  }

  bool read_numbers(const json_value& list, const std::string& path,
                    std::vector<std::uint32_t>& to) {
    return items(list, path, [&](auto& n, auto& p) { return number(n, p, to.emplace_back()); });
  }

  bool fail(const std::string& path, const std::string& what) {
    fault_ = (path.empty() ? "line" : path) + ": " + what;
    return false;
  }
  template <class Visit>
  bool entries(const json_value& node, const std::string& path, Visit visit) {
    if (node.is != json_value::kind::object) return fail(path, "an object expected");
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string& name = node.names[i];
      const std::string place = path.empty() ? name : path + '.' + name;
      if (!seen.insert(name).second) return fail(place, "is given twice");
      if (!visit(name, node.items[i], place)) return false;
    }
    return true;
  }
  template <class Visit>
  bool items(const json_value& node, const std::string& path, Visit visit) {
    if (node.is != json_value::kind::array) return fail(path, "an array expected");
    std::size_t i = 0;
    for (const json_value& item : node.items) {
      const std::string place = path + '[' + std::to_string(i++) + ']';
      if (!visit(item, place)) return false;
    }
    return true;
  }
  bool text(const json_value& node, const std::string& path, std::string& value) {
    if (node.is != json_value::kind::text) return fail(path, "a text expected");
    value = node.scalar;
    return true;
  }
  bool truth(const json_value& node, const std::string& path, bool& value) {
    const std::string word = node.is == json_value::kind::word ? node.scalar : "";
    value = word == "true";
    return value || word == "false" || fail(path, "true or false expected");
  }
  template <class Number>
  bool number(const json_value& node, const std::string& path, Number& value) {
    const std::string digits = node.is == json_value::kind::number ? node.scalar : "";
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value);
    if (error == std::errc() && end == last) return true;
    using limits = std::numeric_limits<Number>;
    return fail(path, "a whole number from " + std::to_string(limits::min()) + " to " +
                          std::to_string(limits::max()) + " expected");
  }

  session_event event_;
  std::string fault_;
};

}  // namespace example
