// apiary/sim/swf_reader.h - job lists in the Standard Workload Format.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job_request.h>
#include <apiary/sim/job_list.h>
#include <apiary/sim/line_reader.h>
#include <apiary/sim/philly_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

APIARY_NAMESPACE_BEGIN

// Reads a list of 18 numbers a line, comments behind ';'. Of them count: submit time (2), run time
// (4), allocated (5) and requested (8) processors, requested time (9), user (12); -1 is unknown. A
// processor is a GPU; where the request is unknown, what was allocated and how long it ran stand for
// it. A job runs no longer than it asked for: what ran on was killed there. Times become
// milliseconds from the first arrival, the tenant's name is the user's number. A job that ran on
// nothing or for no time is left out.
//
// Model:   Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers"
//          (JSSPP 1999), version 2.2 of the format.
// Returns kInvalidArgument (kOutOfRange for a line that is too long) and a message that begins with
// the text's name and the line where the fault is.
[[nodiscard]] inline absl::StatusOr<job_list> read_swf(line_reader lines) {
  enum : std::size_t { submitted = 1, ran = 3, allocated = 4, requested = 7, limit = 8, user = 11 };
  constexpr std::size_t num_fields = 18;
  constexpr std::int64_t most = 1'000'000'000'000;
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
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      if (line.empty()) break;
      const std::string_view field = line.substr(0, line.find(' '));
      if (n < num_fields) fields[n] = field;
      ++n;
      line.remove_prefix(field.size());
    }
    if (n == 0) continue;
    if (n != num_fields) {
      return lines.error(std::to_string(n) + " fields, not " + std::to_string(num_fields));
    }
    std::array<std::int64_t, num_fields> value{};
    for (const std::size_t f : {submitted, ran, allocated, requested, limit, user}) {
      const std::string_view text = fields[f];
      const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value[f]);
      if (fault == std::errc() && end == text.data() + text.size() && value[f] >= -1 &&
          value[f] < most)
        continue;
      return lines.error("field " + std::to_string(f + 1) + " is " + shown(text) +
                         ", not a whole number from -1 to 10^12");
    }
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
    job.request.estimate = estimate * 1000;
    job.request.tenant = tenants.intern(fields[user], list.tenants);
    job.arrival = value[submitted] * 1000;
    job.duration = std::min(value[ran], estimate) * 1000;
    list.jobs.push_back(job);
  }
  if (list.jobs.empty()) return lines.error_in_all("no job that ran");
  number_by_arrival(list.jobs);
  const tick_t first = list.jobs.front().arrival;
  for (timed_job& job : list.jobs) job.arrival -= first;
  return list;
}

APIARY_NAMESPACE_END
