// cuSOLVER and cuBLAS as far as decompositions need them: the functions of their C interfaces, found by name in the
// libraries when they are first used.
#pragma once

#include <cuda_runtime.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "mica/dtype.h"

namespace mica::cuda::cusolver {

using Handle = void*;
using Parameters = void*;
using Type = cudaDataType;
enum Triangle : int { kLower = 0, kUpper = 1 };
enum Side : int { kLeft = 0, kRight = 1 };
enum Operation : int { kPlain = 0, kTransposed = 1, kAdjoint = 2 };
enum Vectors : int { kNoVectors = 0, kWithVectors = 1 };

// One function for each of float, double and their complex numbers, in this order; their signatures differ only in what
// the pointers point to.
template <class F>
struct OfTypes {
  F* of[4];
};

struct Api {
  int (*create)(Handle*);
  int (*set_stream)(Handle, cudaStream_t);
  int (*create_parameters)(Parameters*);
  int (*create_jacobi)(void**);

  int (*cholesky_size)(Handle, Parameters, Triangle, int64_t n, Type, const void* a, int64_t lead, Type, size_t*,
                       size_t*);
  int (*cholesky)(Handle, Parameters, Triangle, int64_t n, Type, void* a, int64_t lead, Type, void*, size_t, void*,
                  size_t, int* info);
  int (*qr_size)(Handle, Parameters, int64_t m, int64_t n, Type, const void* a, int64_t lead, Type, const void* tau,
                 Type, size_t*, size_t*);
  int (*qr)(Handle, Parameters, int64_t m, int64_t n, Type, void* a, int64_t lead, Type, void* tau, Type, void*, size_t,
            void*, size_t, int* info);
  int (*eigh_size)(Handle, Parameters, Vectors, Triangle, int64_t n, Type, const void* a, int64_t lead, Type,
                   const void* values, Type, size_t*, size_t*);
  int (*eigh)(Handle, Parameters, Vectors, Triangle, int64_t n, Type, void* a, int64_t lead, Type, void* values, Type,
              void*, size_t, void*, size_t, int* info);
  // The next four are null in libraries from before CUDA 12.6.
  int (*eigh_batch_size)(Handle, Parameters, Vectors, Triangle, int64_t n, Type, const void* a, int64_t lead, Type,
                         const void* values, Type, size_t*, size_t*, int64_t count);
  int (*eigh_batch)(Handle, Parameters, Vectors, Triangle, int64_t n, Type, void* a, int64_t lead, Type, void* values,
                    Type, void*, size_t, void*, size_t, int* info, int64_t count);
  int (*eig_size)(Handle, Parameters, Vectors, Vectors, int64_t n, Type, const void* a, int64_t lead, Type,
                  const void* values, Type, const void* left, int64_t left_lead, Type, const void* right,
                  int64_t right_lead, Type, size_t*, size_t*);
  int (*eig)(Handle, Parameters, Vectors, Vectors, int64_t n, Type, void* a, int64_t lead, Type, void* values, Type,
             void* left, int64_t left_lead, Type, void* right, int64_t right_lead, Type, void*, size_t, void*, size_t,
             int* info);

  OfTypes<int(Handle, int m, int n, void* a, int lead, int*)> lu_size;
  OfTypes<int(Handle, int m, int n, void* a, int lead, void* work, int* pivots, int* info)> lu;
  OfTypes<int(Handle, Operation, int n, int columns, const void* a, int lead, const int* pivots, void* b, int b_lead,
              int* info)>
      lu_solve;
  OfTypes<int(Handle, int m, int n, int k, const void* a, int lead, const void* tau, int*)> orgqr_size;
  OfTypes<int(Handle, int m, int n, int k, void* a, int lead, const void* tau, void* work, int, int* info)> orgqr;
  OfTypes<int(Handle, Side, Operation, int m, int n, int k, const void* a, int lead, const void* tau, const void* c,
              int c_lead, int*)>
      ormqr_size;
  OfTypes<int(Handle, Side, Operation, int m, int n, int k, const void* a, int lead, const void* tau, void* c,
              int c_lead, void* work, int, int* info)>
      ormqr;
  OfTypes<int(Handle, Vectors, int economy, int m, int n, const void* a, int lead, const void* s, const void* u,
              int u_lead, const void* v, int v_lead, int*, void* jacobi)>
      svd_size;
  OfTypes<int(Handle, Vectors, int economy, int m, int n, void* a, int lead, void* s, void* u, int u_lead, void* v,
              int v_lead, void* work, int, int* info, void* jacobi)>
      svd;
  OfTypes<int(Handle, Vectors, int m, int n, const void* a, int lead, const void* s, const void* u, int u_lead,
              const void* v, int v_lead, int*, void* jacobi, int count)>
      svd_batch_size;
  OfTypes<int(Handle, Vectors, int m, int n, void* a, int lead, void* s, void* u, int u_lead, void* v, int v_lead,
              void* work, int, int* info, void* jacobi, int count)>
      svd_batch;
  // cuBLAS
  int (*create_blas)(Handle*);
  int (*set_blas_stream)(Handle, cudaStream_t);
  OfTypes<int(Handle, Side, Triangle, Operation, int unit, int m, int n, const void* factor, const void* a, int lead,
              void* b, int b_lead)>
      triangular_solve;
};

bool available();
// Opens the libraries on the first call; an error that says what to install where there are none.
const Api& api();
void check(int status, const char* call);
#define MICA_CUSOLVER(call) ::mica::cuda::cusolver::check(call, #call)

Type type_of(DType dtype);
int place_of(DType dtype);  // in OfTypes

// The handles of a device, with the current stream, for the length of a call: one call at a time.
class Session {
 public:
  explicit Session(int device);
  Handle solver, blas;
  Parameters parameters;
  void* jacobi;

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace mica::cuda::cusolver
