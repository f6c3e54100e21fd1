# apiary/tests/mutants/preempt.cmake - mutants of preempt; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(tally_of_last_greedy preempt/victim_search.h "missing reset: victims of an earlier set count against the budgets"
  IN [[cheapest_.begin(static_cast<std::uint32_t>(candidates_.size()));
    tally_.clear();]] FROM [[tally_.clear();]] TO [[]] STATEMENT)
mutant(tally_of_last_nodes preempt/victim_search.h "missing reset: victims of an earlier set count when nodes are evicted"
  IN [[  void evict_nodes() {
    tally_.clear();]] FROM [[tally_.clear();]] TO [[]] STATEMENT)
mutant(node_prices preempt/victim_search.h "dropped restore: nodes whose price has changed are not tried again"
  FROM [[if (now != never) keyed_number::push(heap_, {now, n});]] TO [[]] STATEMENT)
mutant(node_price_is_old preempt/victim_search.h "dropped condition: a node is taken at a price that it had before"
  FROM [[if (price_of(node) != price) continue;]] TO [[]] STATEMENT)
mutant(cost_limit preempt/victim_search.h "wrong comparison: a bound of exactly the limit is searched"
  FROM [[bound_ >= cost_limit_]] TO [[bound_ > cost_limit_]])
mutant(bound_of_branch preempt/victim_search.h "forgotten update: a complete search does not raise the lower bound"
  FROM [[if (branch([&] { return verdict(); })) bound_ = cost_to_beat();]]
  TO [[branch([&] { return verdict(); });]] STATEMENT)
mutant(minimal_order preempt/victim_search.h "swapped order: the cheapest victims are reprieved first"
  FROM [[by_cost.push_back({~candidates_[j].cost, j});]] TO [[by_cost.push_back({candidates_[j].cost, j});]] STATEMENT)
mutant(branch_tally preempt/victim_search.h "forgotten update: a gang that is reprieved stays in the tally"
  FROM [=[tally_.remove_victim(order_[k - 1]);]=] TO [[]] STATEMENT)
mutant(branch_cost preempt/victim_search.h "dropped restore: a gang that is reprieved stays in the cost"
  FROM [=[cost -= candidates_[order_[k - 1]].cost;]=] TO [[]] STATEMENT)
mutant(branch_certain preempt/victim_search.h "forgotten update: a fit that was not decided counts as none"
  FROM [[certain = certain && found == fit_verdict::does_not_fit;]] TO [[]] STATEMENT)
mutant(keep_cheapest preempt/victim_search.h "swapped comparison: a more expensive set replaces a cheaper one"
  FROM [[if (cost >= cost_) return;]] TO [[if (cost < cost_ && cost_ != never) return;]] STATEMENT)
mutant(tally_gpus preempt/detail/disruption_tally.h "forgotten update: GPUs of a gang that is no victim any more count"
  FROM [[lost.gpus -= gpus_[j];]] TO [[]] STATEMENT)
mutant(tally_exactly preempt/detail/disruption_tally.h "wrong comparison: exactly the budget is too much"
  FROM [[lost_[group].gangs > max.gangs]] TO [[lost_[group].gangs >= max.gangs]])
mutant(tally_last_part preempt/detail/disruption_tally.h "forgotten term: the gang that fits in part counts for nothing"
  FROM [[by_gpus += values[j] * left / gpus_[j];]] TO [[]] STATEMENT)
mutant(slots_removed preempt/detail/eviction_states.h "forgotten update: slots of a node before its change stay"
  FROM [[s.present -= f / s.size;]] TO [[s.present -= (f < to ? f : to) / s.size;]] STATEMENT)
mutant(slots_decide preempt/detail/eviction_states.h "wrong condition: only the last pair of sizes decides"
  FROM [[slots_decide_ && (a.size % b.size == 0 || b.size % a.size == 0)]]
  TO [[(a.size % b.size == 0 || b.size % a.size == 0)]])
mutant(node_links preempt/detail/eviction_states.h "wrong index: only the last gang on a node is found"
  FROM [[links_[a] = {j, at.last};]] TO [[links_[a] = {j, none};]] STATEMENT)
mutant(bound_missing preempt/detail/slot_bounds.h "off by one: the first slot of a node takes one GPU less"
  FROM [[s.size - f % s.size]] TO [[s.size - f % s.size + (s.size > 1 ? 1 : 0)]])
mutant(bound_short_within preempt/detail/slot_bounds.h "wrong comparison: exactly enough within the budgets is short"
  FROM [[budgets.max_sum(gpus_from_) < (s.needed - s.present) * s.size]]
  TO [[budgets.max_sum(gpus_from_) <= (s.needed - s.present) * s.size]])
mutant(smallest_front preempt/detail/slot_bounds.h "forgotten update: any number is added to a full set"
  FROM [[if (heap_.size() == n_) below_ = heap_.front();]] TO [[]] STATEMENT)
mutant(node_set_cheapest preempt/detail/node_evictions.h "wrong comparison: a set that frees more than needed is not used"
  FROM [[if (least_[f + 1].cost < least_[f].cost) least_[f] = least_[f + 1];]] TO [[]] STATEMENT)
mutant(node_set_covers preempt/detail/node_evictions.h "forgotten comparison: memory does not count when sets are compared"
  FROM [[a.memory_mib >= b.memory_mib]] TO [[a.memory_mib >= 0]])
mutant(cell_table_size preempt/detail/unit_tables.h "off by one: the largest count of a cell is left out of the sum"
  FROM [[(std::min)(most + 1, sum.size() + part.size() - 1)]] TO [[(std::min)(most, sum.size() + part.size() - 1)]])
mutant(cell_table_tried preempt/detail/unit_tables.h "forgotten update: a cheaper subset leaves the old one in its row"
  FROM [[at.subset[k] = subset;]] TO [[]] STATEMENT)
mutant(cells_in_several preempt/detail/eviction_cells.h "wrong divisor: the price of a gang in several cells is that of all its GPUs"
  FROM [=[(std::max)(gpus_in_[cell_of_[allocations_[a].node]], 1U)]=] TO [=[(std::max)(sum, 1U)]=])
mutant(cells_least_bound preempt/detail/eviction_cells.h "forgotten step: cells that were not searched have no bound"
  FROM [[for (const cell& c : order_) least = (std::min)(least, c.key);]] TO [[]] STATEMENT)
mutant(cells_bound_sum preempt/detail/eviction_cells.h "off by one: one slot less than is missing"
  FROM [[prices_.size() < short_of]] TO [[prices_.size() <= short_of]])
mutant(sets_evicted preempt/detail/equal_tasks.h "missing reset: victims of a greedy set stay evicted"
  IN [[    if (enough) keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);]]
  FROM [[for (const std::uint32_t j : set_) cells_.set_evicted(j, false);]] TO [[]] STATEMENT)
mutant(sets_within_budgets preempt/detail/equal_tasks.h "dropped condition: a set beyond the disruption budgets is kept"
  FROM [[cost >= cost_ || !tally_->within_budgets()]] TO [[cost >= cost_]])
mutant(sets_looked_at preempt/detail/equal_tasks.h "missing reset: gangs of a unit that was only looked at stay evicted"
  FROM [[for (const std::uint32_t j : more_) cells_.set_evicted(j, false);]] TO [[]] STATEMENT)
mutant(sets_old_costs preempt/detail/equal_tasks.h "forgotten step: a unit keeps its cost when gangs there end"
  FROM [[known[split_.unit_of(allocations_[a].node) - split_.first_unit()] = 0;]] TO [[]] STATEMENT)
mutant(sets_exchanged preempt/detail/equal_tasks.h "missing reset: victims stay evicted after an exchange"
  FROM [[for (const std::uint32_t j : victims) cells_.set_evicted(j, false);]] TO [[]] STATEMENT)
mutant(branch_with preempt/detail/equal_tasks.h "wrong bound: the half without a gang is not searched"
  FROM [[(std::min)(with, without)]] TO [[with]])
mutant(branch_unforced preempt/detail/equal_tasks.h "dropped restore: a gang that was protected in a branch stays so"
  IN [[    const std::uint64_t without = with < cost_ && ended() ? bound : branch(bound, 2);
    cells_.set_protected(j, false);]] FROM [[cells_.set_protected(j, false);]] TO [[]] STATEMENT)
mutant(budget_of_slices preempt/detail/equal_tasks.h "wrong factor: a step pays for one operation with slices, too"
  FROM [[split_.step() > 1 ? of_slices : 1]] TO [[1]])
mutant(topology_too_few preempt/victim_search.h "off by one: one victim more than enough stays"
  FROM [[too_few + 1 < enough]] TO [[too_few + 2 < enough]]
  EQUIVALENT "the set is made minimal afterwards: the victim that is too many is reprieved")
mutant(topology_fit_paid preempt/topology_victim_search.h "forgotten update: what a fit looks at does not count against the budget"
  FROM [[steps_ += fit_steps();]] TO [[]] STATEMENT)
mutant(topology_last_set preempt/topology_victim_search.h "dropped condition: gangs are evicted for sets that are not tried"
  FROM [[sets_count_ && left() < set_steps + fit_steps()]] TO [[false]])
mutant(first_bound_host preempt/detail/unit_tables.h "forgotten update: evictions free no CPU in the first bounds"
  FROM [[for (const item& i : on(n)) all += freed_by(i);]] TO [[for (const item& i : on(n)) all.gpus += i.gpus;]] STATEMENT)
mutant(shared_equal preempt/shared_victim_search.h "dropped condition: without a candidate the search leaves out all later ones of its cost"
  FROM [[items_[j].gives == items_[j + 1].gives]] TO [[true]])
mutant(shared_needed preempt/shared_victim_search.h "wrong bound: candidates are counted as if each gave the least"
  FROM [=[(part.missing[d] + rests_[j].most[d] - 1) / rests_[j].most[d]]=] TO [=[items_.size() - j]=])
mutant(shared_fee preempt/shared_victim_search.h "wrong bound: a job on several GPUs costs each of them everything"
  FROM [[c.cost / used]] TO [[c.cost]])
mutant(shared_restore preempt/shared_victim_search.h "missing restore: jobs on GPUs that were tried before must end, too"
  FROM [=[forced_[taken_.back()] = 0]=] TO [=[forced_[taken_.back()] = 1]=])
mutant(shared_reading preempt/shared_victim_search.h "forgotten update: what is read again for other GPUs takes no steps"
  FROM [[steps_ += candidates_.size() / looks_in_a_step + items_.size() / sorted_in_a_step;]] TO [[]] STATEMENT)
mutant(count_of_cheapest preempt/detail/slot_bounds.h "swapped order: the cheapest gangs decide how many there must be"
  FROM [=[~candidates_[j].cost]=] TO [=[candidates_[j].cost]=])
mutant(topology_can_read preempt/victim_search.h "dropped condition: a search reads more than its budget pays for"
  FROM [[(entries - free_entries) / (read_in_a_step / 2) <= budget]] TO [[true]])
mutant(steps_of_reading preempt/victim_search.h "forgotten update: reading takes no steps"
  FROM [[spend(entries / read_in_a_step);]] TO [[]] STATEMENT)
mutant(steps_of_work preempt/victim_search.h "forgotten update: evictions and orders take no steps"
  FROM [[spend(steps - settled_);]] TO [[]] STATEMENT)
mutant(steps_of_select preempt/detail/eviction_cells.h "forgotten update: gangs in several cells are read for nothing"
  FROM [[work_ += 4 + candidates_[j].last - candidates_[j].first;]] TO [[]] STATEMENT)
mutant(steps_of_tables preempt/detail/unit_tables.h "dropped condition: a sum of tables takes more work than the limit"
  FROM [[more <= most_work_ - now]] TO [[true]])
mutant(tally_of_changed preempt/detail/disruption_tally.h "missing reset: only some groups are cleared"
  FROM [[is_changed_[g] = 0;]] TO [[]] STATEMENT)
mutant(topology_unread preempt/topology_victim_search.h "wrong verdict: there are no victims among gangs that are not read"
  IN [[    steps_ = budget_;
    return this->answer(fit_verdict::budget_ended);]]
  FROM [[fit_verdict::budget_ended]] TO [[fit_verdict::does_not_fit]])
