// How do I embed HiveD in a program? Copy this skeleton of a host: gangs arrive and end, a node
// fails, and the host restarts. Put calls of your cluster where this program prints.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

class host {
 public:
  explicit host(hived scheduler) : scheduler_(std::move(scheduler)) {}

  void submit(const gang_request& gang) {
    waiting_.push_back(gang);
    schedule();
  }
  void ended(job_id job) {
    stop(job);
    schedule();
  }
  // The gangs that ran on the node start again elsewhere.
  void failed(node_id node) {
    bad_.insert(node);
    report(scheduler_.mark_bad(node));
    const auto there = [&](const hived_placement& task) { return task.node == node; };
    for (const auto& [job, gang] : std::map(running_))
      if (std::ranges::any_of(gang.tasks, there)) evict(job, "its node failed");
    schedule();
  }
  void repaired(node_id node) {
    bad_.erase(node);
    report(scheduler_.mark_healthy(node));
    schedule();
  }
  // Continues with a new scheduler; the cluster is unchanged. A real host stores waiting_, running_
  // and bad_. The gangs on cells of their tenant are first, so that they get the same cells again.
  void restart(hived scheduler) {
    scheduler_ = std::move(scheduler);
    for (const node_id node : bad_) report(scheduler_.mark_bad(node));
    const std::map<job_id, running_gang> stored = running_;
    for (const auto& [job, gang] : stored)
      if (!gang.levels.empty()) recover(gang);
    for (const auto& [job, gang] : stored)
      if (gang.levels.empty()) recover(gang);
    schedule();
  }

 private:
  struct running_gang {
    gang_request request;
    std::vector<hived_placement> tasks;
    std::vector<level_t> levels;  // of its tenant's whole cells; empty: opportunistic
  };

  // Prints an error, if there is one; a real host logs it.
  static bool report(const absl::Status& status) {
    if (!status.ok()) std::printf("error: %s\n", status.ToString().c_str());
    return status.ok();
  }
  // Tries each waiting gang once, in the order of arrival.
  void schedule() {
    for (const gang_request& gang : std::exchange(waiting_, {}))
      if (!start(gang)) waiting_.push_back(gang);
    store();
  }
  // Reads the levels of all running gangs again. A gang can lose the cells of its tenant and keep
  // running (gang_plan::downgraded), and get them back later (hived::restored).
  void store() {
    for (auto& [job, gang] : running_) {
      const gang_record& record = *scheduler_.find(job);
      std::vector<level_t> levels = hived_queries::whole_cell_levels(scheduler_, record);
      if (levels.empty() != gang.levels.empty())
        std::printf("gang %u is now %s\n", job.value,
                    levels.empty() ? "opportunistic" : "guaranteed");
      gang.levels = std::move(levels);
    }
  }
  // If the gang cannot be recovered, a host must end its tasks; it then waits again. A gang that is
  // recovered without its cells is opportunistic from now on, which store() prints.
  void recover(const running_gang& gang) {
    if (report(scheduler_.recover(gang.request, gang.tasks, gang.levels).status())) return;
    running_.erase(gang.request.job);
    waiting_.push_back(gang.request);
  }
  bool start(const gang_request& gang) {
    const absl::StatusOr<gang_plan> plan = scheduler_.propose(gang);
    if (!plan.ok()) {  // the request is wrong: report that, and drop it
      std::printf("gang %u: %s\n", gang.job.value, plan.status().ToString().c_str());
      return true;
    }
    switch (plan->result) {
      case plan_result::wait:
        return false;
      case plan_result::preempt:  // commit reserves the GPUs; end the victims, then propose again
        if (!report(scheduler_.commit(*plan))) return false;
        for (const job_id victim : plan->victims) evict(victim, "preempted");
        return start(gang);
      case plan_result::bind:
        break;
    }
    // Gangs in plan->cancelled need no call here: they are in waiting_ and propose again.
    if (!report(scheduler_.commit(*plan))) return false;
    std::printf("gang %u starts on", gang.job.value);
    for (const hived_placement& task : plan->tasks)
      std::printf(" %s", scheduler_.layout().node_name(task.node).c_str());
    std::printf("\n");
    const gang_record& record = *scheduler_.find(gang.job);
    running_[gang.job] = {.request = gang,
                          .tasks = plan->tasks,
                          .levels = hived_queries::whole_cell_levels(scheduler_, record)};
    return true;
  }
  void evict(job_id job, const char* why) {
    std::printf("gang %u stops: %s\n", job.value, why);
    waiting_.push_back(running_.at(job).request);
    stop(job);
  }
  void stop(job_id job) {
    running_.erase(job);
    report(scheduler_.finish(job));
  }

  hived scheduler_;
  std::vector<gang_request> waiting_;
  std::map<job_id, running_gang> running_;
  std::set<node_id> bad_;
};

hived two_nodes() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", 1}}}, {.name = "product"}};
  return hived::create(config).value();
}

int main() {
  const hived scheduler = two_nodes();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  const tenant_id product = scheduler.layout().find_tenant("product").value();
  const node_id n0 = scheduler.layout().find_node("n0").value();
  const gang_request opportunistic{.job = job_id(1),
                                   .tenant = product,
                                   .priority = gang_request::opportunistic_priority,
                                   .groups = {{.tasks = 2, .gpus = 4}}};

  host cluster(scheduler);
  cluster.submit(opportunistic);
  cluster.submit({.job = job_id(2), .tenant = research, .groups = {{.tasks = 1, .gpus = 4}}});
  std::printf("node n0 fails\n");
  cluster.failed(n0);
  std::printf("the host restarts, then gang 2 ends\n");
  cluster.restart(two_nodes());
  cluster.ended(job_id(2));
  std::printf("node n0 is repaired\n");
  cluster.repaired(n0);
}
