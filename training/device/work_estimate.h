#pragma once

#include <cstdint>
#include <span>

#include "training/device/ops.h"

// How long a launch takes, from the model alone. Bits do not depend on it.
namespace macaw::training::ondevice {

// Multiply-adds of a row, forward and back, and what the other operations take, as so many of them.
uint64_t WorkOfRow(std::span<const Op> ops);
// What a pass takes beside its rows: it reads and moves all weights.
uint64_t WorkOfPass(const Program& program);

// TrainArgs::most_rows and step_rows.
struct LaunchSize {
  uint32_t most_rows = 0, step_rows = 0;
};
// For launches of about `seconds` at most, and at least one pass a job, where `jobs` blocks share
// `processors`.
LaunchSize SizeOfLaunch(const Program& program, uint64_t row_work, double seconds, uint64_t jobs,
                        uint32_t processors);

}  // namespace macaw::training::ondevice
