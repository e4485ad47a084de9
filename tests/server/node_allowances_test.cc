#include "server/node_allowances.h"

#include <gtest/gtest.h>

namespace macaw::server {
namespace {

using What = NodeAllowances::What;
using std::chrono::seconds;

TEST(NodeAllowances, ANodeThatRegistersWithoutEndGetsAFewAndHindersNoOther) {
  NodeAllowances allowances;
  const TimePoint start = TimePoint{} + std::chrono::hours(1);
  int allowed = 0;
  // 3,900 a second for a minute.
  for (int i = 0; i < 60 * 3900; ++i) {
    const TimePoint now = start + i * seconds(1) / 3900;
    if (allowances.Take("phone-7", What::kRegister, now)) ++allowed;
  }
  EXPECT_LE(allowed, 20 + 60 / 10);
  EXPECT_GE(allowed, 20);
  EXPECT_TRUE(allowances.Take("phone-8", What::kRegister, start + seconds(60)));
  EXPECT_TRUE(allowances.Take("phone-7", What::kRelease, start + seconds(60)));
  EXPECT_TRUE(allowances.Take("phone-7", What::kRegister, start + seconds(90))) << "it refills";
}

TEST(NodeAllowances, HasSaysWhatTakeWouldSay) {
  NodeAllowances allowances;
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  for (int i = 0; i < 200; ++i) {
    const bool has = allowances.Has("phone-7", What::kTurnedDown, now);
    EXPECT_EQ(has, allowances.Take("phone-7", What::kTurnedDown, now));
  }
  EXPECT_FALSE(allowances.Has("phone-7", What::kTurnedDown, now));
}

TEST(NodeAllowances, AReasonThatStaysIsNoNewsAndOneThatChangesWithoutEndStays) {
  NodeAllowances allowances;
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(allowances.Declined("phone-7", "on battery", now), "on battery");
  EXPECT_EQ(allowances.Declined("phone-7", "", now), "");
  int changes = 0;
  std::string last;
  for (int i = 0; i < 1000; ++i) {
    const std::string said = allowances.Declined("phone-7", std::to_string(i), now);
    changes += said != last ? 1 : 0;
    last = said;
  }
  EXPECT_LE(changes, 20);
  EXPECT_EQ(allowances.Declined("phone-7", "", now + std::chrono::minutes(1)), "");
}

TEST(NodeAllowances, ForgetsNodesThatHaveDoneNothingForLong) {
  NodeAllowances allowances;
  for (int i = 0; i < 100'000; ++i) {
    EXPECT_TRUE(
        allowances.Take(std::to_string(i), What::kRegister, TimePoint{} + std::chrono::minutes(i)));
  }
  EXPECT_LE(allowances.size(), size_t{1} << 14);
}

}  // namespace
}  // namespace macaw::server
