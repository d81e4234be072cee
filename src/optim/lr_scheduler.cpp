#include "mica/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/fields.h"

namespace mica::optim {

using std::numbers::pi;

static std::vector<double> rates(const Optimizer& optimizer) {
  std::vector<double> result;
  for (size_t g = 0; g < optimizer.num_groups(); ++g) result.push_back(optimizer.lr(g));
  return result;
}

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {
  for (size_t g = 0; g < optimizer.num_groups(); ++g) base_lrs_.push_back(optimizer.initial_lr(g));
}

void LRScheduler::step() {
  ++last_epoch_;
  for (size_t g = 0; g < base_lrs_.size(); ++g) optimizer_.set_lr(g, next_lr(g, optimizer_.lr(g)));
}

void LRScheduler::restart() {
  last_epoch_ = 0;
  for (size_t g = 0; g < base_lrs_.size(); ++g) optimizer_.set_lr(g, closed_form(g));
}

std::vector<double> LRScheduler::get_last_lr() const { return rates(optimizer_); }

Value LRScheduler::state_dict() const {
  Fields fields = Fields::writer();
  auto& self = const_cast<LRScheduler&>(*this);  // a writer leaves it as it is
  self.visit_fields(fields);
  fields("base_lrs", self.base_lrs_);
  fields("last_epoch", self.last_epoch_);
  const Value& state = fields.dict();
  state.set("_step_count", last_epoch_ + 1);
  state.set("_is_initial", false);
  state.set("_get_lr_called_within_step", false);
  std::vector<Value> last;
  for (const double rate : get_last_lr()) last.emplace_back(rate);
  state.set("_last_lr", Value::list(std::move(last)));
  return state;
}
void LRScheduler::load_state_dict(const Value& state) {
  Fields fields = Fields::reader(state);
  visit_fields(fields);
  fields("base_lrs", base_lrs_);
  fields("last_epoch", last_epoch_);
  MICA_CHECK_KIND(base_lrs_.size() == optimizer_.num_groups(), Value, "the state has the rates of ", base_lrs_.size(),
                  " groups of parameters, but the optimizer has ", optimizer_.num_groups());
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  MICA_CHECK_KIND(step_size > 0, Value, "step_size must be positive, got ", step_size);
  begin();
}
double StepLR::next_lr(size_t, double lr) const {
  return last_epoch_ == 0 || last_epoch_ % step_size_ != 0 ? lr : lr * gamma_;
}

double StepLR::closed_form(size_t group) const {
  return base_lr(group) * std::pow(gamma_, static_cast<double>(last_epoch_ / step_size_));
}
void StepLR::visit_fields(Fields& fields) {
  fields("step_size", step_size_);
  fields("gamma", gamma_);
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  begin();
}
double MultiStepLR::next_lr(size_t, double lr) const {
  const auto passed = std::count(milestones_.begin(), milestones_.end(), last_epoch_);
  return passed ? lr * std::pow(gamma_, static_cast<double>(passed)) : lr;
}

double MultiStepLR::closed_form(size_t group) const {
  const auto passed =
      std::count_if(milestones_.begin(), milestones_.end(), [&](int64_t m) { return m <= last_epoch_; });
  return base_lr(group) * std::pow(gamma_, static_cast<double>(passed));
}
void MultiStepLR::visit_fields(Fields& fields) { fields("gamma", gamma_); }

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters)
    : LRScheduler(optimizer), factor_(factor), total_iters_(total_iters) {
  MICA_CHECK_KIND(factor >= 0 && factor <= 1, Value, "Constant multiplicative factor expected to be between 0 and 1.");
  begin();
}
double ConstantLR::next_lr(size_t, double lr) const {
  if (last_epoch_ == 0) return lr * factor_;
  return last_epoch_ != total_iters_ ? lr : lr * (1.0 / factor_);
}
double ConstantLR::closed_form(size_t group) const {
  return base_lr(group) * (last_epoch_ >= total_iters_ ? 1 : factor_);
}
void ConstantLR::visit_fields(Fields& fields) {
  fields("factor", factor_);
  fields("total_iters", total_iters_);
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) { begin(); }
double ExponentialLR::next_lr(size_t, double lr) const { return last_epoch_ == 0 ? lr : lr * gamma_; }

double ExponentialLR::closed_form(size_t group) const {
  return base_lr(group) * std::pow(gamma_, static_cast<double>(last_epoch_));
}
void ExponentialLR::visit_fields(Fields& fields) { fields("gamma", gamma_); }

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

double LinearLR::closed_form(size_t group) const {
  const double share = static_cast<double>(std::min(total_iters_, last_epoch_)) / static_cast<double>(total_iters_);
  return base_lr(group) * (start_ + (end_ - start_) * share);
}
void LinearLR::visit_fields(Fields& fields) {
  fields("start_factor", start_);
  fields("end_factor", end_);
  fields("total_iters", total_iters_);
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, int64_t total_iters, double power)
    : LRScheduler(optimizer), total_iters_(total_iters), power_(power) {
  begin();
}
double PolynomialLR::next_lr(size_t, double lr) const {
  if (last_epoch_ == 0 || last_epoch_ > total_iters_) return lr;
  const double total = static_cast<double>(total_iters_), epoch = static_cast<double>(last_epoch_);
  return lr * std::pow((1 - epoch / total) / (1 - (epoch - 1) / total), power_);
}
double PolynomialLR::closed_form(size_t group) const {
  const double share = static_cast<double>(std::min(total_iters_, last_epoch_)) / static_cast<double>(total_iters_);
  return base_lr(group) * std::pow(1 - share, power_);
}
void PolynomialLR::visit_fields(Fields& fields) {
  fields("total_iters", total_iters_);
  fields("power", power_);
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

double CosineAnnealingLR::closed_form(size_t group) const {
  const double wave = 1 + std::cos(pi * static_cast<double>(last_epoch_) / static_cast<double>(t_max_));
  return eta_min_ + (base_lr(group) - eta_min_) * wave / 2;
}
void CosineAnnealingLR::visit_fields(Fields& fields) {
  fields("T_max", t_max_);
  fields("eta_min", eta_min_);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda)
    : LRScheduler(optimizer), lr_lambda_(std::move(lr_lambda)) {
  begin();
}
double LambdaLR::next_lr(size_t group, double) const { return base_lr(group) * lr_lambda_(last_epoch_); }

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda)
    : LRScheduler(optimizer), lr_lambda_(std::move(lr_lambda)) {
  begin();
}
double MultiplicativeLR::next_lr(size_t, double lr) const {
  return last_epoch_ == 0 ? lr : lr * lr_lambda_(last_epoch_);
}

// ---- schedules of schedules

static Value states_of(const std::vector<std::reference_wrapper<LRScheduler>>& schedulers) {
  Value states = Value::list();
  for (const LRScheduler& each : schedulers) states.push_back(each.state_dict());
  return states;
}
static void load_states(const std::vector<std::reference_wrapper<LRScheduler>>& schedulers, const Value& states) {
  MICA_CHECK_KIND(states.size() == schedulers.size(), Value, "the state is of ", states.size(),
                  " schedules, but there are ", schedulers.size());
  for (size_t i = 0; i < schedulers.size(); ++i) schedulers[i].get().load_state_dict(states[i]);
}
SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::reference_wrapper<LRScheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  MICA_CHECK_KIND(!schedulers_.empty(), Value, "SequentialLR expects at least one scheduler, but got no scheduler.");
  MICA_CHECK_KIND(milestones_.size() + 1 == schedulers_.size(), Value,
                  "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                  "milestone points, but got number of schedulers ",
                  schedulers_.size(), " and the number of milestones to be equal to ", milestones_.size());
  for (const LRScheduler& each : schedulers_)
    MICA_CHECK_KIND(&each.optimizer_ == &optimizer, Value,
                    "SequentialLR expects all schedulers to belong to the same optimizer");
  // Each has taken its first step as it was made: undo them all, then let the first one begin.
  last_epoch_ = 0;
  for (size_t g = 0; g < optimizer.num_groups(); ++g) optimizer.set_lr(g, base_lr(g));
  for (LRScheduler& each : schedulers_) each.take_back();
  schedulers_[current()].get().step();
}
size_t SequentialLR::current() const {
  return static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_) -
                             milestones_.begin());
}
void SequentialLR::step() {
  ++last_epoch_;
  const size_t i = current();
  if (i > 0 && milestones_[i - 1] == last_epoch_)
    schedulers_[i].get().restart();
  else
    schedulers_[i].get().step();
}
double SequentialLR::next_lr(size_t, double lr) const { return lr; }
void SequentialLR::take_back() {
  for (LRScheduler& each : schedulers_) each.take_back();
}
Value SequentialLR::state_dict() const {
  Value state = LRScheduler::state_dict();
  std::vector<Value> milestones;
  for (const int64_t m : milestones_) milestones.emplace_back(m);
  state.set("_milestones", Value::list(std::move(milestones)));
  state.set("_schedulers", states_of(schedulers_));
  return state;
}
void SequentialLR::load_state_dict(const Value& state) {
  LRScheduler::load_state_dict(state);
  load_states(schedulers_, state.at("_schedulers"));
}

ChainedScheduler::ChainedScheduler(std::vector<std::reference_wrapper<LRScheduler>> schedulers)
    : LRScheduler(first_optimizer(schedulers)), schedulers_(std::move(schedulers)) {
  for (const LRScheduler& each : schedulers_)
    MICA_CHECK_KIND(&each.optimizer_ == &optimizer_, Value,
                    "ChainedScheduler expects all schedulers to belong to the same optimizer");
}
Optimizer& ChainedScheduler::first_optimizer(const std::vector<std::reference_wrapper<LRScheduler>>& schedulers) {
  MICA_CHECK_KIND(!schedulers.empty(), Value,
                  "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.");
  return schedulers[0].get().optimizer_;
}
void ChainedScheduler::step() {
  for (LRScheduler& each : schedulers_) each.step();
}
double ChainedScheduler::next_lr(size_t, double lr) const { return lr; }
void ChainedScheduler::take_back() {
  for (LRScheduler& each : schedulers_) each.take_back();
}
Value ChainedScheduler::state_dict() const {
  return Value::dict({{"_last_lr", LRScheduler::state_dict().at("_last_lr")}, {"_schedulers", states_of(schedulers_)}});
}
void ChainedScheduler::load_state_dict(const Value& state) { load_states(schedulers_, state.at("_schedulers")); }

}  // namespace mica::optim
