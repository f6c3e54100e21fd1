// Maps the names that a host gives to gangs to job ids.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace example {

// A gang has a job id as long as the scheduler has the gang. New gangs get the next free id; after the
// largest id they start at 0 again. Memory: O(gangs + nodes suggested for them).
class gang_names {
 public:
  [[nodiscard]] std::optional<apiary::job_id> find(const std::string& name) const {
    const auto found = jobs_.find(name);
    return found == jobs_.end() ? std::nullopt : std::optional(apiary::job_id(found->second));
  }
  // The id of the gang with this name; if there is none, the id that add would give it.
  [[nodiscard]] apiary::job_id id_for(const std::string& name) const {
    const auto job = find(name);
    return job ? *job : apiary::job_id(next_);
  }
  // Requires: the job has a name.
  [[nodiscard]] const std::string& operator[](apiary::job_id job) const {
    return names_.find(job.value)->second.name;
  }
  // The names of the pods of the gang, in the order of its tasks; empty: they have none.
  [[nodiscard]] const std::vector<std::string>& pods(apiary::job_id job) const {
    static const std::vector<std::string> none;
    const auto found = names_.find(job.value);
    return found == names_.end() ? none : found->second.pods;
  }
  // The nodes suggested last for the gang; nullopt: all nodes, or there is no such gang.
  [[nodiscard]] std::optional<apiary::summary_bitset> suggested(apiary::job_id job) const {
    const auto found = names_.find(job.value);
    return found == names_.end() ? std::nullopt : found->second.suggested;
  }
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
  // A hash of the nodes suggested for each gang; it does not depend on the order of calls. 0: none.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  // Adds a name unless it exists.
  void add(const std::string& name, std::vector<std::string> pods = {}) {
    if (!jobs_.try_emplace(name, next_).second) return;
    names_.try_emplace(next_, gang{name, std::move(pods), std::nullopt});
    do {
      next_ = apiary::job_id(next_ + 1).valid() ? next_ + 1 : 0;
    } while (names_.contains(next_));
  }
  // Stores the nodes suggested for a gang, if the gang has a name. Cost: O(nodes, old and new).
  void suggest(apiary::job_id job, std::optional<apiary::summary_bitset> nodes) {
    const auto found = names_.find(job.value);
    if (found == names_.end()) return;
    hash_ ^= fact(job, found->second.suggested) ^ fact(job, nodes);
    found->second.suggested = std::move(nodes);
  }
  void remove(apiary::job_id job) {
    const auto found = names_.find(job.value);
    if (found == names_.end()) return;
    hash_ ^= fact(job, found->second.suggested);
    jobs_.erase(found->second.name);
    names_.erase(found);
  }

 private:
  struct gang {
    std::string name{};
    std::vector<std::string> pods{};
    std::optional<apiary::summary_bitset> suggested{};
  };
  static std::uint64_t fact(apiary::job_id job,
                            const std::optional<apiary::summary_bitset>& suggested) {
    if (!suggested) return 0;
    apiary::digest all;
    all.add(job.value);
    for (std::uint32_t n = suggested->find_first(); n < suggested->size();
         n = suggested->find_next(n + 1))
      all.add(n);
    return all.value();
  }

  std::unordered_map<std::string, std::uint32_t> jobs_;
  std::unordered_map<std::uint32_t, gang> names_;
  std::uint32_t next_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace example
