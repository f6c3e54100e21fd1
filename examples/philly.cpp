// Philly: a gang first waits for GPUs that are close together, and then takes GPUs that are farther
// apart. A tenant beyond its quota uses idle GPUs until another tenant needs its own quota.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/philly/philly.h>

#include <cstdio>
#include <vector>

using namespace apiary;

int main() {
  // Two racks with two servers of four GPUs each. Each of the two tenants has a quota of 8 GPUs.
  auto scheduler = philly::create(
      {.servers = {.gpus = {4, 4, 4, 4}, .servers_per_rack = 2}, .quotas = {8, 8}, .max_tries = 1});
  if (!scheduler.ok()) return 1;

  const auto decide = [&](time_ms now) {
    std::vector<job_action> actions;
    if (!scheduler->decide(now, actions).ok()) return;
    for (const job_action& a : actions) {
      std::printf("%4d s: job %u %s", static_cast<int>(now / 1000), a.job.value,
                  a.what == job_action::verb::suspend ? "is preempted" : "starts on");
      for (const placement& p : a.where)
        std::printf("%s server %u", &p == &a.where.front() ? "" : " and", p.node.value);
      if (const time_ms apart = a.waited[delay_cause::fragmentation]; apart > 0)
        std::printf(" after it waited %d s for GPUs close together",
                    static_cast<int>(apart / 1000));
      std::printf("\n");
    }
  };
  const auto submit = [&](unsigned job, unsigned tenant, unsigned gpus, time_ms now) {
    const job_request request{.job = job_id(job), .tenant = tenant_id(tenant), .gpus = gpus};
    if (scheduler->submit(request, now).ok()) decide(now);
  };
  for (unsigned job = 1; job <= 3; ++job) submit(job, 0, 4, 0);
  if (!scheduler->finish(job_id(2), 10'000).ok()) return 1;

  // Each rack has one idle server. Job 4 waits until its locality relaxes; the host calls decide()
  // at wake().
  submit(4, 1, 8, 10'000);
  time_ms now = 10'000;
  while (scheduler->wake() != max_time) {
    now = scheduler->wake();
    decide(now);
  }

  // Job 4 ends. Tenant 0 goes beyond its quota, until tenant 1 needs GPUs of its own quota.
  if (!scheduler->finish(job_id(4), now).ok()) return 1;
  submit(5, 0, 4, now);
  submit(6, 0, 4, now);
  submit(7, 1, 4, now + 60'000);
  std::printf("tenant 0 uses %u GPUs, tenant 1 uses %u\n", scheduler->used(tenant_id(0)),
              scheduler->used(tenant_id(1)));
}
