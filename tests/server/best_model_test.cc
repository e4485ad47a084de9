#include "server/best_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"
#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using fixtures::FakeWorker;
using fixtures::Slurp;
using fixtures::StartTiny;
using fixtures::TinyLayout;
using fixtures::TinyOptions;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

const std::vector<double> kAccuracies = {0.2, 0.4, 0.9, 0.3, 0.5, 0.6, 0.7};
constexpr uint32_t kBest = 3;  // round

struct Course {
  std::vector<uint32_t> interruptions = {};
  uint32_t checkpoint_every = 1;
  bool validates = false;  // these accuracies are those of validation rows
};

// Returns how the run ended.
Outcome RunCourse(const std::string& run_dir, uint32_t rounds, const StopRule& rule,
                  const Course& course = {}) {
  Options options = TinyOptions(run_dir, rounds);
  options.config.stop = rule;
  options.config.checkpoint_every = course.checkpoint_every;
  Outcome last;
  for (size_t session = 0; session <= course.interruptions.size(); ++session) {
    const auto coordinator = StartTiny(options);
    if (coordinator == nullptr) return last;
    FakeWorker worker(*coordinator);
    const auto accuracy = [](Round round) { return kAccuracies.at(round.value - 1); };
    const auto other = [](Round round) { return 0.1 * round.value; };
    if (course.validates) worker.identity().central_val_rows = 12;
    worker.accuracy = course.validates ? std::function<double(Round)>(other) : accuracy;
    worker.val_accuracy = accuracy;
    EXPECT_TRUE(worker.Register().ok());
    if (session < course.interruptions.size()) {
      worker.RunThrough(course.interruptions[session]);
      coordinator->Interrupt();
      while (worker.Work().has_value()) {
      }
    } else {
      worker.RunToEnd();
    }
    const auto outcome = coordinator->Wait();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    if (outcome.ok()) last = *outcome;
    options.resume = true;
  }
  return last;
}

Json SummaryOf(const std::string& run_dir) { return Json::parse(Slurp(run_dir + "/summary.json")); }

Digest DigestAt(const std::string& path) {
  const auto model = ReadModel(path, TinyLayout());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? DigestOfValues(model->view()) : Digest();
}

TEST(BestModel, IsKeptBesideTheLastOne) {
  const TemporaryFolder at_best, folder;
  RunCourse(at_best.path(), kBest, {});  // whose last model is that of the best round
  const Outcome outcome = RunCourse(folder.path(), 7, {.metric = "test_accuracy", .patience = 3});
  EXPECT_EQ(outcome.rounds, 6u);
  const Json summary = SummaryOf(folder.path());
  EXPECT_EQ(summary["best_model"]["round"], kBest);
  EXPECT_EQ(summary["best_model"]["metric"], "test_accuracy");
  EXPECT_EQ(summary["best_model"]["file"], "model.best.safetensors");
  const Digest best = DigestAt(folder / "model.best.safetensors");
  EXPECT_EQ(best, DigestAt(at_best / "model.safetensors"));
  EXPECT_EQ(summary["best_model"]["model_digest"], best.Hex());
  EXPECT_NE(best, DigestAt(folder / "model.safetensors"));
}

TEST(BestModel, IsTheSameAfterInterruptions) {
  const TemporaryFolder whole;
  const StopRule rule{.metric = "test_accuracy", .patience = 3};
  RunCourse(whole.path(), 7, rule);
  const Digest best = DigestAt(whole / "model.best.safetensors");
  const std::vector<Course> courses = {{{1}},       {{2}},       {{3}},    {{4}},     {{5}},
                                       {{2, 3, 4}}, {{3, 5}, 2}, {{4}, 3}, {{5}, 100}};
  for (size_t i = 0; i < courses.size(); ++i) {
    const TemporaryFolder parts;
    EXPECT_EQ(RunCourse(parts.path(), 7, rule, courses[i]).rounds, 6u) << i;
    EXPECT_EQ(DigestAt(parts / "model.best.safetensors"), best) << i;
    EXPECT_EQ(SummaryOf(parts.path())["best_model"]["round"], kBest) << i;
  }
}

TEST(BestModel, OfARunThatIsInterruptedIsTheBestSoFar) {
  const TemporaryFolder folder, at_two;
  RunCourse(at_two.path(), 2, {});
  Options options = TinyOptions(folder.path(), 7);
  options.config.stop = {.metric = "test_accuracy", .patience = 5};
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  worker.accuracy = [](Round round) { return round.value == 2 ? 0.9 : 0.1; };
  ASSERT_TRUE(worker.Register().ok());
  worker.RunThrough(4);
  coordinator->Interrupt();
  while (worker.Work().has_value()) {
  }
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(SummaryOf(folder.path())["best_model"]["round"], 2);
  EXPECT_EQ(DigestAt(folder / "model.best.safetensors"), DigestAt(at_two / "model.safetensors"));
}

TEST(BestModel, TakesNoMoreRoomThanTheCheckpointsNeed) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 7);
  options.config.stop = {.metric = "test_accuracy", .patience = 5};
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  worker.accuracy = [](Round round) { return 0.1 * round.value; };  // every round is the best
  ASSERT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints"))
    files += entry.path().filename().string().starts_with("best-") ? 1 : 0;
  EXPECT_LE(files, 3u);
  EXPECT_EQ(SummaryOf(folder.path())["best_model"]["round"], 7);
  EXPECT_EQ(DigestAt(folder / "model.best.safetensors"), DigestAt(folder / "model.safetensors"));
}

// The last round is evaluated although evaluation.every does not ask for it. A resume to more
// rounds does not count it, and the best model on the grid is still there.
TEST(BestModel, OfALastRoundOffTheGridTakesThePlaceOfNone) {
  const TemporaryFolder at_four, at_six;
  RunCourse(at_four.path(), 4, {});
  RunCourse(at_six.path(), 6, {});
  for (const uint32_t checkpoint_every : {1U, 2U, 100U}) {
    const TemporaryFolder folder;
    const auto run = [&](uint32_t rounds, bool resume) {
      Options options = TinyOptions(folder.path(), rounds);
      options.run.evaluation.every = 4;
      options.config.stop = {.metric = "test_accuracy", .patience = 2};
      options.config.checkpoint_every = checkpoint_every;
      options.resume = resume;
      const auto coordinator = StartTiny(options);
      ASSERT_NE(coordinator, nullptr);
      FakeWorker worker(*coordinator);
      worker.accuracy = [](Round round) { return round.value == 6 ? 0.9 : 1.0 / round.value; };
      ASSERT_TRUE(worker.Register().ok());
      worker.RunToEnd();
      ASSERT_TRUE(coordinator->Wait().ok());
    };
    const auto expect_best = [&](uint32_t round, const TemporaryFolder& model) {
      const Json summary = SummaryOf(folder.path());
      EXPECT_EQ(summary["best_model"]["round"], round) << checkpoint_every;
      EXPECT_EQ(summary["best"]["round"], round) << checkpoint_every;
      EXPECT_EQ(summary["bests"]["test_accuracy"]["round"], round) << checkpoint_every;
      EXPECT_EQ(DigestAt(folder / "model.best.safetensors"), DigestAt(model / "model.safetensors"));
    };
    run(6, false);
    expect_best(6, at_six);
    EXPECT_EQ(SummaryOf(folder.path())["rounds_to"]["0.8"], 6);
    run(9, true);
    expect_best(4, at_four);
    const Json summary = SummaryOf(folder.path());
    EXPECT_EQ(summary["rounds_to"], Json::object()) << "as in a run without a stop";
    EXPECT_EQ(summary["bytes_to"], Json::object());
  }
}

TEST(BestModel, IsThatOfTheRoundThatReachedTheMark) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.85, .patience = 3};
  EXPECT_EQ(RunCourse(folder.path(), 7, rule).rounds, kBest);
  const Json summary = SummaryOf(folder.path());
  EXPECT_EQ(summary["best_model"]["round"], kBest);
  EXPECT_EQ(summary["best"]["round"], kBest);
  EXPECT_EQ(DigestAt(folder / "model.best.safetensors"), DigestAt(folder / "model.safetensors"));
}

TEST(BestModel, IsNotKeptWithoutPatience) {
  const TemporaryFolder folder;
  RunCourse(folder.path(), 3, {.metric = "test_accuracy", .at_least = 0.95});
  EXPECT_FALSE(SummaryOf(folder.path()).contains("best_model"));
  EXPECT_FALSE(fs::exists(folder / "model.best.safetensors"));
}

// Where the node has a central validation set, it chooses, and the test value is reported beside.
TEST(BestRound, IsChosenByValidationRowsAndReportsTheTestValueThere) {
  const TemporaryFolder folder;
  RunCourse(folder.path(), 7, {}, {.validates = true});
  const Json summary = SummaryOf(folder.path());
  EXPECT_EQ(summary["best"]["metric"], "val_accuracy");
  EXPECT_EQ(summary["best"]["rows"], "validation");
  EXPECT_EQ(summary["best"]["round"], kBest);
  EXPECT_NEAR(summary["best"]["report"]["test_accuracy"], 0.3, 1e-12);
  EXPECT_NEAR(summary["bests"]["val_accuracy"]["report"]["test_accuracy"], 0.3, 1e-12);
  EXPECT_EQ(summary["bests"]["test_accuracy"]["round"], 7);
  EXPECT_FALSE(summary["bests"]["test_accuracy"].contains("report"));
  EXPECT_NEAR(summary["final"]["val_accuracy"], 0.7, 1e-12);
}

TEST(BestRound, SaysWhenTestRowsHaveChosenIt) {
  const TemporaryFolder folder;
  RunCourse(folder.path(), 4, {});
  EXPECT_EQ(SummaryOf(folder.path())["best"]["rows"], "test");
  EXPECT_FALSE(SummaryOf(folder.path())["best"].contains("report"));
}

TEST(CentralValidationSet, OfAnotherSizeIsRefused) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.config.workers = 2;
  const auto coordinator = StartTiny(options);
  FakeWorker one(*coordinator, "one"), two(*coordinator, "two");
  one.identity().central_val_rows = 12;
  ASSERT_TRUE(one.Register().ok());
  two.identity().central_val_rows = 13;
  EXPECT_THAT(two.Register().status().ToString(), testing::HasSubstr("validation set"));
}

}  // namespace
}  // namespace macaw::server
