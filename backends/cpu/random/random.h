// Random sampling on contiguous CPU memory, bit for bit as torch's CPU kernels sample.
//
// Elements are drawn in the order of memory. Torch fills a tensor in its iterator's order, which is the order of memory
// for a dense tensor whatever its strides (a transposed one, channels_last): such a tensor is filled in place, by these
// same functions. For any other layout draw into a dense buffer with the dimensions in the iterator's order (largest
// stride outermost), then copy. Two functions care: fill_normal takes another path where torch's is_contiguous() is
// false, and the functions that read parameters per element take them in the same order as the output.
//
// All of them check their arguments first, elements included: when they throw, neither the memory nor the generator has
// changed. They lock the generator while they draw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mica/dtype.h"
#include "mica/generator.h"

namespace mica::cpu {

// ---- continuous -----------------------------------------------------------------------------------------------

// uniform_, rand: floating and complex dtypes.
void fill_uniform(void* data, DType dtype, int64_t numel, double from, double to, const Generator& generator);

// normal_, randn: floating and complex dtypes (a complex number's parts have the variance std^2 / 2 each).
// normal(mean, std) with tensors is fill_normal(0, 1), then mul_(std), then add_(mean); with a scalar std and a mean
// tensor it is fill_normal(0, std), then add_(mean).
void fill_normal(void* data, DType dtype, int64_t numel, double mean, double std, const Generator& generator,
                 bool is_contiguous = true);

// Floating dtypes.
void fill_exponential(void* data, DType dtype, int64_t numel, double lambda, const Generator& generator);
void fill_cauchy(void* data, DType dtype, int64_t numel, double median, double sigma, const Generator& generator);
void fill_log_normal(void* data, DType dtype, int64_t numel, double mean, double std, const Generator& generator);

// ---- discrete -------------------------------------------------------------------------------------------------

// random_(): [0, max] of an integral dtype, [0, 2^digits] of a floating one, {0, 1} of bool.
void fill_random(void* data, DType dtype, int64_t numel, const Generator& generator);

// What random_(from, to) and randint draw from: `count` integers from `base` on; every int64 when both are 0.
struct RandomRange {
  uint64_t count;
  int64_t base;
  std::string warning;  // torch's, when a floating dtype cannot hold every integer of the range; else empty
};

// Checks the bounds for the dtype. No `to` means up to the largest value of the dtype (2^digits of a floating one).
RandomRange random_range(DType dtype, int64_t from, std::optional<int64_t> to);
void fill_random(void* data, DType dtype, int64_t numel, const RandomRange& range, const Generator& generator);

// 0 .. n - 1 in random order.
void fill_randperm(void* data, DType dtype, int64_t n, const Generator& generator);

// bernoulli_(p) and dropout masks; any dtype but complex, float8 and the wide unsigned.
void fill_bernoulli(void* data, DType dtype, int64_t numel, double p, const Generator& generator);
// bernoulli_(p) with a tensor, bernoulli(p): one probability per element.
void fill_bernoulli(void* data, DType dtype, int64_t numel, const void* p, DType p_dtype, const Generator& generator);

void fill_geometric(void* data, DType dtype, int64_t numel, double p, const Generator& generator);

// One sample per element of the parameters, in their dtype.
void sample_poisson(void* out, const void* rate, DType dtype, int64_t numel, const Generator& generator);
void sample_binomial(void* out, const void* count, const void* prob, DType dtype, int64_t numel,
                     const Generator& generator);
void sample_standard_gamma(void* out, const void* alpha, DType dtype, int64_t numel, const Generator& generator);
// Equal to torch's but for the last bit or two: the order in which torch sums a row depends on its machine's vectors.
void sample_dirichlet(void* out, const void* alpha, DType dtype, int64_t rows, int64_t categories,
                      const Generator& generator);

// `samples` category numbers for each of `rows` rows of weights, which need not sum to one.
void sample_multinomial(int64_t* out, const void* weights, DType dtype, int64_t rows, int64_t categories,
                        int64_t samples, bool replacement, const Generator& generator);

}  // namespace mica::cpu
