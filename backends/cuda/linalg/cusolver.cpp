#include "backends/cuda/linalg/cusolver.h"

#include <string>
#include <unordered_map>

#include "backends/cuda/library.h"
#include "backends/cuda/runtime.h"
#include "mica/error.h"

namespace mica::cuda::cusolver {

namespace {

struct Libraries {
  void *solver, *blas;
};

const Libraries& libraries() {
  static const Libraries opened = [] {
    static constexpr const char* kBlas[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", nullptr};
    static constexpr const char* kSolver[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so", nullptr};
    void* const blas = open_library(kBlas);  // first, since cuSOLVER needs it
    return Libraries{blas ? open_library(kSolver) : nullptr, blas};
  }();
  return opened;
}

template <class F>
void load_types(void* library, OfTypes<F>& functions, const std::string& before, const char* real,
                const char* complex = nullptr) {
  static constexpr const char* kLetters[] = {"S", "D", "C", "Z"};
  for (int k = 0; k < 4; ++k)
    functions.of[k] =
        reinterpret_cast<F*>(symbol(library, (before + kLetters[k] + (k >= 2 && complex ? complex : real)).c_str()));
}

}  // namespace

bool available() { return libraries().solver != nullptr; }

const Api& api() {
  static const Api loaded = [] {
    MICA_CHECK_KIND(available(), NotImplemented,
                    "this decomposition on CUDA needs cuSOLVER, and libcusolver.so.12 could not be opened: install the "
                    "CUDA toolkit or the package nvidia-cusolver, or name the folder of the library in "
                    "MICA_CUDA_LIBRARIES");
    Api a{};
    const auto [solver, blas] = libraries();
    auto load = [solver = solver]<class F>(F& function, const char* name) {
      function = reinterpret_cast<F>(symbol(solver, name));
    };
    auto load_newer = [solver = solver]<class F>(F& function, const char* name) {
      function = reinterpret_cast<F>(find_symbol(solver, name));
    };
    load(a.create, "cusolverDnCreate");
    load(a.set_stream, "cusolverDnSetStream");
    load(a.create_parameters, "cusolverDnCreateParams");
    load(a.create_jacobi, "cusolverDnCreateGesvdjInfo");
    load(a.cholesky_size, "cusolverDnXpotrf_bufferSize");
    load(a.cholesky, "cusolverDnXpotrf");
    load(a.qr_size, "cusolverDnXgeqrf_bufferSize");
    load(a.qr, "cusolverDnXgeqrf");
    load(a.eigh_size, "cusolverDnXsyevd_bufferSize");
    load(a.eigh, "cusolverDnXsyevd");
    load_newer(a.eigh_batch_size, "cusolverDnXsyevBatched_bufferSize");
    load_newer(a.eigh_batch, "cusolverDnXsyevBatched");
    load_newer(a.eig_size, "cusolverDnXgeev_bufferSize");
    load_newer(a.eig, "cusolverDnXgeev");
    load_types(solver, a.lu_size, "cusolverDn", "getrf_bufferSize");
    load_types(solver, a.lu, "cusolverDn", "getrf");
    load_types(solver, a.lu_solve, "cusolverDn", "getrs");
    load_types(solver, a.orgqr_size, "cusolverDn", "orgqr_bufferSize", "ungqr_bufferSize");
    load_types(solver, a.orgqr, "cusolverDn", "orgqr", "ungqr");
    load_types(solver, a.ormqr_size, "cusolverDn", "ormqr_bufferSize", "unmqr_bufferSize");
    load_types(solver, a.ormqr, "cusolverDn", "ormqr", "unmqr");
    load_types(solver, a.svd_size, "cusolverDn", "gesvdj_bufferSize");
    load_types(solver, a.svd, "cusolverDn", "gesvdj");
    load_types(solver, a.svd_batch_size, "cusolverDn", "gesvdjBatched_bufferSize");
    load_types(solver, a.svd_batch, "cusolverDn", "gesvdjBatched");
    a.create_blas = reinterpret_cast<decltype(a.create_blas)>(symbol(blas, "cublasCreate_v2"));
    a.set_blas_stream = reinterpret_cast<decltype(a.set_blas_stream)>(symbol(blas, "cublasSetStream_v2"));
    load_types(blas, a.triangular_solve, "cublas", "trsm_v2");
    return a;
  }();
  return loaded;
}

void check(int status, const char* call) {
  MICA_CHECK(status == 0, "cuSOLVER: ", call, " failed with status ", status);
}

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return CUDA_R_32F;
    case DType::Float64:
      return CUDA_R_64F;
    case DType::Complex64:
      return CUDA_C_32F;
    default:
      return CUDA_C_64F;
  }
}

int place_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return 0;
    case DType::Float64:
      return 1;
    case DType::Complex64:
      return 2;
    default:
      return 3;
  }
}

Session::Session(int device) {
  struct Handles {
    Handle solver = nullptr, blas = nullptr;
    Parameters parameters = nullptr;
    void* jacobi = nullptr;
  };
  static auto* mutex = new std::mutex;
  static auto* all = new std::unordered_map<int, Handles>;  // live as long as the process
  const Api& a = api();
  lock_ = std::unique_lock(*mutex);
  Handles& mine = (*all)[device];
  if (!mine.jacobi) {
    MICA_CUSOLVER(a.create(&mine.solver));
    MICA_CUSOLVER(a.create_blas(&mine.blas));
    MICA_CUSOLVER(a.create_parameters(&mine.parameters));
    MICA_CUSOLVER(a.create_jacobi(&mine.jacobi));
  }
  MICA_CUSOLVER(a.set_stream(mine.solver, current_stream(device)));
  MICA_CUSOLVER(a.set_blas_stream(mine.blas, current_stream(device)));
  solver = mine.solver;
  blas = mine.blas;
  parameters = mine.parameters;
  jacobi = mine.jacobi;
}

}  // namespace mica::cuda::cusolver
