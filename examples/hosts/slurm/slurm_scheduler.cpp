// How do I let apiary decide for Slurm? This program decides where held jobs run, and which running
// jobs make way for them. Start it with SLURM_CONF set, as root or as SlurmUser; see README.md.
// SPDX-License-Identifier: MIT
#include "slurm_scheduler.h"

#include "gang_decider.h"
#include "slurm_host.h"
#include "slurm_records.h"
#include "tenant_decider.h"
#include "tenants_file.h"
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <absl/strings/str_cat.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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

struct options {
  std::string tenants{};  // names of files; empty: none
  std::string state{};
  std::chrono::milliseconds delay{0};
};

std::optional<std::string> read_file(const std::string& name) {
  std::ifstream file(name);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}
// Replaces the file at once, so that it is whole whenever the program is killed.
bool store(const std::string& name, const std::string& text) {
  const std::string next = name + ".new";
  std::ofstream file(next, std::ios::trunc);
  file << text;
  file.close();
  return file.good() && std::rename(next.c_str(), name.c_str()) == 0;
}

// What runs in the time between two reports of Slurm, until SIGTERM. Returns the exit status.
template <class Decider>
int run(Decider decider, slurm_report& report, const options& asked) {
  slurm_scheduler<Decider> scheduler(std::move(decider));
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
    const std::uint64_t before = scheduler.decider().hash();
    const std::vector<action> todo = scheduler.round(report.nodes(), report.jobs(), now);
    // Before the calls: what is stored and was not done, the next scheduler drops.
    if (!asked.state.empty() && scheduler.decider().hash() != before &&
        !store(asked.state, scheduler.decider().snapshot()))
      say(absl::StrCat("error cannot write ", asked.state));
    for (const action& call : todo) {
      // First, for the job may start before the call returns.
      say(absl::StrCat(name_of(call.what), " ", call.job, " ",
                       call.nodes.empty() ? "" : contract(call.nodes) + " ", call.why));
      if (asked.delay.count() > 0) std::this_thread::sleep_for(asked.delay);
      const absl::Status done = execute(call);
      if (done.ok()) continue;
      if (call.what == action::kind::release) scheduler.release_failed(call.job);
      say(absl::StrCat("error ", name_of(call.what), " ", call.job, " ",
                       std::string(done.message())));
    }
    for (; slow < scheduler.slow(); ++slow) say("slow decision");
    if (scheduler.slowest_us() > slowest)
      say(absl::StrCat("slowest ", slowest = scheduler.slowest_us(), " us ", scheduler.slowest()));
    if (todo.empty() && scheduler.decider().hash() == before) continue;
    for (const std::string& fault : scheduler.decider().audit()) {
      say(absl::StrCat("audit ", fault));
      status = EXIT_FAILURE;
    }
  }
  say(absl::StrCat("end ", scheduler.decisions(), " decisions"));
  return status;
}

int fail(const std::string& why) {
  std::fprintf(stderr, "slurm_scheduler: %s\n", why.c_str());
  return EXIT_FAILURE;
}
int fail(const absl::Status& why) { return fail(why.ToString()); }

}  // namespace

//   slurm_scheduler [--tenants FILE] [--state FILE] [--delay MS]
//
// With a file of tenants, accounts own racks and nodes (HiveD); without one, priorities alone decide. The
// file of the state is written after each change, so that HiveD decides as before after a restart.
// The delay is between a decision and its calls, so that tests can change something in between.
int main(int argc, char** argv) {
  options asked;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    std::uint32_t ms = 0;
    if (i + 1 < argc && option == "--tenants") {
      asked.tenants = argv[i + 1];
    } else if (i + 1 < argc && option == "--state") {
      asked.state = argv[i + 1];
    } else if (i + 1 < argc && option == "--delay" &&
               read_number(std::string_view(argv[i + 1]), ms) && ms <= 60'000) {
      asked.delay = std::chrono::milliseconds(ms);
    } else {
      return fail(
          "usage: slurm_scheduler [--tenants FILE] [--state FILE] [--delay MS], at most 60000 ms");
    }
  }
  absl::StatusOr<std::vector<tenant_quota>> tenants{std::vector<tenant_quota>()};
  if (!asked.tenants.empty()) {
    const std::optional<std::string> text = read_file(asked.tenants);
    if (!text) return fail(absl::StrCat("cannot read ", asked.tenants));
    tenants = read_tenants(*text);
    if (!tenants.ok()) return fail(tenants.status());
  }
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { stopped = 1; });
  slurm_init(nullptr);
  slurm_report report;
  wait_for(report);
  if (stopped != 0) return EXIT_SUCCESS;
  const auto described = cluster_of(read_topology(), report.nodes());
  if (!described.ok()) return fail(described.status());
  if (!asked.tenants.empty()) {
    auto decider = tenant_decider::create(*described, *tenants);
    if (!decider.ok()) return fail(decider.status());
    const std::optional<std::string> stored = read_file(asked.state);
    const absl::Status restored = stored ? decider->restore(*stored) : absl::OkStatus();
    if (!restored.ok())
      say(absl::StrCat("error ", asked.state, ": ", std::string(restored.message())));
    return run(*std::move(decider), report, asked);
  }
  auto cluster = apiary::gang_scheduler::create(*described);
  if (!cluster.ok()) return fail(cluster.status());
  return run(gang_decider(*std::move(cluster)), report, asked);
}
