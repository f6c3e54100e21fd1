// apiary/tests/examples/hived_session_data_test.cpp - recorded scenarios, played, are the same session.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/hived_session.h"
#include "support/data.h"
#include <apiary/hived/audit.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <support/scale.h>
#include <vector>

using example::hived_session;

namespace {

const std::string scenarios = apiary_test::data_folder("hived");

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
std::vector<std::string> play(const std::vector<std::string>& lines, std::size_t end) {
  hived_session session;
  std::vector<std::string> answers;
  for (std::size_t i = 0; i < end; ++i) answers.push_back(session.answer(lines[i]));
  return answers;
}

}  // namespace

TEST_CASE("every scenario is played without a broken rule, and its log again to the same answers") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scenarios))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  CHECK(files.size() >= 70);
  std::size_t refused = 0;
  for (const auto& file : files) {
    CAPTURE(file.string());
    const std::vector<std::string> lines = lines_of(file);
    hived_session session;
    std::vector<std::string> answers;
    for (const std::string& line : lines) {
      answers.push_back(session.answer(line));
      if (session.scheduler() != nullptr) REQUIRE(apiary::audit(*session.scheduler()).empty());
    }
    REQUIRE(play(lines, lines.size()) == answers);
    // Ended after any line, or any other of a long file, and its log played again.
    const std::size_t ends = apiary_test::scaled(std::min(lines.size(), std::size_t{100}));
    for (std::size_t end = 1; end < lines.size(); end += (lines.size() + ends - 1) / ends)
      REQUIRE(play(lines, end).back() == answers[end - 1]);
    refused += session.scheduler() == nullptr ? 1U : 0U;
    if (file.stem().string().starts_with("greedy_"))
      CHECK(answers.back().find("\"result\":\"bind\"") != std::string::npos);
  }
  CHECK(refused == 1);
}
