// From an operation's arithmetic to the function pointers of a Reduction.
//
// An operation is a struct with
//   Loaded, Accumulator                            the types of an element as loaded and of what is kept per output
//   static void start(Accumulator&)
//   static void row(Accumulator&, const Loaded* x, int64_t count, int64_t first, const void* context)
//   static void columns(Accumulator*, const Loaded* x, int64_t columns, int64_t row_stride, int64_t count, int64_t
//   first, const void*) static void merge(Accumulator&, const Accumulator&) static auto result(const Accumulator&,
//   int64_t count, const void* context), or results() for a pair of outputs

#if defined(MICA_CPU_REDUCE_REDUCTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_REDUCTION_INL_H_
#undef MICA_CPU_REDUCE_REDUCTION_INL_H_
#else
#define MICA_CPU_REDUCE_REDUCTION_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "backends/cpu/reduce/run_reduction.h"
#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Op>
void start_all(void* accumulators, int64_t n) {
  auto* a = static_cast<typename Op::Accumulator*>(accumulators);
  for (int64_t i = 0; i < n; ++i) Op::start(a[i]);
}

template <class Op>
void fold_rows(void* accumulators, const void* x, int64_t rows, int64_t row_stride, int64_t count, int64_t first,
               const void* context) {
  auto* a = static_cast<typename Op::Accumulator*>(accumulators);
  auto* p = static_cast<const typename Op::Loaded*>(x);
  for (int64_t i = 0; i < rows; ++i) Op::row(a[i], p + i * row_stride, count, first, context);
}

template <class Op>
void fold_columns(void* accumulators, const void* x, int64_t columns, int64_t row_stride, int64_t count, int64_t first,
                  const void* context) {
  Op::columns(static_cast<typename Op::Accumulator*>(accumulators), static_cast<const typename Op::Loaded*>(x), columns,
              row_stride, count, first, context);
}

template <class Op>
void merge_all(void* accumulators, const void* others, int64_t n) {
  auto* a = static_cast<typename Op::Accumulator*>(accumulators);
  auto* b = static_cast<const typename Op::Accumulator*>(others);
  for (int64_t i = 0; i < n; ++i) Op::merge(a[i], b[i]);
}

template <class Op, class Out>
void finish_all(const void* accumulators, int64_t n, char* const* out, const int64_t* strides, int64_t count,
                const void* context) {
  auto* a = static_cast<const typename Op::Accumulator*>(accumulators);
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<Out*>(out[0] + i * strides[0]) = static_cast<Out>(Op::result(a[i], count, context));
}

// For operations with two outputs: Op::results(accumulator, count, context) is a pair.
template <class Op, class First, class Second>
void finish_pairs(const void* accumulators, int64_t n, char* const* out, const int64_t* strides, int64_t count,
                  const void* context) {
  auto* a = static_cast<const typename Op::Accumulator*>(accumulators);
  for (int64_t i = 0; i < n; ++i) {
    const auto pair = Op::results(a[i], count, context);
    *reinterpret_cast<First*>(out[0] + i * strides[0]) = static_cast<First>(pair.first);
    *reinterpret_cast<Second*>(out[1] + i * strides[1]) = static_cast<Second>(pair.second);
  }
}

using FinishFunction = decltype(Reduction::finish);

template <class Op>
constexpr Reduction reduction_of(FinishFunction finish, int outputs = 1, bool ordered = false) {
  static_assert(sizeof(typename Op::Accumulator) <= kMaxAccumulatorBytes);
  return {sizeof(typename Op::Accumulator),
          start_all<Op>,
          fold_rows<Op>,
          fold_columns<Op>,
          merge_all<Op>,
          finish,
          outputs,
          ordered};
}

// Calls f with a Tag of the element type of an output that holds values of type Loaded.
template <class Loaded, class F>
void visit_stored(const char* op, DType dtype, const F& f) {
  if constexpr (std::is_same_v<Loaded, float>) {
    if (dtype == DType::Float32) return f(Tag<float>{});
    if (dtype == DType::Float16) return f(Tag<Half>{});
    if (dtype == DType::BFloat16) return f(Tag<BFloat16>{});
    unsupported_dtype(op, dtype);
  } else if constexpr (std::is_same_v<Loaded, int64_t>) {
    visit_integral_bool(op, dtype, f);
  } else {
    f(Tag<Loaded>{});
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
