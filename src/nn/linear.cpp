#include "mica/nn/linear.h"

#include <cmath>

#include "mica/layers.h"

namespace mica::nn {

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, Options options)
    : in_features(in_features),
      out_features(out_features),
      weight(register_parameter("weight", empty({out_features, in_features}))),
      bias(register_parameter("bias", options.bias ? empty({out_features}) : Tensor())) {
  reset_parameters();
}
LinearImpl::LinearImpl(Lazy, int64_t out_features, const Options& options)
    : in_features(0),
      out_features(out_features),
      weight(register_uninitialized_parameter("weight")),
      bias(options.bias ? register_uninitialized_parameter("bias") : register_parameter("bias", {})) {}
void LinearImpl::take_input(const Tensor& x) {
  if (!has_uninitialized_params()) return;
  MICA_CHECK_KIND(x.dim() > 0, Index, "LazyLinear takes its size from the last dimension of its input, which has none");
  in_features = x.size(-1);
  materialize(weight, {out_features, in_features});
  materialize(bias, {out_features});
  reset_parameters();
}
void LinearImpl::members_replaced() {
  if (in_features == 0 && weight.dim() == 2) in_features = weight.size(1);
}
void LinearImpl::reset_parameters() {
  init_kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0;
  init_uniform_(bias, -bound, bound);
}
Tensor LinearImpl::forward(const Tensor& x) { return linear(x, weight, bias); }
std::string LinearImpl::extra_repr() const {
  return cat("in_features=", in_features, ", out_features=", out_features, ", bias=", bias.defined());
}

BilinearImpl::BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features, Options options)
    : in1_features(in1_features),
      in2_features(in2_features),
      out_features(out_features),
      weight(register_parameter("weight", empty({out_features, in1_features, in2_features}))),
      bias(register_parameter("bias", options.bias ? empty({out_features}) : Tensor())) {
  reset_parameters();
}
void BilinearImpl::reset_parameters() {
  MICA_CHECK_KIND(in1_features > 0, Value, "in1_features must be > 0, but got (in1_features=", in1_features, ")");
  const double bound = 1 / std::sqrt(static_cast<double>(in1_features));
  init_uniform_(weight, -bound, bound);
  if (bias.defined()) init_uniform_(bias, -bound, bound);
}
Tensor BilinearImpl::forward(const Tensor& x1, const Tensor& x2) { return bilinear(x1, x2, weight, bias); }
std::string BilinearImpl::extra_repr() const {
  return cat("in1_features=", in1_features, ", in2_features=", in2_features, ", out_features=", out_features,
             ", bias=", bias.defined());
}

Tensor FlattenImpl::forward(const Tensor& x) { return x.flatten(start_dim, end_dim); }

Tensor UnflattenImpl::forward(const Tensor& x) { return x.unflatten(dim, unflattened_size); }
std::string UnflattenImpl::extra_repr() const {
  return cat("dim=", dim, ", unflattened_size=", tuple_text(unflattened_size));
}

}  // namespace mica::nn
