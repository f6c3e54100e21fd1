// apiary/gandiva/detail/job_adapter.h - the concept of what jobs over time are to a ground of introspection.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>

#include <concepts>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Says a job in the words of a ground.
//
// (f: of such a type, g: a ground, r: a job's request, w: a place on the ground, t: a tenant, n: a
// node)
// | expression         | meaning                                                            |
// |--------------------|--------------------------------------------------------------------|
// | f.check(g, r)      | whether r would run in one of its forms, were everything idle and  |
// |                    | healthy; an error if not                                           |
// | f.own(r)           | the job as it asks. If g.priority() of that is 0 or above it has a |
// |                    | right to GPUs of its tenant                                        |
// | f.turn(r)          | the job as it takes turns: g.priority() is below 0                 |
// | f.place(w)         | w for a host: nodes in ascending order, each once                  |
// | f.owned(g, t)      | GPUs to which jobs of t have a right                               |
// | f.gpus(g, n)       | GPUs of a node that there is                                       |
// | f.total_gpus(g)    | all GPUs, bad ones included                                        |
template <class F, class Backend>
concept JobAdapter = requires(F& f, const F& constant, const Backend& g, const job_request& r,
                              const typename Backend::place& w, tenant_id t, node_id n) {
  { f.check(g, r) } -> std::same_as<absl::Status>;
  { constant.own(r) } -> std::convertible_to<typename Backend::request>;
  { constant.turn(r) } -> std::convertible_to<typename Backend::request>;
  { constant.place(w) } -> std::convertible_to<job_placement>;
  { constant.owned(g, t) } -> std::same_as<std::uint32_t>;
  { constant.gpus(g, n) } -> std::same_as<std::uint32_t>;
  { constant.total_gpus(g) } -> std::same_as<std::uint32_t>;
};

}  // namespace detail
APIARY_NAMESPACE_END
