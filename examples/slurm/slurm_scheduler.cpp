// How do I let apiary decide for Slurm? This program decides where held jobs run, and which running
// jobs make way for them. Start it with SLURM_CONF set, as root or as SlurmUser; see README.md.
// SPDX-License-Identifier: MIT
#include "slurm_scheduler.h"

#include "slurm_host.h"
#include "slurm_records.h"
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/strings/str_cat.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace apiary_slurm;

namespace {

constexpr std::chrono::milliseconds poll{50};
volatile std::sig_atomic_t stopped = 0;

apiary::time_ms now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
// One line, at once: the log outlives the process.
void say(const std::string& line) {
  std::printf("%lld %s\n", static_cast<long long>(now_ms()), line.c_str());
  std::fflush(stdout);
}

const char* name_of(action::kind what) {
  switch (what) {
    case action::kind::release:
      return "release";
    case action::kind::requeue:
      return "requeue";
    case action::kind::take_back:
      return "take_back";
    case action::kind::comment:
      return "comment";
  }
  return "";
}

// Waits until slurmctld has answered, or SIGTERM.
void wait_for(slurm_report& report) {
  bool said = false;
  while (stopped == 0) {
    const auto changed = report.update();
    if (changed.ok()) return;
    if (!said) say(absl::StrCat("error ", std::string(changed.status().message())));
    said = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace

int main() {
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { stopped = 1; });
  slurm_init(nullptr);
  slurm_report report;
  wait_for(report);
  if (stopped != 0) return EXIT_SUCCESS;
  const auto described = cluster_of(read_topology(), report.nodes());
  if (!described.ok()) {
    std::fprintf(stderr, "%s\n", described.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  auto cluster = apiary::gang_scheduler::create(*described);
  if (!cluster.ok()) {
    std::fprintf(stderr, "%s\n", cluster.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  slurm_scheduler scheduler(*std::move(cluster));
  say(absl::StrCat("begin ", report.nodes().size(), " nodes"));

  int status = EXIT_SUCCESS;
  double slowest = 0;
  std::uint64_t slow = 0;
  for (apiary::time_ms last = 0; stopped == 0; std::this_thread::sleep_for(poll)) {
    const auto changed = report.update();
    if (!changed.ok()) {
      say(absl::StrCat("error ", std::string(changed.status().message())));
      wait_for(report);
      last = 0;
    }
    const apiary::time_ms now = now_ms();
    if (changed.ok() && !*changed && now - last < 1000) continue;
    last = now;
    const std::uint64_t before = scheduler.cluster().hash();
    const std::vector<action> todo = scheduler.round(report.nodes(), report.jobs(), now);
    for (const action& call : todo) {
      // First, for the job may start before the call returns.
      say(absl::StrCat(name_of(call.what), " ", call.job, " ",
                       call.nodes.empty() ? "" : contract(call.nodes) + " ", call.why));
      const absl::Status done = execute(call);
      if (done.ok()) continue;
      if (call.what == action::kind::release) scheduler.release_failed(call.job);
      say(absl::StrCat("error ", name_of(call.what), " ", call.job, " ",
                       std::string(done.message())));
    }
    for (; slow < scheduler.slow(); ++slow) say("slow decision");
    if (scheduler.slowest_us() > slowest)
      say(absl::StrCat("slowest ", slowest = scheduler.slowest_us(), " us ", scheduler.slowest()));
    if (todo.empty() && scheduler.cluster().hash() == before) continue;
    for (const std::string& fault : scheduler.cluster().audit()) {
      say(absl::StrCat("audit ", fault));
      status = EXIT_FAILURE;
    }
  }
  say(absl::StrCat("end ", scheduler.decisions(), " decisions"));
  return status;
}
