// Keys of a sweep that have no effect in some of its configurations, and what baselines leave out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/sweep/prepare.h"
#include "tests/cli/config_test_util.h"
#include "tests/cli/sweep_plan_fixture.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SweepEffectsTest = SweepPlanTest;

constexpr char kAttacked[] = "[attack]\nkind = \"scaling\"\nfraction = 0.2\nscale = 3.0\n";

// What `text` says of the run of each job.
template <typename Text>
std::vector<std::string> OfEachJob(const PreparedSweep& sweep, const Text& text) {
  std::vector<std::string> found;
  for (const Job& job : sweep.jobs) {
    const auto config =
        ReadConfig(*ParseDocument(job.config, "job.toml", "/"), {}, sdk::Catalogue::Builtins());
    EXPECT_TRUE(config.ok()) << config.status();
    if (config.ok()) found.push_back(text(config->run));
  }
  return found;
}

std::vector<std::string> AttacksOf(const PreparedSweep& sweep) {
  return OfEachJob(sweep, [](const RunPlan& run) {
    return absl::StrCat(run.algorithm.name, " ", run.attack.kind, " ", run.attack.fraction);
  });
}

TEST_F(SweepEffectsTest, TheAttackNoneIsRunWithoutTheAttacksOtherKeys) {
  const PreparedSweep sweep = Sweep(R"(
[keys]
attack.kind = ["none", "sign-flip", "alie"]
attack.fraction = [0.1, 0.3]
)");
  EXPECT_THAT(AttacksOf(sweep),
              ElementsAre("fedavg none 0", "fedavg sign-flip 0.1", "fedavg alie 0.1",
                          "fedavg sign-flip 0.3", "fedavg alie 0.3"));
  ASSERT_THAT(sweep.plan.keys, ElementsAre("attack.fraction", "attack.kind"));
  EXPECT_TRUE(sweep.plan.configurations[0].values[0].is_null());
  ASSERT_EQ(sweep.notes.size(), 2u);
  EXPECT_THAT(sweep.notes[1], AllOf(HasSubstr("\"none\""), HasSubstr("attack.fraction")));
  // What the base says of its attack goes, too.
  folder_.Write("attacked.toml", absl::StrCat(kMinimal, kAttacked));
  const auto off =
      Read("base = \"attacked.toml\"\n[keys]\nattack.kind = [\"none\", \"scaling\"]\n");
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_THAT(AttacksOf(*off), ElementsAre("fedavg none 0", "fedavg scaling 0.2"));
  // A fraction beside no kind at all is still a mistake.
  EXPECT_THAT(Refused("base = \"run.toml\"\n[keys]\nattack.fraction = [0.1]\n"),
              HasSubstr("without attack.kind"));
}

TEST_F(SweepEffectsTest, AKeyIsLeftOutOfConfigurationsWhereItHasNoEffect) {
  const PreparedSweep sweep = Sweep(R"(
[keys]
cohort.straggler_fraction = [0, 0.5]
cohort.straggler_policy = ["partial", "drop"]
)");
  ASSERT_THAT(sweep.plan.keys, ElementsAre("cohort.straggler_fraction", "cohort.straggler_policy"));
  ASSERT_EQ(sweep.plan.configurations.size(), 3u);  // without stragglers once
  EXPECT_TRUE(sweep.plan.configurations[0].values[1].is_null());
  EXPECT_THAT(sweep.jobs[0].config, testing::Not(HasSubstr("straggler_policy")));
  EXPECT_THAT(sweep.jobs[2].config, HasSubstr("straggler_policy = \"drop\""));
  EXPECT_THAT(sweep.notes,
              testing::Contains(HasSubstr("cohort.straggler_policy has no effect without")));
  // In the base, too.
  folder_.Write("drop.toml", absl::StrCat(kMinimal, "straggler_policy = \"drop\"\n"));
  const auto base = Read("base = \"drop.toml\"\n[keys]\ncohort.straggler_fraction = [0, 0.5]\n");
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_THAT(base->jobs[0].config, testing::Not(HasSubstr("straggler_policy")));
  EXPECT_THAT(base->jobs[1].config, HasSubstr("straggler_policy = \"drop\""));
}

TEST_F(SweepEffectsTest, SeveralSeedsTakeAFirstConfigurationWithAKeyWithoutAnEffect) {
  const PreparedSweep sweep = Sweep(R"(
seeds = [1, 2]
[keys]
local.optimizer = ["adam", "sgd"]
local.momentum = [0.5, 0.9]
)");
  EXPECT_EQ(sweep.jobs.size(), 6u);  // adam once, with two seeds
}

TEST_F(SweepEffectsTest, AKeyWithoutAnEffectInAllConfigurationsIsRefused) {
  EXPECT_THAT(Refused("base = \"run.toml\"\n[keys]\nlocal.beta1 = [0.8, 0.7]\n", "local.beta1"),
              AllOf(HasSubstr("sweep.toml"), HasSubstr("local.beta1 has no effect without")));
  folder_.Write("adam.toml", absl::StrCat(kMinimal, "[local]\nbeta1 = 0.8\n"));
  EXPECT_THAT(Refused("base = \"adam.toml\"\n[keys]\nlocal.lr = [0.1, 0.2]\n", "local.beta1"),
              AllOf(HasSubstr("adam.toml:8"), HasSubstr("local.beta1 has no effect without")));
  EXPECT_THAT(Refused("base = \"run.toml\"\n[keys]\nalgorithm.scaffold.option = [1, 2]\n"),
              HasSubstr("no configuration of the sweep has this algorithm"));
}

TEST_F(SweepEffectsTest, PrivacyIsLeftOutWhereItIsOffAndOfBaselines) {
  folder_.Write(
      "private.toml",
      absl::StrCat(kMinimal, "[privacy]\nmechanism = \"gaussian\"\nclip = 1\nnoise = 2\n"));
  const auto sweep = Read(
      "base = \"private.toml\"\nbaselines = [\"local\"]\nmetric = \"train_loss\"\n[keys]\n"
      "privacy.mechanism = [\"none\", \"gaussian\"]\n"
      "cohort = [{sampling = \"poisson\", weight = \"uniform\"}]\n");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  const auto privacy = [](const RunPlan& run) {
    return absl::StrCat(run.algorithm.name, " ", run.privacy.mechanism, " ", run.privacy.noise);
  };
  EXPECT_THAT(OfEachJob(*sweep, privacy),
              ElementsAre("fedavg none 1", "fedavg gaussian 2", "local none 1"));
}

TEST_F(SweepEffectsTest, BaselinesRunWithoutCompression) {
  folder_.Write("coded.toml", absl::StrCat(kMinimal, "[update]\ncodec = [\"topk 0.1\"]\n"));
  const auto sweep = Read(
      "base = \"coded.toml\"\nbaselines = [\"local\"]\nmetric = \"train_loss\"\n[keys]\n"
      "update.codec = [[\"bits 8\"], [\"topk 0.5\", \"sign\"], []]\n");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  const auto codecs = [](const RunPlan& run) {
    return absl::StrCat(run.algorithm.name, ": ", absl::StrJoin(run.update.codec, ", "));
  };
  EXPECT_THAT(OfEachJob(*sweep, codecs),
              ElementsAre("fedavg: bits 8", "fedavg: topk 0.5, sign", "fedavg: ", "local: "));
}

TEST_F(SweepEffectsTest, BaselinesRunWithoutTheAttack) {
  folder_.Write("attacked.toml", absl::StrCat(kMinimal, kAttacked));
  const auto base = Read(
      "base = \"attacked.toml\"\nbaselines = [\"local\", \"pooled\"]\nmetric = \"train_loss\"\n"
      "[keys]\nalgorithm.name = [\"fedavg\", \"median\"]\n");
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_THAT(AttacksOf(*base), ElementsAre("fedavg scaling 0.2", "median scaling 0.2",
                                            "local none 0", "pooled none 0"));
  EXPECT_THAT(base->plan.keys, ElementsAre("algorithm.name"));
  ASSERT_EQ(base->notes.size(), 1u);
  EXPECT_THAT(base->notes[0], AllOf(HasSubstr("local and pooled"), HasSubstr("attack")));
  const PreparedSweep keys = Sweep(
      "baselines = [\"pooled\"]\nmetric = \"train_loss\"\n[keys]\n"
      "attack.kind = [\"sign-flip\"]\nattack.fraction = [0.1, 0.3]\n");
  EXPECT_THAT(AttacksOf(keys),
              ElementsAre("fedavg sign-flip 0.1", "fedavg sign-flip 0.3", "pooled none 0"));
  EXPECT_TRUE(Sweep("baselines = [\"local\"]\nmetric = \"train_loss\"\n").notes.empty());
}

}  // namespace
}  // namespace macaw::cli
