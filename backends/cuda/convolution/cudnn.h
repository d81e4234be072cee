// cuDNN as far as convolutions need it, declared here because its header is in no toolkit: the functions of its stable C
// interface, found by name in the library when it is first used.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace mica::cuda::cudnn {

using Handle = struct cudnnContext*;
using Tensor = struct cudnnTensorStruct*;
using Filter = struct cudnnFilterStruct*;
using Convolution = struct cudnnConvolutionStruct*;

enum DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };
enum Format : int { kChannelsFirst = 0, kChannelsLast = 1 };
enum Mode : int { kCrossCorrelation = 1 };
enum Math : int { kDefaultMath = 0, kTensorOps = 1, kFmaOnly = 3 };

struct AlgorithmChoice {
  int algorithm;
  int status;
  float time;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};

struct Api {
  int (*create)(Handle*);
  int (*set_stream)(Handle, cudaStream_t);
  const char* (*error_string)(int);
  int (*create_tensor)(Tensor*);
  int (*destroy_tensor)(Tensor);
  int (*set_tensor)(Tensor, int type, int dims, const int* sizes, const int* strides);
  int (*create_filter)(Filter*);
  int (*destroy_filter)(Filter);
  int (*set_filter)(Filter, int type, int format, int dims, const int* sizes);
  int (*create_convolution)(Convolution*);
  int (*destroy_convolution)(Convolution);
  int (*set_convolution)(Convolution, int dims, const int* padding, const int* stride, const int* dilation, int mode,
                         int type);
  int (*set_groups)(Convolution, int);
  int (*set_math)(Convolution, int);
  int (*choose_forward)(Handle, Tensor x, Filter w, Convolution, Tensor y, int wanted, int* count, AlgorithmChoice*);
  int (*choose_input)(Handle, Filter w, Tensor dy, Convolution, Tensor dx, int wanted, int* count, AlgorithmChoice*);
  int (*choose_weight)(Handle, Tensor x, Tensor dy, Convolution, Filter dw, int wanted, int* count, AlgorithmChoice*);
  int (*forward)(Handle, const void* alpha, Tensor xd, const void* x, Filter wd, const void* w, Convolution, int algorithm,
                 void* workspace, size_t bytes, const void* beta, Tensor yd, void* y);
  int (*input_gradient)(Handle, const void* alpha, Filter wd, const void* w, Tensor dyd, const void* dy, Convolution,
                        int algorithm, void* workspace, size_t bytes, const void* beta, Tensor dxd, void* dx);
  int (*weight_gradient)(Handle, const void* alpha, Tensor xd, const void* x, Tensor dyd, const void* dy, Convolution,
                         int algorithm, void* workspace, size_t bytes, const void* beta, Filter dwd, void* dw);
};

// Opens the library on the first call; an error that says what to install where there is none.
const Api& api();
bool available();
// The handle of a device. Whoever uses it holds the lock of the plans.
Handle handle(int device, cudaStream_t stream);
void check(int status, const char* what);

}  // namespace mica::cuda::cudnn
