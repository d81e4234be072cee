#include "mica/nn/activation.h"

#include "mica/layers.h"

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

#define MICA_ACTIVATION(Name, function) \
  Tensor Name##Impl::forward(const Tensor& x) { return inplace ? function##_(x) : function(x); }
MICA_ACTIVATION(ReLU, relu)
MICA_ACTIVATION(ReLU6, relu6)
MICA_ACTIVATION(SELU, selu)
MICA_ACTIVATION(SiLU, silu)
MICA_ACTIVATION(Mish, mish)
MICA_ACTIVATION(Hardsigmoid, hardsigmoid)
MICA_ACTIVATION(Hardswish, hardswish)
#undef MICA_ACTIVATION

#define MICA_ACTIVATION(Name, option, function) \
  Tensor Name##Impl::forward(const Tensor& x) { return inplace ? function##_(x, option) : function(x, option); }
MICA_ACTIVATION(ELU, alpha, elu)
MICA_ACTIVATION(CELU, alpha, celu)
MICA_ACTIVATION(LeakyReLU, negative_slope, leaky_relu)
#undef MICA_ACTIVATION

Tensor HardshrinkImpl::forward(const Tensor& x) { return hardshrink(x, lambd); }
Tensor SoftshrinkImpl::forward(const Tensor& x) { return softshrink(x, lambd); }
Tensor SoftmaxImpl::forward(const Tensor& x) { return softmax(x, dim); }
Tensor LogSoftmaxImpl::forward(const Tensor& x) { return log_softmax(x, dim); }
Tensor SoftminImpl::forward(const Tensor& x) { return softmax(-x, dim); }
Tensor GELUImpl::forward(const Tensor& x) { return gelu(x, approximate); }
Tensor GLUImpl::forward(const Tensor& x) { return glu(x, dim); }
Tensor HardtanhImpl::forward(const Tensor& x) {
  return inplace ? hardtanh_(x, min_val, max_val) : hardtanh(x, min_val, max_val);
}
Tensor SoftplusImpl::forward(const Tensor& x) { return softplus(x, beta, threshold); }
Tensor ThresholdImpl::forward(const Tensor& x) {
  return inplace ? threshold_(x, threshold, value) : mica::threshold(x, threshold, value);
}
Tensor RReLUImpl::forward(const Tensor& x) { return functional_rrelu(x, lower, upper, is_training(), inplace); }

PReLUImpl::PReLUImpl(int64_t num_parameters, double init)
    : num_parameters(num_parameters), weight(register_parameter("weight", full({num_parameters}, init))) {}
Tensor PReLUImpl::forward(const Tensor& x) { return prelu(x, weight); }
std::string PReLUImpl::extra_repr() const { return cat("num_parameters=", num_parameters); }

#define MICA_DROPOUT(Name, function) \
  Tensor Name##Impl::forward(const Tensor& x) { return function(x, p, is_training(), inplace); }
MICA_DROPOUT(Dropout, functional_dropout)
MICA_DROPOUT(Dropout1d, functional_dropout1d)
MICA_DROPOUT(Dropout2d, functional_dropout2d)
MICA_DROPOUT(Dropout3d, functional_dropout3d)
MICA_DROPOUT(AlphaDropout, functional_alpha_dropout)
MICA_DROPOUT(FeatureAlphaDropout, functional_feature_alpha_dropout)
#undef MICA_DROPOUT

}  // namespace mica::nn
