// `macaw data` and a run on a table of people's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
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

TEST(Data, InfoTakesAGivenSourceAndNeedsNoClients) {
  const TemporaryFolder folder;
  std::string rows = "a,b,y\r", wide;
  for (int i = 0; i < 30; ++i) absl::StrAppend(&rows, i, ",", i % 7, ",", i % 2, "\r");
  for (const char c : rows) wide += std::string(1, c) + '\0';
  const Printed table = RunMacaw("data info " + folder.Write("t.csv", rows));
  EXPECT_EQ(table.exit, 0) << table.text;
  EXPECT_THAT(table.text, AllOf(HasSubstr("2 classes"), HasSubstr("none of its own")));
  const Printed divided = RunMacaw("data info " + folder / "t.csv" + " --set partition.clients=3");
  EXPECT_THAT(divided.text, testing::ContainsRegex("clients +3\n"));
  // A file of one column is no table that is told by itself, and one with the key.
  const std::string bars = folder.Write("bars.txt", "a|b|y\n1|2|0\n3|4|1\n");
  EXPECT_EQ(RunMacaw("data info " + bars).exit, 2);
  for (const char* keys : {" --set data.source=csv --set 'data.separator=\"|\"'",
                           " --set 'data.separator=\"|\"'", " --set 'data.separator=|'"}) {
    const Printed given = RunMacaw("data info " + bars + keys);
    EXPECT_EQ(given.exit, 0) << given.text;
    EXPECT_THAT(given.text, HasSubstr("a, b"));
  }
  for (const char* source : {"", " --set data.source=csv", " --set data.source=libsvm"}) {
    const Printed encoded = RunMacaw("data info " + folder.Write("w.csv", wide) + source);
    EXPECT_EQ(encoded.exit, 2);
    EXPECT_THAT(encoded.text, AllOf(HasSubstr("w.csv"), HasSubstr("iconv -f UTF-16LE")));
  }
  const Printed wrong =
      RunMacaw("data info " + bars + " --set data.source=csv --set data.separator=x");
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.text, HasSubstr("data.separator must be"));
}

TEST(Data, OtherNamesOfClassesAreShownAndPrepared) {
  const TemporaryFolder folder;
  const std::string table = folder.Write("t.csv", "a,y\n1,0\n2,1\n3,1\n");
  const std::string names = R"( --set 'data.class_names=["healthy", "ill"]')";
  EXPECT_THAT(RunMacaw("data info " + table + names).text, HasSubstr("healthy, ill"));
  const std::string out = folder / "p.safetensors";
  const Printed prepared =
      RunMacaw("data prepare " + table + names + " --set partition.clients=1 --out " + out);
  EXPECT_EQ(prepared.exit, 0) << prepared.text;
  EXPECT_THAT(RunMacaw("data info " + out).text, HasSubstr("healthy, ill"));
  const Printed turned =
      RunMacaw("data info " + out + R"( --set 'data.class_names=["ill", "healthy"]')");
  EXPECT_EQ(turned.exit, 2);
  EXPECT_THAT(turned.text, HasSubstr("data.class_names calls class 0"));
}

// Whatever is written is UTF-8 and read again: `--resume` reads config.toml.
TEST(Data, AnyWordsOfClassesAreReadAgainOrRefusedByTheFileThatHasThem) {
  const auto table = [](const std::string& word) {
    std::string rows = "a,y\n";
    for (int i = 0; i < 40; ++i) absl::StrAppend(&rows, i, ",\"", i % 2 == 0 ? word : "no", "\"\n");
    return rows;
  };
  const TemporaryFolder folder;
  const auto arguments = [&](const std::string& word, const std::string& rounds) {
    return std::vector<std::string>{"--set",    "data.path=" + folder.Write("t.csv", table(word)),
                                    "--set",    "partition.clients=3",
                                    "--set",    "model.layers=[\"linear 2\"]",
                                    "--set",    "cohort.size=2",
                                    "--rounds", rounds};
  };
  const std::string word = "\xC3\xA9t\xC3\xA9 \"\"x\"\"\n\\ \x7F \x01\xE2\x82\xAC";
  Simulation good("good", arguments(word, "1"));
  ASSERT_EQ(good.Wait(), 0) << good.output();
  Simulation resumed("resumed", {"--resume", good.folder(), "--rounds", "2"});
  EXPECT_EQ(resumed.Wait(), 0) << resumed.output();
  Simulation bad("bad", arguments("\xE9t\xE9", "1"));
  EXPECT_EQ(bad.Wait(), 2);
  EXPECT_THAT(bad.output(),
              AllOf(HasSubstr("t.csv line 2"), HasSubstr("iconv"), Not(HasSubstr("config.toml"))));
  // Words of the command line, and files that are no UTF-8.
  const Printed name = RunMacaw(
      "simulate --set data.source=synthetic --set model.name=logistic "
      "--set cohort.size=2 --check --set run.name=$(printf 'caf\\351')");
  EXPECT_EQ(name.exit, 2);
  EXPECT_THAT(name.text, AllOf(HasSubstr("run.name"), HasSubstr("not UTF-8")));
  const std::string config = "[data]\nsource = \"synthetic\"\n[run]\nname = \"caf\xE9\"\n";
  EXPECT_THAT(RunMacaw("simulate " + folder.Write("c.toml", config)).text,
              AllOf(HasSubstr("c.toml line 4"), HasSubstr("iconv -f LATIN1")));
  const Printed marked =
      RunMacaw("simulate --check " +
               folder.Write("m.toml",
                            "\xEF\xBB\xBF[data]\r\nsource = \"synthetic\"\r\n[model]\r\nname = "
                            "\"logistic\"\r\n[cohort]\r\nsize = 2\r\n"));
  EXPECT_EQ(marked.exit, 0) << marked.text;
}

TEST(Data, SimulationsOfOneNameThatBeginAtOneMomentTakeAFolderEach) {
  const TemporaryFolder folder;
  const Printed all = testing_support::RunProgram(
      absl::StrCat("cd ", folder.path(), " && for i in 1 2 3 4 5 6; do (", MACAW_BIN_DIR,
                   "/macaw simulate --set data.source=synthetic --set data.synthetic.clients=6 "
                   "--set data.synthetic.max_size=50 --set model.name=logistic --set cohort.size=3 "
                   "--rounds 1 --set run.name=x -q || echo FAILED) & done; wait"),
      "");
  EXPECT_THAT(all.text, Not(HasSubstr("FAILED")));
  for (const char* name : {"x", "x-2", "x-3", "x-4", "x-5", "x-6"}) {
    EXPECT_TRUE(
        std::filesystem::exists(absl::StrCat(folder.path(), "/runs/", name, "/summary.json")))
        << name << all.text;
  }
}

TEST(Data, AHistogramGivesTheSameRunToProcessesAndOwnersAndGoesOn) {
  const TemporaryFolder folder;
  std::string counts;
  for (int client = 0; client < 20; ++client) {
    for (int c = 0; c < 10; ++c) absl::StrAppend(&counts, c > 0 ? "," : "", (client + c) % 7 * 5);
    counts += "\n";
  }
  const std::string file = folder.Write("counts.csv", counts);
  const std::string config = testing_support::WriteConfig("histogram");
  const auto run = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {config,
                                          "--set",
                                          "partition.scheme=histogram",
                                          "--set",
                                          "partition.path=" + file,
                                          "--set",
                                          "cohort.size=6",
                                          "--set",
                                          "partition.clients=12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto simulation = std::make_unique<Simulation>(name, arguments);
    EXPECT_EQ(simulation->Wait(), 0) << simulation->output();
    return simulation;
  };
  const auto whole = run("whole", {"--rounds", "4"});
  EXPECT_EQ(run("owners", {"--rounds", "4", "--owners", "12"})->digest(), whole->digest());
  const auto begun = run("begun", {"--rounds", "2"});
  EXPECT_NE(begun->digest(), whole->digest());
  Simulation resumed("resumed", {"--resume", begun->folder(), "--rounds", "4"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(resumed.digest(), whole->digest());
  // All of its clients where no number is given, in the run's own configuration, too.
  const std::string images = absl::StrCat(kExamples, "/data/mnist");
  const std::string divided = absl::StrCat(
      "data info ", images, " --set partition.scheme=histogram --set partition.path=", file);
  EXPECT_THAT(RunMacaw(divided).text, testing::ContainsRegex("clients +20\n"));
  Simulation all("all",
                 {"--rounds", "1", "--set", "data.path=" + images, "--set",
                  "model.layers=[\"flatten\",\"linear 10\"]", "--set", "partition.scheme=histogram",
                  "--set", "partition.path=" + file, "--set", "cohort.size=6"});
  ASSERT_EQ(all.Wait(), 0) << all.output();
  EXPECT_THAT(RunMacaw("data info " + all.folder() + "/config.toml").text,
              testing::ContainsRegex("clients +20\n"));
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
  for (const std::string& backend : testing_support::Backends()) {
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
  for (const std::string& backend : testing_support::Backends()) {
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
