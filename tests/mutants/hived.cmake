# apiary/tests/mutants/hived.cmake - mutants of hived; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(lowest_never_first hived/detail/cells.h "wrong order: whole cells of the lowest level never come first"
  FROM [[highest_first ? levels - 1 - k : k]] TO [[levels - 1 - k]])
mutant(unbind_whole hived/detail/cells.h "forgotten step: bad cells inside a whole cell that is given back stay bound"
  FROM [[unbind_subtree(c, v, l);]] TO [[unbind(c, v, l);]] STATEMENT)
mutant(unusable_children hived/detail/cells.h "dropped step: bad cells inside a bad cell are not bound"
  FROM [[bind_unusable(c, chain.owner(child).cell, l - 1, usable);]] TO [[]] STATEMENT)
mutant(mended_stays_bound hived/detail/cells.h "dropped condition: a cell above that has a bad leaf left is unbound"
  FROM [[p.valid() && chain.healthy().healthy(p) && need_not_be_bound(chain, p, l)]]
  TO [[p.valid() && need_not_be_bound(chain, p, l)]])
mutant(best_place hived/detail/search.h "dropped restore: the last placement that was tried is granted, not the best"
  FROM [[place_ = std::move(best);]] TO [[]] STATEMENT)
mutant(grants_left hived/detail/search.h "dropped term: a search that used up its budget of grants is a refusal"
  FROM [[undecided || more]] TO [[undecided]])
mutant(most_ended hived/detail/search.h "off by one: a placement that ends as many gangs replaces the first one"
  FROM [[num_ended(chain, q.gangs) - 1]] TO [[num_ended(chain, q.gangs)]])
mutant(ended_twice hived/detail/search.h "forgotten step: a gang on several leaves counts several times"
  FROM [[std::unique(ended_.begin(), ended_.end()) - ended_.begin()]] TO [[ended_.end() - ended_.begin()]])
mutant(sizes_tried hived/detail/search.h "forgotten update: grants by the size of tasks are tried for one group only"
  FROM [[tried |= bit;]] TO [[tried = ~std::uint64_t{0};]] STATEMENT)
mutant(lazily_only hived/detail/search.h "dropped condition: a gang that is not lazy is downgraded"
  FROM [[if (!user.request.lazy) continue;]] TO [[]] STATEMENT)
mutant(preferred_stays hived/detail/search.h "dropped step: GPUs of victims are preferred"
  FROM [[nodes_[i].preferred &= cluster.free(chosen_[i]);]] TO [[]] STATEMENT)
mutant(restored_leaves hived/detail/search.h "dropped restore: victims look ended when GPUs are chosen"
  FROM [[victims_.restore_leaves(cells);]] TO [[]] STATEMENT)
mutant(rollback_misfit hived/detail/search.h "dropped restore: an attempt that found no leaf keeps its bindings"
  IN [[      mapped_ = false;
      cells.rollback();]] FROM [[cells.rollback();]] TO [[cells.keep();]] STATEMENT)
mutant(ended_once hived/detail/guest_choice.h "dropped condition: a gang that ends on several leaves counts several times"
  FROM [[if (at(s).ended++ == 0) all += cost_of(s, cost);]] TO [[++at(s).ended; all += cost_of(s, cost);]] STATEMENT)
mutant(bound_of_gang hived/detail/guest_choice.h "dropped condition: the lower bound counts a gang once for each leaf"
  FROM [[f.scan == scan_ ? 0U : 1U]] TO [[1U]])
mutant(bound_of_ended hived/detail/guest_choice.h "dropped condition: the lower bound counts gangs that end already"
  FROM [[if (f.ended > 0) continue;]] TO [[]] STATEMENT)
mutant(guests_exact hived/detail/guest_choice.h "dropped step: only the first choice of each cell is tried"
  FROM [[parts_.size() <= max_exact && best_cost_ > 0]] TO [[false]])
mutant(all_leaves_equal hived/detail/guest_choice.h "wrong key: one leaf of a node is tried, whoever uses the others"
  FROM [[is_idle || !has_equals ? gang_slot() : fates_.user(q)]] TO [[gang_slot()]])
mutant(twins_alike hived/detail/guest_choice.h "dropped condition: nodes of which a gang wants different numbers of leaves count as equal"
  FROM [[b.leaves == p.leaves]] TO [[true]])
mutant(twins_only hived/detail/guest_choice.h "wrong index: a cell like the one before may only get the cells before that one's"
  FROM [[while (list[k++].cell != images_[p.twin]) continue;]] TO [[list.resize(1);]] STATEMENT)
mutant(all_active hived/detail/cells.h "forgotten update: the cells above do not count the leaves of a node that come into use"
  FROM [[its.set_active(owner.cell, next.taken());]] TO [[]] STATEMENT)
mutant(unbind_active hived/detail/cells.h "dropped condition: a cell with leaves in use is unbound"
  FROM [[!parent.valid() || cluster.active(parent) > 0]] TO [[!parent.valid()]])
mutant(released_level hived/detail/state.h "forgotten update: a downgraded gang keeps the level of a leaf that it gave back"
  FROM [[if (!gang.lost_levels.empty()) gang.lost_levels[i] = hived_cells::no_level;]] TO [[]] STATEMENT)
mutant(victims_forgotten hived/detail/state.h "forgotten update: a gang that runs keeps the victims that it downgraded"
  FROM [[gang.downgraded_victims.clear();]] TO [[]] STATEMENT)
mutant(upgraded_ends hived/detail/state.h "missing reset: a gang that has its cells back still ends for another"
  FROM [[gang.ends_for = gang_slot();]] TO [[]] STATEMENT)
mutant(upgraded_levels hived/detail/state.h "missing reset: a gang that has its cells back keeps the levels that it lost"
  FROM [[gang.lost_levels.clear();]] TO [[]] STATEMENT)
mutant(restore_order hived/detail/state.h "swapped order: the lowest priority is restored first"
  FROM [[gangs_[a].rank() > gangs_[b].rank()]] TO [[gangs_[a].rank() < gangs_[b].rank()]])
mutant(lower_back hived/detail/state.h "dropped restore: gangs that were downgraded in vain stay so"
  FROM [[!upgrade(lower[downgraded], had)]] TO [[true]])
mutant(bad_and_taken hived/detail/cells.h "dropped condition: a leaf in use that is mended becomes free"
  FROM [[good && !chain.holders(leaf).taken()]] TO [[good]])
mutant(unbound_usable hived/detail/cells.h "forgotten update: a leaf that is unbound while it is bad stays unusable"
  FROM [[if (l == 0 && !chain.healthy().healthy(p)) cluster.set_usable(v, true);]] TO [[]] STATEMENT)
mutant(hash_of_holders hived/detail/cells.h "forgotten update: the hash keeps the old holders of a leaf"
  FROM [[hash_ ^= fact_of(c, leaves[i], from) ^ fact_of(c, leaves[i], next);]]
  TO [[hash_ ^= fact_of(c, leaves[i], next);]] STATEMENT)
mutant(hash_of_ended hived/detail/state.h "forgotten update: a gang that ends leaves its part of the hash behind"
  FROM [[facts_[s.value] = all.value();]] TO [[]] STATEMENT)
mutant(hash_of_admitted hived/detail/state.h "forgotten step: the hash of a gang that is admitted lacks its leaves"
  FROM [[add_leaf({place.chain, leaf}, all);]] TO [[]] STATEMENT)
mutant(idle_stays hived/detail/physical_chain.h "dropped term: leaves that come into use stay idle"
  FROM [[(idle_[node] & ~changed) | idle]] TO [[idle_[node] | idle]])
mutant(slot_of_removed hived/gang_table.h "forgotten update: the slot of a gang that left is not used again"
  FROM [[vacant_.push_back(slot);]] TO [[]] STATEMENT)
mutant(ranked_leaves hived/gang_table.h "forgotten update: the order keeps the old number of leaves"
  IN [[    leave(slot);
    join(slot);]] FROM [[join(slot);]]
  TO [[of_cluster_[gangs_[slot.value].cluster.value].emplace(rank_[slot.value], slot);]] STATEMENT)
mutant(opportunistic_counts hived/detail/physical_chain.h "off by one: a cell loses its bit one leaf too late"
  FROM [[added ? now - count : now]] TO [[now]])
mutant(idle_bad hived/detail/physical_chain.h "dropped condition: a bad leaf is idle"
  FROM [[holders(leaf).idle() && health_.healthy(leaf)]] TO [[holders(leaf).idle()]])
mutant(granted_rack hived/detail/physical_chain.h "forgotten update: nodes of a rack that is granted keep their class"
  FROM [[granted_[r] = now;]] TO [[]] STATEMENT)
mutant(ranking_opportunistic hived/detail/physical_chain.h "forgotten comparison: cells with more opportunistic leaves are granted first"
  FROM [[std::tie(b.tasks, a.unusable, a.opportunistic)]] TO [[std::tie(b.tasks, a.unusable, b.opportunistic)]])
mutant(ranking_passed hived/detail/physical_chain.h "dropped step: equal whole cells are tried again"
  FROM [[if (whole) passed |= std::uint64_t{1} << from;]] TO [[]] STATEMENT)
mutant(range_of_node hived/detail/virtual_cluster.h "wrong comparison: the first node of a range is in the range before"
  FROM [[ranges_[i].first_node > node]] TO [[ranges_[i].first_node >= node && i > 0]])
mutant(active_above hived/detail/virtual_cluster.h "off by one: the uppermost cell does not count its active leaves"
  FROM [[active_[c.value] += step;]] TO [[if (tree_.parent(c, l + 1).valid()) active_[c.value] += step;]] STATEMENT)
mutant(victims_claimed hived/detail/victims.h "wrong cost: gangs that end anyway cost as much as others"
  FROM [[if (ends) return leaves;]] TO [[]] STATEMENT)
mutant(victims_named hived/detail/victims.h "missing reset: nodes of an earlier search keep their entries"
  FROM [[for (const std::uint32_t n : named_) entry_[n] = none;]] TO [[]] STATEMENT)
mutant(few_first hived/detail/victims.h "off by one: one gang more than is needed yields"
  FROM [[few = half + 1;]] TO [[few = half + 2;]] STATEMENT)
mutant(claims_of_higher hived/detail/victims.h "dropped condition: leaves that a higher priority claims become available"
  FROM [[!h.claimer.valid() || gangs[h.claimer].request.priority < priority]] TO [[true]])
mutant(gpus_lowest hived/detail/node_choice.h "wrong choice: the cell with the most GPUs left is used"
  FROM [[128 - there]] TO [[there]])
mutant(gpus_ties hived/detail/node_choice.h "wrong tie: of equal cells the last is chosen"
  FROM [[if (rank > best) ties = 0;]] TO [[if (rank >= best) ties = 0;]] STATEMENT)
mutant(reorder_groups hived/detail/planner.h "forgotten update: tasks of two groups of one size get the same GPUs"
  FROM [[first_[m.gpus - 1] += n;]] TO [[]] STATEMENT)
mutant(suggested_bad hived/detail/planner.h "dropped step: bad leaves of suggested nodes are usable"
  FROM [[if (!chain.healthy().healthy(leaf)) usable.mark_bad(leaf);]] TO [[]] STATEMENT)
mutant(root_unbound hived/detail/cells.h "forgotten update: a whole cell that was given back is not found again"
  FROM [[cluster.set_root_bound(v, false);]] TO [[]] STATEMENT)
mutant(snapshot_bad hived/detail/snapshot_text.h "dropped step: bad leaves of a snapshot are healthy"
  FROM [[if (good_) cells_.set_health(l.chain, l.leaf, false);]] TO [[]] STATEMENT)
mutant(snapshot_bad_again hived/detail/snapshot_text.h "dropped condition: a bad leaf may occur again and again"
  FROM [[!bad_.empty() && l <= bad_.back()]] TO [[false]])
mutant(snapshot_bound_again hived/detail/snapshot_text.h "dropped condition: a bound cell may occur again and again"
  FROM [[v < next]] TO [[false]])
mutant(snapshot_leaves hived/detail/snapshot_text.h "forgotten limit: a gang of a snapshot may have any number of leaves"
  FROM [[size_ > max_leaves_ - leaves_]] TO [[false]])
mutant(snapshot_leaves_of_one hived/detail/snapshot_text.h "wrong limit: two large gangs together are too large"
  FROM [[64 * catalog.max_leaves()]] TO [[catalog.max_leaves()]])
mutant(snapshot_inside hived/detail/snapshot_text.h "dropped condition: a cell of a tenant is bound outside its whole cell"
  FROM [[if (!fits) return fail("a cell is bound outside its tenant's cells");]] TO [[]] STATEMENT)
mutant(snapshot_own_leaf hived/detail/snapshot_text.h "dropped condition: a guaranteed gang has leaves of no tenant"
  FROM [[gang.guaranteed() && owner != gang.cluster]] TO [[false]])
mutant(snapshot_claims hived/detail/snapshot_text.h "dropped condition: an opportunistic gang preempts"
  FROM [[gang.state == gang_state::preempting && !gang.guaranteed()]] TO [[false]])
mutant(snapshot_audit hived/detail/snapshot_text.h "dropped step: the checks of a snapshot are not looked at"
  FROM [[!fault.empty()]] TO [[false]])
mutant(snapshot_audit_bindings hived/detail/state_checks.h "dropped step: the bindings of a snapshot are not checked"
  FROM [[check_needed(vc_chain_id(c));]] TO [[]] STATEMENT)
mutant(snapshot_audit_owners hived/detail/state_checks.h "dropped step: bad hardware of a snapshot is not checked"
  FROM [[check_bad(bad);]] TO [[]] STATEMENT)
mutant(audit_victims hived/detail/state_checks.h "off by one: a downgraded victim may occur twice"
  FROM [[a >= b]] TO [[a > b]])
mutant(audit_levels hived/detail/state_checks.h "dropped condition: a gang that is not downgraded has lost levels"
  FROM [[!g.lost_levels.empty() && !g.downgraded]] TO [[false]])
mutant(audit_holders hived/detail/audit_inl.h "dropped comparison: the audit does not compare the gangs that hold a leaf"
  FROM [[if (is == should) continue;]] TO [[continue;]] STATEMENT)
mutant(audit_few hived/detail/audit_inl.h "off by one: the audit does not compare the last bitset of opportunistic leaves"
  FROM [[n < in.node_leaves()]] TO [[n + 1 < in.node_leaves()]])
mutant(audit_order hived/detail/audit_inl.h "dropped step: the audit does not compare the order of victims"
  FROM [[compare_order(vc_chain_id(c));]] TO [[]] STATEMENT)
mutant(snapshot_run hived/detail/snapshot_text.h "dropped condition: a leaf that is there continues a run of missing ones"
  FROM [[        (b == 0) == (first_b_ == 0)]] TO [[        true]])
mutant(spread_own_level hived/detail/constrained_search.h "off by one: whole cells of the level of a spread count as below it"
  FROM [[l < s.level]] TO [[l <= s.level]])
mutant(spread_of_two hived/detail/constrained_search.h "off by one: two whole cells are in no common cell"
  FROM [[below > 1]] TO [[below > 2]])
mutant(spread_kept hived/detail/constrained_search.h "off by one: as many tasks as one cell may have depend on bindings"
  FROM [[s.tasks >= request.groups[m].tasks]] TO [[s.tasks > request.groups[m].tasks]])
mutant(capacity_of_earlier hived/detail/hived_topology_fit.h "forgotten update: nodes keep leaves that were free in an earlier search"
  FROM [[capacities->set(n, view.count(n));]]
  TO [[capacities->set(n, (std::max)(capacities->free(n), view.count(n)));]] STATEMENT)
mutant(forecast_rest hived/detail/tenant_cells.h "dropped condition: the smaller task needs no GPUs besides"
  FROM [[with_rest > r.tasks]] TO [[with_rest >= r.tasks]])
mutant(forecast_changed hived/detail/tenant_cells.h "forgotten update: the nodes of a gang that has started keep their free leaves"
  FROM [[for (level& l : levels_) change(l, added, 1);]] TO [[(void)added;]] STATEMENT)
mutant(forecast_lower hived/detail/tenant_cells.h "dropped condition: a gang waits for the ends of gangs that it suspends"
  FROM [[if (g.priority < l.priority) return;]] TO [[]] STATEMENT)
mutant(forecast_unsorted hived/detail/tenant_cells.h "dropped step: leaves of a node that are not neighbors count apart"
  FROM [[if (!std::is_sorted(nodes.begin(), nodes.end())) std::sort(nodes.begin(), nodes.end());]] TO [[]] STATEMENT)
mutant(forecast_measure hived/hived_queue.h "forgotten update: bad hardware counts in a forecast"
  FROM [[t.cells.measure(scheduler().cells())]] TO [[false]])
mutant(queue_estimate hived/hived_queue.h "wrong bound: a job without an estimate ends in time"
  FROM [[at >= never_ends ? max_time - 1 : at - now]] TO [[at >= never_ends ? max_time : at - now]])
mutant(queue_level hived/hived_queue.h "missing reset: a job is held back for one of higher priority"
  FROM [[if (first && first->first.priority != r.request.priority) first.reset();]] TO [[]] STATEMENT)
mutant(queue_held_back hived/hived_queue.h "dropped step: jobs that a job held back do not start once it runs on idle GPUs"
  FROM [[again = tenants_[r.request.tenant.value].changed;]] TO [[]] STATEMENT)
mutant(queue_begins_again hived/hived_queue.h "dropped condition: an earlier job that is suspended does not restart the round"
  FROM [[passed_over_ && rule_ == rules::easy]] TO [[false]])
mutant(queue_same_end hived/hived_queue.h "dropped condition: jobs without an estimate all end together"
  FROM [[never_ends + ++starts_]] TO [[never_ends]])
mutant(queue_starving hived/hived_queue.h "dropped condition: jobs that came later overtake one that starves"
  FROM [[first_on_idle(end, max_time)]] TO [[first_on_idle({}, max_time)]])
mutant(queue_beside hived/hived_queue.h "dropped condition: jobs that would delay one that starves start"
  FROM [[first_on_idle({}, longest_beside(gpus, now))]] TO [[first_on_idle({}, max_time)]])
mutant(queue_patience hived/hived_queue.h "wrong comparison: a job starves one moment late"
  FROM [[now - patient_.begin()->first >= patience_]] TO [[now - patient_.begin()->first > patience_]])
mutant(queue_bad_wait hived/hived_queue.h "dropped condition: a job that fits only on bad hardware keeps others waiting"
  FROM [[if (placer().healthy()) return at;]] TO [[return at;]] STATEMENT)
mutant(queue_outranked hived/hived_queue.h "dropped condition: on idle GPUs a lower priority comes first"
  FROM [[std::exchange(passed, size) == size]] TO [[false]])
mutant(placer_guarantee hived/hived_placer.h "forgotten argument: a job that comes back gets other cells than it had"
  FROM [[gangs_.put_back(gang, runs_[run].tasks, runs_[run].whole_cells)]]
  TO [[gangs_.put_back(gang, runs_[run].tasks, {})]])
mutant(placer_run_kept hived/hived_placer.h "wrong condition: an attempt to put a job back that fails forgets how it ran"
  IN [[if (done.ok()) {
      runs_.erase]] FROM [[done.ok()]] TO [[true]])
mutant(placer_host hived/hived_placer.h "forgotten step: gangs on another node of a bad host go on"
  FROM [[of_host = layout.next_of_host(of_host);]] TO [[of_host = n;]] STATEMENT)
mutant(placer_remembers hived/hived_placer.h "wrong value: runs before the last start of a job are forgotten"
  FROM [[old_runs_ = runs_.size();]] TO [[old_runs_ = 0;
      runs_.clear();]] STATEMENT)
mutant(host_health hived/detail/hived_inl.h "dropped loop: the other node of a host stays healthy"
  FROM [[!position && n != node]] TO [[false]])
mutant(named_chains hived/detail/planner.h "dropped condition: a gang uses chains that it does not name"
  FROM [[!r.chains.empty() && std::find(r.chains.begin(), r.chains.end(), c) == r.chains.end()]] TO [[false]])
mutant(device_in_chains hived/detail/layout_inl.h "dropped condition: a device in two chains is accepted"
  FROM [[other.device != device || other.chain == &in]] TO [[true]])
mutant(node_index_fullness hived/detail/node_index.h "wrong comparison: a group with one node left is lost"
  FROM [[if (n > 1) by_fullness_.set(key(from, group, n - 1));]]
  TO [[if (n > 2) by_fullness_.set(key(from, group, n - 1));]] STATEMENT)
mutant(node_index_tightly hived/detail/node_index.h "wrong choice: the rest goes to the first group that holds it"
  FROM [[left >= in_group(c, (k - base) % groups_)]]
  TO [[left <= in_group(c, (k - base) % groups_) || left >= in_group(c, (k - base) % groups_)]])
mutant(node_index_either hived/detail/node_index.h "wrong tie: of groups that hold the rest the other class wins"
  FROM [[(std::max)(1U, (std::min)(n, there))]] TO [[(std::max)(1U, there)]])
