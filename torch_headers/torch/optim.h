// Mica's optimizers under torch::optim, with options as libtorch writes them: SGD(parameters,
// SGDOptions(0.1).momentum(0.9)).
#pragma once

#include "mica/optim.h"
#include "torch/check.h"
#include "torch/settable.h"
#include "torch/types.h"

namespace torch::optim {

using namespace mica::optim;  // NOLINT: the names of torch's library are Mica's

#define TORCH_OPTIMIZER(Name, name, ItemType)                                                                          \
  class Name##Options : public Settable<Name##Options, mica::optim::Name##Options> {                                   \
   public:                                                                                                             \
    Name##Options() = default;                                                                                         \
    Name##Options(double lr) { this->lr(lr); }                                                                         \
  };                                                                                                                   \
  class Name                                                                                                           \
      : public mica::optim::OptimizerOf<mica::optim::Name##Options, mica::optim::ItemType, mica::optim::name##_step> { \
   public:                                                                                                             \
    explicit Name(std::vector<Tensor> params, const Name##Options& options = {})                                       \
        : OptimizerOf(std::move(params), options) {}                                                                   \
  };
MICA_FOR_EACH_OPTIMIZER(TORCH_OPTIMIZER)
#undef TORCH_OPTIMIZER

class LBFGSOptions : public Settable<LBFGSOptions, mica::optim::LBFGSOptions> {
 public:
  LBFGSOptions() = default;
  LBFGSOptions(double lr) { this->lr(lr); }
  LBFGSOptions& line_search_fn(const std::string& name) {
    TORCH_CHECK(name == "strong_wolfe", "only 'strong_wolfe' is supported, not '", name, "'");
    options_.strong_wolfe = true;
    return *this;
  }
};

}  // namespace torch::optim
