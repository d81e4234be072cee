// The pointwise part of recurrent cells, for a run of hidden units of one row. Gates lie one group of units after
// another: LSTM input, forget, cell, output; GRU reset, update, new.

#if defined(MICA_CPU_RECURRENT_CELLS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_RECURRENT_CELLS_INL_H_
#undef MICA_CPU_RECURRENT_CELLS_INL_H_
#else
#define MICA_CPU_RECURRENT_CELLS_INL_H_
#endif

#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/convert-inl.h"
#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(at, load, store) for every vector of [0, count).
template <class T, class Body>
HWY_INLINE void for_vectors(int64_t count, const Body& body) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    body([&](const T* from) HWY_ATTR { return hn::LoadU(d, from + i); },
         [&](V v, T* to) HWY_ATTR { hn::StoreU(v, d, to + i); });
  }
  if (i < count) {
    const size_t rest = static_cast<size_t>(count - i);
    body([&](const T* from) HWY_ATTR { return load_first(d, from + i, rest); },
         [&](V v, T* to) HWY_ATTR { store_first(v, d, to + i, rest); });
  }
}

// Values rounded to a 16-bit format, still as floats.
template <class Format>
HWY_INLINE void round_run(float* values, int64_t count) {
  const hn::ScalableTag<float> d;
  for_vectors<float>(count, [&](const auto& load, const auto& store)
                                HWY_ATTR { store(Format::to_float(d, Format::from_float(d, load(values))), values); });
}

// h = activation(gate)
template <bool kTanh, class T>
HWY_INLINE void elman_forward(const T* gate, T* h, int64_t count) {
  const hn::ScalableTag<T> d;
  for_vectors<T>(count, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto x = load(gate);
    if constexpr (kTanh) {
      store(tanh(d, x), h);
    } else {
      store(hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x), h);  // keeps NaN
    }
  });
}

template <bool kTanh, class T>
HWY_INLINE void elman_backward(const T* grad_h, const T* h, T* grad_gate, int64_t count) {
  const hn::ScalableTag<T> d;
  for_vectors<T>(count, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto g = load(grad_h), y = load(h);
    if constexpr (kTanh) {
      store(hn::NegMulAdd(hn::Mul(g, y), y, g), grad_gate);
    } else {
      store(hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), g), grad_gate);
    }
  });
}

// Gates are replaced by their activations.
template <class T>
HWY_INLINE void lstm_forward(T* gates, int64_t units, const T* c_before, T* c, T* h, int64_t count) {
  const hn::ScalableTag<T> d;
  T *gi = gates, *gf = gates + units, *gg = gates + 2 * units, *go = gates + 3 * units;
  for_vectors<T>(count, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto i = sigmoid(d, load(gi)), f = sigmoid(d, load(gf)), g = tanh(d, load(gg)), o = sigmoid(d, load(go));
    const auto cell = hn::MulAdd(f, load(c_before), hn::Mul(i, g));
    store(i, gi);
    store(f, gf);
    store(g, gg);
    store(o, go);
    store(cell, c);
    store(hn::Mul(o, tanh(d, cell)), h);
  });
}

// y (1 - y) times a gradient: through a sigmoid whose result was y.
template <class D, class V>
HWY_INLINE V through_sigmoid(D d, V grad, V y) {
  return hn::Mul(grad, hn::Mul(y, hn::Sub(hn::Set(d, 1), y)));
}
template <class V>
HWY_INLINE V through_tanh(V grad, V y) {
  return hn::NegMulAdd(hn::Mul(grad, y), y, grad);
}

// grad_c holds the gradient of the cell and becomes that of the earlier cell. `unprojected`, if it is not null, gets h.
template <class T>
HWY_INLINE void lstm_backward(const T* gates, int64_t units, const T* c_before, const T* c, const T* grad_h, T* grad_c,
                              T* grad_gates, T* unprojected, int64_t count) {
  const hn::ScalableTag<T> d;
  const T *gi = gates, *gf = gates + units, *gg = gates + 2 * units, *go = gates + 3 * units;
  for_vectors<T>(count, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto i = load(gi), f = load(gf), g = load(gg), o = load(go), y = tanh(d, load(c)), dh = load(grad_h);
    const auto dc = hn::Add(load(grad_c), through_tanh(hn::Mul(dh, o), y));
    store(through_sigmoid(d, hn::Mul(dc, g), i), grad_gates);
    store(through_sigmoid(d, hn::Mul(dc, load(c_before)), f), grad_gates + units);
    store(through_tanh(hn::Mul(dc, i), g), grad_gates + 2 * units);
    store(through_sigmoid(d, hn::Mul(dh, y), o), grad_gates + 3 * units);
    store(hn::Mul(dc, f), grad_c);
    if (unprojected) store(hn::Mul(o, y), unprojected);
  });
}

// `hidden` is the product of the earlier state with the hidden weights, with its bias; its new part is kept in
// `candidate`. Gates are replaced by their activations.
template <class T>
HWY_INLINE void gru_forward(T* gates, const T* hidden, int64_t units, const T* h_before, T* candidate, T* h,
                            int64_t count) {
  const hn::ScalableTag<T> d;
  T *gr = gates, *gz = gates + units, *gn = gates + 2 * units;
  for_vectors<T>(count, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto r = sigmoid(d, hn::Add(load(gr), load(hidden))), z = sigmoid(d, hn::Add(load(gz), load(hidden + units)));
    const auto hn_part = load(hidden + 2 * units);
    const auto n = tanh(d, hn::MulAdd(r, hn_part, load(gn)));
    store(r, gr);
    store(z, gz);
    store(n, gn);
    store(hn_part, candidate);
    store(hn::MulAdd(z, hn::Sub(load(h_before), n), n), h);
  });
}

// grad_h becomes that part of the earlier state's gradient that does not pass through the weights.
template <class T>
HWY_INLINE void gru_backward(const T* gates, int64_t units, const T* h_before, const T* candidate, T* grad_h,
                             T* grad_gates, T* grad_hidden_gates, int64_t count) {
  const hn::ScalableTag<T> d;
  const T *gr = gates, *gz = gates + units, *gn = gates + 2 * units;
  for_vectors<T>(count, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto r = load(gr), z = load(gz), n = load(gn), dh = load(grad_h);
    const auto dn = through_tanh(hn::NegMulAdd(dh, z, dh), n);
    const auto dr = through_sigmoid(d, hn::Mul(dn, load(candidate)), r);
    const auto dz = through_sigmoid(d, hn::Mul(dh, hn::Sub(load(h_before), n)), z);
    store(dr, grad_gates);
    store(dz, grad_gates + units);
    store(dn, grad_gates + 2 * units);
    store(dr, grad_hidden_gates);
    store(dz, grad_hidden_gates + units);
    store(hn::Mul(dn, r), grad_hidden_gates + 2 * units);
    store(hn::Mul(dh, z), grad_h);
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_RECURRENT_CELLS_INL_H_
