// Can the quotas of two tenants be met together, and which become impossible when GPUs break? The
// quotas are reserved; a reserved node is doomed if only bad nodes are left for it.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/healthy_free.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { device, node, rack, num_levels };

struct cluster {
  uniform_tree tree{2, 2, 4};
  reserving_buddy_allocator cells{tree};
  health<uniform_tree> good{tree};
  healthy_free<uniform_tree> spare{cells.cells(), good};
  quota_ledger quotas{num_levels};
};

// Whether all remaining quotas fit into the free cells together.
bool possible(const cluster& c) {
  std::vector<std::uint32_t> free;
  for (level_t l = 0; l < num_levels; ++l) free.push_back(c.cells.free_count(l));
  return reserving_buddy_allocator::can_reserve(c.tree, free, c.quotas.total_remaining());
}

void print(const char* when, const cluster& c, tenant_id tenant) {
  const std::uint32_t healthy = c.spare.count(node);
  std::printf("%-19s healthy free nodes: %u; of our quota unused: %u, doomed: %u\n", when, healthy,
              c.quotas.remaining(tenant, node), c.quotas.doomed(tenant, node, healthy));
}

}  // namespace

int main() {
  cluster c;
  const tenant_id ours = c.quotas.add_tenant();
  const tenant_id theirs = c.quotas.add_tenant();
  c.quotas.set_quota(ours, node, 3);
  for (const std::uint32_t devices : {5U, 4U}) {
    c.quotas.set_quota(theirs, device, devices);
    std::printf("3 nodes for us and %u GPUs for them: %s\n", devices, possible(c) ? "yes" : "no");
  }
  const bool reserved = c.cells.reserve(node, 3) && c.cells.reserve(device, 4);
  std::printf("reserved: %s\n", reserved ? "yes" : "no");
  print("all is healthy", c, ours);

  for (const std::uint32_t broken : {0U, 8U}) {
    const cell_id bad = c.tree.at(device, broken);
    c.spare.update(c.cells.cells(), c.good, bad, [&] { c.good.mark_bad(bad); });
    print("a GPU breaks", c, ours);
  }

  const cell_request request{.level = node, .usable = &c.good.usable()};
  while (const auto n = c.cells.find(request)) {
    if (!c.quotas.charge(ours, node)) break;
    c.spare.update(c.cells.cells(), c.good, *n, [&] { c.cells.allocate_at(*n); });
    print("a node is allocated", c, ours);
  }
  const cell_id healed = c.tree.at(device, 0);
  c.spare.update(c.cells.cells(), c.good, healed, [&] { c.good.mark_healthy(healed); });
  print("a GPU is repaired", c, ours);
}
