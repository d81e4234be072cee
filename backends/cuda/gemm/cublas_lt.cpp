#include "backends/cuda/gemm/cublas_lt.h"

#include <mutex>
#include <unordered_map>

#include "backends/cuda/flags.h"
#include "backends/cuda/gemm/lt.h"
#include "backends/cuda/gemm/tuning.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

using lt::Matrix;

struct Types {
  cudaDataType_t element, scale;
  cublasComputeType_t compute;
  std::optional<cudaDataType_t> operands{};  // where they are narrower than the result
};
std::optional<Types> types(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return Types{CUDA_R_32F, CUDA_R_32F, products_are_rounded() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::Float64:
      return Types{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::Float16:
      return Types{CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::BFloat16:
      return Types{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::Complex64:
      return Types{CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F};
    case DType::Complex128:
      return Types{CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F};
    default:
      return std::nullopt;
  }
}

std::optional<Types> types(const MatmulCall& call) {
  std::optional<Types> t = types(call.out.dtype);
  if (!t || call.a.dtype == call.out.dtype) return t;
  const std::optional<Types> of_operands = types(call.a.dtype);
  if (call.out.dtype != DType::Float32 || !of_operands || element_size(call.a.dtype) != 2) return std::nullopt;
  t->compute = CUBLAS_COMPUTE_32F;
  t->operands = of_operands->element;
  return t;
}

struct Key {
  Matrix a, b, out;
  int64_t batch, inner;
  int device, dtype, bias, alignment, compute;
};

lt::Plan make_plan(const Key& key, const Types& t, cublasLtHandle_t handle) {
  lt::Plan plan;
  MICA_CUBLAS(lt::cublas().MatmulDescCreate(&plan.operation, t.compute, t.scale));
  plan.set(CUBLASLT_MATMUL_DESC_TRANSA, key.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  plan.set(CUBLASLT_MATMUL_DESC_TRANSB, key.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  plan.a = lt::layout(key.a, t.operands.value_or(t.element), key.batch);
  plan.b = lt::layout(key.b, t.operands.value_or(t.element), key.batch);
  plan.out = plan.added = lt::layout(key.out, t.element, key.batch);
  lt::choose_algorithm(plan, handle, key.alignment);
  return plan;
}

// A factor in the type that the scale has.
struct Factor {
  alignas(16) unsigned char bytes[16];
  Factor(const Scalar& s, cudaDataType_t type) {
    auto write = [&](const auto& value) { std::memcpy(bytes, &value, sizeof value); };
    if (type == CUDA_R_32F) {
      write(s.cast<float>());
    } else if (type == CUDA_R_64F) {
      write(s.cast<double>());
    } else if (type == CUDA_C_32F) {
      write(s.cast<complex64>());
    } else {
      write(s.cast<complex128>());
    }
  }
};

// The product as torch.cuda.tunable names it: its kind and dtype, which operands are transposed, sizes and pitches.
tuning::Product named(const Key& key, const Types& t, DType out, DType operands) {
  const auto size = static_cast<int64_t>(element_size(out));
  const std::string letters = {key.a.transposed ? 'T' : 'N', key.b.transposed ? 'T' : 'N'};
  const std::string small = {key.a.transposed ? 't' : 'n', key.b.transposed ? 't' : 'n'};
  const char* const kind = key.bias        ? "GemmAndBiasTunableOp_"
                           : key.batch > 1 ? "GemmStridedBatchedTunableOp_"
                                           : "GemmTunableOp_";
  const bool rounded = t.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  tuning::Product p;
  p.operation =
      cat(kind, rounded ? "tf32" : info(operands).name, out == operands ? "" : cat("_", info(out).name), "_", letters);
  p.parameters = cat(small, "_", key.out.rows, "_", key.out.columns, "_", key.inner);
  if (key.batch > 1) p.parameters += cat("_B_", key.batch);
  p.parameters += cat("_ld_", key.a.pitch, "_", key.b.pitch, "_", key.out.pitch);
  p.compute = t.compute, p.scale = t.scale, p.operands = t.operands.value_or(t.element), p.out = t.element;
  p.out_bytes = static_cast<size_t>((key.out.pitch * key.out.columns + key.out.batch_stride * (key.batch - 1)) * size);
  return p;
}

}  // namespace

bool cublas_matmul(const MatmulCall& call) {
  const auto t = types(call);
  if (!t || call.a.sizes[2] == 0) return false;
  // A bias goes along only where it lies along the rows of what cuBLASLt computes, and only for these dtypes.
  const bool can_add_bias =
      call.out.dtype == DType::Float32 || call.out.dtype == DType::Float16 || call.out.dtype == DType::BFloat16;
  if (call.bias && !can_add_bias) return false;
  // Row-major tensors are column-major matrices transposed: out' = b' a'. An output that is column-major itself is
  // computed as it is.
  std::optional<Matrix> out = lt::matrix(call.out, 2, 1, false);
  const bool swapped = out.has_value();
  if (!swapped) {
    if (call.bias) return false;
    out = lt::matrix(call.out, 1, 2, false);
  }
  const TensorView& first = swapped ? call.b : call.a;
  const TensorView& second = swapped ? call.a : call.b;
  const auto a = swapped ? lt::matrix(first, 2, 1, true) : lt::matrix(first, 1, 2, true);
  const auto b = swapped ? lt::matrix(second, 2, 1, true) : lt::matrix(second, 1, 2, true);
  if (!out || !a || !b) return false;

  const int device = call.out.device.index();
  DeviceGuard guard(device);
  Key key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);  // its bytes are compared, padding included
  lt::put(key.a, *a);
  lt::put(key.b, *b);
  lt::put(key.out, *out);
  key.batch = call.out.sizes[0];
  key.inner = call.a.sizes[2];
  key.device = device;
  key.dtype = static_cast<int>(call.out.dtype) | static_cast<int>(call.a.dtype) << 8;
  key.bias = call.bias != nullptr;
  key.compute = static_cast<int>(t->compute);
  key.alignment = lt::common_alignment({first.data, second.data, call.out.data});

  static std::mutex mutex;
  static auto* plans = new std::unordered_map<Key, lt::Plan, lt::HashOfBytes<Key>, lt::EqualBytes<Key>>;
  const cublasLtHandle_t handle = lt::handle(device);
  std::lock_guard lock(mutex);  // held over the call: the bias is part of the shared description
  auto found = plans->find(key);
  if (found == plans->end()) found = plans->emplace(key, make_plan(key, *t, handle)).first;
  const lt::Plan& plan = found->second;
  if (!plan.usable) return false;
  if (call.bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  const Factor alpha(call.alpha, t->scale), beta(call.beta, t->scale);
  const auto run = [&](const lt::Plan& by, void* to) {
    lt::run(by, handle, alpha.bytes, first.data, second.data, beta.bytes, to, device);
  };
  // An algorithm is chosen for addresses that 16 divides.
  const bool tuned = tuning::is_on() && key.alignment >= 16;
  run(tuned ? tuning::chosen(plan, handle, named(key, *t, call.out.dtype, call.a.dtype), device, run) : plan,
      call.out.data);
  return true;
}

}  // namespace mica::cuda
