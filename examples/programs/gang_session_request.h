// Requests and nodes of a gang session: read from JSON, and written as JSON.
// SPDX-License-Identifier: MIT
#pragma once

#include "gang_session_fields.h"
#include "hived_session_json.h"
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>

#include <absl/strings/str_cat.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace example {

using apiary::gang_cluster;
using apiary::gang_scheduler;

// The name of a level; "cluster" for the level above all others.
inline std::string level_name(const gang_cluster& cluster, apiary::level_t l) {
  if (l == 0) return "node";
  return l <= cluster.levels.size() ? cluster.levels[l - 1] : "cluster";
}

// Reads a level by its name.
inline apiary::level_t read_level(session_fields& from, const char* name,
                                  const gang_scheduler& cluster, apiary::level_t missing) {
  const std::string level = from.text(name);
  if (level.empty()) return missing;
  const auto found = cluster.find_level(level);
  if (!found.ok()) from.fault(name, std::string(found.status().message()));
  return found.value_or(missing);
}

inline gang_cluster::node read_session_node(session_fields& from) {
  from.require("name");
  return {.name = from.text("name"),
          .cells = from.texts("cells"),
          .gpus = from.number<std::uint32_t>("gpus"),
          .host = {.cpu_milli = from.number<std::uint32_t>("cpuMilli"),
                   .memory_mib = from.number<std::uint32_t>("memoryMib")},
          .model = from.text("model"),
          .labels = from.texts("labels"),
          .taints = from.texts("taints")};
}

// The fields of propose, why and recover that describe a gang.
inline gang_scheduler::request read_session_request(session_fields& from,
                                                    const gang_scheduler& cluster) {
  gang_scheduler::request r{.job = from.job("job"),
                            .tenant = apiary::tenant_id(from.number<std::uint32_t>("tenant")),
                            .priority = from.number<std::int32_t>("priority")};
  from.require("groups");
  from.objects("groups", [&](session_fields& g) {
    apiary::constrained_task_group group{
        .tasks = g.number<std::uint32_t>("tasks"),
        .gpus = g.number<std::uint32_t>("gpus"),
        .host = {.cpu_milli = g.number<std::uint32_t>("cpuMilli"),
                 .memory_mib = g.number<std::uint32_t>("memoryMib")},
        .leader = g.number<std::uint32_t>("leader", apiary::no_task_group),
        .leader_level = read_level(g, "leaderLevel", cluster, apiary::any_level)};
    const auto read_counts = [&](const char* name, std::vector<apiary::level_count>& to) {
      g.objects(name, [&](session_fields& s) {
        to.push_back({read_level(s, "level", cluster, 0), s.number<std::uint32_t>("tasks")});
      });
    };
    read_counts("slices", group.slices);
    read_counts("spread", group.spread);
    r.gang.groups.push_back(std::move(group));
  });
  r.gang.required = read_level(from, "required", cluster, apiary::any_level);
  r.gang.preferred = read_level(from, "preferred", cluster, apiary::any_level);
  from.object("filter", [&](session_fields& f) {
    r.filter = {.labels = f.texts("labels"),
                .models = f.texts("models"),
                .nodes = f.texts("nodes"),
                .tolerations = f.texts("tolerations")};
  });
  return r;
}

inline void write_job(json_object& out, const apiary::job_key& job) {
  if (job.is_text())
    out.value(job.text());
  else
    out.value(job.number());
}
inline void write_job_list(json_object& out, const char* key,
                           const std::vector<apiary::job_key>& jobs) {
  out.key(key).open('[');
  for (const apiary::job_key& job : jobs) write_job(out, job);
  out.close(']');
}
inline void write_text_list(json_object& out, const char* key,
                            const std::vector<std::string>& texts) {
  out.key(key).open('[');
  for (const std::string& text : texts) out.value(text);
  out.close(']');
}

// "tasks": [{"node": name, "gpus": [0, 1]}]
inline void write_task_list(json_object& out, const gang_scheduler& cluster,
                            const std::vector<apiary::placement>& tasks) {
  out.key("tasks").open('[');
  for (const apiary::placement& task : tasks) {
    const gang_cluster::node* node = cluster.node(task.node);
    out.open('{').key("node").value(node == nullptr ? std::string() : node->name);
    out.key("gpus").open('[');
    for (std::uint32_t gpu = 0; gpu < gang_cluster::max_gpus; ++gpu)
      if ((task.gpu_mask >> gpu & 1) != 0) out.value(std::uint64_t{gpu});
    out.close(']').close('}');
  }
  out.close(']');
}

inline void write_session_node(json_object& out, const gang_cluster::node& node) {
  out.open('{').key("name").value(node.name);
  write_text_list(out, "cells", node.cells);
  out.key("gpus").value(std::uint64_t{node.gpus});
  out.key("cpuMilli").value(std::uint64_t{node.host.cpu_milli});
  out.key("memoryMib").value(std::uint64_t{node.host.memory_mib});
  out.key("model").value(node.model);
  write_text_list(out, "labels", node.labels);
  write_text_list(out, "taints", node.taints);
  out.close('}');
}

// The fields that read_session_request reads as this request.
inline void write_session_request(json_object& out, const std::vector<std::string>& levels,
                                  const gang_scheduler::request& r) {
  const gang_cluster names{.levels = levels};
  const auto level = [&](const char* key, apiary::level_t l) {
    if (l != apiary::any_level) out.key(key).value(level_name(names, l));
  };
  write_job(out.key("job"), r.job);
  out.key("tenant").value(std::uint64_t{r.tenant.value});
  out.key("priority").value(r.priority);
  out.key("groups").open('[');
  for (const apiary::constrained_task_group& g : r.gang.groups) {
    out.open('{').key("tasks").value(std::uint64_t{g.tasks});
    out.key("gpus").value(std::uint64_t{g.gpus});
    out.key("cpuMilli").value(std::uint64_t{g.host.cpu_milli});
    out.key("memoryMib").value(std::uint64_t{g.host.memory_mib});
    if (g.leader != apiary::no_task_group) out.key("leader").value(std::uint64_t{g.leader});
    level("leaderLevel", g.leader_level);
    const auto write_counts = [&](const char* key, const std::vector<apiary::level_count>& all) {
      out.key(key).open('[');
      for (const apiary::level_count& c : all) {
        out.open('{').key("level").value(level_name(names, c.level));
        out.key("tasks").value(std::uint64_t{c.tasks}).close('}');
      }
      out.close(']');
    };
    write_counts("slices", g.slices);
    write_counts("spread", g.spread);
    out.close('}');
  }
  out.close(']');
  level("required", r.gang.required);
  level("preferred", r.gang.preferred);
  out.key("filter").open('{');
  write_text_list(out, "labels", r.filter.labels);
  write_text_list(out, "models", r.filter.models);
  const auto nodes = r.filter.nodes.names();
  write_text_list(out, "nodes", {nodes.begin(), nodes.end()});
  write_text_list(out, "tolerations", r.filter.tolerations);
  out.close('}');
}

}  // namespace example
