// apiary/tests/main.cpp - the entry point of every test binary.
// SPDX-License-Identifier: MIT
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/skip.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>

namespace {

unsigned cases_run = 0;

// Counts what ran: a filter that selects nothing must not look like a success.
struct counter final : doctest::IReporter {
  explicit counter(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*data*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    cases_run = stats.numTestCasesPassingFilters;
  }
  void test_case_start(const doctest::TestCaseData& /*data*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*signature*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*data*/) override {}
  void log_message(const doctest::MessageData& /*data*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}
};

REGISTER_LISTENER("counter", 1, counter);

// Asked for a list, not for a run.
bool is_query(std::span<char*> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](std::string_view argument) {
    return argument.find("list-test") != std::string_view::npos;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const bool query = is_query({argv, static_cast<std::size_t>(argc)});
  if (!query && !apiary_test::missing_folders().empty()) {
    std::printf("skipped: no folder %s of public traces (APIARY_DATA_DIR)\n",
                apiary_test::missing_folders().front().c_str());
    return 77;
  }
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (result == 0 && !query && !context.shouldExit() && cases_run == 0) {
    std::puts("no test case has this name");
    return 1;
  }
  const bool all_skipped = cases_run > 0 && apiary_test::skipped_cases() == cases_run;
  return result == 0 && all_skipped ? 77 : result;
}
