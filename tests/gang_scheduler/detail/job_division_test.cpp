// apiary/tests/gang_scheduler/detail/job_division_test.cpp - jobs divided into tasks, and the errors of those that never fit.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/detail/job_division.h>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using apiary::job_id;
using apiary::job_request;
using apiary::resources;

TEST_CASE("job_division: tasks of the largest node of the models, and one with the rest") {
  apiary::detail::job_division d;
  CHECK(d.task_gpus(8, {}) == 1);  // without nodes
  d.add("a", 8);
  d.add("b", 4);
  CHECK(d.task_gpus(16, {}) == 8);
  CHECK(d.task_gpus(3, {}) == 3);
  CHECK(d.task_gpus(16, {"b"}) == 4);
  CHECK(d.task_gpus(16, {"c"}) == 8);
  CHECK((d.has(12, {}) && !d.has(13, {})));
  CHECK((d.has(4, {"b"}) && !d.has(5, {"b"})));

  const job_request job{.job = job_id(7), .priority = -2, .gpus = 10};
  const auto gang = apiary::detail::job_division::gang_of(job, 4, {1500, 10}, {"b"});
  CHECK(gang.job == apiary::job_key(7));
  CHECK(gang.priority == -2);
  CHECK(gang.filter.models == std::vector<std::string>{"b"});
  REQUIRE(gang.gang.groups.size() == 2);
  CHECK(gang.gang.groups[0].tasks == 2);
  CHECK(gang.gang.groups[0].gpus == 4);
  CHECK(gang.gang.groups[0].host == resources{6000, 40});
  CHECK(gang.gang.groups[1].tasks == 1);
  CHECK(gang.gang.groups[1].gpus == 2);
  CHECK(gang.gang.groups[1].host == resources{3000, 20});
}

TEST_CASE("job_division: the errors name the job, what it needs and what the cluster has") {
  apiary::detail::job_division d;
  d.add("a", 8);
  const job_request job{.job = job_id(7), .gpus = 8};
  CHECK(d.check_products(job, {536'870'911, 1}, {}).ok());
  CHECK(d.check_products(job, {536'870'912, 1}, {}).message() ==
        "job 7 asks for 8 GPUs with 536870.912 cores and 1 MiB each; a task of 8 GPUs needs "
        "4294967296 thousandths of a core, more than 4294967295");
  const job_request wide{.job = job_id(8), .gpus = 9};
  CHECK(d.never_fits(wide, {}, {}, 8).message() ==
        "job 8 asks for 9 GPUs, which do not fit even in the idle cluster; it has 8 GPUs");
  CHECK(d.never_fits(wide, {}, {"a"}, 12).message() ==
        "job 8 asks for 9 GPUs of model \"a\", which do not fit even in the idle cluster; it has 8 "
        "such GPUs on nodes without taints");
  CHECK(d.never_fits({.job = job_id(9), .gpus = 1}, {1000, 0}, {}, 8).message() ==
        "job 9 asks for 1 GPU with 1 core, which does not fit even in the idle cluster; each task, "
        "even of 1 GPU, must run on one node with its CPU and memory");
}
