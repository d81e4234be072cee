// Opens the backend of mine.cpp and fits a line on its device.
#include <cmath>
#include <iostream>

#include <mica/mica.h>

using namespace mica;

int main() {
  open_backend(BACKEND);
  const TensorOptions here(DType::Float32), there = here.device(Device("mine"));
  const Tensor x = linspace(-1, 1, 32, here).view({32, 1}).to(there), y = x * 3.0f + full({1}, 0.5, there);
  Tensor slope = zeros({1, 1}, there).requires_grad_(), shift = zeros({1}, there).requires_grad_();
  for (int step = 0; step < 200; ++step) {
    const Tensor error = x.mm(slope) + shift + y * -1.0f;
    (error * error).sum().backward();
    NoGradGuard unrecorded;
    for (Tensor* p : {&slope, &shift}) {
      p->add_(p->grad(), -0.01);
      p->grad().mul_(0.0f);
    }
  }
  std::cout << "y = " << slope.item().to_double() << " x + " << shift.item().to_double() << " on "
            << slope.device().str() << "\n";
  try {
    x.exp();
  } catch (const Error& missing) {
    std::cout << missing.what() << "\n";
  }
  const bool found = std::abs(slope.item().to_double() - 3) < 1e-3 && std::abs(shift.item().to_double() - 0.5) < 1e-3;
  return found ? 0 : 1;
}
