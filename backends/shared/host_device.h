// MICA_HD marks a function that nvcc compiles for the host and for the device.
#pragma once

#if defined(__CUDACC__)
#define MICA_HD __host__ __device__
#else
#define MICA_HD
#endif
