#include "scheduler/by_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/scheduler/learning.h"

namespace macaw::scheduler {
namespace {

using fixtures::Learning;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CohortConfig PowerOfChoiceOf(uint64_t size, uint64_t candidates) {
  CohortConfig config{.size = size, .sampling = "power-of-choice", .seed = 2};
  config.candidates = candidates;
  return config;
}

TEST(PowerOfChoice, TakesTheLargestLossesThatWereToldLast) {
  Learning clients(PowerOfChoiceOf(2, 4), {1, 1, 1, 1});
  clients.Close(1, {{0, 1.0}, {1, 3.0}, {3, 2.0}});
  EXPECT_THAT(clients.Draw(2), ElementsAre(1, 2)) << "2 has told none, which is infinite";
  clients.Close(2, {{1, 0.25}, {2, 0.5}});
  EXPECT_THAT(clients.Draw(3), ElementsAre(0, 3));
  clients.Close(3, {{.client = 0, .left_out = true}, {3, 1.0}});
  EXPECT_THAT(clients.Draw(4), ::testing::Contains(3u)) << "old losses stay";
}

// As the paper: with the smaller numbers first, a division of the data by number would decide.
TEST(PowerOfChoice, DrawsAmongEqualLosses) {
  Learning clients(PowerOfChoiceOf(5, 100), std::vector<uint32_t>(100, 1));
  double mean = 0;
  for (uint32_t round = 1; round <= 400; ++round) {
    for (const uint64_t client : clients.Draw(round)) mean += static_cast<double>(client) / 2000;
  }
  EXPECT_NEAR(mean, 49.5, 3) << "nobody has told a loss";
}

TEST(PowerOfChoice, DrawsCandidatesByTheirRows) {
  Learning clients(PowerOfChoiceOf(1, 1), {1, 3, 0});
  int second = 0;
  for (uint32_t round = 1; round <= 4000; ++round) {
    const std::vector<uint64_t> drawn = clients.Draw(round);
    ASSERT_EQ(drawn.size(), 1u);
    ASSERT_LT(drawn[0], 2u);
    second += drawn[0] == 1 ? 1 : 0;
  }
  EXPECT_NEAR(second / 4000.0, 0.75, 0.03);
}

TEST(PowerOfChoice, HasTwiceTheCohortAsCandidatesUnlessToldOtherwise) {
  Learning clients(PowerOfChoiceOf(2, 0), std::vector<uint32_t>(50, 1));
  std::vector<Learning::Told> told;
  for (uint64_t client = 0; client < 50; ++client) told.push_back({client, 1.0 * client});
  clients.Close(1, told);
  double mean = 0;
  for (uint32_t round = 2; round < 402; ++round) {
    for (const uint64_t client : clients.Draw(round)) mean += client / 800.0;
  }
  // Of four uniform numbers the mean of the two largest: 49 · (3/5 + 4/5) / 2, nearly.
  EXPECT_NEAR(mean, 34.7, 1.5);
}

TEST(PowerOfChoice, RefusesFewerCandidatesThanARoundAsks) {
  const std::vector<uint32_t> rows(10, 1);
  const CohortConfig config = PowerOfChoiceOf(4, 3);
  const Feedback feedback(config);
  const absl::Status status = MakeSampler(config, rows, &feedback).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("cohort.candidates is 3"));
}

// γ = 1/2, shares 1/4, 1/4, 1/2. After round 2, σ = 1 and T = 3/2:
//   A_0 = (1 · 2/2 + 3)/1.5 = 2.667, + √(0.811/1.5) = 0.735, · 1/4 = 0.850
//   A_1 = (4/2)/0.5         = 4,     + √(0.811/0.5) = 1.274, · 1/4 = 1.318
//   A_2 = 1/1               = 1,     + √(0.811/1)   = 0.901, · 1/2 = 0.950
TEST(UpperBound, IsThatOnPaper) {
  for (const uint64_t size : {1, 2}) {
    CohortConfig config{.size = size, .sampling = "ucb"};
    config.discount = 0.5;
    Learning clients(config, {10, 10, 20});
    clients.Close(1, {{0, 2.0}, {1, 4.0}});
    clients.Close(2, {{0, 3.0}, {2, 1.0}});
    if (size == 1) {
      EXPECT_THAT(clients.Draw(3), ElementsAre(1));
    } else {
      EXPECT_THAT(clients.Draw(3), ElementsAre(1, 2)) << "not 0 and 1, the losses'";
    }
  }
}

// After round 1 σ = 0.5 and T = 1, after eight more T = 1.996: the bound of a client with an old
// loss grows beyond that of one with a larger new loss.
TEST(UpperBound, ComesBackToWhatItHasNotSeenForLong) {
  CohortConfig config{.size = 1, .sampling = "ucb"};
  config.discount = 0.5;
  Learning clients(config, {1, 1});
  clients.Close(1, {{0, 1.0}, {1, 2.0}});
  EXPECT_THAT(clients.Draw(2), ElementsAre(1));
  for (uint32_t round = 2; round <= 9; ++round) clients.Close(round, {{1, 2.0}});
  EXPECT_THAT(clients.Draw(10), ElementsAre(0));
  for (uint32_t round = 10; round <= 2000; ++round) clients.Close(round, {{1, 2.0}});
  EXPECT_THAT(clients.Draw(2001), ElementsAre(0)) << "its weight is 0 by now";
}

TEST(UpperBound, AsksEverybodyOnceFirst) {
  const CohortConfig config{.size = 3, .sampling = "ucb", .seed = 3};
  Learning clients(config, {1, 1, 0, 1, 1, 1, 1, 1});
  std::set<uint64_t> seen;
  for (uint32_t round = 1; round <= 3; ++round) {
    std::vector<Learning::Told> told;
    for (const uint64_t client : clients.Draw(round)) {
      seen.insert(client);
      told.push_back({client, 1.0});
    }
    EXPECT_EQ(told.size(), 3u);
    clients.Close(round, told);
  }
  EXPECT_EQ(seen.size(), 7u) << "and two of them twice";
  EXPECT_FALSE(seen.contains(2)) << "it has no rows";
}

TEST(LearningSamplers, SayWhatTheyNeed) {
  const std::vector<uint32_t> rows(10, 1);
  for (const char* sampling : {"oort", "power-of-choice", "ucb"}) {
    const auto message = [&](const CohortConfig& config, const Feedback* feedback) {
      return std::string(MakeSampler(config, rows, feedback).status().message());
    };
    const CohortConfig config{.size = 2, .sampling = sampling};
    const Feedback feedback(config);
    EXPECT_THAT(message(config, nullptr), HasSubstr("and here are no rounds"));
    EXPECT_EQ(message(config, &feedback), "");
    const CohortConfig over{.size = 2, .sampling = sampling, .over_selection = 2};
    EXPECT_THAT(message(over, &feedback), HasSubstr("needs [devices]"));
    const auto timed = MakeCandidates(over, rows, nullptr, &feedback);
    ASSERT_TRUE(timed.ok()) << timed.status();
    EXPECT_EQ((*timed)->Sample(Round(1)).entries.size(), 4u);
    EXPECT_THAT(message({.size = 11, .sampling = sampling}, &feedback),
                HasSubstr("cohort.size is 11"));
  }
}

// Some clients of which rounds have told are away, and their rows are 0 here.
TEST(LearningSamplers, DrawAmongThoseWhoAreThere) {
  for (const char* sampling : {"oort", "power-of-choice", "ucb"}) {
    const CohortConfig config{.size = 2, .sampling = sampling, .seed = 8};
    Feedback feedback(config);
    std::vector<ClientFact> facts;
    for (uint64_t client = 0; client < 6; ++client)
      facts.push_back({.client = ClientId(client), .rows = 1, .loss = 1.0 + client});
    feedback.Observe(Round(1), facts);
    const std::vector<uint32_t> rows = {1, 0, 1, 0, 0, 0, 0, 1, 0, 0};
    const auto sampler = MakeSampler(config, rows, &feedback);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    for (uint32_t round = 2; round < 20; ++round) {
      const Cohort cohort = (*sampler)->Sample(Round(round));
      EXPECT_EQ(cohort.entries.size(), 2u);
      for (const CohortEntry& entry : cohort.entries) {
        EXPECT_EQ(rows[entry.client.value], 1u) << sampling;
        EXPECT_EQ(entry.load, 1u);
      }
    }
  }
}

}  // namespace
}  // namespace macaw::scheduler
