// Decompositions into an orthogonal and a triangular factor, and least squares, which rest on them: by teams of threads
// where matrices are small or many, else by cuSOLVER.
#include "backends/cuda/linalg/algorithms.cuh"
#include "backends/cuda/linalg/kernels.h"
#include "backends/cuda/linalg/library_calls.cuh"
#include "backends/cuda/linalg/on_host.h"

namespace mica::cuda {

using namespace linalg;  // NOLINT

namespace {

template <class T>
struct QrBody {
  T *data, *taus;
  int m, n, steps;
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t i) const {
    T *const a = reinterpret_cast<T*>(memory), *const out = data + i * m * n;
    for (int e = team.rank; e < m * n; e += team.size) a[e] = out[e];
    team.sync();
    qr(team, a, m, n, m, taus + i * steps);
    for (int e = team.rank; e < m * n; e += team.size) out[e] = a[e];
  }
};

template <class T>
struct ProductBody {
  T* data;
  const T* taus;
  int m, n, k;
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t i) const {
    T *const a = reinterpret_cast<T*>(memory), *const out = data + i * m * n;
    for (int e = team.rank; e < m * k; e += team.size) a[e] = out[e];
    team.sync();
    reflections_product(team, a, m, n, k, m, taus + i * k);
    for (int e = team.rank; e < m * n; e += team.size) out[e] = a[e];
  }
};

template <class T>
struct ApplyBody {
  const T *vectors, *taus;
  T* data;
  int k, lead, m, n;
  int64_t vector_step;
  bool left, adjoint;
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t i) const {
    T *const c = reinterpret_cast<T*>(memory), *const out = data + i * m * n;
    for (int e = team.rank; e < m * n; e += team.size) c[e] = out[e];
    team.sync();
    apply_reflections(team, vectors + i * vector_step, k, lead, taus + i * k, c, m, n, m, left, adjoint);
    for (int e = team.rank; e < m * n; e += team.size) out[e] = c[e];
  }
};

// The conjugate transposes of matrices of m rows and n columns.
template <class T>
struct Adjoint {
  T* to;
  const T* from;
  int64_t m, n;
  __device__ void operator()(int64_t e) const {
    const int64_t i = e / (m * n), row = e % n, column = e / n % m;  // of the result
    to[e] = conj_of(from[i * m * n + row * m + column]);
  }
};

int checked_int(int64_t n) {
  MICA_CHECK(n <= 2147483647, "linear algebra on CUDA takes matrices of up to 2147483647 rows, but got ", n);
  return static_cast<int>(n);
}

}  // namespace

void linalg_geqrf(const TensorView& a, const TensorView& tau) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  visit_matrix("geqrf_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int m = checked_int(all.rows), n = checked_int(all.columns), steps = std::min(m, n);
    if (suits_teams(device, all.side(), all.bytes(), all.count))
      return each_matrix(device, all.count, all.side(), all.bytes(), QrBody<T>{all.data, tau.ptr<T>(), m, n, steps});
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const cusolver::Type type = cusolver::type_of(a.dtype);
    size_t on_device = 0, on_host = 0;
    MICA_CUSOLVER(api.qr_size(session.solver, session.parameters, m, n, type, all.data, m, type, tau.data, type,
                              &on_device, &on_host));
    const Workspaces work(on_device, on_host, device);
    const Workspace code(sizeof(int), device);
    for (int64_t i = 0; i < all.count; ++i)
      MICA_CUSOLVER(api.qr(session.solver, session.parameters, m, n, type, all[i], m, type, tau.ptr<T>() + i * steps,
                           type, work.device(), on_device, work.host(), on_host, static_cast<int*>(code.data())));
  });
}

void linalg_orgqr(const TensorView& a, const TensorView& tau) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  visit_matrix("orgqr_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int m = checked_int(all.rows), n = checked_int(all.columns), k = checked_int(tau.sizes[tau.ndim - 1]);
    if (suits_teams(device, all.side(), all.bytes(), all.count))
      return each_matrix(device, all.count, all.side(), all.bytes(),
                         ProductBody<T>{all.data, tau.ptr<const T>(), m, n, k});
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const int place = cusolver::place_of(a.dtype);
    int length = 0;
    MICA_CUSOLVER(api.orgqr_size.of[place](session.solver, m, n, k, all.data, m, tau.data, &length));
    const Workspace work(static_cast<size_t>(std::max(length, 1)) * sizeof(T), device), code(sizeof(int), device);
    for (int64_t i = 0; i < all.count; ++i)
      MICA_CUSOLVER(api.orgqr.of[place](session.solver, m, n, k, all[i], m, tau.ptr<const T>() + i * k, work.data(),
                                        length, static_cast<int*>(code.data())));
  });
}

void linalg_ormqr(const TensorView& a, const TensorView& tau, const TensorView& c, bool left, bool transpose) {
  const int device = c.device.index();
  DeviceGuard guard(device);
  visit_matrix("ormqr_cuda", c.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> vectors(a), products(c);
    const int m = checked_int(products.rows), n = checked_int(products.columns), lead = checked_int(vectors.rows),
              k = checked_int(tau.sizes[tau.ndim - 1]);
    const int64_t step = vectors.rows * vectors.columns;
    if (suits_teams(device, products.side(), products.bytes(), products.count))
      return each_matrix(
          device, products.count, products.side(), products.bytes(),
          ApplyBody<T>{vectors.data, tau.ptr<const T>(), products.data, k, lead, m, n, step, left, transpose});
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const int place = cusolver::place_of(c.dtype);
    const auto side = left ? cusolver::kLeft : cusolver::kRight;
    const auto form = !transpose ? cusolver::kPlain : is_complex_v<T> ? cusolver::kAdjoint : cusolver::kTransposed;
    int length = 0;
    MICA_CUSOLVER(api.ormqr_size.of[place](session.solver, side, form, m, n, k, vectors.data, lead, tau.data,
                                           products.data, m, &length));
    const Workspace work(static_cast<size_t>(std::max(length, 1)) * sizeof(T), device), code(sizeof(int), device);
    for (int64_t i = 0; i < products.count; ++i)
      MICA_CUSOLVER(api.ormqr.of[place](session.solver, side, form, m, n, k, vectors[i], lead,
                                        tau.ptr<const T>() + i * k, products[i], m, work.data(), length,
                                        static_cast<int*>(code.data())));
  });
}

// Of full rank (gels) by reflections here; the drivers that find the rank run on the host.
void linalg_lstsq(const TensorView& a, const TensorView& b, const TensorView& rank, const TensorView& singular_values,
                  const TensorView& info, double rcond, int64_t driver) {
  const int device = b.device.index();
  DeviceGuard guard(device);
  if (driver != 0) {
    const HostCopies host({&a, &b, &rank, &singular_values, &info});
    MICA_LAYER_KERNEL(kCPU, linalg_lstsq)(host[0], host[1], host[2], host[3], host[4], rcond, driver);
    return host.copy_back({1, 2, 3, 4});
  }
  visit_matrix("torch.linalg.lstsq", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a), sides(b);
    const int64_t m = all.rows, n = all.columns, k = std::min(m, n);
    const Workspace taus(static_cast<size_t>(all.count * k) * sizeof(T), device);
    const int64_t tau_sizes[] = {all.count, k}, tau_strides[] = {k, 1};
    TensorView tau = a;
    tau.data = taus.data();
    tau.sizes = tau_sizes;
    tau.strides = tau_strides;
    tau.ndim = 2;
    tau.numel = all.count * k;
    const auto solve = [&](const TensorView& triangle, int64_t lead, int64_t step, int64_t form) {
      linalg::solve_triangular(triangle, k, lead, step, b, sides.rows, sides.rows, sides.rows * sides.columns, true,
                               true, form, false);
    };
    if (m >= n) {
      linalg_geqrf(a, tau);
      linalg::zero_on_diagonal(a, k, info);
      linalg_ormqr(a, tau, b, true, true);
      return solve(a, m, m * n, cusolver::kPlain);
    }
    // a^H = Q R: the shortest solution is Q (R^H)^-1 b.
    const Workspace turned(static_cast<size_t>(a.numel) * sizeof(T), device);
    for_each(device, a.numel, Adjoint<T>{static_cast<T*>(turned.data()), all.data, m, n});
    const int64_t sizes[] = {all.count, n, m}, strides[] = {m * n, 1, n};
    TensorView adjoint = a;
    adjoint.data = turned.data();
    adjoint.sizes = sizes;
    adjoint.strides = strides;
    adjoint.ndim = 3;
    linalg_geqrf(adjoint, tau);
    linalg::zero_on_diagonal(adjoint, k, info);
    solve(adjoint, n, m * n, is_complex_v<T> ? cusolver::kAdjoint : cusolver::kTransposed);
    linalg_ormqr(adjoint, tau, b, true, false);
  });
}

}  // namespace mica::cuda
