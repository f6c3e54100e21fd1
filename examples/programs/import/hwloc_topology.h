// apiary/examples/programs/import/hwloc_topology.h - the GPUs of a node as a tree, from hwloc's XML (lstopo), and back.
// SPDX-License-Identifier: MIT
#pragma once

#include "nvidia_topology.h"
#include "xml_tags.h"
#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/topology/named_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// The GPUs of `lstopo --of xml`, with the bridges, NUMA nodes and packages above them, and their NVLinks or
// XGMI links. A GPU is a PCI device of class 0302 or 1200, or one that CUDA, NVML, RSMI or Level Zero knows.
class hwloc_topology {
 public:
  // An object of the file that is kept: a GPU, a switch of NVLink, or what contains them.
  struct object {
    std::size_t parent = 0;  // among the objects that are kept; the first has itself
    std::string type{};      // Machine, Package, Group, Bridge, PCIDev, ...
    std::string nodeset{};   // its NUMA nodes
    std::string bridge{};    // bridge_type of a Bridge
    std::string pci{};       // pci_type of a PCIDev
    std::string name{};      // of a GPU
    friend bool operator==(const object&, const object&) = default;
  };

  // kInvalidArgument: the first fault, as "line N: what is wrong"; or the file has no GPU.
  static absl::StatusOr<hwloc_topology> read(std::string_view text) {
    hwloc_topology all;
    std::vector<device> objects;
    std::vector<std::size_t> open;  // the objects that are not closed
    links found;
    xml_tags tags(text);
    xml_tags::tag tag;
    while (true) {
      APIARY_ASSIGN_OR_RETURN(const bool more, tags.next(tag));
      if (!more) break;
      if (tag.name == "object" && tag.ends) {
        open.pop_back();
      } else if (tag.name == "object") {
        if (objects.size() == max_objects) return fault(tag, "more than ", max_objects, " objects");
        device one{.line = tag.line};
        one.is.type = value(tag, "type");
        if (one.is.type.empty()) return fault(tag, "an object has no type");
        one.id = value(tag, "gp_index");
        one.is.nodeset = value(tag, "nodeset");
        one.is.bridge = value(tag, "bridge_type");
        one.is.pci = value(tag, "pci_type");
        one.is.name = value(tag, one.is.type == "OSDev" ? "name" : "pci_busid");
        one.subtype = value(tag, "subtype");
        one.is.parent = open.empty() ? objects.size() : open.back();
        open.push_back(objects.size());
        objects.push_back(std::move(one));
      } else if (tag.name.substr(0, 10) == "distances2") {
        APIARY_RETURN_IF_ERROR(read_distances(tag, found));
      } else if (found.open && tag.ends && (tag.name == "indexes" || tag.name == "u64values")) {
        absl::StrAppend(tag.name == "indexes" ? &found.indexes : &found.values, " ", tag.before);
      }
    }
    APIARY_RETURN_IF_ERROR(all.keep(objects, found));
    return all;
  }

  // The islands of the GPUs as a tree: links in PCI switches, host bridges and NUMA nodes; without the links
  // if use_links is false. kInvalidArgument: the links make no tree; the message names three GPUs.
  [[nodiscard]] absl::StatusOr<apiary::chain_spec> tree(bool use_links = true) const {
    std::vector<std::string> names;
    std::vector<std::string> between;
    for (const std::size_t a : gpus_) {
      names.push_back(objects_[a].name);
      for (const std::size_t b : gpus_)
        between.push_back(a == b                                 ? "X"
                          : use_links && links_.contains({a, b}) ? linked
                                                                 : path(a, b));
    }
    return nvidia_topology::of(std::move(names), std::move(between)).tree();
  }

  // The objects that are kept as XML that read() reads as these objects.
  [[nodiscard]] std::string write() const {
    std::string to = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<topology version=\"2.0\">\n";
    std::vector<std::size_t> open;
    for (std::size_t o = 0; o < objects_.size(); ++o) {
      const object& one = objects_[o];
      while (!open.empty() && (one.parent == o || open.back() != one.parent)) close(open, to);
      const bool is_gpu = std::binary_search(gpus_.begin(), gpus_.end(), o);
      begin(one.type, open.size(), to);
      write_value("nodeset", one.nodeset, to);
      write_value("bridge_type", one.bridge, to);
      write_value("pci_type", one.pci, to);
      if (is_gpu && one.type != "OSDev") {  // the program that knows the GPU is an object in it
        to += ">\n";
        begin("OSDev", open.size() + 1, to);
      }
      if (is_gpu) {
        write_value("gp_index", std::to_string(o), to);
        write_value("name", one.name, to);
        write_value("subtype", "NVML", to);
      }
      to += is_gpu && one.type != "OSDev" ? "/>\n" : ">\n";
      open.push_back(o);
    }
    while (!open.empty()) close(open, to);
    if (!links_.empty()) {
      to += "  <distances2hetero name=\"NVLinkBandwidth\">\n    <indexes>";
      for (const std::size_t a : gpus_) absl::StrAppend(&to, "OSDev:", a, " ");
      to += "</indexes>\n    <u64values>";
      for (const std::size_t a : gpus_)
        for (const std::size_t b : gpus_) to += links_.contains({a, b}) ? "1 " : "0 ";
      to += "</u64values>\n  </distances2hetero>\n";
    }
    return to + "</topology>\n";
  }
  [[nodiscard]] std::size_t num_gpus() const noexcept { return gpus_.size(); }
  friend bool operator==(const hwloc_topology&, const hwloc_topology&) = default;

 private:
  static constexpr std::size_t max_objects = 200'000;
  static constexpr const char* linked = "NV#";
  // An object of the file.
  struct device {
    object is{};
    std::string id{};  // by which distances name it
    std::string subtype{};
    std::size_t line = 0;
  };
  // The matrix of bandwidths of links.
  struct links {
    bool open = false;
    std::size_t line = 0;  // 0: none
    std::string type{};    // of all objects; empty: each index has its type
    std::string indexes{};
    std::string values{};
  };

  template <class... Words>
  [[nodiscard]] static absl::Status fault(const xml_tags::tag& at, const Words&... words) {
    return absl::InvalidArgumentError(absl::StrCat("line ", at.line, ": ", words...));
  }
  [[nodiscard]] static std::string value(const xml_tags::tag& tag, const char* key) {
    const auto found = tag.attributes.find(key);
    return found == tag.attributes.end() ? "" : found->second;
  }

  // The begin or the end of a matrix; others than those of links are skipped.
  static absl::Status read_distances(const xml_tags::tag& tag, links& to) {
    to.open = false;
    const std::string name = value(tag, "name");
    if (tag.ends || (name != "NVLinkBandwidth" && name != "XGMIBandwidth")) return absl::OkStatus();
    if (to.line != 0)
      return fault(tag, "a second matrix of links; that of line ", to.line, " is the first");
    to.open = true;
    to.line = tag.line;
    to.type = tag.name == "distances2hetero" ? "" : value(tag, "type");
    if (!to.type.empty() && value(tag, "indexing") != "gp")
      return fault(tag, "the matrix of links names objects by \"",
                   value(tag, "indexing").substr(0, 40), "\", not by \"gp\"");
    return absl::OkStatus();
  }

  static bool is_gpu_class(const std::string& pci) {
    return pci.substr(0, 4) == "0302" || pci.substr(0, 4) == "1200";
  }
  // How well a program's name for a GPU serves: the lower, the better; the last for others.
  static constexpr std::array<std::string_view, 4> programs = {"NVML", "RSMI", "LevelZero", "CUDA"};
  static std::size_t rank(const std::string& subtype) {
    return static_cast<std::size_t>(std::find(programs.begin(), programs.end(), subtype) -
                                    programs.begin());
  }

  // What an OSDev is a part of: the PCI device that contains it, or the outermost OSDev.
  static std::size_t device_of(const std::vector<device>& all, std::size_t o) {
    while (all[o].is.type == "OSDev" && all[o].is.parent != o &&
           (all[all[o].is.parent].is.type == "OSDev" || all[all[o].is.parent].is.type == "PCIDev"))
      o = all[o].is.parent;
    return o;
  }

  // Finds the GPUs; keeps them, what contains them, and the links between them.
  absl::Status keep(std::vector<device>& from, const links& found) {
    std::vector<std::size_t> best(from.size(), programs.size());
    std::vector<bool> is_gpu(from.size(), false);
    for (std::size_t o = 0; o < from.size(); ++o) {
      object& one = from[o].is;
      if (one.type == "PCIDev" && is_gpu_class(one.pci)) is_gpu[o] = true;
      const std::size_t r = rank(from[o].subtype);
      if (one.type != "OSDev" || r == programs.size()) continue;
      const std::size_t on = device_of(from, o);
      is_gpu[on] = true;
      if (r >= best[on]) continue;
      best[on] = r;
      if (on != o) from[on].is.name = one.name;
    }
    std::vector<std::size_t> number(from.size(), from.size());  // among those that are kept
    std::vector<bool> kept = is_gpu;
    for (std::size_t o = from.size(); o-- > 0;)
      if (kept[o]) kept[from[o].is.parent] = true;
    std::set<std::string> in_file;  // names of GPUs; invented ones differ from them
    for (std::size_t o = 0; o < from.size(); ++o)
      if (is_gpu[o]) in_file.insert(from[o].is.name);
    std::set<std::string> names;
    for (std::size_t o = 0; o < from.size(); ++o) {
      if (!kept[o]) continue;
      number[o] = objects_.size();
      object one = from[o].is;
      one.parent = one.parent == o ? objects_.size() : number[one.parent];
      if (is_gpu[o]) {
        if (gpus_.size() == nvidia_topology::max_gpus)
          return absl::InvalidArgumentError(absl::StrCat("line ", from[o].line, ": more than ",
                                                         nvidia_topology::max_gpus, " GPUs"));
        const bool no_name = one.name.empty();
        for (std::size_t i = gpus_.size();
             no_name && (in_file.contains(one.name) || names.contains(one.name)); ++i)
          one.name = absl::StrCat("GPU", i);
        if (!names.insert(one.name).second)
          return absl::InvalidArgumentError(absl::StrCat(
              "line ", from[o].line, ": two GPUs have the name \"", one.name.substr(0, 40), "\""));
        gpus_.push_back(objects_.size());
      } else {
        one.name.clear();
      }
      objects_.push_back(std::move(one));
    }
    if (gpus_.empty())
      return absl::InvalidArgumentError(
          "the file has no GPU: no PCI device of class 0302 or 1200, and no OSDev of NVML, RSMI, "
          "LevelZero or CUDA");
    return found.line == 0 ? absl::OkStatus() : connect(from, number, found);
  }

  // Two GPUs are linked if the matrix has a bandwidth between them, or between each of them and the same
  // switch of NVLink, which is a PCIDev. Links to processors do not connect GPUs.
  absl::Status connect(const std::vector<device>& from, const std::vector<std::size_t>& number,
                       const links& found) {
    const auto wrong = [&](const auto&... words) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", found.line, ": the matrix of links ", words...));
    };
    std::map<std::string, std::size_t> object_of;  // "OSDev:12"
    for (std::size_t o = 0; o < from.size(); ++o)
      if (!from[o].id.empty()) object_of.emplace(from[o].is.type + ":" + from[o].id, o);
    std::vector<std::size_t>
        ends;  // the GPU; beyond the objects that are kept: a switch, or nothing
    std::vector<bool> is_switch;
    for (const std::string& index : words(found.indexes)) {
      const auto at = object_of.find(found.type.empty() ? index : found.type + ":" + index);
      if (at == object_of.end())
        return wrong("names \"", index.substr(0, 40), "\", which is no object");
      const std::size_t o = device_of(from, at->second);
      const bool gpu =
          number[o] < objects_.size() && std::binary_search(gpus_.begin(), gpus_.end(), number[o]);
      ends.push_back(gpu ? number[o] : objects_.size());
      is_switch.push_back(!gpu && from[o].is.type == "PCIDev");
    }
    const std::vector<std::string> values = words(found.values);
    const std::size_t n = ends.size();
    if (n > max_ends) return wrong("has ", n, " objects; the limit is ", max_ends);
    if (values.size() != n * n) return wrong("has ", values.size(), " values for ", n, " objects");
    std::vector<bool> link(n * n, false);
    for (std::size_t i = 0; i < n * n; ++i) {
      const std::optional<std::uint64_t> bandwidth = apiary::detail::read_digits(values[i]);
      if (!bandwidth)
        return wrong("has a value \"", values[i].substr(0, 40), "\", which is no number");
      link[i] = *bandwidth > 0;
    }
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) {
        if (ends[a] == objects_.size() || ends[b] == objects_.size() || ends[a] == ends[b])
          continue;
        bool connected = link[a * n + b] || link[b * n + a];
        for (std::size_t s = 0; s < n && !connected; ++s)
          connected = is_switch[s] && (link[a * n + s] || link[s * n + a]) &&
                      (link[b * n + s] || link[s * n + b]);
        if (connected) {
          links_.emplace(ends[a], ends[b]);
          links_.emplace(ends[b], ends[a]);
        }
      }
    return absl::OkStatus();
  }

  // How two GPUs are connected by PCI, in the words of nvidia-smi.
  [[nodiscard]] const char* path(std::size_t a, std::size_t b) const {
    std::vector<std::size_t> above_a = above(a);
    std::vector<std::size_t> above_b = above(b);
    while (above_a.size() > 1 && above_b.size() > 1 &&
           above_a[above_a.size() - 2] == above_b[above_b.size() - 2]) {
      above_a.pop_back();
      above_b.pop_back();
    }
    if (above_a.back() != above_b.back()) return "SYS";
    const object& common = objects_[above_a.back()];
    if (common.type == "Bridge" && common.bridge.substr(0, 1) == "1")
      return (std::max)(above_a.size(), above_b.size()) <= 2 ? "PIX"
                                                             : "PXB";  // of one PCI switch, or not
    if (common.type == "Bridge") return "PHB";
    return num_numa_nodes(common) == 1 ? "NODE" : "SYS";
  }
  // What contains an object, from its parent upwards.
  [[nodiscard]] std::vector<std::size_t> above(std::size_t o) const {
    std::vector<std::size_t> all;
    while (objects_[o].parent != o) all.push_back(o = objects_[o].parent);
    if (all.empty()) all.push_back(o);
    return all;
  }
  // The bits of a set such as "0x00000001,,0xff"; a file without sets has one in all but the machine.
  static std::size_t num_numa_nodes(const object& one) {
    if (one.nodeset.empty()) return one.type == "Machine" || one.type == "System" ? 2 : 1;
    std::size_t bits = 0;
    for (const char c : one.nodeset) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
      for (int bit = 1; bit <= 8; bit *= 2) bits += (digit & bit) != 0 ? 1U : 0U;
    }
    return bits;
  }

  static std::vector<std::string> words(std::string_view text) {
    constexpr std::string_view spaces = " \t\r\n";
    std::vector<std::string> all;
    for (std::size_t at = text.find_first_not_of(spaces); at != std::string_view::npos;) {
      const std::size_t end = (std::min)(text.find_first_of(spaces, at), text.size());
      all.emplace_back(text.substr(at, end - at));
      at = text.find_first_not_of(spaces, end);
    }
    return all;
  }
  static void begin(const std::string& type, std::size_t depth, std::string& to) {
    absl::StrAppend(&to, std::string(2 * depth + 2, ' '), "<object");
    write_value("type", type, to);
  }
  static void close(std::vector<std::size_t>& open, std::string& to) {
    absl::StrAppend(&to, std::string(2 * open.size(), ' '), "</object>\n");
    open.pop_back();
  }
  static void write_value(const char* key, const std::string& value, std::string& to) {
    if (!value.empty()) absl::StrAppend(&to, " ", key, "=\"", escaped(value), "\"");
  }
  static std::string escaped(const std::string& text) {
    std::string to;
    for (const char c : text) {
      if (c == '&')
        to += "&amp;";
      else if (c == '<')
        to += "&lt;";
      else if (c == '"')
        to += "&quot;";
      else
        to += c;
    }
    return to;
  }

  // The most objects of a matrix.
  static constexpr std::size_t max_ends = 256;
  std::vector<object> objects_;                          // parents first
  std::vector<std::size_t> gpus_;                        // among them, in order
  std::set<std::pair<std::size_t, std::size_t>> links_;  // both directions
};

}  // namespace example
