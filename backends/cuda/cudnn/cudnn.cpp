#include "backends/cuda/cudnn/cudnn.h"

#include <unordered_map>

#include "backends/cuda/cudnn/recurrent.h"
#include "backends/cuda/library.h"
#include "mica/error.h"

namespace mica::cuda::cudnn {

namespace {

void* library() {
  static void* const opened = [] {
    static constexpr const char* kNames[] = {"libcudnn.so.9", "libcudnn.so", nullptr};
    return open_library(kNames, /*packages_first=*/true);
  }();
  return opened;
}

template <class F>
void load(F& function, const char* name) {
  function = reinterpret_cast<F>(symbol(library(), name));
}

}  // namespace

bool available() { return library() != nullptr; }

void open_compiler() {
  static constexpr const char* kNames[] = {"libnvrtc.so.13", nullptr};
  static void* const opened = open_library(kNames);
  static_cast<void>(opened);
}

const Api& api() {
  static const Api loaded = [] {
    MICA_CHECK_KIND(available(), NotImplemented,
                    "this operation needs cuDNN 9 on CUDA, and libcudnn.so.9 could not be opened: install the package "
                    "nvidia-cudnn-cu13, or name the folder that holds the library in MICA_CUDA_LIBRARIES");
    Api a{};
    load(a.create, "cudnnCreate");
    load(a.set_stream, "cudnnSetStream");
    load(a.version, "cudnnGetVersion");
    load(a.error_string, "cudnnGetErrorString");
    load(a.last_error, "cudnnGetLastErrorString");
    load(a.create_descriptor, "cudnnBackendCreateDescriptor");
    load(a.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    load(a.set, "cudnnBackendSetAttribute");
    load(a.get, "cudnnBackendGetAttribute");
    load(a.finalize, "cudnnBackendFinalize");
    load(a.execute, "cudnnBackendExecute");
    return a;
  }();
  return loaded;
}

const RecurrentApi& recurrent_api() {
  static const RecurrentApi loaded = [] {
    static_cast<void>(api());  // says what to install
    RecurrentApi a{};
    load(a.create, "cudnnCreateRNNDescriptor");
    load(a.destroy, "cudnnDestroyRNNDescriptor");
    load(a.set, "cudnnSetRNNDescriptor_v8");
    load(a.create_dropout, "cudnnCreateDropoutDescriptor");
    load(a.destroy_dropout, "cudnnDestroyDropoutDescriptor");
    load(a.set_dropout, "cudnnSetDropoutDescriptor");
    load(a.create_sequence, "cudnnCreateRNNDataDescriptor");
    load(a.destroy_sequence, "cudnnDestroyRNNDataDescriptor");
    load(a.set_sequence, "cudnnSetRNNDataDescriptor");
    load(a.create_tensor, "cudnnCreateTensorDescriptor");
    load(a.destroy_tensor, "cudnnDestroyTensorDescriptor");
    load(a.set_tensor, "cudnnSetTensorNdDescriptor");
    load(a.get_tensor, "cudnnGetTensorNdDescriptor");
    load(a.weight_bytes, "cudnnGetRNNWeightSpaceSize");
    load(a.weight_places, "cudnnGetRNNWeightParams");
    load(a.temporary_bytes, "cudnnGetRNNTempSpaceSizes");
    load(a.forward, "cudnnRNNForward");
    load(a.backward_data, "cudnnRNNBackwardData_v8");
    load(a.backward_weights, "cudnnRNNBackwardWeights_v8");
    return a;
  }();
  return loaded;
}

std::mutex& lock() {
  static std::mutex mutex;
  return mutex;
}

Handle handle(int device, cudaStream_t stream) {
  static auto* handles = new std::unordered_map<int, Handle>;
  Handle& h = (*handles)[device];
  if (!h) check(api().create(&h), "cudnnCreate");
  check(api().set_stream(h, stream), "cudnnSetStream");
  return h;
}

void check(int status, const char* what) {
  if (status == 0) [[likely]]
    return;
  char reason[512] = "";
  api().last_error(reason, sizeof reason);
  MICA_CHECK(false, "cuDNN error: ", api().error_string(status), " from ", what, ": ", reason);
}

}  // namespace mica::cuda::cudnn
