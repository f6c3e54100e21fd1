// apiary/hived/detail/catalog.h - checks requests against a layout; converts nodes and leaves.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Checks requests against the immutable layout, and converts between the nodes and leaves that a
// host names and the leaves of chains. Cost: O(1) per leaf; check O(task groups).
class hived_catalog {
 public:
  static constexpr std::uint64_t max_tasks = 1'000'000;        // of a gang
  static constexpr std::size_t max_constrained_groups = 1024;  // of a new gang with constraints
  // A running gang may have so many leaves, or as many as the cluster has if these are more: it may
  // come from a larger cluster.
  static constexpr std::uint64_t max_recovered = std::uint64_t{1} << 16;

  explicit hived_catalog(hived_layout&& layout) : layout_(std::move(layout)) {
    for (const chain_layout& chain : layout_.chains) {
      const auto known = std::find(types_.begin(), types_.end(), chain.level_types[0]);
      type_of_chain_.push_back(leaf_type_id(static_cast<std::uint32_t>(known - types_.begin())));
      if (known == types_.end()) types_.push_back(chain.level_types[0]);
    }
  }

  [[nodiscard]] const hived_layout& layout() const noexcept { return layout_; }
  // The most leaves of a recovered gang: max_recovered, or those of the cluster if these are more.
  [[nodiscard]] std::uint64_t max_leaves() const noexcept {
    std::uint64_t leaves = 0;
    for (const chain_layout& chain : layout_.chains) leaves += chain.tree.num_leaves();
    return (std::max)(leaves, max_recovered);
  }
  // The name of a gang in error messages.
  [[nodiscard]] static std::string name(job_id job) { return name_of(job, "gang"); }
  [[nodiscard]] const std::string& name(leaf_type_id type) const noexcept {
    return types_[type.value];
  }
  // The leaf type with this name; nullopt: there is none.
  [[nodiscard]] std::optional<leaf_type_id> find_leaf_type(std::string_view type) const noexcept {
    const auto found = std::find(types_.begin(), types_.end(), type);
    if (found == types_.end()) return std::nullopt;
    return leaf_type_id(static_cast<std::uint32_t>(found - types_.begin()));
  }
  // The leaf type of a chain.
  [[nodiscard]] leaf_type_id type_of(std::uint32_t chain) const noexcept {
    return type_of_chain_[chain];
  }
  // kNotFound: the layout has no such tenant, chain and level, or leaf.
  [[nodiscard]] absl::Status exists(tenant_id tenant) const {
    if (tenant.value < layout_.tenants.size()) return absl::OkStatus();
    return absl::NotFoundError(missing(tenant));
  }
  [[nodiscard]] absl::Status exists(chain_id chain, level_t level = 0) const {
    if (!chain.valid()) return absl::NotFoundError("no chain is given");
    if (chain.value >= layout_.chains.size()) return not_found({"there is no chain ", chain.value});
    if (level < layout_.chain(chain).tree.num_levels()) return absl::OkStatus();
    return not_found({"chain ", chain.value, " has no level ", level});
  }
  [[nodiscard]] absl::Status exists(node_id node, std::uint32_t position) const {
    if (!node.valid()) return absl::NotFoundError("no node is given");
    if (node.value >= layout_.num_nodes()) return not_found({"there is no node ", node.value});
    const chain_layout& chain = layout_.chain(layout_.chain_of(node));
    if (position < chain.tree.leaves_per_cell(chain.node_level)) return absl::OkStatus();
    return not_found({"node ", layout_.node_name(node), " has no leaf cell ", position});
  }
  // Checks a request without the state of the cluster, with the errors of hived::propose. `runs`:
  // the gang runs already; a reconfiguration may have removed its tenant.
  [[nodiscard]] absl::Status check(const gang_request& r, bool runs = false) const {
    const auto wrong = [&](std::initializer_list<absl::AlphaNum> what) {
      return invalid({name(r.job), ": ", text_of(what)});
    };
    if (!r.job.valid()) return absl::InvalidArgumentError("a gang needs a job id");
    if (r.tenant.value >= layout_.tenants.size() && (r.tenant.valid() || !runs)) {
      return not_found({name(r.job), ": ", missing(r.tenant)});
    }
    if (r.priority < gang_request::opportunistic_priority ||
        r.priority > gang_request::max_priority)
      return wrong({"priority ", r.priority, " is not in -1, ..., 1000"});
    if (r.groups.empty()) return wrong({"no tasks"});
    std::uint64_t tasks = 0;
    for (const task_group& m : r.groups) {
      if (m.tasks == 0) return wrong({"a task group with 0 tasks"});
      if (m.gpus == 0) return wrong({"a task group with 0 GPUs for each task"});
      if (m.gpus > chain_layout::max_node_leaves) {
        return wrong(
            {"a task of ", m.gpus, " GPUs; a node has at most ", chain_layout::max_node_leaves});
      }
      tasks += m.tasks;
    }
    if (tasks > max_tasks) {
      return wrong({tasks, " tasks; the limit is ", max_tasks});
    }
    if (!r.constraints->groups.empty() && r.constraints->groups.size() != r.groups.size()) {
      return wrong({"topology constraints for ", r.constraints->groups.size(),
                    " task groups; it has ", r.groups.size()});
    }
    if (!runs && r.constraints.any() && r.groups.size() > max_constrained_groups) {
      return wrong({r.groups.size(), " task groups with topology constraints; the limit is ",
                    max_constrained_groups});
    }
    if (!runs && r.constraints.any() && r.constraints.make_search_ == nullptr)
      return wrong({"its topology constraints come from a snapshot; set them again"});
    if (r.leaf_type.valid() && r.leaf_type.value >= types_.size()) {
      return not_found({name(r.job), ": there is no leaf type ", r.leaf_type.value});
    }
    for (const std::uint32_t c : r.chains) {
      if (c >= layout_.chains.size()) return not_found({name(r.job), ": there is no chain ", c});
    }
    if (r.suggested != nullptr && r.suggested->size() != layout_.num_nodes()) {
      return wrong(
          {"suggested nodes: ", r.suggested->size(), " bits for ", layout_.num_nodes(), " nodes"});
    }
    if (!r.pinned) return absl::OkStatus();
    if (r.priority < 0) return wrong({"an opportunistic gang cannot use a pinned cell"});
    if (*r.pinned >= layout_.pinned.size()) {
      return not_found({name(r.job), ": there is no pinned cell ", *r.pinned});
    }
    if (layout_.pinned[*r.pinned].tenant == r.tenant) return absl::OkStatus();
    return error_of(absl::StatusCode::kFailedPrecondition,
                    {name(r.job), ": pinned cell ", layout_.pinned[*r.pinned].id,
                     " belongs to another tenant"});
  }
  // Whether a preempting gang proposes the same request again, apart from the suggested nodes.
  // kInvalidArgument: it does not.
  [[nodiscard]] static absl::Status check_again(const gang_request& r, const gang_request& first) {
    if (r.tenant == first.tenant && r.priority == first.priority && r.groups == first.groups &&
        r.pinned == first.pinned && r.leaf_type == first.leaf_type && r.lazy == first.lazy &&
        r.constraints == first.constraints && r.chains == first.chains)
      return absl::OkStatus();
    return invalid({name(r.job), " is preempting and proposes another request; cancel it first"});
  }
  // The node of a leaf, and the bit of the leaf in the node.
  [[nodiscard]] hived_placement placement_of(chain_leaf l) const noexcept {
    const chain_layout& chain = layout_.chains[l.chain];
    const cell_id node = chain.tree.ancestor(l.leaf, chain.node_level);
    return {node_id(chain.first_node + chain.tree.index(node, chain.node_level)),
            std::uint64_t{1} << (l.leaf.value - chain.tree.descendants(node, 0).first.value)};
  }
  // Appends the node and leaves of each task. Leaves that are not valid are left out.
  void list_tasks(std::span<const chain_leaf> leaves, std::span<const task_group> groups,
                  std::vector<hived_placement>& out) const {
    std::size_t i = 0;
    for (const task_group& m : groups) {
      for (std::uint32_t t = 0; t < m.tasks; ++t) {
        hived_placement& at = out.emplace_back();
        for (const std::size_t last = i + m.gpus; i < last; ++i) {
          if (!leaves[i].leaf.valid()) continue;
          const hived_placement leaf = placement_of(leaves[i]);
          at.node = leaf.node;
          at.leaves |= leaf.leaves;
        }
      }
    }
  }
  // One level for each entry of `leaves` (see find_leaves): the next of `given`, or any_level if
  // the leaf is not valid. Empty if `given` is empty. kInvalidArgument: `given` does not have one
  // level for each valid leaf.
  [[nodiscard]] static absl::StatusOr<std::vector<level_t>> levels_of_leaves(
      job_id job, std::span<const chain_leaf> leaves, std::span<const level_t> given) {
    std::vector<level_t> levels;
    if (given.empty()) return levels;
    std::size_t there = 0;
    for (const chain_leaf& l : leaves) {
      const bool known = l.leaf.valid() && there < given.size();
      levels.push_back(known ? given[there] : any_level);
      there += l.leaf.valid() ? 1U : 0U;
    }
    if (there == given.size()) return levels;
    return invalid({name(job), ": ", given.size(), " levels for ", there, " leaf cells"});
  }
  // Converts the tasks of a gang, as a host reports them, to leaves: one entry per leaf of the
  // request, not valid if the task does not have this leaf. Requires: check() accepts the request.
  // kInvalidArgument: the number of tasks differs; a task has more leaves than requested; the node
  // has no such leaf; two tasks have the same leaf; the gang has more leaves than max_leaves().
  // kNotFound: no such node.
  [[nodiscard]] absl::StatusOr<std::vector<chain_leaf>> find_leaves(
      const gang_request& r, std::span<const hived_placement> tasks) const {
    std::vector<chain_leaf> all;
    std::size_t t = 0;
    std::uint64_t size = 0;
    for (const task_group& m : r.groups) {
      t += m.tasks;
      size += std::uint64_t{m.tasks} * m.gpus;
    }
    if (t != tasks.size()) {
      return invalid({name(r.job), " has ", t, " tasks; there are placements for ", tasks.size()});
    }
    if (size > max_leaves()) {
      return invalid({name(r.job), " has ", size, " leaf cells; the limit is ", max_leaves()});
    }
    t = 0;
    for (const task_group& m : r.groups) {
      for (std::uint32_t k = 0; k < m.tasks; ++k, ++t) {
        const std::size_t end = all.size() + m.gpus;
        if (tasks[t].leaves != 0) {
          APIARY_RETURN_IF_ERROR(check_task(r.job, tasks[t], m.gpus));
          const std::uint32_t chain = layout_.chain_of(tasks[t].node).value;
          const std::uint32_t first = first_leaf(tasks[t].node).value;
          for (std::uint64_t mask = tasks[t].leaves; mask != 0; mask &= mask - 1) {
            const auto bit = static_cast<std::uint32_t>(std::countr_zero(mask));
            all.push_back({chain, cell_id(first + bit)});
          }
        }
        all.resize(end);
      }
    }
    APIARY_RETURN_IF_ERROR(check_distinct(r.job, all));
    return all;
  }
  // kInvalidArgument: the missing leaves are not in order, or one of them is there.
  [[nodiscard]] absl::Status check_missing(
      job_id job, std::span<const chain_leaf> leaves,
      std::span<const gang_record::missing_leaf> missing) const {
    std::size_t next = 0;
    for (const gang_record::missing_leaf& m : missing) {
      const std::string what = text_of({name(job), ": missing leaf ", m.index});
      if (m.index < next || m.index >= leaves.size())
        return invalid({what, " is not in order, or beyond the last leaf"});
      if (leaves[m.index].leaf.valid() || find_leaf(m.node, m.device).leaf.valid())
        return invalid({what, " is in the configuration"});
      next = std::size_t{m.index} + 1;
    }
    return absl::OkStatus();
  }
  // The leaf with this node name and device index; not valid: there is none.
  [[nodiscard]] chain_leaf find_leaf(std::string_view node, std::uint32_t device) const {
    const std::optional<node_id> first = layout_.find_node(node);
    if (!first) return {};
    node_id n = *first;
    do {
      if (const auto at = layout_.find_position(n, device))
        return {layout_.chain_of(n).value, cell_id(first_leaf(n).value + *at)};
      n = layout_.next_of_host(n);
    } while (n != *first);
    return {};
  }
  // The leaf with the names of a leaf of another configuration; not valid: there is none.
  [[nodiscard]] chain_leaf find_leaf(const hived_catalog& other, chain_leaf l) const {
    const hived_placement there = other.placement_of(l);
    return find_leaf(other.layout_.node_name(there.node), other.device_of(there));
  }
  // The device index of a leaf. Requires: exactly one bit is set in leaf.leaves.
  [[nodiscard]] std::uint32_t device_of(hived_placement leaf) const {
    return layout_.device(leaf.node, static_cast<std::uint32_t>(std::countr_zero(leaf.leaves)));
  }
  // Converts a request of another configuration to this one, by the names of tenant, leaf type,
  // chains and pinned cell. If its tenant or pinned cell does not exist here, the result has no
  // tenant. If its leaf type, or none of its chains, exists here, the result accepts any. The names
  // are not stored, so a later conversion cannot restore them.
  [[nodiscard]] gang_request translate(const hived_catalog& other, gang_request r) const {
    const hived_layout& there = other.layout_;
    const auto tenant =
        layout_.find_tenant(r.tenant.valid() ? there.tenants[r.tenant.value].name : std::string());
    r.tenant = tenant ? *tenant : tenant_id();
    if (r.leaf_type.valid()) {
      const auto type = find_leaf_type(other.name(r.leaf_type));
      r.leaf_type = type ? *type : leaf_type_id();
    }
    std::vector<std::uint32_t> chains;
    for (std::uint32_t c = 0; c < layout_.chains.size(); ++c) {
      if (std::any_of(r.chains.begin(), r.chains.end(), [&](std::uint32_t old) {
            return there.chains[old].name == layout_.chains[c].name;
          }))
        chains.push_back(c);
    }
    r.chains = std::move(chains);
    if (!r.pinned) return r;
    r.pinned = layout_.find_pinned(there.pinned[*r.pinned].id);
    if (r.pinned && layout_.pinned[*r.pinned].tenant == r.tenant) return r;
    r.pinned.reset();
    r.tenant = tenant_id();
    return r;
  }

 private:
  [[nodiscard]] static absl::Status not_found(std::initializer_list<absl::AlphaNum> what) {
    return error_of(absl::StatusCode::kNotFound, what);
  }
  [[nodiscard]] static absl::Status invalid(std::initializer_list<absl::AlphaNum> what) {
    return error_of(absl::StatusCode::kInvalidArgument, what);
  }
  [[nodiscard]] cell_id first_leaf(node_id node) const noexcept {
    return layout_.chain(layout_.chain_of(node)).tree.descendants(layout_.node_cell(node), 0).first;
  }
  [[nodiscard]] absl::Status check_task(job_id job, hived_placement task,
                                        std::uint32_t limit) const {
    if (!task.node.valid()) return not_found({name(job), ": a task has leaf cells and no node"});
    if (task.node.value >= layout_.num_nodes())
      return not_found({name(job), ": there is no node ", task.node.value});
    const chain_layout& chain = layout_.chain(layout_.chain_of(task.node));
    const std::uint32_t size = chain.tree.leaves_per_cell(chain.node_level);
    const std::string where = text_of({name(job), ": node ", layout_.node_name(task.node)});
    if (size < 64 && task.leaves >> size != 0)
      return invalid({where, " has only ", size, " leaf cells"});
    if (static_cast<std::uint32_t>(std::popcount(task.leaves)) > limit)
      return invalid({where, ": more leaf cells than the task requests"});
    return absl::OkStatus();
  }
  [[nodiscard]] static absl::Status check_distinct(job_id job, std::vector<chain_leaf> all) {
    std::erase_if(all, [](const chain_leaf& l) { return !l.leaf.valid(); });
    merge_sort(all);
    if (std::adjacent_find(all.begin(), all.end()) == all.end()) return absl::OkStatus();
    return invalid({name(job), ": two tasks have the same leaf cell"});
  }

  hived_layout layout_;
  std::vector<std::string> types_;  // leaf types, each once
  lean_vector<leaf_type_id> type_of_chain_;
};

}  // namespace detail
APIARY_NAMESPACE_END
