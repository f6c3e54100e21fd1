# apiary/tests/mutants/model.cmake - mutants of model; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(node_fits_bad model/node_table.h "dropped condition: a bad node fits a task"
  FROM [[healthy && fits_if_healthy(task)]] TO [[fits_if_healthy(task)]])
mutant(node_fits_exactly model/node_table.h "wrong comparison: a GPU with exactly the fraction left is too full"
  IN [[enough += left_here >= task.gpu_milli ? 1 : 0;]]
  FROM [[left_here >= task.gpu_milli]] TO [[left_here > task.gpu_milli]])
mutant(node_shape_models model/node_table.h "dropped condition: a task may run on any model"
  FROM [[task.gpus <= gpus && (task.models >> model & 1) != 0]] TO [[task.gpus <= gpus]])
mutant(tightest_gpu_tie model/node_table.h "wrong tie: of GPUs with equal fractions left the last is tightest"
  FROM [=[gpu_left[i] < gpu_left[best]]=] TO [=[gpu_left[i] <= gpu_left[best]]=])
mutant(free_gpus_touched model/node_table.h "wrong comparison: a GPU that is used a little counts as free"
  FROM [[left_here == whole_gpu ? 1 : 0]] TO [[left_here + 1 >= whole_gpu ? 1 : 0]])
mutant(can_place_mask model/node_table.h "off by one: a mask may name a GPU that the node does not have"
  IN [[!node.fits_if_healthy(task) || where.gpu_mask >> node.gpus != 0]]
  FROM [[where.gpu_mask >> node.gpus]] TO [[where.gpu_mask >> (node.gpus + 1)]])
mutant(place_keeps_host model/node_table.h "forgotten update: a removed task keeps its CPU and memory"
  FROM [[left += task.host();]] TO [[]] STATEMENT)
mutant(task_sizes_of_part model/node_table.h "wrong index: tasks on part of a GPU count as tasks on whole ones"
  FROM [[task.wants_whole_gpus() ? task.gpus : 0]] TO [[task.gpus]])
mutant(task_sizes_last model/node_table.h "forgotten update: the size of the last removed task stays"
  FROM [[count != 0 ? node.task_sizes | bit : node.task_sizes & ~bit]] TO [[node.task_sizes | bit]])
mutant(node_resize_used model/node_table.h "dropped condition: a node loses GPUs that tasks use"
  FROM [[used(n).fits_in(shape.host) && used_gpus(n) <= shape.gpus]] TO [[used(n).fits_in(shape.host)]])
mutant(node_erase_gpus model/node_table.h "forgotten update: the GPUs of an erased node count"
  FROM [[total_gpus_ -= states_[n].gpus;]] TO [[]] STATEMENT)
mutant(add_time_limit model/job.h "off by one: a sum that is just possible counts as unlimited"
  FROM [[a > max_time - b]] TO [[a > max_time - b - 2]])
mutant(delays_minus model/job.h "wrong sign: a difference of delays is a sum"
  FROM [[by_cause[i] -= d.by_cause[i];]] TO [[by_cause[i] += d.by_cause[i];]] STATEMENT)
mutant(delay_clock_since model/job.h "forgotten update: the time since the last cause counts twice"
  FROM [[since_ = now;]] TO [[]] STATEMENT)
mutant(request_valid model/request.h "wrong comparison: a task on no part of a GPU is valid"
  FROM [[gpu_milli > 0 && gpu_milli < whole_gpu]] TO [[gpu_milli < whole_gpu]])
mutant(request_total model/request.h "forgotten factor: the fractions of all GPUs but one"
  FROM [[std::uint64_t{gpus} * gpu_milli]] TO [[std::uint64_t{gpu_milli}]])
mutant(resources_memory model/resources.h "forgotten comparison: memory is not looked at"
  FROM [[memory_mib <= available.memory_mib]] TO [[memory_mib >= 0]])
mutant(wait_reason_text model/plan.h "wrong result: the text of another reason"
  FROM [["it would fit, but not on the suggested nodes"]] TO [["it would fit if all nodes and GPUs were healthy"]])
