// apiary/trace/job_readers.h - reads Philly job lists and the Standard Workload Format.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/resources.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

APIARY_NAMESPACE_BEGIN

namespace detail {

// The value of up to 15 decimal digits; nullopt for anything else.
[[nodiscard]] inline std::optional<std::int64_t> digits(std::string_view text) noexcept {
  const std::optional<std::uint64_t> value = read_digits(text, 999'999'999'999'999);
  return text.size() > 15 ? std::nullopt : std::optional<std::int64_t>(value);
}

// Converts seconds with decimals to milliseconds; further decimals are cut off, or rounded with
// halves up if `round`. nullopt for anything else, and for 10^12 seconds or more.
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
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  const std::int64_t days_in_month =
      month == 2 ? (leap ? 29 : 28) : 30 + (month < 8 ? month % 2 : 1 - month % 2);
  if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days_in_month ||
      number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59)
    return std::nullopt;
  // Days since 1 March of the year 0, with years that begin in March.
  const std::int64_t y = month > 2 ? year : year - 1;
  const std::int64_t days =
      365 * y + y / 4 - y / 100 + y / 400 + (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
  return (days - 719468) * 86400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2);
}

// The jobs that a reader has found.
class job_collector {
 public:
  [[nodiscard]] bool empty() const noexcept { return list_.jobs.empty(); }
  // Why there is none: `nothing`, or how many jobs were left out, which have none of `needs`.
  [[nodiscard]] std::string why_empty(const char* nothing, const char* needs) const {
    const std::uint64_t n = list_.left_out;
    if (n == 0) return nothing;
    return "no job can run; " + std::to_string(n) + (n == 1 ? " job has " : " jobs have ") + needs;
  }
  // A job without GPUs or without duration.
  void leave_out() { ++list_.left_out; }
  // Tenants are numbered in order of first occurrence. Returns the job, valid until the next one.
  timed_job& add(std::int64_t gpus, std::string_view tenant, time_ms arrival, time_ms duration,
                 time_ms estimate) {
    const auto [at, is_new] =
        tenants_.try_emplace(std::string(tenant), static_cast<std::uint32_t>(list_.tenants.size()));
    if (is_new) list_.tenants.emplace_back(tenant);
    list_.jobs.push_back({{.tenant = tenant_id(at->second),
                           .gpus = static_cast<std::uint32_t>(gpus),
                           .estimate = estimate},
                          arrival,
                          duration});
    return list_.jobs.back();
  }
  // The number of a GPU model, from 1 on in order of first occurrence; 0 without a name.
  [[nodiscard]] std::uint32_t model(const std::string& name) {
    if (name.empty()) return 0;
    const auto [at, is_new] =
        models_.try_emplace(name, static_cast<std::uint32_t>(list_.models.size()) + 1);
    if (is_new) list_.models.push_back(name);
    return at->second;
  }
  // The list, with times from the first arrival. Requires: not empty().
  [[nodiscard]] job_list take() && {
    job_list::number_by_arrival(list_.jobs);
    const time_ms first = list_.jobs.front().arrival;
    for (timed_job& job : list_.jobs) job.arrival -= first;
    return std::move(list_);
  }

 private:
  job_list list_;
  std::unordered_map<std::string, std::uint32_t> tenants_;
  std::unordered_map<std::string, std::uint32_t> models_;
};

// -1 (unknown) or a whole number below 10^12; nullopt for anything else.
[[nodiscard]] inline std::optional<std::int64_t> swf_number(std::string_view text) noexcept {
  if (text == "-1") return -1;
  const std::optional<std::int64_t> value = digits(text);
  return value && *value < 1'000'000'000'000 ? value : std::nullopt;
}
// -1 (unknown), or seconds below 10^12 rounded to milliseconds; nullopt for anything else.
[[nodiscard]] inline std::optional<time_ms> swf_time(std::string_view text) {
  const bool unknown = text.starts_with("-1.") && text.back() == '0' &&
                       text.find_first_not_of('0', 3) == std::string_view::npos;
  return unknown || text == "-1" ? -1 : milliseconds(text, true);
}

}  // namespace detail

// Reads a CSV list with the columns timestamp (the arrival, UTC), duration (seconds), num_gpus and
// cluster (the tenant). Times become milliseconds from the first arrival. The estimate of a job is
// its duration. A job without GPUs or duration is left out and counted. Columns that may be
// missing, or empty in a row: cpus_per_gpu (cores), memory_gib_per_gpu and gpu_model.
// Errors:  kInvalidArgument (kOutOfRange for a line that is too long); the message names the line.
// Example: examples/programs/simulate.cpp
[[nodiscard]] inline absl::StatusOr<job_list> read_philly(line_reader lines) {
  enum : std::size_t { timestamp, duration, num_gpus, tenant, cpus, memory, model };
  constexpr std::array<detail::csv_column, 7> columns{{{"timestamp"},
                                                       {"duration"},
                                                       {"num_gpus"},
                                                       {"cluster"},
                                                       {"cpus_per_gpu", false},
                                                       {"memory_gib_per_gpu", false},
                                                       {"gpu_model", false}}};
  APIARY_ASSIGN_OR_RETURN(detail::csv_reader csv,
                          detail::csv_reader::create(std::move(lines), columns));
  detail::job_collector jobs;
  while (true) {
    APIARY_ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) break;
    const std::optional<std::int64_t> came = detail::unix_seconds(csv[timestamp]);
    if (!came) {
      return csv.error("timestamp is " + line_reader::quoted(csv[timestamp]) +
                       ", not YYYY-MM-DD HH:MM:SS from 1970 on");
    }
    const std::optional<time_ms> took = detail::milliseconds(csv[duration], false);
    if (!took)
      return csv.error("duration is " + line_reader::quoted(csv[duration]) +
                       ", not seconds below 10^12");
    APIARY_ASSIGN_OR_RETURN(const std::uint32_t gpus, csv.number(num_gpus));
    APIARY_ASSIGN_OR_RETURN(const std::string name, csv.name(tenant));
    resources host;
    constexpr std::uint32_t most = 1'000'000;  // cores, GiB
    if (!csv[cpus].empty()) {
      APIARY_ASSIGN_OR_RETURN(host.cpu_milli, csv.number(cpus, most));
      host.cpu_milli *= 1000;
    }
    if (!csv[memory].empty()) {
      APIARY_ASSIGN_OR_RETURN(host.memory_mib, csv.number(memory, most));
      host.memory_mib *= 1024;
    }
    std::string needs;
    if (!csv[model].empty()) {
      APIARY_ASSIGN_OR_RETURN(needs, csv.name(model));
    }
    if (*took == 0 || gpus == 0) {
      jobs.leave_out();
      continue;
    }
    timed_job& job = jobs.add(gpus, name, *came * 1000, *took, *took);
    job.per_gpu = host;
    job.model = jobs.model(needs);
  }
  if (jobs.empty()) {
    return csv.lines().error_in_all(
        jobs.why_empty("no job after the header line", "no GPUs or no duration"));
  }
  return std::move(jobs).take();
}

// Reads a list with 18 numbers per line, separated by spaces or tabs; a comment starts with ';'. A
// processor is a GPU. Times become milliseconds from the first arrival; a job without processors or
// run time is left out and counted. The module's page says how the fields are used.
// Model:   Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers"
//          (JSSPP 1999), version 2.2 of the format.
// Errors:  as read_philly.
// Example: examples/programs/simulate.cpp
[[nodiscard]] inline absl::StatusOr<job_list> read_swf(line_reader lines) {
  enum : std::size_t {
    submitted = 1,
    ran = 3,
    allocated = 4,
    requested = 7,
    limit = 8,
    status = 10,
    user = 11
  };
  constexpr std::size_t num_fields = 18;
  constexpr std::string_view blank = " \t";
  lines.allow_tabs();
  detail::job_collector jobs;
  while (true) {
    std::string_view line;
    APIARY_ASSIGN_OR_RETURN(const bool more, lines.next(line));
    if (!more) break;
    line = line.substr(0, line.find(';'));
    std::array<std::string_view, num_fields> fields;
    std::size_t n = 0;
    while (true) {
      line.remove_prefix((std::min)(line.find_first_not_of(blank), line.size()));
      if (line.empty()) break;
      const std::string_view field = line.substr(0, line.find_first_of(blank));
      if (n < num_fields) fields[n] = field;
      ++n;
      line.remove_prefix(field.size());
    }
    if (n == 0) continue;
    if (n != num_fields) {
      return lines.error(std::to_string(n) + " fields, not " + std::to_string(num_fields));
    }
    std::array<std::int64_t, num_fields> value{};
    for (const std::size_t f : {submitted, ran, allocated, requested, limit, status, user}) {
      const bool time = f == submitted || f == ran || f == limit;
      const std::optional<std::int64_t> number =
          time ? detail::swf_time(fields[f]) : detail::swf_number(fields[f]);
      if (!number) {
        return lines.error(
            "field " + std::to_string(f + 1) + " is " + line_reader::quoted(fields[f]) +
            (time ? ", not a number" : ", not a whole number") + " from -1 to below 10^12");
      }
      value[f] = *number;
    }
    for (std::size_t f = 0; f < num_fields; ++f) {
      if (fields[f].find_first_not_of("0123456789+-.eE") != std::string_view::npos)
        return lines.error("field " + std::to_string(f + 1) + " is " +
                           line_reader::quoted(fields[f]) + ", not a number");
    }
    if (value[status] >= 2 && value[status] <= 4) continue;
    const std::int64_t gpus = value[requested] > 0 ? value[requested] : value[allocated];
    const std::int64_t estimate = value[limit] > 0 ? value[limit] : value[ran];
    if (value[submitted] < 0 || value[ran] <= 0 || gpus <= 0) {
      jobs.leave_out();
      continue;
    }
    if (gpus > std::int64_t{~std::uint32_t{0}}) {
      return lines.error("a job of " + std::to_string(gpus) + " processors");
    }
    jobs.add(gpus, fields[user], value[submitted], (std::min)(value[ran], estimate), estimate);
  }
  if (jobs.empty()) {
    return lines.error_in_all(jobs.why_empty("no job that ran", "no processors or no run time"));
  }
  return std::move(jobs).take();
}

APIARY_NAMESPACE_END
