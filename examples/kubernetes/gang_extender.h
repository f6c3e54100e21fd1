// apiary/examples/kubernetes/gang_extender.h - decides about the pods of Kubernetes: questions in, answers out.
// SPDX-License-Identifier: MIT
#pragma once

#include "cluster_nodes.h"
#include "gang_tasks.h"
#include "kubernetes_records.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// Decides for a kube-scheduler. The first pod of a gang that it asks about decides for the whole gang;
// each pod then gets one node of the gang's plan. What the API server lists is compared with the gangs by
// update(), so a new extender goes on where a killed one was: its first update recovers all gangs
// that have bound pods.
class gang_extender {
 public:
  // A gang without a bound pod loses its nodes after so long, and is decided again.
  static constexpr apiary::time_ms patience = 60'000;
  // A victim that still runs is evicted, and evicted again, after so long.
  static constexpr apiary::time_ms repeat = 10'000;

  // The answer to `filter`: the nodes that the pod may use, and why not the others.
  struct filtered {
    std::vector<std::string> nodes{};
    text_map failed{};
  };
  // The answer to `bind`: the pod, and the nodes of its gang.
  struct binding {
    pod_record pod{};
    std::string plan{};
  };

  // kInvalidArgument: see gang_cluster::check.
  [[nodiscard]] static absl::StatusOr<gang_extender> create(const std::vector<node_record>& nodes,
                                                            std::vector<level_label> levels) {
    auto cluster = apiary::gang_scheduler::create(cluster_of(nodes, levels));
    if (!cluster.ok()) return cluster.status();
    gang_extender to(*std::move(cluster), std::move(levels));
    to.nodes_.update(to.cluster_, nodes, to.log_);
    return to;
  }

  // Which of the offered nodes the pod may use: the one of the gang's plan that is kept for it.
  [[nodiscard]] absl::StatusOr<filtered> filter(const pod_record& pod,
                                                const std::vector<std::string>& offered,
                                                apiary::time_ms now) {
    if (pod.gpus == 0) return filtered{offered, {}};
    pods_[pod.uid] = {pod, now};
    auto why = decide(pod, &offered, now);
    if (!why.ok()) return why.status();
    filtered to;
    if (why->empty()) {
      const std::string key = pod.gang_key();
      const std::set<std::string_view> names(offered.begin(), offered.end());
      const task_record* const mine = gangs_.at(key).take(
          pod.uid, [&](const task_record& t) { return names.contains(t.node); });
      if (mine != nullptr) to.nodes = {mine->node};
      *why = mine != nullptr ? absl::StrCat("gang ", key, " has node ", mine->node, " for this pod")
                             : absl::StrCat("no node of gang ", key,
                                            " is left for this pod: ", tasks_text(key));
    }
    for (const std::string& name : offered)
      if (to.nodes.empty() || name != to.nodes[0]) to.failed[name] = *why;
    return to;
  }

  // The node that is kept for the pod; empty if there is none.
  [[nodiscard]] std::string node_of(const pod_record& pod) const {
    const auto gang = gangs_.find(pod.gang_key());
    const task_record* const task = gang == gangs_.end() ? nullptr : gang->second.find(pod.uid);
    return task == nullptr ? std::string() : task->node;
  }

  // The node for the pod, and the uids of the pods to evict there; empty: no eviction on these nodes
  // helps it. It reserves GPUs for its gang; update() evicts the victims on the other nodes.
  [[nodiscard]] absl::StatusOr<std::map<std::string, std::vector<std::string>>> preempt(
      const pod_record& pod, const std::vector<std::string>& offered, apiary::time_ms now) {
    if (pod.gpus == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("pod ", pod.full_name(), " asks for no ", gpu_resource));
    pods_[pod.uid] = {pod, now};
    const auto why = decide(pod, nullptr, now);
    if (!why.ok()) return why.status();
    std::map<std::string, std::vector<std::string>> to, victims;
    const std::string key = pod.gang_key();
    const auto* const gang = cluster_.find(key);
    if (gang == nullptr || !gang->preempting) return to;
    for (const apiary::job_key& victim : gang->victims)
      for (const task_record& t : gangs_.at(victim.text()).tasks)
        if (t.bound) victims[t.node].push_back(t.uid);
    const std::set<std::string_view> names(offered.begin(), offered.end());
    const task_record* const mine = gangs_.at(key).take(pod.uid, [&](const task_record& t) {
      return names.contains(t.node) && victims.contains(t.node);
    });
    if (mine == nullptr) return to;
    to[mine->node] = victims[mine->node];
    for (const std::string& uid : to[mine->node]) evict_at_[uid] = now + repeat;
    return to;
  }

  // The pod is about to be bound to the node, which must be one of its gang's that no other pod is
  // bound to. kNotFound: no such pod. kFailedPrecondition: not this node, or not now.
  [[nodiscard]] absl::StatusOr<binding> bind(const std::string& uid, const std::string& node) {
    const auto pod = pods_.find(uid);
    if (pod == pods_.end())
      return absl::NotFoundError(absl::StrCat("pod ", uid, " is not decided here"));
    const std::string key = pod->second.pod.gang_key();
    const auto* const running = cluster_.find(key);
    if (running == nullptr || running->preempting || running->ends_for ||
        !gangs_.at(key).bind(uid, node))
      return absl::FailedPreconditionError(
          absl::StrCat("pod ", pod->second.pod.full_name(), " must not run on node ", node, ": ",
                       running == nullptr ? "its gang waits" : tasks_text(key)));
    return binding{pod->second.pod, gangs_.at(key).nodes()};
  }
  // The API server has refused the binding.
  void bind_failed(const std::string& uid) {
    const auto pod = pods_.find(uid);
    if (pod == pods_.end()) return;
    const auto gang = gangs_.find(pod->second.pod.gang_key());
    task_record* const task = gang == gangs_.end() ? nullptr : gang->second.find(uid);
    if (task != nullptr) task->bound = false;
  }

  // Compares the lists of the API server, which was asked for them at `now`, with the gangs: nodes join,
  // leave, break and return, pods end, gangs without pods end. Returns the pods to evict.
  [[nodiscard]] std::vector<pod_record> update(const std::vector<node_record>& nodes,
                                               const std::vector<pod_record>& pods,
                                               apiary::time_ms now) {
    nodes_.update(cluster_, nodes, log_);
    update_pods(pods, now);
    end_gangs(now);
    recover_gangs(now);
    std::vector<pod_record> evict;
    std::erase_if(evict_at_, [&](const auto& one) { return !pods_.contains(one.first); });
    for (const auto& [key, gang] : gangs_) {
      if (!cluster_.find(key)->ends_for) continue;
      for (const task_record& t : gang.tasks) {
        if (!t.bound || pods_.at(t.uid).pod.ending) continue;
        apiary::time_ms& at = evict_at_.try_emplace(t.uid, now).first->second;
        if (at > now) continue;
        at = now + repeat;
        evict.push_back(pods_.at(t.uid).pod);
      }
    }
    return evict;
  }

  [[nodiscard]] std::vector<std::string> take_log() { return std::exchange(log_, {}); }
  [[nodiscard]] const apiary::gang_scheduler& cluster() const noexcept { return cluster_; }

 private:
  struct known_pod {
    pod_record pod{};
    apiary::time_ms seen = 0;
  };

  gang_extender(apiary::gang_scheduler cluster, std::vector<level_label> levels)
      : cluster_(std::move(cluster)), nodes_(std::move(levels)) {}

  std::string tasks_text(const std::string& key) const {
    return absl::StrJoin(gangs_.at(key).tasks, ", ", [&](std::string* to, const task_record& t) {
      const auto pod = pods_.find(t.uid);
      absl::StrAppend(to, t.node, " is for ",
                      pod == pods_.end() ? "a pod to come" : pod->second.pod.full_name());
    });
  }
  void forget(const std::string& key, const std::string& why) {
    log_.push_back(absl::StrCat("end ", key, " ", why));
    cluster_.finish(key).IgnoreError();
    gangs_.erase(key);
  }
  // Decides about the gang of the pod, on the offered nodes, or on all and with victims. Empty: the gang
  // has its nodes; otherwise why it waits.
  absl::StatusOr<std::string> decide(const pod_record& pod, const std::vector<std::string>* offered,
                                     apiary::time_ms now) {
    const std::string key = pod.gang_key();
    if (const auto* const gang = cluster_.find(key)) {
      if (pod.gpus != gang->what.gang.groups[0].gpus)
        return absl::InvalidArgumentError(absl::StrCat(
            "pod ", pod.full_name(), " asks for ", pod.gpus, " GPUs; the other pods of gang ", key,
            " ask for ", gang->what.gang.groups[0].gpus));
      if (gang->ends_for) return absl::StrCat("gang ", key, " is preempted");
      if (!gang->preempting) return std::string();
      const auto plan = cluster_.propose(gang->what, now);
      if (plan.ok() && plan->result == apiary::plan_result::preempt) return victims_text(key);
      if (plan.ok() && plan->result == apiary::plan_result::bind && cluster_.commit(*plan).ok()) {
        gangs_[key].since = now;
        return std::string();
      }
      forget(key, "a node that it has reserved is bad");
    }
    auto asked = request_of(pod, pod.gang_size, cluster_, nodes_.taints());
    if (!asked.ok()) return asked.status();
    if (offered != nullptr) {
      std::vector<std::string> known;
      for (const std::string& name : *offered)
        if (nodes_.contains(name)) known.push_back(name);
      if (known.empty()) return std::string("the extender does not know these nodes yet");
      asked->filter.nodes = std::move(known);
    }
    const auto plan = cluster_.propose(*asked, now);
    if (!plan.ok()) return plan.status();
    if (plan->result == apiary::plan_result::preempt && offered != nullptr)
      return absl::StrCat("gang ", key, " can start when ", plan->victims.size(),
                          " gangs of lower priority have been preempted");
    if (plan->result == apiary::plan_result::wait) return explanation(*asked, now);
    if (const absl::Status done = cluster_.commit(*plan); !done.ok()) return done;
    waiting_.erase(key);
    gang_tasks& gang = gangs_[key] = {.since = now};
    for (const apiary::placement& p : plan->tasks)
      gang.tasks.push_back({.node = cluster_.node(p.node)->name, .gpus = pod.gpus});
    log_.push_back(absl::StrCat(plan->result == apiary::plan_result::bind ? "decide " : "preempt ",
                                key, " ", gang.nodes()));
    // A victim without a bound pod ends at once.
    for (const apiary::job_key& victim : plan->victims)
      if (!gangs_.at(victim.text()).any_bound()) forget(victim.text(), "it is preempted");
    if (plan->result == apiary::plan_result::bind) return std::string();
    return cluster_.find(key)->victims.empty() ? decide(pod, offered, now) : victims_text(key);
  }
  std::string victims_text(const std::string& key) const {
    return absl::StrCat("gang ", key, " waits for the end of ",
                        absl::StrJoin(cluster_.find(key)->victims, ", ",
                                      [](std::string* to, const apiary::job_key& victim) {
                                        *to += victim.text();
                                      }));
  }
  // Why a gang waits; asked again only after a change.
  std::string explanation(const apiary::gang_scheduler::request& asked, apiary::time_ms now) {
    auto& [hash, text] = waiting_[asked.job.text()];
    if (!text.empty() && hash == cluster_.hash()) return text;
    const auto answer = cluster_.explain(asked, now);
    hash = cluster_.hash();
    return text = answer.ok() ? answer->text : std::string(answer.status().message());
  }

  // A pod that was asked about after the list was made is not on it yet.
  void update_pods(const std::vector<pod_record>& pods, apiary::time_ms now) {
    std::set<std::string_view> listed;
    for (const pod_record& pod : pods) {
      if (pod.ended || pod.gpus == 0) continue;
      listed.insert(pod.uid);
      known_pod& known = pods_[pod.uid];
      known = {pod, (std::max)(known.seen, now)};
    }
    std::erase_if(pods_, [&](const auto& one) {
      return one.second.seen < now && !listed.contains(one.first);
    });
  }

  void end_gangs(apiary::time_ms now) {
    std::set<std::string> alive;
    for (const auto& [uid, known] : pods_) alive.insert(known.pod.gang_key());
    std::vector<std::pair<std::string, std::string>> ended;
    for (auto& [key, gang] : gangs_) {
      for (task_record& t : gang.tasks)
        if (!t.uid.empty() && !pods_.contains(t.uid)) t.release();
      const auto* const running = cluster_.find(key);
      if (!alive.contains(key))
        ended.emplace_back(key, "its pods have ended");
      else if (running->ends_for && !gang.any_bound())
        ended.emplace_back(key, "it is preempted");
      else if (!running->preempting && !gang.any_bound() && now - gang.since > patience)
        ended.emplace_back(key, "none of its pods is bound");
    }
    for (const auto& [key, why] : ended) forget(key, why);
    std::erase_if(waiting_, [&](const auto& one) { return !alive.contains(one.first); });
    std::erase_if(lost_, [&](const std::string& key) { return !alive.contains(key); });
  }

  // Bound pods are the truth: a gang that does not match them is recovered from them.
  void recover_gangs(apiary::time_ms now) {
    std::map<std::string, std::vector<const pod_record*>> bound;
    std::set<std::string> wrong;
    for (const auto& [uid, known] : pods_) {
      if (known.pod.node.empty()) continue;
      const std::string key = known.pod.gang_key();
      bound[key].push_back(&known.pod);
      const auto* const running = cluster_.find(key);
      if (running == nullptr || running->preempting || !gangs_.at(key).bind(uid, known.pod.node))
        wrong.insert(key);
    }
    for (const std::string& key : wrong) {
      if (gangs_.contains(key)) forget(key, "its pods run on other nodes");
      recover(key, bound[key], now);
    }
  }
  void recover(const std::string& key, const std::vector<const pod_record*>& pods,
               apiary::time_ms now) {
    gang_tasks only{.since = now};
    for (const pod_record* const pod : pods)
      only.tasks.push_back({pod->node, pod->gpus, pod->uid, true});
    gang_tasks planned{.since = now};
    for (const std::string& node : pods[0]->plan)
      planned.tasks.push_back({.node = node, .gpus = pods[0]->gpus});
    bool matches = planned.tasks.size() == pods[0]->gang_size;
    for (const pod_record* const pod : pods) matches = matches && planned.bind(pod->uid, pod->node);
    if ((matches && recover(*pods[0], planned)) || recover(*pods[0], only)) return;
    for (const pod_record* const pod : pods) {  // a decision that no pod has used yet is in the way
      const auto node = cluster_.find_node(pod->node);
      if (!node.ok()) continue;
      for (const apiary::job_key& other : cluster_.jobs_on(*node))
        if (!gangs_.at(other.text()).any_bound()) forget(other.text(), "its nodes are in use");
    }
    if (!recover(*pods[0], only) && lost_.insert(key).second)
      log_.push_back(absl::StrCat("error ", key,
                                  " runs on nodes or GPUs that it cannot have: ", only.nodes()));
  }
  bool recover(pod_record pod, const gang_tasks& gang) {
    const std::string key = pod.gang_key();
    if (!cluster_.find_level(pod.required_level).ok()) pod.required_level.clear();
    const auto asked = request_of(pod, 1, cluster_, nodes_.taints());
    if (!asked.ok() || !apiary_kubernetes::recover(cluster_, *asked, gang)) return false;
    log_.push_back(absl::StrCat("recover ", key, " ", gang.nodes()));
    gangs_[key] = gang;
    lost_.erase(key);
    return true;
  }

  apiary::gang_scheduler cluster_;
  cluster_nodes nodes_;
  std::map<std::string, gang_tasks> gangs_;  // those of cluster_, by key
  std::map<std::string, known_pod> pods_;    // by uid: pending and running ones
  std::map<std::string, std::pair<std::uint64_t, std::string>> waiting_;  // hash, why
  std::map<std::string, apiary::time_ms> evict_at_;                       // victims, by uid
  std::set<std::string> lost_;  // gangs that run and could not be recovered
  std::vector<std::string> log_;
};

}  // namespace apiary_kubernetes
