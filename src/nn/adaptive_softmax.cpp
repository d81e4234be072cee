#include "mica/nn/adaptive_softmax.h"

#include <cmath>

#include "mica/indexing.h"
#include "mica/layers.h"

namespace mica::nn {

static DimVector with_end(const Dims& cutoffs, int64_t n_classes) {
  const IntArrayRef given = cutoffs.sizes();
  MICA_CHECK_KIND(!given.empty(), Value, "cutoffs should be a sequence of length larger than 0");
  int64_t last = 0;
  for (const int64_t cutoff : given) {
    MICA_CHECK_KIND(cutoff > last && cutoff < n_classes, Value,
                    "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where "
                    "each value is between 1 and n_classes-1");
    last = cutoff;
  }
  DimVector all(given);
  all.push_back(n_classes);
  return all;
}

AdaptiveLogSoftmaxWithLossImpl::AdaptiveLogSoftmaxWithLossImpl(int64_t in_features, int64_t n_classes,
                                                               const Dims& given, Options options)
    : in_features(in_features), n_classes(n_classes), cutoffs(with_end(given, n_classes)) {
  const auto clusters = static_cast<int64_t>(cutoffs.size()) - 1;
  head = register_module("head", Linear(in_features, shortlist_size() + clusters, {.bias = options.head_bias}));
  register_module("tail", tail);
  for (int64_t i = 0; i < clusters; ++i) {
    const double width = static_cast<double>(in_features) / std::pow(options.div_value, static_cast<double>(i + 1));
    const auto hidden = static_cast<int64_t>(std::floor(width));
    const auto at = static_cast<size_t>(i);
    const Linear to_hidden(in_features, hidden, {.bias = false});
    tail->push_back(Sequential(to_hidden, Linear(hidden, cutoffs[at + 1] - cutoffs[at], {.bias = false})));
  }
}

void AdaptiveLogSoftmaxWithLossImpl::reset_parameters() {
  apply([](Module& m) {
    if (auto* linear = dynamic_cast<LinearImpl*>(&m)) linear->reset_parameters();
  });
}

AdaptiveLogSoftmaxWithLossImpl::Result AdaptiveLogSoftmaxWithLossImpl::forward(const Tensor& given_input,
                                                                               const Tensor& given_target) {
  MICA_CHECK(given_target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported");
  const bool batched = given_target.dim() == 1;
  MICA_CHECK(!batched || given_input.size(0) == given_target.size(0),
             "Input and target should have the same size in the batch dimension.");
  MICA_CHECK(given_input.dim() == given_target.dim() + 1, given_target.dim(), "D target tensor expects ",
             given_target.dim() + 1, "D input tensors, but found inputs with size ", given_input.sizes());
  const Tensor input = batched ? given_input : given_input.unsqueeze(0);
  const Tensor target = batched ? given_target : given_target.unsqueeze(0);
  MICA_CHECK(logical_and(target.ge(0), target.lt(n_classes)).all().item<bool>(), "Target values should be in [0, ",
             n_classes - 1, "], but values in range [", target.min().item<int64_t>(), ", ",
             target.max().item<int64_t>(), "] were found. ");
  Tensor within_cluster = zeros({target.size(0)}, input.options());
  Tensor head_class = target.clone();
  for (size_t i = 0; i < tail.size(); ++i) {
    const Tensor rows = logical_and(target.ge(cutoffs[i]), target.lt(cutoffs[i + 1])).nonzero().squeeze(1);
    if (rows.numel() == 0) continue;
    const Tensor log_probs = log_softmax(tail[i](input.index_select(0, rows)), 1);
    const Tensor classes = target.index_select(0, rows) - cutoffs[i];
    within_cluster = within_cluster.index_copy(0, rows, log_probs.gather(1, classes.unsqueeze(1)).squeeze(1));
    head_class.index_fill_(0, rows, shortlist_size() + static_cast<int64_t>(i));
  }
  const Tensor of_head = log_softmax(head(input), 1).gather(1, head_class.unsqueeze(1)).squeeze(1);
  const Tensor output = within_cluster + of_head;
  return {batched ? output : output.squeeze(0), (-output).mean()};
}

Tensor AdaptiveLogSoftmaxWithLossImpl::full_log_prob(const Tensor& input, const Tensor& head_output) {
  const Tensor of_head = log_softmax(head_output, 1);
  std::vector<Tensor> parts{of_head.narrow(1, 0, shortlist_size())};
  for (size_t i = 0; i < tail.size(); ++i)
    parts.push_back(log_softmax(tail[i](input), 1) + of_head.narrow(1, shortlist_size() + static_cast<int64_t>(i), 1));
  return mica::cat(parts, 1);
}
Tensor AdaptiveLogSoftmaxWithLossImpl::log_prob(const Tensor& input) { return full_log_prob(input, head(input)); }

Tensor AdaptiveLogSoftmaxWithLossImpl::predict(const Tensor& input) {
  const Tensor head_output = head(input);
  const Tensor best = head_output.argmax(1);
  // Clusters are looked into only for the rows that need them.
  const Tensor rare = best.ge(shortlist_size()).nonzero().squeeze(1);
  if (rare.numel() == 0) return best;
  const Tensor all = full_log_prob(input.index_select(0, rare), head_output.index_select(0, rare));
  return best.index_copy(0, rare, all.argmax(1));
}

}  // namespace mica::nn
