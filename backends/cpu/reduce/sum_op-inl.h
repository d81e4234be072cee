// The sum of mapped elements as an operation of the reduction walk.

#if defined(MICA_CPU_REDUCE_SUM_OP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_SUM_OP_INL_H_
#undef MICA_CPU_REDUCE_SUM_OP_INL_H_
#else
#define MICA_CPU_REDUCE_SUM_OP_INL_H_
#endif

#include "backends/cpu/reduce/sum_runs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T, class Map = Itself>
struct Sum;

template <class Map>
struct Sum<float, Map> {
  using Loaded = float;
  using Accumulator = double;
  static void start(double& a) { a = 0; }
  static void row(double& a, const float* x, int64_t n, int64_t, const void*) { sum_run<Map>(x, n, a); }
  static void columns(double* a, const float* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    sum_columns<Map>(x, columns, row_stride, count, a);
  }
  static void merge(double& a, double b) { a += b; }
  static double result(double a, int64_t, const void*) { return a; }
};

template <class Map>
struct Sum<double, Map> {
  using Loaded = double;
  using Accumulator = Compensated;
  static void start(Compensated& a) { a = {0, 0}; }
  static void row(Compensated& a, const double* x, int64_t n, int64_t, const void*) { sum_run<Map>(x, n, a); }
  static void columns(Compensated* a, const double* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    sum_columns<Map>(x, columns, row_stride, count, a);
  }
  static void merge(Compensated& a, const Compensated& b) {
    a.add(b.sum);
    a.error += b.error;
  }
  static double result(const Compensated& a, int64_t, const void*) { return a.value(); }
};

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
