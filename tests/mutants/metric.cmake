# apiary/tests/mutants/metric.cmake - mutants of metric; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(fragmentation_too_many_gpus metric/detail/fragmentation_inl.h "dropped condition: a kind of more GPUs than a node writes outside its row"
  FROM [[t.kind.gpus > max_gpus_per_node]] TO [[t.kind.gpus > max_gpus_per_node + 1]])
mutant(fragmentation_rank metric/fragmentation.h "wrong comparison: a node with exactly the CPU is too small"
  FROM [[at[half - 1] <= x]] TO [[at[half - 1] < x]])
mutant(fragmentation_several metric/detail/fragmentation_inl.h "dropped condition: counts of several GPUs include those of one"
  FROM [[i != several]] TO [[true]])
mutant(fragmentation_models metric/detail/fragmentation_inl.h "wrong comparison: models that serve the same kinds as a later one share its table"
  FROM [[alike < model ? table_of_[alike] : static_cast<std::uint8_t>(tables_.size() - 1)]]
  TO [[static_cast<std::uint8_t>(tables_.size() - 1)]])
mutant(fragmentation_alike metric/fragmentation.h "wrong condition: only the last kind decides whether models are alike"
  FROM [[alike && serves(model, t.kind) == serves(other, t.kind)]]
  TO [[serves(model, t.kind) == serves(other, t.kind)]])
mutant(fragmentation_cpu_rows metric/detail/fragmentation_inl.h "forgotten step: rows of less CPU are not added"
  FROM [[counts[i] += counts[i - row_size];]] TO [[]] STATEMENT)
mutant(fragmentation_free metric/fragmentation.h "wrong comparison: GPUs that are used a little count as free"
  FROM [[left == whole_gpu ? 1 : 0]] TO [[left + 1 >= whole_gpu ? 1 : 0]])
mutant(cluster_keeps_old metric/fragmentation.h "forgotten update: a node's old value stays in the total"
  FROM [[weighted_[n] = now;]] TO [[]] STATEMENT)
mutant(mix_coverage metric/detail/task_mix_inl.h "wrong comparison: one kind more than the coverage needs"
  FROM [[static_cast<double>(mix.total_weight_) < wanted]]
  TO [[static_cast<double>(mix.total_weight_) <= wanted]])
mutant(mix_order metric/detail/task_mix_inl.h "forgotten step: the kinds are not taken in the order of their weights"
  FROM [[detail::merge_sort(mix.tasks_, before);]] TO [[]] STATEMENT)
mutant(mix_probability metric/detail/task_mix_inl.h "wrong divisor: probabilities are not those among the kinds taken"
  FROM [[task.weight / n / (static_cast<double>(mix.total_weight_) / n)]] TO [[task.weight / n]])
mutant(buddy_unusable metric/buddy_fragmentation.h "off by one: free cells of the size itself count as unusable"
  FROM [[static_cast<double>(leaves_from(l))]] TO [[static_cast<double>(leaves_from(l + 1))]])
mutant(utilization_peak metric/utilization.h "wrong comparison: the peak is the last value"
  FROM [[used > peak_]] TO [[used != peak_]])
mutant(utilization_start metric/utilization.h "dropped term: the mean begins at time 0"
  FROM [[static_cast<double>(now - start_)]] TO [[static_cast<double>(now)]])
