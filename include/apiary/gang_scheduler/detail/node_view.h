// apiary/gang_scheduler/detail/node_view.h - nodes with their use, and an index for each filter.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A node with what uses it.
struct used_node {
  struct gang_here {
    std::uint32_t slot = 0;
    std::uint32_t mask = 0;
    friend bool operator==(const gang_here&, const gang_here&) = default;
  };
  gang_cluster::node shape{};
  std::uint64_t name_hash = 0;
  std::uint32_t position = ~std::uint32_t{0};  // all bits set: there is no such node
  bool bad = false;
  std::uint32_t bad_gpus = 0;    // masks of GPUs
  std::uint32_t used = 0;        // by running gangs
  std::uint32_t reserved = 0;    // by preempting gangs
  std::uint64_t cpu_milli = 0;   // of all gangs here
  std::uint64_t memory_mib = 0;  // of all gangs here
  std::uint32_t counted = 0;     // its free GPUs in the sum of all nodes
  std::vector<gang_here> gangs{};

  [[nodiscard]] bool present() const noexcept { return position != ~std::uint32_t{0}; }
  [[nodiscard]] std::uint32_t all_gpus() const noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{1} << shape.gpus) - 1);
  }
  [[nodiscard]] std::uint32_t healthy_gpus() const noexcept {
    return bad ? 0 : all_gpus() & ~bad_gpus;
  }
  [[nodiscard]] std::uint32_t free_gpus() const noexcept {
    return healthy_gpus() & ~used & ~reserved;
  }
  [[nodiscard]] resources free_host() const noexcept {
    return bad ? resources{} : left_of(shape.host, cpu_milli, memory_mib);
  }
  // What is left of CPU and memory when so much is in use; none if it is more.
  [[nodiscard]] static resources left_of(const resources& host, std::uint64_t cpu,
                                         std::uint64_t memory) noexcept {
    const auto rest = [](std::uint32_t of, std::uint64_t in_use) {
      return in_use < of ? static_cast<std::uint32_t>(of - in_use) : 0U;
    };
    return {rest(host.cpu_milli, cpu), rest(host.memory_mib, memory)};
  }
  // What becomes free on a node with `has` when a gang ends that uses `own` of the `used` there. If a
  // node is overcommitted, several gangs together free more than the sum of these values.
  [[nodiscard]] static std::uint32_t freed(std::uint64_t own, std::uint64_t used,
                                           std::uint32_t has) noexcept {
    const std::uint64_t too_much = used > has ? used - has : 0;
    return own > too_much ? static_cast<std::uint32_t>(own - too_much) : 0;
  }
  [[nodiscard]] static std::uint64_t hash_of_name(const std::string& name) noexcept {
    return digest().add(name).value();
  }
  [[nodiscard]] std::uint64_t hash() const noexcept {
    digest d;
    d.add(name_hash).add(shape.gpus).add(shape.host.cpu_milli).add(shape.host.memory_mib);
    d.add(shape.model).add(bad ? 1 : 0).add(bad_gpus);
    for (const auto* texts : {&shape.cells, &shape.labels, &shape.taints}) {
      d.add(texts->size());
      for (const std::string& text : *texts) d.add(text);
    }
    return d.value();
  }
};

// The nodes that a filter accepts, by position: free GPUs, CPU and memory, and what they have when
// idle and healthy. Other positions have nothing.
struct node_view {
  node_filter filter;
  std::uint64_t key = 0;             // hash of the filter
  std::uint64_t layout = 0;          // how often the layout had been made anew
  std::uint64_t seen = 0;            // the number of changes that it shows
  std::uint64_t known = 0;           // the names existed at this number of removed nodes
  std::vector<std::string> names{};  // of filter.nodes, ascending
  capacity_index<ragged_tree> free;
  capacity_index<ragged_tree> whole;
  std::vector<resources> hosts{};
  std::vector<resources> whole_hosts{};
  std::vector<unsigned char> members{};
  std::uint32_t num_members = 0;
  std::uint64_t bytes = 0;  // of memory, about

  node_view(node_filter of, const ragged_tree& tree, std::uint32_t max_free)
      : filter(std::move(of)),
        key(hash_of(filter)),
        names(filter.nodes.names().begin(), filter.nodes.names().end()),
        free(tree, 0, max_free),
        whole(tree, 0, max_free),
        hosts(free.num_nodes()),
        whole_hosts(free.num_nodes()),
        members(free.num_nodes()),
        bytes(free.num_nodes() * (std::uint64_t{50} + max_free) + names.size() * 64) {
    std::sort(names.begin(), names.end());
  }
  [[nodiscard]] static std::uint64_t hash_of(const node_filter& filter) noexcept {
    digest d;
    for (const auto* texts : {&filter.labels, &filter.models, &filter.tolerations}) {
      d.add(texts->size());
      for (const std::string& text : *texts) d.add(text);
    }
    return d.add(filter.nodes.hash()).value();
  }
  [[nodiscard]] bool accepts(const gang_cluster::node& n) const {
    return std::all_of(filter.labels.begin(), filter.labels.end(),
                       [&](const std::string& label) { return has_label(n, label); }) &&
           tolerates(filter, n.taints) && (filter.models.empty() || has(filter.models, n.model)) &&
           (names.empty() || std::binary_search(names.begin(), names.end(), n.name));
  }
  // Whether the node has the label of a filter: "key=value", or "key" for any value.
  [[nodiscard]] static bool has_label(const gang_cluster::node& n, const std::string& label) {
    return std::any_of(n.labels.begin(), n.labels.end(), [&](std::string_view l) {
      return l == label ||
             (label.find('=') == std::string::npos && l.substr(0, l.find('=')) == label);
    });
  }
  // Whether a filter tolerates all these taints of a node.
  [[nodiscard]] static bool tolerates(const node_filter& filter,
                                      const std::vector<std::string>& taints) {
    return std::all_of(taints.begin(), taints.end(),
                       [&](const std::string& taint) { return has(filter.tolerations, taint); });
  }
  [[nodiscard]] static bool has(const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  // Takes over what the node has and has free; it is at this position and a member, or none is.
  void update(std::uint32_t position, const used_node* n) {
    num_members += (n == nullptr ? 0U : 1U) - members[position];
    if (n == nullptr) {
      members[position] = 0;
      free.set(position, 0);
      whole.set(position, 0);
      hosts[position] = whole_hosts[position] = {};
      return;
    }
    members[position] = 1;
    whole.set(position, n->shape.gpus);
    whole_hosts[position] = n->shape.host;
    update_use(position, *n);
  }
  // The same if only the use or the health of the node has changed.
  void update_use(std::uint32_t position, const used_node& n) {
    if (members[position] == 0) return;
    free.set(position, static_cast<std::uint32_t>(std::popcount(n.free_gpus())));
    hosts[position] = n.free_host();
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
