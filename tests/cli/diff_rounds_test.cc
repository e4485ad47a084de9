// Which rounds `macaw diff` looks at, whatever numbers the rows of a file have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/diff/diff.h"
#include "tests/cli/run_files.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;
using testing_support::TemporaryFolder;

DiffReport DiffOf(const std::string& a, const std::string& b) {
  const auto first = ReadTrace(a, {}), second = ReadTrace(b, {});
  EXPECT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  if (!first.ok() || !second.ok()) return {};
  auto report = Diff(*first, *second, {});
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : DiffReport();
}

// A table may count in other steps than rounds. A loop over all numbers would never end here.
TEST(DiffRounds, ATableMayEndWithTheLargestNumber) {
  const TemporaryFolder folder;
  const std::string a = folder.Write("a.csv", "round,loss\n1,0.5\n4294967295,0.25\n");
  const std::string b = folder.Write("b.csv", "round,loss\n1,0.5\n4294967295,0.125\n");
  EXPECT_TRUE(DiffOf(a, a).same());
  const DiffReport report = DiffOf(a, b);
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 4294967295u);
}

TEST(DiffRounds, ARunMayLackAnyNumberOfRows) {
  const TemporaryFolder folder;
  HandRun run;
  run.rows.push_back(R"({"round":4,"clients":2,"train_loss":0.25})");
  run.rows.push_back(R"({"round":4294967295,"clients":2,"train_loss":0.25})");
  const std::string path = WriteHandRun(folder, "a", run);
  const auto trace = ReadTrace(path, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  const std::vector<RoundSpan> lost = trace->RoundsWithoutRow();
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].first, 3u);
  EXPECT_EQ(lost[0].last, 3u);
  EXPECT_EQ(lost[1].first, 5u);
  EXPECT_EQ(lost[1].last, 4294967294u);
  const DiffReport report = DiffOf(path, path);
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->stage, Parting::Stage::kRows);
  EXPECT_EQ(report.parting->round, 3u);
  EXPECT_THAT(report.parting->what, HasSubstr("no row of rounds 3, 5 to 4294967294,"));
}

TEST(DiffRounds, ManyGapsAreCounted) {
  const TemporaryFolder folder;
  HandRun run;
  run.rows.clear();
  for (const int round : {2, 4, 6, 8, 10, 13})
    run.rows.push_back(absl::StrCat(R"({"round":)", round, R"(,"train_loss":0.25})"));
  const std::string path = WriteHandRun(folder, "a", run);
  EXPECT_THAT(DiffOf(path, path).parting->what,
              HasSubstr("the first has no row of rounds 1, 3, 5, 7 and 3 more"));
}

}  // namespace
}  // namespace macaw::cli
