// How samples move with a parameter of their distribution while their quantile stays: -(dF/da) / f, where F is the
// distribution function and f the density. F is a prefactor times a series or a continued fraction in its parameter;
// both are evaluated together with their derivative.
#include <cmath>
#include <limits>

#include "backends/cpu/register.h"
#include "backends/functors/special_math.h"
#include "mica/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {
namespace {

constexpr double kTiny = 1e-290;
constexpr double kConverged = 1e-15;
constexpr int kMostSteps = 100000;

// A number and its derivative by the parameter.
struct Dual {
  double value = 0, slope = 0;
};
Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
Dual reciprocal(Dual a) { return {1 / a.value, -a.slope / (a.value * a.value)}; }
Dual operator/(Dual a, Dual b) { return a * reciprocal(b); }
Dual away_from_zero(Dual a) { return std::fabs(a.value) < kTiny ? Dual{kTiny, a.slope} : a; }

// b0 + a1 / (b1 + a2 / (b2 + ...)) by Lentz's method, from b0 = 1; term(i) gives a_i and b_i.
template <class Term>
Dual continued_fraction(Dual first, const Term& term) {
  Dual result = away_from_zero(first), numerator = result, denominator = {0, 0};
  for (int i = 1; i < kMostSteps; ++i) {
    const auto [a, b] = term(i);
    denominator = reciprocal(away_from_zero(b + a * denominator));
    numerator = away_from_zero(b + a / numerator);
    const Dual step = numerator * denominator;
    result = result * step;
    if (std::fabs(step.value - 1) < kConverged && std::fabs(step.slope) < kConverged * (1 + std::fabs(result.slope))) {
      break;
    }
  }
  return result;
}

struct Pair {
  Dual a, b;
};

// ---- gamma ------------------------------------------------------------------------------------------------------

// 1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ...
Dual gamma_series(double a, double x) {
  Dual sum = {1, 0}, term = {1, 0};
  for (int n = 1; n < kMostSteps; ++n) {
    term = term * (Dual{x, 0} / Dual{a + n, 1});
    sum = sum + term;
    if (std::fabs(term.value) < kConverged * sum.value && std::fabs(term.slope) <= kConverged * std::fabs(sum.slope)) {
      break;
    }
  }
  return sum;
}

// For many degrees the sample is a + z sqrt(a) + (z^2 - 1) / 3 + ... of a normal z (Cornish and Fisher): z is found
// from the sample, and the sum differentiated.
double gamma_slope_by_quantile(double a, double x) {
  const double root = std::sqrt(a);
  double z = (x - a) / root;
  for (int i = 0; i < 20; ++i) {
    const double z2 = z * z;
    const double rest = (z2 - 1) / 3 + (z2 * z - 7 * z) / (36 * root) - (3 * z2 * z2 + 7 * z2 - 16) / (810 * a);
    const double next = (x - a - rest) / root;
    if (std::fabs(next - z) < 1e-14 * (1 + std::fabs(z))) break;
    z = next;
  }
  const double z2 = z * z;
  return 1 + z / (2 * root) - (z2 * z - 7 * z) / (72 * a * root) + (3 * z2 * z2 + 7 * z2 - 16) / (810 * a * a);
}

double gamma_slope(double a, double x) {
  if (!(a > 0) || std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  if (x <= 0) return 0;
  if (a > 2e4 && std::fabs(x - a) < 10 * std::sqrt(a)) return gamma_slope_by_quantile(a, x);
  if (x < a + 1) {
    const Dual sum = gamma_series(a, x);
    return -(x / a) * ((std::log(x) - special::digamma(a + 1)) * sum.value + sum.slope);
  }
  // The upper tail: x^a e^-x / gamma(a) times 1 / (x + 1 - a - (1 - a) / (x + 3 - a - ...)).
  const Dual fraction = reciprocal(continued_fraction({x + 1 - a, -1}, [&](int i) {
    return Pair{{-i * (i - a), static_cast<double>(i)}, {x + 2 * i + 1 - a, -1}};
  }));
  return x * ((std::log(x) - special::digamma(a)) * fraction.value + fraction.slope);
}

// ---- beta -------------------------------------------------------------------------------------------------------

// The fraction of the incomplete beta function, by one of its parameters: a.slope + b.slope is 1.
Dual beta_fraction(Dual a, Dual b, double x) {
  const Dual total = a + b;
  const auto constant = [](double value) { return Dual{value, 0}; };
  const Dual fraction = continued_fraction({1, 0}, [&](int i) {
    const int m = i / 2;
    const Dual am = a + constant(m), even = a + constant(2.0 * m);
    const Dual factor = i % 2 == 1 ? constant(-x) * am * (total + constant(m)) / (even * (even + constant(1)))
                                   : constant(m * x) * (b + constant(-m)) / ((even + constant(-1)) * even);
    return Pair{factor, {1, 0}};
  });
  return reciprocal(fraction);
}

// -(dI/da) / density / (1 - x) of the incomplete beta function I_x(a, b).
double beta_slope(double x, double a, double b) {
  if (!(a > 0) || !(b > 0) || std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  if (x <= 0) return 0;
  const double by_a = std::log(x) - special::digamma(a) + special::digamma(a + b);
  if (x < (a + 1) / (a + b + 2)) {
    const Dual fraction = beta_fraction({a, 1}, {b, 0}, x);
    return -(x / a) * ((by_a - 1 / a) * fraction.value + fraction.slope);
  }
  const Dual fraction = beta_fraction({b, 0}, {a, 1}, 1 - x);
  return (x / b) * (by_a * fraction.value + fraction.slope);
}

template <class Body>
void for_each(const char* op, const TensorView& out, const Body& body) {
  const auto run = [&]<class T>(T) {
    parallel_for(0, out.numel, 256, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out.ptr<T>()[i] = static_cast<T>(body(T(), i));
    });
  };
  if (out.dtype == DType::Float32) return run(float());
  if (out.dtype == DType::Float64) return run(double());
  unsupported_dtype(op, out.dtype);
}

void standard_gamma_grad(const TensorView& out, const TensorView& alpha, const TensorView& sample) {
  for_each("_standard_gamma_grad_cpu", out,
           [&]<class T>(T, int64_t i) { return gamma_slope(alpha.ptr<T>()[i], sample.ptr<T>()[i]); });
}

void dirichlet_grad(const TensorView& out, const TensorView& share, const TensorView& alpha, const TensorView& total) {
  for_each("_dirichlet_grad_cpu", out, [&]<class T>(T, int64_t i) {
    const double a = alpha.ptr<T>()[i];
    return beta_slope(share.ptr<T>()[i], a, total.ptr<T>()[i] - a);
  });
}

MICA_REGISTER_CPU(standard_gamma_grad, standard_gamma_grad);
MICA_REGISTER_CPU(dirichlet_grad, dirichlet_grad);

}  // namespace
}  // namespace mica::cpu
