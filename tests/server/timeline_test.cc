#include "server/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/temporary_folder.h"

namespace macaw::server {
namespace {

using Json = nlohmann::json;

PhaseReport ReportOf(uint32_t round, size_t turns) {
  const TimePoint began(FromSeconds(100 + round));
  PhaseReport report{.round = Round(round),
                     .cohort = turns,
                     .times = {.opened = began,
                               .ready = began + FromSeconds(0.25),
                               .gathered = began + FromSeconds(0.75)},
                     .slots = 2};
  for (size_t i = 0; i < turns; ++i) {
    report.turns.push_back({.client = ClientId(i),
                            .worker = WorkerId(1),
                            .slot = static_cast<uint32_t>(i % 2),
                            .began = began + FromSeconds(0.25),
                            .state_seconds = 0.0625,
                            .load_seconds = 0.125,
                            .train_seconds = 0.25,
                            .steps = 7});
  }
  return report;
}

class TimelineFile : public ::testing::Test {
 protected:
  Timeline Open(uint32_t epoch, bool resume) { return *Timeline::Open(path_, epoch, resume); }
  void Add(Timeline& timeline, uint32_t round, size_t turns = 3) {
    const TimePoint origin(FromSeconds(100));
    const TimePoint closed = origin + FromSeconds(round + 1);
    ASSERT_TRUE(timeline.AddPhase(ReportOf(round, turns), origin, closed).ok());
  }
  std::string Text() const { return *ReadFile(path_); }
  Json Events() const { return Json::parse(Text()); }
  // The rounds that have a span in the file.
  std::vector<int> Rounds() const {
    std::vector<int> rounds;
    for (const Json& event : Events()) {
      if (event["name"].get<std::string>().starts_with("round "))
        rounds.push_back(event["args"]["round"]);
    }
    return rounds;
  }

  testing_support::TemporaryFolder folder_;
  const std::string path_ = folder_ / "timeline.json";
};

TEST_F(TimelineFile, IsAChromeTraceOfPhasesAndTurns) {
  Timeline timeline = Open(1, false);
  ASSERT_TRUE(timeline.AddWorker(WorkerId(1), "a \"quoted\" name", 2).ok());
  Add(timeline, 4);
  ASSERT_TRUE(timeline.Close().ok());
  const Json events = Events();
  ASSERT_EQ(events.size(), 1 + 1 + 4 + 3);
  EXPECT_EQ(events[0]["args"]["name"], "server");
  EXPECT_EQ(events[1]["args"]["name"], "a \"quoted\" name");
  EXPECT_EQ(events[1]["args"]["slots"], 2);
  const Json& round = events[2];
  EXPECT_EQ(round["name"], "round 4");
  EXPECT_EQ(round["ts"], 4e6);
  EXPECT_EQ(round["dur"], 1e6);
  EXPECT_EQ(round["args"]["slots"], 2);
  EXPECT_EQ(round["args"]["busy_us"], 3 * 437500);
  EXPECT_EQ(events[4]["name"], "train");
  EXPECT_EQ(events[4]["dur"], 0.5e6);
  const Json& turn = events[7];
  EXPECT_EQ(turn["name"], "client 1");
  EXPECT_EQ(turn["pid"], events[1]["pid"]);
  EXPECT_EQ(turn["tid"], 1);
  EXPECT_EQ(turn["ts"], 4.25e6);
  EXPECT_EQ(turn["dur"], 437500);
  EXPECT_EQ(turn["args"]["load_us"], 125000);
  EXPECT_EQ(turn["args"]["steps"], 7);
}

TEST_F(TimelineFile, OfAResumedRunGoesOnAfterWholeLines) {
  {
    Timeline timeline = Open(1, false);
    Add(timeline, 1);
    ASSERT_TRUE(timeline.Close().ok());
  }
  {
    Timeline timeline = Open(2, true);  // the first session has closed the file
    Add(timeline, 2);
  }
  ASSERT_TRUE(AtomicWriteFile(path_, Text() + ",{\"name\":\"cut o").ok());  // session 2, killed
  Timeline timeline = Open(3, true);
  Add(timeline, 3);
  ASSERT_TRUE(timeline.Close().ok());
  EXPECT_EQ(Rounds(), (std::vector<int>{1, 2, 3}));
}

TEST_F(TimelineFile, HasItsSessionsOneAfterTheOther) {
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    Timeline timeline = Open(epoch, epoch > 1);
    Add(timeline, 1);  // the session's seconds 1 to 2
    ASSERT_TRUE(timeline.Close().ok());
  }
  std::vector<double> starts;
  for (const Json& event : Events()) {
    if (event["name"] == "round 1") starts.push_back(event["ts"]);
  }
  EXPECT_EQ(starts, (std::vector<double>{1e6, 3e6, 5e6}));
}

TEST_F(TimelineFile, DropsWhatComesAfterItsEnd) {
  Timeline timeline = Open(1, false);
  Add(timeline, 1);
  ASSERT_TRUE(timeline.Close().ok());
  ASSERT_TRUE(timeline.AddWorker(WorkerId(9), "late", 1).ok());
  Add(timeline, 2);
  ASSERT_TRUE(timeline.Close().ok());
  EXPECT_EQ(Rounds(), (std::vector<int>{1}));
}

TEST_F(TimelineFile, ShowsSomeTurnsOfALargePhase) {
  Timeline timeline = Open(1, false);
  Add(timeline, 1, 120'000);
  ASSERT_TRUE(timeline.Close().ok());
  const Json events = Events();
  EXPECT_EQ(events.size(), 1 + 4 + 40'000);
  EXPECT_EQ(events[1]["args"]["clients"], 120'000);
  EXPECT_EQ(events[1]["args"]["shown_every"], 3);
}

TEST_F(TimelineFile, OfALongRunHasEverySecondRoundThenEveryFourth) {
  Timeline timeline = Open(1, false);
  for (uint32_t round = 1; round <= 24; ++round) Add(timeline, round, 10'000);
  ASSERT_TRUE(timeline.Close().ok());
  EXPECT_EQ(Rounds(), (std::vector<int>{1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24}));
}

TEST_F(TimelineFile, WhatNoClockCanMeanBecomesNothing) {
  Timeline timeline = Open(1, false);
  PhaseReport report = ReportOf(1, 1);
  report.turns[0].began = TimePoint{};  // before the run
  ASSERT_TRUE(timeline.AddPhase(report, TimePoint(FromSeconds(100)), TimePoint{}).ok());
  ASSERT_TRUE(timeline.Close().ok());
  for (const Json& event : Events()) {
    EXPECT_GE(event.value("ts", 0.0), 0.0);
    EXPECT_GE(event.value("dur", 0.0), 0.0);
  }
}

}  // namespace
}  // namespace macaw::server
