// Softmax and cross entropy in one. Forward reads the logits once and keeps two numbers of each row, from which
// backward computes the probabilities again.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/loss/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <vector>

#include "backends/cpu/loss/labels.h"
#include "backends/cpu/reduce/exp_columns-inl.h"
#include "backends/cpu/reduce/exp_runs-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/normalization/parameters-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/pair_loss.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int64_t kCrossEntropyBlock = 16384;  // elements of rows whose losses are summed together

constexpr int64_t kExponentials = HWY_ARCH_ARM_A64 ? 4 : 2;  // vectors at once

// Data that the kernels share: the shape, the labels, the weights of the classes.
template <class T>
struct Problem {
  using C = Computed<T>;
  Problem(const TensorView& input, const TensorView& target, const TensorView& class_weight, int64_t ignore_index,
          double label_smoothing)
      : batch(input.sizes[0]),
        classes(input.sizes[1]),
        inner(input.sizes[2]),
        rows(batch * inner),
        smoothing(label_smoothing),
        uniform(classes ? label_smoothing / static_cast<double>(classes) : 0),
        labels(target, classes, ignore_index),
        weight(class_weight),
        x(input.ptr<const T>()) {
    for (int64_t c = 0; c < classes && smoothing > 0; ++c) total_weight += weight_of(c);
  }

  double weight_of(int64_t c) const { return weight.data ? static_cast<double>(weight.data[c]) : 1; }

  int64_t batch, classes, inner, rows;
  double smoothing, uniform;  // `uniform` is the share of every class in smoothed labels
  Labels labels;
  Parameter<C> weight;
  const T* x;
  double total_weight = 0;  // the sum over all classes
};

// The loss of a row from -log(probability of the target class) and the weighted sum of that of all classes.
template <class T>
HWY_INLINE double row_loss(const Problem<T>& p, int64_t label, double against_target, double against_all) {
  return (1 - p.smoothing) * p.weight_of(label) * against_target + p.uniform * against_all;
}

// Collects losses and weights by blocks of rows, whose number does not depend on the threads.
template <class T>
struct LossSink {
  LossSink(const TensorView& out, int64_t reduction, int64_t blocks)
      : losses(reduction == kNone ? out.ptr<T>() : nullptr), sums(static_cast<size_t>(2 * blocks)) {}

  void add(int64_t block, int64_t row, double loss, double weight) {
    if (losses) {
      losses[row] = static_cast<T>(static_cast<Computed<T>>(loss));
    } else {
      sums[static_cast<size_t>(2 * block)] += loss;
    }
    sums[static_cast<size_t>(2 * block + 1)] += weight;
  }

  // Writes the sum or mean of all losses; returns the weight of all rows.
  double finish(const TensorView& out, int64_t reduction) const {
    double loss = 0, weight = 0;
    for (size_t i = 0; i < sums.size(); i += 2) {
      loss += sums[i];
      weight += sums[i + 1];
    }
    if (reduction != kNone)
      *out.ptr<T>() = static_cast<T>(static_cast<Computed<T>>(reduction == kMean ? loss / weight : loss));
    return weight;
  }

  T* losses;
  std::vector<double> sums;
};

template <class T>
void forward_rows(const Problem<T>& p, LossSink<T>& sink, int64_t block, int64_t begin, int64_t end,
                  Computed<T>* largest_of, Computed<T>* log_sum_of, Computed<T>* buffer) {
  using C = Computed<T>;
  const int64_t n = p.classes;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t label = p.labels[r];
    const C* row = open_row(p.x + r * n, n, buffer);
    const C largest = extreme_of_run<Extreme::Max>(row, n);
    const double log_sum = std::log(sum_of_exponentials<false>(row, n, largest, static_cast<C*>(nullptr), row + n));
    largest_of[r] = largest;
    log_sum_of[r] = static_cast<C>(log_sum);
    if (label < 0) {
      sink.add(block, r, 0, 0);
      continue;
    }
    double against_all = 0;
    if (p.smoothing > 0) {
      for (int64_t c = 0; c < n; ++c) against_all += p.weight_of(c) * static_cast<double>(largest - row[c]);
      against_all += p.total_weight * log_sum;
    }
    const double against_target = static_cast<double>(largest - row[label]) + log_sum;
    sink.add(block, r, row_loss(p, label, against_target, against_all), p.weight_of(label));
  }
}

// Rows whose classes lie `inner` apart, side by side: columns [first, first + columns) of one sample.
template <class T>
void forward_columns(const Problem<T>& p, LossSink<T>& sink, int64_t block, int64_t sample, int64_t first,
                     int64_t columns, Computed<T>* largest_of, Computed<T>* log_sum_of) {
  using C = Computed<T>;
  using Columns = ColumnExponentials<C>;
  alignas(64) C buffer[kIsNarrow<T> ? Columns::kRows * Columns::kColumns : 1];
  Columns exponentials;
  exponentials.start(columns);
  const int64_t n = p.classes, inner = p.inner, row = sample * inner + first;
  const T* x = p.x + sample * n * inner + first;
  for (int64_t c = 0; c < n; c += Columns::kRows) {
    const int64_t count = std::min(Columns::kRows, n - c);
    if constexpr (kIsNarrow<T>) {
      for (int64_t i = 0; i < count; ++i) open_row(x + (c + i) * inner, columns, buffer + i * columns);
      exponentials.add_rows(buffer, columns, columns, count);
    } else {
      exponentials.add_rows(x + c * inner, columns, inner, count);
    }
  }
  std::vector<double> against_all(static_cast<size_t>(p.smoothing > 0 ? columns : 0));
  for (int64_t c = 0; c < n && p.smoothing > 0; ++c)
    for (int64_t j = 0; j < columns; ++j)
      against_all[static_cast<size_t>(j)] +=
          p.weight_of(c) * static_cast<double>(exponentials.largest[j] - static_cast<C>(x[c * inner + j]));
  for (int64_t j = 0; j < columns; ++j) {
    const C largest = exponentials.largest[j];
    const double sum = std::isfinite(largest) ? exponentials.sum[j] : std::numeric_limits<double>::quiet_NaN();
    const double log_sum = std::log(sum);
    largest_of[row + j] = largest;
    log_sum_of[row + j] = static_cast<C>(log_sum);
    const int64_t label = p.labels[row + j];
    if (label < 0) {
      sink.add(block, row + j, 0, 0);
      continue;
    }
    const double against_target = static_cast<double>(largest - static_cast<C>(x[label * inner + j])) + log_sum;
    const double all = p.smoothing > 0 ? against_all[static_cast<size_t>(j)] + p.total_weight * log_sum : 0;
    sink.add(block, row + j, row_loss(p, label, against_target, all), p.weight_of(label));
  }
}

// Blocks of rows, or of columns of a sample, that are one unit of work.
struct Blocks {
  Blocks(int64_t batch, int64_t classes, int64_t inner) : inner(inner) {
    if (inner == 1) {
      size = std::max<int64_t>(1, kCrossEntropyBlock / std::max<int64_t>(classes, 1));
      count = (batch + size - 1) / size;
    } else {
      size = std::clamp<int64_t>(inner, 1, ColumnExponentials<float>::kColumns);
      per_sample = (inner + size - 1) / size;
      count = batch * per_sample;
    }
    const int64_t elements = std::max<int64_t>(1, size * classes);
    grain = std::max<int64_t>(1, kCrossEntropyBlock / elements);
  }
  int64_t inner, size = 1, per_sample = 1, count = 0, grain = 1;
};

void cross_entropy_kernel(const TensorView& out, const TensorView& statistics, const TensorView& input,
                          const TensorView& target, const TensorView& weight, int64_t reduction, int64_t ignore_index,
                          double label_smoothing) {
  visit_floating("cross_entropy", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const Problem<T> p(input, target, weight, ignore_index, label_smoothing);
    C *largest = statistics.ptr<C>(), *log_sum = largest + p.rows;
    const Blocks blocks(p.batch, p.classes, p.inner);
    LossSink<T> sink(out, reduction, blocks.count);
    parallel_for(0, blocks.count, blocks.grain, [&](int64_t first, int64_t last) {
      const auto buffer = row_buffer<T>(p.inner == 1 ? p.classes : 0);
      for (int64_t b = first; b < last; ++b) {
        if (p.inner == 1) {
          const int64_t end = std::min(p.rows, (b + 1) * blocks.size);
          forward_rows(p, sink, b, b * blocks.size, end, largest, log_sum, buffer.get());
        } else {
          const int64_t column = b % blocks.per_sample * blocks.size;
          const int64_t columns = std::min(blocks.size, p.inner - column);
          forward_columns(p, sink, b, b / blocks.per_sample, column, columns, largest, log_sum);
        }
      }
    });
    largest[2 * p.rows] = static_cast<C>(sink.finish(out, reduction));
  });
}

// gradient = factor * (probability * share_sum - uniform * weight), to which the target's own share is added after.
template <class C>
HWY_INLINE void row_gradient(const C* x, const C* weight, int64_t n, C largest, C log_sum, C share_sum, C uniform,
                             C* out) {
  const hn::ScalableTag<C> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V top = hn::Set(d, largest), log = hn::Set(d, log_sum), share = hn::Set(d, share_sum);
  const auto probability = [&](V v) { return hn::Mul(exp_nonpositive(d, hn::Sub(hn::Sub(v, top), log)), share); };
  int64_t i = 0;
  if (uniform == 0) {
    for (; i + kExponentials * lanes <= n; i += kExponentials * lanes) {
      V e[kExponentials];
      for (int64_t k = 0; k < kExponentials; ++k) e[k] = hn::Sub(hn::Sub(hn::LoadU(d, x + i + k * lanes), top), log);
      exp_of_nonpositive(d, e);
      for (int64_t k = 0; k < kExponentials; ++k) hn::StoreU(hn::Mul(e[k], share), d, out + i + k * lanes);
    }
    for (; i + lanes <= n; i += lanes) hn::StoreU(probability(hn::LoadU(d, x + i)), d, out + i);
    if (i < n) store_first(probability(load_first(d, x + i, n - i)), d, out + i, n - i);
    return;
  }
  const V every = hn::Set(d, uniform);
  for (; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    const V part = weight ? hn::Mul(every, load_first(d, weight + i, rest)) : every;
    store_first(hn::Sub(probability(load_first(d, x + i, rest)), part), d, out + i, rest);
  }
}

template <class T>
struct RowFactor {
  RowFactor(const TensorView& grad, double total_weight, int64_t reduction)
      : each(reduction == kNone ? grad.ptr<const T>() : nullptr) {
    if (!each) all = static_cast<double>(static_cast<Computed<T>>(*grad.ptr<const T>()));
    if (reduction == kMean) all /= total_weight;
  }
  double operator()(int64_t row) const { return each ? static_cast<double>(static_cast<Computed<T>>(each[row])) : all; }
  const T* each;
  double all = 1;
};

template <class T>
void backward_rows(const Problem<T>& p, const RowFactor<T>& factor, const TensorView& statistics, T* out, int64_t begin,
                   int64_t end, Computed<T>* in_buffer, Computed<T>* out_buffer) {
  using C = Computed<T>;
  const C *largest = statistics.ptr<C>(), *log_sum = largest + p.rows;
  const int64_t n = p.classes;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t label = p.labels[r];
    T* to = out + r * n;
    if (label < 0) {
      std::fill_n(to, n, T(C(0)));
      continue;
    }
    const double f = factor(r), own = (1 - p.smoothing) * p.weight_of(label);
    C* gradient = result_row(to, out_buffer);
    row_gradient(open_row(p.x + r * n, n, in_buffer), p.weight.data, n, largest[r], log_sum[r],
                 static_cast<C>(f * (own + p.uniform * p.total_weight)), static_cast<C>(f * p.uniform), gradient);
    gradient[label] -= static_cast<C>(f * own);
    close_row(gradient, n, to);
  }
}

template <class T>
void backward_columns(const Problem<T>& p, const RowFactor<T>& factor, const TensorView& statistics, T* out,
                      int64_t sample, int64_t first, int64_t columns) {
  using C = Computed<T>;
  constexpr int64_t kColumns = ColumnExponentials<C>::kColumns;
  const int64_t n = p.classes, inner = p.inner, row = sample * inner + first, at = sample * n * inner + first;
  const C *largest = statistics.ptr<C>() + row, *log_sum = statistics.ptr<C>() + p.rows + row;
  alignas(64) C share[kColumns], every[kColumns], own[kColumns], buffer[kColumns], result[kColumns];
  int64_t label_of[kColumns];
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t label = label_of[j] = p.labels[row + j];
    const double f = label < 0 ? 0 : factor(row + j);
    const double own_share = label < 0 ? 0 : (1 - p.smoothing) * p.weight_of(label);
    share[j] = static_cast<C>(f * (own_share + p.uniform * p.total_weight));
    every[j] = static_cast<C>(f * p.uniform);
    own[j] = static_cast<C>(f * own_share);
  }
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < n; ++c) {
    const C* x = open_row(p.x + at + c * inner, columns, buffer);
    C* to = result_row(out + at + c * inner, result);
    const auto weight = hn::Set(d, static_cast<C>(p.weight_of(c)));
    for (int64_t j = 0; j < columns; j += lanes) {
      const int64_t rest = std::min(lanes, columns - j);
      const auto centred = hn::Sub(load_first(d, x + j, rest), load_first(d, largest + j, rest));
      const auto e = exp_nonpositive(d, hn::Sub(centred, load_first(d, log_sum + j, rest)));
      const auto part = hn::Mul(load_first(d, every + j, rest), weight);
      const auto factors = load_first(d, share + j, rest);
      // A row that does not count gets zeros even where its logits are not finite.
      const auto v = hn::Sub(hn::Mul(e, factors), part);
      store_first(hn::IfThenZeroElse(hn::Eq(factors, hn::Zero(d)), v), d, to + j, rest);
    }
    for (int64_t j = 0; j < columns; ++j)
      if (label_of[j] == c) to[j] -= own[j];
    close_row(to, columns, out + at + c * inner);
  }
}

void cross_entropy_backward_kernel(const TensorView& grad_input, const TensorView& grad, const TensorView& input,
                                   const TensorView& target, const TensorView& weight, const TensorView& statistics,
                                   int64_t reduction, int64_t ignore_index, double label_smoothing) {
  visit_floating("cross_entropy_backward", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const Problem<T> p(input, target, weight, ignore_index, label_smoothing);
    const RowFactor<T> factor(grad, static_cast<double>(statistics.ptr<C>()[2 * p.rows]), reduction);
    const Blocks blocks(p.batch, p.classes, p.inner);
    T* out = grad_input.ptr<T>();
    parallel_for(0, blocks.count, blocks.grain, [&](int64_t first, int64_t last) {
      const auto in_buffer = row_buffer<T>(p.inner == 1 ? p.classes : 0),
                 out_buffer = row_buffer<T>(p.inner == 1 ? p.classes : 0);
      for (int64_t b = first; b < last; ++b) {
        if (p.inner == 1) {
          const int64_t end = std::min(p.rows, (b + 1) * blocks.size);
          backward_rows(p, factor, statistics, out, b * blocks.size, end, in_buffer.get(), out_buffer.get());
        } else {
          const int64_t column = b % blocks.per_sample * blocks.size;
          const int64_t columns = std::min(blocks.size, p.inner - column);
          backward_columns(p, factor, statistics, out, b / blocks.per_sample, column, columns);
        }
      }
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(cross_entropy_kernel);
HWY_EXPORT(cross_entropy_backward_kernel);
MICA_REGISTER_SIMD(cross_entropy, cross_entropy_kernel);
MICA_REGISTER_SIMD(cross_entropy_backward, cross_entropy_backward_kernel);
}  // namespace mica::cpu
#endif
