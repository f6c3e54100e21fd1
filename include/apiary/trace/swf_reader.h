// apiary/trace/swf_reader.h - reads job lists in the Standard Workload Format (SWF).
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/philly_reader.h>

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

APIARY_NAMESPACE_BEGIN

namespace detail {

// -1 (unknown) or a whole number below 10^12; nullopt for anything else.
[[nodiscard]] inline std::optional<std::int64_t> swf_number(std::string_view text) noexcept {
  if (text == "-1") return -1;
  const std::optional<std::int64_t> value = digits(text);
  return value && *value < 1'000'000'000'000 ? value : std::nullopt;
}
// -1 (unknown), or seconds rounded to milliseconds; nullopt for anything else, and for 10^12 or more.
[[nodiscard]] inline std::optional<time_ms> swf_time(std::string_view text) {
  const bool unknown = text.starts_with("-1.") && text.back() == '0' &&
                       text.find_first_not_of('0', 3) == std::string_view::npos;
  return unknown || text == "-1" ? -1 : milliseconds(text, true);
}

}  // namespace detail

// Reads a list with 18 numbers per line, separated by spaces or tabs; a comment starts with ';'. A
// processor of the list is a GPU.
//
// Fields used: submit time (2), run time (4), allocated processors (5), requested processors (8),
// requested time (9), status (11) and user (12); -1 means unknown. The other fields must only look like
// numbers. If the request is unknown, the allocated processors and the run time stand in for it. A job
// runs no longer than its requested time. Lines with status 2, 3 or 4 belong to a job that has another
// line, and are skipped. The tenant is the user. A job without processors or run time is left out and
// counted. Queues, dependencies and think times are ignored.
//
// Times are seconds, possibly with decimals. They become milliseconds from the first arrival, rounded to
// the nearest with halves away from 0.
//
// Model:   Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers"
//          (JSSPP 1999), version 2.2 of the format.
// Errors:  kInvalidArgument (kOutOfRange for a line that is too long) with a message that begins with
//          the name of the text and the line.
// Example: examples/simulate.cpp
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
  job_list list;
  detail::tenant_names tenants;
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
            (time ? ", not a number" : ", not a whole number") + " from -1 to 10^12");
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
      ++list.left_out;
      continue;
    }
    if (gpus > std::int64_t{~std::uint32_t{0}}) {
      return lines.error("a job of " + std::to_string(gpus) + " processors");
    }
    timed_job job;
    job.request.gpus = static_cast<std::uint32_t>(gpus);
    job.request.estimate = estimate;
    job.request.tenant = tenants.intern(fields[user], list.tenants);
    job.arrival = value[submitted];
    job.duration = (std::min)(value[ran], estimate);
    list.jobs.push_back(job);
  }
  if (list.jobs.empty()) return lines.error_in_all("no job that ran");
  number_by_arrival(list.jobs);
  const time_ms first = list.jobs.front().arrival;
  for (timed_job& job : list.jobs) job.arrival -= first;
  return list;
}

APIARY_NAMESPACE_END
