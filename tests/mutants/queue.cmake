# apiary/tests/mutants/queue.cmake - mutants of queue; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(early_end_moves queue/conservative_queue.h "forgotten update: a job that ends early does not let later ones move up"
  FROM [[move_up_ = move_up_ || now < r->ends;]] TO [[]] STATEMENT)
mutant(late_job_rebuilds queue/conservative_queue.h "forgotten update: a job that runs longer than its estimate frees its GPUs"
  IN [[ends_.insert({r.ends, late->id, r.request.gpus});
      rebuild_ = true;]] FROM [[rebuild_ = true;]] TO [[]] STATEMENT)
mutant(late_job_doubles queue/conservative_queue.h "wrong time: a late job is expected to end at once"
  FROM [[(std::max<time_ms>)(1, now - r.started)]] TO [[1]])
mutant(profile_earliest queue/detail/gpu_profile.h "wrong comparison: a job needs its GPUs beyond its end"
  FROM [[when < add_time(at, length)]] TO [[when <= add_time(at, length)]])
mutant(profile_crossings queue/detail/gpu_profile.h "off by one: a gap that begins where the search ends is found"
  FROM [[here.at >= in.until]] TO [[here.at > in.until]])
mutant(forecast_back queue/forecast.h "forgotten update: an early end does not move the reservation back"
  FROM [[earlier_ = earlier_ || r.ends > now;]] TO [[]] STATEMENT)
mutant(forecast_withdrawn queue/forecast.h "forgotten update: a job that comes again keeps the reservation of the first"
  IN [[void withdrawn() noexcept { earlier_ = true; }]] FROM [[earlier_ = true;]] TO [[]] STATEMENT)
mutant(forecast_ended queue/forecast.h "forgotten update: a job that has ended keeps its GPUs in the forecast"
  FROM [[if (was_there) ended_.push_back(job);]] TO [[]] STATEMENT)
mutant(forecast_restored queue/forecast.h "forgotten step: jobs that the search put back stay"
  IN [[        APIARY_RETURN_IF_ERROR(end_until(end, ends, of));
        return where;]] FROM [[APIARY_RETURN_IF_ERROR(end_until(end, ends, of));]] TO [[]] STATEMENT)
mutant(depth_free queue/conservative_queue.h "off by one: one job more than the depth has a reservation"
  FROM [[starts_.size() + others < options_.depth]] TO [[starts_.size() + others <= options_.depth]])
mutant(depth_of_batch queue/conservative_queue.h "forgotten term: jobs that will get reservations together do not count"
  FROM [[starts_.size() + others < options_.depth]] TO [[starts_.size() < options_.depth]])
mutant(depth_unknown queue/conservative_queue.h "wrong count: jobs whose start is unknown fill the depth"
  FROM [[starts_.size() + others < options_.depth]] TO [[tried_.size() < options_.depth]])
mutant(idle_of_old_servers queue/conservative_queue.h "missing reset: what fits on the healthy servers is not asked again"
  FROM [[fits_idle_.clear();]] TO [[]] STATEMENT)
mutant(bad_server queue/conservative_queue.h "forgotten update: a job that does not fit on the healthy servers has a reservation"
  FROM [[bad_.insert(n.value);]] TO [[]] STATEMENT)
mutant(start_over_tried queue/conservative_queue.h "forgotten step: jobs for which a start was sought get no reservation when all are made again"
  FROM [[unreserved_.merge(tried_);]] TO [[]] STATEMENT)
mutant(bad_again queue/book.h "dropped condition: a server that is marked bad again is an event"
  FROM [[!jobs.empty() || placer_.idle_gpus() != idle]] TO [[true]])
mutant(bad_full queue/book.h "dropped condition: a server without idle GPUs breaks, and reservations stay"
  FROM [[!jobs.empty() || placer_.idle_gpus() != idle]] TO [[placer_.idle_gpus() != idle]])
mutant(healthy_again queue/book.h "dropped condition: a server that is marked healthy again is an event"
  IN [[servers_changed_ = placer_.idle_gpus() != idle;]] FROM [[placer_.idle_gpus() != idle]] TO [[true]])
mutant(idle_with_jobs queue/conservative_queue.h "forgotten step: running jobs keep others from fitting on the healthy servers"
  FROM [[APIARY_RETURN_IF_ERROR(idle.finish(job_id(i->id)));]] TO [[]] STATEMENT)
mutant(profile_zero queue/detail/gpu_profile.h "forgotten step: a change of 0 stays"
  IN [[} else if (gone) {]] FROM [[gone]] TO [[false]])
mutant(profile_forget queue/detail/gpu_profile.h "wrong value: the time now has the GPUs of the old start"
  IN [[free = free_at(now);]] FROM [[free_at(now)]] TO [[free_]])
mutant(easy_extra queue/reservations.h "wrong comparison: a job of exactly the extra GPUs delays the first"
  FROM [[kind.gpus <= reserved_.extra_gpus]] TO [[kind.gpus < reserved_.extra_gpus]])
mutant(easy_until queue/reservations.h "off by one: a backfilled job may end after the reservation"
  IN [[max_time) return max_time;
      return reserved_.at - now;]] FROM [[return reserved_.at - now;]] TO [[return reserved_.at - now + 1;]] STATEMENT)
mutant(easy_gpus_conflict queue/reservations.h "missing reset: sizes that conflicted are not tried again"
  IN [[      q.queues().forget_delays();  // the placer may choose other GPUs now]]
  FROM [[q.queues().forget_delays();]] TO [[]] STATEMENT)
mutant(easy_failed queue/reservations.h "wrong order: a job that failed to start counts as one that runs"
  FROM [[still_runs = forecast_.add(r.request, where);]] TO [[still_runs = forecast_.add(r.request, where);
        r.still_runs = r.still_runs || still_runs;]] STATEMENT)
mutant(easy_suspends queue/reservations.h "wrong call: a job that overtakes suspends others, and the reservation stays"
  FROM [[q.start(*next, now, anywhere)]] TO [[q.start(*next, now)]])
mutant(easy_error queue/job_queue.h "swapped statements: after an error there is a reservation"
  IN [[      APIARY_RETURN_IF_ERROR(reservation_.fill(q, *first, now));
      blocked_ = true;]] FROM [[APIARY_RETURN_IF_ERROR(reservation_.fill(q, *first, now));]]
  TO [[blocked_ = true;
      APIARY_RETURN_IF_ERROR(reservation_.fill(q, *first, now));]] STATEMENT)
mutant(order_started queue/job_queue.h "forgotten call: an order does not know which jobs start"
  IN [[}) all_->order_.started(r.key);]] FROM [[all_->order_.started(r.key);]] TO [[]] STATEMENT)
mutant(idle_error queue/conservative_queue.h "forgotten case: after an error a kind never fits on the healthy servers"
  FROM [[if (known != fits_idle_.end()) return known->second;]]
  TO [[if (known != fits_idle_.end()) return known->second;
    fits_idle_[r.kind] = false;]] STATEMENT)
mutant(stop_left queue/stop.h "forgotten case: a job that does not come back is no error"
  FROM [[!done.ok() && place.where.ok() && !*place.where]] TO [[false]])
mutant(stop_suspended queue/suspending_queue.h "forgotten step: a job that does not come back is taken to run"
  IN [[    if (place.where.ok() && *place.where) begin(r, **place.where, now);
    suspend(place.stopped, now);]] FROM [[suspend(place.stopped, now);]]
  TO [[if (place.where.ok() && *place.where) suspend(place.stopped, now);]] STATEMENT)
mutant(aging_sign queue/orders.h "wrong sign: a high priority waits longer"
  FROM [[now - r.priority * aging]] TO [[now + r.priority * aging]])
mutant(failed_sizes queue/kinds.h "missing reset: a size that failed once is never tried again"
  FROM [[for (auto& [kind, q] : queues_) q.failed = q.delays = false;]] TO [[]] STATEMENT)
mutant(wait_empty queue/kinds.h "forgotten step: a kind of which no job waits stays"
  FROM [[if (found->second.jobs.empty()) queues_.erase(found);]] TO [[]] STATEMENT)
mutant(wait_looks queue/kinds.h "forgotten update: each job looks at all kinds again"
  FROM [[!offered_ || idle > *offered_]] TO [[true]])
mutant(wait_more_idle queue/kinds.h "dropped condition: kinds that were too large stay out when GPUs become idle"
  FROM [[!offered_ || idle > *offered_]] TO [[!offered_]])
mutant(wait_late_job queue/kinds.h "forgotten update: a job that begins to wait within a round is not seen"
  IN [[gpus_ += kind.gpus;
    if (offered_) offer(kind, q);]] FROM [[if (offered_) offer(kind, q);]] TO [[]] STATEMENT)
mutant(wait_tie queue/kinds.h "wrong tie: of jobs with equal keys the highest id is first"
  FROM [[a.job.id > b.job.id]] TO [[b.job.id > a.job.id]])
mutant(wait_cause queue/kinds.h "wrong comparison: a job of exactly the idle GPUs waits for capacity"
  FROM [[if (kind.gpus > idle) return delay_cause::capacity;]]
  TO [[if (kind.gpus >= idle) return delay_cause::capacity;]] STATEMENT)
mutant(run_queues_below queue/detail/run_queues.h "forgotten update: jobs that fall below 0 keep their order"
  FROM [[below_.insert({first->id, first->id, gpus});]] TO [[]] STATEMENT)
mutant(run_queues_before queue/detail/run_queues.h "wrong comparison: jobs of the same position count as before it"
  FROM [[position % gpus == 0 ? jobs.sum_to(level, job.value) : jobs.sum_to(level)]] TO [[jobs.sum_to(level)]])
mutant(bounded_patience queue/suspending_queue.h "wrong time: a job starves a millisecond late"
  FROM [[waits_.begin()->first <= now - options_.patience]] TO [[waits_.begin()->first < now - options_.patience]])
mutant(bounded_lost queue/suspending_queue.h "forgotten update: work that a breakdown undid counts as done"
  IN [[if (broke) r.lost]] FROM [[broke]] TO [[false]])
mutant(kept_work queue/book.h "wrong value: what was lost is kept, and the other way round"
  FROM [[work - work % interval]] TO [[work % interval]])
mutant(bounded_turns queue/suspending_queue.h "wrong order: a job that starves stops those that have starved for longer"
  FROM [[*turn < turn_of(r)]] TO [[turn_of(r) < *turn]])
mutant(bounded_smaller queue/suspending_queue.h "wrong comparison: jobs as large as the one that waits migrate"
  FROM [[last->gpus < r.request.gpus]] TO [[last->gpus <= r.request.gpus]])
mutant(bounded_arrival queue/suspending_queue.h "dropped condition: a job that arrives stops others only at the next choice"
  FROM [[choose || (stops && r.had == 0 && r.since == now)]] TO [[choose]])
mutant(bounded_owed queue/suspending_queue.h "forgotten update: a slice that was cut short begins again"
  FROM [[r.owed -= now - r.started;]] TO [[]] STATEMENT)
mutant(placer_max_servers queue/server_placer.h "dropped condition: every job may span all servers"
  FROM [[anywhere_ ? pool_.num_servers() : pool_.fewest_servers(gpus)]] TO [[pool_.num_servers()]])
mutant(placer_jobs_on queue/server_placer.h "forgotten step: a job on two GPUs of a server is there twice"
  FROM [[detail::sort_unique(jobs);]] TO [[detail::merge_sort(jobs);]] STATEMENT)
mutant(withdrawal_moves queue/conservative_queue.h "forgotten update: a withdrawal does not let later jobs move up"
  IN [[set_start(*r, max_time);
      move_up_ = true;]] FROM [[move_up_ = true;]] TO [[]] STATEMENT)
mutant(move_up_once queue/conservative_queue.h "forgotten step: jobs move up once, not until none moves"
  FROM [[        while (move_up(now)) {
        }]] TO [[        if (move_up(now)) {
        }]] STATEMENT)
mutant(moved_frees queue/conservative_queue.h "forgotten update: what a job frees when it moves up stays taken"
  FROM [[profile_.give(r.reserved, add_time(r.reserved, length_of(r)), gpus);]] TO [[]] STATEMENT)
mutant(moved_later queue/conservative_queue.h "forgotten argument: a job does not move up by less than its length"
  FROM [[profile_.earliest(now, length_of(r), r.request.gpus, r.reserved)]]
  TO [[profile_.earliest(now, length_of(r), r.request.gpus)]])
mutant(postponed queue/conservative_queue.h "forgotten step: a job that does not fit at its time loses its reservation"
  FROM [[set_start(r, profile_.earliest(change, length_of(r), r.request.gpus));]] TO [[]] STATEMENT)
mutant(wait_demand queue/book.h "wrong order: the kind of a job is taken before its request"
  FROM [[at->second.kind = placer_.kind_of(r);]] TO [[at->second.kind = placer_.kind_of({});]] STATEMENT)
mutant(stop_put_back queue/stop.h "forgotten step: jobs that need not stop stay stopped"
  FROM [[put_back(job)]] TO [[absl::AbortedError("")]])
mutant(stop_order queue/stop.h "wrong order: the job that was stopped first is put back first"
  FROM [[std::reverse(place.stopped.begin(), place.stopped.end());]] TO [[]] STATEMENT)
mutant(visit_next queue/kinds.h "forgotten step: of each kind only the first job is visited"
  FROM [[nexts.push_back({*next, kind});]] TO [[]] STATEMENT)
mutant(suspend_had queue/suspending_queue.h "forgotten update: a stopped job has not run"
  FROM [[r.had += now - r.started;]] TO [[]] STATEMENT)
mutant(suspend_quantum queue/suspending_queue.h "off by one: the next choice is one quantum late"
  FROM [[now / options_.quantum * options_.quantum]] TO [[(now / options_.quantum + 1) * options_.quantum]])
mutant(suspend_enough queue/suspending_queue.h "off by one: a job that needs all GPUs of later jobs does not stop them"
  FROM [[placer().idle_gpus() + running_.gpus() - running_.gpus_before(r.key, r.request.job) <
            r.request.gpus]]
  TO [[placer().idle_gpus() + running_.gpus() - running_.gpus_before(r.key, r.request.job) <=
            r.request.gpus]])
mutant(suspend_arrival queue/suspending_queue.h "dropped condition: a job that arrives stops others though it is not to"
  FROM [[std::exchange(arrived_, false) && options_.stops_on_arrival]]
  TO [[std::exchange(arrived_, false)]])
mutant(levels_reached queue/orders.h "wrong comparison: a job at a threshold has not reached it"
  FROM [[std::upper_bound(thresholds_.begin(), thresholds_.end(), attained)]] TO [[std::lower_bound(thresholds_.begin(), thresholds_.end(), attained)]])
mutant(priority_sign queue/orders.h "swapped order: low priorities come first"
  FROM [[-std::int64_t{r.priority}]] TO [[std::int64_t{r.priority}]])
mutant(held_cause queue/job_queue.h "wrong comparison: a job of exactly the free GPUs waits for capacity"
  FROM [[first->kind.gpus > placer().idle_gpus()]] TO [[first->kind.gpus >= placer().idle_gpus()]])
mutant(held_first queue/job_queue.h "forgotten update: the first job waits for other jobs, not for GPUs"
  FROM [=[waited[held.cause] += now - held.since;]=] TO [[]] STATEMENT)
mutant(held_cancelled queue/job_queue.h "forgotten step: the first job is cancelled, and still waits for GPUs"
  FROM [[if (held_.job == job) held_ = {};]] TO [[]] STATEMENT)
mutant(backfill_just_before queue/reservations.h "wrong comparison: a job that ends just when the first one starts is not backfilled"
  FROM [[ends <= *at && ends != max_time]] TO [[ends < *at && ends != max_time]])
mutant(backfill_delays queue/forecast.h "wrong comparison: jobs that end when the first one starts are in its way"
  IN [[i && i->key <= at;]] FROM [[i->key <= at]] TO [[i->key < at]])
mutant(backfill_free queue/forecast.h "wrong count: a job that has ended by then is taken to hold its GPUs"
  FROM [[r->still_runs || r->ends <= at_]] TO [[r->still_runs]])
mutant(backfill_suspends queue/forecast.h "dropped condition: GPUs of jobs that the first one suspends do not count"
  FROM [[answer.result == plan_result::wait]] TO [[answer.result != plan_result::bind]])
mutant(backfill_undecided queue/forecast.h "dropped case: jobs are backfilled without limit if the first one is undecided"
  FROM [[!(may && answer.undecided)]] TO [[true]])
mutant(kinds_retry queue/reservations.h "missing reset: a kind that did not fit is not tried again"
  IN [[    base::ended(r, now);
    full_.clear();]] FROM [[full_.clear();]] TO [[]] STATEMENT)
mutant(kinds_after_start queue/reservations.h "forgotten step: a kind that would delay is not tried after a start"
  FROM [[q.queues().forget_delays_after(*next);]] TO [[]] STATEMENT)
mutant(kinds_once queue/reservations.h "wrong call: a job that was refused is tried again after a start"
  FROM [[q.queues().forget_delays_after(*next)]] TO [[q.queues().forget_delays()]])
mutant(kinds_longest queue/reservations.h "dropped condition: short jobs of a kind that would delay are not tried"
  FROM [[delays ? (std::min)(*at - now, max_time - 1) : max_time]] TO [[delays ? time_ms{-1} : max_time]])
mutant(preempt_reserves queue/stop.h "forgotten step: GPUs that were reserved in vain stay reserved"
  FROM [[(void)placer.finish(r.job);]] TO [[]] STATEMENT)
mutant(held_error queue/job_queue.h "forgotten update: after an error the first job waits for other jobs"
  FROM [[held_ = held;]] TO [[]] STATEMENT)
mutant(start_error queue/job_queue.h "forgotten step: a job that does not start keeps the GPUs that were reserved for it"
  FROM [[!done.ok() && preempts]] TO [[false]])
