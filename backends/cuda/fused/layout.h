// The layout of a fused loop over threads: each thread has a piece of neighbouring elements, or one element.
#pragma once

#include "mica/backend/fusion.h"

namespace mica::cuda {

inline constexpr int kFusedThreads = 128;
inline constexpr int kFusedPiece = 8;

struct FusedLayout {
  int ndim;
  int64_t shape[kFusedDims];                    // in pieces, fastest dimension first
  int64_t strides[kFusedOperands][kFusedDims];  // in bytes, from piece to piece
  bool pieces;                                  // whether a piece is kFusedPiece elements
  uint32_t dense;  // operands that are dense along a piece; the others have one element for it
  int64_t items;   // pieces in all
};

FusedLayout lay_out(const FusedLoop& loop);

}  // namespace mica::cuda
