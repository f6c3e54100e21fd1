// apiary/tests/sim/replay_command_line_test.cpp - the program replay, run in a folder of its own.
// SPDX-License-Identifier: MIT
#define main replay_main
#include "../../examples/programs/replay.cpp"
#undef main
#include "support/skip.h"
#include "support/work_folder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <limits>
#include <poll.h>
#include <set>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace {

using apiary_test::ended;

const std::string nodes_text =
    "sn,cpu_milli,memory_mib,gpu,model\nx,64000,1000,2,T4\ny,8000,1000,1,T4\n";
const std::string pods_text =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,10,1,600\nb,1000,10,2,1000\n"
    "c,1000,10,1,400\nd,1000,10,1,100\ne,1000,10,0,0\n";

// A folder with a small trace in it.
class workplace : public apiary_test::work_folder {
 public:
  workplace() : work_folder(replay_main) {
    put("nodes", nodes_text);
    put("pods", pods_text);
  }
};

const std::set<std::string> inputs{"nodes", "pods"};
const std::vector<std::string> trace{"--nodes", "nodes", "--pods", "pods"};

std::vector<std::string> with_trace(std::vector<std::string> more) {
  more.insert(more.begin(), trace.begin(), trace.end());
  return more;
}

}  // namespace

TEST_CASE("a bad command line ends with 2 and says why, and leaves nothing") {
  const workplace here;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    CAPTURE(why);
    const ended end = here.run(arguments);
    CHECK(end.status == 2);
    CHECK(end.out.empty());
    CHECK(end.err == "replay: " + why + "\n");
    CHECK(here.names() == inputs);
  };
  refused({"nodes"}, "\"nodes\" is not an option; --help lists them");
  refused({"-h"}, "\"-h\" is not an option; --help lists them");
  refused({""}, "\"\" is not an option; --help lists them");
  refused({"--node", "nodes"}, "\"--node\" is not an option; --help lists them");
  refused({"--nodes"}, "--nodes needs a value");
  refused({"--nodes="}, "--nodes needs a value");
  refused({"--nodes", "--pods", "pods"}, "--nodes needs a value");
  refused({"--help=1"}, "--help takes no value");
  refused({"--help", "--help"}, "--help is given twice");
  refused({"--seed", "1", "--seed=1"}, "--seed is given twice");
  refused({"--nodes", "nodes"}, "--nodes and --pods need each other");
  refused({"--pods", "pods"}, "--nodes and --pods need each other");
  refused({"--arrivals", "a"}, "--node-order and --arrivals need --nodes and --pods");
  refused({"--node-order", "a"}, "--node-order and --arrivals need --nodes and --pods");
  refused({"--policy", "best"},
          "--policy \"best\" is none of prices, learnt_prices, fgd, best_fit, dot_prod, "
          "gpu_packing, gpu_clustering, random, all");
  refused({"--rounding", "half"}, "--rounding \"half\" is neither exact nor published");
  refused(with_trace({"--decisions", "d"}),
          "--decisions needs --policy with the name of one policy");
  for (const char* plot : {"x.png", "x.svg.pdf"}) {
    refused(with_trace({"--plot", plot}),
            "--plot \"" + std::string(plot) + "\": plots are SVG, so the name must end with .svg");
  }
  for (const char* seed : {"-1", "1.5", "0x1", " 1", "18446744073709551616"}) {
    refused({"--seed", seed},
            "--seed \"" + std::string(seed) + "\" is not a whole number below 2^64");
  }
}

TEST_CASE("a bad file ends with 2 and its line, before anything is written") {
  const workplace here;
  here.put("bad_nodes", nodes_text + "z,1,1,-1,T4\n");
  here.put("bad_pods", pods_text + "f,1,1,1,0\n");
  here.put("bad_spec", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1,1,1,9,H9\n");
  here.put("bad_names", "x\ny\nw\n");
  here.put("no_gpus", "sn,cpu_milli,memory_mib,gpu,model\nx,1,1,0,\n");
  const std::set<std::string> names = here.names();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    CAPTURE(why);
    std::vector<std::string> all{"--curves", "curves", "--plot", "plot.svg"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ended end = here.run(all);
    CHECK(end.status == 2);
    CHECK(end.out.empty());
    CHECK(end.err == "replay: " + why + "\n");
    CHECK(here.names() == names);
  };
  refused({"--nodes", "bad_nodes", "--pods", "pods"},
          "bad_nodes:4: gpu is \"-1\", not a whole number from 0 to 16");
  refused({"--nodes", "nodes", "--pods", "bad_pods"}, "bad_pods:7: gpu_milli is 0 of one GPU");
  refused({"--nodes", "nodes", "--pods", "bad_spec"},
          "bad_spec:2: gpu_spec is \"H9\", which names no model that a node has");
  refused(with_trace({"--node-order", "bad_names"}), "bad_names:3: no node is called \"w\"");
  refused(with_trace({"--arrivals", "bad_names"}), "bad_names:1: no task is called \"x\"");
  refused({"--nodes", "no_gpus", "--pods", "pods"}, "no_gpus: no node has a GPU");
  refused({"--nodes", "none", "--pods", "pods"}, "none: No such file or directory");
  refused({"--nodes", ".", "--pods", "pods"}, ".: Is a directory");
}

TEST_CASE("outputs that cannot be are found before the work") {
  const workplace here;
  here.put("old", "old text");
  const std::set<std::string> names = here.names();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    CAPTURE(why);
    const ended end = here.run(with_trace(arguments));
    CHECK(end.status == 2);
    CHECK(end.out.empty());
    CHECK(end.err == "replay: " + why + "\n");
    CHECK(here.names() == names);
    CHECK(here.get("old") == "old text");
    CHECK(here.get("nodes") == nodes_text);
  };
  const std::string twice = ": one file cannot be two of inputs and outputs";
  refused({"--curves", "old", "--plot", "no/such/plot.svg"},
          "no/such/plot.svg: No such file or directory");
  refused({"--curves", "."}, ".: Is a directory");
  refused({"--curves", "new", "--plot", "new"}, "new" + twice);
  refused({"--curves", "new", "--plot", "./new"}, "./new" + twice);
  refused({"--curves", "old", "--plot", "./old"}, "./old" + twice);
  refused({"--curves", "nodes"}, "nodes" + twice);
  const std::string control = ": a file to write needs a name without control characters";
  refused({"--plot", "a\nb.svg"}, "\"a\\x0ab.svg\"" + control);
  refused({"--curves", "old", "--plot", "\x7f"}, "\"\\x7f\"" + control);
  refused({"--curves", "\t"}, "\"\\x09\"" + control);
  refused({"--policy", "random", "--decisions", "\r"}, "\"\\x0d\"" + control);
}

TEST_CASE("a file to which standard output or error goes is no output, and keeps what it holds") {
  const workplace here;
  const auto to_log = [](int stream) {
    if (::dup2(::open("log", O_WRONLY | O_APPEND), stream) != stream) ::_exit(98);
  };
  const std::set<std::string> names{"log", "nodes", "pods"};
  const auto refused = [&](const std::vector<std::string>& arguments, int stream,
                           const std::string& why) {
    CAPTURE(why);
    here.put("log", "old text\n");
    const ended end = here.run(with_trace(arguments), [&] { to_log(stream); });
    CHECK(end.status == 2);
    CHECK(end.out.empty());
    const std::string said = "replay: " + why + "\n";
    CHECK(end.err == (stream == 2 ? "" : said));
    CHECK(here.get("log") == "old text\n" + (stream == 2 ? said : ""));
    CHECK(here.names() == names);
  };
  const std::string out = ": standard output goes to this file";
  const std::string err = ": standard error goes to this file";
  refused({"--policy", "random", "--decisions", "/dev/stdout"}, 1, "/dev/stdout" + out);
  refused({"--curves", "/dev/stdout"}, 1, "/dev/stdout" + out);
  refused({"--curves", "new", "--plot", "log"}, 1, "log" + out);
  refused({"--curves", "/dev/stderr"}, 2, "/dev/stderr" + err);
  refused({"--curves", "./log"}, 2, "./log" + err);
}

TEST_CASE("a pipe that is standard output may be an output, too") {
  const workplace here;
  const ended end = here.run(with_trace({"--policy", "random", "--decisions", "/dev/stdout"}), [] {
    std::array<int, 2> pipe{};  // which holds what is written, and is not read
    if (::pipe(pipe.data()) != 0 || ::dup2(pipe[1], 1) != 1) ::_exit(98);
  });
  CHECK(end.status == 0);
  CHECK(end.err == "wrote /dev/stdout\n");
  CHECK(here.names() == inputs);
}

TEST_CASE("a device may be two outputs") {
  const workplace here;
  const ended end = here.run(
      with_trace({"--policy", "random", "--curves", "/dev/null", "--decisions", "/dev/null"}));
  CHECK(end.status == 0);
  CHECK(end.out.starts_with("policy "));
  CHECK(here.names() == inputs);
}

TEST_CASE("a link that leads to no file yet is written through") {
  const workplace here;
  here.link("dir/behind", "between");
  here.link("../new", "dir/behind");
  const ended end = here.run(with_trace({"--curves", "between"}));
  CHECK(end.status == 0);
  CHECK(end.err == "wrote " + here.full("new") + "\n");
  CHECK(here.get("new").starts_with("policy,metric,0,"));
  CHECK(here.get("between") == here.get("new"));
  CHECK(here.names() == std::set<std::string>{"between", "dir", "new", "nodes", "pods"});
  here.link("other", "to_other");
  CHECK(here.run(with_trace({"--curves", "other", "--plot", "to_other"})).status == 2);
  here.link("round", "round");
  const ended round = here.run(with_trace({"--curves", "round"}));
  CHECK(round.status == 2);
  CHECK(round.err == "replay: round: Too many levels of symbolic links\n");
}

TEST_CASE("a task list whose tables would not fit is refused") {
  const workplace here;
  std::string pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";
  for (int i = 0; i < 80'000; ++i) {  // 40 GPU models, each with a table for nearly all tasks
    pods += std::to_string(i) + "," + std::to_string(i) + ",1,1," + std::to_string(i % 1000 + 1);
    pods += i % 80 < 2 ? ",M" + std::to_string(i / 80 % 40) + "\n" : ",\n";
  }
  here.put("many", pods);
  std::string models = "sn,cpu_milli,memory_mib,gpu,model\n";
  for (int m = 0; m < 40; ++m)
    models += "n" + std::to_string(m) + ",1000,10,1,M" + std::to_string(m) + "\n";
  here.put("models", models);
  const ended end = here.run({"--nodes", "models", "--pods", "many", "--curves", "curves"});
  CHECK(end.status == 2);
  CHECK(end.err ==
        "replay: many: too many different tasks, the tables of their fragmentation would take more "
        "than 256 MiB\n");
  CHECK(here.names() == std::set<std::string>{"many", "models", "nodes", "pods"});
}

TEST_CASE("a run prints its table and leaves whole files") {
  const workplace here;
  const ended end =
      here.run(with_trace({"--policy=best_fit", "--decisions", "decisions", "--curves", "curves"}));
  CHECK(end.status == 0);
  CHECK(end.out ==
        "policy    placed  failed  GPUs allocated  fragmentation  decisions/s\n"
        "best_fit       4       1        100.00 %         0.00 %" +
            end.out.substr(end.out.rfind(" %") + 2));
  CHECK(end.err == "wrote " + here.full("curves") + "\nwrote " + here.full("decisions") + "\n");
  CHECK(here.get("decisions") == "a y 0\nb x 0-1\nc y 0\nd -\ne y\n");
  const std::string curves = here.get("curves");
  CHECK(curves.starts_with(load_curves::csv_header() + "best_fit,allocation,"));
  CHECK(curves.find("\nbest_fit,fragmentation_ratio,") != std::string::npos);
  CHECK(here.names() == std::set<std::string>{"curves", "decisions", "nodes", "pods"});
}

TEST_CASE("orders of nodes and arrivals are followed") {
  const workplace here;
  here.put("node_order", "y\nx\n");
  here.put("arrivals", "e\r\nd\r\nd\r\n");
  const auto decisions = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = with_trace({"--policy", "dot_prod", "--decisions", "d"});
    all.insert(all.end(), more.begin(), more.end());
    CHECK(here.run(all).status == 0);
    return here.get("d");
  };
  const std::string in_file_order = decisions({});
  CHECK(in_file_order.starts_with("a "));
  CHECK(decisions({"--arrivals", "arrivals"}).starts_with("e "));
  std::set<std::string> orders;
  for (const char* seed : {"1", "2", "3", "4", "5", "6"}) {
    const std::string once = decisions({"--seed", seed});
    CHECK(once == decisions({"--seed", seed}));
    orders.insert(once);
  }
  CHECK(orders.size() > 1);
  here.put("twins", "sn,cpu_milli,memory_mib,gpu,model\nx,64000,1000,1,T4\ny,64000,1000,1,T4\n");
  const std::vector<std::string> twins{"--nodes",  "twins",       "--pods",      "pods",
                                       "--policy", "gpu_packing", "--decisions", "d"};
  std::vector<std::string> turned = twins;
  turned.insert(turned.end(), {"--node-order", "node_order"});
  CHECK(here.run(twins).status == 0);
  CHECK(here.get("d").starts_with("a x 0\n"));
  CHECK(here.run(turned).status == 0);
  CHECK(here.get("d").starts_with("a y 0\n"));
}

// Task g leaves as much of use on x as on z: the exact score takes the first, in doubles the other
// comes out greater by the last bit.
TEST_CASE("the rounding asked for decides between equally good nodes") {
  const workplace here;
  here.put("nodes",
           "sn,cpu_milli,memory_mib,gpu,model\nx,8000,1000,4,T4\ny,2000,1000,1,T4\n"
           "z,2000,1000,3,T4\n");
  here.put("pods",
           "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,6000,10,1,200\nb,3000,10,1,200\n"
           "c,4000,10,1,200\nd,4000,10,1,800\ne,5000,10,1,900\nf,1000,10,1,1000\n"
           "g,2000,10,1,1000\nh,3000,10,1,200\ni,2000,10,2,1000\n");
  const auto decisions = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = with_trace({"--policy", "fgd", "--decisions", "d"});
    all.insert(all.end(), more.begin(), more.end());
    CHECK(here.run(all).status == 0);
    return here.get("d");
  };
  const std::string before = "a x 0\nb -\nc -\nd -\ne -\nf y 0\n";
  const std::string exact = before + "g x 1\nh -\ni z 0-1\n";
  CHECK(decisions({}) == exact);
  CHECK(decisions({"--rounding", "exact"}) == exact);
  CHECK(decisions({"--rounding", "published"}) == before + "g z 0\nh -\ni x 1-2\n");
}

TEST_CASE("a file that is there is replaced, with its permissions, also through a link") {
  const workplace here;
  here.put("old", "old text");
  const auto replaced = [&](const std::string& name) {
    return here
        .run(with_trace({"--curves", name}),
             [] {
               if (::chmod("old", 0640) != 0 ||
                   (::access("link", F_OK) != 0 && ::symlink("old", "link") != 0))
                 ::_exit(98);
             })
        .status;
  };
  CHECK(replaced("old") == 0);
  CHECK(here.get("old").starts_with("policy,metric,0,"));
  here.put("old", "old text");
  CHECK(replaced("link") == 0);
  CHECK(here.get("old").starts_with("policy,metric,0,"));
  CHECK(here.names() == std::set<std::string>{"link", "nodes", "old", "pods"});
  const ended mode = here.run({"--help"}, [] {
    struct stat old {};
    if (::stat("old", &old) != 0 || (old.st_mode & 0777U) != 0640) ::_exit(97);
  });
  CHECK(mode.status == 0);
}

TEST_CASE("output that cannot be written ends with 1 and leaves no file") {
  const workplace here;
  const auto to_full_device = [] {
    if (::dup2(::open("/dev/full", O_WRONLY), 1) != 1) ::_exit(98);
  };
  const auto closed = [] { ::close(1); };
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, with_trace({"--curves", "curves"})}) {
    const ended full = here.run(arguments, to_full_device);
    CHECK(full.status == 1);
    CHECK(full.err.ends_with("replay: standard output: No space left on device\n"));
    const ended none = here.run(arguments, closed);
    CHECK(none.status == 1);
    CHECK(none.err == "replay: standard output: Bad file descriptor\n");
  }
  const ended curves = here.run(with_trace({"--curves", "/dev/full"}));
  CHECK(curves.status == 1);
  CHECK(curves.err.ends_with("replay: /dev/full: No space left on device\n"));
  CHECK(here.names() == inputs);
}

TEST_CASE("a plot that cannot be written ends with 1 and leaves no file") {
  if (!is_installed("gnuplot")) return apiary_test::skip("gnuplot is not installed");
  const workplace here;
  const ended plot = here.run(with_trace({"--plot", "/dev/full", "--curves", "curves"}));
  CHECK(plot.status == 1);
  CHECK(plot.err.ends_with("replay: /dev/full: No space left on device\n"));
  CHECK(here.names() == inputs);
}

TEST_CASE("a closed pipe ends with 1 and leaves no file") {
  const workplace here;
  const ended end = here.run(with_trace({"--curves", "curves", "--plot", "plot.svg"}), [] {
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0 || ::dup2(pipe[1], 1) != 1) ::_exit(98);
    ::close(pipe[0]);
    std::signal(SIGPIPE, SIG_DFL);
  });
  CHECK(end.status == 1);
  CHECK(end.err.ends_with("replay: standard output: Broken pipe\n"));
  CHECK(here.names() == inputs);
}

// Standard output is a full pipe, where the program waits with its temporary files until another
// process has seen them.
TEST_CASE("a signal ends the program and leaves no file") {
  const workplace here;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ}) {
    CAPTURE(signal);
    const ended end = here.run(with_trace({"--curves", "curves", "--plot", "plot.svg"}), [&] {
      std::array<int, 2> pipe{};
      if (::pipe(pipe.data()) != 0 || ::dup2(pipe[1], 1) != 1) ::_exit(98);
      ::fcntl(1, F_SETFL, O_NONBLOCK);
      while (::write(1, " ", 1) == 1) continue;
      ::fcntl(1, F_SETFL, 0);
      std::signal(signal, SIG_DFL);
      const pid_t program = ::getpid();
      if (::fork() != 0) return;
      while (here.names().size() < inputs.size() + 2) ::usleep(1000);
      ::kill(program, signal);
      ::_exit(0);
    });
    CHECK(end.status == 128 + signal);
    CHECK(here.names() == inputs);
  }
}

TEST_CASE("a limit on the size of files ends the program and leaves no file") {
  const workplace here;
  const ended end = here.run(with_trace({"--policy", "fgd", "--curves", "curves"}), [] {
    const rlimit limit{256, 256};
    std::signal(SIGXFSZ, SIG_DFL);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(98);
  });
  CHECK(end.status == 128 + SIGXFSZ);
  CHECK(here.names() == inputs);
}

// What is written to a terminal, which stands for the program's standard error.
TEST_CASE("on a terminal a bar grows while a policy runs, and is wiped out at its end") {
  const workplace here;
  const int screen = ::posix_openpt(O_RDWR | O_NOCTTY);
  const bool given = screen >= 0 && ::grantpt(screen) == 0 && ::unlockpt(screen) == 0;
  const int terminal = given ? ::open(::ptsname(screen), O_RDWR | O_NOCTTY) : -1;
  if (terminal < 0) {
    if (screen >= 0) ::close(screen);
    return apiary_test::skip("this system gives no pseudo-terminal");
  }
  const ended end = here.run(with_trace({"--policy", "best_fit"}), [&] {
    if (::dup2(terminal, 2) != 2) ::_exit(98);
  });
  CHECK(end.status == 0);
  CHECK(end.err.empty());
  std::string wanted;
  for (std::size_t tasks = 1; tasks <= 5; ++tasks) {
    wanted += "\rbest_fit         [" + std::string(tasks, '#') + std::string(40 - tasks, ' ') + "]";
  }
  wanted += "\r\033[K";
  std::string seen(wanted.size(), ' ');
  std::size_t length = 0;
  // Ends when there is nothing more to read for a while.
  for (pollfd ready{screen, POLLIN, 0}; length < seen.size() && ::poll(&ready, 1, 1000) == 1;) {
    const ssize_t n = ::read(screen, seen.data() + length, seen.size() - length);
    REQUIRE(n > 0);
    length += static_cast<std::size_t>(n);
  }
  CHECK(seen.substr(0, length) == wanted);
  pollfd more{screen, POLLIN, 0};
  CHECK(::poll(&more, 1, 0) == 0);
  ::close(terminal);
  ::close(screen);
  CHECK(here.names() == inputs);
}

TEST_CASE("standard input and error may be closed") {
  const workplace here;
  const ended end = here.run(with_trace({"--curves", "curves"}), [] {
    ::close(0);
    ::close(2);
  });
  CHECK(end.status == 0);
  CHECK(end.out.starts_with("policy "));
  CHECK(here.get("curves").ends_with("\n"));
  CHECK(here.get("curves").find("wrote") == std::string::npos);
}

TEST_CASE("without gnuplot the curves and the script of the plot are kept") {
  const workplace here;
  const ended end = here.run(with_trace({"--plot", "it's.svg"}), [] { ::setenv("PATH", "", 1); });
  CHECK(end.status == 0);
  CHECK(end.out.starts_with("policy "));
  CHECK(end.err.find("gnuplot is not installed") != std::string::npos);
  CHECK(here.names() == std::set<std::string>{"it's.csv", "it's.gnuplot", "nodes", "pods"});
  CHECK(here.get("it's.gnuplot").find("set output 'it''s.svg'\n") != std::string::npos);
  CHECK(here.get("it's.csv").starts_with(load_curves::csv_header()));
}

TEST_CASE("with gnuplot there is a plot, also when standard input and error are closed") {
  if (!is_installed("gnuplot")) return apiary_test::skip("gnuplot is not installed");
  const workplace here;
  for (const bool closed : {false, true}) {
    const ended end = here.run(with_trace({"--plot", "it's.svg"}), [&] {
      if (closed) {
        ::close(0);
        ::close(2);
      }
    });
    CHECK(end.status == 0);
    CHECK(here.names() == std::set<std::string>{"it's.svg", "nodes", "pods"});
    const std::string plot = here.get("it's.svg");
    CHECK(plot.starts_with("<?xml"));
    CHECK(plot.ends_with("</svg>\n\n"));
    for (const char* name : {"fgd", "best_fit", "random", "everything placed", "GPUs allocated"}) {
      CHECK(plot.find(name) != std::string::npos);
    }
    here.put("it's.svg", "");
  }
}

TEST_CASE("a plot shows a proper range of loads") {
  const auto script = [](std::vector<double> allocation) {
    named_curves one{"fgd", {allocation, std::vector<double>(allocation.size(), 0.0), {}}};
    return plot_script({{one}}, "");
  };
  const auto left_panel = [&](const std::vector<double>& allocation) {
    const std::string text = script(allocation);
    const std::size_t begin = text.find("set xrange");
    return text.substr(begin, text.find("set title") - begin);
  };
  const auto placed = [](int last, double most) {
    std::vector<double> allocation;
    for (int load = 0; load <= last; ++load) {
      allocation.push_back(std::min(static_cast<double>(load), most));
    }
    return allocation;
  };
  CHECK(left_panel(placed(0, 100)) == "set xrange [0:10]\nset yrange [0:10]\n");
  CHECK(left_panel(placed(34, 100)) == "set xrange [0:40]\nset yrange [0:40]\n");
  CHECK(left_panel(placed(100, 100)) == "set xrange [0:100]\nset yrange [0:100]\n");
  CHECK(left_panel(placed(34, 28)) == "set xrange [20:40]\nset yrange [20:40]\n");
  CHECK(left_panel(placed(130, 95)) == "set xrange [80:130]\nset yrange [80:100]\n");
  std::vector<double> leap(131, std::numeric_limits<double>::quiet_NaN());
  leap[50] = 50.0;
  leap[130] = 50.0;
  CHECK(left_panel(leap) == "set xrange [90:130]\nset yrange [90:100]\n");
}

TEST_CASE("settings of the user's gnuplot have no part in a plot") {
  if (!is_installed("gnuplot")) return apiary_test::skip("gnuplot is not installed");
  const workplace here;
  here.put(".gnuplot", "exit status 3\n");
  const ended end = here.run(with_trace({"--plot", "plot.svg"}),
                             [&] { ::setenv("HOME", here.full("").c_str(), 1); });
  CHECK(end.status == 0);
  CHECK(here.get("plot.svg").ends_with("</svg>\n\n"));
}

TEST_CASE("a gnuplot that draws nothing leaves no plot") {
  const workplace here;
  here.put("gnuplot", "#!/bin/sh\nexec cat >&2\n");
  const ended end = here.run(with_trace({"--plot", "plot.svg"}), [] {
    if (::chmod("gnuplot", 0700) != 0) ::_exit(98);
    ::setenv("PATH", ".:/usr/bin:/bin", 1);
  });
  CHECK(end.status == 1);
  CHECK(end.err.ends_with("replay: gnuplot drew nothing\n"));
  CHECK(here.names() == std::set<std::string>{"gnuplot", "nodes", "pods"});
}

TEST_CASE("prices are left out of all policies if no task requests a GPU") {
  const workplace here;
  here.put("pods", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,10,0,0\n");
  const ended all = here.run(with_trace({}));
  CHECK(all.status == 0);
  CHECK(std::count(all.out.begin(), all.out.end(), '\n') == 7);
  CHECK(all.err.starts_with("prices is left out: prices need a mix with tasks"));
  const ended one = here.run(with_trace({"--policy", "prices"}));
  CHECK(one.status == 1);
  CHECK(one.err == "replay: prices need a mix with tasks that request a GPU\n");
  // Learnt prices go on as if tasks of one GPU were expected.
  const ended learnt = here.run(with_trace({"--policy", "learnt_prices"}));
  CHECK(learnt.status == 0);
  CHECK(learnt.out.find("\nlearnt_prices ") != std::string::npos);
}

TEST_CASE("without arguments seven policies run, and the plot is beside the program") {
  const workplace here;
  const auto without_gnuplot = [] {
    if (::mkdir("bin", 0700) != 0) ::_exit(98);
    ::setenv("PATH", "", 1);
  };
  const ended end = here.run({}, without_gnuplot, "bin/replay");
  CHECK(end.status == 0);
  CHECK(std::count(end.out.begin(), end.out.end(), '\n') == 8);
  CHECK(here.get("bin/replay.csv").starts_with(load_curves::csv_header()));
  CHECK(here.names() == std::set<std::string>{"bin", "nodes", "pods"});
  CHECK(here.run({"--policy", "fgd"}).status == 0);
  CHECK(here.names().size() > 3);  // by name only: in the present folder
}

TEST_CASE("a sweep appends a row for each line of its file") {
  const workplace here;
  here.put("runs", "--policy best_fit\n# a comment\n--policy random --seed 7\n");
  here.put("bad", "--policy best_fit\n--policy all\n");
  const std::vector<std::string> all =
      with_trace({"--sweep", "runs", "--results", "rows", "-j", "2"});
  CHECK(here.run(all).status == 0);
  const std::string rows = here.get("rows");
  CHECK(rows.starts_with("run,options,policy,placed,failed,"));
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 3);
  CHECK(here.run(with_trace({"--sweep", "runs", "--results", "one", "--index", "1"})).status == 0);
  const std::string one = here.get("one");
  CHECK(one.find("\n1,\"--policy random --seed 7\",random,") != std::string::npos);
  CHECK(rows.find(one.substr(one.find('\n'))) != std::string::npos);
  const ended other = here.run(with_trace({"--sweep", "runs", "--results", "bad"}));
  CHECK(other.status == 2);
  CHECK(other.err.starts_with(
      "replay: bad: its first line is \"--policy best_fit\", not the header"));
  const ended bad = here.run(with_trace({"--sweep", "bad", "--results", "no"}));
  CHECK(bad.status == 2);
  CHECK(bad.err == "replay: bad:2: a run needs --policy with the name of one policy\n");
  CHECK(here.names() == std::set<std::string>{"bad", "nodes", "one", "pods", "rows", "runs"});
}

TEST_CASE("help is the usage") {
  const workplace here;
  const ended end = here.run({"--help"});
  CHECK(end.status == 0);
  std::string usage = replay_usage;
  CHECK(end.out == usage.replace(usage.find("%s"), 2, sweep_usage));
  CHECK(end.err.empty());
  CHECK(here.names() == inputs);
}
