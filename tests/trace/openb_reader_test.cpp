// apiary/tests/trace/openb_reader_test.cpp - traces: what they mean, and every fault with its line.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/trace/line_reader.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace apiary;

namespace {

constexpr const char* node_header = "sn,cpu_milli,memory_mib,gpu,model\n";
constexpr const char* task_header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

absl::StatusOr<trace_cluster> nodes_of(const std::string& text) {
  gpu_model_names models;
  return read_nodes(line_reader("nodes.csv", text), models);
}
absl::StatusOr<std::vector<named_task>> tasks_of(const std::string& text) {
  const gpu_model_names models;
  return read_tasks(line_reader("pods.csv", text), models);
}

template <class T>
std::string fault(const absl::StatusOr<T>& read) {
  CHECK(read.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(read.status().message());
}

task_request only_task(const std::string& row) {
  const auto tasks = tasks_of(task_header + row);
  REQUIRE_MESSAGE(tasks.ok(), tasks.status().ToString());
  REQUIRE(tasks->size() == 1);
  CHECK(tasks->front().request.valid());
  return tasks->front().request;
}

}  // namespace

TEST_CASE("a node list") {
  gpu_model_names models;
  const auto read =
      read_nodes(line_reader("n",
                             "model,extra,gpu,sn,memory_mib,cpu_milli\nG2,?,8,a,200,96000\n"
                             ",,0,b,4294967295,1\nT4,,16,c,0,0\nG2,,1,d,5,5"),
                 models);
  REQUIRE(read.ok());
  REQUIRE(read->nodes.size() == 4);
  CHECK(read->names[node_id(0)] == "a");
  CHECK(read->names[node_id(3)] == "d");
  CHECK(read->nodes.shape(node_id(0)) == node_shape{{96000, 200}, 8, 0});
  CHECK(read->nodes.shape(node_id(1)) == node_shape{{1, 4294967295U}, 0, 0});
  CHECK(read->nodes.shape(node_id(2)) == node_shape{{0, 0}, 16, 1});
  CHECK(read->nodes.shape(node_id(3)) == node_shape{{5, 5}, 1, 0});
  CHECK(read->nodes.total_gpus() == 25);
  REQUIRE(models.names().size() == 2);
  CHECK(models.names()[1] == "T4");
}

TEST_CASE("faults of a node list") {
  const auto second = [](const std::string& row) {
    return fault(nodes_of(node_header + std::string("a,1,1,1,T4\n") + row + "\n"));
  };
  CHECK(fault(nodes_of("")) == "nodes.csv: the file is empty");
  CHECK(fault(nodes_of(node_header)) == "nodes.csv: no node after the header line");
  CHECK(fault(nodes_of("sn,cpu_milli,memory_mib,gpu\na,1,1,1\n")) ==
        "nodes.csv:1: no column \"model\"");
  CHECK(second("a,1,1,1,T4") == "nodes.csv:3: node \"a\" is already in line 2");
  CHECK(second(",1,1,1,T4") == "nodes.csv:3: sn is \"\", not a name without spaces");
  CHECK(second("b c,1,1,1,T4") == "nodes.csv:3: sn is \"b c\", not a name without spaces");
  CHECK(second("-,1,1,1,T4") == "nodes.csv:3: sn is \"-\", which stands for no node");
  CHECK(second("--,-1,1,1,T4") ==
        "nodes.csv:3: cpu_milli is \"-1\", not a whole number from 0 to 4294967295");
  CHECK(second("b,1,4294967296,1,T4") ==
        "nodes.csv:3: memory_mib is \"4294967296\", not a whole number from 0 to 4294967295");
  CHECK(second("b,1,1,17,T4") == "nodes.csv:3: gpu is \"17\", not a whole number from 0 to 16");
  CHECK(second("b,1,1,1,") == "nodes.csv:3: model is \"\", not a name without spaces");
  CHECK(second("b,1,1,1,T4|G2") == "nodes.csv:3: model is \"T4|G2\"; a node has only one model");
  CHECK(second("b,1,1,1") == "nodes.csv:3: 4 fields; the header line has 5");
}

TEST_CASE("nodes have at most 64 models") {
  std::string text = node_header;
  for (int i = 0; i < 64; ++i) {
    text += "n" + std::to_string(i) + ",1,1,1,M" + std::to_string(i) + "\n";
  }
  CHECK(nodes_of(text).ok());
  CHECK(nodes_of(text + "x,1,1,1,M63\n").ok());
  CHECK(fault(nodes_of(text + "x,1,1,1,new\n")) ==
        "nodes.csv:66: model \"new\"; the limit is 64 models");
}

TEST_CASE("a node order puts every node once") {
  const auto nodes = nodes_of(node_header + std::string("a,1,9,1,T4\nb,2,9,0,\nc,3,9,2,G2\n"));
  REQUIRE(nodes.ok());
  const auto order = [&](std::string_view text) {
    return read_node_order(line_reader("order", text), *nodes);
  };
  const auto ordered = order("c\na\r\nb");
  REQUIRE(ordered.ok());
  CHECK(ordered->names[node_id(0)] == "c");
  CHECK(ordered->nodes.shape(node_id(0)) == node_shape{{3, 9}, 2, 1});
  CHECK(ordered->nodes.shape(node_id(2)) == node_shape{{2, 9}, 0, 0});
  CHECK(ordered->nodes.total_gpus() == 3);
  CHECK(fault(order("a\nb\nd\n")) == "order:3: no node is called \"d\"");
  CHECK(fault(order("a\nb\na\n")) == "order:3: node \"a\" is already in line 1");
  CHECK(fault(order("a\nc\n")) == "order: node \"b\" is missing");
  CHECK(fault(order("")) == "order: node \"a\" is missing");
}

TEST_CASE("a task list means what the traces mean") {
  const task_request none = only_task("p,5,6,0,0,\n");
  CHECK(none.gpus == 0);
  CHECK(none.cpu_milli == 5);
  CHECK(none.memory_mib == 6);
  const task_request none_with_more = only_task("p,5,6,0,700,T4|\n");
  CHECK(none_with_more.gpu_milli == 0);
  CHECK(none_with_more.models == any_model);
  CHECK(only_task("p,5,6,1,460,\n").gpu_milli == 460);
  CHECK(only_task("p,5,6,1,1000,\n").gpu_milli == 1000);
  CHECK(only_task("p,5,6,8,1000,\n").gpus == 8);
  CHECK(only_task("p,5,6,2,0,\n").gpu_milli == 1000);
  CHECK(only_task("p,5,6,16,1000,\n").gpu_milli == 1000);
}

TEST_CASE("a spec names models, one of which a node must have") {
  gpu_model_names models;
  const auto nodes =
      read_nodes(line_reader("n", node_header + std::string("a,1,1,1,T4\nb,1,1,1,G2\n")), models);
  REQUIRE(nodes.ok());
  const auto tasks = read_tasks(
      line_reader("p", task_header + std::string("a,1,1,1,9,G2|T4\nb,1,1,1,9,\nc,1,1,1,9,H9|T4|H8\n"
                                                 "d,1,1,1,9,T4|G2|G2\ne,1,1,0,0,H8\n"
                                                 "f,1,1,1,9,G2|T4\n")),
      models);
  REQUIRE(tasks.ok());
  CHECK((*tasks)[0].request.models == 3);
  CHECK((*tasks)[1].request.models == any_model);
  CHECK((*tasks)[2].request.models == 1);
  CHECK((*tasks)[3].request.models == 3);
  // "" < "G2|T4" < "H9|T4|H8" < "T4|G2|G2"
  const std::vector<std::uint32_t> ranks{1, 0, 2, 3, 0, 1};
  for (std::size_t i = 0; i < ranks.size(); ++i) CHECK((*tasks)[i].spec == ranks[i]);
  CHECK(models.names().size() == 2);
  for (const char* spec : {"H9", "H8|H9|H9", "T", "t4"}) {
    CHECK(fault(read_tasks(line_reader("pods.csv", task_header + std::string("a,1,1,1,9,T4\n") +
                                                       "b,1,1,1,9," + spec + "\n"),
                           models)) == std::string("pods.csv:3: gpu_spec is \"") + spec +
                                           "\", which names no model that a node has");
  }
}

TEST_CASE("a task list may have no spec column") {
  const auto tasks = tasks_of("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,9\n");
  REQUIRE(tasks.ok());
  CHECK(tasks->front().request.models == any_model);
}

TEST_CASE("faults of a task list") {
  const auto second = [](const std::string& row) {
    return fault(tasks_of(task_header + std::string("a,1,1,1,9,\n") + row + "\n"));
  };
  CHECK(fault(tasks_of("")) == "pods.csv: the file is empty");
  CHECK(fault(tasks_of(task_header)) == "pods.csv: no task after the header line");
  CHECK(fault(tasks_of("name,cpu_milli,memory_mib,num_gpu\n")) ==
        "pods.csv:1: no column \"gpu_milli\"");
  CHECK(second("a,1,1,1,9,") == "pods.csv:3: task \"a\" is already in line 2");
  CHECK(second("b,1,1,1,0,") == "pods.csv:3: gpu_milli is 0 of one GPU");
  CHECK(second("b,1,1,1,1001,") == "pods.csv:3: gpu_milli is 1001; a GPU has 1000");
  CHECK(second("b,1,1,2,4294967295,") == "pods.csv:3: gpu_milli is 4294967295; a GPU has 1000");
  CHECK(second("b,1,1,2,500,") ==
        "pods.csv:3: gpu_milli is 500 of 2 GPUs; a task can have a fraction of one GPU only");
  CHECK(second("b,1,1,1,-5,") ==
        "pods.csv:3: gpu_milli is \"-5\", not a whole number from 0 to 4294967295");
  CHECK(second("b,1,1,17,1000,") ==
        "pods.csv:3: num_gpu is \"17\", not a whole number from 0 to 16");
  CHECK(second("b,1x,1,1,9,") ==
        "pods.csv:3: cpu_milli is \"1x\", not a whole number from 0 to 4294967295");
  CHECK(second("b,1,99999999999,1,9,") ==
        "pods.csv:3: memory_mib is \"99999999999\", not a whole number from 0 to 4294967295");
  for (const char* spec : {"|", "T4|", "|T4", "T4||G2"}) {
    CHECK(second(std::string("b,1,1,1,9,") + spec) ==
          std::string("pods.csv:3: gpu_spec is \"") + spec + "\", which names an empty model");
  }
}

TEST_CASE("a spec may name 64 models, and any number that no node has") {
  gpu_model_names models;
  std::string spec = "N";
  for (int i = 0; i < 64; ++i) {
    const std::string name = "M" + std::to_string(i);
    CHECK(models.intern(name) == i);
    spec += "|" + name + "|N" + std::to_string(i);
  }
  CHECK(models.intern("new") == std::nullopt);
  const std::string text = task_header + ("a,1,1,1,9," + spec + "\nb,1,1,1,9,M63\n");
  const auto tasks = read_tasks(line_reader("pods.csv", text), models);
  REQUIRE(tasks.ok());
  CHECK((*tasks)[0].request.models == any_model);
  CHECK((*tasks)[1].request.models == model_set{1} << 63);
}

TEST_CASE("arrivals name tasks, some more than once") {
  const auto tasks = tasks_of(task_header + std::string("a,1,1,1,9,\nb,1,1,1,9,\n"));
  REQUIRE(tasks.ok());
  const auto arrivals = [&](std::string_view text) {
    return read_arrivals(line_reader("arrivals", text), *tasks);
  };
  CHECK(arrivals("b\na\nb\n\n").value() == std::vector<std::uint32_t>{1, 0, 1});
  CHECK(fault(arrivals("")) == "arrivals: the file is empty");
  CHECK(fault(arrivals("a\nc\n")) == "arrivals:2: no task is called \"c\"");
  CHECK(fault(arrivals("a \n")) == "arrivals:1: no task is called \"a \"");
  CHECK(fault(arrivals("a\n\nb\n")) == "arrivals:2: the line is blank");
}
