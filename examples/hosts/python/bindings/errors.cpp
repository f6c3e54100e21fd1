// Exceptions for errors of the library, the texts of results, and the conversion of columns.
// SPDX-License-Identifier: MIT
#include "bindings.h"

#include <array>
#include <optional>

namespace apiary_python {
namespace {

// An exception of Python for one code of the library.
struct error_type {
  absl::StatusCode code;
  const char* name;
  const char* doc;
  PyObject* type = nullptr;  // lives as long as the program
};

PyObject* any_error = nullptr;
std::array<error_type, 5> types{{
    {absl::StatusCode::kInvalidArgument, "InvalidArgumentError",
     "An argument, a request or a file is wrong. Nothing has changed."},
    {absl::StatusCode::kNotFound, "NotFoundError",
     "There is no such job, node, tenant, level or file. Nothing has changed."},
    {absl::StatusCode::kAlreadyExists, "AlreadyExistsError",
     "The job runs already. Nothing has changed."},
    {absl::StatusCode::kAborted, "AbortedError",
     "The plan no longer applies, because the state has changed since it was proposed."},
    {absl::StatusCode::kFailedPrecondition, "FailedPreconditionError",
     "The call is not possible in this state. Nothing has changed."},
}};

PyObject* new_type(py::module_& m, const char* name, const char* doc, const py::tuple& bases) {
  const std::string full = std::string("apiary.") + name;
  PyObject* const type = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  m.attr(name) = py::reinterpret_borrow<py::object>(type);
  return type;
}

// The Python exception for a code.
PyObject* type_of(absl::StatusCode code) {
  for (const error_type& e : types)
    if (e.code == code) return e.type;
  return any_error;
}

// The values of an array, each as 64 bits.
template <class T>
std::vector<std::uint64_t> bits_of(const py::array& array) {
  const auto values = py::array_t<T, py::array::c_style | py::array::forcecast>::ensure(array);
  if (!values) throw py::error_already_set();
  return {values.data(), values.data() + values.size()};
}

// The value of a Python integer; nullopt if it is negative, or has more than 64 bits.
std::optional<std::uint64_t> unsigned_of(const py::handle& integer) {
  const std::uint64_t found = PyLong_AsUnsignedLongLong(integer.ptr());
  if (PyErr_Occurred() == nullptr) return found;
  PyErr_Clear();
  return std::nullopt;
}

// Where NumPy has Python's integers, because one does not fit in 64 bits: refuses that one.
void refuse_long_integers(const char* name, const py::array& array) {
  std::size_t row = 0;
  for (const py::handle element : array.attr("ravel")()) {
    if (PyLong_Check(element.ptr()) && !unsigned_of(element))
      refuse(std::string(name) + " is " + std::string(py::str(element)) + " in row " +
             std::to_string(row) + "; it must be from 0 to " +
             std::to_string(std::numeric_limits<std::uint64_t>::max()));
    ++row;
  }
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const status_error& e) {
    PyErr_SetString(type_of(e.code()), e.what());
  }
}

}  // namespace

void bind_errors(py::module_& m) {
  any_error = new_type(m, "Error", "An error of apiary; its text is that of the library.",
                       py::make_tuple(py::handle(PyExc_Exception)));
  for (error_type& e : types) {
    py::list bases;
    bases.append(py::handle(any_error));
    if (e.code == absl::StatusCode::kInvalidArgument) bases.append(py::handle(PyExc_ValueError));
    if (e.code == absl::StatusCode::kNotFound) bases.append(py::handle(PyExc_LookupError));
    e.type = new_type(m, e.name, e.doc, py::tuple(bases));
  }
  py::register_local_exception_translator(&translate);
}

std::uint64_t integer_argument(const char* name, const py::object& given, std::uint64_t most) {
  if (!PyIndex_Check(given.ptr()))
    throw py::type_error(std::string(name) + " is of type " + Py_TYPE(given.ptr())->tp_name +
                         "; it must be an integer");
  const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()));
  if (!integer) throw py::error_already_set();
  const std::optional<std::uint64_t> found = unsigned_of(integer);
  if (found && *found <= most) return *found;
  refuse(std::string(name) + " is " + std::string(py::str(integer)) + "; it must be from 0 to " +
         std::to_string(most));
}

const char* text_of(apiary::plan_result result) {
  switch (result) {
    case apiary::plan_result::bind:
      return "bind";
    case apiary::plan_result::preempt:
      return "preempt";
    case apiary::plan_result::wait:
      return "wait";
  }
  return "";
}

columns::columns(std::initializer_list<std::pair<const char*, py::object>> named) {
  const char* longest = nullptr;  // the name of the first column with one value for each row
  for (const auto& [name, given] : named) {
    const py::array array = py::array::ensure(given);
    if (!array) refuse(std::string(name) + " is neither a number nor a list of numbers");
    const char kind = array.dtype().kind();
    if (kind == 'O') refuse_long_integers(name, array);
    if (array.ndim() > 1 || (kind != 'i' && kind != 'u' && kind != 'b' && array.size() > 0))
      refuse(std::string(name) + " is not one integer, and not a list of integers");
    column added{name, kind == 'i', array.ndim() == 0,
                 kind == 'i' ? bits_of<std::int64_t>(array) : bits_of<std::uint64_t>(array)};
    if (!added.is_number) {
      if (longest == nullptr) {
        longest = name;
        rows_ = added.values.size();
      } else if (rows_ != added.values.size()) {
        refuse(std::string(name) + " has " + std::to_string(added.values.size()) + " values, " +
               longest + " has " + std::to_string(rows_));
      }
    }
    columns_.push_back(std::move(added));
  }
}

std::uint64_t columns::at(std::size_t which, std::size_t row, std::uint64_t most) const {
  const column& c = columns_[which];
  const std::uint64_t found = c.values[c.is_number ? 0 : row];
  const bool negative = c.is_signed && static_cast<std::int64_t>(found) < 0;
  if (!negative && found <= most) return found;
  const std::string text =
      negative ? std::to_string(static_cast<std::int64_t>(found)) : std::to_string(found);
  refuse(std::string(c.name) + " is " + text + " in row " + std::to_string(row) +
         "; it must be from 0 to " + std::to_string(most));
}

}  // namespace apiary_python
