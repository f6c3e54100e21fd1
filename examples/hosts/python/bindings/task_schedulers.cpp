// Schedulers of tasks that share GPUs: FGD and best fit.
// SPDX-License-Identifier: MIT
#include "bindings.h"
#include "tables.h"
#include <apiary/core/ids.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <optional>
#include <unordered_map>
#include <variant>

namespace apiary_python {
namespace {

using namespace apiary;

// Throws, and nothing has changed, unless every job of the table is new.
template <class Scheduler>
void check_jobs(const Scheduler& scheduler, const task_table& tasks) {
  std::unordered_map<std::uint32_t, std::size_t> row_of;
  for (std::size_t i = 0; i < tasks.requests.size(); ++i) {
    const job_id job = tasks.requests[i].job;
    const std::string name = "row " + std::to_string(i) + ": job " + std::to_string(job.value);
    if (scheduler.find(job)) throw status_error(absl::AlreadyExistsError(name + " runs already"));
    const auto [first, is_new] = row_of.try_emplace(job.value, i);
    if (!is_new)
      throw status_error(
          absl::AlreadyExistsError(name + " is in row " + std::to_string(first->second) + ", too"));
  }
}

template <class Scheduler>
std::pair<py::array_t<std::int32_t>, py::array_t<std::uint32_t>> place(Scheduler& scheduler,
                                                                       const task_table& tasks) {
  check_jobs(scheduler, tasks);
  const auto rows = static_cast<py::ssize_t>(tasks.requests.size());
  py::array_t<std::int32_t> node(rows);
  py::array_t<std::uint32_t> gpu_mask(rows);
  for (py::ssize_t i = 0; i < rows; ++i) {
    const task_request& task = tasks.requests[static_cast<std::size_t>(i)];
    const task_plan plan = value(scheduler.propose(task));
    const bool starts = plan.result == plan_result::bind;
    if (starts) check(scheduler.commit(task, plan));
    node.mutable_at(i) = starts ? static_cast<std::int32_t>(plan.where.node.value) : -1;
    gpu_mask.mutable_at(i) = starts ? plan.where.gpu_mask : 0;
  }
  return {node, gpu_mask};
}

// Adds a class for a scheduler with this score; what differs is how one is made.
template <class Scheduler>
py::class_<Scheduler> bind_scheduler(py::module_& m, const char* name, const char* doc) {
  return py::class_<Scheduler>(m, name, doc)
      .def(
          "propose", [](Scheduler& s, const task_request& task) { return value(s.propose(task)); },
          py::arg("task"), "Where the task would run, or why it waits. Changes nothing.")
      .def(
          "commit",
          [](Scheduler& s, const task_request& task,
             const std::variant<task_plan, placement>& plan) {
            check(std::visit([&](const auto& chosen) { return s.commit(task, chosen); }, plan));
          },
          py::arg("task"), py::arg("plan"),
          "Starts the task as planned, or at a placement of your own. AbortedError: the GPUs, CPU "
          "or "
          "memory are no longer free.")
      .def(
          "recover",
          [](Scheduler& s, const task_request& task, placement where) {
            check(s.recover(task, where));
          },
          py::arg("task"), py::arg("where"),
          "Adds a task that runs already, after a restart; its node may be bad.")
      .def("place", &place<Scheduler>, py::arg("tasks"),
           "Proposes and commits each task in order. Returns two arrays: the node of each task, or "
           "-1 if the task waits, and its GPUs as bits. AlreadyExistsError: a job runs already, or "
           "is in two rows; nothing has changed then.")
      .def(
          "finish",
          [](Scheduler& s, const py::object& job) { check(s.finish(id_of<job_id>("job", job))); },
          py::arg("job"), "The task has ended. NotFoundError: it does not run.")
      .def(
          "mark_bad",
          [](Scheduler& s, const py::object& node) {
            check(s.mark_bad(id_of<node_id>("node", node)));
          },
          py::arg("node"), "The node gets no new task; its tasks continue.")
      .def(
          "mark_healthy",
          [](Scheduler& s, const py::object& node) {
            check(s.mark_healthy(id_of<node_id>("node", node)));
          },
          py::arg("node"), "The node gets new tasks again.")
      .def(
          "find",
          [](const Scheduler& s, const py::object& job) {
            return s.find(id_of<job_id>("job", job));
          },
          py::arg("job"), "Where the job runs; None if it does not run.")
      .def(
          "explain",
          [](const Scheduler& s, const task_request& task) { return value(s.explain(task)); },
          py::arg("task"), "Why the task waits, as a text for its user; empty if it fits now.")
      .def(
          "copy", [](const Scheduler& s) { return s; }, "A snapshot that is independent.")
      .def_property_readonly(
          "nodes",
          [](const Scheduler& s) {
            return named_nodes{s.nodes(), {}};
          },
          "A copy of the nodes as they are now.")
      .def_property_readonly("num_running", &Scheduler::num_running,
                             "The number of running tasks.");
}

}  // namespace

void bind_task_schedulers(py::module_& m) {
  py::class_<task_plan>(m, "TaskPlan", "What a scheduler of tasks decides about a task.")
      .def_property_readonly(
          "result", [](const task_plan& p) { return text_of(p.result); }, "\"bind\" or \"wait\".")
      .def_property_readonly(
          "where",
          [](const task_plan& p) {
            return p.result == plan_result::bind ? std::optional(p.where) : std::nullopt;
          },
          "Where the task would run; None if it waits.")
      .def_property_readonly(
          "reason",
          [](const task_plan& p) {
            return p.result == plan_result::wait
                       ? std::optional<std::string>(wait_reason_text(p.reason))
                       : std::nullopt;
          },
          "Why the task waits, as a clause for its user; None if it would run.");

  bind_scheduler<fgd>(m, "Fgd",
                      "FGD: each task goes where it adds least to the fragmentation of the GPUs.")
      .def(py::init([](const named_nodes& nodes, const task_mix& mix) {
             return value(fgd::create(nodes.nodes, fragmentation_gradient(fragmentation(mix))));
           }),
           py::arg("nodes"), py::arg("mix"), "A scheduler for a copy of these nodes.");

  using best_fit_scheduler = gpu_sharing_scheduler<best_fit>;
  bind_scheduler<best_fit_scheduler>(
      m, "BestFit", "Best fit: the node with the least CPU and GPU left after the placement.")
      .def(py::init([](const named_nodes& nodes) {
             return value(best_fit_scheduler::create(nodes.nodes, best_fit{}));
           }),
           py::arg("nodes"), "A scheduler for a copy of these nodes.");
}

}  // namespace apiary_python
