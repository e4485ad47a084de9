// Rounds in virtual time without an engine. All figures are by hand.
#include "server/engine/timed_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Client k trains for k + 1 seconds and moves each byte in a second.
class SlowerDevices final : public virtual_time::Devices {
 public:
  virtual_time::Device Of(ClientId) const override { return {}; }
  virtual_time::TurnTime TurnOf(Round, ClientId client, double,
                                const virtual_time::Traffic& traffic) const override {
    return {.download = traffic.down,
            .work = static_cast<double>(client.value + 1),
            .upload = traffic.up};
  }
};

// Nobody before these seconds.
class LatePresence final : public virtual_time::Presence {
 public:
  explicit LatePresence(double first = 100) : first_(first) {}
  bool On(ClientId, double seconds) const override { return seconds >= first_; }
  double ShareOn(ClientId) const override { return 1; }

 private:
  const double first_;
};

class TimedRoundOf : public testing::Test {
 protected:
  TimedRoundOf() {
    run_.cohort.size = 4;
    run_.devices.family = "lognormal";
  }
  TimedRound Timed(const virtual_time::ClockState& clock = {}, uint32_t round = 1) const {
    const auto sampler = SamplerOf(run_, rows_, presence_.get());
    EXPECT_TRUE(sampler.ok()) << sampler.status();
    return TimeRound(run_, devices_, **sampler, Round(round), clock);
  }
  static std::vector<uint64_t> Clients(const TimedRound& timed) {
    std::vector<uint64_t> clients;
    for (const Arrival& one : timed.counted) clients.push_back(one.entry.client.value);
    return clients;
  }

  RunPlan run_;
  std::vector<uint32_t> rows_ = {10, 10, 10, 10};
  std::unique_ptr<virtual_time::Presence> presence_;
  const SlowerDevices devices_;
};

TEST_F(TimedRoundOf, AllIsAsLongAsTheSlowestTurn) {
  const TimedRound timed = Timed({.now = 50, .traffic = {.down = 2, .up = 1}}, 3);
  EXPECT_THAT(Clients(timed), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(timed.time.seconds, 7);
  EXPECT_EQ(timed.time.end.now, 57);
  EXPECT_EQ(timed.counted[0].base, Round(2));
  ASSERT_EQ(timed.begun.size(), 4u);
  EXPECT_EQ(timed.begun[3].began, 50);
  EXPECT_EQ(timed.begun[3].time.download, 2);
  EXPECT_EQ(timed.begun[3].time.work, 4);
}

TEST_F(TimedRoundOf, OverSelectionKeepsTheFirst) {
  run_.cohort.size = 2;
  run_.cohort.over_selection = 2;
  const TimedRound timed = Timed();
  EXPECT_THAT(Clients(timed), ElementsAre(0, 1));
  EXPECT_EQ(timed.begun.size(), 4u) << "all of them train on their devices";
  EXPECT_EQ(timed.time.seconds, 2);
  EXPECT_EQ(timed.time.not_needed, 2u);
}

TEST_F(TimedRoundOf, ADeadlineClosesAsOnAFleet) {
  run_.devices.deadline = 2.5;
  run_.devices.quorum = 0.5;
  EXPECT_THAT(Clients(Timed()), ElementsAre(0, 1));
  EXPECT_EQ(Timed().time.late, 2u);
  EXPECT_EQ(Timed().time.seconds, 2.5);
  run_.devices.quorum = 0.75;
  EXPECT_THAT(Clients(Timed()), ElementsAre(0, 1, 2)) << "it waits for three";
  run_.devices.drops_below = true;
  EXPECT_THAT(Clients(Timed()), IsEmpty());
}

TEST_F(TimedRoundOf, BeginsWhenSomebodyIsThere) {
  run_.cohort.sampling = "available";
  run_.devices.presence = "of a table";
  presence_ = std::make_unique<LatePresence>();
  const TimedRound timed = Timed();  // after two pauses of a minute
  EXPECT_EQ(Clients(timed).size(), 4u);
  EXPECT_EQ(timed.begun[0].began, 120);
  EXPECT_EQ(timed.time.seconds, 124);
  EXPECT_EQ(timed.time.end.now, 124);
}

TEST_F(TimedRoundOf, IsEmptyAfterADayWithoutAnybody) {
  run_.cohort.sampling = "available";
  run_.devices.presence = "of a table";
  presence_ = std::make_unique<LatePresence>(1e9);
  const TimedRound timed = Timed();
  EXPECT_THAT(Clients(timed), IsEmpty());
  EXPECT_EQ(timed.time.seconds, 86400);
  EXPECT_EQ(timed.time.end.now, 86400);
}

TEST_F(TimedRoundOf, StepsThatDoNotWaitHasTheNextArrivals) {
  run_.cohort.size = 1;
  run_.asynchronous = {.mode = "buffered", .concurrency = 2};
  rows_ = {10, 0, 0, 10};  // turns of 1 and 4 seconds
  TimedRound timed = Timed();
  EXPECT_THAT(Clients(timed), ElementsAre(0));
  EXPECT_EQ(timed.begun.size(), 2u);
  EXPECT_TRUE(timed.time.asynchronous);
  for (uint32_t round = 2; round <= 4; ++round) timed = Timed(timed.time.end, round);
  EXPECT_EQ(timed.time.end.now, 4);
  EXPECT_EQ(Clients(timed).size(), 1u);
  ASSERT_EQ(timed.begun.size(), 1u);
  EXPECT_EQ(timed.begun[0].began, 3);
  EXPECT_EQ(timed.begun[0].base, Round(3));
}

}  // namespace
}  // namespace macaw::server
