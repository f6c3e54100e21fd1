// apiary/core/status.h - early return of an Abseil Status.
// SPDX-License-Identifier: MIT
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

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
