// apiary/examples/hosts/kubernetes/waiting_gang.h - what a gang that waits was offered, and why it waits.
// SPDX-License-Identifier: MIT
#pragma once

#include "kubernetes_records.h"
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/plan.h>

#include <absl/strings/str_cat.h>

#include <cstdint>
#include <string>

namespace apiary_kubernetes {

// A gang that waits. kube-scheduler asks about it again and again, and an explanation takes milliseconds.
class waiting_gang {
 public:
  apiary::node_names offered{};  // the nodes of the last `filter`

  // Why it waits. The scheduler is asked again only after a change of the cluster or of the request,
  // which has this shape. It is asked about all nodes: those with GPUs in use are not offered.
  const std::string& explanation(apiary::gang_scheduler& cluster,
                                 apiary::gang_scheduler::request asked, const gang_shape& shape,
                                 apiary::time_ms now) {
    asked.filter.nodes = {};
    if (!text_.empty() && hash_ == cluster.hash() && shape_ == shape && filter_ == asked.filter)
      return text_;
    const auto answer = cluster.explain(asked, now);
    text_ = answer.ok() ? answer->text : std::string(answer.status().message());
    if (answer.ok() && answer->plan.result == apiary::plan_result::bind)
      text_ = absl::StrCat("kube-scheduler offers too few nodes; on all nodes, ", text_);
    hash_ = cluster.hash();
    shape_ = shape;
    filter_ = asked.filter;
    return text_;
  }

 private:
  std::string text_;  // empty: not asked yet; otherwise the answer for what follows
  std::uint64_t hash_ = 0;
  gang_shape shape_;
  apiary::node_filter filter_;
};

}  // namespace apiary_kubernetes
