#include "cli/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/report/page.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using macaw::testing_support::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

// A folder as `macaw simulate` leaves it, with `rows` in metrics.jsonl.
void WriteRun(const std::string& folder, const std::string& name, const std::string& rows,
              uint64_t seed = 1, bool over = true) {
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  ASSERT_TRUE(AtomicWriteFile(folder + "/metrics.jsonl", rows).ok());
  ASSERT_TRUE(AtomicWriteFile(folder + "/config.toml", "[run]\nname = \"x\"\n").ok());
  if (!over) return;
  const Json summary = {{"name", name}, {"algorithm", "fedavg"}, {"settings", {{"local.lr", 0.1}}},
                        {"seed", seed}, {"end", "finished"},     {"rounds", 2}};
  ASSERT_TRUE(AtomicWriteFile(folder + "/summary.json", summary.dump()).ok());
}

constexpr char kTwoRounds[] =
    "{\"round\":1,\"train_loss\":2.5}\n"
    "{\"round\":2,\"train_loss\":1.25,\"test_accuracy\":0.123456789}\n"
    "{\"round\":3,\"train_lo";  // a crash

// What the page was given.
Json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Report, HasTheCurvesOfARun) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "mnist", kTwoRounds);
  const auto page = ReportPage({folder / "run/"});
  ASSERT_TRUE(page.ok()) << page.status();
  const Json run = DataOf(*page)["runs"][0];
  EXPECT_EQ(run["label"], "mnist");
  EXPECT_EQ(run["rounds"], 2) << "the line that a crash cut off is not a round";
  EXPECT_THAT(run["curves"]["train_loss"]["y"], ElementsAre(2.5, 1.25));
  EXPECT_THAT(run["curves"]["test_accuracy"]["x"], ElementsAre(2)) << "where it was evaluated";
  EXPECT_THAT(run["curves"]["test_accuracy"]["y"], ElementsAre(0.123457)) << "six digits";
  EXPECT_EQ(run["config"], "[run]\nname = \"x\"\n");
  EXPECT_TRUE(run["time"].is_null());
}

TEST(Report, ANameIsTextWhateverItSays) {
  const TemporaryFolder folder;
  const std::string name = "</script><script>alert(1)</script><!--";
  WriteRun(folder / "run", name, kTwoRounds);
  const auto page = ReportPage({folder / "run"});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(DataOf(*page)["runs"][0]["name"], name);
  EXPECT_EQ(Count(*page, "<script"), Count(kReportPage, "<script"));
  EXPECT_EQ(Count(*page, "</script"), Count(kReportPage, "</script"));
  EXPECT_EQ(Count(*page, "<!--"), Count(kReportPage, "<!--"));
}

TEST(Report, NeedsNoNetwork) {
  const std::string page = kReportPage;
  for (const char* what : {"src=", "href=", "url(", "import(", "fetch(", "https:"})
    EXPECT_FALSE(absl::StrContains(page, what)) << what;
}

TEST(Report, ThinsLongCurvesAndKeepsTheLastRound) {
  const TemporaryFolder folder;
  std::string rows;
  for (int round = 1; round <= 5001; ++round)
    absl::StrAppend(&rows, "{\"round\":", round, ",\"train_loss\":", round, "}\n");
  WriteRun(folder / "run", "long", rows);
  const auto page = ReportPage({folder / "run"});
  ASSERT_TRUE(page.ok()) << page.status();
  const Json curve = DataOf(*page)["runs"][0]["curves"]["train_loss"];
  EXPECT_LE(curve["x"].size(), 2001u);
  EXPECT_GE(curve["x"].size(), 1000u);
  EXPECT_EQ(curve["x"].back(), 5001);
  EXPECT_EQ(curve["x"], curve["y"]);
}

TEST(Report, RunsOfOneNameAreToldApart) {
  const TemporaryFolder folder;
  WriteRun(folder / "a", "mnist", kTwoRounds, 1);
  WriteRun(folder / "b", "mnist", kTwoRounds, 2);
  WriteRun(folder / "c", "mnist", kTwoRounds, 2);
  WriteRun(folder / "d", "other", kTwoRounds, 2);
  const auto page =
      ReportPage({folder / "a", folder / "b", folder / "c", folder / "d", folder / "d"});
  ASSERT_TRUE(page.ok()) << page.status();
  std::vector<std::string> labels;
  const Json data = DataOf(*page);
  for (const Json& run : data["runs"]) labels.push_back(run["label"]);
  EXPECT_THAT(labels, ElementsAre("a", "b", "c", "other"));
}

TEST(Report, ARunThatIsNotOverIsShownAsFarAsItIs) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "", kTwoRounds, 1, /*over=*/false);
  const auto page = ReportPage({folder / "run"});
  ASSERT_TRUE(page.ok()) << page.status();
  const Json run = DataOf(*page)["runs"][0];
  EXPECT_EQ(run["end"], "not over");
  EXPECT_EQ(run["label"], "run") << "its folder";
}

TEST(Report, CountsClientsByTheirLastAccuracy) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "mnist", kTwoRounds);
  ASSERT_TRUE(AtomicWriteFile(folder / "run/clients.jsonl",
                              "{\"round\":1,\"client\":7,\"accuracy\":0.1}\n"
                              "{\"round\":1,\"client\":8,\"accuracy\":1.0}\n"
                              "{\"round\":2,\"client\":7,\"accuracy\":0.52}\n")
                  .ok());
  const auto page = ReportPage({folder / "run"});
  ASSERT_TRUE(page.ok()) << page.status();
  const Json accuracy = DataOf(*page)["runs"][0]["accuracy"];
  EXPECT_EQ(accuracy["clients"], 2);
  EXPECT_EQ(accuracy["counts"][10], 1) << "50 to 55 %";
  EXPECT_EQ(accuracy["counts"][19], 1) << "95 to 100 %";
  EXPECT_EQ(accuracy["counts"][2], 0) << "client 7 has learnt since";
}

TEST(Report, SaysWhichFolderHoldsNoRun) {
  const TemporaryFolder folder;
  EXPECT_THAT(ReportPage({folder / "nothing"}).status().ToString(),
              HasSubstr("nothing holds no run"));
}

}  // namespace
}  // namespace macaw::cli
