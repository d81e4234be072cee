// An extension as people write them for torch, which knows nothing of Mica. test_cpp_extension.py compiles it.
#include <torch/extension.h>
#include <ATen/Dispatch.h>
#include <c10/util/Exception.h>

#include <vector>

#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

// ---- loops over elements

template <typename scalar_t>
void scale_kernel(const scalar_t* in, scalar_t* out, int64_t n, scalar_t by) {
  at::parallel_for(0, n, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = in[i] * by;
  });
}

torch::Tensor scale(torch::Tensor x, double by) {
  CHECK_CONTIGUOUS(x);
  TORCH_CHECK(x.device().type() == torch::kCPU, "expected a CPU tensor, got ", x.device());
  auto out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel(), static_cast<scalar_t>(by));
  });
  return out;
}

torch::Tensor trace_of(const at::Tensor& x) {
  auto total = torch::zeros({}, x.options().dtype(torch::kFloat64));
  AT_DISPATCH_ALL_TYPES(x.scalar_type(), "trace_of", ([&] {
                          auto a = x.accessor<scalar_t, 2>();
                          double sum = 0;
                          for (int64_t i = 0; i < std::min(a.size(0), a.size(1)); ++i)
                            sum += static_cast<double>(a[i][i]);
                          total.fill_(sum);
                        }));
  return total;
}

// ---- the LSTM-like cell of torch's tutorial

torch::Tensor d_sigmoid(torch::Tensor z) {
  auto s = torch::sigmoid(z);
  return (1 - s) * s;
}

std::vector<at::Tensor> lltm_forward(torch::Tensor input, torch::Tensor weights, torch::Tensor bias,
                                     torch::Tensor old_h, torch::Tensor old_cell) {
  auto X = torch::cat({old_h, input}, /*dim=*/1);
  auto gate_weights = torch::addmm(bias, X, weights.transpose(0, 1));
  auto gates = gate_weights.chunk(3, /*dim=*/1);
  auto input_gate = torch::sigmoid(gates[0]);
  auto output_gate = torch::sigmoid(gates[1]);
  auto candidate_cell = torch::elu(gates[2], /*alpha=*/1.0);
  auto new_cell = old_cell + candidate_cell * input_gate;
  auto new_h = torch::tanh(new_cell) * output_gate;
  return {new_h, new_cell, d_sigmoid(gates[0])};
}

// ---- a function with a backward of its own

class Cube : public torch::autograd::Function<Cube> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x, int64_t power) {
    ctx->save_for_backward({x});
    ctx->saved_data["power"] = power;
    return x.pow(power);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    auto saved = ctx->get_saved_variables();
    const int64_t power = ctx->saved_data["power"].toInt();
    return {grads[0] * power * saved[0].pow(power - 1), torch::Tensor()};
  }
};
torch::Tensor cube(torch::Tensor x) { return Cube::apply(x, 3); }

// ---- values that cross the border

std::tuple<torch::Tensor, int64_t, std::string> describe(const std::optional<torch::Tensor>& x, at::IntArrayRef sizes,
                                                         torch::Dtype dtype, torch::Device device, at::Scalar fill) {
  if (!x) return {torch::full(sizes, fill, torch::dtype(dtype).device(device)), 0, "made"};
  return {x->reshape(sizes).to(dtype), x->dim(), "given"};
}

torch::Tensor fail_with(const std::string& kind) {
  if (kind == "index") TORCH_CHECK_INDEX(false, "index ", 7, " is out of range");
  if (kind == "value") TORCH_CHECK_VALUE(false, "a bad value");
  if (kind == "linalg") return torch::linalg_cholesky(-torch::eye(2));
  if (kind == "engine") return torch::zeros({2, 3}).matmul(torch::zeros({2, 3}));
  if (kind == "std") throw std::invalid_argument("of the standard library");
  AT_ERROR("a plain error about ", torch::ones({2}).sizes());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale", &scale, "x times a number", py::arg("x"), py::arg("by") = 2.0);
  m.def("trace_of", &trace_of);
  m.def("lltm_forward", &lltm_forward);
  m.def("cube", &cube);
  m.def("describe", &describe);
  m.def("fail_with", &fail_with);
  m.def("run_backward", [](torch::Tensor x) { x.sum().backward(); });
}

// ---- operators

torch::Tensor muladd_cpu(const torch::Tensor& a, const torch::Tensor& b, double c) { return a * b + c; }
torch::Tensor muladd_meta(const torch::Tensor& a, const torch::Tensor& b, double) {
  TORCH_CHECK(a.sizes() == b.sizes());
  return torch::empty_like(a);
}
int64_t count(torch::TensorList tensors) { return static_cast<int64_t>(tensors.size()); }

TORCH_LIBRARY(mica_test_extension, m) {
  m.def("muladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def("count", &count);
}
TORCH_LIBRARY_IMPL(mica_test_extension, CPU, m) { m.impl("muladd", &muladd_cpu); }
TORCH_LIBRARY_IMPL(mica_test_extension, Meta, m) { m.impl("muladd", &muladd_meta); }
