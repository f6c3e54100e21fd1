// The module _apiary: all names of the other files.
// SPDX-License-Identifier: MIT
#include "bindings.h"
#include <apiary/core/config.h>

PYBIND11_MODULE(_apiary, m) {
  m.doc() = "GPU-cluster scheduling algorithms. Use the package apiary, which has the same names.";
  m.attr("__version__") = std::to_string(APIARY_VERSION_MAJOR) + "." +
                          std::to_string(APIARY_VERSION_MINOR) + "." +
                          std::to_string(APIARY_VERSION_PATCH);
  apiary_python::bind_errors(m);
  apiary_python::bind_tables(m);
  apiary_python::bind_task_schedulers(m);
  apiary_python::bind_gang_scheduler(m);
  apiary_python::bind_hived(m);
  apiary_python::bind_simulator(m);
}
