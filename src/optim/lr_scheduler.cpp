#include "mica/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace mica::optim {

using std::numbers::pi;

static std::vector<double> rates(const Optimizer& optimizer) {
  std::vector<double> result;
  for (size_t g = 0; g < optimizer.num_groups(); ++g) result.push_back(optimizer.lr(g));
  return result;
}

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer), base_lrs_(rates(optimizer)) {}

void LRScheduler::step() {
  ++last_epoch_;
  for (size_t g = 0; g < base_lrs_.size(); ++g) optimizer_.set_lr(g, next_lr(g, optimizer_.lr(g)));
}

std::vector<double> LRScheduler::get_last_lr() const { return rates(optimizer_); }

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  MICA_CHECK_KIND(step_size > 0, Value, "step_size must be positive, got ", step_size);
  begin();
}
double StepLR::next_lr(size_t, double lr) const {
  return last_epoch_ == 0 || last_epoch_ % step_size_ != 0 ? lr : lr * gamma_;
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  begin();
}
double MultiStepLR::next_lr(size_t, double lr) const {
  const auto passed = std::count(milestones_.begin(), milestones_.end(), last_epoch_);
  return passed ? lr * std::pow(gamma_, static_cast<double>(passed)) : lr;
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) { begin(); }
double ExponentialLR::next_lr(size_t, double lr) const { return last_epoch_ == 0 ? lr : lr * gamma_; }

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_iters_(total_iters) {
  MICA_CHECK_KIND(start_factor > 0 && start_factor <= 1, Value,
                  "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
  MICA_CHECK_KIND(end_factor >= 0 && end_factor <= 1, Value,
                  "Ending multiplicative factor expected to be between 0 and 1.");
  begin();
}
double LinearLR::next_lr(size_t, double lr) const {
  if (last_epoch_ == 0) return lr * start_;
  if (last_epoch_ > total_iters_) return lr;
  const double rise = end_ - start_, before = static_cast<double>(last_epoch_ - 1);
  return lr * (1 + rise / (static_cast<double>(total_iters_) * start_ + before * rise));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  MICA_CHECK_KIND(t_max > 0, Value, "t_max must be positive, got ", t_max);
  begin();
}
double CosineAnnealingLR::next_lr(size_t group, double lr) const {
  if (last_epoch_ == 0) return lr;
  const double length = static_cast<double>(t_max_), epoch = static_cast<double>(last_epoch_);
  // Where the cosine turns, the ratio of two rates says nothing.
  if ((last_epoch_ - 1 - t_max_) % (2 * t_max_) == 0)
    return lr + (base_lr(group) - eta_min_) * (1 - std::cos(pi / length)) / 2;
  return (1 + std::cos(pi * epoch / length)) / (1 + std::cos(pi * (epoch - 1) / length)) * (lr - eta_min_) + eta_min_;
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda)
    : LRScheduler(optimizer), lr_lambda_(std::move(lr_lambda)) {
  begin();
}
double LambdaLR::next_lr(size_t group, double) const { return base_lr(group) * lr_lambda_(last_epoch_); }

OneCycleLR::OneCycleLR(Optimizer& optimizer, OneCycleOptions options) : LRScheduler(optimizer), options_(options) {
  const OneCycleOptions& o = options_;
  MICA_CHECK_KIND(o.total_steps > 0, Value, "Expected positive integer total_steps, but got ", o.total_steps);
  MICA_CHECK_KIND(o.pct_start >= 0 && o.pct_start <= 1, Value, "Expected float between 0 and 1 pct_start, but got ",
                  o.pct_start);
  const double steps = static_cast<double>(o.total_steps);
  const double initial = o.max_lr / o.div_factor, least = initial / o.final_div_factor;
  const double low = o.base_momentum, high = o.max_momentum;
  phases_.push_back({o.pct_start * steps - 1, initial, o.max_lr, high, low});
  if (o.three_phase) {
    phases_.push_back({2 * o.pct_start * steps - 2, o.max_lr, initial, low, high});
    phases_.push_back({steps - 1, initial, least, high, high});
  } else {
    phases_.push_back({steps - 1, o.max_lr, least, low, high});
  }
  begin();
}
double OneCycleLR::anneal(double start, double end, double share) const {
  if (options_.linear) return (end - start) * share + start;
  return end + (start - end) / 2 * (std::cos(pi * share) + 1);
}
std::pair<const OneCycleLR::Phase*, double> OneCycleLR::phase() const {
  const double step = static_cast<double>(last_epoch_);
  double start = 0;
  for (const Phase& p : phases_) {
    if (step <= p.end_step || &p == &phases_.back()) return {&p, (step - start) / (p.end_step - start)};
    start = p.end_step;
  }
  return {&phases_.back(), 1};
}
double OneCycleLR::next_lr(size_t, double) const {
  const auto [p, share] = phase();
  return anneal(p->start_lr, p->end_lr, share);
}
void OneCycleLR::step() {
  MICA_CHECK_KIND(last_epoch_ + 1 <= options_.total_steps, Value, "Tried to step ", last_epoch_ + 1,
                  " times. The specified number of total steps is ", options_.total_steps);
  LRScheduler::step();
  if (!options_.cycle_momentum) return;
  const auto [p, share] = phase();
  const double momentum = anneal(p->start_momentum, p->end_momentum, share);
  for (size_t g = 0; g < optimizer_.num_groups(); ++g)
    MICA_CHECK_KIND(optimizer_.set_momentum(g, momentum), Value,
                    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, PlateauOptions options)
    : optimizer_(optimizer),
      options_(options),
      best_(options.maximize ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity()) {
  MICA_CHECK_KIND(options.factor < 1, Value, "Factor should be < 1.0.");
}
bool ReduceLROnPlateau::better(double metric) const {
  const double by = options_.threshold;
  if (options_.maximize) return metric > (options_.relative ? best_ * (1 + by) : best_ + by);
  return metric < (options_.relative ? best_ * (1 - by) : best_ - by);
}
void ReduceLROnPlateau::step(double metric) {
  if (better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= options_.patience) return;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    const double old = optimizer_.lr(g), lower = std::max(old * options_.factor, options_.min_lr);
    if (old - lower > options_.eps) optimizer_.set_lr(g, lower);
  }
  cooldown_ = options_.cooldown;
  bad_epochs_ = 0;
}
std::vector<double> ReduceLROnPlateau::get_last_lr() const { return rates(optimizer_); }

}  // namespace mica::optim
