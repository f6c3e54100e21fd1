// apiary/tests/support/hived_play.h - a random host of a HiveD scheduler, that checks each answer.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_clusters.h"
#include "support/hived_constraints.h"
#include "support/hived_names.h"
#include "support/hived_proofs.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/queries.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

// Sends a scheduler random events: gangs, whose victims it ends at once, later or never; merges of
// gangs; ends of gangs and tasks; failures and repairs; wrong calls. It knows which gangs must exist
// and which gang was downgraded for which, and checks each answer.
class hived_play {
 public:
  // The relative frequencies of the events.
  struct habits {
    std::uint32_t gangs = 40;    // new ones
    std::uint32_t ends = 24;     // of gangs
    std::uint32_t tasks = 6;     // that end
    std::uint32_t pursued = 14;  // preempting gangs that propose again, or are cancelled
    std::uint32_t marks = 12;    // of nodes and leaves
    std::uint32_t misuses = 4;
    std::uint32_t moves = 0;        // to another configuration, or back to the first
    std::uint32_t restarts = 0;     // of the scheduler, with all running gangs recovered
    bool suggested = true;          // whether some requests name nodes
    bool proofs = false;            // whether the proofs of gangs that wait are counted again
    std::uint32_t constraints = 0;  // of ten gangs, how many are under constraints
  };
  struct counts {
    std::uint64_t events = 0, bound = 0, preempting = 0, waiting = 0, cancelled = 0, downgraded = 0,
                  refused = 0, proven = 0, regained = 0, ending = 0, moved = 0, restarted = 0,
                  returned = 0, outlived = 0;
  };

  hived_play(const apiary::hived_config& config, std::uint64_t seed, const habits& of)
      : scheduler(*apiary::hived::create(config)), random(seed), habits_(of), first_(config) {}

  apiary::hived scheduler;
  apiary::rng random;
  counts seen{};
  std::map<apiary::job_id, apiary::gang_request> gangs{};  // that must be there
  // Called with each plan.
  std::function<void(const apiary::gang_request&, const apiary::gang_plan&)> observe{};

  void step() {
    ++seen.events;
    std::uint32_t r =
        random.uniform(habits_.gangs + habits_.ends + habits_.tasks + habits_.pursued +
                       habits_.marks + habits_.moves + habits_.restarts + habits_.misuses);
    const auto is = [&](std::uint32_t part) {
      if (r < part) return true;
      r -= part;
      return false;
    };
    const std::uint64_t before = scheduler.hash();
    if (is(habits_.gangs)) {
      apiary::job_id job(next_++);
      if (random.uniform(8) == 0) job = apiary::job_id(random.uniform(next_));
      if (!gangs.contains(job)) ask(some_gang(job));
    } else if (is(habits_.ends)) {
      if (const auto job = any_gang()) end(*job);
    } else if (is(habits_.tasks)) {
      if (const auto job = any_gang()) end_task(*job);
    } else if (is(habits_.pursued)) {
      pursue();
    } else if (is(habits_.marks)) {
      mark();
    } else if (is(habits_.moves)) {
      move();
    } else if (is(habits_.restarts)) {
      restart();
    } else {
      misuse();
    }
    if (stale_ && scheduler.hash() != before && random.uniform(4) == 0) {
      refuse(scheduler.commit(*stale_), absl::StatusCode::kAborted);
      stale_.reset();
    }
    REQUIRE(scheduler.gangs().size() == gangs.size());
  }

  // What the scheduler has now.
  [[nodiscard]] const apiary::hived_config& config() const noexcept { return config_; }
  // Does not commit a stale plan before the next one. A scheduler that takes the place of another
  // one may accept plans that were proposed in an equal state.
  void forget_plan() { stale_.reset(); }
  // Ends all gangs and repairs all hardware.
  void tidy_up() {
    while (!gangs.empty()) end(gangs.begin()->first);
    for (std::uint32_t n = 0; n < scheduler.layout().num_nodes(); ++n)
      REQUIRE(scheduler.mark_healthy(apiary::node_id(n)).ok());
  }

  // Which gang breaks a rule where it is, and which; empty: none.
  [[nodiscard]] std::string broken_rules() const {
    for (const auto& [job, r] : gangs) {
      const std::string broken =
          broken_rule(scheduler.layout(), r, scheduler.tasks(*scheduler.find(job)));
      if (!broken.empty()) return "gang " + std::to_string(job.value) + ": " + broken;
    }
    return "";
  }

 private:
  [[nodiscard]] apiary::gang_request some_gang(apiary::job_id job) {
    apiary::gang_request r = random_gang(scheduler.layout(), job, random);
    const std::vector<apiary::chain_layout>& chains = scheduler.layout().chains;
    if (habits_.constraints > 0 && random.uniform(10) < habits_.constraints)
      add_constraints(r, chains[random.uniform(static_cast<std::uint32_t>(chains.size()))], random);
    return r;
  }
  [[nodiscard]] std::optional<apiary::job_id> any_gang() {
    if (gangs.empty()) return std::nullopt;
    return std::next(gangs.begin(), random.uniform(static_cast<std::uint32_t>(gangs.size())))
        ->first;
  }
  void refuse(const absl::Status& status, absl::StatusCode code) {
    INFO(status.message());
    REQUIRE(status.code() == code);
    ++seen.refused;
  }
  void end(apiary::job_id job) {
    REQUIRE(scheduler.finish(job).ok());
    forget(job);
    check_restored(job);
  }
  // The gang has ended.
  void forget(apiary::job_id job) {
    gangs.erase(job);
    places_.erase(job);
    downgraded_for_.erase(job);
  }
  // After a preemption was cancelled: checks that the gangs downgraded for it have their cells back,
  // except gangs that would get none if they were recovered now.
  void check_restored(apiary::job_id withdrawn) {
    for (auto& [job, by] : downgraded_for_) {
      if (by.erase(withdrawn) == 0) continue;
      if (scheduler.find(job)->guaranteed()) {
        by.clear();
        ++seen.regained;
        continue;
      }
      by.merge(claimers_of(job));
      if (scheduler.being_preempted(*scheduler.find(job))) continue;  // it is to end for another
      apiary::hived without = scheduler;
      const std::vector<apiary::hived_placement> tasks = scheduler.tasks(*scheduler.find(job));
      REQUIRE(without.finish(job).ok());
      if (!any_device(devices_of(scheduler, tasks))) continue;
      const auto has_cells = without.recover(gangs.at(job), tasks);
      REQUIRE(has_cells.ok());
      // It would take others' whose levels are not known either.
      if (*has_cells) REQUIRE(num_downgraded(without) >= num_downgraded(scheduler));
    }
  }
  // Those that have claimed leaves of a gang.
  [[nodiscard]] std::set<apiary::job_id> claimers_of(apiary::job_id job) const {
    std::set<apiary::job_id> claimers;
    for (const apiary::chain_leaf& l : scheduler.find(job)->leaves) {
      if (!l.leaf.valid()) continue;
      const apiary::gang_slot by = scheduler.cells().chain(l.chain).holders(l.leaf).claimer;
      if (by.valid()) claimers.insert(scheduler.gangs()[by].request.job);
    }
    return claimers;
  }
  [[nodiscard]] static std::size_t num_downgraded(const apiary::hived& h) {
    std::size_t n = 0;
    for (const apiary::gang_slot s : h.gangs().by_job()) n += h.gangs()[s].downgraded ? 1U : 0U;
    return n;
  }
  void end_task(apiary::job_id job) {
    std::vector<std::uint32_t> running;
    for (std::uint32_t t = 0; t < places_[job].size(); ++t)
      if (!places_[job][t].empty()) running.push_back(t);
    const std::uint32_t task = running[random.uniform(static_cast<std::uint32_t>(running.size()))];
    REQUIRE(scheduler.finish_task(job, task).ok());
    const std::uint64_t before = scheduler.hash();
    refuse(scheduler.finish_task(job, task), absl::StatusCode::kNotFound);
    REQUIRE(scheduler.hash() == before);
    places_[job][task].clear();
    if (running.size() > 1) {
      REQUIRE(scheduler.find(job) != nullptr);
      const bool there = scheduler.find(job)->count_live(0, scheduler.find(job)->leaves.size()) > 0;
      seen.outlived += there ? 0U : 1U;
      return;
    }
    forget(job);
    check_restored(job);
  }

  // Another configuration: what is preempting asks anew, what runs is known where it runs, also
  // where that was gone and is there again.
  void move() {
    const apiary::hived old = scheduler;
    config_ = random.uniform(2) == 0 ? first_ : changed_cluster(first_, random);
    const auto report = scheduler.reconfigure(config_);
    REQUIRE(report.ok());
    const std::set<device_name> before = all_devices(old);
    const std::set<device_name> present = all_devices(scheduler);
    downgraded_for_.clear();
    for (const apiary::gang_slot s : old.gangs().by_job()) {
      const apiary::job_id job = old.gangs()[s].request.job;
      const std::vector<task_devices> left = those_there(places_.at(job), present);
      if (old.gangs()[s].state == apiary::gang_state::preempting || !any_device(left)) {
        REQUIRE(scheduler.find(job) == nullptr);
        forget(job);
        continue;
      }
      REQUIRE(scheduler.find(job) != nullptr);
      REQUIRE(devices_of(scheduler, *scheduler.find(job)) == left);
      gangs[job] = scheduler.find(job)->request;
      seen.returned += those_there(left, before) != left ? 1U : 0U;
    }
    ++seen.moved;
  }
  // A new scheduler, to which the host tells what runs where there is anything now: those with
  // their tenant's cells first, all with the levels of these or none.
  void restart() {
    struct running_gang {
      apiary::gang_request request{};
      std::vector<apiary::level_t> levels{};
      bool guaranteed = false;
    };
    const apiary::hived old = std::exchange(scheduler, *apiary::hived::create(config_));
    std::vector<running_gang> order;
    const std::set<device_name> present = all_devices(scheduler);
    for (const apiary::gang_slot s : old.gangs().by_job()) {
      const apiary::gang_record& gang = old.gangs()[s];
      const apiary::job_id job = gang.request.job;
      places_[job] = those_there(std::move(places_[job]), present);
      if (gang.state == apiary::gang_state::preempting || !any_device(places_[job])) {
        forget(job);
        continue;
      }
      order.push_back(
          {gang.request, apiary::hived_queries::whole_cell_levels(old, gang), gang.guaranteed()});
    }
    downgraded_for_.clear();
    stale_.reset();
    random.shuffle(order);
    std::stable_partition(order.begin(), order.end(),
                          [](const running_gang& g) { return g.guaranteed; });
    if (random.uniform(2) == 0) copy_health(old, scheduler);
    const bool with_levels = random.uniform(2) == 0;
    for (const running_gang& g : order) {
      const std::vector<apiary::hived_placement> tasks =
          placements_of(scheduler, places_[g.request.job]);
      const auto own = with_levels ? scheduler.recover(g.request, tasks, g.levels)
                                   : scheduler.recover(g.request, tasks);
      REQUIRE(own.ok());
      if (with_levels && g.guaranteed) REQUIRE(*own);
      REQUIRE(devices_of(scheduler, *scheduler.find(g.request.job)) == places_[g.request.job]);
    }
    ++seen.restarted;
  }

  // Proposes; a plan changes nothing.
  [[nodiscard]] absl::StatusOr<apiary::gang_plan> proposal(const apiary::gang_request& r) {
    const std::uint64_t before = scheduler.hash();
    absl::StatusOr<apiary::gang_plan> plan = scheduler.propose(r);
    REQUIRE(scheduler.hash() == before);
    if (plan.ok() && plan->result == apiary::plan_result::wait && plan->cancelled.empty()) {
      refuse(scheduler.commit(*plan), absl::StatusCode::kFailedPrecondition);
      REQUIRE(scheduler.hash() == before);
      if (plan->wait.shortage) REQUIRE(plan->wait.shortage->present < plan->wait.shortage->needed);
      ++seen.waiting;
    }
    if (plan.ok() && plan->result == apiary::plan_result::wait && habits_.proofs)
      check(plan->wait, r);
    if (plan.ok() && observe) observe(r, *plan);
    return plan;
  }
  void ask(apiary::gang_request r) {
    const apiary::summary_bitset nodes = random_nodes(scheduler.layout(), random);
    if (habits_.suggested && random.uniform(5) == 0) r.suggested = &nodes;
    const auto plan = proposal(r);
    if (!plan.ok()) {
      ++seen.refused;
      REQUIRE((plan.status().code() == absl::StatusCode::kFailedPrecondition ||
               plan.status().code() == absl::StatusCode::kInvalidArgument));
      return;
    }
    if (plan->result == apiary::plan_result::wait) return;
    check(*plan, r);
    if (random.uniform(16) == 0) {  // only asked
      stale_ = *plan;
      return;
    }
    commit(*plan, r);
    if (plan->result == apiary::plan_result::preempt && random.uniform(2) == 0) {
      for (const apiary::job_id victim : plan->victims) end(victim);
      const auto again = proposal(r);
      REQUIRE((again.ok() && again->result == apiary::plan_result::bind));
      REQUIRE(again->tasks == plan->tasks);
      commit(*again, r);
    }
  }
  // Where all hardware is well and suggested, every gang that waits has a proof.
  void check(const apiary::gang_wait& wait, const apiary::gang_request& r) {
    const bool proven = check_proof(scheduler, r, wait, random);
    if (habits_.marks == 0 && r.suggested == nullptr) REQUIRE(proven);
    seen.proven += proven ? 1U : 0U;
  }
  // What a plan must say whatever the state.
  void check(const apiary::gang_plan& plan, const apiary::gang_request& r) {
    std::size_t t = 0;
    for (const apiary::task_group& m : r.groups) {
      for (std::uint32_t k = 0; k < m.tasks; ++k, ++t) {
        const apiary::hived_placement at = plan.tasks.at(t);
        REQUIRE(static_cast<std::uint32_t>(std::popcount(at.leaves)) == m.gpus);
        if (r.suggested != nullptr) REQUIRE(r.suggested->test(at.node.value));
      }
    }
    REQUIRE(t == plan.tasks.size());
    REQUIRE((plan.result == apiary::plan_result::bind) == plan.victims.empty());
    for (const apiary::job_id victim : plan.victims) {
      const apiary::gang_record* gang = scheduler.find(victim);
      REQUIRE((gang != nullptr && gang->state == apiary::gang_state::allocated));
      REQUIRE(r.priority >
              (std::binary_search(plan.downgraded.begin(), plan.downgraded.end(), victim)
                   ? apiary::gang_request::opportunistic_priority
                   : gang->effective_priority()));
      REQUIRE((!gang->guaranteed() || gang->request.tenant == r.tenant));
    }
    for (const apiary::job_id job : plan.downgraded) {
      REQUIRE(scheduler.find(job)->request.lazy);
      REQUIRE(scheduler.find(job)->request.priority < r.priority);
    }
    for (const apiary::job_id job : plan.cancelled) {
      REQUIRE(scheduler.find(job)->state == apiary::gang_state::preempting);
      if (job != r.job) REQUIRE(scheduler.find(job)->request.priority < r.priority);
    }
  }
  void commit(const apiary::gang_plan& plan, const apiary::gang_request& r) {
    if (plan.result == apiary::plan_result::preempt && plan.cancelled.empty() &&
        scheduler.find(r.job) == nullptr)
      check_withdrawn(plan, r.job);
    REQUIRE(scheduler.commit(plan).ok());
    stale_ = plan;
    for (const apiary::job_id job : plan.cancelled) {
      forget(job);
      if (job != r.job) REQUIRE(scheduler.find(job) == nullptr);
    }
    seen.cancelled += plan.cancelled.size();
    seen.downgraded += plan.downgraded.size();
    update_downgraded(plan, r.job);
    if (plan.result == apiary::plan_result::wait) return;
    if (plan.result == apiary::plan_result::preempt) require_to_end(plan.victims);
    apiary::gang_request known = r;
    known.suggested = nullptr;
    gangs[r.job] = known;
    places_[r.job] = devices_of(scheduler, plan.tasks);
    const apiary::gang_record* gang = scheduler.find(r.job);
    REQUIRE(gang != nullptr);
    REQUIRE(scheduler.tasks(*gang) == plan.tasks);
    const bool bound = plan.result == apiary::plan_result::bind;
    REQUIRE((gang->state == apiary::gang_state::allocated) == bound);
    ++(bound ? seen.bound : seen.preempting);
  }
  // If a preemption is cancelled at once, every gang that need not end keeps its cells.
  void check_withdrawn(const apiary::gang_plan& plan, apiary::job_id job) {
    apiary::hived tried = scheduler;
    REQUIRE(tried.commit(plan).ok());
    REQUIRE(tried.cancel(job).ok());
    for (const apiary::gang_slot s : scheduler.gangs().by_job()) {
      const apiary::gang_record& gang = scheduler.gangs()[s];
      if (scheduler.being_preempted(gang)) continue;  // for another one, that has leaves of it
      CAPTURE(gang.request.job.value);
      const apiary::gang_record* now = tried.find(gang.request.job);
      REQUIRE(now->guaranteed() == gang.guaranteed());
      REQUIRE(apiary::hived_queries::whole_cell_levels(tried, *now) ==
              apiary::hived_queries::whole_cell_levels(scheduler, gang));
    }
  }
  // After a commit: updates for which gangs others are downgraded. If a gang runs now, the gangs that
  // it downgraded stay downgraded. If it was cancelled, they are downgraded for the new gang.
  void update_downgraded(const apiary::gang_plan& plan, apiary::job_id job) {
    if (plan.result == apiary::plan_result::wait) return check_restored(job);
    const bool claims = plan.result == apiary::plan_result::preempt;
    for (const apiary::job_id victim : plan.downgraded) downgraded_for_[victim] = {job};
    for (const apiary::job_id victim : plan.victims) {
      const apiary::gang_slot by = scheduler.find(victim)->ends_for;
      if (by.valid() && by == scheduler.gangs().find(job)) downgraded_for_[victim] = {job};
    }
    for (auto& [victim, by] : downgraded_for_) {
      if (by.empty()) continue;
      if (scheduler.find(victim)->guaranteed()) {
        by.clear();
        ++seen.regained;
        continue;
      }
      const std::size_t withdrawn = std::erase_if(by, [&](apiary::job_id b) {
        return std::binary_search(plan.cancelled.begin(), plan.cancelled.end(), b);
      });
      if (withdrawn > 0) {
        by.insert(job);
        by.merge(claimers_of(victim));
      }
      if (!claims) by.erase(job);
    }
  }
  // Checks that the victims of a committed plan must end; counts those that end for their cells.
  void require_to_end(const std::vector<apiary::job_id>& victims) {
    for (const apiary::job_id victim : victims) {
      const apiary::gang_record& gang = *scheduler.find(victim);
      REQUIRE(scheduler.being_preempted(gang));
      seen.ending += gang.ends_for.valid() ? 1U : 0U;
    }
  }
  // A preempting gang: some of its victims end, it asks again or gives up.
  void pursue() {
    std::vector<apiary::job_id> preempting;
    for (const auto& [job, r] : gangs)
      if (scheduler.find(job)->state == apiary::gang_state::preempting) preempting.push_back(job);
    if (preempting.empty()) return;
    const apiary::job_id job =
        preempting[random.uniform(static_cast<std::uint32_t>(preempting.size()))];
    if (random.uniform(4) == 0) {
      REQUIRE(scheduler.cancel(job).ok());
      forget(job);
      check_restored(job);
      ++seen.cancelled;
      return;
    }
    apiary::gang_request r = gangs.at(job);
    const apiary::summary_bitset nodes = random_nodes(scheduler.layout(), random);
    if (habits_.suggested && random.uniform(8) == 0) r.suggested = &nodes;
    const auto plan = proposal(r);
    REQUIRE(plan.ok());
    if (plan->result != apiary::plan_result::wait || !plan->cancelled.empty()) commit(*plan, r);
    if (plan->result == apiary::plan_result::preempt && random.uniform(2) == 0) {
      for (const apiary::job_id victim : plan->victims)
        if (random.uniform(3) != 0) end(victim);
    }
  }
  void mark() {
    const apiary::node_id node(random.uniform(scheduler.layout().num_nodes()));
    const bool good = random.uniform(2) == 0;
    if (random.uniform(4) == 0) {
      REQUIRE((good ? scheduler.mark_healthy(node) : scheduler.mark_bad(node)).ok());
      return;
    }
    const apiary::chain_layout& in = scheduler.layout().chain(scheduler.layout().chain_of(node));
    const std::uint32_t leaf = random.uniform(in.tree.leaves_per_cell(in.node_level));
    REQUIRE((good ? scheduler.mark_healthy(node, leaf) : scheduler.mark_bad(node, leaf)).ok());
  }

  // What a host must not send is refused with a reason, and changes nothing.
  void misuse() {
    using absl::StatusCode;
    const std::uint64_t before = scheduler.hash();
    const apiary::job_id unknown(~std::uint32_t{0} - 1);
    apiary::gang_request r = random_gang(scheduler.layout(), unknown, random);
    r.pinned.reset();
    r.leaf_type = {};
    const auto ask_wrongly = [&](StatusCode code) { refuse(scheduler.propose(r).status(), code); };
    const apiary::summary_bitset too_few(scheduler.layout().num_nodes() - 1, true);
    const apiary::node_id no_node(scheduler.layout().num_nodes());
    const auto job = any_gang();
    const bool preempts = job && scheduler.find(*job)->state == apiary::gang_state::preempting;
    switch (random.uniform(19)) {
      case 0:
        r.tenant = apiary::tenant_id(99);
        return ask_wrongly(StatusCode::kNotFound);
      case 1:
        r.tenant = {};
        return ask_wrongly(StatusCode::kNotFound);
      case 2:
        r.leaf_type = apiary::leaf_type_id(99);
        return ask_wrongly(StatusCode::kNotFound);
      case 3:
        r.priority = 1001;
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 4:
        r.priority = -2;
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 5:
        r.groups.clear();
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 6:
        r.groups[0].tasks = 0;
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 7:
        r.groups[0].gpus = 0;
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 8:
        r.groups[0].gpus = 65;
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 9:
        r.job = {};
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 10:
        r.suggested = &too_few;
        return ask_wrongly(StatusCode::kInvalidArgument);
      case 11:
        r.priority = 0;
        r.pinned = 99;
        return ask_wrongly(StatusCode::kNotFound);
      case 12:
        refuse(scheduler.finish(unknown), StatusCode::kNotFound);
        break;
      case 13:
        refuse(scheduler.cancel(unknown), StatusCode::kNotFound);
        break;
      case 14:
        refuse(scheduler.finish_task(unknown, 0), StatusCode::kNotFound);
        break;
      case 15:
        refuse(scheduler.mark_bad(no_node), StatusCode::kNotFound);
        break;
      case 16:
        refuse(scheduler.mark_bad(apiary::node_id(0), 64), StatusCode::kNotFound);
        break;
      case 17:
        if (job) refuse(scheduler.finish_task(*job, 99), StatusCode::kNotFound);
        break;
      default:
        if (!job) break;
        r = gangs.at(*job);
        if (preempts) {
          ++r.groups[0].tasks;
          ask_wrongly(StatusCode::kInvalidArgument);
        } else {
          ask_wrongly(StatusCode::kAlreadyExists);
          refuse(scheduler.cancel(*job), StatusCode::kFailedPrecondition);
        }
    }
    REQUIRE(scheduler.hash() == before);
  }

  habits habits_;
  apiary::hived_config first_;
  apiary::hived_config config_ = first_;
  std::map<apiary::job_id, std::vector<task_devices>> places_{};  // of the tasks of all gangs
  // Of gangs that lost their tenant's cells the preempting ones that these are due to.
  std::map<apiary::job_id, std::set<apiary::job_id>> downgraded_for_{};
  std::optional<apiary::gang_plan> stale_{};
  std::uint32_t next_ = 0;
};

}  // namespace apiary_test
