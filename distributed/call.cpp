#include "call.h"

namespace mica::distributed {
namespace {

struct Named {
  const char* name;
  int size;
};

Named describe(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
      return {"uint8", 1};
    case DType::Int8:
      return {"int8", 1};
    case DType::Int16:
      return {"int16", 2};
    case DType::Int32:
      return {"int32", 4};
    case DType::Int64:
      return {"int64", 8};
    case DType::UInt16:
      return {"uint16", 2};
    case DType::UInt32:
      return {"uint32", 4};
    case DType::UInt64:
      return {"uint64", 8};
    case DType::Float16:
      return {"float16", 2};
    case DType::BFloat16:
      return {"bfloat16", 2};
    case DType::Float32:
      return {"float32", 4};
    case DType::Float64:
      return {"float64", 8};
    case DType::Complex32:
      return {"complex32", 4};
    case DType::Complex64:
      return {"complex64", 8};
    case DType::Complex128:
      return {"complex128", 16};
    case DType::Bool:
      return {"bool", 1};
    case DType::Float8_e5m2:
      return {"float8_e5m2", 1};
    case DType::Float8_e4m3fn:
      return {"float8_e4m3fn", 1};
    case DType::Float8_e5m2fnuz:
      return {"float8_e5m2fnuz", 1};
    case DType::Float8_e4m3fnuz:
      return {"float8_e4m3fnuz", 1};
    case DType::Float8_e8m0fnu:
      return {"float8_e8m0fnu", 1};
    default:
      return {"bytes", 1};
  }
}

// The name that torch's messages have for an integral type.
const char* older_name(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
      return "Byte";
    case DType::Int8:
      return "Char";
    case DType::Int16:
      return "Short";
    case DType::Int32:
      return "Int";
    case DType::Int64:
      return "Long";
    case DType::UInt16:
      return "UInt16";
    case DType::UInt32:
      return "UInt32";
    case DType::UInt64:
      return "UInt64";
    default:
      return "Bool";
  }
}

}  // namespace

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce",         "broadcast",  "all_gather", "gather",
                                           "scatter",    "reduce_scatter", "all_to_all", "barrier",    "send",
                                           "recv"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(Reduction reduction) {
  static constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return kNames[static_cast<int>(reduction)];
}

const char* name_of_dtype(DType dtype) { return describe(dtype).name; }

size_t Call::element_size() const { return static_cast<size_t>(describe(dtype).size); }

void check_reduction(const Call& call) {
  if (!call.reduces()) return;
  const DType dtype = call.dtype;
  const std::string op = name_of(call.reduction);
  const bool integral = dtype <= DType::Int64 || (dtype >= DType::UInt16 && dtype <= DType::UInt64);
  const bool complex = dtype >= DType::Complex32 && dtype <= DType::Complex128;
  const bool boolean = dtype == DType::Bool;
  const bool floating =
      dtype == DType::Float16 || dtype == DType::BFloat16 || dtype == DType::Float32 || dtype == DType::Float64;
  if (!integral && !complex && !boolean && !floating) {
    throw InvalidCall(std::string("Invalid scalar type: ") + name_of(call.kind) + " does not reduce " +
                      name_of_dtype(dtype));
  }
  switch (call.reduction) {
    case Reduction::BAnd:
    case Reduction::BOr:
    case Reduction::BXor:
      if (!integral && !boolean) throw InvalidCall("Cannot use ReduceOp." + op + " with non-integral dtype");
      break;
    case Reduction::Min:
    case Reduction::Max:
      if (complex)
        throw InvalidCall(std::string(name_of(call.kind)) + " does not support ReduceOp." + op + " on complex tensors");
      break;
    case Reduction::Avg:
      if (integral || boolean) {
        throw InvalidCall(std::string("result type Float can't be cast to the desired output type ") +
                          older_name(dtype));
      }
      break;
    case Reduction::PremulSum:
      if (!floating && !complex)
        throw InvalidCall("Cannot use ReduceOp.PREMUL_SUM with a dtype that is neither floating nor complex");
      break;
    default:
      break;
  }
}

std::string describe(const Call& call, uint64_t number, const std::string& group) {
  std::string text = name_of(call.kind);
  if (call.kind < Kind::Send) text += " number " + std::to_string(number);
  if (call.kind != Kind::Barrier) {
    text += std::string(", ") + name_of_dtype(call.dtype) + " [";
    for (size_t i = 0; i < call.shape.size(); ++i) text += (i ? ", " : "") + std::to_string(call.shape[i]);
    text += "]";
  }
  if (call.reduces()) text += std::string(", ") + name_of(call.reduction);
  return text + " of the group '" + group + "'" + (call.place.empty() ? "" : ", at " + call.place);
}

}  // namespace mica::distributed
