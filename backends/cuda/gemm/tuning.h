// torch.cuda.tunable: the fastest of cuBLASLt's algorithms for a product, found by timing them and kept in a file.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "backends/cuda/gemm/lt.h"

namespace mica::cuda::tuning {

bool is_on();

// A product as the file names it, and the facts from which an algorithm is made again.
struct Product {
  std::string operation, parameters;
  cublasComputeType_t compute;
  cudaDataType_t scale, operands, out;
  size_t out_bytes;  // that the product writes
};

// The plan with the algorithm that was found for the product before, or that is found now if tuning is on. `run`
// computes the product by a plan into other memory of that many bytes. Without a choice it is the plan itself.
lt::Plan chosen(const lt::Plan& plan, cublasLtHandle_t handle, const Product& product, int device,
                const std::function<void(const lt::Plan&, void* out)>& run);

// A question or an order from Python: "name" or "name\nvalue".
std::string ask(std::string_view text, int device);

}  // namespace mica::cuda::tuning
