#include "server/engine/attempt_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw::server {
namespace {

using State = AttemptTable::State;

constexpr WorkerId kFirst(1), kSecond(2);
const std::vector<ClientId> kLeased = {ClientId(10), ClientId(20), ClientId(30)};
TimePoint Time(double seconds) { return TimePoint(FromSeconds(seconds)); }

class AttemptTableTest : public testing::Test {
 protected:
  Attempt Lease(uint64_t client, WorkerId worker, double expires = 10) {
    return table_.Lease(ClientId(client), worker, Time(expires), fences_);
  }
  FenceSource fences_{7};
  AttemptTable table_{kLeased};
};

TEST_F(AttemptTableTest, AClientGoesFromQueuedToCountedOnce) {
  const Attempt a = Lease(10, kFirst);
  EXPECT_EQ(a.fence.epoch, 7u);
  ASSERT_TRUE(table_.Judge(kFirst, {{a}}).ok());
  table_.Count({{a}});
  EXPECT_EQ(table_.StateOf(ClientId(10)), State::kCounted);
  EXPECT_FALSE(table_.Judge(kFirst, {{a}}).ok());
  EXPECT_EQ(table_.queued(), 2u);
  EXPECT_FALSE(table_.closed());
}

TEST_F(AttemptTableTest, APartWithOneStaleAttemptIsRefusedWholeAndNothingMoves) {
  const Attempt a = Lease(10, kFirst), b = Lease(20, kFirst, 5);
  const std::vector<AttemptTable::Late> late = table_.Expire(Time(6));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].attempt, b);
  EXPECT_EQ(late[0].worker, kFirst);
  const absl::Status verdict = table_.Judge(kFirst, {{a, b}});
  EXPECT_EQ(verdict.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(verdict.message()), testing::HasSubstr("client 20"));
  EXPECT_EQ(table_.leased(), 1u);
  EXPECT_EQ(table_.counted(), 0u);
}

TEST_F(AttemptTableTest, OnlyTheHolderMayCommit) {
  const Attempt a = Lease(10, kFirst);
  EXPECT_FALSE(table_.Judge(kSecond, {{a}}).ok());
  EXPECT_FALSE(table_.Judge(kFirst, {{Attempt{ClientId(10), {6, a.fence.counter}}}}).ok())
      << "another epoch";
  EXPECT_FALSE(table_.Judge(kFirst, {{Attempt{ClientId(99), a.fence}}}).ok())
      << "not in the cohort";
  EXPECT_EQ(table_.Judge(kFirst, {{a, a}}).code(), absl::StatusCode::kInvalidArgument) << "twice";
}

TEST_F(AttemptTableTest, ARenewedLeaseOutlivesItsFirstExpiryAndALostOneIsNamed) {
  const Attempt a = Lease(10, kFirst, 5), b = Lease(20, kSecond, 5);
  table_.Renew(kFirst, Time(20));
  const std::vector<AttemptTable::Late> late = table_.Expire(Time(6));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].attempt, b);
  EXPECT_THAT(table_.NotHeld(kFirst, {{a}}), testing::IsEmpty());
  EXPECT_THAT(table_.NotHeld(kSecond, {{b}}), testing::ElementsAre(b));
  EXPECT_EQ(table_.NextExpiry(), Time(20));
}

TEST_F(AttemptTableTest, AWorkerLostGivesEverythingBackAndANewFenceReplacesTheOld) {
  const Attempt a = Lease(10, kFirst), b = Lease(20, kSecond);
  EXPECT_THAT(table_.DropWorker(kFirst), testing::ElementsAre(a));
  const Attempt again = Lease(10, kSecond);
  EXPECT_GT(again.fence, a.fence);
  EXPECT_FALSE(table_.Judge(kFirst, {{a}}).ok());
  EXPECT_TRUE(table_.Judge(kSecond, {{again, b}}).ok());
}

TEST_F(AttemptTableTest, ClosesWhenEverybodyIsCountedOrGivenUp) {
  const Attempt a = Lease(10, kFirst), b = Lease(20, kFirst), c = Lease(30, kSecond);
  table_.Count({{a, b}});
  EXPECT_FALSE(table_.closed());
  table_.GiveUp({{c}});
  EXPECT_TRUE(table_.closed());
  EXPECT_THAT(table_.Remaining(), testing::ElementsAre(ClientId(10), ClientId(20)));
}

}  // namespace
}  // namespace macaw::server
