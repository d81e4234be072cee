// What one thread of a reduction reads: pieces of 16 bytes where elements lie side by side or with one between them,
// several of them under way at once.
#pragma once

#include "backends/cuda/places.cuh"

namespace mica::cuda {

struct ReductionShape {
  Places<3> kept;      // along the outputs: input, first output, second output
  Places<1> reduced;   // along what meets in one output
  int splits = 1;      // groups that share one output
  int group_bits = 8;  // threads of a group: 1, 32 or the whole block
};

// Elements that are reduced rarely have no kernel for vectors of columns. An operation may say so of itself by a member
// kRare.
template <class Op>
constexpr bool reduces_rarely() {
  using In = typename Op::In;
  if constexpr (requires { Op::kRare; }) {
    if (Op::kRare) return true;
  }
  return is_complex_v<In> || std::is_same_v<In, int8_t> || std::is_same_v<In, int16_t> ||
         std::is_same_v<In, uint16_t> || std::is_same_v<In, uint32_t> || std::is_same_v<In, uint64_t>;
}

// One thread's share of the elements of one output: those at first, first + step, ..., and where the row is dense, in
// pieces of 16 bytes.
template <class Op>
__device__ typename Op::Acc reduce_share(const Op& op, const ReductionShape& shape, const typename Op::In* row,
                                         int64_t first, int64_t step) {
  using In = typename Op::In;
  using Acc = typename Op::Acc;
  constexpr int kCount = sizeof(In) >= 16 ? 1 : sizeof(In) > 2 ? 16 / sizeof(In) : 8;
  using Piece = Vector<In, kCount>;
  const bool dense = shape.reduced.ndim == 0 || (shape.reduced.ndim == 1 && shape.reduced.strides[0][0] == 1);
  if (dense && reinterpret_cast<uintptr_t>(row) % alignof(Piece) == 0 && shape.reduced.numel >= kCount) {
    constexpr bool kAbsorbsAny = requires(Acc & acc, const Piece& piece) { op.absorb_any(acc, piece.item); };
    constexpr bool kAbsorbs = requires(Acc & acc, const Piece& piece) { op.absorb(acc, piece.item, int64_t{}); };
    constexpr int kSums = kAbsorbsAny || kAbsorbs ? 1 : kCount;
    Acc sums[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) sums[j] = op.identity();
    const int64_t pieces = shape.reduced.numel / kCount;
    auto take = [&](const Piece& piece, int64_t i) {
      if constexpr (kAbsorbsAny) {
        op.absorb_any(sums[0], piece.item);
      } else if constexpr (kAbsorbs) {
        op.absorb(sums[0], piece.item, i * kCount);
      } else {
#pragma unroll
        for (int j = 0; j < kCount; ++j) sums[j] = op.combine(sums[j], op.load(piece.item[j], i * kCount + j));
      }
    };
    // Several loads are on their way before the first is looked at, whatever the operation is made of.
    constexpr int kBatch = 4;
    int64_t i = first;
#pragma unroll 1
    for (; i + (kBatch - 1) * step < pieces; i += kBatch * step) {
      Piece batch[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) batch[k] = reinterpret_cast<const Piece*>(row)[i + k * step];
      if constexpr (kAbsorbsAny && sizeof(In) >= 4) {
        In all[kBatch * kCount];
#pragma unroll
        for (int k = 0; k < kBatch * kCount; ++k) all[k] = batch[k / kCount].item[k % kCount];
        op.absorb_any(sums[0], all);
      } else {
#pragma unroll
        for (int k = 0; k < kBatch; ++k) take(batch[k], i + k * step);
      }
    }
#pragma unroll 1
    for (; i < pieces; i += step) take(reinterpret_cast<const Piece*>(row)[i], i);
#pragma unroll 1
    for (int64_t last = pieces * kCount + first; last < shape.reduced.numel; last += step)
      sums[0] = op.combine(sums[0], op.load(row[last], last));
#pragma unroll
    for (int j = 1; j < kSums; ++j) sums[0] = op.combine(sums[0], sums[j]);
    return sums[0];
  }
  // Dense runs of a row that is not dense as a whole, like the planes of one channel: a piece lies in one of them.
  const Places<1>& reduced = shape.reduced;
  bool in_runs = !reduces_rarely<Op>() && reduced.strides[0][0] == 1 && reduced.sizes[0] % kCount == 0 &&
                 reinterpret_cast<uintptr_t>(row) % alignof(Piece) == 0;
  for (int d = 1; d < reduced.ndim; ++d) in_runs = in_runs && reduced.strides[d][0] % kCount == 0;
  if constexpr (!reduces_rarely<Op>()) {
    if (in_runs && reduced.ndim > 1) {
      Acc sums[kCount];
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[j] = op.identity();
#pragma unroll 2
      for (int64_t i = first; i < reduced.numel / kCount; i += step) {
        int64_t at[1];
        reduced.at(i * kCount, at);
        const Piece piece = *reinterpret_cast<const Piece*>(row + at[0]);
#pragma unroll
        for (int j = 0; j < kCount; ++j) sums[j] = op.combine(sums[j], op.load(piece.item[j], i * kCount + j));
      }
#pragma unroll
      for (int j = 1; j < kCount; ++j) sums[0] = op.combine(sums[0], sums[j]);
      return sums[0];
    }
  }
  // Every second element, as the real parts of complex numbers lie: a piece has others between them. The last one is
  // left out, since the element behind it may be nobody's.
  if constexpr (!reduces_rarely<Op>() && sizeof(In) <= 4) {
    constexpr int kUsed = kCount / 2, kBatch = 4;
    if (reduced.ndim == 1 && reduced.strides[0][0] == 2 && reinterpret_cast<uintptr_t>(row) % alignof(Piece) == 0 &&
        reduced.numel > kUsed) {
      Acc sum = op.identity();
      auto take = [&](const Piece& piece, int64_t i) {
        In used[kUsed];
#pragma unroll
        for (int j = 0; j < kUsed; ++j) used[j] = piece.item[2 * j];
        if constexpr (requires { op.absorb_any(sum, used); }) {
          op.absorb_any(sum, used);
        } else if constexpr (requires { op.absorb(sum, used, i); }) {
          op.absorb(sum, used, i * kUsed);
        } else {
#pragma unroll
          for (int j = 0; j < kUsed; ++j) sum = op.combine(sum, op.load(used[j], i * kUsed + j));
        }
      };
      const auto* from = reinterpret_cast<const Piece*>(row);
      const int64_t pieces = (reduced.numel - 1) / kUsed;
      int64_t i = first;
#pragma unroll 1
      for (; i + (kBatch - 1) * step < pieces; i += kBatch * step) {
        Piece batch[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) batch[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) take(batch[k], i + k * step);
      }
#pragma unroll 1
      for (; i < pieces; i += step) take(from[i], i);
#pragma unroll 1
      for (int64_t last = pieces * kUsed + first; last < reduced.numel; last += step)
        sum = op.combine(sum, op.load(row[2 * last], last));
      return sum;
    }
  }
  // Any strides.
  constexpr int kBatch = sizeof(In) <= 2 ? 8 : 4;
  auto load = [&](int64_t i) {
    int64_t at[1];
    reduced.at(i, at);
    return row[at[0]];
  };
  Acc sum = op.identity();
  int64_t i = first;
#pragma unroll 1
  for (; i + (kBatch - 1) * step < reduced.numel; i += kBatch * step) {
    In batch[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) batch[k] = load(i + k * step);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) sum = op.combine(sum, op.load(batch[k], i + k * step));
  }
#pragma unroll 1
  for (; i < reduced.numel; i += step) sum = op.combine(sum, op.load(load(i), i));
  return sum;
}

}  // namespace mica::cuda
