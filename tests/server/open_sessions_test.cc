#include "server/open_sessions.h"

#include <gtest/gtest.h>

#include <vector>

namespace macaw::server {
namespace {

TEST(OpenSessions, GiveEachNodeAPauseThatFitsTheirNumber) {
  OpenSessions sessions(FromSeconds(30));
  for (uint64_t i = 1; i <= 3; ++i) sessions.Add(SessionId(i), "node");
  EXPECT_EQ(sessions.ReconnectEvery(), FromSeconds(0.03)) << "a small fleet comes back at once";
  for (uint64_t i = 4; i <= 3000; ++i) sessions.Add(SessionId(i), "node");
  EXPECT_EQ(sessions.ReconnectEvery(), FromSeconds(30));
}

// As nodes join one after another: how many come back in each second after they have lost the
// server, with each pause at its mean.
TEST(OpenSessions, ComeBackAtARateThatAServerWithTwoProcessorsBears) {
  OpenSessions sessions(FromSeconds(30));
  std::vector<int> comebacks(32);
  for (uint64_t i = 1; i <= 3000; ++i) {
    sessions.Add(SessionId(i), "node");
    ++comebacks.at(static_cast<size_t>(ToSeconds(sessions.ReconnectEvery())));
  }
  for (const int in_this_second : comebacks) EXPECT_LE(in_this_second, 110);
}

TEST(OpenSessions, SendHeartbeatsAtARateThatAServerBears) {
  OpenSessions sessions(FromSeconds(30));
  uint64_t joined = 0;
  const auto with = [&](uint64_t count) {
    while (joined < count) sessions.Add(SessionId(++joined), "node");
    return sessions.HeartbeatEvery();
  };
  EXPECT_EQ(with(0), FromSeconds(1));
  EXPECT_EQ(with(1000), FromSeconds(1));
  EXPECT_EQ(with(3000), FromSeconds(3));
  EXPECT_EQ(with(30'000), FromSeconds(10)) << "three times a lease, whatever it costs";
  EXPECT_EQ(OpenSessions(FromSeconds(0.3)).HeartbeatEvery(), FromSeconds(0.1));
}

}  // namespace
}  // namespace macaw::server
