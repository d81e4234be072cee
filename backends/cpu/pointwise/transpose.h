// Moving elements between layouts that are contiguous along different dimensions, and past the caches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica::cpu {

// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns: elements of `size` bytes (1, 2, 4, 8 or
// 16), contiguous along c in `from` and along r in `to`; strides in bytes.
void transpose(int64_t size, const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t rows,
               int64_t columns);

// The same for `count` matrices without gaps, `from_step` and `to_step` bytes apart.
void transpose_many(int64_t size, const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count,
                    int64_t rows, int64_t columns);

// Copies n elements of `size` bytes, `stride` bytes apart, side by side to `to`. It may read the bytes between them.
void gather_elements(int64_t size, const char* from, int64_t stride, int64_t n, char* to);

// The same for elements of one size, to be looked up once for many runs.
using GatherFunction = void (*)(const char* from, int64_t stride, int64_t n, char* to);
GatherFunction gather_function(int64_t size);

// Whether a source is expected in the caches or in memory; its lines are prefetched in the second case.
enum class Source { Cached, Far };
// From this many bytes on a source is not expected in the caches.
inline constexpr int64_t kFarBytes = 4 << 20;
// Up to so many threads wait for single lines rather than for the memory's bandwidth.
inline constexpr int kFewThreads = 4;

// memcpy, with prefetches for a source that is far.
void copy_bytes(char* to, const char* from, size_t bytes, Source source);

// memcpy that leaves the caches to others; stream_fence() makes what it wrote visible to other threads.
void stream_bytes(char* to, const char* from, size_t bytes, Source source = Source::Cached);
void stream_fence();

}  // namespace mica::cpu
