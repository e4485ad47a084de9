#include "cli/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;

// One round of 1000 µs on two slots: 100 to prepare, 50 to hand out, 600 to train, 150 to commit,
// 100 to apply; the slots are busy for 500 and 590 µs.
constexpr const char* kRound = R"([{"name":"process_name","ph":"M","pid":0,"args":{"name":"server"}}
,{"name":"process_name","ph":"M","pid":7,"tid":0,"args":{"name":"worker-0","slots":2}}
,{"name":"round 3","ph":"X","pid":0,"tid":0,"ts":5000.0,"dur":1000.0,"args":{"round":3,"phase":0,"clients":3,"slots":2,"busy_us":1090}}
,{"name":"prepare","ph":"X","pid":0,"tid":0,"ts":5000.0,"dur":100.0,"args":{}}
,{"name":"train","ph":"X","pid":0,"tid":0,"ts":5100.0,"dur":800.0,"args":{}}
,{"name":"apply","ph":"X","pid":0,"tid":0,"ts":5900.0,"dur":100.0,"args":{}}
,{"name":"client 5","ph":"X","pid":7,"tid":0,"ts":5150.0,"dur":500.0,"args":{"state_us":3,"load_us":4}}
,{"name":"client 6","ph":"X","pid":7,"tid":1,"ts":5150.0,"dur":190.0,"args":{}}
,{"name":"client 9","ph":"X","pid":7,"tid":1,"ts":5350.0,"dur":400.0,"args":{}}
)";

absl::StatusOr<Timeline> ReadText(const std::string& text) {
  const testing_support::TemporaryFolder folder;
  return ReadTimeline(folder.Write("timeline.json", text));
}

TEST(ReadTimeline, TakesPhasesTurnsAndNames) {
  const Timeline timeline = *ReadText(absl::StrCat(kRound, "]\n"));
  EXPECT_EQ(timeline.workers.at(7).name, "worker-0");
  EXPECT_EQ(timeline.workers.at(7).slots, 2u);
  ASSERT_EQ(timeline.phases.size(), 1u);
  EXPECT_EQ(timeline.phases[0].round, 3u);
  EXPECT_FALSE(timeline.several_phases());
  ASSERT_EQ(timeline.phases[0].turns.size(), 3u);
  EXPECT_EQ(timeline.phases[0].turns[0].load, 7);
  EXPECT_EQ(timeline.phases[0].turns[2].place, Timeline::Place(7, 1));
}

TEST(ReadTimeline, PassesOverWhatACrashHasCut) {
  const auto timeline = ReadText(absl::StrCat(kRound, ",{\"name\":\"client 1\",\"ph"));
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_EQ(timeline->phases[0].turns.size(), 3u);
}

TEST(ReadTimeline, SaysWhatIsMissingOrWrong) {
  EXPECT_THAT(ReadText("[").status().message(), HasSubstr("tells of no round"));
  EXPECT_THAT(
      ReadText("[{\"name\":\"round 1\",\"pid\":0,\"args\":{\"round\":\"x\"}}").status().message(),
      HasSubstr("round 1"));
  EXPECT_THAT(ReadTimeline("/nowhere/timeline.json").status().message(), HasSubstr("/nowhere"));
}

// Six rounds of two phases; the last two were done again by another process of the same worker.
Timeline OfPhases() {
  Timeline timeline{.workers = {{7, {.name = "worker-0", .slots = 2}},
                                {9, {.name = "worker-1", .slots = 1}},
                                {11, {.name = "worker-0", .slots = 2}}},
                    .phases = {}};
  for (const uint32_t round : {1, 2, 3, 4, 5, 6, 5, 6}) {
    const uint64_t process = timeline.phases.size() < 12 ? 7 : 11;
    for (const uint32_t phase : {0, 1}) {
      timeline.phases.push_back(
          {.round = round,
           .phase = phase,
           .turns = {{.place = {process, 0}, .name = "client 1", .length = 10, .load = 1}}});
    }
  }
  return timeline;
}

TEST(PhasesOf, CountsRoundsAndNotTheirPhases) {
  const Timeline timeline = OfPhases();
  EXPECT_EQ(*PhasesOf(timeline, "2"), std::pair(size_t{2}, size_t{3}));
  EXPECT_EQ(*PhasesOf(timeline, "2:3"), std::pair(size_t{2}, size_t{5}));
  EXPECT_EQ(*PhasesOf(timeline, ""), std::pair(size_t{10}, size_t{15})) << "6, 5 and 6";
  Timeline once = timeline;
  once.phases.resize(4);
  EXPECT_EQ(*PhasesOf(once, ""), std::pair(size_t{0}, size_t{3}));
  EXPECT_THAT(std::string(PhasesOf(timeline, "99").status().message()),
              testing::EndsWith("the timeline has 6 rounds, from 1 to 6"));
  EXPECT_FALSE(PhasesOf(timeline, "3:2").ok());
  once.phases.erase(once.phases.begin(), once.phases.begin() + 2);
  EXPECT_THAT(PhasesOf(once, "99").status().message(),
              HasSubstr("has 1 round, from 2 to 2; of a long run, only some rounds"));
}

TEST(TimesOfWorkers, AreOfWorkersAndNotOfTheirProcesses) {
  Timeline timeline = OfPhases();
  timeline.phases[0].turns.push_back({.place = {9, 0}, .name = "client 2", .length = 5});
  const std::vector<WorkerTime> times = TimesOfWorkers(timeline);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].name, "worker-0");
  EXPECT_EQ(times[0].slots, 2u);
  EXPECT_EQ(times[0].clients, 16u);
  EXPECT_EQ(times[0].busy, 160);
  EXPECT_EQ(times[0].load, 16);
  EXPECT_EQ(times[1].name, "worker-1");
  EXPECT_EQ(times[1].clients, 1u);
}

TEST(TimeSpent, IsCutIntoWhatThePhaseWaitedFor) {
  const TimeSpent spent = Spent(*ReadText(kRound));
  EXPECT_EQ(spent.phases, 1u);
  EXPECT_EQ(spent.clients, 3u);
  EXPECT_DOUBLE_EQ(spent.whole, 1000);
  EXPECT_DOUBLE_EQ(spent.prepare, 100);
  EXPECT_DOUBLE_EQ(spent.hand_out, 50);
  EXPECT_DOUBLE_EQ(spent.train, 600);
  EXPECT_DOUBLE_EQ(spent.commit, 150);
  EXPECT_DOUBLE_EQ(spent.apply, 100);
  EXPECT_DOUBLE_EQ(spent.gap, 10);
  EXPECT_DOUBLE_EQ(spent.busy, 1090.0 / 2000);
  EXPECT_DOUBLE_EQ(spent.busy_training, 1090.0 / 1200);
}

TEST(Picture, HasARowPerSlotAndABarPerClient) {
  const Timeline timeline = *ReadText(kRound);
  const std::string picture = Picture(timeline, 0, 0);
  EXPECT_THAT(picture, HasSubstr("worker-0, slot 0"));
  EXPECT_THAT(picture, HasSubstr("worker-0, slot 1"));
  for (const char* title : {"client 5, round 3: 500 µs", "client 9, round 3: 400 µs",
                            "round 3, prepare: 100 µs", "round 3, apply: 100 µs"})
    EXPECT_THAT(picture, HasSubstr(absl::StrCat("<title>", title, "</title>")));
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace macaw::cli
