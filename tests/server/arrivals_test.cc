#include "server/engine/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using virtual_time::ClockState;

// Turns that take the same seconds each time.
class FixedDevices final : public virtual_time::Devices {
 public:
  explicit FixedDevices(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  virtual_time::Device Of(ClientId) const override { return {}; }
  virtual_time::TurnTime TurnOf(Round, ClientId client, double passed,
                                const virtual_time::Traffic& traffic) const override {
    return {.download = traffic.down, .work = seconds_[client.value] + passed};
  }

 private:
  const std::vector<double> seconds_;
};

class Arrivals : public testing::Test {
 protected:
  // A run of clients whose turns take these seconds.
  void Run(std::vector<double> seconds, uint64_t buffer, uint64_t concurrency, uint64_t refill) {
    run_.cohort.size = buffer;
    run_.asynchronous = {.mode = "buffered", .concurrency = concurrency, .refill = refill};
    rows_.assign(seconds.size(), 10);
    devices_ = std::make_unique<FixedDevices>(std::move(seconds));
    CohortConfig groups = run_.cohort;
    groups.size = refill;
    groups_ = *scheduler::MakeSampler(groups, rows_);
  }

  Arrived Next(uint32_t round) {
    const PassedRows passed = [](const scheduler::CohortEntry&, Round) { return 0.0; };
    Arrived arrived = ArrivalsOf(run_, *devices_, *groups_, passed, Round(round), clock_);
    clock_ = arrived.clock;
    return arrived;
  }

  // Client and base of each arrival.
  static std::vector<std::pair<uint64_t, uint32_t>> Bases(const Arrived& arrived) {
    std::vector<std::pair<uint64_t, uint32_t>> bases;
    for (const Arrival& one : arrived.arrivals)
      bases.emplace_back(one.entry.client.value, one.base.value);
    return bases;
  }

  RunPlan run_;
  std::vector<uint32_t> rows_;
  std::unique_ptr<FixedDevices> devices_;
  std::unique_ptr<scheduler::CohortSampler> groups_;
  ClockState clock_;
};

// Three devices whose turns take 2, 3 and 7 seconds, two arrivals a step. All three begin at 0.
//   step 1 at 3: client 0 at 2, client 1 at 3. Both begin again at 3, with the model of step 1
//   step 2 at 6: client 0 at 5, client 1 at 6, and again
//   step 3 at 8: client 2 at 7, with the model of 0; client 0 at 8, with that of step 2
TEST_F(Arrivals, OfThreeDevicesAsOnPaper) {
  Run({2, 3, 7}, 2, 3, 1);
  using Base = std::pair<uint64_t, uint32_t>;
  const Arrived first = Next(1);
  EXPECT_THAT(Bases(first), ElementsAre(Base{0, 0}, Base{1, 0}));
  EXPECT_EQ(first.seconds, 3);
  EXPECT_EQ(first.clock.now, 3);
  const Arrived second = Next(2);
  EXPECT_THAT(Bases(second), ElementsAre(Base{0, 1}, Base{1, 1}));
  EXPECT_EQ(second.seconds, 3);
  const Arrived third = Next(3);
  EXPECT_THAT(Bases(third), ElementsAre(Base{0, 2}, Base{2, 0}));
  EXPECT_EQ(third.clock.now, 8);
  EXPECT_EQ(third.arrivals[0].entry.load, 10u);
}

TEST_F(Arrivals, BeyondTheStalenessDoNotCount) {
  Run({2, 3, 7}, 2, 3, 1);
  run_.asynchronous.max_staleness = 1;
  Next(1);
  Next(2);
  const Arrived third = Next(3);  // client 2, two steps late, is left out, and begins again at 7
  using Base = std::pair<uint64_t, uint32_t>;
  EXPECT_THAT(Bases(third), ElementsAre(Base{0, 2}, Base{1, 2}));
  EXPECT_EQ(third.too_stale, 1u);
  EXPECT_EQ(third.clock.now, 9);
  const auto again =
      std::ranges::find(third.clock.training, ClientId(2), &ClockState::Training::client);
  ASSERT_NE(again, third.clock.training.end());
  EXPECT_EQ(again->base, Round(2));
  EXPECT_EQ(again->arrives, 14);
}

TEST_F(Arrivals, WithAsManyPlacesAsASynchronousRoundAreItsCohorts) {
  Run(std::vector<double>(50, 1), 8, 8, 8);
  for (uint64_t client = 0; client < 50; ++client)
    rows_[client] = static_cast<uint32_t>(1 + client);
  groups_ = *scheduler::MakeSampler(run_.cohort, rows_);
  for (uint32_t round = 1; round <= 5; ++round) {
    const scheduler::Cohort cohort = groups_->Sample(Round(round));
    const Arrived arrived = Next(round);
    ASSERT_EQ(arrived.arrivals.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(arrived.arrivals[i].entry.client, cohort.entries[i].client);
      EXPECT_EQ(arrived.arrivals[i].entry.load, cohort.entries[i].load);
      EXPECT_EQ(arrived.arrivals[i].base, Round(round - 1));
    }
    EXPECT_THAT(arrived.clock.training, IsEmpty());
  }
}

TEST_F(Arrivals, AreOfClientsThatNeitherTrainNorWait) {
  std::vector<double> seconds;
  for (int client = 0; client < 40; ++client) seconds.push_back(1 + client % 7);
  Run(seconds, 5, 20, 2);
  for (uint32_t round = 1; round <= 200; ++round) {
    const Arrived arrived = Next(round);
    ASSERT_EQ(arrived.arrivals.size(), 5u);
    std::set<ClientId> clients;
    for (const Arrival& one : arrived.arrivals) {
      EXPECT_LT(one.base.value, round);
      EXPECT_TRUE(clients.insert(one.entry.client).second);
    }
    for (const ClockState::Training& one : arrived.clock.training) {
      EXPECT_TRUE(clients.insert(one.client).second) << "trains or waits already";
      EXPECT_GE(one.arrives, arrived.clock.now);
    }
    EXPECT_GE(arrived.clock.training.size(), 20u - 5 - 2);
    EXPECT_LE(arrived.clock.training.size(), 20u);
    EXPECT_TRUE(std::ranges::is_sorted(arrived.clock.training, {}, &ClockState::Training::arrives));
  }
}

// Six places and groups of four: the other two are taken at the start, too.
TEST_F(Arrivals, AreOfAsManyAsThereArePlacesFromTheStart) {
  for (const auto& [places, refill] : {std::pair(6U, 4U), std::pair(7U, 5U), std::pair(5U, 2U)}) {
    clock_ = {};
    Run({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 1, places, refill);
    const Arrived first = Next(1);
    EXPECT_EQ(first.begun.size(), places);
    for (const BegunTurn& turn : first.begun) EXPECT_EQ(turn.began, 0);
    size_t begun = 0;
    for (uint32_t round = 2; begun == 0; ++round) {
      const Arrived next = Next(round);
      begun = next.begun.size();
      EXPECT_EQ(begun > 0, round == refill + 1) << "a step an arrival";
    }
    EXPECT_EQ(begun, refill);
  }
}

// Six clients, of whom one in five is there: often none of those who do not wait in the buffer.
TEST_F(Arrivals, AreWaitedForUntilAClientIsThere) {
  Run(std::vector<double>(6, 1), 5, 5, 1);
  CohortConfig groups = run_.cohort;
  groups.size = 1;
  groups.sampling = "available";
  groups.availability = 0.2;
  groups_ = *scheduler::MakeSampler(groups, rows_);
  double longest = 0;
  for (uint32_t round = 1; round <= 50; ++round) {
    const Arrived arrived = Next(round);
    ASSERT_EQ(arrived.arrivals.size(), 5u);
    longest = std::max(longest, arrived.seconds);
  }
  EXPECT_GT(longest, 60) << "the clock goes on by minutes";
  EXPECT_LT(longest, 2 * 3600);
}

TEST_F(Arrivals, FollowFromTheClockAlone) {
  Run({2, 3, 7, 4, 1}, 2, 4, 1);
  Next(1);
  const ClockState before = clock_;
  const Arrived once = Next(2);
  clock_ = before;
  const Arrived twice = Next(2);
  EXPECT_EQ(twice.clock, once.clock);
  EXPECT_EQ(Bases(twice), Bases(once));
}

TEST_F(Arrivals, AreTimedByTheTrafficOfTheMomentInWhichTheyBegan) {
  Run({2, 3, 7}, 2, 3, 1);
  clock_.traffic.down = 1;
  Next(1);  // clients 0 and 1 at 3 and 4
  EXPECT_EQ(clock_.now, 4);
  clock_.traffic.down = 10;
  Next(2);  // client 2 at 8, as it began; client 0 at 4 + 12
  EXPECT_EQ(clock_.now, 16);
}

// Slow ones are not lost: in the long run clients arrive in proportion to their speeds.
TEST_F(Arrivals, FasterDevicesArriveMoreOften) {
  Run({1, 1, 4, 4}, 2, 4, 1);
  std::map<uint64_t, int> arrivals;
  for (uint32_t round = 1; round <= 500; ++round) {
    for (const Arrival& one : Next(round).arrivals) ++arrivals[one.entry.client.value];
  }
  EXPECT_GT(arrivals[0], 3 * arrivals[2]);
  EXPECT_GT(arrivals[2], 50);
}

}  // namespace
}  // namespace macaw::server
