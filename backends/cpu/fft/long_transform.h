// One transform that is so long, or so alone, that it is cut into many short ones.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/fft/lanes.h"

namespace mica::cpu::fft {

// Whether `count` transforms of a length should be done one after the other, each of them cut.
bool prefers_cut(int64_t length, int64_t count, bool is_double);

// The transform that begins at batch.in and goes to batch.out; offsets are not read.
template <class T>
void run_long(const Batch<T>& batch);

// exp(-2 pi i k / n) for k up to n / 2, pairs, from a cache.
template <class T>
std::shared_ptr<const std::vector<T>> half_roots(int64_t n);

}  // namespace mica::cpu::fft
