// apiary/container/score_tree.h - scores by index, and the first index with the highest score.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/rng.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps a score of one byte for each index 0, ..., size-1 and finds the lowest index with the
// highest score. Score 0, the initial one, means "not a candidate".
//
// Model: a tournament tree of fan-out 64. Each level holds the maxima of the blocks of 64 of the
//        level below, up to a level of one block. A block is one cache line.
// Cost:  set O(1) if the maximum of the block stays, otherwise at most O(log64 size) blocks; best
//        O(log64 size) blocks. Memory: about size * 65/64 bytes.
class score_tree {
 public:
  // "No index".
  static constexpr std::uint32_t npos = ~std::uint32_t{0};
  // A tree of size 0.
  score_tree() noexcept = default;
  // All scores are 0.
  explicit score_tree(std::uint32_t size) : size_(size) {
    std::size_t blocks = size;
    std::size_t total = 0;
    do {
      first_[depth_++] = total;
      blocks = blocks / block + (blocks % block != 0 ? 1 : 0);
      total += blocks * block;
    } while (blocks > 1);
    scores_.resize(total);
  }

  // A copy is an independent tree.
  score_tree(const score_tree&) = default;
  // Makes this tree a copy of the other one.
  score_tree& operator=(const score_tree&) = default;
  // A moved-from tree has size 0.
  score_tree(score_tree&& other) noexcept { *this = std::move(other); }
  // Takes the scores of the other tree, which then has size 0.
  score_tree& operator=(score_tree&& other) noexcept {
    scores_ = std::exchange(other.scores_, {});
    first_ = other.first_;
    depth_ = std::exchange(other.depth_, 0);
    size_ = std::exchange(other.size_, 0);
    candidates_ = std::exchange(other.candidates_, 0);
    return *this;
  }

  // The number of indices.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // The score of index i.
  [[nodiscard]] std::uint8_t operator[](std::uint32_t i) const noexcept {
    APIARY_ASSERT(i < size_);
    return scores_[i];
  }
  // How many indices have a score above 0.
  [[nodiscard]] std::uint32_t candidates() const noexcept { return candidates_; }

  // Adds indices up to size - 1, with score 0. Requires: size >= size().
  // Cost: amortized O(1) for each new index: memory grows by an eighth at once.
  void grow(std::uint32_t size) {
    APIARY_ASSERT(size >= size_);
    if (size > (depth_ > 1 ? first_[1] : scores_.size())) {
      score_tree larger(size + size / 8);
      std::copy_n(scores_.begin(), size_, larger.scores_.begin());
      for (std::uint32_t l = 1; l < larger.depth_; ++l) {
        for (std::size_t at = larger.first_[l - 1]; at < larger.first_[l]; at += block)
          larger.scores_[larger.first_[l] + (at - larger.first_[l - 1]) / block] =
              larger.block_max(at);
      }
      larger.candidates_ = candidates_;
      *this = std::move(larger);
    }
    size_ = size;
  }
  // Sets the score of index i.
  void set(std::uint32_t i, std::uint8_t score) noexcept {
    APIARY_ASSERT(i < size_);
    const std::uint8_t old = scores_[i];
    if (old == score) return;
    candidates_ += (score != 0 ? 1U : 0U) - (old != 0 ? 1U : 0U);
    scores_[i] = score;
    for (std::uint32_t l = 1; l < depth_; ++l) {
      const std::uint32_t b = i / block;
      std::uint8_t& best_of_block = scores_[first_[l] + b];
      const std::uint8_t was = best_of_block;
      if (score < was && old < was) return;
      if (score < was) score = block_max(first_[l - 1] + std::size_t{b} * block);
      if (score == was) return;
      best_of_block = score;
      i = b;
    }
  }

  // The lowest index with the highest score; npos if there is no candidate.
  [[nodiscard]] std::uint32_t best() const noexcept {
    if (candidates_ == 0) return npos;
    const std::uint8_t score = top();
    std::uint32_t i = 0;
    for (std::uint32_t l = depth_; l-- > 0;)
      i = i * block + find_in_block(first_[l] + std::size_t{i} * block, score);
    return i;
  }
  // The same for the members of `allowed` only. Requires: allowed.size() == size().
  // Cost: as best() if one with the highest score is allowed, otherwise one step for each block
  //       that may contain a better one than the best found so far, at most size/64 blocks.
  [[nodiscard]] std::uint32_t best_of(const summary_bitset& allowed) const noexcept {
    APIARY_ASSERT(allowed.size() == size_);
    return best_where([&](std::uint32_t i) { return allowed.test(i); });
  }
  // The same for the indices that accept(index) accepts.
  template <class Accept>
  [[nodiscard]] std::uint32_t best_where(const Accept& accept) const {
    if (candidates_ == 0) return npos;
    found result{npos, static_cast<std::uint8_t>(top() - 1)};
    search(depth_ - 1, 0, accept, result);
    if (result.index == npos) {
      result.score = 0;
      search(depth_ - 1, 0, accept, result);
    }
    return result.index;
  }

  // Loads the score of index i into the cache. Does not wait for it.
  void prefetch(std::uint32_t i) const noexcept { __builtin_prefetch(&scores_[i], 1); }

  // A uniformly random candidate, from `allowed` if that is given; npos if there is none.
  // Cost: O(size / number of such candidates) draws; after 64 failed draws it scans the candidates.
  [[nodiscard]] std::uint32_t random_candidate(rng& random,
                                               const summary_bitset* allowed = nullptr) const {
    APIARY_ASSERT(allowed == nullptr || allowed->size() == size_);
    if (candidates_ == 0) return npos;
    const auto counts = [&](std::uint32_t i) {
      return scores_[i] != 0 && (allowed == nullptr || allowed->test(i));
    };
    for (int attempt = 0; attempt < 64; ++attempt) {
      const std::uint32_t i = random.uniform(size_);
      if (counts(i)) return i;
    }
    std::vector<std::uint32_t> left;
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (i % block == 0 && depth_ > 1 && scores_[first_[1] + i / block] == 0) {
        i += block - 1;  // no candidate in this block
      } else if (counts(i)) {
        left.push_back(i);
      }
    }
    return left.empty() ? npos : left[random.uniform(static_cast<std::uint32_t>(left.size()))];
  }

 private:
  static constexpr std::uint32_t block = 64;

  struct found {
    std::uint32_t index;
    std::uint8_t score;  // only higher scores count
  };
  [[nodiscard]] std::uint8_t block_max(std::size_t at) const noexcept {
    const std::uint8_t* const scores = scores_.data() + at;
    std::uint8_t best = 0;
    for (std::uint32_t i = 0; i < block; ++i) best = scores[i] > best ? scores[i] : best;
    return best;
  }
  [[nodiscard]] std::uint32_t find_in_block(std::size_t at, std::uint8_t score) const noexcept {
    const std::uint8_t* const scores = scores_.data() + at;
    return static_cast<std::uint32_t>(
        static_cast<const std::uint8_t*>(std::memchr(scores, score, block)) - scores);
  }
  [[nodiscard]] std::uint8_t top() const noexcept { return block_max(first_[depth_ - 1]); }

  // Searches block b of level l in order and keeps the first accepted index with the best score.
  template <class Accept>
  void search(std::uint32_t l, std::uint32_t b, const Accept& accept, found& result) const {
    const std::size_t at = first_[l] + std::size_t{b} * block;
    for (std::uint32_t i = 0; i < block; ++i) {
      if (scores_[at + i] <= result.score) continue;
      const std::uint32_t index = b * block + i;
      if (l > 0) {
        search(l - 1, index, accept, result);
      } else if (accept(index)) {
        result = {index, scores_[at + i]};
      }
    }
  }

  std::vector<std::uint8_t> scores_;    // level 0, then the maxima of its blocks, ...
  std::array<std::size_t, 6> first_{};  // where each level begins
  std::uint32_t depth_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t candidates_ = 0;
};

APIARY_NAMESPACE_END
