// A step of an optimizer as a kernel sees it: parameters with their gradients and states as runs of memory that are
// walked together, once, and the numbers of the rule.
#pragma once

#include <cstdint>

#include "mica/device.h"
#include "mica/dtype.h"

namespace mica {

// The numbers of each rule are computed in double from the options and the parameter's own step count.
struct SgdNumbers {
  double lr, momentum, undamped;  // undamped: 1 - dampening
};
struct AdamNumbers {
  double weight1, beta2, weight2;  // weights: 1 - beta
  double correction2_root;         // sqrt(1 - beta2^t)
  double eps, step_size;           // step_size: lr / (1 - beta1^t)
};
struct AdamaxNumbers {
  double weight1, beta2, eps, step_size;
};
struct NadamNumbers {
  double weight1, beta2, weight2, correction2, eps;
  double gradient_factor, average_factor;  // both negative
};
struct RadamNumbers {
  double weight1, beta2, weight2, correction1, correction2_root, eps, lr, rectification;
};
struct RmspropNumbers {
  double alpha, weight, eps, momentum, lr;  // weight: 1 - alpha
};
struct AdagradNumbers {
  double lr, eps;
};
struct AdadeltaNumbers {
  double rho, weight, eps, lr;  // weight: 1 - rho
};
struct RpropNumbers {
  double eta_minus, eta_plus, smallest, largest;
};
struct AsgdNumbers {
  double shrinkage, eta, mu;  // shrinkage: 1 - lambda eta
};

struct FusedParameter {
  static constexpr int kMaxTensors = 5;

  // Flags that may differ between parameters and choose the loop.
  static constexpr uint32_t kMaximize = 1u << 0;
  static constexpr uint32_t kDecay = 1u << 1;   // gradient += decay * parameter
  static constexpr uint32_t kShrink = 1u << 2;  // parameter *= decay, before anything else
  // Each rule has its own meaning for the next three bits.
  static constexpr uint32_t kMomentum = 1u << 3;   // SGD, RMSprop
  static constexpr uint32_t kNesterov = 1u << 4;   // SGD
  static constexpr uint32_t kFirst = 1u << 5;      // SGD: the buffer is made by this step
  static constexpr uint32_t kAmsgrad = 1u << 3;    // Adam
  static constexpr uint32_t kRectified = 1u << 3;  // RAdam
  static constexpr uint32_t kCentered = 1u << 4;   // RMSprop
  static constexpr uint32_t kAveraging = 1u << 3;  // ASGD

  // The parameter, its gradient, then the states in the rule's order. All but the gradient are written.
  void* tensors[kMaxTensors];
  int64_t numel;
  uint32_t flags;
  double decay;
  // Not null where the count of steps or the learning rate lie on the device, so that nothing has to be read back.
  // Adam's kernel then computes the corrections itself, and `step_size` is the learning rate unless `lr` is given. With
  // `lr`, the decay that shrinks is the weight decay as it stands.
  const float* step;
  const float* lr;
  union {
    SgdNumbers sgd;
    AdamNumbers adam;
    AdamaxNumbers adamax;
    NadamNumbers nadam;
    RadamNumbers radam;
    RmspropNumbers rmsprop;
    AdagradNumbers adagrad;
    AdadeltaNumbers adadelta;
    RpropNumbers rprop;
    AsgdNumbers asgd;
  };
};

struct FusedStep {
  DType dtype;  // of every tensor: float32, float64, float16 or bfloat16
  Device device;
  const FusedParameter* parameters;
  int64_t count;
  bool in_order;  // parameters share memory: one after the other, on one thread
};

}  // namespace mica
