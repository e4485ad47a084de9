#pragma once

#include <cstdint>
#include <vector>

#include "cli/diff/trace.h"

namespace macaw::cli {

// The rounds before the last one, `rounds`, whose model a run has evaluated although neither
// evaluation.every nor evaluation.leave_one_out asks for it: those after which it had ended before
// it went on. By its log, and by its rows, since a bundle may have no log. Ascending.
std::vector<uint32_t> EvaluatedBesides(const Trace& run, uint32_t rounds);

}  // namespace macaw::cli
