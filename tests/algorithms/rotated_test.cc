// Codecs behind a rotation that all clients of a round share: "rotate" in update.codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "algorithms/around/compressed.h"
#include "algorithms/around/privacy.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/bowls.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

constexpr size_t kTurnedClients = 8, kTurnedNumbers = 36;
Bowls TurnedBowls() { return {kTurnedClients, kTurnedNumbers, /*seed=*/11, /*spread=*/2}; }

Description Turned(const char* line, std::string feedback = "none", const char* rule = "fedavg") {
  return Compressed(Builtin(rule), Update({"rotate", line}, std::move(feedback)));
}

RoundLoop Loop(const Description& rule, uint64_t cohort, DType dtype = DType::kF64,
               double lr = 0.2) {
  return {rule,
          TurnedBowls().population,
          {.steps = 2,
           .dtype = dtype,
           .start = Numbers(kTurnedNumbers),
           .lr = lr,
           .cohort = CohortOf(cohort)}};
}

// "topk 1" keeps all numbers, so nothing but the rotation is left, and every rule, robust ones and
// those of several phases too, must do what it does without.
TEST(Rotated, AloneChangesNoRule) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  const LayoutPtr net =
      *ParameterLayout::Make({{.name = "fc.weight", .shape = {2}},
                              {.name = "bn.mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  for (const Description* rule : registry.All()) {
    if (rule->pools_clients || !rule->has_common_model) continue;
    if (rule->has_slices || rule->has_statistics) continue;  // of a list of layers
    SCOPED_TRACE(rule->name);
    std::map<std::string, ParameterValue> parameters;
    if (rule->name == "krum") parameters = {{"f", int64_t{0}}};
    const auto loop = [&](const Description& description) {
      return RoundLoop(description, Q4(),
                       {.steps = 3,
                        .parameters = parameters,
                        .start = {1, -1},
                        .layout = net,
                        .cohort = CohortOf(3)});
    };
    RoundLoop plain = loop(*rule);
    RoundLoop turned = loop(Compressed(*rule, Update({"rotate", "topk 1"}, "none")));
    for (const std::vector<size_t>& cohort :
         {std::vector<size_t>{0, 1, 2}, {1, 2, 3}, {3, 0, 2}, {}, {0, 1, 3}}) {
      ASSERT_TRUE(plain.Round(cohort).ok());
      ASSERT_TRUE(turned.Round(cohort).ok());
      ASSERT_LT(Distance(turned.Model(), plain.Model()), 1e-9);
    }
    EXPECT_LT(turned.metrics().at("update_error"), 1e-9);
  }
}

TEST(Rotated, ChannelIsCodedAndHoldsWhatARotationMakesOfItsBound) {
  const RoundLoop loop = Loop(Turned("bits 2"), kTurnedClients);
  ASSERT_EQ(loop.schema().up.size(), 1u);
  EXPECT_TRUE(loop.schema().up[0].coded);
  EXPECT_EQ(loop.schema().up[0].levels, 2u);
  EXPECT_DOUBLE_EQ(loop.schema().up[0].bound, 65536 * 6);  // 32 numbers, and the 4 of the rest
  EXPECT_TRUE(loop.schema().state.empty());
}

// Where all take part the mean of unbiased errors stays small beside that of one client.
TEST(Rotated, UnbiasedCodecsNeedNoFeedback) {
  const Bowls bowls = TurnedBowls();
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    RoundLoop loop = Loop(Turned("bits 8"), kTurnedClients, dtype);
    ASSERT_TRUE(loop.Rounds(300).ok());
    EXPECT_LT(Distance(loop.Model(), bowls.optimum), 0.1);
  }
}

// What was sent and what is kept add up to what the client has found, in the model's numbers,
// though each round has another rotation.
TEST(Rotated, AResidualIsInTheModelsNumbers) {
  const std::vector<TestPopulationClient> one = {
      {std::make_shared<SquaredDistance>(Numbers(kTurnedNumbers, 5)), 1}};
  RoundLoop loop(Turned("topk 0.25", "residual"), one,
                 {.steps = 1, .start = Numbers(kTurnedNumbers), .lr = 0.1, .cohort = CohortOf(1)});
  Numbers found(kTurnedNumbers);
  for (int round = 0; round < 20; ++round) {
    const Numbers before = loop.Model();
    for (size_t i = 0; i < kTurnedNumbers; ++i) found[i] += 0.1 * (5 - before[i]);
    ASSERT_TRUE(loop.Rounds(1).ok());
    Numbers sent_and_kept = loop.Model();
    const Numbers kept = loop.State(0, 0);
    for (size_t i = 0; i < kTurnedNumbers; ++i) sent_and_kept[i] += kept[i];
    ASSERT_LT(Distance(sent_and_kept, found), 1e-9) << round;
    EXPECT_LT(loop.metrics().at("update_error"), 1);
  }
}

TEST(Rotated, Ef21sSumIsTheMeanOfWhatItsClientsSent) {
  const Bowls bowls = TurnedBowls();
  RoundLoop loop = Loop(Turned("sign", "ef21"), 2);
  for (size_t first = 0; first < 24; ++first) {
    const std::vector<size_t> cohort = {first % 8, (first + 3) % 8};
    ASSERT_TRUE(loop.Round(cohort, {cohort[0]}).ok());
    Numbers mean(kTurnedNumbers);
    for (size_t client = 0; client < kTurnedClients; ++client) {
      for (size_t i = 0; i < kTurnedNumbers; ++i)
        mean[i] += loop.State(client, 0)[i] / kTurnedClients;
    }
    ASSERT_LT(Distance(loop.Saved(SumOf("delta")), mean), 1e-9);
  }
  ASSERT_TRUE(loop.SampledRounds(2500, 2).ok());
  EXPECT_LT(Distance(loop.Model(), bowls.optimum), 1e-6);
}

TEST(Rotated, AStateThatFollowsMirrorsWhatIsDecoded) {
  RoundLoop loop = Loop(Turned("bits 3", "auto", "scaffold"), 4, DType::kF64, 0.05);
  ASSERT_TRUE(loop.SampledRounds(60, 4).ok());
  Numbers mean(kTurnedNumbers);
  for (size_t client = 0; client < kTurnedClients; ++client) {
    for (size_t i = 0; i < kTurnedNumbers; ++i)
      mean[i] += loop.State(client, 0)[i] / kTurnedClients;
  }
  EXPECT_LT(Distance(loop.Saved("control"), mean), 1e-9);
}

// The clip is of the rotated vector, whose norm is that of the update.
TEST(Rotated, AClipTakesTheSamePartAsWithoutARotation) {
  const Description rule =
      Compressed(Builtin("fedavg"), Update({"rotate", "topk 1"}, "residual"), {.noised = true});
  RoundLoop loop(WithPrivacy(rule, {.mechanism = "gaussian", .clip = 2, .noise = 1e-9}, 10),
                 {{std::make_shared<SquaredDistance>(Numbers{24, 32}), 1},
                  {std::make_shared<SquaredDistance>(Numbers{1, 2}), 1}},
                 {.steps = 1, .start = {0, 0}, .lr = 0.1, .cohort = CohortOf(1, "poisson")});
  ASSERT_TRUE(loop.Round({0}).ok());  // (2.4, 3.2), of norm 4
  EXPECT_EQ(loop.metrics().at("clipped"), 1);
  EXPECT_LT(Distance(loop.Model(), {1.2, 1.6}), 1e-5);
  EXPECT_LT(Distance(loop.State(0, 0), {1.2, 1.6}), 1e-5);
}

TEST(Rotated, GoesOnWithTheSameBitsAfterAResume) {
  for (const char* feedback : {"none", "residual", "ef21"}) {
    RoundLoop straight = Loop(Turned("terngrad", feedback), 2, DType::kF32, 0.01);
    RoundLoop resumed = Loop(Turned("terngrad", feedback), 2, DType::kF32, 0.01);
    ASSERT_TRUE(straight.SampledRounds(5, 2).ok());
    ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
    ASSERT_TRUE(straight.SampledRounds(5, 2).ok() && resumed.SampledRounds(5, 2).ok());
    EXPECT_EQ(straight.ModelDigest(), resumed.ModelDigest()) << feedback;
  }
}

TEST(Rotated, IsRefusedWhereItMakesNoSense) {
  RunPlan run;
  run.cohort = CohortOf(4);
  run.clients = kTurnedClients;
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  run.algorithm = *registry.Complete({"fedavg", {}});
  const LayoutPtr layout = Plain(kTurnedNumbers, DType::kF32);
  const auto refusal = [&](std::vector<std::string> codec) {
    run.update = Update(std::move(codec));
    const absl::StatusOr<Description> rule = registry.RuleOf(run);
    if (!rule.ok()) return std::string(rule.status().message());
    return std::string(MakeSchema(*rule, SetupOf(run, layout)).status().message());
  };
  EXPECT_EQ(refusal({"rotate", "bits 2"}), "");
  EXPECT_THAT(refusal({"rotate"}), HasSubstr("a quantiser behind it"));
  EXPECT_THAT(refusal({"bits 2", "rotate"}), HasSubstr("stands first"));
  EXPECT_THAT(refusal({"rotate", "acpsgd 2"}), HasSubstr("stand alone"));
  run.attack = {.kind = "alie", .fraction = 0.25};
  EXPECT_THAT(refusal({"rotate", "bits 2"}), HasSubstr("alie"));
  for (const char* kind : {"min-max", "min-sum"}) {
    run.attack = {.kind = kind, .fraction = 0.25};
    EXPECT_THAT(refusal({"rotate", "bits 2"}), HasSubstr("attack.perturbation"));
    run.attack.perturbation = "unit";
    EXPECT_EQ(refusal({"rotate", "bits 2"}), "");
  }
  run.attack.kind = "sign-flip";
  EXPECT_EQ(refusal({"rotate", "bits 2"}), "");
  run.attack = {};
  run.broadcast = {.codec = {"rotate", "bits 8"}, .of = "model"};
  EXPECT_THAT(refusal({"bits 2"}), HasSubstr("update.codec alone"));
  run.broadcast = {};
  run.cohort = CohortOf(4, "poisson");
  run.privacy = {.mechanism = "gaussian", .clip = 1, .noise = 1};
  EXPECT_EQ(refusal({"rotate", "bits 2"}), "");
}

// A rotation turns the bias of signs into a factor that all clients share: the run ends around the
// optimum, and plain signs beside it.
TEST(Rotated, SignsNeedNoFeedbackToEndAroundTheOptimum) {
  const Bowls bowls = TurnedBowls();
  const auto mean_of_ends = [&](const Description& rule) {
    RoundLoop loop = Loop(rule, kTurnedClients, DType::kF64, 0.05);
    EXPECT_TRUE(loop.Rounds(500).ok());
    Numbers mean(kTurnedNumbers);
    for (int round = 0; round < 500; ++round) {
      EXPECT_TRUE(loop.Rounds(1).ok());
      const Numbers model = loop.Model();
      for (size_t i = 0; i < kTurnedNumbers; ++i) mean[i] += model[i] / 500;
    }
    return Distance(mean, bowls.optimum);
  };
  EXPECT_LT(mean_of_ends(Turned("sign")), 0.1);
  EXPECT_LT(mean_of_ends(Turned("sign unbiased")), 0.1);
  EXPECT_GT(mean_of_ends(Compressed(Builtin("fedavg"), Update({"sign"}, "none"))), 0.5);
}

TEST(Rotated, SaysThatNumbersAreBetterNotLeftOutBehindIt) {
  const algorithms::Setup setup = Loop(Turned("bits 2"), kTurnedClients).setup();
  const auto notes = [&](const char* line) {
    std::string all;
    for (const std::string& note : Turned(line, "auto").notes(setup)) all += note + "\n";
    return all;
  };
  EXPECT_THAT(notes("topk 0.1"), HasSubstr("same size"));
  for (const char* line : {"bits 2", "randomk 0.1", "topk 1"})
    EXPECT_THAT(notes(line), testing::Not(HasSubstr("same size"))) << line;
  for (const std::string& note : Turned("sign").notes(setup))
    EXPECT_THAT(note, testing::Not(HasSubstr("biased")));
}

}  // namespace
}  // namespace macaw::algorithms
