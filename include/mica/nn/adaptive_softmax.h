// The softmax of very many classes, of which few are frequent.
#pragma once

#include "mica/nn/container.h"
#include "mica/nn/linear.h"

namespace mica::nn {

// Log-probabilities by two levels: frequent classes and clusters of rare ones, then the classes of a cluster. Classes
// are ordered from frequent to rare; `cutoffs` say where each cluster begins.
class AdaptiveLogSoftmaxWithLossImpl : public Module {
 public:
  using Options = AdaptiveLogSoftmaxOptions;
  struct Result {
    Tensor output;  // the log-probabilities of the targets
    Tensor loss;
  };
  AdaptiveLogSoftmaxWithLossImpl(int64_t in_features, int64_t n_classes, const Dims& cutoffs, Options options = {});
  Result forward(const Tensor& input, const Tensor& target);
  Tensor log_prob(const Tensor& input);  // the log-probabilities of all classes
  Tensor predict(const Tensor& input);   // the most probable classes
  void reset_parameters();

  const int64_t in_features, n_classes;
  const DimVector cutoffs;  // ends with n_classes
  Linear head = nullptr;
  ModuleList<Sequential> tail;

 private:
  int64_t shortlist_size() const { return cutoffs[0]; }
  Tensor full_log_prob(const Tensor& input, const Tensor& head_output);
};
MICA_MODULE(AdaptiveLogSoftmaxWithLoss);

}  // namespace mica::nn
