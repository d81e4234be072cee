// Losses of pairs of numbers: one pass forward that ends in the sum, one pass backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/loss/pair_loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <vector>

#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/log-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/row_io-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/pair_loss.h"
#include "mica/error.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int64_t kPairChunk = 2048;   // elements summed in their own type before the sum becomes a double
constexpr int64_t kPairGrain = 32768;  // elements that are worth a thread

// The loss of x with target y and its derivative by x; see PairLoss. Comparisons are such that a NaN stays one.
template <PairLoss K>
struct ElementLoss {
  template <class D, class V>
  static HWY_INLINE V loss(D d, V x, V y, V a) {
    using T = hn::TFromD<D>;
    const V difference = hn::Sub(x, y);
    if constexpr (K == PairLoss::Squared) {
      return hn::Mul(difference, difference);
    } else if constexpr (K == PairLoss::Absolute) {
      return hn::Abs(difference);
    } else if constexpr (K == PairLoss::SmoothAbsolute) {
      const V size = hn::Abs(difference), half = hn::Set(d, T(0.5));
      const V inside = hn::Div(hn::Mul(hn::Mul(half, size), size), a);
      return hn::IfThenElse(hn::Ge(size, a), hn::NegMulAdd(half, a, size), inside);
    } else if constexpr (K == PairLoss::Huber) {
      const V size = hn::Abs(difference), half = hn::Set(d, T(0.5));
      const V outside = hn::Mul(a, hn::NegMulAdd(half, a, size));
      return hn::IfThenElse(hn::Gt(size, a), outside, hn::Mul(hn::Mul(half, size), size));
    } else if constexpr (K == PairLoss::BinaryCrossEntropy) {
      const V least = hn::Set(d, T(-100));
      const V with = hn::Max(log(d, x), least), without = hn::Max(log1p(d, hn::Neg(x)), least);
      return hn::NegMulAdd(y, with, hn::Mul(hn::Sub(y, hn::Set(d, T(1))), without));
    } else {
      // (1 - y) x - log(sigmoid(x))
      return hn::MulAdd(hn::Sub(hn::Set(d, T(1)), y), x, hn::Neg(log_sigmoid(d, x)));
    }
  }

  template <class D, class V>
  static HWY_INLINE V slope(D d, V x, V y, V a) {
    using T = hn::TFromD<D>;
    const V difference = hn::Sub(x, y);
    const V one = hn::Set(d, T(1));
    if constexpr (K == PairLoss::Squared) {
      return hn::Add(difference, difference);
    } else if constexpr (K == PairLoss::Absolute) {
      return hn::IfThenElse(hn::Eq(difference, hn::Zero(d)), hn::Zero(d), hn::CopySign(one, difference));
    } else if constexpr (K == PairLoss::SmoothAbsolute) {
      return hn::IfThenElse(hn::Ge(hn::Abs(difference), a), hn::CopySign(one, difference), hn::Div(difference, a));
    } else if constexpr (K == PairLoss::Huber) {
      return hn::IfThenElse(hn::Gt(hn::Abs(difference), a), hn::CopySign(a, difference), difference);
    } else if constexpr (K == PairLoss::BinaryCrossEntropy) {
      return hn::Div(difference, hn::Max(hn::Mul(hn::Sub(one, x), x), hn::Set(d, T(1e-12))));
    } else {
      return hn::Sub(sigmoid(d, x), y);
    }
  }
};

// Whether all lanes are probabilities. A NaN is not one.
template <class D, class V>
HWY_INLINE bool in_unit_interval(D d, V x) {
  return hn::AllTrue(d, hn::And(hn::Ge(x, hn::Zero(d)), hn::Le(x, hn::Set(d, hn::TFromD<D>(1)))));
}

struct RangeErrors {
  std::atomic<bool> input{false}, target{false};
};

template <PairLoss K, class D, class V>
HWY_INLINE void check_range(D d, V x, V y, RangeErrors& errors) {
  if constexpr (K == PairLoss::BinaryCrossEntropy) {
    if (!in_unit_interval(d, x)) [[unlikely]]
      errors.input = true;
    if (!in_unit_interval(d, y)) [[unlikely]]
      errors.target = true;
  }
}

// The sum of the losses of at most kPairChunk elements.
template <PairLoss K, class C>
double chunk_sum(const C* x, const C* y, int64_t n, C a, RangeErrors& errors) {
  const hn::ScalableTag<C> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V va = hn::Set(d, a);
  V s0 = hn::Zero(d), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V x0 = hn::LoadU(d, x + i), y0 = hn::LoadU(d, y + i);
    const V x1 = hn::LoadU(d, x + i + lanes), y1 = hn::LoadU(d, y + i + lanes);
    check_range<K>(d, x0, y0, errors);
    check_range<K>(d, x1, y1, errors);
    s0 = hn::Add(s0, ElementLoss<K>::loss(d, x0, y0, va));
    s1 = hn::Add(s1, ElementLoss<K>::loss(d, x1, y1, va));
  }
  for (; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    const V x0 = load_first(d, x + i, rest), y0 = load_first(d, y + i, rest);
    check_range<K>(d, x0, y0, errors);
    s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, rest), ElementLoss<K>::loss(d, x0, y0, va)));
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1))));
}

template <PairLoss K, class C>
void chunk_losses(const C* x, const C* y, int64_t n, C a, C* out, RangeErrors& errors) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto va = hn::Set(d, a);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    const auto x0 = load_first(d, x + i, rest), y0 = load_first(d, y + i, rest);
    check_range<K>(d, x0, y0, errors);
    store_first(ElementLoss<K>::loss(d, x0, y0, va), d, out + i, rest);
  }
}

// One gradient for all elements (g is null), or one for each.
template <PairLoss K, class C>
void chunk_gradients(const C* x, const C* y, const C* g, C factor, int64_t n, C a, C* out) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto va = hn::Set(d, a), vf = hn::Set(d, factor);
  int64_t i = 0;
  if (!g)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::Mul(ElementLoss<K>::slope(d, hn::LoadU(d, x + i), hn::LoadU(d, y + i), va), vf), d, out + i);
  for (; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    auto v = hn::Mul(ElementLoss<K>::slope(d, load_first(d, x + i, rest), load_first(d, y + i, rest), va), vf);
    if (g) v = hn::Mul(v, load_first(d, g + i, rest));
    store_first(v, d, out + i, rest);
  }
}

// Runs body(begin, count) over chunks; the chunks do not depend on the number of threads.
template <class Body>
void over_chunks(int64_t n, const Body& body) {
  if (n <= kPairChunk) return body(0, n);
  const int64_t chunks = (n + kPairChunk - 1) / kPairChunk;
  parallel_for(0, chunks, kPairGrain / kPairChunk, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) body(c * kPairChunk, std::min(kPairChunk, n - c * kPairChunk));
  });
}

// The loops of one loss in the type they compute in, so that only those are compiled for every loss.
template <class C>
struct Loops {
  double (*sum)(const C*, const C*, int64_t, C, RangeErrors&);
  void (*losses)(const C*, const C*, int64_t, C, C*, RangeErrors&);
  void (*gradients)(const C*, const C*, const C*, C, int64_t, C, C*);
};

template <class C>
Loops<C> loops_of(int64_t kind) {
  switch (static_cast<PairLoss>(kind)) {
#define MICA_PAIR_LOSS(K) \
  case PairLoss::K:       \
    return {chunk_sum<PairLoss::K, C>, chunk_losses<PairLoss::K, C>, chunk_gradients<PairLoss::K, C>};
    MICA_PAIR_LOSS(Squared)
    MICA_PAIR_LOSS(Absolute)
    MICA_PAIR_LOSS(SmoothAbsolute)
    MICA_PAIR_LOSS(Huber)
    MICA_PAIR_LOSS(BinaryCrossEntropy)
    MICA_PAIR_LOSS(BinaryCrossEntropyOfLogit)
#undef MICA_PAIR_LOSS
  }
  return {};
}

template <class T>
void forward(const TensorView& out, const TensorView& input, const TensorView& target, int64_t kind, double parameter,
             int64_t reduction) {
  using C = Computed<T>;
  const Loops<C> loops = loops_of<C>(kind);
  const int64_t n = input.numel;
  const T *x = input.ptr<T>(), *y = target.ptr<T>();
  const C a = static_cast<C>(parameter);
  RangeErrors errors;
  std::vector<double> sums(reduction == kNone || n <= kPairChunk ? 0 : (n + kPairChunk - 1) / kPairChunk);
  double one_sum = 0;
  over_chunks(n, [&](int64_t at, int64_t count) {
    alignas(64) C buffers[kIsNarrow<T> ? 3 : 1][kIsNarrow<T> ? kPairChunk : 1];
    const C *xs = open_row(x + at, count, buffers[0]), *ys = open_row(y + at, count, buffers[kIsNarrow<T> ? 1 : 0]);
    if (reduction == kNone) {
      C* to = result_row(out.ptr<T>() + at, buffers[kIsNarrow<T> ? 2 : 0]);
      loops.losses(xs, ys, count, a, to, errors);
      close_row(to, count, out.ptr<T>() + at);
    } else {
      (sums.empty() ? one_sum : sums[at / kPairChunk]) = loops.sum(xs, ys, count, a, errors);
    }
  });
  MICA_CHECK(!errors.input, "all elements of input should be between 0 and 1");
  MICA_CHECK(!errors.target, "all elements of target should be between 0 and 1");
  if (reduction == kNone) return;
  for (double s : sums) one_sum += s;
  if (reduction == kMean) one_sum /= static_cast<double>(n);
  *out.ptr<T>() = static_cast<T>(static_cast<C>(one_sum));
}

template <class T>
void backward(const TensorView& grad_input, const TensorView& grad, const TensorView& input, const TensorView& target,
              int64_t kind, double parameter, double scale) {
  using C = Computed<T>;
  const Loops<C> loops = loops_of<C>(kind);
  const T *x = input.ptr<T>(), *y = target.ptr<T>();
  T* out = grad_input.ptr<T>();
  const bool one = grad.numel == 1;
  const C a = static_cast<C>(parameter);
  const double upstream = one ? static_cast<double>(static_cast<C>(*grad.ptr<T>())) : 1;
  const C factor = static_cast<C>(upstream * scale);
  over_chunks(input.numel, [&](int64_t at, int64_t count) {
    alignas(64) C buffers[kIsNarrow<T> ? 4 : 1][kIsNarrow<T> ? kPairChunk : 1];
    const auto buffer = [&](int i) { return buffers[kIsNarrow<T> ? i : 0]; };
    const C* g = one ? nullptr : open_row(grad.ptr<T>() + at, count, buffer(0));
    C* to = result_row(out + at, buffer(1));
    loops.gradients(open_row(x + at, count, buffer(2)), open_row(y + at, count, buffer(3)), g, factor, count, a, to);
    close_row(to, count, out + at);
  });
}

void pair_loss_kernel(const TensorView& out, const TensorView& input, const TensorView& target, int64_t kind,
                      double parameter, int64_t reduction) {
  visit_floating(kernel_name(static_cast<PairLoss>(kind)), input.dtype,
                 [&]<class T>(Tag<T>) { forward<T>(out, input, target, kind, parameter, reduction); });
}

void pair_loss_backward_kernel(const TensorView& grad_input, const TensorView& grad, const TensorView& input,
                               const TensorView& target, int64_t kind, double parameter, double scale) {
  visit_floating(kernel_name(static_cast<PairLoss>(kind)), input.dtype,
                 [&]<class T>(Tag<T>) { backward<T>(grad_input, grad, input, target, kind, parameter, scale); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(pair_loss_kernel);
HWY_EXPORT(pair_loss_backward_kernel);
MICA_REGISTER_SIMD(pair_loss, pair_loss_kernel);
MICA_REGISTER_SIMD(pair_loss_backward, pair_loss_backward_kernel);
}  // namespace mica::cpu
#endif
