#include "backends/cpu/pointwise/transpose.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/transpose.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include <hwy/cache_control.h>

#include "backends/cpu/simd/strided-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE const T* row_of(const char* base, int64_t stride, size_t i) {
  return reinterpret_cast<const T*>(base + static_cast<int64_t>(i) * stride);
}
template <class T>
HWY_INLINE T* row_of(char* base, int64_t stride, size_t i) {
  return reinterpret_cast<T*>(base + static_cast<int64_t>(i) * stride);
}

template <class T>
void transpose_scalar(const char* from, int64_t from_stride, char* to, int64_t to_stride, size_t row0, size_t row1,
                      size_t column0, size_t column1) {
  for (size_t c = column0; c < column1; ++c) {
    T* out = row_of<T>(to, to_stride, c);
    for (size_t r = row0; r < row1; ++r) out[r] = row_of<T>(from, from_stride, r)[c];
  }
}

// Swaps rows and lanes within each 128-bit block. A round moves the highest bit of the row number to the lowest of the
// lane number: after as many rounds as there are such bits, the two have changed places.
template <class D, size_t N>
HWY_INLINE void transpose_blocks(D d, hn::VFromD<D> (&v)[N]) {
  static_assert(N == 16 / sizeof(hn::TFromD<D>));
  for (size_t round = 1; round < N; round *= 2) {
    hn::VFromD<D> next[N];
    for (size_t i = 0; i < N / 2; ++i) {
      next[2 * i] = hn::InterleaveLower(d, v[i], v[i + N / 2]);
      next[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + N / 2]);
    }
    for (size_t i = 0; i < N; ++i) v[i] = next[i];
  }
}

#if HWY_TARGET != HWY_SCALAR && (HWY_ARCH_X86 || HWY_ARCH_ARM_A64)

// A vector of 128-bit pieces, `step` bytes apart.
template <class D>
HWY_INLINE hn::VFromD<D> load_blocks(D d, const char* from, int64_t step) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 16) {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  } else {
    const hn::Half<D> half;
    const int64_t upper = static_cast<int64_t>(hn::MaxLanes(half) * sizeof(T) / 16);
    return hn::Combine(d, load_blocks(half, from + upper * step, step), load_blocks(half, from, step));
  }
}

// As many rows as a vector has lanes, a block of columns at a time.
template <class T>
HWY_ATTR void transpose_by_blocks(const char* from, int64_t from_stride, char* to, int64_t to_stride, size_t rows,
                                  size_t columns) {
  const hn::ScalableTag<T> d;
  constexpr size_t kBlock = 16 / sizeof(T);
  const size_t lanes = hn::Lanes(d);
  size_t r = 0;
  for (; r + lanes <= rows; r += lanes) {
    size_t c = 0;
    for (; c + kBlock <= columns; c += kBlock) {
      const char* corner = from + static_cast<int64_t>(r) * from_stride + static_cast<int64_t>(c * sizeof(T));
      hn::VFromD<decltype(d)> v[kBlock];
      for (size_t i = 0; i < kBlock; ++i)
        v[i] =
            load_blocks(d, corner + static_cast<int64_t>(i) * from_stride, static_cast<int64_t>(kBlock) * from_stride);
      transpose_blocks(d, v);
      for (size_t i = 0; i < kBlock; ++i) hn::StoreU(v[i], d, row_of<T>(to, to_stride, c + i) + r);
    }
    transpose_scalar<T>(from, from_stride, to, to_stride, r, r + lanes, c, columns);
  }
  transpose_scalar<T>(from, from_stride, to, to_stride, r, rows, 0, columns);
}

// Squares of whole vectors: reads and writes full cache lines, of which a matrix whose rows lie a power of two apart
// can hold few.
template <class T>
HWY_ATTR void transpose_by_vectors(const char* from, int64_t from_stride, char* to, int64_t to_stride, size_t rows,
                                   size_t columns) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  constexpr size_t kLanes = hn::MaxLanes(decltype(d)());
  constexpr size_t kBlock = 16 / sizeof(T);
  constexpr size_t kBlocks = kLanes / kBlock;
  size_t r = 0;
  for (; r + kLanes <= rows; r += kLanes) {
    size_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      V part[kBlocks][kBlock];
      for (size_t b = 0; b < kBlocks; ++b) {
        for (size_t i = 0; i < kBlock; ++i)
          part[b][i] = hn::LoadU(d, row_of<T>(from, from_stride, r + b * kBlock + i) + c);
        transpose_blocks(d, part[b]);
      }
      // part[b][i] now holds, for every block q, column q * kBlock + i of the rows of block b; gather the b of one q.
      for (size_t i = 0; i < kBlock; ++i) {
        const auto put = [&](size_t q, V v) { hn::StoreU(v, d, row_of<T>(to, to_stride, c + q * kBlock + i) + r); };
        if constexpr (kBlocks == 1) {
          put(0, part[0][i]);
        } else if constexpr (kBlocks == 2) {
          put(0, hn::ConcatLowerLower(d, part[1][i], part[0][i]));
          put(1, hn::ConcatUpperUpper(d, part[1][i], part[0][i]));
        } else {
          const V lower02 = hn::ConcatLowerLower(d, part[2][i], part[0][i]);
          const V lower13 = hn::ConcatLowerLower(d, part[3][i], part[1][i]);
          const V upper02 = hn::ConcatUpperUpper(d, part[2][i], part[0][i]);
          const V upper13 = hn::ConcatUpperUpper(d, part[3][i], part[1][i]);
          put(0, hn::OddEvenBlocks(hn::SwapAdjacentBlocks(lower13), lower02));
          put(1, hn::OddEvenBlocks(lower13, hn::SwapAdjacentBlocks(lower02)));
          put(2, hn::OddEvenBlocks(hn::SwapAdjacentBlocks(upper13), upper02));
          put(3, hn::OddEvenBlocks(upper13, hn::SwapAdjacentBlocks(upper02)));
        }
      }
    }
    transpose_scalar<T>(from, from_stride, to, to_stride, r, r + kLanes, c, columns);
  }
  transpose_scalar<T>(from, from_stride, to, to_stride, r, rows, 0, columns);
}

// Splits a few columns that lie close together (the channels of an image) into rows, and back.
template <class T>
HWY_ATTR void split_columns(const char* from, char* to, int64_t to_stride, size_t rows, size_t columns) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const T* in = reinterpret_cast<const T*>(from);
  T* out[4] = {};
  for (size_t c = 0; c < columns; ++c) out[c] = row_of<T>(to, to_stride, c);
  size_t r = 0;
  for (; r + lanes <= rows; r += lanes) {
    hn::VFromD<decltype(d)> a, b, c, e;
    if (columns == 2) {
      hn::LoadInterleaved2(d, in + r * 2, a, b);
    } else if (columns == 3) {
      hn::LoadInterleaved3(d, in + r * 3, a, b, c);
    } else {
      hn::LoadInterleaved4(d, in + r * 4, a, b, c, e);
    }
    hn::StoreU(a, d, out[0] + r);
    hn::StoreU(b, d, out[1] + r);
    if (columns > 2) hn::StoreU(c, d, out[2] + r);
    if (columns > 3) hn::StoreU(e, d, out[3] + r);
  }
  transpose_scalar<T>(from, static_cast<int64_t>(columns * sizeof(T)), to, to_stride, r, rows, 0, columns);
}

template <class T>
HWY_ATTR void join_rows(const char* from, int64_t from_stride, char* to, size_t rows, size_t columns) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  T* out = reinterpret_cast<T*>(to);
  const T* in[4] = {};
  for (size_t r = 0; r < rows; ++r) in[r] = row_of<T>(from, from_stride, r);
  size_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    const auto v0 = hn::LoadU(d, in[0] + c), v1 = hn::LoadU(d, in[1] + c);
    if (rows == 2) {
      hn::StoreInterleaved2(v0, v1, d, out + c * 2);
    } else if (rows == 3) {
      hn::StoreInterleaved3(v0, v1, hn::LoadU(d, in[2] + c), d, out + c * 3);
    } else {
      hn::StoreInterleaved4(v0, v1, hn::LoadU(d, in[2] + c), hn::LoadU(d, in[3] + c), d, out + c * 4);
    }
  }
  transpose_scalar<T>(from, from_stride, to, static_cast<int64_t>(rows * sizeof(T)), 0, rows, c, columns);
}

template <class T>
HWY_ATTR void transpose_of(const char* from, int64_t from_stride, char* to, int64_t to_stride, size_t rows,
                           size_t columns) {
  if (columns >= 2 && columns <= 4 && from_stride == static_cast<int64_t>(columns * sizeof(T)))
    return split_columns<T>(from, to, to_stride, rows, columns);
  if (rows >= 2 && rows <= 4 && to_stride == static_cast<int64_t>(rows * sizeof(T)))
    return join_rows<T>(from, from_stride, to, rows, columns);
  if constexpr (sizeof(T) < 4) {
    transpose_by_blocks<T>(from, from_stride, to, to_stride, rows, columns);
  } else {
    transpose_by_vectors<T>(from, from_stride, to, to_stride, rows, columns);
  }
}

// Matrices of one vector: their elements change places in a register.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
HWY_ATTR void transpose_within_vectors(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count,
                                       size_t rows, size_t columns) {
  const hn::FixedTag<uint32_t, 16> d;
  HWY_ALIGN uint32_t places[16];
  for (size_t i = 0; i < 16; ++i) places[i] = static_cast<uint32_t>(i % rows * columns + i / rows);
  const auto order = hn::SetTableIndices(d, places);
  for (int64_t i = 0; i < count; ++i, from += from_step, to += to_step) {
    const auto matrix = hn::LoadU(d, reinterpret_cast<const uint32_t*>(from));
    hn::StoreU(hn::TableLookupLanes(matrix, order), d, reinterpret_cast<uint32_t*>(to));
  }
}
#endif

// Squares of as many rows as 16 bytes have elements.
template <class T>
HWY_ATTR void transpose_squares(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count) {
  constexpr size_t kBlock = 16 / sizeof(T);
  const hn::FixedTag<T, kBlock> d;
  for (int64_t i = 0; i < count; ++i, from += from_step, to += to_step) {
    const T* in = reinterpret_cast<const T*>(from);
    T* out = reinterpret_cast<T*>(to);
    hn::VFromD<decltype(d)> v[kBlock];
    for (size_t r = 0; r < kBlock; ++r) v[r] = hn::LoadU(d, in + r * kBlock);
    transpose_blocks(d, v);
    for (size_t r = 0; r < kBlock; ++r) hn::StoreU(v[r], d, out + r * kBlock);
  }
}

#else

template <class T>
void transpose_of(const char* from, int64_t from_stride, char* to, int64_t to_stride, size_t rows, size_t columns) {
  transpose_scalar<T>(from, from_stride, to, to_stride, 0, rows, 0, columns);
}

#endif

template <class T>
HWY_ATTR void transpose_many_of(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count,
                                size_t rows, size_t columns) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if (sizeof(T) == 4 && rows * columns == 16)
    return transpose_within_vectors(from, from_step, to, to_step, count, rows, columns);
#endif
#if HWY_TARGET != HWY_SCALAR && (HWY_ARCH_X86 || HWY_ARCH_ARM_A64)
  if constexpr (sizeof(T) >= 4) {
    if (rows == columns && rows * sizeof(T) == 16) return transpose_squares<T>(from, from_step, to, to_step, count);
  }
#endif
  for (int64_t i = 0; i < count; ++i)
    transpose_of<T>(from + i * from_step, static_cast<int64_t>(columns * sizeof(T)), to + i * to_step,
                    static_cast<int64_t>(rows * sizeof(T)), rows, columns);
}

struct Pair64 {
  uint64_t first, second;
};

HWY_ATTR void transpose_any(int64_t size, const char* from, int64_t from_stride, char* to, int64_t to_stride,
                            int64_t rows, int64_t columns) {
  const size_t r = static_cast<size_t>(rows), c = static_cast<size_t>(columns);
  switch (size) {
    case 1:
      return transpose_of<uint8_t>(from, from_stride, to, to_stride, r, c);
    case 2:
      return transpose_of<uint16_t>(from, from_stride, to, to_stride, r, c);
    case 4:
      return transpose_of<uint32_t>(from, from_stride, to, to_stride, r, c);
    case 8:
      return transpose_of<uint64_t>(from, from_stride, to, to_stride, r, c);
    default:
      return transpose_scalar<Pair64>(from, from_stride, to, to_stride, 0, r, 0, c);
  }
}

HWY_ATTR void transpose_many_any(int64_t size, const char* from, int64_t from_step, char* to, int64_t to_step,
                                 int64_t count, int64_t rows, int64_t columns) {
  const size_t r = static_cast<size_t>(rows), c = static_cast<size_t>(columns);
  switch (size) {
    case 1:
      return transpose_many_of<uint8_t>(from, from_step, to, to_step, count, r, c);
    case 2:
      return transpose_many_of<uint16_t>(from, from_step, to, to_step, count, r, c);
    case 4:
      return transpose_many_of<uint32_t>(from, from_step, to, to_step, count, r, c);
    case 8:
      return transpose_many_of<uint64_t>(from, from_step, to, to_step, count, r, c);
    default:
      for (int64_t i = 0; i < count; ++i)
        transpose_scalar<Pair64>(from + i * from_step, columns * size, to + i * to_step, rows * size, 0, r, 0, c);
  }
}

template <class T>
HWY_ATTR void gather_of(const char* from, int64_t stride, int64_t n, char* to) {
  gather_run(from, stride, n, reinterpret_cast<T*>(to));
}

GatherFunction gather_any(int64_t size) {
  switch (size) {
    case 1:
      return gather_of<uint8_t>;
    case 2:
      return gather_of<uint16_t>;
    case 4:
      return gather_of<uint32_t>;
    case 8:
      return gather_of<uint64_t>;
    default:
      return gather_of<Pair64>;
  }
}

// How many bytes ahead a source in memory is prefetched.
constexpr size_t kAhead = 1024;

HWY_ATTR void stream_any(char* to, const char* from, size_t bytes, Source source) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = (lanes - reinterpret_cast<uintptr_t>(to) % lanes) % lanes;
  if (i > bytes) i = bytes;
  std::memcpy(to, from, i);
  for (; i + lanes <= bytes; i += lanes) {
    if (source == Source::Far) __builtin_prefetch(from + i + kAhead);
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d, reinterpret_cast<uint8_t*>(to + i));
  }
  std::memcpy(to + i, from + i, bytes - i);
}

// The C library's memcpy is the best within the caches. For 64 MB, copied 64 KB at a time, it takes 15.0 ms on a
// Cascade Lake (`rep movsb`); vectors of 32 bytes take 12.6 ms, and 11.8 ms with prefetches.
HWY_ATTR void copy_far(char* to, const char* from, size_t bytes) {
  size_t i = 0;
  if constexpr (HWY_ARCH_X86) {
    const hn::CappedTag<uint8_t, 32> d;
    constexpr size_t kLine = 64;
    const size_t lanes = hn::Lanes(d), head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    if (bytes >= 16 * kLine) {
      std::memcpy(to, from, i = head);
      for (; i + kLine <= bytes; i += kLine) {
        __builtin_prefetch(from + i + kAhead);
        __builtin_prefetch(to + i + kAhead, 1);
        for (size_t k = 0; k < kLine; k += lanes)
          hn::Store(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i + k)), d,
                    reinterpret_cast<uint8_t*>(to + i + k));
      }
    }
  }
  std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(transpose_any);
HWY_EXPORT(transpose_many_any);
HWY_EXPORT(gather_any);
HWY_EXPORT(stream_any);
HWY_EXPORT(copy_far);

void transpose(int64_t size, const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_any)(size, from, from_stride, to, to_stride, rows, columns);
}

void transpose_many(int64_t size, const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count,
                    int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_many_any)(size, from, from_step, to, to_step, count, rows, columns);
}

void gather_elements(int64_t size, const char* from, int64_t stride, int64_t n, char* to) {
  gather_function(size)(from, stride, n, to);
}

GatherFunction gather_function(int64_t size) { return HWY_DYNAMIC_DISPATCH(gather_any)(size); }

void copy_bytes(char* to, const char* from, size_t bytes, Source source) {
  if (source == Source::Cached) {
    std::memcpy(to, from, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(copy_far)(to, from, bytes);
  }
}
void stream_bytes(char* to, const char* from, size_t bytes, Source source) {
  HWY_DYNAMIC_DISPATCH(stream_any)(to, from, bytes, source);
}
void stream_fence() { hwy::FlushStream(); }

}  // namespace mica::cpu
#endif
