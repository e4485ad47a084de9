#include "worker/server_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw::worker {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(ServerPace, OfARealServerIsTaken) {
  for (const Duration pulse : {Duration(milliseconds(50)), Duration(seconds(20 * 60))}) {
    for (const Duration reconnect : {Duration{}, Duration(milliseconds(100)), Duration(hours(2))}) {
      fleet::RegisterReply reply{.heartbeat_every = pulse, .reconnect_every = reconnect};
      EXPECT_EQ(BoundPace(reply), "");
      EXPECT_EQ(reply.heartbeat_every, pulse);
      EXPECT_EQ(reply.reconnect_every, reconnect);
    }
  }
}

TEST(ServerPace, IsNeitherABusyLoopNorASleepOfMonths) {
  for (const Duration pause : {Duration{}, Duration(-seconds(3)), Duration(1)}) {
    fleet::RegisterReply reply{.heartbeat_every = pause, .reconnect_every = Duration(1)};
    EXPECT_THAT(BoundPace(reply), AllOf(HasSubstr("heartbeats"), HasSubstr("looked for")));
    EXPECT_EQ(reply.heartbeat_every, milliseconds(5));
    EXPECT_EQ(reply.reconnect_every, milliseconds(1));
  }
  fleet::RegisterReply reply{.heartbeat_every = hours(8760), .reconnect_every = hours(8760)};
  EXPECT_THAT(BoundPace(reply), HasSubstr("3600"));
  EXPECT_EQ(reply.heartbeat_every, hours(1));
  EXPECT_EQ(reply.reconnect_every, hours(3));
}

}  // namespace
}  // namespace macaw::worker
