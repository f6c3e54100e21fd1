// apiary/examples/programs/import/nvidia_topology.h - the GPUs of a node as a tree, from `nvidia-smi topo -m`.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/topology/named_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

// The matrix of links between the GPUs of a node.
class nvidia_topology {
 public:
  // The most GPUs of a node.
  static constexpr std::size_t max_gpus = 64;

  // Reads the matrix; ignores the rows of network cards and the legend. kInvalidArgument: the first
  // fault, as "line N: what is wrong".
  static absl::StatusOr<nvidia_topology> read(std::string_view text) {
    nvidia_topology all;
    std::vector<std::size_t> line_of;  // of the row of each GPU; 0: none yet
    std::size_t cards = 0;             // columns of network cards
    bool has_cpus = false, has_numa = false;
    std::size_t number = 0;
    const auto fault = [&number](const auto&... words) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", words...));
    };
    while (!text.empty()) {
      const std::size_t end = (std::min)(text.find('\n'), text.size());
      const std::vector<std::string> words = split(text.substr(0, end));
      text.remove_prefix((std::min)(end + 1, text.size()));
      ++number;
      if (words.empty()) continue;
      if (all.gpus_.empty()) {  // the header
        std::size_t at = 0;
        for (; at < words.size() && is_numbered(words[at], "GPU"); ++at) {
          if (std::find(all.gpus_.begin(), all.gpus_.end(), words[at]) != all.gpus_.end())
            return fault(words[at], " has two columns");
          all.gpus_.push_back(words[at]);
        }
        if (all.gpus_.empty()) return fault("a header with GPU0, GPU1, ... expected");
        if (all.gpus_.size() > max_gpus)
          return fault(all.gpus_.size(), " GPUs; the limit is ", max_gpus);
        for (; at < words.size() && words[at] != "CPU"; ++at) ++cards;
        has_cpus = at < words.size();
        has_numa = at + 2 < words.size() && words[at + 2] == "NUMA";
        line_of.assign(all.gpus_.size(), 0);
        all.links_.resize(all.gpus_.size() * all.gpus_.size());
        if (has_cpus) all.cpus_.resize(all.gpus_.size());
        if (has_numa) all.numa_.resize(all.gpus_.size());
        continue;
      }
      const std::size_t n = all.gpus_.size();
      const auto gpu = static_cast<std::size_t>(
          std::find(all.gpus_.begin(), all.gpus_.end(), words[0]) - all.gpus_.begin());
      if (gpu == n) {
        if (is_numbered(words[0], "GPU")) return fault(words[0], " has no column");
        continue;
      }
      if (line_of[gpu] != 0) return fault(words[0], " has two rows");
      line_of[gpu] = number;
      const std::size_t columns = 1 + n + cards;
      if (words.size() < columns)
        return fault(words.size() - 1, " links; the header has ", columns - 1);
      for (std::size_t other = 0; other < n; ++other) {
        const std::string& link = words[other + 1];
        if ((link == "X") != (gpu == other) || link == "NV#" || rank(link) == num_ranks)
          return fault("\"", link, "\" is no link from ", all.gpus_[gpu], " to ", all.gpus_[other]);
        all.links_[gpu * n + other] = link;
        if (line_of[other] != 0 && all.links_[other * n + gpu] != link)
          return fault(all.gpus_[gpu], " has a link \"", link, "\" to ", all.gpus_[other],
                       "; line ", line_of[other], " says \"", all.links_[other * n + gpu], "\"");
      }
      if (has_cpus && words.size() > columns) all.cpus_[gpu] = words[columns];
      if (has_numa && words.size() > columns + 1) all.numa_[gpu] = words[columns + 1];
    }
    ++number;
    if (all.gpus_.empty()) return fault("no header with GPU0, GPU1, ...");
    for (std::size_t g = 0; g < all.gpus_.size(); ++g)
      if (line_of[g] == 0) return fault(all.gpus_[g], " has no row");
    return all;
  }

  // A matrix that another file describes: the link of GPU a and GPU b is at a * GPUs + b, as nvidia-smi
  // writes it, or "NV#". Requires: names that differ, the same link in both directions, X on the diagonal.
  static nvidia_topology of(std::vector<std::string> gpus, std::vector<std::string> links) {
    nvidia_topology all;
    all.gpus_ = std::move(gpus);
    all.links_ = std::move(links);
    return all;
  }

  // The islands of the GPUs as a tree: NVLink inside PIX, PXB, PHB and NUMA nodes. With use_nvlink
  // false, GPUs that NVLink connects are told apart by their NUMA nodes only.
  // kInvalidArgument: the links make no tree; the message names three GPUs.
  [[nodiscard]] absl::StatusOr<apiary::chain_spec> tree(bool use_nvlink = true) const {
    const std::size_t n = gpus_.size();
    std::vector<std::size_t> ranks(n * n, 0);
    for (std::size_t i = 0; i < n * n; ++i) {
      const std::size_t a = i / n, b = i % n;
      ranks[i] = a == b ? 0 : rank(links_[i]);
      if (use_nvlink || a == b || ranks[i] != 0) continue;
      if (numa_.empty() || numa_[a].empty() || numa_[b].empty())
        return absl::InvalidArgumentError(
            absl::StrCat("without NVLink: the text does not say how else ", gpus_[a], " and ",
                         gpus_[b], " are connected; it has no NUMA Affinity"));
      ranks[i] = numa_[a] == numa_[b] ? num_ranks - 2 : num_ranks - 1;
    }
    std::vector<std::vector<std::size_t>>
        islands;  // of each level, the first GPU of a GPU's island
    std::vector<std::string> names;
    for (std::size_t r = 0; r + 1 < num_ranks; ++r) {
      std::vector<std::size_t> first(n);
      for (std::size_t a = 0; a < n; ++a)
        while (ranks[a * n + first[a]] > r) ++first[a];
      for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = 0; b < n; ++b)
          if ((ranks[a * n + b] <= r) != (first[a] == first[b])) return no_tree(ranks, r);
      const bool flat = std::all_of(first.begin(), first.end(), [](auto f) { return f == 0; });
      bool single = true;
      for (std::size_t a = 0; a < n; ++a) single = single && first[a] == a;
      if (flat || single || (!islands.empty() && islands.back() == first)) continue;
      islands.push_back(std::move(first));
      names.emplace_back(level_names[r]);
    }
    std::vector<std::size_t> order(n);
    for (std::size_t a = 0; a < n; ++a) order[a] = a;
    for (const auto& level : islands)  // the highest last: it counts most
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return level[a] < level[b]; });
    apiary::chain_spec spec{.name = "node", .levels = {{.name = "node", .fan_outs = {1}}}};
    std::vector<std::size_t> above(n, 0);
    for (std::size_t l = islands.size(); l-- > 0; above = islands[l])
      spec.levels.push_back({.name = names[l], .fan_outs = sizes(order, above, &islands[l])});
    spec.levels.push_back({.name = "gpu", .fan_outs = sizes(order, above, nullptr)});
    for (const std::size_t a : order) spec.levels.back().cell_names.push_back(gpus_[a]);
    return spec;
  }

  // The matrix as text that read() reads as this one.
  [[nodiscard]] std::string write() const {
    std::string all;
    for (const std::string& gpu : gpus_) all += '\t' + gpu;
    if (!cpus_.empty()) all += "\tCPU Affinity";
    if (!numa_.empty()) all += "\tNUMA Affinity";
    for (std::size_t a = 0; a < gpus_.size(); ++a) {
      all += '\n' + gpus_[a];
      for (std::size_t b = 0; b < gpus_.size(); ++b) all += '\t' + links_[a * gpus_.size() + b];
      if (!cpus_.empty()) all += '\t' + cpus_[a];
      if (!numa_.empty()) all += '\t' + numa_[a];
    }
    return all + '\n';
  }
  [[nodiscard]] std::size_t num_gpus() const noexcept { return gpus_.size(); }
  friend bool operator==(const nvidia_topology&, const nvidia_topology&) = default;

 private:
  static constexpr std::size_t num_ranks = 6;  // NVLink, PIX, PXB, PHB, NODE, SYS
  static constexpr std::array<const char*, 5> level_names = {"nvlink", "pix", "pxb", "phb", "numa"};

  // The words of a line, without the codes that underline a header.
  static std::vector<std::string> split(std::string_view line) {
    std::vector<std::string> words;
    bool in_word = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (c == '\x1b') {
        i = (std::min)(line.find('m', i), line.size() - 1);
      } else if (c == ' ' || c == '\t' || c == '\r') {
        in_word = false;
      } else {
        if (!in_word) words.emplace_back();
        words.back() += c;
        in_word = true;
      }
    }
    return words;
  }
  // Whether the word is the prefix and a number.
  static bool is_numbered(std::string_view word, std::string_view prefix) {
    return word.size() > prefix.size() && word.substr(0, prefix.size()) == prefix &&
           word.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
  }
  // How far a link leads; num_ranks: it is no link.
  static std::size_t rank(std::string_view link) {
    constexpr std::array<std::string_view, 5> words = {"PIX", "PXB", "PHB", "NODE", "SYS"};
    if (link == "X" || link == "NV#" || is_numbered(link, "NV")) return 0;
    return 1 +
           static_cast<std::size_t>(std::find(words.begin(), words.end(), link) - words.begin());
  }

  // How many cells of a level (the GPUs, if it is null) are in each cell of the level above, in order.
  static std::vector<std::uint32_t> sizes(const std::vector<std::size_t>& order,
                                          const std::vector<std::size_t>& above,
                                          const std::vector<std::size_t>* level) {
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || above[order[i]] != above[order[i - 1]]) all.push_back(0);
      const bool next = i == 0 || level == nullptr || (*level)[order[i]] != (*level)[order[i - 1]];
      if (next) ++all.back();
    }
    return all;
  }

  [[nodiscard]] absl::Status no_tree(const std::vector<std::size_t>& ranks, std::size_t r) const {
    const std::size_t n = gpus_.size();
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        for (std::size_t c = 0; c < n; ++c)
          if (ranks[a * n + b] <= r && ranks[b * n + c] <= r && ranks[a * n + c] > r)
            return absl::InvalidArgumentError(
                absl::StrCat("the links make no tree: ", link(a, b), ", ", link(b, c), ", but ",
                             link(a, c), r == 0 ? "; islands without NVLink may be possible" : ""));
    return absl::InternalError("a tree was refused");
  }
  [[nodiscard]] std::string link(std::size_t a, std::size_t b) const {
    return absl::StrCat(links_[a * gpus_.size() + b], " between ", gpus_[a], " and ", gpus_[b]);
  }

  std::vector<std::string> gpus_;   // names
  std::vector<std::string> links_;  // of GPU a and GPU b, at a * GPUs + b
  std::vector<std::string> cpus_;   // CPU Affinity of each GPU; empty: not in the text
  std::vector<std::string> numa_;   // NUMA Affinity of each GPU; empty: not in the text
};

}  // namespace example
