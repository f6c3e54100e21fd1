// apiary/tests/trace/job_readers_test.cpp - job lists as they are written, and what is refused.
// SPDX-License-Identifier: MIT
#include <apiary/model/resources.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/job_readers.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace apiary;

namespace {

absl::StatusOr<job_list> philly(std::string_view text) {
  return read_philly(line_reader("p", text));
}
absl::StatusOr<job_list> swf(std::string_view text) { return read_swf(line_reader("s", text)); }

const std::string header = "timestamp,duration,num_gpus,gpu_time,cluster\n";

}  // namespace

TEST_CASE("philly_reader: jobs by arrival, in milliseconds, tenants by name") {
  const auto list = philly(header +
                           "2017-10-09 07:01:55,66.0,1,66.0,b\n"
                           "2017-10-09 07:01:54,10.25,16,164.0,a\n"
                           "2017-10-09 07:01:55,0.0,1,0.0,a\n"
                           "2017-10-10 07:01:54,7,2,14,b\n\n");
  REQUIRE_MESSAGE(list.ok(), list.status().ToString());
  REQUIRE(list->jobs.size() == 3);
  CHECK(list->left_out == 1);
  CHECK(list->tenants == std::vector<std::string>{"b", "a"});
  CHECK(list->jobs[0].arrival == 0);
  CHECK(list->jobs[0].duration == 10'250);
  CHECK(list->jobs[0].request.gpus == 16);
  CHECK(list->jobs[0].request.tenant == tenant_id(1));
  CHECK(list->jobs[0].request.estimate == 10'250);
  CHECK(list->jobs[1].arrival == 1000);
  CHECK(list->jobs[1].request.job == job_id(1));
  CHECK(list->jobs[2].arrival == 86'400'000);
  CHECK(list->jobs[2].duration == 7000);
}

TEST_CASE("philly_reader: decimals of a duration behind the third are cut off, however many") {
  const auto duration = [](const std::string& text) {
    CAPTURE(text);
    const auto list = philly(header + "2017-10-09 07:01:55," + text + ",1,1,a\n");
    REQUIRE_MESSAGE(list.ok(), list.status().ToString());
    return list->jobs.front().duration;
  };
  CHECK(duration("0.30000000000000004") == 300);
  CHECK(duration("0.9999") == 999);
  CHECK(duration("7.001" + std::string(1000, '9')) == 7001);
  CHECK(duration("999999999999.9999999999999999") == 999'999'999'999'999);
}

TEST_CASE("philly_reader: CPU, memory and GPU models, if the list has them") {
  const std::string columns =
      "gpu_model,timestamp,duration,num_gpus,cluster,memory_gib_per_gpu,cpus_per_gpu\n";
  const auto list = philly(columns +
                           "v100,2017-10-09 07:01:54,5,1,a,64,8\n"
                           "t4,2017-10-09 07:01:55,0,1,a,1,1\n"
                           ",2017-10-09 07:01:56,5,1,a,,1000000\n"
                           "t4,2017-10-09 07:01:57,5,1,a,0,\n"
                           "v100,2017-10-09 07:01:58,5,1,a,1000000,0\n");
  REQUIRE_MESSAGE(list.ok(), list.status().ToString());
  REQUIRE(list->jobs.size() == 4);
  CHECK(list->models == std::vector<std::string>{"v100", "t4"});
  CHECK(list->jobs[0].per_gpu == resources{8000, 65'536});
  CHECK(list->jobs[0].model == 1);
  CHECK(list->jobs[1].per_gpu == resources{1'000'000'000, 0});
  CHECK(list->jobs[1].model == 0);
  CHECK(list->jobs[2].per_gpu == resources{});
  CHECK(list->jobs[2].model == 2);
  CHECK(list->jobs[3].per_gpu == resources{0, 1'024'000'000});
  CHECK(list->jobs[3].model == 1);
  for (const char* row : {"x,2017-10-09 07:01:54,5,1,a,1,1000001",
                          "x,2017-10-09 07:01:54,5,1,a,-1,1", "x,2017-10-09 07:01:54,5,1,a,1,1.5",
                          "x y,2017-10-09 07:01:54,5,1,a,1,1", " ,2017-10-09 07:01:54,0,1,a,1,1"}) {
    CAPTURE(row);
    CHECK(philly(columns + row + "\n").status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(philly(header + "2017-10-09 07:01:54,5,1,1,a\n")->jobs[0].per_gpu == resources{});
}

TEST_CASE("philly_reader: faults and their lines") {
  const auto fault = [](std::string_view text) {
    const absl::Status status = philly(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message()).substr(0, 3);
  };
  CHECK(fault("") == "p: ");
  CHECK(fault(header) == "p: ");
  CHECK(fault("timestamp,duration,num_gpus\n") == "p:1");
  for (const char* row :
       {"2017-10-09T07:01:55,1,1,1,a", "2017-13-09 07:01:55,1,1,1,a", "2017-02-29 07:01:55,1,1,1,a",
        "2017-10-09 24:01:55,1,1,1,a", "2017-10-09 07:01:55,-1,1,1,a",
        "2017-10-09 07:01:55,1.,1,1,a", "2017-10-09 07:01:55,0.3000x,1,1,a",
        "2017-10-09 07:01:55,.5,1,1,a", "2017-10-09 07:01:55,1.2.3,1,1,a",
        "2017-10-09 07:01:55,1e3,1,1,a", "2017-10-09 07:01:55,1,x,1,a",
        "2017-10-09 07:01:55,1,1,1,", "2017-10-09 07:01:55,1,1,1"}) {
    CAPTURE(row);
    CHECK(fault(header + row + "\n") == "p:2");
  }
}

TEST_CASE("job readers: messages name the limits, and what is left out of a list of no job") {
  const auto why = [](const auto& list) { return std::string(list.status().message()); };
  CHECK(why(philly(header + "1969-12-31 23:59:59,1,1,1,a\n")) ==
        "p:2: timestamp is \"1969-12-31 23:59:59\", not YYYY-MM-DD HH:MM:SS from 1970 on");
  CHECK(why(philly(header + "2017-10-09 07:01:55,1000000000000,1,1,a\n")) ==
        "p:2: duration is \"1000000000000\", not seconds below 10^12");
  CHECK(why(philly(header)) == "p: no job after the header line");
  CHECK(why(philly(header + "2017-10-09 07:01:55,0,1,1,a\n2017-10-09 07:01:55,1,0,1,a\n")) ==
        "p: no job can run; 2 jobs have no GPUs or no duration");
  CHECK(why(swf("; nothing\n")) == "s: no job that ran");
  CHECK(why(swf("1 1 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n")) ==
        "s: no job can run; 1 job has no processors or no run time");
}

TEST_CASE("philly_reader: moments are counted day by day") {
  CHECK(detail::unix_seconds("1970-01-01 00:00:00") == 0);
  CHECK(detail::unix_seconds("2000-02-29 12:00:00") == 951825600);
  CHECK(detail::unix_seconds("2017-10-09 07:01:55") == 1507532515);
  constexpr int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  std::int64_t expected = 0;
  for (int year = 1970; year < 2105; ++year) {
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    for (int month = 1; month <= 12; ++month) {
      const int last = days[month - 1] + (leap && month == 2 ? 1 : 0);
      for (int day = 1; day <= 31; ++day) {
        const auto two = [](int n) { return std::to_string(n / 10) + std::to_string(n % 10); };
        const auto got = detail::unix_seconds(std::to_string(year) + "-" + two(month) + "-" +
                                              two(day) + " 00:00:00");
        REQUIRE(got.has_value() == (day <= last));
        if (!got) continue;
        REQUIRE(*got == expected);
        expected += 86400;
      }
    }
  }
}

TEST_CASE("swf_reader: fields, unknown ones, comments") {
  const auto list =
      swf("; Version: 2.2\n"
          ";\n"
          "  1 100 5 60 4 -1 -1 8 120 -1 1 7 1 -1 1 -1 -1 -1\n"
          "2 90 5 60 4 -1 -1 -1 -1 -1 1 9 1 -1 1 -1 -1 -1 ; killed\n"
          "3 95 5 0 4 -1 -1 8 120 -1 5 7 1 -1 1 -1 -1 -1\n"
          "4 110 5 500 4 12.5 -1 2 120 -1 0 7 1 -1 1 -1 -1 -1\n");
  REQUIRE_MESSAGE(list.ok(), list.status().ToString());
  REQUIRE(list->jobs.size() == 3);
  CHECK(list->left_out == 1);
  CHECK(list->tenants == std::vector<std::string>{"7", "9"});
  CHECK(list->jobs[0].request.gpus == 4);  // the request is unknown
  CHECK(list->jobs[0].request.estimate == 60'000);
  CHECK(list->jobs[1].arrival == 10'000);
  CHECK(list->jobs[1].request.gpus == 8);
  CHECK(list->jobs[1].request.estimate == 120'000);
  CHECK(list->jobs[1].duration == 60'000);
  CHECK(list->jobs[2].duration == 120'000);  // killed at its limit
}

TEST_CASE("swf_reader: faults and their lines") {
  const auto fault = [](std::string_view text) {
    const absl::Status status = swf(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message()).substr(0, 3);
  };
  CHECK(fault("; nothing\n") == "s: ");
  CHECK(fault("; a\n1 2 3\n") == "s:2");
  CHECK(fault("1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n") == "s:1");
  for (const char* time : {"1.", ".5", "-2", "-1.5", "-0.5", "1e3", "1.5x", "1.2.3", "0x1", "+1",
                           "1000000000000", "1,5", "-"}) {
    CAPTURE(time);
    const std::string t = time;
    CHECK(fault("1 " + t + " 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n") == "s:1");
    CHECK(fault("1 1 1 " + t + " 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n") == "s:1");
    CHECK(fault("1 1 1 1 1 1 1 1 " + t + " 1 1 1 1 1 1 1 1 1\n") == "s:1");
  }
  CHECK(fault("1 1 1 1 1.0 1 1 1 1 1 1 1 1 1 1 1 1 1\n") == "s:1");
  CHECK(fault("1 1 1 1 1 1 1 1 1 1 x 1 1 1 1 1 1 1\n") == "s:1");
  CHECK(fault("1 1 1 -2 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n") == "s:1");
  CHECK(fault("1 1 1 1 1 1 1 5000000000 1 1 1 1 1 1 1 1 1 1\n") == "s:1");
}

TEST_CASE("swf_reader: fields that do not count are numbers, too, of any form") {
  const auto with = [](int place, const std::string& field) {
    std::string text = "; a\n1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n";
    for (int f = 1; f <= 18; ++f) text += (f == place ? field : "1") + (f < 18 ? " " : "\n");
    return swf(text).status();
  };
  for (const int place : {1, 3, 6, 7, 10, 13, 14, 15, 16, 17, 18}) {
    CAPTURE(place);
    for (const char* bad : {"x", "nan", "1,5", "0x1", "12:30", "\"1\"", "?"}) {
      CHECK(with(place, bad).message() == "s:3: field " + std::to_string(place) + " is " +
                                              line_reader::quoted(bad) + ", not a number");
    }
    for (const char* good : {"-1", "12.5", "+2", "1e3", "1.5E-06", "12345678901234567890"}) {
      CHECK(with(place, good).ok());
    }
  }
}

TEST_CASE("swf_reader: tabs, and times with decimals as the nearest milliseconds") {
  const auto list =
      swf("1\t0.25\t5\t60.0004\t4\t-1\t-1\t8\t-1.0\t-1\t1\t7\t1\t-1\t1\t-1\t-1\t-1\t\n"
          "\t2 \t 1.2345 5 60.0005 4 -1 -1 8 1e0 -1 1 7 1 -1 1 -1 -1 -1\n");
  CHECK(list.status().message() == "s:2: field 9 is \"1e0\", not a number from -1 to below 10^12");
  const auto read =
      swf("1\t0.25\t5\t60.0004\t4\t-1\t-1\t8\t-1.0\t-1\t1\t7\t1\t-1\t1\t-1\t-1\t-1\t\n"
          "\t2 \t 1.2345 5 60.0005 4 -1 -1 8 59.9999 -1 1 7 1 -1 1 -1 -1 -1\n"
          "3 2.9 5 0.0005 4 -1 -1 8 1 -1 1 7 1 -1 1 -1 -1 -1\r\n"
          "4 3 5 0.0004 4 -1 -1 8 1 -1 1 7 1 -1 1 -1 -1 -1\n");
  REQUIRE_MESSAGE(read.ok(), read.status().ToString());
  REQUIRE(read->jobs.size() == 3);
  CHECK(read->left_out == 1);  // for less than half a millisecond: no time
  CHECK(read->jobs[0].duration == 60'000);
  CHECK(read->jobs[0].request.estimate == 60'000);
  CHECK(read->jobs[1].arrival == 985);  // 1.2345 is 1.235
  CHECK(read->jobs[1].request.estimate == 60'000);
  CHECK(read->jobs[1].duration == 60'000);
  CHECK(read->jobs[2].arrival == 2650);
  CHECK(read->jobs[2].duration == 1);
}

TEST_CASE("swf_reader: the parts of a job that was listed do not count") {
  const auto line = [](const std::string& number, const std::string& ran,
                       const std::string& status) {
    return number + " 0 0 " + ran + " 4 -1 -1 4 -1 -1 " + status + " 7 1 -1 1 -1 -1 -1\n";
  };
  const auto list = swf(line("1", "100", "1") + line("1", "60", "2") + line("1", "40", "3") +
                        line("2", "50", "0") + line("2", "50", "4") + line("3", "10", "5") +
                        line("4", "20", "-1") + line("5", "0", "2"));
  REQUIRE_MESSAGE(list.ok(), list.status().ToString());
  CHECK(list->left_out == 0);
  std::vector<time_ms> durations;
  for (const timed_job& j : list->jobs) durations.push_back(j.duration);
  CHECK(durations == std::vector<time_ms>{100'000, 50'000, 10'000, 20'000});
  CHECK(swf(line("1", "60", "2")).status().message() == "s: no job that ran");
}
