// apiary/tests/metric/fragmentation_data_test.cpp - published values on the typical tasks of the
// openb trace.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/published_fragmentation.h"
#include "support/data.h"
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace {

using namespace apiary;
using namespace example;

const std::string folder = apiary_test::data_folder("openb");

struct trace {
  gpu_model_names models;
  task_mix mix;
  std::size_t kinds = 0;

  explicit trace(const std::string& name) {
    const trace_cluster nodes =
        read_nodes(line_reader::open(folder + "openb_node_list_gpu_node.csv").value(), models)
            .value();
    const auto tasks =
        read_tasks(line_reader::open(folder + "openb_pod_list_" + name + ".csv").value(), models)
            .value();
    CHECK(nodes.nodes.total_gpus() == 6212);
    mix = task_mix::from_history(workload::kinds(tasks));
    kinds = task_mix::from_history(workload::kinds(tasks), 100).tasks().size();
  }

  [[nodiscard]] node_state node(const std::string& model, std::uint32_t cpu_milli,
                                std::initializer_list<milli_gpu> left) const {
    node_state state;
    state.model = static_cast<gpu_model>(
        std::find(models.names().begin(), models.names().end(), model) - models.names().begin());
    REQUIRE(state.model < models.names().size());
    state.left.cpu_milli = cpu_milli;
    for (const milli_gpu l : left) state.gpu_left[state.gpus++] = l;
    return state;
  }

  // Expected values are given to ten decimals.
  void check(const node_state& state, double expected) const {
    CHECK(std::fabs(fragmentation(mix)(state) - expected) < 0.51e-10);
    CHECK(std::fabs(published_fragmentation(mix)(state) - expected) < 0.51e-10);
  }
};

TEST_CASE("the typical tasks of the default trace") {
  const trace t("default");
  CHECK(t.kinds == 91);
  CHECK(t.mix.tasks().size() == 35);
  CHECK(t.mix.total_weight() == 7766);
}

TEST_CASE("fragmentation of single nodes under the default trace") {
  const trace t("default");
  t.check(t.node("G2", 96000, {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}), 1087.8186968839);
  t.check(t.node("G2", 11350, {1000, 1000, 190, 530, 0, 0, 0, 0}), 1571.6997167139);
  t.check(t.node("T4", 3000, {1000, 400}), 1400);
  t.check(t.node("P100", 16000, {1000, 1000}), 359.2583054339);
  t.check(t.node("V100M16", 8000, {1000}), 605.2021632758);
  t.check(t.node("G3", 128000, {1000, 1000, 1000, 1000, 500, 350, 320, 90}), 1666.3340200876);
}

TEST_CASE("fragmentation where tasks name GPU models") {
  const trace t("gpuspec33");
  t.check(t.node("G2", 96000, {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}), 2931.3371192566);
  t.check(t.node("T4", 104000, {1000, 1000}), 489.6747547754);
}

}  // namespace
