// apiary/tests/trace/line_reader_test.cpp - lines, their numbers, and what is refused.
// SPDX-License-Identifier: MIT
#include <apiary/trace/line_reader.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

using namespace apiary;

namespace {

struct outcome {
  std::vector<std::string> lines;
  absl::Status status;
};

outcome read(line_reader reader) {
  outcome all;
  std::string_view line;
  while (true) {
    const absl::StatusOr<bool> more = reader.next(line);
    all.status = more.status();
    if (!more.ok() || !*more) return all;
    all.lines.emplace_back(line);
    CHECK(reader.number() == all.lines.size());
  }
}

outcome read(std::string_view text) { return read(line_reader("t", text)); }

// A file that is gone with the object.
class temporary {
 public:
  explicit temporary(std::string_view text) {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    REQUIRE(std::fclose(file) == 0);
  }
  temporary(const temporary&) = delete;
  temporary& operator=(const temporary&) = delete;
  ~temporary() { std::remove(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() /
                       ("line_reader_test_" + std::to_string(::getpid()) + "_" +
                        std::to_string(reinterpret_cast<std::uintptr_t>(this))))
                          .string();
};

}  // namespace

TEST_CASE("lines end with LF, CRLF or the text") {
  const std::vector<std::string> two{"a", "b c"};
  for (const char* text : {"a\nb c\n", "a\r\nb c\r\n", "a\nb c", "a\r\nb c\n", "a\nb c\r",
                           "a\nb c\n\n", "a\r\nb c\r\n\r\n\r\n",
                           "\xEF\xBB\xBF"
                           "a\nb c\n"}) {
    CAPTURE(text);
    const outcome all = read(text);
    CHECK(all.status.ok());
    CHECK(all.lines == two);
  }
  CHECK(read("").lines.empty());
  CHECK(read("").status.ok());
  CHECK(read("\n\n").lines.empty());
}

TEST_CASE("a blank line between lines is a fault of its own line") {
  const outcome all = read("a\n\n\nb\n");
  CHECK(all.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(all.status.message() == "t:2: the line is blank");
  CHECK(read("\na\n").status.message() == "t:1: the line is blank");
}

TEST_CASE("control characters are refused with their place") {
  using std::string_view_literals::operator""sv;
  CHECK(read("a\nb\0c\n"sv).status.message() == "t:2: control character \"\\x00\" at byte 2");
  CHECK(read("a\tb"sv).status.message() == "t:1: control character \"\\x09\" at byte 2");
  CHECK(read("a\rb\n"sv).status.message() == "t:1: control character \"\\x0d\" at byte 2");
  CHECK(read("\x7f"sv).status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(read("K\xC3\xB6ln\n"sv).status.ok());
}

TEST_CASE("a line has at most 65536 bytes") {
  const std::string longest(line_reader::max_line, 'x');
  const temporary fits("first\n" + longest + "\nlast");
  CHECK(read("first\n" + longest + "\nlast").lines ==
        std::vector<std::string>{"first", longest, "last"});
  CHECK(read(*line_reader::open(fits.path())).lines ==
        std::vector<std::string>{"first", longest, "last"});
  const std::string text = "first\n" + longest + "x\nlast";
  const temporary too_long(text);
  for (const outcome& all : {read(text), read(*line_reader::open(too_long.path()))}) {
    CHECK(all.status.code() == absl::StatusCode::kOutOfRange);
    CHECK(std::string(all.status.message()).ends_with(":2: longer than 65536 bytes"));
  }
}

TEST_CASE("a file without end is refused") {
  const outcome all = read(*line_reader::open("/dev/zero"));
  CHECK(all.status.code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("a file is read as its text is, whatever the buffer cuts") {
  std::string text;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < 3000; ++i) {
    lines.push_back(std::string(i % 257, 'a') + std::to_string(i));
    text += lines.back() + (i % 2 == 0 ? "\n" : "\r\n");
  }
  REQUIRE(text.size() > 2 * line_reader::max_line);
  const temporary file(text);
  CHECK(read(text).lines == lines);
  CHECK(read(*line_reader::open(file.path())).lines == lines);
}

TEST_CASE("a file is read as its text is, whatever stands where a buffer ends") {
  constexpr std::size_t end = 2 * line_reader::max_line;
  const std::string longest(line_reader::max_line, 'x');
  const std::string tails[] = {"\r\n",
                               "\r\nlast",
                               "\n\n\n",
                               "\n\nlast\n",
                               "\x01\n",
                               longest,
                               longest + "\r\n" + longest,
                               longest + "y\nlast"};
  for (const std::string& tail : tails) {
    for (std::size_t before = end - 4; before <= end + 2; ++before) {
      CAPTURE(before);
      std::string text;
      while (text.size() + 1001 < before) text += std::string(1000, 'a') + "\n";
      text += std::string(before - text.size(), 'b');
      for (const char* between : {"", "\n"}) {
        const std::string whole = text + between + tail;
        const temporary file(whole);
        const outcome here = read(line_reader(file.path(), whole));
        const outcome there = read(*line_reader::open(file.path()));
        CHECK(here.lines == there.lines);
        CHECK(here.status == there.status);
      }
    }
  }
}

TEST_CASE("a file that cannot be read is an error with its name") {
  const auto missing = line_reader::open("/no/such/file");
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
  CHECK(missing.status().message() == "/no/such/file: No such file or directory");
  auto folder = line_reader::open("/");
  REQUIRE(folder.ok());
  const outcome all = read(*std::move(folder));
  CHECK(all.lines.empty());
  CHECK(all.status.message() == "/: Is a directory");
}

TEST_CASE("texts in messages are short and printable") {
  CHECK(line_reader::quoted("a b") == "\"a b\"");
  CHECK(line_reader::quoted("\xff\x1b") == "\"\\xff\\x1b\"");
  CHECK(line_reader::quoted(std::string(60, 'x')) == "\"" + std::string(60, 'x') + "\"");
  CHECK(line_reader::quoted(std::string(61, 'x')) == "\"" + std::string(60, 'x') + "...\"");
}
