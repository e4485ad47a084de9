#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/state_runs.h"

namespace macaw::testing_support {

// Kills a run once this round is over.
inline void KillAfter(const Simulation& run, uint32_t round) {
  EXPECT_TRUE(run.WaitForEvent(RoundDone(round))) << run.output();
  run.Signal(SIGKILL);
}

// Two runs of these settings that were killed after this round: one that goes on from a checkpoint,
// and one that goes on in the middle of a round. Both at once: most of their time is pauses.
inline std::list<Simulation> RunsKilledAfter(uint32_t round, const std::string& config,
                                             const std::vector<std::string>& settings) {
  std::list<Simulation> runs;
  runs.emplace_back("checkpoint", WithSettings(config, Plus(settings, {"run.checkpoint_every=2"})));
  runs.emplace_back(
      "commit",
      WithSettings(config, Plus(settings, {"run.checkpoint_every=3", "server.durability=commit"})));
  for (Simulation& run : runs) {
    KillAfter(run, round);
    EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.output();
  }
  return runs;
}

}  // namespace macaw::testing_support
