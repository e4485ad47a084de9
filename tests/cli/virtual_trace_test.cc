// The picture of a run in virtual time: where turns are drawn, and from what they are computed.
#include "cli/timeline/virtual_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/simulate/virtual_rounds.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ordered = nlohmann::ordered_json;

VirtualTrace::Turn FromTo(double began, double ended) { return {.began = began, .ended = ended}; }

TEST(PlacesOf, IsTheFirstPlaceThatIsFree) {
  EXPECT_THAT(PlacesOf({FromTo(0, 5), FromTo(0, 2), FromTo(1, 9), FromTo(2, 3), FromTo(5, 6),
                        FromTo(5.5, 7)}),
              ElementsAre(0, 1, 2, 1, 0, 1));
  EXPECT_THAT(PlacesOf({}), ElementsAre());
}

TEST(TraceText, HasTurnsWithTheirPartsAndAMarkAStep) {
  VirtualTrace trace;
  trace.turns = {{.client = 7,
                  .base = 2,
                  .began = 1,
                  .download = 0.5,
                  .work = 2,
                  .upload = 0.25,
                  .ended = 3.75},
                 {.client = 8, .base = 2, .began = 1, .download = 1, .work = 9, .ended = 4}};
  trace.steps = {{.round = 3, .began = 1, .ended = 4, .clients = 1, .late = 1}};
  const Ordered events = Ordered::parse(TraceText(trace));
  std::vector<std::string> spans, marks;
  for (const Ordered& event : events) {
    const std::string name = event["name"];
    if (event["ph"] == "i") marks.push_back(name + " at " + event["ts"].dump());
    if (event["ph"] != "X") continue;
    spans.push_back(name + " in " + event["pid"].dump() + "." + event["tid"].dump() + " " +
                    event["ts"].dump() + "+" + event["dur"].dump());
  }
  EXPECT_THAT(marks, ElementsAre("step 3 at 4000000"));
  EXPECT_THAT(spans, ElementsAre("round 3 in 0.0 1000000+3000000",   //
                                 "client 7 in 1.0 1000000+2750000",  //
                                 "download in 1.0 1000000+500000",   //
                                 "work in 1.0 1500000+2000000",      //
                                 "upload in 1.0 3500000+250000",     //
                                 "client 8 in 1.1 1000000+3000000",  //
                                 "download in 1.1 1000000+1000000",  //
                                 "work in 1.1 2000000+2000000"))
      << "the round did not wait for client 8";
  EXPECT_EQ(events.back()["args"]["client"], 8);
}

// Client k trains for k + 1 seconds, and moves a byte in one.
class SteadyDevices final : public virtual_time::Devices {
 public:
  virtual_time::Device Of(ClientId) const override { return {}; }
  virtual_time::TurnTime TurnOf(Round, ClientId client, double,
                                const virtual_time::Traffic& traffic) const override {
    return {.download = traffic.down,
            .work = static_cast<double>(client.value) + 1,
            .upload = traffic.up};
  }
};

// Two clients, both in each round, and a model of one byte.
TurnPlan TwoClients(RunPlan run = {}) {
  run.clients = 2;
  if (!run.asynchronous.on()) run.cohort.size = 2;
  run.devices.family = "lognormal";
  return *TurnPlan::Make(run, {10, 10},
                         {.devices = std::make_shared<SteadyDevices>(), .presence = nullptr},
                         {.down = 1, .up = 1});
}

Ordered RowOf(uint32_t round, double seconds, uint64_t up, uint64_t down) {
  return {{"round", round}, {"clients", 2},       {"left_out", 0},
          {"bytes_up", up}, {"bytes_down", down}, {"virtual_seconds", seconds}};
}

// Round 1: 1 s down, 2 s of work, 1 s up. Then 2 s down and 3 s up.
TEST(TraceOf, TakesTheTrafficOfTheRows) {
  const std::vector<Ordered> rows = {RowOf(1, 4, 6, 4), RowOf(2, 7, 6, 4), RowOf(3, 7, 6, 4)};
  const absl::StatusOr<VirtualTrace> trace = TraceOf(TwoClients(), rows, Round(2), Round(2), 100);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->turns.size(), 2u) << "of round 2 alone";
  EXPECT_EQ(trace->turns[1].began, 4);
  EXPECT_EQ(trace->turns[1].download, 2);
  EXPECT_EQ(trace->turns[1].upload, 3);
  EXPECT_EQ(trace->turns[1].ended, 11);
  ASSERT_EQ(trace->steps.size(), 1u);
  EXPECT_EQ(trace->steps[0].round, 2u);
  EXPECT_EQ(trace->steps[0].ended, 11);
}

TEST(TraceOf, RefusesAPlanThatIsNotTheRuns) {
  const std::vector<Ordered> rows = {RowOf(1, 4, 6, 4), RowOf(2, 8, 6, 4)};
  EXPECT_THAT(std::string(TraceOf(TwoClients(), rows, Round(1), Round(2), 100).status().message()),
              HasSubstr("round 2 took 8 virtual seconds, but 7"));
}

TEST(TraceOf, SaysWhichRoundsThereAre) {
  const std::vector<Ordered> rows = {RowOf(1, 4, 2, 2)};
  EXPECT_THAT(std::string(TraceOf(TwoClients(), rows, Round(9), Round(12), 9).status().message()),
              HasSubstr("no round from 9 to 12"));
}

TEST(TraceOf, EndsWhereItHasEnoughTurns) {
  const std::vector<Ordered> rows = {RowOf(1, 4, 2, 2), RowOf(2, 4, 2, 2), RowOf(3, 4, 2, 2)};
  const absl::StatusOr<VirtualTrace> trace = TraceOf(TwoClients(), rows, Round(1), Round(3), 3);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->steps.size(), 2u);
}

// Client 0 arrives at 3, 6 and so on, client 1 at 4. Round 2, from 3 to 4, has the turn of client 1
// that began before it.
TEST(TraceOf, HasTurnsThatBeganBeforeItsRounds) {
  RunPlan run;
  run.cohort.size = 1;
  run.asynchronous = {.mode = "buffered", .concurrency = 2};
  const std::vector<Ordered> rows = {RowOf(1, 3, 2, 2), RowOf(2, 1, 2, 2)};
  const absl::StatusOr<VirtualTrace> trace =
      TraceOf(TwoClients(run), rows, Round(2), Round(2), 100);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->turns.size(), 2u);
  EXPECT_EQ(trace->turns[0].client, 1u);
  EXPECT_EQ(trace->turns[0].began, 0);
  EXPECT_EQ(trace->turns[1].began, 3);
  EXPECT_EQ(trace->turns[1].base, 1u);
  EXPECT_EQ(trace->turns[1].ended, 6);
}

}  // namespace
}  // namespace macaw::cli
