// apiary/benchmarks/allocator_table.h - prints a table as Markdown.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace apiary_bench {

// A table of text.
struct table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each: a name, and a value of each column
};

// Prints the table as Markdown, in columns of equal width.
inline void print(const table& t) {
  std::vector<std::string> head{""};
  head.insert(head.end(), t.columns.begin(), t.columns.end());
  std::vector<std::size_t> width;
  for (std::size_t k = 0; k < head.size(); ++k) {
    width.push_back(head[k].size());
    for (const std::vector<std::string>& row : t.rows) width[k] = std::max(width[k], row[k].size());
  }
  const auto line = [&](const std::vector<std::string>& row) {
    for (std::size_t k = 0; k < row.size(); ++k)
      std::printf("| %*s ", static_cast<int>(k == 0 ? 0 - width[k] : width[k]), row[k].c_str());
    std::puts("|");
  };
  std::printf("%s\n\n", t.title.c_str());
  line(head);
  for (std::size_t k = 0; k < head.size(); ++k)
    std::printf("|%s%s", std::string(width[k] + 1, '-').c_str(), k == 0 ? "-" : ":");
  std::puts("|");
  for (const std::vector<std::string>& row : t.rows) line(row);
  std::puts("");
}

// The number with this many digits after the point.
inline std::string decimal(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace apiary_bench
