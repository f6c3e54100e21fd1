// apiary/examples/replay_plot.h - the curves of some policies as one picture, drawn by gnuplot.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/sim/decimal.h>
#include <apiary/sim/load_curves.h>

#include <absl/status/status.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace example {

struct named_curves {
  std::string policy;
  apiary::load_curves curves;
};

// Whether a program of that name is in the directories of PATH.
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

// The load, a multiple of ten, from which on the policies are to be looked at: before, all place
// everything.
inline int interesting_from(std::span<const named_curves> all) {
  std::size_t from = 100;
  for (const named_curves& one : all) {
    for (std::size_t load = 0; load < from && load < one.curves.allocation.size(); ++load) {
      if (one.curves.allocation[load] < static_cast<double>(load) - 1.0) from = load;
    }
  }
  return std::max(0, static_cast<int>(from) / 10 * 10 - 10);
}

// A script for gnuplot, data included, that draws allocation and fragmentation over the load.
inline std::string plot_script(std::span<const named_curves> all, const std::string& output) {
  constexpr std::array<const char*, 6> colors{"#d55e00", "#0072b2", "#009e73",
                                              "#cc79a7", "#e69f00", "#7f7f7f"};
  constexpr std::array<int, 6> dashes{1, 1, 1, 1, 1, 2};
  std::string script;
  std::string keys = "plot ";
  std::string allocation = "plot x with lines linecolor '#b0b0b0' dashtype 3 linewidth 1.5 notitle";
  std::string fragmentation = "plot ";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string data = "$curves" + std::to_string(i);
    script += data + " << END\n";
    const apiary::load_curves& c = all[i].curves;
    for (std::size_t load = 0; load < c.allocation.size(); ++load) {
      if (std::isnan(c.allocation[load])) continue;
      script += std::to_string(load) + " " + apiary::shortest_text(c.allocation[load]) + " " +
                apiary::shortest_text(c.fragmentation_amount[load]) + "\n";
    }
    script += "END\n";
    const std::string style = std::string(" with lines linecolor '") + colors[i % colors.size()] +
                              "' dashtype " + std::to_string(dashes[i % dashes.size()]) +
                              " linewidth " + (all[i].policy == "fgd" ? "3.5" : "2");
    const std::string separator = i == 0 ? "" : ", ";
    keys += separator + "NaN" + style + " title '" + all[i].policy + "'";
    allocation += ", " + data + " using 1:2" + style + " notitle";
    fragmentation += separator + data + " using 1:3" + style + " notitle";
  }
  std::string quoted_output = "'";
  for (const char c : output) quoted_output += c == '\'' ? std::string("''") : std::string(1, c);
  quoted_output += "'";
  const std::string from = std::to_string(interesting_from(all));
  script +=
      "set encoding utf8\n"
      "set terminal svg size 1200,600 font 'Helvetica,16' background '#ffffff'\n"
      "set output " +
      quoted_output +
      "\n"
      "set multiplot\n"
      "set grid linecolor '#e4e4e4' linetype 1\n"
      "set border 3 linecolor '#606060'\n"
      "set tics nomirror out\n"
      "set xlabel 'load that arrived, % of the GPUs'\n"
      "set bmargin at screen 0.22\n"
      "set tmargin at screen 0.90\n"
      "set lmargin at screen 0.07\n"
      "set rmargin at screen 0.49\n"
      "set xrange [" +
      from +
      ":130]\n"
      "set yrange [" +
      from +
      ":100]\n"
      "set title 'GPUs allocated, % (higher is better)'\n"
      "set label 1 'everything placed' at graph 0.30, graph 0.62 right textcolor '#808080'\n" +
      allocation +
      "\n"
      "unset label 1\n"
      "set lmargin at screen 0.56\n"
      "set rmargin at screen 0.98\n"
      "set xrange [0:130]\n"
      "set yrange [0:*]\n"
      "set title 'Idle GPUs that typical tasks cannot use, % of the GPUs (lower is better)'\n" +
      fragmentation +
      "\n"
      "unset title\nunset xlabel\nunset tics\nunset border\nunset grid\n"
      "set lmargin at screen 0.03\nset rmargin at screen 0.98\n"
      "set bmargin at screen 0.01\nset tmargin at screen 0.10\n"
      "set xrange [0:1]\nset yrange [0:1]\n"
      "set key center center horizontal maxrows 1 samplen 2.5\n" +
      keys +
      "\n"
      "unset multiplot\n"
      "set output\n";
  return script;
}

// Runs gnuplot on a script.
inline absl::Status draw(const std::string& script) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return absl::ErrnoToStatus(errno, "gnuplot");
  const pid_t child = ::fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "gnuplot");
  if (child == 0) {
    ::dup2(pipe[0], STDIN_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    ::execlp("gnuplot", "gnuplot", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pipe[0]);
  std::signal(SIGPIPE, SIG_IGN);
  std::string_view rest = script;
  while (!rest.empty()) {
    const ssize_t sent = ::write(pipe[1], rest.data(), rest.size());
    if (sent < 0) break;
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  ::close(pipe[1]);
  int result = 0;
  ::waitpid(child, &result, 0);
  if (!rest.empty() || result != 0) return absl::UnavailableError("gnuplot failed");
  return absl::OkStatus();
}

}  // namespace example
