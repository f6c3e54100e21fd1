// apiary/fgd/detail/victim_index.h - the node where it costs least to make a task fit by evictions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The victims for a task, all on one node.
struct victims_on_node {
  placement where{};  // where the task runs when they have ended
  std::vector<job_id> victims{};
  std::uint64_t cost = 0;         // of the victims
  std::uint64_t lower_bound = 0;  // no victims anywhere cost less
};

// Knows the jobs on each node that may be evicted, and the eviction_bounds of each node. A search
// takes the nodes in the order of these bounds, and searches each of them exactly until no other
// node can cost less. It may go on after nodes have changed: it then reads only these again.
//
// Requires: touch() is called after each change of a node, and of the jobs on it.
// Cost:     open: O(nodes), and eviction_bounds for each node that changed since the last search
//           for this priority; those of max_levels priorities are kept. least: O(log nodes) for
//           each node that changed since the last call, and a search on each node of which the
//           bound is not above the least cost, unless it was searched since open() and has not
//           changed. Memory: 116 bytes a node and priority, 25 a node for a search, 60 a job on a
//           node.
class victim_index {
 public:
  // The cost of a node where no evictions are enough.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  // The most priorities for which bounds of each node are kept.
  static constexpr std::size_t max_levels = 16;

  // So many nodes, without jobs.
  explicit victim_index(std::uint32_t nodes);
  victim_index(const victim_index& other);
  victim_index(victim_index&& other) noexcept;
  victim_index& operator=(victim_index other) noexcept;
  ~victim_index();

  // Adds the next node.
  void add_node();
  // The number of nodes, those that were removed included.
  [[nodiscard]] std::uint32_t size() const noexcept;
  // Node n has changed.
  void touch(node_id n);

  // A task of a job with this priority and cost may be evicted from now on.
  void add(const task_request& task, placement where, std::uint32_t priority, std::uint64_t cost);
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, placement where, std::uint32_t priority);

  // Starts a search for victims of priorities below this one for a task, on the nodes of `allowed`
  // if that is not null. Requires: task.valid(); `allowed` lives as long as the search; no node is
  // added before its end.
  void open(const node_table& nodes, const task_request& task, std::uint32_t priority,
            const summary_bitset* allowed);
  // The victims that cost least now; nullopt if there are none. Of nodes that cost the same it
  // takes the lowest id. When steps() is `max_steps` or more, it searches nodes in few steps:
  // victims may then cost more than others on the same node. Requires: the task fits on no node of
  // the search.
  [[nodiscard]] std::optional<victims_on_node> least(const node_table& nodes,
                                                     std::uint64_t max_steps = never);
  // The least sum of the bounds of `count` nodes; never if fewer nodes can run the task. Requires:
  // no least() since open(); the task fits on no node of the search.
  [[nodiscard]] std::uint64_t least_sum(const node_table& nodes, std::uint32_t count);
  // What all searches have taken: one for each node that open() reads, for each node that has
  // changed since, and for each step of a search on a node.
  [[nodiscard]] std::uint64_t steps() const noexcept;

 private:
  struct body;
  std::unique_ptr<body> body_;
};

}  // namespace detail
APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/fgd/detail/victim_index_inl.h>
#endif
