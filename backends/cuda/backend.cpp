// What libmica opens: the hooks and the table of kernels.
#include "backends/cuda/allocator.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/random/generator.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes, bool non_blocking) {
  const bool to_host = to_device.is_cpu(), from_host = from_device.is_cpu();
  const int index = to_host ? from_device.index : to_device.index;
  DeviceGuard guard(index);
  const cudaStream_t stream = current_stream(index);
  if (!to_host && !from_host && to_device.index != from_device.index) {
    // The source's stream may still write what is read here.
    const Event written = new_event(from_device.index, false);
    record_event(written, stream_of_thread(from_device.index));
    wait_event(stream_of_thread(index), written);
    free_event(written);
    MICA_CUDA(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, nbytes, stream));
    return synchronize_stream(stream_of_thread(index));
  }
  MICA_CUDA(cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, stream));
  if (!to_host && !from_host) return;
  // The host may change or free its end as soon as this returns, unless it has promised not to.
  if (!non_blocking || !is_pinned(to_host ? to : from)) MICA_CUDA(cudaStreamSynchronize(stream));
}

void synchronize(int index) {
  DeviceGuard guard(index);
  MICA_CUDA(cudaDeviceSynchronize());
}

const char* device_name(int index) { return properties(index).name; }

const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable t;
#define MICA_CUDA_SLOT(slot) t.slot = slot;
    MICA_CUDA_POINTWISE(MICA_CUDA_SLOT)
    MICA_CUDA_SLOT(add)
    MICA_CUDA_SLOT(addcdiv)
    MICA_CUDA_SLOT(addcmul)
    MICA_CUDA_SLOT(arange)
    MICA_CUDA_SLOT(fill)
    MICA_CUDA_SLOT(gather)
    MICA_CUDA_SLOT(gelu)
    MICA_CUDA_SLOT(gelu_backward)
    MICA_CUDA_SLOT(index_select)
    MICA_CUDA_SLOT(leaky_relu)
    MICA_CUDA_SLOT(leaky_relu_backward)
    MICA_CUDA_SLOT(matmul)
    MICA_CUDA_SLOT(random_normal)
    MICA_CUDA_SLOT(random_uniform)
    MICA_CUDA_SLOT(rsub)
    MICA_CUDA_SLOT(sub)
    MICA_CUDA_SLOT(threshold_backward)
#undef MICA_CUDA_SLOT
#define MICA_CUDA_SLOT(op) t.reduce_##op = reduce_##op;
    MICA_CUDA_REDUCTIONS(MICA_CUDA_SLOT)
#undef MICA_CUDA_SLOT
    return t;
  }();
  return table;
}

}  // namespace
}  // namespace mica::cuda

extern "C" const mica::Backend* mica_backend() {
  using namespace mica::cuda;
  static const mica::Backend backend = [] {
    mica::Backend b;
    b.abi = mica::kBackendAbi;
    b.name = "cuda";
    b.kernels = &kernels();
    b.device_count = device_count;
    b.current_device = current_device;
    b.set_device = set_device;
    b.allocate = allocate;
    b.free = release;
    b.copy_bytes = copy_bytes;
    b.synchronize = synchronize;
    b.memory_stats = memory_stats;
    b.reset_peak_memory_stats = reset_peak_memory_stats;
    b.empty_cache = empty_cache;
    b.allocate_pinned = allocate_pinned;
    b.free_pinned = free_pinned;
    b.is_pinned = is_pinned;
    b.current_stream = stream_of_thread;
    b.set_stream = set_stream;
    b.new_stream = new_stream;
    b.stream_done = stream_done;
    b.synchronize_stream = synchronize_stream;
    b.use_on_stream = use_on_stream;
    b.new_event = new_event;
    b.free_event = free_event;
    b.record_event = record_event;
    b.wait_event = wait_event;
    b.event_done = event_done;
    b.synchronize_event = synchronize_event;
    b.elapsed_ms = elapsed_ms;
    b.default_generator = default_generator;
    b.new_generator = new_generator;
    b.device_name = device_name;
    return b;
  }();
  return &backend;
}
