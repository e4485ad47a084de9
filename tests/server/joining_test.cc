// Nodes that join a run: what of theirs may change, and how much of it there may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/one_round.h"

namespace macaw::server {
namespace {

// It was refused until the server was started again, since what it had at first stayed.
TEST_F(OneRound, AnOwnerThatHasChangedItsRowsBeforeTheRunBeginsIsLetIn) {
  RunPlan run = TestRun(1);
  run.clients = kPopulation;
  const auto owner = [](const std::string& name, uint64_t first, uint64_t incarnation) {
    fleet::RegisterRequest node = NodeWithEverybody(name, 1);
    node.incarnation = incarnation;
    node.data_digest = DigestOf(absl::StrCat(name, incarnation));
    node.owner = true;
    node.clients = kPopulation / 2;
    fleet::ClientTable table{.rows = std::vector<uint32_t>(kPopulation / 2, incarnation)};
    for (uint64_t client = first; client < first + kPopulation / 2; ++client)
      table.names.push_back(absl::StrCat("client ", client));
    return std::pair(node, table);
  };
  for (const bool resumed : {false, true}) {
    EngineOptions options{.run = run, .workers = 2};
    if (resumed) options.data_digest = DigestOf("what the checkpoint was trained on");
    RoundEngine engine(options, scheduler_);
    const auto [before, before_table] = owner("anna", 0, 3);
    EXPECT_TRUE(engine.Register(before, before_table, TimePoint{}).answer.ok());
    const auto [changed, table] = owner("anna", 0, 4);
    const absl::Status status = engine.Register(changed, table, TimePoint{}).answer.status();
    if (resumed) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("the checkpoint"));
      continue;
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_FALSE(engine.roster().begun());
    EXPECT_EQ(engine.roster().clients(), kPopulation / 2);
    const auto [other, other_table] = owner("bert", kPopulation / 2, 5);
    EXPECT_TRUE(engine.Register(other, other_table, TimePoint{}).answer.ok());
    ASSERT_TRUE(engine.roster().begun());
    EXPECT_EQ(engine.roster().rows().front(), 4u);
    EXPECT_EQ(engine.roster().rows().back(), 5u);
  }
}

// The run waited for the clients that it had before, which nobody could give up: their owner is
// there.
TEST_F(OneRound, AnOwnerThatComesBackWithOtherClientsLeavesNoneToWaitFor) {
  RunPlan run = TestRun(1);
  run.cohort.size = 2;
  RoundEngine engine({.run = run, .workers = 2}, scheduler_);
  const auto join = [&](const std::string& name, uint64_t incarnation, const std::string& client) {
    fleet::RegisterRequest node = NodeWithEverybody(name, 1);
    node.owner = true;
    node.central_test_rows = 0;
    node.incarnation = incarnation;
    node.data_digest = DigestOf(client);
    node.clients = 1;
    return engine.Register(node, {.rows = {5}, .names = {client}}, TimePoint{}).answer.status();
  };
  EXPECT_TRUE(join("x", 1, "a").ok());
  EXPECT_TRUE(join("x", 2, "b").ok());
  EXPECT_EQ(engine.roster().clients(), 1u);
  EXPECT_TRUE(join("y", 1, "c").ok());
  ASSERT_TRUE(engine.roster().begun());
  EXPECT_EQ(engine.roster().clients(), 2u);
  admin::RunStatus status;
  engine.Describe(status, TimePoint{});
  EXPECT_TRUE(status.missing.empty());
}

// The first node's profile is the run's. An odd one that came first kept all others out for good.
TEST_F(OneRound, AProfileGoesWithItsLastNodeBeforeTheRunBegins) {
  EngineOptions options{.run = TestRun(1), .workers = 3};
  RoundEngine engine(options, scheduler_);
  fleet::RegisterRequest odd = NodeWithEverybody("odd", 1), twin = NodeWithEverybody("twin", 1);
  odd.profile.libraries = twin.profile.libraries = "odd libraries";
  const fleet::RegisterRequest good = NodeWithEverybody("good", 1);
  const auto first = engine.Register(odd, Table(), TimePoint{}).answer;
  const auto second = engine.Register(twin, Table(), TimePoint{}).answer;
  ASSERT_TRUE(first.ok() && second.ok());
  const auto leave = [&](SessionId session) {
    engine.Release({.session = session, .leaving = true}, TimePoint{});
  };
  leave(first->session);
  EXPECT_THAT(std::string(engine.Register(good, Table(), TimePoint{}).answer.status().message()),
              testing::HasSubstr("numeric profile"))
      << "the twin is there";
  leave(second->session);
  EXPECT_TRUE(engine.Register(good, Table(), TimePoint{}).answer.ok());
  EXPECT_EQ(engine.profiles(), std::vector{good.profile});
  EXPECT_FALSE(engine.Register(odd, Table(), TimePoint{}).answer.ok());
}

// Profiles stay, and a node may say another one whenever it registers.
TEST_F(OneRound, ARunThatMixesProfilesTakesNotManyAndNoLongOnes) {
  Durable durable;
  EngineDriver mixed({.run = TestRun(1), .workers = 1000, .mixed_profiles = true}, scheduler_,
                     durable, /*rounds=*/1, /*phases=*/1);
  fleet::RegisterRequest node = Node();
  absl::Status refused;
  for (uint64_t i = 1; i <= 1000 && refused.ok(); ++i) {
    node.incarnation = i;
    node.profile.libraries = absl::StrCat("libraries ", i);
    refused = mixed.Register(node, Table(), TimePoint{}).status();
  }
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("numeric profile"));
  EXPECT_EQ(mixed.profiles().size(), 256u);
  node.profile.libraries = "libraries 7";
  EXPECT_TRUE(mixed.Register(node, Table(), TimePoint{}).ok()) << "it is known";

  node = this->Node();
  node.profile.libraries = std::string(5000, 'x');
  EXPECT_THAT(std::string(engine_.Register(node, Table(), TimePoint{}).status().message()),
              testing::HasSubstr("numeric profile"));
}

}  // namespace
}  // namespace macaw::server
