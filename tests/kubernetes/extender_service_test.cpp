// apiary/tests/kubernetes/extender_service_test.cpp - the protocol: recorded exchanges, and wrong ones.
// SPDX-License-Identifier: MIT
#include "../../examples/hosts/kubernetes/extender_service.h"

#include "../../examples/hosts/kubernetes/kubernetes_json.h"
#include <apiary/core/rng.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

#define JSON_USE_IMPLICIT_CONVERSIONS 0
#include <nlohmann/json.hpp>

namespace {

using json = nlohmann::json;

// The document, as the extender reads it.
apiary_kubernetes::json as_read(const json& document) {
  return apiary_kubernetes::parse(document.dump()).value();
}

const std::string recordings = APIARY_SOURCE_DIR "/examples/hosts/kubernetes/recordings/";

std::string file_text(const std::string& name) {
  std::ifstream file(recordings + name);
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(file.good());
  return text.str();
}

// An extender of the recorded nodes, and an API server that notes what it is asked for.
struct recorded_cluster {
  apiary_kubernetes::cluster_lists lists{};
  std::vector<std::string> bound{};
  std::set<std::string> evicted{};  // uids
  std::vector<std::string> log{};
  bool refuses = false;  // to bind
  apiary::time_ms now = 0;

  recorded_cluster() {
    std::vector<std::string> faults;
    lists.nodes =
        apiary_kubernetes::read_list(apiary_kubernetes::parse(file_text("nodes.json")).value(),
                                     apiary_kubernetes::read_node, faults)
            .value();
    CHECK(faults.empty());
    REQUIRE(lists.nodes.size() == 8);
  }
  recorded_cluster(const recorded_cluster&) = delete;
  [[nodiscard]] apiary_kubernetes::api_calls calls() {
    apiary_kubernetes::api_calls api;
    api.list = [this]() -> absl::StatusOr<apiary_kubernetes::cluster_lists> { return lists; };
    api.bind = [this](const apiary_kubernetes::pod_record& pod, const std::string& node,
                      const std::string& plan) {
      if (refuses) return absl::UnavailableError("refused");
      bound.push_back(pod.name + " " + node + " " + plan);
      lists.pods.push_back(pod);
      lists.pods.back().node = node;
      return absl::OkStatus();
    };
    api.evict = [this](const apiary_kubernetes::pod_record& pod) {
      evicted.insert(pod.uid);
      return absl::OkStatus();
    };
    api.now = [this] { return ++now; };
    api.say = [this](const std::string& line) { log.push_back(line); };
    return api;
  }
  [[nodiscard]] apiary_kubernetes::gang_extender extender() const {
    return apiary_kubernetes::gang_extender::create(
               lists.nodes, {{"rack", "cloud.provider.com/topology-rack"},
                             {"block", "cloud.provider.com/topology-block"}})
        .value();
  }
};

struct exchange {
  std::string verb{};
  std::string request{};
  json recorded{};
};
std::vector<exchange> exchanges(const std::string& mode) {
  std::vector<exchange> all;
  std::istringstream lines(file_text(mode + ".tsv"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t a = line.find('\t');
    const std::size_t b = line.find('\t', a + 1);
    REQUIRE(b != std::string::npos);
    all.push_back(
        {line.substr(0, a), line.substr(a + 1, b - a - 1), json::parse(line.substr(b + 1))});
  }
  return all;
}
std::set<std::string> fields(const json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}
std::vector<std::string> names_in(const json& document) {
  std::vector<std::string> names;
  if (document.contains("NodeNames") && !document["NodeNames"].is_null())
    for (const json& name : document["NodeNames"]) names.push_back(name.get<std::string>());
  else
    for (const json& node : document["Nodes"]["items"])
      names.push_back(node["metadata"]["name"].get<std::string>());
  return names;
}

// The nodes that `filter` must choose for train-0, train-1, ...: the gang has all eight, and a pod gets the
// first one that no pod has and that is offered, or one that kube-scheduler has not bound the other pod to.
void check_replay(const std::string& mode, const std::vector<std::string>& chosen) {
  CAPTURE(mode);
  recorded_cluster cluster;
  apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
  const std::vector<exchange> all = exchanges(mode);
  REQUIRE(all.size() == 23);
  std::size_t filters = 0;
  std::map<std::string, std::string> node_of_pod;
  for (const exchange& one : all) {
    CAPTURE(one.verb);
    const json request = json::parse(one.request);
    const apiary_kubernetes::answer answer = service.call(one.verb, one.request);
    REQUIRE(answer.status == 200);
    const json to = json::parse(answer.body);
    const std::string pod =
        one.verb == "bind" ? "" : request["Pod"]["metadata"]["name"].get<std::string>();
    if (one.verb == "filter") {
      CHECK(fields(to) == fields(one.recorded));
      CHECK(to["Error"] == "");
      REQUIRE(filters < chosen.size());
      CAPTURE(pod);
      CHECK(names_in(to) == std::vector<std::string>{chosen[filters]});
      node_of_pod[pod] = chosen[filters];
      std::set<std::string> answered{chosen[filters++]};
      for (const auto& [name, why] : to["FailedNodes"].items()) answered.insert(name);
      const auto offered = names_in(request);
      CHECK(answered == std::set<std::string>(offered.begin(), offered.end()));
      if (mode == "full")  // a node comes back as it came
        for (const json& node : request["Nodes"]["items"])
          if (node["metadata"]["name"] == names_in(to)[0]) CHECK(to["Nodes"]["items"][0] == node);
    } else if (one.verb == "prioritize") {
      const auto offered = names_in(request);
      REQUIRE(to.size() == offered.size());
      for (std::size_t i = 0; i < offered.size(); ++i) {
        CHECK(fields(to[i]) == fields(one.recorded[i]));
        CHECK(to[i]["Host"] == offered[i]);
        CHECK(to[i]["Score"] == (offered[i] == node_of_pod[pod] ? 10 : 0));
      }
    } else {
      CHECK(to == one.recorded);  // bind and preempt: exactly what was recorded
    }
  }
  CHECK(filters == 8);
  REQUIRE(cluster.bound.size() == 8);
  for (const std::string& bound : cluster.bound) CHECK(bound.ends_with(" n0,n1,n2,n3,n4,n5,n6,n7"));
  // kube-scheduler evicts the pod that it was told, the extender the seven others of the gang.
  std::set<std::string> gang;
  for (const auto& pod : cluster.lists.pods) gang.insert(pod.uid);
  cluster.lists.pods.push_back(
      apiary_kubernetes::read_pod(as_read(json::parse(all.back().request)["Pod"])).value());
  REQUIRE(service.refresh().ok());
  std::set<std::string> ended = cluster.evicted;
  CHECK(ended.size() == 7);
  for (const auto& [node, victims] : all.back().recorded["NodeNameToMetaVictims"].items())
    for (const json& victim : victims["Pods"]) ended.insert(victim["UID"].get<std::string>());
  CHECK(ended == gang);
  REQUIRE(service.refresh().ok());
  CHECK(cluster.evicted.size() == 7);  // each once
}

// A small request that is right.
json right_request(const std::string& verb) {
  if (verb == "bind")
    return {{"PodName", "p"}, {"PodNamespace", "default"}, {"PodUID", "u"}, {"Node", "n0"}};
  json to{{"Pod",
           {{"metadata", {{"name", "p"}, {"namespace", "default"}, {"uid", "u"}}},
            {"spec",
             {{"containers",
               json::array({{{"resources", {{"limits", {{"nvidia.com/gpu", "8"}}}}}}})}}}}}};
  if (verb == "preempt")
    to["NodeNameToMetaVictims"] = {{"n0", {{"Pods", json::array()}, {"NumPDBViolations", 2}}}};
  else
    to["NodeNames"] = {"n0", "n1"};
  return to;
}
bool answers_error(const apiary_kubernetes::answer& answer, const std::string& part) {
  const json to = json::parse(answer.body);
  return to.is_object() && to.contains("Error") &&
         to["Error"].get<std::string>().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("service: every recorded exchange with names of nodes") {
  check_replay("cache", {"n0", "n1", "n0", "n3", "n4", "n3", "n4", "n3"});
}
TEST_CASE("service: every recorded exchange with whole nodes") {
  check_replay("full", {"n0", "n1", "n0", "n1", "n0", "n1", "n0", "n0"});
}

TEST_CASE(
    "service: a restart from the recorded pods knows the gang, and evicts it for the pod that "
    "waits") {
  for (const std::string mode : {"cache", "full"}) {
    recorded_cluster cluster;
    std::vector<std::string> faults;
    cluster.lists.pods = apiary_kubernetes::read_list(
                             apiary_kubernetes::parse(file_text(mode + "_pods.json")).value(),
                             apiary_kubernetes::read_listed_pod, faults)
                             .value();
    CHECK(faults.empty());
    REQUIRE(cluster.lists.pods.size() == 10);
    apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
    REQUIRE(service.refresh().ok());
    const exchange last = exchanges(mode).back();
    const apiary_kubernetes::answer answer = service.call("preempt", last.request);
    CHECK(json::parse(answer.body) == last.recorded);
    REQUIRE(service.refresh().ok());
    CHECK(cluster.evicted.size() == 7);  // one pod was deleted before
  }
}

TEST_CASE("service: what the API server refuses to bind can be bound again") {
  recorded_cluster cluster;
  apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
  const json asked = right_request("filter");
  CHECK(json::parse(service.call("filter", asked.dump()).body)["NodeNames"] == json::array({"n0"}));
  cluster.refuses = true;
  CHECK(answers_error(service.call("bind", right_request("bind").dump()), "refused"));
  cluster.refuses = false;
  CHECK(service.call("bind", right_request("bind").dump()).body == R"({"Error":""})");
  CHECK(cluster.bound == std::vector<std::string>{"p n0 n0"});
}

TEST_CASE("service: a pod without GPUs may use every node") {
  recorded_cluster cluster;
  apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
  json asked = right_request("filter");
  asked["Pod"]["spec"] = json::object();
  CHECK(json::parse(service.call("filter", asked.dump()).body)["NodeNames"].size() == 2);
}

TEST_CASE("service: wrong requests get an error that says what is wrong") {
  recorded_cluster cluster;
  apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
  const auto wrong = [&](const std::string& verb, const std::string& body,
                         const std::string& part) {
    CAPTURE(verb);
    CAPTURE(part);
    const apiary_kubernetes::answer answer = service.call(verb, body);
    CHECK((answer.status == 400 || answer.status == 404));
    CHECK(answers_error(answer, part));
  };
  for (const std::string verb : {"filter", "prioritize", "preempt", "bind"}) {
    wrong(verb, "", "the body is no JSON, byte 1: a value expected");
    wrong(verb, "{", "no JSON, byte 2");
    wrong(verb, "{\"Pod\": \"\xff\"}", "no JSON, byte 10: not UTF-8");
    wrong(verb, "[]", "no JSON object");
    wrong(verb, std::string(300'000, '['), "nested too deeply");
    wrong(verb, "{\"Pod\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}",
          "nested");
    json asked = right_request(verb);
    asked["pod"] = 1;
    wrong(verb, asked.dump(), "unknown field \"pod\"");
    CHECK(service.call(verb, right_request(verb).dump()).status == 200);
    if (verb == "bind") continue;
    asked = right_request(verb);
    asked["Pod"] = nullptr;
    wrong(verb, asked.dump(), "no valid metadata.uid");
    asked = right_request(verb);
    asked["Pod"]["metadata"]["namespace"] = "../../nodes";
    wrong(verb, asked.dump(), "no valid metadata.uid");
    asked = right_request(verb);
    asked["Pod"]["metadata"]["annotations"] = {{"apiary/gang-sise", "4"}};
    wrong(verb, asked.dump(), "there is no annotation \"apiary/gang-sise\"");
    for (const char* size : {"", "0", "-1", "4.5", "4294967297", "x", "\xc3\xa4\xc3\xa4"}) {
      asked["Pod"]["metadata"]["annotations"] = {{"apiary/gang-size", size}};
      wrong(verb, asked.dump(), "is no number from 1 to 1000000");
    }
    asked["Pod"]["metadata"]["annotations"] = {{"apiary/gang-size", "4"}};
    wrong(verb, asked.dump(), "needs the label \"gang\"");
    asked = right_request(verb);
    asked["Pod"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "-8";
    wrong(verb, asked.dump(), "\"-8\" is no number");
    asked["Pod"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = {{"a", 1}};
    wrong(verb, asked.dump(), "is no number");
    asked = right_request(verb);
    asked["Pod"]["spec"]["priority"] = 18446744073709551615U;
    wrong(verb, asked.dump(), "priority");
  }
  for (const std::string verb : {"filter", "prioritize"}) {
    json asked = right_request(verb);
    asked["Nodes"] = {{"items", json::array()}};
    wrong(verb, asked.dump(), "either Nodes or NodeNames");
    asked.erase("NodeNames");
    asked["Nodes"] = 3;
    wrong(verb, asked.dump(), "no list of items");
    asked["Nodes"] = {{"items", {1}}};
    wrong(verb, asked.dump(), "a node has no name");
    asked.erase("Nodes");
    wrong(verb, asked.dump(), "either Nodes or NodeNames");
    asked["NodeNames"] = {"n0", 7};
    wrong(verb, asked.dump(), "a node has no name");
  }
  json asked = right_request("preempt");
  asked["NodeNameToMetaVictims"] = json::array();
  wrong("preempt", asked.dump(), "must be given");
  wrong("bind", "{}", "PodUID or Node is missing");
  wrong("explain", "{}", "no verb explain");
  // What is right in itself, but cannot be done, is said in the answer.
  asked = right_request("bind");
  asked["PodUID"] = "unknown";
  CHECK(service.call("bind", asked.dump()).status == 200);
  CHECK(answers_error(service.call("bind", asked.dump()), "not decided here"));
  asked = right_request("filter");
  asked["Pod"]["metadata"]["name"] = "other";
  asked["Pod"]["metadata"]["annotations"] = {{"apiary/required-level", "hall"}};
  CHECK(answers_error(service.call("filter", asked.dump()), "no such level"));
}

TEST_CASE("service: what is refused is logged") {
  recorded_cluster cluster;
  apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
  json asked = right_request("filter");
  asked["po\nd"] = 1;
  CHECK(service.call("filter", asked.dump()).status == 400);
  REQUIRE_FALSE(cluster.log.empty());
  CHECK(cluster.log.back() == R"(refuse filter 400 {"Error":"unknown field \"po\nd\""})");
  CHECK(service.call("explain", "{}").status == 404);
  CHECK(cluster.log.back() == R"(refuse explain 404 {"Error":"no verb explain"})");
  CHECK(service.call("preempt", "{").status == 400);
  CHECK(cluster.log.back() ==
        R"(refuse preempt 400 {"Error":"the body is no JSON, byte 2: a name in '\"' expected"})");
}

TEST_CASE("service: without lists, nothing is evicted and no gang ends") {
  recorded_cluster cluster;
  auto api = cluster.calls();
  absl::Status broken;
  api.list = [&, list = api.list]() -> absl::StatusOr<apiary_kubernetes::cluster_lists> {
    if (!broken.ok()) return broken;
    return list();
  };
  apiary_kubernetes::extender_service service(cluster.extender(), std::move(api));
  CHECK(service.call("filter", right_request("filter").dump()).status == 200);
  CHECK(service.call("bind", right_request("bind").dump()).body == R"({"Error":""})");
  broken = absl::InvalidArgumentError("a list has no items: {}");
  CHECK(absl::IsUnavailable(service.refresh()));
  const auto answer = service.call("preempt", right_request("preempt").dump());
  CHECK(answer.status == 503);
  CHECK(answers_error(answer, "a list has no items"));
  // The pod is still known, on its node.
  json other = right_request("filter");
  other["Pod"]["metadata"]["name"] = "other";
  other["Pod"]["metadata"]["uid"] = "v";
  CHECK(json::parse(service.call("filter", other.dump()).body)["NodeNames"] == json::array({"n1"}));
}

TEST_CASE("service: damaged requests never end it, and leave its state in order") {
  recorded_cluster cluster;
  apiary_kubernetes::extender_service service(cluster.extender(), cluster.calls());
  std::vector<exchange> all = exchanges("cache");
  apiary::rng random(3);
  const std::string alphabet = "{}[]\",:0123456789ntrue\\-.e \n\xff";
  for (std::uint32_t i = 0; i < apiary_test::scaled(2000U); ++i) {
    const exchange& one = all[random.uniform(static_cast<std::uint32_t>(all.size()))];
    std::string body = one.request;
    for (std::uint32_t n = 1 + random.uniform(4); n > 0; --n) {
      const std::uint32_t at = random.uniform(static_cast<std::uint32_t>(body.size()));
      switch (random.uniform(3)) {
        case 0:
          body[at] = alphabet[random.uniform(static_cast<std::uint32_t>(alphabet.size()))];
          break;
        case 1:
          body.erase(at, 1 + random.uniform(20));
          break;
        default:
          body.insert(at, body.substr(random.uniform(static_cast<std::uint32_t>(body.size())), 30));
      }
    }
    const apiary_kubernetes::answer answer = service.call(one.verb, body);
    CHECK((answer.status == 200 || answer.status == 400));
    CHECK(json::accept(answer.body));
  }
  REQUIRE(service.refresh().ok());
  CHECK(service.call("filter", right_request("filter").dump()).status == 200);
}

TEST_CASE("service: nodes and pods are read as Kubernetes means them") {
  using apiary_kubernetes::read_node;
  using apiary_kubernetes::read_pod;
  json node = json::parse(file_text("nodes.json"))["items"][0];
  CHECK(read_node(as_read(node))->usable);
  CHECK(read_node(as_read(node))->gpus == 8);
  node["spec"]["unschedulable"] = true;
  CHECK_FALSE(read_node(as_read(node))->usable);
  node["spec"] = {
      {"taints", json::array({{{"key", "node.kubernetes.io/not-ready"}, {"effect", "NoExecute"}},
                              {{"key", "team"}, {"value", "red"}, {"effect", "NoSchedule"}},
                              {{"key", "soft"}, {"effect", "PreferNoSchedule"}}})}};
  REQUIRE(read_node(as_read(node))->taints.size() == 1);
  CHECK(read_node(as_read(node))->taints[0].text() == "team=red:NoSchedule");
  node["status"]["conditions"][0]["status"] = "Unknown";
  CHECK_FALSE(read_node(as_read(node))->usable);
  node["status"]["allocatable"]["nvidia.com/gpu"] = "33";
  CHECK_FALSE(read_node(as_read(node)).ok());
  CHECK_FALSE(read_node(as_read(json{{"metadata", 3}})).ok());

  json pod = right_request("filter")["Pod"];
  pod["spec"]["containers"].push_back({{"resources", {{"requests", {{"nvidia.com/gpu", 2}}}}}});
  CHECK(read_pod(as_read(pod))->gpus == 10);
  pod["spec"]["initContainers"] =
      json::array({{{"resources", {{"limits", {{"nvidia.com/gpu", "12"}}}}}}});
  CHECK(read_pod(as_read(pod))->gpus == 12);
  CHECK(read_pod(as_read(pod))->gang_key() == "default/p");
  pod["metadata"]["labels"] = {{"gang", "train"}};
  CHECK(read_pod(as_read(pod))->gang_key() == "default/p");
  pod["metadata"]["annotations"] = {
      {"apiary/gang-size", "2"}, {"apiary/plan", "n1,n2"}, {"other/x", "y"}};
  CHECK(read_pod(as_read(pod))->gang_key() == "default/gang=train");
  CHECK(read_pod(as_read(pod))->plan == std::vector<std::string>{"n1", "n2"});
  CHECK_FALSE(read_pod(as_read(pod))->ending);
  pod["metadata"]["deletionTimestamp"] = "2026-11-23T02:18:48Z";
  pod["status"]["phase"] = "Failed";
  CHECK(read_pod(as_read(pod))->ending);
  CHECK(read_pod(as_read(pod))->ended);
  CHECK(read_pod(as_read(pod))->started == 0);
  pod["status"]["startTime"] = "2026-11-23T02:18:48Z";
  CHECK(read_pod(as_read(pod))->started == 1'795'400'328'000);
  for (const char* time : {"2026-13-23T02:18:48Z", "2026-02-30T02:18:48Z", "2026-11-23T02:18:48",
                           "2026-11-23T02:18:48+01:00", "today"}) {
    CAPTURE(time);
    pod["status"]["startTime"] = time;
    CHECK(read_pod(as_read(pod))->started == 0);
  }
  // A bound pod uses its GPUs, whatever its annotations say.
  using apiary_kubernetes::read_listed_pod;
  pod["metadata"]["annotations"]["apiary/gang-sise"] = "4";
  CHECK_FALSE(read_pod(as_read(pod)).ok());
  CHECK_FALSE(read_listed_pod(as_read(pod)).ok());
  pod["spec"]["nodeName"] = "n1";
  CHECK_FALSE(read_pod(as_read(pod)).ok());
  const auto bound = read_listed_pod(as_read(pod));
  REQUIRE(bound.ok());
  CHECK(bound->gpus == 12);
  CHECK(bound->node == "n1");
  CHECK(bound->gang_key() == "default/p");
  CHECK(bound->gang_fault == "pod default/p: there is no annotation \"apiary/gang-sise\"");

  std::vector<std::string> faults;
  CHECK(apiary_kubernetes::read_list(as_read(json{{"items", json::array()}}), read_node, faults)
            ->empty());
  CHECK_FALSE(apiary_kubernetes::read_list(as_read(json::object()), read_node, faults).ok());
  CHECK_FALSE(
      apiary_kubernetes::read_list(as_read(json{{"items", nullptr}}), read_node, faults).ok());

  const apiary_kubernetes::taint_record taint{"team", "red", "NoSchedule"};
  using toleration = apiary_kubernetes::toleration_record;
  CHECK(toleration{.op = "Exists"}.tolerates(taint));
  CHECK(toleration{.key = "team", .op = "Equal", .value = "red"}.tolerates(taint));
  CHECK(toleration{.key = "team", .value = "red", .effect = "NoSchedule"}.tolerates(taint));
  CHECK_FALSE(toleration{.key = "team", .value = "blue"}.tolerates(taint));
  CHECK_FALSE(toleration{.key = "team", .op = "Exists", .effect = "NoExecute"}.tolerates(taint));
  CHECK_FALSE(toleration{.key = "other", .op = "Exists"}.tolerates(taint));
  CHECK_FALSE(toleration{.value = "red"}.tolerates(taint));
}
