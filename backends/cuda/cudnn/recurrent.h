// cuDNN's recurrent layers, declared here as its header has them: descriptors of a stack of layers and of sequences,
// and the three functions that run it.
#pragma once

#include "backends/cuda/cudnn/cudnn.h"

namespace mica::cuda::cudnn {

using RecurrentDescriptor = struct cudnnRNNStruct*;
using SequenceDescriptor = struct cudnnRNNDataStruct*;
using TensorDescriptor = struct cudnnTensorStruct*;
using DropoutDescriptor = struct cudnnDropoutStruct*;

enum Algorithm : int { kStandard = 0, kPersistStatic = 1, kPersistStaticSmall = 3 };
enum BiasMode : int { kDoubleBias = 2 };
enum SequenceLayout : int { kPadded = 0, kPacked = 1 };  // both with the steps as the slowest dimension
enum MathType : int { kDefaultMath = 0, kTensorMath = 1, kFmaMath = 3 };
enum ForwardMode : int { kInference = 0, kTraining = 1 };
enum WeightGradient : int { kAddGradient = 0 };
enum InputMode : int { kLinearInput = 0 };
enum Status : int { kNotSupported = 3000 };  // and its finer kinds, below 4000

struct RecurrentApi {
  int (*create)(RecurrentDescriptor*);
  int (*destroy)(RecurrentDescriptor);
  int (*set)(RecurrentDescriptor, int algorithm, int cell, int bias_mode, int is_bidirectional, int input_mode,
             int data_type, int math_precision, int math_type, int32_t input, int32_t hidden, int32_t projected,
             int32_t layers, DropoutDescriptor, uint32_t padded_io);
  int (*create_dropout)(DropoutDescriptor*);
  int (*destroy_dropout)(DropoutDescriptor);
  int (*set_dropout)(DropoutDescriptor, Handle, float probability, void* states, size_t bytes, unsigned long long seed);
  int (*create_sequence)(SequenceDescriptor*);
  int (*destroy_sequence)(SequenceDescriptor);
  int (*set_sequence)(SequenceDescriptor, int data_type, int layout, int steps, int batch, int width,
                      const int lengths[], void* padding);
  int (*create_tensor)(TensorDescriptor*);
  int (*destroy_tensor)(TensorDescriptor);
  int (*set_tensor)(TensorDescriptor, int data_type, int dims, const int sizes[], const int strides[]);
  int (*get_tensor)(TensorDescriptor, int room, int* data_type, int* dims, int sizes[], int strides[]);
  int (*weight_bytes)(Handle, RecurrentDescriptor, size_t*);
  int (*weight_places)(Handle, RecurrentDescriptor, int32_t run, size_t bytes, const void* weights, int32_t gate,
                       TensorDescriptor matrix, void** matrix_at, TensorDescriptor bias, void** bias_at);
  int (*temporary_bytes)(Handle, RecurrentDescriptor, int forward_mode, SequenceDescriptor x, size_t* workspace,
                         size_t* reserve);
  int (*forward)(Handle, RecurrentDescriptor, int forward_mode, const int32_t lengths[], SequenceDescriptor x_is,
                 const void* x, SequenceDescriptor y_is, void* y, TensorDescriptor h_is, const void* hx, void* hy,
                 TensorDescriptor c_is, const void* cx, void* cy, size_t weight_bytes, const void* weights,
                 size_t workspace_bytes, void* workspace, size_t reserve_bytes, void* reserve);
  int (*backward_data)(Handle, RecurrentDescriptor, const int32_t lengths[], SequenceDescriptor y_is, const void* y,
                       const void* dy, SequenceDescriptor x_is, void* dx, TensorDescriptor h_is, const void* hx,
                       const void* dhy, void* dhx, TensorDescriptor c_is, const void* cx, const void* dcy, void* dcx,
                       size_t weight_bytes, const void* weights, size_t workspace_bytes, void* workspace,
                       size_t reserve_bytes, void* reserve);
  int (*backward_weights)(Handle, RecurrentDescriptor, int adds, const int32_t lengths[], SequenceDescriptor x_is,
                          const void* x, TensorDescriptor h_is, const void* hx, SequenceDescriptor y_is, const void* y,
                          size_t weight_bytes, void* dweights, size_t workspace_bytes, void* workspace,
                          size_t reserve_bytes, void* reserve);
};

const RecurrentApi& recurrent_api();

}  // namespace mica::cuda::cudnn
