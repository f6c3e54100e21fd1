// apiary/core/config.h - version, namespace and assertion macros.
// SPDX-License-Identifier: MIT
#pragma once

// Without C++20 there is one clear error: the header below does not exist.
#if (defined(_MSVC_LANG) && _MSVC_LANG < 202002L) || (!defined(_MSVC_LANG) && __cplusplus < 202002L)
#error "apiary needs C++20: compile with -std=c++20 (Visual C++: /std:c++20) or later"
#include <apiary_needs_cpp20>
#endif

// The version of the library: major.minor.patch.
#define APIARY_VERSION_MAJOR 0
// The minor version.
#define APIARY_VERSION_MINOR 2
// The patch version.
#define APIARY_VERSION_PATCH 0

// Opens the namespace of the library and an inline one for each minor version (before 1.0 a minor
// version may break its users), so that two versions in one program do not mix silently.
#define APIARY_NAMESPACE_BEGIN \
  namespace apiary {           \
  inline namespace v0_2 {
// Closes what APIARY_NAMESPACE_BEGIN opens.
#define APIARY_NAMESPACE_END \
  } /* namespace v0_2 */     \
  } /* namespace apiary */

// APIARY_VERIFY(condition): if the condition is false, prints it with file and line and aborts, in
// every build. It guards invariants: a GPU that is allocated twice is worse than a crash.
// APIARY_ASSERT(condition): the same in builds without NDEBUG, nothing otherwise. It checks what a
// caller must ensure ("Requires"). The host may define both macros, in the same way in every
// translation unit. Its APIARY_VERIFY must evaluate the condition exactly once.
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
// target apiary::compiled (APIARY_COMPILED) takes them from that library; others include them.
#ifdef APIARY_COMPILED
#define APIARY_INLINE
#else
#define APIARY_INLINE inline
#endif
