// How do I use HiveD from another language? The program reads lines of JSON and answers each with
// a line of JSON. A recorded log, read again, gives the same answers. An argument names a YAML file
// with the configuration, which is handled like a first line; if it is refused, the program ends
// with status 2.
// SPDX-License-Identifier: MIT
#include "hived_session.h"

#include "hived_yaml.h"

#include <absl/status/status.h>

#include <cstddef>
#include <cstdio>
#include <iostream>
#include <string>

namespace {

constexpr std::size_t max_line = std::size_t{1} << 24;

// Reads a line, of a line that is too long only the beginning. Returns whether there was a line.
bool read_line(std::streambuf& in, std::string& line) {
  line.clear();
  int c = in.sbumpc();
  const bool any = c != EOF;
  for (; c != EOF && c != '\n'; c = in.sbumpc())
    if (line.size() <= max_line) line += static_cast<char>(c);
  return any;
}

void print(const std::string& answer) {
  std::fwrite(answer.data(), 1, answer.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fputs("hived_session: one argument at most, a YAML file\n", stderr);
    return 2;
  }
  std::ios::sync_with_stdio(false);
  example::hived_session session;
  if (argc == 2) {
    print(session.configure(example::load_hived_yaml(argv[1])));
    if (session.scheduler() == nullptr) return 2;
  }
  for (std::string line; read_line(*std::cin.rdbuf(), line);) {
    const bool whole = line.size() <= max_line;
    print(whole ? session.answer(line)
                : session.refuse(absl::InvalidArgumentError("a line longer than 16 MiB")));
  }
  return 0;
}
