// The rules of optimizers: they change one element of the parameter, t[0], by its gradient, t[1], and its states. They
// are those of backends/cpu/optim.
#pragma once

#include "backends/cuda/element.cuh"
#include "mica/optim/fused_step.h"

namespace mica::cuda {

// What a rule needs of a parameter, in the type that it computes in, once for each thread.
template <class C>
struct Lerp {
  C weight;
  bool from_start;
  __device__ explicit Lerp(double w) : from_start(w < 0.5) {
    const C rounded = static_cast<C>(w);
    weight = from_start ? rounded : rounded - C(1);
  }
  __device__ C operator()(C from, C to) const { return ::fma(weight, to - from, from_start ? from : to); }
};
template <class C>
__device__ C larger(C a, C b) {
  return a != a || a > b ? a : b;
}

template <class C>
struct Adam {
  static constexpr int kTensors = 5;  // the last with amsgrad
  Lerp<C> first;
  C beta2, weight2, root, eps, size;
  bool amsgrad;
  __device__ explicit Adam(const FusedParameter& p)
      : first(p.adam.weight1),
        beta2(static_cast<C>(p.adam.beta2)),
        weight2(static_cast<C>(p.adam.weight2)),
        root(static_cast<C>(p.adam.correction2_root)),
        eps(static_cast<C>(p.adam.eps)),
        size(static_cast<C>(-p.adam.step_size)),
        amsgrad(p.flags & FusedParameter::kAmsgrad) {
    if (!p.step) return;
    // The count lives on the device: the corrections are worked out here.
    const double t = static_cast<double>(*p.step), lr = p.lr ? static_cast<double>(*p.lr) : p.adam.step_size;
    root = static_cast<C>(::sqrt(1 - ::pow(p.adam.beta2, t)));
    size = static_cast<C>(-lr / (1 - ::pow(1 - p.adam.weight1, t)));
  }
  __device__ bool uses(int k) const { return k < 4 || amsgrad; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = ::fma(weight2 * t[1], t[1], t[3] * beta2);
    C square = t[3];
    if (amsgrad) square = t[4] = larger(t[4], t[3]);
    t[0] += size * t[2] / (::sqrt(square) / root + eps);
  }
};
template <class C>
struct Adamax {
  static constexpr int kTensors = 4;
  Lerp<C> first;
  C beta2, eps, size;
  __device__ explicit Adamax(const FusedParameter& p)
      : first(p.adamax.weight1),
        beta2(static_cast<C>(p.adamax.beta2)),
        eps(static_cast<C>(p.adamax.eps)),
        size(static_cast<C>(-p.adamax.step_size)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = larger(t[3] * beta2, ::fabs(t[1]) + eps);
    t[0] += size * t[2] / t[3];
  }
};
template <class C>
struct Nadam {
  static constexpr int kTensors = 4;
  Lerp<C> first;
  C beta2, weight2, correction2, eps, gradient_factor, average_factor;
  __device__ explicit Nadam(const FusedParameter& p)
      : first(p.nadam.weight1),
        beta2(static_cast<C>(p.nadam.beta2)),
        weight2(static_cast<C>(p.nadam.weight2)),
        correction2(static_cast<C>(p.nadam.correction2)),
        eps(static_cast<C>(p.nadam.eps)),
        gradient_factor(static_cast<C>(p.nadam.gradient_factor)),
        average_factor(static_cast<C>(p.nadam.average_factor)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = ::fma(weight2 * t[1], t[1], t[3] * beta2);
    const C divisor = ::sqrt(t[3] / correction2) + eps;
    t[0] += gradient_factor * t[1] / divisor;
    t[0] += average_factor * t[2] / divisor;
  }
};
template <class C>
struct Radam {
  static constexpr int kTensors = 4;
  Lerp<C> first;
  C beta2, weight2, correction1, root, eps, lr, rectification;
  bool rectified;
  __device__ explicit Radam(const FusedParameter& p)
      : first(p.radam.weight1),
        beta2(static_cast<C>(p.radam.beta2)),
        weight2(static_cast<C>(p.radam.weight2)),
        correction1(static_cast<C>(p.radam.correction1)),
        root(static_cast<C>(p.radam.correction2_root)),
        eps(static_cast<C>(p.radam.eps)),
        lr(static_cast<C>(p.radam.lr)),
        rectification(static_cast<C>(p.radam.rectification)),
        rectified(p.flags & FusedParameter::kRectified) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = ::fma(weight2 * t[1], t[1], t[3] * beta2);
    C update = t[2] / correction1 * lr;
    if (rectified) update = update * (root / (::sqrt(t[3]) + eps)) * rectification;
    t[0] -= update;
  }
};
template <class C>
struct Rmsprop {
  static constexpr int kTensors = 5;
  C alpha, weight, eps, momentum, size;
  Lerp<C> mean;
  bool has_momentum, centered;
  __device__ explicit Rmsprop(const FusedParameter& p)
      : alpha(static_cast<C>(p.rmsprop.alpha)),
        weight(static_cast<C>(p.rmsprop.weight)),
        eps(static_cast<C>(p.rmsprop.eps)),
        momentum(static_cast<C>(p.rmsprop.momentum)),
        size(static_cast<C>(-p.rmsprop.lr)),
        mean(p.rmsprop.weight),
        has_momentum(p.flags & FusedParameter::kMomentum),
        centered(p.flags & FusedParameter::kCentered) {}
  __device__ bool uses(int k) const { return k < 3 + has_momentum + centered; }
  __device__ void operator()(C* t) const {
    t[2] = ::fma(weight * t[1], t[1], t[2] * alpha);
    C square = t[2];
    if (centered) {
      t[3] = mean(t[3], t[1]);
      square = ::fma(-t[3], t[3], square);
    }
    const C divisor = ::sqrt(square) + eps;
    if (has_momentum) {
      C& buffer = centered ? t[4] : t[3];
      buffer = buffer * momentum + t[1] / divisor;
      t[0] = ::fma(buffer, size, t[0]);
    } else {
      t[0] += size * t[1] / divisor;
    }
  }
};
template <class C>
struct Adagrad {
  static constexpr int kTensors = 3;
  C size, eps;
  __device__ explicit Adagrad(const FusedParameter& p)
      : size(static_cast<C>(-p.adagrad.lr)), eps(static_cast<C>(p.adagrad.eps)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = ::fma(t[1], t[1], t[2]);
    t[0] += size * t[1] / (::sqrt(t[2]) + eps);
  }
};
template <class C>
struct Adadelta {
  static constexpr int kTensors = 4;
  C rho, weight, eps, size;
  __device__ explicit Adadelta(const FusedParameter& p)
      : rho(static_cast<C>(p.adadelta.rho)),
        weight(static_cast<C>(p.adadelta.weight)),
        eps(static_cast<C>(p.adadelta.eps)),
        size(static_cast<C>(-p.adadelta.lr)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = ::fma(weight * t[1], t[1], t[2] * rho);
    const C delta = ::sqrt(t[3] + eps) / ::sqrt(t[2] + eps) * t[1];
    t[3] = ::fma(weight * delta, delta, t[3] * rho);
    t[0] = ::fma(delta, size, t[0]);
  }
};
template <class C>
struct Sgd {
  static constexpr int kTensors = 3;
  C size, momentum, undamped;
  bool has_momentum, nesterov, first;
  __device__ explicit Sgd(const FusedParameter& p)
      : size(static_cast<C>(-p.sgd.lr)),
        momentum(static_cast<C>(p.sgd.momentum)),
        undamped(static_cast<C>(p.sgd.undamped)),
        has_momentum(p.flags & FusedParameter::kMomentum),
        nesterov(p.flags & FusedParameter::kNesterov),
        first(p.flags & FusedParameter::kFirst) {}
  __device__ bool uses(int k) const { return k < 2 || has_momentum; }
  __device__ void operator()(C* t) const {
    C direction = t[1];
    if (has_momentum) {
      t[2] = first ? direction : ::fma(direction, undamped, t[2] * momentum);
      direction = nesterov ? ::fma(t[2], momentum, direction) : t[2];
    }
    t[0] = ::fma(direction, size, t[0]);
  }
};
template <class C>
struct Asgd {
  static constexpr int kTensors = 3;
  C shrinkage, size, mu;
  bool averaging;
  __device__ explicit Asgd(const FusedParameter& p)
      : shrinkage(static_cast<C>(p.asgd.shrinkage)),
        size(static_cast<C>(-p.asgd.eta)),
        mu(static_cast<C>(p.asgd.mu)),
        averaging(p.flags & FusedParameter::kAveraging) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[0] = ::fma(t[1], size, t[0] * shrinkage);
    t[2] = averaging ? t[2] + (t[0] - t[2]) * mu : t[0];
  }
};
template <class C>
struct Rprop {
  static constexpr int kTensors = 4;
  C minus, plus, smallest, largest;
  __device__ explicit Rprop(const FusedParameter& p)
      : minus(static_cast<C>(p.rprop.eta_minus)),
        plus(static_cast<C>(p.rprop.eta_plus)),
        smallest(static_cast<C>(p.rprop.smallest)),
        largest(static_cast<C>(p.rprop.largest)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    const C agreement = t[1] * t[2];
    const bool turned = agreement < C(0);
    const C size = t[3] * (agreement > C(0) ? plus : turned ? minus : C(1));
    t[3] = size != size ? size : size < smallest ? smallest : size > largest ? largest : size;
    t[2] = turned ? C(0) : t[1];
    t[0] += ((t[2] < C(0) ? C(1) : C(0)) - (t[2] > C(0) ? C(1) : C(0))) * t[3];
  }
};

}  // namespace mica::cuda
