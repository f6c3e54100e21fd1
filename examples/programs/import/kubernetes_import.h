// apiary/examples/programs/import/kubernetes_import.h - a cluster from `kubectl get nodes -o json`, and back.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../hosts/kubernetes/kubernetes_json.h"
#include "../../hosts/kubernetes/kubernetes_records.h"
#include "../../text/json.h"
#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// Nodes of Kubernetes, read.
struct kubernetes_nodes {
  apiary::gang_cluster cluster{};
  std::vector<std::string> unusable{};  // names of nodes that are not ready, or cordoned
};

// The label that GPU feature discovery sets; it is the model of a node's GPUs.
inline constexpr const char* gpu_model_label = "nvidia.com/gpu.product";

// Reads the nodes. `levels` are the labels that name the cells of a node, the lowest level first, for
// example the levels of a Topology of Kueue or KAI from the last to the first. A node without such a
// label is a cell of its own.
class kubernetes_reader {
 public:
  // kInvalidArgument: all faults, one on each line, each with the line or the JSON path.
  static absl::StatusOr<kubernetes_nodes> read(
      const std::string& text, const std::vector<apiary_kubernetes::level_label>& levels) {
    kubernetes_reader reader;
    std::size_t end = 0;
    const auto document = json_reader::read(text, ~std::size_t{0}, &end);
    if (!document.ok()) {
      const auto lines =
          std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
      return absl::InvalidArgumentError(
          absl::StrCat("line ", 1 + lines, ": ", document.status().message()));
    }
    reader.read_items(*document, levels);
    if (!reader.faults_.empty()) return absl::InvalidArgumentError(reader.faults_);
    for (const auto& level : levels) reader.all_.cluster.levels.push_back(level.name);
    APIARY_RETURN_IF_ERROR(reader.all_.cluster.check());
    return std::move(reader.all_);
  }

  // The nodes as JSON that read() reads as the same nodes, if `unusable` is in the order of the nodes.
  static std::string write(const kubernetes_nodes& nodes) {
    json_object all;
    all.key("kind").value("List").key("items").open('[');
    auto unusable = nodes.unusable.begin();
    for (const apiary::gang_cluster::node& node : nodes.cluster.nodes) {
      all.open('{').key("metadata").open('{').key("name").value(node.name).key("labels").open('{');
      for (const std::string& label : node.labels) {
        const std::size_t equals = (std::min)(label.find('='), label.size());
        all.key(label.substr(0, equals));
        all.value(label.substr((std::min)(equals + 1, label.size())));
      }
      all.close('}').close('}').key("spec").open('{').key("taints").open('[');
      for (const std::string& taint : node.taints) {
        const std::size_t equals = taint.find('=');
        const std::size_t colon = taint.rfind(':');
        all.open('{').key("key").value(taint.substr(0, equals));
        all.key("value").value(taint.substr(equals + 1, colon - equals - 1));
        all.key("effect").value(taint.substr(colon + 1)).close('}');
      }
      const bool bad = unusable != nodes.unusable.end() && *unusable == node.name;
      if (bad) ++unusable;
      all.close(']').close('}').key("status").open('{').key("allocatable").open('{');
      all.key(apiary_kubernetes::gpu_resource).value(std::to_string(node.gpus));
      all.key("cpu").value(absl::StrCat(node.host.cpu_milli, "m"));
      all.key("memory").value(absl::StrCat(node.host.memory_mib, "Mi")).close('}');
      all.key("conditions").open('[').open('{').key("type").value("Ready");
      all.key("status").value(bad ? "False" : "True").close('}').close(']').close('}').close('}');
    }
    return all.close(']').str();
  }

 private:
  using json = json_value;

  void fault(const std::string& place, const std::string& what) {
    absl::StrAppend(&faults_, faults_.empty() ? "" : "\n", place, ": ", what);
  }

  void read_items(const json& document, const std::vector<apiary_kubernetes::level_label>& levels) {
    const bool alone = document["kind"].text() == "Node";
    const json list =
        alone ? json{.is = json::kind::array, .items = {document}} : document["items"];
    if (!list.is_array()) return fault("items", "a list of nodes expected");
    std::map<std::string, std::size_t> number_of;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const std::string place = alone ? std::string("node") : absl::StrCat("items[", i, "]");
      if (!check_types(list.items[i], place)) continue;
      const auto node = apiary_kubernetes::read_node(list.items[i]);
      if (!node.ok()) {
        fault(place, std::string(node.status().message()));
        continue;
      }
      const auto [at, is_new] = number_of.emplace(node->name, i);
      if (!is_new) {
        fault(place + ".metadata.name",
              absl::StrCat("\"", node->name, "\" is the name of items[", at->second, "], too"));
        continue;
      }
      auto to = apiary_kubernetes::described(*node, levels);
      if (!to.ok()) {
        fault(place + ".metadata.labels", std::string(to.status().message()));
        continue;
      }
      const auto model = node->labels.find(gpu_model_label);
      if (model != node->labels.end()) to->model = model->second;
      const json& allocatable = list.items[i]["status"]["allocatable"];
      const auto read = [&](const char* name, std::uint64_t unit) {
        return amount(allocatable[name], unit, absl::StrCat(place, ".status.allocatable.", name));
      };
      to->host.cpu_milli = read("cpu", 1);
      to->host.memory_mib = read("memory", std::uint64_t{1000} << 20);
      if (!node->usable) all_.unusable.push_back(node->name);
      all_.cluster.nodes.push_back(*std::move(to));
    }
  }

  // Whether the fields that are read have the right types.
  bool check_types(const json& node, const std::string& place) {
    const std::size_t before = faults_.size();
    if (!node.is_object()) {
      fault(place, "an object expected");
      return false;
    }
    for (const char* name : {"metadata", "spec", "status"})
      if (const json& part = node[name]; !part.null() && !part.is_object())
        fault(place + '.' + name, "an object expected");
    const json& labels = node["metadata"]["labels"];
    if (!labels.null() && !labels.is_object())
      fault(place + ".metadata.labels", "an object expected");
    if (labels.is_object()) {
      for (std::size_t i = 0; i < labels.items.size(); ++i) {
        const std::string& key = labels.names[i];
        const json& value = labels.items[i];
        if (!value.is_text() || key.empty() || key.find('=') != std::string::npos)
          fault(absl::StrCat(place, ".metadata.labels[\"", key, "\"]"),
                value.is_text() ? "a key without \"=\" expected" : "a text expected");
      }
    }
    const json& spec = node["spec"];
    check_list(spec["taints"], place + ".spec.taints", {"key", "effect"});
    const json& status = node["status"];
    check_list(status["conditions"], place + ".status.conditions", {"type", "status"});
    if (const json& cordoned = spec["unschedulable"]; !cordoned.null() && !cordoned.is_bool())
      fault(place + ".spec.unschedulable", "true or false expected");
    if (!status["allocatable"].is_object())
      fault(place + ".status.allocatable", "an object expected");
    return faults_.size() == before;
  }
  void check_list(const json& list, const std::string& place,
                  std::initializer_list<const char*> texts) {
    if (list.null()) return;
    if (!list.is_array()) return fault(place, "a list expected");
    for (std::size_t i = 0; i < list.items.size(); ++i)
      for (const char* name : texts) {
        const json& text = list.items[i][name];
        const std::string at = absl::StrCat(place, "[", i, "].", name);
        if (!text.is_text())
          fault(at, "a text expected");
        else if (text.scalar.find_first_of("=:") != std::string::npos)
          fault(at, "a text without \"=\" and \":\" expected");
      }
  }

  // A quantity of Kubernetes ("7910m", "131Gi", 8) in units of so many thousandths, rounded down.
  std::uint32_t amount(const json& value, std::uint64_t unit, const std::string& place) {
    if (value.null()) return 0;
    const std::string text = value.is_text() ? value.scalar : value.str("");
    const auto milli = thousandths(text);
    if (milli && *milli / unit <= (std::numeric_limits<std::uint32_t>::max)())
      return static_cast<std::uint32_t>(*milli / unit);
    fault(place, absl::StrCat("\"", text.substr(0, 40), "\" is no quantity, or too large"));
    return 0;
  }
  static std::optional<std::uint64_t> thousandths(std::string_view text) {
    const std::size_t end = (std::min)(text.find_first_not_of("0123456789."), text.size());
    const std::string_view number = text.substr(0, end);
    const std::string_view suffix = text.substr(end);
    const std::size_t point = number.find('.');
    std::string decimals(point == std::string_view::npos ? "" : number.substr(point + 1));
    decimals.resize(3, '0');
    constexpr std::uint64_t most = std::uint64_t{1} << 50;
    const auto whole = apiary::detail::read_digits(number.substr(0, point), most);
    const auto part = apiary::detail::read_digits(decimals);
    if (!whole || !part) return std::nullopt;
    const std::uint64_t milli = *whole * 1000 + *part;
    if (suffix == "m") return milli / 1000;
    std::uint64_t factor = suffix.empty() ? 1 : 0;
    constexpr std::string_view letters = "kMGTPE";
    const std::size_t power = suffix == "Ki" ? 0 : letters.find(suffix.substr(0, 1));
    if (!suffix.empty() && power != std::string_view::npos) {
      const bool binary = suffix.size() == 2 && suffix[1] == 'i';
      if (!binary && suffix.size() > 1) return std::nullopt;
      factor = 1;
      for (std::size_t i = 0; i <= power; ++i) factor *= binary ? 1024 : 1000;
    }
    if (factor == 0 || milli > ~std::uint64_t{0} / factor) return std::nullopt;
    return milli * factor;
  }

  kubernetes_nodes all_;
  std::string faults_;
};

}  // namespace example
