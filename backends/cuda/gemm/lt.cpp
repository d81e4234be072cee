#include "backends/cuda/gemm/lt.h"

#include <mutex>
#include <unordered_map>

#include "backends/cuda/library.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda::lt {

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

cublasLtHandle_t handle(int device) {
  static std::mutex mutex;
  static auto* handles = new std::unordered_map<int, cublasLtHandle_t>;
  std::lock_guard lock(mutex);
  cublasLtHandle_t& h = (*handles)[device];
  if (!h) MICA_CUBLAS(cublas().Create(&h));
  return h;
}

std::optional<Matrix> matrix(const TensorView& t, int row_dim, int column_dim, bool may_transpose) {
  const int64_t rows = t.sizes[row_dim], columns = t.sizes[column_dim];
  const int64_t row_stride = t.strides[row_dim], column_stride = t.strides[column_dim];
  const int64_t batch_stride = t.ndim == 3 && t.sizes[0] > 1 ? t.strides[0] : 0;
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

std::vector<cublasLtMatmulHeuristicResult_t> algorithms(const Plan& plan, cublasLtHandle_t handle, int alignment,
                                                        int count) {
  cublasLtMatmulPreference_t preference;
  MICA_CUBLAS(cublas().MatmulPreferenceCreate(&preference));
  MICA_CUBLAS(cublas().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &kWorkspaceBytes, sizeof(size_t)));
  const auto bytes = static_cast<uint32_t>(alignment);
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    MICA_CUBLAS(cublas().MatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof bytes));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublas().MatmulAlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.added,
                                                                plan.out, preference, count, results.data(), &found);
  cublas().MatmulPreferenceDestroy(preference);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
  return results;
}

void choose_algorithm(Plan& plan, cublasLtHandle_t handle, int alignment) {
  const auto found = algorithms(plan, handle, alignment, 1);
  plan.usable = !found.empty();
  if (!plan.usable) return;
  plan.algorithm = found[0].algo;
  plan.workspace = found[0].workspaceSize;
}

void run(const Plan& plan, cublasLtHandle_t handle, const void* alpha, const void* a, const void* b, const void* beta,
         void* out, int device) {
  const std::optional<Workspace> workspace =
      plan.workspace ? std::optional<Workspace>(std::in_place, plan.workspace, device) : std::nullopt;
  const void* added = plan.added == plan.out ? out : nullptr;
  MICA_CUBLAS(cublas().Matmul(handle, plan.operation, alpha, a, plan.a, b, plan.b, beta, added, plan.added, out,
                              plan.out, &plan.algorithm, workspace ? workspace->data() : nullptr, plan.workspace,
                              current_stream(device)));
}

int common_alignment(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 256;
  for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
  return static_cast<int>(bits & (~bits + 1));
}

}  // namespace mica::cuda::lt
