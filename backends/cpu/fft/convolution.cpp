// Lengths with a large prime factor, as cyclic convolutions.
#include <complex>

#include "backends/cpu/fft/plan.h"

namespace mica::cpu::fft {

namespace {

int64_t power(int64_t base, int64_t exponent, int64_t modulus) {
  int64_t result = 1;
  for (; exponent; exponent >>= 1, base = base * base % modulus)
    if (exponent & 1) result = result * base % modulus;
  return result;
}

bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

// The least number whose powers give all numbers from 1 to p - 1.
int64_t primitive_root(int64_t p) {
  std::vector<int64_t> primes;
  int64_t rest = p - 1;
  for (int64_t d = 2; d * d <= rest; ++d)
    if (rest % d == 0) {
      primes.push_back(d);
      while (rest % d == 0) rest /= d;
    }
  if (rest > 1) primes.push_back(rest);
  for (int64_t g = 2;; ++g) {
    bool all = true;
    for (const int64_t q : primes) all = all && power(g, (p - 1) / q, p) != 1;
    if (all) return g;
  }
}

// A plain transform, in place, of a length that has passes. It is precise rather than fast.
void transform(std::vector<std::complex<double>>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<std::complex<double>> other(x.size()), roots(x.size());
  for (int64_t k = 0; k < n; ++k) {
    const Root w = root_of_unity(k, n);
    roots[static_cast<size_t>(k)] = {w.re, w.im};
  }
  int64_t before = 1;
  for (const int radix : factors_of(n)) {
    const int64_t after = n / (before * radix), step = n / radix;
    for (int64_t k = 0; k < before; ++k)
      for (int64_t i = 0; i < after; ++i)
        for (int64_t j = 0; j < radix; ++j) {
          std::complex<double> sum = 0;
          for (int64_t m = 0; m < radix; ++m)
            sum +=
                x[static_cast<size_t>(i + after * (m + radix * k))] * roots[static_cast<size_t>(j * m % radix * step)];
          other[static_cast<size_t>(i + after * (k + before * j))] =
              sum * roots[static_cast<size_t>(j * before * i % n)];
        }
    x.swap(other);
    before *= radix;
  }
}

using Numbers = std::vector<std::complex<double>>;

template <class T>
Numbers plan_rader(Convolution<T>& result, int64_t p) {
  const int64_t root = primitive_root(p), inverse = power(root, p - 2, p);
  result.length = p - 1;
  Numbers factor;
  int64_t forth = 1, back = 1;
  for (int64_t k = 0; k < p - 1; ++k) {
    result.from.push_back(static_cast<int32_t>(forth));
    result.to.push_back(static_cast<int32_t>(back));
    const Root w = root_of_unity(back, p);
    factor.emplace_back(w.re, w.im);
    forth = forth * root % p;
    back = back * inverse % p;
  }
  return factor;
}

template <class T>
Numbers plan_bluestein(Convolution<T>& result, int64_t n, int64_t padded) {
  result.length = padded;
  Numbers factor(static_cast<size_t>(padded));
  int64_t square = 0;  // k^2 modulo 2 n
  for (int64_t k = 0; k < n; ++k) {
    const Root w = root_of_unity(square, 2 * n);
    result.chirp.push_back(static_cast<T>(w.re));
    result.chirp.push_back(static_cast<T>(w.im));
    const std::complex<double> value(w.re, -w.im);
    factor[static_cast<size_t>(k)] = value;
    if (k) factor[static_cast<size_t>(padded - k)] = value;
    square = (square + 2 * k + 1) % (2 * n);
  }
  return factor;
}

}  // namespace

bool has_rader(int64_t length) { return length < INT32_MAX && is_prime(length) && is_smooth(length - 1); }

template <class T>
int64_t Convolution<T>::size() const {
  return static_cast<int64_t>((chirp.size() + spectrum.size()) * sizeof(T)) / 8 + static_cast<int64_t>(from.size());
}

template <class T>
Convolution<T> convolution_for(int64_t length, int64_t padded) {
  Convolution<T> result;
  Numbers factor = has_rader(length) ? plan_rader(result, length) : plan_bluestein(result, length, padded);
  transform(factor);
  for (const std::complex<double>& value : factor) {
    result.spectrum.push_back(static_cast<T>(value.real() / static_cast<double>(result.length)));
    result.spectrum.push_back(static_cast<T>(value.imag() / static_cast<double>(result.length)));
  }
  return result;
}

template struct Convolution<float>;
template struct Convolution<double>;
template Convolution<float> convolution_for(int64_t, int64_t);
template Convolution<double> convolution_for(int64_t, int64_t);

}  // namespace mica::cpu::fft
