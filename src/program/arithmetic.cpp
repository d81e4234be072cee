#include "program/arithmetic.h"

#include <cmath>

#include "mica/error.h"

namespace mica::program {

namespace {

[[noreturn]] void too_large() { fail("a size of the program is beyond 64 bits"); }

int64_t floor_divided(int64_t a, int64_t b) {
  MICA_CHECK(b != 0, "integer division or modulo by zero");
  if (b == -1) {
    if (a == INT64_MIN) too_large();
    return -a;
  }
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a % b < 0) != (b < 0));
}

int64_t power(int64_t a, int64_t b) {
  int64_t result = 1;
  for (int64_t i = 0; i < b; ++i) {
    if (__builtin_mul_overflow(result, a, &result)) too_large();
    if (result == 0 || (result == 1 && a == 1)) break;
    if (a == -1) return b % 2 ? -1 : 1;
  }
  return result;
}

Scalar of_whole(Arithmetic what, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (what) {
    case Arithmetic::Add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Arithmetic::Sub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Arithmetic::Mul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Arithmetic::FloorDiv:
      return floor_divided(a, b);
    case Arithmetic::Mod:
      return b == -1 ? int64_t{0} : a - floor_divided(a, b) * b;
    case Arithmetic::TrueDiv:
      MICA_CHECK(b != 0, "division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case Arithmetic::Pow:
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      return power(a, b);
    case Arithmetic::And:
      return a & b;
    case Arithmetic::Or:
      return a | b;
    case Arithmetic::Max:
      return a > b ? a : b;
    case Arithmetic::Min:
      return a < b ? a : b;
    case Arithmetic::Eq:
      return a == b;
    case Arithmetic::Ne:
      return a != b;
    case Arithmetic::Lt:
      return a < b;
    case Arithmetic::Le:
      return a <= b;
    case Arithmetic::Gt:
      return a > b;
    case Arithmetic::Ge:
      return a >= b;
  }
  if (overflow) too_large();
  return result;
}

Scalar of_reals(Arithmetic what, double a, double b) {
  switch (what) {
    case Arithmetic::Add:
      return a + b;
    case Arithmetic::Sub:
      return a - b;
    case Arithmetic::Mul:
      return a * b;
    case Arithmetic::TrueDiv:
      MICA_CHECK(b != 0, "float division by zero");
      return a / b;
    case Arithmetic::FloorDiv:
      MICA_CHECK(b != 0, "float floor division by zero");
      return std::floor(a / b);
    case Arithmetic::Mod: {
      MICA_CHECK(b != 0, "float modulo by zero");
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case Arithmetic::Pow:
      return std::pow(a, b);
    case Arithmetic::Max:
      return a > b ? a : b;
    case Arithmetic::Min:
      return a < b ? a : b;
    case Arithmetic::Eq:
      return a == b;
    case Arithmetic::Ne:
      return a != b;
    case Arithmetic::Lt:
      return a < b;
    case Arithmetic::Le:
      return a <= b;
    case Arithmetic::Gt:
      return a > b;
    case Arithmetic::Ge:
      return a >= b;
    case Arithmetic::And:
    case Arithmetic::Or:
      break;
  }
  fail("a program combines fractions by bits");
}

}  // namespace

Scalar compute(Arithmetic what, const Scalar& a, const Scalar& b) {
  MICA_CHECK(!a.is_complex() && !b.is_complex(), "a program computes a size from a complex number");
  if (a.is_floating() || b.is_floating()) return of_reals(what, a.to<double>(), b.to<double>());
  const Scalar result = of_whole(what, a.to<int64_t>(), b.to<int64_t>());
  const bool stays_bool = what == Arithmetic::And || what == Arithmetic::Or;
  return stays_bool && a.is_bool() && b.is_bool() ? Scalar(result.to<bool>()) : result;
}

}  // namespace mica::program
