// Distributions with a closed form: a uniform or normal double per element, mapped and rounded to the dtype.
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <type_traits>

#include "backends/cpu/random/checks.h"
#include "backends/cpu/random/draw.h"
#include "backends/cpu/random/normal_pairs.h"
#include "backends/cpu/random/random.h"

namespace mica::cpu {
namespace {

constexpr int64_t kGrain = 1024;  // an element costs tens of nanoseconds: a logarithm or a tangent

// A double as an integer, as x86 converts it: through int32 for the narrow types, and to the least integer where it
// does not fit. Torch leaves this to the hardware, and a geometric sample can be infinite.
template <class T>
T converted(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0.0;
  } else if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
    constexpr double limit = sizeof(T) == 8 ? 0x1p63 : 0x1p31;
    const bool fits = value >= -limit && value < limit;
    return static_cast<T>(fits ? static_cast<Wide>(value) : std::numeric_limits<Wide>::min());
  } else if constexpr (sizeof(T) == 2) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T, class Map>
void map_uniforms(T* out, int64_t numel, const Generator& generator, const Map& map) {
  CpuGenerator& source = cpu_generator(generator);
  std::lock_guard lock(source.mutex);
  draw_blocks_parallel<uint64_t>(source.engine, numel, kGrain, [&](const uint64_t* words, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[first + i] = converted<T>(map(unit_uniform(words[i])));
  });
}

}  // namespace

void fill_exponential(void* data, DType dtype, int64_t numel, double lambda, const Generator& generator) {
  MICA_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", shown(lambda));
  if (numel == 0) return;
  MICA_CHECK(
      is_floating(dtype),
      "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
      "specified ",
      info(dtype).legacy);
  dispatch_floating(dtype, "exponential_cpu", [&]<class T>(T) {
    const double scale = -1.0 / lambda;
    map_uniforms(static_cast<T*>(data), numel, generator, [scale](double u) { return scale * std::log1p(-u); });
  });
}

void fill_cauchy(void* data, DType dtype, int64_t numel, double median, double sigma, const Generator& generator) {
  MICA_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", shown(sigma));
  MICA_CHECK(is_floating(dtype),
             "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
             "specified ",
             cpp_name(dtype));
  if (numel == 0) return;
  dispatch_floating(dtype, "cauchy_cpu", [&]<class T>(T) {
    map_uniforms(static_cast<T*>(data), numel, generator,
                 [=](double u) { return std::fma(sigma, std::tan(std::numbers::pi * (u - 0.5)), median); });
  });
}

void fill_log_normal(void* data, DType dtype, int64_t numel, double mean, double std, const Generator& generator) {
  MICA_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", shown(std));
  if (numel == 0) return;
  dispatch_floating(dtype, "log_normal_cpu", [&]<class T>(T) {
    auto* out = static_cast<T*>(data);
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    draw_normals(source, numel,
                 [=](int64_t i, double sample) { out[i] = converted<T>(std::exp(std::fma(sample, std, mean))); });
  });
}

void fill_geometric(void* data, DType dtype, int64_t numel, double p, const Generator& generator) {
  MICA_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", shown(p));
  if (numel == 0) return;
  dispatch_plain<false>(dtype, "geometric_cpu", [&]<class T>(T) {
    const double log_failure = std::log1p(-p);
    map_uniforms(static_cast<T*>(data), numel, generator,
                 [log_failure](double u) { return std::ceil(std::log(u) / log_failure); });
  });
}

// ---- bernoulli ------------------------------------------------------------------------------------------------

namespace {

// One or zero. A branch would be mispredicted for every unlikely outcome, so the bits of one are masked instead.
template <class T>
class Outcome {
 public:
  T operator()(bool is_success) const {
    return std::bit_cast<T>(static_cast<Bits>(one_ & (0 - static_cast<Bits>(is_success))));
  }

 private:
  using Bits = std::conditional_t<
      sizeof(T) == 1, uint8_t,
      std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
  const Bits one_ = std::bit_cast<Bits>(converted<T>(1.0));
};

}  // namespace

void fill_bernoulli(void* data, DType dtype, int64_t numel, double p, const Generator& generator) {
  MICA_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", shown(p));
  if (numel == 0) return;
  dispatch_plain<true>(dtype, "bernoulli_scalar_cpu_", [&]<class T>(T) {
    auto* out = static_cast<T*>(data);
    // u < p for u = k / 2^53 exactly when k < p 2^53, and so exactly when k < ceil(p 2^53).
    const auto threshold = static_cast<int64_t>(std::ceil(p * 0x1p53));
    const Outcome<T> outcome;
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    draw_blocks<uint64_t>(source.engine, numel, [&, outcome](const uint64_t* words, int64_t first, int64_t n) {
      constexpr uint64_t mask = (1ull << 53) - 1;
      for (int64_t i = 0; i < n; ++i) {
        out[first + i] = outcome(static_cast<int64_t>(words[i] & mask) < threshold);
      }
    });
  });
}

namespace {

// Double probabilities are compared with 53 random bits, all others with 24.
template <class T, class P>
void fill_bernoulli_with(T* out, const P* p, int64_t numel, CpuGenerator& source) {
  using Word = std::conditional_t<std::is_same_v<P, double>, uint64_t, uint32_t>;
  using Real = std::conditional_t<std::is_same_v<P, double>, double, float>;
  const Outcome<T> outcome;
  draw_blocks<Word>(source.engine, numel, [&, outcome](const Word* words, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const auto probability = static_cast<Real>(p[first + i]);
      out[first + i] = outcome(unit_uniform(words[i]) < probability);
    }
  });
}

}  // namespace

void fill_bernoulli(void* data, DType dtype, int64_t numel, const void* p, DType p_dtype, const Generator& generator) {
  if (numel == 0) return;
  dispatch_plain<true>(dtype, "bernoulli_tensor_cpu_self_", [&]<class T>(T) {
    dispatch_floating(p_dtype, "bernoulli_tensor_cpu_p_", [&]<class P>(P) {
      const auto* probabilities = static_cast<const P*>(p);
      for (int64_t i = 0; i < numel; ++i) {
        const auto probability = static_cast<double>(probabilities[i]);
        MICA_CHECK(
            probability >= 0.0 && probability <= 1.0,
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false. bernoulli takes probabilities in [0, 1], "
            "and element ",
            i, " is ", shown(probability));
      }
      CpuGenerator& source = cpu_generator(generator);
      std::lock_guard lock(source.mutex);
      fill_bernoulli_with(static_cast<T*>(data), probabilities, numel, source);
    });
  });
}

}  // namespace mica::cpu
