// How do I use a scheduler of apiary from another language? The program reads lines of JSON and
// answers each with a line of JSON. A recorded log, read again, gives the same answers. The first
// line `config` says whether the scheduler is the gang scheduler or HiveD; `session --help` prints
// the verbs of both.
// SPDX-License-Identifier: MIT
//
//   session [FILE.YAML]
//
// FILE.YAML is a configuration of HiveD, which is handled like a first line; if it is refused, the
// program ends with status 2. examples/hosts/c/ has the same sessions as a shared object.
#include "any_session.h"
#include "hived_yaml.h"

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

namespace {

// Reads a line, of a line that is too long only the beginning. Returns whether there was a line.
bool read_line(std::streambuf& in, std::string& line) {
  line.clear();
  int c = in.sbumpc();
  const bool any = c != EOF;
  for (; c != EOF && c != '\n'; c = in.sbumpc())
    if (line.size() <= example::any_session::max_line) line += static_cast<char>(c);
  return any;
}

void print(const std::string& answer) {
  std::fwrite(answer.data(), 1, answer.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

template <class Verbs>
void print_verbs(const char* scheduler) {
  std::printf("\n%s\n", scheduler);
  for (const auto& verb : Verbs::verbs)
    std::printf("  %-14s %s\n%-17s%.*s\n", verb.name, verb.usage, "",
                static_cast<int>(verb.fields.size()), verb.fields.data());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fputs("session: one argument at most, a YAML file\n", stderr);
    return 2;
  }
  if (argc == 2 && argv[1] == std::string_view("--help")) {
    std::puts("session [FILE.YAML]: answers lines of JSON, {\"op\": VERB, FIELDS}");
    print_verbs<example::gang_verbs>("Gang scheduler:");
    print_verbs<example::hived_verbs>("HiveD:");
    return 0;
  }
  std::ios::sync_with_stdio(false);
  example::any_session session;
  if (argc == 2) {
    const auto [answer, accepted] = session.configure(example::load_hived_yaml(argv[1]));
    print(answer);
    if (!accepted) return 2;
  }
  for (std::string line; read_line(*std::cin.rdbuf(), line);) print(session.answer(line));
  return 0;
}
