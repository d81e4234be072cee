// Adam (AdamW among it), Adamax, NAdam, RAdam.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/optim/adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/optim/step_loop-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace optim {

// average * beta + weight * gradient^2
template <class D>
struct SecondMoment {
  using V = hn::VFromD<D>;
  V beta, weight;
  SecondMoment(D d, double b, double w) : beta(constant(d, b)), weight(constant(d, w)) {}
  HWY_INLINE V operator()(V average, V gradient) const {
    return hn::MulAdd(hn::Mul(weight, gradient), gradient, hn::Mul(average, beta));
  }
};

// NaN if either number is.
template <class V>
HWY_INLINE V larger(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);
}

template <bool kAmsgrad>
struct Adam {
  static constexpr int kTensors = kAmsgrad ? 5 : 4, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    Lerp<D> first;
    SecondMoment<D> second;
    V eps, size;
    // size / (sqrt(square) / root + eps) with root multiplied out: a division less, of three operations that share the
    // slowest unit.
    On(D d, const FusedParameter& p)
        : first(d, p.adam.weight1),
          second(d, p.adam.beta2, p.adam.weight2),
          eps(constant(d, p.adam.eps * p.adam.correction2_root)),
          size(constant(d, -p.adam.step_size * p.adam.correction2_root)) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = first(t[2], t[1]);
      t[3] = second(t[3], t[1]);
      V square = t[3];
      if constexpr (kAmsgrad) square = t[4] = larger(t[4], t[3]);
      const V divisor = hn::Add(hn::Sqrt(square), eps);
      t[0] = hn::Add(t[0], hn::Div(hn::Mul(size, t[2]), divisor));
    }
  };
};

struct Adamax {
  static constexpr int kTensors = 4, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    Lerp<D> first;
    V beta2, eps, size;
    On(D d, const FusedParameter& p)
        : first(d, p.adamax.weight1),
          beta2(constant(d, p.adamax.beta2)),
          eps(constant(d, p.adamax.eps)),
          size(constant(d, -p.adamax.step_size)) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = first(t[2], t[1]);
      t[3] = larger(hn::Mul(t[3], beta2), hn::Add(hn::Abs(t[1]), eps));
      t[0] = hn::Add(t[0], hn::Div(hn::Mul(size, t[2]), t[3]));
    }
  };
};

struct Nadam {
  static constexpr int kTensors = 4, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    Lerp<D> first;
    SecondMoment<D> second;
    V correction2, eps, gradient_factor, average_factor;
    On(D d, const FusedParameter& p)
        : first(d, p.nadam.weight1),
          second(d, p.nadam.beta2, p.nadam.weight2),
          correction2(constant(d, p.nadam.correction2)),
          eps(constant(d, p.nadam.eps)),
          gradient_factor(constant(d, p.nadam.gradient_factor)),
          average_factor(constant(d, p.nadam.average_factor)) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = first(t[2], t[1]);
      t[3] = second(t[3], t[1]);
      const V divisor = hn::Add(hn::Sqrt(hn::Div(t[3], correction2)), eps);
      t[0] = hn::Add(t[0], hn::Div(hn::Mul(gradient_factor, t[1]), divisor));
      t[0] = hn::Add(t[0], hn::Div(hn::Mul(average_factor, t[2]), divisor));
    }
  };
};

template <bool kRectified>
struct Radam {
  static constexpr int kTensors = 4, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    Lerp<D> first;
    SecondMoment<D> second;
    V correction1, root, eps, lr, rectification;
    On(D d, const FusedParameter& p)
        : first(d, p.radam.weight1),
          second(d, p.radam.beta2, p.radam.weight2),
          correction1(constant(d, p.radam.correction1)),
          root(constant(d, p.radam.correction2_root)),
          eps(constant(d, p.radam.eps)),
          lr(constant(d, p.radam.lr)),
          rectification(constant(d, p.radam.rectification)) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = first(t[2], t[1]);
      t[3] = second(t[3], t[1]);
      V update = hn::Mul(hn::Div(t[2], correction1), lr);
      if constexpr (kRectified)
        update = hn::Mul(hn::Mul(update, hn::Div(root, hn::Add(hn::Sqrt(t[3]), eps))), rectification);
      t[0] = hn::Sub(t[0], update);
    }
  };
};

}  // namespace optim

using namespace optim;

void adam(const FusedStep& step) {
  run_step("adam_step", step, []<class T>(uint32_t flags, Tag<T>) {
    return flags & FusedParameter::kAmsgrad ? run_rule<Adam<true>, T> : run_rule<Adam<false>, T>;
  });
}
void adamax(const FusedStep& step) {
  run_step("adamax_step", step, []<class T>(uint32_t, Tag<T>) { return run_rule<Adamax, T>; });
}
void nadam(const FusedStep& step) {
  run_step("nadam_step", step, []<class T>(uint32_t, Tag<T>) { return run_rule<Nadam, T>; });
}
void radam(const FusedStep& step) {
  run_step("radam_step", step, []<class T>(uint32_t flags, Tag<T>) {
    return flags & FusedParameter::kRectified ? run_rule<Radam<true>, T> : run_rule<Radam<false>, T>;
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(adam);
HWY_EXPORT(adamax);
HWY_EXPORT(nadam);
HWY_EXPORT(radam);
MICA_REGISTER_SIMD(adam_step, adam);
MICA_REGISTER_SIMD(adamax_step, adamax);
MICA_REGISTER_SIMD(nadam_step, nadam);
MICA_REGISTER_SIMD(radam_step, radam);
}  // namespace mica::cpu
#endif
