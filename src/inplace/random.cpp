// In-place sampling. Kernels fill dense memory in its own order; a tensor with gaps is filled through a dense stand-in.
#include "core/allocate.h"
#include "core/out.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/parallel.h"

namespace mica::inplace {

namespace {

using MaybeGenerator = std::optional<Generator>;

Generator chosen(const MaybeGenerator& g, const Tensor& t) { return g ? *g : default_generator(t.device()); }

void fill_dense(const char* op, const Tensor& self, FunctionRef<void(const Tensor& dense)> draw) {
  check_no_internal_overlap(op, self);
  if (self.is_meta()) return;
  if (self.is_non_overlapping_and_dense()) return draw(self);
  const Tensor dense = empty_dense_like(self, self.dtype(), self.device());
  draw(dense);
  self.copy_(dense);
}

}  // namespace

void uniform_(const Tensor& self, double from, double to, const MaybeGenerator& generator) {
  fill_dense("uniform_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_uniform)(t.view_of(), from, to, chosen(generator, t));
  });
}

void normal_(const Tensor& self, double mean, double std, const MaybeGenerator& generator) {
  MICA_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  fill_dense("normal_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_normal)(t.view_of(), mean, std, chosen(generator, t), self.is_contiguous());
  });
}

void exponential_(const Tensor& self, double lambd, const MaybeGenerator& generator) {
  fill_dense("exponential_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_exponential)(t.view_of(), lambd, chosen(generator, t));
  });
}

void cauchy_(const Tensor& self, double median, double sigma, const MaybeGenerator& generator) {
  fill_dense("cauchy_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_cauchy)(t.view_of(), median, sigma, chosen(generator, t));
  });
}

void log_normal_(const Tensor& self, double mean, double std, const MaybeGenerator& generator) {
  fill_dense("log_normal_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_log_normal)(t.view_of(), mean, std, chosen(generator, t));
  });
}

void geometric_(const Tensor& self, double p, const MaybeGenerator& generator) {
  fill_dense("geometric_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_geometric)(t.view_of(), p, chosen(generator, t));
  });
}

void bernoulli_(const Tensor& self, const Tensor& p, const MaybeGenerator& generator) {
  fill_dense("bernoulli_", self, [&](const Tensor& t) {
    // Probabilities laid out as the target is, so that both are read in one order.
    const Tensor aligned =
        empty_with_strides(t.sizes(), t.strides(), is_floating(p.dtype()) ? p.dtype() : DType::Float32, t.device());
    aligned.copy_(p.expand(t.sizes()));
    MICA_KERNEL(t.device(), random_bernoulli_each)(t.view_of(), aligned.view_of(), chosen(generator, t));
  });
}

void bernoulli_(const Tensor& self, double p, const MaybeGenerator& generator) {
  MICA_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  fill_dense("bernoulli_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_bernoulli)(t.view_of(), p, chosen(generator, t));
  });
}

void random_(const Tensor& self, int64_t from, std::optional<int64_t> to, const MaybeGenerator& generator) {
  MICA_CHECK(!to || from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
             " >= to=", to.value_or(0));
  fill_dense("random_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_integers)(t.view_of(), from, to, chosen(generator, t));
  });
}

void random_to(const Tensor& self, int64_t to, const MaybeGenerator& generator) {
  inplace::random_(self, 0, to, generator);
}

void random_full(const Tensor& self, const MaybeGenerator& generator) {
  fill_dense("random_", self, [&](const Tensor& t) {
    MICA_KERNEL(t.device(), random_integers)(t.view_of(), std::nullopt, std::nullopt, chosen(generator, t));
  });
}

}  // namespace mica::inplace
