// apiary/tests/support/philly_loads.h - random clusters, quotas and jobs for Philly.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/philly/options.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace apiary_test {

// Short times; no servers and no quotas.
inline apiary::philly_options random_philly_times(apiary::rng& random) {
  return {.acquire_time = 1 + random.uniform(20),
          .backoff_time = 1 + random.uniform(20),
          .max_tries = random.uniform(4),
          .first_locality = static_cast<apiary::job_locality>(random.uniform(3)),
          .preempt_percent = 60 + random.uniform(41)};
}
// The quotas of three tenants, together at most so many GPUs.
inline std::vector<std::uint32_t> random_quotas(apiary::rng& random, std::uint32_t gpus) {
  std::vector<std::uint32_t> quotas;
  for (; quotas.size() < 3; gpus -= quotas.back()) quotas.push_back(random.uniform(gpus + 1));
  return quotas;
}
// A few servers of different sizes in racks.
inline std::vector<std::uint32_t> random_servers(apiary::rng& random) {
  std::vector<std::uint32_t> gpus(3 + random.uniform(5));
  for (std::uint32_t& g : gpus) g = 2 + random.uniform(7);
  return gpus;
}
// The GPUs of all servers.
inline std::uint32_t gpus_of(const apiary::server_spec& servers) {
  return std::accumulate(servers.gpus.begin(), servers.gpus.end(), 0U);
}
// Random servers in racks, three tenants, short times.
inline apiary::philly_options random_philly(apiary::rng& random) {
  const std::uint32_t servers_per_rack = 1 + random.uniform(4);
  apiary::philly_options options = random_philly_times(random);
  if (random.uniform(4) == 0) options.max_tries = apiary::philly_options::no_limit;
  options.servers = {.gpus = random_servers(random), .servers_per_rack = servers_per_rack};
  options.quotas = random_quotas(random, gpus_of(options.servers));
  return options;
}

// So many jobs of three tenants for a cluster with so many GPUs: more than fit at once, some on half
// of the GPUs.
inline std::vector<apiary::timed_job> philly_jobs(std::uint64_t seed, std::uint32_t jobs,
                                                  std::uint32_t gpus) {
  return apiary::generate_jobs({.seed = seed,
                                .jobs = jobs,
                                .tenants = 3,
                                .window = 4 * jobs,
                                .shortest = 5,
                                .longest = 200,
                                .sizes = {{1, 4}, {2, 3}, {4, 2}, {gpus / 2, 1}}})
      .value()
      .jobs;
}
// Failures of some of these jobs, of all classes.
inline std::vector<apiary::simulation_options::job_failure> random_failures(
    apiary::rng& random, const std::vector<apiary::timed_job>& jobs) {
  std::vector<apiary::simulation_options::job_failure> failures;
  for (const apiary::timed_job& j : jobs) {
    while (random.uniform(3) == 0)
      failures.push_back({j.request.job, random.uniform(200),
                          static_cast<apiary::failure_class>(random.uniform(3))});
  }
  return failures;
}
// Two servers that are bad for some time, also at once.
inline std::vector<apiary::outage> two_outages() {
  return {{apiary::node_id(0), 100, 200}, {apiary::node_id(1), 150, 170}};
}

}  // namespace apiary_test
