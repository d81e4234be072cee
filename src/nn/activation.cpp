#include "mica/nn/activation.h"

#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

Tensor ReLUImpl::forward(const Tensor& x) { return relu(x); }
Tensor ReLU6Impl::forward(const Tensor& x) { return relu6(x); }
Tensor SELUImpl::forward(const Tensor& x) { return selu(x); }
Tensor SiLUImpl::forward(const Tensor& x) { return silu(x); }
Tensor MishImpl::forward(const Tensor& x) { return mish(x); }
Tensor SigmoidImpl::forward(const Tensor& x) { return sigmoid(x); }
Tensor LogSigmoidImpl::forward(const Tensor& x) { return log_sigmoid(x); }
Tensor HardsigmoidImpl::forward(const Tensor& x) { return hardsigmoid(x); }
Tensor HardswishImpl::forward(const Tensor& x) { return hardswish(x); }
Tensor TanhImpl::forward(const Tensor& x) { return tanh(x); }
Tensor TanhshrinkImpl::forward(const Tensor& x) { return tanhshrink(x); }
Tensor SoftsignImpl::forward(const Tensor& x) { return softsign(x); }
Tensor Softmax2dImpl::forward(const Tensor& x) {
  MICA_CHECK_KIND(x.dim() == 3 || x.dim() == 4, Value, "Softmax2d: expected input to be 3D or 4D, got ", x.dim(),
                  "D instead");
  return softmax(x, -3);
}

#define MICA_ACTIVATION(Name, option, function)                               \
  Tensor Name##Impl::forward(const Tensor& x) { return function(x, option); } \
  std::string Name##Impl::extra_repr() const { return cat(#option, "=", number(option)); }
MICA_ACTIVATION(ELU, alpha, elu)
MICA_ACTIVATION(CELU, alpha, celu)
MICA_ACTIVATION(LeakyReLU, negative_slope, leaky_relu)
#undef MICA_ACTIVATION
Tensor HardshrinkImpl::forward(const Tensor& x) { return hardshrink(x, lambd); }
std::string HardshrinkImpl::extra_repr() const { return number(lambd); }
Tensor SoftshrinkImpl::forward(const Tensor& x) { return softshrink(x, lambd); }
std::string SoftshrinkImpl::extra_repr() const { return number(lambd); }

Tensor SoftmaxImpl::forward(const Tensor& x) { return softmax(x, dim); }
std::string SoftmaxImpl::extra_repr() const { return cat("dim=", dim); }
Tensor LogSoftmaxImpl::forward(const Tensor& x) { return log_softmax(x, dim); }
std::string LogSoftmaxImpl::extra_repr() const { return cat("dim=", dim); }
Tensor SoftminImpl::forward(const Tensor& x) { return softmax(-x, dim); }
std::string SoftminImpl::extra_repr() const { return cat("dim=", dim); }

Tensor GELUImpl::forward(const Tensor& x) { return gelu(x, approximate); }
std::string GELUImpl::extra_repr() const { return cat("approximate='", approximate, "'"); }

Tensor GLUImpl::forward(const Tensor& x) { return glu(x, dim); }
std::string GLUImpl::extra_repr() const { return cat("dim=", dim); }

HardtanhImpl::HardtanhImpl(double min_val, double max_val) : min_val(min_val), max_val(max_val) {
  MICA_CHECK_KIND(max_val > min_val, Value, "max_val must be greater than min_val, but got ", min_val, " and ",
                  max_val);
}
Tensor HardtanhImpl::forward(const Tensor& x) { return hardtanh(x, min_val, max_val); }
std::string HardtanhImpl::extra_repr() const { return cat("min_val=", number(min_val), ", max_val=", number(max_val)); }

Tensor SoftplusImpl::forward(const Tensor& x) { return softplus(x, beta, threshold); }
std::string SoftplusImpl::extra_repr() const { return cat("beta=", number(beta), ", threshold=", number(threshold)); }

Tensor ThresholdImpl::forward(const Tensor& x) { return mica::threshold(x, threshold, value); }
std::string ThresholdImpl::extra_repr() const {
  return cat("threshold=", number(threshold), ", value=", number(value));
}

PReLUImpl::PReLUImpl(int64_t num_parameters, double init)
    : num_parameters(num_parameters), weight(register_parameter("weight", full({num_parameters}, init))) {}
Tensor PReLUImpl::forward(const Tensor& x) { return prelu(x, weight); }
std::string PReLUImpl::extra_repr() const { return cat("num_parameters=", num_parameters); }

Tensor RReLUImpl::forward(const Tensor& x) { return rrelu(x, lower, upper, is_training()); }
std::string RReLUImpl::extra_repr() const { return cat("lower=", number(lower), ", upper=", number(upper)); }

#define MICA_DROPOUT(Name, call)                                                                            \
  Name##Impl::Name##Impl(double p) : p(p) {                                                                 \
    MICA_CHECK_KIND(p >= 0 && p <= 1, Value, "dropout probability has to be between 0 and 1, but got ", p); \
  }                                                                                                         \
  Tensor Name##Impl::forward(const Tensor& x) { return call; }                                              \
  std::string Name##Impl::extra_repr() const { return cat("p=", number(p)); }
MICA_DROPOUT(Dropout, dropout(x, p, is_training()))
MICA_DROPOUT(AlphaDropout, alpha_dropout(x, p, is_training()))
MICA_DROPOUT(FeatureAlphaDropout, feature_alpha_dropout(x, p, is_training()))

// Whole channels; an input without a batch gets one.
static Tensor drop_channels(const Tensor& x, double p, bool training, int64_t batched_dims) {
  if (x.dim() == batched_dims - 1) return feature_dropout(x.unsqueeze(0), p, training).squeeze(0);
  return feature_dropout(x, p, training);
}
MICA_DROPOUT(Dropout1d, drop_channels(x, p, is_training(), 3))
MICA_DROPOUT(Dropout2d, feature_dropout(x, p, is_training()))
MICA_DROPOUT(Dropout3d, drop_channels(x, p, is_training(), 5))
#undef MICA_DROPOUT

}  // namespace mica::nn
