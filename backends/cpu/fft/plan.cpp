#include "backends/cpu/fft/plan.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "backends/cpu/fft/plan_cache.h"

namespace mica::cpu::fft {

std::vector<int> factors_of(int64_t n) {
  std::vector<int> factors;
  int twos = 0;
  while (n % 2 == 0) n /= 2, ++twos;
  // Takes radix 8 as often as possible, and 4 where a single 2 would remain.
  while (twos >= 3 && twos != 4) factors.push_back(8), twos -= 3;
  while (twos >= 2) factors.push_back(4), twos -= 2;
  if (twos) factors.push_back(2);
  for (int p = 3; p <= kLargestRadix; p += 2)
    while (n % p == 0) factors.push_back(p), n /= p;
  if (n > 1) factors.push_back(-1);
  return factors;
}

namespace {

template <class T>
void add_passes(Plan<T>& plan, const std::vector<int>& factors) {
  int64_t before = 1;
  for (const int radix : factors) {
    const int64_t after = plan.length / (before * radix);
    plan.passes.push_back({radix, before, after, static_cast<int64_t>(plan.roots.size())});
    for (int64_t i = 0; i < after; ++i)
      for (int64_t j = 1; j < radix; ++j) {
        const Root w = root_of_unity(j * before * i, plan.length);
        plan.roots.push_back(static_cast<T>(w.re));
        plan.roots.push_back(static_cast<T>(w.im));
      }
    if (radix > 5 && radix != 8) {
      bool known = false;
      for (const auto& [p, at] : plan.primes) known |= p == radix;
      if (!known) {
        plan.primes.emplace_back(radix, static_cast<int64_t>(plan.prime_roots.size()));
        for (int k = 0; k < radix; ++k) {
          const Root w = root_of_unity(k, radix);
          plan.prime_roots.push_back(static_cast<T>(w.re));
          plan.prime_roots.push_back(static_cast<T>(-w.im));
        }
        plan.prime_rows.emplace_back(radix, factors_of_sums<T>(radix));
      }
    }
    before *= radix;
  }
}

template <class T>
std::shared_ptr<const Plan<T>> make_plan(int64_t length, int64_t& size) {
  auto plan = std::make_shared<Plan<T>>();
  plan->length = length;
  const std::vector<int> factors = factors_of(length);
  if (factors.empty() || factors.back() > 0) {
    add_passes(*plan, factors);
    size_t numbers = plan->roots.size();
    for (const auto& [radix, rows] : plan->prime_rows) numbers += rows.size();
    size = static_cast<int64_t>(numbers * sizeof(T)) / 8;
    return plan;
  }
  plan->factor = convolution_for<T>(length, has_rader(length) ? 0 : good_length(2 * length - 1));
  plan->convolution = plan_of<T>(plan->factor.length);
  size = plan->factor.size();
  return plan;
}

}  // namespace

Root root_of_unity(int64_t k, int64_t n) {
  k %= n;
  // exp(-2 pi i k / n), from an angle of at most pi / 4.
  const bool lower = 2 * k > n;  // conjugate of the upper half
  if (lower) k = n - k;
  const bool left = 4 * k > n;  // mirrored at the imaginary axis
  if (left) k = n - 2 * k;      // twice the distance to that axis; the code below counts in halves
  const double angle = left ? std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)
                            : 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  // Beyond pi / 4, the other function of the complement is the more exact one.
  double cosine, sine;
  const int64_t eighths = left ? 4 * k : 8 * k;
  if (eighths > n) {
    const double rest = left ? std::numbers::pi * static_cast<double>(n - 2 * k) / static_cast<double>(2 * n)
                             : std::numbers::pi * static_cast<double>(n - 4 * k) / static_cast<double>(2 * n);
    cosine = std::sin(rest);
    sine = std::cos(rest);
  } else {
    cosine = std::cos(angle);
    sine = std::sin(angle);
  }
  if (left) cosine = -cosine;
  return {cosine, lower ? sine : -sine};
}

template <class T>
std::vector<T> factors_of_sums(int radix) {
  const int half = radix / 2, padded = padded_half(radix);
  std::vector<T> rows(static_cast<size_t>(2 * half * padded));
  for (int k = 1; k <= half; ++k)
    for (int m = 1; m <= half; ++m) {
      const Root w = root_of_unity(int64_t{k} * m, radix);
      T* const row = rows.data() + 2 * (k - 1) * padded;
      row[m - 1] = static_cast<T>(w.re);
      row[padded + m - 1] = static_cast<T>(-w.im);
    }
  return rows;
}

template std::vector<float> factors_of_sums(int);
template std::vector<double> factors_of_sums(int);

bool is_smooth(int64_t length) {
  const std::vector<int> factors = factors_of(length);
  return factors.empty() || factors.back() > 0;
}

int64_t good_length(int64_t least) {
  int64_t best = 1;
  while (best < least) best *= 2;
  for (int64_t fives = 1; fives < best; fives *= 5)
    for (int64_t threes = fives; threes < best; threes *= 3) {
      int64_t n = threes;
      while (n < least) n *= 2;
      best = std::min(best, n);
    }
  return best;
}

// Made when the library is loaded, and never destroyed: a thread may still use them when the process ends.
template <class T>
static Cache<int64_t, Plan<T>>& plans = *new Cache<int64_t, Plan<T>>;
template <class T>
static Cache<std::pair<int64_t, int64_t>, std::vector<T>>& cut_root_tables =
    *new Cache<std::pair<int64_t, int64_t>, std::vector<T>>;

template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t length) {
  return plans<T>.get(length, [&](int64_t& size) { return make_plan<T>(length, size); });
}

template <class T>
std::shared_ptr<const std::vector<T>> cut_roots(int64_t rows, int64_t columns) {
  return cut_root_tables<T>.get({rows, columns}, [&](int64_t& size) {
    auto table = std::make_shared<std::vector<T>>(static_cast<size_t>(2 * rows * columns));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const Root w = root_of_unity(r * c, rows * columns);
        (*table)[static_cast<size_t>(2 * r * columns + c)] = static_cast<T>(w.re);
        (*table)[static_cast<size_t>((2 * r + 1) * columns + c)] = static_cast<T>(w.im);
      }
    size = 2 * rows * columns * static_cast<int64_t>(sizeof(T)) / 8;
    return std::shared_ptr<const std::vector<T>>(table);
  });
}

template std::shared_ptr<const Plan<float>> plan_of(int64_t);
template std::shared_ptr<const Plan<double>> plan_of(int64_t);
template std::shared_ptr<const std::vector<float>> cut_roots(int64_t, int64_t);
template std::shared_ptr<const std::vector<double>> cut_roots(int64_t, int64_t);

}  // namespace mica::cpu::fft
