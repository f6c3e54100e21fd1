// apiary/tests/examples/hived_yaml_data_test.cpp - every recorded configuration is read and accepted.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/hived_yaml.h"
#include "support/data.h"
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace apiary;

namespace {

const std::string configurations = apiary_test::data_folder("hived");

// The configuration of a scenario or workload: one line of JSON.
absl::StatusOr<hived_config> read_config(const std::string& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("CONFIG ")) return example::parse_hived_yaml(line.substr(7));
    if (line.starts_with("{")) return example::parse_hived_yaml(line);
  }
  return absl::NotFoundError("no configuration");
}

}  // namespace

TEST_CASE("every recorded configuration is accepted but one that cannot be kept") {
  std::vector<std::string> refused;
  std::size_t files = 0;
  std::uint32_t nodes = 0;
  double slowest = 0.0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configurations)) {
    const std::string file = entry.path().string();
    if (!file.ends_with(".jsonl") && !file.ends_with(".txt")) continue;
    CAPTURE(file);
    ++files;
    const auto config = read_config(file);
    REQUIRE_MESSAGE(config.ok(), config.status().ToString());
    const auto start = std::chrono::steady_clock::now();
    const auto layout = hived_layout::create(*config);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    slowest = std::max(slowest, time.count());
    if (!layout.ok()) {
      refused.push_back(entry.path().stem().string());
      CHECK(layout.status().message() ==
            "virtualClusters: 1 cells of type \"RACK\" are requested; chain \"RACK\" has 0 "
            "besides pinned and larger cells");
      continue;
    }
    nodes = std::max(nodes, layout->num_nodes());
  }
  MESSAGE(files, " files, the slowest in ", slowest * 1000.0, " ms");
  CHECK(files > 60);
  CHECK(nodes == 12'544);
  CHECK(refused == std::vector<std::string>{"panic_pinned_cells_break_safety"});
}
