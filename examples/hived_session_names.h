// Gangs by the names that a host gives them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace example {

// A gang has a job id for as long as it has devices. Ids rise with admission, and begin anew after
// the largest; memory is that of the gangs there are.
class gang_names {
 public:
  [[nodiscard]] std::optional<apiary::job_id> find(const std::string& name) const {
    const auto found = jobs_.find(name);
    return found == jobs_.end() ? std::nullopt : std::optional(apiary::job_id(found->second));
  }
  // Of the gang of this name; if there is none, the one that add would give it.
  [[nodiscard]] apiary::job_id id_for(const std::string& name) const {
    const auto job = find(name);
    return job ? *job : apiary::job_id(next_);
  }
  // Requires: the job has a name.
  [[nodiscard]] const std::string& operator[](apiary::job_id job) const {
    return names_.find(job.value)->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }

  // No effect on a name that is there.
  void add(const std::string& name) {
    if (!jobs_.try_emplace(name, next_).second) return;
    names_.try_emplace(next_, name);
    do {
      next_ = apiary::job_id(next_ + 1).valid() ? next_ + 1 : 0;
    } while (names_.contains(next_));
  }
  void remove(apiary::job_id job) {
    const auto found = names_.find(job.value);
    if (found == names_.end()) return;
    jobs_.erase(found->second);
    names_.erase(found);
  }

 private:
  absl::flat_hash_map<std::string, std::uint32_t> jobs_;
  absl::flat_hash_map<std::uint32_t, std::string> names_;
  std::uint32_t next_ = 0;
};

}  // namespace example
