// A whole backend: the device type "mine" with one device, whose memory is the host's, and kernels of float32. Tensors
// move, print, and train a linear model on it. A real one puts its device's calls where this one has malloc and loops.
#include <cstdlib>
#include <cstring>

#include <mica/backend.h>
#include <mica/error.h>

using namespace mica;

// ---- memory

int device_count() { return 1; }
int current_device() { return 0; }
void set_device(int) {}
void* allocate(size_t nbytes, int) {
  void* data = std::malloc(nbytes);
  MICA_CHECK_KIND(data, OutOfMemory, "mine: out of memory, ", nbytes, " bytes were asked for");
  return data;
}
void release(void* data, size_t, int) { std::free(data); }
void copy_bytes(void* to, Device, const void* from, Device, size_t nbytes, bool) { std::memcpy(to, from, nbytes); }
void synchronize(int) {}

// ---- pointwise slots: operands are broadcast already, strides are in bytes

void need_float(const char* op, DType dtype) {
  if (dtype != DType::Float32) unsupported_dtype(op, dtype);
}

template <class F>
void for_each_element(const PointwiseLoop& loop, const F& f) {
  for (int64_t i = 0; i < loop.numel; ++i) {
    float* at[PointwiseLoop::kMaxOperands];
    for (int k = 0; k < loop.noperands; ++k) {
      char* place = loop.data[k];
      int64_t rest = i;
      for (int d = 0; d < loop.ndim; rest /= loop.shape[d++]) place += rest % loop.shape[d] * loop.strides[d][k];
      at[k] = reinterpret_cast<float*>(place);
    }
    f(at);
  }
}

void copy(const PointwiseLoop& loop) {
  need_float("copy_", loop.dtypes[0]);
  need_float("copy_", loop.dtypes[1]);
  for_each_element(loop, [](float** at) { *at[0] = *at[1]; });
}
void fill(const PointwiseLoop& loop, Scalar value) {
  need_float("fill_", loop.dtypes[0]);
  for_each_element(loop, [&](float** at) { *at[0] = value.cast<float>(); });
}
void add(const PointwiseLoop& loop, Scalar alpha) {
  need_float("add", loop.dtype);
  for_each_element(loop, [&](float** at) { *at[0] = *at[1] + alpha.cast<float>() * *at[2]; });
}
void mul(const PointwiseLoop& loop) {
  need_float("mul", loop.dtype);
  for_each_element(loop, [](float** at) { *at[0] = *at[1] * *at[2]; });
}

// ---- slots of whole tensors: strides are in elements

// Where element i of `walked`, counted row by row, lies in a view that lacks the dimensions `without`, or has them with
// size one.
int64_t offset(const TensorView& walked, int64_t i, const TensorView& view, uint64_t without) {
  int64_t at = 0;
  for (int d = walked.ndim - 1, v = view.ndim - 1; d >= 0; i /= walked.sizes[d--]) {
    const bool left_out = without >> d & 1;
    if (!left_out) at += i % walked.sizes[d] * view.strides[v];
    if (!left_out || view.ndim == walked.ndim) --v;
  }
  return at;
}

void reduce_sum(const TensorView& out, const TensorView& self, uint64_t dims) {
  need_float("sum", self.dtype);
  // The contract of the slot: out is overwritten, and the sum of no elements is zero.
  for (int64_t i = 0; i < out.numel; ++i) out.ptr<float>()[offset(out, i, out, 0)] = 0;
  for (int64_t i = 0; i < self.numel; ++i)
    out.ptr<float>()[offset(self, i, out, dims)] += self.ptr<float>()[offset(self, i, self, 0)];
}

void matmul(const MatmulCall& call) {
  need_float("matmul", call.out.dtype);
  const float alpha = call.alpha.cast<float>(), beta = call.beta.cast<float>();
  const auto at = [](const TensorView& t, int64_t b, int64_t r, int64_t c) -> float& {
    return t.ptr<float>()[b * t.strides[0] + r * t.strides[1] + c * t.strides[2]];
  };
  for (int64_t b = 0; b < call.out.sizes[0]; ++b)
    for (int64_t r = 0; r < call.out.sizes[1]; ++r)
      for (int64_t c = 0; c < call.out.sizes[2]; ++c) {
        float sum = 0;
        for (int64_t k = 0; k < call.a.sizes[2]; ++k) sum += at(call.a, b, r, k) * at(call.b, b, k, c);
        float& out = at(call.out, b, r, c);
        out = alpha * sum + (beta == 0 ? 0 : beta * out) + (call.bias ? static_cast<const float*>(call.bias)[c] : 0);
      }
}

// ---- what the core asks for

extern "C" const Backend* mica_backend() {
  static const KernelTable kernels = [] {
    KernelTable t;
    t.copy = copy;  // the compiler checks each signature
    t.fill = fill;
    t.add = add;
    t.mul = mul;
    t.reduce_sum = reduce_sum;
    t.matmul = matmul;
    return t;
  }();
  static const Backend backend = [] {
    Backend b;
    b.abi = kBackendAbi;
    b.name = "mine";
    b.kernels = &kernels;
    b.device_count = device_count;
    b.current_device = current_device;
    b.set_device = set_device;
    b.allocate = allocate;
    b.free = release;
    b.copy_bytes = copy_bytes;
    b.synchronize = synchronize;
    return b;
  }();
  return &backend;
}
