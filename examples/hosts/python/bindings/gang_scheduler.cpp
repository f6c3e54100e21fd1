// Gangs, and the scheduler that preempts at least cost.
// SPDX-License-Identifier: MIT
#include "../../../programs/import/slurm_texts.h"
#include "bindings.h"
#include "gangs.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

namespace apiary_python {
namespace {

using namespace apiary;

constexpr std::uint64_t max_amount = std::numeric_limits<std::uint32_t>::max();

gang make_gang(const py::object& job, const py::object& tasks, const py::object& gpus,
               const std::string& tenant, std::int32_t priority,
               const std::optional<std::string>& required, const py::object& max_per_node,
               const std::string& model, const py::object& cpu_milli,
               const py::object& memory_mib) {
  gang made{.job = id_of<job_id>("job", job).value,
            .tenant = tenant,
            .priority = priority,
            .required = required,
            .max_per_node = number("max_per_node", max_per_node),
            .model = model};
  const columns given{
      {"tasks", tasks}, {"gpus", gpus}, {"cpu_milli", cpu_milli}, {"memory_mib", memory_mib}};
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < given.rows(); ++i) {
    made.groups.push_back({.tasks = static_cast<std::uint32_t>(given.at(0, i, max_amount)),
                           .gpus = static_cast<std::uint32_t>(given.at(1, i, max_amount))});
    made.host.push_back({.cpu_milli = static_cast<std::uint32_t>(given.at(2, i, max_amount)),
                         .memory_mib = static_cast<std::uint32_t>(given.at(3, i, max_amount))});
    all += made.groups.back().tasks;
  }
  if (all > gang_scheduler::max_tasks)
    refuse("a gang has " + std::to_string(all) + " tasks; the limit is " +
           std::to_string(gang_scheduler::max_tasks));
  return made;
}

gang_scheduler::request request_of(const gang_scheduler& scheduler, const gang& asked) {
  gang_scheduler::request request{.job = std::uint64_t{asked.job}, .priority = asked.priority};
  for (std::size_t i = 0; i < asked.groups.size(); ++i) {
    request.gang.groups.push_back(
        {.tasks = asked.groups[i].tasks, .gpus = asked.groups[i].gpus, .host = asked.host[i]});
    if (asked.max_per_node > 0)
      request.gang.groups.back().spread = {{.level = 0, .tasks = asked.max_per_node}};
  }
  if (asked.required) request.gang.required = value(scheduler.find_level(*asked.required));
  if (!asked.model.empty()) request.filter.models = {asked.model};
  return request;
}

// The cluster of arrays: node i is called "n<i>", and its rack "r<number>".
gang_cluster cluster_of(const py::object& gpus, const py::object& rack, const py::object& cpu_milli,
                        const py::object& memory_mib) {
  const columns given{{"gpus", gpus},
                      {"rack", rack.is_none() ? py::object(py::int_(0)) : rack},
                      {"cpu_milli", cpu_milli},
                      {"memory_mib", memory_mib}};
  gang_cluster cluster;
  if (!rack.is_none()) cluster.levels = {"rack"};
  for (std::size_t i = 0; i < given.rows(); ++i) {
    gang_cluster::node node{
        .name = "n" + std::to_string(i),
        .gpus = static_cast<std::uint32_t>(given.at(0, i, gang_cluster::max_gpus)),
        .host = {.cpu_milli = static_cast<std::uint32_t>(given.at(2, i, max_amount)),
                 .memory_mib = static_cast<std::uint32_t>(given.at(3, i, max_amount))}};
    if (!rack.is_none()) node.cells = {"r" + std::to_string(given.at(1, i, max_amount))};
    cluster.nodes.push_back(std::move(node));
  }
  return cluster;
}

std::vector<placement> placements_of(const gang& asked, const py::object& node,
                                     const py::object& gpu_mask) {
  const columns given{{"node", node}, {"gpu_mask", gpu_mask}};
  if (given.rows() != asked.tasks())
    refuse("node and gpu_mask have " + std::to_string(given.rows()) + " rows, the gang has " +
           std::to_string(asked.tasks()) + " tasks");
  std::vector<placement> tasks;
  for (std::size_t i = 0; i < given.rows(); ++i)
    tasks.push_back({node_id(static_cast<std::uint32_t>(given.at(0, i, max_amount - 1))),
                     static_cast<std::uint32_t>(given.at(1, i, max_amount))});
  return tasks;
}

std::uint64_t number_of(const job_key& job) { return job.number(); }
std::optional<std::uint32_t> gpu_of(const py::object& gpu) {
  return gpu.is_none() ? std::nullopt : std::optional(number("gpu", gpu));
}

void bind_gang(py::module_& m) {
  py::class_<gang>(m, "Gang",
                   "A gang: tasks that all run at the same time, each on whole GPUs of one node.")
      .def(py::init(&make_gang), py::kw_only(), py::arg("job"), py::arg("tasks"), py::arg("gpus"),
           py::arg("tenant") = "", py::arg("priority") = 0, py::arg("required") = py::none(),
           py::arg("max_per_node") = 0, py::arg("model") = "", py::arg("cpu_milli") = 0,
           py::arg("memory_mib") = 0,
           "`tasks` tasks with `gpus` GPUs each; with lists, one entry for each task group. "
           "`required`: the level of which one cell must hold all tasks. `max_per_node`: the most "
           "tasks of a group on a node; 0 is no limit. CPU and memory are those of a task.")
      .def_readonly("job", &gang::job, "The id of the gang.")
      .def_readonly("tenant", &gang::tenant, "The tenant that asks; GangScheduler ignores it.")
      .def_readonly("priority", &gang::priority, "It may preempt gangs of lower priority.")
      .def_readonly("required", &gang::required,
                    "The level of which one cell must hold all tasks, or None.")
      .def_property_readonly(
          "tasks",
          [](const gang& g) {
            return array_of<std::uint32_t>(g.groups.size(),
                                           [&](std::size_t i) { return g.groups[i].tasks; });
          },
          "The number of tasks of each group.")
      .def_property_readonly(
          "gpus",
          [](const gang& g) {
            return array_of<std::uint32_t>(g.groups.size(),
                                           [&](std::size_t i) { return g.groups[i].gpus; });
          },
          "The GPUs of each task, by group.");
}

}  // namespace

void bind_gang_scheduler(py::module_& m) {
  bind_gang(m);
  py::class_<gang_scheduler::plan>(m, "GangPlan", "What GangScheduler decides about a gang.")
      .def_property_readonly(
          "result", [](const gang_scheduler::plan& p) { return text_of(p.result); },
          "\"bind\", \"preempt\" (the gang gets these GPUs when its victims have ended) or "
          "\"wait\".")
      .def_property_readonly(
          "node",
          [](const gang_scheduler::plan& p) {
            return array_of<std::int32_t>(p.tasks.size(),
                                          [&](std::size_t i) { return p.tasks[i].node.value; });
          },
          "The node of each task; empty if the gang waits.")
      .def_property_readonly(
          "gpu_mask",
          [](const gang_scheduler::plan& p) {
            return array_of<std::uint32_t>(p.tasks.size(),
                                           [&](std::size_t i) { return p.tasks[i].gpu_mask; });
          },
          "The GPUs of each task as bits.")
      .def_property_readonly(
          "victims", [](const gang_scheduler::plan& p) { return numbers_of(p.victims, number_of); },
          "The jobs that must end, ascending.")
      .def_readonly("cost", &gang_scheduler::plan::cost, "The cost of the victims.")
      .def_property_readonly(
          "reason",
          [](const gang_scheduler::plan& p) {
            return p.result == plan_result::wait
                       ? std::optional<std::string>(wait_reason_text(p.reason))
                       : std::nullopt;
          },
          "Why the gang waits, as a clause for its user; None if it would run.");

  py::class_<gang_scheduler>(
      m, "GangScheduler",
      "Schedules gangs on whole GPUs: exactly under their constraints, with preemption at least "
      "cost.")
      .def(py::init([](const py::object& gpus, const py::object& rack, const py::object& cpu,
                       const py::object& memory) {
             return value(gang_scheduler::create(cluster_of(gpus, rack, cpu, memory)));
           }),
           py::kw_only(), py::arg("gpus"), py::arg("rack") = py::none(), py::arg("cpu_milli") = 0,
           py::arg("memory_mib") = 0,
           "A cluster of arrays with one row for each node; node i is called \"n<i>\". `rack` is "
           "the number of its rack.")
      .def_static(
          "from_slurm",
          [](const std::string& topology, const std::string& nodes) {
            return value(gang_scheduler::create(value(example::read_slurm(topology, nodes))));
          },
          py::arg("topology"), py::arg("nodes"),
          "A cluster of two texts in the format of Slurm's topology.conf and slurm.conf. "
          "InvalidArgumentError: names the line and what is wrong with it.")
      .def(
          "propose",
          [](gang_scheduler& s, const gang& asked, time_ms now) {
            return value(s.propose(request_of(s, asked), now));
          },
          py::arg("gang"), py::arg("now") = 0,
          "Where the gang would run, which gangs would have to end, or why it waits. Changes "
          "nothing. Propose a preempting gang again when its victims have ended.")
      .def(
          "commit",
          [](gang_scheduler& s, const gang_scheduler::plan& plan) { check(s.commit(plan)); },
          py::arg("plan"),
          "Applies a plan. AbortedError: the state has changed since it was proposed.")
      .def(
          "finish",
          [](gang_scheduler& s, const py::object& job) {
            check(s.finish(std::uint64_t{id_of<job_id>("job", job).value}));
          },
          py::arg("job"), "The gang has ended. NotFoundError: there is no such gang.")
      .def(
          "recover",
          [](gang_scheduler& s, const gang& asked, const py::object& node,
             const py::object& gpu_mask, time_ms started) {
            check(s.recover(request_of(s, asked), placements_of(asked, node, gpu_mask), started));
          },
          py::arg("gang"), py::arg("node"), py::arg("gpu_mask"), py::arg("started") = 0,
          "Adds a gang that runs already, after a restart, with the node and GPUs of each task.")
      .def(
          "mark_bad",
          [](gang_scheduler& s, const py::object& node, const py::object& gpu) {
            check(s.mark_bad(id_of<node_id>("node", node), gpu_of(gpu)));
          },
          py::arg("node"), py::arg("gpu") = py::none(),
          "The node, or one GPU of it, gets no new gang; running gangs continue.")
      .def(
          "mark_healthy",
          [](gang_scheduler& s, const py::object& node, const py::object& gpu) {
            check(s.mark_healthy(id_of<node_id>("node", node), gpu_of(gpu)));
          },
          py::arg("node"), py::arg("gpu") = py::none(), "Takes mark_bad back.")
      .def(
          "explain",
          [](gang_scheduler& s, const gang& asked, time_ms now) {
            return value(s.explain(request_of(s, asked), now)).text;
          },
          py::arg("gang"), py::arg("now") = 0,
          "Why the gang waits and what would help, as a text for its user. It takes milliseconds.")
      .def(
          "jobs_on",
          [](const gang_scheduler& s, const py::object& node) {
            return numbers_of(s.jobs_on(id_of<node_id>("node", node)), number_of);
          },
          py::arg("node"), "The jobs on a node, ascending.")
      .def(
          "audit", [](const gang_scheduler& s) { return s.audit(); },
          "Recomputes the whole state; the faults as texts, none if all is well.")
      .def(
          "copy", [](const gang_scheduler& s) { return s; }, "A snapshot that is independent.")
      .def_property_readonly(
          "free_gpus",
          [](const gang_scheduler& s) {
            std::vector<std::uint32_t> free;
            for (std::uint32_t n = 0; s.node(node_id(n)) != nullptr; ++n) {
              std::uint32_t used = 0;  // a preempting gang has GPUs of its victims
              for (const job_key& job : s.jobs_on(node_id(n)))
                for (const placement& task : s.find(job)->tasks)
                  if (task.node.value == n) used |= task.gpu_mask;
              free.push_back(s.node(node_id(n))->gpus -
                             static_cast<std::uint32_t>(std::popcount(used)));
            }
            return array_of<std::uint32_t>(free.size(), [&](std::size_t i) { return free[i]; });
          },
          "The GPUs of each node that no gang has, those of bad nodes included.")
      .def_property_readonly("num_gangs", &gang_scheduler::num_gangs,
                             "The number of running and preempting gangs.");
}

}  // namespace apiary_python
