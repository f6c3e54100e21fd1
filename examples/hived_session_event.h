// One line of a session, read: what is in its fields, whatever they mean.
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
#include <system_error>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace example {

// The lines:
//
//   config         physicalCluster, virtualClusters as in YAML; once, before all others
//   schedule       group, vc, priority, members [{pods, leafs}], and where they matter leafType,
//                  lazy, pinned, suggested [nodes], ignoreSuggested, phase Preempting or Filtering.
//                  Rules: required, preferred (types of cells, "RACK": all pods in one; refused
//                  where another chain that the gang may use has another type at that level); of a
//                  member slices, spread [{level, pods}] (types as well: so many consecutive pods
//                  in one cell; at most so many in any), leader (of which member pods it has with
//                  each of its own on one node, counted from 0)
//                  A gang that is preempting asks again, with all fields or with none that says
//                  what it is (vc, priority, members, leafType, lazy, pinned, constraints): then on the
//                  nodes of its last answer that was carried out, unless it brings others
//   schedule_pod   as schedule, with pod: the place of that task, counted in the order of members
//   delete, cancel, delete_pod          group; pod: of what has ended, or is withdrawn
//                  A pod of a preempting gang counts no more where the gang waits; if the gang has
//                  to go elsewhere, it goes with all pods
//   grow           group, by: both run, and are alike in all but their members. The tasks of `by`
//                  become the last ones of the group, and there is no gang `by` any more; the
//                  group's members are then its own and, after them, those of `by`
//   node_bad, node_healthy              node
//   device_bad, device_healthy          node, device
//   recover        a gang that runs already: as schedule, with pods [{node, devices, wholeCell}] as
//                  they were answered. What is not in the configuration, its tenant, some devices
//                  or a type of cells in its constraints, is left out; the constraints are kept for grow, where
//                  it runs is not held against them. wholeCell is of all pods that have devices or
//                  of none, one for the pod or a list, one for each of its devices; gangs that come
//                  with what it was last, before all others, have all their tenants' cells again in
//                  the same configuration, in whatever order they come
//   reconfigure    as config
//   usage          vc: what of its cells it uses, and what beside them
//   vc_state       vc: how many cells it is promised, has bound, and are doomed to be bad
//   node_state     node: whose cell it is now, and what its devices are used for
//   gang_state     group: whose it is, what it does and as what, where
//   draw           the whole cluster as text
//   audit          whether all invariants hold
//   note, final    nothing
//
// Unknown fields are ignored, and nodes in `suggested` that are not in the configuration: they may
// be those of another scheduler.

// The place of one task as a host writes it down.
struct session_place {
  std::string node{};
  std::vector<std::uint32_t> devices{};
  std::vector<apiary::level_t> whole_cells{};  // of each device, or one of all
};

// A type of cells and so many tasks.
struct session_level {
  std::string type{};
  std::uint32_t pods = 0;
};
// Rules of a member.
struct session_constraints {
  std::vector<session_level> slices{};
  std::vector<session_level> spread{};
  std::optional<std::uint32_t> leader{};
};

// Fields that are missing, null or "" are empty.
struct session_event {
  std::string op{};
  std::string group{};
  std::string by{};
  std::string vc{};
  std::string leaf_type{};
  std::string pinned{};
  std::string phase{};
  std::string node{};
  std::optional<std::int32_t> priority{};
  std::optional<std::uint32_t> pod{};
  std::optional<std::uint32_t> device{};
  bool brief = true;  // no field says what the gang is
  bool lazy = false;
  bool ignore_suggested = false;
  std::string required{};
  std::string preferred{};
  std::vector<apiary::task_group> members{};
  std::vector<session_constraints> constraints{};  // of each member
  std::optional<std::vector<std::string>> suggested{};
  std::vector<session_place> pods{};
  YAML::Node document{};
};

// Reads events; its functions return whether a field is as it should be, or say why not.
class session_event_reader {
 public:
  // kInvalidArgument with the first fault found: "path: what". kResourceExhausted: no memory for it.
  static absl::StatusOr<session_event> read(const std::string& line) {
    session_event_reader reader;
    try {
      APIARY_ASSIGN_OR_RETURN(reader.event_.document, parse_json(line));
      if (!reader.read_all()) return absl::InvalidArgumentError(reader.fault_);
    } catch (const YAML::Exception& e) {
      return absl::InvalidArgumentError(e.what());
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
    for (const char* other : {"config", "reconfigure", "audit", "draw", "note", "final"})
      if (e.op == other) return true;
    return entries(e.document, "", [&](auto& key, auto& n, auto& p) {
      if (n.IsNull()) return true;
      for (const char* what :
           {"vc", "priority", "members", "leafType", "lazy", "pinned", "required", "preferred"})
        if (key == what && !(n.IsScalar() && n.Scalar().empty())) e.brief = false;
      if (key == "group") return text(n, p, e.group);
      if (key == "by") return text(n, p, e.by);
      if (key == "vc") return text(n, p, e.vc);
      if (key == "leafType") return text(n, p, e.leaf_type);
      if (key == "pinned") return text(n, p, e.pinned);
      if (key == "phase") return text(n, p, e.phase);
      if (key == "node") return text(n, p, e.node);
      if (key == "priority") return number(n, p, e.priority.emplace());
      if (key == "pod") return number(n, p, e.pod.emplace());
      if (key == "device") return number(n, p, e.device.emplace());
      if (key == "lazy") return truth(n, p, e.lazy);
      if (key == "ignoreSuggested") return truth(n, p, e.ignore_suggested);
      if (key == "required") return text(n, p, e.required);
      if (key == "preferred") return text(n, p, e.preferred);
      if (key == "members") return read_members(n, p);
      if (key == "suggested") return read_names(n, p, e.suggested.emplace());
      return key != "pods" || read_places(n, p);
    });
  }
  bool read_members(const YAML::Node& list, const std::string& path) {
    return items(list, path, [&](auto& item, auto& place) {
      apiary::task_group& member = event_.members.emplace_back();
      session_constraints& constraints = event_.constraints.emplace_back();
      return entries(item, place, [&](auto& key, auto& n, auto& p) {
        if (key == "pods") return number(n, p, member.tasks);
        if (key == "slices") return read_levels(n, p, constraints.slices);
        if (key == "spread") return read_levels(n, p, constraints.spread);
        if (key == "leader") return number(n, p, constraints.leader.emplace());
        return key != "leafs" || number(n, p, member.gpus);
      });
    });
  }
  bool read_levels(const YAML::Node& list, const std::string& path,
                   std::vector<session_level>& to) {
    return items(list, path, [&](auto& item, auto& place) {
      session_level& level = to.emplace_back();
      return entries(item, place, [&](auto& key, auto& n, auto& p) {
        if (key == "level") return text(n, p, level.type);
        return key != "pods" || number(n, p, level.pods);
      });
    });
  }
  bool read_names(const YAML::Node& list, const std::string& path, std::vector<std::string>& to) {
    return items(list, path, [&](auto& n, auto& p) { return text(n, p, to.emplace_back()); });
  }
  bool read_places(const YAML::Node& list, const std::string& path) {
    return items(list, path, [&](auto& item, auto& place) {
      session_place& task = event_.pods.emplace_back();
      return entries(item, place, [&](auto& key, auto& n, auto& p) {
        if (key == "node") return text(n, p, task.node);
        if (key == "wholeCell") {
          if (n.IsSequence()) return read_numbers(n, p, task.whole_cells);
          return n.IsNull() || number(n, p, task.whole_cells.emplace_back());
        }
        return key != "devices" || read_numbers(n, p, task.devices);
      });
    });
  }

  bool read_numbers(const YAML::Node& list, const std::string& path,
                    std::vector<std::uint32_t>& to) {
    return items(list, path, [&](auto& n, auto& p) { return number(n, p, to.emplace_back()); });
  }

  bool fail(const std::string& path, const std::string& what) {
    fault_ = (path.empty() ? "line" : path) + ": " + what;
    return false;
  }
  template <class Visit>
  bool entries(const YAML::Node& node, const std::string& path, Visit visit) {
    if (!node.IsMap()) return fail(path, "an object expected");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const std::string& name = entry.first.Scalar();
      const std::string place = path.empty() ? name : path + '.' + name;
      if (!seen.insert(name).second) return fail(place, "is given twice");
      if (!visit(name, entry.second, place)) return false;
    }
    return true;
  }
  template <class Visit>
  bool items(const YAML::Node& node, const std::string& path, Visit visit) {
    if (!node.IsSequence()) return fail(path, "an array expected");
    std::size_t i = 0;
    for (const auto& item : node) {
      const std::string place = path + '[' + std::to_string(i++) + ']';
      if (!visit(item, place)) return false;
    }
    return true;
  }
  // yaml-cpp tags what stands in '"' with "!".
  static bool quoted(const YAML::Node& node) { return node.IsScalar() && node.Tag() == "!"; }
  bool text(const YAML::Node& node, const std::string& path, std::string& value) {
    if (!quoted(node)) return fail(path, "a text expected");
    value = node.Scalar();
    return true;
  }
  bool truth(const YAML::Node& node, const std::string& path, bool& value) {
    const std::string word = node.IsScalar() && !quoted(node) ? node.Scalar() : "";
    value = word == "true";
    return value || word == "false" || fail(path, "true or false expected");
  }
  template <class Number>
  bool number(const YAML::Node& node, const std::string& path, Number& value) {
    const std::string digits = node.IsScalar() && !quoted(node) ? node.Scalar() : "";
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
