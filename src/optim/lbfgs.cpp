#include "mica/optim/lbfgs.h"

#include "mica/autograd.h"
#include "optim/rule.h"
#include "optim/strong_wolfe.h"

namespace mica::optim {

// ---- Real

static double rounded(double value, DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return static_cast<float>(value);
    case DType::Float16:
      return static_cast<float>(Half(static_cast<float>(value)));
    case DType::BFloat16:
      return static_cast<float>(BFloat16(static_cast<float>(value)));
    default:
      return value;
  }
}

Real::Real(double value, DType dtype) : value_(rounded(value, dtype)), dtype_(dtype) {}

#define MICA_REAL_OPERATOR(op)                                                \
  Real operator op(const Real& a, const Real& b) {                            \
    const DType dtype = a.is_tensor() ? a.dtype_ : b.dtype_;                  \
    if (dtype == DType::Undefined) return a.value_ op b.value_;               \
    return Real(rounded(a.value_, dtype) op rounded(b.value_, dtype), dtype); \
  }
MICA_REAL_OPERATOR(+)
MICA_REAL_OPERATOR(-)
MICA_REAL_OPERATOR(*)
MICA_REAL_OPERATOR(/)
#undef MICA_REAL_OPERATOR

#define MICA_REAL_COMPARISON(op)                                 \
  bool operator op(const Real& a, const Real& b) {               \
    const DType dtype = a.is_tensor() ? a.dtype_ : b.dtype_;     \
    return rounded(a.value_, dtype) op rounded(b.value_, dtype); \
  }
MICA_REAL_COMPARISON(<)
MICA_REAL_COMPARISON(<=)
#undef MICA_REAL_COMPARISON

// ---- all parameters as one vector

namespace {

class FlatParameters {
 public:
  explicit FlatParameters(TensorList params) : params_(params) {}

  Tensor gradient() const {
    std::vector<Tensor> parts;
    for (const Tensor& p : params_) {
      const Tensor g = p.grad();
      parts.push_back(as_real(!g.defined() ? zeros_like(p) : g.is_sparse() ? g.to_dense() : g).reshape({-1}));
    }
    return cat(parts);
  }
  void move(const Real& length, const Tensor& direction) const {
    int64_t offset = 0;
    for (const Tensor& p : params_) {
      const Tensor real = as_real(p);
      real.add_(direction.narrow(0, offset, real.numel()).view(real.sizes()), length.value());
      offset += real.numel();
    }
  }
  std::vector<Tensor> copies() const {
    std::vector<Tensor> result;
    for (const Tensor& p : params_) result.push_back(p.clone(MemoryFormat::Contiguous));
    return result;
  }
  void restore(const std::vector<Tensor>& values) const {
    for (size_t i = 0; i < values.size(); ++i) params_[i].copy_(values[i]);
  }

 private:
  TensorList params_;
};

double largest(const Tensor& t) { return t.abs().max().item().to_double(); }

// The quasi-Newton direction: two loops over the differences of the last steps, which tell the curvature.
Tensor newton_direction(LBFGSState& s, const Tensor& gradient, int64_t history_size) {
  const size_t count = s.old_dirs.size();
  s.al.resize(static_cast<size_t>(history_size));
  const Tensor q = gradient.neg();
  for (size_t i = count; i-- > 0;) {
    s.al[i] = Real(s.old_stps[i].dot(q)) * s.ro[i];
    q.add_(s.old_dirs[i], -s.al[i].value());
  }
  const Tensor r = q.mul(s.h_diag.value());
  for (size_t i = 0; i < count; ++i) {
    const Real be = Real(s.old_dirs[i].dot(r)) * s.ro[i];
    r.add_(s.old_stps[i], (s.al[i] - be).value());
  }
  return r;
}

void remember(LBFGSState& s, const Tensor& gradient, int64_t history_size) {
  const Tensor y = gradient.sub(s.prev_flat_grad), step = s.d.mul(s.t.value());
  const Real product(y.dot(step));
  if (!(product > Real(1e-10))) return;
  if (static_cast<int64_t>(s.old_dirs.size()) == history_size) {
    s.old_dirs.erase(s.old_dirs.begin());
    s.old_stps.erase(s.old_stps.begin());
    s.ro.erase(s.ro.begin());
  }
  s.old_dirs.push_back(y);
  s.old_stps.push_back(step);
  s.ro.push_back(Real(1) / product);
  s.h_diag = product / Real(y.dot(y));
}

}  // namespace

void lbfgs_step(TensorList params, LBFGSState& s, const LBFGSOptions& o, const std::function<double()>& closure) {
  NoGradGuard no_grad;
  const FlatParameters flat(params);
  const auto evaluate = [&] {
    EnableGradGuard grad;
    return closure();
  };
  const double lr = o.lr.value();
  const int64_t max_eval = o.max_eval < 0 ? o.max_iter * 5 / 4 : o.max_eval;

  double loss = evaluate();
  int64_t evaluations = 1;
  ++s.func_evals;
  Tensor gradient = flat.gradient();
  if (largest(gradient) <= o.tolerance_grad) return;

  for (int64_t iteration = 1; iteration <= o.max_iter; ++iteration) {
    ++s.n_iter;
    if (s.n_iter == 1) {
      s.d = gradient.neg();
      s.old_dirs.clear();
      s.old_stps.clear();
      s.ro.clear();
      s.h_diag = 1;
    } else {
      remember(s, gradient, o.history_size);
      s.d = newton_direction(s, gradient, o.history_size);
    }
    s.prev_flat_grad = gradient.clone();
    s.prev_loss = loss;
    s.t = s.n_iter == 1 ? smaller(Real(1), Real(1) / Real(gradient.abs().sum())) * Real(lr) : Real(lr);
    const Real slope(gradient.dot(s.d));
    if (slope > Real(-o.tolerance_change)) break;

    bool optimal = false;
    int64_t here = 0;
    if (o.strong_wolfe) {
      const std::vector<Tensor> before = flat.copies();
      const auto along = [&](const Real& t) -> std::pair<double, Tensor> {
        flat.move(t, s.d);
        const double value = evaluate();
        Tensor g = flat.gradient();
        flat.restore(before);
        return {value, std::move(g)};
      };
      const LineSearch search = strong_wolfe(along, {Real(0), loss, gradient, slope}, s.t, s.d, max_eval - evaluations);
      loss = search.found.f;
      gradient = search.found.g;
      s.t = search.found.t;
      here = search.evaluations;
      flat.move(s.t, s.d);
      optimal = largest(gradient) <= o.tolerance_grad;
    } else {
      flat.move(s.t, s.d);
      if (iteration != o.max_iter) {
        loss = evaluate();
        gradient = flat.gradient();
        optimal = largest(gradient) <= o.tolerance_grad;
        here = 1;
      }
    }
    evaluations += here;
    s.func_evals += here;
    if (iteration == o.max_iter || evaluations >= max_eval || optimal) break;
    if (largest(s.d.mul(s.t.value())) <= o.tolerance_change) break;
    if (std::abs(loss - s.prev_loss) < o.tolerance_change) break;
  }
}

}  // namespace mica::optim
