// RMSprop, Adagrad, Adadelta: a step per element by the size of past gradients.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/optim/adaptive.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/optim/step_loop-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace optim {

// States: the mean square, then the mean gradient if centered, then the momentum.
template <bool kMomentum, bool kCentered>
struct Rmsprop {
  static constexpr int kTensors = 3 + kCentered + kMomentum, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    V alpha, weight, eps, momentum, size;
    Lerp<D> mean;
    On(D d, const FusedParameter& p)
        : alpha(constant(d, p.rmsprop.alpha)),
          weight(constant(d, p.rmsprop.weight)),
          eps(constant(d, p.rmsprop.eps)),
          momentum(constant(d, p.rmsprop.momentum)),
          size(constant(d, -p.rmsprop.lr)),
          mean(d, p.rmsprop.weight) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = hn::MulAdd(hn::Mul(weight, t[1]), t[1], hn::Mul(t[2], alpha));
      V square = t[2];
      if constexpr (kCentered) {
        t[3] = mean(t[3], t[1]);
        square = hn::NegMulAdd(t[3], t[3], square);
      }
      const V divisor = hn::Add(hn::Sqrt(square), eps);
      if constexpr (kMomentum) {
        V& buffer = t[3 + kCentered];
        buffer = hn::Add(hn::Mul(buffer, momentum), hn::Div(t[1], divisor));
        t[0] = hn::MulAdd(buffer, size, t[0]);
      } else {
        t[0] = hn::Add(t[0], hn::Div(hn::Mul(size, t[1]), divisor));
      }
    }
  };
};

struct Adagrad {
  static constexpr int kTensors = 3, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    V size, eps;
    On(D d, const FusedParameter& p) : size(constant(d, -p.adagrad.lr)), eps(constant(d, p.adagrad.eps)) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = hn::MulAdd(t[1], t[1], t[2]);
      t[0] = hn::Add(t[0], hn::Div(hn::Mul(size, t[1]), hn::Add(hn::Sqrt(t[2]), eps)));
    }
  };
};

// States: the mean squares of gradients and of updates.
struct Adadelta {
  static constexpr int kTensors = 4, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    V rho, weight, eps, size;
    On(D d, const FusedParameter& p)
        : rho(constant(d, p.adadelta.rho)),
          weight(constant(d, p.adadelta.weight)),
          eps(constant(d, p.adadelta.eps)),
          size(constant(d, -p.adadelta.lr)) {}
    HWY_INLINE void operator()(V* t) const {
      t[2] = hn::MulAdd(hn::Mul(weight, t[1]), t[1], hn::Mul(t[2], rho));
      const V spread = hn::Sqrt(hn::Add(t[2], eps));
      const V delta = hn::Mul(hn::Div(hn::Sqrt(hn::Add(t[3], eps)), spread), t[1]);
      t[3] = hn::MulAdd(hn::Mul(weight, delta), delta, hn::Mul(t[3], rho));
      t[0] = hn::MulAdd(delta, size, t[0]);
    }
  };
};

}  // namespace optim

using namespace optim;

void rmsprop(const FusedStep& step) {
  run_step("rmsprop_step", step, []<class T>(uint32_t flags, Tag<T>) {
    if (flags & FusedParameter::kCentered)
      return flags & FusedParameter::kMomentum ? run_rule<Rmsprop<true, true>, T> : run_rule<Rmsprop<false, true>, T>;
    return flags & FusedParameter::kMomentum ? run_rule<Rmsprop<true, false>, T> : run_rule<Rmsprop<false, false>, T>;
  });
}
void adagrad(const FusedStep& step) {
  run_step("adagrad_step", step, []<class T>(uint32_t, Tag<T>) { return run_rule<Adagrad, T>; });
}
void adadelta(const FusedStep& step) {
  run_step("adadelta_step", step, []<class T>(uint32_t, Tag<T>) { return run_rule<Adadelta, T>; });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(rmsprop);
HWY_EXPORT(adagrad);
HWY_EXPORT(adadelta);
MICA_REGISTER_SIMD(rmsprop_step, rmsprop);
MICA_REGISTER_SIMD(adagrad_step, adagrad);
MICA_REGISTER_SIMD(adadelta_step, adadelta);
}  // namespace mica::cpu
#endif
