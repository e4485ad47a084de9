#include "server/waits_for.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

using admin::RunState;
using admin::RunStatus;
using admin::Step;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunStatus Training() {
  return {.state = RunState::kRunning,
          .step = Step::kTraining,
          .round = 3,
          .rounds = 10,
          .completed = 2,
          .lease_seconds = 30,
          .cohort = 10,
          .counted = 8};
}

TEST(WaitsFor, BeforeTheFirstRoundItCountsWorkersAndClients) {
  RunStatus status{.nodes_wanted = 3, .clients_wanted = 50, .clients_known = 20};
  status.nodes = {{.name = "a"}, {.name = "b"}};
  EXPECT_EQ(WaitsFor(status), "2 of 3 workers have joined, 20 of 50 clients are there");
  status.clients_known = 50;
  status.nodes.pop_back();
  EXPECT_EQ(WaitsFor(status), "1 of 3 workers has joined");
}

TEST(WaitsFor, TooFewPresentClientsAreSaid) {
  const RunStatus status{.state = RunState::kRunning, .step = Step::kAwaiting, .completed = 4};
  EXPECT_EQ(WaitsFor(status), "round 5: too few of its clients' nodes have been heard of lately");
}

TEST(WaitsFor, ANodeIsLateAfterThreeHeartbeatsWhetherItTrainsOrWaits) {
  RunStatus status = Training();
  status.heartbeat_seconds = 1;
  status.nodes = {{.name = "here", .silent_seconds = 2.9, .leased = 2},
                  {.name = "killed", .silent_seconds = 3.1, .leased = 2},
                  {.name = "killed too", .waits = true, .silent_seconds = 3.1}};
  MarkLateNodes(status);
  EXPECT_FALSE(status.nodes[0].late);
  EXPECT_TRUE(status.nodes[1].late);
  EXPECT_TRUE(status.nodes[2].late);
  EXPECT_EQ(WaitsFor(status), "8 of 10 clients: killed silent for 3 s, here has 2 leases");
}

TEST(WaitsFor, ANodeIsLateBeforeItsLeaseEndsHoweverRareHeartbeatsAre) {
  RunStatus status = Training();
  status.heartbeat_seconds = status.lease_seconds / 3;
  status.nodes = {{.name = "here", .silent_seconds = 19}, {.name = "killed", .silent_seconds = 21}};
  MarkLateNodes(status);
  EXPECT_FALSE(status.nodes[0].late);
  EXPECT_TRUE(status.nodes[1].late);
  status.nodes[1].late = false;
  status.state = RunState::kEnded;
  MarkLateNodes(status);
  EXPECT_FALSE(status.nodes[1].late) << "nobody sends heartbeats any more";
}

TEST(WaitsFor, LateNodesComeFirstThenThoseWithMostLeases) {
  RunStatus status = Training();
  status.leased = 4;
  status.nodes = {{.name = "lab-3", .silent_seconds = 1, .leased = 2},
                  {.name = "lab-4", .silent_seconds = 1, .leased = 1},
                  {.name = "idle", .waits = true},
                  {.name = "phone-7", .silent_seconds = 41, .late = true, .leased = 1}};
  EXPECT_EQ(WaitsFor(status),
            "8 of 10 clients: phone-7 silent for 41 s, lab-3 has 2 leases, lab-4 has 1 lease");
}

TEST(WaitsFor, OwnersWhoAreNotThereAreNamed) {
  RunStatus status = Training();
  status.waiting = 3;
  status.missing = {{.owner = "phone-9", .clients = 1}, {.owner = "phone-2", .clients = 1}};
  status.quarantine = {{.node = "phone-2"}};
  EXPECT_EQ(WaitsFor(status),
            "8 of 10 clients: phone-9 is not there (1 client), phone-2 is in quarantine (1 "
            "client), 1 not leased yet");
  status.missing = {{.clients = 3}};
  EXPECT_EQ(WaitsFor(status), "8 of 10 clients: no worker here has the rows of 3 clients");
}

TEST(WaitsFor, OfManyNodesItNamesFour) {
  RunStatus status = Training();
  for (int i = 0; i < 9; ++i) status.nodes.push_back({.name = absl::StrCat("n", i), .leased = 1});
  EXPECT_THAT(WaitsFor(status),
              AllOf(HasSubstr("n3 has"), Not(HasSubstr("n4 has")), HasSubstr("and 5 more")));
}

TEST(WaitsFor, ClientsThatWereGivenUpAreSettled) {
  RunStatus status = Training();
  status.given_up = 1;
  status.leased = 1;
  status.nodes = {{.name = "a", .leased = 1}};
  EXPECT_EQ(WaitsFor(status), "9 of 10 clients: a has 1 lease");
}

TEST(WaitsFor, ARoundThatHasAllItsClientsWaitsForTheEvaluationBefore) {
  RunStatus status = Training();
  status.counted = 10;
  status.evaluated_round = 2;
  status.evaluation_tasks = 12;
  status.evaluation_done = 5;
  EXPECT_EQ(WaitsFor(status), "the evaluation of round 2: 7 of 12 tasks left");
  status.step = Step::kEvaluating;
  EXPECT_EQ(WaitsFor(status), "the evaluation of round 2: 7 of 12 tasks left");
}

TEST(WaitsFor, TheServersOwnStepsAreNamed) {
  RunStatus status = Training();
  status.step = Step::kPreparing;
  EXPECT_THAT(WaitsFor(status), HasSubstr("encodes the model for round 3"));
  status.step = Step::kApplying;
  EXPECT_THAT(WaitsFor(status), HasSubstr("the sum of round 3"));
}

TEST(WaitsFor, APauseSaysSinceWhenAndWhatStillRuns) {
  RunStatus status{.state = RunState::kPaused, .step = Step::kIdle, .completed = 4};
  status.step_seconds = 12;
  EXPECT_EQ(WaitsFor(status), "paused for 12 s after round 4");
  status.step = Step::kEvaluating;
  status.evaluated_round = 4;
  status.evaluation_tasks = 3;
  EXPECT_EQ(WaitsFor(status),
            "paused for 12 s after round 4; the evaluation of round 4: 3 of 3 tasks left");
  status = Training();
  status.state = RunState::kPausing;
  EXPECT_THAT(WaitsFor(status), HasSubstr("then the run pauses"));
  status.state = RunState::kDraining;
  EXPECT_THAT(WaitsFor(status), HasSubstr("then the run ends"));
}

TEST(WaitsFor, AnEndedRunSaysHowAndWhy) {
  RunStatus status{.state = RunState::kEnded};
  status.ended = "interrupted";
  status.ending_reason = "drained by ada";
  EXPECT_EQ(WaitsFor(status), "the run has ended: interrupted, drained by ada");
}

TEST(WaitsFor, TimesAreTextsThatPeopleRead) {
  EXPECT_EQ(DurationText(0.4), "0 s");
  EXPECT_EQ(DurationText(119), "119 s");
  EXPECT_EQ(DurationText(125), "2 min");
  EXPECT_EQ(DurationText(3 * 3600 + 5 * 60), "3 h 5 min");
}

}  // namespace
}  // namespace macaw::server
