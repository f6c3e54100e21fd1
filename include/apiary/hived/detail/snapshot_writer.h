// apiary/hived/detail/snapshot_writer.h - writes the state of a HiveD scheduler as text.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/ids.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The text starts with the line "hived-snapshot <version> <layout hash> <state hash> <checksum>
// <bytes after this line>". Numbers are decimal, each followed by a space or a line break. Ids and
// levels are stored plus 1, modulo 2^32, so that 0 means not valid. A list ends with 0 instead of
// its next element, or starts with its length. A run "n a b" stands for (a, b), (a + 1, b + 1), ...
// Then follow:
//   for each chain     the bad leaves, as runs "n leaf"
//   for each cluster   the bound cells, parents first, as runs "n virtual physical"
//   slots              the number of slots, the vacant ones in their order
//   for each gang      in the order of the slots, its fields (see write and read_gang)
struct hived_snapshot {
  static constexpr std::string_view magic = "hived-snapshot ";
  static constexpr std::uint64_t version = 1;

  // Flags of a gang.
  static constexpr std::uint64_t lazy = 1;
  static constexpr std::uint64_t preempting = 2;
  static constexpr std::uint64_t downgraded = 4;
  static constexpr std::uint64_t recovered = 8;
  static constexpr std::uint64_t moved = 16;
  static constexpr std::uint64_t levels_known = 32;
  static constexpr std::uint64_t pinned = 64;
  static constexpr std::uint64_t constrained = 128;
  static constexpr std::uint64_t in_chains = 256;
  static constexpr std::uint64_t all_flags = 511;

  [[nodiscard]] static std::uint64_t checksum(std::uint64_t layout, std::uint64_t state,
                                              std::string_view body) noexcept {
    return digest().add(version).add(layout).add(state).add(body).value();
  }
};

// Writes a snapshot.
// Cost: O(cells of the tenants + leaves of all gangs + slots), and in a chain with bad leaves
//       O(cells of its top level + bad leaves * levels * fan-out).
class hived_snapshot_writer {
 public:
  [[nodiscard]] static std::string write(const hived_cells& cells, const gang_table& gangs,
                                         std::uint64_t layout_hash, std::uint64_t state_hash) {
    hived_snapshot_writer writer;
    for (std::uint32_t c = 0; c < cells.num_chains(); ++c) writer.put_bad(cells.chain(c));
    for (std::uint32_t c = 0; c < cells.num_clusters(); ++c)
      writer.put_bindings(cells.cluster(vc_chain_id(c)));
    const auto slots = static_cast<std::uint32_t>(gangs.size() + gangs.vacant().size());
    writer.put(slots, gangs.vacant().size());
    for (const gang_slot s : gangs.vacant()) writer.put(s.value);
    writer.end_line();
    for (std::uint32_t s = 0; s < slots; ++s) {
      const gang_record& gang = gangs[gang_slot(s)];
      if (gang.request.job.valid()) writer.put_gang(gang);
    }
    const std::string& body = writer.text_;
    std::string text(hived_snapshot::magic);
    for (const std::uint64_t n : {hived_snapshot::version, layout_hash, state_hash,
                                  hived_snapshot::checksum(layout_hash, state_hash, body)})
      text += std::to_string(n) + ' ';
    return text + std::to_string(body.size()) + '\n' + body;
  }

 private:
  template <class... Numbers>
  void put(Numbers... numbers) {
    ((text_ += std::to_string(numbers), text_ += ' '), ...);
  }
  // An id, a level or a priority.
  void put_id(std::uint32_t value) { put(value + 1); }
  void end_line() { text_.back() = '\n'; }
  // Adds (a, b) to the current run if it continues it, otherwise starts a new run.
  void add_to_run(std::uint32_t a, std::uint32_t b, std::uint32_t step_a, std::uint32_t step_b) {
    if (run_ > 0 && a == first_a_ + run_ * step_a && b == first_b_ + run_ * step_b &&
        (b == 0) == (first_b_ == 0)) {
      ++run_;
      return;
    }
    end_run();
    first_a_ = a;
    first_b_ = b;
    run_ = 1;
  }
  void end_run() {
    if (run_ > 0) put(run_, first_a_, first_b_);
    run_ = 0;
  }
  void end_runs() {
    end_run();
    put(0);
  }
  void put_bad(const physical_chain& chain) {
    if (chain.any_bad()) {
      const auto add = [&](cell_id leaf) { add_to_run(leaf.value, 0, 1, 0); };
      for (const cell_id top : chain.tree().cells(chain.tree().num_levels() - 1))
        chain.healthy().for_each_bad_leaf(top, add);
    }
    end_runs();
    end_line();
  }
  void put_bindings(const virtual_cluster& cluster) {
    for (std::uint32_t v = 0; v < cluster.tree().num_cells(); ++v) {
      const cell_id image = cluster.image(cell_id(v));
      if (image.valid()) add_to_run(v, image.value, 1, 1);
    }
    end_runs();
    end_line();
  }
  void put_gang(const gang_record& gang) {
    using snapshot = hived_snapshot;
    const gang_request& r = gang.request;
    put_id(r.job.value);
    put_id(r.tenant.value);
    put_id(static_cast<std::uint32_t>(r.priority));
    put_id(r.leaf_type.value);
    std::uint64_t flags = 0;
    const auto add_flag = [&](bool set, std::uint64_t flag) { flags |= set ? flag : 0; };
    add_flag(r.lazy, snapshot::lazy);
    add_flag(gang.state == gang_state::preempting, snapshot::preempting);
    add_flag(gang.downgraded, snapshot::downgraded);
    add_flag(gang.recovered, snapshot::recovered);
    add_flag(gang.moved, snapshot::moved);
    add_flag(gang.levels_known, snapshot::levels_known);
    add_flag(r.pinned.has_value(), snapshot::pinned);
    add_flag(r.constraints.any(), snapshot::constrained);
    add_flag(!r.chains.empty(), snapshot::in_chains);
    put(flags);
    if (r.pinned) put(*r.pinned);
    put_id(gang.ends_for.value);
    put_id(gang.cluster.value);
    put(r.groups.size());
    for (const task_group& m : r.groups) put(m.tasks, m.gpus);
    if (r.constraints.any()) put_constraints(*r.constraints);
    if (!r.chains.empty()) put(r.chains.size());
    for (const std::uint32_t c : r.chains) put(c);
    for (const chain_leaf& l : gang.leaves)
      add_to_run(l.chain, l.leaf.value + 1, 0, l.leaf.valid() ? 1 : 0);
    end_runs();
    for (const level_t l : gang.lost_levels) add_to_run(l + 1, 0, 0, 0);
    end_runs();
    put(gang.missing.size());
    for (const gang_record::missing_leaf& m : gang.missing) {
      put(m.index, m.device, m.node.size());
      text_ += m.node + ' ';
    }
    put(gang.downgraded_victims.size());
    for (const job_id job : gang.downgraded_victims) put_id(job.value);
    end_line();
  }
  void put_constraints(const request_constraints& constraints) {
    put_id(constraints.required);
    put_id(constraints.preferred);
    put(constraints.groups.size());
    for (const request_constraints::of_group& m : constraints.groups) {
      for (const auto* counts : {&m.slices, &m.spread}) {
        put(counts->size());
        for (const level_count& s : *counts) {
          put_id(s.level);
          put(s.tasks);
        }
      }
      put_id(m.leader);
    }
  }

  std::string text_{};
  std::uint32_t run_ = 0;  // length of the current run
  std::uint32_t first_a_ = 0;
  std::uint32_t first_b_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
