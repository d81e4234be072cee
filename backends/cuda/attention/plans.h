// Attention by cuDNN: the problems that it gets, and the plans that are kept for them.
#pragma once

#include "backends/cuda/attention/graph.h"
#include "mica/backend/kernel_types.h"

namespace mica::cuda::attention {

// The problem that a plan is for, without the strides of gradients. The tensors have four dimensions and last strides
// of one.
GraphKey key_of(Task task, const TensorView& query, const TensorView& key, const TensorView& value,
                const TensorView& out, bool causal);
GraphStrides strides_in_graph(const TensorView& t);

// Whether a tensor has a layout that cuDNN reads: aligned to 16 bytes in every dimension, none of them expanded.
bool lies_well(const TensorView& t);

// Whether cuDNN is there, allowed, and new enough.
bool cudnn_is_used(int device);

// Whether cuDNN has an engine for attention of these inputs and for its gradients.
bool has_engines(const TensorView& query, const TensorView& key, const TensorView& value);

// Runs a task on the memory that is given by TensorId. Returns false where another kernel has to do it: cuDNN has no
// engine, or the problem has not come often enough for a plan, which takes long to compile. With `only`, no other
// kernel can do it.
bool run_graph(const GraphKey& key, void* const (&memory)[kIds], double scale, bool only);

// The two tasks of the kernel table by run_graph.
bool forward_by_cudnn(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                      const TensorView& key, const TensorView& value, bool causal, double scale, bool only);
bool backward_by_cudnn(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                       const TensorView& grad_out, const TensorView& out, const TensorView& logsumexp,
                       const TensorView& query, const TensorView& key, const TensorView& value, bool causal,
                       double scale, bool only);

}  // namespace mica::cuda::attention
