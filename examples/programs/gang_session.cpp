// How do I use the gang scheduler from another language? The program reads lines of JSON and answers
// each with a line of JSON. gang_session.h describes the operations. examples/hosts/c/ has the same session
// as a shared object.
// SPDX-License-Identifier: MIT
#include "gang_session.h"

#include <cstdio>
#include <iostream>
#include <string>

namespace {

// Reads a line, of a line that is too long only the beginning. Returns whether there was a line.
bool read_line(std::streambuf& in, std::string& line) {
  line.clear();
  int c = in.sbumpc();
  const bool any = c != EOF;
  for (; c != EOF && c != '\n'; c = in.sbumpc())
    if (line.size() <= example::gang_session::max_line) line += static_cast<char>(c);
  return any;
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  example::gang_session session;
  for (std::string line; read_line(*std::cin.rdbuf(), line);) {
    const std::string answer = session.answer(line);
    std::fwrite(answer.data(), 1, answer.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }
  return 0;
}
