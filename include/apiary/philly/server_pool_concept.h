// apiary/philly/server_pool_concept.h - the concept of a pool of servers in racks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Servers in racks, for gangs of whole GPUs. A pool knows which job has which GPUs, and it chooses
// the GPUs of a gang. (p: a pool, c: a const pool, n: a server, r: a rack, s: a range of servers,
// j: a job, w: a placement, k: a number of GPUs)
//
// | expression                    | meaning                                                     |
// |-------------------------------|-------------------------------------------------------------|
// | c.servers(), c.num_servers()  | all servers, numbered from 0                                |
// | c.num_racks(), c.servers_of(r)| racks; each is a range of servers                           |
// | c.total(), c.total(r)         | GPUs, including bad ones and those that gangs never get     |
// | c.gpus(n)                     | the same for one server                                     |
// | c.usable()                    | GPUs of healthy servers                                     |
// | c.idle(), c.idle(r), c.idle(n)| completely unused GPUs of healthy servers                   |
// | c.most_idle(s, m)             | the m servers of s with the most idle GPUs, in that order   |
// | p.fit(s, k, m)                | a placement of k > 0 GPUs on at most m servers of s,        |
// |                               | servers ascending; empty only if no m of them have k idle   |
// | c.pick_idle(n, k)             | k idle GPUs of n. Requires: k <= c.idle(n)                  |
// | p.take(j, w)                  | j gets these idle GPUs, in addition to those it has         |
// | p.give(w)                     | they become idle: all that one job has on these servers     |
// | c.owner(n, d)                 | the job that has GPU d < c.gpus(n); not valid: none         |
// | p.set_health(n, healthy)      | whether gangs may get GPUs of n from now on                 |
template <class P>
concept ServerPool = std::movable<P> &&
    requires(P& p, const P& c, node_id n, std::uint32_t k, id_range<node_id> s, job_id j,
             std::span<const placement> w, bool healthy) {
  { c.servers() } -> std::same_as<id_range<node_id>>;
  { c.num_servers() } -> std::same_as<std::uint32_t>;
  { c.num_racks() } -> std::same_as<std::uint32_t>;
  { c.servers_of(k) } -> std::same_as<id_range<node_id>>;
  { c.total() } -> std::same_as<std::uint32_t>;
  { c.total(k) } -> std::same_as<std::uint32_t>;
  { c.gpus(n) } -> std::same_as<std::uint32_t>;
  { c.usable() } -> std::same_as<std::uint32_t>;
  { c.idle() } -> std::same_as<std::uint32_t>;
  { c.idle(k) } -> std::same_as<std::uint32_t>;
  { c.idle(n) } -> std::same_as<std::uint32_t>;
  { c.most_idle(s, k) } -> std::same_as<std::vector<node_id>>;
  { p.fit(s, k, k) } -> std::same_as<job_placement>;
  { c.pick_idle(n, k) } -> std::same_as<placement>;
  p.take(j, w);
  p.give(w);
  { c.owner(n, k) } -> std::same_as<job_id>;
  p.set_health(n, healthy);
};
static_assert(ServerPool<server_pool>);

APIARY_NAMESPACE_END
