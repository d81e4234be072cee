// Speed of the matrix products: time and GFLOP/s per dtype and shape, best of several runs, outputs allocated
// beforehand. `gemm_bench [threads] [filter]`. The same shapes in torch: `torch.mm`, `torch.bmm`, `F.linear` with
// `out=` under torch.set_num_threads.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backends/cpu/gemm/gemm.h"
#include "mica/parallel.h"

namespace {

using mica::DType;
using mica::cpu::GemmCall;

struct Shape {
  const char* name;
  DType dtype;
  int64_t batch, m, n, k;
  bool b_transposed, bias;
};

constexpr Shape kShapes[] = {
    {"f32 8", DType::Float32, 1, 8, 8, 8, false, false},
    {"f32 16", DType::Float32, 1, 16, 16, 16, false, false},
    {"f32 32", DType::Float32, 1, 32, 32, 32, false, false},
    {"f32 64", DType::Float32, 1, 64, 64, 64, false, false},
    {"f32 64 @ transposed", DType::Float32, 1, 64, 64, 64, true, false},
    {"f32 128", DType::Float32, 1, 128, 128, 128, false, false},
    {"f32 256", DType::Float32, 1, 256, 256, 256, false, false},
    {"f32 512", DType::Float32, 1, 512, 512, 512, false, false},
    {"f32 1024", DType::Float32, 1, 1024, 1024, 1024, false, false},
    {"f32 2048", DType::Float32, 1, 2048, 2048, 2048, false, false},
    {"f32 1000", DType::Float32, 1, 1000, 1000, 1000, false, false},
    {"f32 batch 96: 512x64 @ 64x512", DType::Float32, 96, 512, 512, 64, false, false},
    {"f32 batch 16: 256x512 @ 512x300", DType::Float32, 16, 256, 300, 512, false, false},
    {"f32 batch 1024: 16x16 @ 16x16", DType::Float32, 1024, 16, 16, 16, false, false},
    {"f32 linear 2048x768 @ 768x3072", DType::Float32, 1, 2048, 3072, 768, true, true},
    {"f32 skinny 4x4096 @ 4096x4096", DType::Float32, 1, 4, 4096, 4096, false, false},
    {"f32 skinny 4x4096 @ transposed", DType::Float32, 1, 4, 4096, 4096, true, false},
    {"f32 deep 64x100000 @ 100000x64", DType::Float32, 1, 64, 64, 100000, false, false},
    {"f32 4096x4096 @ vector", DType::Float32, 1, 4096, 1, 4096, false, false},
    {"f32 vector @ 4096x4096", DType::Float32, 1, 1, 4096, 4096, false, false},
    {"f32 dot 1000000", DType::Float32, 1, 1, 1, 1000000, false, false},
    {"f64 64", DType::Float64, 1, 64, 64, 64, false, false},
    {"f64 1024", DType::Float64, 1, 1024, 1024, 1024, false, false},
    {"bf16 8", DType::BFloat16, 1, 8, 8, 8, false, false},
    {"bf16 64", DType::BFloat16, 1, 64, 64, 64, false, false},
    {"bf16 256", DType::BFloat16, 1, 256, 256, 256, false, false},
    {"bf16 1024", DType::BFloat16, 1, 1024, 1024, 1024, false, false},
    {"bf16 2048", DType::BFloat16, 1, 2048, 2048, 2048, false, false},
    {"bf16 linear 2048x768 @ 768x3072", DType::BFloat16, 1, 2048, 3072, 768, true, true},
    {"bf16 batch 16: 256x512 @ 512x300", DType::BFloat16, 16, 256, 300, 512, false, false},
    {"bf16 4096x4096 @ vector", DType::BFloat16, 1, 4096, 1, 4096, false, false},
    {"f16 256", DType::Float16, 1, 256, 256, 256, false, false},
    {"f16 1024", DType::Float16, 1, 1024, 1024, 1024, false, false},
    {"c64 64", DType::Complex64, 1, 64, 64, 64, false, false},
    {"c64 512", DType::Complex64, 1, 512, 512, 512, false, false},
    {"c128 512", DType::Complex128, 1, 512, 512, 512, false, false},
    {"i64 256", DType::Int64, 1, 256, 256, 256, false, false},
    {"i32 256", DType::Int32, 1, 256, 256, 256, false, false},
    {"i8 256", DType::Int8, 1, 256, 256, 256, false, false},
};

// Values near 1: zeros would avoid subnormals, but would also be unlike real data.
std::vector<char> filled(DType dtype, int64_t elements) {
  std::vector<char> bytes(static_cast<size_t>(elements * mica::element_size(dtype)));
  const auto fill = [&]<class T>(T) {
    T* values = reinterpret_cast<T*>(bytes.data());
    const int64_t count = static_cast<int64_t>(bytes.size() / sizeof(T));
    for (int64_t i = 0; i < count; ++i) values[i] = T(static_cast<float>(i * 7919 % 1000) / 500.f - 1.f);
  };
  switch (dtype) {
    case DType::Float64:
    case DType::Complex128:
      fill(double{});
      break;
    case DType::BFloat16:
      fill(mica::BFloat16{});
      break;
    case DType::Float16:
      fill(mica::Half{});
      break;
    case DType::Float32:
    case DType::Complex64:
      fill(float{});
      break;
    default:
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
  }
  return bytes;
}

double seconds_per_call(const GemmCall& call) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](int repeats) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) mica::cpu::gemm(call);
    return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
  };
  time(1);
  const double once = time(1);
  const int repeats = static_cast<int>(std::clamp(0.01 / once, 1.0, 20000.0));
  double best = once;
  for (int i = 0; i < 15; ++i) best = std::min(best, time(repeats));
  return best;
}

void measure(const Shape& s) {
  const std::vector<char> a = filled(s.dtype, s.batch * s.m * s.k), b = filled(s.dtype, s.batch * s.k * s.n);
  const std::vector<char> bias = filled(s.dtype, s.n);
  std::vector<char> c(static_cast<size_t>(s.batch * s.m * s.n * mica::element_size(s.dtype)));
  GemmCall call;
  call.dtype = s.dtype;
  call.batch = s.batch;
  call.m = s.m;
  call.n = s.n;
  call.k = s.k;
  call.a = {a.data(), s.k, 1, s.m * s.k};
  call.b = {b.data(), s.b_transposed ? 1 : s.n, s.b_transposed ? s.k : 1, s.k * s.n};
  call.c = c.data();
  call.c_row_stride = s.n;
  call.c_col_stride = 1;
  call.c_batch_stride = s.m * s.n;
  call.bias = s.bias ? bias.data() : nullptr;
  const double seconds = seconds_per_call(call);
  const double flops =
      2.0 * (mica::is_complex(s.dtype) ? 4 : 1) * static_cast<double>(s.batch * s.m * s.n) * static_cast<double>(s.k);
  std::printf("%-36s %12.2f us %9.1f GFLOP/s\n", s.name, seconds * 1e6, flops / seconds * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) mica::set_num_threads(std::atoi(argv[1]));
  const char* filter = argc > 2 ? argv[2] : "";
  std::printf("%d threads\n", mica::get_num_threads());
  for (const Shape& s : kShapes) {
    if (std::strstr(s.name, filter)) measure(s);
  }
}
