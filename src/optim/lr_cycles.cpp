// Schedules in cycles, in which momentum moves against the rate, and the schedule that waits for progress.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "mica/optim/lr_scheduler.h"
#include "optim/fields.h"

namespace mica::optim {

using std::numbers::pi;

static void set_momentums(Optimizer& optimizer, double momentum) {
  for (size_t g = 0; g < optimizer.num_groups(); ++g)
    MICA_CHECK_KIND(optimizer.set_momentum(g, momentum), Value,
                    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
}

// ---- restarts

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult,
                                                         double eta_min)
    : LRScheduler(optimizer), t_0_(t_0), t_i_(t_0), t_mult_(t_mult), eta_min_(eta_min) {
  MICA_CHECK_KIND(t_0 > 0, Value, "Expected positive integer T_0, but got ", t_0);
  MICA_CHECK_KIND(t_mult >= 1, Value, "Expected integer T_mult >= 1, but got ", t_mult);
  step(0.0);
}
double CosineAnnealingWarmRestarts::next_lr(size_t group, double) const {
  const double wave = 1 + std::cos(pi * t_cur_ / static_cast<double>(t_i_));
  return eta_min_ + (base_lr(group) - eta_min_) * wave / 2;
}
void CosineAnnealingWarmRestarts::step() {
  if (last_epoch_ < 0) return step(0.0);
  t_cur_ += 1;
  if (t_cur_ >= static_cast<double>(t_i_)) {
    t_cur_ = std::fmod(t_cur_, static_cast<double>(t_i_));
    t_i_ *= t_mult_;
  }
  LRScheduler::step();
}
void CosineAnnealingWarmRestarts::step(double epoch) {
  MICA_CHECK_KIND(epoch >= 0, Value, "Expected non-negative epoch, but got ", epoch);
  const double first = static_cast<double>(t_0_), factor = static_cast<double>(t_mult_);
  if (epoch < first) {
    t_i_ = t_0_;
    t_cur_ = epoch;
  } else if (t_mult_ == 1) {
    t_cur_ = std::fmod(epoch, first);
  } else {
    const double n = std::floor(std::log(epoch / first * (factor - 1) + 1) / std::log(factor));
    const double power = std::pow(factor, n);
    t_cur_ = epoch - first * (power - 1) / (factor - 1);
    t_i_ = t_0_ * static_cast<int64_t>(power);
  }
  last_epoch_ = static_cast<int64_t>(std::floor(epoch)) - 1;
  LRScheduler::step();
}
void CosineAnnealingWarmRestarts::visit_fields(Fields& fields) {
  fields("T_0", t_0_);
  fields("T_i", t_i_);
  fields("T_mult", t_mult_);
  fields("eta_min", eta_min_);
  fields("T_cur", t_cur_);
}

// ---- cycles

CyclicLR::CyclicLR(Optimizer& optimizer, CyclicOptions options) : LRScheduler(optimizer), options_(std::move(options)) {
  const CyclicOptions& o = options_;
  MICA_CHECK_KIND(o.mode == "triangular" || o.mode == "triangular2" || o.mode == "exp_range", Value,
                  "mode is invalid: '", o.mode, "' is not one of triangular, triangular2, exp_range");
  MICA_CHECK_KIND(o.step_size_up > 0 && o.step_size_down >= 0, Value, "the two parts of a cycle must take steps, got ",
                  o.step_size_up, " and ", o.step_size_down);
  if (o.step_size_down == 0) options_.step_size_down = o.step_size_up;
  std::fill(base_lrs_.begin(), base_lrs_.end(), o.base_lr);
  begin();
}
// How far the rate is from base_lr to max_lr.
double CyclicLR::height() const {
  const double up = static_cast<double>(options_.step_size_up), down = static_cast<double>(options_.step_size_down);
  const double total = up + down, ratio = up / total, at = static_cast<double>(last_epoch_) / total;
  const double cycle = std::floor(1 + at), x = 1 + at - cycle;
  double scale = 1;
  if (options_.mode == "triangular2") scale = 1 / std::pow(2.0, cycle - 1);
  if (options_.mode == "exp_range") scale = std::pow(options_.gamma, static_cast<double>(last_epoch_));
  return (x <= ratio ? x / ratio : (x - 1) / (ratio - 1)) * scale;
}
double CyclicLR::next_lr(size_t group, double) const {
  return base_lr(group) + (options_.max_lr - base_lr(group)) * height();
}
void CyclicLR::step() {
  LRScheduler::step();
  if (options_.cycle_momentum)
    set_momentums(optimizer_, options_.max_momentum - (options_.max_momentum - options_.base_momentum) * height());
}
void CyclicLR::visit_fields(Fields& fields) {
  fields("mode", options_.mode);
  fields("gamma", options_.gamma);
  fields("cycle_momentum", options_.cycle_momentum);
}

// ---- one cycle

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
  for (size_t g = 0; g < optimizer.num_groups(); ++g) {
    optimizer.set_initial_lr(g, initial);
    base_lrs_[g] = initial;
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
void OneCycleLR::visit_fields(Fields& fields) {
  fields("total_steps", options_.total_steps);
  fields("cycle_momentum", options_.cycle_momentum);
}
void OneCycleLR::step() {
  MICA_CHECK_KIND(last_epoch_ + 1 <= options_.total_steps, Value, "Tried to step ", last_epoch_ + 1,
                  " times. The specified number of total steps is ", options_.total_steps);
  LRScheduler::step();
  if (!options_.cycle_momentum) return;
  const auto [p, share] = phase();
  const double momentum = anneal(p->start_momentum, p->end_momentum, share);
  set_momentums(optimizer_, momentum);
}

// ---- plateaus

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
  ++last_epoch_;
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
std::vector<double> ReduceLROnPlateau::get_last_lr() const {
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

void ReduceLROnPlateau::visit_fields(Fields& fields) {
  std::string mode = options_.maximize ? "max" : "min", threshold_mode = options_.relative ? "rel" : "abs";
  fields("factor", options_.factor);
  fields("patience", options_.patience);
  fields("cooldown", options_.cooldown);
  fields("eps", options_.eps);
  fields("last_epoch", last_epoch_);
  fields("mode", mode);
  fields("threshold", options_.threshold);
  fields("threshold_mode", threshold_mode);
  fields("best", best_);
  fields("cooldown_counter", cooldown_);
  fields("num_bad_epochs", bad_epochs_);
  options_.maximize = mode == "max";
  options_.relative = threshold_mode == "rel";
}
Value ReduceLROnPlateau::state_dict() const {
  Fields fields = Fields::writer();
  const_cast<ReduceLROnPlateau*>(this)->visit_fields(fields);  // a writer leaves it as it is
  std::vector<Value> last;
  for (const double rate : get_last_lr()) last.emplace_back(rate);
  fields.dict().set("_last_lr", Value::list(std::move(last)));
  return fields.dict();
}
void ReduceLROnPlateau::load_state_dict(const Value& state) {
  Fields fields = Fields::reader(state);
  visit_fields(fields);
}

}  // namespace mica::optim
