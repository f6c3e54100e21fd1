// apiary/gang/fit_verdict.h - what a search for a placement found out.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The answer of every search for a placement: there is one, there is none (this is proved), or the
// budget of steps ended before either was known.
enum class fit_verdict : std::uint8_t { fits, does_not_fit, budget_ended };

APIARY_NAMESPACE_END
