// apiary/examples/hived_drawing.h - draws a HiveD cluster as text: which gang uses which leaf.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/topology/tree.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {
namespace drawing {

using namespace apiary;
using apiary::detail::text_of;

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
    if (others_ > 0) line({"... ", others_, " more tenants, nothing in use"});
    if (!rest.empty()) line({"? without tenant"});
    draw_gangs(rest);
    std::string signs;
    const auto explain = [&](const std::string& entry) {
      if (!signs.empty() && signs.size() + entry.size() + 2 > width_) {
        line({signs});
        signs.clear();
      }
      append(signs, {signs.empty() ? "" : "; ", entry});
    };
    if (labels_) explain("capitals: guaranteed; small letters: opportunistic");
    if (labels_) explain("digit: last digit of the job");
    if (bad_) explain("xx: bad; !: used and bad");
    if (claims_) explain("next: claimed by");
    if (!signs.empty()) line({signs});
    return std::move(text_);
  }

 private:
  static constexpr std::size_t max_name = 16;  // characters of a node name
  static constexpr std::size_t run = 4;        // this many equal entries are summarized
  // A node as drawn.
  struct row {
    std::vector<std::string> users{};   // text lines
    std::vector<std::string> claims{};  // one for each line of `users`, or none
    std::string owners{};
    friend bool operator==(const row&, const row&) = default;
  };
  // Appends a text line; shortens it if it is too long.
  void line(std::initializer_list<absl::AlphaNum> pieces) {
    std::string text = text_of(pieces);
    if (text.size() > width_) text.replace(width_ - 1, std::string::npos, "~");
    text.erase(text.find_last_not_of(' ') + 1);
    append(text_, {text, "\n"});
  }
  static void append(std::string& text, std::initializer_list<absl::AlphaNum> pieces) {
    text += text_of(pieces);
  }
  [[nodiscard]] static std::string ascii(std::string_view name) {
    std::string out(name);
    for (char& c : out)
      if (c < ' ' || c > '~') c = '?';
    return out;
  }
  // The end of a long name: names usually differ there.
  [[nodiscard]] static std::string short_name(std::string_view name) {
    if (name.size() <= max_name) return ascii(name);
    return text_of({"~", ascii(name.substr(name.size() - max_name + 1))});
  }
  [[nodiscard]] std::string name(tenant_id t) const {
    return ascii(h_.layout().tenants[t.value].name);
  }
  [[nodiscard]] static std::string padded(std::string text, std::size_t size) {
    if (text.size() < size) text.append(size - text.size(), ' ');
    return text;
  }
  // The letter of the gang's tenant (capital: guaranteed) and the last digit of its job id.
  [[nodiscard]] std::string label(gang_slot s, bool guaranteed) {
    labels_ = true;
    const gang_request& r = h_.gangs()[s].request;
    char letter = r.tenant.valid() ? letters_[r.tenant.value] : '?';
    if (!guaranteed && letter != '?') letter = static_cast<char>(letter | 0x20);
    return {letter, static_cast<char>('0' + r.job.value % 10)};
  }
  // The gang that runs on a leaf, and the health of the leaf.
  [[nodiscard]] std::string user(const detail::physical_chain& chain, cell_id leaf) {
    const detail::leaf_holders holders = chain.holders(leaf);
    const bool good = chain.healthy().healthy(leaf);
    bad_ = bad_ || !good;
    if (!holders.user.valid()) return good ? ".. " : "xx ";
    return text_of({label(holders.user, holders.guaranteed), good ? " " : "!"});
  }
  // The gang that has claimed a leaf.
  [[nodiscard]] std::string claimer(const detail::physical_chain& chain, cell_id leaf) {
    const gang_slot s = chain.holders(leaf).claimer;
    claims_ = claims_ || s.valid();
    return s.valid() ? text_of({label(s, true), " "}) : "   ";
  }
  // The tenant that owns this cell as a whole cell, with the id of a pinned cell; else empty.
  [[nodiscard]] std::string owner(std::uint32_t c, cell_id cell, level_t l) const {
    const detail::hived_cells& cells = h_.cells();
    const detail::virtual_cell v = cells.chain(c).owner(cell);
    if (!v.cell.valid()) return "";
    const detail::virtual_cluster& cluster = cells.cluster(v.cluster);
    if (cluster.tree().parent(v.cell, l).valid()) return "";
    std::string tenant = name(cluster.tenant());
    if (!cells.is_pinned(v.cluster)) return tenant;
    for (const pinned_layout& p : h_.layout().pinned)
      if (p.chain.value == c && p.cell == cell) return text_of({tenant, " (", ascii(p.id), ")"});
    return tenant;
  }
  // The owners of a node and of the cells in it.
  [[nodiscard]] std::string owners(std::uint32_t c, cell_id node) const {
    const detail::physical_chain& chain = h_.cells().chain(c);
    std::string text = owner(c, node, chain.node_level());
    for (level_t l = chain.node_level(); l-- > 0;) {
      std::uint32_t first = 0;
      for (const cell_id inner : chain.tree().descendants(node, l)) {
        const std::string whose = owner(c, inner, l);
        const std::uint32_t n = chain.tree().leaves_per_cell(l);
        if (!whose.empty()) {
          append(text, {text.empty() ? "" : ", ", whose, " ", first});
          if (n > 1) append(text, {"-", first + n - 1});
        }
        first += n;
      }
    }
    return text;
  }
  // The leaves of a node, in text lines of at most `columns` characters, with gaps between cells.
  [[nodiscard]] row row_of(std::uint32_t c, cell_id node, std::size_t columns) {
    const detail::physical_chain& chain = h_.cells().chain(c);
    const level_t top = chain.node_level();
    const std::uint32_t group = top > 0 ? chain.tree().leaves_per_cell(top - 1) : 1;
    const std::size_t width = std::size_t{3} * group;
    row r{.users = {""}, .claims = {""}, .owners = owners(c, node)};
    bool claimed = false;
    std::uint32_t i = 0;
    for (const cell_id leaf : chain.tree().descendants(node, 0)) {
      std::string gap;
      for (level_t l = 1; l < top; ++l) {
        if (i > 0 && i % chain.tree().leaves_per_cell(l) == 0) gap = l + 1 == top ? "| " : " ";
      }
      const std::size_t ahead = i % group == 0 && width <= columns ? width : 3;
      if (i > 0 && r.users.back().size() + gap.size() + ahead > columns) {
        r.users.emplace_back();
        r.claims.emplace_back();
        gap.clear();
      }
      append(r.users.back(), {gap, user(chain, leaf)});
      append(r.claims.back(), {std::string(gap.size(), ' '), claimer(chain, leaf)});
      claimed = claimed || chain.holders(leaf).claimer.valid();
      ++i;
    }
    if (!claimed) r.claims.clear();
    return r;
  }
  void draw_chain(std::uint32_t c) {
    const detail::physical_chain& chain = h_.cells().chain(c);
    const chain_layout& layout = h_.layout().chains[c];
    std::string head = text_of(
        {ascii(layout.name), ": ", chain.tree().num_leaves(), " ", ascii(layout.level_types[0])});
    const auto count = [&](const char* what, auto&& is_one) {
      const id_range<cell_id> all = chain.tree().cells(0);
      if (const auto n = std::count_if(all.begin(), all.end(), is_one); n > 0)
        append(head, {", ", n, what});
    };
    const auto at = [&](cell_id leaf) { return chain.holders(leaf); };
    count(" guaranteed", [&](cell_id l) { return at(l).user.valid() && at(l).guaranteed; });
    count(" opportunistic", [&](cell_id l) { return at(l).user.valid() && !at(l).guaranteed; });
    count(" claimed", [&](cell_id l) { return at(l).claimer.valid(); });
    count(" bad", [&](cell_id l) { return !chain.healthy().healthy(l); });
    line({head});
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
    const std::string space(indent, ' ');
    const bool nodes = l == chain.node_level();
    for (std::uint32_t i = 0; i < cells.size();) {
      std::uint32_t alike = 0;
      while (i + alike < cells.size() && idle(chain, cells[i + alike])) ++alike;
      if (alike >= run) {
        line({space, "... ", alike, " idle ", type});
        i += alike;
      } else if (nodes) {
        i += draw_nodes(c, {cells[i], cells.last}, indent);
      } else {
        const std::string whose = owner(c, cells[i], l);
        line({space, type, " ", chain.tree().index(cells[i], l), whose.empty() ? "" : ": ", whose});
        draw_cells(c, l - 1, chain.tree().children(cells[i++], l), indent + 2);
      }
    }
  }
  // Draws the first node, and the number of equal nodes after it. Returns how many nodes it drew.
  std::uint32_t draw_nodes(std::uint32_t c, id_range<cell_id> nodes, std::size_t indent) {
    const chain_layout& layout = h_.layout().chains[c];
    const std::string space(indent, ' ');
    const std::size_t before = indent + name_width_ + 2;
    const std::size_t taken =
        before + (std::min)(width_ / 4, std::size_t{24});  // including the owners
    const std::size_t columns = (std::max)(width_, taken + 12) - taken;
    const row r = row_of(c, nodes.first, columns);
    const std::uint32_t n = layout.tree.index(nodes.first, layout.node_level);
    std::size_t longest = 0;
    for (const std::string& users : r.users) longest = (std::max)(longest, users.size());
    for (std::size_t i = 0; i < r.users.size(); ++i) {
      const std::string title = i == 0 ? short_name(layout.node_names[n]) : "";
      const std::string before_users = padded(title, name_width_ + 2);
      if (i == 0) {
        line({space, before_users, padded(r.users[i], longest), " ", r.owners});
      } else {
        line({space, before_users, r.users[i]});
      }
      if (!r.claims.empty()) line({space, padded("next", name_width_ + 2), r.claims[i]});
    }
    std::uint32_t alike = 1;
    while (alike < nodes.size() && row_of(c, nodes[alike], columns) == r) ++alike;
    if (alike < run) return 1;
    line({space, "... ", alike - 1, " more like it"});
    return alike;
  }
  // Draws how many of its whole cells a tenant has in use. `any`: the tenant has gangs. If there
  // are more than 26 tenants, those that use nothing are only counted.
  void draw_tenant(tenant_id t, bool any) {
    std::string text;
    for (std::uint32_t c = 0; c < h_.cells().num_chains(); ++c) {
      const chain_layout& chain = h_.layout().chains[c];
      for (level_t l = chain.tree.num_levels(); l-- > 0;) {
        const std::uint32_t quota = h_.cells().ledger(c).quota(t, l);
        const std::uint32_t bound = h_.cells().ledger(c).allocated(t, l);
        any = any || bound > 0;
        if (quota == 0) continue;
        append(text,
               {text.empty() ? "" : ", ", bound, " of ", quota, " ", ascii(chain.level_types[l])});
      }
    }
    if (!any && letters_.size() > 26) {
      ++others_;
      return;
    }
    line({std::string(1, letters_[t.value]), " ", padded(name(t), tenant_width_),
          text.empty() ? "" : "  bound: ", text});
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
  [[nodiscard]] std::string describe(const gang_record& gang) const {
    std::vector<std::uint32_t> in(h_.cells().num_chains());
    for (const chain_leaf& l : gang.leaves) in[l.chain] += l.leaf.valid() ? 1U : 0U;
    std::string where;
    for (std::uint32_t c = 0; c < in.size(); ++c) {
      if (in[c] == 0) continue;
      append(where, {where.empty() ? "" : " and ", in[c], " ",
                     ascii(h_.layout().chains[c].level_types[0])});
    }
    const bool opportunistic = gang.request.priority < 0;
    const bool runs = gang.state == gang_state::allocated;
    std::string text = "opportunistic";
    if (!opportunistic) text = text_of({"priority ", gang.request.priority});
    append(text, {where.empty() ? ", runs" : runs ? ", runs on " : ", claims ", where});
    if (!gang.missing.empty()) append(text, {", ", gang.missing.size(), " missing"});
    append(text, {opportunistic || gang.guaranteed() ? "" : ", now opportunistic",
                  h_.being_preempted(gang) ? ", must end" : ""});
    return text;
  }
  // Draws one text line for each gang; equal gangs are summarized.
  void draw_gangs(std::span<const gang_slot> gangs) {
    while (!gangs.empty()) {
      const gang_record& gang = h_.gangs()[gangs[0]];
      const std::string text = describe(gang);
      line(
          {"  ", label(gangs[0], gang.guaranteed()), "  job ", gang.request.job.value, ", ", text});
      std::size_t alike = 1;
      while (alike < gangs.size() && describe(h_.gangs()[gangs[alike]]) == text) ++alike;
      if (alike < run) alike = 1;
      if (alike > 1) line({"  ... ", alike - 1, " more like it"});
      gangs = gangs.subspan(alike);
    }
  }
  const hived& h_;
  std::size_t width_;
  std::string letters_;  // one for each tenant
  std::string text_;
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
