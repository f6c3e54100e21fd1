// apiary/examples/programs/import/kubernetes_import.h - a cluster from `kubectl get nodes -o json`, and back.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../hosts/kubernetes/kubernetes_json.h"
#include "../../hosts/kubernetes/kubernetes_records.h"
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
    const auto document = apiary_kubernetes::parse(text);
    if (!document.ok()) return absl::InvalidArgumentError(reader.where(text, document.status()));
    reader.read_items(*document, levels);
    if (!reader.faults_.empty()) return absl::InvalidArgumentError(reader.faults_);
    for (const auto& level : levels) reader.all_.cluster.levels.push_back(level.name);
    APIARY_RETURN_IF_ERROR(reader.all_.cluster.check());
    return std::move(reader.all_);
  }

  // The nodes as JSON that read() reads as the same nodes, if `unusable` is in the order of the nodes.
  static std::string write(const kubernetes_nodes& nodes) {
    json items = json::array();
    auto unusable = nodes.unusable.begin();
    for (const apiary::gang_cluster::node& node : nodes.cluster.nodes) {
      json one = {{"metadata", {{"name", node.name}}}};
      for (const std::string& label : node.labels) {
        const std::size_t equals = label.find('=');
        one["metadata"]["labels"][label.substr(0, equals)] =
            equals == std::string::npos ? "" : label.substr(equals + 1);
      }
      for (const std::string& taint : node.taints) {
        const std::size_t equals = taint.find('=');
        const std::size_t colon = taint.rfind(':');
        one["spec"]["taints"].push_back({{"key", taint.substr(0, equals)},
                                         {"value", taint.substr(equals + 1, colon - equals - 1)},
                                         {"effect", taint.substr(colon + 1)}});
      }
      const bool bad = unusable != nodes.unusable.end() && *unusable == node.name;
      if (bad) ++unusable;
      one["status"] = {{"allocatable",
                        {{apiary_kubernetes::gpu_resource, std::to_string(node.gpus)},
                         {"cpu", absl::StrCat(node.host.cpu_milli, "m")},
                         {"memory", absl::StrCat(node.host.memory_mib, "Mi")}}},
                       {"conditions", {{{"type", "Ready"}, {"status", bad ? "False" : "True"}}}}};
      items.push_back(std::move(one));
    }
    return json{{"kind", "List"}, {"items", std::move(items)}}.dump(1, ' ', false,
                                                                    json::error_handler_t::replace);
  }

 private:
  using json = apiary_kubernetes::json;

  void fault(const std::string& place, const std::string& what) {
    absl::StrAppend(&faults_, faults_.empty() ? "" : "\n", place, ": ", what);
  }

  // The fault with the line where the text stops being JSON.
  static std::string where(const std::string& text, const absl::Status& fault) {
    std::string all(fault.message());
    try {
      if (json::parse(text).is_discarded()) return all;
    } catch (const json::parse_error& e) {
      const std::size_t byte = (std::min)(e.byte, text.size());
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(byte);
      all = absl::StrCat("line ", 1 + std::count(text.begin(), end, '\n'),
                         ": the text is no valid JSON");
    } catch (const json::exception&) {  // a number such as 1e999
      all = "the text is no valid JSON: a number is too large";
    }
    return all;
  }

  void read_items(const json& document, const std::vector<apiary_kubernetes::level_label>& levels) {
    using apiary_kubernetes::member;
    const bool alone = apiary_kubernetes::text_of(document, "kind") == "Node";
    const json list = alone ? json::array({document}) : member(document, "items");
    if (!list.is_array()) return fault("items", "a list of nodes expected");
    std::map<std::string, std::size_t> number_of;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = alone ? std::string("node") : absl::StrCat("items[", i, "]");
      if (!check_types(list[i], place)) continue;
      const auto node = apiary_kubernetes::read_node(list[i]);
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
      const json& allocatable = member(member(list[i], "status"), "allocatable");
      const auto read = [&](const char* name, std::uint64_t unit) {
        return amount(member(allocatable, name), unit,
                      absl::StrCat(place, ".status.allocatable.", name));
      };
      to->host.cpu_milli = read("cpu", 1);
      to->host.memory_mib = read("memory", std::uint64_t{1000} << 20);
      if (!node->usable) all_.unusable.push_back(node->name);
      all_.cluster.nodes.push_back(*std::move(to));
    }
  }

  // Whether the fields that are read have the right types.
  bool check_types(const json& node, const std::string& place) {
    using apiary_kubernetes::member;
    const std::size_t before = faults_.size();
    if (!node.is_object()) {
      fault(place, "an object expected");
      return false;
    }
    for (const char* name : {"metadata", "spec", "status"})
      if (const json& part = member(node, name); !part.is_null() && !part.is_object())
        fault(place + '.' + name, "an object expected");
    const json& labels = member(member(node, "metadata"), "labels");
    if (!labels.is_null() && !labels.is_object())
      fault(place + ".metadata.labels", "an object expected");
    if (labels.is_object())
      for (const auto& [key, value] : labels.items())
        if (!value.is_string() || key.empty() || key.find('=') != std::string::npos)
          fault(absl::StrCat(place, ".metadata.labels[\"", key, "\"]"),
                value.is_string() ? "a key without \"=\" expected" : "a text expected");
    const json& spec = member(node, "spec");
    check_list(member(spec, "taints"), place + ".spec.taints", {"key", "effect"});
    const json& status = member(node, "status");
    check_list(member(status, "conditions"), place + ".status.conditions", {"type", "status"});
    if (const json& cordoned = member(spec, "unschedulable");
        !cordoned.is_null() && !cordoned.is_boolean())
      fault(place + ".spec.unschedulable", "true or false expected");
    if (!member(status, "allocatable").is_object())
      fault(place + ".status.allocatable", "an object expected");
    return faults_.size() == before;
  }
  void check_list(const json& list, const std::string& place,
                  std::initializer_list<const char*> texts) {
    if (list.is_null()) return;
    if (!list.is_array()) return fault(place, "a list expected");
    for (std::size_t i = 0; i < list.size(); ++i)
      for (const char* name : texts) {
        const json& text = apiary_kubernetes::member(list[i], name);
        const std::string at = absl::StrCat(place, "[", i, "].", name);
        if (!text.is_string())
          fault(at, "a text expected");
        else if (text.get_ref<const std::string&>().find_first_of("=:") != std::string::npos)
          fault(at, "a text without \"=\" and \":\" expected");
      }
  }

  // A quantity of Kubernetes ("7910m", "131Gi", 8) in units of so many thousandths, rounded down.
  std::uint32_t amount(const json& value, std::uint64_t unit, const std::string& place) {
    if (value.is_null()) return 0;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
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
