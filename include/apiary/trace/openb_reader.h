// apiary/trace/openb_reader.h - reads clusters and workloads of the openb traces (Alibaba).
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/workload.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Numbers the names of GPU models. Reading nodes adds names; reading tasks looks them up.
class gpu_model_names {
 public:
  // The number of the model; a new name gets the next one, or nullopt after max_gpu_models names.
  [[nodiscard]] std::optional<gpu_model> intern(std::string_view name) {
    if (const std::optional<gpu_model> known = find(name)) return known;
    if (names_.size() == max_gpu_models) return std::nullopt;
    names_.emplace_back(name);
    return static_cast<gpu_model>(names_.size() - 1);
  }
  // The number of the model; nullopt for an unknown name.
  [[nodiscard]] std::optional<gpu_model> find(std::string_view name) const noexcept {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) return std::nullopt;
    return static_cast<gpu_model>(at - names_.begin());
  }
  // The set of GPU models of a spec: all for "", otherwise names separated by '|', of which unknown
  // ones are ignored. Returns nullopt and sets `why` for an empty name, or if all are unknown.
  [[nodiscard]] std::optional<model_set> parse_spec(std::string_view spec, std::string& why) const {
    if (spec.empty()) return any_model;
    model_set set = 0;
    while (true) {
      const std::size_t bar = spec.find('|');
      const std::string_view name = spec.substr(0, bar);
      if (name.empty()) {
        why = "names an empty model";
        return std::nullopt;
      }
      if (const std::optional<gpu_model> model = find(name)) set |= model_set{1} << *model;
      if (bar == std::string_view::npos) break;
      spec.remove_prefix(bar + 1);
    }
    if (set != 0) return set;
    why = "names no model that a node has";
    return std::nullopt;
  }
  // All names, by number.
  [[nodiscard]] std::span<const std::string> names() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;
};

namespace detail {

// The error for a name of a list that is already in another line.
[[nodiscard]] inline absl::Status repeated(const line_reader& lines, const std::string& kind,
                                           std::string_view name, std::uint64_t line) {
  return lines.error(kind + " " + line_reader::quoted(name) + " is already in line " +
                     std::to_string(line));
}

// Reads names of that kind, one per line, as indices of `names`. `once`: no name occurs twice.
[[nodiscard]] inline absl::StatusOr<std::vector<std::uint32_t>> read_indices(
    line_reader& lines, const std::string& kind, std::span<const std::string_view> names,
    bool once) {
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  for (std::uint32_t i = 0; i < names.size(); ++i) by_name.emplace(names[i], i);
  std::vector<std::uint64_t> line_of(names.size(), 0);
  std::vector<std::uint32_t> indices;
  std::string_view line;
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, lines.next(line));
    if (!more) return indices;
    const auto found = by_name.find(line);
    if (found == by_name.end())
      return lines.error("no " + kind + " is called " + line_reader::quoted(line));
    std::uint64_t& seen = line_of[found->second];
    if (once && seen != 0) return repeated(lines, kind, line, seen);
    seen = lines.number();
    indices.push_back(found->second);
  }
}

}  // namespace detail

// The module's page has the errors of all readers below.

// Reads a node list, columns sn, cpu_milli, memory_mib, gpu, model. A node has at most
// max_gpus_per_node GPUs, of one model. Names are unique and not "-", which means no node.
[[nodiscard]] inline absl::StatusOr<trace_cluster> read_nodes(line_reader lines,
                                                              gpu_model_names& models) {
  enum : std::size_t { sn, cpu_milli, memory_mib, gpu, model };
  constexpr std::array<detail::csv_column, 5> columns{
      {{"sn"}, {"cpu_milli"}, {"memory_mib"}, {"gpu"}, {"model"}}};
  APIARY_ASSIGN_OR_RETURN(detail::csv_reader csv,
                          detail::csv_reader::create(std::move(lines), columns));
  trace_cluster read;
  std::unordered_map<std::string, std::uint64_t> line_of;
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) break;
    node_shape shape;
    APIARY_ASSIGN_OR_RETURN(std::string name, csv.name(sn));
    if (csv[sn] == "-") return csv.error("sn is \"-\", which stands for no node");
    APIARY_ASSIGN_OR_RETURN(shape.host.cpu_milli, csv.number(cpu_milli));
    APIARY_ASSIGN_OR_RETURN(shape.host.memory_mib, csv.number(memory_mib));
    APIARY_ASSIGN_OR_RETURN(shape.gpus, csv.number(gpu, max_gpus_per_node));
    if (shape.gpus > 0) {
      APIARY_ASSIGN_OR_RETURN(const std::string model_name, csv.name(model));
      if (model_name.find('|') != std::string::npos)
        return csv.error("model is " + line_reader::quoted(model_name) +
                         "; a node has only one model");
      const std::optional<gpu_model> number = models.intern(model_name);
      if (!number) {
        return csv.error("model " + line_reader::quoted(model_name) + "; the limit is " +
                         std::to_string(max_gpu_models) + " models");
      }
      shape.model = *number;
    }
    const auto [first, is_new] = line_of.try_emplace(name, csv.lines().number());
    if (!is_new) return detail::repeated(csv.lines(), "node", name, first->second);
    read.nodes.add(shape);
    read.names.push_back(std::move(name));
  }
  if (read.names.empty()) return csv.lines().error_in_all("no node after the header line");
  return read;
}

// Reads the names of all nodes, one per line, each once; returns the nodes in that order.
[[nodiscard]] inline absl::StatusOr<trace_cluster> read_node_order(line_reader lines,
                                                                   const trace_cluster& nodes) {
  const std::vector<std::string_view> names(nodes.names.begin(), nodes.names.end());
  APIARY_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> order,
                          detail::read_indices(lines, "node", names, true));
  trace_cluster ordered;
  std::vector<bool> named(names.size(), false);
  for (const std::uint32_t i : order) {
    named[i] = true;
    ordered.nodes.add(nodes.nodes.shape(node_id(i)));
    ordered.names.push_back(nodes.names[node_id(i)]);
  }
  const auto missing = std::find(named.begin(), named.end(), false);
  if (missing != named.end()) {
    const std::string_view name = names[static_cast<std::size_t>(missing - named.begin())];
    return lines.error_in_all("node " + line_reader::quoted(name) + " is missing");
  }
  return ordered;
}

// Reads a task list, columns name, cpu_milli, memory_mib, num_gpu, gpu_milli and optionally
// gpu_spec. Without GPUs, gpu_milli and gpu_spec are ignored. Errors: gpu_milli is 0 for one GPU or
// above 1000, or neither 0 nor 1000 for several GPUs (0 means 1000); a spec without any of
// `models`.
[[nodiscard]] inline absl::StatusOr<std::vector<named_task>> read_tasks(
    line_reader lines, const gpu_model_names& models) {
  enum : std::size_t { name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec };
  constexpr std::array<detail::csv_column, 6> columns{
      {{"name"}, {"cpu_milli"}, {"memory_mib"}, {"num_gpu"}, {"gpu_milli"}, {"gpu_spec", false}}};
  APIARY_ASSIGN_OR_RETURN(detail::csv_reader csv,
                          detail::csv_reader::create(std::move(lines), columns));
  std::vector<named_task> tasks;
  std::vector<std::string> specs;  // by task
  std::unordered_map<std::string, std::uint64_t> line_of;
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) break;
    named_task task;
    task_request& request = task.request;
    APIARY_ASSIGN_OR_RETURN(task.name, csv.name(name));
    APIARY_ASSIGN_OR_RETURN(request.cpu_milli, csv.number(cpu_milli));
    APIARY_ASSIGN_OR_RETURN(request.memory_mib, csv.number(memory_mib));
    APIARY_ASSIGN_OR_RETURN(request.gpus, csv.number(num_gpu, max_gpus_per_node));
    APIARY_ASSIGN_OR_RETURN(const std::uint32_t milli, csv.number(gpu_milli));
    std::string_view spec;
    if (request.gpus > 0) {
      if (request.gpus == 1 && milli == 0) return csv.error("gpu_milli is 0 of one GPU");
      if (milli > whole_gpu)
        return csv.error("gpu_milli is " + std::to_string(milli) + "; a GPU has 1000");
      if (request.gpus > 1 && milli != 0 && milli != whole_gpu)
        return csv.error("gpu_milli is " + std::to_string(milli) + " of " +
                         std::to_string(request.gpus) +
                         " GPUs; a task can have a fraction of one GPU only");
      request.gpu_milli = request.gpus > 1 ? whole_gpu : static_cast<milli_gpu>(milli);
      spec = csv[gpu_spec];
      std::string why;
      const std::optional<model_set> set = models.parse_spec(spec, why);
      if (!set) return csv.error("gpu_spec is " + line_reader::quoted(spec) + ", which " + why);
      request.models = *set;
    }
    const auto [first, is_new] = line_of.try_emplace(task.name, csv.lines().number());
    if (!is_new) return detail::repeated(csv.lines(), "task", task.name, first->second);
    tasks.push_back(std::move(task));
    specs.emplace_back(spec);
  }
  if (tasks.empty()) return csv.lines().error_in_all("no task after the header line");
  std::vector<std::string> distinct = specs;
  detail::sort_unique(distinct);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].spec = static_cast<std::uint32_t>(
        std::lower_bound(distinct.begin(), distinct.end(), specs[i]) - distinct.begin());
  }
  return tasks;
}

// Reads task names, one per line, as indices of `tasks`; the same name again is another job.
[[nodiscard]] inline absl::StatusOr<std::vector<std::uint32_t>> read_arrivals(
    line_reader lines, std::span<const named_task> tasks) {
  std::vector<std::string_view> names;
  for (const named_task& task : tasks) names.push_back(task.name);
  APIARY_ASSIGN_OR_RETURN(std::vector<std::uint32_t> arrivals,
                          detail::read_indices(lines, "task", names, false));
  if (arrivals.empty()) return lines.error_in_all("the file is empty");
  return arrivals;
}

APIARY_NAMESPACE_END
