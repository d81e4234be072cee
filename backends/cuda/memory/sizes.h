// How requests are rounded. Small ones share segments of 2 MiB, larger ones segments of at least 20 MiB; from 10 MiB on
// a request has its own, in whole 2 MiB. Segments that can grow do so by pages of the same sizes.
#pragma once

#include <cstddef>

namespace mica::cuda {

inline constexpr size_t kUnit = 512;
inline constexpr size_t kSmall = size_t{1} << 20;
inline constexpr size_t kSmallSegment = size_t{2} << 20;
inline constexpr size_t kLarge = size_t{10} << 20;
inline constexpr size_t kLargeSegment = size_t{20} << 20;
inline constexpr size_t kSegmentUnit = size_t{2} << 20;
// Up to this size a released block is kept for a request of the same size.
inline constexpr size_t kQuickest = size_t{16} << 20;

inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace mica::cuda
