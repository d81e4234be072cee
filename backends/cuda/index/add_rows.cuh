// index_add along the first dimension of matrices whose rows are contiguous: 16 bytes of a row at a time, added to the
// table with one instruction where the GPU has it.
#pragma once

#include "backends/cuda/bounds.h"
#include "backends/cuda/index/atomic.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

template <class T>
inline constexpr bool kAddsRows = std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

template <class T, int V>
__device__ void atomic_add_vector(T* to, const Vector<T, V>& values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (std::is_same_v<T, float>) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(values.item[0]), "f"(values.item[1]),
                 "f"(values.item[2]), "f"(values.item[3])
                 : "memory");
  } else {
    const auto& words = reinterpret_cast<const uint4&>(values);
    if constexpr (std::is_same_v<T, half>) {
      asm volatile("red.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
                   "r"(words.z), "r"(words.w)
                   : "memory");
    } else {
      asm volatile("red.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
                   "r"(words.z), "r"(words.w)
                   : "memory");
    }
  }
#else
#pragma unroll
  for (int j = 0; j < V; ++j) atomic_add(to + j, values.item[j]);
#endif
}

template <class T, int V>
struct AddRows {
  T* table;
  const T* source;
  const int64_t* index;
  int64_t index_stride, vectors, table_pitch, source_pitch, size;  // vectors of a row; rows of the table
  Divider by_vectors;
  Bounds bounds;
  int dim;
  compute_t<T> alpha;

  __device__ void operator()(int64_t i) const {
    const int64_t row = i >> 31 ? i / vectors : static_cast<int64_t>(by_vectors.divide(static_cast<uint32_t>(i))),
                  at = i - row * vectors;
    const int64_t given = index[row * index_stride];
    if (static_cast<uint64_t>(given) >= static_cast<uint64_t>(size)) {
      bounds.checked(given, size, dim, false);
      return;
    }
    auto values = *reinterpret_cast<const Vector<T, V>*>(source + row * source_pitch + at * V);
    if (alpha != compute_t<T>(1)) {
      const auto factor = convert<compute_t<T>>(convert<T>(alpha));
#pragma unroll
      for (int j = 0; j < V; ++j) values.item[j] = convert<T>(convert<compute_t<T>>(values.item[j]) * factor);
    }
    atomic_add_vector<T, V>(table + given * table_pitch + at * V, values);
  }
};

// Whether t is a matrix of whole vectors around dimension `dim`: what comes after it is dense, and nothing before it.
inline bool has_vector_rows(const TensorView& t, int64_t dim, int64_t bytes) {
  int64_t expected = 1;
  for (int64_t d = t.ndim - 1; d > dim; --d) {
    if (t.sizes[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.sizes[d];
  }
  for (int64_t d = 0; d < dim; ++d)
    if (t.sizes[d] != 1) return false;
  return expected * bytes % 16 == 0 && t.strides[dim] * bytes % 16 == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// False where the tensors are others: nothing has been done then.
template <class T>
bool add_rows(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& source,
              const Scalar& alpha) {
  if constexpr (!kAddsRows<T>) {
    return false;
  } else {
    constexpr int V = static_cast<int>(16 / sizeof(T));
    if (self.ndim == 0 || !has_vector_rows(self, dim, sizeof(T)) || !has_vector_rows(source, dim, sizeof(T)))
      return false;
    const int64_t rows = source.sizes[dim], vectors = source.numel / rows / V;
    const int device = self.device.index();
    for_each(device, rows * vectors,
             AddRows<T, V>{self.ptr<T>(), source.ptr<const T>(), index.ptr<const int64_t>(),
                           index.ndim ? index.strides[0] : 0, vectors, self.strides[dim], source.strides[dim],
                           self.sizes[dim], Divider(static_cast<uint32_t>(std::min<int64_t>(vectors, INT32_MAX))),
                           Bounds::of("index_add_", device), static_cast<int>(dim), alpha.cast<compute_t<T>>()});
    return true;
  }
}

}  // namespace mica::cuda
