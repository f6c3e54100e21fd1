# apiary/tests/mutants/container.cmake - mutants of container; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(bitset_find_next_skips container/bitset.h "off by one: the search above skips a word"
  IN [[i = i / 64 + 1;  // the first word of the level below that was not searched]]
  FROM [[i / 64 + 1]] TO [[i / 64 + 2]])
mutant(bitset_find_prev_stays container/bitset.h "forgotten update: the search backwards sees its own word again"
  IN [[      --i;
      const std::uint64_t above]] FROM [[--i;]] TO [[]] STATEMENT)
mutant(bitset_update_stops container/bitset.h "off by one: an emptied word stays in the summary above the lowest"
  FROM [[empty = above == 0;]] TO [[empty = above == 0 && l > 1;]] STATEMENT)
mutant(bitset_announce_stops container/bitset.h "off by one: only the lowest summary is set"
  FROM [[words_[first_[l] + i / 64] |= bit(i);]]
  TO [[if (l == 1) words_[first_[l] + i / 64] |= bit(i);]] STATEMENT)
mutant(bitset_range_mask container/bitset.h "off by one: a range within a word includes its end"
  IN [[from & (bit(last) - 1)]] FROM [[(bit(last) - 1)]] TO [[(bit(last) * 2 - 1)]])
mutant(bitset_all_but_words container/bitset.h "off by one: a range that ends with a word counts as two words"
  FROM [[(last - 1) / 64 != first / 64]] TO [[last / 64 != first / 64]]
  EQUIVALENT "the general answer for ranges of several words holds for one word, too")
mutant(bitset_all_but_self container/bitset.h "dropped term: the exception of a range must be a member"
  FROM [=[(words_[i / 64] | bit(i))]=] TO [=[words_[i / 64]]=])
mutant(bitset_common_mask container/bitset.h "missing reset: the next word of two sets is searched from the old bit"
  IN [[      i *= 64;
      mask = ~std::uint64_t{0};]]
  FROM [[mask = ~std::uint64_t{0};]] TO [[]] STATEMENT)
mutant(bitset_common_last container/bitset.h "off by one: the last word of two sets is not searched"
  FROM [[(last - 1) / 64 + 1]] TO [[(last - 1) / 64]])
mutant(bitset_fill_last container/bitset.h "off by one: a full set has a member beyond its size"
  FROM [[bit(bits) - 1]] TO [[bit(bits) * 2 - 1]]
  IN [[words_[w] = bits >= 64 ? ~std::uint64_t{0} : bit(bits) - 1;]])
mutant(bitset_and_summary container/bitset.h "forgotten update: an intersection keeps the summaries"
  IN [[update(static_cast<std::uint32_t>(w));]]
  FROM [[update(static_cast<std::uint32_t>(w));]] TO [[]] STATEMENT)
mutant(score_tree_grow container/score_tree.h "forgotten update: a tree that has grown has no maxima"
  FROM [[larger.block_max(at)]] TO [[std::uint8_t{0}]])
mutant(bitset_grow container/bitset.h "forgotten update: a set that has grown has no summaries"
  FROM [[if (words_[w] != 0) larger.announce(static_cast<std::uint32_t>(w));]] TO [[]] STATEMENT)
mutant(score_tree_candidates container/score_tree.h "forgotten update: a candidate that is replaced counts twice"
  FROM [[(old != 0 ? 1U : 0U)]] TO [[(score == 0 ? 1U : 0U)]])
mutant(score_tree_lowered container/score_tree.h "forgotten update: a lowered maximum stays"
  FROM [[score < was && old < was]] TO [[score < was]])
mutant(score_tree_lone_candidate container/score_tree.h "off by one: the block after an empty one loses its first candidate"
  FROM [[i += block - 1;]] TO [[i += block;]] STATEMENT)
mutant(score_tree_tie container/score_tree.h "wrong tie: the last index of the best score wins"
  FROM [[scores_[at + i] <= result.score]] TO [[scores_[at + i] < result.score]])
mutant(score_tree_second_search container/score_tree.h "missing reset: only the highest score is searched among the allowed"
  IN [[result.score = 0;]] FROM [[result.score = 0;]] TO [[]] STATEMENT)
mutant(score_tree_random_blocks container/score_tree.h "wrong index: the block before decides"
  FROM [[scores_[first_[1] + i / block] == 0]] TO [[scores_[first_[1] + (i / block + 1) / 2] == 0]])
mutant(timer_tie container/timer_queue.h "wrong tie: of equal times the highest id is first"
  FROM [[a.id < b.id]] TO [[a.id > b.id]]
  IN [[return a.at != b.at ? a.at < b.at : a.id < b.id;]])
mutant(timer_cancel container/timer_queue.h "forgotten update: a gap deep in the heap is not filled with an earlier timer"
  FROM [[if (i < heap_.size()) settle(i, last);]] TO [[if (i < heap_.size()) put(i, last);]] STATEMENT)
mutant(timer_children container/timer_queue.h "off by one: the last child is not looked at"
  FROM [[child + 1 < heap_.size()]] TO [[child + 2 < heap_.size()]])
mutant(weighted_lightest container/weighted_tree.h "wrong comparison: the lightest item of a range may be beyond its end"
  FROM [[if (here.at.key <= to) consider(here.at, here.left);]]
  TO [[consider(here.at, here.left);]] STATEMENT)
mutant(weighted_reach container/weighted_tree.h "wrong comparison: a sum that is reached exactly is passed"
  FROM [[with_it >= sum]] TO [[with_it > sum]])
mutant(weighted_update container/weighted_tree.h "forgotten update: the lightest of a subtree forgets a child"
  FROM [[lighter(child->lightest, all.lightest)]]
  TO [[child == left && lighter(child->lightest, all.lightest)]])
mutant(weighted_tie container/weighted_tree.h "wrong tie: of equal weights the highest id is lightest"
  IN [[a.weight != b.weight ? a.weight < b.weight : a.id < b.id]]
  FROM [[a.id < b.id]] TO [[a.id > b.id]])
mutant(summed_free container/summed_tree.h "dropped update: the node of an erased item is not used again"
  FROM [[free_.push_back(n);]] TO [[]] STATEMENT)
mutant(summed_after container/summed_tree.h "off by one: the item that was passed is found again"
  FROM [[Traits::before(passed, here.at)]] TO [[!Traits::before(here.at, passed)]])
mutant(summed_edit container/summed_tree.h "forgotten update: an edit does not change the summaries above it"
  FROM [[if (found) update(n);]] TO [[]] STATEMENT)
mutant(dense_map_id container/dense_map.h "off by one: the id of a copied value"
  IN [[    values_.push_back(value);
    return Id(size() - 1);]] FROM [[Id(size() - 1)]] TO [[Id(size())]])
mutant(keyed_number_tie container/keyed_number.h "wrong tie: of equal keys the highest number is least"
  FROM [[a.number < b.number]] TO [[a.number > b.number]])
mutant(fast_div_rounds container/fast_div.h "off by one: the multiplier is rounded down"
  FROM [[(std::uint64_t{1} << shift_) / divisor + 1]]
  TO [[(std::uint64_t{1} << shift_) / divisor]])
