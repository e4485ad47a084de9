// `macaw simulate --estimate`: what it says is what the same run then reports, and it leaves
// nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

// Softmax regression: no update has a zero, so every client sends the same.
constexpr char kPlainConfig[] = R"([run]
name = "plain"
rounds = 12
seed = 3
[data]
source = "synthetic"
test_fraction = 0.2
[data.synthetic]
clients = 40
[model]
name = "logistic"
[cohort]
size = 15
[local]
epochs = 2
[workers]
slots = 2
)";

class Estimates : public testing::Test {
 protected:
  std::string Command(const std::string& more, const std::string& config = kPlainConfig) const {
    return absl::StrCat("simulate ", folder_.Write("plain.toml", config), " ", more);
  }
  // The event with the estimate; null if there is none.
  Json Estimate(const std::string& more, const std::string& config = kPlainConfig) {
    const Printed printed = RunMacaw(Command("--estimate --json " + more, config));
    EXPECT_EQ(printed.exit, 0) << printed.text;
    for (const absl::string_view line : absl::StrSplit(printed.text, '\n')) {
      Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (event.is_object() && event.value("event", "") == "estimate") return event;
    }
    return nullptr;
  }
  // What the run reports: sums of columns of metrics.jsonl, and its summary.
  struct Reported {
    double steps = 0, clients = 0;
    Json summary;
  };
  Reported Run(const std::string& more, const std::string& config = kPlainConfig) {
    const std::string out = folder_ / "run";
    const Printed printed =
        RunMacaw(Command(absl::StrCat("-q --force --out ", out, " ", more), config));
    EXPECT_EQ(printed.exit, 0) << printed.text;
    Reported reported;
    for (const absl::string_view line :
         absl::StrSplit(*ReadFile(out + "/metrics.jsonl"), '\n', absl::SkipEmpty())) {
      const Json row = Json::parse(line);
      reported.steps += row["steps"].get<double>();
      reported.clients += row["clients"].get<double>();
    }
    reported.summary = Json::parse(*ReadFile(out + "/summary.json"));
    return reported;
  }

  const TemporaryFolder folder_;
};

TEST_F(Estimates, AreWhatAPlainRunReports) {
  const Json estimate = Estimate("");
  ASSERT_TRUE(estimate.is_object());
  const Reported run = Run("");
  EXPECT_EQ(estimate["rounds"], 12);
  EXPECT_EQ(estimate["turns"], run.clients);
  EXPECT_EQ(estimate["steps"]["run"], run.steps);
  EXPECT_EQ(estimate["bytes_up"]["run"], run.summary["bytes"]["up"]);
  EXPECT_EQ(estimate["bytes_down"]["run"], run.summary["bytes"]["down"]);
  const uint64_t values = 4 * run.summary["parameters"].get<uint64_t>();
  EXPECT_GE(estimate["memory"]["model"], values);  // each tensor begins at a multiple of 64 bytes
  EXPECT_LT(estimate["memory"]["model"], values + 128);
  EXPECT_GT(estimate["seconds"]["run"], 0.0);
  EXPECT_TRUE(estimate["privacy"].is_null());
  EXPECT_EQ(estimate["states"]["client"], 0);
}

TEST_F(Estimates, SayHowManyClientsARoundOfASweepHas) {
  const Printed printed =
      RunMacaw(Command("--estimate --set cohort.sampling=sweep --set cohort.size=39"));
  EXPECT_EQ(printed.exit, 0);
  EXPECT_THAT(printed.text, HasSubstr("12 of fedavg, 20 clients each"));
  EXPECT_THAT(printed.text, HasSubstr("12; 20 of 40 clients a round, 240 turns of clients"));
  const Printed uneven =
      RunMacaw(Command("--check --set cohort.sampling=cyclic --set cohort.size=15"));
  EXPECT_THAT(uneven.text, HasSubstr("12 of fedavg, 13 or 14 clients each"));
}

// Every turn moves the same bytes, so the times are those of the run.
TEST_F(Estimates, KnowTheTimeOnDevices) {
  const std::string devices = "--set devices.family=lognormal --set devices.samples_per_s=20 ";
  for (const std::string more :
       {"", "--set round.deadline=20 --set round.quorum=0.4", "--set cohort.over_selection=2",
        "--set round.mode=buffered --set round.concurrency=30 --set round.max_staleness=1"}) {
    const Json estimate = Estimate(devices + more);
    ASSERT_TRUE(estimate.is_object()) << more;
    const Reported run = Run(devices + more);
    const double seconds = run.summary["virtual_seconds"].get<double>();
    EXPECT_NEAR(estimate["virtual_seconds"]["run"].get<double>(), seconds, 0.002 * seconds) << more;
    EXPECT_EQ(estimate["turns"], run.clients) << more;
    EXPECT_EQ(estimate["steps"]["run"], run.steps) << more;
  }
}

// The first round sends the model, and the others changes of few bits.
TEST_F(Estimates, KnowThatTheFirstRoundOfChangesIsLarge) {
  const std::string changes =
      "--set 'broadcast.codec=[\"bits 2\"]' --set cohort.size=40 --set broadcast.of=change "
      "--set 'model.layers=[\"linear 20\", \"relu\", \"linear 10\"]'";
  const Json estimate = Estimate(changes);
  ASSERT_TRUE(estimate.is_object());
  const double down = Run(changes).summary["bytes"]["down"].get<double>();
  EXPECT_NEAR(estimate["bytes_down"]["run"].get<double>(), down, 0.1 * down);
}

TEST_F(Estimates, KnowStragglersStatesAndPrivacy) {
  const std::string stragglers =
      "--set algorithm.name=scaffold --set cohort.straggler_fraction=0.5 --set local.batch_size=3";
  const Json scaffold = Estimate(stragglers);
  ASSERT_TRUE(scaffold.is_object());
  const Reported run = Run(stragglers);
  EXPECT_EQ(scaffold["steps"]["run"], run.steps);
  EXPECT_EQ(scaffold["states"]["client"], scaffold["memory"]["model"]);  // a control variate
  EXPECT_EQ(
      scaffold["states"]["all"].get<uint64_t>(),
      scaffold["states"]["client"].get<uint64_t>() * scaffold["different_clients"].get<uint64_t>());
  EXPECT_GE(scaffold["different_clients"], 15);

  const std::string privacy =
      "--set privacy.mechanism=gaussian --set privacy.clip=1 --set privacy.noise=2 "
      "--set privacy.delta=0.001 "
      "--set cohort.sampling=poisson --set cohort.weight=uniform";
  const Json secret = Estimate(privacy);
  ASSERT_TRUE(secret.is_object());
  const Reported noisy = Run(privacy);
  EXPECT_EQ(secret["privacy"]["epsilon"], noisy.summary["privacy"]["epsilon"]);
  EXPECT_EQ(secret["privacy"]["delta"], 0.001);
  EXPECT_EQ(secret["turns"], noisy.clients);  // the Poisson cohorts of the run itself
}

// Twelve rounds. A model without a client is evaluated on the central test set, and nowhere else.
TEST_F(Estimates, CountTheModelsWithoutAClientThatAreEvaluated) {
  const auto evaluations = [&](const std::string& more) {
    const Json estimate = Estimate(more);
    EXPECT_TRUE(estimate.is_object() && estimate["seconds"].is_object()) << more;
    return estimate["seconds"]["evaluations"].get<uint64_t>();
  };
  const std::string unlearn = "--set 'evaluation.unlearn=[3, 5]' ";
  EXPECT_EQ(evaluations(""), 12u);
  EXPECT_EQ(evaluations(unlearn), 36u);
  EXPECT_EQ(evaluations(unlearn + "--set evaluation.every=5"), 9u);
  EXPECT_EQ(evaluations(unlearn + "--set evaluation.leave_one_out=6"), 36u + 2 * 15);
  EXPECT_EQ(evaluations(unlearn + "--set evaluation.central=false"), 12u);
  EXPECT_EQ(evaluations(unlearn + "--set 'evaluation.splits=[\"train\"]'"), 12u);
  EXPECT_EQ(evaluations(unlearn + "--set data.test_fraction=0"), 12u);
}

// The server keeps the clients' sums and the models without one, of what is trained alone.
TEST_F(Estimates, KnowThatFrozenTensorsAreNotLeftOut) {
  const std::string large =
      "--set evaluation.leave_one_out=3 --set 'model.layers=[\"linear 4000\", \"relu\", "
      "\"linear 10\"]' ";
  const Json whole = Estimate(large), frozen = Estimate(large + "--set 'model.frozen=[\"0.*\"]'");
  ASSERT_TRUE(whole.is_object() && frozen.is_object());
  const uint64_t model = whole["memory"]["model"];
  EXPECT_EQ(frozen["memory"]["model"], model);
  EXPECT_GT(whole["memory"]["leave_one_out"], 15 * model);
  const uint64_t trained = frozen["memory"]["server_keeps"];  // FedAvg's model
  EXPECT_LT(2 * trained, model);
  EXPECT_EQ(frozen["memory"]["leave_one_out"],
            15 * (frozen["memory"]["sums"].get<uint64_t>() + trained) + trained);
}

TEST_F(Estimates, CountWhatEachDeviceFetchesOnce) {
  const std::string adapters =
      "--set 'model.layers=[\"linear 40\", \"relu\", \"linear 10\"]' "
      "--set 'model.adapters=[\"lora 2 *\"]'";
  const Json estimate = Estimate(adapters);
  ASSERT_TRUE(estimate.is_object());
  const Reported run = Run(adapters);
  EXPECT_GT(estimate["base"], 0);
  EXPECT_EQ(estimate["base"], run.summary["bytes"]["base"]);
  EXPECT_EQ(estimate["bytes_down"]["run"], run.summary["bytes"]["down"]);
  EXPECT_EQ(Estimate("")["base"], 0);
}

TEST_F(Estimates, MeasureWhatACodecLeavesOfAnUpdate) {
  const std::string codec = "--set 'update.codec=[\"topk 0.1\",\"bits 8\"]'";
  const Json estimate = Estimate(codec);
  ASSERT_TRUE(estimate.is_object());
  const double reported = Run(codec).summary["bytes"]["up"];
  EXPECT_NEAR(estimate["bytes_up"]["run"].get<double>(), reported, 0.1 * reported);
}

TEST_F(Estimates, WriteNothingAndMakeTheRunsErrors) {
  const std::string out = folder_ / "nothing";
  const Printed printed = RunMacaw(Command(absl::StrCat("--estimate --out ", out)));
  EXPECT_EQ(printed.exit, 0);
  for (const char* line : {"rounds     12; 15 of 40 clients a round, 180 turns of clients in all",
                           "bytes up   ", "time       about ", "basis      ", "took       "})
    EXPECT_THAT(printed.text, HasSubstr(line));
  EXPECT_FALSE(std::filesystem::exists(out));

  const Printed wrong = RunMacaw(Command("--estimate --set cohort.size=41"));
  const Printed run = RunMacaw(Command("--set cohort.size=41 --out " + out));
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_EQ(wrong.text, run.text);
  EXPECT_EQ(RunMacaw(Command("--estimate --repeat 2")).exit, 2);
}

}  // namespace
}  // namespace macaw
