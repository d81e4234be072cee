// The part of cuDNN that convolutions and attention need, declared here because no toolkit has its header: the graph
// interface, whose descriptions are objects with attributes by number. The functions are found by name when the library
// is first used.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace mica::cuda::cudnn {

using Handle = struct cudnnContext*;
using Descriptor = void*;

enum DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kInt32 = 4, kBFloat16 = 9, kBoolean = 11 };

enum Kind : int {
  kPointwiseKind = 0,
  kConvolutionKind = 1,
  kEngineKind = 2,
  kEngineConfigKind = 3,
  kHeuristicKind = 4,
  kPlanKind = 5,
  kForwardKind = 10,
  kWeightGradientKind = 11,
  kInputGradientKind = 12,
  kPointwiseOperationKind = 13,
  kGraphKind = 15,
  kVariantPackKind = 16,
  kTensorKind = 17,
  kMatmulKind = 18,
  kMatmulOperationKind = 19,
  kReductionKind = 21,
  kReductionOperationKind = 22,
  kReshapeOperationKind = 31,
};

enum Type : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeDouble = 5,
  kTypePointer = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicMode = 8,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
  kTypeBehaviourNote = 19,
};

enum Attribute : int {
  kPointwiseMode = 0,
  kPointwiseCompute = 1,
  kPointwiseAxis = 9,
  kConvolutionCompute = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPaddingAfter = 104,
  kConvolutionPaddingBefore = 105,
  kConvolutionDims = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  // Of the three operations: alpha, beta, the convolution, then its tensors.
  kForwardAlpha = 700,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kInputGradientAlpha = 706,
  kInputGradientW = 709,
  kInputGradientDx = 710,
  kInputGradientDy = 711,
  kWeightGradientAlpha = 712,
  kWeightGradientDw = 715,
  kWeightGradientX = 716,
  kWeightGradientDy = 717,
  kPointwiseDescription = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorVirtual = 907,
  kTensorByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNotes = 1303,
  kEngineBehaviourNotes = 1305,
  kMatmulCompute = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescription = 1523,
  kReductionOperator = 1600,
  kReductionCompute = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescription = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
};
enum Mode : int { kCrossCorrelation = 1 };
enum Pointwise : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExponential = 13,
  kLogarithm = 15,
  kIdentity = 21,
  kGreaterOrEqual = 303,
  kIndex = 501,
  kSelect = 601,
};
enum Reduction : int { kSum = 0, kMaximum = 3 };
enum Heuristic : int { kHeuristicFallback = 2, kHeuristicA = 3 };
// What an engine may do to the numbers on the way.
enum Note : int { kNoteTensorCore = 0, kNoteDownConvertInputs = 1, kNoteNotRepeatable = 4 };
// How an engine behaves: whether its kernels are compiled as a plan is made.
enum BehaviourNote : int { kNoteCompiled = 0 };

struct Api {
  int (*create)(Handle*);
  int (*set_stream)(Handle, cudaStream_t);
  size_t (*version)();
  const char* (*error_string)(int);
  void (*last_error)(char* message, size_t size);
  int (*create_descriptor)(int kind, Descriptor*);
  int (*destroy_descriptor)(Descriptor);
  int (*set)(Descriptor, int attribute, int type, int64_t count, const void* values);
  int (*get)(Descriptor, int attribute, int type, int64_t wanted, int64_t* count, void* values);
  int (*finalize)(Descriptor);
  int (*execute)(Handle, Descriptor plan, Descriptor pack);
};

// Opens the library on the first call; an error that says what to install where there is none.
const Api& api();
bool available();
// Opens the compiler with which cuDNN makes kernels of attention, from the places where libraries are looked for here.
// cuDNN itself looks in fewer places, but uses a library that is open.
void open_compiler();
// The handle of a device. Code that uses it, or a table of plans, holds the lock.
std::mutex& lock();
Handle handle(int device, cudaStream_t stream);
void check(int status, const char* what);

}  // namespace mica::cuda::cudnn
