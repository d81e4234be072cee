// Variational inference with mica/distributions.h: which lines may lie behind noisy points? A normal distribution over
// slope and intercept is moved towards the posterior by gradients through its own samples. The posterior of this model
// is known, so that the program can say how far it got: it exits with 0 if the divergence from it is small.
#include <mica/distributions.h>
#include <mica/linalg.h>
#include <mica/mica.h>
#include <mica/optim.h>

#include <iostream>

#include "arguments.h"

using mica::Tensor;
using namespace mica::distributions;

constexpr double kNoise = 0.5;

int main(int argc, char** argv) {
  const Arguments options(argc, argv, {{"steps", "1500"}, {"points", "40"}, {"seed", "0"}});
  const int64_t steps = options.number("steps"), points = options.number("points");
  mica::manual_seed(static_cast<uint64_t>(options.number("seed")));

  const Tensor x = Uniform(-1.0, 1.0).sample({points});
  const Tensor design = mica::stack({x, mica::ones_like(x)}, 1);  // a row (x, 1) for each point
  const Tensor y = Normal(2 * x - 1, kNoise).sample();

  const MultivariateNormal prior(mica::zeros({2}), mica::eye(2));
  const Tensor precision = design.t().matmul(design) / (kNoise * kNoise) + mica::eye(2);
  const Tensor mean = mica::linalg::solve(precision, design.t().matmul(y) / (kNoise * kNoise));
  const MultivariateNormal posterior(mean, {.precision_matrix = precision});

  // The optimised numbers are unconstrained. The transform makes a Cholesky factor of them.
  const Tensor loc = mica::zeros({2}).requires_grad_(), free = mica::zeros({2, 2}).requires_grad_();
  const Transform to_factor = transform_to(constraints::lower_cholesky());
  const auto guess = [&] { return MultivariateNormal(loc, {.scale_tril = to_factor(free)}); };

  mica::optim::Adam optimizer({loc, free}, {.lr = 0.02});
  for (int64_t step = 0; step < steps; ++step) {
    const MultivariateNormal q = guess();
    const Tensor lines = q.rsample({16});
    const Tensor likelihood = Normal(lines.matmul(design.t()), kNoise).log_prob(y).sum({-1}).mean();
    const Tensor loss = kl_divergence(q, prior) - likelihood;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 250 == 0) std::cout << "step " << step << "  negative evidence " << loss.item<double>() << "\n";
  }

  const MultivariateNormal found = guess();
  const double apart = kl_divergence(found, posterior).item<double>();
  std::cout << "found\n" << found.mean().detach() << "\n" << found.stddev().detach() << "\n";
  std::cout << "exact\n" << posterior.mean() << "\n" << posterior.stddev() << "\n";
  std::cout << "divergence " << apart << "\n";
  return apart < 0.1 ? 0 : 1;
}
