// 16 bytes as elements, for kernels that take no tensor's whole loop. They are loaded as one number and copied: a
// struct that is read through a pointer may be loaded element by element.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda {

template <class T>
struct alignas(16) Piece {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  T item[kCount];
};

template <class T>
__device__ Piece<T> as_piece(const int4& bits) {
  Piece<T> piece;
  memcpy(&piece, &bits, sizeof piece);
  return piece;
}

}  // namespace mica::cuda
