# apiary/tests/mutants/explain.cmake - mutants of explain; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(blocking_only_if_had explain/blocking_resource.h "dropped condition: a requirement that a gang does not have can block it"
  FROM [[if (detail::drop_requirement(less, d)) dropped.push_back(d);]]
  TO [[detail::drop_requirement(less, d); dropped.push_back(d);]] STATEMENT)
mutant(blocking_least explain/blocking_resource.h "forgotten step: requirements after the one that is tried stay"
  IN [[k = i + 1]] FROM [[i + 1]] TO [[i + 2]])
mutant(blocking_gpus explain/blocking_resource.h "wrong result: no resource blocks a gang that lacks GPUs"
  FROM [[return {blocking_resource::gpus};]] TO [[return {};]] STATEMENT)
mutant(what_if_evict_range explain/what_if.h "off by one: the last node of an evicted gang stays full"
  FROM [[a < gang.last]] TO [[a + 1 < gang.last]])
mutant(what_if_host explain/what_if.h "forgotten rollback: CPU and memory stay as they were tried"
  FROM [[tx.on_rollback<&assign_host>(host, host);]] TO [[]] STATEMENT)
mutant(what_if_tasks explain/what_if.h "forgotten factor: a portion takes the CPU of one task"
  FROM [[std::uint64_t{p.tasks} * group.host.cpu_milli]] TO [[std::uint64_t{group.host.cpu_milli}]])
mutant(unblock_worse explain/unblock_search.h "swapped comparison: a more expensive set of nodes replaces a cheaper one"
  FROM [[found_ && cost >= cost_]] TO [[found_ && cost < cost_]])
mutant(unblock_order explain/unblock_search.h "wrong order: the cheapest nodes are given back first"
  FROM [[by_cost.push_back({~cost_of(n), n});]] TO [[by_cost.push_back({cost_of(n), n});]] STATEMENT)
mutant(unblock_not_back explain/unblock_search.h "forgotten commit: a node that is not needed stays in the set's state"
  FROM [[back.commit();]] TO [[]] STATEMENT)
mutant(unblock_is_least explain/unblock_search.h "wrong result: a set of victims above the lower bound counts as least"
  FROM [[best_.is_least = found.cost == found.lower_bound;]] TO [[best_.is_least = true;]] STATEMENT)
mutant(unblock_cost_of_nodes explain/detail/node_freeing.h "dropped term: nodes with the same GPUs in use cost the same as none"
  FROM [[std::uint64_t{whole.gpus - now.gpus} * (nodes + 1) + 1]]
  TO [[std::uint64_t{whole.gpus - now.gpus} * (nodes + 1)]])
mutant(unblock_classes explain/detail/node_freeing.h "dropped comparison: nodes that differ in memory are of one class"
  IN [[      if (of[a].host.memory_mib != of[b].host.memory_mib)
        return]] FROM [[of[a].host.memory_mib != of[b].host.memory_mib]] TO [[false]])
mutant(proof_weight_needed explain/proof_check.h "dropped check: the weight that is needed is believed"
  FROM [[if (needed != w.needed) return false;]] TO [[]] STATEMENT)
mutant(proof_most explain/proof_check.h "wrong comparison: a cell that holds exactly what is needed is refused"
  FROM [[r.most < w.needed]] TO [[r.most <= w.needed]])
mutant(proof_listed explain/proof_check.h "dropped check: a list that has enough is believed"
  FROM [[if (is_at_least(v, counts_)) return false;]] TO [[]] STATEMENT)
mutant(proof_memo explain/proof_check.h "missing reset: sums for other weights are used"
  FROM [[if (w.weights != weights_) best_.clear();]] TO [[]] STATEMENT)
mutant(proof_together explain/proof_check.h "dropped condition: tasks of a slice may be apart on a node"
  IN [[      if (n % together(k, node_level_) != 0) continue;
      for (const node_free& rest : rests)
        best]] FROM [[n % together(k, node_level_) != 0]] TO [[false]])
mutant(proof_gaps explain/proof_check.h "dropped check: slices that do not fill a cell are believed"
  FROM [[why.gaps.empty() || why.gaps == slice_gaps(why)]] TO [[true]])
mutant(proof_allowed explain/proof_check.h "off by one: a limit at the level itself is left out"
  FROM [[s.level == above]] TO [[s.level == above + 1]])
mutant(proof_fraction explain/proof_check.h "wrong comparison: a GPU with exactly the fraction left is too full"
  FROM [[way[i] < fraction]] TO [[way[i] <= fraction]])
mutant(proof_models explain/proof_check.h "forgotten update: tasks beside a leader accept any model"
  FROM [[models &= m.models;]] TO [[models = m.models;]] STATEMENT)
