#pragma once

#include "backends/cuda/attention/plain.cuh"
#include "mica/backend/kernel_types.h"

namespace mica::cuda::attention::plain {

// A mask as the kernels take it, from one of (batch, heads, queries, keys).
inline Mask mask_of(const TensorView& t, DType dtype) {
  if (!t.defined()) return {};
  return {t.data,       t.strides[0],
          t.strides[1], t.strides[2],
          t.strides[3], t.dtype == DType::Bool ? MaskKind::Bool : t.dtype == dtype ? MaskKind::Same : MaskKind::Float};
}

}  // namespace mica::cuda::attention::plain
