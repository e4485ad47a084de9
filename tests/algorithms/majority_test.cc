// signSGD with majority vote: "majority STEP" in update.codec.
#include "algorithms/around/majority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregation/exact_sum.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/privacy.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The gradient is `slope` everywhere, so a client's update of one step is −lr·slope.
class Ramp final : public Objective {
 public:
  explicit Ramp(Numbers slope) : slope_(std::move(slope)) {}
  double Loss(const Numbers&) const override { return 0; }
  Numbers Gradient(const Numbers&) const override { return slope_; }

 private:
  const Numbers slope_;
};

struct Voter {
  Numbers slope;
  uint32_t weight = 1;
};

RoundLoop Voters(const Description& rule, const std::vector<Voter>& voters,
                 RoundLoop::Options options = {}) {
  std::vector<TestPopulationClient> population;
  for (const Voter& voter : voters)
    population.push_back({std::make_shared<Ramp>(voter.slope), voter.weight});
  options.steps = 1;
  options.start = Numbers(voters[0].slope.size());
  if (options.cohort.size == 0) options.cohort = CohortOf(voters.size());
  return {rule, population, options};
}

Description Majority(const char* line = "majority 0.5", const std::string& rule = "fedavg") {
  return ByMajority(Builtin(rule), Update({line}));
}

TEST(Majority, AWeightMovesByTheStepToTheSideOfTheLargerWeight) {
  // Votes (−1, 1, 0, −1) of weight 1, (1, 1, −1, 0) of 2, (1, −1, 0, 1) of 3.
  const std::vector<Voter> voters = {
      {{1, -1, 0, 1}, 1}, {{-50, -1, 0.01, 0}, 2}, {{-4, 300, 0, -1}, 3}};
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    RoundLoop loop = Voters(Majority(), voters, {.dtype = dtype});
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_EQ(loop.Model(), Numbers({0.5, 0, -0.5, 0.5}));  // of the sums (4, 0, −2, 2)
    EXPECT_NEAR(loop.metrics().at(kVoteMarginMetric), (4 + 0 + 2 + 2) / 4.0 / 6, 1e-7);
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_EQ(loop.Model(), Numbers({1, 0, -1, 1}));
  }
}

TEST(Majority, TheRulesRateIsOnTopOfTheStep) {
  RoundLoop loop = Voters(Majority(), {{{1, -2}}}, {.parameters = {{"server_lr", 0.5}}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_EQ(loop.Model(), Numbers({-0.25, 0.25}));
}

TEST(Majority, AnEvenCohortThatIsSplitMovesNothing) {
  RoundLoop loop = Voters(Majority(), {{{1, 2}}, {{-3, 0}}});
  ASSERT_TRUE(loop.Rounds(3).ok());
  EXPECT_EQ(loop.Model(), Numbers({0, -1.5})) << "who abstains makes no tie";
}

TEST(Majority, ARoundThatCountsNobodyMovesNothing) {
  for (const char* sampling : {"uniform", "poisson"}) {
    RoundLoop loop = Voters(Majority("majority 0.5", "fedavgm"), {{{1, 2}}, {{1, 0}}},
                            {.cohort = CohortOf(1, sampling)});
    ASSERT_TRUE(loop.Round({0}).ok());
    const Numbers model = loop.Model();
    ASSERT_TRUE(loop.Round({}).ok());
    ASSERT_TRUE(loop.Round({0, 1}, {0, 1}).ok());
    EXPECT_EQ(loop.Model(), model) << sampling;
  }
}

TEST(Majority, OfAPoissonCohortIsNotDividedByThePlannedWeight) {
  RoundLoop loop =
      Voters(Majority(), {{{1}}, {{1}}, {{1}}, {{-1}}}, {.cohort = CohortOf(1, "poisson")});
  ASSERT_TRUE(loop.Rounds(1).ok());  // four came where one was planned
  EXPECT_EQ(loop.Model(), Numbers({-0.5}));
}

// Three clients with optima 0, 1 and 10: votes are even at their median, not at their mean.
TEST(Majority, EndsWhereVotesAreEven) {
  std::vector<TestPopulationClient> population;
  for (const double b : {0.0, 1.0, 10.0})
    population.push_back({std::make_shared<SquaredDistance>(Numbers{b}), 1});
  RoundLoop loop(Majority("majority 0.01"), population,
                 {.steps = 1, .start = {5}, .cohort = CohortOf(3)});
  ASSERT_TRUE(loop.Rounds(1000).ok());
  EXPECT_NEAR(loop.Model()[0], 1, 0.011);
}

TEST(Majority, StatisticsMoveByTheirMean) {
  const LayoutPtr net = *ParameterLayout::Make(
      {{.name = "w", .shape = {2}}, {.name = "mean", .shape = {1}, .group = Group::kBuffer}},
      DType::kF64);
  const auto statistic = [&](const Description& rule) {
    RoundLoop loop(rule, Q4(), {.steps = 3, .layout = net, .cohort = CohortOf(3)});
    EXPECT_TRUE(loop.Round({0, 1, 3}).ok());
    EXPECT_EQ(loop.schema().up[0].bound, 65536) << "of the statistics, too";
    return loop.server().Model().As<double>()[net->Find("mean")->offset];
  };
  EXPECT_NE(statistic(Majority()), 0);
  EXPECT_EQ(statistic(Majority()), statistic(Builtin("fedavg")));
}

TEST(Majority, NoRuleWithoutAnOptimizerMovesAWeightFurtherThanTheStep) {
  const LayoutPtr net =
      *ParameterLayout::Make({{.name = "bn.weight", .shape = {1}},
                              {.name = "fc.weight", .shape = {1}},
                              {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF32);
  for (const char* rule :
       {"fedavg", "fedprox", "gd", "ditto", "fedbn", "fedrep", "fedper", "mimelite"}) {
    RoundLoop::Options options = {.steps = 3, .start = {9, -9}, .layout = net};
    if (std::string(rule) == "mimelite") options.parameters = {{"base", std::string("sgd")}};
    RoundLoop loop(Majority("majority 0.25", rule), Q4(), options);
    ASSERT_EQ(loop.schema().up.size(), 1u) << rule;
    ASSERT_TRUE(loop.Rounds(2).ok()) << rule;
    const Numbers model = loop.Model();  // of FedBN one weight, of FedRep the other stays at home
    const double first = std::fabs(model[0] - 9), second = std::fabs(model[1] + 9);
    EXPECT_EQ(std::max(first, second), 0.5) << rule;
  }
}

// A part of LeNet-5's size: one bit a weight, and 6 bytes for each 512.
TEST(Majority, AVoteTakesABitOnTheWire) {
  const LayoutPtr layout = *ParameterLayout::Make({{.name = "0.weight", .shape = {6, 1, 5, 5}},
                                                   {.name = "0.bias", .shape = {6}},
                                                   {.name = "3.weight", .shape = {16, 6, 5, 5}},
                                                   {.name = "3.bias", .shape = {16}},
                                                   {.name = "7.weight", .shape = {120, 400}},
                                                   {.name = "7.bias", .shape = {120}},
                                                   {.name = "9.weight", .shape = {84, 120}},
                                                   {.name = "9.bias", .shape = {84}},
                                                   {.name = "11.weight", .shape = {10, 84}},
                                                   {.name = "11.bias", .shape = {10}}},
                                                  DType::kF32);
  ASSERT_EQ(layout->count(), 61706u);
  FlatVector votes(layout);
  RandomStream random({.seed = 3});
  for (const LayoutEntry& entry : layout->entries()) {
    for (float& vote : votes.As<float>().subspan(entry.offset, entry.size))
      vote = random.Below(2) == 0 ? 1.0f : -1.0f;
  }
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  RunPlan run;
  run.update = Update({"majority 0.001"});
  run.clients = 10;
  run.cohort = CohortOf(4);
  run.algorithm = *registry.Complete({"fedavg", {}});
  const Schema schema = *MakeSchema(*registry.RuleOf(run), SetupOf(run, layout));
  const aggregation::GridOrder order{
      .max_weight = 60, .total_weight = 240, .total_multiplicity = 4};
  const aggregation::ExactSum sum = *aggregation::ExactSum::Make(schema.up, order);
  const ConstVectorView values[] = {votes.view()};
  const uint64_t bytes = sum.BytesAlone({.client = ClientId(1), .weight = 60, .values = values});
  EXPECT_LT(static_cast<double>(bytes), 1.12 * 61706 / 8);
  EXPECT_GE(bytes, 61706u / 8);
}

// ---- Beside other sections

TEST(Majority, ItsNoiseIsOnTheSumOfTheVotes) {
  const Description rule = ByMajority(Builtin("fedavg"), Update({"majority 0.5"}), true);
  const auto loop = [&](double noise) {
    return Voters(WithPrivacy(rule, {.mechanism = "gaussian", .clip = 0.1, .noise = noise}, 10),
                  {{{1, -1, 1, 1}}, {{7, -9, -1, 0}}, {{1, -1, 1, 1}}},
                  {.cohort = CohortOf(3, "poisson")});
  };
  RoundLoop still = loop(1e-9);
  EXPECT_FALSE(still.metrics().contains(kVoteMarginMetric));
  ASSERT_TRUE(still.Rounds(1).ok());
  EXPECT_EQ(still.Model(), Numbers({-0.5, 0.5, -0.5, -0.5})) << "a clip changes no sign";
  // The number of reports is private, so a round without one looks like any other.
  RoundLoop noised = loop(1);
  ASSERT_TRUE(noised.Round({}).ok());
  for (const double weight : noised.Model()) EXPECT_EQ(std::fabs(weight), 0.5);
}

TEST(Majority, OutvotesHostileClients) {
  const std::vector<Voter> voters(5, {{1, -2, 3}});
  const auto end = [&](const AttackConfig& attack) {
    RoundLoop loop = Voters(Attacked(Majority(), attack, HostileClients(attack, 5, 1)), voters);
    EXPECT_TRUE(loop.Rounds(4).ok());
    EXPECT_EQ(loop.metrics().at(kAttackersMetric), 2);
    return loop.Model();
  };
  for (const char* kind : {"sign-flip", "free-rider"})
    EXPECT_EQ(end({.kind = kind, .fraction = 0.4}), Numbers({-2, 2, -2})) << kind;
}

TEST(Majority, RefusesAVoteThatCountsTwice) {
  const AttackConfig attack = {.kind = "scaling", .fraction = 0.4, .scale = 2};
  RoundLoop loop = Voters(Attacked(Majority(), attack, HostileClients(attack, 5, 1)),
                          std::vector<Voter>(5, {{1, -2, 3}}), {.dtype = DType::kF32});
  EXPECT_EQ(loop.schema().up[0].bound, 1);
  EXPECT_EQ(loop.Rounds(1).code(), absl::StatusCode::kOutOfRange);
}

TEST(Majority, GoesOnWithTheSameBitsAfterAResumeAndInAnyOrder) {
  const auto loop = [] {
    return RoundLoop(Majority("majority 0.01", "fedadam"), Q4(),
                     {.dtype = DType::kF32, .start = {1, -1}, .cohort = CohortOf(3)});
  };
  RoundLoop straight = loop(), resumed = loop();
  ASSERT_TRUE(straight.SampledRounds(5, 3).ok());
  ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
  ASSERT_TRUE(straight.SampledRounds(5, 3).ok() && resumed.SampledRounds(5, 3).ok());
  EXPECT_EQ(straight.ModelDigest(), resumed.ModelDigest());
  ASSERT_TRUE(straight.Round({0, 1, 3}).ok() && resumed.Round({3, 0, 1}).ok());
  EXPECT_EQ(straight.ModelDigest(), resumed.ModelDigest());
}

// ---- What is refused

class MajorityRun : public testing::Test {
 protected:
  MajorityRun() {
    registry_.AddBuiltin(BuiltinAlgorithms());
    run_.cohort = CohortOf(4);
    run_.clients = 8;
    run_.task = TaskKind::kClassification;
    run_.update = Update({"majority 0.001"});
  }
  // "" if the run is accepted.
  std::string Refusal(const std::string& rule = "fedavg") {
    run_.algorithm = *registry_.Complete({rule, {}});
    const absl::StatusOr<Description> made = registry_.RuleOf(run_);
    if (!made.ok()) return std::string(made.status().message());
    return std::string(MakeSchema(*made, SetupOf(run_, layout_)).status().message());
  }
  std::string Notes() {
    run_.algorithm = *registry_.Complete({"fedavg", {}});
    std::string text;
    for (const std::string& note : registry_.RuleOf(run_)->notes(SetupOf(run_, layout_)))
      absl::StrAppend(&text, note, "\n");
    return text;
  }

  Registry registry_;
  RunPlan run_;
  const LayoutPtr layout_ = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {4}}, {.name = "1.weight", .shape = {4}}}, DType::kF32);
};

TEST_F(MajorityRun, TakesTheRulesWhoseServerMovesByOneMean) {
  std::vector<std::string> taken;
  for (const Description* rule : registry_.All()) {
    if (rule->name == "fedbn") continue;  // this model has no norm layers
    const std::string refusal = Refusal(rule->name);
    if (refusal.empty()) {
      taken.push_back(rule->name);
    } else if (rule->name != "krum" && rule->name != "pooled" && rule->name != "fltrust" &&
               rule->name != "heterofl" && !rule->has_statistics) {  // refused for more reasons
      EXPECT_THAT(refusal, AllOf(HasSubstr("\"majority 0.001\""), HasSubstr(rule->name)));
    }
  }
  EXPECT_THAT(taken,
              testing::UnorderedElementsAre("apfl", "ditto", "fedadagrad", "fedadam", "fedavg",
                                            "fedavgm", "fedprox", "fedper", "fedrep", "fedsam",
                                            "fedyogi", "gd", "moon", "perfedavg", "pfedme"));
  run_.cohort.size = run_.clients;
  EXPECT_THAT(Refusal("fltrust"), HasSubstr("\"majority 0.001\""));
}

TEST_F(MajorityRun, SaysWhyARuleIsNotForIt) {
  EXPECT_THAT(Refusal("scaffold"), HasSubstr("mirrors what is counted"));
  EXPECT_THAT(Refusal("feddyn"), HasSubstr("mirrors what is counted"));
  EXPECT_THAT(Refusal("median"), AllOf(HasSubstr("each client's own"), HasSubstr("fedavg")));
  EXPECT_THAT(Refusal("fednova"), HasSubstr("several sums together (direction, tau)"));
  EXPECT_THAT(Refusal("qfedavg"), HasSubstr("several sums together (delta, h)"));
  EXPECT_THAT(Refusal("fedexp"), HasSubstr("several sums together (delta, square)"));
  EXPECT_THAT(Refusal("local"), HasSubstr("whose server uses"));
}

TEST_F(MajorityRun, RefusesAClipThatWouldChangeNothing) {
  run_.algorithm = *registry_.Complete({"fedavg", {{"update_clip", 1.0}}});
  EXPECT_THAT(
      std::string(MakeSchema(*registry_.RuleOf(run_), SetupOf(run_, layout_)).status().message()),
      HasSubstr("algorithm.fedavg.update_clip"));
}

TEST_F(MajorityRun, HasNoFeedback) {
  EXPECT_EQ(Refusal(), "");
  run_.update.feedback = "none";
  EXPECT_EQ(Refusal(), "");
  run_.update.feedback = "residual";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"residual\""), HasSubstr("no size")));
  run_.update.feedback = "ef21";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"ef21\""), HasSubstr("differences")));
  run_.update.feedback = "auto";
  run_.update.residual_decay = 0.5;
  EXPECT_THAT(Refusal(), HasSubstr("update.residual_decay"));
}

TEST_F(MajorityRun, StandsAlone) {
  run_.update.codec = {"rotate", "majority 0.1"};
  EXPECT_THAT(Refusal(), HasSubstr("rotate"));
  run_.update.codec = {"majority 0.1", "bits 8"};
  EXPECT_THAT(Refusal(), HasSubstr("stands alone"));
  run_.update.codec = {"majority 0.1", "acpsgd 2"};
  EXPECT_THAT(Refusal(), HasSubstr("stand alone"));
  run_.update.codec = {"majority"};
  EXPECT_THAT(Refusal(), HasSubstr("the step"));
}

TEST_F(MajorityRun, TakesAttackersThatSendVotes) {
  for (const char* kind : {"label-flip", "sign-flip", "scaling", "free-rider"}) {
    run_.attack = {.kind = kind, .fraction = 0.25};
    EXPECT_EQ(Refusal(), "") << kind;
  }
  for (const char* kind : {"alie", "inner-product", "min-max", "min-sum", "mimic"}) {
    run_.attack.kind = kind;
    EXPECT_THAT(Refusal(), AllOf(HasSubstr(kind), HasSubstr("sign-flip"))) << kind;
  }
  run_.attack = {.kind = "free-rider", .fraction = 0.25, .noise = 0.1};
  EXPECT_THAT(Refusal(), HasSubstr("attack.noise"));
}

TEST_F(MajorityRun, SaysWhatAStepMeans) {
  EXPECT_THAT(Notes(), AllOf(HasSubstr("+0.001, -0.001"), HasSubstr("local.lr"),
                             Not(HasSubstr("weighs")), Not(HasSubstr("[privacy]"))));
  run_.cohort.weight = WeightPolicy::kExamples;
  EXPECT_THAT(Notes(), HasSubstr("weighs its examples"));
  run_.cohort = CohortOf(4, "poisson");
  run_.privacy = {.mechanism = "gaussian", .clip = 1, .noise = 1};
  EXPECT_THAT(Notes(), HasSubstr("[privacy] adds its noise to the votes"));
}

}  // namespace
}  // namespace macaw::algorithms
