// How do I use prices without a history? A host learns the mix of tasks from arrivals, and makes new
// prices from time to time; here for a made cluster and its tasks.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/price_score.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/trace/workload.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// The GPUs that a scheduler allocates, in hundredths of a per cent of all; before each task it calls
// before(scheduler, task).
template <class Scheduler, class Before>
std::uint64_t allocated(Scheduler scheduler, const synthetic_trace& trace, const Before& before) {
  std::uint64_t used = 0;  // thousandths
  std::uint32_t job = 0;
  for (const std::uint32_t arrival : trace.work.arrivals) {
    task_request task = trace.work.tasks[arrival].request;
    task.job = job_id(job++);
    if (!before(scheduler, task)) return 0;
    const auto plan = scheduler.propose(task);
    if (plan.ok() && plan->result == plan_result::bind && scheduler.commit(task, *plan).ok())
      used += task.total_gpu_milli();
  }
  return used * 10 / scheduler.nodes().total_gpus();
}

void print(const char* name, std::uint64_t hundredths) {
  std::printf("%-40s %u.%02u %%\n", name, static_cast<unsigned>(hundredths / 100),
              static_cast<unsigned>(hundredths % 100));
}

}  // namespace

int main() {
  const synthetic_trace trace = openb_like({.seed = 5, .nodes = 200, .load_percent = 105});
  const node_table& nodes = trace.nodes.nodes;
  const std::vector<task_kind> kinds = workload::kinds(trace.work.tasks);
  const auto nothing = [](auto&, const task_request&) { return true; };

  const fragmentation_gradient gradient{fragmentation(task_mix::from_history(kinds))};
  print("FGD, the mix is known", allocated(*fgd::create(nodes, gradient), trace, nothing));

  const auto known = price_score::create(nodes, task_mix::from_history(kinds, 100));
  if (!known.ok()) return 1;
  using by_prices = gpu_sharing_scheduler<price_score>;
  print("prices, the mix is known", allocated(*by_prices::create(nodes, *known), trace, nothing));

  // The host makes new prices after 32, 64, 128, ... tasks.
  price_learner learner;
  const auto learn = [&](by_prices& scheduler, const task_request& task) {
    std::optional<price_score> prices = learner.arrive(scheduler.nodes(), task);
    return !prices || scheduler.set_score(*std::move(prices)).ok();
  };
  print("prices, the mix is learnt from arrivals",
        allocated(*by_prices::create(nodes, *learner.first(nodes)), trace, learn));
  return 0;
}
