// What a new run refuses before it begins, a run that goes on refuses, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "cli/config/reader.h"
#include "cli/config/writer.h"
#include "cli/simulate/simulate.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kGoesOnConfig[] = R"([run]
rounds = 4
[data]
source = "synthetic"
test_fraction = 0.2
[data.synthetic]
clients = 30
[model]
name = "logistic"
[cohort]
size = 10
[workers]
processes = 2
slots = 1
)";

class ResumedRun : public ::testing::Test {
 protected:
  // The folder of a run that has the configuration, and has not done a round.
  void SetUp() override {
    const Document document = *OpenDocument(config_);
    const sdk::Catalogue catalogue = *LoadCatalogue(document, {});
    const std::unique_ptr<Output> output = OutputFor(/*json=*/false, {.quiet = true});
    const absl::StatusOr<CheckedRun> checked =
        CheckBeforeRun(document, catalogue, {}, Idle::kRefuse, *output);
    ASSERT_TRUE(checked.ok()) << checked.status();
    folder_.Write("run/config.toml", EffectiveToml(checked->config));
  }
  struct Said {
    int code;
    std::string error;
  };
  Said Checked(const std::vector<std::string>& set, bool resumed) const {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = Simulate({.config = resumed ? "" : config_,
                               .set = set,
                               .resume = resumed ? folder_ / "run" : "",
                               .check = true,
                               .quiet = true});
    testing::internal::GetCapturedStdout();
    return {.code = code, .error = testing::internal::GetCapturedStderr()};
  }

  const testing_support::TemporaryFolder folder_;
  const std::string config_ = folder_.Write("small.toml", kGoesOnConfig);
};

TEST_F(ResumedRun, IsRefusedAsANewRunIs) {
  // Keys of which a run that goes on may have others.
  const std::vector<std::string> wrong[] = {
      {"server.workers=3"},
      {"run.stop.metric=val_accuracy", "run.stop.at_least=0.1"},
      {"run.stop.metric=no_such_column", "run.stop.patience=2"},
      {"run.stop.at_least=abc"},
      {"run.budget.virtual_seconds=5"},
      {"run.budget.bytes_up=-1"},
      {"run.track=[\"nobody\"]"},
      {"run.checkpoint_every=0"},
      {"round.enough=99"},
      {"round.deadline=-1"},
      {"workers.processes=0"},
      {"workers.backend=nobody"},
      {"scheduler.policy=nobody"},
      {"server.lease_timeout=0"},
      {"server.instruction_set=nobody"},
      {"emulation.pause_probability=2"},
  };
  for (const std::vector<std::string>& set : wrong) {
    SCOPED_TRACE(absl::StrJoin(set, " "));
    const Said fresh = Checked(set, /*resumed=*/false), resumed = Checked(set, /*resumed=*/true);
    EXPECT_NE(fresh.code, 0);
    EXPECT_EQ(resumed.code, fresh.code);
    EXPECT_EQ(resumed.error, fresh.error);
    EXPECT_THAT(resumed.error, HasSubstr(set[0].substr(0, set[0].find('='))));
  }
}

TEST_F(ResumedRun, MayHaveOthersOfTheseKeys) {
  const std::vector<std::string> right[] = {
      {},
      {"run.rounds=8"},
      {"server.workers=2"},
      {"workers.processes=4", "server.workers=4"},
      {"run.stop.metric=test_accuracy", "run.stop.at_least=0.9"},
      {"run.stop.patience=3"},
      {"run.budget.bytes_up=100000"},
      {"round.enough=8"},
  };
  for (const std::vector<std::string>& set : right) {
    SCOPED_TRACE(absl::StrJoin(set, " "));
    for (const bool resumed : {false, true}) {
      const Said said = Checked(set, resumed);
      EXPECT_EQ(said.code, 0) << said.error;
    }
  }
}

}  // namespace
}  // namespace macaw::cli
