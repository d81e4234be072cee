// cuFFT as far as transforms of up to three dimensions need it: the functions of its stable C interface, found by name
// in the library when it is first used.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace mica::cuda::cufft {

using Plan = int;
enum Type : int {
  kComplexToComplex = 0x29,
  kRealToComplex = 0x2a,
  kComplexToReal = 0x2c,
  kDoubleComplexToComplex = 0x69,
  kDoubleRealToComplex = 0x6a,
  kDoubleComplexToReal = 0x6c,
};
enum Direction : int { kForward = -1, kInverse = 1 };

struct Api {
  int (*create)(Plan*);
  int (*set_auto_allocation)(Plan, int);
  int (*make)(Plan, int rank, long long* n, long long* in_embed, long long in_stride, long long in_distance,
              long long* out_embed, long long out_stride, long long out_distance, int type, long long batch,
              size_t* work_size);
  int (*set_work_area)(Plan, void*);
  int (*set_stream)(Plan, cudaStream_t);
  int (*complex_to_complex)(Plan, void* in, void* out, int direction);
  int (*real_to_complex)(Plan, void* in, void* out);
  int (*complex_to_real)(Plan, void* in, void* out);
  int (*double_complex_to_complex)(Plan, void* in, void* out, int direction);
  int (*double_real_to_complex)(Plan, void* in, void* out);
  int (*double_complex_to_real)(Plan, void* in, void* out);
};

// Opens the library on the first call; an error that says what to install where there is none.
const Api& api();

}  // namespace mica::cuda::cufft
