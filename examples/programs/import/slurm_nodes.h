// apiary/examples/programs/import/slurm_nodes.h - reads the nodes of Slurm's slurm.conf and gres.conf.
// SPDX-License-Identifier: MIT
#pragma once

#include "slurm_reader.h"
#include <apiary/core/config.h>
#include <apiary/core/digits.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/gang_cluster.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace example {

// Reads the lines "NodeName=..." of a slurm.conf. Other lines are skipped, but for those that look like
// a line of a node with a mistake.
class slurm_node_reader {
 public:
  explicit slurm_node_reader(std::string_view text) : from_(text, "nodes") {}

  // Reads all nodes, without their cells. kInvalidArgument: the faults, each with its line.
  [[nodiscard]] absl::StatusOr<std::vector<apiary::gang_cluster::node>> read() {
    slurm_faults faults;
    read_lines(from_, faults, [this](slurm_reader::line& line) { return read_line(line); });
    APIARY_RETURN_IF_ERROR(faults.status());
    return std::move(nodes_);
  }
  // Of each node, the line that describes it.
  [[nodiscard]] const std::vector<std::uint32_t>& lines() const noexcept { return lines_; }

 private:
  // Values of a node that change nothing here.
  static constexpr std::string_view skipped[] = {
      "nodeaddr",     "nodehostname",  "port",
      "state",        "tmpdisk",       "weight",
      "procs",        "reason",        "bcastaddr",
      "cpubind",      "corespeccount", "cpuspeclist",
      "memspeclimit", "tresweights",   "parameters",
      "topology",     "certtoken",     "restrictedcorespergpu"};
  // Values that only lines of nodes have.
  static constexpr std::string_view of_nodes[] = {"gres",     "cpus",   "realmemory", "feature",
                                                  "features", "labels", "taints"};
  // The factors of the number of CPUs. Sockets are those of all boards.
  static constexpr std::string_view of_cpus[] = {"sockets", "boards", "socketsperboard",
                                                 "corespersocket", "threadspercore"};

  [[nodiscard]] static bool is_in(std::string_view key, std::span<const std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  absl::Status read_line(slurm_reader::line& line) {
    const std::string& first = line[0].first;
    if (first == "include")
      return from_.fault(
          absl::StrCat("\"Include ", line[0].second, "\": pass the text of that file"));
    if (first == "switchname" || first == "blockname")
      return from_.fault(absl::StrCat("\"", first, "\" belongs into the topology, the first text"));
    const auto is_name = [](const auto& pair) { return pair.first == "nodename"; };
    if (std::none_of(line.begin(), line.end(), is_name)) {
      const bool of_node =
          first != "nodeset" && std::any_of(line.begin(), line.end(),
                                            [](auto& pair) { return is_in(pair.first, of_nodes); });
      return of_node ? from_.fault("no NodeName") : absl::OkStatus();
    }
    // A line with a fault of its own inherits nothing, so that its cost is that of its own values.
    apiary::gang_cluster::node one;
    std::vector<std::string> names;
    const std::size_t own = line.size();
    APIARY_RETURN_IF_ERROR(read_values(line, 0, one, names));
    const std::uint64_t inherited = add_defaults(line);
    APIARY_RETURN_IF_ERROR(from_.count_copied(inherited));
    APIARY_RETURN_IF_ERROR(read_values(line, own, one, names));
    APIARY_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> cpus, read_factors(line));
    const auto is_cpus = [](const auto& pair) { return pair.first == "cpus"; };
    if (cpus && std::none_of(line.begin(), line.end(), is_cpus)) {
      if (*cpus > max_cpus)
        return from_.fault(absl::StrCat("the node has more than ", max_cpus, " CPUs"));
      one.host.cpu_milli = static_cast<std::uint32_t>(*cpus * 1000);
    }
    if (names.size() == 1 && names[0] == "DEFAULT") {
      std::erase_if(line, is_name);
      defaults_ = line;
      return absl::OkStatus();
    }
    // The first node has what the line says; the others, and what is inherited, are copies.
    const std::uint64_t copies = names.size() - (inherited > 0 ? 0 : 1);
    APIARY_RETURN_IF_ERROR(from_.count_copied(copies * bytes_of(one)));
    for (std::string& name : names) {
      one.name = std::move(name);
      nodes_.push_back(one);
      lines_.push_back(from_.number());
    }
    return absl::OkStatus();
  }

  // Reads the values of a line from number `from` on, but for the factors of CPUs.
  absl::Status read_values(const slurm_reader::line& line, std::size_t from,
                           apiary::gang_cluster::node& to, std::vector<std::string>& names) {
    for (std::size_t i = from; i < line.size(); ++i) {
      const auto& [key, value] = line[i];
      if (key == "nodename") {
        APIARY_ASSIGN_OR_RETURN(names, from_.names(value));
      } else if (!is_in(key, of_cpus)) {
        APIARY_RETURN_IF_ERROR(read_value(key, value, to));
      }
    }
    return absl::OkStatus();
  }

  // Adds the values that the line does not set itself. Returns their bytes.
  // Requires: the values have been read, so there are few different keys.
  std::uint64_t add_defaults(slurm_reader::line& to) const {
    std::vector<std::string> own;
    for (const auto& value : to)
      if (std::find(own.begin(), own.end(), value.first) == own.end()) own.push_back(value.first);
    std::uint64_t bytes = 0;
    for (const auto& value : defaults_) {
      if (std::find(own.begin(), own.end(), value.first) != own.end()) continue;
      to.push_back(value);
      bytes += value.first.size() + value.second.size();
    }
    return bytes;
  }
  // What a node needs for its texts, without its name. Each word counts 32 bytes more.
  [[nodiscard]] static std::uint64_t bytes_of(const apiary::gang_cluster::node& one) {
    std::uint64_t bytes = one.model.size();
    for (const auto* words : {&one.labels, &one.taints})
      for (const std::string& word : *words) bytes += 32 + word.size();
    return bytes;
  }

  [[nodiscard]] absl::Status no_number(const std::string& key, const std::string& value,
                                       std::uint64_t most) const {
    return from_.fault(absl::StrCat("\"", key, "=", value, "\" is not a number up to ", most));
  }

  // The product of the factors of CPUs, at most max_cpus + 1; none: the line has no factor, or only Boards.
  [[nodiscard]] absl::StatusOr<std::optional<std::uint64_t>> read_factors(
      const slurm_reader::line& line) const {
    const auto count = [&](std::string_view key) {
      return std::count_if(line.begin(), line.end(), [&](auto& pair) { return pair.first == key; });
    };
    const bool all_sockets = count("sockets") > 0;
    if (all_sockets && count("socketsperboard") > 0)
      return from_.fault("Sockets, which are those of all boards, beside SocketsPerBoard");
    std::optional<std::uint64_t> cpus;
    std::uint64_t boards = 1;
    for (const auto& [key, value] : line) {
      if (!is_in(key, of_cpus)) continue;
      if (count(key) > 1) return from_.fault(absl::StrCat("\"", key, "\" is given twice"));
      const std::optional<std::uint64_t> factor = apiary::detail::read_digits(value, max_cpus);
      if (!factor) return no_number(key, value, max_cpus);
      if (key == "boards")
        boards = all_sockets ? 1 : *factor;
      else
        cpus = (std::min)(cpus.value_or(1) * *factor, max_cpus + 1);
    }
    if (cpus) cpus = (std::min)(*cpus * boards, max_cpus + 1);
    return cpus;
  }

  // "gpu:8", "gpu:h100:8,nic:4": the GPUs; other resources are skipped.
  absl::Status read_gres(const std::string& value, apiary::gang_cluster::node& to) const {
    to.gpus = 0;
    to.model.clear();
    bool any = false;
    for (const std::string& word : slurm_reader::words(value)) {
      const std::string_view name = std::string_view(word).substr(0, word.find(':'));
      if (name != "gpu" && name != "mps" && name != "shard" && !name.empty()) continue;
      const std::size_t colon = word.rfind(':');
      const std::optional<std::uint64_t> gpus =
          name != "gpu" || colon == std::string::npos
              ? std::nullopt
              : apiary::detail::read_digits(std::string_view(word).substr(colon + 1),
                                            apiary::gang_cluster::max_gpus);
      if (!gpus || to.gpus + *gpus > apiary::gang_cluster::max_gpus)
        return from_.fault(absl::StrCat(
            "\"gres=", value, "\" is not gpu:COUNT or gpu:MODEL:COUNT with a COUNT up to ",
            apiary::gang_cluster::max_gpus));
      const std::string model = colon > 3 ? word.substr(4, colon - 4) : "";
      if (any && model != to.model)
        return from_.fault(absl::StrCat("\"gres=", value,
                                        "\" has GPUs of two models; the GPUs of a "
                                        "node must have one"));
      to.model = model;
      to.gpus += static_cast<std::uint32_t>(*gpus);
      any = true;
    }
    return absl::OkStatus();
  }

  // "96", or with up to three decimals "7.91".
  [[nodiscard]] static std::optional<std::uint32_t> read_cpus(std::string_view text) {
    const std::size_t point = text.find('.');
    const std::optional<std::uint64_t> whole =
        apiary::detail::read_digits(text.substr(0, point), max_cpus);
    if (!whole) return std::nullopt;
    std::uint64_t milli = *whole * 1000;
    if (point != std::string_view::npos) {
      std::string decimals(text.substr(point + 1));
      if (decimals.empty() || decimals.size() > 3) return std::nullopt;
      decimals.resize(3, '0');
      const std::optional<std::uint64_t> part = apiary::detail::read_digits(decimals);
      if (!part || milli + *part > max_cpus * 1000) return std::nullopt;
      milli += *part;
    }
    return static_cast<std::uint32_t>(milli);
  }

  // Sets one value of a node from its key.
  absl::Status read_value(const std::string& key, const std::string& value,
                          apiary::gang_cluster::node& to) const {
    if (key == "gres") return read_gres(value, to);
    if (key == "cpus") {
      const std::optional<std::uint32_t> milli = read_cpus(value);
      if (!milli) return no_number(key, value, max_cpus);
      to.host.cpu_milli = *milli;
    } else if (key == "realmemory") {
      const std::optional<std::uint64_t> mib =
          apiary::detail::read_digits(value, ~std::uint32_t{0});
      if (!mib) return no_number(key, value, ~std::uint32_t{0});
      to.host.memory_mib = static_cast<std::uint32_t>(*mib);
    } else if (key == "labels" || key == "feature" || key == "features") {
      for (std::string& label : slurm_reader::words(value)) to.labels.push_back(std::move(label));
    } else if (key == "taints") {
      for (std::string& taint : slurm_reader::words(value)) to.taints.push_back(std::move(taint));
    } else if (!is_in(key, skipped)) {
      return from_.fault(absl::StrCat("unknown key \"", key, "\"",
                                      key == "gpus" ? "; 8 GPUs are written Gres=gpu:8" : ""));
    }
    return absl::OkStatus();
  }

  static constexpr std::uint64_t max_cpus = 4'000'000;
  slurm_reader from_;
  slurm_reader::line defaults_{};  // of the last line "NodeName=DEFAULT ..."
  std::vector<apiary::gang_cluster::node> nodes_{};
  std::vector<std::uint32_t> lines_{};
};

// Compares the nodes with a gres.conf, which says how many GPUs each has, and of which model. If there
// are no nodes, it describes them. Lines without NodeName are for all nodes that have GPUs.
class slurm_gres_reader {
 public:
  // Without nodes, only the lines themselves are checked. kInvalidArgument: the faults, each with its line.
  [[nodiscard]] static absl::Status read(std::string_view text,
                                         std::vector<apiary::gang_cluster::node>* nodes) {
    slurm_gres_reader reader(text);
    slurm_faults faults;
    read_lines(reader.from_, faults,
               [&](const slurm_reader::line& line) { return reader.read_line(line); });
    if (nodes == nullptr || !faults.status().ok()) return faults.status();
    if (nodes->empty()) reader.make_nodes(*nodes);
    reader.compare(*nodes, faults);
    return faults.status();
  }

 private:
  struct gpus_of_line {
    std::vector<std::string> nodes{};  // empty: all
    std::string model{};
    std::uint64_t gpus = 0;
    std::uint32_t line = 0;
  };

  // A node may have a line for each of its GPUs, most have 8.
  explicit slurm_gres_reader(std::string_view text)
      : from_(text, "gres", 8 * slurm_reader::max_names) {}

  absl::Status read_line(const slurm_reader::line& line) {
    gpus_of_line one{.line = from_.number()};
    std::string name;
    std::optional<std::uint64_t> count;
    std::uint64_t files = 0;
    for (const auto& [key, value] : line) {
      if (key == "nodename") {
        APIARY_ASSIGN_OR_RETURN(one.nodes, from_.names(value));
      } else if (key == "name") {
        name = value;
      } else if (key == "type") {
        one.model = value;
      } else if (key == "count") {
        count = apiary::detail::read_digits(value, apiary::gang_cluster::max_gpus);
        if (!count && (name.empty() || name == "gpu"))
          return from_.fault(absl::StrCat("\"count=", value, "\" is not a number up to ",
                                          apiary::gang_cluster::max_gpus));
      } else if (key == "file" || key == "multiplefiles") {
        APIARY_ASSIGN_OR_RETURN(const std::vector<std::string> all, from_.files(value));
        files = all.size();
      } else if (key != "autodetect" && key != "cores" && key != "cpus" && key != "links" &&
                 key != "flags" && key != "ignore") {
        return from_.fault(absl::StrCat("unknown key \"", key, "\""));
      }
    }
    if (name == "mps" || name == "shard")
      return from_.fault(
          absl::StrCat("\"name=", name, "\" shares GPUs; here nodes have whole GPUs"));
    if (name != "gpu") return absl::OkStatus();
    one.gpus = count.value_or(files > 0 ? files : 1);
    if (one.gpus > apiary::gang_cluster::max_gpus)
      return from_.fault(absl::StrCat("a node has ", one.gpus, " GPUs; the limit is ",
                                      apiary::gang_cluster::max_gpus));
    // This bounds the lines that are compared with all nodes; one without GPUs counts like one GPU.
    if (one.nodes.empty()) {
      gpus_of_all_ += (std::max)(one.gpus, std::uint64_t{1});
      if (gpus_of_all_ > apiary::gang_cluster::max_gpus)
        return from_.fault(absl::StrCat("the lines without NodeName have more than ",
                                        apiary::gang_cluster::max_gpus, " GPUs"));
    }
    lines_.push_back(std::move(one));
    return absl::OkStatus();
  }

  // The nodes that the lines name, each once, in the order of the lines.
  void make_nodes(std::vector<apiary::gang_cluster::node>& nodes) {
    std::unordered_map<std::string, std::size_t> number_of;
    for (const gpus_of_line& line : lines_)
      for (const std::string& name : line.nodes)
        if (number_of.emplace(name, nodes.size()).second) nodes.push_back({.name = name});
    only_gres_ = true;
  }

  void compare(std::vector<apiary::gang_cluster::node>& nodes, slurm_faults& faults) const {
    std::unordered_map<std::string_view, std::size_t> number_of;
    for (std::size_t n = 0; n < nodes.size(); ++n) number_of.emplace(nodes[n].name, n);
    std::vector<std::uint64_t> gpus(nodes.size(), 0);
    std::vector<bool> listed(nodes.size(), false);
    std::uint64_t copied = 0;  // bytes of models
    const auto add = [&](const gpus_of_line& line, std::size_t n) {
      apiary::gang_cluster::node& node = nodes[n];
      const auto fault = [&](const auto&... words) {
        faults.ok(absl::InvalidArgumentError(
            absl::StrCat("gres, line ", line.line, ": node \"", node.name, "\" ", words...)));
      };
      if (!only_gres_ && node.gpus == 0 && line.gpus > 0) {
        if (!line.nodes.empty())
          fault("has ", line.gpus, " GPUs; its NodeName line has no Gres=gpu");
        return;
      }
      if (!line.model.empty() && !node.model.empty() && line.model != node.model)
        return fault("has GPUs of model \"", line.model, "\"; before, of \"", node.model, "\"");
      if (only_gres_ && listed[n] && line.model.empty() != node.model.empty())
        return fault("has GPUs with and without a model");
      listed[n] = true;
      if (node.model.empty()) copied += line.model.size();
      if (copied > slurm_reader::max_copied)
        return fault("and those before it need more than ", slurm_reader::max_copied,
                     " bytes for their models");
      if (!line.model.empty()) node.model = line.model;
      gpus[n] += line.gpus;
      if (gpus[n] > apiary::gang_cluster::max_gpus)
        return fault("has ", gpus[n], " GPUs; the limit is ", apiary::gang_cluster::max_gpus);
      if (only_gres_) node.gpus = static_cast<std::uint32_t>(gpus[n]);
    };
    for (const gpus_of_line& line : lines_) {
      for (const std::string& name : line.nodes) {
        const auto at = number_of.find(name);
        if (at != number_of.end())
          add(line, at->second);
        else
          faults.ok(absl::InvalidArgumentError(absl::StrCat("gres, line ", line.line, ": node \"",
                                                            name, "\" has no NodeName line")));
      }
      for (std::size_t n = 0; line.nodes.empty() && n < nodes.size(); ++n) add(line, n);
    }
    for (std::size_t n = 0; n < nodes.size(); ++n)
      if (listed[n] && gpus[n] < nodes[n].gpus)
        faults.ok(absl::InvalidArgumentError(absl::StrCat("gres: node \"", nodes[n].name, "\" has ",
                                                          gpus[n], " GPUs; its NodeName line says ",
                                                          nodes[n].gpus)));
  }

  slurm_reader from_;
  std::vector<gpus_of_line> lines_{};
  std::uint64_t gpus_of_all_ = 0;  // of lines without NodeName
  bool only_gres_ = false;
};

}  // namespace example
