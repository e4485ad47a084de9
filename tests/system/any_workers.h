#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/state_runs.h"

namespace macaw::testing_support {

// The law that who trains decides nothing: one worker with one slot, three with two, and two over
// TCP give the same bytes, and the run that is repeated from its log has the same model. `also`:
// what else the runs of one worker and of three must share.
inline void ExpectTheSameBytesForAnyWorkers(
    const std::string& config, const std::vector<std::string>& settings,
    const std::function<void(const Simulation& one, const Simulation& three)>& also = {}) {
  Simulation one("one", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation three("three", WithSettings(config, settings, {"--processes", "3", "--slots", "2"}));
  ASSERT_EQ(three.Wait(), 0) << three.output();
  EXPECT_EQ(StateBytesOf(three), StateBytesOf(one));
  Simulation tcp("tcp",
                 WithSettings(config, settings, {"--processes", "2", "--slots", "1", "--tcp"}));
  ASSERT_EQ(tcp.Wait(), 0) << tcp.output();
  EXPECT_EQ(StateBytesOf(tcp), StateBytesOf(one));
  if (also) also(one, three);
  const Printed replay =
      RunMacaw(absl::StrCat("replay ", three.folder(), " --out ", three.folder(), "-again"));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text, testing::HasSubstr("and the same model: "));
}

}  // namespace macaw::testing_support
