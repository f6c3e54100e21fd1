// apiary/fgd/node_score.h - the concept of a score that ranks nodes for a task.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <concepts>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// How well a node suits a task: an integer, more is better, equal is decided by the lowest node id.
// (s: a score, c: a constant one, n: a node, t: a valid task that fits on n now)
//
// | expression             | meaning                                              | cost         |
// |------------------------|------------------------------------------------------|--------------|
// | s.update(nodes, n)     | called for each node at first, and after each change | O(GPUs of n) |
// |                        | of n                                                 |              |
// | c.score(nodes, n, t)   | 0, ..., max_score; depends on nothing but t and the  | O(GPUs of n) |
// |                        | state of n                                           |              |
// | s.devices(nodes, n, t) | the devices of n that t would take, as a mask        | O(GPUs of n) |
//
// A score may also have s.choose(candidates, allowed), which replaces "the lowest id of the best":
// an index of the score_tree `candidates`, one of `*allowed` if that is not null; npos for none.
// And s.cost(before, after), a std::int64_t: of a change of a node, for gangs that are to be placed
// at the least sum of it. It may depend on what is left on the node alone.
template <class S>
concept NodeScore = std::movable<S> &&
    requires(S& s, const S& c, const node_table& nodes, node_id n, const task_request& t) {
  s.update(nodes, n);
  { c.score(nodes, n, t) } -> std::same_as<std::uint32_t>;
  { s.devices(nodes, n, t) } -> std::same_as<std::uint32_t>;
};

inline constexpr std::uint32_t max_score = 200;

APIARY_NAMESPACE_END
