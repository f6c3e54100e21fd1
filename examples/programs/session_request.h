// The fields of a line of a session, and their reader.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/json.h"
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// A field that is missing, null or "" is empty. Levels go by name: "node", "rack", ... or, for
// HiveD, by the type of cells, as "RACK". each() names the fields of a struct for the reader.

// The scheduler of a session; a field may belong to one of them alone.
enum class session_kind { any, gang, hived };

// A level and a number of tasks.
struct session_level {
  std::string level{};
  std::uint32_t pods = 0;

  static constexpr const char* what = "a level";
  template <class Field>
  void each(Field field) {
    field("level", level);
    field("pods", pods);
  }
};

// A task group.
struct session_member {
  std::uint32_t pods = 0;               // tasks
  std::uint32_t leafs = 0;              // GPUs of each task
  std::vector<std::string> names{};     // of the pods; then `pod` of a line may be a name
  std::vector<session_level> slices{};  // so many consecutive tasks share one cell
  std::vector<session_level> spread{};  // at most so many tasks in each cell
  std::optional<std::uint32_t>
      leader{};                 // another member, counted from 0; each of its tasks runs on
                                // one node with an equal number of this member's tasks
  std::string leader_level{};   // gang scheduler: or in one cell of this level
  std::uint32_t cpu_milli = 0;  // gang scheduler: of each task
  std::uint32_t memory_mib = 0;

  static constexpr const char* what = "a member";
  template <class Field>
  void each(Field field) {
    field("pods", pods);
    field("leafs", leafs);
    field("names", names, session_kind::hived);
    field("slices", slices);
    field("spread", spread);
    field("leader", leader);
    field("leaderLevel", leader_level, session_kind::gang);
    field("cpuMilli", cpu_milli, session_kind::gang);
    field("memoryMib", memory_mib, session_kind::gang);
  }
};

// One number for all devices, or a list with one for each.
struct session_levels : std::vector<apiary::level_t> {};
// Anything: a field of the answers that is sent back.
struct session_ignored {};

// Where one task runs.
struct session_place {
  std::string node{};
  std::vector<std::uint32_t> devices{};
  session_levels whole_cells{};
  session_ignored name{}, addresses{};

  static constexpr const char* what = "a pod";
  template <class Field>
  void each(Field field) {
    field("node", node);
    field("devices", devices);
    field("wholeCell", whole_cells, session_kind::hived);
    field("name", name);
    field("addresses", addresses);
  }
};

// The nodes that a gang accepts.
struct session_filter {
  std::vector<std::string> labels{}, models{}, nodes{}, tolerations{};

  static constexpr const char* what = "a filter";
  template <class Field>
  void each(Field field) {
    field("labels", labels);
    field("models", models);
    field("nodes", nodes);
    field("tolerations", tolerations);
  }
};

// A node of the gang scheduler, or the name of a node.
struct session_node {
  std::string name{};
  std::vector<std::string> cells{};
  std::uint32_t gpus = 0, cpu_milli = 0, memory_mib = 0;
  std::string model{};
  std::vector<std::string> labels{}, taints{};

  static constexpr const char* what = "a node";
  template <class Field>
  void each(Field field) {
    field("name", name);
    field("cells", cells);
    field("gpus", gpus);
    field("cpuMilli", cpu_milli);
    field("memoryMib", memory_mib);
    field("model", model);
    field("labels", labels);
    field("taints", taints);
  }
};
// Nodes in a list, or a text in Slurm's format.
struct session_nodes : std::vector<session_node> {
  std::string text{};
};
// A task: its number over all members, or its name.
struct session_pod : std::optional<std::uint32_t> {
  std::string name{};
};

// A line.
struct session_request {
  std::string op{};
  // The gang.
  apiary::job_key group{};  // for HiveD a text
  std::optional<std::int32_t> priority{};
  std::vector<session_member> members{};
  std::string required{}, preferred{};  // all tasks in one cell of this level
  std::vector<session_place> pods{};    // where it runs already
  // For the gang scheduler.
  std::optional<std::uint32_t> tenant{};
  session_filter filter{};
  std::int64_t now = 0, started = 0;  // ms
  // For HiveD.
  std::string vc{}, leaf_type{}, pinned{}, phase{};
  std::string spec{}, bind_info{};  // annotations of the open-source HiveD
  bool lazy = false, ignore_suggested = false, addresses = false;
  std::vector<std::string> chains{}, excluded_chains{};
  std::optional<std::vector<std::string>> suggested{};
  session_pod pod{};
  // Nodes and devices.
  session_node node{};
  std::optional<std::uint32_t> device{}, gpus{}, cpu_milli{}, memory_mib{};
  std::string level{};
  // The cluster of the gang scheduler.
  session_nodes nodes{};
  std::vector<std::string> levels{};
  std::string topology{}, gres{};  // texts in Slurm's format

  json_value document{};                 // the line
  std::vector<std::string> pod_names{};  // of all tasks, or empty

  // Requires: op is read already.
  template <class Field>
  void each(Field field) {
    field("group", group);
    field("vc", vc);
    field("leafType", leaf_type);
    field("pinned", pinned);
    field("phase", phase);
    field("level", level);
    field("required", required);
    field("preferred", preferred);
    field("spec", spec);
    field("bindInfo", bind_info);
    field("topology", topology);
    field("gres", gres);
    field("priority", priority);
    field("tenant", tenant);
    field("device", device);
    field("gpus", gpus);
    field("cpuMilli", cpu_milli);
    field("memoryMib", memory_mib);
    field("now", now);
    field("started", started);
    field("pod", pod);
    field("node", node);
    field("lazy", lazy);
    field("ignoreSuggested", ignore_suggested);
    field("addresses", addresses);
    field("chains", chains);
    field("excludedChains", excluded_chains);
    field("levels", levels);
    field("suggested", suggested);
    field("members", members);
    field("pods", pods);
    field("filter", filter);
    field("nodes", nodes);
  }
};

// A row of the table of verbs; `Verbs` has a function for each, and what they share.
template <class Verbs>
struct session_verb {
  const char* name;
  const char* usage;
  absl::Status (Verbs::*run)(const session_request&, json_object&);
  std::string_view fields;  // separated by spaces; "*": any, which are not read
};

inline absl::Status session_ok(json_object& out) {
  out.key("result").value("ok");
  return absl::OkStatus();
}
inline void write_names(json_object& out, std::string_view key,
                        const std::vector<std::string>& names) {
  out.key(key).open('[');
  for (const std::string& name : names) out.value(name);
  out.close(']');
}
template <class Numbers>
void write_numbers(json_object& out, std::string_view key, const Numbers& numbers) {
  out.key(key).open('[');
  for (const auto number : numbers) out.value(std::uint64_t{number});
  out.close(']');
}
// Why a gang waits.
inline const char* reason_name(apiary::wait_reason reason) {
  constexpr const char* names[] = {"never", "busy", "unhealthy", "not_suggested", "undecided"};
  return names[static_cast<std::size_t>(reason)];
}

inline absl::Status missing(const std::string& field) {
  return absl::InvalidArgumentError(field + ": is missing");
}
inline absl::Status unknown(const std::string& what, const std::string& name) {
  return absl::NotFoundError("there is no " + what + ' ' + json_text(name));
}

// Reads a line in two steps, because the op says which fields there may be. Its functions return
// whether a value is correct; if not, they set the fault.
class session_reader {
 public:
  // The op and the document. kInvalidArgument: it is no JSON, or has no op. kResourceExhausted: no
  // memory.
  static absl::StatusOr<session_request> read_op(std::string_view line) {
    session_reader reader;
    session_request to;
    try {
      APIARY_ASSIGN_OR_RETURN(to.document, json_reader::read(line));
      if (!to.document.is_object()) return absl::InvalidArgumentError("line: an object expected");
      const json_value* const op = to.document.find("op");
      if (op != nullptr) reader.read(*op, "op", to.op);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory to read the line");
    }
    if (!reader.fault_.empty()) return absl::InvalidArgumentError(reader.fault_);
    if (to.op.empty()) return missing("op");
    return to;
  }
  // The fields of a session of this kind, separated by spaces in `fields`. kInvalidArgument: the
  // first fault, as "path: what is wrong".
  static absl::Status read_fields(std::string_view fields, session_kind kind, session_request& to) {
    session_reader reader;
    reader.kind_ = kind;
    json_value document = std::move(to.document);
    reader.entries(document, "", [&](auto& name, auto& value, auto& path) {
      if (!has_word("op i out free", name) && !has_word(fields, name))
        return reader.fail(path, "is not a field of " + to.op);
      reader.read_field(name, value, path, to);
      return reader.fault_.empty();
    });
    if (reader.fault_.empty()) reader.join_names(to);
    to.document = std::move(document);
    return reader.fault_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(reader.fault_);
  }

 private:
  // Whether one of the words, which are separated by spaces, is this one.
  static bool has_word(std::string_view words, std::string_view word) {
    if (word.empty() || word.find(' ') != std::string_view::npos) return false;
    for (std::size_t at = words.find(word); at != std::string_view::npos;
         at = words.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
        return true;
    }
    return false;
  }
  bool fail(const std::string& path, const std::string& what) {
    if (fault_.empty()) fault_ = (path.empty() ? "line" : path) + ": " + what;
    return false;
  }
  // Calls visit(name, value, path) for each member of an object until one is wrong.
  template <class Visit>
  bool entries(const json_value& node, const std::string& path, Visit visit) {
    if (!node.is_object()) return fail(path, "an object expected");
    constexpr std::size_t few = 16;  // these are compared with each other
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string& name = node.names[i];
      const std::string place = path.empty() ? name : path + '.' + name;
      const auto before = node.names.begin() + static_cast<std::ptrdiff_t>((std::min)(i, few));
      if (std::find(node.names.begin(), before, name) != before ||
          (i >= few && !seen.insert(name).second))
        return fail(place, "is given twice");
      if (!visit(name, node.items[i], place)) return false;
    }
    return true;
  }
  // Whether the struct has the field; null is as good as missing.
  template <class Struct>
  bool read_field(std::string_view name, const json_value& value, const std::string& path,
                  Struct& to) {
    bool known = false;
    to.each([&](std::string_view field, auto& member, session_kind only = session_kind::any) {
      if (field != name || (only != session_kind::any && only != kind_)) return;
      known = true;
      if (!value.null()) read(value, path, member);
    });
    return known;
  }
  // The names of pods: one for each, all different.
  bool join_names(session_request& of) {
    std::uint64_t pods = 0;
    for (const session_member& m : of.members) {
      pods += m.pods;
      of.pod_names.insert(of.pod_names.end(), m.names.begin(), m.names.end());
    }
    const std::vector<std::string>& names = of.pod_names;
    if (names.empty()) return true;
    if (names.size() != pods)
      return fail("members",
                  std::to_string(names.size()) + " names for " + std::to_string(pods) + " pods");
    std::set<std::string_view> seen;
    for (const std::string& name : names)
      if (!seen.insert(name).second) return fail("members", "two pods are " + json_text(name));
    return true;
  }

  template <class Struct>
  requires requires(Struct s) { s.what; }
  bool read(const json_value& value, const std::string& path, Struct& to) {
    return read_struct(value, path, to);
  }
  template <class Struct>
  bool read_struct(const json_value& value, const std::string& path, Struct& to) {
    return entries(value, path, [&](auto& name, auto& of, auto& place) {
      if (!read_field(name, of, place, to))
        return fail(place, std::string("is not a field of ") + Struct::what);
      return fault_.empty();
    });
  }
  template <class Item>
  bool read(const json_value& value, const std::string& path, std::vector<Item>& to) {
    if (!value.is_array()) return fail(path, "an array expected");
    std::size_t i = 0;
    for (const json_value& item : value.items)
      if (!read(item, path + '[' + std::to_string(i++) + ']', to.emplace_back())) return false;
    return true;
  }
  template <class Value>
  bool read(const json_value& value, const std::string& path, std::optional<Value>& to) {
    return read(value, path, to.emplace());
  }
  template <std::integral Number>
  bool read(const json_value& value, const std::string& path, Number& to) {
    if (const std::optional<Number> number = value.number<Number>()) {
      to = *number;
      return true;
    }
    using limits = std::numeric_limits<Number>;
    return fail(path, "a whole number from " + std::to_string(limits::min()) + " to " +
                          std::to_string(limits::max()) + " expected");
  }
  bool read(const json_value& value, const std::string& path, bool& to) {
    const bool is_word = value.is == json_value::kind::word;
    to = is_word && value.scalar == "true";
    return to || (is_word && value.scalar == "false") || fail(path, "true or false expected");
  }
  bool read(const json_value& value, const std::string& path, std::string& to) {
    if (!value.is_text()) return fail(path, "a text expected");
    to = value.scalar;
    return true;
  }
  bool read(const json_value& value, const std::string& path, apiary::job_key& to) {
    if (value.is_text()) {
      to = value.scalar;
      return true;
    }
    if (kind_ == session_kind::hived) return fail(path, "a text expected");
    const auto number = value.number<std::uint64_t>();
    if (!number) return fail(path, "a text or a whole number from 0 expected");
    to = *number;
    return true;
  }
  bool read(const json_value& value, const std::string& path, session_levels& to) {
    std::vector<apiary::level_t>& all = to;
    return value.is_array() ? read(value, path, all) : read(value, path, all.emplace_back());
  }
  bool read(const json_value& value, const std::string& path, session_node& to) {
    return value.is_object() ? read_struct(value, path, to) : read(value, path, to.name);
  }
  bool read(const json_value& value, const std::string& path, session_nodes& to) {
    std::vector<session_node>& all = to;
    return value.is_text() ? read(value, path, to.text) : read(value, path, all);
  }
  bool read(const json_value& value, const std::string& path, session_pod& to) {
    return value.is_text() ? read(value, path, to.name) : read(value, path, to.emplace());
  }
  bool read(const json_value&, const std::string&, session_ignored&) { return true; }

  session_kind kind_ = session_kind::any;
  std::string fault_;
};

}  // namespace example
