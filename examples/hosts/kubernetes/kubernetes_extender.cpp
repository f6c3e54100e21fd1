// apiary/examples/hosts/kubernetes/kubernetes_extender.cpp - a scheduler extender for Kubernetes; README.md shows how to try it.
// SPDX-License-Identifier: MIT
//
// kubernetes_extender [option...]
//   --api URL        the API server, as `kubectl proxy` offers it: http://127.0.0.1:8001
//   --nodes FILE     instead: the nodes as `kubectl get nodes -o json` prints them; binds and evicts nothing
//   --levels LIST    the levels above the nodes, the lowest first, and their node labels:
//                    rack=example.com/rack,block=example.com/block
//   --address IP     where it listens; 127.0.0.1. Its clients need no password, so keep it on the loopback
//   --port N         18888; 0: any that is free
//
// Writes a line for each decision; ends with SIGTERM or Ctrl-C.
#include "../../programs/command_line.h"
#include "extender_server.h"
#include "extender_service.h"
#include "gang_extender.h"
#include "kubernetes_json.h"
#include "kubernetes_records.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace apiary_kubernetes;

namespace {

constexpr std::chrono::milliseconds period{1000};  // of looking at the API server
volatile std::sig_atomic_t stopped = 0;

// Milliseconds since 1970, as the times of pods, but the clock is read only once: it may be set later.
apiary::time_ms now_ms() {
  using std::chrono::steady_clock, std::chrono::system_clock;
  static const auto zero =
      system_clock::now().time_since_epoch() - steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             zero + steady_clock::now().time_since_epoch())
      .count();
}
void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}
int give_up(const std::string& why) {
  std::fprintf(stderr, "kubernetes_extender: %s\n", why.c_str());
  return EXIT_FAILURE;
}
// Waits, unless a signal ends the program.
void wait_for(std::chrono::milliseconds time) {
  for (; stopped == 0 && time.count() > 0; time -= std::chrono::milliseconds(50))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// rack=example.com/rack,block=example.com/block
absl::StatusOr<std::vector<level_label>> read_levels(const std::string& text) {
  std::vector<level_label> levels;
  const std::vector<std::string> words = absl::StrSplit(text, ',', absl::SkipEmpty());
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals >= word.size() - 1)
      return absl::InvalidArgumentError(absl::StrCat("--levels: \"", word, "\" is not NAME=LABEL"));
    levels.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return levels;
}

absl::StatusOr<cluster_lists> read_file(const std::string& name, std::vector<std::string>& faults) {
  std::ifstream file(name);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(name, " cannot be read"));
  const auto document = parse(text.str());
  if (!document.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", std::string(document.status().message())));
  auto nodes = read_list(*document, read_node, faults);
  if (!nodes.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", std::string(nodes.status().message())));
  return cluster_lists{*std::move(nodes), {}};
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view known[] = {"--api", "--nodes", "--levels", "--address", "--port"};
  const auto flags = example::read_flags(
      std::span<const char* const>(argv, static_cast<std::size_t>(argc)).subspan(1), known);
  if (!flags.ok()) return give_up(std::string(flags.status().message()));
  std::map<std::string, std::string> options{{"--address", "127.0.0.1"}, {"--port", "18888"}};
  for (const auto& [flag, value] : *flags) options[flag] = value;
  if (options.contains("--help")) {
    std::puts("options: --api URL | --nodes FILE, --levels NAME=LABEL,..., --address IP, --port N");
    return EXIT_SUCCESS;
  }
  if (options.contains("--api") == options.contains("--nodes"))
    return give_up("either --api or --nodes is needed; --help lists the options");
  const bool has_api = options.contains("--api");
  const auto levels = read_levels(options["--levels"]);
  if (!levels.ok()) return give_up(std::string(levels.status().message()));
  const auto port = number_of<int>(options["--port"], 0, 65535);
  if (!port.ok()) return give_up(absl::StrCat("--port: ", std::string(port.status().message())));

  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { stopped = 1; });
  const api_server server_of_pods(options["--api"]);
  // Each fault of a list is said once.
  std::set<std::string> said;
  const auto list = [&]() -> absl::StatusOr<cluster_lists> {
    std::vector<std::string> faults;
    auto lists = has_api ? server_of_pods.list(faults) : read_file(options["--nodes"], faults);
    for (const std::string& fault : faults)
      if (said.insert(fault).second) say(absl::StrCat("error ", fault));
    return lists;
  };
  auto lists = list();
  while (!lists.ok() && has_api && stopped == 0) {
    if (said.insert("list").second)
      say(absl::StrCat("error ", std::string(lists.status().message())));
    wait_for(period);
    lists = list();
  }
  if (stopped != 0) return EXIT_SUCCESS;
  if (!lists.ok()) return give_up(std::string(lists.status().message()));
  auto extender = gang_extender::create(lists->nodes, *levels);
  if (!extender.ok()) return give_up(std::string(extender.status().message()));

  api_calls api{.now = now_ms, .say = say};
  if (has_api) {
    api.list = list;
    api.bind = [&](const pod_record& pod, const std::string& node, const std::string& plan) {
      return server_of_pods.bind(pod, node, plan);
    };
    api.evict = [&](const pod_record& pod) { return server_of_pods.evict(pod); };
  }
  extender_service service(*std::move(extender), std::move(api));
  bool lost = !service.refresh().ok();

  http_server server;
  serve(server.paths(), service);
  const std::string address = options["--address"];
  const auto bound = server.start(address, *port);
  if (!bound.ok()) return give_up(std::string(bound.status().message()));
  say(absl::StrCat("begin ", lists->nodes.size(), " nodes, listening on ", address, ":", *bound));
  while (stopped == 0) {
    wait_for(period);
    const absl::Status done = service.refresh();
    if (!done.ok() && !lost) say(absl::StrCat("error ", std::string(done.message())));
    lost = !done.ok();
  }
  server.stop();
  say("end");
  return EXIT_SUCCESS;
}
