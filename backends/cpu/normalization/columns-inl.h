// Channels that lie side by side: sums down the rows of (rows, channels), several channels in registers at a time.

#if defined(MICA_CPU_NORMALIZATION_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_NORMALIZATION_COLUMNS_INL_H_
#undef MICA_CPU_NORMALIZATION_COLUMNS_INL_H_
#else
#define MICA_CPU_NORMALIZATION_COLUMNS_INL_H_
#endif

#include <vector>

#include "backends/cpu/normalization/slabs-inl.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Rows [begin, end) of x in the type in which they are computed, `stride` apart: the rows themselves, or a converted
// copy.
template <class T>
class OpenRows {
 public:
  using C = Computed<T>;
  OpenRows(const T* x, int64_t begin, int64_t end, int64_t channels) {
    if constexpr (kIsNarrow<T>) {
      copy_.resize(static_cast<size_t>((end - begin) * channels));
      open_row(x + begin * channels, (end - begin) * channels, copy_.data());
      data = copy_.data();
    } else {
      data = x + begin * channels;
    }
  }
  const C* data;

 private:
  std::vector<C> copy_;
};

// Adds to first[c] and second[c] what `terms` collects over the rows: terms(at, c, n, a, b) adds the n elements at
// `at`, which are of the channels from c on, to the vectors a and b.
template <class Terms>
HWY_INLINE void sum_columns(int64_t rows, int64_t channels, double* first, double* second, const Terms& terms) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < channels; c += 2 * lanes) {
    DoubleVector a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
    const int64_t left = channels - c, rest0 = std::min(lanes, left), rest1 = std::min(lanes, left - rest0);
    if (rest1 == lanes) {
      for (int64_t r = 0; r < rows; ++r) {
        terms(r * channels + c, c, lanes, a0, b0);
        terms(r * channels + c + lanes, c + lanes, lanes, a1, b1);
      }
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        terms(r * channels + c, c, rest0, a0, b0);
        if (rest1 > 0) terms(r * channels + c + lanes, c + lanes, rest1, a1, b1);
      }
    }
    store_first(hn::Add(load_first(d, first + c, rest0), a0), d, first + c, rest0);
    store_first(hn::Add(load_first(d, second + c, rest0), b0), d, second + c, rest0);
    if (rest1 == 0) continue;
    store_first(hn::Add(load_first(d, first + c + lanes, rest1), a1), d, first + c + lanes, rest1);
    store_first(hn::Add(load_first(d, second + c + lanes, rest1), b1), d, second + c + lanes, rest1);
  }
}

// Parts of the rows that are summed separately, in parallel. Their number follows from the shape alone.
struct RowParts {
  RowParts(int64_t rows, int64_t channels) : rows(rows), count(std::clamp<int64_t>(rows * channels / 16384, 1, 32)) {}
  int64_t begin(int64_t part) const { return rows * part / count; }

  template <class Body>
  void run(const Body& body) const {
    parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) body(p, begin(p), begin(p + 1));
    });
  }
  int64_t rows, count;
};

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
