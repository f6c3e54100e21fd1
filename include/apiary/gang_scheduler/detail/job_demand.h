// apiary/gang_scheduler/detail/job_demand.h - what a job of a gang_queue needs beside its GPUs, as text.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/resources.h>

#include <absl/strings/str_cat.h>

#include <cstdint>
#include <span>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// "8 GPUs with 2.5 cores and 64 GiB each, of model "a" or "b"": CPU and memory beside each GPU.
[[nodiscard]] inline std::string text_of_demand(std::uint32_t gpus, const resources& per_gpu,
                                                std::span<const std::string> models) {
  std::string text = absl::StrCat(gpus, gpus == 1 ? " GPU" : " GPUs");
  const std::uint32_t cpu = per_gpu.cpu_milli;
  const std::uint32_t memory = per_gpu.memory_mib;
  if (cpu > 0) {
    absl::StrAppend(&text, " with ", cpu / 1000);
    if (cpu % 1000 != 0) {
      absl::StrAppend(&text, ".", absl::Dec(cpu % 1000, absl::kZeroPad3));
      text.resize(text.find_last_not_of('0') + 1);
    }
    text += cpu == 1000 ? " core" : " cores";
  }
  if (memory > 0) {
    const bool gib = memory % 1024 == 0;
    absl::StrAppend(&text, cpu > 0 ? " and " : " with ", gib ? memory / 1024 : memory,
                    gib ? " GiB" : " MiB");
  }
  const bool host = cpu > 0 || memory > 0;
  if (host && gpus > 1) text += " each";
  const char* before = host ? ", of model \"" : " of model \"";
  for (const std::string& model : models) {
    absl::StrAppend(&text, before, model, "\"");
    before = " or \"";
  }
  return text;
}

}  // namespace detail
APIARY_NAMESPACE_END
