// apiary/tests/fuzz/session_fuzz.cpp - whatever lines a host sends, a session stays sound.
// SPDX-License-Identifier: MIT
//
// The input is a session. Lines that begin with "{" are played as they are, and so is any line
// behind a configuration of their own. A line of other bytes is an event on a small cluster, made of
// them: which op, gang, tenant, sizes, node. After every line the audit is clean, the answer is JSON
// and names as many gangs as have lost their tenant's cells, and which gangs have them back, and an error or a
// query has changed nothing; at the end the lines, played again, give the same answers, and when
// every gang is ended nothing is left of any.
#include "../../examples/programs/hived_session.h"
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/gang_table.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using example::hived_session;

namespace {

constexpr const char* cluster =
    R"({"op":"config","physicalCluster":{"cellTypes":{"PAIR":{"childCellType":"V","childCellNumber":)"
    R"(2},"NODE":{"childCellType":"PAIR","childCellNumber":2,"isNodeLevel":true},"RACK":{)"
    R"("childCellType":"NODE","childCellNumber":2},"BOX":{"childCellType":"A","childCellNumber":3,)"
    R"("isNodeLevel":true}},"physicalCells":[{"cellType":"RACK","cellChildren":[{"cellAddress":"n0"},)"
    R"({"cellAddress":"n1"}]},{"cellType":"RACK","cellChildren":[{"cellAddress":"n2"},{)"
    R"("cellAddress":"n3","pinnedCellId":"pin"}]},{"cellType":"RACK","cellChildren":[{)"
    R"("cellAddress":"n4"},{"cellAddress":"n5"}]},{"cellType":"BOX","cellAddress":"b0"},{)"
    R"("cellType":"BOX","cellAddress":"b1"}]},"virtualClusters":{"t0":{"virtualCells":[{"cellType":)"
    R"("RACK","cellNumber":1},{"cellType":"BOX","cellNumber":1}]},"t1":{"virtualCells":[{"cellType":)"
    R"("RACK.NODE","cellNumber":2},{"cellType":"RACK.NODE.PAIR","cellNumber":1}],"pinnedCells":[{)"
    R"("pinnedCellId":"pin"}]},"t2":{}}})";
constexpr const char* smaller =
    R"({"op":"reconfigure","physicalCluster":{"cellTypes":{"PAIR":{"childCellType":"V",)"
    R"("childCellNumber":2},"NODE":{"childCellType":"PAIR","childCellNumber":2,"isNodeLevel":true}},)"
    R"("physicalCells":[{"cellType":"NODE","cellAddress":"n0"},{"cellType":"NODE","cellAddress":"n1"},)"
    R"({"cellType":"NODE","cellAddress":"n4"}]},"virtualClusters":{"t1":{"virtualCells":[{"cellType":)"
    R"("NODE","cellNumber":2}]}}})";
constexpr std::array<const char*, 9> nodes = {"n0", "n1", "n2", "n3", "n4", "n5", "b0", "b1", "x"};

// An event made of bytes; those behind the end are 0.
class line_of_bytes {
 public:
  explicit line_of_bytes(std::string_view bytes) : bytes_(bytes) {}

  std::string line() {
    switch (below(16)) {
      case 0:
        return R"({"op":"delete",)" + group() + '}';
      case 1:
        return R"({"op":"cancel",)" + group() + '}';
      case 2:
        return R"({"op":"delete_pod",)" + group() + R"(,"pod":)" + number(4) + '}';
      case 3:
        return R"({"op":"node_bad",)" + node() + '}';
      case 4:
        return R"({"op":"node_healthy",)" + node() + '}';
      case 5:
        return R"({"op":"device_bad",)" + node() + R"(,"device":)" + number(5) + '}';
      case 6:
        return R"({"op":"device_healthy",)" + node() + R"(,"device":)" + number(5) + '}';
      case 7:
        return recovered();
      case 8: {
        const std::uint32_t what = below(8);
        if (what == 1) return of_tenant();
        if (what == 2) return R"({"op":"node_state",)" + node() + '}';
        if (what == 3) return R"({"op":"gang_state",)" + group() + '}';
        if (what > 3) return below(2) == 0 ? R"({"op":"audit"})" : R"({"op":"draw"})";
        std::string back(cluster);
        return below(2) == 0 ? smaller : back.replace(7, 6, "reconfigure");
      }
      case 9:
        return R"({"op":"schedule_pod",)" + group() + R"(,"pod":)" + number(4) + asked() + '}';
      case 10:
        return R"({"op":"schedule",)" + group() + '}';
      default:
        return R"({"op":"schedule",)" + group() + asked() + '}';
    }
  }

 private:
  std::uint32_t below(std::uint32_t n) {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value % n;
  }
  std::string number(std::uint32_t n) { return std::to_string(below(n)); }
  std::string of_tenant() {
    const std::string tenant = R"(","vc":"t)" + number(4) + "\"}";
    return (below(2) == 0 ? R"({"op":"usage)" : R"({"op":"vc_state)") + tenant;
  }
  std::string group() { return R"("group":"g)" + number(8) + '"'; }
  std::string node() { return std::string(R"("node":")") + nodes[below(nodes.size())] + '"'; }
  std::string gang() {
    std::string text = R"(,"vc":"t)" + number(3) + R"(","priority":)";
    text += std::to_string(static_cast<int>(below(5)) - 1) + R"(,"members":[)";
    const std::uint32_t members = 1 + below(2);
    for (std::uint32_t m = 0; m < members; ++m) {
      text += (m == 0 ? "" : ",") + (R"({"pods":)" + std::to_string(1 + below(3)));
      text += R"(,"leafs":)" + std::to_string(1 + below(4)) + '}';
    }
    return text + ']';
  }
  std::string asked() {
    std::string text = gang();
    const std::uint32_t flags = below(64);
    if ((flags & 1) != 0) text += R"(,"lazy":true)";
    if ((flags & 6) == 6) text += R"(,"pinned":"pin")";
    if ((flags & 24) == 24) text += R"(,"phase":"Filtering")";
    if ((flags & 32) == 0) return text;
    text += R"(,"suggested":["x")";
    const std::uint32_t some = below(256);
    for (std::uint32_t n = 0; n < 8; ++n)
      if ((some >> n & 1) != 0) text += std::string(R"(,")") + nodes[n] + '"';
    return text + ']';
  }
  std::string recovered() {
    std::string text = R"({"op":"recover",)" + group() + gang() + R"(,"pods":[)";
    const std::uint32_t pods = 1 + below(4);
    for (std::uint32_t p = 0; p < pods; ++p) {
      text += (p == 0 ? "{" : ",{") + node() + R"(,"devices":[)";
      const std::uint32_t some = below(64);
      std::string levels;
      for (std::uint32_t d = 0; d < 4; ++d) {
        if ((some >> d & 1) == 0) continue;
        text += (levels.empty() ? "" : ",") + std::to_string(d);
        levels += (levels.empty() ? "" : ",") + std::to_string(d / 2);
      }
      text += ']';
      if (some >> 4 == 3) text += R"(,"wholeCell":[)" + levels + ']';
      if (some >> 4 == 1 || some >> 4 == 2) text += R"(,"wholeCell":)" + std::to_string(some >> 4);
      text += '}';
    }
    return text + "]}";
  }

  std::string_view bytes_;
};

// The gangs that have, or have lost, their tenants' cells.
std::vector<apiary::job_id> gangs_that(const hived_session& session, bool have_cells) {
  std::vector<apiary::job_id> jobs;
  if (session.scheduler() == nullptr) return jobs;
  const apiary::gang_table& gangs = session.scheduler()->gangs();
  for (const apiary::gang_slot s : gangs.by_job())
    if (have_cells ? gangs[s].guaranteed() : gangs[s].downgraded)
      jobs.push_back(gangs[s].request.job);
  return jobs;
}
// Of those that run without them now, at least as many are named.
void check_lost(const hived_session& session, const std::vector<apiary::job_id>& before,
                const std::string& answer) {
  std::size_t lost = 0;
  for (const apiary::job_id job : before) {
    const apiary::gang_record* gang = session.scheduler()->find(job);
    lost += gang != nullptr && gang->downgraded ? 1U : 0U;
  }
  const auto fields = example::json_reader::read(answer);
  APIARY_VERIFY(fields.ok());
  std::size_t named = 0;
  for (const char* list : {"lazyPreempted", "victims"})
    if (const example::json_value* names = fields->find(list)) named += names->items.size();
  APIARY_VERIFY(lost <= named);
}

// As many as have them back are named, no more.
void check_restored(const hived_session& session, const std::vector<apiary::job_id>& before,
                    const std::string& answer) {
  std::size_t restored = 0;
  for (const apiary::job_id job : before) {
    const apiary::gang_record* gang = session.scheduler()->find(job);
    restored += gang != nullptr && gang->guaranteed() ? 1U : 0U;
  }
  const auto fields = example::json_reader::read(answer);
  APIARY_VERIFY(fields.ok());
  const example::json_value* named = fields->find("restored");
  APIARY_VERIFY(restored == (named != nullptr ? named->items.size() : 0));
}

// Whether it is a query, as they are made above.
bool only_asks(const std::string& line) {
  constexpr std::array ops = {"usage", "vc_state", "node_state", "gang_state", "draw", "audit"};
  return std::any_of(ops.begin(), ops.end(), [&](const std::string& op) {
    return line.starts_with(R"({"op":")" + op + '"');
  });
}

void check(const hived_session& session) {
  if (session.scheduler() == nullptr) return;
  APIARY_VERIFY(apiary::audit(*session.scheduler()).empty());
  APIARY_VERIFY(session.num_names() == session.scheduler()->gangs().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> lines;
  if (rest.substr(0, 1) != "{") lines.emplace_back(cluster);
  const bool as_they_are = lines.empty();
  while (!rest.empty() && lines.size() < 80) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const bool plain = as_they_are || line.substr(0, 1) == "{";
    lines.push_back(plain ? std::string(line) : line_of_bytes(line).line());
  }
  // A configuration of many cells is slow to audit, and nothing new.
  if (as_they_are && lines[0].size() > 4000) return 0;

  hived_session session;
  std::vector<std::string> answers;
  for (const std::string& line : lines) {
    const std::uint64_t hash = session.scheduler() == nullptr ? 0 : session.scheduler()->hash();
    const std::vector<apiary::job_id> before = gangs_that(session, true);
    const std::vector<apiary::job_id> downgraded = gangs_that(session, false);
    answers.push_back(session.answer(line));
    const std::string& answer = answers.back();
    APIARY_VERIFY(example::json_reader::read(answer).ok());
    if (session.scheduler() == nullptr) continue;
    if (session.scheduler()->cells().memory_bytes() > 1'000'000) return 0;
    check_lost(session, before, answer);
    check_restored(session, downgraded, answer);
    check(session);
    const bool error = answer.find("\"result\":\"error\"") != std::string::npos;
    APIARY_VERIFY(!error || answer.find("\"code\":\"INTERNAL\"") == std::string::npos);
    if (error || only_asks(line)) APIARY_VERIFY(session.scheduler()->hash() == hash);
  }
  hived_session again;
  for (std::size_t i = 0; i < lines.size(); ++i)
    APIARY_VERIFY(again.answer(lines[i]) == answers[i]);
  if (as_they_are) return 0;
  for (std::uint32_t g = 0; g < 8; ++g) {
    session.answer(R"({"op":"delete","group":"g)" + std::to_string(g) + "\"}");
    check(session);
  }
  return 0;
}
