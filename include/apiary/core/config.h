// apiary/core/config.h - version, namespace and assertion macros.
// SPDX-License-Identifier: MIT
#pragma once

#define APIARY_VERSION_MAJOR 0
#define APIARY_VERSION_MINOR 2
#define APIARY_VERSION_PATCH 0

// One inline namespace a major version: two versions in one program do not mix silently.
#define APIARY_NAMESPACE_BEGIN \
  namespace apiary {           \
  inline namespace v0 {
#define APIARY_NAMESPACE_END \
  } /* namespace v0 */       \
  } /* namespace apiary */

// APIARY_VERIFY(condition): in every build, a false condition prints itself with its place and
// aborts. For what must never be wrong: a device granted twice is worse than a crash.
// APIARY_ASSERT(condition): the same in builds without NDEBUG, nothing otherwise. For a caller's
// bug. Both may be defined by the host, the same way in every translation unit; the condition of
// APIARY_VERIFY is to be evaluated then, too, once.
#ifndef APIARY_VERIFY
#include <cstdio>
#include <cstdlib>
#define APIARY_VERIFY(condition)      \
  ((condition) ? static_cast<void>(0) \
               : ::apiary::detail::verify_failed(#condition, __FILE__, __LINE__))

APIARY_NAMESPACE_BEGIN
namespace detail {

#if defined(__GNUC__)
[[noreturn, gnu::cold, gnu::noinline]]
#else
[[noreturn]]
#endif
inline void
verify_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: apiary: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace detail
APIARY_NAMESPACE_END
#endif

#ifndef APIARY_ASSERT
#ifdef NDEBUG
#define APIARY_ASSERT(condition) static_cast<void>(0)
#else
#define APIARY_ASSERT(condition) APIARY_VERIFY(condition)
#endif
#endif
