# apiary/tests/mutants/philly.cmake - mutants of philly; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(cycle_tries philly/detail/philly_queues.h "off by one: a try that has not ended counts"
  FROM [[acquires(first, now) ? whole : whole + 1]] TO [[whole + 1]])
mutant(cycle_acquires philly/detail/philly_queues.h "wrong comparison: a job acquires one moment longer"
  FROM [[now - begun(first, now) < acquire]] TO [[now - begun(first, now) <= acquire]])
mutant(queue_tie philly/detail/philly_queues.h "wrong tie: of jobs that were submitted at once the last is first"
  FROM [[std::pair(best->key, best->job.value) < std::pair(i->weight, i->id)]]
  TO [[std::pair(best->key, i->id) < std::pair(i->weight, best->job.value)]])
mutant(queue_window philly/detail/philly_queues.h "off by one: the first moment of the window is left out"
  FROM [[until - cycle_.acquire + 1]] TO [[until - cycle_.acquire + 2]])
mutant(queue_wraps philly/detail/philly_queues.h "dropped case: jobs that began before the cycle turned are not seen"
  FROM [[if (from >= 0) return here;]] TO [[return here;]] STATEMENT)
mutant(locality_packed philly/detail/locality_search.h "off by one: a packed job may span one server more"
  FROM [[static_cast<std::uint32_t>(enough - sums.begin()) + 1]]
  TO [[static_cast<std::uint32_t>(enough - sums.begin()) + 2]])
mutant(locality_rack philly/detail/locality_search.h "swapped order: the fullest rack is tried first"
  FROM [[pool_.idle(a) > pool_.idle(b)]] TO [[pool_.idle(a) < pool_.idle(b)]])
mutant(locality_failed philly/detail/locality_search.h "forgotten update: GPUs that become idle do not allow another try"
  IN [[    pool_.give(where);
    given_ = true;]] FROM [[given_ = true;]] TO [[]] STATEMENT)
mutant(victims_given_back philly/detail/locality_search.h "dropped step: a job that need not stop is a victim"
  FROM [[!fits || !search.look(gpus, locality).empty()]] TO [[!fits]])
mutant(victims_taken philly/detail/locality_search.h "dropped restore: victims' GPUs stay idle"
  FROM [[for (const std::size_t i : victims) search.take(candidates[i].job, candidates[i].where);]]
  TO [[]] STATEMENT)
mutant(cause_quota philly/philly.h "wrong comparison: a quota that is just used up is not exhausted"
  FROM [[owner.running_gpus() >= owner.quota]] TO [[owner.running_gpus() > owner.quota]])
mutant(quota_claimed philly/detail/philly_jobs.h "dropped term: GPUs that a collector wants are granted twice"
  FROM [[owner.wanted == gpus ? 0 : owner.wanted]] TO [[0]])
mutant(relaxed_again philly/detail/philly_jobs.h "missing reset: tries at the last locality count at the next"
  FROM [[r.relaxed = then;]] TO [[]] STATEMENT)
mutant(hopeless_kept philly/detail/philly_jobs.h "missing reset: what was hopeless stays so"
  FROM [[hopeless_.clear();]] TO [[]] STATEMENT)
mutant(collector_dismissed philly/detail/philly_jobs.h "forgotten step: a collector whose quota was used up keeps collecting"
  FROM [[within && t.collector.valid() && !allows(t, t.wanted, 0)]] TO [[false]])
mutant(candidates_just_started philly/detail/philly_jobs.h "dropped condition: a job that has just started is preempted"
  FROM [[if (-job->key == now) continue;]] TO [[]] STATEMENT)
mutant(candidates_quota philly/detail/philly_jobs.h "wrong comparison: a tenant within its quota is preempted"
  FROM [[job && left > t.quota]] TO [[job && left >= t.quota]])
mutant(candidates_order philly/detail/philly_jobs.h "swapped order: the oldest job is preempted first"
  FROM [[a.started > b.started]] TO [[a.started < b.started]])
mutant(retries philly/philly.h "off by one: a job is retried once too often"
  FROM [[r->retries++ < options_.max_retries]] TO [[r->retries++ <= options_.max_retries]])
mutant(preempt_percent philly/philly.h "wrong comparison: preemption begins above its percentage"
  FROM [[in_use * 100 >= all * *options_.preempt_percent]] TO [[in_use * 100 > all * *options_.preempt_percent]])
mutant(preempt_decided philly/philly.h "wrong comparison: a try that began with the last decision is skipped"
  FROM [[jobs_.at(at.job).began <= decided_]] TO [[jobs_.at(at.job).began < decided_]])
mutant(start_again philly/philly.h "forgotten step: GPUs that a collector gave up are not used at once"
  FROM [[again = again || owner.collected < collected;]] TO [[]] STATEMENT)
mutant(locality_rack_tie philly/detail/locality_search.h "wrong tie: of equally full racks the last is tried first"
  FROM [[a < b]] TO [[a > b]])
mutant(locality_aim philly/detail/locality_search.h "dropped condition: a job collects in a rack that is too small"
  FROM [[pool_.total(r) >= gpus && (!rack || is_before(r, *rack))]] TO [[!rack || is_before(r, *rack)]])
