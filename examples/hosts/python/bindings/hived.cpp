// HiveD: tenants with guaranteed cells.
// SPDX-License-Identifier: MIT
#include "bindings.h"
#include "gangs.h"
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/queries.h>
#include <apiary/model/plan.h>
#include <apiary/topology/cell_names.h>

#include <limits>
#include <optional>

namespace apiary_python {
namespace {

using namespace apiary;

// A value of a configuration, and its path for messages: "physicalCluster.cellTypes.NODE".
struct entry {
  py::handle value;
  std::string path;

  [[noreturn]] void refuse_as(const char* wanted) const {
    refuse(path + " is of type " + Py_TYPE(value.ptr())->tp_name + "; it must be " + wanted);
  }
  // Calls visit(name, value) for each entry of a dict; false: the name is not known.
  template <class Visit>
  void each_of_dict(const Visit& visit) const {
    if (value.is_none()) return;
    if (!py::isinstance<py::dict>(value)) refuse_as("a dict");
    for (const auto& [key, found] : py::reinterpret_borrow<py::dict>(value)) {
      if (!py::isinstance<py::str>(key)) refuse(path + " has a key that is no str");
      const auto name = key.template cast<std::string>();
      const entry inner{found, path.empty() ? name : path + "." + name};
      if (!visit(name, inner)) refuse(inner.path + " is not known");
    }
  }
  template <class Visit>
  void each_of_list(const Visit& visit) const {
    if (value.is_none()) return;
    if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value)) refuse_as("a list");
    std::size_t i = 0;
    for (const py::handle found : value)
      visit(entry{found, path + "[" + std::to_string(i++) + "]"});
  }
  // A text; a number counts as its digits, as in YAML.
  bool read(std::string& to) const {
    if (!py::isinstance<py::str>(value) && !PyLong_Check(value.ptr())) refuse_as("a str");
    to = std::string(py::str(value));
    return true;
  }
  bool read(std::uint32_t& to) const {
    if (!PyLong_Check(value.ptr())) refuse_as("an int");
    to = number(path.c_str(), py::reinterpret_borrow<py::object>(value));
    return true;
  }
  bool read(bool& to) const {
    if (!PyBool_Check(value.ptr())) refuse_as("a bool");
    to = value.ptr() == Py_True;
    return true;
  }
};

void read_cells(const entry& list, int depth, std::vector<physical_cell_config>& to) {
  if (depth == 0) refuse(list.path + " is nested too deeply");
  list.each_of_list([&](const entry& item) {
    physical_cell_config& cell = to.emplace_back();
    item.each_of_dict([&](const std::string& name, const entry& e) {
      if (name == "cellType") return e.read(cell.type);
      if (name == "cellAddress") return e.read(cell.address);
      if (name == "pinnedCellId") return e.read(cell.pinned_id);
      if (name == "cellChildren") read_cells(e, depth - 1, cell.children);
      return name == "cellChildren";
    });
  });
}

// The dict that a YAML reader makes of a configuration of the open-source HiveD.
hived_config config_of(const py::object& given) {
  hived_config config;
  entry{given, ""}.each_of_dict([&](const std::string& part, const entry& top) {
    if (part == "virtualClusters") {
      top.each_of_dict([&](const std::string& name, const entry& tenant) {
        virtual_cluster_config& added = config.virtual_clusters.emplace_back();
        added.name = name;
        tenant.each_of_dict([&](const std::string& key, const entry& e) {
          if (key == "virtualCells") {
            e.each_of_list([&](const entry& item) {
              virtual_cell_config& cells = added.cells.emplace_back();
              item.each_of_dict([&](const std::string& field, const entry& v) {
                if (field == "cellType") return v.read(cells.type);
                return field == "cellNumber" && v.read(cells.count);
              });
            });
          } else if (key == "pinnedCells") {
            e.each_of_list([&](const entry& item) {
              item.each_of_dict([&](const std::string& field, const entry& v) {
                return field == "pinnedCellId" && v.read(added.pinned_ids.emplace_back());
              });
            });
          }
          return key == "virtualCells" || key == "pinnedCells";
        });
        return true;
      });
    } else if (part == "physicalCluster") {
      top.each_of_dict([&](const std::string& key, const entry& e) {
        if (key == "cellTypes") {
          e.each_of_dict([&](const std::string& name, const entry& type) {
            cell_type_config& added = config.cell_types.emplace_back();
            added.name = name;
            type.each_of_dict([&](const std::string& field, const entry& v) {
              if (field == "childCellType") return v.read(added.child_type);
              if (field == "childCellNumber") return v.read(added.child_count);
              return field == "isNodeLevel" && v.read(added.is_node);
            });
            return true;
          });
        } else if (key == "physicalCells") {
          read_cells(e, 16, config.physical_cells);
        }
        return key == "cellTypes" || key == "physicalCells";
      });
    }
    return part == "virtualClusters" || part == "physicalCluster";
  });
  return config;
}

// The level that all chains with this cell type give it.
level_t level_of(const hived_layout& layout, const std::string& type) {
  std::optional<level_t> found;
  for (const chain_layout& chain : layout.chains)
    for (level_t level = 0; level < chain.level_types.size(); ++level) {
      if (chain.level_types[level] != type) continue;
      if (found && *found != level) refuse("cell type " + type + " is at different levels");
      found = level;
    }
  if (!found) throw status_error(absl::NotFoundError("there is no cell type " + type));
  return *found;
}

gang_request request_of(const hived& scheduler, const gang& asked) {
  const hived_layout& layout = scheduler.layout();
  const auto tenant = layout.find_tenant(asked.tenant);
  if (!tenant)
    throw status_error(absl::NotFoundError("there is no tenant \"" + asked.tenant + "\""));
  gang_request request{.job = job_id(asked.job),
                       .tenant = *tenant,
                       .priority = asked.priority,
                       .groups = asked.groups};
  for (const resources& host : asked.host)
    if (host.cpu_milli > 0 || host.memory_mib > 0)
      refuse("job " + std::to_string(asked.job) + ": HiveD counts no CPU and no memory");
  if (!asked.model.empty()) {
    const auto type = scheduler.find_leaf_type(asked.model);
    if (!type) throw status_error(absl::NotFoundError("there is no GPU model " + asked.model));
    request.leaf_type = *type;
  }
  request_constraints constraints;
  if (asked.required) constraints.required = level_of(layout, *asked.required);
  if (asked.max_per_node > 0) {
    const level_t node = layout.chains[0].node_level;
    for (const chain_layout& chain : layout.chains)
      if (chain.node_level != node) refuse("max_per_node: the nodes are at different levels");
    for (std::size_t i = 0; i < asked.groups.size(); ++i)
      constraints.groups.push_back({.spread = {{.level = node, .tasks = asked.max_per_node}}});
  }
  if (constraints.any()) request.constraints = std::move(constraints);
  return request;
}

// Why a gang waits: the reason, and the proof if there is one.
std::string text_of_wait(const hived& scheduler, const gang_request& request,
                         const gang_wait& wait) {
  std::string text = wait_reason_text(wait.reason);
  if (const infeasibility_proof* const why = wait.why(); why != nullptr) {
    const chain_layout& chain = scheduler.layout().chains[wait.chain];
    text += "; " + why->text(constraints_of(request),
                             cell_names(chain.level_types,
                                        request.priority < 0 ? "cluster" : "tenant's quota"));
  }
  return text;
}

std::uint64_t number_of(job_id job) { return job.value; }
std::optional<std::uint32_t> position_of(const py::object& position) {
  return position.is_none() ? std::nullopt : std::optional(number("position", position));
}

}  // namespace

void bind_hived(py::module_& m) {
  py::class_<gang_plan>(m, "HivedPlan", "What HiveD decides about a gang.")
      .def_property_readonly(
          "result", [](const gang_plan& p) { return text_of(p.result); },
          "\"bind\", \"preempt\" (the gang gets these GPUs when its victims have ended) or "
          "\"wait\".")
      .def_property_readonly(
          "node",
          [](const gang_plan& p) {
            return array_of<std::int32_t>(p.tasks.size(),
                                          [&](std::size_t i) { return p.tasks[i].node.value; });
          },
          "The node of each task; empty if the gang waits.")
      .def_property_readonly(
          "gpu_mask",
          [](const gang_plan& p) {
            return array_of<std::uint64_t>(p.tasks.size(),
                                           [&](std::size_t i) { return p.tasks[i].leaves; });
          },
          "The GPUs of each task as bits: their positions in the node.")
      .def_property_readonly(
          "victims", [](const gang_plan& p) { return numbers_of(p.victims, number_of); },
          "The jobs that must end, ascending.")
      .def_property_readonly(
          "downgraded", [](const gang_plan& p) { return numbers_of(p.downgraded, number_of); },
          "The jobs that keep running without the cells of their tenant.")
      .def_property_readonly(
          "cancelled", [](const gang_plan& p) { return numbers_of(p.cancelled, number_of); },
          "The preempting jobs that lose what they have reserved; propose them again.")
      .def_property_readonly(
          "reason",
          [](const gang_plan& p) {
            return p.result == plan_result::wait
                       ? std::optional<std::string>(wait_reason_text(p.wait.reason))
                       : std::nullopt;
          },
          "Why the gang waits, as a clause for its user; None if it would run.");

  py::class_<hived>(m, "HiveD",
                    "HiveD: each tenant has cells that other tenants cannot take. A gang of "
                    "priority -1 runs on idle GPUs until an owner needs them.")
      .def(py::init(
               [](const py::object& config) { return value(hived::create(config_of(config))); }),
           py::arg("config"),
           "A scheduler for a configuration of the open-source HiveD, as a YAML reader returns it: "
           "a dict with physicalCluster and virtualClusters.")
      .def(
          "propose",
          [](hived& s, const gang& asked) { return value(s.propose(request_of(s, asked))); },
          py::arg("gang"),
          "Where the gang would run, which gangs would have to end, or why it waits. Changes "
          "nothing. Propose a preempting gang again when its victims have ended.")
      .def(
          "commit", [](hived& s, const gang_plan& plan) { check(s.commit(plan)); }, py::arg("plan"),
          "Applies a plan. AbortedError: the state has changed since it was proposed.")
      .def(
          "finish",
          [](hived& s, const py::object& job) { check(s.finish(id_of<job_id>("job", job))); },
          py::arg("job"), "The gang has ended. NotFoundError: there is no such gang.")
      .def(
          "mark_bad",
          [](hived& s, const py::object& node, const py::object& position) {
            check(s.mark_bad(id_of<node_id>("node", node), position_of(position)));
          },
          py::arg("node"), py::arg("position") = py::none(),
          "The node, or one GPU of it, gets no new gang; running gangs continue.")
      .def(
          "mark_healthy",
          [](hived& s, const py::object& node, const py::object& position) {
            check(s.mark_healthy(id_of<node_id>("node", node), position_of(position)));
          },
          py::arg("node"), py::arg("position") = py::none(), "Takes mark_bad back.")
      .def(
          "explain",
          [](hived& s, const gang& asked) {
            const gang_request request = request_of(s, asked);
            const gang_plan plan = value(s.propose(request));
            return plan.result == plan_result::wait ? text_of_wait(s, request, plan.wait)
                                                    : std::string();
          },
          py::arg("gang"), "Why the gang waits, as a text for its user; empty if it need not.")
      .def(
          "snapshot", [](const hived& s) { return s.snapshot(); },
          "The state as a text, for restore after a restart.")
      .def(
          "restore", [](hived& s, const std::string& text) { check(s.restore(text)); },
          py::arg("snapshot"),
          "Replaces all gangs by those of a snapshot. FailedPreconditionError: it is of another "
          "configuration. InvalidArgumentError or Error: it is damaged.")
      .def(
          "usage",
          [](const hived& s, const std::string& tenant) {
            const auto id = s.layout().find_tenant(tenant);
            if (!id)
              throw status_error(absl::NotFoundError("there is no tenant \"" + tenant + "\""));
            const auto used = value(hived_queries::usage_of(s, *id));
            py::dict usage;
            usage["owned"] = used.owned;
            usage["guaranteed"] = used.guaranteed;
            usage["opportunistic"] = used.opportunistic;
            return usage;
          },
          py::arg("tenant"),
          "The GPUs that a tenant owns, and those that its gangs use: guaranteed and "
          "opportunistic.")
      .def(
          "audit",
          [](const hived& s) {
            std::vector<std::string> faults;
            for (const violation& one : audit(s))
              faults.push_back(one.invariant + ": " + one.witness);
            return faults;
          },
          "Recomputes the whole state; the faults as texts, none if all is well.")
      .def(
          "copy", [](const hived& s) { return s; }, "A snapshot that is independent.")
      .def_property_readonly(
          "tenants",
          [](const hived& s) {
            std::vector<std::string> names;
            for (const tenant_layout& tenant : s.layout().tenants) names.push_back(tenant.name);
            return names;
          },
          "The names of the tenants.")
      .def_property_readonly(
          "node_names",
          [](const hived& s) {
            std::vector<std::string> names;
            for (std::uint32_t n = 0; n < s.layout().num_nodes(); ++n)
              names.push_back(s.layout().node_name(node_id(n)));
            return names;
          },
          "The names of the nodes, by number.");
}

}  // namespace apiary_python
