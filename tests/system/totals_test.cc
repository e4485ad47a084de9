// N and W, which rules divide by, are those of the clients that a round can draw: in a simulation,
// whatever keys leave out, and in a fleet, whatever its plan says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/random.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Program;
using testing_support::Simulation;
using testing_support::Slurp;
using testing_support::TemporaryFolder;

constexpr int kBig = 8, kBigRows = 60, kSmallClients = 72, kSmallRows = 5;

// Clients "big-0" … "big-7", whose rows differ from client to client, and `small` others behind
// them. All rows of a client are one batch, in stored order.
std::string Job(const TemporaryFolder& folder, const std::string& name, int small,
                const std::string& more) {
  RandomStream random({.seed = 5});
  std::string rows = "x0,x1,x2,y,client\n";
  const auto add = [&](const std::string& client, int count, double shift) {
    for (int k = 0; k < count; ++k) {
      const double x0 = random.Normal() + shift, x1 = random.Normal() - shift, x2 = random.Normal();
      absl::StrAppend(&rows,
                      absl::StrFormat("%.6f,%.6f,%.6f,%d,%s\n", x0, x1, x2,
                                      (x0 + 0.5 * x1 > 0.3 * shift ? 1 : 0) + (x2 > 1), client));
    }
  };
  for (int c = 0; c < kBig; ++c) add(absl::StrCat("big-", c), kBigRows, 0.4 * c - 1.4);
  for (int c = 0; c < small; ++c) add(absl::StrCat("small-", c), kSmallRows, 0.2);
  const std::string data = folder.Write(name + ".csv", rows);
  return folder.Write(name + ".toml", absl::StrCat(R"([run]
name = "test"
rounds = 20
[data]
source = "csv"
label_column = "y"
client_column = "client"
test_fraction = 0.0
path = ")",
                                                   data, R"("
[model]
name = "logistic"
[local]
epochs = 5
batch_size = 0
shuffle = false
lr = 0.3
[evaluation]
splits = ["train"]
)",
                                                   more));
}

struct CountingRule {
  std::string name, algorithm;
};

class DrawableClients : public testing::TestWithParam<CountingRule> {};

// Clients that are never drawn are not there for a rule: the run is that of the others alone, bit
// for bit. The eight have the same numbers in both.
TEST_P(DrawableClients, AreAllThatARuleCounts) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, int small, const std::string& cohort,
                       std::vector<std::string> more = {}) {
    more.insert(more.begin(), Job(folder, name, small,
                                  absl::StrCat("[cohort]\nsize = 6\n", cohort, "[algorithm]\n",
                                               GetParam().algorithm)));
    auto simulation = std::make_unique<Simulation>(name, more);
    EXPECT_EQ(simulation->Wait(), 0) << simulation->output();
    return simulation;
  };
  const auto alone = run("alone", 0, "");
  ASSERT_EQ(alone->digest().size(), 64u);
  EXPECT_EQ(run("rows", kSmallClients, "min_rows = 20\n")->digest(), alone->digest());
  EXPECT_EQ(run("names", kSmallClients, "eligible = [\"big-*\"]\n")->digest(), alone->digest());
  EXPECT_EQ(run("owners", kSmallClients, "min_rows = 20\n", {"--owners", "2"})->digest(),
            alone->digest());
  const std::string numbers =
      "eligible = [\"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\"]\n";
  EXPECT_EQ(run("numbers", kSmallClients, numbers, {"--owners", "2"})->digest(), alone->digest());
}

INSTANTIATE_TEST_SUITE_P(
    Of, DrawableClients,
    testing::Values(CountingRule{"fedavg", "name = \"fedavg\"\n"},
                    CountingRule{"scaffold", "name = \"scaffold\"\n"},
                    CountingRule{"scaffold_weighted",
                                 "name = \"scaffold\"\n[algorithm.scaffold]\nweighted = true\n"},
                    CountingRule{"feddyn", "name = \"feddyn\"\n"},
                    CountingRule{"feddyn_weighted",
                                 "name = \"feddyn\"\n[algorithm.feddyn]\nweighted = true\n"}),
    [](const auto& test) { return test.param.name; });

// A server's file that says other totals than its clients bring.
class PlannedTotals : public testing::Test {
 protected:
  // What `macaw simulate` writes is a server's file.
  void Simulate(const std::string& algorithm) {
    Simulation simulation(
        "job",
        {Job(folder_, "job", 0, absl::StrCat("[cohort]\nsize = 2\n[algorithm]\n", algorithm))});
    ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
    metrics_ = simulation.metrics();
    plan_ = Slurp(simulation.folder() + "/config.toml");
    ASSERT_THAT(plan_, HasSubstr(kExamples));
  }
  struct Served {
    int exit = 0;
    std::string text, metrics;
  };
  Served Serve(const std::string& name, const std::string& examples) {
    return ServeInstead(name, kExamples, examples);
  }
  // With `other` in place of a line of the server's file.
  Served ServeInstead(const std::string& name, const std::string& line, const std::string& other) {
    std::string text = plan_;
    EXPECT_THAT(text, HasSubstr(line));
    text.replace(text.find(line), line.size(), other);
    const std::string run = folder_ / name;
    Program server("macaw-server", {"--config", folder_.Write(name + ".toml", text), "--run-dir",
                                    run, "--listen", "127.0.0.1:0"});
    if (!server.WaitFor("listening on")) return {.exit = server.Wait(), .text = server.text()};
    Program worker("macaw-worker", {"--run-dir", run, "--name", "a"});
    const int exit = server.Wait();
    return {.exit = exit, .text = server.text(), .metrics = Slurp(run + "/metrics.jsonl")};
  }

  const std::string kExamples = absl::StrCat("train_examples = ", kBig* kBigRows);
  const TemporaryFolder folder_;
  std::string metrics_, plan_;
};

TEST_F(PlannedTotals, OfARuleThatComputesWithThemAreThoseOfTheClientsOrTheRunIsRefused) {
  Simulate("name = \"scaffold\"\n[algorithm.scaffold]\nweighted = true\n");
  const Served right = Serve("right", kExamples);
  EXPECT_EQ(right.exit, 0) << right.text;
  EXPECT_EQ(right.metrics, metrics_);
  EXPECT_THAT(right.text, Not(HasSubstr("totals_differ")));
  const Served missing = Serve("missing", "train_examples = 0");
  EXPECT_EQ(missing.exit, 2) << missing.text;
  EXPECT_THAT(missing.text, HasSubstr("run.train_examples is not set"));
  const Served wrong = Serve("wrong", kExamples + "0");  // ten times as many
  EXPECT_EQ(wrong.exit, 2) << wrong.text;
  EXPECT_THAT(wrong.text,
              AllOf(HasSubstr("run.train_examples is 4800"), HasSubstr("scaffold computes with it"),
                    HasSubstr("run.train_examples = 480")));
}

TEST_F(PlannedTotals, OfOthersAreWarnedOfAndChangeNothing) {
  Simulate("name = \"fedavg\"\n");
  const Served wrong = Serve("wrong", kExamples + "0");
  EXPECT_EQ(wrong.exit, 0) << wrong.text;
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("totals_differ"), HasSubstr("nothing in this run")));
  EXPECT_EQ(wrong.metrics, metrics_);
}

// The file names the eight clients by number, and nobody has read the data for it.
TEST_F(PlannedTotals, SayWhichClientsCanBeUnlearned) {
  Simulate("name = \"fedavg\"\n");
  const std::string splits = "splits = [\"train\"]";
  const auto serve = [&](const std::string& name, int client) {
    return ServeInstead(name, splits, absl::StrCat(splits, "\nunlearn = [", client, "]"));
  };
  const Served right = serve("right", kBig - 1);
  EXPECT_EQ(right.exit, 0) << right.text;
  EXPECT_EQ(right.metrics, metrics_);
  const Served wrong = serve("wrong", kBig);
  EXPECT_EQ(wrong.exit, 2) << wrong.text;
  EXPECT_THAT(wrong.text,
              AllOf(HasSubstr("evaluation.unlearn"), HasSubstr("client 8"), HasSubstr("0 to 7")));
}

// With a limit of one example all clients weigh the same, and SCAFFOLD's W is their number.
TEST(MaxWeight, OfOneHasTheBytesOfUniformWeightsForAnyWorkersAndAfterAResume) {
  const std::vector<std::string> job = {MACAW_SOURCE_DIR "/examples/synthetic.toml",
                                        "--set",
                                        "data.synthetic.clients=100",
                                        "--set",
                                        "cohort.size=10",
                                        "--set",
                                        "algorithm.name=scaffold",
                                        "--set",
                                        "algorithm.scaffold.weighted=true"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = job;
    for (const std::string& one : more) all.insert(all.end(), {"--set", one});
    return all;
  };
  Simulation uniform("uniform", with({"run.rounds=10", "cohort.weight=uniform"}));
  ASSERT_EQ(uniform.Wait(), 0) << uniform.output();
  Simulation own("own", with({"run.rounds=10"}));
  ASSERT_EQ(own.Wait(), 0) << own.output();
  EXPECT_NE(own.digest(), uniform.digest());
  Simulation bounded("bounded",
                     with({"run.rounds=5", "cohort.max_weight=1", "workers.processes=2"}));
  ASSERT_EQ(bounded.Wait(), 0) << bounded.output();
  Simulation resumed("resumed", {"--resume", bounded.folder(), "--set", "run.rounds=10"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(resumed.digest(), uniform.digest());
}

// A plan may be made on data whose clients have other names than the fleet's.
TEST(PlanOfAFleet, HasTheTotalsOfTheClientsThatMatchOrOfAllAndSaysSo) {
  const TemporaryFolder folder;
  const std::string job = Job(folder, "job", kSmallClients, "[cohort]\nsize = 2\n");
  const auto plan = [&](const std::string& pattern) {
    const std::string file = folder / "server.toml";
    const testing_support::Printed printed = testing_support::RunMacaw(absl::StrCat(
        "plan ", job, " --force --out ", file, " --set 'cohort.eligible=[\"", pattern, "\"]'"));
    EXPECT_EQ(printed.exit, 0) << printed.text;
    return absl::StrCat(printed.text, Slurp(file));
  };
  EXPECT_THAT(plan("big-*"), AllOf(HasSubstr("train_clients = 8\n"),
                                   HasSubstr("train_examples = 480\n"), Not(HasSubstr("note"))));
  EXPECT_THAT(plan("phone-*"),
              AllOf(HasSubstr("train_clients = 80\n"), HasSubstr("train_examples = 840\n"),
                    HasSubstr("note  cohort.eligible and cohort.min_rows leave 0 of the 80")));
}

TEST(PlanOfAFleet, SaysWhatThereIsToSayOfTheData) {
  const TemporaryFolder folder;
  std::string rows = "seconds,y,client\n";
  for (int k = 0; k < 60; ++k)
    absl::StrAppend(&rows, 1700000000 + 10 * k, ",", k % 2, ",c", k % 4, "\n");
  const testing_support::Printed printed = testing_support::RunMacaw(
      absl::StrCat("plan ", Job(folder, "job", kSmallClients, "[cohort]\nsize = 2\n"), " --out ",
                   folder / "server.toml", " --set data.path=", folder.Write("times.csv", rows)));
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("note  column \"seconds\" has numbers from 1700000000 to"));
}

}  // namespace
}  // namespace macaw
