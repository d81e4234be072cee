// The gradients of one direction of a recurrent layer, run backwards over time.
#include <cstring>
#include <optional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/recurrent/backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/recurrent/cells-inl.h"
#include "backends/cpu/recurrent/packed_weight.h"
#include "backends/cpu/scratch.h"
#include "backends/shared/time_steps.h"
#include "backends/cpu/simd_register.h"
#include "mica/parallel.h"
#include "mica/backend/tensor_view.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void add_rows(T* to, const T* from, int64_t count) {
  for_vectors<T>(count,
                 [&](const auto& load, const auto& store) HWY_ATTR { store(hn::Add(load(to), load(from)), to); });
}

template <class T>
struct BackwardRun {
  CellKind kind;
  int64_t units, gate_width, state;
  T *grad_gates, *grad_hidden_gates;  // the same memory but for the GRU
  T *grad_h, *grad_c;                 // the gradient of the state after the present step, row by row of the batch
  T *previous, *unprojected, *grad_projected;
  const T *grad_output, *output, *gates, *cells, *h0, *c0;
  int64_t output_stride, grad_output_stride;
  T* grad_cell_output = nullptr;  // with a projection: one step's gradient of h before it

  // Adds the gradient of the step's own output to the gradient from later steps.
  void add_output(const TimeStep& s, int64_t begin, int64_t end) const {
    if (!grad_output) return;
    for (int64_t i = 0; i < s.count; ++i)
      add_rows(grad_h + i * state + begin, grad_output + (s.offset + i) * grad_output_stride + begin, end - begin);
  }

  void cells_of(const TimeStep& s, int64_t begin, int64_t end) const {
    const int64_t count = end - begin;
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t row = s.offset + i;
      const bool first = i >= s.before_count;
      const T* gate = gates + row * gate_width + begin;
      T* grad_gate = grad_gates + row * gate_width + begin;
      T* dh = (grad_cell_output ? grad_cell_output + i * units : grad_h + i * state) + begin;
      switch (kind) {
        case CellKind::Relu:
          elman_backward<false>(dh, output + row * output_stride + begin, grad_gate, count);
          break;
        case CellKind::Tanh:
          elman_backward<true>(dh, output + row * output_stride + begin, grad_gate, count);
          break;
        case CellKind::Lstm:
          lstm_backward(gate, units, first ? c0 + i * units + begin : cells + (s.before_offset + i) * units + begin,
                        cells + row * units + begin, dh, grad_c + i * units + begin, grad_gate,
                        unprojected ? unprojected + row * units + begin : nullptr, count);
          break;
        case CellKind::Gru:
          gru_backward(gate, units,
                       first ? h0 + i * state + begin : output + (s.before_offset + i) * output_stride + begin,
                       cells + row * units + begin, dh, grad_gate, grad_hidden_gates + row * gate_width + begin, count);
          break;
      }
    }
  }

  void copy_previous(const TimeStep& s) const {
    for (int64_t i = 0; i < s.count; ++i) {
      const T* from = i >= s.before_count ? h0 + i * state : output + (s.before_offset + i) * output_stride;
      std::memcpy(previous + (s.offset + i) * state, from, state * sizeof(T));
    }
  }
};

// The gradient of the state before a step is the product of the step's gates with the hidden weight. It is computed at
// the start of the next region (of the step that ran before it forwards), unit by unit, where it is used.
template <class T>
void run_steps(const BackwardRun<T>& run, const std::vector<TimeStep>& steps, const PackedWeight<T>& weight,
               const PackedWeight<T>* projection) {
  const bool accumulate = run.kind == CellKind::Gru;  // its cells leave a part of the gradient in grad_h
  const auto through_weight = [&](int64_t p, const TimeStep& later) {
    weight.multiply(p, run.grad_hidden_gates + later.offset * run.gate_width, run.gate_width, run.grad_h, run.state,
                    later.count, accumulate);
  };
  for (size_t n = steps.size(); n-- > 0;) {
    const TimeStep& s = steps[n];
    const TimeStep* later = n + 1 < steps.size() ? &steps[n + 1] : nullptr;
    parallel_for(0, weight.panels(), weight.grain(s.count), [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        if (later) through_weight(p, *later);
        run.add_output(s, weight.begin_of(p), weight.end_of(p));
        if (!projection) run.cells_of(s, weight.begin_of(p), weight.end_of(p));
      }
    });
    if (!projection) continue;
    for (int64_t i = 0; i < s.count; ++i)
      std::memcpy(run.grad_projected + (s.offset + i) * run.state, run.grad_h + i * run.state, run.state * sizeof(T));
    parallel_for(0, projection->panels(), projection->grain(s.count), [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        projection->multiply(p, run.grad_h, run.state, run.grad_cell_output, run.units, s.count, false);
        run.cells_of(s, projection->begin_of(p), projection->end_of(p));
      }
    });
  }
  parallel_for(0, weight.panels(), weight.grain(steps[0].count), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) through_weight(p, steps[0]);
  });
}

template <class T>
T* pointer_or_null(const TensorView& t) {
  return t.defined() ? t.ptr<T>() : nullptr;
}

template <class T>
void run_backward(const TensorView& grad_gates, const TensorView& grad_hidden_gates, const TensorView& grad_h,
                  const TensorView& grad_c, const TensorView& previous, const TensorView& unprojected,
                  const TensorView& grad_projected, const TensorView& grad_output, const TensorView& output,
                  const TensorView& gates, const TensorView& cells, const TensorView& h0, const TensorView& c0,
                  const TensorView& w_hh, const TensorView& w_hr, IntArrayRef batch_sizes, CellKind kind,
                  bool reverse) {
  BackwardRun<T> run;
  run.kind = kind;
  run.gate_width = gates.size(1);
  run.units = run.gate_width / gates_of(kind);
  run.state = h0.size(1);
  run.grad_gates = grad_gates.ptr<T>();
  run.grad_hidden_gates = kind == CellKind::Gru ? grad_hidden_gates.ptr<T>() : run.grad_gates;
  run.grad_h = grad_h.ptr<T>();
  run.grad_c = pointer_or_null<T>(grad_c);
  run.previous = pointer_or_null<T>(previous);
  run.unprojected = pointer_or_null<T>(unprojected);
  run.grad_projected = pointer_or_null<T>(grad_projected);
  run.grad_output = pointer_or_null<T>(grad_output);
  run.grad_output_stride = run.grad_output ? grad_output.stride(0) : 0;
  run.output = output.ptr<T>();
  run.output_stride = output.stride(0);
  run.gates = gates.ptr<T>();
  run.cells = cells.ptr<T>();
  run.h0 = h0.ptr<T>();
  run.c0 = pointer_or_null<T>(c0);
  const std::vector<TimeStep> steps = time_steps(batch_sizes, reverse);
  const PackedWeight<T> weight(w_hh.ptr<T>(), run.gate_width, 1, run.state, run.state, 1);
  std::optional<PackedWeight<T>> projection;
  if (w_hr.defined()) projection.emplace(w_hr.ptr<T>(), run.state, 1, run.units, run.units, 1);
  Scratch<T> grad_cell_output(projection ? h0.size(0) * run.units : 0);
  if (projection) run.grad_cell_output = grad_cell_output.data();
  run_steps(run, steps, weight, projection ? &*projection : nullptr);
  if (run.previous) {
    parallel_for(0, static_cast<int64_t>(steps.size()), 8, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) run.copy_previous(steps[n]);
    });
  }
}

void backward_kernel(const TensorView& grad_gates, const TensorView& grad_hidden_gates, const TensorView& grad_h,
                     const TensorView& grad_c, const TensorView& previous, const TensorView& unprojected,
                     const TensorView& grad_projected, const TensorView& grad_output, const TensorView& output,
                     const TensorView& gates, const TensorView& cells, const TensorView& h0, const TensorView& c0,
                     const TensorView& w_hh, const TensorView& w_hr, IntArrayRef batch_sizes, int64_t mode,
                     bool reverse, DType) {
  const auto run = gates.dtype == DType::Float64 ? &run_backward<double> : &run_backward<float>;
  run(grad_gates, grad_hidden_gates, grad_h, grad_c, previous, unprojected, grad_projected, grad_output, output, gates,
      cells, h0, c0, w_hh, w_hr, batch_sizes, static_cast<CellKind>(mode), reverse);
}

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(backward_kernel);
MICA_REGISTER_SIMD(recurrent_backward, backward_kernel);
}  // namespace mica::cpu
#endif
