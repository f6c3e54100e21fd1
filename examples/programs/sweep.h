// apiary/examples/programs/sweep.h - many runs of one program: the lines of a file, each a row of a table.
// SPDX-License-Identifier: MIT
#pragma once

#include "replay_output.h"
#include <apiary/core/status.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace example {

inline constexpr const char* sweep_usage =
    "  --sweep FILE       many runs: each line of the file has the options of one run; lines that\n"
    "                     begin with # are skipped. Options of the command line hold for all runs\n"
    "  --results FILE     appends a row for each run to this CSV file (needed by --sweep); a file "
    "with\n"
    "                     another header line is refused\n"
    "  --index N          only the N-th run, from 0: for an element of a job array\n"
    "  -j N               N runs at once, each a process of its own, at most 256 (default: 1); "
    "the\n"
    "                     longest runs, as far as this is known, begin first\n";

// The options of a sweep, and those that it leaves to the program.
struct sweep_options {
  std::string file, results;             // empty: not given
  std::optional<std::uint32_t> index{};  // of the only run
  std::optional<std::uint32_t> at_once{};
  std::vector<std::string> rest{};
};

// kInvalidArgument that names the option. alone: whether -j means something without --sweep.
inline absl::StatusOr<sweep_options> read_sweep_options(std::span<const char* const> arguments,
                                                        bool alone = false) {
  const auto fault = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  sweep_options o;
  const auto number = [&](const std::string& flag, const std::string& value, std::uint32_t least,
                          std::uint32_t most, std::optional<std::uint32_t>& to) -> absl::Status {
    std::uint32_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size() || n < least || n > most) {
      return fault(flag + " " + apiary::line_reader::quoted(value) +
                   " is not a whole number from " + std::to_string(least) + " to " +
                   std::to_string(most));
    }
    if (to) return fault(flag + " is given twice");
    to = n;
    return absl::OkStatus();
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    if (flag != "--sweep" && flag != "--results" && flag != "--index" && flag != "-j") {
      o.rest.push_back(argument);
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (value.empty() || value.starts_with("--")) return fault(flag + " needs a value");
    if (flag == "--index") APIARY_RETURN_IF_ERROR(number(flag, value, 0, 999'999, o.index));
    if (flag == "-j") APIARY_RETURN_IF_ERROR(number(flag, value, 1, 256, o.at_once));
    if (flag != "--sweep" && flag != "--results") continue;
    std::string& to = flag == "--sweep" ? o.file : o.results;
    if (!to.empty()) return fault(flag + " is given twice");
    to = value;
  }
  if (o.file.empty() && (o.index || (o.at_once && !alone) || !o.results.empty()))
    return fault(alone ? "--results and --index need --sweep"
                       : "--results, --index and -j need --sweep");
  if (!o.file.empty() && o.results.empty()) return fault("--sweep needs --results");
  if (o.index && o.at_once) return fault("--index runs one line; -j needs all of them");
  return o;
}

// A run of a sweep: its line of the file, from 1, and its options.
struct sweep_run {
  std::uint32_t line = 0;
  std::string text{};  // of the line
  std::vector<std::string> arguments{};
};

// The runs of a sweep, with the options that hold for all. kInvalidArgument: the file has no run, or a
// blank line before one that is not.
inline absl::StatusOr<std::vector<sweep_run>> read_sweep(const sweep_options& o) {
  APIARY_ASSIGN_OR_RETURN(apiary::line_reader lines, apiary::line_reader::open(o.file));
  std::vector<sweep_run> runs;
  std::string_view next;
  std::uint32_t blank = 0;  // the first line of spaces
  for (std::uint32_t n = 1;; ++n) {
    APIARY_ASSIGN_OR_RETURN(const bool more, lines.next(next));
    if (!more) break;
    const std::string line(next);
    sweep_run run{.line = n, .arguments = o.rest};
    const std::size_t begin = line.find_first_not_of(" \t\r");
    // The reader refuses only empty lines before the last one; lines of spaces are refused here.
    if (begin == std::string::npos) {
      if (blank == 0) blank = n;
      continue;
    }
    if (blank > 0)
      return absl::InvalidArgumentError(o.file + ":" + std::to_string(blank) +
                                        ": the line is blank");
    if (line[begin] == '#') continue;
    for (std::size_t at = begin; at != std::string::npos;) {
      const std::size_t end = line.find_first_of(" \t\r", at);
      run.arguments.push_back(line.substr(at, end - at));
      run.text += (run.text.empty() ? "" : " ") + run.arguments.back();
      at = line.find_first_not_of(" \t\r", end);
    }
    runs.push_back(std::move(run));
  }
  if (runs.empty()) return absl::InvalidArgumentError(o.file + ": no line with options of a run");
  if (o.index && *o.index >= runs.size()) {
    return absl::InvalidArgumentError("--index " + std::to_string(*o.index) + ": " + o.file +
                                      " has " + std::to_string(runs.size()) +
                                      " runs, numbered from 0");
  }
  return runs;
}

// The same error, with the line of the run.
inline absl::Status at_line(const sweep_options& o, const sweep_run& run, const absl::Status& why) {
  return {why.code(), o.file + ":" + std::to_string(run.line) + ": " + std::string(why.message())};
}

// What precedes the columns of the program.
inline constexpr const char* sweep_columns = "run,options,";

// Whether rows with these columns may be appended to the results. kInvalidArgument: the file begins with
// another header line. Other errors: the file cannot be read.
inline absl::Status check_results(const sweep_options& o, const std::string& columns) {
  const std::string header = sweep_columns + columns + "\n";
  const int file = ::open(o.results.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno == ENOENT ? absl::OkStatus() : absl::ErrnoToStatus(errno, o.results);
  std::string begin(header.size(), '\0');
  struct stat what {};
  ssize_t length = 0;
  absl::Status status;
  if (::fstat(file, &what) != 0 || ::flock(file, LOCK_SH) != 0 ||
      (S_ISREG(what.st_mode) && (length = ::read(file, begin.data(), begin.size())) < 0))
    status = absl::ErrnoToStatus(errno, o.results);
  ::close(file);
  begin.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  if (!status.ok() || begin.empty() || begin == header) return status;
  return absl::InvalidArgumentError(
      o.results + ": its first line is " +
      apiary::line_reader::quoted(std::string_view(begin).substr(0, begin.find('\n'))) +
      ", not the header line of these rows, which begins with " +
      apiary::line_reader::quoted(header.substr(0, std::min<std::size_t>(24, header.size() - 1))));
}

// Appends a row, and to an empty file first the header line. Other processes may append to the same
// file at the same time: a lock keeps rows apart, and each row is one write.
inline absl::Status append_row(const std::string& path, const std::string& header,
                               const std::string& row) {
  const auto fault = [&] { return absl::ErrnoToStatus(errno, path); };
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return fault();
  absl::Status status;
  struct stat before {};
  if (::flock(file, LOCK_EX) != 0 || ::fstat(file, &before) != 0) {
    status = fault();
  } else {
    const std::string text = (before.st_size == 0 ? header + "\n" : "") + row + "\n";
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0) status = fault();
    if (written >= 0 && static_cast<std::size_t>(written) < text.size()) {
      status = absl::DataLossError(path + ": the disk is full; the row is not there");
      if (::ftruncate(file, before.st_size) != 0) status = fault();
    }
  }
  if (::close(file) != 0 && status.ok()) status = fault();
  return status;
}

// Calls run(i) for each i below `count` in a process of its own, at most `at_once` at a time. Calls
// progress(ended) after each. The first error of any run; the others are run all the same.
template <class Run, class Progress>
absl::Status run_processes(std::size_t count, std::size_t at_once, Run&& run, Progress&& progress) {
  std::map<pid_t, int> pipes;  // of processes that run: what they say when they fail
  std::size_t started = 0;
  std::size_t ended = 0;
  absl::Status first;
  while (ended < count) {
    if (started < count && pipes.size() < at_once) {
      std::array<int, 2> ends{};
      if (::pipe(ends.data()) != 0) return absl::ErrnoToStatus(errno, "pipe");
      std::fflush(nullptr);
      const pid_t child = ::fork();
      if (child < 0) return absl::ErrnoToStatus(errno, "fork");
      if (child == 0) {
        ::close(ends[0]);
        const absl::Status status = run(started);
        const std::string why = std::string(status.message()).substr(0, 4000);
        if (!status.ok() && ::write(ends[1], why.data(), why.size()) < 0) ::_exit(2);
        ::_exit(status.ok() ? 0 : 1);
      }
      ::close(ends[1]);
      pipes.emplace(child, ends[0]);
      ++started;
      continue;
    }
    int status = 0;
    const pid_t child = ::wait(&status);
    const auto found = pipes.find(child);
    if (child < 0) return absl::ErrnoToStatus(errno, "wait");
    if (found == pipes.end()) continue;
    std::string why(4096, '\0');
    const ssize_t length = ::read(found->second, why.data(), why.size());
    ::close(found->second);
    pipes.erase(found);
    ++ended;
    if (status != 0 && first.ok()) {
      why.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
      first = absl::InternalError(why.empty() ? "a run was ended by a signal" : why);
    }
    progress(ended);
  }
  return first;
}

// Per cent and the time left, on a terminal.
class sweep_progress {
 public:
  explicit sweep_progress(std::size_t runs)
      : runs_(runs), shown_(::isatty(STDERR_FILENO) == 1), begin_(clock::now()) {}
  void operator()(std::size_t ended) const {
    if (!shown_ || ended == 0) return;
    const std::chrono::duration<double> spent = clock::now() - begin_;
    const double left =
        spent.count() * static_cast<double>(runs_ - ended) / static_cast<double>(ended);
    std::fprintf(stderr, "\r%zu of %zu runs, %zu %%, %.0f s left \033[K%s", ended, runs_,
                 100 * ended / runs_, left, ended == runs_ ? "\r\033[K" : "");
  }

 private:
  using clock = std::chrono::steady_clock;
  std::size_t runs_;
  bool shown_;
  clock::time_point begin_;
};

// A field of CSV, in quotation marks.
inline std::string csv_field(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

// The runs of a sweep in the order in which they begin: if several run at once, those with the highest
// costs first, so that no long run begins last and leaves processors without work. Without costs, in
// the order of the file.
inline std::vector<std::size_t> order_of_runs(const sweep_options& o, std::size_t runs,
                                              std::span<const double> costs) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < runs; ++i) {
    if (!o.index || *o.index == i) order.push_back(i);
  }
  if (costs.empty() || o.at_once.value_or(1) == 1) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  return order;
}

// Carries out a sweep. make(run) -> StatusOr<std::string>, the row of a run. `costs`: about how long
// each run takes, in any unit.
template <class Make>
absl::Status run_sweep(const sweep_options& o, const std::vector<sweep_run>& runs,
                       const std::string& header, const Make& make,
                       std::span<const double> costs = {}) {
  const std::vector<std::size_t> chosen = order_of_runs(o, runs.size(), costs);
  const auto perform = [&](std::size_t at) -> absl::Status {
    const sweep_run& run = runs[chosen[at]];
    const absl::StatusOr<std::string> row = make(run);
    if (!row.ok()) return at_line(o, run, row.status());
    return append_row(o.results, sweep_columns + header,
                      std::to_string(chosen[at]) + "," + csv_field(run.text) + "," + *row);
  };
  if (o.index) return perform(0);
  return run_processes(chosen.size(), o.at_once.value_or(1), perform,
                       sweep_progress(chosen.size()));
}

}  // namespace example
