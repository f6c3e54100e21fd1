# apiary/tests/mutants/gang_scheduler.cmake - mutants of gang_scheduler; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(queue_rest gang_scheduler/detail/job_division.h "dropped task: GPUs beyond whole nodes are left out"
  FROM [[job.gpus % size != 0]] TO [[job.gpus < size]])
mutant(taken_kept gang_scheduler/detail/gang_planner.h "missing reset: GPUs of an earlier gang look taken"
  FROM [[for (const tasks_on_node& p : portions) taken_[p.node] = 0;]] TO [[]] STATEMENT)
mutant(never_or_undecided gang_scheduler/detail/gang_planner.h "wrong reason: what is not decided on the idle cluster is busy"
  FROM [[!refused || idle.verdict == fit_verdict::budget_ended]] TO [[!refused]])
mutant(healthy_back gang_scheduler/detail/gang_planner.h "dropped restore: bad nodes look healthy afterwards"
  FROM [[count(true);]] TO [[]] STATEMENT)
mutant(ends_for_link gang_scheduler/detail/scheduled_gangs.h "forgotten update: the hash keeps the gang that a victim ended for"
  FROM [[if (e.record.ends_for) hash_ -= hash_of_link(victim, *e.record.ends_for);]] TO [[]] STATEMENT)
mutant(undo_of_erase gang_scheduler/detail/scheduled_gangs.h "dropped restore: a gang that ended in a trial stays away"
  FROM [[on_undo([erased = e.record](scheduled_gangs& s) { s.insert(erased); });]]
  TO [[]] STATEMENT)
mutant(epoch_of_trial gang_scheduler/detail/scheduled_gangs.h "dropped restore: a trial makes older plans stale"
  FROM [[state.epoch_ = epoch;]] TO [[]] STATEMENT)
mutant(resize_last gang_scheduler/detail/gang_scheduler_inl.h "off by one: a GPU in use may be taken from a node"
  FROM [[last > gpus]] TO [[last > gpus + 1]] IN [[if (last > gpus || n.cpu_milli]])
mutant(free_nodes gang_scheduler/detail/gang_scheduler_inl.h "dropped condition: a node without GPUs is free"
  FROM [[n.shape.gpus > 0 && free == n.shape.gpus]] TO [[free == n.shape.gpus]])
mutant(plan_order gang_scheduler/detail/gang_scheduler_inl.h "dropped check: a plan may name a victim twice"
  FROM [[(i > 0 && !(decided.victims[i - 1] < decided.victims[i]))]] TO [[false]])
mutant(tasks_share gang_scheduler/detail/gang_scheduler_core.h "dropped check: two tasks may have one GPU"
  IN [[    if (gpus != 0)
      return absl]] FROM [[gpus != 0]] TO [[false]])
mutant(unhealthy_reserved gang_scheduler/detail/gang_scheduler_core.h "dropped condition: a preempting gang starts on bad GPUs"
  FROM [[!n.bad && (o.mask & ~n.healthy_gpus()) == 0]] TO [[true]])
mutant(free_host gang_scheduler/detail/filter_views.h "wrong comparison: a node whose CPU is overcommitted has much left"
  FROM [[in_use < of ? static_cast<std::uint32_t>(of - in_use) : 0U]] TO [[static_cast<std::uint32_t>(of - in_use)]])
mutant(cell_in_two gang_scheduler/detail/named_cells.h "dropped check: a cell may be in two cells of the level above"
  FROM [=[at != cells_[l].end() && at->second.above != cells[l + 1]]=] TO [[false]])
mutant(candidates_priority gang_scheduler/detail/victim_candidates.h "wrong comparison: gangs of the same priority are victims"
  FROM [[b.priority < below_]] TO [[b.priority <= below_]])
mutant(candidate_forgotten gang_scheduler/detail/scheduled_gangs.h "forgotten update: a gang that ends for another stays a candidate"
  FROM [[!std::exchange(b.is_candidate, false)]] TO [[!b.is_candidate]])
mutant(bound_overcommitted gang_scheduler/detail/victim_planner.h "wrong bound: where CPU is overcommitted the bound is that of the search"
  FROM [[list_.overcommitted() ? 0 : (std::min)(lower_bound_, cost_)]] TO [[(std::min)(lower_bound_, cost_)]])
mutant(budget_unlimited gang_scheduler/detail/victim_candidates.h "wrong group: a tenant without a budget has that of the first"
  FROM [[if (at == tenants_.end() || *at != tenant) return none;]]
  TO [[if (at == tenants_.end() || *at != tenant) return 0;]] STATEMENT)
mutant(order_reused_slot gang_scheduler/detail/scheduled_gangs.h "forgotten update: a gang with the slot of one that has ended takes its place in the order"
  FROM [[is_ordered_[slot] = 0;]] TO [[]] STATEMENT)
mutant(view_oldest gang_scheduler/detail/filter_views.h "wrong choice: the filter that was used last is dropped"
  FROM [[a.last < b.last]] TO [[a.last > b.last]])
mutant(view_of_other_node gang_scheduler/detail/filter_views.h "forgotten update: a node that has left stays in the view of a filter"
  FROM [[++dropped_;]] TO [[]] STATEMENT)
mutant(view_dropped_changes gang_scheduler/detail/filter_views.h "dropped condition: a view that missed changes takes only the last ones"
  FROM [[views_[i]->seen < dropped_]] TO [[false]])
mutant(layout_stale gang_scheduler/detail/cluster_nodes.h "forgotten update: a node that joins has no position in the next decision"
  IN [[    is_stale_ = true;
    ++layout_version_;]] FROM [[is_stale_ = true;]] TO [[]] STATEMENT)
mutant(layout_reused_id gang_scheduler/detail/cluster_nodes.h "dropped condition: a node with the id of one that has left takes its place in the order"
  FROM [[nodes_[id].position == p]] TO [[nodes_[id].present]])
mutant(view_last_index gang_scheduler/detail/filter_views.h "forgotten update: after one is dropped the view of another filter is returned"
  FROM [[if (oldest < i) --i;]] TO [[]] STATEMENT)
mutant(view_memory gang_scheduler/detail/filter_views.h "dropped condition: filters are kept however much memory they take"
  FROM [[(views_.size() > min_filters && bytes_ > most_bytes_)]] TO [[false]])
mutant(what_if_budget gang_scheduler/detail/gang_scheduler_inl.h "dropped restore: disruption budgets of a trial stay"
  FROM [[if (before.budgets) planner.victims.budgets = std::move(*before.budgets);]] TO [[]] STATEMENT)
mutant(trial_that_throws gang_scheduler/detail/gang_scheduler_inl.h "dropped restore: the step budget of a trial stays"
  FROM [[planner.budget = steps;]] TO [[]] STATEMENT)
mutant(epochs_of_trials gang_scheduler/detail/scheduled_gangs.h "wrong number: a plan of a trial fits the next state"
  FROM [[epoch_ = ++last_epoch_;]] TO [[++epoch_;]] STATEMENT)
mutant(budget_epoch gang_scheduler/detail/gang_scheduler_inl.h "forgotten update: a plan may exceed a disruption budget that was set after it"
  IN [[  budgets.set(tenant.value, budget);
  core_->state.next_epoch();]] FROM [[core_->state.next_epoch();]] TO [[]] STATEMENT)
mutant(kinds_of_tenants gang_scheduler/gang_placer.h "dropped field: jobs that may be suspended are of one kind with jobs that may not"
  FROM [[return {r.priority, r.tenant, r.gpus, r.demand};]] TO [[return {r.priority, {}, r.gpus, r.demand};]] STATEMENT)
mutant(bound_free_slots gang_scheduler/detail/victim_candidates.h "dropped term: slots that are free are missing"
  FROM [[s.slots > present ? s.slots - present : 0]] TO [[s.slots]])
mutant(bound_fragments gang_scheduler/detail/victim_candidates.h "wrong bound: a victim gives no slots together with free GPUs"
  FROM [[(gpus + nodes * (s.size - 1)) / s.size]] TO [[gpus / s.size]])
mutant(bound_fewest gang_scheduler/detail/victim_candidates.h "off by one: one victim more than is needed"
  FROM [[victims = (std::max)(victims, k + 1);]] TO [[victims = (std::max)(victims, k + 2);]] STATEMENT)
mutant(bound_lower_classes gang_scheduler/detail/victim_candidates.h "forgotten update: gangs of lower priorities give nothing"
  FROM [[lower = sum;]] TO [[]] STATEMENT)
mutant(bound_others gang_scheduler/detail/victim_candidates.h "wrong comparison: one gang more than is needed"
  FROM [[sum + gains_[gains_.size() - 1 - n] < missing]]
  TO [[n + 1 < gains_.size() && sum + gains_[gains_.size() - 1 - n] <= missing]])
mutant(bound_more_gangs gang_scheduler/detail/victim_candidates.h "dropped case: more gangs, that cost less together"
  FROM [[(std::min)(cheapest(s, others, n + 1, missing - sum), cheapest(s, others, n + 2, 0))]]
  TO [[cheapest(s, others, n + 1, missing - sum)]])
mutant(cell_gangs_joined gang_scheduler/detail/scheduled_gangs.h "forgotten update: a gang on several nodes has the GPUs of the first"
  FROM [[gangs[kept - 1].gpus += gangs[i].gpus;]] TO [[]] STATEMENT)
mutant(cell_gangs_marked gang_scheduler/detail/scheduled_gangs.h "missing reset: a cell is made anew only once"
  FROM [[is_marked_[c] = 0;]] TO [[]] STATEMENT)
mutant(victims_on_bad gang_scheduler/detail/victim_candidates.h "dropped condition: victims give back CPU of bad nodes"
  FROM [[if (n.bad) continue;]] TO [[]] STATEMENT)
mutant(victims_lower_bound gang_scheduler/detail/victim_planner.h "dropped term: where cells were not searched the bound is the cost"
  FROM [[if (!refused) lower_bound_ = 0;]] TO [[]] STATEMENT)
mutant(victims_tie gang_scheduler/detail/victim_planner.h "wrong tie: of cells whose victims cost as much the last is chosen"
  FROM [[set.cost >= cost_]] TO [[set.cost > cost_]])
mutant(lower_level_cost gang_scheduler/detail/gang_planner.h "wrong comparison: victims that cost as much do not allow a lower level"
  FROM [[victims.cost() > to.cost]] TO [[victims.cost() >= to.cost]])
mutant(lower_level_needed gang_scheduler/detail/gang_planner.h "dropped check: a victim is not needed"
  FROM [[if (!all_needed(state, view, at_levels(any_level, required))) continue;]] TO [[]] STATEMENT)
mutant(planner_needed gang_scheduler/detail/gang_planner.h "wrong comparison: a victim counts as needed if the steps end before that is known"
  FROM [[then.verdict != fit_verdict::does_not_fit && !then.is_refused]] TO [[then.verdict == fit_verdict::fits]])
mutant(planner_plain_first gang_scheduler/detail/gang_planner.h "forgotten step: the preferred level takes steps from the answer without it"
  FROM [[r.gang.preferred = any_level;]] TO [[]] STATEMENT)
mutant(planner_lower_now gang_scheduler/detail/gang_planner.h "dropped step: a gang that fits does not go to the preferred level"
  IN [[if (lower.verdict == fit_verdict::fits) return bind(state, r.gang, lower, to);]]
  FROM [[lower.verdict == fit_verdict::fits]] TO [[false]])
mutant(lazy_hosts gang_scheduler/detail/budgeted_fit.h "dropped check: CPU and memory where the gang would run do not count"
  FROM [[suffice(gang, without.portions, hosts)]] TO [[true]])
mutant(lazy_pays gang_scheduler/detail/budgeted_fit.h "wrong budget: both searches may take all steps"
  FROM [[most - (std::min)(most, steps.steps() - before)]] TO [[most]])
mutant(reserved_request gang_scheduler/detail/gang_scheduler_inl.h "dropped check: a preempting gang is proposed with another request"
  FROM [[!(core_->state.at(slot).record.what == gang)]] TO [[false]])
mutant(trial_set_twice gang_scheduler/detail/gang_scheduler_inl.h "dropped condition: a budget that a trial sets twice is not taken back"
  FROM [[core_->trial != nullptr && !core_->trial->budgets]] TO [[core_->trial != nullptr]])
mutant(replaced_spread gang_scheduler/detail/task_replacement.h "off by one: one task more than a spread allows"
  FROM [[(at == spread_.end() ? 0 : at->second) < s.tasks]] TO [[(at == spread_.end() ? 0 : at->second) <= s.tasks]])
mutant(replaced_preferred gang_scheduler/detail/task_replacement.h "dropped step: the preferred level is not tried"
  FROM [[(std::min)(gang.preferred, last)]] TO [[last]])
mutant(replaced_stays gang_scheduler/detail/task_replacement.h "missing reset: tasks that stay give their GPUs, too"
  FROM [[at.whole &= ~gang_.tasks[t].gpu_mask;]] TO [[]] STATEMENT)
mutant(replaced_rank gang_scheduler/detail/task_replacement.h "swapped order: the emptiest node comes first"
  FROM [[fits(task) ? gpus : 64 - gpus]] TO [[fits(task) ? 32 - gpus : 64 - gpus]])
mutant(replaced_fewest gang_scheduler/detail/gang_scheduler_inl.h "wrong choice: more nodes are to be freed than needed"
  FROM [[n = middle + 1;]] TO [[break;]] STATEMENT)
mutant(replaced_budget gang_scheduler/detail/gang_scheduler_inl.h "wrong budget: the first number of nodes that is hard takes all steps"
  FROM [[search.left() / 2]] TO [[search.left()]])
mutant(replaced_freed gang_scheduler/detail/task_replacement.h "forgotten update: a node that is freed holds no more tasks than before"
  FROM [[all.sum += node::capacity(task, at.free, at.host);]] TO [[]] STATEMENT)
mutant(replaced_gpus_to_free gang_scheduler/detail/task_replacement.h "wrong count: GPUs that are free already are to be freed"
  FROM [[std::popcount(at.idle & ~at.start)]] TO [[std::popcount(at.idle)]])
mutant(replaced_claimed gang_scheduler/detail/gang_scheduler_inl.h "dropped condition: a task moves to a GPU that another gang claims"
  FROM [[mask & ~n.reserved]] TO [[mask]]
  EQUIVALENT "a gang whose GPUs another one claims ends for that one, and has no replacement")
mutant(short_slice_rest gang_scheduler/detail/gang_scheduler_core.h "forgotten update: the tasks of the rest are placed twice"
  FROM [[split.groups.back().tasks -= rest;]] TO [[]] STATEMENT)
mutant(equal_slices gang_scheduler/detail/gang_scheduler_core.h "wrong condition: a rest keeps slices of the lower of two levels with equal slices"
  FROM [[s.tasks == largest.tasks]] TO [[s.level == largest.level]])
mutant(one_gang_cost gang_scheduler/detail/victim_planner.h "dropped condition: a gang that costs more than two others is the victim"
  FROM [[of_gang <= 2 * costs_.least()]] TO [[true]])
mutant(one_gang_budget gang_scheduler/detail/victim_planner.h "dropped condition: a gang that its tenant may not lose is the victim"
  FROM [[!costs_.is_within_budget(one)]] TO [[false]])
mutant(one_gang_passed gang_scheduler/detail/victim_planner.h "forgotten update: gangs that a tenant may not lose take no steps"
  FROM [[used += 3;]] TO [[]] STATEMENT)
mutant(one_gang_tie gang_scheduler/detail/victim_planner.h "wrong tie: of equal gangs the last job is the victim"
  FROM [[state_->is_before(b, a)]] TO [[state_->is_before(a, b)]])
mutant(one_gang_steps gang_scheduler/detail/victim_planner.h "forgotten update: gangs that are tried alone take no steps of the budget"
  FROM [[steps_ += used;]] TO [[]] STATEMENT)
mutant(one_gang_listed gang_scheduler/detail/victim_planner.h "dropped condition: all gangs that cost the same are listed, whatever the budget is"
  FROM [[at != alone_.end() && used + equal_.size() / 16 + each <= eighth]] TO [[at != alone_.end()]])
mutant(planner_least gang_scheduler/detail/victim_planner.h "forgotten update: a gang that does not fit may need no victim"
  FROM [[if (refused) lower_bound_ = (std::max)(lower_bound_, costs_.least());]] TO [[]] STATEMENT)
mutant(planner_left gang_scheduler/detail/victim_planner.h "wrong budget: each batch of racks has the whole budget"
  FROM [[budget_ - (std::min)(budget_, steps_)]] TO [[budget_]])
mutant(planner_can_read gang_scheduler/detail/victim_planner.h "dropped condition: all gangs are listed, whatever the budget is"
  FROM [[!search_.can_read(entries, search_left())]] TO [[false]])
mutant(planner_read gang_scheduler/detail/victim_planner.h "forgotten update: each rack is read as if it were the only one"
  FROM [[read += gangs.entries(c);]] TO [[]] STATEMENT)
mutant(planner_bounds gang_scheduler/detail/victim_planner.h "dropped condition: bounds of cells are computed, whatever the budget is"
  FROM [[looks / 24 > left() / 2]] TO [[false]])
mutant(planner_undecided gang_scheduler/detail/gang_planner.h "dropped term: victims that are not known count as no victims"
  FROM [[undecided_ || victims.budget_ended()]] TO [[undecided_]])
mutant(price_of_priorities gang_scheduler/detail/victim_candidates.h "dropped term: looking at priorities takes no steps"
  FROM [[state.classes().size() / 12]] TO [[0]])
mutant(price_of_bad gang_scheduler/detail/gang_planner.h "forgotten price: counting bad nodes as healthy takes no steps"
  FROM [[!steps_.try_pay(2 * step_prices::of_changes(state.nodes().bad_nodes().size()))]] TO [[false]])
mutant(one_gang_enough gang_scheduler/detail/victim_candidates.h "wrong comparison: a gang with exactly the nodes is not tried alone"
  FROM [[gain(s, gpus, nodes) >= missing_slots(s, cell)]] TO [[gain(s, gpus, nodes) > missing_slots(s, cell)]])
mutant(name_order_digits gang_scheduler/detail/cluster_nodes.h "wrong comparison: numbers in names are compared as texts"
  FROM [[x.size() != y.size() ? x.size() < y.size() : x < y]] TO [[x < y]])
mutant(name_order_cells gang_scheduler/detail/cluster_nodes.h "dropped condition: cells do not count in the order of nodes"
  FROM [=[a.cells[l] != b.cells[l]]=] TO [[false]])
mutant(excerpt_local gang_scheduler/detail/victim_candidates.h "dropped condition: a node behind the last cell is in it"
  FROM [[position >= (after - 1)->last]] TO [[false]])
mutant(candidate_gpu_time gang_scheduler/detail/scheduled_gangs.h "dropped condition: a gang that starts later has used a long time"
  FROM [[if (b.started >= now) return 0;]] TO [[]] STATEMENT)
mutant(mates_of_leader gang_scheduler/detail/task_replacement.h "dropped condition: workers stay with no leader"
  FROM [[leaders != m]] TO [[false]])
mutant(queue_products gang_scheduler/detail/job_division.h "dropped condition: a task with more memory than a node can have wraps"
  FROM [[(std::max)(cpu, memory) <= std::uint64_t{~0U}]] TO [[cpu <= std::uint64_t{~0U}]])
mutant(queue_taints gang_scheduler/gang_placer.h "dropped condition: a job is divided for the nodes with taints"
  IN [[if (node.taints.empty()) division_.add(node.model, node.gpus);]]
  FROM [[node.taints.empty()]] TO [[true]])
mutant(queue_tainted_free gang_scheduler/gang_placer.h "dropped term: free GPUs of nodes with taints count for the cause of a delay"
  FROM [[scheduler_.free_gpus() - tainted_free_]] TO [[scheduler_.free_gpus()]])
mutant(queue_tainted_health gang_scheduler/gang_placer.h "forgotten update: a node with taints turns bad, and its GPUs still count"
  FROM [[tainted_free_ += scheduler_.free_gpus() - free;]] TO [[]] STATEMENT)
mutant(queue_smaller_tasks gang_scheduler/gang_placer.h "dropped step: a job that fits only as smaller tasks is refused"
  FROM [[--size]] TO [[size = 0]])
mutant(placer_time gang_scheduler/gang_placer.h "forgotten update: jobs that have run for longer are not suspended last"
  FROM [[now_ = now;]] TO [[]] STATEMENT)
mutant(placer_copies gang_scheduler/gang_placer.h "dropped condition: a job without preemption is proposed though too few GPUs are idle"
  FROM [[!options_.preempts && r.gpus > idle_gpus()]] TO [[false]] EQUIVALENT "the scheduler refuses it, too; it takes longer")
mutant(queue_models gang_scheduler/detail/job_division.h "forgotten update: a job runs on any model"
  FROM [[gang.filter.models = models;]] TO [[]] STATEMENT)
mutant(filter_none gang_scheduler/detail/gang_scheduler_inl.h "forgotten case: a filter that accepts no node is not the whole reason"
  FROM [[accepts_none = view.num_members == 0;]] TO [[]] STATEMENT)
mutant(key_default gang_scheduler/gang_scheduler_types.h "wrong default: a forgotten job id is a number"
  IN [[bool is_text_ = true;]] FROM [[true]] TO [[false]])
mutant(planner_share gang_scheduler/detail/gang_planner.h "dropped share: a search for victims may take all steps"
  FROM [[(std::min)(steps_.left(), budget / 8)]] TO [[0]])
mutant(tainted_memory gang_scheduler/detail/gang_explanation.h "dropped condition: a node holds a task for which it has too little CPU or memory"
  FROM [[(after - 1)->memory_mib <= n.host.memory_mib]] TO [[true]])
mutant(tainted_free gang_scheduler/detail/gang_scheduler_inl.h "forgotten update: nodes whose taints a gang would tolerate stay empty"
  FROM [[tx.set(view.free, n.position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));]] TO [[]] STATEMENT)
