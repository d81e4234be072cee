// The loop of a fused step: vectors of the parameter, its gradient and its states are loaded, given to the rule,
// stored.

#if defined(MICA_CPU_OPTIM_STEP_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_OPTIM_STEP_LOOP_INL_H_
#undef MICA_CPU_OPTIM_STEP_LOOP_INL_H_
#else
#define MICA_CPU_OPTIM_STEP_LOOP_INL_H_
#endif

#include "backends/cpu/optim/share_work.h"
#include "backends/cpu/simd/convert-inl.h"
#include "backends/cpu/simd/memory-inl.h"
#include "backends/cpu/visit_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE::optim {
namespace hn = hwy::HWY_NAMESPACE;

// Memory of element type T as vectors of the type that it is computed in.
template <class T>
struct Elements {
  using Lane = T;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::VFromD<D> load(D d, const void* p, int64_t i) {
    return hn::LoadU(d, static_cast<const T*>(p) + i);
  }
  static HWY_INLINE void store(hn::VFromD<D> v, D d, void* p, int64_t i) { hn::StoreU(v, d, static_cast<T*>(p) + i); }
  static HWY_INLINE hn::VFromD<D> load_some(D d, const void* p, int64_t i, size_t count) {
    return load_first(d, static_cast<const T*>(p) + i, count);
  }
  static HWY_INLINE void store_some(hn::VFromD<D> v, D d, void* p, int64_t i, size_t count) {
    store_first(v, d, static_cast<T*>(p) + i, count);
  }
};

template <class Format>
struct ShortElements {
  using Lane = float;
  using D = hn::ScalableTag<float>;
  static HWY_INLINE hn::VFromD<D> load(D d, const void* p, int64_t i) {
    return load_as_float<Format>(d, static_cast<const uint16_t*>(p) + i);
  }
  static HWY_INLINE void store(hn::VFromD<D> v, D d, void* p, int64_t i) {
    store_from_float<Format>(v, d, static_cast<uint16_t*>(p) + i);
  }
  static HWY_INLINE hn::VFromD<D> load_some(D d, const void* p, int64_t i, size_t count) {
    return load_first_as_float<Format>(d, static_cast<const uint16_t*>(p) + i, count);
  }
  static HWY_INLINE void store_some(hn::VFromD<D> v, D d, void* p, int64_t i, size_t count) {
    store_first_from_float<Format>(v, d, static_cast<uint16_t*>(p) + i, count);
  }
};
template <>
struct Elements<Half> : ShortElements<HalfBits> {};
template <>
struct Elements<BFloat16> : ShortElements<BFloat16Bits> {};

template <class D>
HWY_INLINE hn::VFromD<D> constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

// What all rules do first: the sign of the objective, and weight decay in its two forms.
template <class D>
struct Prologue {
  using V = hn::VFromD<D>;
  V decay;
  bool maximize, decays, shrinks;

  Prologue(D d, const FusedParameter& p)
      : decay(constant(d, p.decay)),
        maximize(p.flags & FusedParameter::kMaximize),
        decays(p.flags & FusedParameter::kDecay),
        shrinks(p.flags & FusedParameter::kShrink) {}
  HWY_INLINE void apply(V& parameter, V& gradient) const {
    if (maximize) gradient = hn::Neg(gradient);
    if (decays) gradient = hn::MulAdd(parameter, decay, gradient);
    if (shrinks) parameter = hn::Mul(parameter, decay);
  }
};

// from + weight (to - from), from the end that is nearer.
template <class D>
struct Lerp {
  using V = hn::VFromD<D>;
  V weight;
  bool from_start;

  // The weight is rounded before one is taken off, as torch does.
  Lerp(D d, double w) : from_start(w < 0.5) {
    const auto rounded = static_cast<hn::TFromD<D>>(w);
    weight = hn::Set(d, from_start ? rounded : rounded - 1);
  }
  HWY_INLINE V operator()(V from, V to) const { return hn::MulAdd(weight, hn::Sub(to, from), from_start ? from : to); }
};

// A Rule has kTensors, the index kUnread of a state that is written without being read (or -1), and a class template
// On<D>, made of (d, parameter), that changes the vectors t[0] (parameter), t[1] (gradient), t[2]... (states).
template <class Rule, class T>
void run_rule(const FusedParameter& p, int64_t begin, int64_t end) {
  using E = Elements<T>;
  using D = typename E::D;
  const D d;
  const Prologue<D> prologue(d, p);
  const typename Rule::template On<D> rule(d, p);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::VFromD<D> t[Rule::kTensors];
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
#pragma GCC unroll 5
    for (int k = 0; k < Rule::kTensors; ++k) t[k] = k == Rule::kUnread ? hn::Zero(d) : E::load(d, p.tensors[k], i);
    prologue.apply(t[0], t[1]);
    rule(t);
#pragma GCC unroll 5
    for (int k = 0; k < Rule::kTensors; ++k)
      if (k != 1) E::store(t[k], d, p.tensors[k], i);
  }
  if (i == end) return;
  const size_t rest = static_cast<size_t>(end - i);
#pragma GCC unroll 5
  for (int k = 0; k < Rule::kTensors; ++k)
    t[k] = k == Rule::kUnread ? hn::Zero(d) : E::load_some(d, p.tensors[k], i, rest);
  prologue.apply(t[0], t[1]);
  rule(t);
#pragma GCC unroll 5
  for (int k = 0; k < Rule::kTensors; ++k)
    if (k != 1) E::store_some(t[k], d, p.tensors[k], i, rest);
}

// Runs for each parameter the rule that choose(flags) names: it returns a function of (parameter, begin, end).
template <class Choose>
void run_step(const char* name, const FusedStep& step, const Choose& choose) {
  visit_floating(name, step.dtype, [&]<class T>(Tag<T> tag) {
    share_work(step, [&](const FusedParameter& p, int64_t begin, int64_t end) { choose(p.flags, tag)(p, begin, end); });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE::optim
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_OPTIM_STEP_LOOP_INL_H_
