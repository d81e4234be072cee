// How each dtype is multiplied on this CPU.
#include "backends/cpu/gemm/product.h"
#include "mica/error.h"

namespace mica::cpu::gemm_impl {
namespace {

Scheme make_scheme(DType dtype) {
  Scheme s{};
  s.dtype = dtype;
  s.parts = is_complex(dtype) ? 2 : 1;
  s.element_size = element_size(dtype);
  s.copy = copy_to_sums(dtype);
  s.copy_part = s.parts == 1 ? s.copy : copy_to_sums(to_real(dtype));
  s.finish = finish_from_sums(dtype);
  s.gemv = s.parts == 1 ? gemv_kernel(dtype) : nullptr;
  const bool wide = s.element_size / s.parts == 8;
  s.sum_size = wide ? 8 : 4;
  if (is_integral(dtype)) {
    s.strided_kernel = wide ? micro_kernel_i64() : micro_kernel_i32();
  } else {
    s.strided_kernel = wide ? micro_kernel_f64() : micro_kernel_f32();
  }
  s.sums_are_elements = s.parts == 1 && s.element_size == s.sum_size;
  s.kernel = s.strided_kernel;
  s.packed_size = s.sum_size;
  if (const BFloat16Kernel* special = dtype == DType::BFloat16 ? bfloat16_kernel() : nullptr) {
    s.kernel = special->kernel;
    s.format = &special->format;
    s.packed_size = 2;
  }
  s.k_block = s.kernel.panel_depth_bytes / s.packed_size;
  return s;
}

bool is_supported(DType dtype) {
  return dtype < DType::Undefined && dtype != DType::Bool && dtype != DType::Complex32 && !is_float8(dtype) &&
         !is_storage_only(dtype);
}

struct SchemeTable {
  Scheme schemes[kNumDTypes];
  SchemeTable() {
    for (int i = 0; i < kNumDTypes; ++i) {
      if (is_supported(static_cast<DType>(i))) schemes[i] = make_scheme(static_cast<DType>(i));
    }
  }
};

}  // namespace

const Scheme& scheme_of(DType dtype) {
  static const SchemeTable table;
  MICA_CHECK_KIND(is_supported(dtype), NotImplemented, "matmul is not implemented for ", dtype,
                  " on the CPU; convert the operands to a dtype with arithmetic, such as float32");
  return table.schemes[static_cast<int>(dtype)];
}

}  // namespace mica::cpu::gemm_impl
