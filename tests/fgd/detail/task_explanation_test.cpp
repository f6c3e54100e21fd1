// apiary/tests/fgd/detail/task_explanation_test.cpp - why a task waits, against counts by plain loops.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace task_explanation_tests {
namespace {

using namespace apiary;

std::string say(std::uint32_t n, const std::string& one, const std::string& several,
                const std::string& behind) {
  return n == 0 ? "" : ", " + std::to_string(n) + (n == 1 ? one : several) + behind;
}
std::string freest(std::uint32_t has, std::uint32_t needs, const std::string& unit) {
  return " (the freest has " + std::to_string(has) + unit + "; it needs " + std::to_string(needs) +
         unit + ")";
}
std::string freest_cpu(std::uint32_t has, std::uint32_t needs) {
  return " (the freest has " + detail::cores(has) + "; it needs " + detail::cores(needs) + ")";
}

// The first GPUs, CPU or memory that the task lacks on a node, and the most that one of the nodes has.
struct naive_lack {
  std::uint32_t nodes = 0, most = 0;
  void add(std::uint32_t left) {
    ++nodes;
    most = std::max(most, left);
  }
};

// By the words: nodes of one model that could run the task.
std::string naive_shortage(const node_table& nodes, const task_request& task,
                           const summary_bitset* suggested, const std::vector<node_id>& could) {
  naive_lack gpus, cpu, memory;
  std::uint32_t bad = 0, elsewhere = 0, elsewhere_fit = 0;
  for (const node_id n : could) {
    const node_state& node = nodes[n];
    std::uint32_t enough = 0, largest = 0;
    for (std::uint32_t d = 0; d < node.gpus; ++d) {
      enough += node.gpu_left[d] >= task.gpu_milli ? 1U : 0U;
      largest = std::max<std::uint32_t>(largest, node.gpu_left[d]);
    }
    const bool has_gpus = task.gpus == 0 || enough >= task.gpus;
    const bool has_host =
        node.left.cpu_milli >= task.cpu_milli && node.left.memory_mib >= task.memory_mib;
    if (suggested != nullptr && !suggested->test(n.value)) {
      ++elsewhere;
      elsewhere_fit += node.healthy && has_gpus && has_host ? 1U : 0U;
    } else if (!node.healthy) {
      ++bad;
    } else if (!has_gpus) {
      gpus.add(task.gpu_milli < whole_gpu ? largest : enough);
    } else if (node.left.cpu_milli < task.cpu_milli) {
      cpu.add(node.left.cpu_milli);
    } else {
      memory.add(node.left.memory_mib);
    }
  }
  return (could.size() == 1 ? "of 1 node" : "of " + std::to_string(could.size()) + " nodes") +
         " that could run it" +
         say(gpus.nodes, " lacks", " lack",
             task.gpu_milli < whole_gpu
                 ? " a GPU with enough left" + freest(gpus.most, task.gpu_milli, "/1000")
                 : " free GPUs" + freest(gpus.most, task.gpus, "")) +
         say(cpu.nodes, " lacks", " lack", " CPU" + freest_cpu(cpu.most, task.cpu_milli)) +
         say(memory.nodes, " lacks", " lack",
             " memory" + freest(memory.most, task.memory_mib, " MiB")) +
         say(bad, " is bad", " are bad", "") +
         say(elsewhere, " is not suggested", " are not suggested",
             " (" + std::to_string(elsewhere_fit) + " could run it now)");
}

// The most of something that one of these nodes has, or -1 if there is no such node.
template <class Is, class Of>
std::int64_t most_of(const node_table& nodes, const Is& is, const Of& of) {
  std::int64_t most = -1;
  for (const node_id n : nodes.ids())
    if (nodes.contains(n) && is(nodes.shape(n)))
      most = std::max(most, std::int64_t{of(nodes.shape(n))});
  return most;
}

// By the words: which limit keeps the task from every node.
std::string naive_limit(const node_table& nodes, const task_request& task) {
  const bool any_gpu_model = task.models == any_model;
  const auto any = [](const node_shape&) { return true; };
  const auto with_model = [&](const node_shape& s) {
    return s.gpus > 0 && (task.models >> s.model & 1) != 0;
  };
  const auto with_gpus = [&](const node_shape& s) {
    return task.gpus == 0 || (with_model(s) && s.gpus >= task.gpus);
  };
  const auto memory = [](const node_shape& s) { return s.host.memory_mib; };
  const auto cpu = [](const node_shape& s) { return s.host.cpu_milli; };
  const std::string models = any_gpu_model ? "" : " of the models that it accepts";
  const std::string asked = std::to_string(task.gpus) + (task.gpus == 1 ? " GPU" : " GPUs");
  const auto too_much = [&](const auto& is, const std::string& node) -> std::string {
    const std::int64_t mib = most_of(nodes, is, memory);
    const std::int64_t milli = most_of(nodes, is, cpu);
    if (task.memory_mib > mib)
      return "it requests " + std::to_string(task.memory_mib) + " MiB of memory; " + node +
             " has at most " + std::to_string(mib) + " MiB";
    if (task.cpu_milli > milli)
      return "it requests " + detail::cores(task.cpu_milli) + "; " + node + " has at most " +
             detail::cores(static_cast<std::uint32_t>(milli));
    return "";
  };
  if (most_of(nodes, any, cpu) < 0) return "the cluster has no node";
  if (const std::string why = too_much(any, "a node"); !why.empty()) return why;
  if (task.gpus > 0 && most_of(nodes, with_model, cpu) < 0) return "no node has a GPU" + models;
  if (most_of(nodes, with_gpus, cpu) < 0)
    return "it requests " + asked + models + "; a node has at most " +
           std::to_string(most_of(nodes, with_model, [](const node_shape& s) { return s.gpus; }));
  const std::string why = too_much(with_gpus, "a node with " + asked + models);
  return why.empty() ? "no node has all the CPU, memory and GPUs that it requests" : why;
}

std::string naive_explanation(const node_table& nodes, const task_request& task,
                              const summary_bitset* suggested) {
  std::map<std::uint32_t, std::vector<node_id>> could;  // by model
  bool has_models = false;
  for (const node_id n : nodes.ids()) {
    if (!nodes.contains(n)) continue;
    has_models = has_models || (nodes.shape(n).gpus > 0 && nodes.shape(n).model != 0);
    if (!nodes.shape(n).fits(task)) continue;
    could[task.gpus > 0 ? nodes.shape(n).model : 0].push_back(n);
    if (nodes[n].fits(task) && (suggested == nullptr || suggested->test(n.value))) return "";
  }
  if (could.empty()) return "never: " + naive_limit(nodes, task);
  std::string text;
  for (const auto& [model, of_model] : could) {
    text += text.empty() ? "not now: " : "; ";
    if (task.gpus > 0 && has_models) text += "GPU model " + std::to_string(model) + ": ";
    text += naive_shortage(nodes, task, suggested, of_model);
  }
  return text;
}

TEST_CASE("task_explanation: words for amounts") {
  CHECK(detail::cores(1'000) == "1 core");
  CHECK(detail::cores(0) == "0 cores");
  CHECK(detail::cores(500) == "0.5 cores");
  CHECK(detail::cores(2'050) == "2.05 cores");
  CHECK(detail::cores(12'345) == "12.345 cores");
  CHECK(detail::gpu_count(1) == "1 GPU");
  CHECK(detail::gpu_count(2) == "2 GPUs");
}

TEST_CASE("task_explanation: the sentence has what plain loops count") {
  std::map<std::string, int> kinds;  // of the sentences, by their first words
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(4'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    node_table nodes;
    for (std::uint32_t n = random.uniform(6); n > 0; --n)
      nodes.add({.host = {1'000 * random.uniform(4), 500 * random.uniform(4)},
                 .gpus = random.uniform(5),
                 .model = static_cast<gpu_model>(random.uniform(4) == 0 ? 2 : 0)});
    summary_bitset suggested(nodes.size());
    for (const node_id n : nodes.ids()) {
      node_state& node = nodes[n];
      for (std::uint32_t d = 0; d < node.gpus; ++d)
        if (random.uniform(2) == 0)
          node.gpu_left[d] = static_cast<milli_gpu>(100 * random.uniform(11));
      if (random.uniform(2) == 0) node.left.cpu_milli = random.uniform(node.left.cpu_milli + 1);
      if (random.uniform(3) == 0) node.left.memory_mib = random.uniform(node.left.memory_mib + 1);
      if (random.uniform(5) == 0) node.healthy = false;
      if (random.uniform(3) > 0) suggested.set(n.value);
      if (random.uniform(8) == 0) nodes.erase(n);
    }
    for (int times = 0; times < 4; ++times) {
      task_request task{.cpu_milli = 500 * random.uniform(7),
                        .memory_mib = 250 * random.uniform(7),
                        .gpus = random.uniform(6)};
      if (task.gpus > 0) task.gpu_milli = whole_gpu;
      if (task.gpus == 1 && random.uniform(2) == 0)
        task.gpu_milli = static_cast<milli_gpu>(100 + 100 * random.uniform(9));
      if (random.uniform(3) == 0) task.models = random.uniform(2) == 0 ? 1 : 4;
      const summary_bitset* const on = random.uniform(2) == 0 ? nullptr : &suggested;
      const std::string text = detail::explain_task(nodes, task, on);
      REQUIRE(text == naive_explanation(nodes, task, on));
      ++kinds[text.substr(0, 18)];
    }
  }
  for (const char* kind : {"", "never: the cluster", "never: it requests", "never: no node has",
                           "not now: of 1 node", "not now: of 2 node", "not now: GPU model"})
    CHECK_MESSAGE((kinds[kind] > 0 || apiary_test::is_quick()), kind);
}

}  // namespace
}  // namespace task_explanation_tests
