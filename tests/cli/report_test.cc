#include "cli/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// What the page of these runs is given.
Json DataOf(const std::vector<std::string>& paths) {
  const auto data = ReportData(paths);
  EXPECT_TRUE(data.ok()) << data.status();
  if (!data.ok()) return {};
  const std::string page = ReportPage(*data);
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
  const Json run = DataOf({folder / "run/"})["runs"][0];
  EXPECT_EQ(run["label"], "mnist");
  EXPECT_EQ(run["rounds"], 2) << "the line that a crash cut off is not a round";
  EXPECT_THAT(run["curves"]["train_loss"]["y"], ElementsAre(2.5, 1.25));
  EXPECT_THAT(run["curves"]["test_accuracy"]["x"], ElementsAre(2)) << "where it was evaluated";
  EXPECT_THAT(run["curves"]["test_accuracy"]["y"], ElementsAre(0.123457)) << "six digits";
  EXPECT_EQ(run["config"], "[run]\nname = \"x\"\n");
  EXPECT_TRUE(run["time"].is_null());
}

// A run that has diverged must not be shown with its last finite values.
TEST(Report, ANumberThatIsNotDefinedHasAPlaceWithoutAValue) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "diverged",
           "{\"round\":1,\"test_loss\":2.5}\n{\"round\":2,\"test_loss\":null}\n");
  const Json curve = DataOf({folder / "run"})["runs"][0]["curves"]["test_loss"];
  EXPECT_EQ(curve["x"], Json({1, 2}));
  EXPECT_EQ(curve["y"], Json({2.5, nullptr}));
}

TEST(Report, OnlyALastLineWithoutItsEndIsSkipped) {
  const TemporaryFolder folder;
  const auto why = [&](const std::string& file, const std::string& text) {
    EXPECT_TRUE(AtomicWriteFile(folder / "run/" + file, text).ok());
    return std::string(ReportData({folder / "run"}).status().message());
  };
  WriteRun(folder / "run", "torn", kTwoRounds);
  EXPECT_EQ(why("clients.jsonl", "{\"round\":1,\"client\":7,\"accuracy\":0.1}\n{\"rou"), "");
  EXPECT_THAT(why("clients.jsonl", "{}\n{\"rou{\"round\":2}\n"),
              HasSubstr("run/clients.jsonl:2 is not a JSON object"));
  EXPECT_EQ(why("clients.jsonl", ""), "");
  EXPECT_THAT(why("metrics.jsonl", "{\"round\":1}\n{\"round\":2,{\"round\":3}\n{\"round\":4}\n"),
              HasSubstr("run/metrics.jsonl:2 is not a JSON object"));
}

// JavaScript would read 9007199254740993 as ...992.
TEST(Report, WholeNumbersThatAScriptWouldRoundAreTexts) {
  const TemporaryFolder folder;
  WriteRun(folder / "a", "a", kTwoRounds, 9007199254740993);
  WriteRun(folder / "b", "b", kTwoRounds, 7);
  const Json summary = {{"name", "a"},
                        {"algorithm", "fedavg"},
                        {"settings", {{"partition.seed", uint64_t{18446744073709551615u}}}},
                        {"seed", uint64_t{9007199254740993}},
                        {"end", "finished"},
                        {"rounds", 2}};
  ASSERT_TRUE(AtomicWriteFile(folder / "a/summary.json", summary.dump()).ok());
  const Json runs = DataOf({folder / "a", folder / "b"})["runs"];
  EXPECT_EQ(runs[0]["seed"], "9007199254740993");
  EXPECT_EQ(runs[0]["settings"]["partition.seed"], "18446744073709551615");
  EXPECT_EQ(runs[1]["seed"], 7);
}

TEST(Report, ANameIsTextWhateverItSays) {
  const TemporaryFolder folder;
  const std::string name = "</script><script>alert(1)</script><!--";
  WriteRun(folder / "run", name, kTwoRounds);
  EXPECT_EQ(DataOf({folder / "run"})["runs"][0]["name"], name);
  const auto data = ReportData({folder / "run"});
  ASSERT_TRUE(data.ok()) << data.status();
  const std::string page = ReportPage(*data), empty = ReportPage("{}");
  EXPECT_EQ(Count(page, "<script"), Count(empty, "<script"));
  EXPECT_EQ(Count(page, "</script"), Count(empty, "</script"));
  EXPECT_EQ(Count(page, "<!--"), Count(empty, "<!--"));
}

TEST(Report, NeedsNoNetwork) {
  const std::string page = ReportPage("{}");
  for (const char* what : {"src=", "href=", "url(", "import(", "fetch(", "https:"})
    EXPECT_FALSE(absl::StrContains(page, what)) << what;
}

TEST(Report, ThinsLongCurvesAndKeepsTheLastRound) {
  const TemporaryFolder folder;
  std::string rows;
  for (int round = 1; round <= 5001; ++round)
    absl::StrAppend(&rows, "{\"round\":", round, ",\"train_loss\":", round, "}\n");
  WriteRun(folder / "run", "long", rows);
  const Json curve = DataOf({folder / "run"})["runs"][0]["curves"]["train_loss"];
  EXPECT_LE(curve["x"].size(), 2001u);
  EXPECT_GE(curve["x"].size(), 1000u);
  EXPECT_EQ(curve["x"].back(), 5001);
  EXPECT_EQ(curve["x"], curve["y"]);
}

TEST(Report, SumsVirtualTimeAndBytesUpToEachRound) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "timed",
           "{\"round\":1,\"bytes_up\":10,\"bytes_down\":5,\"virtual_seconds\":2.5}\n"
           "{\"round\":2,\"bytes_up\":20,\"bytes_down\":5,\"virtual_seconds\":1.5}\n");
  const Json across = DataOf({folder / "run"})["runs"][0]["across"];
  EXPECT_THAT(across["rounds"], ElementsAre(1, 2));
  EXPECT_THAT(across["seconds"], ElementsAre(2.5, 4));
  EXPECT_THAT(across["bytes"], ElementsAre(15, 40));
}

TEST(Report, HasNoSumsOfColumnsThatSomeRowLacks) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "older",
           "{\"round\":1,\"bytes_up\":10}\n"
           "{\"round\":2,\"bytes_up\":20,\"bytes_down\":5,\"virtual_seconds\":1.5}\n");
  const Json across = DataOf({folder / "run"})["runs"][0]["across"];
  EXPECT_FALSE(across.contains("seconds"));
  EXPECT_FALSE(across.contains("bytes"));
}

TEST(Report, RunsOfOneNameAreToldApart) {
  const TemporaryFolder folder;
  WriteRun(folder / "a", "mnist", kTwoRounds, 1);
  WriteRun(folder / "b", "mnist", kTwoRounds, 2);
  WriteRun(folder / "c", "mnist", kTwoRounds, 2);
  WriteRun(folder / "d", "other", kTwoRounds, 2);
  std::vector<std::string> labels;
  const Json data = DataOf({folder / "a", folder / "b", folder / "c", folder / "d", folder / "d"});
  for (const Json& run : data["runs"]) labels.push_back(run["label"]);
  EXPECT_THAT(labels, ElementsAre("a", "b", "c", "other"));
}

TEST(Report, ARunOfASweepHasItsConfigurationsNumber) {
  const TemporaryFolder folder;
  ASSERT_TRUE(std::filesystem::create_directories(folder / "sweep/runs"));
  ASSERT_TRUE(std::filesystem::create_directories(folder / "runs"));
  WriteRun(folder / "sweep/runs/003-seed1", "sweep-003-seed1", kTwoRounds, 1);
  WriteRun(folder / "runs/004-seed1", "mine", kTwoRounds, 1);
  const std::vector<std::string> paths = {folder / "sweep/runs/003-seed1/",
                                          folder / "runs/004-seed1"};
  EXPECT_FALSE(DataOf(paths)["runs"][0].contains("sweep")) << "there is no sweep.json";
  ASSERT_TRUE(AtomicWriteFile(folder / "sweep/sweep.json", "{}").ok());
  const Json runs = DataOf(paths)["runs"];
  EXPECT_EQ(runs[0]["sweep"], "003");
  EXPECT_EQ(runs[0]["label"], "003-seed1");
  EXPECT_FALSE(runs[1].contains("sweep"));
  EXPECT_EQ(runs[1]["label"], "mine");
}

TEST(Report, ASweepsFolderIsAllItsRunsThatHaveBegun) {
  const TemporaryFolder folder;
  const std::string sweep = folder / "sweep";
  ASSERT_TRUE(std::filesystem::create_directories(sweep + "/runs"));
  ASSERT_TRUE(AtomicWriteFile(sweep + "/sweep.json", "{}").ok());
  ASSERT_TRUE(std::filesystem::create_directories(sweep + "/jobs"));
  for (const char* job : {"001-seed1", "001-seed2", "002-seed1", "002-seed2"})
    ASSERT_TRUE(AtomicWriteFile(absl::StrCat(sweep, "/jobs/", job, ".toml"), "[run]\n").ok());
  EXPECT_THAT(ReportData({sweep}).status().ToString(), HasSubstr("no run has begun"));
  WriteRun(sweep + "/runs/002-seed1", "s", kTwoRounds, 1);
  WriteRun(sweep + "/runs/001-seed2", "s", kTwoRounds, 2, /*over=*/false);
  WriteRun(sweep + "/runs/001-seed1", "s", kTwoRounds, 1);
  ASSERT_TRUE(std::filesystem::create_directory(sweep + "/runs/002-seed2"));  // not begun
  std::vector<std::string> labels, numbers;
  const Json data = DataOf({sweep + "/", sweep + "/runs/002-seed1"});
  for (const Json& run : data["runs"]) {
    labels.push_back(run["label"]);
    numbers.push_back(run["sweep"]);
  }
  EXPECT_THAT(labels, ElementsAre("001-seed1", "001-seed2", "002-seed1"));
  EXPECT_THAT(numbers, ElementsAre("001", "001", "002"));
}

TEST(Report, ThePageHasAllItsParts) {
  const std::string page = ReportPage("{}");
  for (const char* place : {"@STYLE@", "@SCRIPT@", "@DATA@"})
    EXPECT_FALSE(absl::StrContains(page, place)) << place;
  for (const char* part :
       {"function update(", "function makeGroups(", "function usualAxis(", "function plot(",
        "function listRuns(", "function fairness(", "function times("})
    EXPECT_EQ(Count(page, part), 1u) << part;
}

TEST(Report, ARunThatIsNotOverIsShownAsFarAsItIs) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "", kTwoRounds, 1, /*over=*/false);
  const Json run = DataOf({folder / "run"})["runs"][0];
  EXPECT_EQ(run["end"], "not over");
  EXPECT_EQ(run["label"], "run") << "its folder";
}

TEST(Report, ARunThatGotMoreRoundsIsNotOver) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "mine",
           "{\"round\":1,\"train_loss\":2}\n{\"round\":2,\"train_loss\":1}\n"
           "{\"round\":3,\"train_loss\":0.5}\n");
  const Json run = DataOf({folder / "run"})["runs"][0];
  EXPECT_EQ(run["end"], "not over");
  EXPECT_EQ(run["rounds"], 3);
  EXPECT_EQ(run["label"], "run") << "its summary is of an earlier session";
}

TEST(Report, ARunThatFailedInItsSweepSaysWhy) {
  const TemporaryFolder folder;
  const std::string sweep = folder / "sweep";
  for (const char* made : {"/runs", "/results"})
    ASSERT_TRUE(std::filesystem::create_directories(sweep + made));
  ASSERT_TRUE(AtomicWriteFile(sweep + "/sweep.json", "{}").ok());
  const auto result = [&](const std::string& job, const std::string& text) {
    ASSERT_TRUE(AtomicWriteFile(absl::StrCat(sweep, "/results/", job, ".json"), text).ok());
  };
  const std::string failed = R"({"failed": true, "why": "there is no room left", "rungs": []})";
  WriteRun(sweep + "/runs/001-seed1", "s", kTwoRounds, 1, /*over=*/false);
  result("001-seed1", failed);
  WriteRun(sweep + "/runs/001-seed2", "s", kTwoRounds, 2, /*over=*/false);
  result("001-seed2", R"({"failed": false, "why": "", "rungs": []})");
  WriteRun(sweep + "/runs/002-seed1", "s", kTwoRounds, 1);  // somebody has gone on with it
  result("002-seed1", failed);
  const Json runs = DataOf(
      {sweep + "/runs/001-seed1", sweep + "/runs/001-seed2", sweep + "/runs/002-seed1"})["runs"];
  EXPECT_EQ(runs[0]["end"], "failed");
  EXPECT_EQ(runs[0]["reason"], "there is no room left");
  EXPECT_EQ(runs[1]["end"], "not over");
  EXPECT_EQ(runs[2]["end"], "finished");
}

TEST(Report, ARunWithoutARoundHasNoCurvesYet) {
  const TemporaryFolder folder;
  ASSERT_TRUE(std::filesystem::create_directory(folder / "run"));
  ASSERT_TRUE(AtomicWriteFile(folder / "run/config.toml", "[run]\n").ok());
  const Json run = DataOf({folder / "run"})["runs"][0];
  EXPECT_EQ(run["rounds"], 0);
  EXPECT_TRUE(run["curves"].empty());
}

TEST(Report, CountsClientsByTheirLastAccuracy) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "mnist", kTwoRounds);
  ASSERT_TRUE(AtomicWriteFile(folder / "run/clients.jsonl",
                              "{\"round\":1,\"client\":7,\"accuracy\":0.1}\n"
                              "{\"round\":1,\"client\":8,\"accuracy\":1.0}\n"
                              "{\"round\":2,\"client\":7,\"accuracy\":0.52}\n")
                  .ok());
  const Json accuracy = DataOf({folder / "run"})["runs"][0]["accuracy"]["training"];
  EXPECT_EQ(accuracy["clients"], 2);
  EXPECT_EQ(accuracy["counts"][10], 1) << "50 to 55 %";
  EXPECT_EQ(accuracy["counts"][19], 1) << "95 to 100 %";
  EXPECT_EQ(accuracy["counts"][2], 0) << "client 7 has learnt since";
}

TEST(Report, TestAccuraciesByClientAreNotTrainingAccuracies) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "mnist", kTwoRounds);
  ASSERT_TRUE(
      AtomicWriteFile(folder / "run/clients_evaluated.json",
                      R"({"round": 2, "clients_test": {"client": [3, 9, 11], "rows": [4, 5, 1],
                          "accuracy": [0.25, 0.26, null], "loss": [1, 2, null]},
                          "clients_val": {"client": [3], "rows": [4], "loss": [1]}})")
          .ok());
  const Json accuracy = DataOf({folder / "run"})["runs"][0]["accuracy"];
  EXPECT_EQ(accuracy.size(), 1u) << "no training records, and no accuracy of validation rows";
  EXPECT_EQ(accuracy["clients_test"]["clients"], 2);
  EXPECT_EQ(accuracy["clients_test"]["counts"][5], 2);
}

// A folder may be anybody's.
TEST(Report, SkipsWhatHasAnotherTypeThanARunWrites) {
  const TemporaryFolder folder;
  WriteRun(folder / "run", "mnist",
           "{\"round\":\"one\",\"train_loss\":2.5}\n{\"round\":-2,\"train_loss\":1.25}\n");
  ASSERT_TRUE(AtomicWriteFile(folder / "run/summary.json", R"({"name": 7, "rounds": {}})").ok());
  ASSERT_TRUE(AtomicWriteFile(folder / "run/clients.jsonl",
                              "{\"client\":\"a\",\"accuracy\":0.5}\n{\"client\":1,"
                              "\"accuracy\":0.5}\n{\"client\":{},\"accuracy\":1}\n")
                  .ok());
  const Json run = DataOf({folder / "run"})["runs"][0];
  EXPECT_EQ(run["label"], "run");
  EXPECT_THAT(run["curves"]["train_loss"]["y"], ElementsAre(2.5, 1.25));
  EXPECT_THAT(run["across"]["rounds"], ElementsAre(0, 0));
  EXPECT_EQ(run["accuracy"]["training"]["clients"], 1);
}

TEST(Report, SaysWhichFolderHoldsNoRun) {
  const TemporaryFolder folder;
  EXPECT_THAT(ReportData({folder / "nothing"}).status().ToString(),
              HasSubstr("nothing holds no run"));
}

void WriteSettings(const std::string& folder, const std::string& algorithm, const Json& settings) {
  WriteRun(folder, algorithm, kTwoRounds);
  const Json summary = {{"name", algorithm}, {"algorithm", algorithm}, {"settings", settings},
                        {"seed", 1},         {"end", "finished"},      {"rounds", 2}};
  ASSERT_TRUE(AtomicWriteFile(folder + "/summary.json", summary.dump()).ok());
}

// A default has a value, and a rule without the key has none.
TEST(Report, WhatDiffersHasValues) {
  const TemporaryFolder folder;
  WriteSettings(folder / "a", "fedavg", {{"local.lr", 0.01}});
  WriteSettings(folder / "b", "fedprox", Json::object());
  WriteSettings(folder / "c", "fedprox", {{"local.lr", 0.3}, {"algorithm.fedprox.mu", 0.5}});
  WriteRun(folder / "d", "", kTwoRounds, 1, /*over=*/false);
  const Json differs = DataOf({folder / "d", folder / "a", folder / "b", folder / "c"})["differs"];
  EXPECT_EQ(differs["runs"], Json({1, 2, 3}));
  std::map<std::string, Json> rows;
  for (const Json& row : differs["rows"]) rows[row["key"]] = row["values"];
  EXPECT_EQ(rows["local.lr"], Json({"0.01", "0.1", "0.3"}));
  EXPECT_EQ(rows["algorithm.name"], Json({"fedavg", "fedprox", "fedprox"}));
  const Json mu = rows["algorithm.fedprox.mu"];
  EXPECT_EQ(mu[0], "") << "fedavg has no mu";
  EXPECT_NE(mu[1], "");
  EXPECT_NE(mu[1], "default");
  EXPECT_EQ(mu[2], "0.5");
}

}  // namespace
}  // namespace macaw::cli
