#include "backends/cpu/fft/dense_plan.h"

#include <type_traits>

#include "backends/cpu/fft/lanes.h"
#include "backends/cpu/fft/plan_cache.h"
#include "backends/cpu/fft/short_lengths.h"

namespace mica::cpu::fft {

namespace {

constexpr int64_t kNearestCache = 52000;  // bytes of lanes; they may lie a little beyond the cache
// With fewer lanes, sequences side by side stay in the cache long enough, and the exchange of rows and columns costs
// more than it gains.
constexpr int64_t kFewLanes = 8;

// The cost of a length's passes for each element, in vector operations, with loads and stores.
double pass_cost(int64_t length) {
  double cost = 0;
  for (const int radix : factors_of(length)) {
    switch (radix) {
      case 2:
        cost += 7;
        break;
      case 3:
        cost += 10;
        break;
      case 4:
        cost += 9;
        break;
      case 5:
        cost += 13;
        break;
      case 8:
        cost += 13;
        break;
      default:
        cost += 8 + 1.5 * radix;
    }
  }
  return cost;
}

// The same for a whole transform of lanes.
double transform_cost(int64_t length) {
  if (has_short(length)) return short_cost(static_cast<int>(length)) + 2.0 * static_cast<double>(length);
  return 1.5 * pass_cost(length) * static_cast<double>(length);  // with the cost of loops and addresses
}

// The cost of a cut, for one transform: roots, and the parts of pairs, are 8 and 4 operations for a vector; squares of
// both parts are turned by 8 to 10 for each of a vector's lanes.
double cut_cost(int64_t rows, int64_t columns, int64_t lanes) {
  const double across = static_cast<double>(group_count(lanes, columns)),
               below = static_cast<double>(group_count(lanes, rows));
  const double copy = columns < lanes ? static_cast<double>(4 * rows * columns / lanes) : 0;
  return across * (transform_cost(rows) + 8 * static_cast<double>(rows)) +
         below * (transform_cost(columns) + 4 * static_cast<double>(columns)) +
         across * below * static_cast<double>(lanes) * 10 + copy;
}

struct Cut {
  int64_t rows = 0, columns = 0;
  double cost = 0;
};

Cut best_cut(int64_t length, int64_t lanes) {
  Cut best;
  for (int64_t rows = 2; rows <= length / 2; ++rows) {
    if (length % rows) continue;
    const double cost = cut_cost(rows, length / rows, lanes);
    if (best.rows == 0 || cost < best.cost) best = {rows, length / rows, cost};
  }
  return best;
}

template <class T>
int64_t lanes_of() {
  return lane_count(std::is_same_v<T, double>);
}

template <class T>
TwoStep<T> make_steps(int64_t length, Cut cut) {
  const int64_t lanes = lanes_of<T>();
  TwoStep<T> steps;
  steps.length = length;
  steps.rows = cut.rows;
  steps.columns = cut.columns;
  steps.down = plan_of<T>(cut.rows);
  steps.along = plan_of<T>(cut.columns);
  for (int64_t group = 0; group < group_count(lanes, cut.columns); ++group) {
    const int64_t start = group_start(group, lanes, cut.columns);
    for (int64_t row = 0; row < cut.rows; ++row)
      for (int part = 0; part < 2; ++part)
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const Root w = root_of_unity(row * (start + lane), length);
          steps.roots.push_back(static_cast<T>(part ? w.im : w.re));
        }
  }
  return steps;
}

// The length of the convolution: one with few factors. The cheapest is taken, not the shortest.
template <class T>
int64_t padded_length(int64_t length) {
  int64_t best = 0;
  double least = 0;
  for (const int64_t odd : {1, 3, 5, 9, 15}) {
    int64_t candidate = 16 * odd;
    while (candidate < 2 * length - 1) candidate *= 2;
    const double cost = best_cut(candidate, lanes_of<T>()).cost;
    if (best == 0 || cost < least) best = candidate, least = cost;
  }
  return best;
}

// Whether lanes of whole sequences, two buffers of them, would leave the nearest cache.
template <class T>
bool outgrows_cache(int64_t length) {
  return 4 * length * lanes_of<T>() * static_cast<int64_t>(sizeof(T)) > kNearestCache;
}

template <class T>
bool suits_dense(int64_t length) {
  return lanes_of<T>() >= kFewLanes && (outgrows_cache<T>(length) || !is_smooth(length));
}

// Made when the library is loaded, and never destroyed: a thread may still use them when the process ends.
template <class T>
Cache<int64_t, DensePlan<T>>& dense_plans = *new Cache<int64_t, DensePlan<T>>;
template <class T>
Cache<int64_t, Nested<T>>& nested_plans = *new Cache<int64_t, Nested<T>>;
template <class T>
Cache<int64_t, OddReal<T>>& odd_real_plans = *new Cache<int64_t, OddReal<T>>;

}  // namespace

template <class T>
std::shared_ptr<const DensePlan<T>> dense_plan_of(int64_t length) {
  if (!suits_dense<T>(length)) return nullptr;
  return dense_plans<T>.get(length, [&](int64_t& size) {
    auto plan = std::make_shared<DensePlan<T>>();
    plan->length = length;
    if (!is_smooth(length)) plan->factor = convolution_for<T>(length, has_rader(length) ? 0 : padded_length<T>(length));
    const int64_t cut_length = plan->factor.length ? plan->factor.length : length;
    plan->steps = make_steps<T>(cut_length, best_cut(cut_length, lanes_of<T>()));
    size = static_cast<int64_t>(plan->steps.roots.size() * sizeof(T)) / 8 + plan->factor.size();
    return std::shared_ptr<const DensePlan<T>>(plan);
  });
}

template <class T>
std::shared_ptr<const Nested<T>> nested_of(int64_t length) {
  if (lanes_of<T>() < kFewLanes || !outgrows_cache<T>(length) || !is_smooth(length)) return nullptr;
  return nested_plans<T>.get(length, [&](int64_t& size) {
    auto nested = std::make_shared<Nested<T>>();
    int64_t rows = 1;
    for (int64_t d = 2; d * d <= length; ++d)
      if (length % d == 0) rows = d;
    nested->rows = rows;
    nested->columns = length / rows;
    nested->down = plan_of<T>(rows);
    nested->along = plan_of<T>(length / rows);
    for (int64_t column = 0; column < length / rows; ++column)
      for (int64_t row = 0; row < rows; ++row) {
        const Root w = root_of_unity(row * column, length);
        nested->roots.push_back(static_cast<T>(w.re));
        nested->roots.push_back(static_cast<T>(w.im));
      }
    size = 2 * length * static_cast<int64_t>(sizeof(T)) / 8;
    return std::shared_ptr<const Nested<T>>(nested);
  });
}

template <class T>
std::shared_ptr<const OddReal<T>> odd_real_of(int64_t length) {
  // The larger the radix, the nearer to half the rows that remain. Beside a large prime factor, which makes every row a
  // convolution, it is as much of the rest as one transform takes.
  int radix = 0;
  if (is_smooth(length)) {
    for (const int factor : factors_of(length)) radix = std::max(radix, factor);
    if (radix == 3 && length % 9 == 0) radix = 9;
  } else {
    constexpr int kLargestDivisor = 31;
    for (int divisor = 3; divisor <= kLargestDivisor; divisor += 2)
      if (length % divisor == 0) radix = divisor;
  }
  if (radix == 0) return nullptr;
  return odd_real_plans<T>.get(length, [&](int64_t& size) {
    auto cut = std::make_shared<OddReal<T>>();
    cut->radix = radix;
    cut->columns = length / radix;
    cut->along = plan_of<T>(cut->columns);
    cut->roots = cut_roots<T>(radix, cut->columns);
    for (int k = 0; k < radix; ++k) {
      const Root w = root_of_unity(k, radix);
      cut->turns.push_back(static_cast<T>(w.re));
      cut->turns.push_back(static_cast<T>(-w.im));
    }
    cut->rows = factors_of_sums<T>(radix);
    size = 2 * length * static_cast<int64_t>(sizeof(T)) / 8;
    return std::shared_ptr<const OddReal<T>>(cut);
  });
}

template std::shared_ptr<const OddReal<float>> odd_real_of(int64_t);
template std::shared_ptr<const OddReal<double>> odd_real_of(int64_t);
template std::shared_ptr<const Nested<float>> nested_of(int64_t);
template std::shared_ptr<const Nested<double>> nested_of(int64_t);
template std::shared_ptr<const DensePlan<float>> dense_plan_of(int64_t);
template std::shared_ptr<const DensePlan<double>> dense_plan_of(int64_t);

}  // namespace mica::cpu::fft
