#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/run_plan.h"

namespace macaw::training {

// How much work a client may report after its turn. An algorithm may pass over the client's rows
// more often than [local] says, but at most kMostPasses times as often. A server refuses a part
// with a client that reports more, so a worker leaves such a client out before.
inline constexpr double kMostPasses = 1000;

// What a client was leased to do.
struct PlannedTurn {
  uint64_t rows = 0;
  uint64_t tokens = 0;  // in its training rows; 0 unless the rows are sequences
  uint64_t steps = 0;
};
struct MostWork {
  double rows = 0;  // where next tokens are predicted: tokens, if they are known
  double steps = 0;
};

inline MostWork MostWorkOf(const RunPlan& run, const PlannedTurn& turn) {
  const auto rows = static_cast<double>(std::max<uint64_t>(turn.rows, 1));
  const auto steps = static_cast<double>(turn.steps);
  const uint64_t batch = run.local.batch_size;
  const double planned = steps * (batch > 0 ? static_cast<double>(batch) : rows);
  const bool in_tokens = run.task == TaskKind::kNextToken && turn.tokens > 0;
  const double once = in_tokens ? static_cast<double>(turn.tokens) : rows;
  return {.rows = kMostPasses * (1 + planned / rows) * once, .steps = kMostPasses * (1 + steps)};
}

}  // namespace macaw::training
