// apiary/examples/programs/simulate_plot.h - the runs of some schedulers as one picture, in SVG.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/decimal.h"
#include "simulate_picture.h"
#include "simulate_policies.h"
#include <apiary/model/job.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <array>
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

  [[nodiscard]] static std::string number(double x) { return fixed_text(x, 1); }
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

// A duration in the unit that suits it.
inline std::string span_text(double ms) {
  const double minutes = ms / 60'000;
  if (minutes < 100) return fixed_text(minutes, minutes < 10 ? 1 : 0) + " min";
  if (minutes < 100 * 60) return fixed_text(minutes / 60, 1) + " h";
  return fixed_text(minutes / 1440, 1) + " d";
}

// The mean of a figure over several lists, and the standard deviation of a single one.
struct figure_spread {
  double mean = 0.0;
  double deviation = 0.0;
};
// Figures of a scheduler over several lists: times in ms, use from 0 to 1.
struct spread_row {
  figure_spread completion{};
  figure_spread p99_delay{};
  figure_spread use{};
};

// Draws a table of the schedulers with their delays by cause, the GPUs in use over time as small
// multiples, and which tenant had which GPU. Schedulers have no colour, so that a colour is always a
// tenant (cool colours) or a cause of delay (warm ones).
class simulate_plot {
 public:
  // spreads: of each run over several lists, drawn with error bars; or none.
  simulate_plot(std::span<const policy_run> runs, const job_cluster& cluster,
                const apiary::job_list& list, std::span<const spread_row> spreads = {})
      : runs_(runs), spreads_(spreads), cluster_(cluster), list_(list), colors_(colors_of(list)) {
    for (const policy_run& r : runs) end_ = std::max(end_, end_of(r));
  }

  [[nodiscard]] std::string draw() {
    out_.text({40, 38},
              std::to_string(list_.jobs.size()) + " jobs on " + std::to_string(cluster_.nodes) +
                  " servers with " + std::to_string(cluster_.gpus_per_node) + " GPUs each",
              "start", 20);
    double y = draw_table(70);
    if (!spreads_.empty()) y = draw_spreads(y + 34);
    y = draw_use(y + 34);
    y = draw_tenants(y + 44);
    return out_.file(page, y);
  }

 private:
  using point = svg_text::point;
  static constexpr double page = 1400;
  static constexpr double left = 40;
  static constexpr std::array<const char*, num_colors> tenant_colors{
      "#3b6fb6", "#2a9d6f", "#7b4fa3", "#4fb3d9", "#a3b83a", "#c65fa8", "#7d8790"};
  static constexpr std::array<const char*, apiary::delays::num_causes> cause_colors{
      "#7f2704", "#d94801", "#fd9a4c", "#fdd9b5"};
  static constexpr std::array<const char*, apiary::delays::num_causes> causes{
      "quota", "capacity", "fragmentation", "order"};
  static constexpr const char* idle_color = "#e6e6e6";
  static constexpr const char* use_color = "#5a6570";

  // When the last column in which a GPU was used ends.
  [[nodiscard]] static double end_of(const policy_run& r) {
    return static_cast<double>(r.picture.width()) * r.picture.used_columns();
  }

  void draw_tick(point at, const std::string& label) {
    out_.line({at, {at.x, at.y + 5}}, "#606060", 1);
    out_.text({at.x, at.y + 20}, label, "middle", 13, "#606060");
  }
  // Ticks of time from 0 to the end, at most `ticks`, over so many pixels.
  void draw_times(point at, double pixels, double ticks) {
    constexpr std::array<double, 14> hours{0.1, 0.25, 0.5, 1,   2,   4,    6,
                                           12,  24,   72,  168, 720, 2160, 8760};
    const bool days = end_ > 240 * 3'600'000.0;
    double step = hours.back();
    for (const double h : hours) {
      if (h * 3'600'000 * ticks < end_) continue;
      step = h;
      break;
    }
    for (double t = 0; t * 3'600'000 <= end_; t += step) {
      const double label = days ? t / 24 : t;
      draw_tick({at.x + pixels * t * 3'600'000 / end_, at.y},
                fixed_text(label, step < 1 ? 2 : 0) + (days ? " d" : " h"));
    }
  }

  // A line a scheduler: figures, and the mean delay of a job by cause as a bar. Returns where it
  // ends.
  double draw_table(double y) {
    struct column {
      const char* title;
      double x;
    };
    constexpr std::array<column, 6> columns{{{"median completion", 310},
                                             {"p99 completion", 440},
                                             {"makespan", 540},
                                             {"GPUs in use", 650},
                                             {"p99 delay", 750},
                                             {"mean delay", 850}}};
    constexpr double bars = 870;
    constexpr double longest_bar = 480;
    out_.text({left, y + 20}, "scheduler", "start", 14, "#606060");
    for (const column& c : columns) out_.text({c.x, y + 20}, c.title, "end", 14, "#606060");
    double x = bars;
    for (std::size_t cause = 0; cause < causes.size(); ++cause) {
      out_.rectangle({x, y + 8}, 14, 14, cause_colors[cause]);
      out_.text({x + 19, y + 20}, causes[cause], "start", 14, "#606060");
      x += 40 + 8.2 * static_cast<double>(std::string_view(causes[cause]).size());
    }
    double longest = 1.0;
    for (const policy_run& r : runs_) longest = std::max(longest, r.metrics.delay.mean);
    y += 30;
    for (const policy_run& r : runs_) {
      const apiary::job_metrics& m = r.metrics;
      out_.line({{left, y}, {page - left, y}}, "#e4e4e4", 1);
      const double base = y + 19;
      out_.text({left, base}, r.policy, "start", 15);
      const std::array<std::string, 6> figures{span_text(static_cast<double>(m.completion.p50)),
                                               span_text(static_cast<double>(m.completion.p99)),
                                               span_text(static_cast<double>(m.makespan)),
                                               fixed_text(100 * m.utilization, 1) + " %",
                                               span_text(static_cast<double>(m.delay.p99)),
                                               span_text(m.delay.mean)};
      for (std::size_t i = 0; i < columns.size(); ++i)
        out_.text({columns[i].x, base}, figures[i], "end");
      double at = bars;
      for (std::size_t cause = 0; cause < causes.size(); ++cause) {
        const double mean = static_cast<double>(m.by_cause.by_cause[cause]) /
                            static_cast<double>(std::max<std::uint64_t>(1, m.ended));
        const double length = longest_bar * mean / longest;
        if (length > 0) out_.rectangle({at, y + 6}, length, 16, cause_colors[cause]);
        at += length;
      }
      y += 28;
    }
    out_.line({{left, y}, {page - left, y}}, "#e4e4e4", 1);
    return y;
  }

  // Means over all lists with their standard deviations, a line a scheduler. Returns where it ends.
  double draw_spreads(double y) {
    constexpr double first = 210;
    constexpr double step = 400;
    constexpr double wide = 340;
    out_.text({left, y}, "all traces: mean and standard deviation of one trace", "start", 16);
    y += 34;
    const auto column = [&](std::size_t i, const char* title, double unit, const auto& figure) {
      const double x = first + step * static_cast<double>(i);
      double most = 0.0;
      for (const spread_row& r : spreads_)
        most = std::max(most, (figure(r).mean + figure(r).deviation) / unit);
      out_.text({x, y - 6}, title, "start", 14, "#606060");
      double base = y + 14;
      for (const spread_row& r : spreads_) {
        const auto at = [&](double value) {
          return x + wide * std::clamp(value / unit / most, 0.0, 1.0);
        };
        const figure_spread f = figure(r);
        out_.line({{x, base}, {x + wide, base}}, "#eeeeee", 1);
        out_.line({{at(f.mean - f.deviation), base}, {at(f.mean + f.deviation), base}}, use_color,
                  2);
        out_.rectangle({at(f.mean) - 3, base - 5}, 6, 10, use_color);
        base += 20;
      }
      for (const double part : {0.0, 0.5, 1.0})
        draw_tick({x + wide * part, base - 8}, fixed_text(most * part, 0));
    };
    column(0, "mean completion, min", 60'000, [](const spread_row& r) { return r.completion; });
    column(1, "p99 delay, min", 60'000, [](const spread_row& r) { return r.p99_delay; });
    column(2, "GPUs in use, %", 0.01, [](const spread_row& r) { return r.use; });
    for (std::size_t i = 0; i < runs_.size(); ++i)
      out_.text({left, y + 19 + 20 * static_cast<double>(i)}, runs_[i].policy, "start");
    return y + 20 * static_cast<double>(runs_.size()) + 30;
  }

  // GPUs in use over time, a small panel a scheduler. Returns where it ends.
  double draw_use(double y) {
    constexpr std::size_t in_row = 4;
    constexpr double panel = 290;
    constexpr double step = 340;
    constexpr double tall = 90;
    out_.text({left, y}, "GPUs in use over time, %", "start", 16);
    y += 30;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const point at{left + 30 + step * static_cast<double>(i % in_row),
                     y + (tall + 62) * static_cast<double>(i / in_row)};
      out_.text({at.x, at.y - 6}, runs_[i].policy, "start");
      for (const int percent : {0, 50, 100}) {
        const double line = at.y + tall * (100 - percent) / 100;
        out_.line({{at.x, line}, {at.x + panel, line}}, percent == 0 ? "#606060" : "#e4e4e4", 1);
        out_.text({at.x - 6, line + 4}, std::to_string(percent), "end", 12, "#606060");
      }
      const gpu_picture& p = runs_[i].picture;
      const std::uint32_t together = std::max(1U, p.used_columns() / 96);  // columns to a point
      std::vector<point> points;
      for (std::uint32_t c = 0; c < p.used_columns(); c += together) {
        double sum = 0.0;
        for (std::uint32_t k = 0; k < together && c + k < gpu_picture::columns; ++k)
          sum += p.use(c + k) / together;
        const double middle = (c + together / 2.0) * static_cast<double>(p.width());
        points.push_back({at.x + std::min(panel, panel * middle / end_),
                          at.y + tall * (1.0 - std::min(1.0, sum))});
      }
      out_.line(points, use_color, 2);
      draw_times({at.x, at.y + tall}, panel, 4);
    }
    return y + (tall + 62) * static_cast<double>((runs_.size() + in_row - 1) / in_row) - 30;
  }

  // Which tenant has which GPU when, a strip a scheduler. Returns where it ends.
  double draw_tenants(double y) {
    constexpr double strips = 180;
    constexpr double pixels = 1180;
    const std::uint32_t rows = runs_.front().picture.rows();
    const auto scale = static_cast<double>(std::max(1U, 96 / rows));
    out_.text({left, y}, "which tenant has which GPU", "start", 16);
    double x = 300;
    const auto legend = [&](const char* color, const std::string& label) {
      out_.rectangle({x, y - 12}, 14, 14, color);
      out_.text({x + 19, y}, label, "start");
      x += 50 + 8.2 * static_cast<double>(label.size());
    };
    for (std::size_t t = 0; t < colors_.size(); ++t) {
      if (colors_[t] + 1 != num_colors)
        legend(tenant_colors[colors_[t]], list_.tenants[t].substr(0, 12));
    }
    if (colors_.size() >= num_colors) legend(tenant_colors.back(), "other tenants");
    legend(idle_color, "idle");
    out_.raw("<rect x='" + svg_text::number(x) + "' y='" + svg_text::number(y - 12) +
             "' width='14' height='14' fill='#ffffff' stroke='#b0b0b0' stroke-dasharray='2 2'/>\n");
    out_.text({x + 19, y}, "all jobs have finished", "start");
    y += 16;
    for (const policy_run& r : runs_) {
      const double tall = scale * rows;
      const double finished = pixels * end_of(r) / end_;
      out_.text({strips - 48, y + tall / 2 + 5}, r.policy, "end", 15);
      for (const std::uint32_t gpu : {std::uint32_t{0}, cluster_.gpus() / 2, cluster_.gpus()}) {
        const double at = y + tall * gpu / cluster_.gpus();
        out_.line({{strips - 5, at}, {strips, at}}, "#606060", 1);
        out_.text({strips - 8, std::min(at + 9, y + tall)}, std::to_string(gpu), "end", 11,
                  "#606060");
      }
      out_.rectangle({strips, y}, finished, tall, idle_color);
      out_.raw("<rect x='" + svg_text::number(strips) + "' y='" + svg_text::number(y) +
               "' width='" + svg_text::number(pixels) + "' height='" + svg_text::number(tall) +
               "' fill='none' stroke='#b0b0b0' stroke-dasharray='2 2'/>\n");
      const double column = pixels * static_cast<double>(r.picture.width()) / end_;
      out_.raw("<g shape-rendering='crispEdges' transform='translate(" + svg_text::number(strips) +
               "," + svg_text::number(y) + ") scale(" + fixed_text(column, 5) + "," +
               svg_text::number(scale) + ")'>\n");
      draw_colors(r.picture);
      out_.raw("</g>\n");
      y += tall + 14;
    }
    out_.text({left, y + 12}, "GPU, by number", "start", 12, "#606060");
    draw_times({strips, y - 8}, pixels, 16);
    return y + 30;
  }
  // The cells of a strip by colour: equal spans of columns in neighbouring rows are one rectangle.
  void draw_colors(const gpu_picture& p) {
    struct box {
      std::uint32_t first;
      std::uint32_t last;
      std::uint32_t row;
    };
    for (std::uint32_t color = 0; color < num_colors; ++color) {
      std::string path;
      std::int64_t x = 0;  // where the last box begins: what the next one is relative to
      std::int64_t y = 0;
      const auto close = [&](const box& b, std::uint32_t row) {
        const std::string width = std::to_string(b.last - b.first);
        path += "m" + std::to_string(b.first - x) + " " + std::to_string(b.row - y) + "h" + width +
                "v" + std::to_string(row - b.row) + "h-" + width + "z";
        x = b.first;
        y = b.row;
      };
      std::vector<box> open;
      for (std::uint32_t row = 0; row <= p.rows(); ++row) {
        std::vector<box> here;
        for (std::uint32_t c = 0; row < p.rows() && c < p.used_columns();) {
          std::uint32_t end = c;
          while (end < p.used_columns() && p.color(row, end) == color) ++end;
          if (end > c) here.push_back({c, end, row});
          c = std::max(end, c + 1);
        }
        for (const box& b : open) {
          const auto same = std::find_if(here.begin(), here.end(), [&](const box& h) {
            return h.first == b.first && h.last == b.last;
          });
          if (same != here.end()) {
            same->row = b.row;
          } else {
            close(b, row);
          }
        }
        open = std::move(here);
      }
      if (!path.empty())
        out_.raw("<path fill='" + std::string(tenant_colors[color]) + "' d='" + path + "'/>\n");
    }
  }

  std::span<const policy_run> runs_;
  std::span<const spread_row> spreads_;
  const job_cluster& cluster_;
  const apiary::job_list& list_;
  std::vector<std::uint32_t> colors_;
  double end_ = 1.0;  // of time, ms
  svg_text out_;
};

}  // namespace example
