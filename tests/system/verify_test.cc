// macaw diff, bundle and verify on real runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/isa.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using testing_support::WriteConfig;

constexpr int kVerifiedClients = 8, kVerifiedRows = 6;

// A table of eight clients, numbered as they come. `changed`: the client whose first row has
// another label; -1: none.
std::string WriteTable(const TemporaryFolder& folder, const std::string& name, int changed) {
  std::string text = "client,a,b,kind\n";
  for (int client = 0; client < kVerifiedClients; ++client) {
    for (int row = 0; row < kVerifiedRows; ++row) {
      const bool yes = (client + row) % 2 == 0, other = client == changed && row == 0;
      absl::StrAppend(&text, "c", client, ",", yes ? 1 : -1, ".", client, ",", row, ".5,",
                      yes != other ? "yes" : "no", "\n");
    }
  }
  return folder.Write(name, text);
}

std::vector<std::string> TableJob(const TemporaryFolder& folder, const std::string& table) {
  const std::string config = folder.Write(table + ".toml", absl::StrCat(R"([run]
name = "table"
rounds = 6
seed = 3
[data]
source = "csv"
path = ")",
                                                                        folder / table, R"("
client_column = "client"
test_fraction = 0.0
[model]
name = "logistic"
[cohort]
size = 3
[local]
lr = 0.2
)"));
  return {config, "--processes", "1", "--slots", "1"};
}

std::vector<std::string> With(std::vector<std::string> job, const std::vector<std::string>& more) {
  job.insert(job.end(), more.begin(), more.end());
  return job;
}

// The first round whose cohort has the client, as the log says.
int FirstRoundOf(const std::string& folder, int client) {
  const Printed printed = RunMacaw("log --json " + folder);
  for (const absl::string_view line : absl::StrSplit(printed.text, '\n', absl::SkipEmpty())) {
    const json record = json::parse(line);
    if (record["record"] != "round_opened") continue;
    for (const json& member : record["cohort"]) {
      const json& number = member.is_object() ? member["client"] : member;
      if (number == client) return record["round"].get<int>();
    }
  }
  return -1;
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

json DiffOf(const std::string& arguments, int code) {
  const Printed printed = RunMacaw("diff --json " + arguments);
  EXPECT_EQ(printed.exit, code) << printed.text;
  return json::parse(printed.text, nullptr, /*allow_exceptions=*/false);
}

TEST(Diff, FindsTheRoundAndTheClientWhoseDataDiffer) {
  const TemporaryFolder folder;
  constexpr int kChanged = 3;
  WriteTable(folder, "one.csv", -1);
  WriteTable(folder, "two.csv", kChanged);
  const std::vector<std::string> records = {"--set", "run.client_records=true"};
  Simulation one("one", With(TableJob(folder, "one.csv"), records));
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation two("two", With(TableJob(folder, "two.csv"), records));
  ASSERT_EQ(two.Wait(), 0) << two.output();
  const int round = FirstRoundOf(one.folder(), kChanged);
  ASSERT_GT(round, 1) << "the test needs a round before: choose another client";
  const json diff = DiffOf(one.folder() + " " + two.folder(), 1);
  EXPECT_EQ(diff["parting"]["round"], round) << diff.dump(2);
  EXPECT_EQ(diff["parting"]["stage"], "training");
  ASSERT_EQ(diff["parting"]["clients"].size(), 1u) << diff.dump(2);
  EXPECT_EQ(diff["parting"]["clients"][0]["client"], kChanged);
  std::vector<std::string> facts;
  for (const json& fact : diff["facts"]) facts.push_back(fact["name"]);
  EXPECT_THAT(facts, Contains("data digest"));
  EXPECT_FALSE(diff["models"].empty());

  // Without records of clients it says which key would tell, and names those of the sum.
  Simulation bare("bare", TableJob(folder, "one.csv"));
  ASSERT_EQ(bare.Wait(), 0) << bare.output();
  const json less = DiffOf(bare.folder() + " " + two.folder(), 1);
  EXPECT_EQ(less["parting"]["round"], round);
  EXPECT_THAT(less["parting"]["sums_of"].get<std::vector<int>>(), Contains(kChanged));
  EXPECT_THAT(less["unknown"].dump(), HasSubstr("run.client_records"));

  // The runs of that many rounds have the model after it: the tensors that part first.
  const std::vector<std::string> short_run = {"--rounds", absl::StrCat(round)};
  Simulation first("first", With(TableJob(folder, "one.csv"), short_run));
  ASSERT_EQ(first.Wait(), 0) << first.output();
  Simulation second("second", With(TableJob(folder, "two.csv"), short_run));
  ASSERT_EQ(second.Wait(), 0) << second.output();
  const json tensors = DiffOf(first.folder() + " " + second.folder(), 1)["models"].back();
  EXPECT_EQ(tensors["round"], round);
  EXPECT_GT(tensors["tensors"][0]["differing"], 0);
}

TEST(Diff, OfOneWorkerAndOfThreeIsTheSame) {
  const std::string config = WriteConfig("workers");
  Simulation one("one", {config, "--processes", "1"});
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation three("three", {config, "--processes", "3", "--slots", "1"});
  ASSERT_EQ(three.Wait(), 0) << three.output();
  const json diff = DiffOf(one.folder() + " " + three.folder(), 0);
  EXPECT_EQ(diff["same"], true);
  EXPECT_EQ(diff["rounds"], 3);
  EXPECT_EQ(diff["settings"].size(), 0u);

  // Another rate parts in the first round, and another seed before it.
  Simulation faster("faster", {config, "--set", "local.lr=0.06"});
  ASSERT_EQ(faster.Wait(), 0) << faster.output();
  const json parted = DiffOf(one.folder() + " " + faster.folder(), 1);
  EXPECT_EQ(parted["parting"]["round"], 1) << parted.dump(2);
  EXPECT_EQ(parted["settings"][0]["name"], "local.lr");
  Simulation seeded("seeded", {config, "--set", "model.seed=8"});
  ASSERT_EQ(seeded.Wait(), 0) << seeded.output();
  EXPECT_EQ(DiffOf(one.folder() + " " + seeded.folder(), 1)["parting"]["stage"], "start");

  // A port of it that keeps its rows is the same, too.
  const TemporaryFolder folder;
  std::string csv = "round,train_loss\n";
  for (const absl::string_view line : absl::StrSplit(one.metrics(), '\n', absl::SkipEmpty())) {
    const json row = json::parse(line);
    absl::StrAppend(&csv, row["round"].dump(), ",", row["train_loss"].dump(), "\n");
  }
  DiffOf(one.folder() + " " + folder.Write("port.csv", csv), 0);
  EXPECT_EQ(RunMacaw("diff " + one.folder() + " " + folder / "none").exit, 2);
}

class Verified : public ::testing::Test {
 protected:
  // The bundle of a run's folder.
  std::string Bundle(const std::string& run, const std::string& more = "") {
    const std::string path = folder_ / absl::StrCat("bundle", ++bundles_, ".zip");
    const Printed packed = RunMacaw(absl::StrCat("bundle ", run, " --out ", path, " ", more));
    EXPECT_EQ(packed.exit, 0) << packed.text;
    return path;
  }
  const TemporaryFolder folder_;
  int bundles_ = 0;
};

TEST_F(Verified, ABundleIsTheSameAndAChangedOneIsRefused) {
  Simulation run("run", {WriteConfig("job"), "--set", "run.client_records=true"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string bundle = Bundle(run.folder(), "--with-clients");
  EXPECT_EQ(*ReadFile(bundle), *ReadFile(Bundle(run.folder(), "--with-clients")));
  const std::string kept = folder_ / "again";
  const Printed same =
      RunMacaw(absl::StrCat("verify ", bundle, " --quiet --processes 2 --slots 1 --out ", kept));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("same       3 rounds"));
  EXPECT_THAT(same.text, HasSubstr(run.digest()));
  EXPECT_TRUE(FileExists(kept + "/summary.json"));
  const json digests = json::parse(
      RunMacaw(absl::StrCat("verify ", bundle, " --only-digests --json")).text, nullptr, false);
  ASSERT_TRUE(digests.is_object());
  EXPECT_TRUE(digests["same"].is_null() && digests["sha256"].is_string());
  // A result that the configuration does not have.
  for (const char* name : {"config.toml", "summary.json", "rounds.log"})
    folder_.Write(absl::StrCat("forged/", name), *ReadFile(run.folder() + "/" + name));
  folder_.Write("forged/metrics.jsonl",
                absl::StrReplaceAll(run.metrics(), {{"\"train_loss\":", "\"train_loss\":1"}}));
  const Printed forged = RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged"), " --json"));
  EXPECT_EQ(forged.exit, 1) << forged.text;
  const json verdict = json::parse(forged.text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(verdict.is_object()) << forged.text;
  EXPECT_EQ(verdict["same"], false);
  EXPECT_EQ(verdict["diff"]["parting"]["round"], 1);
  EXPECT_EQ(verdict["same_model"], true) << "its rows alone are forged";
  // Bytes of the file itself.
  std::string bytes = *ReadFile(bundle);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  const Printed changed = RunMacaw("verify " + folder_.Write("changed.zip", bytes));
  EXPECT_EQ(changed.exit, 2) << changed.text;
  EXPECT_THAT(changed.text, HasSubstr("changed.zip"));
}

TEST_F(Verified, ARunThatWasKilledAndResumedIsTheSame) {
  const std::string config =
      WriteConfig("job", "[emulation]\npause_probability = 1\npause_seconds = 0.05\n");
  Simulation killed("killed", {config, "--rounds", "6"});
  ASSERT_TRUE(killed.WaitForEvent([](const json& event) {
    return event["event"] == "round" && event["round"] == 2;
  })) << killed.output();
  killed.Signal(SIGKILL);
  killed.Wait();
  Simulation resumed("resumed", {"--resume", killed.folder()});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  const Printed same =
      RunMacaw(absl::StrCat("verify ", Bundle(resumed.folder(), "--without-model"), " --quiet"));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr(resumed.digest()));
}

TEST_F(Verified, ARunThatWasInterruptedIsTheSame) {
  const std::string config =
      WriteConfig("job",
                  "[evaluation]\nevery = 3\n[emulation]\npause_probability = 1\n"
                  "pause_seconds = 0.2\n");
  Simulation cut("cut", {config, "--rounds", "60"});
  ASSERT_TRUE(cut.WaitForEvent([](const json& event) {
    return event["event"] == "round" && event["round"] == 4;
  })) << cut.output();
  cut.Signal(SIGINT);
  cut.Wait();
  ASSERT_EQ(cut.summary()["end"], "interrupted") << cut.output();
  const Printed same = RunMacaw(absl::StrCat("verify ", Bundle(cut.folder()), " --quiet"));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr(cut.digest()));
}

// The last round of each session is evaluated, whatever evaluation.every says.
TEST_F(Verified, ARunThatWentOnAfterItsEndIsTheSame) {
  Simulation first("first", {WriteConfig("job", "[evaluation]\nevery = 4\n"), "--rounds", "2"});
  ASSERT_EQ(first.Wait(), 0) << first.output();
  for (const char* rounds : {"3", "6"}) {
    Simulation more("more", {"--resume", first.folder(), "--rounds", rounds});
    ASSERT_EQ(more.Wait(), 0) << more.output();
  }
  const std::string rows = first.metrics();
  EXPECT_EQ(CountOf(rows, "\"test_loss\":"), 4) << "rounds 2, 3, 4 and 6";
  for (const char* files : {"", "--without-log"}) {
    const Printed same =
        RunMacaw(absl::StrCat("verify ", Bundle(first.folder(), files), " --quiet"));
    EXPECT_EQ(same.exit, 0) << same.text;
    EXPECT_THAT(same.text, HasSubstr("same       6 rounds"));
  }
  // A false figure there is found.
  for (const char* name : {"config.toml", "summary.json", "rounds.log"})
    folder_.Write(absl::StrCat("forged/", name), *ReadFile(first.folder() + "/" + name));
  std::vector<std::string> lines = absl::StrSplit(rows, '\n', absl::SkipEmpty());
  json row = json::parse(lines.at(1));
  row["test_accuracy"] = row["test_accuracy"].get<double>() + 0.01;
  lines[1] = row.dump();
  folder_.Write("forged/metrics.jsonl", absl::StrJoin(lines, "\n") + "\n");
  const Printed forged = RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged"), " --quiet"));
  EXPECT_EQ(forged.exit, 1) << forged.text;
  EXPECT_THAT(forged.text, HasSubstr("in round 2: metrics differ"));
}

TEST_F(Verified, FiguresOfTheSummaryThatTheRunDoesNotGiveAreNamed) {
  Simulation run("run", {WriteConfig("job"), "--set", "evaluation.metrics=[\"confusion\"]"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  json summary = run.summary();
  summary["final"]["test_accuracy"] = 0.999;
  folder_.Write("forged/summary.json", summary.dump());
  for (const char* name : {"config.toml", "metrics.jsonl", "rounds.log", "confusion.json"})
    folder_.Write(absl::StrCat("forged/", name), *ReadFile(run.folder() + "/" + name));
  const Printed forged = RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged"), " --quiet"));
  EXPECT_EQ(forged.exit, 1) << forged.text;
  EXPECT_THAT(forged.text, HasSubstr("summary.json: final.test_accuracy is 0.999"));
  folder_.Write("forged/summary.json", run.summary().dump());
  folder_.Write("forged/confusion.json",
                absl::StrReplaceAll(*ReadFile(run.folder() + "/confusion.json"),
                                    {{"\"rows\":", "\"rows\":1"}}));
  const Printed table = RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged"), " --json"));
  EXPECT_EQ(table.exit, 1) << table.text;
  const json verdict = json::parse(table.text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(verdict.is_object()) << table.text;
  EXPECT_EQ(verdict["same"], false);
  EXPECT_EQ(verdict["figure"]["file"], "confusion.json");
}

TEST_F(Verified, DataThatHaveMovedAreNamedAndCheckedByTheirDigest) {
  WriteTable(folder_, "rows.csv", -1);
  Simulation run("run", TableJob(folder_, "rows.csv"));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string bundle = Bundle(run.folder());
  EXPECT_THAT(*ReadFile(bundle), Not(HasSubstr("c7,1.7,"))) << "rows of the data";
  std::filesystem::rename(folder_ / "rows.csv", folder_ / "moved.csv");
  const Printed gone = RunMacaw(absl::StrCat("verify ", bundle, " --quiet"));
  EXPECT_EQ(gone.exit, 2) << gone.text;
  EXPECT_THAT(gone.text, HasSubstr("--set data.path=PATH"));
  const Printed found =
      RunMacaw(absl::StrCat("verify ", bundle, " --quiet --data ", folder_ / "moved.csv"));
  EXPECT_EQ(found.exit, 0) << found.text;
  const std::string others = WriteTable(folder_, "others.csv", 2);
  const Printed wrong = RunMacaw(absl::StrCat("verify ", bundle, " --set data.path=", others));
  EXPECT_EQ(wrong.exit, 2) << wrong.text;
  EXPECT_THAT(wrong.text, HasSubstr("not the data of the run"));
  const Printed refused = RunMacaw(
      absl::StrCat("verify ", bundle, " --data ", folder_ / "moved.csv", " --set local.lr=0.3"));
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("local.lr, which decides the result"));
}

TEST_F(Verified, AnotherNumericProfileIsComparedWithATolerance) {
  const std::vector<Isa> isas = SupportedIsas();
  if (isas.size() < 3) GTEST_SKIP() << "this processor has no second instruction set";
  Simulation run("run", {WriteConfig("job", "[evaluation]\nevery = 1\n")});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string bundle = Bundle(run.folder());
  const std::string other =
      absl::StrCat("verify ", bundle, " --quiet --set workers.instruction_set=", Name(isas[1]));
  const Printed near = RunMacaw(other);
  EXPECT_EQ(near.exit, 0) << near.text;
  EXPECT_THAT(near.text, HasSubstr("profile    the run had"));
  EXPECT_THAT(near.text, HasSubstr("<= 0.02 max"));
  const Printed strict = RunMacaw(other + " --tolerance 1e-12");
  EXPECT_EQ(strict.exit, 1) << strict.text;
  // The bundle of a run on fewer instructions has its bits here, too.
  Simulation old("old", {WriteConfig("older"), "--set",
                         absl::StrCat("workers.instruction_set=", Name(isas[1]))});
  ASSERT_EQ(old.Wait(), 0) << old.output();
  const Printed same = RunMacaw(absl::StrCat("verify ", Bundle(old.folder()), " --quiet"));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("same       3 rounds"));
}

// A bundle may say anything of the profile under which its figures were made.
TEST_F(Verified, AFalseProfileHidesNoFalseFigure) {
  Simulation run("run", {WriteConfig("job", "[evaluation]\nevery = 1\n")});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  for (const char* name : {"config.toml", "rounds.log", "model.safetensors"})
    folder_.Write(absl::StrCat("forged/", name), *ReadFile(run.folder() + "/" + name));
  const auto write = [&](double more) {
    json summary = run.summary();
    summary["profile"]["libraries"] = "macaw-fused 2, glibc 2.36";
    std::vector<std::string> lines = absl::StrSplit(run.metrics(), '\n', absl::SkipEmpty());
    json row = json::parse(lines.back());
    row["test_loss"] = row["test_loss"].get<double>() + more;
    summary["final"]["test_loss"] = row["test_loss"];
    lines.back() = row.dump();
    folder_.Write("forged/summary.json", summary.dump());
    folder_.Write("forged/metrics.jsonl", absl::StrJoin(lines, "\n") + "\n");
  };
  write(0);
  const Printed refused = RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged"), " --quiet"));
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("contradicts itself"));
  const Printed same =
      RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged", "--without-log"), " --quiet"));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("The model has the same bits"));
  write(0.015);
  const Printed forged =
      RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "forged", "--without-log"), " --quiet"));
  EXPECT_EQ(forged.exit, 1) << forged.text;
  EXPECT_THAT(forged.text, HasSubstr("final.test_loss"));
}

// Losses of one model have other last bits under another profile.
TEST_F(Verified, TheEvaluationOfAFirstModelIsNearUnderAnotherProfile) {
  const std::vector<Isa> isas = SupportedIsas();
  if (isas.size() < 3) GTEST_SKIP() << "this processor has no second instruction set";
  Simulation run("run", {WriteConfig("job"), "--set", "run.rounds=0"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string other = absl::StrCat("verify ", Bundle(run.folder()),
                                         " --quiet --set workers.instruction_set=", Name(isas[1]));
  const Printed near = RunMacaw(other);
  EXPECT_EQ(near.exit, 0) << near.text;
  EXPECT_THAT(near.text, HasSubstr("<= 1e-05 max"));
}

// arm64.zip is of programs for arm64, with which NEON adds up (how: tests/README.md).
TEST_F(Verified, ARunOfAnotherKindOfProcessorIsNearAndItsProfileIsNamed) {
  const std::string verify = "verify " MACAW_SOURCE_DIR "/tests/system/arm64.zip --quiet";
  const Printed near = RunMacaw(verify);
  EXPECT_EQ(near.exit, 0) << near.text;
#ifdef __x86_64__
  EXPECT_THAT(near.text, ContainsRegex("profile    the run had .*neon"));
  EXPECT_THAT(near.text, HasSubstr("<= 0.02 max"));
  EXPECT_EQ(RunMacaw(verify + " --tolerance 0").exit, 1);
#endif
}

TEST_F(Verified, WhoWasLeftOutIsReadFromTheLog) {
  // The first client of the second worker takes a million times as long, so the deadline closes
  // rounds without it. The pauses give that worker the time to ask for one.
  const std::string config = WriteConfig(
      "late",
      "[round]\ndeadline = 1.0\nquorum = 0.1\n[workers]\nslowdown = [1, 1000000]\n[emulation]\n"
      "pause_probability = 1\npause_seconds = 0.05\n");
  Simulation run("run", {config, "--processes", "2", "--slots", "1"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  ASSERT_GT(run.summary()["left_out"]["clients"], 0) << run.output();
  const Printed same = RunMacaw(absl::StrCat("verify ", Bundle(run.folder()), " --quiet"));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("as the bundle's log says"));
}

TEST_F(Verified, CodeThatABundleNamesIsNotRunUnasked) {
  WriteTable(folder_, "rows.csv", -1);
  Simulation run("run", TableJob(folder_, "rows.csv"));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string config = *ReadFile(run.folder() + "/config.toml");
  folder_.Write("evil/config.toml", absl::StrCat("plugins = [\"/tmp/evil.so\"]\n", config));
  for (const char* name : {"summary.json", "metrics.jsonl"})
    folder_.Write(absl::StrCat("evil/", name), *ReadFile(run.folder() + "/" + name));
  const Printed refused = RunMacaw(absl::StrCat("verify ", Bundle(folder_ / "evil")));
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("--trust"));
}

}  // namespace
}  // namespace macaw
