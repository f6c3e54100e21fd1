// apiary/tests/support/hived_model.h - all that can happen to a small HiveD scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_worlds.h"
#include <apiary/core/ids.h>
#include <apiary/model/tree.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived.h>

#include <absl/container/flat_hash_map.h>
#include <absl/hash/hash.h>
#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace apiary_test {

// Goes breadth first through the states that a scheduler can reach by the events of an alphabet:
// for each of a few gangs, ask for it (and carry the plan out), end it, end its first task, cancel
// it, let it grow by the next one; and mark nodes and leaves bad or healthy. A gang is always asked for in the same words, so
// that there are finitely many states.
//
// Two states are the same if the same gangs hold the same leaves, the same cells are bound to the
// same, and the same leaves are bad, wherever the scheduler keeps its gangs. Of each new state the
// audit is taken, and of each event: it is refused where it must be, with the code that says why, a
// refusal and a proposal change nothing, and equal states have equal hashes. So are events of gangs
// and nodes that there are not, and plans that are stale.
class hived_model {
 public:
  // A node of the cluster, or one leaf of it, that breaks.
  struct breakage {
    std::uint32_t node = 0;
    std::optional<std::uint32_t> leaf{};
  };
  struct figures {
    std::uint64_t states = 0;  // distinct
    std::uint64_t events = 0;  // tried
    std::uint32_t depth = 0;   // all states that take so many events were met
    bool all = false;          // there are no more states
  };

  hived_model(const apiary::hived_config& config, std::vector<apiary::gang_request> gangs,
              std::vector<breakage> breakages)
      : fresh_(*apiary::hived::create(config)),
        gangs_(std::move(gangs)),
        breakages_(std::move(breakages)) {}

  // Stops at so many states.
  figures explore(std::uint64_t most_states) {
    figures seen;
    steps_.clear();
    known_.clear();
    meet(fresh_, {});
    std::size_t level_end = 1;  // of the states of this depth
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      if (at == level_end) {
        ++seen.depth;
        level_end = steps_.size();
      }
      if (steps_.size() >= most_states) break;
      replay(at);
      refuse_unknown();
      for (std::uint32_t e = 0; e < num_events(); ++e) {
        if (!possible(here_, e)) {
          refuse(e);
          continue;
        }
        ++seen.events;
        const bool asks = e % kinds == ask && e < gangs_.size() * kinds;
        if (asks && waits(gangs_[e / kinds])) continue;
        next_ = here_;
        apply(next_, e);
        if (asks) refuse_stale();
        meet(next_, {static_cast<std::uint32_t>(at), e});
      }
      seen.all = at + 1 == steps_.size();
    }
    seen.states = steps_.size();
    return seen;
  }

 private:
  // How a state is reached: from which one, by which event.
  struct step {
    std::uint32_t from = ~std::uint32_t{0};
    std::uint32_t event = 0;
  };
  struct identity {
    std::size_t slots = 0;   // of the same state, with the slots of the gangs
    std::uint64_t hash = 0;  // of the scheduler
  };
  enum event_kind : std::uint32_t { ask, end, end_task, cancel, grow, kinds };

  [[nodiscard]] std::uint32_t num_events() const {
    return static_cast<std::uint32_t>(gangs_.size() * kinds + breakages_.size() * 2);
  }
  // Makes that state the present one.
  void replay(std::size_t at) {
    path_.clear();
    for (; steps_[at].from != step().from; at = steps_[at].from) path_.push_back(steps_[at].event);
    here_ = fresh_;
    while (!path_.empty()) {
      apply(here_, path_.back());
      path_.pop_back();
    }
  }

  // Whether the event is not refused.
  [[nodiscard]] bool possible(const apiary::hived& state, std::uint32_t event) const {
    if (event >= gangs_.size() * kinds) {
      const std::uint32_t i = event - static_cast<std::uint32_t>(gangs_.size() * kinds);
      return is_healthy(state, breakages_[i / 2]) == (i % 2 == 0);
    }
    const apiary::gang_record* gang = state.find(gangs_[event / kinds].job);
    switch (event % kinds) {
      case ask:
        return gang == nullptr || gang->state == apiary::gang_state::preempting;
      case cancel:
        return gang != nullptr && gang->state == apiary::gang_state::preempting;
      case end:
        return gang != nullptr && gang->state == apiary::gang_state::allocated;
      case grow:
        return can_grow(state, gang, state.find(next_of(event / kinds)));
      default:
        return gang != nullptr && tasks_of(*gang) > 1 && gang->leaves[0].leaf.valid();
    }
  }
  [[nodiscard]] apiary::job_id next_of(std::size_t gang) const {
    return gangs_[(gang + 1) % gangs_.size()].job;
  }
  [[nodiscard]] static bool can_grow(const apiary::hived& state, const apiary::gang_record* gang,
                                     const apiary::gang_record* by) {
    if (gang == nullptr || by == nullptr || gang->downgraded || by->downgraded) return false;
    const apiary::gang_request& r = gang->request;
    const apiary::gang_request& more = by->request;
    return gang->state == apiary::gang_state::allocated && by->state == gang->state &&
           !state.being_preempted(*gang) && !state.being_preempted(*by) &&
           r.tenant == more.tenant && r.priority == more.priority && r.lazy == more.lazy &&
           r.pinned == more.pinned;
  }
  [[nodiscard]] static std::uint32_t tasks_of(const apiary::gang_record& gang) {
    std::uint32_t tasks = 0;
    for (const apiary::gang_member& m : gang.request.members) tasks += m.tasks;
    return tasks;
  }
  [[nodiscard]] static bool is_healthy(const apiary::hived& state, const breakage& b) {
    const apiary::node_id node(b.node);
    const apiary::physical_chain& chain = state.cells().chain(state.layout().chain_of(node).value);
    const apiary::cell_id cell = state.layout().node_cell(node);
    const auto inside = apiary::leaves(chain.tree(), cell);
    return chain.healthy().healthy(b.leaf ? inside[*b.leaf] : cell);
  }

  void apply(apiary::hived& state, std::uint32_t event) const {
    if (event >= gangs_.size() * kinds) {
      const std::uint32_t i = event - static_cast<std::uint32_t>(gangs_.size() * kinds);
      const auto [node, leaf] = breakages_[i / 2];
      const apiary::node_id n(node);
      if (i % 2 == 0) {
        require((leaf ? state.mark_bad(n, *leaf) : state.mark_bad(n)).ok());
      } else {
        require((leaf ? state.mark_healthy(n, *leaf) : state.mark_healthy(n)).ok());
      }
      return;
    }
    const apiary::gang_request& r = gangs_[event / kinds];
    switch (event % kinds) {
      case end:
        return require(state.finish(r.job).ok());
      case end_task:
        return require(state.finish_task(r.job, 0).ok());
      case cancel:
        return require(state.cancel(r.job).ok());
      case grow:
        return require(state.grow(r.job, next_of(event / kinds)).ok());
      default:
        break;
    }
    const auto plan = state.propose(r);
    require(plan.ok() && state.commit(*plan).ok());
  }
  // Whether nothing comes of asking for the gang in the present state; asking changes nothing.
  [[nodiscard]] bool waits(const apiary::gang_request& r) {
    const std::uint64_t before = here_.hash();
    auto plan = here_.propose(r);
    require(plan.ok() && here_.hash() == before);
    plan_ = *std::move(plan);
    if (plan_.result != apiary::outcome::wait || !plan_.cancelled.empty()) return false;
    require(here_.commit(plan_).code() == absl::StatusCode::kFailedPrecondition);
    require(here_.hash() == before);
    return true;
  }

  // An event that is not possible in the present state. To end a preempting gang is to cancel it,
  // and to end its only task is to end it: these are not tried twice.
  void refuse(std::uint32_t event) {
    const std::uint64_t before = here_.hash();
    if (event >= gangs_.size() * kinds) {
      apply(here_, event);  // marked so already: not an error
    } else {
      refuse(event / kinds, static_cast<event_kind>(event % kinds));
    }
    require(here_.hash() == before);
  }
  void refuse(std::size_t index, event_kind event) {
    using code = absl::StatusCode;
    const apiary::gang_request& r = gangs_[index];
    const apiary::gang_record* gang = here_.find(r.job);
    switch (event) {
      case ask:
        require(here_.recover(r, here_.tasks(*gang)).status().code() == code::kAlreadyExists);
        return require(here_.propose(r).status().code() == code::kAlreadyExists);
      case cancel:
        return require(here_.cancel(r.job).code() ==
                       (gang == nullptr ? code::kNotFound : code::kFailedPrecondition));
      case end:
        return require(gang != nullptr || here_.finish(r.job).code() == code::kNotFound);
      case grow: {
        const bool both = gang != nullptr && here_.find(next_of(index)) != nullptr;
        return require(here_.grow(r.job, next_of(index)).code() ==
                       (both ? code::kFailedPrecondition : code::kNotFound));
      }
      default:
        return require((gang != nullptr && gang->leaves[0].leaf.valid()) ||
                       here_.finish_task(r.job, 0).code() == code::kNotFound);
    }
  }
  // What is not there in any state, once a state.
  void refuse_unknown() {
    const std::uint64_t before = here_.hash();
    const auto nobody = [](const absl::Status& status) {
      require(status.code() == absl::StatusCode::kNotFound);
    };
    const apiary::node_id beyond(here_.layout().num_nodes());
    nobody(here_.mark_bad(beyond));
    nobody(here_.mark_healthy(beyond, 0));
    nobody(here_.mark_bad(apiary::node_id(0), 64));
    const apiary::job_id job(static_cast<std::uint32_t>(gangs_.size()));
    nobody(here_.finish(job));
    nobody(here_.cancel(job));
    nobody(here_.finish_task(job, 0));
    nobody(here_.grow(gangs_[0].job, job));
    nobody(here_.grow(job, gangs_[0].job));
    require(here_.hash() == before);
  }
  // The plan of the state before, in the next.
  void refuse_stale() {
    const std::uint64_t before = next_.hash();
    require(next_.commit(plan_).code() == absl::StatusCode::kAborted);
    require(next_.hash() == before);
  }
  // REQUIRE takes its time.
  static void require(bool holds) {
    if (!holds) REQUIRE(holds);
  }

  void meet(const apiary::hived& state, step reached) {
    canonical_.clear();
    describe(state, false);
    const std::size_t same = hash_of_text();
    describe(state, true);
    const identity is{hash_of_text(), state.hash()};
    const auto [known, is_new] = known_.try_emplace(same, is);
    if (!is_new) {
      require((known->second.slots == is.slots) == (known->second.hash == is.hash));
      return;
    }
    steps_.push_back(reached);
    if (const auto found = apiary::audit(state); !found.empty()) REQUIRE(faults_of(found) == "");
  }
  [[nodiscard]] std::size_t hash_of_text() const {
    return absl::Hash<std::vector<std::uint32_t>>()(canonical_);
  }
  void describe(const apiary::hived& state, bool with_slots) {
    const auto put = [&](auto... values) { (canonical_.push_back(values), ...); };
    const auto job = [&](apiary::gang_slot s) {
      return s.valid() ? state.gangs()[s].request.job.value : ~std::uint32_t{0};
    };
    if (with_slots) {
      for (const apiary::gang_request& r : gangs_) {
        const auto slot = state.gangs().find(r.job);
        put(slot ? slot->value : ~std::uint32_t{0});
      }
      return;
    }
    for (const apiary::gang_request& r : gangs_) {
      const apiary::gang_record* gang = state.find(r.job);
      put(gang == nullptr ? 9U
                          : (gang->state == apiary::gang_state::preempting ? 2U : 0U) +
                                (gang->downgraded ? 1U : 0U));
      if (gang == nullptr) continue;
      put(gang->cluster.value, static_cast<std::uint32_t>(gang->request.members.size()));
      for (const apiary::gang_member& m : gang->request.members) put(m.tasks, m.leaves);
      for (const apiary::chain_leaf& l : gang->leaves) put(l.chain, l.leaf.value);
      for (const apiary::job_id by : gang->downgraded_victims) put(by.value);
      put(job(gang->ends_for));
    }
    for (std::uint32_t c = 0; c < state.cells().num_chains(); ++c) {
      const apiary::physical_chain& chain = state.cells().chain(c);
      for (const apiary::cell_id leaf : chain.tree().cells(0)) {
        const apiary::leaf_holders h = chain.holders(leaf);
        put(job(h.user), job(h.claimer),
            (h.guaranteed ? 1U : 0U) + (chain.healthy().healthy(leaf) ? 2U : 0U));
      }
      for (std::uint32_t p = 0; p < chain.tree().num_cells(); ++p)
        put(chain.owner(apiary::cell_id(p)).cluster.value,
            chain.owner(apiary::cell_id(p)).cell.value);
    }
  }

  apiary::hived fresh_;
  apiary::hived here_ = fresh_;  // assigned to, which is cheaper than a new one
  apiary::hived next_ = fresh_;
  apiary::gang_plan plan_{};  // that waits() was told
  std::vector<apiary::gang_request> gangs_;
  std::vector<breakage> breakages_;
  std::vector<step> steps_;  // of each state
  absl::flat_hash_map<std::size_t, identity> known_;
  std::vector<std::uint32_t> path_;
  std::vector<std::uint32_t> canonical_;
};

}  // namespace apiary_test
