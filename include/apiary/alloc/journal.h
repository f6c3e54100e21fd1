// apiary/alloc/journal.h - an undo log and transactions for tentative changes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

APIARY_NAMESPACE_BEGIN

// An undo log. Each change records a call that undoes it; a rollback makes these calls in reverse
// order. Use it to try changes ("what if") without a copy of the state.
//
// Model:    write-ahead undo logging with savepoints. A record is a function, an object and the
//           bytes of the arguments.
// Requires: an object does not move while records refer to it; undo functions record nothing.
// Cost:     on_rollback O(1) amortised, nothing allocated beyond the vector of 56-byte records;
//           rollback calls each undo function once; commit O(1).
// Example:  examples/what_if.cpp
class journal {
 public:
  // A position in the log.
  using mark_type = std::size_t;

  // Records the call object.Undo(args...) or Undo(object, args...) for a rollback.
  // Requires: at most 40 bytes of trivially copyable arguments.
  template <auto Undo, class Object, class... Args>
  void on_rollback(Object& object, Args... args) {
    static_assert((std::is_trivially_copyable_v<Args> && ...));
    static_assert((std::size_t{0} + ... + sizeof(Args)) <= sizeof(record::arguments));
    record& r = records_.emplace_back();
    r.undo = &call<Undo, Object, Args...>;
    r.object = &object;
    unsigned char* at = r.arguments.data();
    ((std::memcpy(at, &args, sizeof(Args)), at += sizeof(Args)), ...);
  }

  // The current position, for a later rollback.
  [[nodiscard]] mark_type mark() const noexcept { return records_.size(); }
  // Undoes all changes since `mark`. Requires: no transaction that began after `mark` is open.
  void rollback(mark_type mark) {
    APIARY_ASSERT(mark <= records_.size());
    while (records_.size() > mark) {
      const record last = records_.back();
      records_.pop_back();
      last.undo(last.object, last.arguments.data());
    }
  }
  // Makes all recorded changes final. Requires: no transaction is open.
  void commit() noexcept {
    APIARY_ASSERT(open_ == 0);
    records_.clear();
  }

 private:
  friend class transaction;

  struct record {
    void (*undo)(void* object, const unsigned char* arguments) = nullptr;
    void* object = nullptr;
    std::array<unsigned char, 40> arguments;
  };

  template <class T>
  [[nodiscard]] static T take(const unsigned char*& at) noexcept {
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), at, sizeof(T));
    at += sizeof(T);
    return std::bit_cast<T>(bytes);
  }
  template <auto Undo, class Object, class... Args>
  static void call(void* object, const unsigned char* at) {
    // A constructor called with braces evaluates its arguments from left to right.
    struct in_order {
      in_order(Object& o, Args... args) {
        if constexpr (std::is_member_function_pointer_v<decltype(Undo)>) {
          static_cast<void>((o.*Undo)(args...));
        } else {
          static_cast<void>(Undo(o, args...));
        }
      }
    };
    in_order{*static_cast<Object*>(object), take<Args>(at)...};
  }

  detail::lean_vector<record> records_;
  std::size_t open_ = 0;  // transactions
};

// A group of changes that is undone as a whole unless it is committed. The destructor rolls back an
// open transaction. Transactions nest, and the inner one ends first. A rollback of the outer one,
// or of the journal to an earlier mark, also undoes what an inner one has committed.
//
// Example: examples/what_if.cpp
class transaction {
 public:
  // Begins a transaction at the current position of the log.
  explicit transaction(journal& log) noexcept : log_(log), mark_(log.mark()), depth_(++log.open_) {}
  // A transaction is not copied: it ends once.
  transaction(const transaction&) = delete;
  transaction& operator=(const transaction&) = delete;
  ~transaction() {
    if (open_) rollback();
  }

  // Same as journal::on_rollback. Requires: no transaction inside this one is open.
  template <auto Undo, class Object, class... Args>
  void on_rollback(Object& object, Args... args) {
    APIARY_ASSERT(open_ && log_.open_ == depth_);
    log_.on_rollback<Undo>(object, args...);
  }

  // The functions below call the member of the same name of their first argument, and a rollback
  // undoes that. Cost: that of the call, and one record.

  // Allocates a cell. `what` are the arguments of the allocator's allocate: a level, or a
  // cell_request with or without a cost. Returns nullopt if the allocator has no such cell.
  template <class Allocator, class... What>
  auto allocate(Allocator& allocator, const What&... what) {
    const auto c = allocator.allocate(what...);
    if (c) on_rollback<&Allocator::release>(allocator, *c);
    return c;
  }
  // Allocates the cell c itself. Returns whether it was allocated.
  template <class Allocator, class Cell>
  bool allocate_at(Allocator& allocator, Cell c) {
    if (!allocator.allocate_at(c)) return false;
    on_rollback<&Allocator::release>(allocator, c);
    return true;
  }
  // Releases the live cell c.
  template <class Allocator, class Cell>
  void release(Allocator& allocator, Cell c) {
    allocator.release(c);
    on_rollback<&repeat<&Allocator::allocate_at, Allocator, Cell>>(allocator, c);
  }

  // Charges one cell to the tenant's quota. Returns whether the quota had one left.
  template <class Ledger, class Tenant>
  [[nodiscard]] bool charge(Ledger& ledger, Tenant tenant, std::uint32_t level) {
    if (!ledger.charge(tenant, level)) return false;
    on_rollback<&Ledger::refund>(ledger, tenant, level);
    return true;
  }
  // Refunds one charged cell.
  template <class Ledger, class Tenant>
  void refund(Ledger& ledger, Tenant tenant, std::uint32_t level) {
    ledger.refund(tenant, level);
    on_rollback<&repeat<&Ledger::charge, Ledger, Tenant, std::uint32_t>>(ledger, tenant, level);
  }

  // Places a task on a node of a node_table.
  template <class Nodes, class Task, class Placement>
  void place(Nodes& nodes, const Task& task, Placement where) {
    nodes.place(task, where);
    on_rollback<&Nodes::remove>(nodes, task, where);
  }
  // Removes a placed task from its node.
  template <class Nodes, class Task, class Placement>
  void remove(Nodes& nodes, const Task& task, Placement where) {
    nodes.remove(task, where);
    on_rollback<&Nodes::place>(nodes, task, where);
  }

  // Assigns a leaf of a priority_usage to a class. Returns the old one.
  template <class Index, class Item, class Class>
  auto assign(Index& index, Item item, Class to) {
    const auto from = index.assign(item, to);
    on_rollback<&Index::assign>(index, item, from);
    return from;
  }
  // Sets the free GPUs of a node of a capacity_index.
  template <class Capacities>
  void set(Capacities& capacities, std::uint32_t node, std::uint32_t free) {
    on_rollback<&Capacities::set>(capacities, node, capacities.set(node, free));
  }

  // Keeps the changes and ends the transaction. Requires: it is the innermost open transaction.
  void commit() noexcept {
    close();
    // A rollback to an earlier mark needs the records of this transaction, too.
    if (log_.open_ == 0 && mark_ == 0) log_.commit();
  }
  // Undoes the changes and ends the transaction. Requires: it is the innermost open transaction.
  void rollback() {
    close();
    log_.rollback(mark_);
  }

 private:
  // Repeats a call that succeeded before.
  template <auto Call, class Object, class... Args>
  static void repeat(Object& object, Args... args) {
    const bool done = (object.*Call)(args...);
    APIARY_VERIFY(done);
  }
  void close() noexcept {
    APIARY_VERIFY(open_ && log_.open_ == depth_);
    open_ = false;
    --log_.open_;
  }

  journal& log_;
  journal::mark_type mark_;
  std::size_t depth_;
  bool open_ = true;
};

APIARY_NAMESPACE_END
