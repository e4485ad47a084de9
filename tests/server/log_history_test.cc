#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/log/history.h"

namespace macaw::server::log {
namespace {

RoundOpened Opened(uint32_t round, const std::string& broadcast, uint8_t phase = 0) {
  return {.round = Round(round), .phase = Phase(phase), .broadcast = DigestOf(broadcast)};
}
Closed Done(uint32_t round, uint8_t phase = 0, bool last = true) {
  return {.round = Round(round), .phase = Phase(phase), .last = last};
}
Accepted Without(uint32_t round, uint64_t client, uint8_t phase = 0) {
  return {.round = Round(round),
          .phase = Phase(phase),
          .given_up = {{.attempt = {ClientId(client), {1, client}}, .message = "broken"}}};
}

TEST(LogHistory, ARoundThatAResumeUndidIsToldOnceAsItWasDoneLast) {
  History history;
  history.Add(RunOpened{.epoch = 1});
  for (const uint32_t round : {1, 2, 3}) {
    history.Add(Opened(round, "before"));
    history.Add(Without(round, round));
    history.Add(Done(round));
  }
  history.Add(Opened(4, "before"));
  EXPECT_EQ(history.completed(), Round(3));
  EXPECT_EQ(history.rounds().size(), 4u);

  history.Add(RunOpened{.epoch = 2, .completed = Round(2)});
  EXPECT_EQ(history.completed(), Round(2));
  EXPECT_EQ(history.rounds().size(), 2u) << "rounds 3 and 4 are to be done again";
  history.Add(Opened(3, "after"));
  history.Add(Without(3, 9));
  history.Add(Done(3));
  history.Add(RunEnded{.how = End::kInterrupted, .rounds = 3});
  EXPECT_EQ(history.completed(), Round(3));
  EXPECT_EQ(history.sessions().size(), 2u);
  ASSERT_TRUE(history.ended().has_value());
  const auto& third = history.rounds().at(Round(3)).at(Phase(0));
  EXPECT_EQ(third.opened.broadcast, DigestOf("after"));
  EXPECT_EQ(third.given_up.size(), 1u);
  EXPECT_TRUE(third.given_up.contains(ClientId(9)));
  EXPECT_TRUE(history.rounds().at(Round(2)).at(Phase(0)).given_up.contains(ClientId(2)));

  history.Add(RunOpened{.epoch = 3, .completed = Round(3)});
  EXPECT_FALSE(history.ended().has_value()) << "it goes on";
}

TEST(LogHistory, ARunIsRepeatedWithoutAClientInEachOfItsPhases) {
  History history;
  history.Add(RunOpened{.epoch = 1});
  history.Add(Opened(1, "x"));
  history.Add(Without(1, 9));
  history.Add(Done(1, 0, /*last=*/false));
  history.Add(Opened(1, "x", 1));
  history.Add(Done(1, 1));
  history.Add(Opened(2, "y"));  // is not done
  Decisions decisions = history.decisions();
  LeaveOut({ClientId(4), ClientId(9)}, history, decisions);
  const auto given_up = [&](uint8_t phase) {
    std::vector<ClientId> clients;
    for (const GivenUp& one : decisions.at({Round(1), Phase(phase)}).given_up)
      clients.push_back(one.attempt.client);
    return clients;
  };
  EXPECT_EQ(given_up(0), (std::vector<ClientId>{ClientId(9), ClientId(4)}));
  EXPECT_EQ(given_up(1), (std::vector<ClientId>{ClientId(4), ClientId(9)}));
  EXPECT_FALSE(decisions.contains({Round(2), Phase(0)}));
}

TEST(LogHistory, KnowsWhichRoundsWereEvaluatedAndWhichProfilesWereThere) {
  History history;
  history.Add(RunOpened{.epoch = 1});
  history.Add(NodeJoined{.name = "a", .profile = "(x)"});
  for (const uint32_t round : {1, 2, 3}) {
    history.Add(Opened(round, "x"));
    history.Add(Done(round));
    history.Add(Evaluated{.round = Round(round)});
  }
  EXPECT_EQ(history.evaluated(), (std::set<Round>{Round(1), Round(2), Round(3)}));
  history.Add(RunOpened{.epoch = 2, .completed = Round(2)});
  history.Add(NodeJoined{.name = "b", .profile = "(y)"});
  EXPECT_EQ(history.evaluated(), (std::set<Round>{Round(1), Round(2)})) << "3 is done again";
  EXPECT_EQ(history.profiles(), (std::set<std::string>{"(x)", "(y)"}));
}

TEST(LogHistory, ComparesHowTwoRunsBegin) {
  const auto told = [](const std::string& first, const std::string& second) {
    History history;
    history.Add(RunOpened{.epoch = 1});
    history.Add(Opened(1, first));
    history.Add(Done(1));
    history.Add(Opened(2, second));
    history.Add(Done(2));
    return history;
  };
  EXPECT_EQ(StartDifference(told("x", "y"), told("x", "z")), std::nullopt);
  EXPECT_EQ(StartDifference(told("x", "y"), told("w", "y")),
            "another model is sent to the clients");
}

// A client counts in rounds that drew it, that did not give it up, and that were not dropped.
TEST(LogHistory, KnowsInHowManyRoundsAClientHasCounted) {
  History history;
  history.Add(RunOpened{.epoch = 1});
  for (const uint32_t round : {1, 2, 3, 4}) {
    RoundOpened opened = Opened(round, "x");
    opened.cohort = {{.client = ClientId(4)}, {.client = ClientId(9)}};
    if (round == 3) opened.cohort.pop_back();
    history.Add(opened);
    if (round == 1) history.Add(Without(1, 9));
    if (round == 2) history.Add(RoundLost{.round = Round(2), .dropped = true});
    if (round < 4) history.Add(Done(round));  // round 4 is open
  }
  EXPECT_EQ(RoundsThatCounted(ClientId(4), history), 2u);
  EXPECT_EQ(RoundsThatCounted(ClientId(9), history), 0u);
  EXPECT_EQ(RoundsThatCounted(ClientId(5), history), 0u);
}

TEST(LogHistory, TheFirstSessionMayBeMissing) {
  History history;
  history.Add(RunOpened{.epoch = 5, .completed = Round(70)});
  EXPECT_EQ(history.completed(), Round(70));
  EXPECT_TRUE(history.rounds().empty());
  history.Add(Opened(71, "x"));
  history.Add(Done(71));
  EXPECT_EQ(history.completed(), Round(71));
}

TEST(LogHistory, ARoundIsDoneWithItsLastPhase) {
  History history;
  history.Add(RunOpened{});
  history.Add(Opened(1, "a", 0));
  history.Add(Without(1, 5, 0));
  history.Add(Done(1, 0, /*last=*/false));
  EXPECT_EQ(history.completed(), Round(0));
  history.Add(Opened(1, "b", 1));
  history.Add(Without(1, 6, 1));
  history.Add(Done(1, 1));
  EXPECT_EQ(history.completed(), Round(1));
  const auto& phases = history.rounds().at(Round(1));
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_TRUE(phases.at(Phase(0)).given_up.contains(ClientId(5)));
  EXPECT_FALSE(phases.at(Phase(1)).given_up.contains(ClientId(5)));
  EXPECT_TRUE(phases.at(Phase(0)).closed.has_value());
}

StatesLost Lost(uint32_t round, std::vector<ClientId> clients, std::vector<ClientId> counted,
                bool all, uint8_t phase = 0) {
  return {.round = Round(round),
          .phase = Phase(phase),
          .clients = std::move(clients),
          .counted = std::move(counted),
          .all = all};
}

TEST(LogHistory, OneLossOfSeveralIsEnoughForAllToBeginAnew) {
  History history;
  history.Add(RunOpened{.epoch = 1});
  history.Add(Opened(1, "x"));
  history.Add(Lost(1, {ClientId(4)}, {}, false));  // of an earlier version
  history.Add(Lost(1, {}, {ClientId(5)}, true));
  history.Add(Lost(1, {ClientId(6)}, {}, false));
  history.Add(Opened(1, "x"));  // by an operator: what counted is undone
  history.Add(Done(1));
  const LostStates::At at = history.decisions().at({Round(1), Phase(0)}).lost_states;
  EXPECT_TRUE(at.all);
  EXPECT_EQ(at.before, (std::vector<ClientId>{ClientId(4), ClientId(6), ClientId(5)}));
  EXPECT_TRUE(at.after.empty());
}

TEST(LogHistory, ASessionThatGoesBackSaysItselfWhetherAllBeginAnew) {
  History history;
  history.Add(RunOpened{.epoch = 1});
  history.Add(Opened(1, "x"));
  history.Add(Done(1));
  history.Add(Lost(2, {ClientId(4)}, {}, true));  // between two rounds
  history.Add(Opened(2, "x"));
  const auto all = [&] {
    const LostStates::At* at = history.lost_states().Find(Round(2), Phase(0));
    return at != nullptr && at->all;
  };
  EXPECT_TRUE(all());
  history.Add(RunOpened{.epoch = 2, .completed = Round(1), .goes_on = true});
  EXPECT_TRUE(all()) << "the round goes on";
  history.Add(RunOpened{.epoch = 3, .completed = Round(1)});
  EXPECT_FALSE(all()) << "the checkpoint may be from before the loss";
  history.Add(Lost(2, {}, {}, true));
  EXPECT_TRUE(all());
  EXPECT_EQ(history.lost_states().Find(Round(2), Phase(0))->before.size(), 1u);
}

}  // namespace
}  // namespace macaw::server::log
