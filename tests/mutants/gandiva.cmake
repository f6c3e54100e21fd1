# apiary/tests/mutants/gandiva.cmake - mutants of gandiva; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(packed_rate gandiva/detail/gandiva_jobs.h "missing reset: a rate that was measured in an earlier pack counts"
  FROM [[follower.packed_rate = leader.packed_rate = 0;]] TO [[]] STATEMENT)
mutant(kept_stays gandiva/detail/gandiva_jobs.h "missing reset: a pack that proved to pay stays so with another job"
  FROM [[follower.kept = false;]] TO [[]] STATEMENT)
mutant(pass_of_new gandiva/detail/gandiva_jobs.h "wrong choice: a job that comes to a server begins behind all others"
  FROM [[other.pass < *least]] TO [[other.pass > *least]])
mutant(leader_leaves gandiva/detail/gandiva_jobs.h "forgotten update: GPUs of a leader that leaves become idle under its follower"
  FROM [[servers_.pool().take(follower.request.job, r.where);]] TO [[]] STATEMENT)
mutant(moved_time gandiva/detail/gandiva_jobs.h "forgotten update: a job that has just moved may move again"
  IN [[    r.moved = now_;
    touched_.]] FROM [[r.moved = now_;]] TO [[]] STATEMENT)
mutant(waits_in_order gandiva/detail/gandiva_jobs.h "forgotten update: the time in the queue counts as waiting for a slice again"
  FROM [[waited[delay_cause::order] += now_ - r.since;]] TO [[]] STATEMENT)
mutant(shrinks_highest gandiva/detail/gandiva_jobs.h "wrong index: a shrinking job gives its lowest GPUs"
  FROM [[mask ^= std::bit_floor(mask);]] TO [[mask &= mask - 1;]] STATEMENT)
mutant(pays_equal gandiva/packing.h "wrong comparison: a pack that is as fast as slices pays"
  FROM [[packed_rate > sliced_rate]] TO [[packed_rate >= sliced_rate]])
mutant(failures_of_gpu gandiva/packing.h "forgotten step: failures with a job that ended are kept"
  FROM [[std::erase_if(failures_, [&](candidate t) { return t.gpu == gpu; });]] TO [[static_cast<void>(gpu);]] STATEMENT)
mutant(failed_order gandiva/packing.h "wrong order: failures are not found again"
  FROM [[if (at == failures_.end() || *at != pair) failures_.insert(at, pair);]]
  TO [[failures_.insert(failures_.begin(), pair);]] STATEMENT)
mutant(judge_both gandiva/detail/pack_trials.h "forgotten update: a pack that failed is tried the other way round"
  FROM [[trials.fail({leader.request.job, job.value});]] TO [[]] STATEMENT)
mutant(pack_memory gandiva/detail/pack_trials.h "forgotten term: the leader's memory is free"
  FROM [[gpu_memory_ - r->alone.memory]] TO [[gpu_memory_]])
mutant(pack_alike gandiva/detail/pack_trials.h "dropped condition: jobs of different priorities are packed"
  FROM [[follower.gpus == leader.gpus && follower.priority == leader.priority]] TO [[follower.gpus == leader.gpus]])
mutant(slice_tie gandiva/detail/time_slice.h "wrong tie: of jobs that ran equally long the last runs"
  FROM [[return jobs[a].job < jobs[b].job;]] TO [[return jobs[a].job > jobs[b].job;]] STATEMENT)
mutant(slice_priority gandiva/detail/time_slice.h "swapped comparison: low priorities run first"
  FROM [[return jobs[a].priority > jobs[b].priority;]] TO [[return jobs[a].priority < jobs[b].priority;]] STATEMENT)
mutant(grows_smallest gandiva/detail/gandiva_jobs.h "wrong tie: jobs with equal GPUs grow in the opposite order"
  FROM [[std::pair(j.has, j.job) < std::pair(next->has, next->job)]] TO [[std::pair(j.has, next->job) < std::pair(next->has, j.job)]])
mutant(affinity_kept gandiva/detail/servers.h "missing reset: an empty server keeps its affinity"
  FROM [[if (s.jobs.empty()) s.affinity = 0;]] TO [[]] STATEMENT)
mutant(movable_last gandiva/detail/servers.h "off by one: the last suspended job of a size stays indexed"
  FROM [[(more ? 1U : 0U)]] TO [[1U]])
mutant(empty_lowest gandiva/detail/servers.h "wrong choice: the tightest empty server, not the first"
  FROM [[best = (std::min)(best, empty_[gpus].find_first());]]
  TO [[if (best == summary_bitset::npos) best = empty_[gpus].find_first();]] STATEMENT)
mutant(relocate_least gandiva/detail/migration.h "wrong choice: the job that ran longest moves to idle GPUs"
  FROM [[r.pass < best->pass]] TO [[r.pass > best->pass]])
mutant(relocate_failed gandiva/detail/migration.h "wrong comparison: a higher priority is not tried after a lower one"
  FROM [=[priority <= failed[gpus]]=] TO [=[priority >= failed[gpus]]=])
mutant(defragment_most gandiva/detail/migration.h "wrong choice: the first server that gains, not the best"
  FROM [[most_gain = gain;]] TO [[most_gain = {INT64_MAX, INT64_MAX};]] STATEMENT)
mutant(consolidate_tightest gandiva/detail/migration.h "wrong choice: the last server of a job is not the tightest"
  FROM [=[if (servers[j].free < servers[best].free) best = j;]=] TO [=[]=] STATEMENT)
mutant(consolidate_own gandiva/detail/migration.h "wrong tie: a job leaves its servers for equal ones"
  FROM [[if ((a.own > 0) != (b.own > 0)) return a.own > 0;]] TO [[]] STATEMENT)
mutant(fewer_own gandiva/detail/migration.h "missing addition: the servers of a job do not count"
  FROM [=[++servers[unsubscribed + p.num_gpus()];]=] TO [[]] STATEMENT)
mutant(fewer_others gandiva/detail/migration.h "missing term: the other servers do not count"
  FROM [[all.num_with_unsubscribed(k)]] TO [[0]])
mutant(fewer_least gandiva/detail/migration.h "wrong comparison: a job does not leave a server whose GPUs just fit on the others"
  FROM [[fewer * all.max_unsubscribed() < least]] TO [[fewer * all.max_unsubscribed() <= least]])
mutant(unsubscribed_sum gandiva/detail/servers.h "wrong comparison: a job does not get all unsubscribed GPUs"
  FROM [[gpus > unsubscribed_gpus_]] TO [[gpus >= unsubscribed_gpus_]])
mutant(unsubscribed_count gandiva/detail/servers.h "forgotten update: a server is counted among those with equally many unsubscribed GPUs after it has others"
  FROM [[in ? 1U : ~0U]] TO [[in ? 1U : 0U]])
mutant(fewer_exact gandiva/detail/migration.h "wrong comparison: a job does not go to servers that just hold it"
  FROM [[if (missing <= used * k) return true;]] TO [[if (missing < used * k) return true;]] STATEMENT)
mutant(min_run_time gandiva/detail/migration.h "wrong comparison: a job must run longer than its least time"
  FROM [[add_time(r.moved, min_run_time_) <= now]] TO [[add_time(r.moved, min_run_time_) < now]])
mutant(held_equal gandiva/detail/servers.h "wrong comparison: jobs of equal priority hold GPUs"
  FROM [[at->first > priority]] TO [[at->first >= priority]])
mutant(marked_again gandiva/gandiva.h "dropped condition: a server that is marked bad again asks for decisions"
  FROM [[if (!pool().healthy(n)) return ran;]] TO [[]] STATEMENT)
mutant(assigned_full gandiva/detail/gandiva_jobs.h "dropped condition: a job goes to a full server of its affinity, although another server has free GPUs"
  FROM [[!same.valid() || servers.unsubscribed(same) < gpus]] TO [[!same.valid()]])
mutant(displace_least gandiva/time_sharing.h "wrong comparison: jobs that ran equally long displace each other"
  FROM [[pass_of(other) <= r.pass]] TO [[pass_of(other) < r.pass]])
mutant(pass_at_start gandiva/time_sharing.h "forgotten update: a job that comes begins with no time behind it"
  FROM [[r.pass = least_pass();]] TO [[r.pass = 0;]] STATEMENT)
mutant(retry_next_tick gandiva/time_sharing.h "forgotten update: a job that was stopped is not tried at the next decision"
  FROM [[if (!suspended_.empty()) retry_sliced_ = true;]] TO [[]] STATEMENT)
mutant(left_outside gandiva/time_sharing.h "forgotten update: a job that left and came again keeps its position among those that arrived"
  FROM [[if (arrived) arrived_.erase(std::exchange(r.position, 0));]] TO [[]] STATEMENT)
mutant(entitled_failed gandiva/time_sharing.h "forgotten update: a guaranteed job that the placer failed to place gets no time slice"
  IN [[      entitle(r, false);
      APIARY_RETURN_IF_ERROR(answer.status());]] FROM [[entitle(r, false);]] TO [[]] STATEMENT)
mutant(acted_left gandiva/time_sharing.h "forgotten update: a job that ended after an error of the placer is reported"
  FROM [[if (r->acted) std::erase(acted_, job);]] TO [[]] STATEMENT)
mutant(kind_failed gandiva/time_sharing.h "dropped condition: every job of a kind that starves is tried"
  FROM [[!sliced().failed(r.kind)]] TO [[true]]
  EQUIVALENT "a later job of the kind fails, too, so the condition only saves trials")
mutant(retry_victims gandiva/time_sharing.h "dropped condition: guaranteed jobs do not try again after one has stopped others"
  FROM [[owners_.retry([&](const auto& kind) { return kind.tenant == r.request.tenant; });]] TO [[]] STATEMENT)
mutant(movable_stopped gandiva/time_sharing.h "forgotten update: a job that stopped may migrate"
  FROM [[movable_.erase(r.request.job);]] TO [[]] STATEMENT)
mutant(gpu_time gandiva/time_sharing.h "dropped condition: jobs share time, whatever their GPUs"
  IN [[if (options_.shares_gpu_time)]] FROM [[options_.shares_gpu_time]] TO [[false]])
mutant(reported_order gandiva/time_sharing.h "wrong order: starts come before migrations"
  FROM [[a.what == verb::migrate ? 1 : 2]] TO [[a.what == verb::migrate ? 2 : 1]])
mutant(pass_rest gandiva/detail/time_slice.h "dropped term: of jobs with one weight not the least pass is found"
  FROM [[-(had % weight)]] TO [[0]])
mutant(read_ties gandiva/detail/time_slice.h "wrong choice: of jobs that ran equally long the one with the lowest id is stopped first"
  FROM [[std::sort(order.rbegin(), order.rend());]]
  TO [[std::sort(order.rbegin(), order.rend(), [](const auto& x, const auto& y) { return x.first != y.first ? x.first < y.first : y.second < x.second; });]] STATEMENT)
mutant(read_acted gandiva/time_sharing.h "dropped condition: a job that has just started is stopped again"
  FROM [[other.running && !other.fresh]] TO [[other.running]])
mutant(robin_again gandiva/time_sharing.h "wrong value: the job that was tried last is tried again first"
  FROM [[job_id(at->value + 1)]] TO [[*at]])
mutant(robin_limit gandiva/time_sharing.h "wrong comparison: one more job migrates than the limit says"
  FROM [[i < trials && moved < limit]] TO [[i < trials && moved <= limit]])
mutant(gain_rounded gandiva/gandiva_fgd.h "wrong rounding: a gain of less than a thousandth is none"
  FROM [[(gain - 1) / unit + 1]] TO [[gain / unit]])
