// apiary/hived/detail/snapshot_inl.h - bodies of hived::snapshot and hived::restore.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/status.h>
#include <apiary/hived/detail/hived_inl.h>
#include <apiary/hived/detail/snapshot_text.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/hived.h>

#include <absl/status/status.h>

#include <string>
#include <string_view>
#include <utility>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE std::string hived::snapshot() const {
  return detail::hived_snapshot_writer::write(cells(), gangs(), layout().hash(), hash());
}

APIARY_INLINE absl::Status hived::restore(std::string_view snapshot) {
  detail::hived_state state(layout());
  APIARY_RETURN_IF_ERROR(detail::hived_snapshot_reader::read(snapshot, core_->catalog, state));
  begin_change();
  core_->state = std::move(state);
  return absl::OkStatus();
}

APIARY_NAMESPACE_END
