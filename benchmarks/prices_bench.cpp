// apiary/benchmarks/prices_bench.cpp - GPUs allocated by FGD, by prices, and by prices that are learnt.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/load_prices.h>
#include <apiary/fgd/detail/load_program.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/price_score.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/trace/openb_reader.h>
#include <apiary/trace/workload.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// A cluster, and tasks that arrive there in one order.
struct arrivals_at {
  node_table nodes{};
  std::vector<named_task> tasks{};
  std::vector<std::uint32_t> order{};
};

const std::string openb = std::string(APIARY_DATA_DIR) + "/openb/";

void add_kind(std::vector<named_task>& tasks, std::uint32_t count, std::uint32_t cpu_milli,
              std::uint32_t gpus, std::uint32_t gpu_milli, model_set models = any_model) {
  named_task task;
  task.request = {.cpu_milli = cpu_milli,
                  .memory_mib = 1024,
                  .gpus = gpus,
                  .gpu_milli = static_cast<milli_gpu>(gpu_milli),
                  .models = models};
  tasks.insert(tasks.end(), count, task);
}
// Kinds of tasks that are not those of a trace.
std::vector<named_task> made_tasks(const std::string& mix) {
  std::vector<named_task> tasks;
  rng random(7);
  const auto cores = [&](std::uint32_t least, std::uint32_t more) {
    return 1000 * (least + random.uniform(more));
  };
  if (mix == "small_fractions") {
    for (int k = 0; k < 40; ++k)
      add_kind(tasks, 50 + random.uniform(200), cores(1, 6), 1, 50 * (1 + random.uniform(12)));
    add_kind(tasks, 200, 8000, 1, 1000);
    add_kind(tasks, 300, 4000, 0, 0);
  } else if (mix == "training") {
    for (int k = 0; k < 24; ++k) {
      const std::uint32_t gpus = 1U << random.uniform(4);
      add_kind(tasks, 20 + 200 / gpus, gpus * cores(4, 9), gpus, 1000);
    }
    add_kind(tasks, 600, 12'000, 0, 0);
  } else if (mix == "many_cores") {
    for (int k = 0; k < 30; ++k) {
      const std::uint32_t milli = random.uniform(2) == 0 ? 1000 : 100 * (1 + random.uniform(9));
      add_kind(tasks, 30 + random.uniform(150), cores(8, 16), 1, milli);
    }
    for (int k = 0; k < 5; ++k) add_kind(tasks, 100, 4 * cores(1, 7), 0, 0);
  } else {  // models
    for (int k = 0; k < 60; ++k) {
      const std::uint32_t gpus = random.uniform(4) > 0 ? 1 : 2 + random.uniform(3);
      const bool whole = gpus > 1 || random.uniform(3) == 0;
      model_set models = any_model;
      if (random.uniform(2) == 0)
        models = model_set{1} << random.uniform(7) | model_set{1} << random.uniform(7);
      add_kind(tasks, 20 + random.uniform(100), cores(1, 14), gpus,
               whole ? 1000 : 10 * (5 + random.uniform(90)), models);
    }
    add_kind(tasks, 500, 6000, 0, 0);
  }
  return tasks;
}

// The published orders of arrival of a trace; none without its files.
std::vector<arrivals_at> published_orders(const std::string& name) {
  std::vector<arrivals_at> result;
  const auto lines = [](const std::string& file) {
    return line_reader::open(openb + file).value();
  };
  gpu_model_names models;
  for (int seed = 42; std::filesystem::exists(openb + "arrivals/" + name + "_" +
                                              std::to_string(seed) + "_pods.txt");
       ++seed) {
    const std::string arrivals = "arrivals/" + name + "_" + std::to_string(seed);
    const trace_cluster listed = read_nodes(lines("openb_node_list_gpu_node.csv"), models).value();
    arrivals_at one;
    one.nodes = read_node_order(lines(arrivals + "_nodes.txt"), listed).value().nodes;
    one.tasks = read_tasks(lines("openb_pod_list_" + name + ".csv"), models).value();
    one.order = read_arrivals(lines(arrivals + "_pods.txt"), one.tasks).value();
    result.push_back(std::move(one));
  }
  return result;
}
// Tasks in a random order, and then random ones of them, until they request 102 % of the GPUs.
std::vector<std::uint32_t> random_order(const arrivals_at& at, rng& random) {
  const auto tasks = static_cast<std::uint32_t>(at.tasks.size());
  std::vector<std::uint32_t> order(tasks);
  for (std::uint32_t t = 0; t < tasks; ++t) order[t] = t;
  random.shuffle(order);
  std::uint64_t requested = 0;  // thousandths of a GPU
  for (const std::uint32_t t : order) requested += at.tasks[t].request.total_gpu_milli();
  for (; requested < 1020 * at.nodes.total_gpus();
       requested += at.tasks[order.back()].request.total_gpu_milli())
    order.push_back(random.uniform(tasks));
  return order;
}
// Ten random orders of a trace and of its nodes; none without its files. If `repeats` is set, the tasks
// without GPU repeat until they are a quarter of all.
std::vector<arrivals_at> shuffled_orders(const std::string& name, bool repeats) {
  std::vector<arrivals_at> result;
  const std::string pods = openb + "openb_pod_list_" + name + ".csv";
  if (!std::filesystem::exists(pods)) return result;
  gpu_model_names models;
  const trace_cluster listed =
      read_nodes(line_reader::open(openb + "openb_node_list_gpu_node.csv").value(), models).value();
  std::vector<named_task> tasks = read_tasks(line_reader::open(pods).value(), models).value();
  std::vector<named_task> without_gpu;
  for (const named_task& t : tasks)
    if (t.request.gpus == 0) without_gpu.push_back(t);
  const std::size_t with_gpu = tasks.size() - without_gpu.size();
  for (std::size_t i = 0; repeats && 3 * (without_gpu.size() + i) < with_gpu; ++i)
    tasks.push_back(without_gpu[i % without_gpu.size()]);
  for (std::uint64_t seed = 201; seed <= 210; ++seed) {
    rng random(seed);
    std::vector<node_shape> shapes;
    for (const node_id n : listed.nodes.ids()) shapes.push_back(listed.nodes.shape(n));
    random.shuffle(shapes);
    arrivals_at one{{}, tasks, {}};
    for (const node_shape& shape : shapes) one.nodes.add(shape);
    one.order = random_order(one, random);
    result.push_back(std::move(one));
  }
  return result;
}
// Five random orders of a mix.
std::vector<arrivals_at> made_orders(const std::string& mix) {
  std::vector<arrivals_at> result;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const synthetic_trace made = openb_like({.seed = seed});
    arrivals_at one{made.nodes.nodes, made_tasks(mix), {}};
    rng random(seed);
    std::uint64_t requested = 0;  // thousandths of a GPU
    while (requested < 1020 * one.nodes.total_gpus()) {
      one.order.push_back(random.uniform(static_cast<std::uint32_t>(one.tasks.size())));
      requested += one.tasks[one.order.back()].request.total_gpu_milli();
    }
    result.push_back(std::move(one));
  }
  return result;
}

// The GPUs that are allocated while the load that has arrived rounds to 100 %, in %. Calls
// before(scheduler, task) before each task is placed.
template <class Score, class Before>
double allocated(const arrivals_at& at, Score score, const Before& before) {
  auto scheduler = gpu_sharing_scheduler<Score>::create(at.nodes, std::move(score)).value();
  const auto gpus = static_cast<double>(at.nodes.total_gpus());
  std::uint64_t requested = 0;  // thousandths of a GPU, as `used`
  std::uint64_t used = 0;
  double sum = 0.0;
  int tasks = 0;
  std::uint32_t job = 0;
  for (const std::uint32_t t : at.order) {
    task_request task = at.tasks[t].request;
    task.job = job_id(job++);
    before(scheduler, task);
    requested += task.total_gpu_milli();
    const auto plan = scheduler.propose(task);
    if (plan->result == plan_result::bind && scheduler.commit(task, *plan).ok())
      used += task.total_gpu_milli();
    const double load = static_cast<double>(requested) / gpus / 10.0;
    if (load > 100.5) break;
    if (load < 99.5) continue;
    sum += static_cast<double>(used) / gpus / 10.0;
    ++tasks;
  }
  return sum / tasks;
}
double by_fgd(const arrivals_at& at) {
  const task_mix mix = task_mix::from_history(workload::kinds(at.tasks));
  return allocated(at, fragmentation_gradient(fragmentation(mix)), [](auto&, const auto&) {});
}
double by_prices(const arrivals_at& at) {
  const task_mix mix = task_mix::from_history(workload::kinds(at.tasks), 100);
  return allocated(at, price_score::create(at.nodes, mix).value(), [](auto&, const auto&) {});
}
double by_learnt_prices(const arrivals_at& at) {
  price_learner learner;
  const auto learn = [&](gpu_sharing_scheduler<price_score>& scheduler, const task_request& task) {
    if (auto prices = learner.arrive(at.nodes, task)) (void)scheduler.set_score(*std::move(prices));
  };
  return allocated(at, learner.first(at.nodes).value(), learn);
}
// What no scheduler can exceed: the linear program of the tasks that have arrived.
double bound(const arrivals_at& at) {
  std::vector<named_task> arrived;
  std::uint64_t requested = 0;
  for (const std::uint32_t t : at.order) {
    requested += at.tasks[t].request.total_gpu_milli();
    if (requested > 1005 * at.nodes.total_gpus()) break;
    arrived.push_back(at.tasks[t]);
  }
  const task_mix mix = task_mix::from_history(workload::kinds(arrived), 100);
  std::vector<detail::load_kind> kinds;
  for (const task_mix::weighted_kind& t : mix.tasks())
    if (t.kind.gpus > 0)
      kinds.push_back({t.kind.cpu_milli, t.kind.gpus, t.kind.gpu_milli, t.kind.models,
                       static_cast<double>(t.weight), t.kind.gpus * t.kind.gpu_milli / 1000.0});
  const detail::load_program program(detail::expected_load(at.nodes, mix).classes(), kinds);
  return program.optimal()
             ? 100.0 * program.objective() / static_cast<double>(at.nodes.total_gpus())
             : 0.0;
}

// Means over the orders, in % of the GPUs.
void gpus_allocated(benchmark::State& state, const std::vector<arrivals_at>& orders) {
  for (auto _ : state) {
    double sums[4] = {};
    for (const arrivals_at& at : orders) {
      sums[0] += by_fgd(at);
      sums[1] += by_prices(at);
      sums[2] += by_learnt_prices(at);
      sums[3] += bound(at);
    }
    const auto n = static_cast<double>((std::max)(orders.size(), std::size_t{1}));
    state.counters["orders"] = static_cast<double>(orders.size());
    state.counters["fgd"] = sums[0] / n;
    state.counters["prices"] = sums[1] / n;
    state.counters["learnt"] = sums[2] / n;
    state.counters["bound"] = sums[3] / n;
  }
}
BENCHMARK_CAPTURE(gpus_allocated, default, published_orders("default"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, gpushare100, published_orders("gpushare100"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, gpuspec33, published_orders("gpuspec33"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, multigpu50, published_orders("multigpu50"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, default_shuffled, shuffled_orders("default", false))
    ->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, gpushare100_shuffled, shuffled_orders("gpushare100", false))
    ->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, gpuspec33_shuffled, shuffled_orders("gpuspec33", false))
    ->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, multigpu50_shuffled, shuffled_orders("multigpu50", false))
    ->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, quarter_without_gpu, shuffled_orders("default", true))
    ->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, small_fractions, made_orders("small_fractions"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, training, made_orders("training"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, many_cores, made_orders("many_cores"))->Iterations(1);
BENCHMARK_CAPTURE(gpus_allocated, models, made_orders("models"))->Iterations(1);

}  // namespace
