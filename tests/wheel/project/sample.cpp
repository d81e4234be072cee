// What a program outside of the tree includes: tensors, layers, an optimizer, distributions.
#include <mica/distributions.h>
#include <mica/mica.h>
#include <mica/nn.h>
#include <mica/optim.h>

#include <iostream>

int main() {
  using namespace mica;
  manual_seed(0);
  const distributions::Normal noise(zeros({}), ones({}));
  Tensor x = noise.sample({64, 3}), y = x.sum(1, true);
  nn::Linear layer(3, 1);
  optim::SGD optimizer(layer->parameters(), {.lr = 0.1});
  double loss = 0;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    Tensor error = (layer(x) - y).square().mean();
    error.backward();
    optimizer.step();
    loss = error.item<double>();
  }
  std::cout << "loss " << loss << '\n';
  return loss < 1e-3 ? 0 : 1;
}
