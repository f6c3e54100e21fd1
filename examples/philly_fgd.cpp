// How do gangs of whole GPUs and tasks of half GPUs share nodes? FGD keeps the halves together. A
// gang collects GPUs as they become idle. A tenant that needs its quota preempts a tenant that
// exceeds its own.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/philly/philly_fgd.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

using pool = gpu_sharing_pool<fragmentation_gradient>;
bool start_task(philly_fgd& p, std::uint32_t id) {
  const task_request half{.job = job_id(id), .cpu_milli = 2000, .gpus = 1, .gpu_milli = 500};
  return p.use_pool([&](pool& shared) {
    const auto plan = shared.propose(half);
    if (!plan.ok() || !shared.commit(half, *plan).ok()) return false;
    std::printf("       task %u: node %u GPUs %#x\n", id, plan->where.node.value,
                plan->where.gpu_mask);
    return true;
  });
}
bool end_task(philly_fgd& p, std::uint32_t id) {
  std::printf("       task %u ends\n", id);
  return p.use_pool([&](pool& shared) { return shared.finish(job_id(id)).ok(); });
}
bool submit(philly_fgd& p, std::uint32_t job, std::uint32_t t, std::uint32_t gpus, int now) {
  return p.submit({.job = job_id(job), .tenant = tenant_id(t), .gpus = gpus}, now).ok();
}
bool decide(philly_fgd& p, int now) {
  std::vector<job_action> actions;
  if (!p.decide(now, actions).ok()) return false;
  for (const job_action& a : actions) {
    const bool starts = a.what == job_action::verb::start;
    std::printf("%4d s %s job %u", now, starts ? "start" : "suspend", a.job.value);
    for (const placement& part : a.where)
      std::printf("  node %u GPUs %#x", part.node.value, part.gpu_mask);
    if (starts) std::printf("  after %d s", static_cast<int>(a.waited.total()));
    std::printf("\n");
  }
  for (std::uint32_t job = 0; job < 5; ++job) {
    const auto stands = p.find(job_id(job));
    if (!stands || stands->phase == philly_fgd::phase::run) continue;
    std::printf("%4d s job %u waits and holds %u\n", now, job, stands->held);
  }
  return true;
}

}  // namespace

int main() {
  node_table nodes;
  for (int i = 0; i < 4; ++i) nodes.add({.host = {.cpu_milli = 32'000}, .gpus = 4});
  const fragmentation metric(task_mix({{{.cpu_milli = 2000, .gpus = 1, .gpu_milli = 500}, 3},
                                       {{.cpu_milli = 4000, .gpus = 4, .gpu_milli = 1000}, 2}}));
  auto shared = pool::create(nodes, 2, fragmentation_gradient(metric));  // racks of two
  if (!shared.ok()) return 1;
  auto p = philly_fgd::create({.quotas = {12, 4}, .acquire_time = 150, .backoff_time = 120},
                              *std::move(shared));
  if (!p.ok()) return 1;
  // Four tasks start, and three jobs of tenant 1, which uses its quota and eight GPUs beyond it.
  for (std::uint32_t i = 0; i < 4; ++i)
    if (!start_task(*p, i) || (i < 3 && !submit(*p, i, 1, 4, 0))) return 1;
  if (!decide(*p, 0)) return 1;
  // A job of tenant 0 needs two whole nodes of a rack and collects them; tasks are never preempted.
  if (!submit(*p, 3, 0, 8, 60) || !decide(*p, 60)) return 1;
  if (!end_task(*p, 0) || !end_task(*p, 1) || !decide(*p, 100)) return 1;
  if (!end_task(*p, 2) || !end_task(*p, 3) || !decide(*p, 120)) return 1;
  if (!p->finish(job_id(0), 140).ok() || !decide(*p, 140)) return 1;
  // All GPUs are in use now: tenant 0 reclaims its quota.
  if (!submit(*p, 4, 0, 4, 200) || !decide(*p, 200)) return 1;
}
