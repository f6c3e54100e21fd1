# apiary/tests/mutants/alloc.cmake - mutants of alloc; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(buddy_equal_live alloc/buddy_allocator.h "dropped term: a granted cell equals one whose children are all granted"
  FROM [[a.free_ == b.free_ && a.live_ == b.live_]] TO [[a.free_ == b.free_]])
mutant(buddy_highest alloc/buddy_allocator.h "off by one: cells of the highest level are not split"
  FROM [[(2U << request.highest) - 1]] TO [[(1U << request.highest) - 1]])
mutant(buddy_hint alloc/buddy_allocator.h "forgotten update: a released cell below the hint is not found"
  FROM [[hint = first < hint ? first : hint;]] TO [[]] STATEMENT)
mutant(buddy_levels alloc/buddy_allocator.h "forgotten update: the last free cell of a level leaves its bit"
  FROM [[free_count_[l] == 0 ? 1U : 0U]] TO [[0U]])
mutant(buddy_cheapest_tie alloc/buddy_allocator.h "wrong tie: of equal prices the last cell is taken"
  FROM [[best.valid() && price >= least]] TO [[best.valid() && price > least]])
mutant(buddy_cheapest_usable alloc/buddy_allocator.h "dropped condition: the cheapest cell need not be usable"
  FROM [[request.usable != nullptr && !request.usable->test(c.value)]]
  TO [[request.usable != nullptr && !request.usable->test(c.value) && best.valid()]])
mutant(buddy_first_usable_end alloc/buddy_allocator.h "wrong comparison: the search ends at the first cell without usable ones"
  FROM [[if (u >= end) break;]] TO [[if (u >= inside.last.value) break;]] STATEMENT)
mutant(buddy_take_before alloc/buddy_allocator.h "forgotten update: buddies before the granted cell are lost"
  FROM [[insert_free(l, buddies.first.value, c.value);]] TO [[]] STATEMENT)
mutant(buddy_merge_count alloc/buddy_allocator.h "off by one: merged buddies stay counted"
  FROM [[buddies.size() - 1]] TO [[buddies.size() - 2]])
mutant(reserving_find_unreserved alloc/reserving_buddy_allocator.h "dropped condition: a search with a cost grants what is not reserved"
  IN [[const Cost& cost) const {
    if (reserved(request.level) == 0)]]
  FROM [[reserved(request.level) == 0]] TO [[false]])
mutant(reserving_highest_safe alloc/reserving_buddy_allocator.h "off by one: the level above the highest safe one is split"
  FROM [[splittable_[level + 1] > 0]] TO [[splittable_[level] > 0]])
mutant(reserving_release alloc/reserving_buddy_allocator.h "off by one: a release forgets the level of the merged cell"
  FROM [[for (level_t l = *cells_.enclosing_free_level(c); l > level; --l) ++splittable_[l];]]
  TO [[for (level_t l = *cells_.enclosing_free_level(c); l-- > level + 1;) ++splittable_[l];]] STATEMENT)
mutant(reserving_can_reserve alloc/reserving_buddy_allocator.h "wrong comparison: exactly what is there cannot be reserved"
  FROM [=[present < reserved[l]]=] TO [=[present < reserved[l] + (l > 0 ? 1 : 0)]=])
mutant(reserving_reserve_below alloc/reserving_buddy_allocator.h "forgotten factor: a reservation looks at its own level only"
  FROM [=[fewer > splittable_[l]]=] TO [=[l == level && fewer > splittable_[l]]=])
mutant(healthy_free_above alloc/healthy_free.h "forgotten update: cells above the changed one are not counted"
  FROM [[counts_[l + 1] += times;]] TO [[]] STATEMENT)
mutant(quota_total alloc/quota_ledger.h "forgotten update: a changed quota leaves the old one in the total"
  FROM [[total_remaining_[level] -= e.quota;]] TO [[]] STATEMENT)
mutant(quota_refund alloc/quota_ledger.h "forgotten update: a refund does not raise the total"
  FROM [[++total_remaining_[level];]] TO [[]] STATEMENT)
mutant(quota_doomed alloc/quota_ledger.h "wrong operand: the whole quota is compared with the healthy cells"
  FROM [[left > healthy ? left - healthy : 0]]
  TO [[quota(tenant, level) > healthy ? quota(tenant, level) - healthy : 0]])
mutant(capacity_slots alloc/capacity_index.h "off by one: slots of the largest size that changes stay"
  FROM [[t <= high]] TO [[t < high]])
mutant(capacity_with_free alloc/capacity_index.h "forgotten update: a node keeps its old number of free GPUs"
  FROM [[with_free_.reset(from * num_nodes() + node);]] TO [[]] STATEMENT)
mutant(priority_between alloc/priority_usage.h "off by one: the highest class that changes is not counted"
  FROM [[k < high]] TO [[k + 1 < high]])
mutant(server_pool_last alloc/server_pool.h "wrong choice: the last server of a job is not the tightest"
  FROM [[last = tighter;]] TO [[]] STATEMENT)
mutant(server_pool_order alloc/server_pool.h "forgotten step: a placement is not in the order of the servers"
  FROM [[detail::merge_sort(place, [](placement a, placement b) { return a.node < b.node; });]]
  TO [[]] STATEMENT)
mutant(server_pool_most alloc/server_pool.h "off by one: one server more than allowed"
  FROM [[place.size() + 1 == most]] TO [[place.size() == most]])
mutant(server_pool_health alloc/server_pool.h "forgotten update: bad servers stay usable"
  FROM [[usable_ = healthy ? usable_ + gpus(n) : usable_ - gpus(n);]] TO [[]] STATEMENT)
mutant(journal_order alloc/journal.h "forgotten update: a grant that is undone stays charged"
  FROM [[on_rollback<&Ledger::refund>(ledger, tenant, level);]] TO [[]] STATEMENT)
mutant(journal_nested alloc/journal.h "wrong comparison: an inner commit forgets the outer transaction's changes"
  FROM [[if (log_.open_ == 0 && mark_ == 0) log_.commit();]]
  TO [[if (mark_ == 0) log_.records_.clear();]] STATEMENT)
mutant(enclosing_level alloc/buddy_allocator.h "off by one: a free cell of the top level counts as one of the level below"
  FROM [[return l;]] TO [[return l + 1 == tree.num_levels() && l > 0 ? l - 1 : l;]] STATEMENT)
mutant(best_fit_exact alloc/best_fit_allocator.h "wrong comparison: a free cell of just the size is passed over"
  FROM [[size >= whole(level)]] TO [[size > whole(level)]])
mutant(best_fit_worst alloc/best_fit_allocator.h "wrong choice: the cell with the largest free cell is taken"
  FROM [[pair < least]] TO [[(least == ~std::uint64_t{0} || pair >> 32 > least >> 32)]])
mutant(best_fit_roots alloc/best_fit_allocator.h "off by one: racks with a free cell of just the size are passed over"
  FROM [[level * roots.size()]] TO [[(level + (level < top() ? 1 : 0)) * roots.size()]])
mutant(best_fit_merge_count alloc/best_fit_allocator.h "forgotten update: a merged cell is not counted"
  FROM [[++free_count_[l + 1];]] TO [[]] STATEMENT)
mutant(best_fit_split_count alloc/best_fit_allocator.h "off by one: a cell of each split is not counted"
  FROM [[free_count_[l] += buddies.size();]] TO [[free_count_[l] += buddies.size() - 1;]] STATEMENT)
mutant(best_fit_old_root alloc/best_fit_allocator.h "forgotten update: a rack keeps its old largest free cell when one is released"
  FROM [[if (l + 1 == top() && largest_[above.value] != full) roots_.reset(position(above));]] TO [[]] STATEMENT)
mutant(best_fit_new_root alloc/best_fit_allocator.h "forgotten update: a rack whose largest free cell is split is lost"
  FROM [[if (l + 1 == top() && size != full) roots_.set(position(above));]] TO [[]] STATEMENT)
mutant(best_fit_before alloc/best_fit_allocator.h "wrong comparison: cells above one of their largest free cells are not updated"
  FROM [[was > before]] TO [[was >= before]])
mutant(best_fit_enclosing alloc/best_fit_allocator.h "dropped condition: a cell inside a live one is free"
  FROM [[if (is_live(c)) return std::nullopt;]] TO [[]] STATEMENT)
mutant(best_fit_all_whole alloc/best_fit_allocator.h "dropped condition: one free cell makes the cell above free"
  FROM [[size == whole(l) && all_whole(buddies, l)]] TO [[size == whole(l)]])
mutant(best_fit_top alloc/best_fit_allocator.h "forgotten update: a granted rack is granted again"
  FROM [[if (level == top()) roots_.reset(position(c));]] TO [[]] STATEMENT)
mutant(best_fit_equal alloc/best_fit_allocator.h "wrong operand: allocators with equally many free cells are equal"
  FROM [[a.largest_ == b.largest_]] TO [[a.free_count_ == b.free_count_]])
