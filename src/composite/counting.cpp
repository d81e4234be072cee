// Distinct values, histograms and membership.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/geometry.h"
#include "core/host_data.h"
#include "core/kernel_arguments.h"
#include "mica/autograd.h"
#include "mica/generated/implementations.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor msort(const Tensor& self) { return std::get<0>(mica::sort(self, 0)); }

namespace {

// For bools the number of true elements tells everything.
std::tuple<Tensor, Tensor, Tensor> unique_bools(const Tensor& self, bool return_inverse, bool return_counts,
                                                const TensorOptions& longs) {
  const int64_t truths = self.count_nonzero().item<int64_t>(), others = self.numel() - truths;
  const Tensor both = mica::arange(0, 2, 1, longs), counts = both * (truths - others) + others;
  const int64_t first = others == 0, number = (others != 0) + (truths != 0);
  const Tensor none = mica::empty(0, longs);
  return {both.narrow(0, first, number).to(DType::Bool),
          return_inverse ? (number == 2 ? self.to(DType::Int64) : mica::zeros(self.sizes(), longs)) : none,
          return_counts ? counts.narrow(0, first, number).clone() : none};
}

std::tuple<Tensor, Tensor, Tensor> unique_of(const Tensor& self, bool return_inverse, bool return_counts,
                                             bool consecutive) {
  NoGradGuard below;
  const TensorOptions longs = TensorOptions(DType::Int64).device(self.device());
  if (self.dtype() == DType::Bool && !consecutive && self.numel() > 0)
    return unique_bools(self, return_inverse, return_counts, longs);
  const Tensor flat = ordered_by_bytes(self.contiguous()).view({-1});
  const Tensor values = mica::empty(flat.numel(), self.options());
  const Tensor inverse = return_inverse ? mica::empty(flat.numel(), longs) : Tensor();
  const Tensor counts = return_counts ? mica::empty(flat.numel(), longs) : Tensor();
  int64_t count = 0;
  if (flat.numel() > 0) {
    const TensorView unwanted;
    MICA_KERNEL(self.device(), unique)
    (values.view_of(), inverse.defined() ? inverse.view_of() : unwanted, counts.defined() ? counts.view_of() : unwanted,
     flat.view_of(), consecutive, &count);
  }
  const Tensor none = mica::empty(0, longs);
  return {values.narrow(0, 0, count).clone(), return_inverse ? inverse.view(self.sizes()) : none,
          return_counts ? counts.narrow(0, 0, count).clone() : none};
}

// The numbers of rows in lexicographic order. Where there are few columns, radix sorts from the last column to the
// first are faster. Otherwise the backend's kernel compares whole rows; only that leaves rows with NaN where torch
// does.
Tensor order_of(const Tensor& rows, const TensorOptions& longs) {
  constexpr int64_t kFewColumns = 8;
  const int64_t n = rows.size(0), width = rows.size(1);
  const bool has_kernel = n > 0 && !is_complex(rows.dtype()) && MICA_TAKES(rows.device(), order_rows, &rows.view_of());
  const auto some_hold_nan = [&] { return rows.is_floating_point() && mica::isnan(rows).any().item<bool>(); };
  if (has_kernel && (width > kFewColumns || some_hold_nan())) {
    const Tensor places = mica::empty(n, longs);
    MICA_KERNEL(rows.device(), order_rows)(places.view_of(), ordered_by_bytes(rows).view_of());
    return places;
  }
  Tensor order = mica::arange(0, n, 1, longs);
  for (int64_t c = width - 1; c >= 0; --c)
    order = order.index_select(0, mica::argsort(rows.select(1, c).index_select(0, order)));
  return order;
}

// Distinct slices of the first dimension. Equal neighbours in `order` collapse.
std::tuple<Tensor, Tensor, Tensor> unique_rows(const Tensor& self, int64_t dim, bool return_inverse, bool return_counts,
                                               bool consecutive) {
  NoGradGuard below;
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor moved = self.movedim(d, 0).contiguous();
  const int64_t n = moved.size(0);
  int64_t empty_dims = 0;
  for (const int64_t size : self.sizes()) empty_dims += size == 0;
  MICA_CHECK(empty_dims <= 1 || n != 0,
             "Number of zero sized dimensions is more than one, so unique cannot be applied");
  MICA_CHECK(self.numel() > 0 || n == 0,
             "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const Tensor rows = moved.reshape({n, n ? moved.numel() / n : 0});
  const TensorOptions longs = TensorOptions(DType::Int64).device(self.device());
  const Tensor order = consecutive ? mica::arange(0, n, 1, longs) : order_of(rows, longs);
  const Tensor sorted = rows.index_select(0, order);
  const Tensor changed = n > 1 ? mica::ne(sorted.narrow(0, 1, n - 1), sorted.narrow(0, 0, n - 1)).any(1)
                               : mica::empty(0, longs.dtype(DType::Bool));
  const Tensor lead = mica::ones(n > 0 ? 1 : 0, longs.dtype(DType::Bool));
  const Tensor parts[2] = {lead, changed};
  const Tensor starts = mica::cat(TensorList(parts, 2), 0);
  const Tensor group = starts.to(DType::Int64).cumsum(0) - 1;
  const Tensor first = mica::nonzero(starts).view({-1});
  const Tensor values = moved.index_select(0, order.index_select(0, first)).movedim(0, d);
  const Tensor none = mica::empty(0, longs);
  const Tensor inverse = return_inverse ? mica::empty(n, longs).index_copy(0, order, group) : none;
  const Tensor counts =
      return_counts ? mica::zeros(first.numel(), longs).index_add(0, group, mica::ones(n, longs)) : none;
  return {values, inverse, counts};
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> unique_flat(const Tensor& self, bool, bool return_inverse, bool return_counts) {
  return unique_of(self, return_inverse, return_counts, false);
}
std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& self, int64_t dim, bool, bool return_inverse,
                                              bool return_counts) {
  return unique_rows(self, dim, return_inverse, return_counts, false);
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                                                      std::optional<int64_t> dim) {
  if (dim && !(self.dim() == 1)) return unique_rows(self, *dim, return_inverse, return_counts, true);
  return unique_of(self, return_inverse, return_counts, true);
}

// ---- histograms ------------------------------------------------------------------------------------------------

namespace {

// How often each number of [0, bins) occurs among dense values, counted by the backend.
Tensor counted(const Tensor& values, int64_t bins) {
  const Tensor counts = mica::empty(bins, values.options().dtype(DType::Int64));
  MICA_KERNEL(values.device(), bincount)(counts.view_of(), values.contiguous().view_of());
  return counts;
}

}  // namespace

Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  MICA_CHECK_KIND(is_integral(self.dtype()) || self.dim() != 1, NotImplemented,
                  "\"bincount_cpu\" not implemented for '", info(self.dtype()).legacy, "'");
  MICA_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs. The input has the shape ",
             self.sizes());
  MICA_CHECK(minlength >= 0, "minlength should be >= 0, but got ", minlength);
  MICA_CHECK(!weights.defined() || (weights.dim() == 1 && weights.size(0) == self.size(0)),
             "weights should be 1-d and have the same length as input");
  NoGradGuard below;
  int64_t bins = minlength;
  const bool has_kernel =
      self.numel() > 0 && !self.is_meta() && !weights.defined() && MICA_TAKES(self.device(), bincount, &self.view_of());
  if (has_kernel && self.dtype() == DType::UInt8) {
    // All values lie within a known range, so the largest need not be found first.
    constexpr int64_t kValues = 256;
    const Tensor counts = counted(self, kValues), host = counts.cpu();
    int64_t used = kValues;
    while (host_data<int64_t>(host)[used - 1] == 0) --used;
    if (bins >= kValues) return mica::constant_pad_nd(counts, {0, bins - kValues}, Scalar(0));
    return counts.narrow(0, 0, std::max(bins, used)).clone();
  }
  if (self.numel() > 0) {
    const auto [least, largest] = mica::aminmax(self);
    MICA_CHECK(least.to(DType::Int64).item<int64_t>() >= 0,
               "bincount only supports 1-d non-negative integral inputs. The least element is ",
               least.to(DType::Int64).item<int64_t>());
    bins = std::max(bins, largest.to(DType::Int64).item<int64_t>() + 1);
  }
  const DType dtype = !weights.defined()                  ? DType::Int64
                      : weights.dtype() == DType::Float32 ? DType::Float32
                                                          : DType::Float64;
  const TensorOptions o = TensorOptions(dtype).device(self.device());
  if (has_kernel) return counted(self, bins);
  return mica::zeros(bins, o).index_add(0, self.to(DType::Int64),
                                        weights.defined() ? weights.to(dtype) : mica::ones({}, o).expand(self.numel()));
}

namespace {

// The bin of each value among ascending edges, the last bin closed; -1 outside.
Tensor bin_of(const Tensor& values, const Tensor& edges) {
  const int64_t bins = edges.numel() - 1;
  Tensor bin = mica::bucketize(values, edges, false, true) - 1;
  bin = mica::where(values == edges.select(0, bins), Scalar(bins - 1), bin);
  return mica::where(bin >= bins, Scalar(-1), bin);
}

Tensor count_bins(const Tensor& bin, const Tensor& weight, int64_t bins, const TensorOptions& options) {
  const Tensor inside = bin >= 0;
  const Tensor chosen = bin.masked_select(inside);
  const Tensor amounts = weight.defined() ? weight.reshape({-1}).masked_select(inside).to(options.dtype())
                                          : mica::ones(chosen.numel(), options);
  return mica::zeros(bins, options).index_add(0, chosen, amounts);
}

std::pair<double, double> histogram_range(const char* op, const Tensor& self, double low, double high, bool given) {
  if (!given && self.numel() > 0) {
    low = self.min().to(DType::Float64).item<double>();
    high = self.max().to(DType::Float64).item<double>();
  }
  MICA_CHECK(std::isfinite(low) && std::isfinite(high), op, ": range of [", low, ", ", high, "] is not finite");
  MICA_CHECK(low <= high, op, ": max must be larger than min");
  if (low == high) {
    if (!given && self.numel() == 0) return {0, 1};
    const double half = std::string_view(op) == "torch.histc" ? 1 : 0.5;
    low -= half, high += half;
  }
  return {low, high};
}

}  // namespace

Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  MICA_CHECK_KIND(is_floating(self.dtype()), NotImplemented, "\"histogram_cpu\" not implemented for '",
                  info(self.dtype()).legacy, "'");
  MICA_CHECK(bins > 0, "torch.histc(): bins must be > 0, but got ", bins);
  NoGradGuard below;
  if (self.is_meta()) return mica::empty(bins, self.options());
  const auto [low, high] =
      histogram_range("torch.histc", self, min.to_double(), max.to_double(), min.to_double() != max.to_double());
  const Tensor values = self.reshape({-1});
  const Tensor inside = mica::logical_and(values >= low, values <= high);
  const Tensor kept = values.masked_select(inside);
  // The steps are in this order and in the dtype of the values, which decides where values at the edges of bins fall.
  Tensor bin = ((kept - low) * static_cast<double>(bins) / (high - low)).to(DType::Int64);
  bin = mica::clamp(bin, Scalar(0), Scalar(bins - 1));
  return mica::zeros(bins, self.options()).index_add(0, bin, mica::ones(bin.numel(), self.options()));
}

std::tuple<Tensor, std::vector<Tensor>> histogramdd(const Tensor& self, TensorList bins,
                                                    std::optional<ArrayRef<double>>, const Tensor& weight,
                                                    bool density) {
  NoGradGuard below;
  MICA_CHECK_KIND(self.dtype() == DType::Float32 || self.dtype() == DType::Float64, NotImplemented,
                  "\"histogramdd\" not implemented for '", info(self.dtype()).legacy, "'");
  MICA_CHECK(
      !weight.defined() || weight.dtype() == self.dtype(),
      "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, "
      "but got input(",
      self.dtype(), "), and weight(", weight.defined() ? weight.dtype() : self.dtype(), ")");
  MICA_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
  const int64_t n = self.size(-1);
  MICA_CHECK(n == static_cast<int64_t>(bins.size()), "torch.histogramdd: expected ", n,
             " sequences of bin edges for a ", n, "-dimensional histogram but got ", bins.size());
  const Tensor points = self.reshape({-1, n});
  MICA_CHECK(!weight.defined() || weight.numel() == points.size(0),
             "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
             "excluding its innermost dimension");
  Tensor flat;  // the row-major position among all bins, -1 outside
  DimVector shape;
  for (int64_t d = 0; d < n; ++d) {
    const Tensor& edges = bins[static_cast<size_t>(d)];
    MICA_CHECK(edges.dtype() == self.dtype(),
               "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype ",
               info(self.dtype()).legacy, " and bins with dtype ", info(edges.dtype()).legacy);
    MICA_CHECK(edges.dim() == 1 && edges.numel() > 1,
               "torch.histogramdd: bins tensor should have one dimension and at least two edges, but got ",
               edges.sizes());
    const int64_t count = edges.numel() - 1;
    const Tensor bin = bin_of(points.select(1, d).contiguous(), edges.contiguous());
    flat = flat.defined() ? mica::where(mica::logical_or(flat < 0, bin < 0), Scalar(-1), flat * count + bin) : bin;
    shape.push_back(count);
  }
  int64_t total = 1;
  for (int64_t s : shape) total *= s;
  Tensor hist = count_bins(flat, weight, total, self.options()).view(shape);
  if (density) {
    hist = hist / hist.sum();
    for (int64_t d = 0; d < n; ++d) {
      DimVector wide(static_cast<size_t>(n), 1);
      wide[d] = -1;
      hist = hist / mica::diff(bins[static_cast<size_t>(d)]).view(wide);
    }
  }
  return {hist, std::vector<Tensor>(bins.begin(), bins.end())};
}

std::tuple<Tensor, std::vector<Tensor>> histogramdd(const Tensor& self, IntArrayRef bins,
                                                    std::optional<ArrayRef<double>> range, const Tensor& weight,
                                                    bool density) {
  MICA_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
  const int64_t n = self.size(-1);
  MICA_CHECK(static_cast<int64_t>(bins.size()) == n,
             "histogramdd: The size of bins must be equal to the innermost dimension of the input. (", bins.size(),
             " bin counts, ", n, " coordinates)");
  MICA_CHECK(!range || static_cast<int64_t>(range->size()) == 2 * n, "torch.histogramdd: for a ", n,
             "-dimensional histogram range should have ", 2 * n, " elements, but got ", range ? range->size() : 0);
  std::vector<Tensor> edges;
  for (int64_t d = 0; d < n; ++d) {
    MICA_CHECK(bins[d] > 0, "torch.histogramdd(): bins must be > 0, but got ", bins[d], " for dimension ", d);
    const auto [low, high] = histogram_range("torch.histogramdd", self.select(-1, d), range ? (*range)[2 * d] : 0,
                                             range ? (*range)[2 * d + 1] : 0, range.has_value());
    edges.push_back(mica::linspace(low, high, bins[d] + 1, self.options()));
  }
  return composite::histogramdd(self, TensorList(edges), range, weight, density);
}

std::tuple<Tensor, Tensor> histogram(const Tensor& self, const Tensor& bins, const Tensor& weight, bool density) {
  auto [hist, edges] =
      composite::histogramdd(self.reshape({-1, 1}), TensorList(&bins, 1), std::nullopt, weight, density);
  return {hist, edges[0]};
}
std::tuple<Tensor, Tensor> histogram(const Tensor& self, int64_t bins, std::optional<ArrayRef<double>> range,
                                     const Tensor& weight, bool density) {
  auto [hist, edges] = composite::histogramdd(self.reshape({-1, 1}), IntArrayRef(bins), range, weight, density);
  return {hist, edges[0]};
}

// ---- membership --------------------------------------------------------------------------------------------------

static void check_membership_dtype(DType dtype) {
  MICA_CHECK(dtype != DType::Bool && !is_complex(dtype),
             "Unsupported input type encountered for isin(): ", info(dtype).legacy);
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
  check_membership_dtype(elements.dtype());
  check_membership_dtype(test_elements.dtype());
  NoGradGuard below;
  const DType common = mica::result_type(elements, test_elements);
  const Tensor all = elements.to(common), tests = test_elements.to(common).reshape({-1});
  if (tests.numel() == 0)
    return mica::full(elements.sizes(), Scalar(invert), TensorOptions(DType::Bool).device(elements.device()));
  if (tests.numel() == 1) return invert ? mica::ne(all, tests[0]) : mica::eq(all, tests[0]);
  // Few comparisons take less time than sorting and searching.
  constexpr int64_t kFew = 8, kFewComparisons = 1 << 16;
  if (tests.numel() <= kFew && tests.numel() * all.numel() <= kFewComparisons) {
    const Tensor pairs = all.unsqueeze(-1);
    return invert ? mica::all(mica::ne(pairs, tests), -1) : mica::any(mica::eq(pairs, tests), -1);
  }
  const Tensor sorted = std::get<0>(mica::sort(tests));
  const Tensor at = mica::clamp(mica::searchsorted(sorted, all.contiguous()), std::nullopt, Scalar(sorted.numel() - 1));
  const Tensor found = sorted.index_select(0, at.reshape({-1})).view(all.sizes());
  return invert ? mica::ne(found, all) : mica::eq(found, all);
}
Tensor isin(const Tensor& elements, const Scalar& test_element, bool, bool invert) {
  check_membership_dtype(elements.dtype());
  return invert ? mica::ne(elements, test_element) : mica::eq(elements, test_element);
}
Tensor isin(const Scalar& element, const Tensor& test_elements, bool assume_unique, bool invert) {
  TensorOptions o(test_elements.device());
  return mica::isin(mica::full({}, element, o), test_elements, assume_unique, invert);
}

}  // namespace mica::composite
