#include "backends/cuda/gemm/scaled.h"

#include <mutex>
#include <unordered_map>

#include "backends/cuda/gemm/lt.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

using lt::Matrix;

struct Call {
  const TensorView &out, &a, &b, &scale_a, &scale_b, &bias;
  bool fast;
};

std::optional<cudaDataType_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::Float8_e4m3fn:
      return CUDA_R_8F_E4M3;
    case DType::Float8_e5m2:
      return CUDA_R_8F_E5M2;
    case DType::BFloat16:
      return CUDA_R_16BF;
    case DType::Float16:
      return CUDA_R_16F;
    case DType::Float32:
      return CUDA_R_32F;
    default:
      return std::nullopt;
  }
}
bool is_narrow(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

int64_t blocks(int64_t size) { return (size + 127) / 128; }

// The library's mode for the scales of an operand with `outer` rows or columns of `inner` numbers: dimension 0 of a
// scale goes with `outer`, or dimension 1 where it is `transposed`. Nothing where the library has no such mode.
std::optional<cublasLtMatmulMatrixScale_t> scale_mode(const TensorView& scale, int64_t outer, int64_t inner,
                                                      bool transposed) {
  if (scale.dtype != DType::Float32) return std::nullopt;
  if (scale.numel == 1) return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (scale.ndim != 2 || reinterpret_cast<uintptr_t>(scale.data) % 16) return std::nullopt;
  const int along = transposed ? 1 : 0;
  const int64_t count = scale.sizes[along], depth = scale.sizes[1 - along];
  const int64_t count_stride = scale.strides[along], depth_stride = scale.strides[1 - along];
  if (count == outer && depth == 1 && count_stride == 1) return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  if (depth != blocks(inner)) return std::nullopt;
  if (count == outer && count_stride == 1 && depth_stride == outer && outer % 4 == 0)
    return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  if (count == blocks(outer) && depth_stride == 1 && count_stride == (depth + 3) / 4 * 4)
    return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  return std::nullopt;
}

// The result is row-major, which is a column-major matrix transposed: out' = b' a'. The library's first operand is b,
// and it takes 8-bit floats where both operands run along the sum.
struct Key {
  Matrix a, b, out;
  int a_type, b_type, out_type, bias_type;
  int a_mode, b_mode, device, alignment;
  int64_t fast;
};

struct Description {
  Key key;
  cudaDataType_t added;  // the type of what beta would multiply
};

std::optional<Description> describe(const Call& call) {
  const auto a_type = type_of(call.b.dtype), b_type = type_of(call.a.dtype), out_type = type_of(call.out.dtype);
  if (!a_type || !b_type || !out_type || !is_narrow(*a_type) || !is_narrow(*b_type)) return std::nullopt;
  const int64_t inner = call.a.sizes[1];
  const auto a_mode = scale_mode(call.scale_b, call.b.sizes[1], inner, true);
  auto b_mode = scale_mode(call.scale_a, call.a.sizes[0], inner, false);
  if (!a_mode || !b_mode) return std::nullopt;
  // The scale of a single row is one number.
  if (*a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && call.a.sizes[0] == 1) b_mode = a_mode;
  const auto is_block = [](cublasLtMatmulMatrixScale_t mode) {
    return mode > CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  };
  if (*a_mode != *b_mode && !(is_block(*a_mode) && is_block(*b_mode))) return std::nullopt;
  std::optional<cudaDataType_t> bias_type;
  if (call.bias.defined()) {
    bias_type = type_of(call.bias.dtype);
    if (bias_type != CUDA_R_16BF && bias_type != CUDA_R_16F) return std::nullopt;
  }
  const auto a = lt::matrix(call.b, 0, 1, false), b = lt::matrix(call.a, 1, 0, false);
  const auto out = lt::matrix(call.out, 1, 0, false);
  if (!a || !b || !out) return std::nullopt;
  Description d;
  std::memset(static_cast<void*>(&d), 0, sizeof d);  // the key's bytes are compared, padding included
  lt::put(d.key.a, *a);
  lt::put(d.key.b, *b);
  lt::put(d.key.out, *out);
  d.key.a_type = *a_type;
  d.key.b_type = *b_type;
  d.key.out_type = *out_type;
  d.key.bias_type = bias_type ? static_cast<int>(*bias_type) : -1;
  d.key.a_mode = *a_mode;
  d.key.b_mode = *b_mode;
  d.key.device = call.out.device.index();
  d.key.alignment = lt::common_alignment({call.a.data, call.b.data, call.out.data});
  d.key.fast = call.fast;
  d.added = is_narrow(*out_type) ? bias_type.value_or(CUDA_R_16F) : *out_type;
  return d;
}

lt::Plan make_plan(const Description& d, cublasLtHandle_t handle) {
  const Key& key = d.key;
  lt::Plan plan;
  MICA_CUBLAS(lt::cublas().MatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  plan.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  plan.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(key.fast));
  // A library that does not know a mode says so here.
  const auto set_mode = [&](cublasLtMatmulDescAttributes_t attribute, int mode) {
    const auto value = static_cast<int32_t>(mode);
    return lt::cublas().MatmulDescSetAttribute(plan.operation, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  if (key.a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
      !(set_mode(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, key.a_mode) &&
        set_mode(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, key.b_mode)))
    return plan;
  // The heuristic asks whether there are scales, not for their values. Any aligned address stands for those of a call.
  alignas(256) static const char place[256] = {};
  const void* some = place;
  plan.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, some);
  plan.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, some);
  if (key.bias_type >= 0) {
    plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    plan.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(key.bias_type));
    plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some);
  }
  plan.a = lt::layout(key.a, static_cast<cudaDataType_t>(key.a_type), 1);
  plan.b = lt::layout(key.b, static_cast<cudaDataType_t>(key.b_type), 1);
  plan.out = lt::layout(key.out, static_cast<cudaDataType_t>(key.out_type), 1);
  plan.added = d.added == key.out_type ? plan.out : lt::layout(key.out, d.added, 1);
  lt::choose_algorithm(plan, handle, key.alignment);
  return plan;
}

// Guards the plans, and the pointers of a call, which are part of a plan's shared description.
std::mutex& guard_of_plans() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

const lt::Plan& plan_of(const Description& d, cublasLtHandle_t handle) {
  static auto* plans = new std::unordered_map<Key, lt::Plan, lt::HashOfBytes<Key>, lt::EqualBytes<Key>>;
  auto found = plans->find(d.key);
  if (found == plans->end()) found = plans->emplace(d.key, make_plan(d, handle)).first;
  return found->second;
}

// 8-bit floats came to the tensor cores with compute capability 8.9.
bool has_tensor_cores(int device) {
  const cudaDeviceProp& p = properties(device);
  return p.major > 8 || (p.major == 8 && p.minor == 9);
}

}  // namespace

bool supports_scaled_matmul(const TensorView* const* inputs) {
  const Call call{*inputs[0], *inputs[1], *inputs[2], *inputs[3], *inputs[4], *inputs[5], false};
  const int device = call.out.device.index();
  if (!has_tensor_cores(device)) return false;
  const auto description = describe(call);
  if (!description) return false;
  DeviceGuard guard(device);
  const cublasLtHandle_t handle = lt::handle(device);
  std::lock_guard lock(guard_of_plans());
  return plan_of(*description, handle).usable;
}

void scaled_matmul(const TensorView& out, const TensorView& a, const TensorView& b, const TensorView& scale_a,
                   const TensorView& scale_b, const TensorView& bias, bool use_fast_accum) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  const cublasLtHandle_t handle = lt::handle(device);
  const auto queued = [&](bool fast) {
    const auto description = describe({out, a, b, scale_a, scale_b, bias, fast});
    if (!description) return false;
    std::lock_guard lock(guard_of_plans());
    const lt::Plan& plan = plan_of(*description, handle);
    if (!plan.usable) return false;
    plan.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(scale_b.data));
    plan.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(scale_a.data));
    if (bias.defined()) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data));
    const float alpha = 1, beta = 0;
    lt::run(plan, handle, &alpha, b.data, a.data, &beta, out.data, device);
    return true;
  };
  // Where fast sums are not available, others are used.
  MICA_CHECK((use_fast_accum && queued(true)) || queued(false),
             "scaled_matmul: cuBLASLt has no algorithm for this product");
}

}  // namespace mica::cuda
