// What the files of the Python module share: the functions that add the names, errors, and columns of
// numbers. Each file is compiled alone, so that none needs much memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <string>
#include <utility>
#include <vector>

namespace apiary_python {

namespace py = pybind11;

// Each adds the names of one file to the module.
void bind_errors(py::module_& m);
void bind_tables(py::module_& m);
void bind_task_schedulers(py::module_& m);
void bind_gang_scheduler(py::module_& m);
void bind_hived(py::module_& m);
void bind_simulator(py::module_& m);

// An error of the library on its way to Python. There it is an exception with the same text.
class status_error : public std::exception {
 public:
  explicit status_error(const absl::Status& status)
      : code_(status.code()), text_(status.message()) {}
  // The code of the status.
  [[nodiscard]] absl::StatusCode code() const noexcept { return code_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  absl::StatusCode code_;
  std::string text_;
};

// Throws the status unless it is OK.
inline void check(const absl::Status& status) {
  if (!status.ok()) throw status_error(status);
}
// The value; throws the status if there is none.
template <class T>
[[nodiscard]] T value(absl::StatusOr<T> result) {
  check(result.status());
  return *std::move(result);
}
// Throws InvalidArgumentError with this text.
[[noreturn]] inline void refuse(const std::string& why) {
  throw status_error(absl::InvalidArgumentError(why));
}

// An integer argument from 0 to `most`. TypeError: it is no integer. InvalidArgumentError: it is outside
// of this range.
[[nodiscard]] std::uint64_t integer_argument(const char* name, const py::object& given,
                                             std::uint64_t most);
// The same, for a type of the library.
template <class T = std::uint32_t>
[[nodiscard]] T number(const char* name, const py::object& given,
                       T most = (std::numeric_limits<T>::max)()) {
  return static_cast<T>(integer_argument(name, given, most));
}
// The id of a job or a node. The highest number is no id.
template <class Id>
[[nodiscard]] Id id_of(const char* name, const py::object& given) {
  return Id(number(name, given, Id().value - 1));
}

// The result of a plan, as Python has it.
[[nodiscard]] const char* text_of(apiary::plan_result result);

// The columns of a table that a caller fills with arrays, lists or numbers. A number counts for each row.
class columns {
 public:
  // Converts the values. InvalidArgumentError: a column is not one list of integers of at most 64 bits,
  // or two columns have different lengths.
  explicit columns(std::initializer_list<std::pair<const char*, py::object>> named);
  // The number of rows; 1 if there are only numbers.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  // The value of a column in a row. InvalidArgumentError: it is below 0 or above `most`.
  [[nodiscard]] std::uint64_t at(std::size_t which, std::size_t row, std::uint64_t most) const;

 private:
  struct column {
    const char* name;
    bool is_signed;
    bool is_number;                     // one value for each row
    std::vector<std::uint64_t> values;  // a negative one as its 64 bits
  };
  std::vector<column> columns_;
  std::size_t rows_ = 1;
};

// A NumPy array with n values: get(0), get(1), ...
template <class T, class Get>
[[nodiscard]] py::array_t<T> array_of(std::size_t n, Get get) {
  py::array_t<T> array(static_cast<py::ssize_t>(n));
  T* const values = array.mutable_data();
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(get(i));
  return array;
}

}  // namespace apiary_python
