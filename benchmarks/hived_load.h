// apiary/benchmarks/hived_load.h - clusters with tenants, and gangs that come and go on them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/rng.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace apiary_bench {

// Gangs are numbered in the order of coming; all tasks of one are equal.
struct gang_event {
  enum class kind : std::uint8_t { comes, ends };
  kind what = kind::comes;
  std::uint32_t gang = 0;
  std::uint32_t tenant = 0;
  std::int32_t priority = 0;
  std::uint32_t tasks = 0;
  std::uint32_t leaves = 0;  // of each task
  apiary::plan_result expected =
      apiary::plan_result::bind;  // of one that comes, as the load was made

  [[nodiscard]] std::uint32_t gpus() const noexcept { return tasks * leaves; }
};

struct hived_load {
  apiary::hived_config config{};
  std::uint32_t gpus = 0;
  std::uint32_t gangs = 0;
  std::vector<gang_event> events{};
  std::size_t steady = 0;  // the first event after the cluster has been filled
};

struct gang_class {
  std::uint32_t tasks = 0;
  std::uint32_t leaves = 0;
  std::uint32_t percent = 0;
};

// The classes of the recorded loads.
inline const std::vector<gang_class>& recorded_classes() {
  static const std::vector<gang_class> all{{1, 1, 25}, {1, 2, 15}, {1, 4, 15}, {1, 8, 20},
                                           {2, 8, 10}, {4, 8, 8},  {8, 8, 5},  {16, 8, 2}};
  return all;
}

struct load_shape {
  std::vector<std::uint32_t> quotas{};  // GPUs of each tenant; they ask in proportion
  std::vector<gang_class> classes{};
  std::uint32_t opportunistic_percent = 20;
  std::uint32_t load_percent = 80;
  std::uint32_t min_arrivals = 0;     // in all
  std::uint32_t steady_arrivals = 0;  // after the cluster has been filled
  std::uint64_t seed = 1;
};

// Fills the cluster and keeps it filled, gangs ending at random. A gang counts as placed if its
// tenant (or an opportunistic one, if the cluster) has as many GPUs left by number.
inline void generate(const load_shape& shape, hived_load& load) {
  apiary::rng random(shape.seed);
  std::uint64_t owned = 0;
  for (const std::uint32_t q : shape.quotas) owned += q;
  std::vector<std::uint64_t> used(shape.quotas.size(), 0);
  std::uint64_t total = 0;
  const std::uint64_t limit = std::uint64_t{load.gpus} * shape.load_percent / 100;
  std::vector<gang_event> live;
  bool filled = false;
  std::uint32_t after = 0;
  while (!filled || after < shape.steady_arrivals || load.gangs < shape.min_arrivals) {
    if (total >= limit) {
      if (!filled) load.steady = load.events.size();
      filled = true;
      const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(live.size()));
      gang_event e = live[i];
      live[i] = live.back();
      live.pop_back();
      total -= e.gpus();
      if (e.priority >= 0) used[e.tenant] -= e.gpus();
      e.what = gang_event::kind::ends;
      load.events.push_back(e);
      continue;
    }
    after += filled ? 1U : 0U;
    gang_event e;
    e.gang = load.gangs++;
    e.priority = random.uniform(100) < shape.opportunistic_percent ? -1 : 0;
    std::uint64_t at = random.uniform(static_cast<std::uint32_t>(owned));
    while (at >= shape.quotas[e.tenant]) at -= shape.quotas[e.tenant++];
    std::uint32_t percent = random.uniform(100);
    std::size_t c = 0;
    while (percent >= shape.classes[c].percent) percent -= shape.classes[c++].percent;
    e.tasks = shape.classes[c].tasks;
    e.leaves = shape.classes[c].leaves;
    const bool fits = e.priority < 0 ? total + e.gpus() <= load.gpus
                                     : used[e.tenant] + e.gpus() <= shape.quotas[e.tenant];
    e.expected = fits ? apiary::plan_result::bind : apiary::plan_result::wait;
    load.events.push_back(e);
    if (!fits) continue;
    live.push_back(e);
    total += e.gpus();
    if (e.priority >= 0) used[e.tenant] += e.gpus();
  }
}

// Zones of 8 rows of 4 racks of 4 nodes of 8 GPUs, as in the recorded loads.
inline apiary::hived_config zones(std::uint32_t n) {
  apiary::hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2, false}, {"QUAD", "PAIR", 2, false},
                       {"NODE", "QUAD", 2, true}, {"RACK", "NODE", 4, false},
                       {"ROW", "RACK", 4, false}, {"ZONE", "ROW", 8, false}};
  std::uint32_t next = 0;
  for (std::uint32_t z = 0; z < n; ++z) {
    apiary::physical_cell_config zone;
    zone.type = "ZONE";
    for (int r = 0; r < 8; ++r) {
      apiary::physical_cell_config& row = zone.children.emplace_back();
      for (int k = 0; k < 4; ++k) {
        apiary::physical_cell_config& rack = row.children.emplace_back();
        for (int i = 0; i < 4; ++i)
          rack.children.emplace_back().address = "n" + std::to_string(next++);
      }
    }
    config.physical_cells.push_back(std::move(zone));
  }
  return config;
}

enum class quota_kind : std::uint8_t { rows_and_racks, nodes };

// Ten tenants that own 90 % in racks, as rows as far as possible or as nodes, and their gangs.
inline hived_load synthetic_load(std::uint32_t gpus, quota_kind kind, load_shape shape) {
  constexpr std::uint32_t zone_gpus = 1024;
  const std::uint32_t n = (gpus + zone_gpus - 1) / zone_gpus;
  hived_load load;
  load.gpus = n * zone_gpus;
  load.config = zones(n);
  std::uint32_t t = 0;
  for (const std::uint32_t share : {20U, 15U, 13U, 12U, 10U, 8U, 7U, 6U, 5U, 4U}) {
    const std::uint32_t racks = n * 32 * 9 * share / 1000;
    apiary::virtual_cluster_config& tenant = load.config.virtual_clusters.emplace_back();
    tenant.name = "VC" + std::to_string(t++);
    if (kind == quota_kind::nodes) {
      tenant.cells = {{"ZONE.ROW.RACK.NODE", racks * 4}};
    } else {
      tenant.cells = {{"ZONE.ROW", racks / 4}, {"ZONE.ROW.RACK", racks % 4}};
    }
    shape.quotas.push_back(racks * 32);
  }
  shape.classes = recorded_classes();
  generate(shape, load);
  return load;
}

// The gangs of a recorded load, without its configuration: what stands in the line CONFIG. Those
// that waited there end at once if they are placed, since nothing says when they would have.
inline std::optional<std::string> read_recorded(const std::string& path, hived_load& load) {
  std::ifstream in(path);
  std::optional<std::string> config;
  std::vector<std::uint32_t> ended;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string op;
    fields >> op;
    gang_event e;
    if (op == "CONFIG") {
      config = line.substr(op.size() + 1);
    } else if (op == "STEADY") {
      load.steady = load.events.size();
    } else if (op == "S") {
      std::string result;
      fields >> e.gang >> e.tenant >> e.priority >> e.tasks >> e.leaves >> result;
      e.expected = result == "B"   ? apiary::plan_result::bind
                   : result == "P" ? apiary::plan_result::preempt
                                   : apiary::plan_result::wait;
      load.events.push_back(e);
      load.gangs = std::max(load.gangs, e.gang + 1);
      if (e.expected != apiary::plan_result::wait) continue;
      e.what = gang_event::kind::ends;
      load.events.push_back(e);
    } else if (op == "D" || op == "X") {  // a victim there ends here as well
      fields >> e.gang;
      e.what = gang_event::kind::ends;
      load.events.push_back(e);
    }
  }
  return config;
}

// Durations in microseconds of the same steps in several runs: of each step the median over the
// runs counts, so that what else the machine did meanwhile does not.
class durations {
 public:
  void begin_run() { runs_.emplace_back(); }
  void add(double us) { runs_.back().push_back(us); }
  [[nodiscard]] double mean() const {
    double sum = 0;
    const std::vector<double> all = medians();
    for (const double us : all) sum += us;
    return all.empty() ? 0 : sum / static_cast<double>(all.size());
  }
  [[nodiscard]] double quantile(double q) const {
    std::vector<double> all = medians();
    return all.empty() ? 0 : nth(all, q);
  }

 private:
  static double nth(std::vector<double>& all, double q) {
    const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), all.begin() + at, all.end());
    return all[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] std::vector<double> medians() const {
    std::vector<double> all;
    std::vector<double> of_step;
    for (std::size_t i = 0; !runs_.empty() && i < runs_.front().size(); ++i) {
      of_step.clear();
      for (const std::vector<double>& run : runs_) of_step.push_back(run[i]);
      all.push_back(nth(of_step, 0.5));
    }
    return all;
  }

  std::vector<std::vector<double>> runs_;
};

class stopwatch {
 public:
  [[nodiscard]] double us() const {
    const std::chrono::duration<double, std::micro> passed = clock::now() - start_;
    return passed.count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point start_ = clock::now();
};

// What the C library has handed out, its own headers included; 0 where it does not say.
inline std::size_t heap_bytes() {
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
#endif
  return 0;
}

inline apiary::gang_request request_of(const gang_event& e) {
  apiary::gang_request r;
  r.job = apiary::job_id(e.gang);
  r.tenant = apiary::tenant_id(e.tenant);
  r.priority = e.priority;
  r.groups = {{e.tasks, e.leaves}};
  return r;
}

}  // namespace apiary_bench
