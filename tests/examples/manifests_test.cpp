// apiary/tests/examples/manifests_test.cpp - the manifests for Kubernetes agree with each other and with the program.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace kubernetes_manifests {

using strings = std::set<std::string>;

const std::string folder = APIARY_SOURCE_DIR "/examples/hosts/kubernetes/";

std::string file_text(const std::string& name) {
  std::ifstream in(folder + name);
  REQUIRE_MESSAGE(in.is_open(), name);
  return {std::istreambuf_iterator<char>(in), {}};
}
// The manifests of a file, by kind; of several of one kind, the last one.
std::map<std::string, YAML::Node> manifests(const std::string& name) {
  std::map<std::string, YAML::Node> all;
  for (const YAML::Node& one : YAML::LoadAll(file_text(name))) {
    REQUIRE(one.IsMap());
    CHECK(one["apiVersion"].IsScalar());
    CHECK(one["metadata"]["name"].IsScalar());
    all[one["kind"].as<std::string>() + (one["kind"].as<std::string>() == "Job"
                                             ? " " + one["metadata"]["name"].as<std::string>()
                                             : "")] = one;
  }
  return all;
}
strings keys(const YAML::Node& map) {
  strings all;
  for (const auto& entry : map) CHECK(all.insert(entry.first.as<std::string>()).second);
  return all;
}
bool contains(const strings& all, const strings& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace kubernetes_manifests

TEST_CASE("the manifest of the scheduler agrees with the extender") {
  using namespace kubernetes_manifests;
  auto all = manifests("manifests/scheduler.yaml");
  CHECK(all["ServiceAccount"]["apiVersion"].as<std::string>() == "v1");
  CHECK(all["ClusterRoleBinding"]["apiVersion"].as<std::string>() ==
        "rbac.authorization.k8s.io/v1");
  CHECK(all["Deployment"]["apiVersion"].as<std::string>() == "apps/v1");
  const std::string account = all["ServiceAccount"]["metadata"]["name"].as<std::string>();
  CHECK(all["ClusterRoleBinding"]["subjects"][0]["name"].as<std::string>() == account);

  // The fields of KubeSchedulerConfiguration v1 and of its extenders.
  const YAML::Node config = YAML::Load(all["ConfigMap"]["data"]["config.yaml"].as<std::string>());
  CHECK(config["apiVersion"].as<std::string>() == "kubescheduler.config.k8s.io/v1");
  CHECK(config["kind"].as<std::string>() == "KubeSchedulerConfiguration");
  CHECK(contains({"apiVersion", "clientConnection", "extenders", "kind", "leaderElection",
                  "parallelism", "percentageOfNodesToScore", "profiles"},
                 keys(config)));
  REQUIRE(config["extenders"].size() == 1);
  const YAML::Node extender = config["extenders"][0];
  CHECK(contains(
      {"bindVerb", "enableHTTPS", "filterVerb", "httpTimeout", "ignorable", "managedResources",
       "nodeCacheCapable", "preemptVerb", "prioritizeVerb", "tlsConfig", "urlPrefix", "weight"},
      keys(extender)));
  CHECK(extender["managedResources"][0]["name"].as<std::string>() == "nvidia.com/gpu");
  CHECK(!extender["managedResources"][0]["ignoredByScheduler"].as<bool>());
  for (const char* verb : {"filter", "prioritize", "preempt", "bind"})
    CHECK(extender[verb + std::string("Verb")].as<std::string>() == verb);

  // The port and the options are those of the program.
  const std::string program = file_text("kubernetes_extender.cpp");
  const std::string url = extender["urlPrefix"].as<std::string>();
  CHECK(url == "http://127.0.0.1:18888/v1/extender");
  CHECK(program.find("{\"--port\", \"18888\"}") != std::string::npos);
  CHECK(file_text("extender_server.h").find("\"/v1/extender/([a-z]+)\"") != std::string::npos);
  const YAML::Node pod = all["Deployment"]["spec"]["template"];
  CHECK(keys(pod["metadata"]["labels"]) ==
        keys(all["Deployment"]["spec"]["selector"]["matchLabels"]));
  CHECK(pod["spec"]["serviceAccountName"].as<std::string>() == account);
  std::string proxy;
  for (const YAML::Node& container : pod["spec"]["containers"]) {
    const auto words = container["command"].as<std::vector<std::string>>();
    for (const std::string& word : words) {
      if (word.rfind("--port=", 0) == 0) proxy = word.substr(7);
      if (words[0] != "kubernetes_extender" || word == words[0]) continue;
      CHECK(program.find('"' + word.substr(0, word.find('=')) + '"') != std::string::npos);
      if (word.rfind("--api=", 0) == 0) CHECK(word == "--api=http://127.0.0.1:" + proxy);
    }
    if (container["volumeMounts"])
      CHECK(container["volumeMounts"][0]["name"].as<std::string>() ==
            pod["spec"]["volumes"][0]["name"].as<std::string>());
  }
  CHECK(pod["spec"]["volumes"][0]["configMap"]["name"].as<std::string>() ==
        all["ConfigMap"]["metadata"]["name"].as<std::string>());
}

TEST_CASE("the manifest of the load asks the scheduler for what it has") {
  using namespace kubernetes_manifests;
  auto scheduler = manifests("manifests/scheduler.yaml");
  auto load = manifests("manifests/load.yaml");
  const YAML::Node config =
      YAML::Load(scheduler["ConfigMap"]["data"]["config.yaml"].as<std::string>());
  const std::string name = config["profiles"][0]["schedulerName"].as<std::string>();
  const std::string text = file_text("manifests/load.yaml");
  for (const char* job : {"Job guests", "Job train"}) {
    const YAML::Node spec = load[job]["spec"];
    CHECK(load[job]["apiVersion"].as<std::string>() == "batch/v1");
    CHECK(spec["parallelism"].as<int>() == spec["completions"].as<int>());
    const YAML::Node pod = spec["template"]["spec"];
    CHECK(pod["schedulerName"].as<std::string>() == name);
    CHECK(pod["restartPolicy"].as<std::string>() == "Never");
    CHECK(text.find("metadata: {name: " + pod["priorityClassName"].as<std::string>() + "}") !=
          std::string::npos);
    CHECK(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].as<int>() == 8);
  }
  const YAML::Node train = load["Job train"]["spec"];
  const YAML::Node about = train["template"]["metadata"];
  CHECK(about["annotations"]["apiary/gang-size"].as<std::string>() ==
        train["parallelism"].as<std::string>());
  CHECK(file_text("manifests/scheduler.yaml")
            .find(',' + about["annotations"]["apiary/required-level"].as<std::string>() + '=') !=
        std::string::npos);
  CHECK(about["labels"]["gang"].as<std::string>() == "train");
}
