// apiary/tests/kubernetes/extender_server_test.cpp - the extender over HTTP: wrong, long and slow clients; the API server.
// SPDX-License-Identifier: MIT
#include "../../examples/kubernetes/extender_server.h"

#include "../../examples/kubernetes/extender_service.h"
#include "../../examples/kubernetes/kubernetes_json.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <support/fake_kubernetes.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using apiary_kubernetes::api_server;
using server_json = apiary_kubernetes::json;

// An HTTP server on a free port, until the end of the scope.
class running_server {
 public:
  running_server() = default;
  running_server(const running_server&) = delete;
  ~running_server() {
    server.stop();
    if (thread_.joinable()) thread_.join();
  }
  void start() {
    port = server.bind_to_any_port("127.0.0.1");
    REQUIRE(port > 0);
    thread_ = std::thread([this] { server.listen_after_bind(); });
    while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port); }

  httplib::Server server{};
  int port = 0;

 private:
  std::thread thread_;
};

struct running_extender {
  apiary_kubernetes::extender_service service{
      apiary_kubernetes::gang_extender::create(apiary_test::kubernetes_nodes(), {}).value(),
      {.now = [] { return apiary::time_ms{0}; }, .say = [](const std::string&) {}}};
  running_server http{};

  running_extender() {
    apiary_kubernetes::serve(http.server, service);
    http.start();
  }
};

const std::string filter_path = "/v1/extender/filter";
const std::string filter_body =
    R"({"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"},"spec":{"containers":[{"resources":)"
    R"({"limits":{"nvidia.com/gpu":"8"}}}]}},"NodeNames":["n3"]})";

void check_alive(const running_server& server) {
  const auto begin = std::chrono::steady_clock::now();
  httplib::Client client(server.url());
  const auto answer = client.Post(filter_path, filter_body, "application/json");
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(server_json::parse(answer->body)["NodeNames"] == server_json::array({"n3"}));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
}

// A connection that sends what it is told, at its own pace.
class raw_client {
 public:
  explicit raw_client(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    REQUIRE(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  raw_client(const raw_client&) = delete;
  ~raw_client() { close(socket_); }
  bool send(std::string_view text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // The first line of the answer; "" if the server closes the connection, "late" after ten seconds.
  std::string first_line() {
    std::string all;
    char some[512];
    while (all.find("\r\n") == std::string::npos) {
      const ssize_t n = recv(socket_, some, sizeof some, 0);
      if (n < 0) return "late";
      if (n == 0) return all;
      all.append(some, static_cast<std::size_t>(n));
    }
    return all.substr(0, all.find("\r\n"));
  }

 private:
  int socket_;
};

}  // namespace

TEST_CASE("server: answers, and refuses what is wrong") {
  running_extender extender;
  check_alive(extender.http);
  httplib::Client client(extender.http.url());
  const auto answer = client.Post(filter_path, "{\"Pod\":", "application/json");
  REQUIRE(answer);
  CHECK(answer->status == 400);
  CHECK(server_json::parse(answer->body)["Error"] == "the body is no valid JSON");
  CHECK(client.Post("/v1/extender/explain", "{}", "application/json")->status == 404);
  CHECK(client.Post("/v1/extender/filter/more", "{}", "application/json")->status == 404);
  CHECK(client.Get(filter_path)->status == 404);
  CHECK(client.Get("/healthz")->body == "ok");
  check_alive(extender.http);
}

TEST_CASE("server: a body of 1 MB is refused, with and without its length") {
  running_extender extender;
  const std::string body = filter_body + std::string(1'000'000, ' ');
  {
    httplib::Client client(extender.http.url());
    const auto answer = client.Post(filter_path, body, "application/json");
    REQUIRE(answer);
    CHECK(answer->status == 413);
  }
  check_alive(extender.http);
  raw_client chunked(extender.http.port);
  CHECK(chunked.send(
      "POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string chunk = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 16 && chunked.send(chunk); ++i) {
  }
  CHECK(chunked.first_line().find(" 413") != std::string::npos);
  check_alive(extender.http);
  // A body just below the limit is read.
  httplib::Client client(extender.http.url());
  const std::string long_body =
      filter_body + std::string(apiary_kubernetes::max_body - filter_body.size(), ' ');
  CHECK(client.Post(filter_path, long_body, "application/json")->status == 200);
}

TEST_CASE("server: slow clients get an error, and others their answers meanwhile") {
  running_extender extender;
  const std::string head =
      "POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
  std::vector<std::unique_ptr<raw_client>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<raw_client>(extender.http.port));
    const std::size_t sent = i % 3 == 0 ? 10 : i % 3 == 1 ? head.size() - 1 : head.size();
    CHECK(silent.back()->send((head + "{\"Pod\"").substr(0, sent)));
  }
  raw_client slow(extender.http.port);
  CHECK(slow.send(head));
  check_alive(extender.http);
  for (int i = 0; i < 75 && slow.send(" "); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  check_alive(extender.http);
  CHECK(slow.first_line().find(" 408") != std::string::npos);
  for (std::size_t i = 0; i < silent.size(); ++i) {
    CAPTURE(i);
    const std::string line = silent[i]->first_line();
    CHECK((line.find(" 400") != std::string::npos || (i % 3 != 2 && line.empty())));
  }
  check_alive(extender.http);
}

TEST_CASE("server: the calls of the API server") {
  running_server kube;
  std::string asked_for, bound, deleted;
  int status = 200;
  kube.server.Get("/api/v1/nodes", [&](const httplib::Request&, httplib::Response& response) {
    response.status = status;
    response.set_content(
        R"({"items":[{"metadata":{"name":"n0"},"status":{"allocatable":{"nvidia.com/gpu":"8"},)"
        R"("conditions":[{"type":"Ready","status":"True"}]}},{"metadata":{}}]})",
        "application/json");
  });
  kube.server.Get(
      "/api/v1/pods", [&](const httplib::Request& request, httplib::Response& response) {
        asked_for = request.get_param_value("fieldSelector");
        response.set_content(R"({"items":[{"metadata":{"name":"p","namespace":"d","uid":"u"}}]})",
                             "application/json");
      });
  kube.server.Post("/api/v1/namespaces/d/pods/p/binding",
                   [&](const httplib::Request& request, httplib::Response& response) {
                     bound = request.body;
                     response.status = 201;
                   });
  kube.server.Delete("/api/v1/namespaces/d/pods/p",
                     [&](const httplib::Request& request, httplib::Response& response) {
                       deleted = request.body;
                       response.status = 409;
                     });
  kube.start();
  const api_server api(kube.url());
  std::vector<std::string> faults;
  const auto lists = api.list(faults);
  REQUIRE(lists.ok());
  REQUIRE(lists->nodes.size() == 1);
  CHECK(lists->nodes[0].usable);
  CHECK(faults == std::vector<std::string>{"a node has no metadata.name"});
  REQUIRE(lists->pods.size() == 1);
  CHECK(asked_for == "status.phase!=Succeeded,status.phase!=Failed");
  CHECK(api.bind(lists->pods[0], "n0", "n0,n1").ok());
  const server_json body = server_json::parse(bound);
  CHECK(body["target"]["name"] == "n0");
  CHECK(body["metadata"]["uid"] == "u");
  CHECK(body["metadata"]["annotations"]["apiary/plan"] == "n0,n1");
  CHECK(api.evict(lists->pods[0]).message().find("409") != std::string::npos);
  CHECK(server_json::parse(deleted)["preconditions"]["uid"] == "u");
  status = 500;
  CHECK_FALSE(api.list(faults).ok());
  CHECK_FALSE(api_server("http://127.0.0.1:1").list(faults).ok());
}
