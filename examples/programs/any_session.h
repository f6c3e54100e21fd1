// A session that chooses its scheduler by the configuration. To be copied.
// SPDX-License-Identifier: MIT
#pragma once

#include "gang_session.h"
#include "hived_session.h"
#include "session.h"
#include "session_request.h"
#include <apiary/hived/hived_config.h>

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace example {

// A session whose scheduler is given, or is chosen by the lines `config` until one is accepted:
// HiveD if a line has a physicalCluster or virtualClusters, the gang scheduler otherwise.
class any_session {
 public:
  static constexpr std::size_t max_line = gang_session::max_line;

  explicit any_session(session_kind kind = session_kind::any)
      : chooses_(kind == session_kind::any) {
    if (kind == session_kind::hived) session_.emplace<hived_session>();
  }
  // As session::answer.
  std::string answer(std::string_view line) {
    if (chooses_) choose(line);
    return std::visit([line](auto& s) { return s.answer(line); }, session_);
  }
  // Chooses HiveD. Returns the answer to a line `config`, and whether the configuration is
  // accepted.
  std::pair<std::string, bool> configure(const absl::StatusOr<apiary::hived_config>& config) {
    chooses_ = false;
    auto& hived = session_.emplace<hived_session>();
    std::string answer = hived.configure(config);
    return {std::move(answer), hived.scheduler() != nullptr};
  }

 private:
  void choose(std::string_view line) {
    chooses_ = std::visit([](const auto& s) { return s.scheduler() == nullptr; }, session_);
    if (!chooses_ || line.size() > max_line) return;
    const auto e = session_reader::read_op(line);
    if (!e.ok() || e->op != "config") return;
    const std::uint64_t lines = std::visit([](const auto& s) { return s.num_lines(); }, session_);
    if (e->document.find("physicalCluster") || e->document.find("virtualClusters"))
      session_.emplace<hived_session>(lines);
    else
      session_.emplace<gang_session>(lines);
  }

  std::variant<gang_session, hived_session> session_{};
  bool chooses_;
};

}  // namespace example
