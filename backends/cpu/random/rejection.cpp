// Distributions that draw until a sample is accepted, one element after the other, with as many words as that takes. No
// product is fused with a sum here, as in torch's build of these (our build does not fuse unless asked).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "backends/cpu/random/checks.h"
#include "backends/cpu/random/normal_pairs.h"
#include "backends/cpu/random/random.h"

namespace mica::cpu {
namespace {

double draw_uniform(CpuGenerator& source) { return unit_uniform(source.engine.draw64()); }

// The least integer, which x86 gives for a double that int64 cannot hold.
int64_t to_int64(double value) {
  return value >= -0x1p63 && value < 0x1p63 ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
}

// ---- Poisson --------------------------------------------------------------------------------------------------

// Products of uniform numbers, until they fall below e^-rate.
int64_t poisson_by_products(double rate, CpuGenerator& source) {
  const double bound = std::exp(-rate);
  int64_t k = 0;
  for (double product = draw_uniform(source); product > bound; product *= draw_uniform(source)) ++k;
  return k;
}

// Transformed rejection with squeeze: W. Hoermann, "The transformed rejection method for generating Poisson random
// variables" (1993), PTRS.
int64_t poisson_by_rejection(double rate, CpuGenerator& source) {
  const double root = std::sqrt(rate);
  const double log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * root;
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = draw_uniform(source) - 0.5;
    const double v = draw_uniform(source);
    const double us = 0.5 - std::fabs(u);
    const int64_t k = to_int64(std::floor((2 * a / us + b) * u + rate + 0.43));
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    const double kd = static_cast<double>(k);
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        -rate + kd * log_rate - std::lgamma(kd + 1)) {
      return k;
    }
  }
}

int64_t poisson(double rate, CpuGenerator& source) {
  if (rate >= 10) return poisson_by_rejection(rate, source);
  return rate == 0 ? 0 : poisson_by_products(rate, source);
}

// ---- binomial -------------------------------------------------------------------------------------------------

// The gaps between successes are geometric: as many as fit in `count` trials.
template <class T>
T binomial_by_gaps(T count, T prob, CpuGenerator& source) {
  const double log_failure = std::log1p(-prob);
  double trials = 0;
  T successes = 0;
  while (true) {
    trials += std::ceil(std::log(draw_uniform(source)) / log_failure);
    if (trials > count) return successes;
    successes += 1;
  }
}

// ln k! less Stirling's formula.
double stirling_remainder(double k) {
  static constexpr std::array kFirst = {
      0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
      0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287};
  if (k < kFirst.size()) return kFirst[static_cast<size_t>(k)];
  const double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

// W. Hoermann, "The generation of binomial random variates" (1993), BTRS. Some steps are rounded to T, where torch has
// them in the parameters' dtype.
template <class T>
T binomial_by_rejection(T count, T prob, CpuGenerator& source) {
  const double deviation = std::sqrt(count * prob * (1 - prob));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * prob;
  const double c = count * prob + 0.5;
  const double v_r = 0.92 - 4.2 / b;
  const double odds = prob / (1 - prob);
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = std::floor((count + 1) * prob);
  while (true) {
    const double u = draw_uniform(source) - 0.5;
    double v = draw_uniform(source);
    const double us = 0.5 - std::abs(u);
    const T k = static_cast<T>(std::floor((2 * a / us + b) * u + c));
    if (k < 0 || k > count) continue;
    if (us >= 0.07 && v <= v_r) return k;
    v = std::log(v * alpha / (a / (us * us) + b));
    const double bound = (mode + 0.5) * std::log((mode + 1) / (odds * (count - mode + 1))) +
                         (count + 1) * std::log((count - mode + 1) / (count - k + 1)) +
                         (k + 0.5) * std::log(odds * (count - k + 1) / (k + 1)) + stirling_remainder(mode) +
                         stirling_remainder(count - mode) - stirling_remainder(k) - stirling_remainder(count - k);
    if (v <= bound) return k;
  }
}

template <class T>
T binomial(T count, T prob, CpuGenerator& source) {
  // Torch never returns for a NaN count.
  if (std::isnan(count)) return count;
  if (count <= 0 || prob <= 0) return 0;
  if (prob >= 1) return count;
  const auto sample = [&](T p) {
    return count * p >= 10 ? binomial_by_rejection(count, p, source) : binomial_by_gaps(count, p, source);
  };
  if (prob <= T(0.5)) return sample(prob);
  if (prob > T(0.5)) return count - sample(static_cast<T>(1.0 - prob));
  return std::numeric_limits<T>::quiet_NaN();
}

// ---- gamma ----------------------------------------------------------------------------------------------------

// G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables" (2000). The constants of torch's
// kernel are floats, and alpha stays in T.
template <class T>
T standard_gamma(T alpha, CpuGenerator& source) {
  // Torch never returns for a negative or NaN alpha.
  if (!(alpha >= 0)) return std::numeric_limits<T>::quiet_NaN();
  double scale = 1;
  if (alpha < 1) {
    if (alpha == 0) return 0;
    scale = std::pow(1 - draw_uniform(source), 1.0f / alpha);
    alpha += 1.0f;
  }
  const double d = alpha - 1.0f / 3.0f;
  const double c = 1.0f / std::sqrt(9.0f * d);
  while (true) {
    double x, y;
    do {
      x = draw_normal(source);
      y = 1.0f + c * x;
    } while (y <= 0);
    const double v = y * y * y;
    const double u = 1 - draw_uniform(source);
    const double xx = x * x;
    if (u < 1.0f - 0.0331f * xx * xx || std::log(u) < 0.5f * xx + d * (1.0f - v + std::log(v))) {
      return static_cast<T>(scale * d * v);
    }
  }
}

template <class F>
void dispatch_float_or_double(DType dtype, const char* kernel, const F& f) {
  if (dtype == DType::Float32) return f(float());
  if (dtype == DType::Float64) return f(double());
  not_implemented(kernel, dtype);
}

}  // namespace

void sample_poisson(void* out, const void* rate, DType dtype, int64_t numel, const Generator& generator) {
  dispatch_floating(dtype, "poisson_cpu", [&]<class T>(T) {
    const auto* rates = static_cast<const T*>(rate);
    for (int64_t i = 0; i < numel; ++i) {
      const auto value = static_cast<double>(rates[i]);
      MICA_CHECK(value >= 0, "invalid Poisson rate, expected rate to be non-negative: element ", i, " is ",
                 shown(value));
    }
    auto* samples = static_cast<T*>(out);
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    for (int64_t i = 0; i < numel; ++i) {
      const int64_t k = poisson(static_cast<double>(rates[i]), source);
      if constexpr (sizeof(T) == 2) {
        samples[i] = T(static_cast<float>(k));
      } else {
        samples[i] = static_cast<T>(k);
      }
    }
  });
}

void sample_binomial(void* out, const void* count, const void* prob, DType dtype, int64_t numel,
                     const Generator& generator) {
  MICA_CHECK_KIND(is_floating(dtype), Value,
                  "binomial only supports floating-point dtypes for count, got: ", info(dtype).legacy);
  dispatch_float_or_double(dtype, "binomial_cpu", [&]<class T>(T) {
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    for (int64_t i = 0; i < numel; ++i) {
      static_cast<T*>(out)[i] = binomial(static_cast<const T*>(count)[i], static_cast<const T*>(prob)[i], source);
    }
  });
}

void sample_standard_gamma(void* out, const void* alpha, DType dtype, int64_t numel, const Generator& generator) {
  dispatch_float_or_double(dtype, "gamma_cpu", [&]<class T>(T) {
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    for (int64_t i = 0; i < numel; ++i) {
      const T sample = standard_gamma(static_cast<const T*>(alpha)[i], source);
      static_cast<T*>(out)[i] = std::max(sample, std::numeric_limits<T>::min());  // NaN stays NaN
    }
  });
}

void sample_dirichlet(void* out, const void* alpha, DType dtype, int64_t rows, int64_t categories,
                      const Generator& generator) {
  dispatch_float_or_double(dtype, "dirichlet", [&]<class T>(T) {
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    std::vector<double> gammas(static_cast<size_t>(categories));
    for (int64_t row = 0; row < rows; ++row) {
      const auto* alphas = static_cast<const T*>(alpha) + row * categories;
      auto* samples = static_cast<T*>(out) + row * categories;
      double sum = 0;
      for (int64_t i = 0; i < categories; ++i) {
        gammas[i] = std::max(standard_gamma<double>(alphas[i], source), std::numeric_limits<double>::min());
        sum += gammas[i];
      }
      const T below_one = std::nextafter(T(1), T(0));
      for (int64_t i = 0; i < categories; ++i) {
        const T share = static_cast<T>(gammas[i] / sum);
        samples[i] = std::min(std::max(share, std::numeric_limits<T>::min()), below_one);
      }
    }
  });
}

}  // namespace mica::cpu
