// apiary/fgd/node_score.h - the concept of a score that ranks nodes for a task.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <concepts>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

namespace detail {

// A score with prepare().
template <class S>
concept PreparedScore = requires(const S& c, const node_table& nodes, node_id n,
                                 const task_request& t) {
  { c.score(nodes, n, t, c.prepare(nodes, t)) } -> std::same_as<std::uint32_t>;
};

}  // namespace detail

// A score says how well a node suits a task: the node with the highest score gets the task, the
// lowest node id among equals.
// (s: a score, c: a const score, n: a node, t: a valid task that fits on n now)
//
// | expression              | meaning                                             | cost         |
// |-------------------------|-----------------------------------------------------|--------------|
// | s.update(nodes, n)      | called first for each n, and after each change of n | O(GPUs of n) |
// | c.score(nodes, n, t)    | 0, ..., max_score; depends on t and nodes[n] only   | O(GPUs of n) |
// | s.gpu_mask(nodes, n, t) | the GPUs of n that t would get, as a bit mask       | O(GPUs of n) |
//
// Five more functions and a constant are optional: c.check() returns an absl::Status: the error of
// a scheduler that gets this score, for example because a list of typical tasks is empty.
// c.prepare(nodes, t) is called once for each kind of request, before its first score. score then
// gets what it returned as a fourth argument. It may depend on t without its memory only, and on
// nothing that changes later. s.choose(candidates, allowed) returns the index of the node that gets
// the task: one of the score_tree `candidates`, in `*allowed` if that is not null, or npos.
// s.cost(before, after) returns the cost of a change of a node as a std::int64_t. A
// gang_sharing_scheduler minimizes its sum. It may depend only on what is left on the node.
// S::ignores_memory: if true, the functions do not depend on memory. Tasks that differ only in
// memory then have the same cached scores. It has no effect on a score with choose().
//
// Example: examples/own_policy.cpp
template <class S>
concept NodeScore = std::movable<S> &&
    requires(S& s, const S& c, const node_table& nodes, node_id n, const task_request& t) {
  s.update(nodes, n);
  { s.gpu_mask(nodes, n, t) } -> std::same_as<std::uint32_t>;
} &&(detail::PreparedScore<S> ||
     requires(const S& c, const node_table& nodes, node_id n, const task_request& t) {
       { c.score(nodes, n, t) } -> std::same_as<std::uint32_t>;
     });

// The largest score.
inline constexpr std::uint32_t max_score = 200;

APIARY_NAMESPACE_END
