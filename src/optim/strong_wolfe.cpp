#include "optim/strong_wolfe.h"

namespace mica::optim {
namespace {

constexpr double kDecrease = 1e-4, kCurvature = 0.9, kLeastChange = 1e-9;

// The minimum of the cubic through two points with their slopes, within bounds; their middle where it has none.
Real cubic_minimum(const LinePoint& a, const LinePoint& b, const Real& low, const Real& high) {
  const Real d1 = a.slope + b.slope - Real(3) * (Real(a.f) - Real(b.f)) / (a.t - b.t);
  const Real square = d1 * d1 - a.slope * b.slope;
  if (!(square >= Real(0))) return (low + high) / Real(2);
  const Real d2 = sqrt(square);
  const Real place = a.t <= b.t ? b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + Real(2) * d2))
                                : a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + Real(2) * d2));
  return smaller(larger(place, low), high);
}

Real cubic_minimum(const LinePoint& a, const LinePoint& b) {
  return a.t <= b.t ? cubic_minimum(a, b, a.t, b.t) : cubic_minimum(a, b, b.t, a.t);
}

class Search {
 public:
  Search(const std::function<std::pair<double, Tensor>(const Real&)>& evaluate, const LinePoint& start,
         const Tensor& direction, int64_t max_iterations)
      : evaluate_(evaluate), start_(start), direction_(direction), max_iterations_(max_iterations) {}

  LineSearch run(Real first) {
    bracket(at(first));
    if (!done_) narrow();
    return {points_[low_], evaluations_};
  }

 private:
  LinePoint at(const Real& t) {
    ++evaluations_;
    auto [f, g] = evaluate_(t);
    return {t, f, g, Real(g.dot(direction_))};
  }
  bool too_high(const LinePoint& p) const { return Real(p.f) > Real(start_.f) + Real(kDecrease) * p.t * start_.slope; }
  bool flat_enough(const LinePoint& p) const { return abs(p.slope) <= -Real(kCurvature) * start_.slope; }

  // Searches until two points enclose the wanted one, or one of them is it.
  void bracket(LinePoint now) {
    LinePoint before = start_;
    before.t = 0;
    for (; iterations_ < max_iterations_; ++iterations_) {
      if (too_high(now) || (iterations_ > 1 && now.f >= before.f) || (!flat_enough(now) && now.slope >= Real(0))) {
        set(before, now);
        return;
      }
      if (flat_enough(now)) {
        points_[0] = points_[1] = now;
        low_ = 0;
        done_ = true;
        return;
      }
      const Real least = now.t + Real(0.01) * (now.t - before.t), most = now.t * Real(10);
      const Real next = cubic_minimum(before, now, least, most);
      before = now;
      now = at(next);
    }
    LinePoint zero = start_;
    zero.t = 0;
    set(zero, now);
  }

  void set(const LinePoint& a, const LinePoint& b) {
    points_[0] = a;
    points_[1] = b;
    low_ = a.f <= b.f ? 0 : 1;
  }

  void narrow() {
    const double reach = direction_.abs().max().item().to_double();
    bool slow = false;  // the last step was near an end of the bracket
    while (!done_ && iterations_ < max_iterations_) {
      if ((abs(points_[1].t - points_[0].t) * Real(reach)).value() < kLeastChange) break;
      Real t = cubic_minimum(points_[0], points_[1]);
      const Real right = larger(points_[0].t, points_[1].t), left = smaller(points_[0].t, points_[1].t);
      const Real margin = Real(0.1) * (right - left);
      if (smaller(right - t, t - left) < margin) {
        if (slow || t >= right || t <= left) {
          t = abs(t - right) < abs(t - left) ? right - margin : left + margin;
          slow = false;
        } else {
          slow = true;
        }
      } else {
        slow = false;
      }
      const LinePoint now = at(t);
      ++iterations_;
      const int high = 1 - low_;
      if (too_high(now) || now.f >= points_[low_].f) {
        points_[high] = now;
        low_ = points_[0].f <= points_[1].f ? 0 : 1;
      } else {
        if (flat_enough(now)) {
          done_ = true;
        } else if (now.slope * (points_[high].t - points_[low_].t) >= Real(0)) {
          points_[high] = points_[low_];
        }
        points_[low_] = now;
      }
    }
  }

  const std::function<std::pair<double, Tensor>(const Real&)>& evaluate_;
  const LinePoint& start_;
  const Tensor& direction_;
  const int64_t max_iterations_;
  LinePoint points_[2];
  int low_ = 0;
  int64_t iterations_ = 0, evaluations_ = 0;
  bool done_ = false;
};

}  // namespace

LineSearch strong_wolfe(const std::function<std::pair<double, Tensor>(const Real& t)>& evaluate, const LinePoint& start,
                        Real first, const Tensor& direction, int64_t max_iterations) {
  return Search(evaluate, start, direction, max_iterations).run(first);
}

}  // namespace mica::optim
