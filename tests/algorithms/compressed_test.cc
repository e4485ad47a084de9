#include "algorithms/around/compressed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/around/privacy.h"
#include "algorithms/around/residual_age.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/bowls.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

// The gradient is `slope` everywhere, so a client's update of one step is −lr·slope.
class Incline final : public Objective {
 public:
  explicit Incline(Numbers slope) : slope_(std::move(slope)) {}
  double Loss(const Numbers&) const override { return 0; }
  Numbers Gradient(const Numbers&) const override { return slope_; }

 private:
  const Numbers slope_;
};

// Clients with these slopes, and as many examples as their place, from 1.
RoundLoop Inclines(const Description& rule, const std::vector<Numbers>& slopes,
                   const CohortConfig& cohort, DType dtype = DType::kF64) {
  std::vector<TestPopulationClient> population;
  for (const Numbers& slope : slopes) {
    population.push_back(
        {std::make_shared<Incline>(slope), static_cast<uint32_t>(population.size() + 1)});
  }
  return {rule,
          population,
          {.steps = 1, .dtype = dtype, .start = Numbers(slopes[0].size()), .cohort = cohort}};
}

TEST(Compressed, SendsWhatTheCodecLeaves) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    RoundLoop loop = Inclines(Compressed(Builtin("fedavg"), Update({"topk 0.5"}, "none")),
                              {{1, 2}, {5, 3}}, CohortOf(2), dtype);
    ASSERT_TRUE(loop.Rounds(1).ok());
    // (0, −.2) with weight 1 of 3, (−.5, 0) with weight 2 of 3.
    EXPECT_LT(Distance(loop.Model(), {-0.1 * 10 / 3, -0.1 * 2 / 3}), 1e-7);
    const double first = 0.1 / std::hypot(0.1, 0.2), second = 0.3 / std::hypot(0.5, 0.3);
    EXPECT_NEAR(loop.metrics().at("update_error"), (first + second) / 2, 1e-7);
    EXPECT_TRUE(loop.schema().state.empty());
    EXPECT_TRUE(loop.schema().up[0].coded);
  }
}

TEST(Compressed, AResidualComesUpInALaterRound) {
  RoundLoop loop = Inclines(Compressed(Builtin("fedavg"), Update({"topk 0.5"}, "residual")),
                            {{1, 2.5}}, CohortOf(1));
  ASSERT_TRUE(loop.Rounds(1).ok());  // p = (−.1, −.25)
  EXPECT_LT(Distance(loop.State(0, 0), {-0.1, 0}), 1e-12);
  ASSERT_TRUE(loop.Rounds(1).ok());  // p = (−.2, −.25)
  EXPECT_LT(Distance(loop.Model(), {0, -0.5}), 1e-12);
  ASSERT_TRUE(loop.Rounds(1).ok());  // p = (−.3, −.25)
  EXPECT_LT(Distance(loop.Model(), {-0.3, -0.5}), 1e-12);
  EXPECT_LT(Distance(loop.State(0, 0), {0, -0.25}), 1e-12);
}

// A client's residual loses a half for each round that it was away.
TEST(Compressed, AResidualDecaysWithTheRoundsThatItsClientWasAway) {
  UpdateConfig update = Update({"topk 0.5"}, "residual");
  update.residual_decay = 0.5;
  RoundLoop loop =
      Inclines(Compressed(Builtin("fedavg"), update), {{2, 2.5}, {2, 2.5}}, CohortOf(1));
  ASSERT_TRUE(loop.Round({0}).ok());  // p = (−.2, −.25)
  EXPECT_LT(Distance(loop.State(0, 0), {-0.2, 0}), 1e-12);
  EXPECT_EQ(loop.State(0, 1), Numbers({1}));
  ASSERT_TRUE(loop.Round({0}).ok());  // at once: p = (−.4, −.25)
  EXPECT_LT(Distance(loop.Model(), {-0.4, -0.25}), 1e-12);
  EXPECT_LT(Distance(loop.State(0, 0), {0, -0.25}), 1e-12);
  ASSERT_TRUE(loop.Round({1}).ok());
  ASSERT_TRUE(loop.Round({0}, {0}).ok());  // was not counted: it is away
  EXPECT_LT(Distance(loop.State(0, 0), {0, -0.25}), 1e-12);
  EXPECT_EQ(loop.State(0, 1), Numbers({2}));
  ASSERT_TRUE(loop.Round({0}).ok());  // two rounds away: p = (−.2, −.25 − .25/4)
  EXPECT_LT(Distance(loop.Model(), {-0.4, -0.8125}), 1e-12);
  EXPECT_LT(Distance(loop.State(0, 0), {-0.2, 0}), 1e-12);
  EXPECT_EQ(loop.State(0, 1), Numbers({5}));
}

// Where all come in each round, and where nothing decays, the bits are those of a residual.
TEST(Compressed, ADecayChangesNothingOfClientsThatAlwaysCome) {
  UpdateConfig update = Update({"topk 0.5", "bits 6"}, "residual");
  const auto loop = [&] {
    return RoundLoop(Compressed(Builtin("fedavg"), update), Q4(),
                     {.dtype = DType::kF32, .start = {1, -1}, .cohort = CohortOf(4)});
  };
  RoundLoop plain = loop();
  update.residual_decay = 0.1;
  RoundLoop decays = loop(), resumed = loop();
  ASSERT_TRUE(plain.Rounds(5).ok() && decays.Rounds(5).ok());
  EXPECT_EQ(plain.ModelDigest(), decays.ModelDigest());
  ASSERT_TRUE(plain.Round({0}).ok() && decays.Round({0}).ok());
  ASSERT_TRUE(resumed.ResumeFrom(decays).ok());
  for (RoundLoop* const one : {&plain, &decays, &resumed}) ASSERT_TRUE(one->Rounds(4).ok());
  EXPECT_NE(plain.ModelDigest(), decays.ModelDigest());
  EXPECT_EQ(resumed.ModelDigest(), decays.ModelDigest());
}

// In the second phase of its round a residual is as old as in the first.
TEST(Compressed, ADecayIsOfRoundsAndNotOfPhases) {
  EXPECT_EQ(ResidualRoundOf("delta").name, "update_round_delta");
  Schema schema{.state = {ResidualRoundOf("delta")}};
  FlatVector round(schema.state[0].layout);
  const ConstVectorView state[] = {round.view()};
  ClientContext context{.state = state, .schema = &schema};
  const auto part = [&](double counted, uint32_t now) {
    round.view().As<double>()[0] = counted;
    context.round = Round(now);
    return PartThatStays(0.5, context, "delta");
  };
  EXPECT_EQ(part(7, 7), 1);
  EXPECT_EQ(part(7, 8), 1);
  EXPECT_EQ(part(7, 9), 0.5);
  EXPECT_EQ(part(7, 12), 0.0625);
  EXPECT_EQ(part(1, 4'000'000'000), 0);
  EXPECT_EQ(PartThatStays(1, {}, "delta"), 1);
}

TEST(Compressed, RandomKIsScaledWhereNothingIsFedBack) {
  for (const auto& [feedback, sent] : {std::pair("none", -0.2), std::pair("residual", -0.1)}) {
    RoundLoop loop = Inclines(Compressed(Builtin("fedavg"), Update({"randomk 0.5"}, feedback)),
                              {{1, 1}}, CohortOf(1));
    ASSERT_TRUE(loop.Rounds(1).ok());
    const Numbers model = loop.Model();
    EXPECT_NEAR(model[0] + model[1], sent, 1e-12) << feedback;
    EXPECT_TRUE(model[0] == 0 || model[1] == 0);
  }
}

TEST(Compressed, Ef21SendsDifferencesAndTheServerKeepsTheirSum) {
  RoundLoop loop = Inclines(Compressed(Builtin("fedavg"), Update({"topk 0.5"}, "ef21")),
                            {{1, 2}, {5, 3}}, CohortOf(1));
  ASSERT_TRUE(loop.Round({1}).ok());  // v = (−.5, −.3), c = (−.5, 0), p_1 = 2/3
  EXPECT_LT(Distance(loop.State(1, 0), {-0.5, 0}), 1e-12);
  EXPECT_LT(Distance(loop.Saved(SumOf("delta")), {-1.0 / 3, 0}), 1e-12);
  EXPECT_LT(Distance(loop.Model(), {-0.5, 0}), 1e-12) << "the mean of those who came so far";
  ASSERT_TRUE(loop.Round({0}).ok());  // v = (−.1, −.2), c = (0, −.2)
  EXPECT_LT(Distance(loop.Saved(SumOf("delta")), {-1.0 / 3, -0.2 / 3}), 1e-12);
  // 2/3 and a third of the rest have come; client 1 counts, too.
  double seen = 7.0 / 9;
  Numbers model = {-0.5 - 1.0 / 3 / seen, -0.2 / 3 / seen};
  EXPECT_LT(Distance(loop.Model(), model), 1e-12);
  ASSERT_TRUE(loop.Round({1}).ok());  // v − g = (0, −.3), all of which is sent
  EXPECT_LT(Distance(loop.State(1, 0), {-0.5, -0.3}), 1e-12);
  EXPECT_NEAR(loop.metrics().at("update_error"), 0, 1e-12);
  seen = 25.0 / 27;
  model = {model[0] - 1.0 / 3 / seen, model[1] - 0.8 / 3 / seen};
  EXPECT_LT(Distance(loop.Model(), model), 1e-12);
  ASSERT_TRUE(loop.Round({}).ok());
  model = {model[0] - 1.0 / 3 / seen, model[1] - 0.8 / 3 / seen};
  EXPECT_LT(Distance(loop.Model(), model), 1e-12) << "nobody came";
}

// G of the server against the g_i of the clients.
double SumError(const RoundLoop& loop, size_t clients, const std::string& channel = "delta",
                bool weighted = true) {
  const Numbers sum = loop.Saved(SumOf(channel));
  Numbers mean(sum.size());
  for (size_t client = 0; client < clients; ++client) {
    const double share = weighted ? loop.Share(client) : 1.0 / static_cast<double>(clients);
    const Numbers sent = loop.State(client, 0);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += share * sent[i];
  }
  return Distance(sum, mean);
}

TEST(Compressed, Ef21sSumIsTheMeanOfWhatItsClientsSentWhoeverIsLost) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    RoundLoop loop(Compressed(Builtin("fedavg"), Update({"topk 0.5", "bits 4"}, "ef21")), Q4(),
                   {.dtype = dtype, .cohort = CohortOf(2)});
    const std::pair<std::vector<size_t>, std::set<size_t>> rounds[] = {
        {{0, 1}, {}}, {{2, 3}, {3}}, {{0, 3}, {0, 3}}, {{1, 2}, {2}}, {{}, {}}, {{0, 2}, {}}};
    for (const auto& [cohort, lost] : rounds) {
      ASSERT_TRUE(loop.Round(cohort, lost).ok());
      EXPECT_LT(SumError(loop, 4), dtype == DType::kF64 ? 1e-9 : 1e-6);
    }
    EXPECT_EQ(loop.State(3, 0), Numbers(2)) << "both its turns were lost";
    EXPECT_NE(loop.State(0, 0), Numbers(2));
  }
}

TEST(Compressed, Ef21GivesAFixedSumThePartThatCame) {
  Description rule = Builtin("fedavg");
  rule.schema = [schema = rule.schema](const algorithms::Setup& setup) {
    absl::StatusOr<Schema> made = schema(setup);
    made->up[0].reduction = aggregation::Reduction::kFixedSum;
    made->up[0].divisor = 2;
    return made;
  };
  RoundLoop loop =
      Inclines(Compressed(rule, Update({"topk 0.5"}, "ef21")), {{1, 2}, {5, 3}}, CohortOf(1));
  ASSERT_TRUE(loop.Rounds(1).ok());  // c = (0, −.2) and (−.5, 0)
  EXPECT_LT(Distance(loop.Model(), {-0.25, -0.1}), 1e-12);
  ASSERT_TRUE(loop.Round({1}).ok());  // c = (0, −.3)
  EXPECT_LT(Distance(loop.Saved(SumOf("delta")), {-0.25, -0.25}), 1e-12);
  EXPECT_LT(Distance(loop.Model(), {-0.375, -0.225}), 1e-12);
  ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_LT(Distance(loop.Model(), {-0.375, -0.225}), 1e-12);
}

constexpr size_t kClients = 8, kNumbers = 36;
Bowls EightBowls() { return {kClients, kNumbers, /*seed=*/7, /*spread=*/2}; }

// The distance of the last of many rounds to the optimum.
double EndOf(const Description& rule, uint64_t size, uint32_t steps = 1, double lr = 0.2,
             int rounds = 1500) {
  const Bowls bowls = EightBowls();
  RoundLoop loop(rule, bowls.population,
                 {.steps = steps, .start = Numbers(kNumbers), .lr = lr, .cohort = CohortOf(size)});
  const absl::Status status =
      size == kClients ? loop.Rounds(rounds) : loop.SampledRounds(rounds, size);
  EXPECT_TRUE(status.ok()) << status;
  return Distance(loop.Model(), bowls.optimum);
}

Description TopKOf(const std::string& feedback, const std::string& rule = "fedavg") {
  return Compressed(Builtin(rule), Update({"topk 0.17"}, feedback));
}

TEST(CompressedConvergence, PlainTopKEndsBesideTheOptimumAndAResidualNearIt) {
  const double plain = EndOf(TopKOf("none"), kClients, 1, 0.02);
  const double residual = EndOf(TopKOf("residual"), kClients, 1, 0.02);
  EXPECT_GT(plain, 0.3);
  EXPECT_LT(residual, plain / 4);
}

TEST(CompressedConvergence, Ef21EndsInTheOptimumWhoeverIsDrawn) {
  EXPECT_LT(EndOf(TopKOf("ef21"), kClients), 1e-9);
  EXPECT_LT(EndOf(TopKOf("ef21"), 2), 1e-9);
  EXPECT_GT(EndOf(TopKOf("residual"), 2), 0.3);
  EXPECT_GT(EndOf(Builtin("fedavg"), 2), 0.1) << "ef21 takes the noise of the draws away, too";
}

TEST(CompressedConvergence, AutoTakesWhatFitsTheCohort) {
  EXPECT_LT(EndOf(TopKOf("auto"), 2), 1e-9);
  EXPECT_EQ(EndOf(TopKOf("auto"), kClients), EndOf(TopKOf("residual"), kClients));
}

TEST(CompressedConvergence, UnbiasedCodecsNeedNoFeedback) {
  // The projection of the mean is the mean of the projections: exact where everybody takes part.
  EXPECT_LT(EndOf(Compressed(Builtin("fedavg"), Update({"randomk 0.5"})), kClients), 1e-9);
  EXPECT_LT(EndOf(Compressed(Builtin("fedavg"), Update({"bits 8"})), kClients), 0.05);
  EXPECT_LT(EndOf(Compressed(Builtin("fedavg"), Update({"f16"})), kClients), 1e-3);
}

// Two local steps, so that clients drift.
TEST(CompressedConvergence, ScaffoldKeepsTheMeanOfItsControlsAndConverges) {
  const Bowls bowls = EightBowls();
  RoundLoop loop(TopKOf("auto", "scaffold"), bowls.population,
                 {.steps = 2, .start = Numbers(kNumbers), .lr = 0.1, .cohort = CohortOf(4)});
  for (size_t first = 0; first < 24; ++first) {
    const std::vector<size_t> cohort = {first % 8, (first + 2) % 8, (first + 5) % 8};
    ASSERT_TRUE(loop.Round(cohort, {cohort[0]}).ok());
    Numbers mean(kNumbers);
    for (size_t client = 0; client < kClients; ++client) {
      for (size_t i = 0; i < kNumbers; ++i) mean[i] += loop.State(client, 0)[i] / kClients;
    }
    ASSERT_LT(Distance(loop.Saved("control"), mean), 1e-9);
  }
  ASSERT_TRUE(loop.SampledRounds(4000, 4).ok());
  EXPECT_LT(Distance(loop.Model(), bowls.optimum), 1e-6);
}

TEST(CompressedConvergence, FedDynsHFollowsItsClients) {
  const Bowls bowls = EightBowls();
  RoundLoop loop(TopKOf("none", "feddyn"), bowls.population,
                 {.steps = 3,
                  .parameters = {{"alpha", 0.5}},
                  .start = Numbers(kNumbers),
                  .lr = 0.2,
                  .cohort = CohortOf(4)});
  ASSERT_TRUE(loop.SampledRounds(4000, 4).ok());
  Numbers mean(kNumbers);
  for (size_t client = 0; client < kClients; ++client) {
    for (size_t i = 0; i < kNumbers; ++i) mean[i] += loop.State(client, 0)[i] / kClients;
  }
  EXPECT_LT(Distance(loop.Saved("h"), mean), 1e-9);
  EXPECT_LT(Distance(loop.Model(), bowls.optimum), 1e-6);
}

TEST(Compressed, GoesOnWithTheSameBitsAfterAResume) {
  for (const char* feedback : {"none", "residual", "ef21"}) {
    const auto loop = [&] {
      return RoundLoop(Compressed(Builtin("fedavgm"), Update({"topk 0.5", "qsgd 4"}, feedback)),
                       Q4(), {.dtype = DType::kF32, .start = {1, -1}, .cohort = CohortOf(2)});
    };
    RoundLoop straight = loop(), resumed = loop();
    ASSERT_TRUE(straight.SampledRounds(5, 2).ok());
    ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
    ASSERT_TRUE(straight.SampledRounds(5, 2).ok() && resumed.SampledRounds(5, 2).ok());
    EXPECT_EQ(straight.ModelDigest(), resumed.ModelDigest()) << feedback;
  }
}

// Whatever the rule sends beside its update, and in whatever order clients come.
TEST(Compressed, WorksAroundEveryRuleThatUsesUpdates) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  const LayoutPtr net =
      *ParameterLayout::Make({{.name = "bn.weight", .shape = {1}},
                              {.name = "fc.weight", .shape = {1}},
                              {.name = "bn.mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF32);
  for (const Description* rule : registry.All()) {
    if (rule->pools_clients || !rule->has_common_model) continue;
    if (rule->has_slices || rule->has_statistics) continue;  // of a list of layers
    SCOPED_TRACE(rule->name);
    std::map<std::string, ParameterValue> parameters;
    if (rule->name == "krum") parameters = {{"f", int64_t{0}}};
    for (const uint64_t size : {2u, 4u}) {  // of ef21 and of a residual
      const auto loop = [&] {
        return RoundLoop(Compressed(*rule, Update({"topk 0.5", "bits 6"})), Q4(),
                         {.steps = 3,
                          .parameters = parameters,
                          .start = {1, -1},
                          .layout = net,
                          .cohort = CohortOf(size)});
      };
      RoundLoop forward = loop(), backward = loop();
      for (int round = 0; round < 30; ++round) {
        ASSERT_TRUE(forward.Round({0, 1, 2, 3}).ok());
        ASSERT_TRUE(backward.Round({3, 1, 0, 2}).ok());
        ASSERT_EQ(forward.ModelDigest(), backward.ModelDigest());
      }
      EXPECT_LT(Distance(forward.Model(), {0, 0}), 100);
      EXPECT_NE(forward.Model(), Numbers({1, -1}));
      // EF21 moves the model without anybody, too.
      ASSERT_TRUE(forward.Round({}).ok());
      ASSERT_TRUE(forward.Round({0, 1}, /*lost=*/{0, 1}).ok());
      EXPECT_LT(Distance(forward.Model(), {0, 0}), 100);
    }
  }
}

TEST(Compressed, LoadsOnlyASumOfItsOwn) {
  RoundLoop loop(TopKOf("ef21"), Q4(), {.cohort = CohortOf(2)});
  ServerState state = loop.server().Save();
  state.vectors.erase(SumOf("delta"));
  EXPECT_THAT(loop.server().Load(state).message(), HasSubstr("update_sum_delta"));
  state.vectors.emplace(SumOf("delta"), FlatVector(Plain(3, DType::kF64)));
  EXPECT_THAT(loop.server().Load(state).message(), HasSubstr("update_sum_delta"));
  state = loop.server().Save();
  state.numbers.erase(SumOf("delta"));
  EXPECT_THAT(loop.server().Load(state).message(), HasSubstr("update_sum_delta"));
  EXPECT_TRUE(loop.server().Load(loop.server().Save()).ok());
}

// Statistics are sent as they are, and move by the mean of those who came.
TEST(Compressed, LeavesBuffersToThoseWhoCame) {
  const LayoutPtr net = *ParameterLayout::Make(
      {{.name = "w", .shape = {2}}, {.name = "mean", .shape = {1}, .group = Group::kBuffer}},
      DType::kF64);
  const auto buffer = [&](const Description& rule) {
    RoundLoop loop(rule, Q4(), {.steps = 3, .layout = net, .cohort = CohortOf(2)});
    for (const std::vector<size_t>& cohort :
         {std::vector<size_t>{0, 1}, {2, 3}, {1, 3}, {}, {0, 3}}) {
      EXPECT_TRUE(loop.Round(cohort).ok());
    }
    return loop.server().Model().As<double>()[net->Find("mean")->offset];
  };
  const double plain = buffer(Builtin("fedavg"));
  EXPECT_NE(plain, 0);
  for (const char* feedback : {"none", "residual", "ef21"})
    EXPECT_NEAR(buffer(TopKOf(feedback)), plain, 1e-9) << feedback;
}

TEST(Compressed, RobustRulesSeeWhatIsDecoded) {
  RoundLoop loop = Inclines(Compressed(Builtin("median"), Update({"topk 0.5"}, "none")),
                            {{1, 2}, {5, 3}, {4, 1}}, CohortOf(3));
  ASSERT_TRUE(loop.Rounds(1).ok());  // of (0, −.2), (−.5, 0), (−.4, 0)
  EXPECT_LT(Distance(loop.Model(), {-0.4, 0}), 1e-12);
}

// A clip takes a part of what the codec left, and the rest is not lost.
TEST(Compressed, AResidualIsOfWhatWasSentBehindAClip) {
  const Description rule = Compressed(Builtin("fedavg"), Update({"topk 0.5"}), {.noised = true});
  RoundLoop loop(
      WithPrivacy(rule, {.mechanism = "gaussian", .clip = 2, .noise = 1e-9}, 10),
      {{std::make_shared<Incline>(Numbers{24, 32})}, {std::make_shared<Incline>(Numbers{1, 2})}},
      {.steps = 1, .start = {0, 0}, .cohort = CohortOf(1, "poisson")});
  ASSERT_TRUE(loop.Round({0}).ok());  // p = (−2.4, −3.2), sent (0, −2)
  EXPECT_EQ(loop.metrics().at("clipped"), 1);
  EXPECT_LT(Distance(loop.Model(), {0, -2}), 1e-5);
  EXPECT_LT(Distance(loop.State(0, 0), {-2.4, -1.2}), 1e-5);
}

}  // namespace
}  // namespace macaw::algorithms
