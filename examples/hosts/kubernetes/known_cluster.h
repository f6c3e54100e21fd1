// apiary/examples/hosts/kubernetes/known_cluster.h - what the extender knows of the cluster: nodes, pods and gangs.
// SPDX-License-Identifier: MIT
#pragma once

#include "cluster_nodes.h"
#include "gang_tasks.h"
#include "kubernetes_records.h"
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// The nodes, the pods that ask for GPUs, and the gangs that have nodes or have reserved them. update()
// compares it with what the API server lists: nodes join, leave, break and return, pods end, gangs without
// pods end, and gangs with bound pods are recovered. gang_extender decides about the others.
class known_cluster {
 public:
  // A gang without a bound pod loses its nodes after so long, and is decided again.
  static constexpr apiary::time_ms patience = 60'000;

  struct known_pod {
    pod_record pod{};
    apiary::time_ms seen = 0;
  };

  apiary::gang_scheduler scheduler;
  cluster_nodes nodes;
  std::map<std::string, gang_tasks> gangs{};  // those of the scheduler, by key
  std::map<std::string, known_pod> pods{};    // by uid: pending and running ones
  std::vector<std::string> log{};

  known_cluster(apiary::gang_scheduler of, std::vector<level_label> levels)
      : scheduler(std::move(of)), nodes(std::move(levels)) {}

  // The API server was asked for the lists at `now`.
  void update(const std::vector<node_record>& listed_nodes,
              const std::vector<pod_record>& listed_pods, apiary::time_ms now) {
    nodes.update(scheduler, listed_nodes, log);
    update_pods(listed_pods, now);
    end_gangs(now);
    recover_gangs(now);
  }
  // The nodes of the gang, and the pods that have them.
  [[nodiscard]] std::string tasks_text(const std::string& key) const {
    return absl::StrJoin(gangs.at(key).tasks, ", ", [&](std::string* to, const task_record& t) {
      const auto pod = pods.find(t.uid);
      absl::StrAppend(to, t.node, " is for ",
                      pod == pods.end() ? "a pod to come" : pod->second.pod.full_name());
    });
  }
  // Ends a gang.
  void forget(const std::string& key, const std::string& why) {
    log.push_back(absl::StrCat("end ", key, " ", why));
    scheduler.finish(key).IgnoreError();
    gangs.erase(key);
  }
  // Whether pods of the gang run, and all of them were deleted.
  [[nodiscard]] bool is_ending(const gang_tasks& gang) const {
    return gang.any_bound() &&
           std::all_of(gang.tasks.begin(), gang.tasks.end(),
                       [&](const task_record& t) { return !t.bound || pods.at(t.uid).pod.ending; });
  }
  // The keys of the gangs of all pods.
  [[nodiscard]] std::set<std::string> alive() const {
    std::set<std::string> keys;
    for (const auto& [uid, known] : pods) keys.insert(known.pod.gang_key());
    return keys;
  }

 private:
  // A pod that was asked about after the list was made is not on it yet. A pod that is bound keeps the
  // gang that it was bound for, whatever is written at it now.
  void update_pods(const std::vector<pod_record>& all, apiary::time_ms now) {
    std::set<std::string_view> listed;
    for (const pod_record& pod : all) {
      if (pod.ended || pod.gpus == 0) continue;
      listed.insert(pod.uid);
      known_pod& known = pods[pod.uid];
      const pod_record before = std::exchange(known.pod, pod);
      known.seen = (std::max)(known.seen, now);
      if (pod.node.empty() || before.uid.empty()) continue;
      known.pod.gang = before.gang;
      known.pod.gang_size = before.gang_size;
      known.pod.required_level = before.required_level;
      if (!pod.gang_fault.empty()) known.pod.plan = before.plan;
    }
    std::erase_if(pods, [&](const auto& one) {
      return one.second.seen < now && !listed.contains(one.first);
    });
  }

  // Whether the pod is gone, or was deleted on a bad node, which may never say that it is gone.
  [[nodiscard]] bool has_ended(const std::string& uid) const {
    const auto known = pods.find(uid);
    return known == pods.end() ||
           (known->second.pod.ending && nodes.is_bad(known->second.pod.node));
  }

  void end_gangs(apiary::time_ms now) {
    const std::set<std::string> with_pods = alive();
    std::vector<std::pair<std::string, std::string>> ended;
    for (auto& [key, gang] : gangs) {
      const bool ran = gang.any_bound();
      for (task_record& t : gang.tasks)
        if (!t.uid.empty() && has_ended(t.uid)) t.release();
      const auto* const running = scheduler.find(key);
      if (!with_pods.contains(key))
        ended.emplace_back(key, "its pods have ended");
      else if (gang.any_bound())
        continue;
      else if (running->ends_for)
        ended.emplace_back(key, "it is preempted");
      else if (ran)
        ended.emplace_back(key, "its last pod has ended");
      else if (!running->preempting && now - gang.since > patience)
        ended.emplace_back(key, "none of its pods is bound");
    }
    for (const auto& [key, why] : ended) forget(key, why);
    std::erase_if(lost_, [&](const std::string& key) { return !with_pods.contains(key); });
  }

  // Bound pods are the truth: a gang that does not match them is recovered from them.
  void recover_gangs(apiary::time_ms now) {
    std::map<std::string, std::vector<const pod_record*>> bound;
    std::set<std::string> wrong;
    for (const auto& [uid, known] : pods) {
      if (known.pod.node.empty() || has_ended(uid)) continue;
      const std::string key = known.pod.gang_key();
      const auto* const running = scheduler.find(key);
      if (running != nullptr && !running->preempting && gangs.at(key).bind(uid, known.pod.node))
        bound[key].push_back(&known.pod);
      else if (running == nullptr || !known.pod.ending) {  // the gang has replaced a deleted pod
        bound[key].push_back(&known.pod);
        wrong.insert(key);
      }
    }
    for (const std::string& key : wrong) {
      if (gangs.contains(key)) forget(key, "its pods run on other nodes");
      recover(key, bound[key], now);
    }
  }
  // Recovers a gang from its bound pods; it runs since the first of them started. A plan that matches all
  // of them has the nodes of those to come. Plans differ if a bad node was replaced.
  void recover(const std::string& key, const std::vector<const pod_record*>& running,
               apiary::time_ms now) {
    gang_tasks only{.shape = running[0]->shape(), .since = now};
    std::set<std::vector<std::string>> plans;
    for (const pod_record* const pod : running) {
      only.tasks.push_back({pod->node, pod->gpus, pod->uid, true});
      if (pod->started > 0) only.since = (std::min)(only.since, pod->started);
      if (pod->plan.size() == pod->gang_size) plans.insert(pod->plan);
    }
    for (const std::vector<std::string>& plan : plans) {
      gang_tasks planned{.shape = only.shape, .since = only.since};
      for (const std::string& node : plan)
        planned.tasks.push_back({.node = node, .gpus = running[0]->gpus});
      if (std::all_of(running.begin(), running.end(),
                      [&](const pod_record* pod) { return planned.bind(pod->uid, pod->node); }) &&
          recover(*running[0], planned))
        return;
    }
    if (recover(*running[0], only)) return;
    for (const pod_record* const pod :
         running) {  // a decision that no pod has used yet is in the way
      const auto node = scheduler.find_node(pod->node);
      if (!node.ok()) continue;
      for (const apiary::job_key& other : scheduler.jobs_on(*node))
        if (!gangs.at(other.text()).any_bound()) forget(other.text(), "its nodes are in use");
    }
    if (!recover(*running[0], only) && lost_.insert(key).second)
      log.push_back(absl::StrCat("error ", key,
                                 " runs on nodes or GPUs that it cannot have: ", only.nodes()));
  }
  bool recover(pod_record pod, const gang_tasks& gang) {
    const std::string key = pod.gang_key();
    if (!scheduler.find_level(pod.required_level).ok()) pod.required_level.clear();
    const auto asked = request_of(pod, 1, scheduler, nodes.taints());
    if (!asked.ok() || !apiary_kubernetes::recover(scheduler, *asked, gang)) return false;
    log.push_back(absl::StrCat("recover ", key, " ", gang.nodes()));
    gangs[key] = gang;
    lost_.erase(key);
    return true;
  }

  std::set<std::string> lost_;  // gangs that run and could not be recovered
};

}  // namespace apiary_kubernetes
