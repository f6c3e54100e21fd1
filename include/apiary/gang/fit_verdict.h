// apiary/gang/fit_verdict.h - the verdict of a search for a placement.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The answer of every search for a placement: the gang fits, it does not fit (which is proved), or
// the step budget ended before the search knew.
enum class fit_verdict : std::uint8_t { fits, does_not_fit, budget_ended };

APIARY_NAMESPACE_END
