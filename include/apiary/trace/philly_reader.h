// apiary/trace/philly_reader.h - reads the job list of the Philly cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/trace/detail/csv_reader.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/line_reader.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {

// The value of up to 15 decimal digits; nullopt for anything else.
[[nodiscard]] inline std::optional<std::int64_t> digits(std::string_view text) noexcept {
  if (text.empty() || text.size() > 15) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + (c - '0');
  }
  return value;
}

// Converts seconds with any number of decimals to milliseconds. Further decimals are cut off, or rounded
// with halves up if `round`. nullopt for anything else, and for 10^12 seconds or more.
[[nodiscard]] inline std::optional<time_ms> milliseconds(std::string_view text, bool round) {
  const std::size_t point = text.find('.');
  const std::optional<std::int64_t> whole = digits(text.substr(0, point));
  if (!whole || *whole >= 1'000'000'000'000) return std::nullopt;
  std::string decimals(point < text.size() ? text.substr(point + 1) : "0");
  if (decimals.empty() || decimals.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  decimals.resize(4, '0');
  const bool up = round && decimals.back() >= '5';
  return *whole * 1000 + *digits(decimals.substr(0, 3)) + (up ? 1 : 0);
}

// "YYYY-MM-DD HH:MM:SS" in UTC as seconds since 1970; nullopt for anything else.
[[nodiscard]] inline std::optional<std::int64_t> unix_seconds(std::string_view text) noexcept {
  constexpr std::string_view pattern = "####-##-## ##:##:##";
  if (text.size() != pattern.size()) return std::nullopt;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (pattern[i] == '#' ? !digit : text[i] != pattern[i]) return std::nullopt;
  }
  const auto number = [&](std::size_t at, std::size_t n) { return *digits(text.substr(at, n)); };
  const std::int64_t year = number(0, 4);
  const std::int64_t month = number(5, 2);
  const std::int64_t day = number(8, 2);
  constexpr std::array<std::int64_t, 12> before{0,   31,  59,  90,  120, 151,
                                                181, 212, 243, 273, 304, 334};
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  if (year < 1970 || month < 1 || month > 12 || day < 1) return std::nullopt;
  const std::int64_t in_year = before[static_cast<std::size_t>(month - 1)];
  const std::int64_t in_month = (month == 12 ? 365 : before[static_cast<std::size_t>(month)]) -
                                in_year + (leap && month == 2 ? 1 : 0);
  if (day > in_month || number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59)
    return std::nullopt;
  const std::int64_t last = year - 1;
  const std::int64_t leaps = last / 4 - last / 100 + last / 400 - 477;  // since 1970
  const std::int64_t days =
      (year - 1970) * 365 + leaps + in_year + (leap && month > 2 ? 1 : 0) + day - 1;
  return days * 86400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2);
}

// Numbers tenants by name, in order of first occurrence.
class tenant_names {
 public:
  [[nodiscard]] tenant_id intern(std::string_view name, std::vector<std::string>& names) {
    const auto [at, is_new] =
        ids_.try_emplace(std::string(name), static_cast<std::uint32_t>(names.size()));
    if (is_new) names.emplace_back(name);
    return tenant_id(at->second);
  }

 private:
  absl::flat_hash_map<std::string, std::uint32_t> ids_;
};

}  // namespace detail

// Reads a CSV list with the columns timestamp (the arrival, UTC), duration (seconds), num_gpus and
// cluster (the tenant). Times become milliseconds from the first arrival. The estimate of a job is its
// duration. A job without GPUs or duration is left out and counted.
//
// Errors:  kInvalidArgument (kOutOfRange for a line that is too long) with a message that begins with
//          the name of the text and the line.
// Example: examples/simulate.cpp
[[nodiscard]] inline absl::StatusOr<job_list> read_philly(line_reader lines) {
  enum : std::size_t { timestamp, duration, num_gpus, tenant };
  constexpr std::array<detail::csv_column, 4> columns{
      {{"timestamp"}, {"duration"}, {"num_gpus"}, {"cluster"}}};
  APIARY_ASSIGN_OR_RETURN(detail::csv_reader csv,
                          detail::csv_reader::create(std::move(lines), columns));
  job_list list;
  detail::tenant_names tenants;
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) break;
    timed_job job;
    const std::optional<std::int64_t> came = detail::unix_seconds(csv[timestamp]);
    if (!came) {
      return csv.error("timestamp is " + line_reader::quoted(csv[timestamp]) +
                       ", not YYYY-MM-DD HH:MM:SS");
    }
    const std::optional<time_ms> took = detail::milliseconds(csv[duration], false);
    if (!took)
      return csv.error("duration is " + line_reader::quoted(csv[duration]) + ", not seconds");
    APIARY_ASSIGN_OR_RETURN(job.request.gpus, csv.number(num_gpus));
    APIARY_ASSIGN_OR_RETURN(const std::string name, csv.name(tenant));
    if (*took == 0 || job.request.gpus == 0) {
      ++list.left_out;
      continue;
    }
    job.request.tenant = tenants.intern(name, list.tenants);
    job.arrival = *came * 1000;
    job.duration = job.request.estimate = *took;
    list.jobs.push_back(job);
  }
  if (list.jobs.empty()) return csv.lines().error_in_all("no job after the header line");
  number_by_arrival(list.jobs);
  const time_ms first = list.jobs.front().arrival;
  for (timed_job& job : list.jobs) job.arrival -= first;
  return list;
}

APIARY_NAMESPACE_END
