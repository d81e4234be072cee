// Functions of single elements as modules, and dropouts. Those with `inplace` write into their input if it is set.
#pragma once

#include "mica/generated/nn/activation.h"

namespace mica::nn {

#define MICA_ACTIVATION(Name, Base)  \
  class Name##Impl : public Base {   \
   public:                           \
    using Base::Base;                \
    Tensor forward(const Tensor& x); \
  };                                 \
  MICA_MODULE(Name);
MICA_ACTIVATION(Sigmoid, Module)
MICA_ACTIVATION(LogSigmoid, Module)
MICA_ACTIVATION(Tanh, Module)
MICA_ACTIVATION(Tanhshrink, Module)
MICA_ACTIVATION(Softsign, Module)
MICA_ACTIVATION(Softmax2d, Module)
MICA_ACTIVATION(ReLU, InplaceBase)
MICA_ACTIVATION(ReLU6, InplaceBase)
MICA_ACTIVATION(SELU, InplaceBase)
MICA_ACTIVATION(SiLU, InplaceBase)
MICA_ACTIVATION(Mish, InplaceBase)
MICA_ACTIVATION(Hardsigmoid, InplaceBase)
MICA_ACTIVATION(Hardswish, InplaceBase)
MICA_ACTIVATION(ELU, AlphaBase)
MICA_ACTIVATION(CELU, AlphaBase)
MICA_ACTIVATION(LeakyReLU, LeakyReLUBase)
MICA_ACTIVATION(Hardshrink, ShrinkBase)
MICA_ACTIVATION(Softshrink, ShrinkBase)
MICA_ACTIVATION(Softmax, AlongDimBase)
MICA_ACTIVATION(LogSoftmax, AlongDimBase)
MICA_ACTIVATION(Softmin, AlongDimBase)
MICA_ACTIVATION(GELU, GELUBase)  // `approximate` is "none" or "tanh"
MICA_ACTIVATION(GLU, GLUBase)
MICA_ACTIVATION(Hardtanh, HardtanhBase)
MICA_ACTIVATION(Softplus, SoftplusBase)
MICA_ACTIVATION(Threshold, ThresholdBase)
MICA_ACTIVATION(RReLU, RReLUBase)
// Dropouts are identities unless training.
MICA_ACTIVATION(Dropout, DropoutBase)
MICA_ACTIVATION(Dropout1d, DropoutBase)
MICA_ACTIVATION(Dropout2d, DropoutBase)
MICA_ACTIVATION(Dropout3d, DropoutBase)
MICA_ACTIVATION(AlphaDropout, DropoutBase)
MICA_ACTIVATION(FeatureAlphaDropout, DropoutBase)
#undef MICA_ACTIVATION

class PReLUImpl : public Module {
 public:
  explicit PReLUImpl(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const int64_t num_parameters;
  Tensor weight;
};
MICA_MODULE(PReLU);

}  // namespace mica::nn
