// apiary/examples/hived_drawing.h - draws a HiveD cluster as text: which gang uses which leaf.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <ios>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace example {
namespace drawing {

using namespace apiary;

// Draws a cluster. An object makes one drawing.
class hived_drawing {
 public:
  // The drawing is at least 40 characters wide. A tenant gets the first letter of its name that no
  // other tenant has, otherwise the first such letter of the alphabet. Tenants after the 26th have
  // letters of other tenants.
  hived_drawing(const hived& h, std::size_t width)
      : h_(h), width_((std::max)(width, std::size_t{40})) {
    std::uint32_t taken = 0;  // bit i: the i-th letter is used
    for (const tenant_layout& tenant : h.layout().tenants) {
      std::uint32_t letter = 26;
      for (const char c : tenant.name) {
        const auto i = static_cast<std::uint32_t>((c | 0x20) - 'a');
        if (i >= 26 || (taken >> i & 1) != 0) continue;
        letter = i;
        break;
      }
      if (letter == 26) letter = static_cast<std::uint32_t>(std::countr_one(taken));
      if (letter >= 26) letter = static_cast<std::uint32_t>(letters_.size() % 26);
      taken |= 1U << letter;
      letters_.push_back(static_cast<char>('A' + letter));
      tenant_width_ = (std::max)(tenant_width_, (std::min)(tenant.name.size(), std::size_t{24}));
    }
  }
  // The text: the chains, then the tenants with their gangs, then the legend.
  std::string operator()() {
    for (std::uint32_t c = 0; c < h_.cells().num_chains(); ++c) draw_chain(c);
    const std::vector<gang_slot> gangs = gangs_by_tenant();
    std::span<const gang_slot> rest = gangs;
    for (std::uint32_t t = 0; t < letters_.size(); ++t) {
      std::size_t own = 0;
      while (own < rest.size() && h_.gangs()[rest[own]].request.tenant == tenant_id(t)) ++own;
      draw_tenant(tenant_id(t), own > 0);
      draw_gangs(rest.first(own));
      rest = rest.subspan(own);
    }
    if (others_ > 0) out_ << "... " << others_ << " more tenants, nothing in use\n";
    if (!rest.empty()) out_ << "? without tenant\n";
    draw_gangs(rest);
    line_ = position();
    if (labels_) explain("capitals: guaranteed; small letters: opportunistic");
    if (labels_) explain("digit: last digit of the job");
    if (bad_) explain("xx: bad; !: used and bad");
    if (claims_) explain("next: claimed by");
    if (position() > line_) out_ << '\n';
    return in_lines();
  }

 private:
  static constexpr std::size_t max_name = 16;  // characters of a node name
  static constexpr std::size_t run = 4;        // this many equal entries are summarized

  [[nodiscard]] std::size_t position() { return static_cast<std::size_t>(out_.tellp()); }
  // The text from a position on.
  [[nodiscard]] std::string_view from(std::size_t at) {
    return out_.view().substr(at, position() - at);
  }
  // Removes the text from a position on. Returns whether it was this text.
  bool take_back(std::size_t at, std::string_view what) {
    const bool same = from(at) == what;
    out_.seekp(static_cast<std::streamoff>(at));
    return same;
  }
  // Adds spaces up to a column of the line that begins at line_.
  void pad(std::size_t columns) {
    for (std::size_t at = position(); at < line_ + columns; ++at) out_ << ' ';
  }
  void end_line() {
    out_ << '\n';
    line_ = position();
  }
  // The text in lines that are not too long and do not end with spaces.
  [[nodiscard]] std::string in_lines() {
    std::string all;
    for (std::size_t at = 0; at < position();) {
      const std::string_view rest = from(at);
      std::string line(rest.substr(0, rest.find('\n')));
      at += line.size() + 1;
      if (line.size() > width_) {
        line.resize(width_ - 1);
        line += '~';
      }
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + '\n';
    }
    return all;
  }
  void explain(std::string_view entry) {
    if (position() > line_ && position() - line_ + entry.size() + 2 > width_) end_line();
    out_ << (position() > line_ ? "; " : "") << entry;
  }
  [[nodiscard]] static std::string ascii(std::string_view name) {
    std::string text(name);
    for (char& c : text)
      if (c < ' ' || c > '~') c = '?';
    return text;
  }
  // The end of a long name: names usually differ there.
  [[nodiscard]] static std::string short_name(const std::string& name) {
    if (name.size() <= max_name) return ascii(name);
    return "~" + ascii(name.substr(name.size() - max_name + 1));
  }
  // The letter of the gang's tenant (capital: guaranteed) and the last digit of its job id.
  void put_label(gang_slot s, bool guaranteed) {
    labels_ = true;
    const gang_request& r = h_.gangs()[s].request;
    char letter = r.tenant.valid() ? letters_[r.tenant.value] : '?';
    if (!guaranteed && letter != '?') letter = static_cast<char>(letter | 0x20);
    out_ << letter << r.job.value % 10;
  }
  // The gang that runs on a leaf, and the health of the leaf.
  void put_user(const detail::physical_chain& chain, cell_id leaf) {
    const detail::leaf_holders holders = chain.holders(leaf);
    const bool good = chain.healthy().healthy(leaf);
    bad_ = bad_ || !good;
    if (!holders.user.valid()) {
      out_ << (good ? ".. " : "xx ");
    } else {
      put_label(holders.user, holders.guaranteed);
      out_ << (good ? ' ' : '!');
    }
  }
  // The gang that has claimed a leaf.
  void put_claimer(const detail::physical_chain& chain, cell_id leaf) {
    const gang_slot s = chain.holders(leaf).claimer;
    if (!s.valid()) {
      out_ << "   ";
      return;
    }
    claims_ = true;
    put_label(s, true);
    out_ << ' ';
  }
  // The tenant that owns this cell as a whole cell, with the id of a pinned cell, after a
  // separator. Returns whether there is one.
  bool put_owner(std::uint32_t c, cell_id cell, level_t l, std::string_view separator) {
    const detail::hived_cells& cells = h_.cells();
    const detail::virtual_cell v = cells.chain(c).owner(cell);
    if (!v.cell.valid()) return false;
    const detail::virtual_cluster& cluster = cells.cluster(v.cluster);
    if (cluster.tree().parent(v.cell, l).valid()) return false;
    out_ << separator << ascii(h_.layout().tenants[cluster.tenant().value].name);
    if (!cells.is_pinned(v.cluster)) return true;
    for (const pinned_layout& p : h_.layout().pinned)
      if (p.chain.value == c && p.cell == cell) out_ << " (" << ascii(p.id) << ')';
    return true;
  }
  // The owners of a node and of the cells in it.
  void put_owners(std::uint32_t c, cell_id node) {
    const detail::physical_chain& chain = h_.cells().chain(c);
    bool any = put_owner(c, node, chain.node_level(), "");
    for (level_t l = chain.node_level(); l-- > 0;) {
      std::uint32_t first = 0;
      const std::uint32_t n = chain.tree().leaves_per_cell(l);
      for (const cell_id inner : chain.tree().descendants(node, l)) {
        if (put_owner(c, inner, l, any ? ", " : "")) {
          any = true;
          out_ << ' ' << first;
          if (n > 1) out_ << '-' << first + n - 1;
        }
        first += n;
      }
    }
  }
  // What separates the i-th leaf of a node from the one before it.
  [[nodiscard]] static std::string_view gap(const detail::physical_chain& chain, std::uint32_t i) {
    const level_t top = chain.node_level();
    std::string_view text;
    for (level_t l = 1; l < top && i > 0; ++l)
      if (i % chain.tree().leaves_per_cell(l) == 0) text = l + 1 == top ? "| " : " ";
    return text;
  }
  // Draws a node under this name, in one or more lines.
  void draw_node(std::uint32_t c, cell_id node, const std::string& name, std::size_t indent) {
    const detail::physical_chain& chain = h_.cells().chain(c);
    const std::size_t before = indent + name_width_ + 2;
    const std::size_t taken =
        before + (std::min)(width_ / 4, std::size_t{24});  // including the owners
    const std::size_t columns = (std::max)(width_, taken + 12) - taken;
    const level_t top = chain.node_level();
    const std::uint32_t group = top > 0 ? chain.tree().leaves_per_cell(top - 1) : 1;
    const std::size_t width = std::size_t{3} * group;
    const id_range<cell_id> leaves = chain.tree().descendants(node, 0);
    std::vector<std::uint32_t> first;  // leaf of each line
    std::size_t size = 0;              // of the last line
    std::size_t longest = 0;
    bool claimed = false;
    for (std::uint32_t i = 0; i < leaves.size(); ++i) {
      const std::size_t ahead = i % group == 0 && width <= columns ? width : 3;
      size += gap(chain, i).size();
      if (i == 0 || size + ahead > columns) {
        first.push_back(i);
        size = 0;
      }
      size += 3;
      longest = (std::max)(longest, size);
      claimed = claimed || chain.holders(leaves[i]).claimer.valid();
    }
    first.push_back(leaves.size());
    for (std::size_t k = 0; k + 1 < first.size(); ++k) {
      pad(indent);
      if (k == 0) out_ << name;
      pad(before);
      for (std::uint32_t i = first[k]; i < first[k + 1]; ++i) {
        if (i > first[k]) out_ << gap(chain, i);
        put_user(chain, leaves[i]);
      }
      if (k == 0) {
        pad(before + longest);
        out_ << ' ';
        put_owners(c, node);
      }
      end_line();
      if (!claimed) continue;
      pad(indent);
      out_ << "next";
      pad(before);
      for (std::uint32_t i = first[k]; i < first[k + 1]; ++i) {
        if (i > first[k]) pad(position() - line_ + gap(chain, i).size());
        put_claimer(chain, leaves[i]);
      }
      end_line();
    }
  }
  void draw_chain(std::uint32_t c) {
    const detail::physical_chain& chain = h_.cells().chain(c);
    const chain_layout& layout = h_.layout().chains[c];
    std::uint32_t guaranteed = 0;
    std::uint32_t opportunistic = 0;
    std::uint32_t claimed = 0;
    std::uint32_t bad = 0;
    for (const cell_id leaf : chain.tree().cells(0)) {
      const detail::leaf_holders holders = chain.holders(leaf);
      if (holders.user.valid()) ++(holders.guaranteed ? guaranteed : opportunistic);
      claimed += holders.claimer.valid() ? 1U : 0U;
      bad += chain.healthy().healthy(leaf) ? 0U : 1U;
    }
    out_ << ascii(layout.name) << ": " << chain.tree().num_leaves() << ' '
         << ascii(layout.level_types[0]);
    if (guaranteed > 0) out_ << ", " << guaranteed << " guaranteed";
    if (opportunistic > 0) out_ << ", " << opportunistic << " opportunistic";
    if (claimed > 0) out_ << ", " << claimed << " claimed";
    if (bad > 0) out_ << ", " << bad << " bad";
    end_line();
    name_width_ = 4;
    for (const std::string& n : layout.node_names)
      name_width_ = (std::max)(name_width_, (std::min)(n.size(), max_name));
    const level_t top = chain.tree().num_levels() - 1;
    draw_cells(c, top, chain.tree().cells(top), 2);
  }
  [[nodiscard]] static bool idle(const detail::physical_chain& chain, cell_id c) {
    return chain.cells().cells().enclosing_free_level(c) && chain.opportunistic_leaves(c) == 0 &&
           chain.healthy().healthy(c);
  }
  // Draws adjacent cells of level l.
  void draw_cells(std::uint32_t c, level_t l, id_range<cell_id> cells, std::size_t indent) {
    const detail::physical_chain& chain = h_.cells().chain(c);
    const std::string type = ascii(h_.layout().chains[c].level_types[l]);
    for (std::uint32_t i = 0; i < cells.size();) {
      std::uint32_t alike = 0;
      while (i + alike < cells.size() && idle(chain, cells[i + alike])) ++alike;
      pad(indent);
      if (alike >= run) {
        out_ << "... " << alike << " idle " << type;
        end_line();
        i += alike;
      } else if (l == chain.node_level()) {
        i += draw_nodes(c, {cells[i], cells.last}, indent);
      } else {
        out_ << type << ' ' << chain.tree().index(cells[i], l);
        put_owner(c, cells[i], l, ": ");
        end_line();
        draw_cells(c, l - 1, chain.tree().children(cells[i++], l), indent + 2);
      }
    }
  }
  // Draws the first node, and the number of equal nodes after it. Returns how many nodes it drew.
  std::uint32_t draw_nodes(std::uint32_t c, id_range<cell_id> nodes, std::size_t indent) {
    const chain_layout& layout = h_.layout().chains[c];
    const std::uint32_t n = layout.tree.index(nodes.first, layout.node_level);
    const std::string name = short_name(layout.node_names[n]);
    const std::size_t begin = line_;
    draw_node(c, nodes.first, name, indent);
    const std::string drawn(from(begin));
    std::uint32_t alike = 1;
    for (; alike < nodes.size(); ++alike) {
      const std::size_t end = line_;
      draw_node(c, nodes[alike], name, indent);
      line_ = end;
      if (!take_back(end, drawn)) break;
    }
    if (alike < run) return 1;
    pad(indent);
    out_ << "... " << alike - 1 << " more like it";
    end_line();
    return alike;
  }
  // Draws how many of its whole cells a tenant has in use. `any`: the tenant has gangs. If there
  // are more than 26 tenants, those that use nothing are only counted.
  void draw_tenant(tenant_id t, bool any) {
    out_ << letters_[t.value] << ' ' << ascii(h_.layout().tenants[t.value].name);
    pad(tenant_width_ + 2);
    const char* separator = "  bound: ";
    for (std::uint32_t c = 0; c < h_.cells().num_chains(); ++c) {
      const chain_layout& chain = h_.layout().chains[c];
      for (level_t l = chain.tree.num_levels(); l-- > 0;) {
        const std::uint32_t quota = h_.cells().ledger(c).quota(t, l);
        const std::uint32_t bound = h_.cells().ledger(c).allocated(t, l);
        any = any || bound > 0;
        if (quota == 0) continue;
        out_ << separator << bound << " of " << quota << ' ' << ascii(chain.level_types[l]);
        separator = ", ";
      }
    }
    if (any || letters_.size() <= 26) {
      end_line();
    } else {
      take_back(line_, "");
      ++others_;
    }
  }
  // All gangs in order of tenant (gangs without a tenant last). Of a tenant, guaranteed gangs come
  // first, then those of higher priority, then those of lower job id.
  [[nodiscard]] std::vector<gang_slot> gangs_by_tenant() const {
    std::vector<gang_slot> all = h_.gangs().by_job();
    detail::merge_sort(all, [&](gang_slot a, gang_slot b) {
      const gang_record& first = h_.gangs()[a];
      const gang_record& second = h_.gangs()[b];
      if (first.request.tenant != second.request.tenant)
        return first.request.tenant < second.request.tenant;
      return first.rank() > second.rank();
    });
    return all;
  }
  // The priority of a gang, its state, and the number of its leaves.
  void put_state(const gang_record& gang) {
    std::vector<std::uint32_t> in(h_.cells().num_chains());
    for (const chain_leaf& l : gang.leaves) in[l.chain] += l.leaf.valid() ? 1U : 0U;
    const bool opportunistic = gang.request.priority < 0;
    const bool runs = gang.state == gang_state::allocated;
    if (opportunistic) {
      out_ << "opportunistic";
    } else {
      out_ << "priority " << gang.request.priority;
    }
    bool any = false;
    for (std::uint32_t c = 0; c < in.size(); ++c) {
      if (in[c] == 0) continue;
      out_ << (any    ? " and "
               : runs ? ", runs on "
                      : ", claims ")
           << in[c] << ' ' << ascii(h_.layout().chains[c].level_types[0]);
      any = true;
    }
    if (!any) out_ << ", runs";
    if (!gang.missing.empty()) out_ << ", " << gang.missing.size() << " missing";
    if (!opportunistic && !gang.guaranteed()) out_ << ", now opportunistic";
    if (h_.being_preempted(gang)) out_ << ", must end";
  }
  // Draws one text line for each gang; equal gangs are summarized.
  void draw_gangs(std::span<const gang_slot> gangs) {
    while (!gangs.empty()) {
      const gang_record& gang = h_.gangs()[gangs[0]];
      out_ << "  ";
      put_label(gangs[0], gang.guaranteed());
      out_ << "  job " << gang.request.job.value << ", ";
      const std::size_t begin = position();
      put_state(gang);
      const std::string state(from(begin));
      end_line();
      std::size_t alike = 1;
      for (; alike < gangs.size(); ++alike) {
        put_state(h_.gangs()[gangs[alike]]);
        if (!take_back(line_, state)) break;
      }
      if (alike < run) alike = 1;
      if (alike > 1) out_ << "  ... " << alike - 1 << " more like it\n";
      line_ = position();
      gangs = gangs.subspan(alike);
    }
  }
  const hived& h_;
  std::size_t width_;
  std::string letters_;  // one for each tenant
  std::ostringstream out_;
  std::size_t line_ = 0;        // where its last line begins
  std::size_t name_width_ = 0;  // of the node names of a chain
  std::size_t tenant_width_ = 0;
  std::uint32_t others_ = 0;  // tenants left out
  bool labels_ = false;       // these three: whether the legend explains it
  bool bad_ = false;
  bool claims_ = false;
};

}  // namespace drawing

// Draws racks, nodes and leaves in ASCII, in lines of at most `width` characters (at least 40),
// then the tenants with their gangs (job, priority, state, leaves) and a legend. A node or
// larger cell names the tenant that owns it now; ".." is an idle leaf. Adjacent idle cells, and
// nodes and gangs that look alike, are summarized.
// Cost:    O(leaves + gangs * chains + tenants * chains), and a sort of the gangs.
// Example: hived_guarantee.cpp
[[nodiscard]] inline std::string draw(const apiary::hived& h, std::size_t width = 100) {
  return drawing::hived_drawing(h, width)();
}

}  // namespace example
