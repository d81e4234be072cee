#include "backends/cuda/graphs.h"

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>

#include "backends/cuda/allocator.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/random/generator.h"
#include "mica/core/recording.h"

namespace mica::cuda {

namespace {

struct Graph {
  int device;
  cudaStream_t stream;
  const void* owner = nullptr;  // the owner of memory that is allocated during the capture: a pool, or the graph itself
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  // The state of the generator when a replay begins, offset and seed, which the kernels read.
  uint64_t* philox = nullptr;
  uint64_t drawn = 0;
};

cudaStreamCaptureMode capture_mode(std::string_view name) {
  if (name == "global") return cudaStreamCaptureModeGlobal;
  if (name == "thread_local") return cudaStreamCaptureModeThreadLocal;
  MICA_CHECK(name == "relaxed", "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ",
             name);
  return cudaStreamCaptureModeRelaxed;
}

void* begin(int device, std::string_view error_mode, uintptr_t pool) {
  const cudaStreamCaptureMode mode = capture_mode(error_mode);
  queue_what_is_put_off();
  DeviceGuard guard(device);
  auto made = std::make_unique<Graph>();
  made->device = device;
  made->stream = current_stream(device);
  MICA_CHECK(made->stream,
             "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on "
             "the default stream.)");
  // The generator's memory is asked for before anything is captured.
  MICA_CUDA(cudaMalloc(reinterpret_cast<void**>(&made->philox), 2 * sizeof(uint64_t)));
  made->owner = pool ? reinterpret_cast<const void*>(pool) : made.get();
  begin_capture(made->stream, made->owner, device);
  philox(default_generator(device)).begin_capture(made->philox);
  const cudaError_t status = cudaStreamBeginCapture(made->stream, mode);
  if (status != cudaSuccess) {
    philox(default_generator(device)).end_capture();
    end_capture(made->stream, device);
    check(status, "cudaStreamBeginCapture");
  }
  recording::captured = true;
  return made.release();
}

void end(void* handle) {
  auto* g = static_cast<Graph*>(handle);
  // The capture ends, whatever becomes of the calls that are put off: the stream would take no other work.
  std::exception_ptr failed;
  try {
    queue_what_is_put_off();
  } catch (...) {
    failed = std::current_exception();
    recording::abandon("it was captured for a CUDA graph that could not be made");
  }
  recording::captured = false;
  DeviceGuard guard(g->device);
  const cudaError_t status = cudaStreamEndCapture(g->stream, &g->graph);
  g->drawn = philox(default_generator(g->device)).end_capture();
  end_capture(g->stream, g->device);
  if (failed) {
    cudaGetLastError();  // of the capture: it belongs to no later call
    std::rethrow_exception(failed);
  }
  check(status, "cudaStreamEndCapture");
  MICA_CHECK(g->graph, "the capture of a CUDA graph was invalidated by a call that cannot be captured");
  MICA_CUDA(cudaGraphInstantiate(&g->ready, g->graph, 0));
}

void replay(void* handle) {
  auto* g = static_cast<Graph*>(handle);
  MICA_CHECK(g->ready, "Called CUDAGraph::replay without a preceding successful capture.");
  queue_what_is_put_off();
  DeviceGuard guard(g->device);
  const cudaStream_t stream = current_stream(g->device);
  if (g->drawn) {
    Generator& generator = default_generator(g->device);
    std::lock_guard lock(generator.mutex());
    PhiloxGenerator& source = philox(generator);
    const uint64_t state[2] = {source.take(g->drawn), source.initial_seed()};
    // Small copies from pageable memory are staged before the call returns.
    MICA_CUDA(cudaMemcpyAsync(g->philox, state, sizeof state, cudaMemcpyHostToDevice, stream));
  }
  MICA_CUDA(cudaGraphLaunch(g->ready, stream));
}

void free_graph(void* handle) {
  auto* g = static_cast<Graph*>(handle);
  if (g->ready) cudaGraphExecDestroy(g->ready);
  if (g->graph) cudaGraphDestroy(g->graph);
  if (g->owner == g) forget_capture(g, g->device);  // a pool is forgotten by its own owner
  if (g->philox) cudaFree(g->philox);
  delete g;
}

bool is_current_capturing(int device) { return is_capturing(current_stream(device)); }

}  // namespace

void device_facts(int index, DeviceFacts* facts) {
  const cudaDeviceProp& p = properties(index);
  std::memset(facts, 0, sizeof *facts);
  std::memcpy(facts->name, p.name, strnlen(p.name, sizeof facts->name - 1));
  facts->major = p.major;
  facts->minor = p.minor;
  facts->multiprocessors = p.multiProcessorCount;
  facts->threads_per_multiprocessor = p.maxThreadsPerMultiProcessor;
  facts->warp_size = p.warpSize;
  facts->registers_per_multiprocessor = p.regsPerMultiprocessor;
  facts->total_memory = static_cast<int64_t>(p.totalGlobalMem);
  facts->l2_bytes = p.l2CacheSize;
  facts->shared_per_multiprocessor = static_cast<int64_t>(p.sharedMemPerMultiprocessor);
  facts->shared_per_block = static_cast<int64_t>(p.sharedMemPerBlock);
  facts->shared_per_block_optin = static_cast<int64_t>(p.sharedMemPerBlockOptin);
  facts->integrated = p.integrated;
  facts->multi_gpu_board = p.isMultiGpuBoard;
  std::memcpy(facts->uuid, p.uuid.bytes, sizeof facts->uuid);
}

void* graph_extension(std::string_view name) {
  static GraphApi api{begin, end, replay, free_graph, is_current_capturing};
  return name == "graphs" ? &api : nullptr;
}

}  // namespace mica::cuda
