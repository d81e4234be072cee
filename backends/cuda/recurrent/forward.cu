// One direction of a recurrent layer, run over time: for each step a product with the hidden weights, and one kernel
// for all that follows it.
#include <optional>

#include "backends/cuda/allocator.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/recurrent/steps.cuh"

namespace mica::cuda {

using namespace recurrent;  // NOLINT

namespace {

enum class Stored { AsIs, Half, BFloat };

template <class T>
struct ForwardCell {
  CellKind kind;
  Stored stored;  // what states are rounded to after every step
  int64_t units, gate_width, state;
  T *output, *gates, *cells;
  int64_t output_stride;
  const T *h0, *c0, *b_hh, *hidden;
  T* unprojected;
  uint16_t* narrow;  // the states of a step once more, in the dtype that they are rounded to
  TimeStep s;

  __device__ T rounded(T v) const {
    if (stored == Stored::Half) return static_cast<T>(__half2float(__float2half_rn(static_cast<float>(v))));
    if (stored == Stored::BFloat) return static_cast<T>(__bfloat162float(__float2bfloat16_rn(static_cast<float>(v))));
    return v;
  }
  __device__ void operator()(int64_t element) const {
    const T h = run(element);
    if (narrow) narrow[element] = narrow_bits(static_cast<float>(h), stored == Stored::Half);
  }
  __device__ T run(int64_t element) const {
    const int64_t i = element / units, u = element - i * units, row = s.offset + i;
    const bool first = i >= s.before_count;
    T* const h = unprojected ? unprojected + i * units + u : output + row * output_stride + u;
    T* const gate = gates + row * gate_width + u;
    if (kind == CellKind::Lstm) {
      const T before = first ? c0[i * units + u] : cells[(s.before_offset + i) * units + u];
      const T in = sigmoid(gate[0]), forget = sigmoid(gate[units]), made = ::tanh(gate[2 * units]),
              out = sigmoid(gate[3 * units]);
      const T cell = ::fma(forget, before, in * made);
      gate[0] = in;
      gate[units] = forget;
      gate[2 * units] = made;
      gate[3 * units] = out;
      cells[row * units + u] = rounded(cell);
      *h = rounded(out * ::tanh(cell));
    } else if (kind == CellKind::Gru) {
      const T before = first ? h0[i * state + u] : output[(s.before_offset + i) * output_stride + u];
      const T* const from = hidden + i * gate_width + u;
      const auto part = [&](int g) { return from[g * units] + (b_hh ? b_hh[g * units + u] : T(0)); };
      const T reset = sigmoid(gate[0] + part(0)), update = sigmoid(gate[units] + part(1)), candidate = part(2);
      const T made = ::tanh(::fma(reset, candidate, gate[2 * units]));
      gate[0] = reset;
      gate[units] = update;
      gate[2 * units] = made;
      cells[row * units + u] = candidate;
      *h = rounded(::fma(update, before - made, made));
    } else {
      const T x = gate[0];
      *h = rounded(kind == CellKind::Tanh ? ::tanh(x) : x < T(0) ? T(0) : x);
    }
    return *h;
  }
};

template <class T>
struct RoundRows {
  ForwardCell<T> cell;
  __device__ void operator()(int64_t element) const {
    const int64_t i = element / cell.state, u = element - i * cell.state;
    T& place = cell.output[(cell.s.offset + i) * cell.output_stride + u];
    place = cell.rounded(place);
  }
};

template <class T>
void run_forward(const TensorView& output, const TensorView& hy, const TensorView& cy, const TensorView& gates,
                 const TensorView& cells, const TensorView& h0, const TensorView& c0, const TensorView& w_hh,
                 const TensorView& b_hh, const TensorView& w_hr, IntArrayRef batch_sizes, CellKind kind, bool reverse,
                 DType stored_as) {
  const Stored stored = stored_as == DType::Float16    ? Stored::Half
                        : stored_as == DType::BFloat16 ? Stored::BFloat
                                                       : Stored::AsIs;
  const int device = gates.device.index();
  const int64_t batch = h0.size(0), gate_width = gates.size(1), units = gate_width / gates_of(kind), state = h0.size(1);
  const auto bytes = [](int64_t n) { return static_cast<size_t>(n) * sizeof(T); };
  std::optional<Workspace> hidden, unprojected;
  if (kind == CellKind::Gru) hidden.emplace(bytes(std::max<int64_t>(1, batch * gate_width)), device);
  if (w_hr.defined()) unprojected.emplace(bytes(std::max<int64_t>(1, batch * units)), device);
  T *const products = hidden ? static_cast<T*>(hidden->data()) : nullptr, *const whole =
                                                                              unprojected
                                                                                  ? static_cast<T*>(unprojected->data())
                                                                                  : nullptr;
  ForwardCell<T> cell{kind,
                      stored,
                      units,
                      gate_width,
                      state,
                      output.ptr<T>(),
                      gates.ptr<T>(),
                      cells.ptr<T>(),
                      output.stride(0),
                      h0.ptr<const T>(),
                      pointer_or_null<const T>(c0),
                      pointer_or_null<const T>(b_hh),
                      products,
                      whole,
                      nullptr,
                      {}};
  // The narrow copies: the weights, the first states, the states of the last step.
  std::optional<Workspace> narrow;
  Product through_hidden{gates.dtype, gates.device, w_hh.data, state, gate_width, true};
  uint16_t* narrow_h0 = nullptr;
  if (std::is_same_v<T, float> && has_narrow_products(stored_as, state, gate_width, w_hr.defined())) {
    narrow.emplace(static_cast<size_t>(gate_width * state + 2 * batch * state) * sizeof(uint16_t), device);
    auto* const weights = static_cast<uint16_t*>(narrow->data());
    narrow_h0 = weights + gate_width * state;
    cell.narrow = narrow_h0 + batch * state;
    for_each(device, gate_width * state, Narrow{w_hh.ptr<const float>(), weights, stored == Stored::Half});
    for_each(device, batch * state, Narrow{h0.ptr<const float>(), narrow_h0, stored == Stored::Half});
    through_hidden.dtype = stored_as;
    through_hidden.weight = weights;
    through_hidden.narrow = true;
  }
  const Product project{gates.dtype, gates.device, w_hr.data, units, state, true};
  const std::vector<TimeStep> steps = time_steps(batch_sizes, reverse);
  for (const TimeStep& s : steps) {
    T* const to = products ? products : cell.gates + s.offset * gate_width;
    const bool adds = !products;
    if (narrow) {
      through_hidden(cell.narrow, state, to, gate_width, s.before_count, adds);
      through_hidden(narrow_h0 + s.before_count * state, state, to + s.before_count * gate_width, gate_width,
                     s.count - s.before_count, adds);
    } else {
      through_hidden(cell.output + s.before_offset * cell.output_stride, cell.output_stride, to, gate_width,
                     s.before_count, adds);
      through_hidden(cell.h0 + s.before_count * state, state, to + s.before_count * gate_width, gate_width,
                     s.count - s.before_count, adds);
    }
    cell.s = s;
    for_each(device, s.count * units, cell);
    if (!whole) continue;
    project(whole, units, cell.output + s.offset * cell.output_stride, cell.output_stride, s.count, false);
    if (stored != Stored::AsIs) for_each(device, s.count * state, RoundRows<T>{cell});
  }
  // The last rows of the sequences: those that the steps run later do not have.
  int64_t below = 0;
  for (size_t n = steps.size(); n-- > 0;) {
    const TimeStep& s = steps[n];
    if (s.count <= below) continue;
    const auto rows = static_cast<size_t>(s.count - below);
    const int64_t from = s.offset + below;
    const cudaStream_t stream = current_stream(device);
    if (state)
      MICA_CUDA(cudaMemcpy2DAsync(hy.ptr<T>() + below * state, bytes(state), cell.output + from * cell.output_stride,
                                  bytes(cell.output_stride), bytes(state), rows, cudaMemcpyDeviceToDevice, stream));
    if (kind == CellKind::Lstm && units)
      MICA_CUDA(cudaMemcpyAsync(cy.ptr<T>() + below * units, cell.cells + from * units, bytes(units) * rows,
                                cudaMemcpyDeviceToDevice, stream));
    below = s.count;
  }
}

}  // namespace

void recurrent_forward(const TensorView& output, const TensorView& hy, const TensorView& cy, const TensorView& gates,
                       const TensorView& cells, const TensorView& h0, const TensorView& c0, const TensorView& w_hh,
                       const TensorView& b_hh, const TensorView& w_hr, IntArrayRef batch_sizes, int64_t mode,
                       bool reverse, DType stored) {
  DeviceGuard guard(gates.device.index());
  const RoundedProducts rounded(flag(Flag::ConvolutionTf32));  // as torch's layers, which are cuDNN's
  const auto run = gates.dtype == DType::Float64 ? &run_forward<double> : &run_forward<float>;
  run(output, hy, cy, gates, cells, h0, c0, w_hh, b_hh, w_hr, batch_sizes, static_cast<CellKind>(mode), reverse,
      stored);
}

}  // namespace mica::cuda
