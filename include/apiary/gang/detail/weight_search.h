// apiary/gang/detail/weight_search.h - weights of tasks that prove a no, and knapsacks of nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/fit_verdict.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The largest weight of tasks that a node with 0, 1, ... free GPUs can hold (a knapsack), and how
// many tasks of each size that takes. Cost: O(sizes * GPUs), times the tasks on a node for sizes
// with a limit.
class node_knapsack {
 public:
  // A size of tasks. A node holds a multiple of `step` tasks, at most `most`.
  struct task_size {
    std::uint32_t gpus = 0;
    std::uint32_t tasks = 0;
    std::uint32_t step = 1;
    std::uint32_t most = ~std::uint32_t{0};
  };
  // Requires: at least one GPU a task, and weights of at least 0.
  void assign(std::span<const task_size> sizes, std::span<const std::int64_t> weights,
              std::size_t max_free) {
    gpus_.clear();
    best_.assign(max_free + 1, 0);
    taken_.assign(sizes.size() * (max_free + 1), 0);
    for (std::size_t u = 0; u < sizes.size(); ++u) {
      gpus_.push_back(sizes[u].gpus);
      std::uint32_t* const taken = &taken_[u * (max_free + 1)];
      const std::size_t step = std::size_t{sizes[u].step} * sizes[u].gpus;
      if (weights[u] <= 0 || step > max_free) continue;
      const std::int64_t weight = weights[u] * sizes[u].step;
      const std::uint32_t most = (std::min)(sizes[u].most, sizes[u].tasks) / sizes[u].step;
      if (most >= max_free / step) {
        for (std::size_t f = step; f <= max_free; ++f) {
          if (best_[f - step] + weight <= best_[f]) continue;
          best_[f] = best_[f - step] + weight;
          taken[f] = taken[f - step] + sizes[u].step;
        }
        continue;
      }
      for (std::size_t f = max_free + 1; f-- > step;) {
        const std::int64_t before = best_[f];
        for (std::uint32_t n = 1; n <= most && n * step <= f; ++n) {
          if (best_[f - n * step] + n * weight <= best_[f]) continue;
          best_[f] = best_[f - n * step] + n * weight;
          taken[f] = n * sizes[u].step;
        }
        if (best_[f] == before) taken[f] = 0;
      }
    }
  }
  // The largest weight for each number of free GPUs.
  [[nodiscard]] std::span<const std::int64_t> best() const noexcept { return best_; }
  // Appends the tasks of each size of a heaviest combination.
  void append_tasks(std::size_t free, lean_vector<std::int64_t>& to) const {
    const std::size_t first = to.size();
    to.resize(first + gpus_.size());
    for (std::size_t u = gpus_.size(); u-- > 0;) {
      const std::uint32_t n = taken_[u * best_.size() + free];
      to[first + u] = n;
      free -= n * gpus_[u];
    }
  }

 private:
  lean_vector<std::uint32_t> gpus_;
  lean_vector<std::int64_t> best_;
  lean_vector<std::uint32_t> taken_;  // by size, then by free GPUs
};

// Finds weights of task sizes with which the gang weighs more than all nodes can hold. If there are
// any, it finds some, unless a number exceeds 62 bits or the budget ends.
//
// Model:  the linear program of Gilmore, Gomory, "A linear programming approach to the cutting
//         stock problem" (1961): fractions of nodes take combinations of tasks, so that the fewest
//         tasks are missing. Its dual values are the weights. The simplex method keeps one
//         combination of each class of nodes, its key, apart from the basis (Dantzig, Van Slyke,
//         "Generalized upper bounding techniques", 1967), so the basis has one row for each size.
//         It computes with integers: numbers are numerators over the determinant of the basis.
// Cost:   O(sizes^3 + sizes * GPUs of a node) an iteration, usually fewer than 5 * (sizes +
//         classes) iterations. A step of the budget is 16 operations. Memory: O(sizes^2 + sizes *
//         (GPUs of a node + iterations)).
class weight_search {
 public:
  using task_size = node_knapsack::task_size;
  // nodes[f]: the number of nodes with f free GPUs. Returns does_not_fit if weights() prove it;
  // fits if no weights do; budget_ended if that is not known.
  // Requires: sizes of at least one GPU, all with tasks.
  fit_verdict operator()(std::span<const task_size> sizes, std::span<const std::uint32_t> nodes,
                         step_budget& steps) {
    begin(sizes, nodes);
    fit_verdict verdict = fit_verdict::budget_ended;
    const std::size_t rows = sizes.size();
    const std::uint64_t price = (2 * rows * rows * rows + rows * nodes.size()) / 16 + 1;
    const std::size_t most = 20 * (rows + classes_.size()) + 20;
    for (std::size_t i = 0; i < most && steps.pay(price); ++i) {
      if (i == 0 ? !start(verdict) : !iterate(verdict)) break;
    }
    return is_large_ ? fit_verdict::budget_ended : verdict;
  }
  // After does_not_fit: the weight of a task of each size.
  [[nodiscard]] std::span<const std::uint32_t> weights() const noexcept { return weights_; }
  // After fits: calls use(free, nodes, tasks) for combinations of tasks of each size, and how many
  // whole nodes with so many free GPUs take each in the solution of the linear program.
  template <class Use>
  void for_each_combination(const Use& use) const {
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      std::int64_t others = 0;
      for (std::size_t i = 0; i < basis_.size(); ++i) {
        if (basis_[i].type != column_type::combination || basis_[i].index != c) continue;
        others += values_[i];
        use(classes_[c].free, static_cast<std::uint32_t>(values_[i] / determinant_),
            std::span(combinations_).subspan(basis_[i].first, basis_.size()));
      }
      others = (others + determinant_ - 1) / determinant_;
      if (others < classes_[c].nodes)
        use(classes_[c].free, static_cast<std::uint32_t>(classes_[c].nodes - others),
            std::span(combinations_).subspan(classes_[c].key, basis_.size()));
    }
  }

 private:
  // A column of the basis: a combination of tasks on nodes of a class, tasks of a size that are
  // missing, or tasks of a size beyond those of the gang.
  enum class column_type : std::uint8_t { combination, missing, surplus };
  struct column {
    column_type type = column_type::missing;
    std::size_t index = 0;  // of the class or the size
    std::size_t first = 0;  // where the combination begins in combinations_
  };
  struct node_class {
    std::uint32_t free = 0;
    std::uint32_t nodes = 0;
    std::size_t key = 0;  // where the combination of the other nodes begins in combinations_
  };

  void begin(std::span<const task_size> sizes, std::span<const std::uint32_t> nodes) {
    sizes_ = sizes;
    classes_.clear();
    combinations_.clear();
    weights_.clear();
    is_large_ = false;
    max_free_ = 0;
    std::uint32_t least = ~std::uint32_t{0};
    for (const task_size& s : sizes) least = (std::min)(least, s.gpus);
    for (std::uint32_t f = least; f < nodes.size(); ++f) {
      if (nodes[f] == 0) continue;
      classes_.push_back({f, nodes[f], 0});
      max_free_ = f;
    }
  }
  // Begins with a basis in which all tasks are missing that the first keys do not take.
  bool start(fit_verdict& verdict) {
    price_.clear();
    for (const task_size& s : sizes_) price_.push_back(s.gpus);
    if (proves(price_)) return found(verdict);
    for (node_class& c : classes_) {
      c.key = combinations_.size();
      knapsack_.append_tasks(c.free, combinations_);
    }
    basis_.clear();
    for (std::size_t u = 0; u < sizes_.size(); ++u)
      basis_.push_back({lacking(u) >= 0 ? column_type::missing : column_type::surplus, u, 0});
    return true;
  }
  // How many tasks of a size the gang has beyond those that the keys take.
  [[nodiscard]] std::int64_t lacking(std::size_t u) const {
    std::int64_t tasks = sizes_[u].tasks;
    for (const node_class& c : classes_) tasks -= c.nodes * combinations_[c.key + u];
    return tasks;
  }
  bool found(fit_verdict& verdict) {
    for (const std::int64_t w : price_) weights_.push_back(static_cast<std::uint32_t>(w));
    verdict = fit_verdict::does_not_fit;
    return false;
  }
  // Whether the gang weighs more than all nodes hold. Requires: no weight is negative.
  bool proves(std::span<const std::int64_t> weights) {
    std::int64_t largest = 1;
    for (const std::int64_t w : weights) largest = (std::max)(largest, w);
    std::int64_t nodes = 1;
    for (const node_class& c : classes_) nodes += c.nodes;
    times(largest, (std::max)(std::int64_t{64} * nodes, std::int64_t{1} << 32));
    if (is_large_) return false;
    knapsack_.assign(sizes_, weights, max_free_);
    std::int64_t more = 0;
    for (std::size_t u = 0; u < sizes_.size(); ++u) more += weights[u] * sizes_[u].tasks;
    for (const node_class& c : classes_) more -= c.nodes * knapsack_.best()[c.free];
    return more > 0;
  }
  // One step of the simplex method; false if it has come to an end.
  bool iterate(fit_verdict& verdict) {
    if (!invert()) return false;
    values_.resize(basis_.size());
    lacking_.resize(basis_.size());
    for (std::size_t u = 0; u < basis_.size(); ++u) lacking_[u] = lacking(u);
    multiply(lacking_, values_);
    bool missing = false;
    for (std::size_t i = 0; i < basis_.size(); ++i)
      missing = missing || (basis_[i].type == column_type::missing && values_[i] > 0);
    if (!missing) verdict = fit_verdict::fits;
    if (!missing || is_large_) return false;
    column entering;
    if (!choose_entering(entering, verdict)) return false;
    direction_.resize(basis_.size());
    column_of(entering, column_);
    multiply(column_, direction_);
    return !is_large_ && replace(entering);
  }
  // Chooses a column to enter the basis so that fewer tasks are missing. Returns false if weights
  // are found, or if there is no such column.
  bool choose_entering(column& entering, fit_verdict& verdict) {
    price_.assign(basis_.size(), 0);
    for (std::size_t i = 0; i < basis_.size(); ++i) {
      if (basis_[i].type != column_type::missing) continue;
      for (std::size_t u = 0; u < basis_.size(); ++u)
        price_[u] += times(sizes_[basis_[i].index].gpus, inverse_[i * basis_.size() + u]);
    }
    std::int64_t divisor = 0;
    for (std::size_t u = 0; u < basis_.size(); ++u) {
      entering = {column_type::surplus, u, 0};
      if (price_[u] < 0) return true;
      entering.type = column_type::missing;
      if (price_[u] > times(sizes_[u].gpus, determinant_)) return true;
      divisor = common_divisor(price_[u], divisor);
    }
    if (is_large_ || divisor == 0) return false;
    for (std::int64_t& w : price_) w /= divisor;
    if (proves(price_)) return found(verdict);
    if (is_large_) return false;
    std::int64_t gain = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      std::int64_t more = knapsack_.best()[classes_[c].free];
      for (std::size_t u = 0; u < basis_.size(); ++u)
        more -= price_[u] * combinations_[classes_[c].key + u];
      if (more <= gain) continue;
      gain = more;
      entering = {column_type::combination, c, 0};
    }
    if (gain == 0) return false;
    entering.first = combinations_.size();
    knapsack_.append_tasks(classes_[entering.index].free, combinations_);
    return true;
  }
  // The chosen column enters the basis, and the first column whose value becomes 0 leaves it.
  bool replace(const column& entering) {
    std::int64_t value = 1;  // of the leaving column, over its direction
    std::int64_t by = 0;
    std::size_t leaving = 0;  // a column, or beyond these a class whose key leaves
    const auto consider = [&](std::size_t i, std::int64_t v, std::int64_t d) {
      if (d <= 0 || (by > 0 && !is_less(v, d, value, by))) return;
      value = v;
      by = d;
      leaving = i;
    };
    for (std::size_t i = 0; i < basis_.size(); ++i) consider(i, values_[i], direction_[i]);
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      std::int64_t v = times(classes_[c].nodes, determinant_);
      std::int64_t d = 0;
      if (entering.type == column_type::combination && entering.index == c) d = determinant_;
      for (std::size_t i = 0; i < basis_.size(); ++i) {
        if (basis_[i].type != column_type::combination || basis_[i].index != c) continue;
        v -= values_[i];
        d -= direction_[i];
      }
      consider(basis_.size() + c, v, d);
    }
    if (by == 0) return false;
    if (leaving < basis_.size()) {
      basis_[leaving] = entering;
      return true;
    }
    node_class& of = classes_[leaving - basis_.size()];
    if (entering.type == column_type::combination && entering.index == leaving - basis_.size()) {
      of.key = entering.first;
      return true;
    }
    for (column& other : basis_) {
      if (other.type != column_type::combination || other.index != leaving - basis_.size())
        continue;
      of.key = other.first;
      other = entering;
      return true;
    }
    return false;
  }
  void column_of(const column& c, lean_vector<std::int64_t>& to) const {
    to.assign(basis_.size(), 0);
    if (c.type == column_type::missing) to[c.index] = 1;
    if (c.type == column_type::surplus) to[c.index] = -1;
    if (c.type != column_type::combination) return;
    for (std::size_t u = 0; u < to.size(); ++u)
      to[u] = combinations_[c.first + u] - combinations_[classes_[c.index].key + u];
  }
  // The inverse of the basis, times its determinant, which becomes positive. Every division is
  // exact (Bareiss, 1968).
  bool invert() {
    const std::size_t n = basis_.size();
    const std::size_t width = 2 * n;
    rows_.assign(n * width, 0);
    for (std::size_t i = 0; i < n; ++i) {
      column_of(basis_[i], column_);
      for (std::size_t u = 0; u < n; ++u) rows_[u * width + i] = column_[u];
      rows_[i * width + n + i] = 1;
    }
    std::int64_t before = 1;
    for (std::size_t p = 0; p < n; ++p) {
      std::size_t pivot = p;
      while (pivot < n && rows_[pivot * width + p] == 0) ++pivot;
      if (pivot == n) return false;
      if (pivot != p) {
        for (std::size_t j = 0; j < width; ++j)
          rows_[p * width + j] = -std::exchange(rows_[pivot * width + j], rows_[p * width + j]);
      }
      const std::int64_t at = rows_[p * width + p];
      for (std::size_t i = 0; i < n; ++i) {
        if (i == p) continue;
        const std::int64_t factor = rows_[i * width + p];
        for (std::size_t j = 0; j < width; ++j) {
          std::int64_t& x = rows_[i * width + j];
          x = (times(at, x) - times(factor, rows_[p * width + j])) / before;
        }
      }
      before = at;
      if (is_large_) return false;
    }
    determinant_ = before < 0 ? -before : before;
    inverse_.resize(n * n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        inverse_[i * n + j] = before < 0 ? -rows_[i * width + n + j] : rows_[i * width + n + j];
    return true;
  }
  void multiply(const lean_vector<std::int64_t>& by, lean_vector<std::int64_t>& to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = 0;
      for (std::size_t u = 0; u < to.size(); ++u)
        to[i] += times(inverse_[i * to.size() + u], by[u]);
    }
  }
  // a * b. If sums of a few such numbers might not fit into 64 bits: 0, and sets is_large_.
  std::int64_t times(std::int64_t a, std::int64_t b) noexcept {
    constexpr double most = 1e17;
    const double size = static_cast<double>(a) * static_cast<double>(b);
    if (size < most && size > -most) return a * b;
    is_large_ = true;
    return 0;
  }
  // Whether a / b < c / d. Requires: a and c are at least 0, b and d at least 1.
  [[nodiscard]] static bool is_less(std::int64_t a, std::int64_t b, std::int64_t c,
                                    std::int64_t d) noexcept {
    while (true) {
      if (a / b != c / d) return a / b < c / d;
      a %= b;
      c %= d;
      if (a == 0 || c == 0) return a == 0 && c != 0;
      a = std::exchange(d, a);
      b = std::exchange(c, b);
    }
  }
  [[nodiscard]] static std::int64_t common_divisor(std::int64_t a, std::int64_t b) noexcept {
    while (b != 0) a = std::exchange(b, a % b);
    return a;
  }

  std::span<const task_size> sizes_;
  lean_vector<node_class> classes_;
  lean_vector<std::int64_t> combinations_;  // tasks of each size, combination after combination
  lean_vector<column> basis_;
  lean_vector<std::int64_t> rows_;
  lean_vector<std::int64_t> inverse_;  // of the basis, times the determinant
  std::int64_t determinant_ = 1;
  lean_vector<std::int64_t> lacking_;
  lean_vector<std::int64_t> column_;
  lean_vector<std::int64_t> values_;     // of the columns of the basis, times the determinant
  lean_vector<std::int64_t> direction_;  // how they shrink for the entering column
  lean_vector<std::int64_t> price_;      // of a task of each size
  node_knapsack knapsack_;
  lean_vector<std::uint32_t> weights_;
  std::size_t max_free_ = 0;
  bool is_large_ = false;  // a number was too large
};

}  // namespace detail
APIARY_NAMESPACE_END
