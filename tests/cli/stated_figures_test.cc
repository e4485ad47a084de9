#include "cli/verify/stated_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing_support::TemporaryFolder;
using Rows = std::map<uint32_t, MetricsRow>;

constexpr char kDigest[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
constexpr char kOther[] = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

class Figures : public ::testing::Test {
 protected:
  static json Summary() {
    return {{"name", "a"},
            {"rounds", 3},
            {"seconds", 1.5},
            {"model_digest", kDigest},
            {"final", {{"train_loss", 0.25}, {"test_accuracy", 0.75}}},
            {"best", {{"metric", "test_accuracy"}, {"value", 0.75}, {"round", 3}}},
            {"bests", {{"test_accuracy", {{"value", 0.75}, {"round", 3}}}}},
            {"rounds_to", {{"0.5", 2}}},
            {"bytes", {{"up", 30}, {"down", 60}}},
            {"left_out", {{"clients", 0}, {"rounds", 0}}},
            {"privacy", {{"epsilon", 2.5}, {"delta", 1e-5}, {"rounds", 3}}}};
  }

  // The first difference as "file: key"; "": none.
  std::string Compared(double tolerance = 0) {
    files_["summary.json"] = stated_.dump();
    folder_.Write("again/summary.json", made_.dump());
    auto report = CompareFigures({.files = files_,
                                  .rows = stated_rows_,
                                  .rounds = manifest_rounds_,
                                  .model_digest = manifest_digest_,
                                  .ended_by_itself = by_itself_},
                                 folder_ / "again", made_rows_,
                                 {.tolerance = tolerance, .same_model = same_model_});
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return "error";
    report_ = *std::move(report);
    return report_.difference.has_value()
               ? report_.difference->file + ": " + report_.difference->key
               : "";
  }

  const TemporaryFolder folder_;
  json stated_ = Summary(), made_ = Summary();
  std::map<std::string, std::string> files_;
  Rows stated_rows_, made_rows_;
  uint32_t manifest_rounds_ = 3;
  std::string manifest_digest_ = kDigest;
  bool by_itself_ = true, same_model_ = false;
  FigureReport report_;
};

TEST_F(Figures, AreTheSameWhateverMachineAndClockSay) {
  made_["seconds"] = 9;
  made_["name"] = "b";
  EXPECT_EQ(Compared(), "");
  EXPECT_THAT(report_.not_compared, Contains(HasSubstr("times, memory")));
}

// Under another profile a model has metrics with other last bits, and is the same model.
TEST_F(Figures, OfTheSameModelAreNearAndWhatFollowsFromThemIsExact) {
  same_model_ = true;
  made_["final"]["train_loss"] = 0.25 + 1e-8;
  EXPECT_EQ(Compared(1e-5), "");
  made_["rounds_to"]["0.5"] = 1;
  EXPECT_EQ(Compared(1e-5), "summary.json: rounds_to.0.5");
  made_ = Summary();
  made_["bests"]["test_accuracy"]["round"] = 2;
  EXPECT_EQ(Compared(1e-5), "summary.json: bests.test_accuracy.round");
  made_ = Summary();
  made_["model_digest"] = kOther;
  EXPECT_EQ(Compared(1e-5), "summary.json: model_digest");
}

TEST_F(Figures, ThatWereEditedAreNamedWithBothValues) {
  stated_["final"]["test_accuracy"] = 0.99;
  EXPECT_EQ(Compared(), "summary.json: final.test_accuracy");
  EXPECT_EQ(report_.difference->stated, "0.99");
  EXPECT_EQ(report_.difference->made, "0.75");
  stated_ = Summary();
  stated_["privacy"]["epsilon"] = 0.5;
  EXPECT_EQ(Compared(), "summary.json: privacy.epsilon");
  EXPECT_EQ(Compared(0.02), "summary.json: privacy.epsilon");
  stated_ = Summary();
  stated_["bests"]["val_accuracy"] = {{"value", 1}, {"round", 1}};
  EXPECT_EQ(Compared(), "summary.json: bests.val_accuracy");
  EXPECT_EQ(report_.difference->made, "nothing");
  stated_ = Summary();
  manifest_digest_ = kOther;
  EXPECT_EQ(Compared(), "bundle.json: run.model_digest");
  manifest_digest_ = kDigest;
  manifest_rounds_ = 4;
  EXPECT_EQ(Compared(), "bundle.json: run.rounds");
  EXPECT_EQ(Compared(0.02), "bundle.json: run.rounds");
}

TEST_F(Figures, ThatAnEarlierReleaseDidNotStateAreNoDifference) {
  stated_.erase("bests");
  stated_.erase("left_out");
  EXPECT_EQ(Compared(), "");
}

TEST_F(Figures, AgreeWithinAToleranceAndCountsExactly) {
  made_["final"]["test_accuracy"] = 0.76;
  made_["model_digest"] = kOther;
  made_["bests"]["test_accuracy"] = {{"value", 0.76}, {"round", 2}};
  made_["rounds_to"]["0.5"] = 1;
  EXPECT_EQ(Compared(0.02), "");
  EXPECT_THAT(report_.not_compared, Contains(HasSubstr("digests")));
  made_["left_out"]["clients"] = 1;
  EXPECT_EQ(Compared(10), "summary.json: left_out.clients");
}

TEST_F(Figures, OfTablesAreCompared) {
  files_["confusion.json"] = R"({"round":3,"test":{"rows":100,"confusion":[[50,1],[2,47]]}})";
  EXPECT_EQ(Compared(), "confusion.json: the file");
  folder_.Write("again/confusion.json", files_["confusion.json"]);
  files_["contributions.jsonl"] = "{\"round\":2,\"client\":[4,5],\"cosine\":[0.5,0.25]}\n";
  folder_.Write("again/contributions.jsonl", files_["contributions.jsonl"]);
  files_["clients.jsonl"] = "{\"round\":1,\"client\":4,\"loss\":1}\n";
  folder_.Write("again/clients.jsonl", files_["clients.jsonl"]);
  files_["figures/a.svg"] = "x";
  EXPECT_EQ(Compared(), "");
  EXPECT_THAT(report_.not_compared, Contains("figures/a.svg"));
  folder_.Write("again/confusion.json",
                R"({"round":3,"test":{"rows":100,"confusion":[[50,1],[3,46]]}})");
  EXPECT_EQ(Compared(), "confusion.json: test.confusion[1][0]");
  EXPECT_EQ(Compared(0.02), "") << "1 of 100 rows";
  folder_.Write("again/confusion.json", files_["confusion.json"]);
  folder_.Write("again/contributions.jsonl",
                "{\"round\":2,\"client\":[4,5],\"cosine\":[0.5,0.75]}\n");
  EXPECT_EQ(Compared(), "contributions.jsonl: round 2.cosine[1]");
  folder_.Write("again/contributions.jsonl", files_["contributions.jsonl"]);
  folder_.Write("again/clients.jsonl",
                files_["clients.jsonl"] + "{\"round\":1,\"client\":5,\"loss\":1}\n");
  EXPECT_EQ(Compared(), "clients.jsonl: round 1, client 5");
  EXPECT_EQ(report_.difference->stated, "nothing");
}

// It was cut after round 3, whose model it has not evaluated.
TEST_F(Figures, OfARunThatWasCutAreThoseOfItsRows) {
  by_itself_ = false;
  stated_rows_ = {{2, {{"train_loss", 0.5}, {"test_accuracy", 0.5}, {"bytes_up", 20}}},
                  {3, {{"train_loss", 0.25}, {"bytes_up", 10}}}};
  made_rows_ = stated_rows_;
  made_rows_[3]["test_accuracy"] = 0.75;
  stated_["final"] = {{"train_loss", 0.25}, {"test_accuracy", 0.5}};
  stated_["best"] = {{"metric", "test_accuracy"}, {"value", 0.5}, {"round", 2}};
  stated_["bests"] = {{"test_accuracy", {{"value", 0.5}, {"round", 2}}}};
  stated_["bytes"] = {{"up", 30}, {"down", 0}};
  files_["confusion.json"] = R"({"round":2})";
  folder_.Write("again/confusion.json", R"({"round":3})");
  EXPECT_EQ(Compared(), "");
  EXPECT_THAT(report_.not_compared, Contains(HasSubstr("confusion.json (of round 2")));
  stated_["bests"]["test_accuracy"]["value"] = 0.75;
  EXPECT_EQ(Compared(), "summary.json: bests.test_accuracy.value");
  stated_["bests"]["test_accuracy"]["value"] = 0.5;
  stated_["final"]["test_accuracy"] = 0.75;
  EXPECT_EQ(Compared(), "summary.json: final.test_accuracy");
  // It may lack its last row.
  stated_["final"] = {{"train_loss", 0.5}, {"test_accuracy", 0.5}};
  stated_["bytes"]["up"] = 20;
  stated_["final_round"] = 2;
  stated_rows_.erase(3);
  EXPECT_EQ(Compared(), "");
  stated_["final_round"] = 1;
  EXPECT_EQ(Compared(), "summary.json: final_round");
}

// Its best model is that of round 2. The run made again has evaluated round 3, which is better.
TEST_F(Figures, OfARunThatWasCutHaveABestModelOfItsEvaluations) {
  by_itself_ = false;
  stated_rows_ = {{2, {{"train_loss", 0.5}, {"test_accuracy", 0.5}}}, {3, {{"train_loss", 0.25}}}};
  made_rows_ = stated_rows_;
  made_rows_[3]["test_accuracy"] = 0.75;
  stated_["final"] = {{"train_loss", 0.25}, {"test_accuracy", 0.5}};
  stated_["best"] = {{"metric", "test_accuracy"}, {"value", 0.5}, {"round", 2}};
  stated_["bests"] = {{"test_accuracy", {{"value", 0.5}, {"round", 2}}}};
  stated_["bytes"] = {{"up", 0}, {"down", 0}};
  stated_["best_model"] = {{"metric", "test_accuracy"}, {"round", 2}, {"model_digest", kOther}};
  made_["best_model"] = {{"metric", "test_accuracy"}, {"round", 3}, {"model_digest", kDigest}};
  EXPECT_EQ(Compared(), "");
  EXPECT_THAT(report_.not_compared, Contains("summary.json: best_model"));
  // Had the run evaluated round 3, that were its best.
  stated_rows_[3]["test_accuracy"] = 0.75;
  stated_["final"]["test_accuracy"] = 0.75;
  stated_["best"] = made_["best"];
  stated_["bests"] = made_["bests"];
  EXPECT_EQ(Compared(), "summary.json: best_model.model_digest");
}

// Without an evaluation the best round is one of training. The run made again has evaluated its
// last model.
TEST_F(Figures, OfARunThatWasCutBeforeItsFirstEvaluationAreOfItsTraining) {
  by_itself_ = false;
  stated_rows_ = {
      {1, {{"train_loss", 0.75}}}, {2, {{"train_loss", 0.25}}}, {3, {{"train_loss", 0.5}}}};
  made_rows_ = stated_rows_;
  made_rows_[3]["test_accuracy"] = 0.75;
  stated_["final"] = {{"train_loss", 0.5}};
  made_["final"] = {{"train_loss", 0.5}, {"test_accuracy", 0.75}};
  stated_["best"] = {{"metric", "train_loss"}, {"value", 0.25}, {"round", 2}, {"rows", "training"}};
  stated_["bests"] = stated_["rounds_to"] = json::object();
  stated_["bytes"] = {{"up", 0}, {"down", 0}};
  EXPECT_EQ(Compared(), "");
  stated_["best"]["value"] = 0.125;
  EXPECT_EQ(Compared(), "summary.json: best.value");
  stated_["best"]["value"] = 0.25;
  for (const uint64_t round : {uint64_t{3}, (uint64_t{1} << 32) + 2}) {
    stated_["best"]["round"] = round;
    EXPECT_EQ(Compared(), "summary.json: best.round");
  }
  stated_["best"]["round"] = 2;
  stated_["best"]["rows"] = "test";
  EXPECT_EQ(Compared(), "summary.json: best.rows");
  // A column that the bundle has is no excuse.
  stated_rows_[2]["test_accuracy"] = made_rows_[2]["test_accuracy"] = 0.5;
  stated_["best"]["rows"] = "training";
  EXPECT_NE(Compared(), "");
}

TEST_F(Figures, InAFileThatIsNoJsonAreAnError) {
  files_["confusion.json"] = "[";
  files_["summary.json"] = stated_.dump();
  folder_.Write("again/summary.json", made_.dump());
  const auto report =
      CompareFigures({.files = files_, .rows = stated_rows_, .rounds = 3, .model_digest = kDigest},
                     folder_ / "again", made_rows_, {});
  EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("confusion.json"));
}

}  // namespace
}  // namespace macaw::cli
