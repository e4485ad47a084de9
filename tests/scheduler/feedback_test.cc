#include "scheduler/feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace macaw::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kClients = 100;

CohortConfig Config(const std::string& sampling) {
  CohortConfig config{.size = 3, .sampling = sampling};
  config.discount = 0.5;
  config.oort.pacer_step = 2;
  return config;
}

Feedback AfterThreeRounds(const std::string& sampling) {
  Feedback feedback(Config(sampling));
  feedback.Observe(Round(1), std::vector<ClientFact>{
                                 {.client = ClientId(7), .rows = 4, .loss = 2, .seconds = 1.5},
                                 {.client = ClientId(50), .rows = 5, .loss = 4, .seconds = 3},
                                 {.client = ClientId(90), .rows = 6, .left_out = true}});
  feedback.Observe(Round(2), {});
  feedback.Observe(Round(3), std::vector<ClientFact>{
                                 {.client = ClientId(3), .rows = 2, .loss = 1},
                                 {.client = ClientId(50), .rows = 5, .loss = 2, .seconds = 2},
                                 {.client = ClientId(99), .rows = 1, .loss = 8}});
  return feedback;
}

TEST(Feedback, KeepsTheLastWordOfEachClientThatWasAsked) {
  const Feedback feedback = AfterThreeRounds("oort");
  EXPECT_EQ(feedback.round(), Round(3));
  ASSERT_EQ(feedback.clients().size(), 5u);
  EXPECT_EQ(*feedback.Find(ClientId(3)),
            (KnownClient{.client = 3, .asked = 3, .turns = 1, .loss = 1}));
  EXPECT_EQ(*feedback.Find(ClientId(7)),
            (KnownClient{.client = 7, .asked = 1, .turns = 1, .seconds = 1.5, .loss = 2}));
  EXPECT_EQ(*feedback.Find(ClientId(50)),
            (KnownClient{.client = 50, .asked = 3, .turns = 2, .seconds = 2, .loss = 2}));
  const KnownClient* const silent = feedback.Find(ClientId(90));
  ASSERT_NE(silent, nullptr) << "it was asked";
  EXPECT_EQ(silent->turns, 0u);
  EXPECT_FALSE(silent->told());
  EXPECT_EQ(feedback.Find(ClientId(8)), nullptr);
}

TEST(Feedback, ALossThatIsNoNumberTellsNothing) {
  Feedback feedback(Config("oort"));
  feedback.Observe(Round(1),
                   std::vector<ClientFact>{{.client = ClientId(1), .rows = 1, .loss = 3}});
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity(), -1e31}) {
    feedback.Observe(Round(2), std::vector<ClientFact>{{.client = ClientId(1), .loss = loss},
                                                       {.client = ClientId(2), .loss = loss}});
    EXPECT_EQ(feedback.Find(ClientId(1))->loss, 3) << loss;
    EXPECT_FALSE(feedback.Find(ClientId(2))->told()) << loss;
  }
}

// γ = 1/2. Client 50: L = 4/4 + 2, N = 1/4 + 1; client 90 was left out two rounds ago. The losses
// 1, 2 and 8 have the mean 11/3 and the variance (64 + 25 + 169) / 27.
TEST(Feedback, DiscountsLossesWithTheirAge) {
  const Feedback feedback = AfterThreeRounds("ucb");
  EXPECT_EQ(feedback.Find(ClientId(50))->loss, 3);
  EXPECT_EQ(feedback.Find(ClientId(50))->weight, 1.25);
  EXPECT_EQ(feedback.Find(ClientId(7))->loss, 0.5);
  EXPECT_EQ(feedback.Find(ClientId(90))->loss, 0);
  EXPECT_EQ(feedback.Find(ClientId(90))->weight, 0.25);
  EXPECT_EQ(feedback.total(), 1.75);
  EXPECT_NEAR(feedback.deviation(), std::sqrt(258.0 / 27), 1e-12);
}

TEST(Feedback, ExploresLessEachRoundAndNeverLessThanTheLeast) {
  CohortConfig config = Config("oort");
  config.oort.exploration = 0.8;
  config.oort.exploration_decay = 0.5;
  config.oort.exploration_min = 0.15;
  Feedback feedback(config);
  EXPECT_DOUBLE_EQ(feedback.exploration(), 0.4);
  feedback.Observe(Round(1), {});
  EXPECT_DOUBLE_EQ(feedback.exploration(), 0.2);
  feedback.Observe(Round(2), {});
  EXPECT_DOUBLE_EQ(feedback.exploration(), 0.15);
}

// A client of ten rows, which is new in round 1. Utilities: 0, 10, 10, 10, 10, 10, 100, 100. After
// round 4 they are 10 and 20, after round 6 20 and 20, after round 8 20 and 200.
TEST(Feedback, ThePacerAllowsMoreTimeWhileUtilitiesStayAndLessWhenTheyJump) {
  Feedback feedback(Config("oort"));
  std::vector<double> thresholds;
  for (uint32_t round = 1; round <= 8; ++round) {
    feedback.Observe(
        Round(round),
        std::vector<ClientFact>{{.client = ClientId(1), .rows = 10, .loss = round > 6 ? 10 : 1}});
    thresholds.push_back(feedback.threshold());
  }
  const std::vector<double> expected = {0.3, 0.3, 0.3, 0.3, 0.3, 0.35, 0.35, 0.3};
  EXPECT_THAT(thresholds, ::testing::Pointwise(::testing::DoubleNear(1e-12), expected));
}

TEST(Feedback, ComesBackFromItsBytes) {
  for (const char* sampling : {"oort", "power-of-choice", "ucb"}) {
    const Feedback feedback = AfterThreeRounds(sampling);
    const std::string bytes = feedback.Save();
    Feedback again(Config(sampling));
    ASSERT_TRUE(again.Load(bytes, kClients).ok());
    EXPECT_EQ(again.Save(), bytes);
    EXPECT_EQ(again.clients(), feedback.clients());
    EXPECT_EQ(again.exploration(), feedback.exploration());
    EXPECT_EQ(bytes.size(), 8 * (8 + 3 + 4 * 5)) << "32 bytes a client";
    Feedback fresh(Config(sampling));
    ASSERT_TRUE(again.Load(fresh.Save(), kClients).ok());
    EXPECT_TRUE(again.clients().empty());
  }
}

TEST(Feedback, RefusesBytesThatItDidNotWriteAndKeepsWhatItHas) {
  Feedback feedback = AfterThreeRounds("oort");
  const std::string bytes = feedback.Save();
  const auto refuses = [&](const std::string& damaged, uint64_t clients = kClients) {
    const absl::Status status = feedback.Load(damaged, clients);
    EXPECT_THAT(std::string(status.message()), HasSubstr("clients that were drawn is damaged"));
    return status.code() == absl::StatusCode::kDataLoss && feedback.Save() == bytes;
  };
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_TRUE(refuses(bytes.substr(0, size)));
  EXPECT_TRUE(refuses(bytes + std::string(8, '\0')));
  EXPECT_TRUE(refuses(bytes, 99)) << "client 99 is the hundredth";
  const auto with = [&](size_t word, double value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + 8 * word, &value, 8);
    return changed;
  };
  const double nan = std::nan("");
  for (const size_t word : {2, 3, 4, 5, 8, 9, 10}) EXPECT_TRUE(refuses(with(word, nan))) << word;
  const size_t first = 8 + 3;  // of the clients
  EXPECT_TRUE(refuses(with(first + 2, nan))) << "a loss";
  EXPECT_TRUE(refuses(with(first + 3, -1))) << "a weight";
  std::string swapped = bytes;
  std::swap_ranges(swapped.begin() + 8 * first, swapped.begin() + 8 * (first + 4),
                   swapped.begin() + 8 * (first + 4));
  EXPECT_TRUE(refuses(swapped)) << "not by client";
  std::string later = bytes;
  later[8 * first + 4] = 4;
  EXPECT_TRUE(refuses(later)) << "asked in a round that is to come";
}

}  // namespace
}  // namespace macaw::scheduler
