#include "autograd/anomaly.h"

#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

namespace {

// An error that already carries the name of a node. Outer passes leave it as it is.
class BackwardError final : public Error {
 public:
  using Error::Error;
};

void report_trace(const Node& node) {
  if (!node.trace) {
    warn(cat(
        "Error detected in ", node.name(),
        ". No forward pass information available. Enable detect anomaly during forward pass for more information."));
    return;
  }
  warn(
      cat("Error detected in ", node.name(), ". Traceback of forward call that caused the error:\n", node.trace->text));
  for (const Node* n = node.trace->parent.get(); n; n = n->trace ? n->trace->parent.get() : nullptr) {
    if (n->trace) {
      warn(cat("\n\nPrevious calculation was induced by ", n->name(),
               ". Traceback of forward call that induced the previous calculation:\n", n->trace->text));
    } else {
      warn(cat("\n\nPrevious calculation was induced by ", n->name(), ". No forward pass information available."));
    }
  }
}

}  // namespace

void explain_failure(const Node& node) {
  if (anomaly_enabled()) report_trace(node);
  const std::string note = cat("while running ", node.name(), " in the backward pass");
  try {
    throw;
  } catch (const BackwardError&) {
    throw;
  } catch (const Error& e) {
    throw BackwardError(e.kind(), cat(e.what(), "\n  ", note));
  } catch (Notable& e) {
    e.add_note(note);
    throw;
  }
}

void check_for_nan(const Node& node, const TensorVec& out) {
  if (thread_modes & mode_bit::kAnomalySkipNan) return;
  NoGradGuard no_grad;
  ModeGuard quiet(mode_bit::kAnomaly, false);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined() || out[i].is_meta() || ne(out[i], out[i]).sum().item<int64_t>() == 0) continue;
    ModeGuard loud(mode_bit::kAnomaly, true);
    try {
      fail(cat("Function '", node.name(), "' returned nan values in its ", i, "th output."));
    } catch (const Error&) {
      // Called while the error is handled, so that a warning which became an error does not replace it.
      report_trace(node);
      throw;
    }
  }
}

}  // namespace mica
