// How do I embed HiveD in a program? Copy this skeleton of a host: gangs arrive and end, a node
// fails, and the host restarts. Put calls of your cluster where this program prints.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstdio>
#include <map>
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
    store(scheduler_.mark_bad(node));
    const auto there = [&](const hived_placement& task) { return task.node == node; };
    for (const auto& [job, gang] : std::map(running_)) {
      const std::vector<hived_placement> tasks = scheduler_.tasks(*scheduler_.find(job));
      if (std::ranges::any_of(tasks, there)) evict(job, "its node failed");
    }
    schedule();
  }
  void repaired(node_id node) {
    store(scheduler_.mark_healthy(node));
    schedule();
  }
  // Continues with a new scheduler of the same configuration. Its gangs and bad nodes are in the
  // snapshot. If the snapshot is lost, a host calls recover for each running gang.
  void restart(hived scheduler) {
    scheduler_ = std::move(scheduler);
    if (store(scheduler_.restore(snapshot_))) schedule();
  }

 private:
  // Call after each change of the scheduler. Stores its state, or prints the error. A real host
  // writes snapshot_, waiting_ and running_ to a disk.
  bool store(const absl::Status& status) {
    if (!status.ok()) {
      std::printf("error: %s\n", status.ToString().c_str());
      return false;
    }
    for (const job_id job : scheduler_.restored())
      std::printf("gang %u is guaranteed again\n", job.value);
    snapshot_ = scheduler_.snapshot();
    return true;
  }
  // Tries each waiting gang once, in the order of arrival.
  void schedule() {
    for (const gang_request& gang : std::vector(waiting_)) start(gang);
  }
  void start(const gang_request& gang) {
    const absl::StatusOr<gang_plan> plan = scheduler_.propose(gang);
    if (!plan.ok()) {  // the request is wrong: report that, and drop it
      std::printf("gang %u: %s\n", gang.job.value, plan.status().ToString().c_str());
      return stop_waiting(gang.job);
    }
    if (plan->result == plan_result::wait) return;
    // Gangs in plan->cancelled need no call here: they are in waiting_ and propose again.
    const absl::Status committed = scheduler_.commit(*plan);
    if (committed.ok() && plan->result == plan_result::bind) {
      stop_waiting(gang.job);
      running_[gang.job] = gang;
    }
    if (!store(committed)) return;
    for (const job_id job : plan->downgraded)
      std::printf("gang %u runs on without the cells of its tenant\n", job.value);
    if (plan->result == plan_result::preempt) {  // end the victims, then propose again
      for (const job_id victim : plan->victims) evict(victim, "preempted");
      return start(gang);
    }
    std::printf("gang %u starts on", gang.job.value);
    for (const hived_placement& task : plan->tasks)
      std::printf(" %s", scheduler_.layout().node_name(task.node).c_str());
    std::printf("\n");
  }
  void evict(job_id job, const char* why) {
    std::printf("gang %u stops: %s\n", job.value, why);
    waiting_.push_back(running_.at(job));
    stop(job);
  }
  void stop(job_id job) {
    running_.erase(job);
    store(scheduler_.finish(job));
  }
  void stop_waiting(job_id job) {
    std::erase_if(waiting_, [&](const gang_request& gang) { return gang.job == job; });
  }

  hived scheduler_;
  std::string snapshot_;
  std::vector<gang_request> waiting_;
  std::map<job_id, gang_request> running_;
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
