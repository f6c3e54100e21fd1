# apiary/tests/mutants/trace.cmake - mutants of trace; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(generate_weight trace/job_list.h "off by one: sizes of weight 0 are drawn"
  FROM [[pick < size.weight]] TO [[pick <= size.weight]])
mutant(generate_rest trace/job_list.h "forgotten update: only the first size and the last are drawn"
  FROM [[pick -= size.weight;]] TO [[]] STATEMENT)
mutant(generate_rounds trace/job_list.h "wrong rounding: a job runs shorter than its GPU time"
  FROM [[(time + parts - 1) / parts]] TO [[time / parts]])
mutant(number_ties trace/job_list.h "wrong tie: jobs that arrive at once do not keep their order"
  FROM [[return a.arrival < b.arrival;]] TO [[return a.arrival <= b.arrival;]] STATEMENT)
mutant(milliseconds_round trace/job_readers.h "dropped condition: a half millisecond is cut off"
  FROM [[round && decimals.back() >= '5']] TO [[round && decimals.back() > '5']])
mutant(leap_year trace/job_readers.h "dropped term: 1900 is a leap year, and 2000 is not"
  FROM [[(year % 100 != 0 || year % 400 == 0)]] TO [[(year % 100 != 0)]])
mutant(month_ends trace/job_readers.h "wrong comparison: August has 30 days"
  FROM [[month < 8 ? month % 2 : 1 - month % 2]] TO [[month < 9 ? month % 2 : 1 - month % 2]])
mutant(swf_estimate trace/job_readers.h "wrong field: the limit of a job is how long it ran"
  FROM [=[value[limit] > 0 ? value[limit] : value[ran]]=] TO [=[value[ran]]=])
mutant(swf_beyond_limit trace/job_readers.h "dropped limit: a job runs longer than its estimate"
  FROM [[(std::min)(value[ran], estimate)]] TO [=[value[ran]]=])
mutant(swf_partial trace/job_readers.h "off by one: the lines of a job's partial executions count as jobs"
  FROM [[value[status] <= 4]] TO [[value[status] < 4]])
mutant(first_arrival trace/job_readers.h "forgotten step: times do not begin with the first arrival"
  FROM [[job.arrival -= first;]] TO [[]] STATEMENT)
mutant(csv_last_column trace/line_reader.h "dropped check: a line may have more fields than the header"
  FROM [[more && fields_.size() != width_]] TO [[more && fields_.size() < width_]])
mutant(csv_number_most trace/line_reader.h "dropped limit: a number may be larger than its column allows"
  FROM [[read_digits(text, max)]] TO [[read_digits(text, ~std::uint32_t{0})]])
mutant(blank_line_number trace/line_reader.h "forgotten update: an error names the line after the blank one"
  FROM [[number_ = blank_at;]] TO [[]] STATEMENT)
mutant(read_tasks_whole trace/openb_reader.h "wrong comparison: several GPUs are taken in part"
  FROM [[request.gpus > 1 ? whole_gpu : static_cast<milli_gpu>(milli)]]
  TO [[static_cast<milli_gpu>(milli)]])
mutant(openb_like_load trace/workload.h "wrong comparison: one task more than the load"
  FROM [[asked < trace.nodes.nodes.total_gpus() * 10 * spec.load_percent]]
  TO [[asked <= trace.nodes.nodes.total_gpus() * 10 * spec.load_percent]])
