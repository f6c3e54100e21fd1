// apiary/examples/hosts/c/apiary_session.cpp - the five functions of apiary_session.h.
// SPDX-License-Identifier: MIT
#include "apiary_session.h"

#include "../../programs/any_session.h"
#include "../../programs/session_request.h"

#include <new>
#include <string>
#include <string_view>

struct apiary_session {
  explicit apiary_session(example::session_kind kind) : scheduler(kind) {}

  example::any_session scheduler;
  std::string answer{};
  bool broken = false;  // memory ran out in the middle of a line
};

unsigned apiary_session_abi_version(void) { return APIARY_SESSION_ABI; }

apiary_session* apiary_session_new(unsigned abi, const char* kind) {
  const std::string_view name = kind == nullptr ? "" : kind;
  if (abi != APIARY_SESSION_ABI || (name != "gang" && name != "hived")) return nullptr;
  try {
    using example::session_kind;
    return new apiary_session(name == "gang" ? session_kind::gang : session_kind::hived);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

apiary_session* apiary_session_clone(const apiary_session* session) {
  if (session == nullptr) return nullptr;
  try {
    return new apiary_session(*session);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void apiary_session_free(apiary_session* session) { delete session; }

const char* apiary_session_line(apiary_session* session, const char* line) {
  if (session == nullptr || line == nullptr)
    return R"({"result":"error","code":"INVALID_ARGUMENT","message":"no session, or no line"})";
  constexpr const char* broken =
      R"({"result":"error","code":"DATA_LOSS","message":"memory ran out; end this session"})";
  if (session->broken) return broken;
  try {
    session->answer = session->scheduler.answer(line);
    return session->answer.c_str();
  } catch (...) {
    session->broken = true;
    return broken;
  }
}
