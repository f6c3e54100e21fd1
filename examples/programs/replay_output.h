// apiary/examples/programs/replay_output.h - files that are there whole or not at all.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/status.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace example {

namespace detail {

// Names of the temporary files there are, for a signal handler.
inline std::array<std::atomic<const char*>, 8> temporary_names{};
static_assert(std::atomic<const char*>::is_always_lock_free);

inline constexpr std::array<int, 6> deadly_signals{SIGHUP,  SIGINT,  SIGQUIT,
                                                   SIGTERM, SIGXCPU, SIGXFSZ};

extern "C" inline void remove_temporaries_and_die(int signal) {
  for (const std::atomic<const char*>& name : temporary_names) {
    if (const char* there = name.load()) ::unlink(there);
  }
  ::raise(signal);  // which by now has its default action
}

// A file with a name of its own that is gone with the object, or when a signal ends the program.
class temporary_file {
 public:
  // Beside `path`, with these permissions; nullptr and errno if that fails.
  static std::unique_ptr<temporary_file> create(const std::string& path, mode_t mode) {
    const auto slot = std::find(temporary_names.begin(), temporary_names.end(), nullptr);
    APIARY_VERIFY(slot != temporary_names.end());
    sigset_t deadly;
    sigset_t before;
    ::sigemptyset(&deadly);
    for (const int signal : deadly_signals) ::sigaddset(&deadly, signal);
    ::sigprocmask(SIG_BLOCK, &deadly, &before);
    std::unique_ptr<temporary_file> made(new temporary_file(path + ".XXXXXX", *slot));
    const int file = ::mkstemp(made->name_.data());
    int fault = file < 0 ? errno : 0;
    if (file >= 0) *slot = made->name_.c_str();
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (file >= 0 && ::fchmod(file, mode) != 0) fault = errno;
    if (file >= 0) ::close(file);
    if (fault == 0) return made;
    made.reset();
    errno = fault;
    return nullptr;
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    if (slot_ == nullptr) return;
    ::unlink(name_.c_str());
    slot_ = nullptr;
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  temporary_file(std::string name, std::atomic<const char*>& slot)
      : name_(std::move(name)), slot_(slot) {}

  std::string name_;
  std::atomic<const char*>& slot_;  // nullptr as long as there is no file
};

// The path behind links, of a file that may not exist yet.
inline std::filesystem::path resolved(const std::string& path, std::error_code& fault) {
  std::filesystem::path end = path;
  for (int links = 0; links < 40; ++links) {
    std::error_code none;
    const std::filesystem::path target = std::filesystem::read_symlink(end, none);
    if (none)
      return std::filesystem::weakly_canonical(std::filesystem::absolute(end, fault), fault);
    end = end.parent_path() / target;
  }
  fault = std::make_error_code(std::errc::too_many_symbolic_link_levels);
  return end;
}

}  // namespace detail

// After this call a closed pipe makes the write fail, and a signal that ends the program removes the
// temporary files. Signals that the caller ignores remain ignored.
inline void prepare_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int signal : detail::deadly_signals) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = detail::remove_temporaries_and_die;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

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
    out.path_ = path;
    if (exists && !S_ISREG(there.st_mode)) return out;
    std::error_code fault;
    out.path_ = detail::resolved(path, fault).string();
    if (fault) return absl::ErrnoToStatus(fault.value(), path);
    const mode_t hidden = ::umask(0);
    ::umask(hidden);
    const mode_t mode = exists ? there.st_mode & 0777U : 0666U & ~hidden;
    out.temporary_ = detail::temporary_file::create(out.path_, mode);
    if (!out.temporary_) return absl::ErrnoToStatus(errno, path);
    return out;
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  absl::Status write(std::string_view text) const {
    std::FILE* file = std::fopen(written().c_str(), "wb");
    if (file == nullptr) return absl::ErrnoToStatus(errno, path_);
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    int fault = whole ? 0 : errno;
    if (std::fclose(file) != 0 && fault == 0) fault = errno;
    return fault == 0 ? absl::OkStatus() : absl::ErrnoToStatus(fault, path_);
  }
  absl::Status commit() {
    if (!temporary_) return absl::OkStatus();
    if (std::rename(written().c_str(), path_.c_str()) != 0)
      return absl::ErrnoToStatus(errno, path_);
    temporary_.reset();
    return absl::OkStatus();
  }

 private:
  output_file() = default;
  // Where to write meanwhile.
  [[nodiscard]] const std::string& written() const noexcept {
    return temporary_ ? temporary_->name() : path_;
  }

  std::string path_;
  std::unique_ptr<detail::temporary_file> temporary_;
};

// Whether two names stand for one file, or would once the files exist.
inline bool same_file(const std::string& a, const std::string& b) {
  struct stat left {};
  struct stat right {};
  const bool a_exists = ::stat(a.c_str(), &left) == 0;
  const bool b_exists = ::stat(b.c_str(), &right) == 0;
  if (a_exists != b_exists) return false;
  if (a_exists) return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
  std::error_code ignored;
  return detail::resolved(a, ignored) == detail::resolved(b, ignored);
}

// As /dev/null.
inline bool is_device(const std::string& path) {
  struct stat there {};
  return ::stat(path.c_str(), &there) == 0 && S_ISCHR(there.st_mode);
}

// The name of the standard stream that goes to the regular file at `path`; nullptr: none does.
inline const char* stream_into(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0 || !S_ISREG(there.st_mode)) return nullptr;
  const auto goes_there = [&](int stream) {
    struct stat end {};
    return ::fstat(stream, &end) == 0 && end.st_dev == there.st_dev && end.st_ino == there.st_ino;
  };
  if (goes_there(STDOUT_FILENO)) return "standard output";
  return goes_there(STDERR_FILENO) ? "standard error" : nullptr;
}

// Opens an output for each path, none for an empty one. kInvalidArgument for a path with control
// characters, for one that is taken, by an input or an earlier output, unless it is a device, and
// for a file to which standard output or error goes: it would be lost with what it held.
inline absl::StatusOr<std::vector<std::optional<output_file>>> open_outputs(
    std::vector<std::string> taken, const std::vector<std::string>& paths) {
  std::vector<std::optional<output_file>> outputs;
  for (const std::string& path : paths) {
    outputs.emplace_back();
    if (path.empty()) continue;
    if (std::any_of(path.begin(), path.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
      return absl::InvalidArgumentError(
          apiary::line_reader::quoted(path) +
          ": a file to write needs a name without control characters");
    }
    for (const std::string& other : taken) {
      if (!other.empty() && !is_device(path) && same_file(other, path)) {
        return absl::InvalidArgumentError(path + ": one file cannot be two of inputs and outputs");
      }
    }
    if (const char* stream = stream_into(path))
      return absl::InvalidArgumentError(path + ": " + stream + " goes to this file");
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
