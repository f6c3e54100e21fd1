// apiary/tests/fgd/detail/reserved_nodes_test.cpp - what a node shows while tasks have reservations.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/detail/reserved_nodes.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>

TEST_CASE(
    "a node shows what is left beside running and reserved tasks, and never less than nothing") {
  using namespace apiary;
  node_table table;
  const node_id n = table.add({.host = {.cpu_milli = 8000, .memory_mib = 100}, .gpus = 2});
  const task_request victim{.cpu_milli = 5000, .memory_mib = 80, .gpus = 1, .gpu_milli = 700};
  const task_request small{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 200};
  const task_request wants{.cpu_milli = 6000, .memory_mib = 50, .gpus = 1, .gpu_milli = 600};
  table.place(victim, {n, 1});
  const node_table before = table;
  detail::reserved_nodes reserved;
  CHECK(!reserved.contains(n));
  reserved.reserve(table, wants, {n, 1});
  CHECK(reserved.contains(n));
  CHECK(table[n].left == resources{0, 0});
  CHECK(table[n].gpu_left[0] == 0);
  CHECK(table[n].gpu_left[1] == 1000);

  reserved.show(table, n);
  CHECK(table == before);
  reserved.hide(table, n);

  // The victim ends: what it had beyond the reservation is free.
  table.remove(victim, {n, 1});
  reserved.ended(table, victim, {n, 1});
  CHECK(table[n].left == resources{2000, 50});
  CHECK(table[n].gpu_left[0] == 400);

  // A small task starts on that, and a second reservation takes the rest.
  table.place(small, {n, 1});
  reserved.started(small, {n, 1});
  reserved.reserve(table, small, {n, 1});
  CHECK(table[n].left == resources{0, 50});
  CHECK(table[n].gpu_left[0] == 0);
  reserved.release(table, wants, {n, 1});
  CHECK(reserved.contains(n));
  CHECK(table[n].left == resources{6000, 100});
  CHECK(table[n].gpu_left[0] == 600);
  reserved.release(table, small, {n, 1});
  CHECK(!reserved.contains(n));
  CHECK(table[n].left == resources{7000, 100});
  CHECK(table[n].gpu_left[0] == 800);
  // Nodes without reservations are left alone.
  table.remove(small, {n, 1});
  reserved.ended(table, small, {n, 1});
  reserved.hide(table, n);
  CHECK(table[n].gpu_left[0] == 1000);
}
