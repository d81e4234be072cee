// multinomial. One sample a row, or several without replacement, are the largest of weight / exponential: a race in
// which each category arrives at its own rate. Several with replacement are looked up in the cumulated weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu/random/checks.h"
#include "backends/cpu/random/draw.h"
#include "backends/cpu/random/random.h"

namespace mica::cpu {
namespace {

template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void check_weights(const T* weights, int64_t rows, int64_t categories) {
  for (int64_t i = 0; i < rows * categories; ++i) {
    const auto weight = static_cast<double>(weights[i]);
    MICA_CHECK(weight >= 0 && weight < std::numeric_limits<double>::infinity(),
               "probability tensor contains either `inf`, `nan` or element < 0: element ", i, " is ", shown(weight));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T* begin = weights + row * categories;
    const bool is_positive = std::any_of(begin, begin + categories, [](T w) { return static_cast<float>(w) > 0; });
    MICA_CHECK(is_positive, "invalid multinomial distribution (sum of probabilities <= 0): row ", row);
  }
}

// The first `samples` of the row's categories by falling score. Equal scores (categories of weight zero) come in the
// order in which torch's choice of algorithms leaves them.
template <class Score>
void largest(std::vector<std::pair<Score, int64_t>>& scores, int64_t samples, int64_t* out) {
  const auto before = [](const auto& x, const auto& y) {
    return (std::isnan(x.first) && !std::isnan(y.first)) || x.first > y.first;
  };
  const auto begin = scores.begin();
  const auto size = static_cast<int64_t>(scores.size());
  if (samples == 1) {
    // The first of the largest; NaN, which is 0 / 0, counts as larger than any number.
    auto best = begin;
    for (auto it = begin + 1; it != scores.end(); ++it) {
      if (before(*it, *best)) best = it;
    }
    out[0] = best->second;
    return;
  }
  if (samples * 64 <= size) {
    std::partial_sort(begin, begin + samples, scores.end(), before);
  } else {
    std::nth_element(begin, begin + samples - 1, scores.end(), before);
    std::sort(begin, begin + samples - 1, before);
  }
  for (int64_t i = 0; i < samples; ++i) out[i] = scores[i].second;
}

template <class T>
void race(int64_t* out, const T* weights, int64_t rows, int64_t categories, int64_t samples,
          const Generator& generator) {
  std::vector<T> arrivals(static_cast<size_t>(rows * categories));
  fill_exponential(arrivals.data(), dtype_v<T>, rows * categories, 1.0, generator);
  std::vector<std::pair<Real<T>, int64_t>> scores(static_cast<size_t>(categories));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < categories; ++i) {
      const int64_t at = row * categories + i;
      const T score = T(static_cast<Real<T>>(weights[at]) / static_cast<Real<T>>(arrivals[at]));
      scores[i] = {static_cast<Real<T>>(score), i};
    }
    largest(scores, samples, out + row * samples);
  }
}

template <class T>
void look_up(int64_t* out, const T* weights, int64_t rows, int64_t categories, int64_t samples,
             const Generator& generator) {
  CpuGenerator& source = cpu_generator(generator);
  std::lock_guard lock(source.mutex);
  std::vector<Real<T>> cumulated(static_cast<size_t>(categories));
  for (int64_t row = 0; row < rows; ++row) {
    Real<T> sum = 0;
    for (int64_t i = 0; i < categories; ++i) cumulated[i] = sum += static_cast<Real<T>>(weights[row * categories + i]);
    for (Real<T>& value : cumulated) value /= sum;
    cumulated.back() = 1;
    int64_t* picked = out + row * samples;
    draw_blocks<uint64_t>(source.engine, samples, [&](const uint64_t* words, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const double u = unit_uniform(words[i]);
        const auto slot = std::partition_point(cumulated.begin(), cumulated.end(),
                                               [u](Real<T> value) { return static_cast<double>(value) < u; });
        picked[first + i] = slot - cumulated.begin();
      }
    });
  }
}

}  // namespace

void sample_multinomial(int64_t* out, const void* weights, DType dtype, int64_t rows, int64_t categories,
                        int64_t samples, bool replacement, const Generator& generator) {
  MICA_CHECK(is_floating(dtype),
             "multinomial only supports floating-point dtypes for input, got: ", info(dtype).legacy);
  MICA_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  MICA_CHECK(replacement || samples <= categories,
             "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  MICA_CHECK(categories <= (1 << 24), "number of categories cannot exceed 2^24");
  if (rows == 0) return;
  MICA_CHECK(categories > 0, "multinomial: cannot sample from a distribution of no categories");
  dispatch_floating(dtype, "multinomial", [&]<class T>(T) {
    const auto* values = static_cast<const T*>(weights);
    check_weights(values, rows, categories);
    if (!replacement || samples == 1) {
      race(out, values, rows, categories, samples, generator);
    } else {
      look_up(out, values, rows, categories, samples, generator);
    }
  });
}

}  // namespace mica::cpu
