// apiary/tests/fuzz/gang_session_fuzz.cpp - whatever lines a host sends, a gang session stays sound.
// SPDX-License-Identifier: MIT
//
// The input is a session. Lines that begin with "{" are played as they are. A line of other bytes is an
// event on a small cluster, made of them. After every line the audit is clean, the answer is JSON, and
// an error or a query has changed nothing. At the end the lines, played again, give the same answers,
// and a snapshot makes a session with the same hash, unless a gang preempts, a node has left or a line
// was played as it is.
#include "../../examples/programs/gang_session.h"
#include <apiary/core/config.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using example::gang_session;

namespace {

constexpr const char* cluster =
    R"({"op":"config","topology":"SwitchName=r1 Nodes=n[0-1]\nSwitchName=r2 Nodes=n[2-4]\n)"
    R"(SwitchName=b Switches=r[1-2]","nodes":"NodeName=n[0-3] Gres=gpu:a:4 CPUs=8 Feature=f\n)"
    R"(NodeName=n4 Gres=gpu:b:2 Taints=t"})";

// An event made of bytes; those behind the end are 0.
class line_of_bytes {
 public:
  explicit line_of_bytes(std::string_view bytes) : bytes_(bytes) {}

  std::string line() {
    switch (below(16)) {
      case 0:
        return R"({"op":"delete","group":)" + number(6) + '}';
      case 1:
        return marked("bad");
      case 2:
        return marked("healthy");
      case 3:
        return R"({"op":"replace","group":)" + number(6) + '}';
      case 4:
        return recovered();
      case 5:
        return changed();
      case 6:
        return query();
      case 7:
        return R"({"op":"why",)" + gang() + '}';
      case 8:
      case 9:
      case 10:
      case 11:
        return R"({"op":"commit"})";
      default:
        return R"({"op":"propose",)" + gang() + R"(,"now":)" + number(200) + '}';
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
  std::string node() { return R"("node":"n)" + number(7) + '"'; }
  std::string marked(const std::string& how) {
    const std::string fields = '_' + how + "\"," + node();
    if (below(2) == 0) return R"({"op":"node)" + fields + '}';
    return R"({"op":"device)" + fields + R"(,"device":)" + number(5) + '}';
  }
  std::string level() {
    constexpr std::array levels = {"node", "rack", "block", "cluster", "x"};
    return std::string("\"") + levels[below(levels.size())] + '"';
  }
  std::string counts() {
    std::string text = "[";
    for (std::uint32_t n = below(3); n > 0; --n)
      text += R"({"level":)" + level() + R"(,"pods":)" + number(4) + (n == 1 ? "}" : "},");
    return text + ']';
  }
  std::string gang() {
    std::string text =
        R"("group":)" + number(6) + R"(,"priority":)" + number(3) + R"(,"members":[)";
    const std::uint32_t groups = 1 + below(3);
    for (std::uint32_t g = 0; g < groups; ++g) {
      text += (g == 0 ? "" : ",") + (R"({"pods":)" + number(6));
      text += R"(,"leafs":)" + number(5) + R"(,"cpuMilli":)" + std::to_string(1000 * below(5));
      const std::uint32_t more = below(16);
      if (more == 1) text += R"(,"slices":)" + counts();
      if (more == 2) text += R"(,"spread":)" + counts();
      if (more > 12) text += R"(,"leader":)" + number(3);
      if (more > 14) text += R"(,"leaderLevel":)" + level();
      text += '}';
    }
    text += ']';
    const std::uint32_t more = below(16);
    if ((more & 3) == 3) text += R"(,"required":)" + level();
    if ((more & 12) == 12) text += R"(,"preferred":)" + level();
    if (more == 1) text += R"(,"filter":{"labels":["f"],"models":["a","b"]})";
    if (more == 2) text += R"(,"filter":{"nodes":["n)" + number(7) + R"("],"tolerations":["t"]})";
    return text;
  }
  std::string recovered() {
    std::string text = R"({"op":"recover",)" + gang() + R"(,"started":)" + number(9);
    text += R"(,"pods":[)";
    const std::uint32_t tasks = below(4);
    for (std::uint32_t t = 0; t < tasks; ++t) {
      text += (t == 0 ? "{" : ",{") + node() + R"(,"devices":[)";
      const std::uint32_t first = below(4), gpus = below(4);
      for (std::uint32_t g = 0; g < gpus; ++g)
        text += (g == 0 ? "" : ",") + std::to_string(first + g);
      text += "]}";
    }
    return text + "]}";
  }
  std::string changed() {
    const std::uint32_t what = below(3);
    if (what == 0) return R"({"op":"remove_node",)" + node() + '}';
    if (what == 1)
      return R"({"op":"resize_node",)" + node() + R"(,"gpus":)" + number(6) + R"(,"cpuMilli":)" +
             std::to_string(1000 * below(9)) + '}';
    return R"({"op":"add_node","node":{"name":"n)" + number(7) + R"(","cells":["r)" + number(4) +
           R"(","b"],"gpus":)" + number(5) + "}}";
  }
  std::string query() {
    const std::uint32_t what = below(4);
    if (what == 0) return R"({"op":"gang_state","group":)" + number(6) + '}';
    if (what == 1) return R"({"op":"free","level":)" + level() + '}';
    return what == 2 ? R"({"op":"snapshot"})" : R"({"op":"audit"})";
  }

  std::string_view bytes_;
};

std::uint64_t hash_of(const gang_session& session) {
  return session.scheduler() == nullptr ? 0 : session.scheduler()->hash();
}
bool is_of(const std::string& line, const char* op) {
  return line.starts_with(std::string(R"({"op":")") + op + '"');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> lines;
  if (rest.substr(0, 1) != "{") lines.emplace_back(cluster);
  bool can_restore = !lines.empty();
  while (!rest.empty() && lines.size() < 60) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const bool plain = line.substr(0, 1) == "{";
    lines.push_back(plain ? std::string(line) : line_of_bytes(line).line());
    can_restore = can_restore && !plain && !is_of(lines.back(), "remove_node");
  }
  gang_session session;
  std::vector<std::string> answers;
  for (const std::string& line : lines) {
    const std::uint64_t hash = hash_of(session);
    answers.push_back(session.answer(line));
    const std::string& answer = answers.back();
    APIARY_VERIFY(example::json_reader::read(answer).ok());
    const bool error = answer.find("\"result\":\"error\"") != std::string::npos;
    APIARY_VERIFY(!error || answer.find("\"code\":\"INTERNAL\"") == std::string::npos);
    bool asks = error;
    for (const char* op :
         {"propose", "why", "replace", "gang_state", "free", "snapshot", "audit", "note"})
      asks = asks || is_of(line, op);
    if (asks) APIARY_VERIFY(hash_of(session) == hash);
    if (session.scheduler() == nullptr) continue;
    // A cluster of many nodes, or a gang of many tasks, is slow to audit, and nothing new.
    if (answer.size() > 20'000 || line.size() > 4'000) return 0;
    APIARY_VERIFY(session.scheduler()->audit().empty());
  }
  gang_session again;
  for (std::size_t i = 0; i < lines.size(); ++i)
    APIARY_VERIFY(again.answer(lines[i]) == answers[i]);
  if (!can_restore) return 0;
  const auto snapshot = example::json_reader::read(session.answer(R"({"op":"snapshot"})"));
  if (!snapshot->find("preempting")->items.empty()) return 0;
  gang_session restored;
  for (const example::json_value& line : snapshot->find("lines")->items)
    APIARY_VERIFY(restored.answer(line.scalar).find("\"result\":\"ok\"") != std::string::npos);
  APIARY_VERIFY(hash_of(restored) == hash_of(session));
  APIARY_VERIFY(restored.scheduler()->audit().empty());
  return 0;
}
