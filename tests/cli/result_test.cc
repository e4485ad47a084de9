#include "cli/results/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/process/line_reader.h"
#include "cli/process/row_reporter.h"
#include "cli/results/ending.h"
#include "cli/simulate/overrides.h"
#include "core/child.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FolderTest : public ::testing::Test {
 protected:
  const testing_support::TemporaryFolder folder_;
  const std::string& path_ = folder_.path();
};

TEST_F(FolderTest, ASummaryBecomesAResult) {
  folder_.Write("summary.json", R"({
    "name": "exp", "algorithm": "scaffold", "settings": {"local.lr": 0.05}, "seed": 3,
    "data_digest": "cd", "end": "finished", "rounds": 60, "seconds": 30.5,
    "rounds_per_second": 2.0, "model_digest": "ab", "rounds_to": {"0.9": 12},
    "left_out": {"clients": 7, "rounds": 2},
    "final": {"test_accuracy": 0.95, "train_loss": 0.25, "text": "no number"},
    "bests": {"test_accuracy": {"value": 0.96, "round": 50}}})");
  const auto result = ReadResult(path_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->algorithm, "scaffold");
  EXPECT_EQ(result->settings.at("local.lr"), "0.05");
  EXPECT_EQ(result->seed, 3u);
  EXPECT_EQ(result->data_digest, "cd");
  EXPECT_TRUE(result->done());
  EXPECT_EQ(result->rounds, 60u);
  EXPECT_EQ(result->final.size(), 2u);
  EXPECT_EQ(result->bests.at("test_accuracy").round, 50u);
  EXPECT_EQ(result->rounds_to.at("0.9"), 12);
  EXPECT_EQ(result->left_out, 7u);
  EXPECT_EQ(result->left_out_rounds, 2u);
  const std::string text = ResultText(*result);
  EXPECT_THAT(text, HasSubstr("60 rounds in 30.5 s (2 rounds/s after the start)"));
  EXPECT_THAT(text, HasSubstr("train_loss 0.2500  test_accuracy 0.9500"));
  EXPECT_THAT(text, HasSubstr(path_ + "/model.safetensors"));
}

TEST_F(FolderTest, AResultSaysThatItsBestModelWasNotKept) {
  const auto text = [&](const std::string& more) {
    folder_.Write("summary.json", absl::StrCat(R"({"end": "finished", "rounds": 20, )", more,
                                               R"("best": {"metric": "test_loss", "round": 16}})"));
    return ResultText(*ReadResult(path_));
  };
  const std::string patience = R"("settings": {"run.stop.patience": 3}, )";
  EXPECT_THAT(text(patience), testing::AllOf(HasSubstr("no model.best.safetensors"),
                                             HasSubstr("round 16"), HasSubstr("test_loss")));
  EXPECT_THAT(text(patience + R"("best_model": {"round": 16}, )"),
              Not(HasSubstr("no model.best.safetensors")));
  EXPECT_THAT(text(""), Not(HasSubstr("no model.best.safetensors")));
}

TEST(ResultText, HasTheMetricsOfTheClientsOwnTestRows) {
  RunResult result;
  result.final = {
      {"test_loss", 0.5}, {"clients_test_accuracy", 0.75}, {"clients_test_accuracy_worst10", 0.1}};
  for (const char* metric : {"test_loss", "clients_test_accuracy"}) result.bests[metric] = {};
  const std::string text = ResultText(result);
  EXPECT_THAT(text, HasSubstr("test_loss 0.5000  clients_test_accuracy 0.7500\n"));
}

// A run of ten classes: guessing gives 0.1.
RunResult Ended(double best, double last) {
  RunResult result{.algorithm = "scaffold", .settings = {{"model.classes", "10"}}};
  result.bests["test_accuracy"] = {.value = best, .round = 12};
  result.final["test_accuracy"] = last;
  return result;
}

TEST(DropsOf, SaysWhenTheLastAccuracyIsFarUnderTheBest) {
  const std::string text = ResultText(Ended(0.9, 0.096));
  EXPECT_THAT(text, HasSubstr("test_accuracy ended at 0.0960"));
  EXPECT_THAT(text, HasSubstr("best of 0.9000 after round 12"));
  EXPECT_THAT(text, HasSubstr("macaw algorithms scaffold"));
}

TEST(DropsOf, CallsAQuarterOfWhatWasGainedOverGuessingFar) {
  EXPECT_EQ(DropsOf(Ended(0.9, 0.701)).size(), 0u);
  EXPECT_EQ(DropsOf(Ended(0.9, 0.699)).size(), 1u);
  EXPECT_EQ(DropsOf(Ended(0.3, 0.1)).size(), 0u) << "it had hardly learnt anything";
  RunResult binary = Ended(0.9, 0.82);
  binary.settings["model.classes"] = "1";
  EXPECT_EQ(DropsOf(binary).size(), 0u);
  binary.final["test_accuracy"] = 0.78;  // guessing gives 0.5
  EXPECT_EQ(DropsOf(binary).size(), 1u);
}

TEST(DropsOf, LooksAtBalancedAccuracyToo) {
  RunResult result = Ended(0.9, 0.85);
  result.bests["val_balanced_accuracy"] = {.value = 0.9, .round = 7};
  result.final["val_balanced_accuracy"] = 0.4;
  const std::vector<Drop> drops = DropsOf(result);
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].metric, "val_balanced_accuracy");
  EXPECT_DOUBLE_EQ(drops[0].guess, 0.1);
}

// Of rows that are nearly all of one class, a model that always says that class is right.
TEST(DropsOf, LetsARunThatChoosesByBalancedAccuracyGiveUpAccuracy) {
  RunResult result = Ended(0.95, 0.6);
  result.bests["test_balanced_accuracy"] = {.value = 0.7, .round = 60};
  result.final["test_balanced_accuracy"] = 0.7;
  EXPECT_EQ(DropsOf(result).size(), 1u);
  for (const char* metric : {"test_balanced_accuracy", "clients_test_balanced_accuracy_mean"}) {
    result.best_metric = metric;
    EXPECT_EQ(DropsOf(result).size(), 0u) << metric;
  }
  result.final["test_balanced_accuracy"] = 0.3;
  ASSERT_EQ(DropsOf(result).size(), 1u);
  EXPECT_EQ(DropsOf(result)[0].metric, "test_balanced_accuracy");
}

TEST_F(FolderTest, ABrokenSummaryIsAnError) {
  EXPECT_FALSE(ReadResult(path_).ok());
  ASSERT_TRUE(AtomicWriteFile(path_ + "/summary.json", "{\"rounds\": ").ok());
  EXPECT_THAT(std::string(ReadResult(path_).status().message()), HasSubstr("summary.json"));
}

TEST(Overrides, FollowTheOrderOfTheCommandLineAndTheSource) {
  SimulateOptions options;
  options.set = {"local.lr=1"};
  options.clients = "50";
  options.rounds = "x";
  const auto of = [](const char* source) {
    return *ParseDocument(absl::StrCat("[data]\nsource = \"", source, "\"\n"), "f.toml", "/");
  };
  const auto generated = OverridesOf(options, of("synthetic"));
  ASSERT_TRUE(generated.ok());
  ASSERT_EQ(generated->size(), 3u);
  EXPECT_EQ((*generated)[1].key, "data.synthetic.clients");
  EXPECT_EQ((*generated)[2].place, "--rounds x");
  EXPECT_EQ((*OverridesOf(options, of("idx")))[1].key, "partition.clients");
}

TEST(Overrides, HaveAShortFormForTheSeed) {
  SimulateOptions options;
  options.seed = "12";
  const auto overrides = OverridesOf(options, Document());
  ASSERT_EQ(overrides->size(), 1u);
  EXPECT_EQ(overrides->front().key, "run.seed");
  EXPECT_EQ(overrides->front().value, "12");
}

TEST(Overrides, OfAResumedRunMayOnlyChangeWhereItIsComputed) {
  const absl::StatusOr<Document> run = ParseDocument(
      "[run]\nrounds = 7\n[data]\nsource = \"synthetic\"\nseed = 5\n[model]\n"
      "name = \"logistic\"\n[cohort]\nsize = 10\n[algorithm]\nname = \"fedprox\"\n"
      "[algorithm.fedprox]\nmu = 0.5\n[local]\nlr = 0.3\n",
      "config.toml", "/runs/mine");
  ASSERT_TRUE(run.ok()) << run.status();
  const sdk::Catalogue catalogue = sdk::Catalogue::Builtins();
  const auto check = [&](const std::string& key, const std::string& value = "2") {
    return CheckResumable({{key, value, absl::StrCat("--set ", key, "=", value)}}, *run, catalogue);
  };
  for (const char* key : {"workers.processes", "workers.slots", "run.rounds",
                          "server.lease_timeout", "server.durability"}) {
    EXPECT_TRUE(check(key).ok()) << key;
  }
  for (const char* key :
       {"local.lr", "run.seed", "model.name", "evaluation.chunk", "algorithm.fedprox.mu"}) {
    EXPECT_THAT(std::string(check(key).message()), HasSubstr(absl::StrCat("--set ", key, "=2: ")))
        << key;
  }
  // Not a change: the value that the run has, given or by default.
  for (const auto& [key, value] : {std::pair{"local.lr", "0.3"},
                                   {"run.seed", "0"},
                                   {"data.seed", "5"},
                                   {"model.name", "logistic"},
                                   {"algorithm.fedprox.mu", "0.5"},
                                   {"algorithm.name", "fedprox"},
                                   {"local.batch_size", "10"},
                                   {"local", "{lr = 0.3}"}}) {
    EXPECT_TRUE(check(key, value).ok()) << check(key, value);
  }
  EXPECT_FALSE(check("algorithm.name", "fedavg").ok());
  EXPECT_FALSE(check("local", "{lr = 0.3, momentum = 0.5}").ok());
}

TEST(Overrides, OfARunInVirtualTimeKeepWhatClosesItsRounds) {
  const auto check = [](const std::string& devices) {
    const absl::StatusOr<Document> run = ParseDocument(
        "[data]\nsource = \"synthetic\"\n[model]\nname = \"logistic\"\n[cohort]\nsize = 10\n" +
            devices,
        "config.toml", "/runs/mine");
    EXPECT_TRUE(run.ok()) << run.status();
    return CheckResumable({{"round.enough", "3", "--set round.enough=3"}}, *run,
                          sdk::Catalogue::Builtins());
  };
  EXPECT_TRUE(check("").ok()) << check("");
  EXPECT_THAT(std::string(check("[devices]\nfamily = \"phones\"\n").message()),
              HasSubstr("--set round.enough=3: a run that goes on keeps its round.enough"));
}

TEST_F(FolderTest, ARunHasEndedUnlessARowIsNewerThanItsSummary) {
  EXPECT_FALSE(HasEnded(path_));
  EXPECT_THAT(NotEndedText(path_), HasSubstr("no summary.json: the run is not over"));
  folder_.Write("summary.json", R"({"rounds": 2})");
  EXPECT_TRUE(HasEnded(path_)) << "there are no rows";
  folder_.Write("metrics.jsonl", "{\"round\":1}\n{\"round\":2}\n");
  EXPECT_TRUE(HasEnded(path_));
  folder_.Write("metrics.jsonl", "{\"round\":1}\n{\"round\":2}\n{\"round\":3,\"los");
  EXPECT_TRUE(HasEnded(path_)) << "no whole row is newer";
  folder_.Write("metrics.jsonl", "{\"round\":1}\n{\"round\":2}\n{\"round\":3}\n{\"round\":");
  EXPECT_FALSE(HasEnded(path_));
  EXPECT_THAT(NotEndedText(path_), HasSubstr("summary.json of round 2 and rows up to round 3"));
  folder_.Write("summary.json", R"({"rounds": 3, "final_round": 2})");
  EXPECT_FALSE(HasEnded(path_)) << "it lacked the row of round 3, and a resume has written it";
  folder_.Write("summary.json", R"({"rounds": 3})");
  EXPECT_TRUE(HasEnded(path_));
  // The last row is found also where it is longer than what is read at first.
  const std::string long_text(200'000, 'x');
  folder_.Write("metrics.jsonl",
                absl::StrCat("{\"round\":3}\n{\"round\":4,\"text\":\"", long_text, "\"}\n"));
  EXPECT_EQ(LastRow(path_), 4u);
  folder_.Write("metrics.jsonl", absl::StrCat("{\"round\":3}\n{\"text\":\"", long_text));
  EXPECT_EQ(LastRow(path_), 3u);
  folder_.Write("summary.json", "no JSON");
  EXPECT_TRUE(HasEnded(path_)) << "its reader says what is wrong";
}

TEST(RowReporter, NeverBlocksAndDeliversWholeLines) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  RowReporter reporter(pipe->write.get());
  const std::string row(5000, 'x');
  for (int i = 0; i < 100; ++i)
    reporter.Report(row);  // 500 kB into a pipe of 64 kB: would block for ever
  LineReader reader;
  size_t lines = 0;
  while (lines < 100) {
    for (const std::string& line : reader.Read(pipe->read.get())) {
      if (line.empty()) continue;
      EXPECT_EQ(line, row);
      ++lines;
    }
    reporter.Report("");  // pushes what is left
  }
  EXPECT_EQ(lines, 100u);
}

TEST(RowReporter, GivesTheLastRowsToAReaderThatIsBehind) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  RowReporter reporter(pipe->write.get());
  for (int i = 0; i < 100; ++i) reporter.Report(std::string(5000, 'x'));
  size_t lines = 0;
  std::thread behind([&] {
    LineReader reader;
    while (!reader.ended()) lines += reader.Read(pipe->read.get()).size();
  });
  reporter.Finish(std::chrono::minutes(1));
  pipe->write.Close();
  behind.join();
  EXPECT_EQ(lines, 100u);
}

TEST(RowReporter, DoesNotWaitForAReaderThatTakesNothing) {
  ::signal(SIGPIPE, SIG_IGN);
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  RowReporter reporter(pipe->write.get());
  for (int i = 0; i < 100; ++i) reporter.Report(std::string(5000, 'x'));
  reporter.Finish(std::chrono::milliseconds(1));
  pipe->read.Close();
  reporter.Finish(std::chrono::hours(1));  // it is gone
}

TEST(ResultText, SaysHowManyTurnsDidNotCountAndWhereToLook) {
  RunResult result;
  result.folder = "runs/my exp";
  result.rounds = 60;
  EXPECT_THAT(ResultText(result), Not(HasSubstr("left out")));
  result.left_out = 12;
  result.left_out_rounds = 4;
  EXPECT_THAT(ResultText(result), testing::AllOf(HasSubstr("12 turns"), HasSubstr("4 rounds of 60"),
                                                 HasSubstr("macaw log 'runs/my exp'`")));
}

TEST(ResultText, WarnsOfSumsThatAreTooCoarse) {
  RunResult result;
  result.rounds = 60;
  EXPECT_THAT(ResultText(result), Not(HasSubstr("contribution_bound")));
  result.coarse_rounds = 4;
  EXPECT_THAT(ResultText(result),
              testing::AllOf(HasSubstr("warning    In 4 rounds of 60"),
                             HasSubstr("Set a smaller run.contribution_bound")));
}

TEST(RowReporter, PassesAWarningOnThatIsNoRow) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  RowReporter reporter(pipe->write.get());
  reporter.Report(R"({"round":3})");
  reporter.Warn("no room in \"runs/exp\"");
  LineReader reader;
  const std::vector<std::string> lines = reader.Read(pipe->read.get());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(WarningIn(lines[0]), "");
  EXPECT_EQ(WarningIn(lines[1]), "no room in \"runs/exp\"");
  EXPECT_EQ(WarningIn("torn {"), "");
}

TEST_F(FolderTest, ASummaryReportsTestValuesWhereValidationRowsHaveChosen) {
  folder_.Write("summary.json", R"({
    "end": "stopped", "rounds": 9, "final": {"val_accuracy": 0.7, "test_accuracy": 0.65},
    "best": {"metric": "val_accuracy", "value": 0.8, "round": 6, "rows": "validation",
             "report": {"test_accuracy": 0.75}},
    "bests": {"val_accuracy": {"value": 0.8, "round": 6, "report": {"test_accuracy": 0.75}},
              "test_accuracy": {"value": 0.76, "round": 7}}})");
  const auto result = ReadResult(path_);
  ASSERT_TRUE(result.ok()) << result.status();
  const std::map<std::string, double> values = ValuesOf(*result);
  EXPECT_EQ(values.at("best_val_accuracy"), 0.8);
  EXPECT_EQ(values.at("test_accuracy_at_best_val_accuracy"), 0.75);
  EXPECT_FALSE(values.contains("test_accuracy_at_best_test_accuracy"));
  EXPECT_THAT(ResultText(*result),
              HasSubstr("val_accuracy 0.8000 in round 6, with  test_accuracy 0.7500"));
}

TEST(TestRows, ChooseWhereAMetricIsTheirs) {
  for (const char* metric : {"test_accuracy", "best_test_loss", "clients_test_accuracy"})
    EXPECT_TRUE(ChoosesByTestRows(metric)) << metric;
  for (const char* metric : {"val_accuracy", "best_clients_val_loss", "train_loss", "seconds",
                             "test_accuracy_at_best_val_accuracy"})
    EXPECT_FALSE(ChoosesByTestRows(metric)) << metric;
}

}  // namespace
}  // namespace macaw::cli
