#include "backends/cuda/attention/graph.h"

#include <array>

namespace mica::cuda::attention {

namespace {

using cudnn::Description;
using Dims = std::array<int64_t, 4>;

// Tensors and operations of a graph, as they are added. A tensor is named by its place in the list.
class Builder {
 public:
  explicit Builder(const GraphKey& key) : key_(key) {}

  // A tensor of four dimensions in memory.
  int in_memory(int64_t id, int type, const Dims& sizes, const Dims& strides) {
    return add({id, type, 4, sizes.data(), strides.data()}, sizes, strides);
  }
  int number(int64_t id) {
    const Dims one{1, 1, 1, 1};
    return add({id, cudnn::kFloat, 4, one.data(), one.data(), 16, false, true}, one, one);
  }
  // A value between operations.
  int between(int type, const Dims& sizes) {
    return between(type, sizes, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1});
  }
  int between(int type, const Dims& sizes, const Dims& strides) {
    return add({kIds + static_cast<int64_t>(tensors_.size()), type, 4, sizes.data(), strides.data(), 16, true}, sizes,
               strides);
  }

  int pointwise(int mode, int x, int b = -1) { return pointwise_into(mode, between(cudnn::kFloat, sizes_[x]), x, b); }
  int pointwise_into(int mode, int y, int x, int b = -1, int t = -1, int compute = cudnn::kFloat, int64_t axis = -1) {
    Description pointwise(cudnn::kPointwiseKind);
    pointwise.set(cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, mode)
        .set(cudnn::kPointwiseCompute, cudnn::kTypeDataType, compute);
    if (axis >= 0) pointwise.set(cudnn::kPointwiseAxis, cudnn::kTypeInt64, axis);
    pointwise.finish();
    Description operation(cudnn::kPointwiseOperationKind);
    operation.set(cudnn::kPointwiseDescription, pointwise).set(cudnn::kPointwiseX, tensors_[x]);
    if (b >= 0) operation.set(cudnn::kPointwiseB, tensors_[b]);
    if (t >= 0) operation.set(cudnn::kPointwiseT, tensors_[t]);
    operation.set(cudnn::kPointwiseY, tensors_[y]);
    keep(std::move(operation), std::move(pointwise));
    return y;
  }
  int multiply(int a, int b, int c) {
    Description matmul(cudnn::kMatmulKind);
    const int compute = cudnn::kFloat;
    matmul.set(cudnn::kMatmulCompute, cudnn::kTypeDataType, compute).finish();
    Description operation(cudnn::kMatmulOperationKind);
    operation.set(cudnn::kMatmulA, tensors_[a])
        .set(cudnn::kMatmulB, tensors_[b])
        .set(cudnn::kMatmulC, tensors_[c])
        .set(cudnn::kMatmulDescription, matmul);
    keep(std::move(operation), std::move(matmul));
    return c;
  }
  int reduce(int how, int x, int y) {
    Description reduction(cudnn::kReductionKind);
    const int compute = cudnn::kFloat;
    reduction.set(cudnn::kReductionCompute, cudnn::kTypeDataType, compute)
        .set(cudnn::kReductionOperator, cudnn::kTypeReductionOperator, how)
        .finish();
    Description operation(cudnn::kReductionOperationKind);
    operation.set(cudnn::kReductionX, tensors_[x])
        .set(cudnn::kReductionY, tensors_[y])
        .set(cudnn::kReductionDescription, reduction);
    keep(std::move(operation), std::move(reduction));
    return y;
  }
  int reshape(int x, int y) {
    Description operation(cudnn::kReshapeOperationKind);
    operation.set(cudnn::kReshapeX, tensors_[x]).set(cudnn::kReshapeY, tensors_[y]).finish();
    operations_.push_back(std::move(operation));
    return y;
  }
  // A number for each query.
  int per_query() { return between(cudnn::kFloat, {key_.batch, key_.heads, key_.length, 1}); }
  // Scores that a query may not see become minus infinity.
  int hide_later_keys(int scores) {
    const int row = between(cudnn::kInt32, sizes_[scores]), column = between(cudnn::kInt32, sizes_[scores]),
              seen = between(cudnn::kBoolean, sizes_[scores]);
    pointwise_into(cudnn::kIndex, row, scores, -1, -1, cudnn::kFloat, 2);
    pointwise_into(cudnn::kIndex, column, scores, -1, -1, cudnn::kFloat, 3);
    pointwise_into(cudnn::kGreaterOrEqual, seen, row, column, -1, cudnn::kBoolean);
    return pointwise_into(cudnn::kSelect, between(cudnn::kFloat, sizes_[scores]), scores, number(kHidden), seen);
  }
  Description finish(cudnn::Handle handle) { return cudnn::operation_graph(handle, operations_); }

 private:
  int add(cudnn::TensorFacts facts, const Dims& sizes, const Dims& strides) {
    facts.sizes = sizes.data();
    facts.strides = strides.data();
    tensors_.push_back(cudnn::tensor(facts));
    sizes_.push_back(sizes);
    return static_cast<int>(tensors_.size()) - 1;
  }
  void keep(Description operation, Description part) {
    operation.finish();
    operations_.push_back(std::move(operation));
    parts_.push_back(std::move(part));
  }

  const GraphKey& key_;
  std::vector<Description> tensors_, operations_, parts_;
  std::vector<Dims> sizes_;
};

Dims strides_of(const GraphStrides& s) { return {s.batch, s.head, s.row, 1}; }
Dims transposed_strides_of(const GraphStrides& s) { return {s.batch, s.head, 1, s.row}; }

// out = softmax(scale * query key') value, and the logarithm of the sum of exponentials of each query's scores.
Description forward_graph(const GraphKey& k, cudnn::Handle handle) {
  Builder g(k);
  const int type = static_cast<int>(k.type);
  const Dims score_sizes{k.batch, k.heads, k.length, k.keys}, row_sizes{k.batch, k.heads, k.length, 1};
  const int query = g.in_memory(kQuery, type, {k.batch, k.heads, k.length, k.width}, strides_of(k.query));
  const int key = g.in_memory(kKey, type, {k.batch, k.kv_heads, k.width, k.keys}, transposed_strides_of(k.key));
  const int value = g.in_memory(kValue, type, {k.batch, k.kv_heads, k.keys, k.value_width}, strides_of(k.value));
  const int out = g.in_memory(kOut, type, {k.batch, k.heads, k.length, k.value_width}, strides_of(k.out));
  const int logsumexp = g.in_memory(kLogsumexp, cudnn::kFloat, row_sizes, {k.heads * k.length, k.length, 1, 1});

  int scores = g.multiply(query, key, g.between(cudnn::kFloat, score_sizes));
  scores = g.pointwise(cudnn::kMultiply, scores, g.number(kScale));
  if (k.causal) scores = g.hide_later_keys(scores);
  const int largest = g.reduce(cudnn::kMaximum, scores, g.per_query());
  const int powers = g.pointwise(cudnn::kExponential, g.pointwise(cudnn::kSubtract, scores, largest));
  const int sum = g.reduce(cudnn::kSum, powers, g.per_query());
  g.pointwise_into(cudnn::kAdd, logsumexp, largest, g.pointwise(cudnn::kLogarithm, sum));
  const int weights = g.pointwise_into(cudnn::kDivide, g.between(type, score_sizes), powers, sum);
  g.multiply(weights, value, out);
  return g.finish(handle);
}

// With P the weights, dP = dO V' and D the sum of dO * O of each query: dV = P' dO, dS = scale * P (dP - D), dK = dS'
// Q, dQ = dS K. Where several heads share keys and values, theirs are summed.
Description backward_graph(const GraphKey& k, cudnn::Handle handle) {
  Builder g(k);
  const int type = static_cast<int>(k.type);
  const Dims score_sizes{k.batch, k.heads, k.length, k.keys}, row_sizes{k.batch, k.heads, k.length, 1};
  const Dims row_strides{k.heads * k.length, k.length, 1, 1};
  const Dims turned{k.batch, k.heads, k.keys, k.length};
  const Dims turned_strides{k.heads * k.length * k.keys, k.length * k.keys, 1, k.keys};
  const Dims query_sizes{k.batch, k.heads, k.length, k.width}, out_sizes{k.batch, k.heads, k.length, k.value_width};
  const int query = g.in_memory(kQuery, type, query_sizes, strides_of(k.query));
  const int key = g.in_memory(kKey, type, {k.batch, k.kv_heads, k.width, k.keys}, transposed_strides_of(k.key));
  const int value =
      g.in_memory(kValue, type, {k.batch, k.kv_heads, k.value_width, k.keys}, transposed_strides_of(k.value));
  const int out = g.in_memory(kOut, type, out_sizes, strides_of(k.out));
  const int grad = g.in_memory(kGradOut, type, out_sizes, strides_of(k.grad_out));
  const int logsumexp = g.in_memory(kLogsumexp, cudnn::kFloat, row_sizes, row_strides);
  const int grad_query = g.in_memory(kGradQuery, type, query_sizes, strides_of(k.grad_query));
  const int grad_key = g.in_memory(kGradKey, type, {k.batch, k.kv_heads, k.keys, k.width}, strides_of(k.grad_key));
  const int grad_value =
      g.in_memory(kGradValue, type, {k.batch, k.kv_heads, k.keys, k.value_width}, strides_of(k.grad_value));
  const int products = g.in_memory(kProducts, cudnn::kFloat, row_sizes, row_strides);
  const int scale = g.number(kScale);

  const int product = g.pointwise_into(cudnn::kMultiply, g.between(cudnn::kFloat, out_sizes), grad, out);
  g.pointwise_into(cudnn::kMultiply, products, g.reduce(cudnn::kSum, product, g.per_query()), g.number(kOne));

  int scores = g.multiply(query, key, g.between(cudnn::kFloat, score_sizes));
  scores = g.pointwise(cudnn::kMultiply, scores, scale);
  scores = g.pointwise(cudnn::kSubtract, scores, logsumexp);
  if (k.causal) scores = g.hide_later_keys(scores);
  const int weights = g.pointwise(cudnn::kExponential, scores);

  // A gradient of keys or values: a product with what the heads have, summed over the heads that share it.
  const auto to_shared = [&](int factor, int other, int64_t width, int result) {
    const int left = g.reshape(factor, g.between(type, turned, turned_strides));
    if (k.heads == k.kv_heads) {
      g.multiply(left, other, result);
    } else {
      g.reduce(cudnn::kSum, g.multiply(left, other, g.between(type, {k.batch, k.heads, k.keys, width})), result);
    }
  };
  to_shared(weights, grad, k.value_width, grad_value);

  int slopes = g.multiply(grad, value, g.between(cudnn::kFloat, score_sizes));
  slopes = g.pointwise(cudnn::kSubtract, slopes, products);
  slopes = g.pointwise(cudnn::kMultiply, slopes, weights);
  slopes = g.pointwise(cudnn::kMultiply, slopes, scale);
  to_shared(slopes, query, k.width, grad_key);

  const int key_rows = g.reshape(key, g.between(type, {k.batch, k.kv_heads, k.keys, k.width}, strides_of(k.key)));
  if (k.repeatable) {
    g.multiply(slopes, key_rows, grad_query);
    return g.finish(handle);
  }
  const int sum = g.in_memory(kGradQuerySum, cudnn::kFloat, query_sizes,
                              {k.heads * k.length * k.width, k.length * k.width, k.width, 1});
  g.multiply(slopes, key_rows, sum);
  g.pointwise_into(cudnn::kIdentity, grad_query, sum);
  return g.finish(handle);
}

}  // namespace

Description attention_graph(const GraphKey& key, cudnn::Handle handle) {
  return key.task == Task::Forward ? forward_graph(key, handle) : backward_graph(key, handle);
}

}  // namespace mica::cuda::attention
