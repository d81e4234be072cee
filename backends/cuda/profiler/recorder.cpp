#include "backends/cuda/profiler/recorder.h"

#include "backends/cuda/library.h"
#include "backends/cuda/runtime.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace mica::cuda {

namespace {

struct Api {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock;
  decltype(&cuptiSetThreadIdType) set_thread_ids;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next;
  decltype(&cuptiGetResultString) describe;
  decltype(&cuptiGetCallbackName) call_name;
};

void* library() {
  static void* const opened = [] {
    static constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so", "/usr/local/cuda/lib64/libcupti.so.13",
                                             "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", nullptr};
    return open_library(kNames);
  }();
  return opened;
}

const Api& api() {
  static const Api loaded = [] {
    const std::string missing = why_no_recording();
    MICA_CHECK_KIND(missing.empty(), NotImplemented, missing);
    Api a{};
    auto load = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol(library(), name));
    };
    load(a.register_callbacks, "cuptiActivityRegisterCallbacks");
    load(a.register_clock, "cuptiActivityRegisterTimestampCallback");
    load(a.set_thread_ids, "cuptiSetThreadIdType");
    load(a.enable, "cuptiActivityEnable");
    load(a.disable, "cuptiActivityDisable");
    load(a.flush, "cuptiActivityFlushAll");
    load(a.next, "cuptiActivityGetNextRecord");
    load(a.describe, "cuptiGetResultString");
    load(a.call_name, "cuptiGetCallbackName");
    return a;
  }();
  return loaded;
}

void check_cupti(CUptiResult status, const char* call) {
  if (status == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  api().describe(status, &text);
  fail(cat("the profiler of CUDA cannot record: ", call, " says ", text ? text : "nothing"));
}
#define MICA_CUPTI(call, ...) check_cupti(api().call(__VA_ARGS__), #call)

struct Work {
  const char* kind;
  std::string name;
  uint64_t start, end;
  uint32_t device, stream, correlation;
  uint64_t bytes;
  int32_t grid[3], block[3];
  uint32_t registers, shared;
};
struct Launch {
  uint64_t start, end;
  uint32_t thread;
  CUpti_CallbackDomain domain;
  CUpti_CallbackId call;
};

std::mutex mutex;
std::vector<Work> works;
std::unordered_map<uint32_t, Launch> launches;  // by correlation

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER};

uint64_t CUPTIAPI monotonic_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *most = 0;
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? text : name;
  std::free(text);
  return result;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}
const char* memory_name(uint8_t kind) {
  return kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ? "Pageable"
         : kind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED ? "Pinned"
                                                     : "Device";
}

void note(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
      const auto* k = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      works.push_back({"kernel",
                       demangled(k->name),
                       k->start,
                       k->end,
                       k->deviceId,
                       k->streamId,
                       k->correlationId,
                       0,
                       {k->gridX, k->gridY, k->gridZ},
                       {k->blockX, k->blockY, k->blockZ},
                       k->registersPerThread,
                       static_cast<uint32_t>(k->staticSharedMemory + k->dynamicSharedMemory)});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* c = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      works.push_back({"gpu_memcpy",
                       cat(copy_name(c->copyKind), " (", memory_name(c->srcKind), " -> ", memory_name(c->dstKind), ")"),
                       c->start,
                       c->end,
                       c->deviceId,
                       c->streamId,
                       c->correlationId,
                       c->bytes,
                       {},
                       {},
                       0,
                       0});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto* c = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
      works.push_back({"gpu_memcpy",
                       "Memcpy PtoP (Device -> Device)",
                       c->start,
                       c->end,
                       c->deviceId,
                       c->streamId,
                       c->correlationId,
                       c->bytes,
                       {},
                       {},
                       0,
                       0});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* m = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      works.push_back({"gpu_memset",
                       "Memset (Device)",
                       m->start,
                       m->end,
                       m->deviceId,
                       m->streamId,
                       m->correlationId,
                       m->bytes,
                       {},
                       {},
                       0,
                       0});
      return;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto* a = reinterpret_cast<const CUpti_ActivityAPI*>(record);
      const Launch launch{
          a->start, a->end, a->threadId,
          record->kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API,
          a->cbid};
      // A call of the runtime and the one of the driver in it have one number: the outer one began first.
      const auto [found, added] = launches.try_emplace(a->correlationId, launch);
      if (!added && launch.start < found->second.start) found->second = launch;
      return;
    }
    default:
      return;
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t filled) {
  {
    std::lock_guard lock(mutex);
    CUpti_Activity* record = nullptr;
    while (filled && api().next(buffer, filled, &record) == CUPTI_SUCCESS) note(record);
  }
  std::free(buffer);
}

void add_text(std::string& to, const std::string& text) {
  to += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') to += '\\';
    to += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  to += '"';
}

}  // namespace

std::string why_no_recording() {
  if (library()) return "";
  return "profiling CUDA needs CUPTI, and libcupti.so.13 could not be opened: install the package nvidia-cuda-cupti, "
         "or "
         "name the folder that holds the library in MICA_CUDA_LIBRARIES";
}

void start_recording() {
  static std::once_flag once;
  std::call_once(once, [] {
    MICA_CUPTI(set_thread_ids, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    MICA_CUPTI(register_clock, monotonic_ns);
    MICA_CUPTI(register_callbacks, give_buffer, take_buffer);
  });
  MICA_CUPTI(flush, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  {
    std::lock_guard lock(mutex);
    works.clear();
    launches.clear();
  }
  for (const CUpti_ActivityKind kind : kKinds) MICA_CUPTI(enable, kind);
}

std::string stop_recording() {
  MICA_CUDA(cudaDeviceSynchronize());
  MICA_CUPTI(flush, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const CUpti_ActivityKind kind : kKinds) MICA_CUPTI(disable, kind);
  std::lock_guard lock(mutex);
  std::string all = "[";
  for (const Work& w : works) {
    const auto found = launches.find(w.correlation);
    const Launch launch = found == launches.end() ? Launch{} : found->second;
    const char* call = "";
    if (found == launches.end() || api().call_name(launch.domain, launch.call, &call) != CUPTI_SUCCESS) call = "";
    if (all.size() > 1) all += ',';
    all += cat("[\"", w.kind, "\",");
    add_text(all, w.name);
    all += cat(',', w.start, ',', w.end, ',', w.device, ',', w.stream, ',', w.correlation, ',', launch.start, ',',
               launch.end, ',', launch.thread, ',', w.bytes, ",[", w.grid[0], ',', w.grid[1], ',', w.grid[2], "],[",
               w.block[0], ',', w.block[1], ',', w.block[2], "],", w.registers, ',', w.shared, ",\"", call, "\"]");
  }
  works.clear();
  launches.clear();
  return all + "]";
}

}  // namespace mica::cuda

#else  // a toolkit without CUPTI's header

namespace mica::cuda {

std::string why_no_recording() { return "libmica_cuda.so was built without CUPTI's header, and cannot profile CUDA"; }
void start_recording() { fail(ErrorKind::NotImplemented, why_no_recording()); }
std::string stop_recording() { return "[]"; }

}  // namespace mica::cuda

#endif
