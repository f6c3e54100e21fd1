// The simulator, and policies for it: queues of the library, and objects of Python.
// SPDX-License-Identifier: MIT
#include "bindings.h"
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placement.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <limits>
#include <optional>
#include <unordered_map>

namespace apiary_python {
namespace {

using namespace apiary;

constexpr std::uint64_t max_amount = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t max_ms = std::uint64_t{1} << 43;  // durations stay below 2^53 / 1000

// Jobs in order of arrival; job i has the id i.
struct job_table {
  std::vector<timed_job> jobs{};
};

job_table make_jobs(const py::object& arrival, const py::object& duration, const py::object& gpus,
                    const py::object& priority, const py::object& estimate) {
  const columns given{{"arrival", arrival},
                      {"duration", duration},
                      {"gpus", gpus},
                      {"priority", priority},
                      {"estimate", estimate.is_none() ? duration : estimate}};
  job_table made;
  for (std::size_t i = 0; i < given.rows(); ++i) {
    const auto runs = static_cast<time_ms>(given.at(1, i, max_ms));
    made.jobs.push_back(
        {.request = {.job = job_id(static_cast<std::uint32_t>(i)),
                     .priority = static_cast<std::int32_t>(given.at(3, i, 1'000'000'000)),
                     .gpus = static_cast<std::uint32_t>(given.at(2, i, max_amount)),
                     .estimate = static_cast<time_ms>(given.at(4, i, max_ms))},
         .arrival = static_cast<time_ms>(given.at(0, i, max_ms)),
         .duration = runs});
    if (i > 0 && made.jobs[i - 1].arrival > made.jobs[i].arrival)
      refuse("arrival is " + std::to_string(made.jobs[i].arrival) + " in row " + std::to_string(i) +
             ", after " + std::to_string(made.jobs[i - 1].arrival) + "; sort the jobs by arrival");
  }
  return made;
}

server_placer make_servers(const py::object& gpus, const py::object& servers_per_rack,
                           bool anywhere) {
  server_spec spec{.gpus = {},
                   .servers_per_rack = number("servers_per_rack", servers_per_rack),
                   .anywhere = anywhere};
  const columns given{{"gpus", gpus}};
  for (std::size_t i = 0; i < given.rows(); ++i)
    spec.gpus.push_back(static_cast<std::uint32_t>(given.at(0, i, max_amount)));
  return value(server_placer::create(spec));
}

using queue = batch_queue<server_placer>;

queue make_queue(const server_placer& servers, const std::string& rule, const std::string& order) {
  batch_options options;
  if (rule == "fifo") {
    options.rule = batch_options::rules::fifo;
  } else if (rule == "backfill") {
    options.rule = batch_options::rules::backfill;
  } else if (rule == "easy") {
    options.rule = batch_options::rules::easy;
  } else {
    refuse("rule is \"" + rule + "\"; it must be \"fifo\", \"backfill\" or \"easy\"");
  }
  if (order == "gpu_time") {
    options.order = batch_options::orders::gpu_time;
  } else if (order != "arrival") {
    refuse("order is \"" + order + "\"; it must be \"arrival\" or \"gpu_time\"");
  }
  return queue(servers, options);
}

// Calls the methods of a Python object as the simulator asks for them. An exception there ends the
// simulation and reaches the caller.
class python_policy {
 public:
  python_policy(py::object policy, std::uint32_t total_gpus)
      : policy_(std::move(policy)), total_gpus_(total_gpus) {}

  absl::Status submit(const job_request& job, time_ms now) {
    policy_.attr("submit")(job, now);
    waits_since_[job.job.value] = now;
    return absl::OkStatus();
  }
  absl::Status finish(job_id job, time_ms now) {
    policy_.attr("finish")(job.value, now);
    waits_since_.erase(job.value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id server, time_ms now) {
    std::vector<job_id> stopped;
    for (const py::handle job : policy_.attr("mark_bad")(server.value, now)) {
      stopped.push_back(id_of<job_id>("job", py::reinterpret_borrow<py::object>(job)));
      waits_since_[stopped.back().value] = now;
    }
    return stopped;
  }
  absl::Status mark_healthy(node_id server, time_ms now) {
    policy_.attr("mark_healthy")(server.value, now);
    return absl::OkStatus();
  }
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    for (const py::handle returned : policy_.attr("decide")(now)) {
      if (!py::isinstance<job_action>(returned))
        throw py::type_error(std::string("decide returned a list with a ") +
                             Py_TYPE(returned.ptr())->tp_name + "; it must be a list of Action");
      job_action action = returned.cast<job_action>();
      time_ms& since = waits_since_[action.job.value];
      if (action.what == job_action::verb::start)
        action.waited[delay_cause::capacity] = now - since;
      since = now;
      actions.push_back(std::move(action));
    }
    return absl::OkStatus();
  }
  [[nodiscard]] time_ms wake() const {
    if (!py::hasattr(policy_, "wake")) return max_time;
    const py::object at = policy_.attr("wake")();
    return at.is_none() ? max_time
                        : static_cast<time_ms>(number<std::uint64_t>("wake()", at, max_ms));
  }
  [[nodiscard]] std::uint32_t total_gpus() const { return total_gpus_; }

 private:
  py::object policy_;
  std::uint32_t total_gpus_;
  std::unordered_map<std::uint32_t, time_ms> waits_since_;
};
static_assert(JobScheduler<python_policy>);

// A simulation that has ended, with the jobs that it ran.
struct simulated {
  std::vector<timed_job> jobs{};
  simulation_result result{};
};

std::vector<outage> outages_of(const py::object& given) {
  std::vector<outage> outages;
  for (const py::handle item : given) {
    const auto [server, from, until] = item.cast<std::tuple<py::object, py::object, py::object>>();
    outages.push_back(
        {.node = id_of<node_id>("server", server),
         .from = static_cast<time_ms>(number<std::uint64_t>("from", from, max_ms)),
         .until = static_cast<time_ms>(number<std::uint64_t>("until", until, max_ms))});
  }
  return outages;
}

simulated run(const py::object& policy, const job_table& jobs, const py::object& start_cost,
              const py::object& until, const py::object& outages) {
  simulation_options options{
      .start_cost = static_cast<time_ms>(number<std::uint64_t>("start_cost", start_cost, max_ms))};
  if (!until.is_none())
    options.until = static_cast<time_ms>(number<std::uint64_t>("until", until, max_ms));
  const std::vector<outage> failures = outages_of(outages);
  const auto speed = [](const timed_job&, const job_placement&) { return full_speed; };
  const auto observe = [](const simulation_event&) {};
  simulated done{.jobs = jobs.jobs};
  if (py::isinstance<queue>(policy)) {
    queue scheduler = policy.cast<const queue&>();  // the caller's stays new
    done.result = value(simulate(scheduler, done.jobs, failures, options, speed, observe));
  } else {
    python_policy scheduler(policy, number("total_gpus", policy.attr("total_gpus")));
    done.result = value(simulate(scheduler, done.jobs, failures, options, speed, observe));
  }
  return done;
}

// A column of the result; -1 where a time is not known.
template <class Get>
py::array_t<std::int64_t> times(const simulated& s, Get get) {
  return array_of<std::int64_t>(s.result.jobs.size(), [&](std::size_t i) {
    const time_ms at = get(s.result.jobs[i]);
    return at == max_time ? -1 : at;
  });
}

template <class Get>
py::array_t<std::int64_t> column(const job_table& t, Get get) {
  return array_of<std::int64_t>(t.jobs.size(), [&](std::size_t i) { return get(t.jobs[i]); });
}

void bind_jobs(py::module_& m) {
  py::class_<job_request>(m, "Job", "What a policy knows of a job.")
      .def_property_readonly(
          "job", [](const job_request& r) { return r.job.value; }, "Its id.")
      .def_readonly("gpus", &job_request::gpus, "The whole GPUs that it wants.")
      .def_readonly("priority", &job_request::priority, "Its priority.")
      .def_readonly("estimate", &job_request::estimate, "How long it runs at most, in ms.");

  py::class_<job_table>(m, "JobTable", "Jobs in order of arrival. Times are in milliseconds.")
      .def(py::init(&make_jobs), py::kw_only(), py::arg("arrival"), py::arg("duration"),
           py::arg("gpus"), py::arg("priority") = 0, py::arg("estimate") = py::none(),
           "Each argument is an array, a list, or one number for all rows. Policies see the "
           "estimate, which is the duration unless it is given.")
      .def(
          "__len__", [](const job_table& t) { return t.jobs.size(); }, "The number of jobs.")
      .def_property_readonly(
          "arrival",
          [](const job_table& t) {
            return column(t, [](const timed_job& j) { return j.arrival; });
          },
          "When each job arrives.")
      .def_property_readonly(
          "duration",
          [](const job_table& t) {
            return column(t, [](const timed_job& j) { return j.duration; });
          },
          "How long each job runs.")
      .def_property_readonly(
          "gpus",
          [](const job_table& t) {
            return column(t, [](const timed_job& j) { return std::int64_t{j.request.gpus}; });
          },
          "The GPUs of each job.");

  py::class_<job_action>(m, "Action", "What a policy tells the simulator to do with a job.")
      .def_static(
          "start",
          [](const py::object& job, const job_placement& where) {
            return job_action{.job = id_of<job_id>("job", job), .where = where};
          },
          py::arg("job"), py::arg("where"), "The job starts, or goes on, on these GPUs.")
      .def_static(
          "suspend",
          [](const py::object& job) {
            return job_action{.what = job_action::verb::suspend, .job = id_of<job_id>("job", job)};
          },
          py::arg("job"), "The job stops, keeps its progress and waits.");
}

void bind_servers(py::module_& m) {
  py::class_<server_placer>(m, "Servers",
                            "Servers and their idle GPUs. A job goes to the fewest servers, and to "
                            "those with the fewest idle GPUs.")
      .def(py::init(&make_servers), py::arg("gpus"), py::kw_only(), py::arg("servers_per_rack") = 1,
           py::arg("anywhere") = false,
           "`gpus`: of each server. `anywhere`: a job may span more servers than it must.")
      .def(
          "propose",
          [](const server_placer& s, const job_request& job) { return value(s.propose(job)); },
          py::arg("job"), "Where the job would run; None if it does not fit now.")
      .def(
          "commit",
          [](server_placer& s, const job_request& job, const job_placement& where) {
            check(s.commit(job, where));
          },
          py::arg("job"), py::arg("where"),
          "The job has these GPUs from now on. AbortedError: they are not idle.")
      .def(
          "finish",
          [](server_placer& s, const py::object& job) {
            check(s.finish(id_of<job_id>("job", job)));
          },
          py::arg("job"), "The GPUs of the job are idle again.")
      .def(
          "mark_bad",
          [](server_placer& s, const py::object& server) {
            check(s.mark_bad(id_of<node_id>("server", server)));
          },
          py::arg("server"), "The server gets no new job.")
      .def(
          "mark_healthy",
          [](server_placer& s, const py::object& server) {
            check(s.mark_healthy(id_of<node_id>("server", server)));
          },
          py::arg("server"), "The server gets new jobs again.")
      .def(
          "jobs_on",
          [](const server_placer& s, const py::object& server) {
            std::vector<std::uint32_t> jobs;
            for (const job_id job : s.jobs_on(id_of<node_id>("server", server)))
              jobs.push_back(job.value);
            return jobs;
          },
          py::arg("server"), "The jobs on a server, ascending.")
      .def(
          "copy", [](const server_placer& s) { return s; }, "A snapshot that is independent.")
      .def_property_readonly("idle_gpus", &server_placer::idle_gpus,
                             "The idle GPUs of healthy servers.")
      .def_property_readonly("total_gpus", &server_placer::total_gpus, "All GPUs.");
}

}  // namespace

void bind_simulator(py::module_& m) {
  bind_jobs(m);
  bind_servers(m);
  py::class_<queue>(m, "BatchQueue", "A queue of the library: FIFO, backfilling or EASY.")
      .def(py::init(&make_queue), py::arg("servers"), py::kw_only(), py::arg("rule") = "easy",
           py::arg("order") = "arrival",
           "`rule`: \"fifo\", \"backfill\" (every job that fits) or \"easy\" (every job that does "
           "not delay the first one). `order`: \"arrival\" or \"gpu_time\".");

  py::class_<simulated>(m, "SimulationResult",
                        "The history of each job, in milliseconds; -1 if it did not happen.")
      .def_property_readonly(
          "started",
          [](const simulated& s) { return times(s, [](const auto& j) { return j.started; }); },
          "The first start of each job.")
      .def_property_readonly(
          "ended",
          [](const simulated& s) { return times(s, [](const auto& j) { return j.ended; }); },
          "The end of each job.")
      .def_property_readonly(
          "waited",
          [](const simulated& s) {
            return times(s, [](const auto& j) { return j.waited.total(); });
          },
          "How long each job waited in all.")
      .def_property_readonly(
          "suspended",
          [](const simulated& s) {
            return array_of<std::uint32_t>(
                s.result.jobs.size(), [&](std::size_t i) { return s.result.jobs[i].suspended; });
          },
          "How often each job was suspended.")
      .def_property_readonly(
          "utilization",
          [](const simulated& s) { return metrics_of(s.result, s.jobs).utilization; },
          "The mean share of GPUs in use, from 0 to 1.")
      .def_property_readonly(
          "mean_wait", [](const simulated& s) { return metrics_of(s.result, s.jobs).delay.mean; },
          "The mean wait of the jobs that ended.")
      .def_property_readonly(
          "events", [](const simulated& s) { return s.result.events; }, "The number of events.")
      .def_property_readonly(
          "digest", [](const simulated& s) { return s.result.log.value(); },
          "A hash of all events: equal runs have equal digests.");

  m.def(
      "simulate", &run, py::arg("policy"), py::arg("jobs"), py::kw_only(),
      py::arg("start_cost") = 0, py::arg("until") = py::none(), py::arg("outages") = py::tuple(),
      "Runs the jobs under a policy: a BatchQueue, or an object of yours with submit(job, now), "
      "finish(job_id, now), decide(now), which returns a list of Action, and total_gpus; with "
      "outages also mark_bad(server, now), which returns the jobs that stopped, and "
      "mark_healthy(server, now); if it must decide later without an event also wake(), which "
      "returns when. `outages`: (server, from, until), by `from`. An exception of the policy ends "
      "the simulation.");
}

}  // namespace apiary_python
