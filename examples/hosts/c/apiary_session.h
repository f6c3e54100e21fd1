// apiary/examples/hosts/c/apiary_session.h - schedulers of apiary for C, and for languages that call C.
// SPDX-License-Identifier: MIT
//
// A session is one scheduler. It takes lines of JSON and answers each with a line of JSON;
// examples/README.md describes both. One session must not be used by two threads at the same time;
// different sessions may.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define APIARY_SESSION_API __attribute__((visibility("default")))
#else
#define APIARY_SESSION_API
#endif

// Changes whenever a function below, an operation or the name of a field changes. New operations
// and new fields of answers do not change it.
#define APIARY_SESSION_ABI 2u

typedef struct apiary_session apiary_session;

// APIARY_SESSION_ABI of the library. A program that loads the library itself compares it first.
APIARY_SESSION_API unsigned apiary_session_abi_version(void);

// A new session. `abi` is APIARY_SESSION_ABI of the program; `kind` is "gang" or "hived".
// NULL: the library has another ABI, there is no such kind, or there is no memory.
APIARY_SESSION_API apiary_session* apiary_session_new(unsigned abi, const char* kind);

// A copy, for example to try something out; the original does not change. NULL: no memory.
APIARY_SESSION_API apiary_session* apiary_session_clone(const apiary_session* session);

// Ends the session. NULL does nothing.
APIARY_SESSION_API void apiary_session_free(apiary_session* session);

// The answer to a line, without a line break; never NULL. It is valid until the next line of this
// session, or until its end. Every fault is an answer with "result":"error", a code and a message.
APIARY_SESSION_API const char* apiary_session_line(apiary_session* session, const char* line);

#ifdef __cplusplus
}
#endif
