// apiary/tests/support/hived_model.h - all that can happen to a small HiveD scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_clusters.h"
#include "support/hived_state_text.h"
#include <apiary/container/bitset.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace apiary_test {

// Events besides those of gangs and failures.
struct hived_changes {
  std::vector<std::uint32_t> suggested{};       // nodes; empty: none are suggested
  bool restarts = false;                        // with levels, and without
  std::optional<apiary::hived_config> other{};  // of the same tenants, pinned cells and leaves
};

// Visits, breadth first, all states that a scheduler can reach by these events: propose and commit
// one of a few gangs, on all nodes or on the suggested ones; finish it, finish its first task, cancel
// it, merge the next gang into it; mark nodes and leaves bad or healthy; restart, with or without the
// levels of whole cells; change to another configuration and back. Each gang has a fixed request, so
// that there are finitely many states.
//
// Two states are equal if the configuration, the leaves of each gang, the bindings and the bad leaves
// are equal; the slots of the gangs do not matter. In each new state it audits the scheduler and
// tries each event: a wrong event is refused with the right code, a refusal and a proposal change
// nothing, and states with equal hashes are equal, slots included. Calls with unknown gangs and
// nodes, and stale plans, are refused, too. A gang recovered with levels gets its whole cells again.
class hived_model {
 public:
  // A node of the cluster, or one leaf of it, that breaks; nodes are called "n0", "n1", ...
  struct breakage {
    std::uint32_t node = 0;
    std::optional<std::uint32_t> leaf{};
  };
  struct figures {
    std::uint64_t states = 0;  // distinct
    std::uint64_t events = 0;  // tried
    std::uint32_t depth = 0;   // all states that take so many events were met
    bool all = false;          // there are no more states
    std::uint64_t beside = 0;  // of the states, those first met by what hived_changes adds
  };

  hived_model(const apiary::hived_config& config, std::vector<apiary::gang_request> gangs,
              std::vector<breakage> breakages, hived_changes more = {})
      : gangs_(std::move(gangs)), breakages_(std::move(breakages)) {
    add_world(config, more.suggested);
    if (more.other) add_world(*more.other, more.suggested);
    for (std::uint32_t g = 0; g < gangs_.size(); ++g) {
      for (const happening what : {ask, ask_there, end, end_task, cancel})
        if (what != ask_there || !more.suggested.empty()) events_.push_back({what, g});
    }
    for (std::uint32_t b = 0; b < breakages_.size(); ++b)
      for (const happening what : {breaks, heals}) events_.push_back({what, b});
    if (more.restarts)
      for (const happening what : {restart, restart_bare}) events_.push_back({what, 0});
    if (more.other) events_.push_back({reconfigure, 0});
  }

  // Stops at so many states.
  figures explore(std::uint64_t most_states) {
    figures seen;
    steps_.clear();
    known_.clear();
    of_hash_.clear();
    trail_ = {{0, {setups_[0].fresh}}};
    meet(trail_[0].state, {});
    condition next = trail_[0].state;  // assigned to, which is cheaper than a new one
    std::size_t level_end = 1;         // of the states of this depth
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      if (at == level_end) {
        ++seen.depth;
        level_end = steps_.size();
      }
      if (steps_.size() >= most_states) break;
      replay(at);
      refuse_unknown();
      for (std::uint32_t e = 0; e < events_.size(); ++e) {
        if (!possible(here(), events_[e])) {
          refuse(events_[e]);
          continue;
        }
        ++seen.events;
        const bool asks = events_[e].what == ask || events_[e].what == ask_there;
        if (asks && waits(request_of(here(), events_[e]))) continue;
        next = here();
        if (asks) {
          require(next.scheduler.commit(plan_).ok());
          refuse_stale(next.scheduler);
        } else {
          apply(next, events_[e]);
        }
        const bool is_new = meet(next, {at, e});
        const bool beside = events_[e].what == ask_there || events_[e].what >= restart;
        seen.beside += is_new && beside ? 1U : 0U;
      }
      seen.all = at + 1 == steps_.size();
    }
    seen.states = steps_.size();
    return seen;
  }

 private:
  enum happening : std::uint32_t {
    ask,
    ask_there,  // on the suggested nodes
    end,
    end_task,
    cancel,
    breaks,
    heals,
    restart,
    restart_bare,  // without levels
    reconfigure
  };
  struct event {
    happening what = ask;
    std::uint32_t index = 0;  // of a gang or a breakage
  };
  // A configuration, its nodes by what breaks, and the suggested ones.
  struct setup {
    apiary::hived_config config;
    apiary::hived fresh;
    std::vector<std::optional<apiary::node_id>> broken{};
    apiary::summary_bitset suggested;
  };
  struct condition {
    apiary::hived scheduler;
    std::uint32_t setup = 0;
  };
  // How a state is reached: from which one, by which event.
  struct step {
    std::size_t from = 0;
    std::uint32_t event = 0;
  };
  // A state on the way to the present one.
  struct stage {
    std::size_t at = 0;
    condition state;
  };
  struct identity {
    std::size_t slots = 0;   // of the same state, with the slots of the gangs
    std::uint64_t hash = 0;  // of the scheduler
  };

  void add_world(const apiary::hived_config& config, const std::vector<std::uint32_t>& suggested) {
    const auto made = apiary::hived::create(config);
    REQUIRE(made.ok());
    const apiary::hived_layout& layout = made->layout();
    const auto node = [&](std::uint32_t n) { return layout.find_node("n" + std::to_string(n)); };
    setup& w =
        setups_.emplace_back(setup{config, *made, {}, apiary::summary_bitset(layout.num_nodes())});
    for (const breakage& b : breakages_) w.broken.push_back(node(b.node));
    for (const std::uint32_t n : suggested)
      if (node(n)) w.suggested.set(node(n)->value);
  }

  // Makes that state the present one; those on the way to the one before are there already.
  void replay(std::size_t at) {
    path_.clear();
    for (; at != 0; at = steps_[at].from) path_.push_back(at);
    for (depth_ = 0; !path_.empty(); path_.pop_back()) {
      ++depth_;
      if (depth_ == trail_.size()) trail_.push_back(trail_.back());
      if (trail_[depth_].at == path_.back()) continue;
      trail_[depth_].at = path_.back();
      trail_[depth_].state = trail_[depth_ - 1].state;
      apply(trail_[depth_].state, events_[steps_[path_.back()].event]);
    }
  }
  [[nodiscard]] condition& here() { return trail_[depth_].state; }

  [[nodiscard]] apiary::gang_request request_of(const condition& state, event e) const {
    apiary::gang_request r = gangs_[e.index];
    if (e.what == ask_there) r.suggested = &setups_[state.setup].suggested;
    return r;
  }
  // Whether the event is not refused.
  [[nodiscard]] bool possible(const condition& state, event e) const {
    if (e.what >= restart) return true;
    if (e.what >= breaks) {
      const auto node = setups_[state.setup].broken[e.index];
      return node &&
             is_healthy(state.scheduler, *node, breakages_[e.index].leaf) == (e.what == breaks);
    }
    const apiary::gang_record* gang = state.scheduler.find(gangs_[e.index].job);
    const bool runs = gang != nullptr && gang->state == apiary::gang_state::allocated;
    switch (e.what) {
      case cancel:
        return gang != nullptr && !runs;
      case end:
        return runs;
      case end_task:
        return gang != nullptr && gang->leaves_of(1).second > 0 && has_first_task(*gang);
      default:
        return !runs;
    }
  }
  [[nodiscard]] static bool has_first_task(const apiary::gang_record& gang) {
    const auto [from, to] = gang.leaves_of(0);
    return gang.count_live(from, to) > 0 || gang.misses(from, to);
  }

  void apply(condition& state, event e) const {
    apiary::hived& to = state.scheduler;
    switch (e.what) {
      case end:
        return require(to.finish(gangs_[e.index].job).ok());
      case end_task:
        return require(to.finish_task(gangs_[e.index].job, 0).ok());
      case cancel:
        return require(to.cancel(gangs_[e.index].job).ok());
      case breaks:
      case heals: {
        const apiary::node_id node = *setups_[state.setup].broken[e.index];
        const std::optional<std::uint32_t> leaf = breakages_[e.index].leaf;
        if (e.what == breaks)
          return require((leaf ? to.mark_bad(node, *leaf) : to.mark_bad(node)).ok());
        return require((leaf ? to.mark_healthy(node, *leaf) : to.mark_healthy(node)).ok());
      }
      case restart:
      case restart_bare:
        to = restarted(to, setups_[state.setup].fresh, e.what == restart);
        return;
      case reconfigure:
        return move(state);
      default:
        break;
    }
    const auto plan = to.propose(request_of(state, e));
    require(plan.ok() && to.commit(*plan).ok());
  }
  // Checks the report of a reconfiguration: gangs that ended are gone, the named gangs have lost
  // their cells or have them again; bad hardware is bad in both.
  void move(condition& state) const {
    const condition before = state;
    state.setup = 1 - state.setup;
    const apiary::hived& now = state.scheduler;
    const auto report = state.scheduler.reconfigure(setups_[state.setup].config);
    require(report.ok());
    for (const auto* ended : {&report->cancelled, &report->gone})
      for (const apiary::job_id job : *ended) require(now.find(job) == nullptr);
    for (const apiary::job_id job : report->downgraded) require(now.find(job)->downgraded);
    for (const apiary::job_id job : report->restored) require(now.find(job)->guaranteed());
    for (std::uint32_t b = 0; b < breakages_.size(); ++b) {
      const auto from = setups_[before.setup].broken[b];
      const auto to = setups_[state.setup].broken[b];
      const auto leaf = breakages_[b].leaf;
      require(!from || !to ||
              is_healthy(before.scheduler, *from, leaf) == is_healthy(now, *to, leaf));
    }
  }

  // Whether nothing comes of asking for the gang in the present state; asking changes nothing.
  [[nodiscard]] bool waits(const apiary::gang_request& r) {
    apiary::hived& scheduler = here().scheduler;
    const std::uint64_t before = scheduler.hash();
    auto plan = scheduler.propose(r);
    require(plan.ok() && scheduler.hash() == before);
    plan_ = *std::move(plan);
    for (const apiary::hived_placement& task : plan_.tasks)
      require(task.leaves == 0 || r.suggested == nullptr || r.suggested->test(task.node.value));
    if (plan_.result != apiary::plan_result::wait || !plan_.cancelled.empty()) return false;
    require(scheduler.commit(plan_).code() == absl::StatusCode::kFailedPrecondition);
    require(scheduler.hash() == before);
    return true;
  }

  // An event that is not possible in the present state. To end a preempting gang is to cancel it,
  // and to end its only task is to end it: these are not tried twice.
  void refuse(event e) {
    const std::uint64_t before = here().scheduler.hash();
    if (e.what < breaks) {
      refuse_gang(e);
    } else if (setups_[here().setup].broken[e.index]) {
      apply(here(), e);  // marked so already: not an error
    }
    require(here().scheduler.hash() == before);
  }
  void refuse_gang(event e) {
    using code = absl::StatusCode;
    apiary::hived& scheduler = here().scheduler;
    const apiary::gang_request r = request_of(here(), e);
    const apiary::gang_record* gang = scheduler.find(r.job);
    switch (e.what) {
      case cancel:
        return require(scheduler.cancel(r.job).code() ==
                       (gang == nullptr ? code::kNotFound : code::kFailedPrecondition));
      case end:
        return require(gang != nullptr || scheduler.finish(r.job).code() == code::kNotFound);
      case end_task:
        return require((gang != nullptr && has_first_task(*gang)) ||
                       scheduler.finish_task(r.job, 0).code() == code::kNotFound);
      default:
        require(scheduler.recover(r, scheduler.tasks(*gang)).status().code() ==
                code::kAlreadyExists);
        return require(scheduler.propose(r).status().code() == code::kAlreadyExists);
    }
  }
  // Calls with gangs and nodes that exist in no state; once for each state.
  void refuse_unknown() {
    apiary::hived& scheduler = here().scheduler;
    const std::uint64_t before = scheduler.hash();
    const auto not_found = [](const absl::Status& status) {
      require(status.code() == absl::StatusCode::kNotFound);
    };
    const apiary::node_id beyond(scheduler.layout().num_nodes());
    not_found(scheduler.mark_bad(beyond));
    not_found(scheduler.mark_healthy(beyond, 0));
    not_found(scheduler.mark_bad(apiary::node_id(0), 64));
    const apiary::job_id job(static_cast<std::uint32_t>(gangs_.size()));
    not_found(scheduler.finish(job));
    not_found(scheduler.cancel(job));
    not_found(scheduler.finish_task(job, 0));
    require(scheduler.hash() == before);
  }
  // A plan that was carried out, once more.
  void refuse_stale(apiary::hived& scheduler) const {
    const std::uint64_t before = scheduler.hash();
    require(scheduler.commit(plan_).code() == absl::StatusCode::kAborted);
    require(scheduler.hash() == before);
  }
  // REQUIRE takes its time.
  static void require(bool holds) {
    if (!holds) REQUIRE(holds);
  }

  // Whether it is a new one.
  bool meet(const condition& state, step reached) {
    canonical_.assign(1, state.setup);
    add_state(state.scheduler, gangs_, canonical_);
    const std::size_t same = hash_of_text();
    for (const apiary::gang_request& r : gangs_) {
      const auto slot = state.scheduler.gangs().find(r.job);
      canonical_.push_back(slot ? slot->value : ~std::uint32_t{0});
    }
    const identity is{hash_of_text(), state.scheduler.hash()};
    require(of_hash_.try_emplace(is.hash, is.slots).first->second == is.slots);
    const auto [known, is_new] = known_.try_emplace(same, is);
    if (!is_new) {
      require((known->second.slots == is.slots) == (known->second.hash == is.hash));
      return false;
    }
    steps_.push_back(reached);
    if (const auto found = afresh::audit_afresh(state.scheduler); !found.empty())
      REQUIRE(faults_of(found) == "");
    return true;
  }
  [[nodiscard]] std::size_t hash_of_text() const {
    apiary::digest all;
    for (const std::uint32_t word : canonical_) all.add(word);
    return all.value();
  }
  std::vector<apiary::gang_request> gangs_;
  std::vector<breakage> breakages_;
  std::vector<setup> setups_;
  std::vector<event> events_;
  std::vector<stage> trail_;  // from the fresh state on
  std::size_t depth_ = 0;     // of the present state, in trail_
  std::vector<std::size_t> path_;
  apiary::gang_plan plan_{};  // the last plan of waits()
  std::vector<step> steps_;   // of each state
  std::unordered_map<std::size_t, identity> known_;
  std::unordered_map<std::uint64_t, std::size_t> of_hash_;  // the state with the slots
  std::vector<std::uint32_t> canonical_;
};

}  // namespace apiary_test
