// The plan of a transform whose elements lie side by side in memory, one sequence at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "backends/cpu/fft/plan.h"

namespace mica::cpu::fft {

// Memory that begins at a cache line.
template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* at, size_t) { ::operator delete(at, kLine); }
  bool operator==(const LineAllocator&) const = default;
  static constexpr std::align_val_t kLine{64};
};

// A length cut into rows * columns: transforms of the columns, a lane for each; products with roots of unity;
// transforms of the rows, a lane for each. All of it stays in the cache nearest to the core.
template <class T>
struct TwoStep {
  int64_t length = 0, rows = 0, columns = 0;
  std::shared_ptr<const Plan<T>> down, along;  // plans of `rows` and of `columns` elements
  // For each group of columns and each row: the real parts for the group's lanes, then the imaginary parts.
  std::vector<T, LineAllocator<T>> roots;
};

// Where groups of `lanes` begin that together cover `count`: the last one overlaps the one before it.
inline int64_t group_start(int64_t group, int64_t lanes, int64_t count) {
  const int64_t last = count > lanes ? count - lanes : 0;
  return group * lanes < last ? group * lanes : last;
}
inline int64_t group_count(int64_t lanes, int64_t count) { return (count + lanes - 1) / lanes; }

template <class T>
struct DensePlan {
  int64_t length = 0;
  Convolution<T> factor;  // length 0 where the length has passes itself
  TwoStep<T> steps;       // for the length, or for the convolution's length
};

// The plan of a length, from the cache. Nothing where it is better to transform several sequences side by side, one in
// each lane.
template <class T>
std::shared_ptr<const DensePlan<T>> dense_plan_of(int64_t length);

}  // namespace mica::cpu::fft
