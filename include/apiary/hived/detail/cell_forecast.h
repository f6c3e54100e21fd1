// apiary/hived/detail/cell_forecast.h - when a gang will fit, once other gangs of its tenant end.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/summed_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The leaves that a guaranteed gang uses on each node of its virtual cluster.
struct gang_nodes {
  // Leaves of one node.
  struct use {
    std::uint32_t node = 0;
    std::uint32_t leaves = 0;
    friend bool operator==(const use&, const use&) = default;
  };
  vc_chain_id cluster{};
  std::vector<use> uses{};  // ascending by node

  // Those of a gang that runs or has reserved its leaves. Cost: O(leaves) if they are in the order
  // of their nodes; otherwise O(leaves log leaves).
  [[nodiscard]] static gang_nodes of(const hived_cells& cells, const gang_record& gang) {
    gang_nodes all{gang.cluster, {}};
    const virtual_cluster& cluster = cells.cluster(gang.cluster);
    std::vector<std::uint32_t> nodes;  // of each leaf
    for (const chain_leaf& l : gang.leaves)
      nodes.push_back(cluster.node_of(cells.chain(l.chain).owner(l.leaf).cell));
    if (!std::is_sorted(nodes.begin(), nodes.end())) std::sort(nodes.begin(), nodes.end());
    for (const std::uint32_t node : nodes) {
      if (all.uses.empty() || all.uses.back().node != node) all.uses.push_back({node, 0});
      ++all.uses.back().leaves;
    }
    return all;
  }
};

// A time to come. Gangs that end at max_time end in the order of their starts.
struct forecast_moment {
  time_ms at = 0;
  std::uint64_t number = 0;  // how many gangs started before; 0 if `at` is not max_time
  friend constexpr auto operator<=>(const forecast_moment&,
                                    const forecast_moment&) noexcept = default;
  // When a gang ends that started after so many others.
  [[nodiscard]] static constexpr forecast_moment end_of(time_ms at, std::uint64_t number) noexcept {
    return {at, at == max_time ? number : 0};
  }
  [[nodiscard]] static constexpr forecast_moment now() noexcept {
    return {(std::numeric_limits<time_ms>::min)(), 0};
  }
  [[nodiscard]] static constexpr forecast_moment never() noexcept {
    return {max_time, (std::numeric_limits<std::uint64_t>::max)()};
  }
};

// When the gangs that run on the cells of a tenant will end, and which gangs fit then.
//
// A question is about a number of free leaves on a node. For each such number a tree keeps the
// moment from which each node has so many, so that the n-th node is found without looking at the
// others.
// Requires: task groups as hived_jobs makes them, and no topology constraints.
// Cost:     start and stop O(nodes of the gang). A question O(log nodes), and for each node whose
//           gangs have changed since the last question O(trees * log nodes). The first question
//           about a number of leaves and a priority makes a tree: O(nodes log nodes) time, about 60
//           bytes a node. At most 32 trees are kept, those that were used last. measure O(nodes).
class cell_forecast {
 public:
  using moment = forecast_moment;
  // A gang that waits: equal tasks, and one smaller task.
  struct gang {
    gang(std::int32_t its_priority, std::span<const task_group> groups)
        : priority(its_priority),
          tasks(groups.front().tasks),
          gpus(groups.front().gpus),
          rest(groups.size() > 1 ? groups.back().gpus : 0) {
      APIARY_ASSERT(groups.size() <= 2 && (rest == 0 || groups.back().tasks == 1) && rest < gpus);
    }
    std::int32_t priority;  // it suspends running gangs below its priority
    std::uint32_t tasks;
    std::uint32_t gpus;
    std::uint32_t rest;  // GPUs of the smaller task; 0: none
  };

  cell_forecast() = default;
  // Requires: no gang runs on the tenant's cells.
  cell_forecast(const hived_cells& cells, tenant_id tenant) {
    for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
      const vc_chain_id id = cells.cluster_of(tenant, c);
      if (id.valid()) clusters_.emplace_back(id, cells.cluster(id));
    }
  }
  // The gang of this job runs there from now on. Requires: it does not run.
  void start(job_id job, std::int32_t priority, moment ends, const gang_nodes& nodes) {
    cluster_of(nodes).start(nodes, {ends, priority, job, 0});
  }
  // It does not run any more. Requires: it was started with these.
  void stop(job_id job, moment ends, const gang_nodes& nodes) {
    cluster_of(nodes).stop(nodes, {ends, 0, job, 0});
  }
  // Hardware broke or was repaired, or cells were bound around bad hardware.
  void measure(const hived_cells& cells) {
    for (cluster& c : clusters_) c.measure(cells.cluster(c.id()));
  }
  // The first moment at which the gang fits into one chain; moment::now(): it fits already;
  // nullopt: it does not fit even if all gangs have ended.
  [[nodiscard]] std::optional<moment> first_fit(const gang& g) {
    std::optional<moment> first;
    for (cluster& c : clusters_) {
      const std::optional<moment> at = c.first_fit(g);
      if (at && (!first || *at < *first)) first = at;
    }
    return first;
  }
  // Whether the gang fits then, beside a gang that starts now on these nodes and still runs then.
  [[nodiscard]] bool fits_beside(const gang& g, moment then, const gang_nodes& other) {
    return std::any_of(clusters_.begin(), clusters_.end(), [&](cluster& c) {
      return c.fits(g, then, c.id() == other.cluster ? &other : nullptr);
    });
  }
  // How many trees have been made so far, of all chains.
  [[nodiscard]] std::uint64_t trees_made() const noexcept {
    std::uint64_t sum = 0;
    for (const cluster& c : clusters_) sum += c.trees_made();
    return sum;
  }

 private:
  static constexpr std::size_t max_trees = 32;

  // Leaves of a node that a gang uses.
  struct use {
    moment ends{};
    std::int32_t priority = 0;
    job_id job{};
    std::uint32_t leaves = 0;
    friend bool operator<(const use& a, const use& b) noexcept {
      return a.ends != b.ends ? a.ends < b.ends : a.job < b.job;
    }
  };
  struct node {
    std::vector<use> uses{};   // in order of their ends
    std::uint32_t leaves = 0;  // that can be used if no gang runs
    bool changed = false;      // since the trees were brought up to date
  };
  // How many tasks are on a node with so many free leaves, for a gang of this priority: one for the
  // first `first`, and one for each further `step`, if that is not 0.
  struct kind {
    std::int32_t priority = 0;
    std::uint32_t first = 1;
    std::uint32_t step = 0;
    friend bool operator==(const kind&, const kind&) noexcept = default;
    [[nodiscard]] std::uint32_t tasks(std::uint32_t free) const noexcept {
      if (free < first) return 0;
      return step == 0 ? 1 : (free - first) / step + 1;
    }
  };
  // From this moment on, one task more is on a node; id: the node, and how many were there before.
  struct step_up {
    moment from{};
    std::uint32_t id = 0;
  };
  struct by_moment {
    using item = step_up;
    using summary = std::uint32_t;  // how many
    [[nodiscard]] static bool before(const item& a, const item& b) noexcept {
      return a.from != b.from ? a.from < b.from : a.id < b.id;
    }
    [[nodiscard]] static std::uint64_t number(const item& i) noexcept { return i.id; }
    [[nodiscard]] static summary sum(const summary* left, const item& /*i*/,
                                     const summary* right) noexcept {
      return 1 + (left == nullptr ? 0 : *left) + (right == nullptr ? 0 : *right);
    }
  };
  struct tree {
    kind of{};
    std::uint64_t last_used = 0;  // the number of the question
    std::uint32_t width = 1;      // the most tasks on a node
    std::vector<moment> known{};  // of each id
    summed_tree<by_moment> steps{};
  };

  // The nodes of one chain.
  class cluster {
   public:
    cluster(vc_chain_id id, const virtual_cluster& cells) : id_(id), nodes_(cells.num_nodes()) {
      measure(cells);
      for (const node& n : nodes_) most_ = (std::max)(most_, n.leaves);
    }
    [[nodiscard]] vc_chain_id id() const noexcept { return id_; }
    [[nodiscard]] std::uint64_t trees_made() const noexcept { return made_; }
    void start(const gang_nodes& nodes, use u) {
      for (const gang_nodes::use& n : nodes.uses) {
        u.leaves = n.leaves;
        std::vector<use>& uses = nodes_[n.node].uses;
        uses.insert(std::lower_bound(uses.begin(), uses.end(), u), u);
        note(n.node);
      }
    }
    void stop(const gang_nodes& nodes, const use& u) {
      for (const gang_nodes::use& n : nodes.uses) {
        std::vector<use>& uses = nodes_[n.node].uses;
        uses.erase(std::lower_bound(uses.begin(), uses.end(), u));
        note(n.node);
      }
    }
    void measure(const virtual_cluster& cells) {
      for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
        auto leaves = static_cast<std::uint32_t>(std::popcount(cells.free(n)));
        for (const use& u : nodes_[n].uses) leaves += u.leaves;
        if (nodes_[n].leaves == leaves) continue;
        nodes_[n].leaves = leaves;
        note(n);
      }
    }
    [[nodiscard]] std::optional<moment> first_fit(const gang& g) {
      const std::optional<moment> tasks = nth(tree_of(whole(g)), g.tasks);
      if (!tasks || g.rest == 0) return tasks;
      const std::optional<moment> rest = nth(tree_of(smaller(g)), g.tasks + 1);
      return rest ? std::optional((std::max)(*tasks, *rest)) : std::nullopt;
    }
    [[nodiscard]] bool fits(const gang& g, moment then, const gang_nodes* beside) {
      if (tasks_then(whole(g), then, beside) < g.tasks) return false;
      return g.rest == 0 || tasks_then(smaller(g), then, beside) > g.tasks;
    }

   private:
    // The equal tasks, and the nodes that hold the smaller one: a gang fits if there are as many of
    // the former as it has, and one more of the latter, each of which holds `rest` or more leaves.
    [[nodiscard]] kind whole(const gang& g) const noexcept {
      const bool one_step = (g.tasks == 1 && g.rest == 0) || 2 * g.gpus > most_;
      return {g.priority, g.gpus, one_step ? 0 : g.gpus};
    }
    [[nodiscard]] kind smaller(const gang& g) const noexcept {
      return {g.priority, g.rest, g.rest + g.gpus > most_ ? 0 : g.gpus};
    }
    void note(std::uint32_t n) {
      if (trees_.empty() || nodes_[n].changed) return;
      nodes_[n].changed = true;
      changed_.push_back(n);
    }
    // The leaves of a node that are free now, or at a later moment, for a gang of this priority.
    [[nodiscard]] std::uint32_t free(std::uint32_t n, std::int32_t priority,
                                     moment then) const noexcept {
      std::uint32_t used = 0;
      for (const use& u : nodes_[n].uses)
        used += u.ends > then && u.priority >= priority ? u.leaves : 0;
      return nodes_[n].leaves - (std::min)(used, nodes_[n].leaves);
    }
    // The tree, up to date.
    [[nodiscard]] const tree& tree_of(const kind& k) {
      for (const std::uint32_t n : changed_) {
        nodes_[n].changed = false;
        for (tree& t : trees_) update(t, n);
      }
      changed_.clear();
      ++questions_;
      const auto same = [&](const tree& t) { return t.of == k; };
      const auto known = std::find_if(trees_.begin(), trees_.end(), same);
      if (known != trees_.end()) {
        known->last_used = questions_;
        return *known;
      }
      const auto before = [](const tree& a, const tree& b) { return a.last_used < b.last_used; };
      if (trees_.size() == max_trees)
        trees_.erase(std::min_element(trees_.begin(), trees_.end(), before));
      tree& made = trees_.emplace_back();
      ++made_;
      made.of = k;
      made.last_used = questions_;
      made.width = (std::max)(1U, k.tasks(most_));
      made.known.assign(nodes_.size() * made.width, moment::never());
      for (std::uint32_t n = 0; n < nodes_.size(); ++n) update(made, n);
      return made;
    }
    void update(tree& t, std::uint32_t n) {
      std::uint32_t left = free(n, t.of.priority, moment::now());
      std::uint32_t tasks = 0;
      const auto set_to = [&](std::uint32_t end, moment from) {
        for (; tasks < end; ++tasks) set(t, n * t.width + tasks, from);
      };
      set_to(t.of.tasks(left), moment::now());
      for (const use& u : nodes_[n].uses) {
        if (u.priority < t.of.priority) continue;
        left = (std::min)(left + u.leaves, nodes_[n].leaves);
        set_to(t.of.tasks(left), u.ends);
      }
      set_to(t.width, moment::never());
    }
    static void set(tree& t, std::uint32_t id, moment from) {
      moment& before = t.known[id];
      if (before == from) return;
      if (before != moment::never()) t.steps.erase({before, id});
      if (from != moment::never()) t.steps.insert({from, id});
      before = from;
    }
    // When there is the n-th task; nullopt: never. Requires: n > 0.
    [[nodiscard]] static std::optional<moment> nth(const tree& t, std::uint32_t n) {
      std::uint32_t at = t.steps.root();
      if (count(t, at) < n) return std::nullopt;
      while (true) {
        const auto& here = t.steps[at];
        const std::uint32_t left = count(t, here.left);
        if (n == left + 1) return here.at.from;
        at = n <= left ? here.left : here.right;
        n -= n <= left ? 0 : left + 1;
      }
    }
    [[nodiscard]] static std::uint32_t count(const tree& t, std::uint32_t at) noexcept {
      return at == summed_tree<by_moment>::none ? 0 : t.steps[at].all;
    }
    // How many tasks there are then, beside this gang.
    [[nodiscard]] std::uint32_t tasks_then(const kind& k, moment then, const gang_nodes* beside) {
      const tree& t = tree_of(k);
      std::uint32_t sum = 0;
      for (std::uint32_t at = t.steps.root(); at != summed_tree<by_moment>::none;) {
        const auto& here = t.steps[at];
        const bool passed = here.at.from <= then;
        if (passed) sum += count(t, here.left) + 1;
        at = passed ? here.right : here.left;
      }
      if (beside == nullptr) return sum;
      for (const gang_nodes::use& u : beside->uses) {
        const std::uint32_t left = free(u.node, k.priority, then);
        sum -= k.tasks(left) - k.tasks(left - (std::min)(left, u.leaves));
      }
      return sum;
    }

    vc_chain_id id_;
    std::vector<node> nodes_;
    std::uint32_t most_ = 0;  // leaves of a node
    std::vector<tree> trees_{};
    std::uint64_t questions_ = 0;
    std::uint64_t made_ = 0;                // trees
    std::vector<std::uint32_t> changed_{};  // nodes
  };

  [[nodiscard]] cluster& cluster_of(const gang_nodes& nodes) {
    return *std::find_if(clusters_.begin(), clusters_.end(),
                         [&](const cluster& c) { return c.id() == nodes.cluster; });
  }

  std::vector<cluster> clusters_;
};

}  // namespace detail
APIARY_NAMESPACE_END
