#include "compiler/written_norm.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "compiler/fused_norms.h"
#include "compiler/groups.h"

namespace mica::recording {

namespace {

bool is_step(const Call& call, std::string_view name, int noperands) {
  return call.form == Call::Form::Loop && call.noutputs == 1 && call.noperands == noperands && call.name == name;
}

bool is_number(const Operand& o) { return !o.storage && o.dtype == DType::Float32; }

float number_of(const Operand& o) {
  float number;
  std::memcpy(&number, o.number, sizeof(number));
  return number;
}

bool are_all_dense(const Call& call, int64_t count) {
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].storage && !is_dense(call, k, count)) return false;
  return true;
}

// The operand of a product of two that is not `known`, or 0 where none of the two is.
int other_factor(const Call& call, const Operand& known) {
  return same_place(call.operands[1], known) ? 2 : same_place(call.operands[2], known) ? 1 : 0;
}

bool is_square_of(const Call& call, const Operand& row) {
  if (is_step(call, "pow", 3))
    return same_place(call.operands[1], row) && is_number(call.operands[2]) && number_of(call.operands[2]) == 2;
  return is_step(call, "mul", 3) && same_place(call.operands[1], row) && same_place(call.operands[2], row);
}

}  // namespace

float WrittenNorm::eps() const { return number_of(shifted->operands[2]); }

std::optional<WrittenNorm> find_written_norm(const std::vector<const Call*>& calls) {
  if (calls.size() != 7 && calls.size() != 8) return {};
  const Call &widened = *calls[0], &squared = *calls[1], &mean = *calls[2], &shifted = *calls[3], &root = *calls[4],
             &scaled = *calls[5], &rounded = *calls[6];
  if (mean.form != Call::Form::Sum || !is_mean(mean)) return {};
  const Operand &row = widened.operands[0], &squares_row = mean.operands[1];
  const int64_t count = squares_row.sizes[squares_row.ndim - 1];

  if (!is_step(widened, "copy", 2) || row.dtype != DType::Float32 || !are_all_dense(widened, count)) return {};
  if (!is_square_of(squared, row) || !are_all_dense(squared, count) || !same_place(squared.operands[0], squares_row))
    return {};
  if (!is_step(shifted, "add", 3) || !is_plain_sum(shifted) || !is_number(shifted.operands[2]) ||
      !same_place(shifted.operands[1], mean.operands[0]) || shifted.operands[0].dtype != DType::Float32)
    return {};
  if (!is_step(root, "rsqrt", 2) || !same_place(root.operands[1], shifted.operands[0])) return {};
  if (!is_step(scaled, "mul", 3) || !is_dense(scaled, 0, count)) return {};
  const int factor = other_factor(scaled, row);
  if (!factor || !same_place(scaled.operands[factor], root.operands[0]) || !is_dense(scaled, 3 - factor, count))
    return {};
  const Operand& input = widened.operands[1];
  if (!is_step(rounded, "copy", 2) || !are_all_dense(rounded, count) ||
      !same_place(rounded.operands[1], scaled.operands[0]) || rounded.operands[0].dtype != input.dtype)
    return {};

  WrittenNorm found{&widened, &mean, &shifted, &root, nullptr, &rounded.operands[0], {}};
  if (calls.size() == 8) {
    const Call& weighted = *calls[7];
    if (!is_step(weighted, "mul", 3) || !are_all_dense(weighted, count)) return {};
    const int weight = other_factor(weighted, rounded.operands[0]);
    if (!weight || !weighted.operands[weight].storage || weighted.operands[weight].dtype != input.dtype ||
        weighted.operands[0].dtype != input.dtype)
      return {};
    found.weight = &weighted.operands[weight];
    found.out = &weighted.operands[0];
  }
  // No call writes over what another one reads.
  std::vector<int> written;
  for (const Call* call : calls) {
    const int slot = call->operands[0].slot;
    if (slot == input.slot || (found.weight && slot == found.weight->slot) ||
        std::find(written.begin(), written.end(), slot) != written.end())
      return {};
    written.push_back(slot);
  }
  for (const Call* call : calls)
    if (const int slot = call->operands[0].slot;
        call != &mean && call != &shifted && call != &root && slot != found.out->slot)
      found.between.push_back(slot);
  return found;
}

}  // namespace mica::recording
