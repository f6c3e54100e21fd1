// apiary/tests/support/data.h - where the public traces are.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/skip.h"

#include <filesystem>
#include <string>
#include <system_error>

namespace apiary_test {

// The folder of public traces of that name, with a slash behind it. To be called before main().
[[nodiscard]] inline std::string data_folder(const std::string& name) {
  const std::filesystem::path all(APIARY_DATA_DIR);
  std::error_code ignored;
  if (all.empty() || !std::filesystem::is_directory(all / name, ignored))
    missing_folders().push_back(name);
  return (all / name / "").string();
}

}  // namespace apiary_test
