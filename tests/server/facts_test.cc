#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/engine/draw.h"
#include "server/engine/drawn_round.h"
#include "server/engine/timed_round.h"
#include "tests/server/small_population.h"

namespace macaw::server {
namespace {

using fixtures::Examples;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::TestRun;

fleet::ClientRecord Counted(uint64_t client, std::vector<double> sums) {
  return {.attempt = {ClientId(client), {1, client}}, .sums = std::move(sums)};
}

TEST(FactsOf, AreOfEveryClientThatWasAsked) {
  const std::vector<uint32_t> rows = {3, 4, 5, 6, 7};
  const std::vector<AskedClient> asked = {
      {ClientId(0), 1.5}, {ClientId(1)}, {ClientId(3), 9.0}, {ClientId(4), 2.0}};
  const std::vector<scheduler::ClientFact> facts =
      FactsOf(asked, {Counted(0, {6, 9, 1}), Counted(1, {0, 0, 0}), Counted(4, {})}, rows);
  ASSERT_EQ(facts.size(), 4u);
  EXPECT_EQ(facts[0].client, ClientId(0));
  EXPECT_EQ(facts[0].rows, 3u);
  EXPECT_EQ(facts[0].loss, 1.5) << "of two epochs: 9 in 6 rows";
  EXPECT_EQ(facts[0].seconds, 1.5);
  EXPECT_FALSE(facts[0].left_out);
  EXPECT_FALSE(facts[1].left_out);
  EXPECT_FALSE(facts[1].loss.has_value()) << "it trained on no row";
  EXPECT_FALSE(facts[1].seconds.has_value());
  EXPECT_EQ(facts[2].client, ClientId(3));
  EXPECT_TRUE(facts[2].left_out);
  EXPECT_FALSE(facts[2].loss.has_value());
  EXPECT_EQ(facts[2].seconds, 9.0);
  EXPECT_FALSE(facts[3].left_out);
  EXPECT_FALSE(facts[3].loss.has_value()) << "its rule reports none";
  for (const scheduler::ClientFact& fact : FactsOf(asked, {}, rows)) EXPECT_TRUE(fact.left_out);
}

// A client that is away is not drawn, and what is known of it stays.
TEST(Draw, KeepsWhatRoundsToldWhoeverIsPresent) {
  RunPlan run = TestRun(1);
  run.cohort.size = 2;
  run.cohort.sampling = "ucb";
  Roster roster;
  roster.Add(NodeWithEverybody("w", 1), {.rows = Examples()});
  roster.Begin({});
  auto draw = Draw::Make(run, roster);
  ASSERT_TRUE(draw.ok()) << draw.status();
  ASSERT_NE(draw->feedback(), nullptr);
  std::vector<scheduler::ClientFact> facts;
  for (uint64_t client = 0; client < kPopulation; ++client) {
    facts.push_back({.client = ClientId(client), .rows = 1, .loss = client == 30 ? 1e6 : 1});
  }
  draw->feedback()->Observe(Round(1), facts);
  const auto drawn = [&](uint32_t round) {
    std::vector<uint64_t> ids;
    const auto seats = draw->Seats(Round(round), ClientStates(false, {}, kPopulation));
    EXPECT_TRUE(seats.ok()) << seats.status();
    for (const Seat& seat : *seats) ids.push_back(seat.entry.client.value);
    return ids;
  };
  EXPECT_THAT(drawn(2), ::testing::Contains(30));
  ASSERT_TRUE(draw->CheckCanChange().ok());
  ASSERT_TRUE(draw->Among({ClientId(3), ClientId(9)}).ok());
  for (const uint64_t client : drawn(3)) {
    EXPECT_GE(client, 3u);
    EXPECT_LT(client, 9u);
  }
  ASSERT_TRUE(draw->Among({}).ok());
  EXPECT_THAT(drawn(4), ::testing::Contains(30));
}

// What a new client is expected to take has none of its turn's own noise, which nobody knows.
TEST(TimedRound, TellsASamplingThatLearnsHowFastDevicesAre) {
  class Known final : public virtual_time::Devices {
   public:
    virtual_time::Device Of(ClientId client) const override {
      return {.samples_per_s = client == ClientId(5) ? 1e9 : 1e-6,
              .down = {.mean = 1e9},
              .up = {.mean = 1e9}};
    }
    virtual_time::TurnTime TurnOf(Round, ClientId, double,
                                  const virtual_time::Traffic&) const override {
      return {.work = 1};
    }
  };
  RunPlan run = TestRun(1);
  run.devices.family = "lognormal";
  run.cohort.size = 1;
  run.cohort.sampling = "oort";
  run.cohort.oort.sample_window = kPopulation;
  const std::vector<uint32_t> rows = Examples();
  const scheduler::Feedback feedback(run.cohort);
  const auto sampler = SamplerOf(run, rows, nullptr, &feedback);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const TimedRound timed = TimeRound(run, Known(), {}, **sampler, Round(1), {});
  ASSERT_EQ(timed.counted.size(), 1u);
  EXPECT_EQ(timed.counted[0].entry.client, ClientId(5));
}

}  // namespace
}  // namespace macaw::server
