#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <vector>

#include "tests/system/simulation.h"

namespace macaw::testing_support {

// Stops a worker until the server has lost it, and wakes it too late.
inline void StopAWorkerUntilItIsLost(const Simulation& simulation) {
  const std::vector<pid_t> workers = simulation.Children("macaw-worker");
  ASSERT_FALSE(workers.empty());
  ::kill(workers[0], SIGSTOP);
  EXPECT_TRUE(
      simulation.WaitForEvent([](const auto& event) { return event["event"] == "worker_lost"; }));
  ::kill(workers[0], SIGCONT);
}

}  // namespace macaw::testing_support
