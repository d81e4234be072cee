// Layers made of matrices, and changes of shape.
#pragma once

#include "mica/generated/nn/linear.h"

namespace mica::nn {

class IdentityImpl : public Module {
 public:
  Tensor forward(const Tensor& x) { return x; }
};
MICA_MODULE(Identity);

class LinearImpl : public Module {
 public:
  using Options = LinearOptions;
  LinearImpl(int64_t in_features, int64_t out_features, Options options = {});
  Tensor forward(const Tensor& x);
  void reset_parameters();
  std::string extra_repr() const override;

  int64_t in_features;  // 0 until the first input decides it
  const int64_t out_features;
  Tensor weight, bias;

 protected:
  LinearImpl(Lazy, int64_t out_features, const Options& options);
  void take_input(const Tensor& x);
  void members_replaced() override;
};
MICA_MODULE(Linear);

class BilinearImpl : public Module {
 public:
  using Options = LinearOptions;
  BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features, Options options = {});
  Tensor forward(const Tensor& x1, const Tensor& x2);
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t in1_features, in2_features, out_features;
  Tensor weight, bias;
};
MICA_MODULE(Bilinear);

class FlattenImpl : public FlattenBase {
 public:
  using FlattenBase::FlattenBase;
  Tensor forward(const Tensor& x);
};
MICA_MODULE(Flatten);

class UnflattenImpl : public Module {
 public:
  UnflattenImpl(int64_t dim, const Dims& unflattened_size) : dim(dim), unflattened_size(unflattened_size.sizes()) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;

  const int64_t dim;
  const DimVector unflattened_size;
};
class Unflatten : public ModuleHolder<UnflattenImpl> {
 public:
  using ModuleHolder<UnflattenImpl>::ModuleHolder;
  Unflatten(int64_t dim, const Dims& unflattened_size) : ModuleHolder<UnflattenImpl>(dim, unflattened_size) {}
};

}  // namespace mica::nn
