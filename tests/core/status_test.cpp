// apiary/tests/core/status_test.cpp - returning early.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/status.h>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

namespace {

absl::Status failed() { return absl::NotFoundError("job 7"); }

absl::Status pass_on(const absl::Status& status, int& reached) {
  APIARY_RETURN_IF_ERROR(status);
  ++reached;
  return absl::OkStatus();
}

absl::StatusOr<int> half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError(std::to_string(n) + " is odd");
  return n / 2;
}

absl::StatusOr<int> quarter(int n) {
  APIARY_ASSIGN_OR_RETURN(const int once, half(n));
  APIARY_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

absl::Status assign(int n, int& result) {
  APIARY_ASSIGN_OR_RETURN(result, half(n));
  return absl::OkStatus();
}

TEST_CASE("an error leaves the function as it is, OK does not") {
  int reached = 0;
  CHECK(pass_on(absl::OkStatus(), reached).ok());
  CHECK(reached == 1);
  CHECK(pass_on(failed(), reached) == failed());
  CHECK(reached == 1);
}

TEST_CASE("the macro is one statement") {
  const auto choose = [](bool fails) -> absl::Status {
    if (fails)
      APIARY_RETURN_IF_ERROR(failed());
    else
      return absl::CancelledError("");
    return absl::OkStatus();
  };
  CHECK(choose(true) == failed());
  CHECK(choose(false).code() == absl::StatusCode::kCancelled);
}

TEST_CASE("a value is taken out, an error is passed on") {
  CHECK(quarter(12).value() == 3);
  CHECK(quarter(6).status() == absl::InvalidArgumentError("3 is odd"));
  CHECK(quarter(5).status() == absl::InvalidArgumentError("5 is odd"));
  int result = 0;
  CHECK(assign(8, result).ok());
  CHECK(result == 4);
  CHECK(assign(7, result).code() == absl::StatusCode::kInvalidArgument);
  CHECK(result == 4);
}

TEST_CASE("a value that only moves is moved") {
  const auto make = []() -> absl::StatusOr<std::unique_ptr<int>> {
    return std::make_unique<int>(7);
  };
  const auto take = [&]() -> absl::StatusOr<int> {
    APIARY_ASSIGN_OR_RETURN(const std::unique_ptr<int> p, make());
    return *p;
  };
  CHECK(take().value() == 7);
}

TEST_CASE("error texts name an id, or say that it is not set") {
  using namespace apiary;
  CHECK(detail::name_of(job_id(7)) == "job 7");
  CHECK(detail::name_of(job_id(0), "gang") == "gang 0");
  CHECK(detail::name_of(job_id()) == "a job without id");
  CHECK(detail::missing(job_id(7)) == "there is no job 7");
  CHECK(detail::missing(job_id(7), "gang") == "there is no gang 7");
  CHECK(detail::missing(job_id(), "gang") == "no job id");
  CHECK(detail::missing(tenant_id(2)) == "there is no tenant 2");
  CHECK(detail::missing(tenant_id()) == "no tenant");
}

}  // namespace
