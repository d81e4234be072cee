// How a view can be made from its base, read off the numbers of both.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <vector>

#include "core/allocate.h"
#include "core/geometry.h"
#include "mica/inspect.h"

namespace mica::inspect {

namespace {

struct Geometry {
  DimVector sizes, strides;
  int64_t offset = 0;
};
bool same(const Geometry& a, const Geometry& b) {
  // The stride of a dimension of one element makes no difference.
  if (!(a.sizes.ref() == b.sizes.ref()) || a.offset != b.offset) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (a.sizes[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

// What becomes of one dimension of the base: one index of it, or a slice.
struct Range {
  int64_t start = 0, count = 1, step = 1;
  bool kept = false;  // whether it is a dimension of the view
  size_t target = 0;  // which dimension of the view
};

class Finder {
 public:
  Finder(Geometry base, Geometry view) : now_(std::move(base)), view_(std::move(view)) {}

  std::vector<ViewStep> find() {
    if (same(now_, view_)) return {step("[...]")};
    const std::optional<std::vector<ViewStep>> simple = by_slices();
    if (simple && simple->size() == 1) return *simple;
    if (now_.offset == view_.offset) {
      const auto strides = view_strides(now_.sizes, now_.strides, view_.sizes);
      if (strides && same({view_.sizes, DimVector(*strides), now_.offset}, view_) && !is_permutation())
        return {step(cat("view(", list(view_.sizes), ")"))};
    }
    if (simple) return *simple;
    if (std::optional<std::vector<ViewStep>> folded = by_folding()) return *folded;
    return {step(cat("as_strided((", list(view_.sizes), "), (", list(view_.strides), "), ", view_.offset, ")"))};
  }

 private:
  static std::string list(const DimVector& v) {
    std::string s;
    for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
    return v.size() == 1 ? s + "," : s;
  }
  ViewStep step(std::string operation) const {
    return {std::move(operation), view_.sizes, view_.strides, view_.offset};
  }

  bool is_permutation() const {
    std::vector<int64_t> a(now_.sizes.begin(), now_.sizes.end()), b(view_.sizes.begin(), view_.sizes.end());
    if (a.size() != b.size()) return false;
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
  }

  // Gives each dimension of the view that moves through memory a dimension of the base, and each of the others a new or
  // stretched one.
  std::optional<std::vector<ViewStep>> by_slices() {
    const size_t nb = now_.sizes.size(), nv = view_.sizes.size();
    if (nb > 8 || nv > 8) return std::nullopt;
    std::vector<Range> ranges(nb);
    std::vector<int> source(nv, -1);
    for (size_t v = 0; v < nv; ++v) {
      if (view_.sizes[v] == 1 || view_.strides[v] == 0) continue;
      int best = -1;
      for (size_t b = 0; b < nb; ++b) {
        const int64_t stride = now_.strides[b];
        if (ranges[b].kept || stride == 0 || now_.sizes[b] < 2 || view_.strides[v] % stride) continue;
        const int64_t steps = std::abs(view_.strides[v] / stride);
        if ((view_.sizes[v] - 1) * steps >= now_.sizes[b]) continue;
        if (best < 0 || std::abs(stride) > std::abs(now_.strides[static_cast<size_t>(best)]))
          best = static_cast<int>(b);
      }
      if (best < 0) return std::nullopt;
      Range& r = ranges[static_cast<size_t>(best)];
      r.kept = true;
      r.target = v;
      r.count = view_.sizes[v];
      r.step = view_.strides[v] / now_.strides[static_cast<size_t>(best)];
      source[v] = best;
    }
    // The distance of the first elements, as an index of the base: large strides first.
    std::vector<size_t> order(nb);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::abs(now_.strides[a]) > std::abs(now_.strides[b]); });
    int64_t left = view_.offset - now_.offset;
    for (const size_t b : order) {
      const int64_t stride = now_.strides[b];
      if (stride == 0 || now_.sizes[b] < 2) continue;
      int64_t start = left / stride;
      if (left - start * stride < 0 && stride > 0) --start;
      start = std::clamp<int64_t>(start, 0, now_.sizes[b] - 1);
      ranges[b].start = start;
      left -= start * stride;
    }
    if (left != 0) return std::nullopt;
    // A dimension that has one element in both stays the same one, in order, where nothing else has taken its place.
    for (size_t b = 0, v = 0; b < nb; ++b) {
      if (ranges[b].kept || now_.sizes[b] != 1) continue;
      while (v < nv && !(view_.sizes[v] == 1 && source[v] < 0)) ++v;
      if (v == nv) break;
      ranges[b].kept = true;
      ranges[b].target = v;
      source[v++] = static_cast<int>(b);
    }
    return carry_out(ranges, source);
  }

  // First views a contiguous base in another shape, whose strides are those of the view.
  std::optional<std::vector<ViewStep>> by_folding() {
    if (!is_row_major(now_.sizes, now_.strides)) return std::nullopt;
    int64_t numel = 1;
    for (const int64_t n : now_.sizes) numel *= n;
    std::vector<int64_t> steps;
    for (size_t v = 0; v < view_.sizes.size(); ++v)
      if (view_.sizes[v] > 1 && view_.strides[v] != 0) steps.push_back(std::abs(view_.strides[v]));
    std::sort(steps.rbegin(), steps.rend());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    // The smallest stride may be a step within the last dimension, or the size of one more.
    for (const size_t kept : {steps.size() - 1, steps.size()}) {
      if (steps.empty() || numel == 0) break;
      DimVector shape;
      int64_t outer = numel;
      bool divides = true;
      for (size_t i = 0; i < kept; ++i) {
        divides = divides && outer % steps[i] == 0;
        shape.push_back(outer / steps[i]);
        outer = steps[i];
      }
      if (!divides || shape.size() > 6) continue;
      if (outer > 1 || shape.empty()) shape.push_back(outer);
      if (shape.ref() == now_.sizes.ref()) continue;
      Finder below({shape, contiguous_strides(shape), now_.offset}, view_);
      const bool reached = same(below.now_, view_);
      std::optional<std::vector<ViewStep>> rest = reached ? std::vector<ViewStep>{} : below.by_slices();
      if (!rest) continue;
      rest->insert(rest->begin(), {cat("view(", list(shape), ")"), shape, contiguous_strides(shape), now_.offset});
      return rest;
    }
    return std::nullopt;
  }

  std::optional<std::vector<ViewStep>> carry_out(const std::vector<Range>& ranges, const std::vector<int>& source) {
    std::vector<ViewStep> steps;
    // 1. slices and single indices
    std::string text;
    bool sliced = false;
    Geometry g{{}, {}, now_.offset};
    std::vector<int> position(ranges.size(), -1);
    for (size_t b = 0; b < ranges.size(); ++b) {
      const Range& r = ranges[b];
      text += b ? ", " : "";
      g.offset += r.start * now_.strides[b];
      if (!r.kept) {
        text += std::to_string(r.start);
        sliced = true;
        continue;
      }
      const int64_t last = r.start + (r.count - 1) * r.step;
      if (last < 0 || last >= now_.sizes[b]) return std::nullopt;
      const bool whole = r.start == 0 && r.count == now_.sizes[b] && r.step == 1;
      sliced |= !whole;
      if (whole) {
        text += ":";
      } else {
        const int64_t end = r.step > 0 ? std::min(last + r.step, now_.sizes[b]) : last - 1;
        if (r.step > 0) {
          if (r.start) text += std::to_string(r.start);
          text += ":";
          if (end < now_.sizes[b]) text += std::to_string(end);
        } else {
          if (r.start != now_.sizes[b] - 1) text += std::to_string(r.start);
          text += ":";
          if (end >= 0) text += std::to_string(end);
        }
        if (r.step != 1) text += ":" + std::to_string(r.step);
      }
      position[b] = static_cast<int>(g.sizes.size());
      g.sizes.push_back(r.count);
      g.strides.push_back(now_.strides[b] * r.step);
    }
    if (sliced) {
      while (text.size() > 3 && text.ends_with(", :")) text.resize(text.size() - 3);
      steps.push_back({"[" + text + "]", g.sizes, g.strides, g.offset});
    }
    // 2. the order of the dimensions
    std::vector<int> order;
    for (const int b : source)
      if (b >= 0) order.push_back(position[static_cast<size_t>(b)]);
    std::vector<size_t> moved;
    for (size_t i = 0; i < order.size(); ++i)
      if (order[i] != static_cast<int>(i)) moved.push_back(i);
    if (!moved.empty()) {
      Geometry p{{}, {}, g.offset};
      for (const int d : order) {
        p.sizes.push_back(g.sizes[static_cast<size_t>(d)]);
        p.strides.push_back(g.strides[static_cast<size_t>(d)]);
      }
      std::string name;
      if (moved.size() == 2 && order.size() == 2) {
        name = "t()";
      } else if (moved.size() == 2) {
        name = cat("transpose(", moved[0], ", ", moved[1], ")");
      } else {
        name = "permute(";
        for (size_t i = 0; i < order.size(); ++i) name += (i ? ", " : "") + std::to_string(order[i]);
        name += ")";
      }
      g = p;
      steps.push_back({name, g.sizes, g.strides, g.offset});
    }
    // 3. new dimensions, then stretched ones
    DimVector wide;
    for (size_t v = 0; v < source.size(); ++v) {
      if (source[v] >= 0) continue;
      const auto at = static_cast<int64_t>(v);
      Geometry u{{}, {}, g.offset};
      for (size_t d = 0; d <= g.sizes.size(); ++d) {
        if (static_cast<int64_t>(d) == at) {
          u.sizes.push_back(1);
          u.strides.push_back(view_.strides[v]);
        }
        if (d < g.sizes.size()) {
          u.sizes.push_back(g.sizes[d]);
          u.strides.push_back(g.strides[d]);
        }
      }
      g = u;
      steps.push_back({cat("unsqueeze(", v, ")"), g.sizes, g.strides, g.offset});
    }
    if (!(g.sizes.ref() == view_.sizes.ref())) {
      for (size_t v = 0; v < view_.sizes.size(); ++v) {
        if (g.sizes[v] == view_.sizes[v]) continue;
        if (g.sizes[v] != 1) return std::nullopt;
        g.sizes[v] = view_.sizes[v];
        g.strides[v] = 0;
      }
      steps.push_back({cat("expand(", list(view_.sizes), ")"), g.sizes, g.strides, g.offset});
    }
    if (!same(g, view_)) return std::nullopt;
    if (steps.empty()) steps.push_back(step("[...]"));
    return steps;
  }

  Geometry now_, view_;
};

Geometry geometry_of(const Tensor& t) { return {DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset()}; }

// The geometry of the same bytes as elements of another size, as Tensor::view(dtype) has it.
std::optional<Geometry> with_elements(const Geometry& from, int64_t size, int64_t new_size) {
  if (size == new_size) return from;
  if (from.sizes.empty() || from.strides.back() != 1) return std::nullopt;
  Geometry g = from;
  const bool smaller = new_size < size;
  const int64_t ratio = smaller ? size / new_size : new_size / size;
  const size_t last = g.sizes.size() - 1;
  for (size_t d = 0; d < last; ++d) {
    if (!smaller && g.strides[d] % ratio) return std::nullopt;
    g.strides[d] = smaller ? g.strides[d] * ratio : g.strides[d] / ratio;
  }
  if (!smaller && (g.sizes[last] % ratio || g.offset % ratio)) return std::nullopt;
  g.sizes[last] = smaller ? g.sizes[last] * ratio : g.sizes[last] / ratio;
  g.offset = smaller ? g.offset * ratio : g.offset / ratio;
  return g;
}

// The real or the imaginary parts of complex elements: every second number.
Geometry component(const Geometry& complex, int64_t which) {
  Geometry g = complex;
  for (int64_t& stride : g.strides) stride *= 2;
  g.offset = g.offset * 2 + which;
  return g;
}

std::vector<ViewStep> other_elements(const Tensor& base, const Tensor& view) {
  const Geometry from = geometry_of(base), to = geometry_of(view);
  const auto step = [](std::string text, const Geometry& g) {
    return ViewStep{std::move(text), g.sizes, g.strides, g.offset};
  };
  if (base.is_complex() && base.element_size() == 2 * view.element_size() && !view.is_complex()) {
    if (same(component(from, 0), to)) return {step("real", to)};
    if (same(component(from, 1), to)) {
      if (view.is_neg()) return {step("conj()", from), step("imag", to)};
      return {step("imag", to)};
    }
  }
  const std::optional<Geometry> seen = with_elements(from, base.element_size(), view.element_size());
  if (!seen) return {step(cat("view(mica.", view.dtype(), ")"), to)};
  std::vector<ViewStep> steps{step(cat("view(mica.", view.dtype(), ")"), *seen)};
  if (same(*seen, to)) return steps;
  for (ViewStep& s : Finder(*seen, to).find()) steps.push_back(std::move(s));
  return steps;
}

}  // namespace

std::vector<ViewStep> view_steps(const Tensor& base, const Tensor& view) {
  if (base.dtype() != view.dtype()) return other_elements(base, view);
  std::vector<ViewStep> steps = Finder(geometry_of(base), geometry_of(view)).find();
  const bool conjugated = base.is_conj() != view.is_conj(), negated = base.is_neg() != view.is_neg();
  if ((conjugated || negated) && steps.size() == 1 && steps[0].operation == "[...]") steps.clear();
  const Geometry g = geometry_of(view);
  if (conjugated) steps.push_back({"conj()", g.sizes, g.strides, g.offset});
  if (negated) steps.push_back({"_neg_view()", g.sizes, g.strides, g.offset});
  return steps;
}

}  // namespace mica::inspect
