// apiary/tests/support/archetypes.h - types that offer what a concept asks for, and nothing else.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <cstdint>

namespace apiary_test {

// Two roots of two leaves each; no default constructor, no comparison, no further members.
class tree_archetype {
 public:
  using cell_id = apiary::cell_id;
  using level_t = apiary::level_t;
  using range = apiary::id_range<cell_id>;

  static tree_archetype make() { return tree_archetype(2); }

  [[nodiscard]] level_t num_levels() const { return 2; }
  [[nodiscard]] std::uint32_t num_cells() const { return 3 * roots_; }
  [[nodiscard]] range cells(level_t l) const {
    return l == 1 ? range{cell_id(0), cell_id(roots_)}
                  : range{cell_id(roots_), cell_id(3 * roots_)};
  }
  [[nodiscard]] level_t level(cell_id c) const { return c.value < roots_ ? 1 : 0; }
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const {
    return l == 1 ? cell_id() : cell_id((c.value - roots_) / 2);
  }
  [[nodiscard]] range children(cell_id c, level_t l) const {
    if (l == 0) return {};
    return {cell_id(roots_ + 2 * c.value), cell_id(roots_ + 2 * c.value + 2)};
  }
  [[nodiscard]] cell_id ancestor(cell_id c, level_t l) const {
    return level(c) == l ? c : parent(c, 0);
  }
  [[nodiscard]] range descendants(cell_id c, level_t l) const {
    return level(c) == l ? range{c, cell_id(c.value + 1)} : children(c, 1);
  }

 private:
  explicit tree_archetype(std::uint32_t roots) : roots_(roots) {}
  std::uint32_t roots_;
};

static_assert(apiary::CellTree<tree_archetype>);

}  // namespace apiary_test
