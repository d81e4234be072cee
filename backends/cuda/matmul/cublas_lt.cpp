#include "backends/cuda/matmul/cublas_lt.h"

#include <cublasLt.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "backends/cuda/allocator.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/library.h"

namespace mica::cuda {

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

#define MICA_FORALL_LT(X)   \
  X(Create)                 \
  X(GetStatusName)          \
  X(Matmul)                 \
  X(MatmulAlgoGetHeuristic) \
  X(MatmulDescCreate)       \
  X(MatmulDescSetAttribute) \
  X(MatmulPreferenceCreate) \
  X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutSetAttribute)

// cuBLASLt's functions without their prefix.
struct Functions {
#define MICA_DECLARE(name) decltype(&cublasLt##name) name;
  MICA_FORALL_LT(MICA_DECLARE)
#undef MICA_DECLARE
};

const Functions& cublas() {
  static const Functions loaded = [] {
    static constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so",
                                             "/usr/local/cuda/lib64/libcublasLt.so.13", nullptr};
    void* library = open_library(kNames);
    MICA_CHECK_KIND(library, NotImplemented,
                    "products on CUDA need cuBLASLt, and libcublasLt.so.13 could not be opened: install the CUDA "
                    "toolkit or the package nvidia-cublas, or name the folder of the library in MICA_CUDA_LIBRARIES");
    Functions f{};
#define MICA_LOAD(name) f.name = reinterpret_cast<decltype(f.name)>(symbol(library, "cublasLt" #name));
    MICA_FORALL_LT(MICA_LOAD)
#undef MICA_LOAD
    return f;
  }();
  return loaded;
}

void check(cublasStatus_t status, const char* call) {
  MICA_CHECK(status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublas().GetStatusName(status), " when calling ", call);
}
#define MICA_CUBLAS(call) check(call, #call)

cublasLtHandle_t handle(int index) {
  static std::mutex mutex;
  static auto* handles = new std::unordered_map<int, cublasLtHandle_t>;
  std::lock_guard lock(mutex);
  cublasLtHandle_t& h = (*handles)[index];
  if (!h) MICA_CUBLAS(cublas().Create(&h));
  return h;
}

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

// A matrix as cuBLASLt sees it: `rows` consecutive elements, `columns` of those `pitch` apart. All of it is the key of
// the plan.
struct Matrix {
  int64_t rows, columns, pitch, batch_stride;
  bool transposed;  // relative to the column-major matrix that the product wants
};

// `t` as a column-major matrix of (rows, columns) = its dimensions (row_dim, column_dim), or as the transpose of one.
std::optional<Matrix> matrix(const TensorView& t, int row_dim, int column_dim, bool may_transpose) {
  const int64_t rows = t.sizes[row_dim], columns = t.sizes[column_dim];
  const int64_t row_stride = t.strides[row_dim], column_stride = t.strides[column_dim];
  const int64_t batch_stride = t.sizes[0] > 1 ? t.strides[0] : 0;
  if (batch_stride < 0) return std::nullopt;
  if (row_stride == 1 || rows == 1) {
    const int64_t pitch = columns == 1 ? rows : column_stride;
    if (pitch >= rows && pitch > 0) return Matrix{rows, columns, pitch, batch_stride, false};
  }
  if (may_transpose && (column_stride == 1 || columns == 1)) {
    const int64_t pitch = rows == 1 ? columns : row_stride;
    if (pitch >= columns && pitch > 0) return Matrix{columns, rows, pitch, batch_stride, true};
  }
  return std::nullopt;
}

struct Key {
  Matrix a, b, out;
  int64_t batch, inner;
  int device, dtype, bias, alignment, compute;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t words[sizeof(Key) / 8], h = 1469598103934665603ull;
    std::memcpy(words, &k, sizeof(Key));
    for (uint64_t w : words) h = (h ^ w) * 1099511628211ull;
    return h ^ h >> 32;
  }
};
struct KeyEqual {
  bool operator()(const Key& x, const Key& y) const { return std::memcmp(&x, &y, sizeof(Key)) == 0; }
};

// Descriptors and the algorithm that the heuristic chose for them. Kept for the life of the process.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
  bool usable = false;
};

cublasLtMatrixLayout_t layout(const Matrix& m, cudaDataType_t type, int64_t batch) {
  cublasLtMatrixLayout_t made;
  MICA_CUBLAS(cublas().MatrixLayoutCreate(&made, type, static_cast<uint64_t>(m.rows), static_cast<uint64_t>(m.columns),
                                          m.pitch));
  if (batch > 1) {
    const auto count = static_cast<int32_t>(batch);
    MICA_CUBLAS(cublas().MatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    MICA_CUBLAS(cublas().MatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride,
                                                  sizeof(int64_t)));
  }
  return made;
}

Plan make_plan(const Key& key, const Types& t, cublasLtHandle_t lt) {
  Plan plan;
  MICA_CUBLAS(cublas().MatmulDescCreate(&plan.operation, t.compute, t.scale));
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    MICA_CUBLAS(cublas().MatmulDescSetAttribute(plan.operation, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  plan.a = layout(key.a, t.operands.value_or(t.element), key.batch);
  plan.b = layout(key.b, t.operands.value_or(t.element), key.batch);
  plan.out = layout(key.out, t.element, key.batch);

  cublasLtMatmulPreference_t preference;
  MICA_CUBLAS(cublas().MatmulPreferenceCreate(&preference));
  MICA_CUBLAS(cublas().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &kWorkspaceBytes, sizeof(size_t)));
  const auto alignment = static_cast<uint32_t>(key.alignment);
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    MICA_CUBLAS(cublas().MatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublas().MatmulAlgoGetHeuristic(lt, plan.operation, plan.a, plan.b, plan.out, plan.out,
                                                                preference, 1, &result, &found);
  cublas().MatmulPreferenceDestroy(preference);
  plan.usable = status == CUBLAS_STATUS_SUCCESS && found > 0;
  plan.algorithm = result.algo;
  plan.workspace = result.workspaceSize;
  return plan;
}

int common_alignment(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 256;
  for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
  return static_cast<int>(bits & (~bits + 1));
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
  std::optional<Matrix> out = matrix(call.out, 2, 1, false);
  const bool swapped = out.has_value();
  if (!swapped) {
    if (call.bias) return false;
    out = matrix(call.out, 1, 2, false);
  }
  const TensorView& first = swapped ? call.b : call.a;
  const TensorView& second = swapped ? call.a : call.b;
  const auto a = swapped ? matrix(first, 2, 1, true) : matrix(first, 1, 2, true);
  const auto b = swapped ? matrix(second, 2, 1, true) : matrix(second, 1, 2, true);
  if (!out || !a || !b) return false;

  const int device = call.out.device.index();
  DeviceGuard guard(device);
  Key key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);  // its bytes are compared, padding included
  auto put = [](Matrix& to, const Matrix& from) {
    to.rows = from.rows, to.columns = from.columns, to.pitch = from.pitch, to.batch_stride = from.batch_stride;
    to.transposed = from.transposed;
  };
  put(key.a, *a);
  put(key.b, *b);
  put(key.out, *out);
  key.batch = call.out.sizes[0];
  key.inner = call.a.sizes[2];
  key.device = device;
  key.dtype = static_cast<int>(call.out.dtype) | static_cast<int>(call.a.dtype) << 8;
  key.bias = call.bias != nullptr;
  key.compute = static_cast<int>(t->compute);
  key.alignment = common_alignment({first.data, second.data, call.out.data});

  static std::mutex mutex;
  static auto* plans = new std::unordered_map<Key, Plan, KeyHash, KeyEqual>;
  const cublasLtHandle_t lt = handle(device);
  std::lock_guard lock(mutex);  // held over the call: the bias is part of the shared description
  auto found = plans->find(key);
  if (found == plans->end()) found = plans->emplace(key, make_plan(key, *t, lt)).first;
  const Plan& plan = found->second;
  if (!plan.usable) return false;
  if (call.bias)
    MICA_CUBLAS(cublas().MatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias,
                                                sizeof call.bias));
  const Factor alpha(call.alpha, t->scale), beta(call.beta, t->scale);
  const std::optional<Workspace> workspace =
      plan.workspace ? std::optional<Workspace>(std::in_place, plan.workspace, device) : std::nullopt;
  MICA_CUBLAS(cublas().Matmul(lt, plan.operation, alpha.bytes, first.data, plan.a, second.data, plan.b, beta.bytes,
                              call.out.data, plan.out, call.out.data, plan.out, &plan.algorithm,
                              workspace ? workspace->data() : nullptr, plan.workspace, current_stream(device)));
  return true;
}

}  // namespace mica::cuda
