// Attention as a graph of cuDNN, whose engines know the pattern and run it as one kernel.
#pragma once

#include "backends/cuda/cudnn/description.h"

namespace mica::cuda::attention {

enum class Task : int64_t { Forward, Backward };

// Strides of a batch, a head and a position; those of the numbers of a head are one.
struct GraphStrides {
  int64_t batch, head, row;
};

// Everything that a plan depends on. All members have eight bytes, so that two keys are equal if their bytes are.
struct GraphKey {
  Task task;
  int64_t device, type, causal, batch, heads, kv_heads, length, keys, width, value_width;
  int64_t repeatable;  // whether the gradient of the queries is to be added in a fixed order, for more workspace
  GraphStrides query, key, value, out;
  GraphStrides grad_out, grad_query, grad_key, grad_value;  // for the task of the gradients
};

// The tensors in memory, by the ids under which a plan gets them.
enum TensorId : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kLogsumexp,
  kScale,   // a float of the host
  kHidden,  // a float of the host: minus infinity
  kOne,     // a float of the host
  kGradOut,
  kGradQuery,
  kGradKey,
  kGradValue,
  kProducts,      // (batch, heads, length) floats of workspace
  kGradQuerySum,  // (batch, heads, length, width) floats of workspace
  kIds,
};

cudnn::Description attention_graph(const GraphKey& key, cudnn::Handle handle);

}  // namespace mica::cuda::attention
