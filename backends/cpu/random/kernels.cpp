// Fills the kernel slots of random numbers with the functions of random.h. Every tensor is dense, in memory order.
#include "backends/cpu/random/random.h"
#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"
#include "mica/warning.h"

namespace mica::cpu {

namespace {

void uniform(const TensorView& out, double from, double to, Generator g) {
  fill_uniform(out.data, out.dtype, out.numel, from, to, g);
}
void normal(const TensorView& out, double mean, double std, Generator g, bool is_contiguous) {
  fill_normal(out.data, out.dtype, out.numel, mean, std, g, is_contiguous);
}
void exponential(const TensorView& out, double lambd, Generator g) {
  fill_exponential(out.data, out.dtype, out.numel, lambd, g);
}
void cauchy(const TensorView& out, double median, double sigma, Generator g) {
  fill_cauchy(out.data, out.dtype, out.numel, median, sigma, g);
}
void log_normal(const TensorView& out, double mean, double std, Generator g) {
  fill_log_normal(out.data, out.dtype, out.numel, mean, std, g);
}
void geometric(const TensorView& out, double p, Generator g) { fill_geometric(out.data, out.dtype, out.numel, p, g); }
void bernoulli(const TensorView& out, double p, Generator g) { fill_bernoulli(out.data, out.dtype, out.numel, p, g); }
void bernoulli_each(const TensorView& out, const TensorView& p, Generator g) {
  fill_bernoulli(out.data, out.dtype, out.numel, p.data, p.dtype, g);
}

void integers(const TensorView& out, std::optional<int64_t> low, std::optional<int64_t> high, Generator g) {
  if (!low) return fill_random(out.data, out.dtype, out.numel, g);
  const RandomRange range = random_range(out.dtype, *low, high);
  if (!range.warning.empty()) warn(range.warning);
  fill_random(out.data, out.dtype, out.numel, range, g);
}

void permutation(const TensorView& out, Generator g) { fill_randperm(out.data, out.dtype, out.numel, g); }
void poisson(const TensorView& out, const TensorView& rate, Generator g) {
  sample_poisson(out.data, rate.data, out.dtype, out.numel, g);
}
void binomial(const TensorView& out, const TensorView& count, const TensorView& prob, Generator g) {
  sample_binomial(out.data, count.data, prob.data, out.dtype, out.numel, g);
}
void standard_gamma(const TensorView& out, const TensorView& alpha, Generator g) {
  sample_standard_gamma(out.data, alpha.data, out.dtype, out.numel, g);
}
void dirichlet(const TensorView& out, const TensorView& alpha, Generator g) {
  sample_dirichlet(out.data, alpha.data, out.dtype, out.sizes[0], out.sizes[1], g);
}
void multinomial(const TensorView& out, const TensorView& weights, bool replacement, Generator g) {
  sample_multinomial(out.ptr<int64_t>(), weights.data, weights.dtype, weights.sizes[0], weights.sizes[1], out.sizes[1],
                     replacement, g);
}

MICA_REGISTER_CPU(random_uniform, uniform);
MICA_REGISTER_CPU(random_normal, normal);
MICA_REGISTER_CPU(random_exponential, exponential);
MICA_REGISTER_CPU(random_cauchy, cauchy);
MICA_REGISTER_CPU(random_log_normal, log_normal);
MICA_REGISTER_CPU(random_geometric, geometric);
MICA_REGISTER_CPU(random_bernoulli, bernoulli);
MICA_REGISTER_CPU(random_bernoulli_each, bernoulli_each);
MICA_REGISTER_CPU(random_integers, integers);
MICA_REGISTER_CPU(random_permutation, permutation);
MICA_REGISTER_CPU(random_poisson, poisson);
MICA_REGISTER_CPU(random_binomial, binomial);
MICA_REGISTER_CPU(random_multinomial, multinomial);
MICA_REGISTER_CPU(random_standard_gamma, standard_gamma);
MICA_REGISTER_CPU(random_dirichlet, dirichlet);

}  // namespace
}  // namespace mica::cpu
