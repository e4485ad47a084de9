// `macaw data` and a run on a table of people's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::TemporaryFolder;

constexpr char kExamples[] = MACAW_SOURCE_DIR "/examples";

TEST(Data, ATableWithUsersAndWordsTrainsPerUserInFiveLines) {
  const std::string config = absl::StrCat(kExamples, "/csv.toml");
  const auto text = ReadFile(config);
  ASSERT_TRUE(text.ok());
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty()))
    lines += line.front() == '#' ? 0 : 1;
  EXPECT_LE(lines, 5);
  Simulation run("csv", {config});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("30 clients"));
  EXPECT_GT(run.summary()["final"]["test_accuracy"].get<double>(), 0.85) << run.output();
  const auto written = ReadFile(run.folder() + "/config.toml");
  ASSERT_TRUE(written.ok());
  EXPECT_THAT(*written, HasSubstr(R"(class_names = ["cycling", "running", "sitting", "walking"])"));
}

TEST(Data, InfoShowsUsersClassesAndColumnsOfAConfigurationAndOfTheTableItself) {
  const Printed configured = RunMacaw(absl::StrCat("data info ", kExamples, "/csv.toml"));
  EXPECT_EQ(configured.exit, 0) << configured.text;
  const Printed bare = RunMacaw(
      absl::StrCat("data info ", kExamples, "/data/activity.csv --set data.client_column=user"));
  EXPECT_EQ(bare.exit, 0) << bare.text;
  EXPECT_EQ(bare.text, configured.text);
  EXPECT_THAT(bare.text, AllOf(HasSubstr("cycling, running, sitting, walking"),
                               HasSubstr("heart_rate, step_rate"), HasSubstr("x, as stored")));
}

TEST(Data, InfoTakesWhatItCanTellAndSaysWhatItNeedsOtherwise) {
  const Printed mnist = RunMacaw(absl::StrCat("data info ", kExamples, "/data/mnist"));
  EXPECT_EQ(mnist.exit, 0) << mnist.text;
  EXPECT_THAT(mnist.text, AllOf(HasSubstr("10 classes"), HasSubstr("x / 255")));
  const Printed table = RunMacaw(absl::StrCat("data info ", kExamples, "/data/activity.csv"));
  EXPECT_EQ(table.exit, 2);
  EXPECT_THAT(table.text, HasSubstr("data.client_column = \"user\""));
  const Printed script = RunMacaw(absl::StrCat("data info ", kExamples, "/data/activity.py"));
  EXPECT_EQ(script.exit, 2);
  const Printed missing = RunMacaw("data info /nope");
  EXPECT_NE(missing.exit, 0);
  EXPECT_THAT(missing.text, HasSubstr("/nope does not exist"));
}

TEST(Data, InfoShowsTheNormalisationInEffectAndSoDoesARun) {
  const Printed info = RunMacaw(absl::StrCat("data info ", kExamples,
                                             "/quickstart.toml --set data.normalise.mean=[0.1307] "
                                             "--set data.normalise.std=[0.3081]"));
  EXPECT_THAT(info.text, HasSubstr("(x / 255 - 0.1307) / 0.3081"));
  Simulation run("normalised",
                 {testing_support::WriteConfig("n"), "--set", "data.normalise.mean=[0.1307]",
                  "--set", "data.normalise.std=[0.3081]"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("(x / 255 - 0.1307) / 0.3081"));
  const auto written = ReadFile(run.folder() + "/config.toml");
  ASSERT_TRUE(written.ok());
  EXPECT_THAT(*written, HasSubstr("scale = 0.00392156862745098"));
}

// With a rate that moves nothing, training rates every row once, as evaluation does.
TEST(Data, AClientsNoiseIsInTrainingAndInEvaluation) {
  for (const char* backend : {"fused", "torch"}) {
    Simulation run(backend, {testing_support::WriteConfig("noise"), "--rounds", "1", "--set",
                             "data.client_noise=3", "--set", "model.name=logistic", "--set",
                             "partition.clients=20", "--set", "cohort.size=20", "--set",
                             "local.lr=1e-12", "--set", "evaluation.splits=[\"train\"]", "--set",
                             absl::StrCat("workers.backend=", backend)});
    ASSERT_EQ(run.Wait(), 0) << run.output();
    const auto final = run.summary()["final"];
    const double trained = final["train_loss"].get<double>();
    EXPECT_NEAR(final["clients_train_loss"].get<double>() / trained, 1, 1e-5) << backend;
  }
}

// The same for labels and images of a client's own. The first group sees the central test set as it
// is, and the others see it as they see their own rows.
TEST(Data, AClientsLabelsAndImagesAreItsOwnInTrainingAndInEvaluation) {
  const std::vector<std::string> keys = {"data.label_noise=1", "data.concept_shift=rotation"};
  for (const char* backend : {"fused", "torch"}) {
    std::vector<double> central, of_training;
    for (const bool changed : {false, true}) {
      std::vector<std::string> arguments = {testing_support::WriteConfig("own"),
                                            "--rounds",
                                            "1",
                                            "--set",
                                            "model.name=logistic",
                                            "--set",
                                            "partition.clients=20",
                                            "--set",
                                            "cohort.size=20",
                                            "--set",
                                            "local.lr=1e-12",
                                            "--set",
                                            "evaluation.splits=[\"train\", \"test\"]",
                                            "--set",
                                            absl::StrCat("workers.backend=", backend)};
      for (const std::string& key : keys) {
        if (changed) arguments.insert(arguments.end(), {"--set", key});
      }
      Simulation run(absl::StrCat(backend, changed), arguments);
      ASSERT_EQ(run.Wait(), 0) << run.output();
      const auto final = run.summary()["final"];
      const double trained = final["train_loss"].get<double>();
      EXPECT_NEAR(final["clients_train_loss"].get<double>() / trained, 1, 1e-5) << backend;
      of_training.push_back(trained);
      central.push_back(final[changed ? "test_group0_loss" : "test_loss"].get<double>());
      if (!changed) continue;
      double all = 0;
      for (const int group : {0, 1, 2, 3})
        all += final[absl::StrCat("test_group", group, "_loss")].get<double>() / 4;
      EXPECT_NEAR(final["test_loss"].get<double>(), all, 1e-9) << backend;
      EXPECT_GT(std::fabs(all - central[1]), 1e-4) << backend;
    }
    EXPECT_GT(std::fabs(of_training[0] - of_training[1]), 0.001) << backend;
    EXPECT_NEAR(central[0], central[1], 1e-6) << backend;
  }
}

TEST(Data, AConceptShiftThatCannotBeIsRefusedByItsKey) {
  Simulation groups("groups",
                    {testing_support::WriteConfig("groups"), "--set", "data.concept_shift=rotation",
                     "--set", "data.concept_shift_groups=3"});
  EXPECT_NE(groups.Wait(), 0);
  EXPECT_THAT(groups.output(), HasSubstr("data.concept_shift_groups = 3"));
}

TEST(Data, PrepareWritesATableAndDoesNotReplaceAFileUnasked) {
  const TemporaryFolder folder;
  const std::string out = folder / "a.safetensors";
  const std::string prepare = absl::StrCat("data prepare ", kExamples, "/csv.toml --out ", out);
  const Printed first = RunMacaw(prepare);
  EXPECT_EQ(first.exit, 0) << first.text;
  const Printed again = RunMacaw(prepare);
  EXPECT_EQ(again.exit, 2);
  EXPECT_THAT(again.text, AllOf(HasSubstr(out), HasSubstr("--force")));
  EXPECT_EQ(RunMacaw(prepare + " --force").exit, 0);
  const Printed bare = RunMacaw(absl::StrCat("data prepare ", kExamples,
                                             "/data/activity.csv --set data.client_column=user "
                                             "--out ",
                                             folder / "b.safetensors"));
  EXPECT_EQ(bare.exit, 0) << bare.text;
  EXPECT_EQ(*ReadFile(folder / "b.safetensors"), *ReadFile(out));
  const Printed info = RunMacaw("data info " + out);
  EXPECT_THAT(info.text, HasSubstr("cycling, running, sitting, walking"));
}

TEST(Data, TestRowsThatAreTrainingRowsAreSaid) {
  const TemporaryFolder folder;
  const std::string rows = folder.Write("rows.csv", "1,2,0\n3,4,1\n5,6,0\n7,8,1\n");
  const Printed info = RunMacaw(
      absl::StrCat("data info ", rows, " --set partition.clients=2 --set data.test_path=", rows));
  EXPECT_THAT(info.text, HasSubstr("4 of the 4 test examples equal a training example"));
}

TEST(Data, APartitionFileWithoutTestRowsIsSaidAtTheStartOfARun) {
  const TemporaryFolder folder;
  std::string all = "{\"a\": [0";
  for (int row = 1; row < 10000; ++row) absl::StrAppend(&all, ", ", row);
  const std::string split = folder.Write("split.json", all + "]}");
  Simulation run("file", {testing_support::WriteConfig("f"), "--rounds", "1", "--set",
                          "partition.scheme=file", "--set", "partition.path=" + split, "--set",
                          "cohort.size=1", "--set", "model.name=logistic"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("data.test_fraction = 0.1 has no effect"));
}

TEST(Data, AFileAsTheRunsFolderIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("taken", "mine");
  for (const char* force : {"", " --force"}) {
    const Printed printed = RunMacaw(
        absl::StrCat("simulate ", testing_support::WriteConfig("o"), " --out ", file, force));
    EXPECT_EQ(printed.exit, 2);
    EXPECT_THAT(printed.text, AllOf(HasSubstr(file + " is a file"), Not(HasSubstr("round 1"))));
  }
  EXPECT_EQ(*ReadFile(file), "mine");
}

}  // namespace
}  // namespace macaw
