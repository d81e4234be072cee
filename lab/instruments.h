// The functions behind the page: each takes a question and returns the engine's answer.
#pragma once

#include <mutex>

#include "describe.h"

namespace mica::lab {

Json engine(const Json& question);        // dtypes, operations, threads: what the page needs before anything else
Json fit(const Json& question);           // a model's memory against that of a GPU
Json weights_file(const Json& question);  // the tensors that a file of weights lists
Json calculator(const Json& question);    // the bytes of a shape in every dtype
Json strides(const Json& question);       // a geometry over a tape of memory
Json views(const Json& question);         // who shares memory with whom
Json broadcasting(const Json& question);  // shapes that meet
Json precision(const Json& question);     // a curve in several formats
Json bits(const Json& question);          // of one number
Json transfer(const Json& question);      // copies and products, measured
Json playground(const Json& question);    // a chain of operations
Json graph(const Json& question);         // what autograd keeps of one
Json sparse(const Json& question);        // dense, COO and CSR: bytes and measured time
Json quantize(const Json& question);      // numbers in a few bits, and what that loses
Json machine(const Json& question);       // what this machine's memory and arithmetic reach, measured once
Json roofline(const Json& question);      // operations under that roof
Json plan(const Json& question);          // the ways to make a model fit
Json einsum(const Json& question);        // letters, axes and the result of an expression
Json execute(const Json& question);       // a program of the reader's own, in a process of its own
Json quiz(const Json& question);          // a question on shapes, strides and copies, and its answer
Json run(const Json& question);           // what a running program shows of itself

// Whether times are this machine's. A page's are those of one thread and of a browser's coarse clock: it shows models.
#ifdef __EMSCRIPTEN__
inline constexpr bool kMeasures = false;
#else
inline constexpr bool kMeasures = true;
#endif

inline std::mutex measuring;  // held while something is measured: measurements disturb each other

}  // namespace mica::lab
