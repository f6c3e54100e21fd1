// apiary/examples/hosts/c/apiary_session.cpp - the five functions of apiary_session.h.
// SPDX-License-Identifier: MIT
#include "apiary_session.h"

#include "../../programs/gang_session.h"
#include "../../programs/hived_session.h"

#include <absl/status/status.h>

#include <cstddef>
#include <new>
#include <string>
#include <string_view>
#include <variant>

struct apiary_session {
  std::variant<example::gang_session, example::hived_session> scheduler{};
  std::string answer{};
  bool broken = false;  // memory ran out in the middle of a line
};

namespace {

constexpr std::size_t max_line = example::gang_session::max_line;

std::string answer_of(example::gang_session& session, std::string_view line) {
  return session.answer(line);
}
std::string answer_of(example::hived_session& session, std::string_view line) {
  if (line.size() > max_line)
    return session.refuse(absl::InvalidArgumentError("a line longer than 16 MiB"));
  return session.answer(std::string(line));
}

}  // namespace

unsigned apiary_session_abi_version(void) { return APIARY_SESSION_ABI; }

apiary_session* apiary_session_new(unsigned abi, const char* kind) {
  const std::string_view name = kind == nullptr ? "" : kind;
  if (abi != APIARY_SESSION_ABI || (name != "gang" && name != "hived")) return nullptr;
  try {
    auto* const session = new apiary_session;
    if (name == "hived") session->scheduler.emplace<example::hived_session>();
    return session;
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
    session->answer = std::visit([line](auto& scheduler) { return answer_of(scheduler, line); },
                                 session->scheduler);
    return session->answer.c_str();
  } catch (...) {
    session->broken = true;
    return broken;
  }
}
