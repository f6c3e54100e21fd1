# apiary/tests/mutants/fgd.cmake - mutants of fgd; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(placer_seen fgd/detail/kind_scores.h "forgotten update: every decision scores all changed nodes again"
  FROM [[wanted.seen = changes_;]] TO [[]] STATEMENT)
mutant(placer_order fgd/detail/kind_scores.h "wrong comparison: a kind does not see the last change before it was filled"
  FROM [[order_[n].change > wanted.seen]] TO [[order_[n].change > wanted.seen + 1]])
mutant(placer_unlink fgd/detail/kind_scores.h "forgotten update: a node that changes leaves the chain before it"
  FROM [[order_[order_[n].after].before = order_[n].before;]] TO [[]] STATEMENT)
mutant(placer_max_score fgd/detail/kind_scores.h "off by one: a node with score 0 does not fit"
  FROM [[(std::min)(score, max_score) + 1]] TO [[(std::min)(score, max_score)]])
mutant(gradient_free fgd/fragmentation_gradient.h "dropped condition: a fraction of a used GPU breaks a free one"
  FROM [[left == whole_gpu ? several(free - 1) : 0]] TO [[free > 0 ? several(free - 1) : 0]])
mutant(gradient_first_gpu fgd/fragmentation_gradient.h "wrong choice: the first GPU that fits, not the best"
  FROM [[to_score(ahead.gain_on(node.gpu_left[i], task.gpu_milli)) != best]] TO [[false]])
mutant(gradient_whole fgd/fragmentation_gradient.h "forgotten term: the GPUs that a task takes stay usable to fractions"
  FROM [[static_cast<std::int64_t>(task.gpus * row.of_gpu(whole_gpu))]] TO [[std::int64_t{0}]])
mutant(gradient_update fgd/fragmentation_gradient.h "forgotten update: a node keeps its first value"
  FROM [[usable_[n] = metric_.usable(nodes[n]);]]
  TO [[if (usable_[n] == 0) usable_[n] = metric_.usable(nodes[n]);]] STATEMENT)
mutant(best_fit_weight fgd/baseline_scores.h "wrong constant: GPUs weigh half"
  FROM [[cpu + 16 * gpu]] TO [[cpu + 8 * gpu]])
mutant(packing_idle fgd/baseline_scores.h "swapped terms: an idle node with many GPUs is preferred"
  FROM [[33 - free]] TO [[17 + free]])
mutant(clustering_own fgd/baseline_scores.h "dropped case: nodes with tasks of one size are like mixed ones"
  FROM [[node.task_sizes == own]] TO [[node.task_sizes == 0]])
mutant(random_first fgd/baseline_scores.h "off by one: the last GPU is never drawn"
  FROM [[random_.uniform(fitting)]] TO [[random_.uniform(fitting > 1 ? fitting - 1 : fitting)]])
mutant(kinds_oldest fgd/detail/kind_scores.h "swapped comparison: the kind that was used last is replaced"
  FROM [[a.last_use < b.last_use]] TO [[a.last_use > b.last_use]])
mutant(kinds_models fgd/detail/kind_scores.h "dropped term: kinds that differ in their models are one"
  IN [[task.gpu_milli, task.models}]] FROM [[task.models]] TO [[any_model]])
mutant(reason_suggested fgd/gpu_sharing.h "dropped condition: bad nodes that are not suggested are the reason"
  FROM [[suggested != nullptr && !suggested->test(n)]] TO [[false]])
mutant(health_forgotten fgd/gpu_sharing.h "forgotten update: a node that fails is not in the set of bad ones"
  FROM [[bad_.assign(n.value, !healthy);]] TO [[if (healthy) bad_.reset(n.value);]] STATEMENT)
mutant(gang_largest_first fgd/gang_sharing.h "swapped order: small tasks are placed first"
  FROM [[gang.groups[a].task().total_gpu_milli() > gang.groups[b].task().total_gpu_milli()]]
  TO [[gang.groups[a].task().total_gpu_milli() < gang.groups[b].task().total_gpu_milli()]])
mutant(gang_scores_back fgd/gang_sharing.h "dropped restore: nodes keep the scores of a gang that was only tried"
  IN [[for (const task_placement& p : placements) placer_.update(nodes_, p.where.node);
  if (!all)]]
  FROM [[for (const task_placement& p : placements) placer_.update(nodes_, p.where.node);]] TO [[]] STATEMENT)
mutant(gang_cell_order fgd/gang_sharing.h "forgotten step: cells are tried by number, not by what is free"
  FROM [[keyed_number::sort(cells);]] TO [[]] STATEMENT)
mutant(gang_cell_reset fgd/gang_sharing.h "missing reset: a gang may span the cells that were tried before"
  FROM [[in_cell.reset(n.value);]] TO [[]] STATEMENT)
mutant(program_count fgd/detail/load_program.h "forgotten count: a column has one task of each kind"
  FROM [=[++tasks[steps];]=] TO [=[tasks[steps] = 1;]=] STATEMENT)
mutant(program_agrees fgd/detail/load_program.h "dropped condition: an infinite answer is optimal"
  FROM [[solve(most_steps) && agrees()]] TO [[solve(most_steps)]])
mutant(prices_optimal fgd/detail/load_prices.h "dropped condition: a program that is not solved gives prices"
  FROM [[!solved.optimal()]] TO [[false]])
mutant(prices_cores fgd/detail/load_prices.h "dropped limit: what a task with many cores is worth overflows"
  FROM [[(std::min)(t.kind.cpu_milli, price_tables::max_cpu_milli)]] TO [[t.kind.cpu_milli]])
mutant(price_free fgd/detail/load_prices.h "forgotten row: a GPU of which a task takes a fraction stays free"
  FROM [[value(of_free(free_), of_free(free_ - 1), after)]]
  TO [[value(of_free(free_), of_free(free_), after)]])
mutant(price_knapsack fgd/detail/load_prices.h "forgotten term: a GPU earns one task only"
  FROM [=[earned[left - s] + best[s]]=] TO [=[best[s]]=])
mutant(learner_next fgd/price_score.h "wrong step: new prices after as many arrivals again, however many there were"
  FROM [[next_ < 1024 ? next_ : (std::max)(std::uint64_t{1024}, next_ / 16)]] TO [[next_]])
mutant(price_update fgd/price_score.h "forgotten update: a node keeps its first value"
  FROM [[now_[n] = now_of(nodes[n]);]]
  TO [[if (now_[n].value == 0) now_[n] = now_of(nodes[n]);]] STATEMENT)
mutant(kind_memory fgd/gpu_sharing.h "wrong reason: a task waits for memory that no node has"
  FROM [[task.memory_mib <= shapes_.most_memory_for(task)]] TO [[shapes_.most_memory_for(task) >= 0]])
mutant(node_free_ids fgd/gpu_sharing.h "wrong order: a node that joins gets the id that was used last"
  FROM [[return a > b;]] TO [[return a < b;]] STATEMENT)
mutant(node_removed fgd/gpu_sharing.h "forgotten update: tasks are placed on a node that was removed"
  IN [[placer_.update(nodes_, n);
  free_ids_.push_back(n);]]
  FROM [[placer_.update(nodes_, n);]] TO [[]] STATEMENT)
mutant(explain_shape fgd/detail/errors.h "dropped condition: nodes count that could not run the task"
  FROM [[!nodes.contains(n) || !nodes.shape(n).fits(task)]] TO [[!nodes.contains(n)]])
mutant(explain_models fgd/detail/errors.h "wrong condition: GPU model 0 is named although there is no other one"
  FROM [[task.wants_gpu() && has_models]] TO [[task.wants_gpu()]])
mutant(explain_preempt fgd/preemptive_sharing.h "dropped case: an explanation does not count on preemption"
  FROM [[if (plan.result == plan_result::preempt) return detail::explain_victims(plan, its != nullptr);]] TO [[]] STATEMENT)
mutant(gang_recover_bad fgd/gang_sharing.h "dropped condition: a gang starts on bad nodes"
  FROM [[!again && !nodes_[p.where.node].healthy]] TO [[false]])
mutant(gang_last_task fgd/detail/running_tasks.h "forgotten update: a gang without tasks runs"
  FROM [[if (found->second.tasks.first == none) jobs_.erase(found);]] TO [[]] STATEMENT)
mutant(score_kept fgd/detail/kind_scores.h "forgotten update: kinds keep the scores of the score before"
  FROM [[++score_version_;]] TO [[]] STATEMENT)
mutant(tasks_relink fgd/detail/running_tasks.h "forgotten update: the task after one that ended has no predecessor"
  FROM [[(gone.after == none ? from.last : tasks_[gone.after].links[kind].before) = gone.before;]]
  TO [[if (gone.after == none) from.last = gone.before;]] STATEMENT)
mutant(shapes_last fgd/gpu_sharing.h "off by one: the memory of the last node that left stays"
  FROM [[if (--nodes->second > 0) return;]] TO [[if (nodes->second-- > 0) return;]] STATEMENT)
mutant(shapes_least fgd/gpu_sharing.h "wrong end: the least memory of a shape counts"
  FROM [[nodes_with.rbegin()->first]] TO [[nodes_with.begin()->first]])
mutant(victims_bound fgd/detail/victim_index.h "wrong end: the first node that is searched is chosen"
  FROM [[if (is_least) break;]] TO [[break;]] STATEMENT)
mutant(victims_priority fgd/detail/victim_index.h "off by one: jobs of the same priority are evicted"
  IN [[first(position(priority, job_id(0)))]] FROM [[position(priority, job_id(0))]]
  TO [[position(priority + 1, job_id(0))]])
mutant(victims_forget fgd/detail/victim_index.h "forgotten update: a search goes on without nodes that have changed"
  FROM [[changed_.add(n);]] TO [[]] STATEMENT)
mutant(victims_again fgd/detail/victim_index.h "forgotten update: a search goes on with nodes as they were"
  FROM [=[versions_[n.value] += version_step;]=] TO [=[]=] STATEMENT)
mutant(victims_steps fgd/detail/gang_victims.h "dropped condition: each task of a gang reads all nodes"
  IN [[if (!is_open) index().open]] FROM [[!is_open]] TO [[true]])
mutant(bounds_two fgd/detail/victim_index.h "dropped case: two jobs that are enough together"
  FROM [[(std::min)(here.enough, here.second == never ? never : here.first + here.second)]] TO [[here.enough]])
mutant(bounds_fee fgd/detail/victim_index.h "wrong sum: a job on several GPUs is counted for each of them"
  FROM [[used == 1 ? c.cost : c.cost / used]] TO [[c.cost]])
mutant(victims_reserved fgd/detail/preemption_book.h "forgotten update: what is reserved is hidden from others only until a victim ends"
  FROM [[reserved_.ended(gangs_.nodes_, t.request, t.where);]] TO [[]] STATEMENT)
mutant(victims_stay fgd/detail/preemption_book.h "forgotten update: the victims of a cancelled job cannot be evicted again"
  FROM [[for (const job_id victim : cancelled.victims) add_candidate(victim);]] TO [[]] STATEMENT)
mutant(gang_sets fgd/detail/gang_victims.h "dropped step: victims that were found task by task are taken, whatever they cost"
  FROM [[plan.result != plan_result::wait && plan.cost == plan.lower_bound]] TO [[plan.result != plan_result::wait]])
mutant(gang_looks fgd/detail/gang_victims.h "dropped condition: however many tasks the gang has, sets are tried"
  FROM [[looks * min_tries <= max_looks]] TO [[true]])
mutant(spanning_nodes fgd/detail/preemption_book.h "forgotten update: a gang counts as one on several nodes after its tasks on others have ended"
  FROM [[--its.nodes == 1]] TO [[false]])
mutant(most_gpus fgd/detail/preemption_book.h "wrong order: the fewest GPUs of a node count, not the most"
  FROM [[most = (std::max)(most, nodes().shape(n).gpus);]]
  TO [[most = most == 0 ? nodes().shape(n).gpus : (std::min)(most, nodes().shape(n).gpus);]] STATEMENT)
mutant(gang_all fgd/detail/gang_victims.h "dropped step: a gang waits if its tasks one by one find no victims"
  FROM [[plan.result == plan_result::wait && !try_all(jobs, bound, plan)]]
  TO [[plan.result == plan_result::wait]])
mutant(sets_replaced fgd/detail/gang_victims.h "forgotten term: a job that is replaced stays in the cost"
  FROM [[at.cost - jobs_[at.last].cost + cost]] TO [[at.cost + cost]])
mutant(sets_smallest fgd/detail/gang_victims.h "wrong tie: of sets that cost the same the one that was made first comes first"
  FROM [[sets_[a].size != sets_[b].size]] TO [[false]])
mutant(victims_left fgd/detail/preemption_book.h "forgotten update: a task that starts beside a reservation uses nothing"
  FROM [[add_gpus(found->second.left, task, where, false);]] TO [[]] STATEMENT)
mutant(victim_ended fgd/detail/preemption_book.h "forgotten update: a job that has ended stays a victim"
  FROM [[preemptor_of_.erase(found);]] TO [[]] STATEMENT)
mutant(sharing_idle fgd/gpu_sharing_placer.h "dropped condition: GPUs of a bad server become idle"
  FROM [=[!scheduler_.nodes()[n].healthy]=] TO [[false]])
mutant(sharing_rest fgd/gpu_sharing_placer.h "wrong comparison: a job that fills the idle cluster is refused"
  FROM [[rest <= largest_rest_]] TO [[rest < largest_rest_]])
mutant(sharing_named_twice fgd/gpu_sharing_placer.h "forgotten step: a server that a placement names twice counts twice"
  FROM [[detail::sort_unique(servers);]] TO [[detail::merge_sort(servers);]] STATEMENT)
mutant(sharing_free_tasks fgd/gpu_sharing_placer.h "forgotten update: servers that become idle do not count"
  FROM [[count(servers, 1);]] TO [[]] STATEMENT)
