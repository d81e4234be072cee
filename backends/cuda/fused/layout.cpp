#include "backends/cuda/fused/layout.h"

#include <algorithm>

namespace mica::cuda {

namespace {

// Dimensions of size one vanish, and neighbours that continue each other for all operands merge.
void merge(const FusedLoop& loop, FusedLayout& p) {
  p.ndim = 0;
  for (int d = loop.ndim - 1; d >= 0; --d) {
    const int64_t extent = loop.shape[d];
    if (extent == 1) continue;
    bool continues = p.ndim > 0;
    for (int k = 0; k < loop.noperands && continues; ++k)
      continues = loop.operands[k].strides[d] == p.strides[k][p.ndim - 1] * p.shape[p.ndim - 1];
    if (continues) {
      p.shape[p.ndim - 1] *= extent;
      continue;
    }
    p.shape[p.ndim] = extent;
    for (int k = 0; k < loop.noperands; ++k) p.strides[k][p.ndim] = loop.operands[k].strides[d];
    ++p.ndim;
  }
  if (p.ndim == 0) {
    p.ndim = 1;
    p.shape[0] = 1;
    for (int k = 0; k < loop.noperands; ++k) p.strides[k][0] = 0;
  }
}

// Whether every operand can be read in pieces along the fastest dimension, or has one element there.
bool in_pieces(const FusedLoop& loop, FusedLayout& p) {
  if (p.shape[0] % kFusedPiece) return false;
  p.dense = 0;
  for (int k = 0; k < loop.noperands; ++k) {
    if (p.strides[k][0] == 0) continue;
    const int64_t size = element_size(loop.operands[k].dtype), unit = std::min<int64_t>(16, size * kFusedPiece);
    if (p.strides[k][0] != size || reinterpret_cast<uintptr_t>(loop.operands[k].data) % unit) return false;
    for (int d = 1; d < p.ndim; ++d)
      if (p.strides[k][d] % unit) return false;
    if (loop.operands[k].index && loop.operands[k].step % unit) return false;
    p.dense |= 1u << k;
  }
  return true;
}

}  // namespace

FusedLayout lay_out(const FusedLoop& loop) {
  FusedLayout p;
  merge(loop, p);
  p.pieces = in_pieces(loop, p);
  if (p.pieces) {
    p.shape[0] /= kFusedPiece;
    for (int k = 0; k < loop.noperands; ++k) p.strides[k][0] *= kFusedPiece;
  } else {
    p.dense = ~0u;  // one element each
  }
  p.items = 1;
  for (int d = 0; d < p.ndim; ++d) p.items *= p.shape[d];
  return p;
}

}  // namespace mica::cuda
