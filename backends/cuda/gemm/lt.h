// What all products through cuBLASLt need: the library's functions, matrices as it sees them, and plans.
#pragma once

#include <cublasLt.h>

#include <cstring>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "mica/backend/tensor_view.h"
#include "mica/error.h"

namespace mica::cuda::lt {

#define MICA_FORALL_LT(X)         \
  X(Create)                       \
  X(GetStatusName)                \
  X(GetVersion)                   \
  X(Matmul)                       \
  X(MatmulAlgoCheck)              \
  X(MatmulAlgoConfigGetAttribute) \
  X(MatmulAlgoConfigSetAttribute) \
  X(MatmulAlgoGetHeuristic)       \
  X(MatmulAlgoInit)               \
  X(MatmulDescCreate)             \
  X(MatmulDescSetAttribute)       \
  X(MatmulPreferenceCreate)       \
  X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutSetAttribute)

// cuBLASLt's functions without their prefix.
struct Functions {
#define MICA_DECLARE(name) decltype(&cublasLt##name) name;
  MICA_FORALL_LT(MICA_DECLARE)
#undef MICA_DECLARE
};

const Functions& cublas();  // an error where the library cannot be opened
void check(cublasStatus_t status, const char* call);
#define MICA_CUBLAS(call) ::mica::cuda::lt::check(call, #call)

cublasLtHandle_t handle(int device);

// A matrix as cuBLASLt sees it: `rows` consecutive elements, `columns` of those `pitch` apart. All of it is part of a
// plan's key.
struct Matrix {
  int64_t rows, columns, pitch, batch_stride;
  bool transposed;  // relative to the column-major matrix that the product wants
};

// The last two dimensions of `t` as a column-major matrix of (rows, columns) = its dimensions (row_dim, column_dim), or
// as the transpose of one. Dimension 0 is the batch where there are three.
std::optional<Matrix> matrix(const TensorView& t, int row_dim, int column_dim, bool may_transpose);

// Copies the members: the padding of a key is zero, since its bytes are compared.
inline void put(Matrix& to, const Matrix& from) {
  to.rows = from.rows, to.columns = from.columns, to.pitch = from.pitch, to.batch_stride = from.batch_stride;
  to.transposed = from.transposed;
}

// Keys are plain structs of whole words whose bytes are compared.
template <class Key>
struct HashOfBytes {
  size_t operator()(const Key& k) const {
    static_assert(std::is_trivially_copyable_v<Key> && sizeof(Key) % 8 == 0);
    uint64_t words[sizeof(Key) / 8], h = 1469598103934665603ull;
    std::memcpy(words, &k, sizeof(Key));
    for (uint64_t w : words) h = (h ^ w) * 1099511628211ull;
    return h ^ h >> 32;
  }
};
template <class Key>
struct EqualBytes {
  bool operator()(const Key& x, const Key& y) const { return std::memcmp(&x, &y, sizeof(Key)) == 0; }
};

// Descriptors and the algorithm that the heuristic chose for them. Kept for the life of the process.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  // The matrix that beta multiplies: the result itself, or a matrix that is never there, of the type that the library
  // asks for.
  cublasLtMatrixLayout_t added = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
  bool usable = false;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    MICA_CUBLAS(cublas().MatmulDescSetAttribute(operation, attribute, &value, sizeof value));
  }
};

inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // that an algorithm may ask for

cublasLtMatrixLayout_t layout(const Matrix& m, cudaDataType_t type, int64_t batch);
// What the heuristic proposes for a plan that is otherwise complete, at most `count` algorithms, the best first.
std::vector<cublasLtMatmulHeuristicResult_t> algorithms(const Plan& plan, cublasLtHandle_t handle, int alignment,
                                                        int count);
// Asks the heuristic for the algorithm of a plan that is otherwise complete; usable says whether there is one.
void choose_algorithm(Plan& plan, cublasLtHandle_t handle, int alignment);
// The product on the current stream: alpha and beta are in the plan's type of factors.
void run(const Plan& plan, cublasLtHandle_t handle, const void* alpha, const void* a, const void* b, const void* beta,
         void* out, int device);

// The largest power of two, at most 256, that divides all addresses.
int common_alignment(std::initializer_list<const void*> pointers);

}  // namespace mica::cuda::lt
