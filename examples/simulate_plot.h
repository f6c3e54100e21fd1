// apiary/examples/simulate_plot.h - runs of some policies as one picture, in SVG.
// SPDX-License-Identifier: MIT
#pragma once

#include "simulate_picture.h"
#include "simulate_policies.h"
#include <apiary/model/job.h>
#include <apiary/trace/decimal.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// Text between tags: without what XML would read as more, and in ASCII.
inline std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += byte < 0x20 || byte >= 0x7f ? '?' : c;
    }
  }
  return out;
}

// The elements of an SVG file, one after another.
class svg_text {
 public:
  struct point {
    double x = 0.0;
    double y = 0.0;
  };

  void rectangle(point at, double width, double height, std::string_view color) {
    body_ += "<rect x='" + number(at.x) + "' y='" + number(at.y) + "' width='" + number(width) +
             "' height='" + number(height) + "' fill='" + std::string(color) + "'/>\n";
  }
  void line(const std::vector<point>& points, std::string_view color, double width) {
    body_ += "<polyline fill='none' stroke='" + std::string(color) + "' stroke-width='" +
             number(width) + "' points='";
    for (const point& p : points) body_ += number(p.x) + "," + number(p.y) + " ";
    body_ += "'/>\n";
  }
  // anchor: start, middle or end.
  void text(point at, std::string_view what, std::string_view anchor, int size = 14,
            std::string_view color = "#303030") {
    body_ += "<text x='" + number(at.x) + "' y='" + number(at.y) + "' text-anchor='" +
             std::string(anchor) + "' font-size='" + std::to_string(size) + "' fill='" +
             std::string(color) + "'>" + xml_text(what) + "</text>\n";
  }
  void raw(const std::string& elements) { body_ += elements; }

  [[nodiscard]] static std::string number(double x) { return apiary::fixed_text(x, 1); }
  [[nodiscard]] std::string file(double width, double height) const {
    return "<svg xmlns='http://www.w3.org/2000/svg' width='" + number(width) + "' height='" +
           number(height) + "' viewBox='0 0 " + number(width) + " " + number(height) +
           "' font-family='Helvetica,Arial,sans-serif'>\n<rect width='100%' height='100%' "
           "fill='#ffffff'/>\n" +
           body_ + "</svg>\n";
  }

 private:
  std::string body_;
};

// A length of time for people.
inline std::string span_text(double ticks) {
  const double minutes = ticks / 60'000;
  if (minutes < 100) return apiary::fixed_text(minutes, minutes < 10 ? 1 : 0) + " min";
  if (minutes < 100 * 60) return apiary::fixed_text(minutes / 60, 1) + " h";
  return apiary::fixed_text(minutes / 1440, 1) + " d";
}

// Draws the pictures into one file.
class simulate_plot {
 public:
  simulate_plot(std::span<const policy_run> runs, const job_cluster& cluster,
                const apiary::job_list& list)
      : runs_(runs), cluster_(cluster), list_(list), colors_(colors_of(list)) {
    for (const policy_run& r : runs) {
      const auto end = static_cast<double>(r.picture.width()) * r.picture.used_columns();
      end_ = std::max(end_, end);
    }
  }

  [[nodiscard]] std::string draw() {
    out_.text({40, 38},
              std::to_string(list_.jobs.size()) + " jobs on " + std::to_string(cluster_.nodes) +
                  " servers of " + std::to_string(cluster_.gpus_per_node) + " GPUs",
              "start", 20);
    double x = 480;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      out_.rectangle({x, 28}, 26, 6, line_colors[i]);
      out_.text({x + 34, 38}, runs_[i].policy, "start", 16);
      x += 58 + 8.5 * static_cast<double>(runs_[i].policy.size());
    }
    draw_use({70, 90});
    draw_completion({520, 90});
    draw_delays({1030, 90});
    const double bottom = draw_strips(450);
    return out_.file(1400, bottom);
  }

 private:
  using point = svg_text::point;
  static constexpr double width = 370;  // of a panel
  static constexpr double height = 280;
  static constexpr std::array<const char*, job_policies.size()> line_colors{
      "#d55e00", "#e0a400", "#0072b2", "#b5489a", "#5b3a8e", "#009e73", "#5f7a1f"};
  static constexpr std::array<const char*, num_colors> tenant_colors{
      "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999"};
  static constexpr std::array<const char*, apiary::num_delay_causes> cause_colors{
      "#7b6fb0", "#d0743c", "#3c8d8d", "#b9b9b9"};
  static constexpr std::array<const char*, apiary::num_delay_causes> causes{
      "quota", "capacity", "fragmentation", "order"};

  // Title, frame and the lines of every quarter of the way up, which are percents.
  void draw_frame(point at, const std::string& title) {
    out_.text({at.x, at.y - 14}, title, "start", 16);
    for (int percent = 0; percent <= 100; percent += 25) {
      const double y = at.y + height * (100 - percent) / 100;
      out_.line({{at.x, y}, {at.x + width, y}}, percent == 0 ? "#606060" : "#e4e4e4", 1);
      out_.text({at.x - 8, y + 5}, std::to_string(percent), "end", 13, "#606060");
    }
  }
  void draw_tick(point at, const std::string& label) {
    out_.line({at, {at.x, at.y + 5}}, "#606060", 1);
    out_.text({at.x, at.y + 20}, label, "middle", 13, "#606060");
  }
  // Ticks of time from 0 to the end over so many pixels.
  void draw_times(point at, double pixels) {
    constexpr std::array<double, 14> hours{0.1, 0.25, 0.5, 1,   2,   4,    6,
                                           12,  24,   72,  168, 720, 2160, 8760};
    const bool days = end_ > 240 * 3'600'000.0;
    double step = hours.back();
    for (const double h : hours) {
      if (h * 3'600'000 * 8 < end_) continue;
      step = h;
      break;
    }
    for (double t = 0; t * 3'600'000 <= end_; t += step) {
      const double shown = days ? t / 24 : t;
      draw_tick({at.x + pixels * t * 3'600'000 / end_, at.y},
                apiary::fixed_text(shown, step < 1 ? 2 : 0) + (days ? " d" : " h"));
    }
  }

  void draw_use(point at) {
    draw_frame(at, "GPUs in use, % (over time)");
    draw_times({at.x, at.y + height}, width);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const gpu_picture& p = runs_[i].picture;
      const std::uint32_t together = std::max(1U, p.used_columns() / 48);  // columns to a point
      std::vector<point> points;
      for (std::uint32_t c = 0; c < p.used_columns(); c += together) {
        double sum = 0.0;
        for (std::uint32_t k = 0; k < together && c + k < gpu_picture::columns; ++k)
          sum += p.use(c + k) / together;
        const double middle = (c + together / 2.0) * static_cast<double>(p.width());
        points.push_back({at.x + std::min(width, width * middle / end_),
                          at.y + height * (1.0 - std::min(1.0, sum))});
      }
      out_.line(points, line_colors[i], 2);
    }
  }

  // Time on a logarithmic scale.
  void draw_completion(point at) {
    draw_frame(at, "jobs done within a time of their arrival, %");
    double least = 1e18;
    double most = 1.0;
    for (const policy_run& r : runs_) {
      if (r.completion.empty()) continue;
      // From where one in a hundred is done.
      least = std::min(least, static_cast<double>(apiary::percentile(r.completion, 1)));
      most = std::max(most, static_cast<double>(r.completion.back()));
    }
    least = std::min(least, most / 2);
    const auto place = [&](double ticks) {
      return at.x + width * std::max(0.0, std::log(ticks / least) / std::log(most / least));
    };
    constexpr std::array<std::pair<double, const char*>, 11> ticks{{{1e3, "1 s"},
                                                                    {1e4, "10 s"},
                                                                    {6e4, "1 min"},
                                                                    {6e5, "10 min"},
                                                                    {3.6e6, "1 h"},
                                                                    {1.44e7, "4 h"},
                                                                    {8.64e7, "1 d"},
                                                                    {6.048e8, "1 w"},
                                                                    {2.592e9, "30 d"},
                                                                    {3.1536e10, "1 y"},
                                                                    {3.1536e11, "10 y"}}};
    for (const auto& [t, label] : ticks) {
      if (t >= least && t <= most) draw_tick({place(t), at.y + height}, label);
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].completion.empty()) continue;
      std::vector<point> points;
      for (int part = 0; part <= 200; ++part) {
        const auto t = static_cast<double>(apiary::percentile(runs_[i].completion, part / 2.0));
        points.push_back({place(t), at.y + height * (200 - part) / 200});
      }
      out_.line(points, line_colors[i], 2);
    }
  }

  // Mean waiting of a job, a bar a policy.
  void draw_delays(point at) {
    constexpr double length = 240;
    out_.text({at.x - 60, at.y - 14}, "mean delay of a job, by cause", "start", 16);
    const auto mean = [](const policy_run& r, std::size_t cause) {
      return static_cast<double>(r.metrics.by_cause.by_cause[cause]) /
             static_cast<double>(std::max<std::uint64_t>(1, r.metrics.ended));
    };
    double longest = 1.0;
    for (const policy_run& r : runs_) longest = std::max(longest, r.metrics.delay.mean);
    const double step = std::min(46.0, 250.0 / static_cast<double>(runs_.size()));
    const double bar = step * 0.6;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const double y = at.y + 10 + step * static_cast<double>(i);
      double x = at.x + 14;
      out_.text({x - 8, y + bar / 2 + 5}, runs_[i].policy, "end");
      for (std::size_t cause = 0; cause < causes.size(); ++cause) {
        const double part = length * mean(runs_[i], cause) / longest;
        if (part > 0) out_.rectangle({x, y}, part, bar, cause_colors[cause]);
        x += part;
      }
      out_.text({x + 8, y + bar / 2 + 5}, span_text(runs_[i].metrics.delay.mean), "start");
    }
    double x = at.x - 60;
    for (std::size_t cause = 0; cause < causes.size(); ++cause) {
      out_.rectangle({x, at.y + height - 10}, 14, 14, cause_colors[cause]);
      out_.text({x + 19, at.y + height + 2}, causes[cause], "start");
      x += 34 + 8.2 * static_cast<double>(std::string_view(causes[cause]).size());
    }
  }

  // Who has which GPU, a strip a policy; where it ends.
  double draw_strips(double y) {
    constexpr double left = 130;
    constexpr double pixels = 1240;
    const std::uint32_t rows = runs_.front().picture.rows();
    const auto scale = static_cast<double>(std::max(1U, 128 / rows));
    out_.text({40, y}, "who has which GPU", "start", 16);
    double x = 250;
    for (std::size_t t = 0; t < colors_.size(); ++t) {
      if (colors_[t] + 1 == num_colors) continue;
      out_.rectangle({x, y - 12}, 14, 14, tenant_colors[colors_[t]]);
      out_.text({x + 19, y}, list_.tenants[t].substr(0, 12), "start");
      x += 150;
    }
    if (colors_.size() >= num_colors) {
      out_.rectangle({x, y - 12}, 14, 14, tenant_colors.back());
      out_.text({x + 19, y}, "other tenants", "start");
    }
    y += 16;
    for (const policy_run& r : runs_) {
      const double tall = scale * rows;
      out_.text({left - 10, y + tall / 2 + 5}, r.policy, "end", 16);
      out_.rectangle({left, y}, pixels, tall, "#f3f3f3");
      const double column = pixels * static_cast<double>(r.picture.width()) / end_;
      out_.raw("<g shape-rendering='crispEdges' transform='translate(" + svg_text::number(left) +
               "," + svg_text::number(y) + ") scale(" + apiary::fixed_text(column, 5) + "," +
               svg_text::number(scale) + ")'>\n");
      for (std::uint32_t color = 0; color < num_colors; ++color) draw_runs(r.picture, color);
      out_.raw("</g>\n");
      y += tall + 14;
    }
    draw_times({left, y - 8}, pixels);
    return y + 30;
  }
  // What of a strip has the colour.
  void draw_runs(const gpu_picture& p, std::uint32_t color) {
    std::string path;
    for (std::uint32_t row = 0; row < p.rows(); ++row) {
      for (std::uint32_t c = 0; c < p.used_columns();) {
        std::uint32_t end = c;
        while (end < p.used_columns() && p.color(row, end) == color) ++end;
        if (end > c) {
          path += "M" + std::to_string(c) + " " + std::to_string(row) + "h" +
                  std::to_string(end - c) + "v1H" + std::to_string(c) + "z";
        }
        c = std::max(end, c + 1);
      }
    }
    if (path.empty()) return;
    out_.raw("<path fill='" + std::string(tenant_colors[color]) + "' d='" + path + "'/>\n");
  }

  std::span<const policy_run> runs_;
  const job_cluster& cluster_;
  const apiary::job_list& list_;
  std::vector<std::uint32_t> colors_;
  double end_ = 1.0;  // of time
  svg_text out_;
};

}  // namespace example
