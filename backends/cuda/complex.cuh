// Complex numbers on the device: their arithmetic. Functions of them are in complex_functions.cuh, since what they need
// takes longer to read than most files' own text.
#pragma once

namespace mica::cuda {

template <class R>
struct alignas(2 * sizeof(R)) Complex {
  using value_type = R;

  Complex() = default;
  __host__ __device__ constexpr Complex(R re, R im = R(0)) : re_(re), im_(im) {}
  template <class S>
  __host__ __device__ explicit constexpr Complex(const Complex<S>& other)
      : re_(static_cast<R>(other.real())), im_(static_cast<R>(other.imag())) {}

  __host__ __device__ constexpr R real() const { return re_; }
  __host__ __device__ constexpr R imag() const { return im_; }

  __device__ Complex operator-() const { return {-re_, -im_}; }
  __device__ friend Complex operator+(Complex a, Complex b) { return {a.re_ + b.re_, a.im_ + b.im_}; }
  __device__ friend Complex operator-(Complex a, Complex b) { return {a.re_ - b.re_, a.im_ - b.im_}; }
  __device__ friend Complex operator*(Complex a, Complex b) {
    return {a.re_ * b.re_ - a.im_ * b.im_, a.re_ * b.im_ + a.im_ * b.re_};
  }
  __device__ friend Complex operator*(Complex a, R b) { return {a.re_ * b, a.im_ * b}; }
  __device__ friend Complex operator*(R a, Complex b) { return {a * b.re_, a * b.im_}; }
  __device__ friend Complex operator/(Complex a, R b) { return {a.re_ / b, a.im_ / b}; }
  // Both are divided by the size of the divisor first, so that its square neither overflows nor vanishes.
  __device__ friend Complex operator/(Complex a, Complex b) {
    const R scale = R(1) / (::fabs(b.re_) + ::fabs(b.im_));
    const R a_re = a.re_ * scale, a_im = a.im_ * scale, b_re = b.re_ * scale, b_im = b.im_ * scale;
    const R inverse = R(1) / (b_re * b_re + b_im * b_im);
    return {(a_re * b_re + a_im * b_im) * inverse, (a_im * b_re - a_re * b_im) * inverse};
  }
  __device__ Complex& operator+=(Complex b) { return *this = *this + b; }
  __device__ Complex& operator-=(Complex b) { return *this = *this - b; }
  __device__ Complex& operator*=(Complex b) { return *this = *this * b; }
  __device__ Complex& operator/=(Complex b) { return *this = *this / b; }
  __host__ __device__ friend bool operator==(Complex a, Complex b) { return a.re_ == b.re_ && a.im_ == b.im_; }
  __host__ __device__ friend bool operator!=(Complex a, Complex b) { return !(a == b); }

 private:
  R re_, im_;
};

template <class R>
__device__ R abs(Complex<R> z) {
  return ::hypot(z.real(), z.imag());
}
template <class R>
__device__ Complex<R> conj(Complex<R> z) {
  return {z.real(), -z.imag()};
}

}  // namespace mica::cuda
