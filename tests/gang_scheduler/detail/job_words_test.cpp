// apiary/tests/gang_scheduler/detail/job_words_test.cpp - what a job needs, in words, and the GPUs of nodes.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/detail/job_division.h>

#include <doctest/doctest.h>

#include <string>
#include <vector>

TEST_CASE("by_node: each node once, with the GPUs of all its tasks") {
  using apiary::node_id;
  using apiary::placement;
  CHECK(apiary::detail::by_node({}).empty());
  const apiary::job_placement all =
      apiary::detail::by_node({{node_id(7), 3}, {node_id(2), 1}, {node_id(7), 12}});
  CHECK(all == apiary::job_placement{{node_id(2), 1}, {node_id(7), 15}});
}

TEST_CASE("text_of_demand: GPUs, cores, memory and models, each if the job names it") {
  const auto text = [](std::uint32_t gpus, apiary::resources per_gpu,
                       const std::vector<std::string>& models = {}) {
    return apiary::detail::text_of_demand(gpus, per_gpu, models);
  };
  CHECK(text(1, {}) == "1 GPU");
  CHECK(text(8, {}) == "8 GPUs");
  CHECK(text(1, {1000, 0}) == "1 GPU with 1 core");
  CHECK(text(8, {2500, 65536}) == "8 GPUs with 2.5 cores and 64 GiB each");
  CHECK(text(2, {0, 1000}) == "2 GPUs with 1000 MiB each");
  CHECK(text(2, {}, {"a", "b"}) == "2 GPUs of model \"a\" or \"b\"");
  CHECK(text(1, {250, 0}, {"a"}) == "1 GPU with 0.25 cores, of model \"a\"");
}

TEST_CASE("node_sizes: the GPUs of all nodes, and of those of some models") {
  apiary::detail::node_sizes sizes;
  CHECK(sizes.of({}).total == 0);
  sizes.add("a", 8);
  sizes.add("b", 4);
  sizes.add("b", 2);
  sizes.add("", 16);
  const auto check = [&](const std::vector<std::string>& models, unsigned total, unsigned most) {
    CHECK(sizes.of(models).total == total);
    CHECK(sizes.of(models).most == most);
  };
  check({}, 30, 16);
  check({"a"}, 8, 8);
  check({"b", "c", "b"}, 6, 4);
  check({"b", "a"}, 14, 8);
  check({"c"}, 0, 0);
}
