// apiary/tests/killed_session.cpp - the session program, killed at any line.
// SPDX-License-Identifier: MIT
//
// killed_session PROGRAM
//
// Plays the example's input, a random session in which gangs preempt most of the time, and the recorded
// scenarios where there are any. A host that writes
// every line down before it sends it has, whenever the program is killed, a log with which a new
// process comes to the same answers and hashes, and goes on with them. Ends with 77 if PROGRAM is
// not there.
#include <apiary/core/rng.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <support/scale.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

// Of a failed test, or of a system that does not let it run.
[[noreturn]] void fail(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::exit(1);
}

// A child that reads lines and answers each by one.
class process {
 public:
  explicit process(const char* program) {
    int to_child[2];
    int from_child[2];
    if (pipe(to_child) != 0 || pipe(from_child) != 0) fail("no pipe");
    pid_ = fork();
    if (pid_ < 0) fail("no process");
    if (pid_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      for (const int end : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(end);
      execl(program, program, static_cast<char*>(nullptr));
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    in_ = to_child[1];
    out_ = from_child[0];
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  ~process() {
    if (in_ >= 0) close(in_);
    close(out_);
  }

  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = write(in_, text.data(), text.size());
      if (n <= 0) fail("the program does not read");
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  std::string ask(const std::string& line) {
    send(line + '\n');
    std::size_t end = 0;
    while ((end = rest_.find('\n')) == std::string::npos) {
      char some[4096];
      const ssize_t n = read(out_, some, sizeof some);
      if (n <= 0) fail("the program ended without an answer to " + line);
      rest_.append(some, static_cast<std::size_t>(n));
    }
    const std::string answer = rest_.substr(0, end);
    rest_.erase(0, end + 1);
    return answer;
  }
  void end_by_kill() const {
    kill(pid_, SIGKILL);
    const int status = wait();
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
      fail("the program had ended before it was killed");
  }
  void end_by_itself() {
    close(in_);
    in_ = -1;
    const int status = wait();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("the program did not end well");
  }

 private:
  [[nodiscard]] int wait() const {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) fail("the process is lost");
    return status;
  }

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string rest_;
};

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The first lines are answered as they were before.
void replay(process& to, std::span<const std::string> lines, std::span<const std::string> answers) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string answer = to.ask(lines[i]);
    if (answer != answers[i])
      fail("line " + std::to_string(i) + ": " + answer + "\nand before: " + answers[i]);
  }
}

// Kills a session behind `end` lines: as it waits, at work on the next line, or within it.
void check_kill(const char* program, const std::vector<std::string>& lines,
                const std::vector<std::string>& answers, std::size_t end, std::uint32_t how) {
  process killed(program);
  replay(killed, std::span(lines).first(end), answers);
  if (end < lines.size() && how == 1) killed.send(lines[end] + '\n');
  if (end < lines.size() && how == 2) killed.send(lines[end].substr(0, lines[end].size() / 2));
  killed.end_by_kill();
  process again(program);
  replay(again, lines, answers);
  again.end_by_itself();
}

// A session on a small cluster whose tenants have more work than cells: gangs preempt, preempt again, are
// cancelled, and their victims end one pod at a time.
std::vector<std::string> busy_session() {
  apiary::rng random(5);
  std::vector<std::string> lines = {
      R"({"op":"config","physicalCluster":{"cellTypes":{"NODE":{"childCellType":"GPU",)"
      R"("childCellNumber":4,"isNodeLevel":true},"RACK":{"childCellType":"NODE",)"
      R"("childCellNumber":2}},"physicalCells":[{"cellType":"RACK","cellChildren":[)"
      R"({"cellAddress":"n0"},{"cellAddress":"n1"}]},{"cellType":"RACK","cellChildren":[)"
      R"({"cellAddress":"n2"},{"cellAddress":"n3"}]}]},"virtualClusters":{"a":{"virtualCells":[)"
      R"({"cellType":"RACK","cellNumber":1}]},"b":{"virtualCells":[{"cellType":"RACK.NODE",)"
      R"("cellNumber":1}]}}})"};
  const auto number = [](std::uint32_t n) { return std::to_string(n); };
  while (lines.size() < 120) {
    const std::string group = R"("group":"g)" + number(random.uniform(30)) + '"';
    const std::uint32_t what = random.uniform(12);
    std::string line;
    if (what == 0) {
      line = R"("delete",)" + group;
    } else if (what == 1) {
      line = R"("cancel",)" + group;
    } else if (what < 4) {
      line = R"("delete_pod",)" + group + R"(,"pod":)" + number(random.uniform(2));
    } else if (what == 4) {
      line = std::string(random.uniform(2) == 0 ? R"("node_bad")" : R"("node_healthy")") +
             R"(,"node":"n)" + number(random.uniform(4)) + '"';
    } else if (what == 5) {  // asks again
      line = R"("schedule",)" + group;
    } else {
      const auto rising = static_cast<int>(lines.size() + random.uniform(20));
      const int priority = random.uniform(6) == 0 ? -1 : rising;
      line = R"("schedule",)" + group + R"(,"vc":")" + (random.uniform(3) == 0 ? "b" : "a") +
             R"(","priority":)" + std::to_string(priority) + R"(,"lazy":)" +
             (random.uniform(4) == 0 ? "true" : "false") + R"(,"members":[{"pods":)" +
             number(1 + random.uniform(2)) + R"(,"leafs":)" + number(1 + random.uniform(3)) + "}]";
      if (random.uniform(4) == 0) line += R"(,"suggested":["n0","n1","n3"])";
    }
    lines.push_back(R"({"op":)" + line + '}');
  }
  return lines;
}

// Kills the busy session behind every line, or behind some if the scale is small. Returns how often.
std::size_t kill_busy_session(const char* program) {
  const std::vector<std::string> lines = busy_session();
  process whole(program);
  std::vector<std::string> answers;
  std::size_t preempting = 0;
  for (const std::string& line : lines) {
    answers.push_back(whole.ask(line));
    preempting += answers.back().find(R"("result":"preempt")") != std::string::npos ? 1U : 0U;
  }
  whole.end_by_itself();
  if (preempting < lines.size() / 15)
    fail("only " + std::to_string(preempting) + " gangs preempt in the busy session");
  const std::size_t kills = apiary_test::scaled(lines.size() + 1);
  for (std::size_t i = 0; i < kills; ++i) {
    const std::size_t end = i * (lines.size() + 1) / kills;
    check_kill(program, lines, answers, end, static_cast<std::uint32_t>(i % 3));
  }
  return kills;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const program = argc == 2 ? argv[1] : "";
  if (access(program, X_OK) != 0) {
    std::puts("skipped: the session program is not built");
    return 77;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<std::filesystem::path> files;
  const std::filesystem::path data(APIARY_DATA_DIR);
  if (!data.empty() && std::filesystem::is_directory(data / "hived")) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data / "hived"))
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  files.emplace_back(APIARY_SOURCE_DIR "/examples/programs/hived_session.input");
  files.emplace_back(APIARY_SOURCE_DIR "/examples/programs/gang_session.input");
  std::sort(files.begin(), files.end());
  apiary::rng random(1);
  std::size_t kills = kill_busy_session(program);
  for (const std::filesystem::path& file : files) {
    const std::vector<std::string> lines = lines_of(file);
    if (lines.empty()) fail("no lines in " + file.string());
    std::printf("%s\n", file.c_str());
    process whole(program);
    std::vector<std::string> answers;
    for (const std::string& line : lines) answers.push_back(whole.ask(line));
    whole.end_by_itself();
    for (std::uint32_t i = 0; i < apiary_test::scaled(5U); ++i, ++kills) {
      const auto end = random.uniform(static_cast<std::uint32_t>(lines.size() + 1));
      check_kill(program, lines, answers, end, random.uniform(3));
    }
  }
  std::printf("killed %zu times\n", kills);
}
