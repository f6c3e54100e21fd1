// apiary/core/status.h - early return of an Abseil Status, and ids in error texts.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <initializer_list>
#include <string>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The pieces as one text. Code with many texts compiles faster with it than with operator+, which
// makes and destroys a string for each piece.
[[nodiscard]] inline std::string text_of(std::initializer_list<absl::AlphaNum> pieces) {
  std::string text;
  for (const absl::AlphaNum& piece : pieces) text.append(piece.data(), piece.size());
  return text;
}
// A status whose message is the pieces as one text.
[[nodiscard]] inline absl::Status error_of(absl::StatusCode code,
                                           std::initializer_list<absl::AlphaNum> pieces) {
  return absl::Status(code, text_of(pieces));
}

// The job in an error text: "job 7", or "a job without id". `kind` may name it otherwise.
[[nodiscard]] inline std::string name_of(job_id job, const char* kind = "job") {
  return job.valid() ? absl::StrCat(kind, " ", job.value) : absl::StrCat("a ", kind, " without id");
}
// Says that there is no such job: "there is no job 7", or "no job id".
[[nodiscard]] inline std::string missing(job_id job, const char* kind = "job") {
  return job.valid() ? absl::StrCat("there is no ", kind, " ", job.value) : "no job id";
}
// Says that there is no such tenant: "there is no tenant 7", or "no tenant".
[[nodiscard]] inline std::string missing(tenant_id tenant) {
  return tenant.valid() ? absl::StrCat("there is no tenant ", tenant.value) : "no tenant";
}

}  // namespace detail
APIARY_NAMESPACE_END

// APIARY_RETURN_IF_ERROR(expression): returns the status `expression` from the function unless it
// is OK.
#define APIARY_RETURN_IF_ERROR(expression)                                            \
  do {                                                                                \
    if (auto apiary_status = (expression); !apiary_status.ok()) return apiary_status; \
  } while (false)

// APIARY_ASSIGN_OR_RETURN(declaration, expression): if the StatusOr `expression` has a value,
// assigns it to `declaration`; otherwise returns its status from the function.
#define APIARY_ASSIGN_OR_RETURN(declaration, expression) \
  APIARY_DETAIL_ASSIGN_1(declaration, expression, __LINE__)
// Internal: expands the number of the line.
#define APIARY_DETAIL_ASSIGN_1(declaration, expression, line) \
  APIARY_DETAIL_ASSIGN_2(declaration, expression, line)
// Internal: the statements of APIARY_ASSIGN_OR_RETURN.
#define APIARY_DETAIL_ASSIGN_2(declaration, expression, line)                            \
  auto apiary_status_or_##line = (expression);                                           \
  if (!apiary_status_or_##line.ok()) return std::move(apiary_status_or_##line).status(); \
  declaration = *std::move(apiary_status_or_##line)
