// apiary/core/config.h - version, namespace and assertion macros.
// SPDX-License-Identifier: MIT
#pragma once

// Elsewhere than with C++20 one clear error, and no others: the header that does not exist ends the
// compilation.
#if (defined(_MSVC_LANG) && _MSVC_LANG < 202002L) || (!defined(_MSVC_LANG) && __cplusplus < 202002L)
#error "apiary needs C++20: compile with -std=c++20 (Visual C++: /std:c++20) or later"
#include <apiary_needs_cpp20>
#endif

#define APIARY_VERSION_MAJOR 0
#define APIARY_VERSION_MINOR 2
#define APIARY_VERSION_PATCH 0

// One inline namespace for each minor version, which may break its users before 1.0: two of them in
// one program do not mix silently.
#define APIARY_NAMESPACE_BEGIN \
  namespace apiary {           \
  inline namespace v0_2 {
#define APIARY_NAMESPACE_END \
  } /* namespace v0_2 */     \
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

// Bodies of functions that are no templates lie in files <name>_inl.h. A program that links the
// target apiary::compiled has APIARY_COMPILED defined: it takes these bodies from that library and
// compiles none of them. All other programs include them with their headers.
#ifdef APIARY_COMPILED
#define APIARY_INLINE
#else
#define APIARY_INLINE inline
#endif
