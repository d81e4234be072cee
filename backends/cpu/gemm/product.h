// One matrix product, made of what kernels.h has: what a dtype needs (Scheme), and the ways to run it.
#pragma once

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/kernels.h"

namespace mica::cpu::gemm_impl {

// Panel formats of kernels that want other operands than strided ones, such as pairs of bfloat16.
struct PanelFormat {
  int k_unit;  // the depth of a panel is padded with zeros to a multiple of this
  void (*pack_a)(const void* src, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k, void* panel);
  void (*pack_b)(const void* src, int64_t k_stride, int64_t col_stride, int64_t k, int64_t cols, void* panel);
  void (*enter)();  // called before and after a thread's run of tiles
  void (*leave)();
};

// How a dtype is multiplied. A complex element counts as `parts` = 2 reals: the product of A's (re, im) rows with B's
// (re, im) columns is a real product of twice the size each way, recombined by `finish`.
struct Scheme {
  DType dtype;
  int parts;
  int64_t element_size;
  int64_t sum_size;            // bytes of a real sum
  int64_t packed_size;         // bytes of a real in a packed panel
  int64_t k_block;             // the depth of a panel with which all that the micro-kernel reads stays in near caches
  MicroKernel strided_kernel;  // for operands in the type of the sums
  MicroKernel kernel;          // for packed panels; another one where there is a `format`
  CopyFn copy;                 // whole elements
  CopyFn copy_part;            // one real of an element
  FinishFn finish;
  GemvFn gemv;                // null for complex
  const PanelFormat* format;  // null: strided panels
  bool sums_are_elements;     // elements have the type of the sums: A, B and C can be used in place
};

const Scheme& scheme_of(DType dtype);

// A kernel for bfloat16 operands with float32 sums when the CPU has one.
struct BFloat16Kernel {
  MicroKernel kernel;
  PanelFormat format;
};
const BFloat16Kernel* bfloat16_kernel();

// One product of a call, without its batch. C's columns are not necessarily adjacent.
struct Product {
  int64_t m, n, k;
  GemmOperand a, b;
  char* c;
  int64_t c_row_stride, c_col_stride;
  Epilogue epilogue;
  alignas(16) char one[16];  // in the type of the sums
  bool unit_alpha;
  bool plain;  // alpha == 1, beta == 0, no bias
  GemmBlocks* blocks = nullptr;
  int64_t index = 0;  // in the batch
  GemmFactors b_factors;

  const char* a_at(const Scheme& s, int64_t row, int64_t depth) const {
    return static_cast<const char*>(a.data) + (row * a.row_stride + depth * a.col_stride) * s.element_size;
  }
  const char* b_at(const Scheme& s, int64_t depth, int64_t col) const {
    return static_cast<const char*>(b.data) + (depth * b.row_stride + col * b.col_stride) * s.element_size;
  }
  char* c_at(const Scheme& s, int64_t row, int64_t col) const {
    return c + (row * c_row_stride + col * c_col_stride) * s.element_size;
  }
  Epilogue epilogue_at(const Scheme& s, int64_t col) const {
    Epilogue e = epilogue;
    if (e.bias) e.bias = static_cast<const char*>(e.bias) + col * s.element_size;
    return e;
  }
};

// Runs on the stack of the calling thread, only where fits_small().
bool fits_small(const Scheme& s, const Product& p);
void run_small(const Scheme& s, const Product& p);

// Adds `slices` blocks of `count` sums that follow each other into the first.
void add_slices(const Scheme& s, char* sums, int64_t count, int slices);

// A vector, or a few, times a matrix that has a unit stride; false when the operands do not suit.
bool run_vector(const Scheme& s, const Product& p, int threads);

// A row of complex numbers times a column of them; false when the operands do not suit.
bool run_complex_dot(const Scheme& s, const Product& p, int threads);

// A column times a row (k == 1), row by row of C; false when the operands do not suit.
bool run_outer(const Scheme& s, const Product& p, int threads);

// Few sums of many products: each thread takes a slice of the depth. False when the sums are not few.
bool run_deep(const Scheme& s, const Product& p, int threads);

// Takes any product, through packed panels.
void run_packed(const Scheme& s, const Product& p, int threads);

}  // namespace mica::cpu::gemm_impl
