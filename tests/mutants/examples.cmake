# apiary/tests/mutants/examples.cmake - mutants of examples/programs/import and examples/text; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(block_last examples/programs/import/slurm_topology.h "off by one: the last block of a larger block is left out"
  FROM [[b <= last / blocks_below]] TO [[b < last / blocks_below]])
mutant(block_clash examples/programs/import/slurm_topology.h "wrong index: a message names other blocks than those that have the name"
  FROM [[(at->second - first) * blocks]] TO [[at->second - first]])
mutant(copies_inherited examples/programs/import/slurm_nodes.h "off by one: what the first node of a line inherits does not count"
  FROM [[names.size() - (inherited > 0 ? 0 : 1)]] TO [[names.size() - 1]])
mutant(copies_of_faulty examples/programs/import/slurm_nodes.h "dropped check: what lines of defaults inherit does not count"
  FROM [[from_.count_copied(inherited)]] TO [[from_.count_copied(0)]])
mutant(copies_of_words examples/programs/import/slurm_nodes.h "wrong value: a word needs no more than its bytes"
  FROM [[bytes += 32 + word.size()]] TO [[bytes += word.size()]])
mutant(twice_first examples/programs/import/slurm_texts.h "wrong value: a node that is described twice is first at its second line"
  FROM [[at(first->second)]] TO [[at(n)]])
mutant(list_width examples/programs/import/slurm_writer.h "dropped zeros: n08 and n9 become one range"
  FROM [[number.insert(0, digits.size() - number.size(), '0');]] TO [[]] STATEMENT)
mutant(gres_fewer examples/programs/import/slurm_nodes.h "wrong comparison: a gres.conf with too few GPUs is accepted"
  FROM [[gpus[n] < nodes[n].gpus]] TO [[false]])
mutant(boards examples/programs/import/slurm_nodes.h "dropped factor: a node has the CPUs of one board"
  FROM [[all_sockets ? 1 : *factor]] TO [[1]])
mutant(level_default examples/programs/import/slurm_writer.h "wrong condition: the name of a level is never written"
  FROM [[level != default_level_name(l + 1)]] TO [[false]])
mutant(published_seen examples/programs/published_fragmentation.h "wrong tie: of equal scores the last GPU is taken"
  FROM [[here.score > found.score]] TO [[here.score >= found.score]])
mutant(published_q2 examples/programs/published_fragmentation.h "forgotten term: GPUs that are too small are usable"
  FROM [[f.q3 += t.probability * (left - small);
        f.q2 += t.probability * small;]] TO [[f.q3 += t.probability * left;]] STATEMENT)
mutant(load_buckets examples/programs/load_curves.h "off by one: an empty bucket does not look at the one before"
  FROM [[if (k > 0) here.append(buckets[k - 1]);]]
  TO [[if (k > 1) here.append(buckets[k - 1]);]] STATEMENT)
mutant(load_used examples/programs/load_curves.h "forgotten update: the use of placed tasks is not summed"
  FROM [[now.used += task.request.total_gpu_milli();]]
  TO [[now.used = task.request.total_gpu_milli();]] STATEMENT)
mutant(decimal_tiny examples/text/decimal.h "wrong comparison: 0.0001 is written with an exponent"
  FROM [[std::abs(x) < 1e-4]] TO [[std::abs(x) <= 1e-4]])
mutant(decimal_point examples/text/decimal.h "swapped condition: whole numbers get no point"
  FROM [[!tiny && shortest.find('.') == std::string::npos]] TO [[tiny]])
