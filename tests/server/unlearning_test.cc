#include "server/unlearning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/safetensors.h"
#include "proto/fleet/vector_codec.h"
#include "server/contributions.h"
#include "server/coordinator.h"
#include "server/log/history.h"
#include "server/model_keeper.h"
#include "tests/server/keeper_rounds.h"
#include "tests/server/tiny_run.h"

// The model without all that one client has sent.
namespace macaw::server {
namespace {

using fixtures::ContributionsOf;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::KeeperRounds;
using fixtures::Lines;
using fixtures::OrderOf;
using fixtures::RefusalOf;
using fixtures::Registry;
using fixtures::RunBytes;
using fixtures::SendApart;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyLayout;
using fixtures::TinyOptions;
using fixtures::TrainedRules;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

// ---- the arithmetic

FlatVector CopyOfModel(const ModelKeeper& keeper) {
  return FlatVector::CopyOf(keeper.Model(), TinyLayout());
}

class Unlearned : public KeeperRounds {
 protected:
  // Whether the rule is one of which clients can be unlearned; else it is refused for this reason.
  bool IsOffered() {
    run_.evaluation.unlearn = {2};
    const absl::Status accepted = CheckUnlearning(run_, *rule_, schema_);
    const std::string words = RefusalOf(GetParam());
    EXPECT_EQ(accepted.ok(), words.empty()) << accepted;
    EXPECT_THAT(accepted.ToString(), HasSubstr(words));
    return accepted.ok();
  }
};

// The law. Client 2 is in rounds 2, 3 and 5; the others send what they send for the run's model.
TEST_P(Unlearned, IsTheServerOfTheRunThatWasNeverGivenTheClientsSums) {
  if (!IsOffered()) return;
  ModelKeeper run = Keeper({.unlearn = {2}}), plain = Keeper(), without = Keeper();
  const struct {
    Parts parts;
    std::vector<uint64_t> others;
    uint32_t counted;  // rounds with client 2 so far
  } rounds[] = {{{{3, 0}, {1, 4}}, {3, 0, 1, 4}, 0},
                {{{2}, {3, 0}, {4}}, {3, 0, 4}, 1},
                {{{1, 3, 4}, {2}}, {1, 3, 4}, 2},
                {{{0, 1, 3, 4}}, {0, 1, 3, 4}, 2},
                {{{4}, {2}, {0, 1}}, {4, 0, 1}, 3}};
  uint32_t round = 0;
  for (const auto& one : rounds) {
    ++round;
    const FlatVector model = CopyOfModel(run);
    Do(without, round, {one.others}, model.view());
    Do(plain, round, one.parts, model.view());
    Do(run, round, one.parts, model.view());
    EXPECT_EQ(run.ModelBlob().digest, plain.ModelBlob().digest) << "the model itself";
    if (one.counted == 0) {
      EXPECT_TRUE(run.UnlearnedModels().empty()) << "no round has counted it";
      continue;
    }
    const std::vector<UnlearnedModel> models = run.UnlearnedModels();
    ASSERT_EQ(models.size(), 1u);
    EXPECT_EQ(models[0].client, ClientId(2));
    EXPECT_EQ(models[0].rounds, one.counted);
    EXPECT_EQ(models[0].model.digest, without.ModelBlob().digest) << "round " << round;
    EXPECT_EQ(models[0].digest, DigestOfValues(without.Model()));
  }
}

// After a round in which clients have lost their states, all begin anew in the model without one,
// too.
TEST_P(Unlearned, BeginsAnewWithTheRun) {
  if (!IsOffered() || !algorithms::BeginsAnew(schema_)) return;
  ModelKeeper run = Keeper({.unlearn = {2}}), without = Keeper();
  for (const uint32_t round : {1u, 2u, 3u, 4u}) {
    const FlatVector model = CopyOfModel(run);
    Do(without, round, {{3, 0, 4}}, model.view());
    Do(run, round, {{2}, {3, 0, 4}}, model.view());
    if (round != 2) continue;
    ASSERT_TRUE(run.ForgetStates().ok());
    ASSERT_TRUE(without.ForgetStates().ok());
  }
  ASSERT_EQ(run.UnlearnedModels().size(), 1u);
  EXPECT_EQ(run.UnlearnedModels()[0].model.digest, without.ModelBlob().digest);
}

TEST_P(Unlearned, IsTheModelThatLeavesTheClientOutOnceAfterOneRound) {
  if (!IsOffered()) return;
  ModelKeeper run = Keeper({.leave_one_out = 1, .unlearn = {1, 4}});
  Do(run, 1, {3, 0, 4, 1, 2}, /*apart=*/true);
  const std::vector<UnlearnedModel> models = run.UnlearnedModels();
  ASSERT_EQ(models.size(), 2u);
  ASSERT_EQ(run.without().size(), 5u);
  for (const size_t i : {0, 1}) {
    const WithoutClient& once = run.without()[models[i].client.value];
    EXPECT_EQ(models[i].client, once.client);
    EXPECT_EQ(models[i].model.digest, once.model.digest);
  }
}

TEST_P(Unlearned, IsKeptInASavedState) {
  if (!IsOffered()) return;
  ModelKeeper run = Keeper({.unlearn = {1, 2, 3}});
  Do(run, 1, {{1}, {0, 4}}, CopyOfModel(run).view());
  Do(run, 2, {{1}, {2}, {0, 4}}, CopyOfModel(run).view());
  ModelKeeper resumed = Keeper({.unlearn = {1, 2, 3}});
  ASSERT_TRUE(resumed.Load(run.Save()).ok());
  for (ModelKeeper* keeper : {&run, &resumed})
    Do(*keeper, 3, {{3}, {2}, {0, 4}}, CopyOfModel(*keeper).view());
  const std::vector<UnlearnedModel> models = run.UnlearnedModels();
  const std::vector<UnlearnedModel> again = resumed.UnlearnedModels();
  ASSERT_EQ(models.size(), 3u);
  ASSERT_EQ(again.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again[i].client, models[i].client);
    EXPECT_EQ(again[i].rounds, models[i].rounds);
    EXPECT_EQ(again[i].digest, models[i].digest);
  }
  EXPECT_EQ(resumed.ModelBlob().digest, run.ModelBlob().digest);
}

INSTANTIATE_TEST_SUITE_P(Of, Unlearned, testing::ValuesIn(TrainedRules()),
                         [](const auto& info) { return info.param; });

class UnlearnedOfFedAvg : public KeeperRounds {};

// model − Σ_t (step of round t − its step without the client), in double precision.
TEST_P(UnlearnedOfFedAvg, TakesTheDifferencesOfAllRoundsOut) {
  ModelKeeper run = Keeper({.leave_one_out = 1, .unlearn = {2}});
  std::vector<double> differences(TinyLayout()->size());
  const LayoutPtr layouts[] = {TinyLayout()};
  for (const uint32_t round : {1, 2, 3}) {
    Do(run, round, {0, 1, 2, 3, 4}, /*apart=*/true);
    const auto without = fleet::DecodeVectors(run.without()[2].model.bytes->bytes(), layouts);
    ASSERT_TRUE(without.ok()) << without.status();
    for (size_t i = 0; i < differences.size(); ++i)
      differences[i] += double{run.Model().As<float>()[i]} - double{(*without)[0].As<float>()[i]};
  }
  const std::vector<Unlearning::Model> models = run.Unlearned();
  ASSERT_EQ(models.size(), 1u);
  size_t moved = 0;
  for (size_t i = 0; i < differences.size(); ++i) {
    EXPECT_NEAR(models[0].model.As<float>()[i], run.Model().As<float>()[i] - differences[i], 1e-5);
    moved += std::abs(differences[i]) > 0.01 ? 1 : 0;
  }
  EXPECT_EQ(moved, TinyLayout()->count());
}

TEST_P(UnlearnedOfFedAvg, NeedsTheClientsOwnPart) {
  ModelKeeper run = Keeper({.unlearn = {2}});
  ASSERT_TRUE(run.Open(OrderOf(1)).ok());
  EXPECT_TRUE(run.Decode(PartOf({0, 1}, 1, run)).ok());
  EXPECT_TRUE(run.Decode(PartOf({2}, 1, run)).ok());
  EXPECT_THAT(
      run.Decode(PartOf({0, 2, 4}, 1, run)).status().ToString(),
      HasSubstr("a part of client 2 alone (evaluation.unlearn), and it came with 2 others"));
}

// A dropped round has nobody; one that begins again forgets the parts that had come.
TEST_P(UnlearnedOfFedAvg, TakesNothingOutOfARoundThatWasDropped) {
  ModelKeeper run = Keeper({.unlearn = {2}}), plain = Keeper();
  ASSERT_TRUE(run.Open(OrderOf(1)).ok());
  ASSERT_TRUE(run.Add(*run.Decode(PartOf({2}, 1, run)), ClientId(2)).ok());
  run.DropSum();
  ASSERT_TRUE(run.Apply(Round(1), Phase(0)).ok());
  EXPECT_TRUE(run.UnlearnedModels().empty());
  ASSERT_TRUE(run.Open(OrderOf(2)).ok());
  ASSERT_TRUE(run.Add(*run.Decode(PartOf({2}, 2, run)), ClientId(2)).ok());
  Do(plain, 2, {0, 1}, /*apart=*/false);
  Do(run, 2, {0, 1}, /*apart=*/false);
  EXPECT_TRUE(run.UnlearnedModels().empty());
  EXPECT_EQ(run.ModelBlob().digest, plain.ModelBlob().digest);
}

INSTANTIATE_TEST_SUITE_P(Of, UnlearnedOfFedAvg, testing::Values("fedavg"));

// ---- runs

const std::vector<uint64_t> kEverybody = {0, 1, 2, 3, 4, 5, 6, 7};

Options UnlearningAll(const std::string& folder, uint32_t rounds) {
  Options options = TinyOptions(folder, rounds);
  options.run.evaluation.unlearn = kEverybody;
  return options;
}

std::string UnlearnedFile(const TemporaryFolder& folder, uint64_t client) {
  return folder / absl::StrCat("unlearned/", client, ".safetensors");
}

TEST(Unlearning, WritesModelsAndALineForEachEvaluatedRound) {
  const TemporaryFolder folder, plain;
  Options options = UnlearningAll(folder.path(), 5);
  options.run.evaluation.every = 2;
  Finish(options);
  const std::vector<nlohmann::json> lines = ContributionsOf(folder);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["round"], 2);
  EXPECT_EQ(lines[1]["round"], 4);
  const nlohmann::json& line = lines[2];
  EXPECT_EQ(line["round"], 5);
  EXPECT_TRUE(line["client"].empty() && line["test_accuracy"].empty()) << "nobody is left out once";
  const auto history = log::ReadHistory(folder / "rounds.log");
  ASSERT_TRUE(history.ok()) << history.status();
  size_t counted = 0;
  for (const uint64_t client : kEverybody)
    counted += log::RoundsThatCounted(ClientId(client), *history) > 0 ? 1 : 0;
  ASSERT_EQ(line["unlearned_client"].size(), counted);
  for (size_t i = 0; i < counted; ++i) {
    const auto client = line["unlearned_client"][i].get<uint64_t>();
    EXPECT_EQ(line["unlearned_rounds"][i], log::RoundsThatCounted(ClientId(client), *history));
    const auto model = ReadModel(UnlearnedFile(folder, client), TinyLayout());
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(line["unlearned_model"][i], DigestOfValues(std::as_const(*model).view()).Hex());
    EXPECT_NEAR(line["unlearned_test_accuracy"][i].get<double>(), model->As<float>()[0] / 100,
                1e-3);
  }
  Options without = TinyOptions(plain.path(), 5);
  without.run.evaluation.every = 2;
  Finish(without);
  EXPECT_EQ(RunBytes(plain.path()).digest, RunBytes(folder.path()).digest)
      << "it changes nothing of the result";
}

// Without a central test set there are models, and no metrics.
TEST(Unlearning, NeedsNoTestSet) {
  const TemporaryFolder folder;
  Options options = UnlearningAll(folder.path(), 2);
  options.run.evaluation.central = false;
  Finish(options);
  const nlohmann::json line = ContributionsOf(folder).back();
  ASSERT_GE(line["unlearned_client"].size(), 4u);
  EXPECT_TRUE(line["unlearned_test_accuracy"][0].is_null());
  EXPECT_EQ(line["unlearned_model"].size(), line["unlearned_client"].size());
}

class UnlearningInterrupted : public testing::TestWithParam<bool> {};

// With durable commits the server goes on inside the round.
TEST_P(UnlearningInterrupted, GivesTheSameLinesAndModels) {
  for (const uint32_t rounds : {1, 2, 3}) {
    const TemporaryFolder whole, parts;
    Options options = UnlearningAll(whole.path(), 4);
    options.config.checkpoint_every = 3;
    if (GetParam()) options.config.durability = "commit";
    Finish(options);
    options.run_dir = parts.path();
    {
      const auto coordinator = StartTiny(options);
      FakeWorker worker(*coordinator);
      SendApart(worker);
      ASSERT_TRUE(worker.Register().ok());
      worker.RunThrough(rounds);
      if (GetParam()) {
        ASSERT_TRUE(worker.WorkOnPart().has_value());  // inside the next round
        coordinator->Suspend();
      } else {
        coordinator->Interrupt();
        EXPECT_FALSE(worker.Work().has_value());
      }
      ASSERT_TRUE(coordinator->Wait().ok());
    }
    options.resume = true;
    Finish(options);
    EXPECT_EQ(RunBytes(parts.path()), RunBytes(whole.path())) << rounds;
    EXPECT_EQ(Slurp(parts / "contributions.jsonl"), Slurp(whole / "contributions.jsonl")) << rounds;
    for (const nlohmann::json& client : ContributionsOf(whole).back()["unlearned_client"]) {
      const auto number = client.get<uint64_t>();
      EXPECT_EQ(Slurp(UnlearnedFile(parts, number)), Slurp(UnlearnedFile(whole, number)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Durable, UnlearningInterrupted, testing::Bool());

TEST(Unlearning, IsRefusedWhereWhatClientsSendDependsOnTheClient) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& algorithm) {
    Options options = UnlearningAll(folder.path(), 1);
    options.run.algorithm = *Registry().Complete({algorithm, {}});
    return std::string(StartError(options).message());
  };
  EXPECT_THAT(refused("mime"), HasSubstr("evaluation.unlearn: a round of algorithm mime has"));
  EXPECT_THAT(refused("local"), HasSubstr("no common model"));
  const algorithms::Description& rule = **Registry().Find("fedavg");
  const algorithms::Schema schema =
      *algorithms::SchemaOf(rule, algorithms::SetupOf(TinyOptions("", 1).run, TinyLayout()));
  RunPlan run = UnlearningAll(folder.path(), 1).run;
  EXPECT_TRUE(CheckUnlearning(run, rule, schema).ok());
  run.update.codec = {"acpsgd 1"};
  EXPECT_THAT(CheckUnlearning(run, rule, schema).ToString(), HasSubstr("sends factors on a basis"));
  run = UnlearningAll(folder.path(), 1).run;
  run.privacy.mechanism = "gaussian";
  EXPECT_THAT(CheckUnlearning(run, rule, schema).ToString(), HasSubstr("[privacy]"));
}

}  // namespace
}  // namespace macaw::server
