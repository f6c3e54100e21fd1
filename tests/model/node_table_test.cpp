// apiary/tests/model/node_table_test.cpp - nodes, their devices, and the sizes of their tasks.
// SPDX-License-Identifier: MIT
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace apiary;

TEST_CASE("a new node is free and healthy") {
  node_table nodes;
  const node_id a = nodes.add({{96000, 393216}, 8, 2});
  const node_id b = nodes.add({{32000, 1024}, 0, 0});
  CHECK(nodes.size() == 2);
  CHECK(nodes.total_gpus() == 8);
  CHECK(nodes[a].left == resources{96000, 393216});
  CHECK(nodes[a].each_gpu().size() == 8);
  CHECK(nodes[a].free_gpus() == 8);
  CHECK(nodes[a].total_gpu_left() == 8000);
  CHECK(nodes[a].healthy);
  CHECK(nodes[b].each_gpu().empty());
  CHECK(nodes.shape(b) == node_shape{{32000, 1024}, 0, 0});
  CHECK(nodes.contains(b));
  CHECK_FALSE(nodes.contains(node_id(2)));
  CHECK_FALSE(nodes.contains(node_id()));
}

TEST_CASE("a model is accessible only on a node that has GPUs") {
  node_table nodes;
  const node_id a = nodes.add({{1, 1}, 2, 5});
  const node_id b = nodes.add({{1, 1}, 0, 0});
  CHECK(nodes[a].accessible(any_model));
  CHECK(nodes[a].accessible(model_set{1} << 5));
  CHECK_FALSE(nodes[a].accessible(model_set{1} << 4));
  CHECK_FALSE(nodes[b].accessible(any_model));
}

TEST_CASE("a shape fits a task that accepts its model, and no other") {
  const node_shape shape{{1000, 1000}, 2, 5};
  CHECK(shape.fits({.gpus = 2, .gpu_milli = whole_gpu, .models = model_set{1} << 5}));
  CHECK_FALSE(shape.fits({.gpus = 2, .gpu_milli = whole_gpu, .models = model_set{1} << 4}));
  CHECK_FALSE(shape.fits({.gpus = 3, .gpu_milli = whole_gpu}));
  CHECK_FALSE(shape.fits({.cpu_milli = 1001}));
  CHECK(shape.fits({.cpu_milli = 1000, .models = 0}));  // without GPUs any model will do
}

TEST_CASE("a GPU that is used by a thousandth is not free") {
  node_table nodes;
  const node_id n = nodes.add({{1, 1}, 2, 0});
  nodes.place({.gpus = 1, .gpu_milli = 1}, {n, 1});
  CHECK(nodes[n].free_gpus() == 1);
  CHECK(nodes[n].first_free_gpus(1) == 2);
}

TEST_CASE("no task is placed on a GPU behind the last one") {
  node_table nodes;
  for (const std::uint32_t gpus : {std::uint32_t{1}, max_gpus_per_node}) {
    const node_id n = nodes.add({{1, 1}, gpus, 0});
    const task_request task{.gpus = 1, .gpu_milli = 1};
    CHECK(nodes.can_place(task, {n, 1U << (gpus - 1)}));
    CHECK_FALSE(nodes.can_place(task, {n, 1U << gpus}));
  }
}

TEST_CASE("an erased node has nothing, and its id can be given again") {
  node_table nodes;
  const node_id a = nodes.add({{1000, 1000}, 4, 1});
  const node_id b = nodes.add({{2000, 2000}, 2, 3});
  nodes.place({.cpu_milli = 5, .gpus = 1, .gpu_milli = 300}, {a, 1});
  nodes.erase(a);
  CHECK(nodes.size() == 2);
  CHECK(nodes.total_gpus() == 2);
  CHECK_FALSE(nodes.contains(a));
  CHECK(nodes.contains(b));
  CHECK_FALSE(nodes[a].fits({}));
  CHECK_FALSE(nodes.can_place({}, {a, 0}));
  CHECK_FALSE(nodes.is_free({}, {a, 0}));
  CHECK(nodes.shape(a) == node_shape{});
  nodes.insert(a, {{3000, 3000}, 1, 0});
  CHECK(nodes.contains(a));
  CHECK(nodes.total_gpus() == 3);
  node_table fresh;
  fresh.add({{3000, 3000}, 1, 0});
  fresh.add({{2000, 2000}, 2, 3});
  CHECK(nodes == fresh);
}

TEST_CASE("a node that is resized keeps what its tasks use") {
  node_table nodes;
  const node_id n = nodes.add({{1000, 500}, 4, 1});
  const task_request task{.cpu_milli = 300, .memory_mib = 200, .gpus = 1, .gpu_milli = 700};
  nodes.place(task, {n, 0b10});
  CHECK(nodes.used(n) == resources{300, 200});
  CHECK(nodes.used_gpus(n) == 2);
  CHECK(nodes.can_resize(n, {{300, 200}, 2, 1}));
  CHECK_FALSE(nodes.can_resize(n, {{299, 200}, 2, 1}));
  CHECK_FALSE(nodes.can_resize(n, {{300, 199}, 2, 1}));
  CHECK_FALSE(nodes.can_resize(n, {{300, 200}, 1, 1}));
  for (const std::uint32_t gpus : {2U, 16U, 5U, 2U, 4U}) {
    const node_shape shape{{400 + gpus, 500}, gpus, 1};
    nodes.resize(n, shape);
    node_table fresh;
    fresh.add(shape);
    fresh.place(task, {n, 0b10});
    CHECK(nodes == fresh);
  }
}

TEST_CASE("a bad node has what is free, but no task can be placed there") {
  node_table nodes;
  const node_id n = nodes.add({{10, 10}, 2, 0});
  const task_request task{.cpu_milli = 10, .gpus = 2, .gpu_milli = whole_gpu};
  nodes[n].healthy = false;
  CHECK_FALSE(nodes[n].fits(task));
  CHECK(nodes[n].fits_if_healthy(task));
  CHECK_FALSE(nodes.can_place(task, {n, 0b11}));
  CHECK(nodes.is_free(task, {n, 0b11}));
  nodes.place(task, {n, 0b11});
  CHECK_FALSE(nodes[n].fits_if_healthy(task));
  CHECK_FALSE(nodes.is_free(task, {n, 0b11}));
}

TEST_CASE("the sizes of the tasks on a node are a set with counts behind it") {
  node_table nodes;
  const node_id n = nodes.add({{1, 1}, max_gpus_per_node, 0});
  const node_table empty = nodes;
  const task_request part{.gpus = 1, .gpu_milli = 300};
  const task_request most{.gpus = max_gpus_per_node - 1, .gpu_milli = whole_gpu};
  const placement first{n, 1};
  const placement others{n, (1U << max_gpus_per_node) - 2};
  nodes.place(part, first);
  nodes.place(part, first);
  nodes.place(most, others);
  CHECK(nodes[n].task_sizes == (1U | 1U << most.gpus));
  nodes.remove(part, first);
  CHECK(nodes[n].task_sizes == (1U | 1U << most.gpus));
  nodes.remove(part, first);
  CHECK(nodes[n].task_sizes == 1U << most.gpus);
  CHECK_FALSE(nodes == empty);
  nodes.remove(most, others);
  CHECK(nodes == empty);
}

}  // namespace
