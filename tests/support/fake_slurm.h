// apiary/tests/support/fake_slurm.h - Slurm as far as its scheduler sees it, for tests of examples/hosts/slurm.
// SPDX-License-Identifier: MIT
#pragma once

#include "../../examples/hosts/slurm/slurm_records.h"
#include "../../examples/hosts/slurm/slurm_scheduler.h"
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace apiary_test {

using apiary_slurm::action;
using apiary_slurm::job_phase;
using apiary_slurm::job_record;
using apiary_slurm::node_record;

inline const std::string slurm_topology =
    "SwitchName=rack0 Level=0 LinkSpeed=1 Nodes=n[0-1] \n"
    "SwitchName=rack1 Level=0 LinkSpeed=1 Nodes=n[2-3] \n"
    "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=rack[0-1] \n";

// Slurm as far as the scheduler sees it: it carries out calls when the test says so.
struct fake_slurm {
  std::vector<node_record> nodes{};
  std::vector<job_record> jobs{};

  fake_slurm() {
    for (const char* name : {"n0", "n1", "n2", "n3"})
      nodes.push_back({.name = name, .gres = "gpu:v100:8(S:0-1)", .features = "fast", .cpus = 16});
  }
  job_record& submit(std::uint32_t id, std::uint32_t num_nodes, int gpus, int priority = 0) {
    jobs.push_back({.id = id,
                    .num_nodes = num_nodes,
                    .cpus = num_nodes,
                    .tres_per_node = "gres:gpu:" + std::to_string(gpus),
                    .comment = "priority=" + std::to_string(priority)});
    return jobs.back();
  }
  // Slurm itself has started a job on one node.
  job_record& run_on(const std::string& node, std::uint32_t id, const std::string& gpus) {
    jobs.push_back({.id = id,
                    .phase = job_phase::running,
                    .num_nodes = 1,
                    .cpus = 1,
                    .nodes = {node},
                    .gres_detail = {"gpu:v100:" + gpus}});
    return jobs.back();
  }
  job_record& job(std::uint32_t id) {
    for (job_record& one : jobs)
      if (one.id == id) return one;
    FAIL("no job " << id);
    return jobs.front();
  }
  void apply(const std::vector<action>& todo) {
    for (const action& call : todo) {
      job_record& one = job(call.job);
      if (!call.comment.empty()) one.comment = call.comment;
      if (call.what == action::kind::release) {
        one.phase = job_phase::released;
        one.nodes = call.nodes;
      } else if (call.what == action::kind::take_back || call.what == action::kind::requeue) {
        one.phase = job_phase::held;
        one.nodes.clear();
      }
    }
  }
  void start(std::uint32_t id) {
    job_record& one = job(id);
    REQUIRE(one.phase == job_phase::released);
    one.phase = job_phase::running;
    const std::string gpus = one.tres_per_node.substr(5);
    one.gres_detail.assign(one.nodes.size(), gpus + "(IDX:0)");
  }
};

// One round; the calls in words.
template <class Scheduler>
std::vector<std::string> calls(Scheduler& scheduler, fake_slurm& slurm, apiary::time_ms now = 0) {
  const std::vector<action> todo = scheduler.round(slurm.nodes, slurm.jobs, now);
  CHECK(scheduler.decider().audit() == std::vector<std::string>{});
  slurm.apply(todo);
  std::vector<std::string> words;
  for (const action& call : todo) {
    std::string text = std::to_string(call.job);
    if (call.what == action::kind::release) text += " release";
    if (call.what == action::kind::requeue) text += " requeue";
    if (call.what == action::kind::take_back) text += " take back";
    if (call.what == action::kind::comment) text += " " + call.comment;
    for (const std::string& node : call.nodes) text += " " + node;
    words.push_back(text);
  }
  return words;
}

}  // namespace apiary_test
