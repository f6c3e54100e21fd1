// apiary/examples/hosts/kubernetes/gang_extender.h - decides about the pods of Kubernetes: questions in, answers out.
// SPDX-License-Identifier: MIT
#pragma once

#include "gang_tasks.h"
#include "known_cluster.h"
#include "kubernetes_records.h"
#include "waiting_gang.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
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
    to.state_.nodes.update(to.state_.scheduler, nodes, to.state_.log);
    return to;
  }

  // Which of the offered nodes the pod may use: the one of the gang's plan that is kept for it.
  [[nodiscard]] absl::StatusOr<filtered> filter(const pod_record& pod,
                                                const std::vector<std::string>& offered,
                                                apiary::time_ms now) {
    if (pod.gpus == 0) return filtered{offered, {}};
    state_.pods[pod.uid] = {pod, now};
    auto why = decide(pod, offered, false, now);
    if (!why.ok()) return why.status();
    filtered to;
    if (why->empty()) {
      const std::string key = pod.gang_key();
      const std::set<std::string_view> names(offered.begin(), offered.end());
      const auto take = [&] {
        return state_.gangs.at(key).take(
            pod.uid, [&](const task_record& t) { return names.contains(t.node); });
      };
      const task_record* mine = take();
      if (mine == nullptr) {
        *why = replace_bad_nodes(key, offered);
        if (why->empty()) mine = take();
      }
      if (mine != nullptr) {
        to.nodes = {mine->node};
        *why = absl::StrCat("gang ", key, " has node ", mine->node, " for this pod");
      } else if (why->empty()) {
        *why = absl::StrCat("no node of gang ", key,
                            " is left for this pod: ", state_.tasks_text(key));
      }
    }
    for (const std::string& name : offered)
      if (to.nodes.empty() || name != to.nodes[0]) to.failed[name] = *why;
    return to;
  }

  // The node that is kept for the pod; empty if there is none.
  [[nodiscard]] std::string node_of(const pod_record& pod) const {
    const auto gang = state_.gangs.find(pod.gang_key());
    const task_record* const task =
        gang == state_.gangs.end() ? nullptr : gang->second.find(pod.uid);
    return task == nullptr ? std::string() : task->node;
  }

  // The node for the pod, and the uids of the pods to evict there; empty: no eviction on these nodes
  // helps it. It reserves GPUs for its gang on these nodes and on those that the last filter() of the
  // gang offered; update() evicts the victims on the other nodes.
  [[nodiscard]] absl::StatusOr<std::map<std::string, std::vector<std::string>>> preempt(
      const pod_record& pod, const std::vector<std::string>& offered, apiary::time_ms now) {
    if (pod.gpus == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("pod ", pod.full_name(), " asks for no ", gpu_resource));
    state_.pods[pod.uid] = {pod, now};
    const auto why = decide(pod, offered, true, now);
    if (!why.ok()) return why.status();
    std::map<std::string, std::vector<std::string>> to, victims;
    const std::string key = pod.gang_key();
    const auto* const gang = state_.scheduler.find(key);
    if (gang == nullptr || !gang->preempting) return to;
    for (const apiary::job_key& victim : gang->victims)
      for (const task_record& t : state_.gangs.at(victim.text()).tasks)
        if (t.bound) victims[t.node].push_back(t.uid);
    const std::set<std::string_view> names(offered.begin(), offered.end());
    const task_record* const mine = state_.gangs.at(key).take(pod.uid, [&](const task_record& t) {
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
    const auto pod = state_.pods.find(uid);
    if (pod == state_.pods.end())
      return absl::NotFoundError(absl::StrCat("pod ", uid, " is not decided here"));
    const std::string key = pod->second.pod.gang_key();
    const auto* const running = state_.scheduler.find(key);
    if (running == nullptr || running->preempting || running->ends_for ||
        !state_.gangs.at(key).bind(uid, node))
      return absl::FailedPreconditionError(
          absl::StrCat("pod ", pod->second.pod.full_name(), " must not run on node ", node, ": ",
                       running == nullptr ? "its gang waits" : state_.tasks_text(key)));
    return binding{pod->second.pod, state_.gangs.at(key).nodes()};
  }
  // The API server has refused the binding.
  void bind_failed(const std::string& uid) {
    const auto pod = state_.pods.find(uid);
    if (pod == state_.pods.end()) return;
    const auto gang = state_.gangs.find(pod->second.pod.gang_key());
    task_record* const task = gang == state_.gangs.end() ? nullptr : gang->second.find(uid);
    if (task != nullptr) task->bound = false;
  }

  // Compares the lists of the API server, which was asked for them at `now`, with the gangs. Returns the
  // pods to evict.
  [[nodiscard]] std::vector<pod_record> update(const std::vector<node_record>& nodes,
                                               const std::vector<pod_record>& pods,
                                               apiary::time_ms now) {
    state_.update(nodes, pods, now);
    const std::set<std::string> alive = state_.alive();
    std::erase_if(waiting_, [&](const auto& one) { return !alive.contains(one.first); });
    std::vector<pod_record> evict;
    std::erase_if(evict_at_, [&](const auto& one) { return !state_.pods.contains(one.first); });
    for (const auto& [key, gang] : state_.gangs) {
      if (!state_.scheduler.find(key)->ends_for) continue;
      for (const task_record& t : gang.tasks) {
        if (!t.bound || state_.pods.at(t.uid).pod.ending) continue;
        apiary::time_ms& at = evict_at_.try_emplace(t.uid, now).first->second;
        if (at > now) continue;
        at = now + repeat;
        evict.push_back(state_.pods.at(t.uid).pod);
      }
    }
    return evict;
  }

  [[nodiscard]] std::vector<std::string> take_log() { return std::exchange(state_.log, {}); }
  [[nodiscard]] const apiary::gang_scheduler& cluster() const noexcept { return state_.scheduler; }

 private:
  gang_extender(apiary::gang_scheduler cluster, std::vector<level_label> levels)
      : state_(std::move(cluster), std::move(levels)) {}

  // The nodes of these lists that the cluster has, each once.
  [[nodiscard]] apiary::node_names known(const auto&... lists) const {
    std::set<std::string> names;
    const auto add = [&](const auto& list) {
      for (const std::string& name : list)
        if (state_.nodes.contains(name)) names.insert(name);
    };
    (add(lists), ...);
    return std::vector<std::string>(names.begin(), names.end());
  }
  // Decides about the gang of the pod: on the nodes that kube-scheduler offers, or with victims, and
  // then also on the nodes of the last filter. Empty: the gang has its nodes; otherwise why it waits.
  absl::StatusOr<std::string> decide(const pod_record& pod, const std::vector<std::string>& offered,
                                     bool may_preempt, apiary::time_ms now) {
    const std::string key = pod.gang_key();
    if (const auto* const gang = state_.scheduler.find(key)) {
      const gang_tasks& tasks = state_.gangs.at(key);
      if (gang->ends_for) return absl::StrCat("gang ", key, " is preempted");
      if (state_.is_ending(tasks))
        return absl::StrCat(
            "gang ", key,
            " was deleted; it can start again when its pods have ended: ", state_.tasks_text(key));
      if (tasks.shape != pod.shape()) {
        // Pods that do not match, or a gang that was created again under the same name?
        if (std::any_of(tasks.tasks.begin(), tasks.tasks.end(), [&](const task_record& t) {
              return t.uid != pod.uid && state_.pods.contains(t.uid);
            }))
          return absl::InvalidArgumentError(
              absl::StrCat("pod ", pod.full_name(), " belongs to a gang of ", pod.shape().text(),
                           "; gang ", key, " has ", tasks.shape.text()));
        state_.forget(key, "it was created again");
      } else if (!gang->preempting) {
        return std::string();
      } else {
        const auto plan = state_.scheduler.propose(gang->what, now);
        if (plan.ok() && plan->result == apiary::plan_result::preempt) return victims_text(key);
        if (plan.ok() && plan->result == apiary::plan_result::bind &&
            state_.scheduler.commit(*plan).ok()) {
          state_.gangs[key].since = now;
          return std::string();
        }
        state_.forget(key, "a node that it has reserved is bad");
      }
    }
    auto asked = request_of(pod, pod.gang_size, state_.scheduler, state_.nodes.taints());
    if (!asked.ok()) return asked.status();
    waiting_gang& waiting = waiting_[key];
    if (!may_preempt) waiting.offered = known(offered);
    asked->filter.nodes = may_preempt ? known(offered, waiting.offered.names()) : waiting.offered;
    if (asked->filter.nodes.empty())
      return std::string("the extender does not know these nodes yet");
    const auto plan = state_.scheduler.propose(*asked, now);
    if (!plan.ok()) return plan.status();
    if (plan->result == apiary::plan_result::preempt && !may_preempt)
      return absl::StrCat("gang ", key, " can start when ", plan->victims.size(),
                          " gangs of lower priority have been preempted");
    if (plan->result == apiary::plan_result::wait)
      return may_preempt ? absl::StrCat("no eviction on the offered nodes helps gang ", key)
                         : waiting.explanation(state_.scheduler, *asked, pod.shape(), now);
    if (const absl::Status done = state_.scheduler.commit(*plan); !done.ok()) return done;
    waiting_.erase(key);
    gang_tasks& gang = state_.gangs[key] = {.shape = pod.shape(), .since = now};
    for (const apiary::placement& p : plan->tasks)
      gang.tasks.push_back({.node = state_.scheduler.node(p.node)->name, .gpus = pod.gpus});
    state_.log.push_back(
        absl::StrCat(plan->result == apiary::plan_result::bind ? "decide " : "preempt ", key, " ",
                     gang.nodes()));
    // A victim without a bound pod ends at once.
    for (const apiary::job_key& victim : plan->victims)
      if (!state_.gangs.at(victim.text()).any_bound())
        state_.forget(victim.text(), "it is preempted");
    if (plan->result == apiary::plan_result::bind) return std::string();
    return state_.scheduler.find(key)->victims.empty() ? decide(pod, offered, may_preempt, now)
                                                       : victims_text(key);
  }
  // Moves the tasks of the gang that no pod is bound to from bad nodes to offered ones. Empty: they have
  // moved, or there are none; otherwise why they cannot.
  std::string replace_bad_nodes(const std::string& key, const std::vector<std::string>& offered) {
    gang_tasks& gang = state_.gangs.at(key);
    const auto bad = [&](bool bound) {
      return std::find_if(gang.tasks.begin(), gang.tasks.end(), [&](const task_record& t) {
        return t.bound == bound && state_.nodes.is_bad(t.node);
      });
    };
    if (bad(false) == gang.tasks.end()) return "";
    // The gang scheduler would move it, too.
    if (const auto t = bad(true); t != gang.tasks.end())
      return absl::StrCat("gang ", key, " gets no other nodes while its pod ",
                          state_.pods.at(t->uid).pod.full_name(), " runs on the bad node ",
                          t->node);
    // kube-scheduler offers other nodes now than when the gang was decided.
    auto running = *state_.scheduler.find(key);
    running.what.filter.nodes = known(offered);
    if (running.what.filter.nodes.empty()) return "the extender does not know these nodes yet";
    state_.scheduler.finish(key).IgnoreError();
    absl::Status done = state_.scheduler.recover(running.what, running.tasks, running.started);
    if (!done.ok()) {  // update() recovers it from its pods
      state_.forget(key, std::string(done.message()));
      return std::string(done.message());
    }
    const auto answer = state_.scheduler.explain_replacement(key);
    if (!answer.ok()) return std::string(answer.status().message());
    if (answer->plan.result != apiary::plan_result::bind) return answer->text;
    done = state_.scheduler.commit(answer->plan);
    if (!done.ok()) return std::string(done.message());
    for (std::size_t i = 0; i < answer->plan.replaced.size(); ++i)
      gang.tasks[answer->plan.replaced[i]].node =
          state_.scheduler.node(answer->plan.tasks[i].node)->name;
    state_.log.push_back(absl::StrCat("replace ", key, " ", gang.nodes()));
    return "";
  }
  std::string victims_text(const std::string& key) const {
    return absl::StrCat("gang ", key, " waits for the end of ",
                        absl::StrJoin(state_.scheduler.find(key)->victims, ", ",
                                      [](std::string* to, const apiary::job_key& victim) {
                                        *to += victim.text();
                                      }));
  }

  known_cluster state_;
  std::map<std::string, waiting_gang> waiting_{};      // by key
  std::map<std::string, apiary::time_ms> evict_at_{};  // victims, by uid
};

}  // namespace apiary_kubernetes
