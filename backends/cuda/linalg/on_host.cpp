// Decompositions that neither cuSOLVER nor a kernel of this backend computes: those with symmetric pivoting, and least
// squares of matrices that may lack rank. The CPU's LAPACK computes them.
#include "backends/cuda/linalg/on_host.h"

#include <algorithm>

#include "mica/dtype.h"

namespace mica::cuda {

namespace linalg {

HostCopies::HostCopies(std::initializer_list<const TensorView*> views) : originals_(views) {
  for (const TensorView* view : views) {
    const auto bytes = static_cast<size_t>(view->numel * element_size(view->dtype));
    memory_.emplace_back(new unsigned char[std::max<size_t>(bytes, 16)]);
    TensorView copy = *view;
    copy.data = memory_.back().get();
    copy.device = kCPU;
    copies_.push_back(copy);
    if (bytes == 0) continue;
    const cudaStream_t stream = current_stream(view->device.index());
    MICA_CUDA(cudaMemcpyAsync(copy.data, view->data, bytes, cudaMemcpyDeviceToHost, stream));
  }
  if (views.size()) MICA_CUDA(cudaStreamSynchronize(current_stream((*views.begin())->device.index())));
}

void HostCopies::copy_back(std::initializer_list<size_t> which) const {
  for (const size_t i : which) {
    const TensorView& to = *originals_[i];
    const auto bytes = static_cast<size_t>(to.numel * element_size(to.dtype));
    if (bytes == 0) continue;
    const cudaStream_t stream = current_stream(to.device.index());
    // The source is ordinary memory, so the call returns once the bytes have been taken.
    MICA_CUDA(cudaMemcpyAsync(to.data, copies_[i].data, bytes, cudaMemcpyHostToDevice, stream));
  }
}

}  // namespace linalg

using linalg::HostCopies;

void linalg_ldl_factor(const TensorView& a, const TensorView& pivots, const TensorView& info, bool hermitian) {
  DeviceGuard guard(a.device.index());
  const HostCopies host({&a, &pivots, &info});
  MICA_LAYER_KERNEL(kCPU, linalg_ldl_factor)(host[0], host[1], host[2], hermitian);
  host.copy_back({0, 1, 2});
}

void linalg_ldl_solve(const TensorView& ld, const TensorView& pivots, const TensorView& b, bool hermitian) {
  DeviceGuard guard(b.device.index());
  const HostCopies host({&ld, &pivots, &b});
  MICA_LAYER_KERNEL(kCPU, linalg_ldl_solve)(host[0], host[1], host[2], hermitian);
  host.copy_back({2});
}

}  // namespace mica::cuda
