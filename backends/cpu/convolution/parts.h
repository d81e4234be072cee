// Cutting work into parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica::cpu::convolution {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
// The least equal part when `total` is cut in parts of at most `limit`.
inline int64_t equal_part(int64_t total, int64_t limit) { return divide_up(total, divide_up(total, limit)); }

inline size_t bytes_of_floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

}  // namespace mica::cpu::convolution
