// where, masks, clamp, addcmul and addcdiv.
#include "backends/cuda/context.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/define.cuh"
#include "backends/cuda/pointwise/functions.cuh"

namespace mica::cuda {

namespace {

// The elements are only moved, so that their size is all that matters.
template <class T>
struct Select {
  __device__ T operator()(T a, T b, bool condition) const { return condition ? a : b; }
};
template <class T>
struct SelectValue {
  __device__ T operator()(T self, bool mask, T value) const { return mask ? value : self; }
};
template <class T>
struct Mask {
  __device__ T operator()(T self, bool mask) const { return mask ? self : T{}; }
};

// One element in the memory of the host, converted as tensors are.
void convert_number(const char* from, DType from_dtype, char* to, DType to_dtype) {
  Scalar number;
  switch (from_dtype) {
#define MICA_READ(T, Name)                                       \
  case DType::Name: {                                            \
    T value;                                                     \
    std::memcpy(static_cast<void*>(&value), from, sizeof value); \
    number = Scalar(value);                                      \
    break;                                                       \
  }
    MICA_FORALL_DTYPES(MICA_READ)
#undef MICA_READ
    default:
      unsupported_dtype("masked_fill", from_dtype);
  }
  write_number(number, to_dtype, to);
}

}  // namespace

void where(const PointwiseLoop& loop) {
  visit_size(element_size(loop.dtypes[0]), [&]<class T>(Tag<T>) { run_moved<T, T, T, bool>(loop, Select<T>{}); });
}

// The value may be of another dtype than self.
void masked_fill(const PointwiseLoop& loop) {
  PointwiseLoop converted = loop;
  alignas(16) char value[16];
  const auto size = static_cast<size_t>(element_size(loop.dtypes[0]));
  const Workspace element(size, loop.device.index());
  if (loop.dtypes[3] != loop.dtypes[0]) {
    if (loop.numbers >> 3 & 1) {
      convert_number(loop.data[3], loop.dtypes[3], value, loop.dtypes[0]);
      converted.data[3] = value;
    } else {
      PointwiseLoop one = loop;
      one.numel = one.ndim = one.shape[0] = 1;
      one.numbers = 0;
      one.noperands = 2;
      one.data[0] = static_cast<char*>(element.data());
      one.data[1] = loop.data[3];
      one.dtypes[1] = loop.dtypes[3];
      one.strides[0][0] = one.strides[0][1] = 0;
      copy(one);
      converted.data[3] = one.data[0];
    }
  }
  visit_size(static_cast<int64_t>(size),
             [&]<class T>(Tag<T>) { run_moved<T, T, bool, T>(converted, SelectValue<T>{}); });
}

void masked(const PointwiseLoop& loop) {
  visit_size(element_size(loop.dtypes[0]), [&]<class T>(Tag<T>) { run_moved<T, T, bool>(loop, Mask<T>{}); });
}

void clamp(const PointwiseLoop& loop) {
  visit_real("clamp", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T, T, T>(loop, Clamp<compute_t<T>>{}); });
}
void clamp_min(const PointwiseLoop& loop) { maximum(loop); }
void clamp_max(const PointwiseLoop& loop) { minimum(loop); }

void addcmul(const PointwiseLoop& loop, Scalar value) {
  visit_number("addcmul", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_common<T, T, T, T>(loop, Addcmul<C>{number<C>(value)});
  });
}
void addcdiv(const PointwiseLoop& loop, Scalar value) {
  visit_floating_complex("addcdiv", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_common<T, T, T, T>(loop, Addcdiv<C>{number<C>(value)});
  });
}

}  // namespace mica::cuda
