// How do I describe a cluster as a tree of racks, nodes and GPUs? One cluster has equal racks; the
// other one has nodes with 8, 4, 4 and 2 GPUs. The same function works on both kinds of tree.
// SPDX-License-Identifier: MIT
#include <apiary/topology/locality.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Prints the GPUs of the second node, and the lowest cell that contains it and another node.
template <class Tree>
void describe(const named_tree<Tree>& named) {
  const Tree& tree = named.tree();
  const level_t node = *named.find_level("node");
  const cell_id second = tree.at(node, 1);
  const auto devices = tree.descendants(second, 0);
  std::printf("%s: %u GPUs; %s has %s to %s, in %s\n", named.chain_name().c_str(),
              tree.cells(0).size(), named.cell_name(second).c_str(),
              named.cell_name(devices[0]).c_str(),
              named.cell_name(devices[devices.size() - 1]).c_str(),
              named.cell_name(tree.parent(second, node)).c_str());
  for (const std::uint32_t other : {2U, 3U}) {
    const std::vector<cell_id> gang{second, tree.at(node, other)};
    const level_t spread = spread_level(tree, gang);
    std::printf("  lowest cell of %s and %s: %s\n", named.cell_name(gang[0]).c_str(),
                named.cell_name(gang[1]).c_str(),
                spread < tree.num_levels() ? named.level_name(spread).c_str() : "none");
  }
}

}  // namespace

int main() {
  const auto even =
      named_tree<uniform_tree>::create({"v100", {{"rack", {2}}, {"node", {2}}, {"gpu", {8}}}});
  const auto old =
      named_tree<ragged_tree>::create({"k80",
                                       {{"rack", {2}},
                                        {"node", {3, 1}, {"east", "west", "north", "south"}},
                                        {"gpu", {8, 4, 4, 2}}}});
  if (!even.ok() || !old.ok()) return 1;
  describe(*even);
  describe(*old);
  std::printf("k80 gpu-13 is in %s\n",
              old->cell_name(old->tree().parent(*old->find_cell("gpu-13"), 0)).c_str());

  const auto wrong = named_tree<uniform_tree>::create({"v100", {{"node", {0}}, {"node", {8}}}});
  std::printf("%s\n", std::string(wrong.status().message()).c_str());
}
