// apiary/hived/detail/snapshot_text.h - the state of a HiveD scheduler as text, written and read.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/detail/state_checks.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
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
//   for each gang      in the order of the slots, its fields (see transfer)
struct hived_snapshot {
  static constexpr std::string_view magic = "hived-snapshot ";
  static constexpr std::uint64_t version = 1;

  // The fields of a gang in the order of the text. Archive writes or reads them: number, id (32
  // bits), flags (bits from the lowest on), length (of a list), leaves, levels (one for each leaf),
  // name. Gang is const for a writer.
  template <class Archive, class Gang>
  static void transfer(Archive& archive, Gang& gang) {
    auto& r = gang.request;
    archive.id(r.job);
    archive.id(r.tenant);
    archive.id(r.priority);
    archive.id(r.leaf_type);
    bool preempting = gang.state == gang_state::preempting;
    bool pinned = r.pinned.has_value();
    bool constrained = r.constraints.any();
    bool in_chains = !r.chains.empty();
    archive.flags(r.lazy, preempting, gang.downgraded, gang.recovered, gang.moved,
                  gang.levels_known, pinned, constrained, in_chains);
    if constexpr (Archive::reads) {
      if (preempting) gang.state = gang_state::preempting;
      if (pinned) r.pinned.emplace();
    }
    if (pinned) archive.number(*r.pinned);
    archive.id(gang.ends_for);
    archive.id(gang.cluster);
    archive.length(r.groups);
    for (auto& m : r.groups) {
      archive.number(m.tasks);
      archive.number(m.gpus);
    }
    if (constrained) transfer_constraints(archive, archive.constraints(r));
    if (in_chains) archive.length(r.chains);
    for (auto& c : r.chains) archive.number(c);
    if (!archive.begin_leaves(gang)) return;
    archive.leaves(gang.leaves);
    archive.levels(gang.lost_levels);
    archive.length(gang.missing);
    for (auto& m : gang.missing) {
      archive.number(m.index);
      archive.number(m.device);
      archive.name(m.node);
    }
    archive.length(gang.downgraded_victims);
    for (auto& job : gang.downgraded_victims) archive.id(job);
  }
  template <class Archive, class Constraints>
  static void transfer_constraints(Archive& archive, Constraints& constraints) {
    archive.id(constraints.required);
    archive.id(constraints.preferred);
    archive.length(constraints.groups);
    for (auto& m : constraints.groups) {
      for (auto* counts : {&m.slices, &m.spread}) {
        archive.length(*counts);
        for (auto& s : *counts) {
          archive.id(s.level);
          archive.number(s.tasks);
        }
      }
      archive.id(m.leader);
    }
  }
  // An id, a level or a priority as 32 bits.
  template <class Id>
  [[nodiscard]] static std::uint32_t bits_of(Id id) noexcept {
    if constexpr (requires { id.value; })
      return id.value;
    else
      return static_cast<std::uint32_t>(id);
  }
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
  static constexpr bool reads = false;

  [[nodiscard]] static std::string write(const hived_cells& cells, const gang_table& gangs,
                                         std::uint64_t layout_hash, std::uint64_t state_hash) {
    const std::string all = body(cells, gangs);
    std::string text(hived_snapshot::magic);
    for (const std::uint64_t n : {hived_snapshot::version, layout_hash, state_hash,
                                  hived_snapshot::checksum(layout_hash, state_hash, all)})
      text += std::to_string(n) + ' ';
    return text + std::to_string(all.size()) + '\n' + all;
  }
  // The text without its first line.
  [[nodiscard]] static std::string body(const hived_cells& cells, const gang_table& gangs) {
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
      if (!gang.request.job.valid()) continue;
      hived_snapshot::transfer(writer, gang);
      writer.end_line();
    }
    return std::move(writer.text_);
  }

 private:
  template <class... Numbers>
  void put(Numbers... numbers) {
    ((text_ += std::to_string(numbers), text_ += ' '), ...);
  }
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

  friend struct hived_snapshot;
  void number(std::uint32_t n) { put(n); }
  template <class Id>
  void id(Id one) {
    put(hived_snapshot::bits_of(one) + 1);
  }
  template <class... Bools>
  void flags(Bools... set) {
    std::uint64_t all = 0;
    std::uint64_t bit = 1;
    ((all |= set ? bit : 0, bit *= 2), ...);
    put(all);
  }
  template <class List>
  void length(const List& list) {
    put(list.size());
  }
  void name(const std::string& text) {
    put(text.size());
    text_ += text + ' ';
  }
  [[nodiscard]] static const request_constraints& constraints(const gang_request& r) noexcept {
    return *r.constraints;
  }
  [[nodiscard]] static bool begin_leaves(const gang_record&) noexcept { return true; }
  void leaves(const std::vector<chain_leaf>& all) {
    for (const chain_leaf& l : all)
      add_to_run(l.chain, l.leaf.value + 1, 0, l.leaf.valid() ? 1 : 0);
    end_runs();
  }
  void levels(const std::vector<level_t>& all) {
    for (const level_t l : all) add_to_run(l + 1, 0, 0, 0);
    end_runs();
  }

  std::string text_{};
  std::uint32_t run_ = 0;  // length of the current run
  std::uint32_t first_a_ = 0;
  std::uint32_t first_b_ = 0;
};

// Reads a snapshot into the state of a scheduler without gangs. A text that violates an invariant
// is an error, even if its checksum and its hashes are right. While it reads, it checks what
// changes of the state require, so that nothing aborts; at the end it checks gangs and bindings.
// All gangs together may have 64 times as many leaves as one recovered gang. One gang may have more
// than a recovered one: it was moved from a larger cluster.
// Cost:   O(cells + leaves of all gangs * levels), and a sort of the gangs.
// Memory: O(bytes of the text + cells), and 12 bytes for each leaf of a gang, ended tasks included.
class hived_snapshot_reader {
 public:
  static constexpr bool reads = true;

  // Requires: the state of a new scheduler with this catalog. After an error it is useless.
  [[nodiscard]] static absl::Status read(std::string_view text, const hived_catalog& catalog,
                                         hived_state& state) {
    return hived_snapshot_reader(text, catalog, state).read_all();
  }
  // The same for a text without its first line.
  [[nodiscard]] static absl::Status read_body(std::string_view text, const hived_catalog& catalog,
                                              hived_state& state) {
    hived_snapshot_reader reader(text, catalog, state);
    reader.read_parts();
    reader.check_all();
    return reader.good_ ? absl::OkStatus() : absl::DataLossError(reader.what_ + reader.where_);
  }

 private:
  static constexpr std::uint32_t max32 = (std::numeric_limits<std::uint32_t>::max)();

  hived_snapshot_reader(std::string_view text, const hived_catalog& catalog, hived_state& state)
      : rest_(text),
        catalog_(catalog),
        state_(state),
        cells_(state.cells_),
        max_leaves_(64 * catalog.max_leaves()) {}

  [[nodiscard]] static absl::Status damaged(const std::string& what) {
    return absl::DataLossError("the snapshot is damaged: " + what);
  }
  [[nodiscard]] absl::Status read_all() {
    if (!rest_.starts_with(hived_snapshot::magic))
      return absl::InvalidArgumentError(
          "this is no snapshot of a HiveD scheduler: it starts with \"" +
          std::string(rest_.substr(0, 16)) + '"');
    rest_.remove_prefix(hived_snapshot::magic.size());
    const std::uint64_t version = number();
    if (good_ && version != hived_snapshot::version) {
      return absl::UnimplementedError("the snapshot has version " + std::to_string(version) +
                                      "; this library reads version " +
                                      std::to_string(hived_snapshot::version));
    }
    const std::uint64_t layout = number();
    const std::uint64_t hash = number();
    const std::uint64_t checksum = number();
    const std::uint64_t size = number();
    if (!good_) return damaged("its first line cannot be read");
    if (rest_.size() != size) {
      return damaged(std::to_string(rest_.size()) + " bytes follow the first line; it announces " +
                     std::to_string(size));
    }
    if (hived_snapshot::checksum(layout, hash, rest_) != checksum)
      return damaged("its checksum is wrong");
    if (layout != catalog_.layout().hash()) {
      return absl::FailedPreconditionError(
          "the snapshot is of another configuration: its layout has hash " +
          std::to_string(layout) + ", that of the scheduler " +
          std::to_string(catalog_.layout().hash()) +
          "; restore with the configuration of the snapshot, then call reconfigure");
    }
    read_parts();
    if (good_ && state_.hash() != hash) {
      fail("its state has hash " + std::to_string(state_.hash()) + "; the first line announces " +
           std::to_string(hash));
    }
    check_all();
    return good_ ? absl::OkStatus() : damaged(what_);
  }
  void read_parts() {
    read_bad();
    read_bindings();
    for (const chain_leaf& l : bad_)
      if (good_) cells_.set_health(l.chain, l.leaf, false);
    read_gangs();
    if (good_ && !rest_.empty()) fail("text after the last gang");
  }

  bool fail(const std::string& what) {
    if (good_) what_ = what;
    good_ = false;
    return false;
  }
  // The next number; 0 after a fault.
  std::uint64_t number(std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)()) {
    std::uint64_t n = 0;
    std::size_t i = 0;
    for (; good_ && i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9'; ++i) {
      const auto digit = static_cast<std::uint64_t>(rest_[i] - '0');
      if (n > (most - digit) / 10) fail("a number is too large");
      n = n * 10 + digit;
    }
    if (good_ && (i == 0 || i == rest_.size() || (rest_[i] != ' ' && rest_[i] != '\n')))
      fail("a number is missing");
    if (!good_) return 0;
    rest_.remove_prefix(i + 1);
    return n;
  }
  std::uint32_t number32() { return static_cast<std::uint32_t>(number(max32)); }
  // The length of a list; each element takes two bytes at least.
  std::size_t length() {
    const std::uint64_t n = number();
    if (n > rest_.size() / 2) fail("a list is longer than the text");
    return good_ ? static_cast<std::size_t>(n) : 0;
  }
  // Calls f(a, b) for each element of a list of runs until it returns false.
  template <class F>
  void read_runs(std::uint32_t step_a, F&& f) {
    while (const std::uint32_t n = number32()) {
      const std::uint32_t a = number32();
      const std::uint32_t b = number32();
      for (std::uint32_t i = 0; good_ && i < n; ++i)
        if (!f(a + i * step_a, b, i)) return;
    }
  }

  void read_bad() {
    for (std::uint32_t c = 0; good_ && c < cells_.num_chains(); ++c) {
      const id_range<cell_id> leaves = cells_.chain(c).tree().cells(0);
      read_runs(1, [&](std::uint32_t leaf, std::uint32_t, std::uint32_t) {
        if (!leaves.contains(cell_id(leaf))) return fail("a bad leaf cell does not exist");
        const chain_leaf l{c, cell_id(leaf)};
        if (!bad_.empty() && l <= bad_.back()) return fail("its bad leaf cells do not ascend");
        bad_.push_back(l);
        return true;
      });
    }
  }
  void read_bindings() {
    for (std::uint32_t c = 0; good_ && c < cells_.num_clusters(); ++c) {
      std::uint32_t next = 0;
      read_runs(1, [&](std::uint32_t v, std::uint32_t p, std::uint32_t i) {
        if (v < next) return fail("its bound cells do not ascend");
        next = v + 1;
        if (bind(vc_chain_id(c), cell_id(v), cell_id(p + i))) return true;
        where_ = text_of({": cluster ", c, " cell ", v, ", bound to cell ", p + i});
        return false;
      });
    }
  }
  bool bind(vc_chain_id c, cell_id v, cell_id p) {
    const virtual_cluster& cluster = cells_.cluster(c);
    const physical_chain& chain = cells_.chain(cluster.chain());
    if (v.value >= cluster.tree().num_cells() || p.value >= chain.tree().num_cells())
      return fail("a bound cell does not exist");
    const level_t l = cluster.tree().level(v);
    if (l != chain.tree().level(p)) return fail("cells of different levels are bound");
    const cell_id above = cluster.tree().parent(v, l);
    if (cells_.is_pinned(c) && !above.valid() && cluster.image(v) == p) return true;
    if (cluster.image(v).valid() || chain.owner(p).cell.valid())
      return fail("a cell is bound twice");
    const bool fits = above.valid() ? cluster.image(above).valid() &&
                                          cluster.image(above) == chain.tree().parent(p, l)
                                    : chain.cells().can_allocate_at(p);
    if (!fits) return fail("a cell is bound outside its tenant's cells");
    cells_.bind(c, v, l, p);
    return true;
  }

  void read_gangs() {
    const std::size_t slots = length();
    std::vector<gang_slot> vacant(length());
    used_.assign(slots, true);
    for (gang_slot& s : vacant) {
      s = gang_slot(number32());
      if (!good_ || s.value >= slots || !used_[s.value]) {
        fail("a slot is vacant twice");
        return;
      }
      used_[s.value] = false;
    }
    const std::size_t gangs = slots - vacant.size();
    for (std::size_t s = slots; s-- > 0;)
      if (used_[s]) vacant.push_back(gang_slot(static_cast<std::uint32_t>(s)));
    state_.gangs_.set_vacant(std::move(vacant));
    for (std::size_t i = 0; good_ && i < gangs; ++i) {
      gang_record gang;
      hived_snapshot::transfer(*this, gang);
      if (!good_ || !is_possible(gang)) {
        const std::string name = hived_catalog::name(gang.request.job) + ": ";
        if (!what_.starts_with(name)) what_ = name + what_;
        return;
      }
      add(std::move(gang));
    }
  }

  friend struct hived_snapshot;
  void number(std::uint32_t& n) { n = number32(); }
  template <class Id>
  void id(Id& one) {
    one = Id(number32() - 1);
  }
  template <class... Bools>
  void flags(Bools&... set) {
    std::uint64_t rest = number((std::uint64_t{1} << sizeof...(set)) - 1);
    ((set = rest % 2 != 0, rest /= 2), ...);
  }
  template <class List>
  void length(List& list) {
    list.resize(length());
  }
  void name(std::string& text) {
    const std::uint64_t size = number();
    if (!good_ || size >= rest_.size()) {
      fail("a name is cut off");
      return;
    }
    text = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(text.size() + 1);
  }
  [[nodiscard]] static request_constraints& constraints(gang_request& r) {
#ifdef APIARY_COMPILED
    return r.constraints.edit();
#else
    return r.constraints.values_;
#endif
  }
  // Checks the request, and that so many leaves may be read.
  bool begin_leaves(const gang_record& gang) {
    if (!good_) return false;
    if (const absl::Status status = catalog_.check(gang.request, true); !status.ok())
      return fail(std::string(status.message()));
    size_ = 0;
    for (const task_group& m : gang.request.groups) size_ += std::uint64_t{m.tasks} * m.gpus;
    if (size_ > max_leaves_ - leaves_) {
      return fail("it has " + std::to_string(size_) +
                  " leaf cells, ended tasks included; all gangs together may have " +
                  std::to_string(max_leaves_));
    }
    leaves_ += size_;
    return true;
  }
  void leaves(std::vector<chain_leaf>& all) {
    read_runs(0, [&](std::uint32_t c, std::uint32_t leaf, std::uint32_t i) {
      if (all.size() == size_) return fail("more leaf cells than its tasks have");
      all.push_back({c, cell_id(leaf == 0 ? max32 : leaf - 1 + i)});
      return true;
    });
    if (all.size() != size_) fail("fewer leaf cells or levels than its tasks have");
  }
  void levels(std::vector<level_t>& all) {
    read_runs(0, [&](std::uint32_t level, std::uint32_t, std::uint32_t) {
      if (all.size() == size_) return fail("more levels than leaf cells");
      all.push_back(level - 1);
      return true;
    });
    if (!all.empty() && all.size() != size_) fail("fewer leaf cells or levels than its tasks have");
  }
  // Whether the leaves of a gang can be held as the gang says. Sets the fault if not.
  bool is_possible(const gang_record& gang) {
    if (state_.gangs_.find(gang.request.job)) return fail("it occurs twice");
    if (gang.cluster.valid() && gang.cluster.value >= cells_.num_clusters())
      return fail("its virtual cluster does not exist");
    if (gang.state == gang_state::preempting && !gang.guaranteed())
      return fail("it is preempting without cells of its tenant");
    for (const chain_leaf& l : gang.leaves) {
      if (!l.leaf.valid()) continue;
      if (l.chain >= cells_.num_chains() || !cells_.chain(l.chain).tree().cells(0).contains(l.leaf))
        return fail("a leaf cell does not exist");
      const vc_chain_id owner = cells_.chain(l.chain).owner(l.leaf).cluster;
      if (gang.guaranteed() && owner != gang.cluster)
        return fail("a leaf cell is not bound to its tenant's cells");
    }
    return true;
  }
  void add(gang_record gang) {
    const bool claims = gang.state == gang_state::preempting;
    const bool guaranteed = gang.guaranteed();
    const gang_slot slot = state_.gangs_.add(std::move(gang));
    for (const chain_leaf& l : state_.gangs_[slot].leaves) {
      if (!l.leaf.valid()) continue;
      leaf_holders to = cells_.chain(l.chain).holders(l.leaf);
      gang_slot& holder = claims ? to.claimer : to.user;
      if (holder.valid()) fail(checks().held_twice(l, holder, slot));
      holder = slot;
      if (!claims) to.guaranteed = guaranteed;
      cells_.hold(l.chain, l.leaf, to);
    }
    state_.enter(slot);
  }

  // Checks the invariants that nothing above depends on.
  void check_all() {
    if (!good_) return;
    if (const std::string fault = checks().first_fault(bad_); !fault.empty()) fail(fault);
  }
  [[nodiscard]] hived_state_checks checks() const {
    return {catalog_, cells_, state_.gangs_, used_};
  }

  std::string_view rest_;
  const hived_catalog& catalog_;
  hived_state& state_;
  hived_cells& cells_;
  std::uint64_t max_leaves_;  // of all gangs
  std::uint64_t leaves_ = 0;  // of the gangs read so far
  std::uint64_t size_ = 0;    // leaves of the gang that is read
  std::vector<bool> used_{};  // whether a slot has a gang
  bool good_ = true;
  std::string what_{};   // the first fault
  std::string where_{};  // the cells of a binding that it concerns
  std::vector<chain_leaf> bad_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
