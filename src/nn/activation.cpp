#include "mica/nn/activation.h"

#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

Tensor SigmoidImpl::forward(const Tensor& x) { return sigmoid(x); }
Tensor LogSigmoidImpl::forward(const Tensor& x) { return log_sigmoid(x); }
Tensor TanhImpl::forward(const Tensor& x) { return tanh(x); }
Tensor TanhshrinkImpl::forward(const Tensor& x) { return tanhshrink(x); }
Tensor SoftsignImpl::forward(const Tensor& x) { return softsign(x); }
Tensor Softmax2dImpl::forward(const Tensor& x) {
  MICA_CHECK_KIND(x.dim() == 3 || x.dim() == 4, Value, "Softmax2d: expected input to be 3D or 4D, got ", x.dim(),
                  "D instead");
  return softmax(x, -3);
}

#define MICA_ACTIVATION(Name, function)                                                          \
  Tensor Name##Impl::forward(const Tensor& x) { return inplace ? function##_(x) : function(x); } \
  std::string Name##Impl::extra_repr() const { return with_inplace("", inplace); }
MICA_ACTIVATION(ReLU, relu)
MICA_ACTIVATION(ReLU6, relu6)
MICA_ACTIVATION(SELU, selu)
MICA_ACTIVATION(SiLU, silu)
MICA_ACTIVATION(Mish, mish)
MICA_ACTIVATION(Hardsigmoid, hardsigmoid)
MICA_ACTIVATION(Hardswish, hardswish)
#undef MICA_ACTIVATION

#define MICA_ACTIVATION(Name, option, function)                                                                  \
  Tensor Name##Impl::forward(const Tensor& x) { return inplace ? function##_(x, option) : function(x, option); } \
  std::string Name##Impl::extra_repr() const { return with_inplace(cat(#option "=", option), inplace); }
MICA_ACTIVATION(ELU, alpha, elu)
MICA_ACTIVATION(CELU, alpha, celu)
MICA_ACTIVATION(LeakyReLU, negative_slope, leaky_relu)
#undef MICA_ACTIVATION

Tensor HardshrinkImpl::forward(const Tensor& x) { return hardshrink(x, lambd); }
std::string HardshrinkImpl::extra_repr() const { return cat(lambd); }
Tensor SoftshrinkImpl::forward(const Tensor& x) { return softshrink(x, lambd); }
std::string SoftshrinkImpl::extra_repr() const { return cat(lambd); }

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

HardtanhImpl::HardtanhImpl(double min_val, double max_val, bool inplace)
    : min_val(min_val), max_val(max_val), inplace(inplace) {
  MICA_CHECK_KIND(max_val > min_val, Value, "max_val (", max_val, ") must be greater than min_val (", min_val, ")");
}
Tensor HardtanhImpl::forward(const Tensor& x) {
  return inplace ? hardtanh_(x, min_val, max_val) : hardtanh(x, min_val, max_val);
}
std::string HardtanhImpl::extra_repr() const {
  return with_inplace(cat("min_val=", min_val, ", max_val=", max_val), inplace);
}

Tensor SoftplusImpl::forward(const Tensor& x) { return softplus(x, beta, threshold); }
std::string SoftplusImpl::extra_repr() const { return cat("beta=", beta, ", threshold=", threshold); }

Tensor ThresholdImpl::forward(const Tensor& x) {
  return inplace ? threshold_(x, threshold, value) : mica::threshold(x, threshold, value);
}
std::string ThresholdImpl::extra_repr() const {
  return with_inplace(cat("threshold=", threshold, ", value=", value), inplace);
}

PReLUImpl::PReLUImpl(int64_t num_parameters, double init)
    : num_parameters(num_parameters), weight(register_parameter("weight", full({num_parameters}, init))) {}
Tensor PReLUImpl::forward(const Tensor& x) { return prelu(x, weight); }
std::string PReLUImpl::extra_repr() const { return cat("num_parameters=", num_parameters); }

Tensor RReLUImpl::forward(const Tensor& x) { return functional_rrelu(x, lower, upper, is_training(), inplace); }
std::string RReLUImpl::extra_repr() const { return with_inplace(cat("lower=", lower, ", upper=", upper), inplace); }

#define MICA_DROPOUT(Name, function)                                                                        \
  Name##Impl::Name##Impl(double p, bool inplace) : p(p), inplace(inplace) {                                 \
    MICA_CHECK_KIND(p >= 0 && p <= 1, Value, "dropout probability has to be between 0 and 1, but got ", p); \
  }                                                                                                         \
  Tensor Name##Impl::forward(const Tensor& x) { return function(x, p, is_training(), inplace); }            \
  std::string Name##Impl::extra_repr() const { return cat("p=", p, ", inplace=", inplace); }
MICA_DROPOUT(Dropout, functional_dropout)
MICA_DROPOUT(Dropout1d, functional_dropout1d)
MICA_DROPOUT(Dropout2d, functional_dropout2d)
MICA_DROPOUT(Dropout3d, functional_dropout3d)
MICA_DROPOUT(AlphaDropout, functional_alpha_dropout)
MICA_DROPOUT(FeatureAlphaDropout, functional_feature_alpha_dropout)
#undef MICA_DROPOUT

}  // namespace mica::nn
