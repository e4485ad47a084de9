// Rounds in virtual time without an engine. All figures are by hand.
#include "server/engine/timed_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
  double NextOn(ClientId, double seconds) const override { return std::max(seconds, first_); }
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
    return TimeRound(run_, devices_, passes_, **sampler, Round(round), clock);
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
  RowsOfTurn passes_;
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
  const TimedRound timed = Timed();
  EXPECT_EQ(Clients(timed).size(), 4u);
  EXPECT_EQ(timed.begun[0].began, 100);
  EXPECT_EQ(timed.time.seconds, 104);
  EXPECT_EQ(timed.time.end.now, 104);
}

// Each client is there for a second of each 100, its number's.
class ShortPresence final : public virtual_time::Presence {
 public:
  bool On(ClientId client, double seconds) const override {
    const double time = std::fmod(seconds, 100);
    return time >= First(client) && time < First(client) + 1;
  }
  double NextOn(ClientId client, double seconds) const override {
    if (On(client, seconds)) return seconds;
    const double begin = seconds - std::fmod(seconds, 100);
    return begin + First(client) + (begin + First(client) < seconds ? 100 : 0);
  }
  double ShareOn(ClientId) const override { return 0.01; }

 private:
  static double First(ClientId client) { return 10 * static_cast<double>(client.value + 1); }
};

TEST_F(TimedRoundOf, MeetsClientsWhoAreThereForAMoment) {
  run_.cohort.sampling = "available";
  run_.devices.presence = "of a table";
  presence_ = std::make_unique<ShortPresence>();
  TimedRound timed = Timed();
  EXPECT_THAT(Clients(timed), ElementsAre(0));
  EXPECT_EQ(timed.time.end.now, 11);
  for (const double end : {22.0, 33.0, 44.0, 111.0}) {
    timed = Timed(timed.time.end, 2);
    EXPECT_EQ(timed.time.end.now, end);
  }
  run_.asynchronous.mode = "overlapped";
  timed = Timed({.now = 12, .before = 5, .worked = 11}, 3);
  EXPECT_THAT(Clients(timed), ElementsAre(1));
  EXPECT_EQ(timed.begun[0].began, 20);
}

// Three places, and one client there at a time: the others begin when they come, while those
// before them train.
TEST_F(TimedRoundOf, FillsFreePlacesOfArrivalsWhenClientsCome) {
  run_.cohort.sampling = "available";
  run_.devices.presence = "of a table";
  run_.cohort.size = 3;
  run_.asynchronous = {.mode = "buffered", .concurrency = 3};
  presence_ = std::make_unique<ShortPresence>();
  const TimedRound timed = Timed({.traffic = {.up = 50}});
  EXPECT_THAT(Clients(timed), ElementsAre(0, 1, 2));
  ASSERT_EQ(timed.begun.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(timed.begun[i].began, 10 * static_cast<double>(i + 1));
  EXPECT_EQ(timed.time.end.now, 30 + 3 + 50);
}

TEST_F(TimedRoundOf, WithoutClientsForADayAStepHasFewerArrivals) {
  run_.cohort.sampling = "available";
  run_.devices.presence = "of a table";
  run_.cohort.size = 2;
  run_.asynchronous = {.mode = "buffered", .concurrency = 2};
  rows_ = {0, 10, 0, 0};
  presence_ = std::make_unique<ShortPresence>();
  const TimedRound timed = Timed();
  EXPECT_THAT(Clients(timed), ElementsAre(1)) << "it waits in the buffer";
  EXPECT_EQ(timed.time.end.now, 2 + 86400) << "a day with nobody at work";
}

// With equal devices no client is preferred for its number.
TEST_F(TimedRoundOf, EqualTurnsTakeTurnsInCounting) {
  class EqualDevices final : public virtual_time::Devices {
   public:
    virtual_time::Device Of(ClientId) const override { return {}; }
    virtual_time::TurnTime TurnOf(Round, ClientId, double,
                                  const virtual_time::Traffic&) const override {
      return {.work = 2};
    }
  };
  run_.cohort.size = 1;
  run_.cohort.over_selection = 4;
  const auto sampler = SamplerOf(run_, rows_, nullptr);
  ASSERT_TRUE(sampler.ok());
  std::vector<int> counted(4);
  for (uint32_t round = 1; round <= 400; ++round) {
    const TimedRound timed = TimeRound(run_, EqualDevices(), {}, **sampler, Round(round), {});
    ASSERT_EQ(timed.counted.size(), 1u);
    ++counted[timed.counted[0].entry.client.value];
  }
  for (const int times : counted) EXPECT_NEAR(times, 100, 40);
}

// Takes a second a row.
class RowDevices final : public virtual_time::Devices {
 public:
  virtual_time::Device Of(ClientId) const override { return {}; }
  virtual_time::TurnTime TurnOf(Round, ClientId, double passed,
                                const virtual_time::Traffic&) const override {
    return {.work = passed};
  }
};

TEST_F(TimedRoundOf, TakesTheWorkOfItsRule) {
  run_.local = {.steps = 5, .batch_size = 4};
  rows_ = {5, 0, 0, 0};
  run_.cohort.size = 1;
  const auto seconds = [&](const RowsOfTurn& passes) {
    const auto sampler = SamplerOf(run_, rows_, nullptr);
    return TimeRound(run_, RowDevices(), passes, **sampler, Round(1), {}).time.seconds;
  };
  EXPECT_EQ(seconds({}), 14) << "4 + 1 + 4 + 1 + 4 rows";
  EXPECT_EQ(seconds([](const LocalTurn& turn) { return 100.0 * turn.rows; }), 500);
}

// Of 21 rows batch norm makes two batches, and so a straggler does one of them.
TEST_F(TimedRoundOf, StragglersDoLessThanTheirJoinedBatches) {
  run_.local = {.epochs = 1, .batch_size = 10};
  run_.cohort.size = 1;
  run_.cohort.straggler_fraction = 1;
  rows_ = {21, 0, 0, 0};
  const auto most = [&](bool joins) {
    const RowsOfTurn passes(
        [](const LocalTurn& turn) { return static_cast<double>(RowsPassed(turn)); }, joins);
    double seconds = 0;
    for (uint32_t round = 1; round <= 20; ++round) {
      const auto sampler = SamplerOf(run_, rows_, nullptr);
      seconds = std::max(
          seconds, TimeRound(run_, RowDevices(), passes, **sampler, Round(round), {}).time.seconds);
    }
    return seconds;
  };
  EXPECT_EQ(most(false), 20);
  EXPECT_EQ(most(true), 10);
}

// Rounds that overlap have clients of their own: those of round 12 do the work of round 12, though
// their model is that of round 10.
TEST_F(TimedRoundOf, RoundsThatOverlapHaveTheirOwnWork) {
  run_.rounds = 12;
  run_.cohort.size = 1;
  rows_ = {10, 0, 0, 0};
  run_.local = {.steps = 3, .qsr = 0.2, .batch_size = 1, .lr = 0.1};
  run_.local.lr_schedule = {.kind = "exponential", .gamma = 0.5};
  const auto seconds = [&](const char* mode, uint32_t round) {
    run_.asynchronous.mode = mode;
    const auto sampler = SamplerOf(run_, rows_, nullptr);
    return TimeRound(run_, RowDevices(), {}, **sampler, Round(round), {}).time.seconds;
  };
  for (const uint32_t round : {1U, 2U, 3U, 4U}) {
    EXPECT_EQ(seconds("overlapped", round), std::pow(4, round));
    EXPECT_EQ(seconds("synchronous", round), std::pow(4, round));
  }
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

// Clients 0 and 1 work for 1 and 2 seconds, and fetch for 2 and send for 1 second each:
//   round 1 from x₀ at 0: work from 2 to 4, the last update is there at 5
//   round 2 from x₀: fetches from 2, works from 4 to 6, while round 1 sends; 7
//   round 3 from x₁, which is there at 5: works from 7 to 9; 10
//   round 4 from x₂, which is there at 7: works from 9 to 11; 12. Rounds that wait: 20
TEST_F(TimedRoundOf, RoundsThatOverlapWorkWhileTheRoundBeforeSends) {
  run_.cohort.size = 2;
  run_.asynchronous.mode = "overlapped";
  rows_ = {10, 10, 0, 0};
  const virtual_time::Traffic traffic = {.down = 2, .up = 1};
  TimedRound timed = Timed({.traffic = traffic});
  EXPECT_THAT(Clients(timed), ElementsAre(0, 1));
  EXPECT_EQ(timed.counted[0].base, Round(0));
  EXPECT_EQ(timed.time.end.now, 5);
  EXPECT_EQ(timed.time.end.worked, 4);
  EXPECT_THAT(timed.time.bases, ElementsAre(Round(0)));
  timed = Timed(timed.time.end, 2);
  EXPECT_EQ(timed.counted[0].base, Round(0));
  EXPECT_EQ(timed.begun[0].began, 2);
  EXPECT_EQ(timed.time.end.now, 7);
  EXPECT_EQ(timed.time.seconds, 2);
  EXPECT_THAT(timed.time.bases, ElementsAre(Round(1)));
  timed = Timed(timed.time.end, 3);
  EXPECT_EQ(timed.counted[0].base, Round(1));
  EXPECT_EQ(timed.begun[0].began, 5);
  EXPECT_EQ(timed.time.end.now, 10);
  timed = Timed(timed.time.end, 4);
  EXPECT_EQ(timed.counted[0].base, Round(2));
  EXPECT_EQ(timed.begun[1].began, 7);
  EXPECT_EQ(timed.time.end.now, 12);
}

TEST_F(TimedRoundOf, ARoundThatOverlapsDoesNotEndBeforeTheOneBefore) {
  run_.cohort.size = 1;
  run_.asynchronous.mode = "overlapped";
  rows_ = {10, 0, 0, 0};  // a turn of 1 second
  const TimedRound timed = Timed({.now = 50, .before = 10, .worked = 20}, 3);
  EXPECT_EQ(timed.begun[0].began, 20);
  EXPECT_EQ(timed.time.end.now, 50);
  EXPECT_EQ(timed.time.seconds, 0);
}

TEST_F(TimedRoundOf, ADeadlineOfARoundThatOverlapsCountsFromItsWork) {
  run_.cohort.size = 4;
  run_.asynchronous.mode = "overlapped";
  run_.devices.deadline = 3.5;
  run_.devices.quorum = 0.25;
  const TimedRound timed =
      Timed({.now = 30, .traffic = {.down = 5, .up = 1}, .before = 10, .worked = 28}, 3);
  EXPECT_EQ(timed.begun[0].began, 23);
  EXPECT_THAT(Clients(timed), ElementsAre(0, 1)) << "2 and 3 seconds after 28";
  EXPECT_EQ(timed.time.late, 2u);
  EXPECT_EQ(timed.time.end.now, 31.5);
  EXPECT_EQ(timed.time.end.worked, 30) << "of those who count";
}

// The server learns at the deadline that too few were there, so the next round begins then.
TEST_F(TimedRoundOf, ADroppedRoundThatOverlapsTakesItsDeadline) {
  run_.cohort.size = 4;
  run_.asynchronous.mode = "overlapped";
  run_.devices.deadline = 3.5;
  run_.devices.drops_below = true;
  const TimedRound timed = Timed({.now = 30, .before = 10, .worked = 28}, 3);
  EXPECT_THAT(Clients(timed), IsEmpty());
  EXPECT_EQ(timed.time.end.now, 31.5);
  EXPECT_EQ(timed.time.end.worked, 31.5);
}

TEST(FirstTraffic, OfFrozenTensorsIsDownAlone) {
  const LayoutPtr model = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {4, 3}}, {.name = "0.bias", .shape = {4}}}, DType::kF32);
  RunPlan run;
  const virtual_time::Traffic whole = FirstTraffic(run, *model);
  EXPECT_EQ(whole.up, whole.down);
  EXPECT_EQ(whole.down, static_cast<double>(model->bytes()));
  run.model.frozen = {"0.weight"};
  const virtual_time::Traffic split = FirstTraffic(run, *model);
  EXPECT_EQ(split.down, whole.down);
  EXPECT_EQ(split.up, 64) << "each tensor begins at a multiple of 64 bytes";
}

}  // namespace
}  // namespace macaw::server
