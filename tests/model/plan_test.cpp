// apiary/tests/model/plan_test.cpp - the texts of reasons to wait.
// SPDX-License-Identifier: MIT
#include <apiary/model/plan.h>

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace {

using namespace apiary;

TEST_CASE("each reason to wait has a text of its own") {
  std::set<std::string> texts;
  for (const wait_reason reason : {wait_reason::never, wait_reason::busy, wait_reason::unhealthy,
                                   wait_reason::not_suggested, wait_reason::undecided}) {
    const std::string text = wait_reason_text(reason);
    CHECK(!text.empty());
    CHECK(texts.insert(text).second);
  }
  CHECK(std::string(wait_reason_text(wait_reason::unhealthy)) ==
        "it would fit if all nodes and GPUs were healthy");
}

}  // namespace
