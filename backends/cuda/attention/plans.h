// Attention by cuDNN: which problems it is given, and the plans that are kept for them.
#pragma once

#include "backends/cuda/attention/graph.h"
#include "mica/backend/kernel_types.h"

namespace mica::cuda::attention {

// A problem as a plan knows it, without the gradients' strides. The tensors have four dimensions and last strides of
// one.
GraphKey key_of(Task task, const TensorView& query, const TensorView& key, const TensorView& value,
                const TensorView& out, bool causal);
GraphStrides strides_in_graph(const TensorView& t);

// Whether a tensor lies as cuDNN reads it: aligned to 16 bytes in every dimension, none of them expanded.
bool lies_well(const TensorView& t);

// Whether cuDNN is there, allowed, and new enough for what it is asked.
bool cudnn_is_used(int device);

// Whether cuDNN has an engine for attention of these inputs and for its gradients.
bool has_engines(const TensorView& query, const TensorView& key, const TensorView& value);

// Runs a task in memory that is given by TensorId. False where that is for others to do: cuDNN has no engine, or the
// problem has not come often enough for a plan, which takes a compiler its time. With `only`, there are no others.
bool run_graph(const GraphKey& key, void* const (&memory)[kIds], double scale, bool only);

// The two tasks of the kernel table by run_graph.
bool forward_by_cudnn(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                      const TensorView& key, const TensorView& value, bool causal, double scale, bool only);
bool backward_by_cudnn(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                       const TensorView& grad_out, const TensorView& out, const TensorView& logsumexp,
                       const TensorView& query, const TensorView& key, const TensorView& value, bool causal,
                       double scale, bool only);

}  // namespace mica::cuda::attention
