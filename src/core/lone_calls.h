// Calls that gain nothing by being put off, because each time they ran alone.
#pragma once

#include "mica/core/array_ref.h"
#include "mica/dtype.h"

namespace mica::recording {

// Whether a call runs at once, though it could be put off: calls like it were put off many times, and none of them ran
// together with another call. To be asked of calls none of whose operands is pending. Now and then such a call is put
// off nevertheless, because the program may have changed.
bool runs_alone(const char* name, DType dtype, IntArrayRef sizes);

// The same for calls that can be asked about early, before their operands are looked at: true where nothing is pending,
// and such calls are known to run alone. Where it is false, all else is to be asked as ever.
bool runs_alone_for_sure(const char* name, DType dtype, IntArrayRef sizes);

// Whether copies like this one have run alone as often, for whoever allocates the copy's memory first.
bool copy_runs_alone(DType dtype, IntArrayRef sizes);
inline constexpr char kCopyName[] = "copy";  // a kernel's name is known by its address

}  // namespace mica::recording
