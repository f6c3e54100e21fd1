// apiary/hived/violation.h - an invariant of HiveD that does not hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <string>

APIARY_NAMESPACE_BEGIN

// What audit() reports: the invariant that does not hold, and where.
struct violation {
  std::string invariant{};  // the name of the invariant, see the module page
  std::string witness{};    // ids, names and counts
};

APIARY_NAMESPACE_END
