#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/log/table.h"
#include "testing/random_record.h"

namespace macaw::cli {
namespace {

namespace log = server::log;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogTable, ALineSaysWhenWhereWhatWhoHowManyAndWhy) {
  LogTable table;
  EXPECT_THAT(
      table.Lines({.ns = 1'500'000'000,
                   .record = log::NodeJoined{.node = WorkerId(2),
                                             .name = "left-hand",
                                             .slots = 4,
                                             .holdings = {{.clients = 150}, {.clients = 50}}}},
                  log::Standing::kCounts),
      ContainsRegex("^ *1.500000 +node_joined +left-hand +200  4 slots\n$"));
  const std::string lines =
      table.Lines({.ns = 2'000'000'000,
                   .record = log::Accepted{.round = Round(3),
                                           .phase = Phase(1),
                                           .node = WorkerId(2),
                                           .included = {{ClientId(7), {}}, {ClientId(8), {}}},
                                           .given_up = {{.attempt = {ClientId(9), {}},
                                                         .reason = fleet::LeftOutReason::kNoData,
                                                         .message = "first\nsecond"}}}},
                  log::Standing::kCounts);
  EXPECT_THAT(lines, ContainsRegex("^ *2.000000 +3.1  accepted +left-hand +2  0.000 s"));
  EXPECT_THAT(lines,
              ContainsRegex("\n *2.000000 +3.1  given_up +client 9 +no_data: first . second\n$"));
}

TEST(LogTable, ATextOfANodeDrivesNoTerminal) {
  const std::string lines = LogTable().Lines(
      {.record = log::NodeDeclined{.node = WorkerId(2), .why = "\x1b[2J\x1b]0;title\x07"}},
      log::Standing::kCounts);
  EXPECT_THAT(lines, Not(HasSubstr("\x1b")));
  EXPECT_THAT(lines, HasSubstr("\\x1b[2J"));
}

TEST(LogTable, WhatALaterSessionHasUndoneIsMarked) {
  const log::Entry entry{.record = log::Closed{.round = Round(3), .counted = 5}};
  EXPECT_THAT(LogTable().Lines(entry, log::Standing::kUndone), HasSubstr("undone"));
  EXPECT_THAT(LogTable().Lines(entry, log::Standing::kCounts), Not(HasSubstr("undone")));
}

TEST(LogTable, SaysThatAllBeginAnewAfterALossOfStates) {
  log::StatesLost lost{.round = Round(3), .name = "phone", .clients = {ClientId(1)}, .why = "left"};
  const auto line = [&] {
    return LogTable().Lines({.record = log::Record(lost)}, log::Standing::kCounts);
  };
  EXPECT_THAT(line(), ContainsRegex("states_lost +phone +1  left\n$"));
  lost.all = true;
  EXPECT_THAT(line(),
              ContainsRegex("states_lost +phone +1  left; all begin anew after the round\n$"));
}

TEST(LogTable, ANodesNumberIsThatOfItsSession) {
  LogTable table;
  const log::Entry leased{.record = log::Leased{.round = Round(1), .node = WorkerId(1)}};
  table.PassOver(log::NodeJoined{.node = WorkerId(1), .name = "before"});
  EXPECT_THAT(table.Lines(leased, log::Standing::kCounts), HasSubstr("before"));
  table.PassOver(log::RunOpened{.epoch = 2});
  EXPECT_THAT(table.Lines(leased, log::Standing::kCounts), HasSubstr("node 1"));
}

TEST(LogTable, AnyRecordMakesWholeLines) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    server::fixtures::RandomRecord random(seed);
    for (log::Record& record : random.OneOfEach()) {
      const std::string lines =
          LogTable().Lines({.record = std::move(record)}, log::Standing::kCounts);
      EXPECT_TRUE(lines.ends_with("\n"));
      EXPECT_GT(lines.size(), 20u);
    }
  }
}

}  // namespace
}  // namespace macaw::cli
