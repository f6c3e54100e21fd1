// How do I try a change and undo it? A tenant asks whether four nodes would fit beside its running
// job, or without it. A transaction tries that on the real state; if it is not committed, it is
// rolled back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/journal.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdio>

using namespace apiary;

namespace {

enum : level_t { device, node, rack };

struct cluster {
  uniform_tree tree{2, 2, 8};
  buddy_allocator<uniform_tree> cells{tree};
  quota_ledger quotas{tree.num_levels()};
  journal log;
};

// Whether the tenant's quota and the free cells admit n more nodes.
bool take_nodes(transaction& tx, cluster& c, tenant_id tenant, int n) {
  for (int i = 0; i < n; ++i)
    if (!tx.charge(c.quotas, tenant, node) || !tx.allocate(c.cells, node)) return false;
  return true;
}

void print(const char* what, const cluster& c, tenant_id tenant) {
  std::printf("%-30s free nodes and racks: %u %u, quota left: %u\n", what, c.cells.free_count(node),
              c.cells.free_count(rack), c.quotas.remaining(tenant, node));
}

}  // namespace

int main() {
  cluster c;
  const tenant_id tenant = c.quotas.add_tenant();
  c.quotas.set_quota(tenant, node, 4);
  const cell_id job = *c.cells.allocate(node);
  if (!c.quotas.charge(tenant, node)) return 1;
  print("one job runs", c, tenant);

  {
    transaction tx(c.log);
    std::printf("four nodes beside the job: %s\n", take_nodes(tx, c, tenant, 4) ? "yes" : "no");
    print("while trying", c, tenant);
  }
  print("rolled back", c, tenant);

  transaction tx(c.log);
  {
    transaction stop(c.log);
    stop.release(c.cells, job);
    stop.refund(c.quotas, tenant, node);
    stop.commit();
  }
  const bool fits = take_nodes(tx, c, tenant, 4);
  std::printf("four nodes without the job: %s\n", fits ? "yes" : "no");
  if (fits) tx.commit();
  print("committed", c, tenant);
}
