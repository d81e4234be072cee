// Functions of single elements as modules, and dropouts. Those with `inplace` write into their input if it is set.
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

#define MICA_ACTIVATION(Name)        \
  class Name##Impl : public Module { \
   public:                           \
    Tensor forward(const Tensor& x); \
  };                                 \
  MICA_MODULE(Name);
MICA_ACTIVATION(Sigmoid)
MICA_ACTIVATION(LogSigmoid)
MICA_ACTIVATION(Tanh)
MICA_ACTIVATION(Tanhshrink)
MICA_ACTIVATION(Softsign)
MICA_ACTIVATION(Softmax2d)
#undef MICA_ACTIVATION

#define MICA_ACTIVATION(Name)                                       \
  class Name##Impl : public Module {                                \
   public:                                                          \
    explicit Name##Impl(bool inplace = false) : inplace(inplace) {} \
    Tensor forward(const Tensor& x);                                \
    std::string extra_repr() const override;                        \
    const bool inplace;                                             \
  };                                                                \
  MICA_MODULE(Name);
MICA_ACTIVATION(ReLU)
MICA_ACTIVATION(ReLU6)
MICA_ACTIVATION(SELU)
MICA_ACTIVATION(SiLU)
MICA_ACTIVATION(Mish)
MICA_ACTIVATION(Hardsigmoid)
MICA_ACTIVATION(Hardswish)
#undef MICA_ACTIVATION

#define MICA_ACTIVATION(Name, option, usual)                                                               \
  class Name##Impl : public Module {                                                                       \
   public:                                                                                                 \
    explicit Name##Impl(double option = usual, bool inplace = false) : option(option), inplace(inplace) {} \
    Tensor forward(const Tensor& x);                                                                       \
    std::string extra_repr() const override;                                                               \
    const double option;                                                                                   \
    const bool inplace;                                                                                    \
  };                                                                                                       \
  MICA_MODULE(Name);
MICA_ACTIVATION(ELU, alpha, 1.0)
MICA_ACTIVATION(CELU, alpha, 1.0)
MICA_ACTIVATION(LeakyReLU, negative_slope, 0.01)
#undef MICA_ACTIVATION

#define MICA_ACTIVATION(Name)                                 \
  class Name##Impl : public Module {                          \
   public:                                                    \
    explicit Name##Impl(double lambd = 0.5) : lambd(lambd) {} \
    Tensor forward(const Tensor& x);                          \
    std::string extra_repr() const override;                  \
    const double lambd;                                       \
  };                                                          \
  MICA_MODULE(Name);
MICA_ACTIVATION(Hardshrink)
MICA_ACTIVATION(Softshrink)
#undef MICA_ACTIVATION

#define MICA_ACTIVATION(Name)                      \
  class Name##Impl : public Module {               \
   public:                                         \
    explicit Name##Impl(int64_t dim) : dim(dim) {} \
    Tensor forward(const Tensor& x);               \
    std::string extra_repr() const override;       \
    const int64_t dim;                             \
  };                                               \
  MICA_MODULE(Name);
MICA_ACTIVATION(Softmax)
MICA_ACTIVATION(LogSoftmax)
MICA_ACTIVATION(Softmin)
#undef MICA_ACTIVATION

class GELUImpl : public Module {
 public:
  explicit GELUImpl(std::string approximate = "none") : approximate(std::move(approximate)) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const std::string approximate;  // or "tanh"
};
MICA_MODULE(GELU);

class GLUImpl : public Module {
 public:
  explicit GLUImpl(int64_t dim = -1) : dim(dim) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const int64_t dim;
};
MICA_MODULE(GLU);

class HardtanhImpl : public Module {
 public:
  explicit HardtanhImpl(double min_val = -1, double max_val = 1, bool inplace = false);
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const double min_val, max_val;
  const bool inplace;
};
MICA_MODULE(Hardtanh);

class SoftplusImpl : public Module {
 public:
  explicit SoftplusImpl(double beta = 1, double threshold = 20) : beta(beta), threshold(threshold) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const double beta, threshold;
};
MICA_MODULE(Softplus);

class ThresholdImpl : public Module {
 public:
  ThresholdImpl(double threshold, double value, bool inplace = false)
      : threshold(threshold), value(value), inplace(inplace) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const double threshold, value;
  const bool inplace;
};
MICA_MODULE(Threshold);

class PReLUImpl : public Module {
 public:
  explicit PReLUImpl(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const int64_t num_parameters;
  Tensor weight;
};
MICA_MODULE(PReLU);

class RReLUImpl : public Module {
 public:
  explicit RReLUImpl(double lower = 1.0 / 8, double upper = 1.0 / 3, bool inplace = false)
      : lower(lower), upper(upper), inplace(inplace) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const double lower, upper;
  const bool inplace;
};
MICA_MODULE(RReLU);

// ---- dropouts: identities unless training

#define MICA_DROPOUT(Name)                                     \
  class Name##Impl : public Module {                           \
   public:                                                     \
    explicit Name##Impl(double p = 0.5, bool inplace = false); \
    Tensor forward(const Tensor& x);                           \
    std::string extra_repr() const override;                   \
    const double p;                                            \
    const bool inplace;                                        \
  };                                                           \
  MICA_MODULE(Name);
MICA_DROPOUT(Dropout)
MICA_DROPOUT(Dropout1d)
MICA_DROPOUT(Dropout2d)
MICA_DROPOUT(Dropout3d)
MICA_DROPOUT(AlphaDropout)
MICA_DROPOUT(FeatureAlphaDropout)
#undef MICA_DROPOUT

}  // namespace mica::nn
