// The backend that libmica opens: the hooks and the table of kernels.
#include "backends/cuda/allocator.h"
#include "backends/cuda/attention/supports.h"
#include "backends/cuda/bounds.h"
#include "backends/cuda/cudnn/cudnn.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/fused/codes.h"
#include "backends/cuda/graphs.h"
#include "backends/cuda/gemm/scaled.h"
#include "backends/cuda/query.h"
#include "backends/cuda/random/generator.h"
#include "backends/cuda/random/dropout.h"
#include "backends/cuda/recurrent/stacks.h"
#include "backends/cuda/runtime.h"
#include "backends/cuda/sparse/semi_structured.h"
#include "backends/cuda/tables.h"

namespace mica::cuda {

namespace {

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes, bool non_blocking) {
  const bool to_host = to_device.is_cpu(), from_host = from_device.is_cpu();
  const int index = to_host ? from_device.index() : to_device.index();
  DeviceGuard guard(index);
  const cudaStream_t stream = current_stream(index);
  if (!to_host && !from_host && to_device.index() != from_device.index()) {
    // The source's stream may still write the bytes that are read here.
    const Event written = new_event(from_device.index(), false);
    record_event(written, stream_of_thread(from_device.index()));
    wait_event(stream_of_thread(index), written);
    free_event(written);
    MICA_CUDA(cudaMemcpyPeerAsync(to, to_device.index(), from, from_device.index(), nbytes, stream));
    return synchronize_stream(stream_of_thread(index));
  }
  if (to_host && nbytes <= kReadBackBytes && !non_blocking) {
    read_back(to, from, nbytes, index);
    return check_bounds(index);
  }
  if (to_host && !(non_blocking && is_pinned(to))) about_to_wait();
  MICA_CUDA(cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, stream));
  if (!to_host && !from_host) return;
  // The host may change or free its memory as soon as this returns, unless it has promised not to.
  if (non_blocking && is_pinned(to_host ? to : from)) return;
  MICA_CUDA(cudaStreamSynchronize(stream));
  if (to_host) check_bounds(index);
}

void synchronize(int index) {
  queue_what_is_put_off();
  DeviceGuard guard(index);
  MICA_CUDA(cudaDeviceSynchronize());
  check_bounds(index);
}

const char* device_name(int index) { return properties(index).name; }

bool takes_call(const char* slot, const TensorView* const* inputs, size_t) {
  const std::string_view name = slot;
  if (name == "attention_forward") return supports_attention(*inputs[0], *inputs[1], *inputs[2], *inputs[3]);
  if (name == "scaled_matmul") return supports_scaled_matmul(inputs);
  return true;
}

void set_flag_by_name(const char* name, bool value) {
  const std::string_view which = name;
  if (which == "matmul_tf32") set_flag(Flag::MatmulTf32, value);
  if (which == "convolution_tf32") set_flag(Flag::ConvolutionTf32, value);
  if (which == "cudnn_attention") set_flag(Flag::CudnnAttention, value);
  if (which == "cudnn_recurrent") set_flag(Flag::CudnnRecurrent, value);
  if (which == "cudnn_recurrent_always") set_flag(Flag::CudnnRecurrentAlways, value);
  if (which == "deterministic") set_flag(Flag::Deterministic, value);
  if (which == "cudnn_benchmark") set_flag(Flag::CudnnBenchmark, value);
  if (which == "cudnn_deterministic") set_flag(Flag::CudnnDeterministic, value);
}
bool widens_operands(const char* op) {
  const std::string_view which = op;
  return which == "add" || which == "sub";
}
bool cudnn_available() { return cudnn::available(); }
int64_t cudnn_version() { return cudnn::available() ? static_cast<int64_t>(cudnn::api().version()) : 0; }
bool can_access_peer(int device, int peer) {
  int answer = 0;
  MICA_CUDA(cudaDeviceCanAccessPeer(&answer, device, peer));
  return answer != 0;
}

void* extension(const char* name) {
  const std::string_view which = name;
  if (which == "set_flag") return reinterpret_cast<void*>(set_flag_by_name);
  if (which == "cudnn_available") return reinterpret_cast<void*>(cudnn_available);
  if (which == "cudnn_version") return reinterpret_cast<void*>(cudnn_version);
  if (which == "set_memory_limit") return reinterpret_cast<void*>(set_memory_limit);
  if (which == "can_access_peer") return reinterpret_cast<void*>(can_access_peer);
  if (which == "draw_dropout") return reinterpret_cast<void*>(draw_dropout);
  if (which == "round_products") return reinterpret_cast<void*>(round_products);
  if (which == "recurrent_library") return const_cast<RecurrentLibrary*>(&recurrent::library());
  if (which == "query") return reinterpret_cast<void*>(query);
  if (which == "fusion") return const_cast<Fusion*>(&fusion());
  if (which == "semi_structured") return const_cast<SemiStructuredApi*>(&semi_structured());
  if (which == "device_properties") return reinterpret_cast<void*>(device_facts);
  return graph_extension(which);
}

}  // namespace
}  // namespace mica::cuda

extern "C" const mica::Backend* mica_backend() {
  using namespace mica::cuda;
  static const mica::Backend backend = [] {
    mica::Backend b;
    b.abi = mica::kBackendAbi;
    b.name = "cuda";
    b.dlpack_type = 2;
    b.kernels = &kernels();
    b.capabilities = {.widens_operands = widens_operands,
                      .takes_call = takes_call,
                      .reports_indices = true,
                      .joins_strided = true,
                      .svd_drivers = true,
                      .tensor_core_rules = true};
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
    b.layer_abi = mica::kLayerKernelTableHash;
    b.layer_kernels = &layer_kernels();
    b.extension = extension;
    return b;
  }();
  return &backend;
}
