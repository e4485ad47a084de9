#include "server/event_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

log::GivenUp Without(uint64_t client, const std::string& why) {
  return {.attempt = {ClientId(client), {1, client}}, .message = why};
}

TEST(EventLines, SayWhoComesAndGoes) {
  EventLines lines;
  EXPECT_THAT(lines.Of(log::NodeJoined{.node = WorkerId(4), .name = "w", .slots = 2}),
              ElementsAre(Event{"worker_joined",
                                {{"worker", "w"}, {"number", int64_t{4}}, {"slots", int64_t{2}}}}));
  EXPECT_THAT(lines.Of(log::NodeRefused{.name = "x", .why = "other data"}),
              ElementsAre(Event{"worker_refused", {{"worker", "x"}, {"why", "other data"}}}));
  EXPECT_THAT(lines.Of(log::Died{.client = ClientId(9), .deaths = 2}),
              ElementsAre(Event{"died_running", {{"client", int64_t{9}}, {"deaths", int64_t{2}}}}));
  EXPECT_THAT(lines.Of(log::NodeLost{.node = WorkerId(4), .name = "w", .why = "it left"}),
              ElementsAre(Event{"worker_lost", {{"worker", "w"}, {"why", "it left"}}}));
  EXPECT_THAT(lines.Of(log::NodeDeclined{.name = "w", .why = "accept.hours"}),
              ElementsAre(Event{"worker_declines", {{"worker", "w"}, {"why", "accept.hours"}}}));
  EXPECT_THAT(lines.Of(log::NodeDeclined{.name = "w"}),
              ElementsAre(Event{"worker_accepts", {{"worker", "w"}, {"why", ""}}}));
}

TEST(EventLines, OfARoundOfTwoPhasesTellEveryClientThatWasLeftOutOnceItIsOver) {
  EventLines lines;
  lines.Of(log::NodeJoined{.node = WorkerId(1), .name = "w"});
  const Round round(6);
  EXPECT_THAT(lines.Of(log::RoundOpened{.round = round}), IsEmpty());
  EXPECT_THAT(lines.Of(log::Planned{.round = round, .why = "evenly"}),
              ElementsAre(Event{"planned", {{"round", int64_t{6}}, {"why", "evenly"}}}));
  EXPECT_THAT(lines.Of(log::Leased{.round = round, .node = WorkerId(1)}), IsEmpty());
  EXPECT_THAT(
      lines.Of(log::TurnedDown{.round = round, .node = WorkerId(1), .stale = true, .why = "late"}),
      ElementsAre(Event{"part_stale", {{"worker", "w"}, {"round", int64_t{6}}, {"why", "late"}}}));
  EXPECT_THAT(lines.Of(log::TurnedDown{.round = round, .node = WorkerId(1), .why = "wrong"}),
              ElementsAre(Event{"part_refused",
                                {{"worker", "w"}, {"round", int64_t{6}}, {"why", "wrong"}}}));
  EXPECT_THAT(
      lines.Of(log::Requeued{.round = round, .attempts = {{}, {}}, .why = "lease ran out"}),
      ElementsAre(Event{
          "requeued", {{"round", int64_t{6}}, {"clients", int64_t{2}}, {"why", "lease ran out"}}}));
  EXPECT_THAT(lines.Of(log::Accepted{.round = round,
                                     .node = WorkerId(1),
                                     .included = {{}},
                                     .given_up = {Without(8, "b"), Without(3, "a")},
                                     .seconds = 0.5}),
              ElementsAre(Event{"part",
                                {{"worker", "w"},
                                 {"round", int64_t{6}},
                                 {"clients", int64_t{1}},
                                 {"left_out", int64_t{2}},
                                 {"seconds", 0.5}}}));
  EXPECT_THAT(lines.Of(log::Closed{.round = round, .left_out = 2}), IsEmpty());
  EXPECT_THAT(lines.Of(log::RoundOpened{.round = round, .phase = Phase(1)}), IsEmpty());
  lines.Of(log::Accepted{.round = round, .phase = Phase(1), .given_up = {Without(5, "c")}});
  const auto left_out = [](int64_t client, const char* why) {
    return Event{"left_out", {{"round", int64_t{6}}, {"client", client}, {"why", why}}};
  };
  EXPECT_THAT(lines.Of(log::Closed{.round = round,
                                   .phase = Phase(1),
                                   .last = true,
                                   .counted = 7,
                                   .left_out = 1,
                                   .requeued = 4,
                                   .seconds = 2.5}),
              ElementsAre(Event{"round",
                                {{"round", int64_t{6}},
                                 {"clients", int64_t{7}},
                                 {"left_out", int64_t{3}},
                                 {"requeued", int64_t{4}},
                                 {"seconds", 2.5}}},
                          left_out(3, "a"), left_out(8, "b"), left_out(5, "c")));
  // The next round begins with no clients left out.
  lines.Of(log::RoundOpened{.round = Round(7)});
  EXPECT_EQ(lines.Of(log::Closed{.round = Round(7), .last = true}).size(), 1u);
}

TEST(EventLines, SayHowItEnded) {
  EventLines lines;
  EXPECT_THAT(lines.Of(log::RoundLost{.round = Round(2), .why = "all"}),
              ElementsAre(Event{"round_lost", {{"round", int64_t{2}}, {"why", "all"}}}));
  EXPECT_THAT(lines.Of(log::RunEnded{.how = log::End::kInterrupted, .rounds = 2, .why = ""}),
              ElementsAre(Event{"run_interrupted", {{"rounds", int64_t{2}}, {"why", ""}}}));
}

TEST(EventLines, SayWhoHasLostStatesAndWhetherAllBeginAnew) {
  log::StatesLost lost{.round = Round(3),
                       .name = "w",
                       .clients = {ClientId(1)},
                       .counted = {ClientId(2)},
                       .why = "it left"};
  const Event event{
      "states_lost",
      {{"worker", "w"}, {"round", int64_t{3}}, {"clients", int64_t{2}}, {"why", "it left"}}};
  EventLines lines;
  EXPECT_THAT(lines.Of(lost), ElementsAre(event));
  lost.all = true;
  Event anew = event;
  anew.fields.emplace_back("then", "all clients begin anew after the round");
  EXPECT_THAT(lines.Of(lost), ElementsAre(anew));
}

}  // namespace
}  // namespace macaw::server
