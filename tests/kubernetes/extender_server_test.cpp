// apiary/tests/kubernetes/extender_server_test.cpp - the extender over HTTP: wrong, long and slow clients; the API server.
// SPDX-License-Identifier: MIT
#include "../../examples/hosts/kubernetes/extender_server.h"

#include "../../examples/hosts/kubernetes/extender_service.h"
#include "../../examples/hosts/kubernetes/kubernetes_json.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <support/fake_kubernetes.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>
#include <vector>

#define JSON_USE_IMPLICIT_CONVERSIONS 0
#include <nlohmann/json.hpp>

namespace {

using apiary_kubernetes::api_server;
using apiary_kubernetes::http_server;
using server_json = nlohmann::json;

struct running_extender {
  apiary_kubernetes::extender_service service{
      apiary_kubernetes::gang_extender::create(apiary_test::kubernetes_nodes(), {}).value(),
      {.now = [] { return apiary::time_ms{0}; }, .say = [](const std::string&) {}}};
  http_server http{};
  int port = 0;

  explicit running_extender(apiary_kubernetes::client_limits limits = {}) {
    apiary_kubernetes::serve(http.paths(), service, limits);
    port = http.start("127.0.0.1", 0).value();
  }
};

std::string url_of(int port) { return "http://127.0.0.1:" + std::to_string(port); }

const std::string filter_path = "/v1/extender/filter";
const std::string filter_body =
    R"({"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"},"spec":{"containers":[{"resources":)"
    R"({"limits":{"nvidia.com/gpu":"8"}}}]}},"NodeNames":["n3"]})";

void check_alive(int port) {
  httplib::Client client(url_of(port));
  const auto answer = client.Post(filter_path, filter_body, "application/json");
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(server_json::parse(answer->body)["NodeNames"] == server_json::array({"n3"}));
}

// The head of a request whose body has 1000 bytes, and the begin of that body.
const std::string slow_head =
    "POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
const std::string slow_request = slow_head + "{\"Pod\"";

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
  // Whether the server has answered or closed the connection after so many milliseconds at most.
  [[nodiscard]] bool answered_within(int milliseconds) const {
    pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
    return poll(&one, 1, milliseconds) != 0;
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
  check_alive(extender.port);
  httplib::Client client(url_of(extender.port));
  const auto answer = client.Post(filter_path, "{\"Pod\":", "application/json");
  REQUIRE(answer);
  CHECK(answer->status == 400);
  CHECK(server_json::parse(answer->body)["Error"] ==
        "the body is no JSON, byte 8: a value expected");
  CHECK(client.Post("/v1/extender/explain", "{}", "application/json")->status == 404);
  CHECK(client.Post("/v1/extender/filter/more", "{}", "application/json")->status == 404);
  CHECK(client.Get(filter_path)->status == 404);
  CHECK(client.Get("/healthz")->body == "ok");
  check_alive(extender.port);
}

TEST_CASE("server: a body of 1 MB is refused, with and without its length") {
  running_extender extender;
  const std::string body = filter_body + std::string(1'000'000, ' ');
  {
    httplib::Client client(url_of(extender.port));
    const auto answer = client.Post(filter_path, body, "application/json");
    REQUIRE(answer);
    CHECK(answer->status == 413);
  }
  check_alive(extender.port);
  raw_client chunked(extender.port);
  CHECK(chunked.send(
      "POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string chunk = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 16 && chunked.send(chunk); ++i) {
  }
  CHECK(chunked.first_line().find(" 413") != std::string::npos);
  check_alive(extender.port);
  // A body just below the limit is read.
  httplib::Client client(url_of(extender.port));
  const std::string long_body =
      filter_body + std::string(apiary_kubernetes::max_body - filter_body.size(), ' ');
  CHECK(client.Post(filter_path, long_body, "application/json")->status == 200);
}

TEST_CASE("server: others get their answers while clients are silent") {
  running_extender extender({.silence = std::chrono::minutes(1), .body = std::chrono::minutes(1)});
  std::vector<std::unique_ptr<raw_client>> silent;
  for (std::size_t i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<raw_client>(extender.port));
    CHECK(silent.back()->send(slow_request.substr(0, 10 + i % 3 * slow_head.size() / 2)));
    if (i % 4 == 3) check_alive(extender.port);  // it has accepted them, too
  }
  for (const auto& client : silent) CHECK_FALSE(client->answered_within(0));  // they still wait
}

TEST_CASE("server: silent clients get an error") {
  running_extender extender({.silence = std::chrono::milliseconds(500)});
  raw_client silent(extender.port), without_end(extender.port), without_body(extender.port);
  CHECK(silent.send(slow_head.substr(0, 10)));
  CHECK(without_end.send(slow_head.substr(0, slow_head.size() - 1)));
  CHECK(without_body.send(slow_request));
  // httplib closes the connection of a client whose head does not come, or answers 400.
  for (raw_client* const client : {&silent, &without_end}) {
    const std::string line = client->first_line();
    CHECK((line.empty() || line.find(" 400") != std::string::npos));
  }
  CHECK(without_body.first_line().find(" 400") != std::string::npos);
  check_alive(extender.port);
}

TEST_CASE("server: a client whose body never ends gets an error") {
  running_extender extender(
      {.silence = std::chrono::minutes(1), .body = std::chrono::milliseconds(500)});
  raw_client slow(extender.port);
  CHECK(slow.send(slow_head));
  // Ends with the answer, or where the 1000 bytes of the body are sent after ten seconds.
  for (int i = 0; i < 999 && slow.send(" ") && !slow.answered_within(10); ++i) {
  }
  CHECK(slow.first_line().find(" 408") != std::string::npos);
  check_alive(extender.port);
}

TEST_CASE("server: stops at once after its start, and no other one listens on its port") {
  for (int i = 0; i < 20; ++i) {
    http_server server;
    REQUIRE(server.start("127.0.0.1", 0).ok());
  }
  http_server first, second;
  const int port = first.start("127.0.0.1", 0).value();
  const auto refused = second.start("127.0.0.1", port);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().message().find("cannot listen on 127.0.0.1:" + std::to_string(port)) == 0);
  first.stop();
  http_server third;
  CHECK(third.start("127.0.0.1", port).ok());
}

TEST_CASE("server: the calls of the API server") {
  http_server kube;
  std::string asked_for, bound, deleted;
  std::string pods =
      R"({"items":[{"metadata":{"name":"p","namespace":"d","uid":"u"}},)"
      R"({"metadata":{"name":"q","namespace":"d","uid":"v","annotations":{"apiary/x":""}}},)"
      R"({"metadata":{"name":"r","namespace":"d","uid":"w","annotations":{"apiary/x":""}},)"
      R"("spec":{"nodeName":"n0"}}]})";
  int status = 200;
  kube.paths().Get("/api/v1/nodes", [&](const httplib::Request&, httplib::Response& response) {
    response.status = status;
    response.set_content(
        R"({"items":[{"metadata":{"name":"n0"},"status":{"allocatable":{"nvidia.com/gpu":"8"},)"
        R"("conditions":[{"type":"Ready","status":"True"}]}},{"metadata":{}}]})",
        "application/json");
  });
  kube.paths().Get("/api/v1/pods",
                   [&](const httplib::Request& request, httplib::Response& response) {
                     asked_for = request.get_param_value("fieldSelector");
                     response.set_content(pods, "application/json");
                   });
  kube.paths().Post("/api/v1/namespaces/d/pods/p/binding",
                    [&](const httplib::Request& request, httplib::Response& response) {
                      bound = request.body;
                      response.status = 201;
                    });
  kube.paths().Delete("/api/v1/namespaces/d/pods/p",
                      [&](const httplib::Request& request, httplib::Response& response) {
                        deleted = request.body;
                        response.status = 409;
                      });
  const api_server api(url_of(kube.start("127.0.0.1", 0).value()));
  std::vector<std::string> faults;
  const auto lists = api.list(faults);
  REQUIRE(lists.ok());
  REQUIRE(lists->nodes.size() == 1);
  CHECK(lists->nodes[0].usable);
  CHECK(faults ==
        std::vector<std::string>{
            "a node has no metadata.name", "pod d/q: there is no annotation \"apiary/x\"",
            "pod d/r: there is no annotation \"apiary/x\"; the pod runs, and its GPUs are in use"});
  REQUIRE(lists->pods.size() == 2);
  CHECK(lists->pods[1].node == "n0");
  CHECK(asked_for == "status.phase!=Succeeded,status.phase!=Failed");
  CHECK(api.bind(lists->pods[0], "n0", "n0,n1").ok());
  const server_json body = server_json::parse(bound);
  CHECK(body["target"]["name"] == "n0");
  CHECK(body["metadata"]["uid"] == "u");
  CHECK(body["metadata"]["annotations"]["apiary/plan"] == "n0,n1");
  CHECK(api.evict(lists->pods[0]).message().find("409") != std::string::npos);
  CHECK(server_json::parse(deleted)["preconditions"]["uid"] == "u");
  pods = R"({"kind":"Status"})";
  CHECK(api.list(faults).status().message() == R"(a list has no items: {"kind":"Status"})");
  status = 500;
  CHECK_FALSE(api.list(faults).ok());
  CHECK_FALSE(api_server("http://127.0.0.1:1").list(faults).ok());
}
