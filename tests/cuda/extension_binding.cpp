// The C++ half of the extension in extension_kernels.cu.
#include <torch/extension.h>

#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

std::vector<torch::Tensor> cell_forward(torch::Tensor input, torch::Tensor weights, torch::Tensor bias,
                                        torch::Tensor old_h, torch::Tensor old_cell);
void axpy_(torch::Tensor y, const torch::Tensor& x, double a);

std::vector<torch::Tensor> cell(torch::Tensor input, torch::Tensor weights, torch::Tensor bias, torch::Tensor old_h,
                                torch::Tensor old_cell) {
  CHECK_INPUT(input);
  CHECK_CUDA(old_cell);
  return cell_forward(input, weights, bias, old_h, old_cell);
}

void checked_axpy_(torch::Tensor y, torch::Tensor x, double a) {
  CHECK_INPUT(y);
  CHECK_INPUT(x);
  TORCH_CHECK(x.sizes() == y.sizes() && x.dtype() == y.dtype(), "expected one shape and dtype");
  axpy_(y, x, a);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("cell", &cell, "The cell of torch's tutorial");
  m.def("axpy_", &checked_axpy_, "y += a * x", py::arg("y"), py::arg("x"), py::arg("a") = 1.0);
}
