// Cross entropy. The logits are read once forward, in their own dtype, and once backward:
// two numbers of each row are kept, from which the probabilities are made again.
#include "backends/cuda/bounds.h"
#include "backends/cuda/loss/finish.cuh"
#include "backends/cuda/softmax/rows.cuh"

namespace mica::cuda {

namespace {

constexpr const char* kLabels = "cross_entropy";

template <class T>
struct Problem {
  using C = compute_t<T>;
  const T* x;
  Labels labels;
  Parameter<T> weight;
  int64_t classes, inner, rows;
  C smoothing, uniform;
  const C* all_weights;  // their sum; null for one each
  Bounds bounds;

  __device__ C weight_of(int64_t c) const { return weight.given() ? weight.at(c) : C(1); }
  __device__ C weight_sum() const { return all_weights ? *all_weights : static_cast<C>(classes); }
};

// e^x to a few units in the last place, which sums of many forgive; doubles exactly.
__device__ inline float fast_exp(float x) { return __expf(x); }
__device__ inline double fast_exp(double x) { return ::exp(x); }

template <class C>
struct Exponentials {
  C largest = -static_cast<C>(INFINITY), sum = 0, against = 0;
  __device__ void add(C x) {
    if (x == -static_cast<C>(INFINITY)) return;
    if (x <= largest) {
      sum += ::exp(x - largest);
    } else {
      sum = (sum == C(0) ? C(0) : sum * ::exp(largest - x)) + C(1);
      largest = x;
    }
  }
};

// Adds a vector's exponentials: the sum so far is rescaled once.
template <int V, class C>
__device__ void add_vector(Exponentials<C>& e, const C (&x)[V]) {
  C top = x[0];
#pragma unroll
  for (int j = 1; j < V; ++j) top = MaxOp<C>{}(top, x[j]);
  if (!(top <= e.largest)) {  // a NaN takes over, and stays in the sum
    e.sum = e.sum == C(0) ? C(0) : e.sum * ::exp(e.largest - top);
    e.largest = top;
  }
  if (e.largest == -static_cast<C>(INFINITY)) return;
#pragma unroll
  for (int j = 0; j < V; ++j) e.sum += fast_exp(x[j] - e.largest);
}

// A row as elements up to an aligned address, pieces of 16 bytes, and the elements that are left.
template <class T>
struct RowParts {
  int64_t head, pieces, tail;
  __device__ RowParts(const T* row, int64_t n) {
    head = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T));
    if (head > n) head = n;
    pieces = (n - head) / kVector<T>;
    tail = head + pieces * kVector<T>;
  }
  __device__ Vector<T, kVector<T>> piece(const T* row, int64_t i) const {
    return *reinterpret_cast<const Vector<T, kVector<T>>*>(row + head + i * kVector<T>);
  }
  // f(piece, i) for every kGroup-th piece from `lane` on; several are on their way at a time.
  template <int kGroup, class F>
  __device__ void for_each_piece(const T* row, int lane, const F& f) const {
    constexpr int kBatch = sizeof(T) >= 8 ? 1 : 4;
    int64_t i = lane;
    for (; i + (kBatch - 1) * kGroup < pieces; i += kBatch * kGroup) {
      Vector<T, kVector<T>> batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) batch[b] = piece(row, i + b * kGroup);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) f(batch[b], i + b * kGroup);
    }
    for (; i < pieces; i += kGroup) f(piece(row, i), i);
  }
};

template <class T>
__device__ void finish_row(const Problem<T>& p, int64_t row, int64_t label, compute_t<T> largest, compute_t<T> sum,
                           compute_t<T> of_label, compute_t<T> weighted, compute_t<T>* statistics,
                           const Statistic<T>& each, double* losses, double* weights) {
  using C = compute_t<T>;
  const C log_sum = ::isfinite(largest) ? ::log(sum) : static_cast<C>(NAN);
  statistics[row] = largest;
  statistics[p.rows + row] = log_sum;
  double loss = 0, weight = 0;
  if (label >= 0) {
    weight = static_cast<double>(p.weight_of(label));
    const double against = static_cast<double>(largest - of_label) + static_cast<double>(log_sum);
    loss = (1.0 - static_cast<double>(p.smoothing)) * weight * against;
    if (p.smoothing > C(0)) {
      const double all =
          static_cast<double>(p.weight_sum()) * (static_cast<double>(largest) + static_cast<double>(log_sum)) -
          static_cast<double>(weighted);
      loss += static_cast<double>(p.uniform) * all;
    }
  }
  if (each.given()) each.set(row, static_cast<C>(loss));
  losses[row] = loss;
  weights[row] = weight;
}

template <class T, int kGroup>
__global__ void __launch_bounds__(row_threads(kGroup))
    forward_rows(Problem<T> p, compute_t<T>* statistics, Statistic<T> each, double* losses, double* weights) {
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= p.rows) return;
  const T* x = p.x + row * p.classes;
  Exponentials<C> own;
  const bool smoothed = p.smoothing > C(0);
  const int lane = threadIdx.x % kGroup;
  auto against = [&](C v, int64_t c) {
    if (smoothed) own.against += p.weight_of(c) * v;
  };
  const RowParts<T> parts(x, p.classes);
  for (int64_t i = lane; i < parts.head; i += kGroup) own.add(convert<C>(x[i])), against(convert<C>(x[i]), i);
  parts.template for_each_piece<kGroup>(x, lane, [&](const auto& piece, int64_t i) {
    C v[kVector<T>];
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) v[j] = convert<C>(piece.item[j]);
    add_vector(own, v);
    if (smoothed)
      for (int j = 0; j < kVector<T>; ++j) against(v[j], parts.head + i * kVector<T> + j);
  });
  for (int64_t i = parts.tail + lane; i < p.classes; i += kGroup)
    own.add(convert<C>(x[i])), against(convert<C>(x[i]), i);
  const C largest = all_reduce<kGroup>(own.largest, MaxOp<C>{});
  const C sum = all_reduce<kGroup>(own.sum == C(0) ? C(0) : own.sum * ::exp(own.largest - largest), AddOp<C>{});
  const C weighted = smoothed ? all_reduce<kGroup>(own.against, AddOp<C>{}) : C(0);
  if (threadIdx.x % kGroup) return;
  const int64_t label = p.labels.at(row, p.bounds);
  finish_row(p, row, label, largest, sum, label >= 0 ? convert<C>(x[label]) : C(0), weighted, statistics, each, losses,
             weights);
}

template <class T>
struct ForwardColumn {
  Problem<T> p;
  compute_t<T>* statistics;
  Statistic<T> each;
  double *losses, *weights;
  __device__ void operator()(int64_t row) const {
    using C = compute_t<T>;
    const T* x = p.x + row / p.inner * p.classes * p.inner + row % p.inner;
    Exponentials<C> own;
    for (int64_t c = 0; c < p.classes; ++c) {
      const C v = convert<C>(x[c * p.inner]);
      own.add(v);
      if (p.smoothing > C(0)) own.against += p.weight_of(c) * v;
    }
    const int64_t label = p.labels.at(row, p.bounds);
    finish_row(p, row, label, own.largest, own.sum, label >= 0 ? convert<C>(x[label * p.inner]) : C(0), own.against,
               statistics, each, losses, weights);
  }
};

template <class T>
struct Gradient {
  using C = compute_t<T>;
  Problem<T> p;
  const C* statistics;
  Parameter<T> grad;  // of the input's dtype, or float32
  int64_t reduction;

  struct Row {
    C largest, log_sum, share, every, own;
    int64_t label;
  };
  __device__ Row row(int64_t r) const {
    Row s{statistics[r], statistics[p.rows + r], C(0), C(0), C(0), p.labels.at(r, p.bounds)};
    if (s.label < 0) return s;
    double factor = static_cast<double>(grad.at(reduction == kNone ? r : 0));
    if (reduction == kMean) factor /= static_cast<double>(statistics[2 * p.rows]);
    const double own = (1.0 - static_cast<double>(p.smoothing)) * static_cast<double>(p.weight_of(s.label));
    s.share = static_cast<C>(factor * (own + static_cast<double>(p.uniform) * static_cast<double>(p.weight_sum())));
    s.every = static_cast<C>(factor * static_cast<double>(p.uniform));
    s.own = static_cast<C>(factor * own);
    return s;
  }
  // Of a class that is not the label of its row; without smoothing, c is not looked at.
  __device__ C of_other(const Row& s, C x, int64_t c) const {
    C g = fast_exp(x - s.largest - s.log_sum) * s.share;
    if (s.every != C(0)) g -= s.every * p.weight_of(c);
    return g;
  }
  __device__ C at(const Row& s, C x, int64_t c) const {
    if (s.label < 0) return C(0);
    const C g = of_other(s, x, c);
    return c == s.label ? g - s.own : g;
  }
};

// `alike`: rows of the input and of the gradient are aligned alike, so that both go in vectors.
template <class T, int kGroup>
__global__ void __launch_bounds__(row_threads(kGroup)) backward_rows(Gradient<T> g, T* out, bool alike) {
  using C = compute_t<T>;
  constexpr int V = kVector<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= g.p.rows) return;
  const int64_t n = g.p.classes;
  const T* x = g.p.x + row * n;
  out += row * n;
  const auto s = g.row(row);
  const int lane = threadIdx.x % kGroup;
  auto one = [&](int64_t c) { out[c] = convert<T>(g.at(s, convert<C>(x[c]), c)); };
  if (!alike) {
    for (int64_t c = lane; c < n; c += kGroup) one(c);
    return;
  }
  const RowParts<T> parts(x, n);
  for (int64_t c = lane; c < parts.head; c += kGroup) one(c);
  if (s.label < 0) {
    const Vector<T, V> zeros{};
    for (int64_t i = lane; i < parts.pieces; i += kGroup)
      *reinterpret_cast<Vector<T, V>*>(out + parts.head + i * V) = zeros;
  } else {
    parts.template for_each_piece<kGroup>(x, lane, [&](auto piece, int64_t i) {
      const int64_t first = parts.head + i * V;
#pragma unroll
      for (int j = 0; j < V; ++j) piece.item[j] = convert<T>(g.of_other(s, convert<C>(piece.item[j]), first + j));
      *reinterpret_cast<Vector<T, V>*>(out + first) = piece;
    });
    // The label once more, by the thread that has written its piece.
    const int64_t place = s.label - parts.head;
    if (place >= 0 && s.label < parts.tail && place / V % kGroup == lane) one(s.label);
  }
  for (int64_t c = parts.tail + lane; c < n; c += kGroup) one(c);
}

template <class T>
struct BackwardElement {
  Gradient<T> g;
  T* out;
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    const int64_t inner = g.p.inner, c = i / inner % g.p.classes, row = i / (inner * g.p.classes) * inner + i % inner;
    out[i] = convert<T>(g.at(g.row(row), convert<C>(g.p.x[i]), c));
  }
};

template <class T>
__global__ void sum_weights(Parameter<T> weight, int64_t n, compute_t<T>* out) {
  compute_t<T> total = 0;
  for (int64_t c = threadIdx.x; c < n; c += 256) total += weight.at(c);
  total = all_reduce<256>(total, AddOp<compute_t<T>>{});
  if (threadIdx.x == 0) *out = total;
}

// The problem, and the memory of the sum of its weights.
template <class T>
struct Prepared {
  Problem<T> p;
  Workspace sum;
  Prepared(const TensorView& input, const TensorView& target, const TensorView& weight, int64_t ignore_index,
           double smoothing)
      : p{input.ptr<const T>(),
          Labels(target, input.sizes[1], ignore_index),
          Parameter<T>(weight),
          input.sizes[1],
          input.sizes[2],
          input.sizes[0] * input.sizes[2],
          static_cast<compute_t<T>>(smoothing),
          static_cast<compute_t<T>>(input.sizes[1] ? smoothing / static_cast<double>(input.sizes[1]) : 0),
          nullptr,
          Bounds::of(kLabels, input.device.index())},
        sum(sizeof(double), input.device.index()) {
    if (smoothing == 0 || !weight.defined()) return;
    auto* to = static_cast<compute_t<T>*>(sum.data());
    sum_weights<T><<<1, 256, 0, current_stream(input.device.index())>>>(p.weight, p.classes, to);
    MICA_CUDA(cudaGetLastError());
    p.all_weights = to;
  }
};

}  // namespace

void cross_entropy(const TensorView& out, const TensorView& statistics, const TensorView& input,
                   const TensorView& target, const TensorView& weight, int64_t reduction, int64_t ignore_index,
                   double label_smoothing) {
  const int device = input.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  visit_floating("cross_entropy", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const Prepared<T> prepared(input, target, weight, ignore_index, label_smoothing);
    const Problem<T>& p = prepared.p;
    const Workspace parts(static_cast<size_t>(2 * p.rows + 2) * sizeof(double), device);
    auto *losses = static_cast<double*>(parts.data()), *weights = losses + p.rows;
    auto* kept = statistics.ptr<C>();
    const Statistic<T> each = reduction == kNone ? Statistic<T>(out) : Statistic<T>();
    if (p.rows == 0) {
    } else if (p.inner != 1) {
      for_each(device, p.rows, ForwardColumn<T>{p, kept, each, losses, weights});
    } else if (p.classes <= 1024) {
      forward_rows<T, 32><<<blocks_for(p.rows, 4), 128, 0, stream>>>(p, kept, each, losses, weights);
    } else {
      forward_rows<T, 512><<<static_cast<unsigned>(p.rows), 512, 0, stream>>>(p, kept, each, losses, weights);
    }
    MICA_CUDA(cudaGetLastError());
    auto finish = [&]<class O>(Tag<O>) {
      finish_loss<O, C><<<1, 1024, 0, stream>>>(losses, weights, p.rows, reduction == kNone ? nullptr : out.ptr<O>(),
                                                kept + 2 * p.rows, 1, reduction == kMean);
    };
    if (out.dtype == DType::Float32) {
      finish(Tag<float>{});
    } else {
      finish(Tag<T>{});
    }
  });
  MICA_CUDA(cudaGetLastError());
}

void cross_entropy_backward(const TensorView& grad_input, const TensorView& grad, const TensorView& input,
                            const TensorView& target, const TensorView& weight, const TensorView& statistics,
                            int64_t reduction, int64_t ignore_index, double label_smoothing) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  visit_floating("cross_entropy_backward", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const Prepared<T> prepared(input, target, weight, ignore_index, label_smoothing);
    const Gradient<T> g{prepared.p, statistics.ptr<const C>(), Parameter<T>(grad), reduction};
    T* to = grad_input.ptr<T>();
    const bool alike = reinterpret_cast<uintptr_t>(to) % 16 == reinterpret_cast<uintptr_t>(g.p.x) % 16;
    if (g.p.inner != 1) {
      for_each(device, input.numel, BackwardElement<T>{g, to});
    } else if (g.p.classes <= 1024) {
      backward_rows<T, 32><<<blocks_for(g.p.rows, 4), 128, 0, stream>>>(g, to, alike);
    } else {
      backward_rows<T, 512><<<static_cast<unsigned>(g.p.rows), 512, 0, stream>>>(g, to, alike);
    }
  });
  MICA_CUDA(cudaGetLastError());
}

}  // namespace mica::cuda
