// SGD, averaged SGD, Rprop.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/optim/gradient_descent.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/optim/step_loop-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace optim {

template <bool kMomentum, bool kNesterov, bool kFirst>
struct Sgd {
  static constexpr int kTensors = kMomentum ? 3 : 2, kUnread = kFirst ? 2 : -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    V size, momentum, undamped;
    On(D d, const FusedParameter& p)
        : size(constant(d, -p.sgd.lr)), momentum(constant(d, p.sgd.momentum)), undamped(constant(d, p.sgd.undamped)) {}
    HWY_INLINE void operator()(V* t) const {
      V direction = t[1];
      if constexpr (kMomentum) {
        t[2] = kFirst ? direction : hn::MulAdd(direction, undamped, hn::Mul(t[2], momentum));
        direction = kNesterov ? hn::MulAdd(t[2], momentum, direction) : t[2];
      }
      t[0] = hn::MulAdd(direction, size, t[0]);
    }
  };
};

template <bool kAveraging>
struct Asgd {
  static constexpr int kTensors = 3, kUnread = kAveraging ? -1 : 2;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    V shrinkage, size, mu;
    On(D d, const FusedParameter& p)
        : shrinkage(constant(d, p.asgd.shrinkage)), size(constant(d, -p.asgd.eta)), mu(constant(d, p.asgd.mu)) {}
    HWY_INLINE void operator()(V* t) const {
      t[0] = hn::MulAdd(t[1], size, hn::Mul(t[0], shrinkage));
      t[2] = kAveraging ? hn::Add(t[2], hn::Mul(hn::Sub(t[0], t[2]), mu)) : t[0];
    }
  };
};

// States: the gradient before, the step sizes.
struct Rprop {
  static constexpr int kTensors = 4, kUnread = -1;
  template <class D>
  struct On {
    using V = hn::VFromD<D>;
    V minus, plus, smallest, largest, zero, one;
    On(D d, const FusedParameter& p)
        : minus(constant(d, p.rprop.eta_minus)),
          plus(constant(d, p.rprop.eta_plus)),
          smallest(constant(d, p.rprop.smallest)),
          largest(constant(d, p.rprop.largest)),
          zero(hn::Zero(d)),
          one(constant(d, 1)) {}
    HWY_INLINE void operator()(V* t) const {
      const V agreement = hn::Mul(t[1], t[2]);
      const auto turned = hn::Lt(agreement, zero);
      const V factor = hn::IfThenElse(hn::Gt(agreement, zero), plus, hn::IfThenElse(turned, minus, one));
      const V size = hn::Mul(t[3], factor);
      const V bounded = hn::Min(hn::Max(size, smallest), largest);
      t[3] = hn::IfThenElse(hn::IsNaN(size), size, bounded);
      t[2] = hn::IfThenZeroElse(turned, t[1]);
      const V down = hn::IfThenElseZero(hn::Gt(t[2], zero), one);
      const V up = hn::IfThenElseZero(hn::Lt(t[2], zero), one);
      t[0] = hn::Add(t[0], hn::Mul(hn::Sub(up, down), t[3]));
    }
  };
};

}  // namespace optim

using namespace optim;

void sgd(const FusedStep& step) {
  run_step("sgd_step", step, []<class T>(uint32_t flags, Tag<T>) {
    if (!(flags & FusedParameter::kMomentum)) return run_rule<Sgd<false, false, false>, T>;
    if (flags & FusedParameter::kFirst)
      return flags & FusedParameter::kNesterov ? run_rule<Sgd<true, true, true>, T>
                                               : run_rule<Sgd<true, false, true>, T>;
    return flags & FusedParameter::kNesterov ? run_rule<Sgd<true, true, false>, T>
                                             : run_rule<Sgd<true, false, false>, T>;
  });
}
void asgd(const FusedStep& step) {
  run_step("asgd_step", step, []<class T>(uint32_t flags, Tag<T>) {
    return flags & FusedParameter::kAveraging ? run_rule<Asgd<true>, T> : run_rule<Asgd<false>, T>;
  });
}
void rprop(const FusedStep& step) {
  run_step("rprop_step", step, []<class T>(uint32_t, Tag<T>) { return run_rule<Rprop, T>; });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(sgd);
HWY_EXPORT(asgd);
HWY_EXPORT(rprop);
MICA_REGISTER_SIMD(sgd_step, sgd);
MICA_REGISTER_SIMD(asgd_step, asgd);
MICA_REGISTER_SIMD(rprop_step, rprop);
}  // namespace mica::cpu
#endif
