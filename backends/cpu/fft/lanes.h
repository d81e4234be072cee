// A group of transforms of one length, one per lane.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/fft/plan.h"

namespace mica::cpu::fft {

enum class Kind { Complex, FromReal, ToReal };

// A length cut into rows * columns, for lanes of whole sequences. The transforms of columns and of rows stay in the
// nearest cache where the whole would not.
template <class T>
struct Nested {
  int64_t rows = 0, columns = 0;
  std::shared_ptr<const Plan<T>> down, along;  // plans of `rows` and of `columns` elements
  std::vector<T> roots;                        // root (row * column), pairs, row by row within a column
};
// The cut of a length, from the cache; nothing where the whole stays in the nearest cache.
template <class T>
std::shared_ptr<const Nested<T>> nested_of(int64_t length);

// An odd real length cut into radix * columns. Of the elements of the columns' transforms the second half repeats the
// first, conjugated, so that half of the rows remain to be transformed.
constexpr int kLargestOddRadix = kLargestRadix;
template <class T>
struct OddReal {
  int radix = 0;
  int64_t columns = 0;
  std::shared_ptr<const Plan<T>> along;         // the plan of `columns` elements
  std::shared_ptr<const std::vector<T>> roots;  // cut_roots(radix, columns)
  std::vector<T> turns;                         // cos, sin of 2 pi k / radix for k < radix
  std::vector<T> rows;                          // factors_of_sums(radix)
};
// The cut of an odd length, from the cache; nothing where it has no prime factor that passes take.
template <class T>
std::shared_ptr<const OddReal<T>> odd_real_of(int64_t length);

// Transforms `first` to `last` of a batch. Offsets and strides count numbers, two to a complex element. Backward
// transforms are forward ones with real and imaginary parts exchanged, going in and coming out.
template <class T>
struct Batch {
  Kind kind = Kind::Complex;
  int64_t length = 0;  // the length of the real or complex sequence
  const T* in = nullptr;
  T* out = nullptr;
  int64_t in_stride = 0, out_stride = 0;
  const int64_t* in_offsets = nullptr;
  const int64_t* out_offsets = nullptr;
  bool backward = false;
  bool whole = false;  // from reals: writes the whole spectrum, not only its first half
  T scale = 1;
  // Element k of transform t is multiplied by table[2 k columns + t] + i table[(2 k + 1) columns + t] before it is
  // written.
  const T* table = nullptr;
  int64_t table_columns = 0;
  const Nested<T>* nested = nullptr;  // for complex transforms whose sequences lie side by side
  const OddReal<T>* odd = nullptr;    // for real transforms of odd length

  // Even real lengths are transforms of half as many complex numbers.
  bool halved() const { return kind != Kind::Complex && length % 2 == 0; }
  int64_t plan_length() const { return halved() ? length / 2 : length; }
};

// `plan` is that of batch.plan_length(); `half_roots` the roots of batch.length where it is halved: pairs, up to half.
#define MICA_FFT_LANES(T) \
  void run_lanes(const Plan<T>& plan, const T* half_roots, const Batch<T>& batch, int64_t first, int64_t last);
MICA_FFT_LANES(float)
MICA_FFT_LANES(double)
#undef MICA_FFT_LANES

int64_t lane_count(bool is_double);

}  // namespace mica::cpu::fft
