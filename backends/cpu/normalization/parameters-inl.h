// The parameters and statistics of normalisations in the type that rows are computed in.

#if defined(MICA_CPU_NORMALIZATION_PARAMETERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_NORMALIZATION_PARAMETERS_INL_H_
#undef MICA_CPU_NORMALIZATION_PARAMETERS_INL_H_
#else
#define MICA_CPU_NORMALIZATION_PARAMETERS_INL_H_
#endif

#include "backends/cpu/softmax/row_io-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/tensor_view.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int64_t kNormGrain = 16384;  // elements that are worth a thread, where channels are normalised

// A contiguous weight or bias as C, converted once; null where the tensor is undefined.
template <class C>
struct Parameter {
  const C* data = nullptr;

  explicit Parameter(const TensorView& t) {
    if (!t.defined()) return;
    if (t.dtype == dtype_v<C>) {
      data = t.ptr<C>();
      return;
    }
    own_.reset(new C[t.numel]);
    visit_floating("layer_norm", t.dtype, [&]<class T>(Tag<T>) {
      for (int64_t i = 0; i < t.numel; ++i) own_[i] = static_cast<C>(t.ptr<T>()[i]);
    });
    data = own_.get();
  }

 private:
  std::unique_ptr<C[]> own_;
};

// One number per row, contiguous; tensors that nobody asked for are undefined.
HWY_INLINE void put_statistic(const TensorView& t, int64_t row, double value) {
  if (t.dtype == DType::Float32) {
    t.ptr<float>()[row] = static_cast<float>(value);
  } else if (t.dtype == DType::Float64) {
    t.ptr<double>()[row] = value;
  } else if (t.dtype == DType::BFloat16) {
    t.ptr<BFloat16>()[row] = static_cast<float>(value);
  } else if (t.dtype == DType::Float16) {
    t.ptr<Half>()[row] = static_cast<float>(value);
  }
}

HWY_INLINE double get_statistic(const TensorView& t, int64_t row) {
  if (t.dtype == DType::Float32) return t.ptr<float>()[row];
  if (t.dtype == DType::Float64) return t.ptr<double>()[row];
  if (t.dtype == DType::BFloat16) return t.ptr<BFloat16>()[row];
  return t.ptr<Half>()[row];
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
