// apiary/examples/hosts/slurm/tenant_decider.h - decides about Slurm's jobs with HiveD: accounts own racks and nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_records.h"
#include "tenants_file.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/queries.h>
#include <apiary/model/job.h>
#include <apiary/model/plan.h>
#include <apiary/topology/cell_names.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apiary_slurm {

// Answers slurm_scheduler's questions. A job of an account uses the cells of this account; a job with
// priority -1 is a guest: it runs on idle GPUs until an owner needs them.
//
// The GPUs of a job that this scheduler has not released count as bad, so that nothing uses them and
// nothing ends the job.
class tenant_decider {
 public:
  // Slurm refuses a comment of more than 1024 bytes.
  static constexpr std::size_t max_cells_text = 900;

  // kInvalidArgument: see configuration_of and hived::create.
  [[nodiscard]] static absl::StatusOr<tenant_decider> create(
      const apiary::gang_cluster& cluster, const std::vector<tenant_quota>& tenants) {
    const auto config = configuration_of(cluster, tenants);
    if (!config.ok()) return config.status();
    auto scheduler = apiary::hived::create(*config);
    if (!scheduler.ok()) return scheduler.status();
    return tenant_decider(*std::move(scheduler), cluster);
  }

  // Stores all that decisions depend on, for restore().
  [[nodiscard]] std::string snapshot() const { return hived_.snapshot(); }
  // Replaces all gangs by those of a snapshot. Errors, and then nothing changes: see hived::restore. Slurm
  // says which nodes are bad now, and which other jobs run.
  absl::Status restore(std::string_view text) {
    if (absl::Status status = hived_.restore(text); !status.ok()) return status;
    nodes_of_.clear();
    foreign_.clear();
    bad_.clear();
    for (std::uint32_t n = 0; n < hived_.layout().num_nodes(); ++n)
      restore_health(apiary::node_id(n));
    for (const apiary::gang_slot slot : hived_.gangs().by_job()) {
      const apiary::gang_record& gang = hived_.gangs()[slot];
      if (gang.state == apiary::gang_state::allocated)
        remember(gang.request.job.value, hived_.tasks(gang));
    }
    return absl::OkStatus();
  }
  // The nodes that were not usable at the time of the snapshot.
  [[nodiscard]] std::vector<std::string> unusable() const {
    std::vector<std::string> names;
    for (const apiary::node_id node : bad_) names.push_back(hived_.layout().node_name(node));
    return names;
  }
  // The jobs that it knows, with their nodes; preempting ones have none.
  [[nodiscard]] std::map<std::uint32_t, std::vector<std::string>> jobs() const {
    std::map<std::uint32_t, std::vector<std::string>> all;
    for (const apiary::gang_slot slot : hived_.gangs().by_job()) {
      const apiary::gang_record& gang = hived_.gangs()[slot];
      std::vector<std::string>& nodes = all[gang.request.job.value];
      if (gang.state == apiary::gang_state::preempting) continue;
      for (const apiary::hived_placement& task : hived_.tasks(gang))
        nodes.push_back(hived_.layout().node_name(task.node));
      std::sort(nodes.begin(), nodes.end());
    }
    return all;
  }

  void mark(const std::string& name, bool usable) {
    const auto node = hived_.layout().find_node(name);
    if (!node) return;
    if (!usable) {
      bad_.insert(*node);
      hived_.mark_bad(*node).IgnoreError();
      return;
    }
    bad_.erase(*node);
    hived_.mark_healthy(*node).IgnoreError();
    for (const auto& [job, gpus] : foreign_)
      for (const gpu& one : gpus)
        if (one.node == *node) hived_.mark_bad(one.node, one.position).IgnoreError();
  }
  [[nodiscard]] gang_state state(std::uint32_t job) const {
    if (foreign_.contains(job)) return gang_state::runs;
    const apiary::gang_record* const gang = hived_.find(apiary::job_id(job));
    if (gang == nullptr) return gang_state::none;
    if (gang->state == apiary::gang_state::preempting) return gang_state::preempting;
    return hived_.being_preempted(*gang) ? gang_state::ends : gang_state::runs;
  }
  void finish(std::uint32_t job) {
    hived_.finish(apiary::job_id(job)).IgnoreError();
    nodes_of_.erase(job);
    const auto at = foreign_.find(job);
    if (at == foreign_.end()) return;
    for (const gpu& one : at->second)
      if (!bad_.contains(one.node)) hived_.mark_healthy(one.node, one.position).IgnoreError();
    foreign_.erase(at);
  }
  [[nodiscard]] std::vector<std::uint32_t> jobs_on(const std::string& name) const {
    std::vector<std::uint32_t> jobs;
    const auto node = hived_.layout().find_node(name);
    for (const auto& [job, nodes] : nodes_of_)
      if (node && std::find(nodes.begin(), nodes.end(), *node) != nodes.end()) jobs.push_back(job);
    return jobs;
  }

  // Adds a job that runs or is released, on the cells that its comment names. Jobs with such cells come
  // first. False: its GPUs are in use, or its record cannot be read.
  bool recover(const job_record& job, apiary::time_ms) {
    const bool released = has_released_mark(job.comment);
    if (job.phase == job_phase::running && !released) return recover_foreign(job);
    // The number of GPUs is that which it asked for.
    auto asked = request_of(job);
    if (!asked.ok() || job.nodes.empty() || job.nodes.size() != job.num_nodes) return false;
    std::vector<apiary::hived_placement> tasks;
    std::vector<apiary::level_t> levels;
    const std::size_t at = job.comment.find("; cells=");
    if (at != std::string::npos &&
        read_cells(std::string_view(job.comment).substr(at + 8), job, tasks, levels)) {
      if (!uses_foreign(tasks) && hived_.recover(*asked, tasks, levels).ok()) {
        remember(job.id, tasks);
        return true;
      }
    }
    tasks.clear();
    for (const std::string& name : job.nodes) {
      const auto node = hived_.layout().find_node(name);
      if (!node) return false;
      const std::uint64_t mask = lowest_unused(*node, asked->groups[0].gpus);
      if (mask == 0) return false;
      tasks.push_back({*node, mask});
    }
    if (!hived_.recover(*asked, tasks).ok()) return false;
    remember(job.id, tasks);
    return true;
  }

  // The decision about a held job. It changes nothing. An error's message is for the job's user.
  [[nodiscard]] absl::StatusOr<decision> propose(const job_record& job, apiary::time_ms) {
    auto asked = request_of(job);
    if (!asked.ok()) return asked.status();
    auto plan = hived_.propose(*asked);
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    asked_ = *std::move(asked);
    decision answer{.result = plan_.result};
    if (plan_.result == apiary::plan_result::bind) {
      for (const apiary::hived_placement& task : plan_.tasks)
        answer.nodes.push_back(hived_.layout().node_name(task.node));
      std::sort(answer.nodes.begin(), answer.nodes.end());
    }
    for (const apiary::job_id victim : plan_.victims) answer.victims.push_back(victim.value);
    answer.withdraws = plan_.result == apiary::plan_result::wait;
    return answer;
  }
  // Applies the last decision.
  [[nodiscard]] bool commit() {
    if (!hived_.commit(plan_).ok()) return false;
    if (plan_.result == apiary::plan_result::bind) remember(asked_.job.value, plan_.tasks);
    return true;
  }
  // What the comment of a job keeps, so that a restart without a snapshot finds its cells; empty if it would
  // be too long.
  [[nodiscard]] std::string cells_of(std::uint32_t job) const {
    const apiary::gang_record* const gang = hived_.find(apiary::job_id(job));
    if (gang == nullptr) return {};
    const std::vector<apiary::level_t> levels =
        apiary::hived_queries::whole_cell_levels(hived_, *gang);
    std::vector<std::pair<std::string, std::string>> tasks;  // name of the node, cells
    std::size_t first = 0;
    for (const apiary::hived_placement& task : hived_.tasks(*gang)) {
      const auto gpus = static_cast<std::size_t>(std::popcount(task.leaves));
      std::string text = absl::StrCat(absl::Hex(task.leaves));
      if (!levels.empty()) text += '.';
      for (std::size_t i = first; i < first + gpus && !levels.empty(); ++i) {
        if (i > first && levels[i] == levels[first]) continue;
        if (i > first) return {};  // its GPUs are of different cells: HiveD finds cells again
        text += static_cast<char>('0' + levels[i]);
      }
      first += gpus;
      tasks.emplace_back(hived_.layout().node_name(task.node), std::move(text));
    }
    std::sort(tasks.begin(), tasks.end());
    std::string all;
    for (std::size_t i = 0, equal = 0; i < tasks.size(); i += equal) {
      equal = 1;
      while (i + equal < tasks.size() && tasks[i + equal].second == tasks[i].second) ++equal;
      absl::StrAppend(&all, all.empty() ? "" : ",", equal, "x", tasks[i].second);
    }
    return all.size() > max_cells_text ? std::string() : all;
  }
  // Why the job of the last decision waits.
  [[nodiscard]] std::string explain(const job_record& job, apiary::time_ms) {
    const std::string account = job.account.empty() ? "(none)" : job.account;
    const bool guest = asked_.priority == apiary::gang_request::opportunistic_priority;
    std::string text = guest ? "waits for idle GPUs: "
                             : absl::StrCat("waits for the GPUs of account ", account, ": ");
    absl::StrAppend(&text, apiary::wait_reason_text(plan_.wait.reason));
    const apiary::infeasibility_proof* const why = plan_.wait.why();
    if (why == nullptr) return text;
    const auto name = [&](apiary::level_t level, std::uint32_t cell) {
      return guest ? name_of(plan_.wait.chain, level, cell)
                   : absl::StrCat(cell + 1, " of account ", account);
    };
    const apiary::cell_names names({"GPU", "node", "rack"}, name,
                                   guest ? "cluster" : absl::StrCat("quota of account ", account));
    absl::StrAppend(&text, "; ", why->text(apiary::constraints_of(asked_), names));
    return text;
  }

  [[nodiscard]] const apiary::hived& hived() const noexcept { return hived_; }
  [[nodiscard]] std::uint64_t hash() const { return hived_.hash(); }
  [[nodiscard]] std::vector<std::string> audit() const {
    std::vector<std::string> faults;
    for (const apiary::violation& one : apiary::audit(hived_))
      faults.push_back(absl::StrCat(one.invariant, ": ", one.witness));
    return faults;
  }

 private:
  struct gpu {
    apiary::node_id node{};
    std::uint32_t position = 0;
  };

  tenant_decider(apiary::hived scheduler, const apiary::gang_cluster& cluster)
      : hived_(std::move(scheduler)), has_racks_(!cluster.levels.empty()) {
    for (const apiary::gang_cluster::node& node : cluster.nodes)
      if (hived_.layout().find_node(node.name)) nodes_[node.name] = node;
  }

  // The gang that a held or released job asks for.
  [[nodiscard]] absl::StatusOr<apiary::gang_request> request_of(const job_record& job) {
    const auto no = [](const std::string& why) { return absl::UnimplementedError(why); };
    const auto needs = needs_of(job);
    if (!needs.ok()) return needs.status();
    const auto tenant = hived_.layout().find_tenant(job.account);
    if (!tenant)
      return no(absl::StrCat("account \"", job.account, "\" is not in the tenants file"));
    constexpr std::int32_t guest = apiary::gang_request::opportunistic_priority;
    if (needs->priority < guest || needs->priority > apiary::gang_request::max_priority)
      return no(absl::StrCat("priority ", needs->priority, " is not from ", guest, " to ",
                             apiary::gang_request::max_priority));
    apiary::gang_request asked{.job = apiary::job_id(job.id),
                               .tenant = *tenant,
                               .priority = needs->priority,
                               .groups = {{.tasks = needs->nodes, .gpus = needs->gpus}}};
    apiary::request_constraints constraints;
    // Two of its tasks would fit on a node, but Slurm gives it so many nodes.
    const bool small =
        std::any_of(hived_.layout().chains.begin(), hived_.layout().chains.end(),
                    [&](const apiary::chain_layout& chain) {
                      return 2 * needs->gpus <= chain.tree.leaves_per_cell(chain.node_level);
                    });
    if (needs->nodes > 1 && small)
      constraints.groups = {{.spread = {{.level = node_level, .tasks = 1}}}};
    if (needs->one_rack) {
      if (!has_racks_) return no("--switches=1: the cluster has no switches");
      if (needs->nodes > 1) constraints.required = node_level + 1;
    }
    if (constraints.any()) asked.constraints = std::move(constraints);
    if (!needs->features.empty()) {
      suggested_ = apiary::summary_bitset(hived_.layout().num_nodes());
      for (const auto& [name, node] : nodes_) {
        const bool has_all = std::all_of(needs->features.begin(), needs->features.end(),
                                         [&, &has = node.labels](std::string_view f) {
                                           return std::find(has.begin(), has.end(), f) != has.end();
                                         });
        if (has_all) suggested_.set(hived_.layout().find_node(name)->value);
      }
      asked.suggested = &suggested_;
    }
    return asked;
  }

  // The name of a physical cell.
  [[nodiscard]] std::string name_of(std::uint32_t in, apiary::level_t level,
                                    std::uint32_t cell) const {
    const apiary::chain_layout& chain = hived_.layout().chains[in];
    if (level < node_level) return absl::StrCat(cell);
    if (level == node_level) return chain.node_names[cell];
    const std::size_t nodes =
        chain.tree.leaves_per_cell(level) / chain.tree.leaves_per_cell(node_level);
    return nodes_.at(chain.node_names[cell * nodes]).cells[0];
  }
  // Of a restored scheduler: a node of which all GPUs are bad stays bad, for which virtual cells the bad
  // GPUs are bound to matters. Others were those of jobs that this scheduler had not released.
  void restore_health(apiary::node_id node) {
    const apiary::chain_id in = hived_.layout().chain_of(node);
    const auto leaves =
        hived_.layout().chain(in).tree.descendants(hived_.layout().node_cell(node), 0);
    std::vector<std::uint32_t> bad;
    for (std::uint32_t i = 0; i < leaves.size(); ++i)
      if (const auto leaf = apiary::hived_queries::state_of(hived_, in, leaves[i]);
          leaf.ok() && leaf->bad > 0)
        bad.push_back(i);
    if (bad.size() == leaves.size()) {
      bad_.insert(node);
      return;
    }
    for (const std::uint32_t position : bad) hived_.mark_healthy(node, position).IgnoreError();
  }
  void remember(std::uint32_t job, std::span<const apiary::hived_placement> tasks) {
    std::vector<apiary::node_id>& nodes = nodes_of_[job];
    nodes.clear();
    for (const apiary::hived_placement& task : tasks) nodes.push_back(task.node);
  }
  // The lowest positions of the node that no gang and no foreign job uses, as a mask; 0: too few.
  [[nodiscard]] std::uint64_t lowest_unused(apiary::node_id node, std::uint32_t gpus) const {
    std::uint64_t used = 0;
    for (const auto& [job, nodes] : nodes_of_) {
      const apiary::gang_record* const gang = hived_.find(apiary::job_id(job));
      if (gang == nullptr) continue;
      for (const apiary::hived_placement& task : hived_.tasks(*gang))
        if (task.node == node) used |= task.leaves;
    }
    for (const auto& [job, all] : foreign_)
      for (const gpu& one : all)
        if (one.node == node) used |= std::uint64_t{1} << one.position;
    const apiary::chain_layout& chain = hived_.layout().chain(hived_.layout().chain_of(node));
    const std::uint32_t all = chain.tree.leaves_per_cell(chain.node_level);
    std::uint64_t mask = 0;
    for (std::uint32_t i = 0; i < all && gpus > 0; ++i)
      if ((used >> i & 1U) == 0) mask |= std::uint64_t{1} << i, --gpus;
    return gpus > 0 ? 0 : mask;
  }
  // Whether a job that this scheduler has not released has one of the GPUs.
  [[nodiscard]] bool uses_foreign(std::span<const apiary::hived_placement> tasks) const {
    for (const auto& [job, all] : foreign_)
      for (const gpu& one : all)
        for (const apiary::hived_placement& task : tasks)
          if (task.node == one.node && (task.leaves >> one.position & 1U) != 0) return true;
    return false;
  }
  bool recover_foreign(const job_record& job) {
    std::vector<gpu> all;
    for (std::size_t i = 0; i < job.nodes.size(); ++i) {
      const auto node = hived_.layout().find_node(job.nodes[i]);
      const auto gpus = gpus_on(job, i);
      if (!gpus) return false;
      if (!node || *gpus == 0) continue;  // a node without GPUs
      std::uint64_t mask = lowest_unused(*node, *gpus);
      if (mask == 0) return false;
      for (; mask != 0; mask &= mask - 1)
        all.push_back({*node, static_cast<std::uint32_t>(std::countr_zero(mask))});
    }
    for (const gpu& one : all) hived_.mark_bad(one.node, one.position).IgnoreError();
    foreign_[job.id] = std::move(all);
    return true;
  }
  // Reads what cells_of wrote: "2xff.2,1xf.1", for the nodes of the job in the order of their names.
  [[nodiscard]] bool read_cells(std::string_view text, const job_record& job,
                                std::vector<apiary::hived_placement>& tasks,
                                std::vector<apiary::level_t>& levels) const {
    std::vector<std::string> names = job.nodes;
    std::sort(names.begin(), names.end());
    for (const std::string_view entry : words(text, ',')) {
      const std::size_t times = entry.find('x');
      std::uint32_t count = 0;
      if (times == std::string_view::npos || !read_number(entry.substr(0, times), count))
        return false;
      std::string_view mask_text = entry.substr(times + 1), level;
      if (const std::size_t dot = mask_text.find('.'); dot != std::string_view::npos) {
        level = mask_text.substr(dot + 1);
        mask_text = mask_text.substr(0, dot);
      }
      std::uint64_t mask = 0;
      const char* const end = mask_text.data() + mask_text.size();
      if (std::from_chars(mask_text.data(), end, mask, 16).ptr != end || mask == 0) return false;
      if (count > names.size() - tasks.size()) return false;
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto node = hived_.layout().find_node(names[tasks.size()]);
        if (!node) return false;
        tasks.push_back({*node, mask});
        if (level.size() == 1 && level[0] >= '0' && level[0] <= '9')
          levels.insert(levels.end(), static_cast<std::size_t>(std::popcount(mask)),
                        static_cast<apiary::level_t>(level[0] - '0'));
      }
    }
    return tasks.size() == names.size();
  }

  static constexpr apiary::level_t node_level = 1;  // GPUs are level 0

  apiary::hived hived_;
  bool has_racks_ = false;
  std::map<std::string, apiary::gang_cluster::node> nodes_;         // those with GPUs
  std::map<std::uint32_t, std::vector<apiary::node_id>> nodes_of_;  // of gangs that run
  std::map<std::uint32_t, std::vector<gpu>> foreign_;  // jobs that this scheduler has not released
  std::set<apiary::node_id> bad_;
  apiary::gang_plan plan_;
  apiary::gang_request asked_;
  apiary::summary_bitset suggested_{0};
};

}  // namespace apiary_slurm
