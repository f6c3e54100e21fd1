// apiary/examples/programs/replay_plot.h - the curves of some schedulers as one picture, drawn by gnuplot.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/decimal.h"
#include "load_curves.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace example {

struct named_curves {
  std::string policy;
  load_curves curves;
};

inline const char* color_of(std::size_t curve) {
  constexpr std::array<const char*, 7> colors{"#111111", "#d55e00", "#0072b2", "#009e73",
                                              "#b5489a", "#b8860b", "#6b6b6b"};
  return colors[curve % colors.size()];
}

// Whether a directory of PATH holds a program with this name.
inline bool is_installed(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    if (::access((std::string(rest.substr(0, colon)) + "/" + program).c_str(), X_OK) == 0) {
      return true;
    }
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return false;
}

// The load at which a scheduler first cannot place everything, minus ten, rounded down to a multiple of
// ten. 0 if every scheduler places everything.
inline int interesting_from(std::span<const named_curves> all) {
  std::size_t from = 0;
  for (const named_curves& one : all) {
    const std::vector<double>& allocation = one.curves.allocation;
    for (std::size_t load = 0; load < (from == 0 ? allocation.size() : from); ++load) {
      if (allocation[load] < static_cast<double>(load) - 1.0) from = load;
    }
  }
  return std::max(0, static_cast<int>(from) / 10 * 10 - 10);
}

// The curve of one panel: a data member of load_curves.
using panel_values = std::vector<double> load_curves::*;

// A label with the name of the scheduler and its last value at the end of each curve. Labels that
// would overlap move up or down. `height` is the extent of the panel's y axis.
inline std::string end_labels(std::span<const named_curves> all, panel_values values,
                              double height) {
  struct label {
    std::size_t curve;
    double value;
    double y;
  };
  std::vector<label> labels;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const double value : all[i].curves.*values) {
      if (std::isnan(value)) continue;
      if (labels.empty() || labels.back().curve != i) labels.push_back({i, value, value});
      labels.back().value = labels.back().y = value;
    }
  }
  std::sort(labels.begin(), labels.end(),
            [](const label& a, const label& b) { return a.value < b.value; });
  const double gap = height * 0.052;
  for (int round = 0; round < 100; ++round) {
    for (std::size_t i = 1; i < labels.size(); ++i) {
      const double overlap = gap - (labels[i].y - labels[i - 1].y);
      if (overlap <= 0.0) continue;
      labels[i].y += overlap / 2;
      labels[i - 1].y -= overlap / 2;
    }
  }
  std::string text = "unset label\n";
  for (const label& l : labels) {
    text += "set label '" + all[l.curve].policy + " " + fixed_text(l.value, 1) +
            "' at graph 1.02, first " + fixed_text(l.y, 4) + " left noenhanced textcolor '" +
            color_of(l.curve) + "'\n";
  }
  return text;
}

// A script for gnuplot, data included, that draws allocation and fragmentation over the load. It
// writes to the file `output`, or to standard output if `output` is empty.
inline std::string plot_script(std::span<const named_curves> all, const std::string& output) {
  std::string data;
  std::string allocation = "plot x with lines linecolor '#909090' dashtype 3 linewidth 1.5 notitle";
  std::string fragmentation = "plot NaN notitle";
  std::size_t last = 10;
  double worst = 1.0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const load_curves& c = all[i].curves;
    std::string points;
    for (std::size_t load = 0; load < c.allocation.size(); ++load) {
      if (std::isnan(c.allocation[load])) continue;
      points += std::to_string(load) + " " + shortest_text(c.allocation[load]) + " " +
                shortest_text(c.fragmentation_amount[load]) + "\n";
      last = std::max(last, load);
      worst = std::max(worst, c.fragmentation_amount[load]);
    }
    if (points.empty()) continue;
    const std::string name = "$curves" + std::to_string(i);
    data += name + " << END\n" + points + "END\n";
    const std::string style = std::string(" with lines linecolor '") + color_of(i) +
                              "' linewidth " + (all[i].policy == "fgd" ? "4" : "2.5") + " notitle";
    allocation += ", " + name + " using 1:2" + style;
    fragmentation += ", " + name + " using 1:3" + style;
  }
  std::string file;
  for (const char c : output) file += c == '\'' ? std::string("''") : std::string(1, c);
  if (!file.empty()) file = "set output '" + file + "'\n";
  const double top = std::ceil(worst * 1.02);
  const int until = static_cast<int>(last + 9) / 10 * 10;
  const int all_placed = std::min(until, 100);  // where the diagonal leaves the left panel
  const int from = std::min(interesting_from(all), all_placed - 10);
  return data + "set terminal svg size 1280,540 font 'Helvetica,16' background '#ffffff'\n" + file +
         "set multiplot\n"
         "set grid linecolor '#e4e4e4' linetype 1\n"
         "set border 3 linecolor '#606060'\n"
         "set tics nomirror out textcolor '#404040'\n"
         "set xlabel 'load that has arrived, % of the GPUs'\n"
         "set bmargin at screen 0.15\n"
         "set tmargin at screen 0.89\n"
         "set lmargin at screen 0.045\n"
         "set rmargin at screen 0.355\n"
         "set xrange [" +
         std::to_string(from) + ":" + std::to_string(until) +
         "]\n"
         "set yrange [" +
         std::to_string(from) + ":" + std::to_string(all_placed) +
         "]\n"
         "set title 'GPUs allocated, % (more is better" +
         (from > 0 ? "; both axes start at " + std::to_string(from) : std::string()) + ")'\n" +
         end_labels(all, &load_curves::allocation, all_placed - from) +
         "set label 'everything placed' at " + fixed_text(all_placed - 2.5, 1) + ", " +
         fixed_text(all_placed - 1.5, 1) + " right textcolor '#606060'\n" + allocation +
         "\n"
         "set lmargin at screen 0.545\n"
         "set rmargin at screen 0.855\n"
         "set xrange [0:" +
         std::to_string(until) +
         "]\n"
         "set yrange [0:" +
         fixed_text(top, 0) +
         "]\n"
         "set title 'GPUs idle but useless to typical tasks, % (less is better)'\n" +
         end_labels(all, &load_curves::fragmentation_amount, top) + fragmentation +
         "\n"
         "unset multiplot\n";
}

// What gnuplot prints for a script.
inline absl::StatusOr<std::string> draw(std::string_view script) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> input(std::tmpfile(), std::fclose);
  if (!input || std::fwrite(script.data(), 1, script.size(), input.get()) != script.size() ||
      std::fflush(input.get()) != 0) {
    return absl::ErrnoToStatus(errno, "the plot's script");
  }
  std::rewind(input.get());
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "gnuplot");
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::fileno(input.get()), STDIN_FILENO);
    ::dup2(pipe[1], STDOUT_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    ::execlp("gnuplot", "gnuplot", "-d", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  const int fault = errno;
  ::close(pipe[1]);
  std::string drawing;
  std::array<char, 65536> part{};
  ssize_t got = 0;
  while (child > 0 && (got = ::read(pipe[0], part.data(), part.size())) > 0) {
    drawing.append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  if (child < 0) return absl::ErrnoToStatus(fault, "gnuplot");
  int result = 0;
  ::waitpid(child, &result, 0);
  if (got < 0 || result != 0) return absl::UnavailableError("gnuplot failed");
  if (drawing.empty()) return absl::UnavailableError("gnuplot drew nothing");
  return drawing;
}

}  // namespace example
