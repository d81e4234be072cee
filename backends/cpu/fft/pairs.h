// The spectrum of an even number of reals, and that of pairs of them taken as complex numbers: bin k and its mirror,
// half - k, of the one from those of the other. `dense.cpp` says the formulas; its vectors compute the same.
#pragma once

namespace mica::cpu::fft {

template <class T>
struct MirroredBins {
  T re, im, mirror_re, mirror_im;
};

// (a, b) and (c, d) are bins k and half - k of the pairs, w the root of k.
template <class T>
MirroredBins<T> unfolded(T a, T b, T c, T d, const T* w) {
  const T even_re = (a + c) / 2, even_im = (b - d) / 2, odd_re = (b + d) / 2, odd_im = (c - a) / 2;
  const T turn_re = odd_re * w[0] - odd_im * w[1], turn_im = odd_re * w[1] + odd_im * w[0];
  return {even_re + turn_re, even_im + turn_im, even_re - turn_re, turn_im - even_im};
}

// The other way, twice what `unfolded` takes: (a, b) and (c, d) are bins of the reals.
template <class T>
MirroredBins<T> folded(T a, T b, T c, T d, const T* w) {
  const T even_re = a + c, even_im = b - d, rest_re = a - c, rest_im = b + d;
  const T turn_re = rest_re * w[0] + rest_im * w[1], turn_im = rest_im * w[0] - rest_re * w[1];
  return {even_re - turn_im, even_im + turn_re, even_re + turn_im, turn_re - even_im};
}

}  // namespace mica::cpu::fft
