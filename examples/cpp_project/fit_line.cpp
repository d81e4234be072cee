// Fits y = 3 x + 2 by gradient descent and exits with 0 when it has found the line.
#include <mica/mica.h>

#include <cmath>
#include <iostream>

int main() {
  const mica::Tensor x = mica::linspace(-1, 1, 101);
  const mica::Tensor y = 3 * x + 2;
  mica::Tensor slope = mica::zeros({}).requires_grad_();
  mica::Tensor offset = mica::zeros({}).requires_grad_();

  for (int step = 0; step < 200; ++step) {
    const mica::Tensor error = slope * x + offset - y;
    const mica::Tensor loss = (error * error).mean();
    loss.backward();

    mica::NoGradGuard no_grad;
    for (mica::Tensor* parameter : {&slope, &offset}) {
      *parameter -= 0.2 * parameter->grad();
      parameter->set_grad({});
    }
  }

  std::cout << "y = " << slope.item<double>() << " x + " << offset.item<double>() << "\n";
  return std::abs(slope.item<double>() - 3) < 1e-3 && std::abs(offset.item<double>() - 2) < 1e-3 ? 0 : 1;
}
