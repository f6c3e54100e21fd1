// apiary/benchmarks/allocator_plot.h - the curves of allocators as a picture, drawn by gnuplot.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace apiary_bench {

struct curve {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// The commands for one panel. The label of a curve is at its end; labels that would overlap move.
inline std::string panel(const std::vector<curve>& curves, double low, double high) {
  constexpr std::array<const char*, 13> colors{
      "#d55e00", "#0072b2", "#009e73", "#b5489a", "#b8860b", "#56b4e9", "#6b6b6b",
      "#8c564b", "#e377c2", "#17becf", "#2ca02c", "#9467bd", "#a0a0a0"};
  struct label {
    std::size_t curve;
    double y;
  };
  std::string text;
  std::string plot;
  std::vector<label> labels;
  double last = 0;  // where the longest curve ends
  for (const curve& c : curves)
    if (!c.points.empty()) last = std::max(last, c.points.back().first);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].points.empty()) continue;
    const std::string data = "$c" + std::to_string(i);
    text += data + " << END\n";
    for (const auto& [x, y] : curves[i].points)
      text += std::to_string(x) + " " + std::to_string(y) + "\n";
    text += "END\n";
    plot += (plot.empty() ? "plot " : ", ") + data +
            " with linespoints pointtype 7 pointsize 0.4 " + "linewidth 2.5 linecolor '" +
            colors[i % colors.size()] + "' notitle";
    labels.push_back({i, (curves[i].points.back().second - low) / (high - low)});
  }
  std::sort(labels.begin(), labels.end(), [](const label& a, const label& b) { return a.y < b.y; });
  for (int round = 0; round < 200; ++round) {
    for (std::size_t k = 0; k < labels.size(); ++k) {
      labels[k].y = std::clamp(labels[k].y, 0.0, 1.0);
      if (k == 0) continue;
      const double overlap = 0.052 - (labels[k].y - labels[k - 1].y);
      if (overlap <= 0) continue;
      labels[k].y += overlap / 2;
      labels[k - 1].y -= overlap / 2;
    }
  }
  text += "unset label\n";
  for (const label& l : labels) {
    std::array<char, 24> value{};
    std::snprintf(value.data(), value.size(), high < 30 ? "%.1f" : "%.0f",
                  curves[l.curve].points.back().second);
    const double end = curves[l.curve].points.back().first;
    std::array<char, 32> where{};  // of a curve that ends early
    if (end < last) std::snprintf(where.data(), where.size(), " at %.0f", end);
    text += "set label '" + curves[l.curve].name + " " + value.data() + where.data() +
            "' at graph 1.02, graph " + std::to_string(l.y) + " left noenhanced textcolor '" +
            colors[l.curve % colors.size()] + "'\n";
  }
  return text + "set yrange [" + std::to_string(low) + ":" + std::to_string(high) + "]\n" + plot +
         "\n";
}

// Draws both panels into an SVG file. Returns whether gnuplot did it.
inline bool draw(const std::vector<curve>& time_by_leaves, const std::vector<curve>& refused_by_use,
                 const std::string& file) {
  const auto highest = [](const std::vector<curve>& curves) {
    double most = 0.1;
    for (const curve& c : curves)
      for (const auto& point : c.points) most = std::max(most, point.second);
    return most;
  };
  std::string name;
  for (const char c : file) name += c == '\'' ? std::string("''") : std::string(1, c);
  const std::string script =
      "set terminal svg size 1280,560 font 'Helvetica,15' background '#ffffff'\n"
      "set output '" +
      name +
      "'\n"
      "set multiplot\n"
      "set grid linecolor '#e4e4e4' linetype 1\n"
      "set border 3 linecolor '#606060'\n"
      "set tics nomirror out textcolor '#404040'\n"
      "set bmargin at screen 0.14\nset tmargin at screen 0.90\n"
      "set lmargin at screen 0.05\nset rmargin at screen 0.36\n"
      "set logscale x 4\nset format x '%.0f'\nset xlabel 'leaves'\n"
      "set title 'one allocate and release, ns (less is better)'\n" +
      panel(time_by_leaves, 0, std::min(400.0, 1.05 * highest(time_by_leaves))) +
      "unset logscale x\n"
      "set lmargin at screen 0.56\nset rmargin at screen 0.86\n"
      "set xlabel 'leaves in use at most, %'\n"
      "set title 'requests refused although enough leaves are free, %'\n" +
      panel(refused_by_use, 0, 1.05 * highest(refused_by_use)) + "unset multiplot\n";
  std::FILE* const gnuplot = ::popen("gnuplot", "w");
  if (gnuplot == nullptr) return false;
  const bool written = std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
  const bool done = ::pclose(gnuplot) == 0 && written;
  if (!done) std::fprintf(stderr, "gnuplot did not draw %s\n", file.c_str());
  return done;
}

}  // namespace apiary_bench
