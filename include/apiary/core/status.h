// apiary/core/status.h - early return of an Abseil Status, and strings for every build of Abseil.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string_view>
#include <utility>

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

APIARY_NAMESPACE_BEGIN

// Converts a std::string_view to absl::string_view. Some builds of Abseil have their own type,
// which does not convert by itself.
[[nodiscard]] inline absl::string_view to_absl(std::string_view s) noexcept {
  return {s.data(), s.size()};
}

APIARY_NAMESPACE_END
