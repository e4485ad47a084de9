#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using Parameters = std::map<std::string, ParameterValue>;
using ::testing::AllOf;
using ::testing::HasSubstr;

Setup SetupNamed(const std::string& name, const Parameters& parameters = {}) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  Setup setup;
  setup.config = *registry.Complete({name, parameters});
  setup.layout = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {2}}, {.name = "1.weight", .shape = {2}}}, DType::kF32);
  setup.cohort.size = 10;
  setup.clients = 100;
  setup.total_weight = 1000;
  return setup;
}

// "" when the run is accepted.
std::string Refusal(const Setup& setup) {
  return std::string(MakeSchema(Builtin(setup.config.name), setup).status().message());
}

TEST(Refusals, NoneForAnOrdinaryRun) {
  for (const std::string name : {"fedavg",
                                 "gd",
                                 "fedprox",
                                 "scaffold",
                                 "feddyn",
                                 "fednova",
                                 "mime",
                                 "mimelite",
                                 "fedadam",
                                 "fedyogi",
                                 "fedadagrad",
                                 "fedavgm",
                                 "qfedavg",
                                 "ditto",
                                 "fedrep",
                                 "fedper",
                                 "moon",
                                 "median",
                                 "trimmed_mean",
                                 "krum",
                                 "geometric_median",
                                 "centered_clipping",
                                 "norm_bound",
                                 "local",
                                 "fedexp",
                                 "term",
                                 "afl",
                                 "fedsam",
                                 "pfedme",
                                 "apfl",
                                 "perfedavg"}) {
    EXPECT_EQ(Refusal(SetupNamed(name)), "");
  }
}

TEST(Refusals, RulesThatNeedRowsOfCertainClients) {
  const auto refusal = [](const auto& setup, const std::vector<uint32_t>& rows) {
    return std::string(CheckRows(Builtin(setup.config.name), setup, rows).message());
  };
  EXPECT_EQ(refusal(SetupNamed("fedavg"), {0, 5, 0, 7}), "");
  EXPECT_EQ(refusal(SetupNamed("afl"), {5, 7}), "");
  EXPECT_EQ(refusal(SetupNamed("afl"), {5, 7, 0, 0}), "") << "those behind have no number to take";
  EXPECT_THAT(refusal(SetupNamed("afl"), {5, 0, 0, 7}),
              AllOf(HasSubstr("client 1 has no rows to train on"),
                    HasSubstr("client 3 can be drawn"), HasSubstr("partition.min_size")));
  auto with_least = SetupNamed("afl");
  with_least.cohort.min_rows = 10;
  EXPECT_THAT(refusal(with_least, {15, 0, 0, 17}),
              HasSubstr("client 1 has fewer training rows than 10 (cohort.min_rows)"));
  with_least.local.drop_last = true;
  with_least.local.batch_size = 20;
  with_least.cohort.eligible = {"a*"};
  EXPECT_THAT(refusal(with_least, {25, 0, 27}),
              HasSubstr("than 20 (local.drop_last with local.batch_size) or is not in "
                        "cohort.eligible"));
  EXPECT_EQ(refusal(SetupNamed("heterofl", {{"assign", "once"}}), {5, 0, 7}), "");
  for (const char* assign : {"fix", "list"}) {
    EXPECT_EQ(refusal(SetupNamed("heterofl", {{"assign", assign}}), {5, 7, 0}), "");
    EXPECT_THAT(refusal(SetupNamed("heterofl", {{"assign", assign}}), {5, 0, 7}),
                AllOf(HasSubstr("client 1 has no rows"),
                      HasSubstr("algorithm.heterofl.assign = \"once\"")));
  }
  auto pairs = SetupNamed("perfedavg");
  pairs.local = {.epochs = 1, .batch_size = 10};
  EXPECT_EQ(refusal(pairs, {5, 0, 11}), "");
  EXPECT_THAT(refusal(pairs, {5, 0, 10}), HasSubstr("takes 2 batches, and no client has so many"));
  pairs.local.epochs = 2;
  EXPECT_EQ(refusal(pairs, {5, 0, 10}), "");
  const auto trusting = SetupNamed("fltrust", {{"root", int64_t{1}}});
  EXPECT_EQ(refusal(trusting, {0, 5, 7}), "");
  for (const std::vector<uint32_t>& rows : {std::vector<uint32_t>{5, 0, 7}, {5}})
    EXPECT_THAT(refusal(trusting, rows), HasSubstr("algorithm.fltrust.root = 1"));
}

// 0 is no weight and no number of clients: it is one that nobody has written into the plan.
TEST(Refusals, ARuleThatComputesWithATotalNeedsIt) {
  for (const std::string name : {"scaffold", "feddyn"}) {
    auto setup = SetupNamed(name, {{"weighted", true}});
    EXPECT_EQ(Refusal(setup), "");
    setup.total_weight = 0;
    EXPECT_THAT(Refusal(setup), AllOf(HasSubstr(name), HasSubstr("run.train_examples")));
    setup.cohort.weight = WeightPolicy::kTokens;
    EXPECT_THAT(Refusal(setup), HasSubstr("run.train_tokens"));
    setup = SetupNamed(name);
    setup.total_weight = 0;
    EXPECT_EQ(Refusal(setup), "") << "the plain mean has no weights";
    setup.clients = 0;
    EXPECT_THAT(Refusal(setup), HasSubstr("run.clients"));
  }
  auto fedavg = SetupNamed("fedavg");
  fedavg.clients = 0;
  fedavg.total_weight = 0;
  EXPECT_EQ(Refusal(fedavg), "");
  fedavg.cohort.sampling = "poisson";
  EXPECT_THAT(Refusal(fedavg), HasSubstr("run.clients"));
  fedavg.clients = 100;
  EXPECT_THAT(Refusal(fedavg), HasSubstr("run.train_examples"));
  fedavg.cohort.weight = WeightPolicy::kUniform;
  EXPECT_EQ(Refusal(fedavg), "") << "q·N is the cohort's size";
}

TEST(Refusals, ARuleOfAPlugInMayComputeWithTotalsUnlessItSaysOtherwise) {
  auto setup = SetupNamed("fedavg");
  Description plugin = Builtin("fedavg");
  EXPECT_FALSE(TotalsOf(plugin, setup).clients || TotalsOf(plugin, setup).weight);
  plugin.plugin = "mine";
  EXPECT_TRUE(TotalsOf(plugin, setup).clients && TotalsOf(plugin, setup).weight);
  setup.total_weight = 0;
  EXPECT_THAT(std::string(MakeSchema(plugin, setup).status().message()),
              HasSubstr("run.train_examples"));
  plugin.totals = [](const algorithms::Setup&) { return TotalsUsed{.clients = true}; };
  EXPECT_TRUE(MakeSchema(plugin, setup).ok());
}

TEST(Refusals, AClientWithStateTakesOneTurnARound) {
  for (const std::string name :
       {"scaffold", "feddyn", "ditto", "fedrep", "fedper", "local", "pfedme", "apfl", "moon"}) {
    auto setup = SetupNamed(name);
    setup.cohort.sampling = "proportional";
    EXPECT_THAT(Refusal(setup), AllOf(HasSubstr("algorithm " + name), HasSubstr("keeps state"),
                                      HasSubstr("\"uniform\"")));
  }
  auto stateless = SetupNamed("fedavg");
  stateless.cohort.sampling = "proportional";
  EXPECT_EQ(Refusal(stateless), "");
}

TEST(Refusals, PooledTrainingHasEverybodysRowsInOnePlace) {
  algorithms::Setup setup = SetupNamed("pooled");
  EXPECT_THAT(Refusal(setup),
              AllOf(HasSubstr("100 clients have rows of their own"), HasSubstr("simulations")));
  setup.clients = setup.cohort.size = 1;
  EXPECT_EQ(Refusal(setup), "");
}

TEST(Refusals, RulesThatLookAtEachUpdateTakeAClientOnce) {
  for (const std::string name :
       {"median", "trimmed_mean", "krum", "geometric_median", "centered_clipping", "norm_bound"}) {
    auto setup = SetupNamed(name);
    setup.cohort.sampling = "proportional";
    EXPECT_THAT(Refusal(setup), AllOf(HasSubstr("algorithm " + name), HasSubstr("own update"),
                                      HasSubstr("\"uniform\"")));
  }
}

TEST(Notes, SayThatAPlainMeanIsAnotherObjectiveThanFedAvgs) {
  const auto notes = [](const macaw::algorithms::Setup& setup) {
    const Description rule = Builtin(setup.config.name);
    return rule.notes ? absl::StrJoin(rule.notes(setup), " ") : "";
  };
  for (const std::string name : {"scaffold", "feddyn"}) {
    EXPECT_THAT(notes(SetupNamed(name)),
                AllOf(HasSubstr(name), HasSubstr("plain mean"),
                      HasSubstr("algorithm." + name + ".weighted = true")));
    EXPECT_EQ(notes(SetupNamed(name, {{"weighted", true}})), "");
  }
  for (const std::string name : {"qfedavg", "median", "trimmed_mean", "krum", "geometric_median",
                                 "centered_clipping", "norm_bound", "fltrust"}) {
    const char* const does =
        name == "qfedavg" ? "qfedavg takes the plain mean over clients" : "judges clients alike";
    EXPECT_THAT(notes(SetupNamed(name)),
                AllOf(HasSubstr(name), HasSubstr(does), HasSubstr("FedAvg takes the mean by"),
                      HasSubstr("cohort.weight = \"uniform\"")));
    auto equal = SetupNamed(name);
    equal.cohort.weight = WeightPolicy::kUniform;
    EXPECT_EQ(notes(equal), "");
  }
  for (const std::string name : {"fedavg", "fedprox", "fednova", "mime", "fedadam", "ditto"})
    EXPECT_EQ(notes(SetupNamed(name)), "");
}

TEST(Refusals, RulesThatCountSgdSteps) {
  for (const std::string name : {"scaffold", "fednova", "mime", "mimelite", "gd", "qfedavg"}) {
    auto setup = SetupNamed(name);
    setup.local.optimizer = "adam";
    EXPECT_THAT(Refusal(setup), AllOf(HasSubstr("local.optimizer"), HasSubstr("\"sgd\"")));
  }
  auto setup = SetupNamed("scaffold");
  setup.local.momentum = .9;  // counted by ‖a‖₁
  EXPECT_EQ(Refusal(setup), "");
}

TEST(Refusals, RulesThatAverageThoseWhoCame) {
  for (const std::string name : {"scaffold", "feddyn", "qfedavg", "fedexp", "term", "afl"}) {
    auto setup = SetupNamed(name);
    setup.cohort.sampling = "poisson";
    EXPECT_THAT(Refusal(setup), HasSubstr("poisson"));
  }
}

TEST(Refusals, MimeNeitherWithMomentumNorClip) {
  auto setup = SetupNamed("mime");
  setup.local.momentum = .9;
  EXPECT_THAT(Refusal(setup), HasSubstr("base = \"momentum\""));
  setup.local.momentum = 0;
  setup.local.clip_norm = 1;
  EXPECT_THAT(Refusal(setup), HasSubstr("local.clip_norm"));
}

TEST(Refusals, RulesThatSayEachStepOfAClient) {
  for (const std::string name : {"pfedme", "apfl", "perfedavg", "fedsam"}) {
    auto setup = SetupNamed(name);
    setup.local.clip_norm = 1;
    EXPECT_THAT(Refusal(setup), AllOf(HasSubstr(name), HasSubstr("local.clip_norm")));
    setup.local.clip_norm = 0;
    setup.local.momentum = .9;
    EXPECT_EQ(Refusal(setup).find("local.momentum") == std::string::npos, name == "fedsam");
    setup.local.momentum = 0;
    setup.local.optimizer = "adam";
    EXPECT_EQ(Refusal(setup).find("local.optimizer") == std::string::npos, name == "fedsam");
  }
  auto half = SetupNamed("perfedavg");
  half.local.steps = 1;
  EXPECT_THAT(Refusal(half), HasSubstr("two batches"));
}

TEST(Refusals, PFedMeWithStepsThatDiverge) {
  EXPECT_THAT(Refusal(SetupNamed("pfedme", {{"lambda", 15.0}, {"personal_lr", .2}})),
              HasSubstr("personal_lr * lambda = 3"));
  EXPECT_THAT(Refusal(SetupNamed("pfedme", {{"lambda", 0.0}})),
              HasSubstr("lambda must be above 0"));
}

// λ_i belongs to the i-th of all clients, who are drawn alike.
TEST(Refusals, AflKnowsAllClients) {
  auto setup = SetupNamed("afl");
  setup.clients = 0;
  EXPECT_THAT(Refusal(setup), HasSubstr("run.clients"));
  setup = SetupNamed("afl");
  setup.cohort.sampling = "oort";
  EXPECT_THAT(Refusal(setup), HasSubstr("no bias"));
}

TEST(Refusals, ScaffoldTwoWithAClipOfTheCorrectedGradient) {
  auto setup = SetupNamed("scaffold", {{"option", int64_t{2}}});
  setup.local.clip = "corrected";
  EXPECT_EQ(Refusal(setup), "") << "nothing is clipped";
  setup.local.clip_norm = 1;
  EXPECT_THAT(Refusal(setup),
              AllOf(HasSubstr("local.clip = \"corrected\""), HasSubstr("option 2")));
  setup.local.clip = "gradient";
  EXPECT_EQ(Refusal(setup), "");
  auto one = SetupNamed("scaffold", {{"option", int64_t{1}}});
  one.local.clip = "corrected";
  one.local.clip_norm = 1;
  EXPECT_EQ(Refusal(one), "");
}

TEST(Refusals, KrumNeedsTwiceItsHostileClientsAndThree) {
  EXPECT_EQ(Refusal(SetupNamed("krum", {{"f", int64_t{3}}})), "");
  EXPECT_THAT(Refusal(SetupNamed("krum", {{"f", int64_t{4}}})),
              AllOf(HasSubstr("2f+3 = 11"), HasSubstr("cohort.size = 10")));
  EXPECT_THAT(Refusal(SetupNamed("krum", {{"f", int64_t{3}}, {"m", int64_t{8}}})),
              HasSubstr("use m <= 7"));
}

TEST(Refusals, GroupsThatMatchNothingOrEverything) {
  EXPECT_THAT(Refusal(SetupNamed("fedbn")), HasSubstr("no batch-norm layers"));
  EXPECT_THAT(Refusal(SetupNamed("fedbn", {{"local", "bn*"}})), HasSubstr("matches none"));
  EXPECT_THAT(Refusal(SetupNamed("fedbn", {{"local", "*"}})), HasSubstr("nothing would be shared"));
  EXPECT_EQ(Refusal(SetupNamed("fedbn", {{"local", "1.*"}})), "");
  for (const std::string name : {"fedrep", "fedper"}) {
    EXPECT_THAT(Refusal(SetupNamed(name, {{"head", "fc.*"}})), HasSubstr("matches none"));
    EXPECT_THAT(Refusal(SetupNamed(name, {{"head", "*"}})), HasSubstr("nothing would be shared"));
  }
}

TEST(Refusals, MoonWhereNoRepresentationMoves) {
  EXPECT_THAT(Refusal(SetupNamed("moon", {{"temperature", 0.0}})),
              HasSubstr("temperature must be above 0"));
  auto setup = SetupNamed("moon");
  setup.task = TaskKind::kNextToken;
  EXPECT_THAT(Refusal(setup), HasSubstr("run.task = \"classification\""));
  setup = SetupNamed("moon");
  setup.layout = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {2}}, {.name = "0.bias", .shape = {1}}}, DType::kF32);
  EXPECT_THAT(Refusal(setup), HasSubstr("the model's last layer alone"));
}

// Of a run of the rule on these layers, of which no client trains the others than `trained`.
std::string RefusalOfTraining(const std::string& rule, std::vector<std::string> layers,
                              std::vector<std::string> trained, const Parameters& parameters = {}) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  RunPlan run;
  run.clients = 40;
  run.cohort.size = 4;
  run.task = TaskKind::kClassification;
  run.model.name = "layers";
  run.model.layers = std::move(layers);
  run.model.input_shape = {6};
  run.model.classes = 3;
  run.model.trained = std::move(trained);
  run.algorithm = *registry.Complete({rule, parameters});
  const models::ModelSpec spec = *models::BuildSpec(run.model, DType::kF32);
  const Description description = *registry.RuleOf(run);
  return std::string(MakeSchema(description, SetupOf(run, spec.layout)).status().message());
}

const std::vector<std::string> kThreeLinear = {"linear 8", "relu", "linear 5", "relu", "linear 3"};

TEST(Refusals, MoonLooksAtTheLastLayerOfTheWholeModel) {
  const char* const kAlone = "the model's last layer alone";
  EXPECT_EQ(RefusalOfTraining("moon", kThreeLinear, {}), "");
  EXPECT_EQ(RefusalOfTraining("moon", kThreeLinear, {"0.*"}), "") << "one layer, below the last";
  EXPECT_EQ(RefusalOfTraining("moon", kThreeLinear, {"2.*", "4.*"}), "");
  EXPECT_THAT(RefusalOfTraining("moon", kThreeLinear, {"4.*"}), HasSubstr(kAlone));
  // The last layer has two modules.
  const std::vector<std::string> block = {"linear 3", "residual [linear 8, relu, linear 3]"};
  EXPECT_EQ(RefusalOfTraining("moon", block, {}), "");
  EXPECT_THAT(RefusalOfTraining("moon", block, {"1.*"}), HasSubstr(kAlone));
}

TEST(Refusals, AHeadThatIsFrozenIsNoOtherLayer) {
  for (const std::string rule : {"fedper", "fedrep"}) {
    EXPECT_EQ(RefusalOfTraining(rule, kThreeLinear, {}), "");
    EXPECT_EQ(RefusalOfTraining(rule, kThreeLinear, {"2.*", "4.bias"}), "");
    EXPECT_THAT(RefusalOfTraining(rule, kThreeLinear, {"0.*", "2.*"}),
                AllOf(HasSubstr("which this run freezes"), HasSubstr("head = ")));
    EXPECT_EQ(RefusalOfTraining(rule, kThreeLinear, {"0.*", "2.*"}, {{"head", "2.*"}}), "");
  }
}

TEST(Refusals, ParametersThatWouldDivideByZero) {
  EXPECT_THAT(Refusal(SetupNamed("feddyn", {{"alpha", 0.0}})), HasSubstr("alpha must be above 0"));
  EXPECT_THAT(Refusal(SetupNamed("fedadam", {{"tau", 0.0}})), HasSubstr("tau must be above 0"));
  EXPECT_THAT(Refusal(SetupNamed("fedyogi", {{"beta2", 1.0}})), HasSubstr("beta2 must be below 1"));
  EXPECT_THAT(Refusal(SetupNamed("fednova", {{"server_momentum", 1.0}})),
              HasSubstr("server_momentum must be below 1"));
}

TEST(Refusals, ASchedulesWordsAreCheckedWithTheOtherParameters) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  const auto complete = [&](const char* text) {
    return std::string(
        registry.Complete({"fedadam", {{"server_lr_schedule", text}}}).status().message());
  };
  EXPECT_EQ(complete("cosine rounds 100 floor 0.1 warmup 5"), "");
  EXPECT_THAT(complete("cosin rounds 100"),
              AllOf(HasSubstr("algorithm.fedadam.server_lr_schedule"), HasSubstr("begins with")));
}

}  // namespace
}  // namespace macaw::algorithms
