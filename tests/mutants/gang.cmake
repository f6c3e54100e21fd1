# apiary/tests/mutants/gang.cmake - mutants of gang; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(fewest_nodes gang/topology_fit.h "dropped step: the fewest nodes begin with the fullest ones"
  FROM [[if (objective_ == gang_objective::fewest_nodes) std::reverse(classes_.begin(), classes_.end());]]
  TO [[]] STATEMENT)
mutant(lowest_level gang/topology_fit.h "forgotten update: a level that was not decided counts as refused"
  FROM [[lowest_ = lowest_ && verdict != fit_verdict::budget_ended;]] TO [[]] STATEMENT)
mutant(next_node gang/topology_fit.h "forgotten update: two portions go to one node"
  FROM [[next = node + 1;]] TO [[next = node;]] STATEMENT)
mutant(node_with_host gang/topology_fit.h "off by one: a node after one without enough CPU is skipped"
  FROM [[capacities_->first_node(free, cell_ + 1)]] TO [[capacities_->first_node(free, cell_ + 2)]])
mutant(portions_of_failed_order gang/topology_fit.h "missing reset: portions of an order that failed stay"
  IN [[      portions_.clear();
      if (greedy(l, cell_, orders_[i], objective_, nodes_, portions_)) return fit_verdict::fits;]]
  FROM [[portions_.clear();]] TO [[]] STATEMENT)
mutant(listed_of_last gang/topology_fit.h "missing reset: cells that an earlier call listed stay"
  IN [[    listed_.clear();
    open_.clear();
    fronts_ready_]] FROM [[listed_.clear();]] TO [[]] STATEMENT)
mutant(fronts_of_last gang/topology_fit.h "missing reset: fronts of an earlier call are used"
  IN [[    fronts_ready_ = false;
    lowest_]] FROM [[fronts_ready_ = false;]] TO [[]] STATEMENT)
mutant(fit_order gang/gang_fit.h "swapped order: small tasks are packed first"
  IN [[return a.gpus > b.gpus; }]] FROM [[a.gpus > b.gpus]] TO [[a.gpus < b.gpus]])
mutant(fit_shortage gang/gang_fit.h "forgotten term: tasks of the largest size are not needed"
  IN [[g <= groups_.front().gpus; ++g]] FROM [[g <= groups_.front().gpus]] TO [[g < groups_.front().gpus]])
mutant(fit_first_set gang/detail/bin_packing.h "missing reset: smaller tasks do not use what larger ones left"
  FROM [[groups[g].gpus != groups[g - 1].gpus]] TO [[false]])
mutant(fit_tightest gang/detail/bin_packing.h "wrong choice: the last set that holds a task, not the tightest"
  FROM [[at.left < sets_[best].left]] TO [[at.left >= sets_[best].left]])
mutant(fit_rest gang/detail/bin_packing.h "forgotten update: a set keeps the nodes that were split off"
  FROM [[sets_[p].nodes -= nodes;]] TO [[]] STATEMENT)
mutant(packing_exact gang/detail/bin_packing.h "dropped restore: nodes that were filled exactly stay full"
  FROM [[whole += at.exact;]] TO [[]] STATEMENT
  EQUIVALENT "only what is remembered differs: a state with fewer nodes, which fails, too")
mutant(packing_restore gang/detail/bin_packing.h "dropped restore: a step that failed keeps its nodes"
  FROM [[to -= x;]] TO [[]] STATEMENT)
mutant(packing_least gang/detail/bin_packing.h "off by one: one task more than smaller nodes hold"
  FROM [[(n - below + each - 1) / each]] TO [[(n - below) / each + 1]])
mutant(packing_memory gang/detail/bin_packing.h "dropped comparison: states with equal hashes are one"
  FROM [[if (failed_[++at] != word) return false;]] TO [[++at; static_cast<void>(word);]] STATEMENT)
mutant(count_step gang/detail/capacity_count.h "wrong level: what a node holds is not bounded"
  FROM [[groups_->bound(u, node_level, f / group.gpus)]] TO [[f / group.gpus]])
mutant(count_memory gang/detail/capacity_count.h "dropped condition: memory is not looked at"
  FROM [[n * group.memory_mib > hosts_[node].memory_mib]] TO [[false]])
mutant(weight_by_free gang/detail/capacity_count.h "off by one: the largest count on a node is not tried"
  FROM [[n <= most / step && n * gpus <= f]] TO [[n < most / step && n * gpus <= f]])
mutant(candidates_slots gang/detail/candidate_cells.h "wrong comparison: a cell with exactly the slots is refused"
  FROM [[slots[c] >= needed ? 1 : 0]] TO [[slots[c] > needed ? 1 : 0]])
mutant(candidates_rank gang/detail/candidate_cells.h "wrong order: cells by what is free, not by the nodes that are used"
  FROM [[return used << 32 | free;]] TO [[return free;]] STATEMENT)
mutant(min_cost_tie gang/min_cost_fit.h "wrong tie: of cells with equal costs the last is taken"
  FROM [[if (found && *least >= cost_) continue;]] TO [[if (found && *least > cost_) continue;]] STATEMENT)
mutant(min_cost_first gang/min_cost_fit.h "wrong choice: the first cell that holds the gang, not the cheapest"
  FROM [[if (found && sum >= cost_) continue;]] TO [[if (found) continue;]] STATEMENT)
mutant(min_cost_least gang/min_cost_fit.h "wrong result: a placement counts as the least when the budget ended"
  FROM [[least_ = found && !steps.ended();]] TO [[least_ = found;]] STATEMENT)
mutant(cost_table_tie gang/detail/cost_tables.h "wrong tie: equal costs move a task to a later child"
  FROM [[if (cost >= costs[sum]) continue;]] TO [[if (cost > costs[sum]) continue;]] STATEMENT)
mutant(cost_table_allowed gang/detail/cost_tables.h "dropped step: counts beyond the limits of a cell stay"
  FROM [[if (!allowed(v, l)) costs[v] = never;]] TO [[]] STATEMENT)
mutant(cost_table_useless gang/detail/cost_tables.h "wrong condition: nodes after one that adds nothing are skipped"
  FROM [[of_nodes && classes_[i] == useless]] TO [[of_nodes && useless != ~std::uint32_t{0}]])
mutant(radix_sum gang/detail/cost_tables.h "off by one: a sum that carries into the last digit but one counts"
  FROM [[u + 1 < num_groups_]] TO [[u + 2 < num_groups_]])
mutant(front_add gang/detail/pareto_search.h "forgotten step: vectors that a new one covers stay"
  FROM [[if (at_least(v, (*this)[i])) continue;]] TO [[]] STATEMENT)
mutant(pareto_useless gang/detail/pareto_search.h "dropped condition: a cell above the nodes is skipped as useless"
  FROM [[if (below == capacities_->node_level()) useless = p.front;]] TO [[useless = p.front;]] STATEMENT)
mutant(greedy_orders gang/detail/greedy.h "dropped condition: only the first order is tried"
  FROM [[second == first]] TO [[true]])
mutant(greedy_in_use gang/detail/capacity_count.h "dropped condition: a node in use is not preferred"
  FROM [[in_use || gpus == 0 ? gpus : gpus + 65]] TO [[gpus]])
mutant(shared_short gang/shared_gpu_fit.h "wrong comparison: a cell with exactly the capacity is refused"
  IN [[      const std::vector<std::uint32_t> capacities = capacity(u, l);
      for (std::size_t c = 0; c < capacities.size(); ++c)
        if (capacities[c] < groups_[u].tasks) possible[c] = 0;]]
  FROM [[capacities[c] < groups_[u].tasks]] TO [[capacities[c] <= groups_[u].tasks]])
mutant(shared_devices gang/shared_gpu_fit.h "forgotten update: two tasks get the same fraction of a GPU"
  FROM [[here.erase(at);]] TO [[]] STATEMENT)
mutant(shared_greedy_order gang/detail/shared_capacity.h "swapped order: small tasks are placed first"
  FROM [[~std::uint64_t{gang.groups[m].task().total_gpu_milli()}]]
  TO [[std::uint64_t{gang.groups[m].task().total_gpu_milli()}]])
mutant(fill_full_node gang/detail/greedy.h "dropped condition: a node that is full is tried with all groups"
  FROM [[smallest_ <= node.gpus && missed < most_missed]] TO [[missed < most_missed]])
mutant(fill_misses gang/detail/greedy.h "dropped condition: a node is tried with all groups, however many do not fit"
  FROM [[smallest_ <= node.gpus && missed < most_missed]] TO [[smallest_ <= node.gpus]])
mutant(candidates_free gang/detail/candidate_cells.h "dropped condition: counts of four groups cost no steps"
  IN [[u > 0 && !steps.pay]] FROM [[u > 0]] TO [[u > 3]])
mutant(greedy_in_large_cells gang/topology_fit.h "dropped case: groups under constraints are not placed greedily in a large cell"
  FROM [[1 + looks / looks_of_a_step]] TO [[1 + looks]])
mutant(phrase_half_node gang/detail/proof_text_inl.h "wrong comparison: a task of half a node is alone on it"
  FROM [[2 * t.gpus > why_.node_gpus]] TO [[2 * t.gpus >= why_.node_gpus]])
mutant(phrase_replica gang/detail/proof_text_inl.h "wrong comparison: a replica that is as large as the cell of the proof is a slice of it"
  IN [[if (group.leader_level < why_.level)]] FROM [[group.leader_level < why_.level]]
  TO [[group.leader_level <= why_.level]])
mutant(min_cost_smaller gang/min_cost_fit.h "wrong end: a cell that the steps do not pay for ends the search"
  FROM [[if (!steps.try_pay(greedy_steps(inside.size(), groups_.size()))) break;]]
  TO [[if (!steps.try_pay(greedy_steps(inside.size(), groups_.size()))) return found;]] STATEMENT)
mutant(refusal_known gang/detail/refusals.h "dropped condition: counts of many groups are kept for cells that others refuse"
  FROM [[known[c] != 0 || most[c] >= groups[u].tasks]] TO [[most[c] >= groups[u].tasks]])
