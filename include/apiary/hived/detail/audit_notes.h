// apiary/hived/detail/audit_notes.h - the input of an audit, and the violations that it finds.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/violation.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A number or an id as text.
[[nodiscard]] inline std::string audit_text(std::uint64_t n) { return std::to_string(n); }
[[nodiscard]] inline std::string audit_text(cell_id c) {
  return c.valid() ? audit_text(c.value) : std::string("none");
}

// The state that is audited, texts for its cells and gangs, and the violations found. Requires:
// layout, cells and gangs outlive it and do not change. Cost: O(gangs log gangs) to construct.
struct audit_notes {
  const hived_layout& layout;
  const hived_cells& cells;
  const gang_table& gangs;
  std::vector<gang_slot> all;  // by job
  std::vector<bool> known{};   // whether a slot has a gang
  std::vector<violation> found{};

  audit_notes(const hived_layout& in, const hived_cells& of, const gang_table& by)
      : layout(in), cells(of), gangs(by), all(by.by_job()) {
    for (const gang_slot s : all) {
      if (s.value >= known.size()) known.resize(std::size_t{s.value} + 1, false);
      known[s.value] = true;
    }
  }

  void report(const char* invariant, std::string witness) {
    found.push_back({invariant, std::move(witness)});
  }
  // Reports the invariant with the text of witness() (ids, names and counts), unless it holds.
  void expect(bool holds, const char* invariant, const auto& witness) {
    if (!holds) report(invariant, witness());
  }

  [[nodiscard]] bool exists(gang_slot s) const noexcept {
    return s.value < known.size() && known[s.value];
  }
  // The text of a gang, of a leaf of a chain, and of a cell of a chain or of a virtual cluster.
  [[nodiscard]] std::string gang(gang_slot s) const {
    if (!s.valid()) return "no gang";
    return exists(s) ? "gang " + audit_text(gangs[s].request.job.value)
                     : "unknown slot " + audit_text(s.value);
  }
  [[nodiscard]] std::string leaf(std::uint32_t c, cell_id at) const {
    const physical_chain& chain = cells.chain(c);
    const std::uint32_t node = chain.node_of(at);
    return "leaf " + audit_text(at.value - chain.first_leaf(node).value) + " of node " +
           layout.chains[c].node_names[node];
  }
  [[nodiscard]] std::string cell_of_chain(std::uint32_t c, cell_id at) const {
    return layout.chains[c].name + " cell " + audit_text(at);
  }
  [[nodiscard]] std::string cell_of_tenant(vc_chain_id c, cell_id at) const {
    const std::uint32_t tenant = cells.cluster(c).tenant().value;
    return layout.tenants[tenant].name + " (cluster " + audit_text(c.value) + ") cell " +
           audit_text(at);
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
