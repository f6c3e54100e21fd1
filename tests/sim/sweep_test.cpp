// apiary/tests/sim/sweep_test.cpp - runs of a sweep side by side, and rows that stay whole.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/sweep.h"

#include "support/work_folder.h"

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <poll.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

struct sweep_folder : apiary_test::work_folder {
  sweep_folder() : work_folder(nullptr) {}
};

absl::StatusOr<example::sweep_options> sweep_words(const std::vector<const char*>& words) {
  return example::read_sweep_options(words);
}

}  // namespace

TEST_CASE("sweep: so many processes run at once as are asked for") {
  // Each of two runs writes to the other and waits for it.
  std::array<std::array<int, 2>, 2> pipes{};
  for (std::array<int, 2>& ends : pipes) REQUIRE(::pipe(ends.data()) == 0);
  const auto meet = [&](std::size_t i) -> absl::Status {
    pollfd other{.fd = pipes[i][0], .events = POLLIN, .revents = 0};
    if (::write(pipes[1 - i][1], "x", 1) != 1) return absl::InternalError("write");
    return ::poll(&other, 1, 20'000) == 1 ? absl::OkStatus() : absl::InternalError("alone");
  };
  std::vector<std::size_t> ended;
  CHECK(example::run_processes(2, 2, meet, [&](std::size_t n) { ended.push_back(n); }).ok());
  CHECK(ended == std::vector<std::size_t>{1, 2});
  for (const std::array<int, 2>& ends : pipes) {
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST_CASE("sweep: the first error is returned, and all others run all the same") {
  sweep_folder folder;
  const std::string file = folder.full("rows");
  const auto run = [&](std::size_t i) {
    return i == 3 ? absl::InvalidArgumentError("run 3 is wrong")
                  : example::append_row(file, "header", std::to_string(i));
  };
  const absl::Status status = example::run_processes(8, 3, run, [](std::size_t) {});
  CHECK(status.message() == "run 3 is wrong");
  const std::string rows = folder.get("rows");
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 8);  // with the header
}

TEST_CASE("sweep: rows of many processes are whole, below one header line") {
  sweep_folder folder;
  const std::string file = folder.full("rows");
  const auto run = [&](std::size_t i) -> absl::Status {
    for (int n = 0; n < 25; ++n) {
      const std::string row(1000 + i, static_cast<char>('a' + i));
      const absl::Status status = example::append_row(file, "header", row);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  REQUIRE(example::run_processes(8, 8, run, [](std::size_t) {}).ok());
  const std::string text = folder.get("rows");
  REQUIRE(text.starts_with("header\n"));
  std::array<int, 8> seen{};
  for (std::size_t at = 7; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    const auto i = static_cast<std::size_t>(text[at] - 'a');
    REQUIRE(i < seen.size());
    REQUIRE(std::string_view(text).substr(at, end - at) == std::string(1000 + i, text[at]));
    ++seen[i];
    at = end + 1;
  }
  for (const int n : seen) CHECK(n == 25);
}

TEST_CASE("sweep: lines of the file, and which of them runs") {
  sweep_folder folder;
  folder.put("runs", "# a comment\n--policy las\n  --policy  fifo --seed 2 \n");
  const std::string file = folder.full("runs");
  auto o = sweep_words({"--load", "busy", "--sweep", file.c_str(), "--results=out"});
  REQUIRE(o.ok());
  CHECK(o->rest == std::vector<std::string>{"--load", "busy"});
  auto runs = example::read_sweep(*o);
  REQUIRE_MESSAGE(runs.ok(), runs.status().ToString());
  REQUIRE(runs->size() == 2);
  CHECK((*runs)[0].line == 2);
  CHECK((*runs)[1].line == 3);
  CHECK((*runs)[1].text == "--policy fifo --seed 2");
  CHECK((*runs)[1].arguments ==
        std::vector<std::string>{"--load", "busy", "--policy", "fifo", "--seed", "2"});
  o->index = 2;
  CHECK(example::read_sweep(*o).status().message() ==
        "--index 2: " + file + " has 2 runs, numbered from 0");
  folder.put("runs", "# nothing\n");
  CHECK(example::read_sweep(*o).status().message() == file + ": no line with options of a run");
  o->index.reset();
  folder.put("runs", "--policy las\n\n--policy las\n");
  CHECK(example::read_sweep(*o).status().message() == file + ":2: the line is blank");
  folder.put("runs", "--policy las\n \n  \n# a comment\n");
  CHECK(absl::IsInvalidArgument(example::read_sweep(*o).status()));
  CHECK(example::read_sweep(*o).status().message() == file + ":2: the line is blank");
  // Blank lines at the end are accepted.
  folder.put("runs", "--policy las\n  \n\n");
  runs = example::read_sweep(*o);
  REQUIRE_MESSAGE(runs.ok(), runs.status().ToString());
  CHECK(runs->size() == 1);
}

TEST_CASE("sweep: the longest runs begin first if several run at once") {
  using order = std::vector<std::size_t>;
  const std::vector<double> costs{1, 5, 2, 5};
  example::sweep_options o;
  CHECK(example::order_of_runs(o, 4, costs) == order{0, 1, 2, 3});
  o.at_once = 1;
  CHECK(example::order_of_runs(o, 4, costs) == order{0, 1, 2, 3});
  o.at_once = 2;
  CHECK(example::order_of_runs(o, 4, costs) == order{1, 3, 2, 0});
  CHECK(example::order_of_runs(o, 4, {}) == order{0, 1, 2, 3});
  o.at_once.reset();
  o.index = 2;
  CHECK(example::order_of_runs(o, 4, costs) == order{2});
}

TEST_CASE("sweep: rows are appended only below their own header line") {
  const sweep_folder folder;
  example::sweep_options o;
  o.results = folder.full("rows");
  const auto check = [&] { return example::check_results(o, "a,b"); };
  CHECK(check().ok());  // there is no such file yet
  for (const char* text : {"", "run,options,a,b\n", "run,options,a,b\n0,\"x\",1,2\n"}) {
    folder.put("rows", text);
    CHECK(check().ok());
  }
  for (const char* text :
       {"run,options,a\n", "run,options,a,b", "run,options,a,b,c\n", "\n", "x"}) {
    CAPTURE(text);
    folder.put("rows", text);
    CHECK(absl::IsInvalidArgument(check()));
  }
  CHECK(check().message() == o.results +
                                 ": its first line is \"x\", not the header line of these rows, "
                                 "which begins with \"run,options,a,b\"");
  o.results = "/dev/null";
  CHECK(check().ok());
}

TEST_CASE("sweep: options that are wrong") {
  const auto why = [](const std::vector<const char*>& words) {
    return std::string(sweep_words(words).status().message());
  };
  CHECK(why({"--index", "1"}) == "--results, --index and -j need --sweep");
  CHECK(why({"--sweep", "f"}) == "--sweep needs --results");
  CHECK(why({"--sweep", "f", "--results", "r", "--index", "0", "-j", "2"}) ==
        "--index runs one line; -j needs all of them");
  CHECK(why({"-j", "0"}) == "-j \"0\" is not a whole number from 1 to 256");
  CHECK(why({"--index", "x"}) == "--index \"x\" is not a whole number from 0 to 999999");
  CHECK(why({"--sweep"}) == "--sweep needs a value");
  CHECK(why({"--sweep", "a", "--sweep", "b"}) == "--sweep is given twice");
}
