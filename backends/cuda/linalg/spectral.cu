// Eigenvalues and singular values, by cuSOLVER where small_spectral.cu does not suit; those of a few small matrices,
// and eigenvalues of small general ones, on the host.
#include "backends/cuda/linalg/kernels.h"
#include "backends/cuda/linalg/library_calls.cuh"
#include "backends/cuda/linalg/on_host.h"
#include "backends/cuda/linalg/team.cuh"

namespace mica::cuda {

using namespace linalg;  // NOLINT

namespace {

int checked_int(int64_t n) {
  MICA_CHECK(n <= 2147483647, "linear algebra on CUDA takes matrices of up to 2147483647 rows, but got ", n);
  return static_cast<int>(n);
}

// A matrix with an element that is not finite gets the information `code`, whatever was found. Such elements become
// zero beforehand, since iterations over them may not end.
template <class T>
struct FlagInfinite {
  T* data;
  int64_t size;
  int* flags;
  __device__ void operator()(int64_t e) const {
    if (is_finite(data[e])) return;
    data[e] = T(0);
    flags[e / size] = 1;
  }
};
struct PutCodes {
  int* info;
  const int* flags;
  int code;
  __device__ void operator()(int64_t i) const {
    if (flags[i]) info[i] = code;
  }
};
template <class T>
class InfiniteFlags {
 public:
  InfiniteFlags(const Matrices<T>& all, int device)
      : flags_(static_cast<size_t>(all.count) * sizeof(int), device), count_(all.count), device_(device) {
    MICA_CUDA(cudaMemsetAsync(flags_.data(), 0, static_cast<size_t>(all.count) * sizeof(int), current_stream(device)));
    const int64_t size = all.rows * all.columns;
    for_each(device, all.count * size, FlagInfinite<T>{all.data, size, static_cast<int*>(flags_.data())});
  }
  void put(int* info, int code) const {
    for_each(device_, count_, PutCodes{info, static_cast<const int*>(flags_.data()), code});
  }

 private:
  Workspace flags_;
  int64_t count_;
  int device_;
};

// The first `columns` columns of matrices of `rows` rows and `all` columns.
template <class T>
struct FirstColumns {
  T* to;
  const T* from;
  int64_t rows, columns, all;
  __device__ void operator()(int64_t e) const {
    const int64_t size = rows * columns;
    to[e] = from[e / size * rows * all + e % size];
  }
};
// The same, conjugated and transposed: `columns` rows of `rows` elements.
template <class T>
struct AdjointColumns {
  T* to;
  const T* from;
  int64_t rows, columns, all;
  __device__ void operator()(int64_t e) const {
    const int64_t size = rows * columns, i = e / size, row = e % columns, column = e / columns % rows;
    to[e] = conj_of(from[i * rows * all + row * rows + column]);
  }
};

// Real vectors as LAPACK packs them: a pair of conjugate eigenvalues has its vector's real and imaginary parts in two
// columns.
template <class R>
struct UnpackVectors {
  Complex<R>* to;
  const R* from;
  const Complex<R>* values;
  int64_t n;
  __device__ void operator()(int64_t e) const {
    const int64_t row = e % n, column = e / n;
    const R imaginary = values[column].imag();
    if (imaginary == 0) {
      to[e] = from[e];
      return;
    }
    const bool first = imaginary > 0;
    const int64_t real = first ? column : column - 1;
    const R part = from[(real + 1) * n + row];
    to[e] = Complex<R>(from[real * n + row], first ? part : -part);
  }
};

// Whether there are few small matrices: the host is done with them before a kernel's iterations have begun, and the
// results are waited for in any case. `most` is the number of rows of all matrices together that counts as few.
bool suits_host(const TensorView& a, int64_t most) {
  const int64_t m = a.sizes[a.ndim - 2], n = a.sizes[a.ndim - 1];
  return a.numel * std::min(m, n) <= 64 * 64 * 64 && a.numel / std::min(m, n) <= most;
}

constexpr int64_t kLargestHostEig = 192;  // up to here the host's iteration is the faster one
constexpr int64_t kMostHostRows = 127;    // for eigenvalues of Hermitian matrices
constexpr int kLargestJacobiBatch = 32;   // cuSOLVER's limit
constexpr int64_t kMostMatrices = 1 << 16;

}  // namespace

void linalg_eigh(const TensorView& a, const TensorView& eigenvalues, const TensorView& info, bool upper, bool vectors) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  if (suits_small_eigh(a)) return small_eigh(a, eigenvalues, info, upper, vectors);
  if (suits_host(a, kMostHostRows) || !cusolver::available()) {
    const HostCopies host({&a, &eigenvalues, &info});
    MICA_LAYER_KERNEL(kCPU, linalg_eigh)(host[0], host[1], host[2], upper, vectors);
    return host.copy_back({0, 1, 2});
  }
  visit_matrix("linalg_eigh_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int n = checked_int(all.rows);
    const InfiniteFlags<T> infinite(all, device);
    auto* const values = eigenvalues.ptr<real_t<T>>();
    {
      const cusolver::Api& api = cusolver::api();
      const cusolver::Session session(device);
      const cusolver::Type type = cusolver::type_of(a.dtype), real = real_type(type);
      const auto job = vectors ? cusolver::kWithVectors : cusolver::kNoVectors;
      const auto triangle = upper ? cusolver::kUpper : cusolver::kLower;
      size_t on_device = 0, on_host = 0;
      if (all.count > 1 && api.eigh_batch) {
        for (int64_t begin = 0; begin < all.count; begin += kMostMatrices) {
          const int64_t count = std::min(kMostMatrices, all.count - begin);
          MICA_CUSOLVER(api.eigh_batch_size(session.solver, session.parameters, job, triangle, n, type, all[begin], n,
                                            real, values + begin * n, type, &on_device, &on_host, count));
          const Workspaces work(on_device, on_host, device);
          MICA_CUSOLVER(api.eigh_batch(session.solver, session.parameters, job, triangle, n, type, all[begin], n, real,
                                       values + begin * n, type, work.device(), on_device, work.host(), on_host,
                                       info.ptr<int>() + begin, count));
        }
      } else {
        MICA_CUSOLVER(api.eigh_size(session.solver, session.parameters, job, triangle, n, type, all.data, n, real,
                                    values, type, &on_device, &on_host));
        const Workspaces work(on_device, on_host, device);
        for (int64_t i = 0; i < all.count; ++i)
          MICA_CUSOLVER(api.eigh(session.solver, session.parameters, job, triangle, n, type, all[i], n, real,
                                 values + i * n, type, work.device(), on_device, work.host(), on_host,
                                 info.ptr<int>() + i));
      }
    }
    infinite.put(info.ptr<int>(), std::max(1, n - 1));
  });
}

void linalg_svd(const TensorView& a, const TensorView& u, const TensorView& s, const TensorView& vh,
                const TensorView& info, int64_t vectors) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  if (suits_small_svd(a)) return small_svd(a, u, s, vh, info, vectors);
  if (suits_host(a, std::max(a.sizes[a.ndim - 2], a.sizes[a.ndim - 1])) || !cusolver::available()) {
    const HostCopies host({&a, &u, &s, &vh, &info});
    MICA_LAYER_KERNEL(kCPU, linalg_svd)(host[0], host[1], host[2], host[3], host[4], vectors);
    host.copy_back({2, 4});
    if (vectors) host.copy_back({1, 3});
    return;
  }
  visit_matrix("linalg_svd_cuda", a.dtype, [&]<class T>(Tag<T>) {
    using R = real_t<T>;
    const Matrices<T> all(a);
    const int m = checked_int(all.rows), n = checked_int(all.columns), k = std::min(m, n);
    const InfiniteFlags<T> infinite(all, device);
    const auto job = vectors ? cusolver::kWithVectors : cusolver::kNoVectors;
    const int place = cusolver::place_of(a.dtype);
    const bool batch = m <= kLargestJacobiBatch && n <= kLargestJacobiBatch;
    // Batches have all vectors, others as many as there are singular values unless all are asked for.
    const int u_columns = batch || vectors == 2 ? m : k, v_columns = batch || vectors == 2 ? n : k;
    {
      const cusolver::Api& api = cusolver::api();
      const cusolver::Session session(device);
      // Without vectors the library still wants room that it may write to.
      const int64_t at_once = batch ? std::min(all.count, kMostMatrices) : 1;
      const Workspace left(static_cast<size_t>(at_once * m * u_columns) * sizeof(T), device),
          right(static_cast<size_t>(at_once * n * v_columns) * sizeof(T), device);
      auto *const lefts = static_cast<T*>(left.data()), *const rights = static_cast<T*>(right.data());
      int length = 0;
      if (batch) {
        MICA_CUSOLVER(api.svd_batch_size.of[place](session.solver, job, m, n, all.data, m, s.data, lefts, m, rights, n,
                                                   &length, session.jacobi, static_cast<int>(at_once)));
      } else {
        MICA_CUSOLVER(api.svd_size.of[place](session.solver, job, vectors != 2, m, n, all.data, m, s.data, lefts, m,
                                             rights, n, &length, session.jacobi));
      }
      const Workspace work(static_cast<size_t>(std::max(length, 1)) * sizeof(T), device);
      for (int64_t begin = 0; begin < all.count; begin += at_once) {
        const int64_t count = std::min(at_once, all.count - begin);
        R* const values = s.ptr<R>() + begin * k;
        if (batch) {
          MICA_CUSOLVER(api.svd_batch.of[place](session.solver, job, m, n, all[begin], m, values, lefts, m, rights, n,
                                                work.data(), length, info.ptr<int>() + begin, session.jacobi,
                                                static_cast<int>(count)));
        } else {
          MICA_CUSOLVER(api.svd.of[place](session.solver, job, vectors != 2, m, n, all[begin], m, values, lefts, m,
                                          rights, n, work.data(), length, info.ptr<int>() + begin, session.jacobi));
        }
        if (!vectors) continue;
        const int64_t kept_u = vectors == 2 ? m : k, kept_v = vectors == 2 ? n : k;
        for_each(device, count * m * kept_u,
                 FirstColumns<T>{u.ptr<T>() + begin * m * kept_u, lefts, m, kept_u, u_columns});
        for_each(device, count * n * kept_v,
                 AdjointColumns<T>{vh.ptr<T>() + begin * n * kept_v, rights, n, kept_v, v_columns});
      }
    }
    infinite.put(info.ptr<int>(), -4);
  });
}

void linalg_eig(const TensorView& a, const TensorView& eigenvalues, const TensorView& eigenvectors,
                const TensorView& info, bool vectors) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  const int64_t n = a.sizes[a.ndim - 1];
  if (n <= kLargestHostEig || !cusolver::available() || !cusolver::api().eig) {
    const HostCopies host({&a, &eigenvalues, &eigenvectors, &info});
    MICA_LAYER_KERNEL(kCPU, linalg_eig)(host[0], host[1], host[2], host[3], vectors);
    host.copy_back({1, 3});
    if (vectors) host.copy_back({2});
    return;
  }
  visit_matrix("linalg_eig_cuda", a.dtype, [&]<class T>(Tag<T>) {
    using C = std::conditional_t<is_complex_v<T>, T, Complex<real_t<T>>>;
    const Matrices<T> all(a);
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const cusolver::Type type = cusolver::type_of(a.dtype), complex = cusolver::type_of(eigenvalues.dtype);
    const auto job = vectors ? cusolver::kWithVectors : cusolver::kNoVectors;
    const Workspace packed(vectors ? static_cast<size_t>(n * n) * sizeof(T) : 16, device);
    size_t on_device = 0, on_host = 0;
    MICA_CUSOLVER(api.eig_size(session.solver, session.parameters, cusolver::kNoVectors, job, n, type, all.data, n,
                               complex, eigenvalues.data, type, nullptr, n, type, packed.data(), n, type, &on_device,
                               &on_host));
    const Workspaces work(on_device, on_host, device);
    for (int64_t i = 0; i < all.count; ++i) {
      C* const values = eigenvalues.ptr<C>() + i * n;
      MICA_CUSOLVER(api.eig(session.solver, session.parameters, cusolver::kNoVectors, job, n, type, all[i], n, complex,
                            values, type, nullptr, n, type, packed.data(), n, type, work.device(), on_device,
                            work.host(), on_host, info.ptr<int>() + i));
      if (!vectors) continue;
      C* const to = eigenvectors.ptr<C>() + i * n * n;
      if constexpr (is_complex_v<T>) {
        MICA_CUDA(cudaMemcpyAsync(to, packed.data(), static_cast<size_t>(n * n) * sizeof(T), cudaMemcpyDeviceToDevice,
                                  current_stream(device)));
      } else {
        for_each(device, n * n, UnpackVectors<T>{to, static_cast<const T*>(packed.data()), values, n});
      }
    }
  });
}

}  // namespace mica::cuda
