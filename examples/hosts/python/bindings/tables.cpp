// Nodes, tasks and typical tasks as NumPy arrays; traces as tables.
// SPDX-License-Identifier: MIT
#include "tables.h"

#include "bindings.h"
#include <apiary/core/ids.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/placement.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace apiary_python {
namespace {

using namespace apiary;

constexpr std::uint64_t max_amount = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t max_job = max_amount - 1;  // the highest number is no id
constexpr std::uint64_t max_table_bytes = std::uint64_t{1} << 30;

// What is wrong with a request.
std::string fault(const std::string& name, const task_request& task) {
  return name + ": " + std::to_string(task.gpus) + (task.gpus == 1 ? " GPU with " : " GPUs with ") +
         std::to_string(task.gpu_milli) +
         "/1000 of each; a task can have a fraction of one GPU, or whole GPUs (1000/1000 of each)";
}

named_nodes make_nodes(const py::object& cpu_milli, const py::object& memory_mib,
                       const py::object& gpus, const py::object& model) {
  const columns given{
      {"cpu_milli", cpu_milli}, {"memory_mib", memory_mib}, {"gpus", gpus}, {"model", model}};
  named_nodes made;
  for (std::size_t i = 0; i < given.rows(); ++i) {
    made.nodes.add({.host = {.cpu_milli = static_cast<std::uint32_t>(given.at(0, i, max_amount)),
                             .memory_mib = static_cast<std::uint32_t>(given.at(1, i, max_amount))},
                    .gpus = static_cast<std::uint32_t>(given.at(2, i, max_gpus_per_node)),
                    .model = static_cast<gpu_model>(given.at(3, i, max_gpu_models - 1))});
  }
  return made;
}

task_table make_tasks(const py::object& cpu_milli, const py::object& memory_mib,
                      const py::object& gpus, const py::object& gpu_milli, const py::object& models,
                      const py::object& job) {
  const columns given{
      {"cpu_milli", cpu_milli}, {"memory_mib", memory_mib},
      {"gpus", gpus},           {"gpu_milli", gpu_milli},
      {"models", models},       {"job", job.is_none() ? py::object(py::int_(0)) : job}};
  task_table made;
  for (std::size_t i = 0; i < given.rows(); ++i) {
    task_request task{
        .job = job_id(static_cast<std::uint32_t>(job.is_none() ? i : given.at(5, i, max_job))),
        .cpu_milli = static_cast<std::uint32_t>(given.at(0, i, max_amount)),
        .memory_mib = static_cast<std::uint32_t>(given.at(1, i, max_amount)),
        .gpus = static_cast<std::uint32_t>(given.at(2, i, max_gpus_per_node)),
        .gpu_milli = static_cast<milli_gpu>(given.at(3, i, whole_gpu)),
        .models = given.at(4, i, any_model)};
    if (!task.valid()) refuse(fault("row " + std::to_string(i), task));
    made.requests.push_back(task);
  }
  made.specs.resize(made.requests.size());
  return made;
}

task_request make_task(const py::object& job, const py::object& cpu_milli,
                       const py::object& memory_mib, const py::object& gpus,
                       const py::object& gpu_milli, const py::object& models) {
  const task_request task{.job = job.is_none() ? job_id() : id_of<job_id>("job", job),
                          .cpu_milli = number("cpu_milli", cpu_milli),
                          .memory_mib = number("memory_mib", memory_mib),
                          .gpus = number("gpus", gpus),
                          .gpu_milli = number<milli_gpu>("gpu_milli", gpu_milli, whole_gpu),
                          .models = number<model_set>("models", models)};
  if (!task.valid()) refuse(fault("the task", task));
  return task;
}

std::vector<task_kind> kinds_of(const task_table& tasks) {
  std::vector<task_kind> kinds;
  for (std::size_t i = 0; i < tasks.requests.size(); ++i) {
    const task_request& task = tasks.requests[i];
    kinds.push_back({.cpu_milli = task.cpu_milli,
                     .gpus = task.gpus,
                     .gpu_milli = task.gpu_milli,
                     .models = task.models,
                     .spec = tasks.specs[i]});
  }
  return kinds;
}

// The tables of the metric grow with the kinds that a user may choose.
task_mix checked(task_mix mix) {
  const std::uint64_t bytes = fragmentation::table_bytes(mix);
  if (bytes > max_table_bytes)
    refuse("the tables for these tasks need " + std::to_string(bytes) + " bytes; the limit is " +
           std::to_string(max_table_bytes));
  return mix;
}

task_mix mix_of_history(const task_table& tasks, const py::object& coverage_percent) {
  const std::uint32_t percent = number("coverage_percent", coverage_percent, 100U);
  return checked(task_mix::from_history(kinds_of(tasks), percent));
}
task_mix mix_of_weights(const task_table& tasks, const py::object& weights) {
  if (!py::isinstance<py::sequence>(weights))
    throw py::type_error(std::string("weights is of type ") + Py_TYPE(weights.ptr())->tp_name +
                         "; it must be a sequence with one weight for each row of tasks");
  const columns given{{"weights", weights}};
  if (given.rows() != tasks.requests.size())
    refuse("weights has " + std::to_string(given.rows()) + " values, tasks has " +
           std::to_string(tasks.requests.size()) + " rows");
  std::vector<std::pair<task_kind, std::uint32_t>> kinds;
  std::uint64_t sum = 0;
  const std::vector<task_kind> kind = kinds_of(tasks);
  for (std::size_t i = 0; i < kind.size(); ++i) {
    kinds.emplace_back(kind[i], static_cast<std::uint32_t>(given.at(0, i, max_amount)));
    sum += kinds.back().second;
  }
  if (sum > max_amount)
    refuse("the weights have the sum " + std::to_string(sum) + "; the limit is " +
           std::to_string(max_amount));
  return checked(task_mix(kinds));
}

task_table arrive(std::vector<named_task> tasks, const std::vector<std::uint32_t>& arrivals) {
  task_table arrived;
  for (const std::uint32_t t : arrivals) {
    arrived.requests.push_back(tasks[t].request);
    arrived.requests.back().job = job_id(static_cast<std::uint32_t>(arrived.specs.size()));
    arrived.specs.push_back(tasks[t].spec);
    arrived.names.push_back(tasks[t].name);
  }
  return arrived;
}
named_nodes with_names(const trace_cluster& cluster) {
  named_nodes named{cluster.nodes, {}};
  for (const node_id n : cluster.nodes.ids()) named.names.push_back(cluster.names[n]);
  return named;
}

std::pair<named_nodes, task_table> read_openb(const std::string& nodes, const std::string& tasks,
                                              const std::optional<std::string>& node_order,
                                              const std::optional<std::string>& arrivals) {
  gpu_model_names models;
  trace_cluster cluster = value(read_nodes(value(line_reader::open(nodes)), models));
  if (node_order) cluster = value(read_node_order(value(line_reader::open(*node_order)), cluster));
  std::vector<named_task> all = value(read_tasks(value(line_reader::open(tasks)), models));
  const std::vector<std::uint32_t> order =
      arrivals ? value(read_arrivals(value(line_reader::open(*arrivals)), all))
               : workload::in_order(all);
  return {with_names(cluster), arrive(std::move(all), order)};
}

std::pair<named_nodes, task_table> generate_openb(const py::object& seed, const py::object& nodes,
                                                  const py::object& load_percent) {
  const std::uint32_t num_nodes = number("nodes", nodes);
  if (num_nodes == 0) refuse("nodes is 0; a cluster needs at least one node");
  synthetic_trace trace = openb_like({.seed = number<std::uint64_t>("seed", seed),
                                      .nodes = num_nodes,
                                      .load_percent = number("load_percent", load_percent)});
  return {with_names(trace.nodes), arrive(std::move(trace.work.tasks), trace.work.arrivals)};
}

std::vector<std::uint32_t> gpus_of(const placement& where) {
  std::vector<std::uint32_t> gpus;
  for (std::uint32_t i = 0; i < placement::max_gpus; ++i)
    if ((where.gpu_mask >> i & 1) != 0) gpus.push_back(i);
  return gpus;
}

// A NumPy array of one value of each node, of what it has or of what is left.
template <class T, class Get>
py::array_t<T> of_nodes(const named_nodes& table, Get get) {
  return array_of<T>(table.nodes.size(),
                     [&](std::size_t i) { return get(node_id(static_cast<std::uint32_t>(i))); });
}
py::array_t<milli_gpu> gpu_left(const named_nodes& table) {
  py::array_t<milli_gpu> left({std::size_t{table.nodes.size()}, std::size_t{max_gpus_per_node}});
  auto at = left.mutable_unchecked<2>();
  for (const node_id n : table.nodes.ids())
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
      at(n.value, i) = table.nodes[n].gpu_left[i];
  return left;
}
py::array_t<double> fragmentation_of(const named_nodes& table, const task_mix& mix) {
  const fragmentation metric(mix);
  return of_nodes<double>(table, [&](node_id n) { return metric(table.nodes[n]); });
}

void bind_nodes(py::module_& m) {
  py::class_<named_nodes> nodes(m, "NodeTable",
                                "The nodes of a cluster, and what is free on them. Node i is row "
                                "i. Arrays are copies.");
  nodes
      .def(py::init(&make_nodes), py::kw_only(), py::arg("cpu_milli"), py::arg("memory_mib"),
           py::arg("gpus"), py::arg("model") = 0,
           "Idle nodes. Each column is an array, a list, or one number for all nodes.\n\n"
           "cpu_milli: thousandths of a core. gpus: at most 16. model: the GPU model, below 64.")
      .def("__len__", [](const named_nodes& t) { return t.nodes.size(); })
      .def("fragmentation", &fragmentation_of, py::arg("mix"),
           "The thousandths of idle GPUs on each node that the typical task cannot use.")
      .def_property_readonly("gpu_left", &gpu_left,
                             "Free thousandths of each GPU: one row for each node, 16 columns.");
  const auto add = [&](const char* name, auto get, const char* doc) {
    using result = decltype(get(named_nodes().nodes, node_id(0)));
    nodes.def_property_readonly(
        name,
        [get](const named_nodes& t) {
          return of_nodes<result>(t, [&](node_id n) { return get(t.nodes, n); });
        },
        doc);
  };
  add(
      "cpu_milli", [](const node_table& t, node_id n) { return t.shape(n).host.cpu_milli; },
      "Thousandths of a core that each node has.");
  add(
      "memory_mib", [](const node_table& t, node_id n) { return t.shape(n).host.memory_mib; },
      "Memory of each node, in MiB.");
  add(
      "gpus", [](const node_table& t, node_id n) { return t.shape(n).gpus; }, "GPUs of each node.");
  add(
      "model", [](const node_table& t, node_id n) { return t.shape(n).model; },
      "The GPU model of each node, as a number.");
  add(
      "cpu_left", [](const node_table& t, node_id n) { return t[n].left.cpu_milli; },
      "Free thousandths of a core of each node.");
  add(
      "memory_left", [](const node_table& t, node_id n) { return t[n].left.memory_mib; },
      "Free memory of each node, in MiB.");
  add(
      "healthy", [](const node_table& t, node_id n) { return t[n].healthy; },
      "Whether each node may get new tasks.");
  nodes.def_property_readonly(
      "names", [](const named_nodes& t) { return t.names; },
      "The names of the nodes, if a file or a generator gave them.");
}

void bind_tasks(py::module_& m) {
  py::class_<task_request>(m, "Task",
                           "A request: CPU, memory, and no GPU, a fraction of one, or whole GPUs.")
      .def(py::init(&make_task), py::kw_only(), py::arg("job") = py::none(),
           py::arg("cpu_milli") = 0, py::arg("memory_mib") = 0, py::arg("gpus") = 0,
           py::arg("gpu_milli") = whole_gpu, py::arg("models") = any_model,
           "job: needed by commit. gpu_milli: thousandths of each GPU. models: bit i is set if the "
           "task accepts GPU model i.")
      .def_property_readonly(
          "job",
          [](const task_request& t) {
            return t.job.valid() ? std::optional(t.job.value) : std::nullopt;
          },
          "The id of the job.")
      .def_readonly("cpu_milli", &task_request::cpu_milli, "Thousandths of a core.")
      .def_readonly("memory_mib", &task_request::memory_mib, "Memory, in MiB.")
      .def_readonly("gpus", &task_request::gpus, "The number of GPUs.")
      .def_readonly("gpu_milli", &task_request::gpu_milli, "Thousandths of each GPU.")
      .def_readonly("models", &task_request::models, "The GPU models that it accepts, as bits.");

  py::class_<task_table> tasks(m, "TaskTable", "Tasks in order of arrival. Arrays are copies.");
  tasks
      .def(py::init(&make_tasks), py::kw_only(), py::arg("cpu_milli"), py::arg("memory_mib") = 0,
           py::arg("gpus"), py::arg("gpu_milli") = whole_gpu, py::arg("models") = any_model,
           py::arg("job") = py::none(),
           "Each column is an array, a list, or one number for all tasks. job: the ids; 0, 1, ... "
           "if they are not given.")
      .def("__len__", [](const task_table& t) { return t.requests.size(); })
      .def(
          "__getitem__",
          [](const task_table& t, std::int64_t row) {
            const auto rows = static_cast<std::int64_t>(t.requests.size());
            if (row < 0 || row >= rows)  // ends a loop, too
              throw py::index_error("row is " + std::to_string(row) + "; the table has " +
                                    std::to_string(rows) + " rows");
            return t.requests[static_cast<std::size_t>(row)];
          },
          py::arg("row"), "The task in a row.")
      .def(
          "head",
          [](const task_table& t, const py::object& rows) {
            task_table first = t;
            const auto kept = static_cast<std::size_t>(
                (std::min)(number<std::uint64_t>("rows", rows), std::uint64_t{t.requests.size()}));
            first.requests.resize(kept);
            first.specs.resize(kept);
            if (kept < first.names.size()) first.names.resize(kept);
            return first;
          },
          py::arg("rows"), "The first rows as a table.")
      .def_property_readonly(
          "names", [](const task_table& t) { return t.names; },
          "The names of the tasks, if a file or a generator gave them.");
  const auto add = [&](const char* name, auto get, const char* doc) {
    using result = decltype(get(task_request()));
    tasks.def_property_readonly(
        name,
        [get](const task_table& t) {
          return array_of<result>(t.requests.size(),
                                  [&](std::size_t i) { return get(t.requests[i]); });
        },
        doc);
  };
  add(
      "job", [](const task_request& t) { return t.job.value; }, "The id of each job.");
  add(
      "cpu_milli", [](const task_request& t) { return t.cpu_milli; }, "Thousandths of a core.");
  add(
      "memory_mib", [](const task_request& t) { return t.memory_mib; }, "Memory, in MiB.");
  add(
      "gpus", [](const task_request& t) { return t.gpus; }, "The number of GPUs.");
  add(
      "gpu_milli", [](const task_request& t) { return t.gpu_milli; }, "Thousandths of each GPU.");
  add(
      "models", [](const task_request& t) { return t.models; },
      "The GPU models that each task accepts, as bits.");
}

void bind_mix(py::module_& m) {
  py::class_<task_mix> mix(m, "TaskMix", "The typical tasks of a cluster, with weights.");
  mix.def(py::init(&mix_of_weights), py::arg("tasks"), py::arg("weights"),
          "One kind of task for each row, and how often it occurs.")
      .def_static("from_history", &mix_of_history, py::arg("tasks"),
                  py::arg("coverage_percent") = 95,
                  "The most frequent kinds of a history, as few as cover so many percent of it.")
      .def("__len__", [](const task_mix& t) { return t.tasks().size(); });
  const auto add = [&](const char* name, auto get, const char* doc) {
    using result = decltype(get(task_mix::weighted_kind()));
    mix.def_property_readonly(
        name,
        [get](const task_mix& t) {
          return array_of<result>(t.tasks().size(),
                                  [&](std::size_t i) { return get(t.tasks()[i]); });
        },
        doc);
  };
  using kind = task_mix::weighted_kind;
  add(
      "cpu_milli", [](const kind& k) { return k.kind.cpu_milli; }, "Thousandths of a core.");
  add(
      "gpus", [](const kind& k) { return k.kind.gpus; }, "The number of GPUs.");
  add(
      "gpu_milli", [](const kind& k) { return k.kind.gpu_milli; }, "Thousandths of each GPU.");
  add(
      "models", [](const kind& k) { return k.kind.models; }, "The accepted GPU models, as bits.");
  add(
      "weight", [](const kind& k) { return k.weight; }, "How often each kind occurs.");
}

}  // namespace

void bind_tables(py::module_& m) {
  m.attr("MAX_GPUS_PER_NODE") = max_gpus_per_node;
  m.attr("WHOLE_GPU") = whole_gpu;
  m.attr("ANY_MODEL") = any_model;
  py::class_<placement>(m, "Placement", "Where a task runs: a node and some of its GPUs.")
      .def(py::init([](const py::object& node, const py::object& gpu_mask) {
             return placement{id_of<node_id>("node", node), number("gpu_mask", gpu_mask)};
           }),
           py::arg("node"), py::arg("gpu_mask"), "gpu_mask: bit i is set for GPU i.")
      .def_property_readonly(
          "node", [](const placement& p) { return p.node.value; }, "The id of the node.")
      .def_readonly("gpu_mask", &placement::gpu_mask, "Bit i is set for GPU i of the node.")
      .def_property_readonly("gpus", &gpus_of, "The GPUs of the node, ascending.")
      .def(
          "__eq__", [](const placement& a, const placement& b) { return a == b; },
          py::is_operator(), py::arg("other"))
      .def("__repr__", [](const placement& p) {
        return "Placement(node=" + std::to_string(p.node.value) +
               ", gpu_mask=" + std::to_string(p.gpu_mask) + ")";
      });
  bind_tasks(m);
  bind_mix(m);
  bind_nodes(m);
  m.def("read_openb", &read_openb, py::arg("nodes"), py::arg("tasks"),
        py::arg("node_order") = py::none(), py::arg("arrivals") = py::none(),
        "Reads the nodes and tasks of an openb trace (CSV), and the orders in which they count.");
  m.def("generate_openb", &generate_openb, py::kw_only(), py::arg("seed") = 1,
        py::arg("nodes") = 1213, py::arg("load_percent") = 130,
        "Draws nodes and tasks like those of openb. The same arguments give the same trace.");
}

}  // namespace apiary_python
