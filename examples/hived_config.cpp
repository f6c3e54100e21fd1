// How do I read a HiveD cluster and its tenants from YAML? The program prints a correct
// configuration and its fields without effect, then all errors of a wrong one. With an argument it
// reads that file instead.
// SPDX-License-Identifier: MIT
#include "programs/hived_yaml.h"
#include <apiary/core/status.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <absl/status/statusor.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace apiary;

namespace {

const std::string good = R"(
physicalCluster:
  skuTypes: { V100: { gpu: 1, cpu: 6, memory: 56Gi } }
  cellTypes:
    PAIR: { childCellType: V100, childCellNumber: 2 }
    NODE: { childCellType: PAIR, childCellNumber: 2, isNodeLevel: true }
    RACK: { childCellType: NODE, childCellNumber: 2 }
  physicalCells:
  - cellType: RACK
    cellChildren: [{ cellAddress: n0 }, { cellAddress: n1, pinnedCellId: product-node }]
  - cellType: RACK
    cellChildren: [{ cellAddress: n2 }, { cellAddress: n3 }]
virtualClusters:
  research: { virtualCells: [{ cellType: RACK, cellNumber: 1 }] }
  product:
    virtualCells: [{ cellType: RACK.NODE.PAIR, cellNumber: 2 }]
    pinnedCells: [{ pinnedCellId: product-node }]
)";

const std::string bad = R"(
physicalCluster:
  cellTypes:
    NODE: { childCellType: V100, childCellNumber: 4, isNodeLevel: true }
  physicalCells:
  - { cellType: NODE, cellAddress: n0 }
  - { cellType: NODE, cellAddress: n0 }
virtualClusters:
  research: { virtualCells: [{ cellType: NODE, cellNumber: 3 }] }
  product: { pinnedCells: [{ pinnedCellId: product-node }] }
)";

// Prints the chains with their nodes and the tenants with their cells, or all errors.
void show(const absl::StatusOr<hived_config>& config) {
  const auto layout = config.ok() ? hived_layout::create(*config) : config.status();
  if (!layout.ok()) {
    std::printf("errors:\n%s\n", std::string(layout.status().message()).c_str());
    return;
  }
  for (const chain_layout& chain : layout->chains) {
    std::printf("chain %s, %u x %s:", chain.name.c_str(), chain.tree.num_leaves(),
                chain.level_types[0].c_str());
    for (const std::string& node : chain.node_names) std::printf(" %s", node.c_str());
    std::printf("\n");
  }
  for (const tenant_layout& tenant : layout->tenants) {
    std::printf("tenant %s:", tenant.name.c_str());
    for (std::size_t c = 0; c < tenant.quota.size(); ++c) {
      for (level_t l = 0; l < tenant.quota[c].size(); ++l) {
        const std::string& type = layout->chains[c].level_types[l];
        if (tenant.quota[c][l] > 0) std::printf(" %u x %s", tenant.quota[c][l], type.c_str());
      }
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> warnings;
  show(argc > 1 ? example::load_hived_yaml(argv[1], &warnings)
                : example::parse_hived_yaml(good, &warnings));
  for (const std::string& warning : warnings) std::printf("warning: %s\n", warning.c_str());
  if (argc == 1) show(example::parse_hived_yaml(bad));
}
