// The derivatives of samples by the parameters of their distributions.
#include "backends/shared/implicit_gradients.h"

#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {
namespace {

template <class Body>
void for_each(const char* op, const TensorView& out, const Body& body) {
  const auto run = [&]<class T>(T) {
    parallel_for(0, out.numel, 256, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out.ptr<T>()[i] = static_cast<T>(body(T(), i));
    });
  };
  if (out.dtype == DType::Float32) return run(float());
  if (out.dtype == DType::Float64) return run(double());
  unsupported_dtype(op, out.dtype);
}

void standard_gamma_grad(const TensorView& out, const TensorView& alpha, const TensorView& sample) {
  for_each("_standard_gamma_grad_cpu", out,
           [&]<class T>(T, int64_t i) { return special::gamma_slope(alpha.ptr<T>()[i], sample.ptr<T>()[i]); });
}

void dirichlet_grad(const TensorView& out, const TensorView& share, const TensorView& alpha, const TensorView& total) {
  for_each("_dirichlet_grad_cpu", out, [&]<class T>(T, int64_t i) {
    const double a = alpha.ptr<T>()[i];
    return special::beta_slope(share.ptr<T>()[i], a, total.ptr<T>()[i] - a);
  });
}

MICA_REGISTER_CPU(standard_gamma_grad, standard_gamma_grad);
MICA_REGISTER_CPU(dirichlet_grad, dirichlet_grad);

}  // namespace
}  // namespace mica::cpu
