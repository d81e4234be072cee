// The gradients of one direction of a recurrent layer, run backwards over time: for each step a product with the hidden
// weights, and one kernel for the cells.
#include <optional>

#include "backends/cuda/allocator.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/recurrent/steps.cuh"

namespace mica::cuda {

using namespace recurrent;  // NOLINT

namespace {

template <class T>
struct BackwardCell {
  CellKind kind;
  int64_t units, gate_width, state;
  T *grad_gates, *grad_hidden_gates;  // the same memory but for the GRU
  T *grad_h, *grad_c;                 // of the state after the step at hand, row by row of the batch
  T *previous, *unprojected;
  const T *grad_output, *output, *gates, *cells, *h0, *c0;
  int64_t output_stride, grad_output_stride;
  const T* grad_cell_output;  // with a projection: one step's gradient of h before it
  uint16_t* narrow;           // the gradients of a step's gates by the hidden states once more, in bfloat16
  TimeStep s;

  __device__ void operator()(int64_t element) const {
    run(element);
    if (!narrow) return;
    const int64_t i = element / units, u = element - i * units;
    const T* const from = grad_hidden_gates + (s.offset + i) * gate_width + u;
    for (int64_t g = 0; g < gate_width; g += units)
      narrow[i * gate_width + u + g] = narrow_bits(static_cast<float>(from[g]), false);
  }
  __device__ void run(int64_t element) const {
    const int64_t i = element / units, u = element - i * units, row = s.offset + i;
    const bool first = i >= s.before_count;
    if (previous && u < state)
      previous[row * state + u] = first ? h0[i * state + u] : output[(s.before_offset + i) * output_stride + u];
    T dh;
    if (grad_cell_output) {
      dh = grad_cell_output[i * units + u];
    } else {
      dh = grad_h[i * state + u];
      if (grad_output) dh += grad_output[row * grad_output_stride + u];
    }
    const T* const gate = gates + row * gate_width + u;
    T* const grad_gate = grad_gates + row * gate_width + u;
    if (kind == CellKind::Lstm) {
      const T before = first ? c0[i * units + u] : cells[(s.before_offset + i) * units + u];
      const T in = gate[0], forget = gate[units], made = gate[2 * units], out = gate[3 * units],
              y = ::tanh(cells[row * units + u]);
      T& of_cell = grad_c[i * units + u];
      const T dc = of_cell + through_tanh(dh * out, y);
      grad_gate[0] = through_sigmoid(dc * made, in);
      grad_gate[units] = through_sigmoid(dc * before, forget);
      grad_gate[2 * units] = through_tanh(dc * in, made);
      grad_gate[3 * units] = through_sigmoid(dh * y, out);
      of_cell = dc * forget;
      if (unprojected) unprojected[row * units + u] = out * y;
    } else if (kind == CellKind::Gru) {
      const T before = first ? h0[i * state + u] : output[(s.before_offset + i) * output_stride + u];
      const T reset = gate[0], update = gate[units], made = gate[2 * units];
      const T dn = through_tanh(dh - dh * update, made);
      const T dr = through_sigmoid(dn * cells[row * units + u], reset);
      const T dz = through_sigmoid(dh * (before - made), update);
      grad_gate[0] = dr;
      grad_gate[units] = dz;
      grad_gate[2 * units] = dn;
      T* const hidden = grad_hidden_gates + row * gate_width + u;
      hidden[0] = dr;
      hidden[units] = dz;
      hidden[2 * units] = dn * reset;
      grad_h[i * state + u] = dh * update;
    } else {
      const T y = output[row * output_stride + u];
      grad_gate[0] = kind == CellKind::Tanh ? through_tanh(dh, y) : y > T(0) ? dh : T(0);
    }
  }
};

// With a projection: the gradient of the step's output joins what came from the steps after it.
template <class T>
struct JoinOutput {
  T *grad_h, *grad_projected;
  const T* grad_output;
  int64_t grad_output_stride, state, offset;
  __device__ void operator()(int64_t element) const {
    const int64_t i = element / state, u = element - i * state;
    T& here = grad_h[element];
    if (grad_output) here += grad_output[(offset + i) * grad_output_stride + u];
    grad_projected[(offset + i) * state + u] = here;
  }
};

template <class T>
void run_backward(const TensorView& grad_gates, const TensorView& grad_hidden_gates, const TensorView& grad_h,
                  const TensorView& grad_c, const TensorView& previous, const TensorView& unprojected,
                  const TensorView& grad_projected, const TensorView& grad_output, const TensorView& output,
                  const TensorView& gates, const TensorView& cells, const TensorView& h0, const TensorView& c0,
                  const TensorView& w_hh, const TensorView& w_hr, IntArrayRef batch_sizes, CellKind kind, bool reverse,
                  DType stored) {
  const int device = gates.device.index();
  const int64_t gate_width = gates.size(1), units = gate_width / gates_of(kind), state = h0.size(1);
  std::optional<Workspace> before_projection;
  if (w_hr.defined())
    before_projection.emplace(static_cast<size_t>(std::max<int64_t>(1, h0.size(0) * units)) * sizeof(T), device);
  T* const inner = before_projection ? static_cast<T*>(before_projection->data()) : nullptr;
  BackwardCell<T> cell{kind,
                       units,
                       gate_width,
                       state,
                       grad_gates.ptr<T>(),
                       kind == CellKind::Gru ? grad_hidden_gates.ptr<T>() : grad_gates.ptr<T>(),
                       grad_h.ptr<T>(),
                       pointer_or_null<T>(grad_c),
                       pointer_or_null<T>(previous),
                       pointer_or_null<T>(unprojected),
                       pointer_or_null<const T>(grad_output),
                       output.ptr<const T>(),
                       gates.ptr<const T>(),
                       cells.ptr<const T>(),
                       h0.ptr<const T>(),
                       pointer_or_null<const T>(c0),
                       output.stride(0),
                       grad_output.defined() ? grad_output.stride(0) : 0,
                       inner,
                       nullptr,
                       {}};
  Product through_hidden{gates.dtype, gates.device, w_hh.data, gate_width, state, false};
  // Gradients of bfloat16 layers are rounded to it on their way back through the weights. float16 has not their range.
  std::optional<Workspace> narrow;
  if (std::is_same_v<T, float> && stored == DType::BFloat16 &&
      has_narrow_products(stored, state, gate_width, w_hr.defined())) {
    narrow.emplace(static_cast<size_t>(gate_width * state + h0.size(0) * gate_width) * sizeof(uint16_t), device);
    auto* const weights = static_cast<uint16_t*>(narrow->data());
    cell.narrow = weights + gate_width * state;
    for_each(device, gate_width * state, Narrow{w_hh.ptr<const float>(), weights, false});
    through_hidden.dtype = stored;
    through_hidden.weight = weights;
    through_hidden.narrow = true;
  }
  const Product through_projection{gates.dtype, gates.device, w_hr.data, state, units, false};
  // A GRU's cells leave a part of the gradient in grad_h.
  const auto through_weight = [&](const TimeStep& later) {
    const void* from = cell.grad_hidden_gates + later.offset * gate_width;
    if (narrow) from = cell.narrow;
    through_hidden(from, gate_width, cell.grad_h, state, later.count, kind == CellKind::Gru);
  };
  const std::vector<TimeStep> steps = time_steps(batch_sizes, reverse);
  for (size_t n = steps.size(); n-- > 0;) {
    const TimeStep& s = steps[n];
    if (n + 1 < steps.size()) through_weight(steps[n + 1]);
    cell.s = s;
    if (inner) {
      for_each(device, s.count * state,
               JoinOutput<T>{cell.grad_h, grad_projected.ptr<T>(), cell.grad_output, cell.grad_output_stride, state,
                             s.offset});
      through_projection(cell.grad_h, state, inner, units, s.count, false);
    }
    for_each(device, s.count * units, cell);
  }
  through_weight(steps[0]);
}

}  // namespace

void recurrent_backward(const TensorView& grad_gates, const TensorView& grad_hidden_gates, const TensorView& grad_h,
                        const TensorView& grad_c, const TensorView& previous, const TensorView& unprojected,
                        const TensorView& grad_projected, const TensorView& grad_output, const TensorView& output,
                        const TensorView& gates, const TensorView& cells, const TensorView& h0, const TensorView& c0,
                        const TensorView& w_hh, const TensorView& w_hr, IntArrayRef batch_sizes, int64_t mode,
                        bool reverse, DType stored) {
  DeviceGuard guard(gates.device.index());
  const RoundedProducts rounded(flag(Flag::ConvolutionTf32));  // as torch's layers, which are cuDNN's
  const auto run = gates.dtype == DType::Float64 ? &run_backward<double> : &run_backward<float>;
  run(grad_gates, grad_hidden_gates, grad_h, grad_c, previous, unprojected, grad_projected, grad_output, output, gates,
      cells, h0, c0, w_hh, w_hr, batch_sizes, static_cast<CellKind>(mode), reverse, stored);
}

}  // namespace mica::cuda
