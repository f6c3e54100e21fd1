// A session: reads lines of JSON, answers each with a line. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "../text/json.h"
#include "session_request.h"
#include <apiary/core/status.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace example {

// A session with one scheduler; `Verbs` is gang_verbs or hived_verbs. An answer depends only on the
// line and the lines before it, so that a recorded log, read again, gives the same answers and the
// same hashes.
//
// An error changes nothing except the count of lines. A copy is independent. If memory runs out
// while a line is carried out, the change may be incomplete: end the session.
template <class Verbs>
class session {
 public:
  // The longest line.
  static constexpr std::size_t max_line = std::size_t{1} << 24;

  session() = default;
  // `lines` were answered before the first one.
  explicit session(std::uint64_t lines) : lines_(lines) {}

  // The answer to a line, without a line break.
  std::string answer(std::string_view line) {
    json_object out = begin();
    const absl::Status status = carry_out(line, out);
    return end(status, std::move(out));
  }
  // The answer to a line `config` with this configuration, for HiveD.
  std::string configure(const absl::StatusOr<apiary::hived_config>& config) {
    json_object out = begin();
    const absl::Status status = verbs_.start(config, out);
    return end(status, std::move(out));
  }

  // The scheduler; null until a configuration has been accepted.
  [[nodiscard]] const auto* scheduler() const noexcept { return verbs_.scheduler(); }
  [[nodiscard]] std::size_t num_names() const noexcept { return verbs_.num_names(); }
  [[nodiscard]] std::uint64_t num_lines() const noexcept { return lines_; }

 private:
  absl::Status carry_out(std::string_view line, json_object& out) {
    if (line.size() > max_line) return absl::InvalidArgumentError("a line longer than 16 MiB");
    APIARY_ASSIGN_OR_RETURN(session_request e, session_reader::read_op(line));
    if (e.op == "note" || e.op == "final") return session_ok(out);
    for (const auto& verb : Verbs::verbs) {
      if (verb.name != e.op) continue;
      if (verb.fields != "*")
        APIARY_RETURN_IF_ERROR(session_reader::read_fields(verb.fields, Verbs::kind, e));
      if (verbs_.scheduler() == nullptr && e.op != "config")
        return absl::FailedPreconditionError("there is no configuration");
      return (verbs_.*verb.run)(e, out);
    }
    return absl::UnimplementedError("op: there is no " + json_text(e.op));
  }

  [[nodiscard]] json_object begin() const {
    json_object out;
    out.key("i").value(lines_);
    return out;
  }
  std::string end(const absl::Status& status, json_object out) {
    if (!status.ok()) {
      out = begin();
      out.key("result").value("error");
      out.key("code").value(absl::StatusCodeToString(status.code()));
      out.key("message").value(std::string(status.message()));
    }
    ++lines_;
    return out.key("hash").value(hex(verbs_.hash())).str();
  }

  Verbs verbs_;
  std::uint64_t lines_ = 0;
};

}  // namespace example
