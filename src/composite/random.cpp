// Factories of random tensors and sampling from given distributions.
#include "core/allocate.h"
#include "core/default_device.h"
#include "core/entry.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/autograd.h"
#include "mica/ops.h"
#include "mica/values.h"

namespace mica::composite {

namespace {

using MaybeGenerator = std::optional<Generator>;

Generator chosen(const MaybeGenerator& g, const Tensor& t) { return g ? *g : default_generator(t.device()); }

TensorOptions without_grad(const TensorOptions& o) { return o.requires_grad(false).pinned_memory(false); }

TensorOptions integral(TensorOptions o) {
  if (!o.has_dtype()) o = o.dtype(DType::Int64);
  return without_grad(o);
}

Tensor finished(const Tensor& t, const TensorOptions& o) {
  if (t.storage()) t.storage()->set_version(0);  // filling a new tensor does not count as a change
  return made_with(t, o);
}

}  // namespace

Tensor rand(IntArrayRef size, const MaybeGenerator& generator, const TensorOptions& options) {
  return finished(mica::empty(size, without_grad(options)).uniform_(0, 1, generator), options);
}
void rand_out(const Tensor& out, IntArrayRef size, const MaybeGenerator& generator) {
  if (out.sizes() == size) {
    out.uniform_(0, 1, generator);
  } else {
    entry::write_new(out, composite::rand(size, generator, out.options()));
  }
}
Tensor rand_like(const Tensor& self, const MaybeGenerator& generator, const TensorOptions& options,
                 std::optional<MemoryFormat> memory_format) {
  return finished(mica::empty_like(self, without_grad(options), memory_format).uniform_(0, 1, generator), options);
}
Tensor randn(IntArrayRef size, const MaybeGenerator& generator, const TensorOptions& options) {
  return finished(mica::empty(size, without_grad(options)).normal_(0, 1, generator), options);
}
void randn_out(const Tensor& out, IntArrayRef size, const MaybeGenerator& generator) {
  if (out.sizes() == size) {
    out.normal_(0, 1, generator);
  } else {
    entry::write_new(out, composite::randn(size, generator, out.options()));
  }
}
Tensor randn_like(const Tensor& self, const MaybeGenerator& generator, const TensorOptions& options,
                  std::optional<MemoryFormat> memory_format) {
  return finished(mica::empty_like(self, without_grad(options), memory_format).normal_(0, 1, generator), options);
}

Tensor randint(int64_t low, int64_t high, IntArrayRef size, const MaybeGenerator& generator,
               const TensorOptions& options) {
  MICA_CHECK(low < high, "random_ expects 'from' to be less than 'to', but got from=", low, " >= to=", high);
  return finished(mica::empty(size, integral(options)).random_(low, high, generator), options);
}
Tensor randint(int64_t high, IntArrayRef size, const MaybeGenerator& generator, const TensorOptions& options) {
  return composite::randint(0, high, size, generator, options);
}
Tensor randint_like(const Tensor& self, int64_t low, int64_t high, const MaybeGenerator& generator,
                    const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  return finished(mica::empty_like(self, without_grad(options), memory_format).random_(low, high, generator), options);
}
Tensor randint_like(const Tensor& self, int64_t high, const MaybeGenerator& generator, const TensorOptions& options,
                    std::optional<MemoryFormat> memory_format) {
  return composite::randint_like(self, 0, high, generator, options, memory_format);
}

Tensor randperm(int64_t n, const MaybeGenerator& generator, const TensorOptions& options) {
  MICA_CHECK(n >= 0, "n must be non-negative, got", n);
  const Tensor t = mica::empty(n, integral(options));
  if (!t.is_meta()) MICA_KERNEL(t.device(), random_permutation)(t.view_of(), chosen(generator, t));
  return finished(t, options);
}

static void check_deviations(const Tensor& std) {
  MICA_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  MICA_CHECK(std.numel() == 0 || std.is_meta() || std.min().item().to_double() >= 0,
             "normal expects all elements of std >= 0.0");
}

Tensor normal(const Tensor& mean, double std, const MaybeGenerator& generator) {
  MICA_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  NoGradGuard below;
  return mica::empty_like(mean, {}, MemoryFormat::Contiguous).normal_(0, std, generator).add_(mean);
}
Tensor normal(double mean, const Tensor& std, const MaybeGenerator& generator) {
  NoGradGuard below;
  check_deviations(std);
  return mica::empty_like(std, {}, MemoryFormat::Contiguous).normal_(0, 1, generator).mul_(std).add_(mean);
}
Tensor normal(const Tensor& mean, const Tensor& std, const MaybeGenerator& generator) {
  NoGradGuard below;
  check_deviations(std);
  const DimVector shape = broadcast_sizes(mean.sizes(), std.sizes());
  return mica::empty(shape, mean.options()).normal_(0, 1, generator).mul_(std).add_(mean);
}
Tensor normal(double mean, double std, IntArrayRef size, const MaybeGenerator& generator,
              const TensorOptions& options) {
  const TensorOptions placed = options.device(options.device_opt().value_or(tensor_type_device()));
  return finished(mica::empty(size, without_grad(placed)).normal_(mean, std, generator), placed);
}

Tensor bernoulli(const Tensor& self, const MaybeGenerator& generator) {
  NoGradGuard below;
  return mica::empty_like(self, {}, MemoryFormat::Contiguous).bernoulli_(self, generator);
}
Tensor bernoulli(const Tensor& self, double p, const MaybeGenerator& generator) {
  NoGradGuard below;
  return mica::empty_like(self, {}, MemoryFormat::Contiguous).bernoulli_(p, generator);
}

Tensor multinomial(const Tensor& self, int64_t num_samples, bool replacement, const MaybeGenerator& generator) {
  MICA_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim, but it has the shape ", self.sizes());
  MICA_CHECK(is_floating(self.dtype()),
             "multinomial only supports floating-point dtypes for input, got: ", info(self.dtype()).legacy);
  MICA_CHECK(num_samples > 0, "cannot sample n_sample <= 0 samples, but got ", num_samples);
  MICA_CHECK(replacement || num_samples <= self.size(-1),
             "cannot sample n_sample > prob_dist.size(-1) samples without replacement: ", num_samples,
             " were asked for, and there are ", self.size(-1), ". replacement=True draws some more than once");
  MICA_CHECK(self.size(-1) <= (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  NoGradGuard below;
  const Tensor weights = (self.dim() == 1 ? self.unsqueeze(0) : self).contiguous();
  const Tensor out = mica::empty({weights.size(0), num_samples}, TensorOptions(DType::Int64).device(self.device()));
  if (has_work(out)) MICA_KERNEL(self.device(), random_multinomial)
  (out.view_of(), weights.view_of(), replacement, chosen(generator, out));
  return self.dim() == 1 ? out.squeeze(0) : out;
}

Tensor poisson(const Tensor& self, const MaybeGenerator& generator) {
  NoGradGuard below;
  const Tensor rate = self.contiguous();
  const Tensor out = mica::empty_like(rate);
  if (!out.is_meta()) MICA_KERNEL(self.device(), random_poisson)(out.view_of(), rate.view_of(), chosen(generator, out));
  return out;
}

Tensor binomial(const Tensor& count, const Tensor& prob, const MaybeGenerator& generator) {
  for (const auto& [name, given] : {std::pair("count", count), std::pair("prob", prob)})
    MICA_CHECK_KIND(is_floating(given.dtype()), Value, "binomial only supports floating-point dtypes for ", name,
                    ", got: ", info(given.dtype()).legacy);
  MICA_CHECK_KIND(count.dtype() == prob.dtype(), Value, "Found dtype ", info(prob.dtype()).legacy, " but expected ",
                  info(count.dtype()).legacy);
  NoGradGuard below;
  const DimVector shape = broadcast_sizes(count.sizes(), prob.sizes());
  const Tensor n = count.expand(shape).contiguous(), p = prob.expand(shape).contiguous();
  const Tensor out = mica::empty_like(n);
  if (!out.is_meta())
    MICA_KERNEL(count.device(), random_binomial)(out.view_of(), n.view_of(), p.view_of(), chosen(generator, out));
  return out;
}

}  // namespace mica::composite
