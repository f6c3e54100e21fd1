// apiary/examples/hosts/kubernetes/extender_server.h - HTTP: the server for kube-scheduler, the calls of the API server.
// SPDX-License-Identifier: MIT
#pragma once

#include "extender_service.h"
#include "kubernetes_json.h"
#include "kubernetes_records.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <httplib.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

namespace apiary_kubernetes {

// A longer body gets status 413: 250 whole nodes, or 30,000 names of nodes.
inline constexpr std::size_t max_body = 512 * 1024;
// A client that sends nothing for so long gets status 400, one whose body takes so long status 408.
struct client_limits {
  std::chrono::milliseconds silence{2000};
  std::chrono::milliseconds body{4000};
};
// So many connections are served at a time.
inline constexpr std::size_t max_connections = 64;

// An HTTP server with a thread of its own, until the end of the scope.
class http_server {
 public:
  http_server() = default;
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;
  ~http_server() { stop(); }

  // Add its paths here before it starts.
  [[nodiscard]] httplib::Server& paths() noexcept { return server_; }
  // Listens and answers; returns the port. Port 0: any that is free. kUnavailable: it cannot listen
  // there, perhaps because another program does.
  [[nodiscard]] absl::StatusOr<int> start(const std::string& address, int port) {
    // The options of httplib would let a second extender listen on the same port.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    const int bound = port == 0                             ? server_.bind_to_any_port(address)
                      : server_.bind_to_port(address, port) ? port
                                                            : -1;
    if (bound <= 0)
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ":", port, "; does another program?"));
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    // Before it runs, httplib ignores stop().
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return bound;
  }
  void stop() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }

 private:
  httplib::Server server_;
  std::thread thread_;
};

// Adds the paths of an extender: POST /v1/extender/{filter,prioritize,preempt,bind}, GET /healthz.
inline void serve(httplib::Server& server, extender_service& service, client_limits limits = {}) {
  server.new_task_queue = [] { return new httplib::ThreadPool(max_connections); };
  server.set_read_timeout(limits.silence);
  server.set_write_timeout(limits.silence);
  server.set_payload_max_length(max_body);
  server.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok", "text/plain");
  });
  server.Post("/v1/extender/([a-z]+)", [&service, limits](const httplib::Request& request,
                                                          httplib::Response& response,
                                                          const httplib::ContentReader& read) {
    const auto begin = std::chrono::steady_clock::now();
    std::string body;
    int fault = 0;
    const bool complete = read([&](const char* data, std::size_t size) {
      if (size > max_body - body.size()) fault = 413;  // the rest is read, but not kept
      if (fault == 0) body.append(data, size);
      if (std::chrono::steady_clock::now() - begin <= limits.body) return true;
      fault = 408;
      return false;
    });
    if (!complete && fault == 0) fault = response.status == 413 ? 413 : 400;
    const std::string verb = request.matches[1].str();
    const answer to =
        fault == 0 ? service.call(verb, body)
                   : service.refuse(verb, fault, "the body is too long, too slow or not complete");
    response.status = to.status;
    response.set_content(to.body, "application/json");
    if (!complete) response.set_header("Connection", "close");
  });
}

// The calls of an API server without a password, as `kubectl proxy` offers one: "http://127.0.0.1:8001".
class api_server {
 public:
  explicit api_server(std::string url) : url_(std::move(url)) {}

  [[nodiscard]] absl::StatusOr<cluster_lists> list(std::vector<std::string>& faults) const {
    const auto nodes = get("/api/v1/nodes");
    if (!nodes.ok()) return nodes.status();
    const auto pods =
        get("/api/v1/pods?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed");
    if (!pods.ok()) return pods.status();
    auto all_nodes = read_list(*nodes, read_node, faults);
    if (!all_nodes.ok()) return all_nodes.status();
    auto all_pods = read_list(*pods, read_listed_pod, faults);
    if (!all_pods.ok()) return all_pods.status();
    for (const pod_record& pod : *all_pods)
      if (!pod.gang_fault.empty())
        faults.push_back(absl::StrCat(pod.gang_fault, "; the pod runs, and its GPUs are in use"));
    return cluster_lists{*std::move(all_nodes), *std::move(all_pods)};
  }
  // The annotation of the binding becomes one of the pod.
  [[nodiscard]] absl::Status bind(const pod_record& pod, const std::string& node,
                                  const std::string& plan) const {
    json_object body;
    body.key("apiVersion").value("v1").key("kind").value("Binding");
    body.key("metadata").open('{').key("name").value(pod.name);
    body.key("namespace").value(pod.name_space).key("uid").value(pod.uid);
    body.key("annotations").open('{').key(plan_annotation).value(plan).close('}').close('}');
    body.key("target").open('{').key("apiVersion").value("v1").key("kind").value("Node");
    body.key("name").value(node).close('}');
    httplib::Client client = connect();
    return status_of(
        client.Post(absl::StrCat(path_of(pod), "/binding"), body.str(), "application/json"),
        "bind");
  }
  [[nodiscard]] absl::Status evict(const pod_record& pod) const {
    json_object body;
    body.key("apiVersion").value("v1").key("kind").value("DeleteOptions");
    body.key("preconditions").open('{').key("uid").value(pod.uid).close('}');
    httplib::Client client = connect();
    return status_of(client.Delete(path_of(pod), body.str(), "application/json"), "evict");
  }

 private:
  [[nodiscard]] httplib::Client connect() const {
    httplib::Client client(url_);
    constexpr std::chrono::seconds patience{2};
    client.set_connection_timeout(patience);
    client.set_read_timeout(patience);
    client.set_write_timeout(patience);
    return client;
  }
  static std::string path_of(const pod_record& pod) {
    return absl::StrCat("/api/v1/namespaces/", pod.name_space, "/pods/", pod.name);
  }
  static absl::Status status_of(const httplib::Result& result, const std::string& what) {
    if (!result)
      return absl::UnavailableError(absl::StrCat(
          what, ": the API server does not answer: ", httplib::to_string(result.error())));
    if (result->status >= 300)
      return absl::UnavailableError(absl::StrCat(what, ": the API server answers ", result->status,
                                                 ": ", result->body.substr(0, 200)));
    return absl::OkStatus();
  }
  [[nodiscard]] absl::StatusOr<json> get(const std::string& path) const {
    httplib::Client client = connect();
    const httplib::Result result = client.Get(path);
    if (const absl::Status done = status_of(result, "list"); !done.ok()) return done;
    return parse(result->body);
  }

  std::string url_;
};

}  // namespace apiary_kubernetes
