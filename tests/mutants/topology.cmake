# apiary/tests/mutants/topology.cmake - mutants of topology; ../cmake/mutants.cmake says how to write one.
# SPDX-License-Identifier: MIT

mutant(health_before topology/health.h "forgotten term: cells above count a leaf again that was bad"
  FROM [[bad = bad - before + after;]] TO [[bad = bad + after - (healthy ? before : 0);]] STATEMENT)
mutant(health_above topology/health.h "forgotten update: a cell above whose last bad leaf is mended stays bad"
  FROM [[usable_.assign(above.value, bad == 0);]]
  TO [[if (bad != 0) usable_.assign(above.value, false);]] STATEMENT)
mutant(health_inside topology/health.h "forgotten update: a cell inside one that is mended keeps its count"
  FROM [[bad_leaves_[d.value] = healthy ? 0 : tree_.descendants(d, 0).size();]]
  TO [[if (!healthy || d == c) bad_leaves_[d.value] = healthy ? 0 : tree_.descendants(d, 0).size();]]
  STATEMENT)
mutant(health_result topology/health.h "wrong result: leaves that were bad before count as newly bad"
  FROM [[after - before]] TO [[after]])
mutant(health_visit topology/health.h "wrong level: cells above the leaves are visited as if they were leaves"
  FROM [[if (l == 0) return f(c);]] TO [[if (l <= 1) return f(c);]] STATEMENT)
mutant(spread_of_half topology/locality.h "wrong index: the spread of the first half of the cells"
  FROM [[cells.back()]] TO [=[cells[(cells.size() - 1) / 2]]=])
mutant(spread_of_forest topology/locality.h "off by one: cells of two trees spread over the level of the roots"
  FROM [[a.valid() ? l : tree.num_levels()]] TO [[a.valid() ? l : tree.num_levels() - 1]])
mutant(spanned_last topology/locality.h "forgotten update: the last cell above is not kept"
  FROM [[last = above;]] TO [[if (!last.valid()) last = above;]] STATEMENT)
mutant(uniform_ancestor topology/uniform_tree.h "wrong level: a cell above the leaves is taken for a leaf"
  FROM [[index(c, from) * leaves_per_cell(from)]] TO [[index(c, from) * leaves_per_cell(0)]])
mutant(uniform_descendants topology/uniform_tree.h "off by one: the descendants of later cells begin one cell too late"
  IN [[first_[l] + index(c, from) * n;]] FROM [[index(c, from) * n]] TO [[index(c, from) * (n + 1)]])
mutant(uniform_parent topology/uniform_tree.h "off by one: cells of the second level have no parent"
  FROM [[l + 1 >= num_levels_]] TO [[l + 2 >= num_levels_]])
mutant(ragged_end topology/ragged_tree.h "forgotten update: the children of the last cell have no end"
  IN [[    }
    first_child[p] = c;]] FROM [[first_child[p] = c;]] TO [[]] STATEMENT)
mutant(ragged_descendants topology/ragged_tree.h "wrong index: the descendants end with those of the first child"
  FROM [[end = first_child_[end];]] TO [[end = first_child_[begin + 1];]] STATEMENT)
mutant(level_of_first_cell topology/tree.h "wrong comparison: the first cell of a level counts as one of the level above"
  FROM [[c.value < first_[k] ? 1U : 0U]] TO [[c.value <= first_[k] ? 1U : 0U]])
mutant(positions_of_whole topology/tree.h "wrong index: positions inside a cell are ids"
  FROM [[cell_id(cells.first.value - first)]] TO [[cell_id(cells.first.value)]])
mutant(cell_name_index topology/named_tree.h "off by one: an index beyond the level names a cell"
  FROM [[parts->index >= cells.size()]] TO [[parts->index > cells.size()]])
mutant(cell_name_leading_zero topology/named_tree.h "off by one: an index with a leading zero names a cell"
  FROM [[digits[0] == '0' && digits.size() > 1]] TO [[digits[0] == '0' && digits.size() > 2]])
mutant(cell_name_reserved topology/named_tree.h "swapped condition: a given name may look like a generated one"
  FROM [[at == generated.end() || !at->second]] TO [[at == generated.end() || at->second]])
mutant(shape_of_known_width topology/named_tree.h "dropped condition: the width below a fault is taken for known"
  FROM [[above = !known ? 0 : fan_outs.size() == 1 ? above * fan_outs[0] : sum;]]
  TO [[above = fan_outs.size() == 1 ? above * fan_outs[0] : sum;]] STATEMENT)
mutant(cell_names_plural topology/cell_names.h "wrong comparison: no cell at all is called by the singular"
  FROM [[n == 1 ? level(l) : levels(l)]] TO [[n <= 1 ? level(l) : levels(l)]])
mutant(cell_names_more topology/cell_names.h "off by one: as many cells as may be shown are shortened"
  FROM [[positions.size() <= most ? positions.size() : most]]
  TO [[positions.size() < most ? positions.size() : most - 1]])
