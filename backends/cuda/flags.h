// Choices that programs make: precision (torch.backends.cuda.matmul, torch.backends.cudnn), and which kernels are used.
#pragma once

namespace mica::cuda {

enum class Flag : int {
  MatmulTf32,
  ConvolutionTf32,
  CudnnAttention,
  Deterministic,
  CudnnDeterministic,
  CudnnBenchmark,  // compare all engines of a convolution, however long it takes
  CudnnRecurrent,
  CudnnRecurrentAlways,  // also where the own kernels are known to be as fast
  Count
};

bool flag(Flag which);
void set_flag(Flag which, bool value);

// While one lives that is on, products of float32 that this thread asks for may round their inputs to TF32.
class RoundedProducts {
 public:
  explicit RoundedProducts(bool on);
  RoundedProducts(const RoundedProducts&) = delete;
  ~RoundedProducts();

 private:
  bool before_;
};
bool products_are_rounded();
// The same for products that belong to a layer: on where convolutions may round. Returns the earlier setting.
bool round_products(bool on);

}  // namespace mica::cuda
