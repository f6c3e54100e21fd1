// apiary/tests/support/naive_time_sharing.h - Gandiva on HiveD by its words: everything tried on copies.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/metric/buddy_fragmentation.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace apiary_test {

// What broken_leaves() is, from the largest cells of which no leaf is used.
[[nodiscard]] inline std::uint64_t naive_broken_leaves(const apiary::hived& h) {
  std::uint64_t sum = 0;
  for (std::uint32_t c = 0; c < h.cells().num_chains(); ++c) {
    const apiary::detail::physical_chain& in = h.cells().chain(c);
    const apiary::uniform_tree& tree = in.tree();
    const auto unused = [&](apiary::cell_id cell) {
      for (const apiary::cell_id leaf : tree.descendants(cell, 0))
        if (!in.holders(leaf).idle()) return false;
      return true;
    };
    apiary::summary_bitset free(tree.num_cells(), false);
    for (apiary::level_t l = 0; l < tree.num_levels(); ++l) {
      for (const apiary::cell_id cell : tree.cells(l)) {
        const apiary::cell_id parent = tree.parent(cell, l);
        if (unused(cell) && !(parent.valid() && unused(parent))) free.set(cell.value);
      }
    }
    const apiary::buddy_fragmentation f = apiary::buddy_fragmentation(tree, free);
    for (apiary::level_t l = 1; l < tree.num_levels(); ++l)
      sum += f.leaves_from(0) - f.leaves_from(l);
  }
  return sum;
}
// The cells from the nodes up that the tasks lie in, each once.
[[nodiscard]] inline std::size_t naive_spread(const apiary::hived& h,
                                              const std::vector<apiary::hived_placement>& tasks) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> cells;
  for (const apiary::hived_placement& t : tasks) {
    const apiary::chain_id chain = h.layout().chain_of(t.node);
    const apiary::chain_layout& in = h.layout().chain(chain);
    apiary::cell_id c = h.layout().node_cell(t.node);
    for (apiary::level_t l = in.node_level; c.valid(); c = in.tree.parent(c, l++))
      cells.emplace(chain.value, c.value);
  }
  return cells.size();
}

class naive_gandiva_gangs {
 public:
  using action = apiary::gandiva_gangs::action;
  using verb = action::verb;
  struct job {
    apiary::gang_request asked{};
    apiary::gandiva_gangs::job_options terms{};
    bool runs = false, ran = false, acted = false;
    std::int64_t pass = 0;
    apiary::time_ms since = 0;
  };

  naive_gandiva_gangs(apiary::hived h, const apiary::gang_migration& gangs,
                      const apiary::time_sharing_options& o)
      : scheduler(std::move(h)), gangs_(gangs), options_(o) {}

  apiary::hived scheduler;
  std::map<apiary::job_id, job> jobs{};
  std::vector<action> actions{};  // of the last call

  bool submit(const apiary::gang_request& r, const apiary::gandiva_gangs::job_options& terms,
              apiary::time_ms now) {
    clear();
    if (!scheduler.propose(r).ok()) return false;
    std::optional<std::int64_t> least;
    for (const auto& [id, j] : jobs) {
      if (j.asked.priority >= 0) continue;
      const std::int64_t p = pass(j, now);
      if (!least || p < *least) least = p;
    }
    jobs[r.job] = {r, terms, false, false, false, least.value_or(0), now};
    try_start(r.job, now);
    return true;
  }
  void finish(apiary::job_id id) {
    clear();
    if (jobs.at(id).runs) REQUIRE(scheduler.finish(id).ok());
    jobs.erase(id);
  }
  void mark(apiary::node_id n, bool good) {
    REQUIRE((good ? scheduler.mark_healthy(n) : scheduler.mark_bad(n)).ok());
  }
  void tick(apiary::time_ms now) {
    clear();
    const bool new_slice = options_.quantum != apiary::max_time && now / options_.quantum != slice_;
    slice_ = now / options_.quantum;
    serve(now);
    take_slices(new_slice, now);
    if (move(now)) take_slices(false, now);
  }

 private:
  void clear() {
    actions.clear();
    for (auto& [id, j] : jobs) j.acted = false;
  }
  [[nodiscard]] static std::int64_t pass(const job& j, apiary::time_ms now) {
    return j.runs ? j.pass + (now - j.since) * 1'048'575 / j.terms.weight : j.pass;
  }
  void act(apiary::job_id id, verb what) {
    jobs.at(id).acted = true;
    actions.push_back({what, id, {}});
    if (what != verb::suspend) actions.back().where = scheduler.tasks(*scheduler.find(id));
  }
  void suspend(apiary::job_id id, apiary::time_ms now) {
    job& j = jobs.at(id);
    j.pass = pass(j, now);
    j.runs = false;
    j.since = now;
    act(id, verb::suspend);
  }
  void run(apiary::job_id id, apiary::time_ms now) {
    job& j = jobs.at(id);
    j.runs = true;
    j.since = now;
    act(id, j.ran ? verb::resume : verb::start);
    j.ran = true;
  }
  // The jobs stopped for it; nullopt: it does not run.
  static std::optional<std::vector<apiary::job_id>> place(apiary::hived& h,
                                                          const apiary::gang_request& r) {
    auto plan = h.propose(r);
    REQUIRE(plan.ok());
    if (plan->result == apiary::plan_result::wait) return std::nullopt;
    REQUIRE(h.commit(*plan).ok());
    const std::vector<apiary::job_id> victims = plan->victims;
    for (const apiary::job_id v : victims) REQUIRE(h.finish(v).ok());
    if (!victims.empty()) {
      plan = h.propose(r);
      REQUIRE((plan.ok() && plan->result == apiary::plan_result::bind && h.commit(*plan).ok()));
    }
    return victims;
  }
  bool try_start(apiary::job_id id, apiary::time_ms now) {
    const auto victims = place(scheduler, jobs.at(id).asked);
    if (!victims) return false;
    for (const apiary::job_id v : *victims) suspend(v, now);
    run(id, now);
    return true;
  }
  void serve(apiary::time_ms now) {
    std::vector<std::pair<std::int32_t, apiary::job_id>> line;
    for (const auto& [id, j] : jobs)
      if (!j.runs && j.asked.priority >= 0) line.emplace_back(-j.asked.priority, id);
    std::sort(line.begin(), line.end());
    for (const auto& [priority, id] : line)
      if (!jobs.at(id).acted) try_start(id, now);
  }
  void take_slices(bool new_slice, apiary::time_ms now) {
    using queue = std::vector<std::pair<std::int64_t, apiary::job_id>>;
    queue starving;
    queue by_pass;
    for (const auto& [id, j] : jobs) {
      if (j.runs || j.asked.priority >= 0) continue;
      by_pass.emplace_back(j.pass, id);
      if (new_slice && options_.max_wait > 0 &&
          now - j.since >= options_.max_wait * options_.quantum)
        starving.emplace_back(j.since, id);
    }
    std::sort(starving.begin(), starving.end());
    std::sort(by_pass.begin(), by_pass.end());
    for (const auto& [since, id] : starving)
      if (!jobs.at(id).acted && !try_start(id, now)) displace(id, true, now);
    for (const auto& [p, id] : by_pass) {
      if (jobs.at(id).acted || try_start(id, now)) continue;
      if (new_slice) displace(id, false, now);
    }
  }
  // Tries on a copy to stop jobs that ran longer, or any.
  void displace(apiary::job_id id, bool any, apiary::time_ms now) {
    std::vector<std::pair<std::int64_t, apiary::job_id>> more;
    for (const auto& [other, j] : jobs) {
      if (!j.runs || j.acted || j.asked.priority >= 0) continue;
      if (any || pass(j, now) > jobs.at(id).pass) more.emplace_back(pass(j, now), other);
    }
    std::sort(more.rbegin(), more.rend());
    apiary::hived tried = scheduler;
    std::vector<apiary::job_id> stopped;
    bool fits = false;
    for (std::size_t i = 0; i < more.size() && !fits; ++i) {
      REQUIRE(tried.finish(more[i].second).ok());
      stopped.push_back(more[i].second);
      fits = place(tried, jobs.at(id).asked).has_value();
    }
    if (!fits) return;
    std::vector<apiary::job_id> out;
    for (; !stopped.empty(); stopped.pop_back()) {
      const apiary::job_id other = stopped.back();
      if (!tried.recover(jobs.at(other).asked, scheduler.tasks(*scheduler.find(other))).ok())
        out.push_back(other);
    }
    scheduler = std::move(tried);
    for (const apiary::job_id other : out) suspend(other, now);
    run(id, now);
  }
  bool move(apiary::time_ms /*now*/) {
    std::vector<apiary::job_id> movable;
    for (const auto& [id, j] : jobs)
      if (j.runs && j.terms.movable && !j.acted) movable.push_back(id);
    if (options_.migrations.jobs == 0 || movable.empty()) return false;
    std::size_t at = 0;
    while (at < movable.size() && movable[at] < next_) ++at;
    std::vector<apiary::job_id> moved;
    for (std::uint32_t i = 0; i < options_.migrations.trials && i < movable.size(); ++i) {
      if (moved.size() == options_.migrations.jobs) break;
      const apiary::job_id id = movable[(at + i) % movable.size()];
      next_ = apiary::job_id(id.value + 1);
      if (try_migration(id)) moved.push_back(id);
    }
    for (const apiary::job_id id : moved) act(id, verb::migrate);
    return !moved.empty();
  }
  bool try_migration(apiary::job_id id) {
    const apiary::gang_record gang = *scheduler.find(id);
    if (gang.downgraded || (gang.request.priority >= 0 && !gangs_.guaranteed)) return false;
    apiary::hived tried = scheduler;
    REQUIRE(tried.finish(id).ok());
    const auto plan = tried.propose(gang.request);
    REQUIRE(plan.ok());
    if (plan->result != apiary::plan_result::bind || !plan->downgraded.empty()) return false;
    REQUIRE(tried.commit(*plan).ok());
    const bool broken = gangs_.measure == apiary::gang_migration::metric::broken;
    const std::uint64_t before =
        broken ? naive_broken_leaves(scheduler) : naive_spread(scheduler, scheduler.tasks(gang));
    const std::uint64_t after =
        broken ? naive_broken_leaves(tried) : naive_spread(tried, plan->tasks);
    if (before * 1000 <= after * 1000 + gang.leaves.size() * options_.migrations.cost) return false;
    scheduler = std::move(tried);
    return true;
  }

  apiary::gang_migration gangs_;
  apiary::time_sharing_options options_;
  apiary::time_ms slice_ = -1;
  apiary::job_id next_{0};
};

}  // namespace apiary_test
