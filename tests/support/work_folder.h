// apiary/tests/support/work_folder.h - the main function of an example, run in a folder of its own.
// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace apiary_test {

// What a run of the program left.
struct ended {
  int status = -1;  // 128 + the signal that ended it
  std::string out;
  std::string err;
};

// A folder to run a program in, which is gone with the object.
class work_folder {
 public:
  using main_function = int (*)(int argc, char** argv);

  explicit work_folder(main_function program) : main_(program) {
    std::string name = (std::filesystem::temp_directory_path() / "apiary_test_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  work_folder(const work_folder&) = delete;
  work_folder& operator=(const work_folder&) = delete;
  ~work_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  void put(const std::string& name, const std::string& text) const {
    std::FILE* file = std::fopen((path_ / name).c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    REQUIRE(std::fclose(file) == 0);
  }
  [[nodiscard]] std::string get(const std::string& name) const {
    std::FILE* file = std::fopen((path_ / name).c_str(), "rb");
    REQUIRE_MESSAGE(file != nullptr, name);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    std::fclose(file);
    return text;
  }
  void link(const std::string& target, const std::string& name) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::filesystem::create_symlink(target, path_ / name);
  }
  [[nodiscard]] std::string full(const std::string& name) const {
    return (std::filesystem::canonical(path_) / name).string();
  }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }

  // Runs the program in another process, where `before` is called first.
  [[nodiscard]] ended run(
      std::vector<std::string> arguments, const std::function<void()>& before = [] {},
      const char* program = "replay") const {
    static const std::string out =
        (path_.parent_path() / ("apiary_out_" + std::to_string(::getpid()))).string();
    static const std::string err = out + "_err";
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      arguments.insert(arguments.begin(), program);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      const int to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const bool ready =
          ::dup2(to_out, 1) == 1 && ::dup2(to_err, 2) == 2 && ::chdir(path_.c_str()) == 0;
      if (!ready) ::_exit(99);
      try {
        before();
        const int status = main_(static_cast<int>(arguments.size()), argv.data());
        std::fflush(nullptr);
        ::_exit(status);
      } catch (...) {  // goes not on as a second run of the tests
        ::_exit(98);
      }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended end{code, get(out), get(err)};
    std::remove(out.c_str());
    std::remove(err.c_str());
    return end;
  }

 private:
  main_function main_;
  std::filesystem::path path_;
};

}  // namespace apiary_test
