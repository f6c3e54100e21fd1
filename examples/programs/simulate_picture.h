// apiary/examples/programs/simulate_picture.h - which tenant had which GPU when, recorded while a simulation runs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace example {

// The number of colours for tenants. The last one stands for all tenants without their own colour.
inline constexpr std::uint32_t num_colors = 7;

// The colour of each tenant. The tenants with the most GPU time have a colour to themselves.
inline std::vector<std::uint32_t> colors_of(const apiary::job_list& list) {
  std::vector<double> time(list.tenants.size(), 0.0);
  for (const apiary::timed_job& j : list.jobs)
    time[j.request.tenant.value] += static_cast<double>(j.duration) * j.request.gpus;
  std::vector<std::uint32_t> order(time.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return time[a] > time[b]; });
  // In the order of the list, so that the legend has the same order.
  order.resize(std::min<std::size_t>(order.size(), num_colors - 1));
  std::sort(order.begin(), order.end());
  std::vector<std::uint32_t> colors(time.size(), num_colors - 1);
  for (std::uint32_t i = 0; i < order.size(); ++i) colors[order[i]] = i;
  return colors;
}

// GPU time by row of GPUs, by column of time and by colour. When time passes the last column, every
// column becomes twice as long, so the end need not be known in advance.
class gpu_picture {
 public:
  static constexpr std::uint32_t columns = 400;
  static constexpr std::uint32_t max_rows = 128;

  gpu_picture(std::uint32_t nodes, std::uint32_t gpus_per_node, std::vector<std::uint32_t> colors)
      : gpus_per_node_(gpus_per_node),
        gpus_(nodes * gpus_per_node),
        rows_(std::min(gpus_, max_rows)),
        colors_(std::move(colors)),
        time_(std::size_t{rows_} * columns * num_colors) {}

  [[nodiscard]] std::uint32_t rows() const noexcept { return rows_; }
  // The duration of a column.
  [[nodiscard]] apiary::time_ms width() const noexcept { return width_; }
  // The number of columns up to the last one in which a GPU was used.
  [[nodiscard]] std::uint32_t used_columns() const noexcept { return used_; }
  // The fraction of GPU time in use during a column, from 0 to 1.
  [[nodiscard]] double use(std::uint32_t column) const noexcept {
    std::int64_t sum = 0;
    for (std::uint32_t row = 0; row < rows_; ++row) {
      for (std::uint32_t c = 0; c < num_colors; ++c) sum += time_[at(row, column) + c];
    }
    return static_cast<double>(sum) / static_cast<double>(width_) / gpus_;
  }
  // The colour with most GPU time in a cell; num_colors if the cell was idle for more than half.
  [[nodiscard]] std::uint32_t color(std::uint32_t row, std::uint32_t column) const noexcept {
    const auto* first = &time_[at(row, column)];
    const std::int64_t used = std::accumulate(first, first + num_colors, std::int64_t{0});
    const std::int64_t whole = width_ * gpus_of(row);
    if (2 * used < whole) return num_colors;
    return static_cast<std::uint32_t>(std::max_element(first, first + num_colors) - first);
  }

  // Records that a job of the tenant had these GPUs from `from` until before `until`.
  void add(apiary::tenant_id tenant, const apiary::job_placement& where, apiary::time_ms from,
           apiary::time_ms until) {
    if (from >= until) return;
    while (until > width_ * columns) halve();
    const auto first = static_cast<std::uint32_t>(from / width_);
    const auto last = static_cast<std::uint32_t>((until - 1) / width_);
    used_ = std::max(used_, last + 1);
    for (const apiary::placement& p : where) {
      for (std::uint32_t left = p.gpu_mask; left != 0; left &= left - 1) {
        const std::uint32_t gpu =
            p.node.value * gpus_per_node_ + static_cast<std::uint32_t>(std::countr_zero(left));
        for (std::uint32_t c = first; c <= last; ++c) {
          const apiary::time_ms begin = std::max(from, c * width_);
          const apiary::time_ms end = std::min(until, (c + 1) * width_);
          time_[at(row_of(gpu), c) + colors_[tenant.value]] += end - begin;
        }
      }
    }
  }

 private:
  [[nodiscard]] std::size_t at(std::uint32_t row, std::uint32_t column) const noexcept {
    return (std::size_t{row} * columns + column) * num_colors;
  }
  [[nodiscard]] std::uint32_t row_of(std::uint32_t gpu) const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{gpu} * rows_ / gpus_);
  }
  [[nodiscard]] std::uint32_t gpus_of(std::uint32_t row) const noexcept {
    const auto first = [&](std::uint64_t r) { return (r * gpus_ + rows_ - 1) / rows_; };
    return static_cast<std::uint32_t>(first(std::uint64_t{row} + 1) - first(row));
  }
  void halve() {
    for (std::uint32_t row = 0; row < rows_; ++row) {
      for (std::uint32_t c = 0; c < columns; ++c) {
        for (std::uint32_t color = 0; color < num_colors; ++color) {
          std::int64_t sum = 0;
          if (c < columns / 2)
            sum = time_[at(row, 2 * c) + color] + time_[at(row, 2 * c + 1) + color];
          time_[at(row, c) + color] = sum;
        }
      }
    }
    width_ *= 2;
    used_ = (used_ + 1) / 2;
  }

  std::uint32_t gpus_per_node_;
  std::uint32_t gpus_;
  std::uint32_t rows_;
  std::vector<std::uint32_t> colors_;  // of each tenant
  std::vector<std::int64_t> time_;
  apiary::time_ms width_ = 1000;
  std::uint32_t used_ = 0;
};

// Wraps a scheduler and records in a picture where its jobs run.
template <class Scheduler>
class watched {
 public:
  watched(Scheduler scheduler, std::span<const apiary::timed_job> jobs, gpu_picture& picture)
      : scheduler_(std::move(scheduler)), jobs_(jobs), picture_(picture), stays_(jobs.size()) {}

  absl::Status submit(const apiary::job_request& r, apiary::time_ms now) {
    return scheduler_.submit(r, now);
  }
  absl::Status finish(apiary::job_id job, apiary::time_ms now) {
    end(job, now);
    return scheduler_.finish(job, now);
  }
  // Only if the scheduler decides which jobs that fail wait again.
  template <class S = Scheduler>
  auto fail(apiary::job_id job, apiary::failure_class why, apiary::time_ms now)
      -> decltype(std::declval<S&>().fail(job, why, now)) {
    end(job, now);
    return scheduler_.fail(job, why, now);
  }
  absl::StatusOr<std::vector<apiary::job_id>> mark_bad(apiary::node_id n, apiary::time_ms now) {
    absl::StatusOr<std::vector<apiary::job_id>> stopped = scheduler_.mark_bad(n, now);
    if (!stopped.ok()) return stopped;
    for (const apiary::job_id job : *stopped) end(job, now);
    return stopped;
  }
  absl::Status mark_healthy(apiary::node_id n, apiary::time_ms now) {
    return scheduler_.mark_healthy(n, now);
  }
  absl::Status decide(apiary::time_ms now, std::vector<apiary::job_action>& actions) {
    const std::size_t old = actions.size();
    absl::Status status = scheduler_.decide(now, actions);
    for (std::size_t i = old; i < actions.size(); ++i) {
      end(actions[i].job, now);
      stays_[actions[i].job.value] = {now, actions[i].where};
    }
    return status;
  }
  [[nodiscard]] apiary::time_ms wake() const { return scheduler_.wake(); }
  [[nodiscard]] std::uint32_t total_gpus() const { return scheduler_.total_gpus(); }

 private:
  struct stay {
    apiary::time_ms from = 0;
    apiary::job_placement where{};  // empty while the job does not run
  };
  void end(apiary::job_id job, apiary::time_ms now) {
    stay& s = stays_[job.value];
    picture_.add(jobs_[job.value].request.tenant, s.where, s.from, now);
    s.where.clear();
  }

  Scheduler scheduler_;
  std::span<const apiary::timed_job> jobs_;
  gpu_picture& picture_;
  std::vector<stay> stays_;
};

}  // namespace example
