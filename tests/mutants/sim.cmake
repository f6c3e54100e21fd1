# apiary/tests/mutants/sim.cmake - mutants of sim; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(started_again sim/detail/simulator.h "wrong condition: a restart overwrites the first start"
  FROM [[if (r.started == max_time) r.started = now;]] TO [[r.started = now;]] STATEMENT)
mutant(until_inclusive sim/detail/simulator.h "wrong comparison: what happens at the last time is left out"
  FROM [[now > options_.until]] TO [[now >= options_.until]])
mutant(same_speed sim/detail/simulator.h "dropped condition: an event of a speed that does not change"
  FROM [[if (speed == state_[job.value].speed) continue;]] TO [[]] STATEMENT)
mutant(neighbours_kept sim/detail/simulator.h "missing reset: old neighbours count again"
  IN [[    new_neighbours_.clear();]] FROM [[new_neighbours_.clear();]] TO [[]] STATEMENT
  EQUIVALENT "their speeds are asked for once more; a speed that does not change is no event")
mutant(pause_twice sim/detail/simulator.h "wrong operand: a pause that has begun is forgotten"
  FROM [[(std::max)(p.since, add_time(now, pause))]] TO [[add_time(now, pause)]])
mutant(rounds_down sim/detail/simulator.h "wrong rounding: a slow job ends too early"
  FROM [[(left + speed - 1) / speed]] TO [[left / speed]])
mutant(progress_lost sim/detail/simulator.h "forgotten update: progress since the last start is lost"
  IN [[    ends_.cancel(job.value);
    p.done += (std::max<time_ms>)(0, now - p.since) * p.speed;]]
  FROM [[p.done += (std::max<time_ms>)(0, now - p.since) * p.speed;]] TO [[]] STATEMENT)
mutant(checkpoint sim/detail/simulator.h "wrong comparison: a failure loses the last whole interval, too"
  FROM [[p.done / step * step]] TO [[(p.done - 1) / step * step]])
mutant(shared_twice sim/detail/gpu_tenants.h "wrong count: a shared GPU is in use twice"
  FROM [[at.gpu_mask & ~used]] TO [[at.gpu_mask]])
mutant(booked_twice sim/detail/gpu_tenants.h "dropped condition: a job may start on the GPUs of another"
  FROM [[&o != &t && both != 0]] TO [[o.job == t.job && &o != &t && both != 0]])
mutant(shares_always sim/detail/gpu_tenants.h "forgotten update: a job that was packed once shares its GPUs for good"
  FROM [[is_alone(here, t, true)]] TO [[false]])
mutant(shares_early sim/detail/gpu_tenants.h "dropped condition: a job is alone before the decision has ended"
  FROM [[t.shared != 0 && t.before != 0]] TO [[t.shared != 0]])
mutant(shares_new sim/detail/gpu_tenants.h "wrong operand: a job that was packed shares beside one that has come to its GPU since"
  FROM [[kept ? o.gpus & o.before : o.gpus]] TO [[o.gpus]])
mutant(resized_alone sim/detail/gpu_tenants.h "dropped condition: a job that is resized shares no more"
  FROM [[how == tenancy::resized && t.job == job]] TO [[false]])
mutant(broken_start sim/detail/simulator.h "dropped condition: a job starts on a broken server"
  FROM [[std::binary_search(broken_.begin(), broken_.end(), at.node)]] TO [[false]])
mutant(fewer_gpus sim/detail/simulator.h "dropped condition: a job runs on fewer GPUs than it asks for"
  FROM [[gpus >= r.gpus && gpus <= most]] TO [[gpus <= most]])
mutant(never_saves sim/detail/simulator.h "dropped condition: an interval that is too long overflows"
  FROM [[(std::min)(options_.checkpoint_interval, max_time / full_speed)]] TO [[options_.checkpoint_interval]])
mutant(retry_estimate sim/detail/simulator.h "forgotten term: a retry is estimated as if it had kept nothing"
  FROM [[r.estimate - kept]] TO [[r.estimate]])
mutant(order_of_events sim/detail/simulator.h "wrong comparison: a repair is seen one event late"
  FROM [[repairs[repaired].first == now]] TO [[repairs[repaired].first < now]])
mutant(waited_again sim/detail/simulator.h "forgotten update: only the last wait of a job counts"
  FROM [[r.waited += action.waited;]] TO [[r.waited = action.waited;]] STATEMENT)
mutant(outage_overlap sim/detail/simulator.h "wrong comparison: a server may break at the moment of its repair"
  FROM [[o.from < until]] TO [[o.from <= until]])
mutant(scattered_end sim/detail/simulator.h "forgotten update: the area of an earlier state is lost"
  FROM [[area_ = area(now);]] TO [[]] STATEMENT)
mutant(broken_idle sim/detail/simulator.h "dropped condition: GPUs of a broken server are idle"
  FROM [=[broken_[n.value] ? 0 : gpus_[n.value] - used_[n.value]]=]
  TO [=[gpus_[n.value] - used_[n.value]]=])
mutant(replay_job_ids sim/replay.h "wrong id: a task that is refused leaves a gap"
  FROM [[job_id(static_cast<std::uint32_t>(answers.size()))]] TO [[job_id(t)]])
mutant(percentile_rank sim/simulation_result.h "off by one: a percentile is the value after it"
  FROM [[rank < 1.0 ? 0 : static_cast<std::size_t>(rank) - 1]]
  TO [[rank >= static_cast<double>(values.size()) ? values.size() - 1 : static_cast<std::size_t>(rank)]])
mutant(metrics_sizes sim/simulation_result.h "wrong comparison: jobs of the largest size are left out"
  FROM [[jobs[i].request.gpus > max_gpus]] TO [[jobs[i].request.gpus >= max_gpus]])
mutant(metrics_from_zero sim/simulation_result.h "forgotten term: the time before the first arrival counts"
  FROM [[from_zero * static_cast<double>(run.ended) / span]] TO [[from_zero]])
mutant(ended_again sim/detail/simulator.h "dropped condition: a job that has ended starts again"
  FROM [[out_.jobs[action.job.value].ended != max_time]] TO [[false]])
mutant(gpu_elsewhere sim/detail/simulator.h "dropped condition: a job gets GPUs that its server does not have"
  FROM [[std::uint64_t{at.gpu_mask} >> gpus != 0]] TO [[false]])
mutant(stopped_twice sim/detail/simulator.h "dropped condition: a failure stops a job that does not run"
  FROM [[job.value >= jobs_.size() || state_[job.value].speed == 0]] TO [[job.value >= jobs_.size()]])
mutant(failure_at_end sim/detail/simulator.h "wrong comparison: a job that is done fails"
  FROM [[f.at < jobs_[job.value].duration]] TO [[f.at <= jobs_[job.value].duration]])
mutant(retries_all sim/detail/simulator.h "wrong count: transient failures use up the retries"
  FROM [[failure.why == failure_class::unknown ? 1U : 0U]] TO [[1U]])
mutant(failure_event sim/detail/simulator.h "forgotten update: the event of a failure says that the job has ended"
  FROM [[record(why, job, now, {}, retried);]] TO [[record(why, job, now, {});]] STATEMENT)
mutant(failure_keeps sim/detail/simulator.h "forgotten update: a job that fails keeps its progress"
  IN [[    lose_work(job);
    return decided]] FROM [[lose_work(job);]] TO [[]] STATEMENT)
mutant(failure_twice sim/detail/simulator.h "wrong condition: a job that its scheduler retries is submitted again"
  FROM [[decided ? absl::OkStatus() : submit(job.value, now)]] TO [[submit(job.value, now)]])
mutant(failure_decided sim/detail/simulator.h "ignored answer: the classes decide, not the scheduler"
  FROM [[decided.value_or(is_retried(failure))]] TO [[is_retried(failure)]])
