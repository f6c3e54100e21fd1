// apiary/examples/replay_output.h - files that are there whole or not at all.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/status.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace example {

// Writes into a file beside `path` that takes its name in commit() and is gone otherwise. A device
// or a pipe is written directly.
class output_file {
 public:
  static absl::StatusOr<output_file> open(const std::string& path) {
    struct stat there {};
    const bool exists = ::stat(path.c_str(), &there) == 0;
    if (exists && S_ISDIR(there.st_mode)) return absl::ErrnoToStatus(EISDIR, path);
    if (exists && ::access(path.c_str(), W_OK) != 0) return absl::ErrnoToStatus(errno, path);
    output_file out;
    out.path_ = out.written_ = path;
    if (exists && !S_ISREG(there.st_mode)) return out;
    std::error_code unresolved;
    out.path_ = (exists ? std::filesystem::canonical(path, unresolved)
                        : std::filesystem::absolute(path, unresolved))
                    .string();
    if (unresolved) return absl::ErrnoToStatus(unresolved.value(), path);
    std::string name = out.path_ + ".XXXXXX";
    const int file = ::mkstemp(name.data());
    if (file < 0) return absl::ErrnoToStatus(errno, path);
    const mode_t hidden = ::umask(0);
    ::umask(hidden);
    const mode_t mode = exists ? there.st_mode & 0777U : 0666U & ~hidden;
    const bool failed = ::fchmod(file, mode) != 0;
    ::close(file);
    out.written_ = name;
    if (failed) return absl::ErrnoToStatus(errno, path);
    return out;
  }

  output_file(output_file&& other) noexcept { swap(other); }
  output_file& operator=(output_file&& other) noexcept {
    swap(other);
    return *this;
  }
  ~output_file() {
    if (written_ != path_) std::remove(written_.c_str());
  }

  // Where to write meanwhile.
  [[nodiscard]] const std::string& written() const noexcept { return written_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  absl::Status write(std::string_view text) const {
    std::FILE* file = std::fopen(written_.c_str(), "wb");
    if (file == nullptr) return absl::ErrnoToStatus(errno, path_);
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    int fault = whole ? 0 : errno;
    if (std::fclose(file) != 0 && fault == 0) fault = errno;
    return fault == 0 ? absl::OkStatus() : absl::ErrnoToStatus(fault, path_);
  }
  absl::Status commit() {
    if (written_ == path_) return absl::OkStatus();
    if (std::rename(written_.c_str(), path_.c_str()) != 0) return absl::ErrnoToStatus(errno, path_);
    written_ = path_;
    return absl::OkStatus();
  }

 private:
  output_file() = default;
  void swap(output_file& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(written_, other.written_);
  }

  std::string path_;
  std::string written_;
};

// Whether two names stand for one file, or would once the files exist.
inline bool same_file(const std::string& a, const std::string& b) {
  struct stat left {};
  struct stat right {};
  const bool a_exists = ::stat(a.c_str(), &left) == 0;
  const bool b_exists = ::stat(b.c_str(), &right) == 0;
  if (a_exists != b_exists) return false;
  if (a_exists) return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
  const auto place = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  };
  return place(a) == place(b);
}

// Opens an output for each path, none for an empty one. kInvalidArgument for a path that is taken:
// by an input or an earlier output.
inline absl::StatusOr<std::vector<std::optional<output_file>>> open_outputs(
    std::vector<std::string> taken, const std::vector<std::string>& paths) {
  std::vector<std::optional<output_file>> outputs;
  for (const std::string& path : paths) {
    outputs.emplace_back();
    if (path.empty()) continue;
    for (const std::string& other : taken) {
      if (!other.empty() && same_file(other, path)) {
        return absl::InvalidArgumentError(path + ": one file cannot be two of inputs and outputs");
      }
    }
    taken.push_back(path);
    APIARY_ASSIGN_OR_RETURN(outputs.back(), output_file::open(path));
  }
  return outputs;
}

// Files that are opened later must not become standard input, output or error.
inline absl::Status check_standard_streams() {
  if (::fcntl(STDOUT_FILENO, F_GETFD) < 0) return absl::ErrnoToStatus(errno, "standard output");
  for (int file = ::open("/dev/null", O_RDWR); file >= 0; file = ::open("/dev/null", O_RDWR)) {
    if (file <= STDERR_FILENO) continue;
    ::close(file);
    break;
  }
  return absl::OkStatus();
}

// Prints on standard output, to the last byte.
inline absl::Status print(std::string_view text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!whole || std::fflush(stdout) != 0) return absl::ErrnoToStatus(errno, "standard output");
  return absl::OkStatus();
}

}  // namespace example
