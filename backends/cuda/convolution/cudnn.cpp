#include "backends/cuda/convolution/cudnn.h"

#include <unordered_map>

#include "backends/cuda/library.h"
#include "mica/error.h"

namespace mica::cuda::cudnn {

namespace {

void* library() {
  static void* const opened = [] {
    static constexpr const char* kNames[] = {"libcudnn.so.9", "libcudnn.so", nullptr};
    return open_library(kNames);
  }();
  return opened;
}

template <class F>
void load(F& function, const char* name) {
  function = reinterpret_cast<F>(symbol(library(), name));
}

}  // namespace

bool available() { return library() != nullptr; }

const Api& api() {
  static const Api loaded = [] {
    MICA_CHECK_KIND(available(), NotImplemented,
                    "convolutions on CUDA need cuDNN 9, and libcudnn.so.9 could not be opened: install the package "
                    "nvidia-cudnn-cu13, or name the folder that holds the library in MICA_CUDA_LIBRARIES");
    Api a{};
    load(a.create, "cudnnCreate");
    load(a.set_stream, "cudnnSetStream");
    load(a.error_string, "cudnnGetErrorString");
    load(a.create_tensor, "cudnnCreateTensorDescriptor");
    load(a.destroy_tensor, "cudnnDestroyTensorDescriptor");
    load(a.set_tensor, "cudnnSetTensorNdDescriptor");
    load(a.create_filter, "cudnnCreateFilterDescriptor");
    load(a.destroy_filter, "cudnnDestroyFilterDescriptor");
    load(a.set_filter, "cudnnSetFilterNdDescriptor");
    load(a.create_convolution, "cudnnCreateConvolutionDescriptor");
    load(a.destroy_convolution, "cudnnDestroyConvolutionDescriptor");
    load(a.set_convolution, "cudnnSetConvolutionNdDescriptor");
    load(a.set_groups, "cudnnSetConvolutionGroupCount");
    load(a.set_math, "cudnnSetConvolutionMathType");
    load(a.choose_forward, "cudnnGetConvolutionForwardAlgorithm_v7");
    load(a.choose_input, "cudnnGetConvolutionBackwardDataAlgorithm_v7");
    load(a.choose_weight, "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
    load(a.forward, "cudnnConvolutionForward");
    load(a.input_gradient, "cudnnConvolutionBackwardData");
    load(a.weight_gradient, "cudnnConvolutionBackwardFilter");
    return a;
  }();
  return loaded;
}

Handle handle(int device, cudaStream_t stream) {
  static auto* handles = new std::unordered_map<int, Handle>;
  Handle& h = (*handles)[device];
  if (!h) check(api().create(&h), "cudnnCreate");
  check(api().set_stream(h, stream), "cudnnSetStream");
  return h;
}

void check(int status, const char* what) {
  MICA_CHECK(status == 0, "cuDNN error: ", api().error_string(status), " from ", what);
}

}  // namespace mica::cuda::cudnn
