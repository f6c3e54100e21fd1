# apiary/tests/mutants/core.cmake - mutants of core; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(range_size core/ids.h "off by one: a range has one id too many"
  IN [[size() const noexcept { return last.value - first.value; }]]
  FROM [[last.value - first.value]] TO [[last.value - first.value + 1]])
mutant(range_contains_last core/ids.h "wrong comparison: a range contains the id after its last one"
  FROM [[i.value - first.value < last.value - first.value]]
  TO [[i.value - first.value <= last.value - first.value]])
mutant(range_index core/ids.h "wrong index: the i-th id is that of the front"
  FROM [[Id(first.value + i)]] TO [[Id(first.value + i / 2)]])
mutant(id_valid core/ids.h "off by one: another value than all bits stands for no id"
  FROM [[value != ~std::uint32_t{0}]] TO [[value < ~std::uint32_t{1}]])
mutant(rng_bias core/rng.h "dropped condition: numbers that make the others rarer are kept"
  FROM [[static_cast<std::uint32_t>(product) >= reject_below]] TO [[true]])
mutant(rng_shuffle_last core/rng.h "off by one: the last item of a shuffle never stays"
  FROM [[uniform(static_cast<std::uint32_t>(i))]]
  TO [[uniform(static_cast<std::uint32_t>(i - 1))]])
mutant(rng_rotation core/rng.h "wrong constant: the state is rotated by another number of bits"
  FROM [[rotate(state_[3], 45)]] TO [[rotate(state_[3], 44)]])
mutant(digest_without_length core/digest.h "forgotten update: a text does not hash its length"
  FROM [[add(std::uint64_t{text.size()});]] TO [[]] STATEMENT)
mutant(digest_word core/digest.h "missing reset: a word of a text keeps what was added"
  IN [[        word = 0;]] FROM [[word = 0;]] TO [[]] STATEMENT
  EQUIVALENT "a word has 8 bytes: the shifts have moved the old ones out before the next is added, except in the last word of a text, whose hash stays a function of text and length")
mutant(digest_last_word core/digest.h "off by one: the last bytes of a text are left out"
  FROM [[i + 1 == text.size()]] TO [[i + 1 > text.size()]])
mutant(sort_stability core/sort.h "wrong tie: equal values of two runs change places"
  FROM [[less(values[right], values[left])]] TO [[!less(values[left], values[right])]])
mutant(sort_last_run core/sort.h "off by one: the last values are not merged"
  FROM [[(std::min)(middle + width, n)]] TO [[(std::min)(middle + width - 1, n)]])
mutant(sort_insertion core/sort.h "wrong comparison: equal values of a run change places"
  FROM [[less(value, values[to - 1])]] TO [[!less(values[to - 1], value)]])
mutant(status_name_without_id core/status.h "swapped condition: a job with an id is called one without"
  IN [[return job.valid() ? absl::StrCat(kind,]] FROM [[job.valid()]] TO [[(job.value > 0)]])
mutant(digits_most core/digits.h "wrong comparison: the largest number that is allowed is refused"
  FROM [[value > most]] TO [[value >= most]])
mutant(digits_none core/digits.h "dropped condition: an empty text is 0"
  FROM [[text.empty() ? std::nullopt : std::optional(value)]] TO [[std::optional(value)]])
