// What [privacy] refuses, and what it says of a run that it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "algorithms/around/privacy.h"
#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/privacy_util.h"

namespace macaw::algorithms {
namespace {

using fixtures::BatchNormNet;
using fixtures::Gaussian;
using fixtures::kRounds;
using fixtures::Poisson;
using testing::HasSubstr;

std::string WhyNot(const std::string& rule, PrivacyConfig privacy, const CohortConfig& cohort,
                   uint64_t clients = 100, LayoutPtr layout = nullptr,
                   const std::function<void(Setup&)>& change = {}) {
  Setup setup;
  setup.config.name = rule;
  for (const ParameterSpec& spec : Builtin(rule).parameters)
    setup.config.parameters[spec.name] = spec.default_value;
  setup.layout = layout != nullptr ? layout : ParameterLayout::Scalars("w", 2, DType::kF32);
  setup.cohort = cohort;
  setup.clients = clients;
  setup.total_weight = static_cast<double>(clients);
  if (change) change(setup);
  const auto schema = MakeSchema(WithPrivacy(Builtin(rule), privacy, kRounds), setup);
  return std::string(schema.status().message());
}

TEST(PrivacyOfARun, TakesRulesThatAddUpUpdatesAndSaysWhyNotOthers) {
  const PrivacyConfig privacy = Gaussian(1, 1);
  for (const char* rule : {"fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "fedadagrad",
                           "ditto", "scaffold", "feddyn", "fedsam", "perfedavg", "pfedme", "apfl"})
    EXPECT_EQ(WhyNot(rule, privacy, Poisson(10)), "") << rule;
  const LayoutPtr layers = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {2}}, {.name = "1.weight", .shape = {2}}}, DType::kF32);
  for (const char* rule : {"fedrep", "fedper", "moon"})
    EXPECT_EQ(WhyNot(rule, privacy, Poisson(10), 100, layers), "") << rule;
  for (const char* rule : {"median", "krum", "mime", "qfedavg", "fednova", "local", "pooled",
                           "fedexp", "term", "afl", "ifca", "heterofl"})
    EXPECT_NE(WhyNot(rule, privacy, Poisson(10)), "") << rule;
  EXPECT_THAT(WhyNot("local", privacy, Poisson(10)), HasSubstr("adds up"));
  EXPECT_THAT(WhyNot("ifca", privacy, Poisson(10)), HasSubstr("which of several"));
}

TEST(PrivacyOfARun, RefusesRunsOfWhichItsEpsilonIsNot) {
  const PrivacyConfig privacy = Gaussian(1, 1);
  CohortConfig cohort = Poisson(10);
  cohort.sampling = "uniform";
  EXPECT_THAT(WhyNot("fedavg", privacy, cohort), HasSubstr("set cohort.sampling = \"poisson\""));
  cohort = Poisson(10);
  cohort.weight = WeightPolicy::kExamples;
  EXPECT_THAT(WhyNot("fedavg", privacy, cohort), HasSubstr("cohort.weight = \"uniform\""));
  cohort = Poisson(10);
  cohort.min_rows = 5;
  EXPECT_THAT(WhyNot("fedavg", privacy, cohort), HasSubstr("cohort.min_rows"));
  cohort = Poisson(10);
  cohort.eligible = {"a*"};
  EXPECT_THAT(WhyNot("fedavg", privacy, cohort), HasSubstr("cohort.eligible"));
  EXPECT_THAT(WhyNot("fedavg", privacy, Poisson(10), 0), HasSubstr("run.clients"));
  PrivacyConfig changed = privacy;
  for (const uint64_t wrong : {9, 101}) {
    changed.noise_cohort = wrong;
    EXPECT_THAT(WhyNot("fedavg", changed, Poisson(10)), HasSubstr("privacy.noise_cohort"));
  }
  EXPECT_THAT(WhyNot("fedavg", changed, Poisson(10)), HasSubstr("set privacy.population"));
  changed.population = 101;
  EXPECT_EQ(WhyNot("fedavg", changed, Poisson(10)), "");
  changed.population = 100;
  EXPECT_THAT(WhyNot("fedavg", changed, Poisson(10)), HasSubstr("(privacy.population)"));
  changed.noise_cohort.reset();
  changed.population = 99;  // of 100 clients
  EXPECT_THAT(WhyNot("fedavg", changed, Poisson(10)), HasSubstr("privacy.population = 99"));
  changed = Gaussian(1, 2);
  changed.clip_quantile = 0.5;
  changed.noise_cohort = 100;  // σ_b is five clients
  EXPECT_EQ(WhyNot("fedavg", changed, Poisson(10)), "");
  changed.noise_cohort.reset();  // half a client
  EXPECT_THAT(WhyNot("fedavg", changed, Poisson(10)), HasSubstr("above privacy.noise / 2 = 1"));
  changed.count_noise = 1.1;
  EXPECT_EQ(WhyNot("fedavg", changed, Poisson(10)), "");
  const LayoutPtr buffers = *ParameterLayout::Make(
      {{.name = "w", .shape = {2}}, {.name = "mean", .shape = {2}, .group = Group::kBuffer}},
      DType::kF32);
  EXPECT_THAT(WhyNot("fedavg", privacy, Poisson(10), 100, buffers), HasSubstr("batch-norm"));
}

TEST(PrivacyOfARun, TakesModelsOfWhichNoBufferIsSent) {
  const PrivacyConfig privacy = Gaussian(1, 1);
  const auto why = [&](const std::string& rule,
                       const std::function<void(algorithms::Setup&)>& change) {
    return WhyNot(rule, privacy, Poisson(10), 100, BatchNormNet(), change);
  };
  const auto local = [](const std::string& globs) {
    return [globs](algorithms::Setup& setup) { setup.config.parameters["local"] = globs; };
  };
  const auto frozen = [](algorithms::Setup& setup) { setup.model.buffers = "server"; };
  EXPECT_EQ(why("fedavg", frozen), "");
  EXPECT_EQ(why("scaffold", frozen), "");
  EXPECT_EQ(why("fedbn", {}), "");
  EXPECT_EQ(why("fedbn", local("*running_*")), "");
  EXPECT_THAT(why("fedbn", local("bn.weight")), HasSubstr("model.buffers = \"server\""));
  EXPECT_THAT(why("fedavg", {}), HasSubstr("fedbn"));
}

TEST(PrivacyOfARun, SaysWhatARunGivesAway) {
  algorithms::Setup setup;
  setup.layout = ParameterLayout::Scalars("w", 2, DType::kF32);
  setup.cohort = Poisson(10);
  setup.clients = 1000;
  PrivacyConfig privacy = Gaussian(0.5, 1);
  privacy.delta = 1e-3;
  privacy.noise_cohort = 20;
  const std::vector<std::string> notes =
      WithPrivacy(Builtin("fedavg"), privacy, kRounds).notes(setup);
  const auto all = testing::Contains(HasSubstr("after run.rounds = 100"));
  EXPECT_THAT(notes, all);
  EXPECT_THAT(notes, testing::Contains(HasSubstr("0.001 is not below 1 / clients")));
  EXPECT_THAT(notes, testing::Contains(HasSubstr("of which 10 clients")));
  const AttackConfig attack = {.kind = "scaling", .fraction = 0.2, .scale = 100};
  EXPECT_THAT(WithPrivacy(Builtin("fedavg"), privacy, kRounds, attack).notes(setup),
              testing::Contains(HasSubstr("hostile clients do not clip")));
  EXPECT_THAT(notes, testing::Contains(HasSubstr("for each of 1000 clients")));
  privacy.population = 2000;
  const std::vector<std::string> larger =
      WithPrivacy(Builtin("fedavg"), privacy, kRounds).notes(setup);
  EXPECT_THAT(larger, testing::Contains(HasSubstr("for each of 2000 clients")));
  EXPECT_THAT(larger, testing::Contains(testing::AllOf(HasSubstr("privacy.population = 2000"),
                                                       HasSubstr("of which 1000"))));
  EXPECT_THAT(larger, testing::Contains(HasSubstr("1 / clients = 0.0005")));
  setup.cohort.straggler_fraction = 0.99;
  setup.cohort.straggler_policy = "drop";
  EXPECT_THAT(WithPrivacy(Builtin("fedavg"), privacy, kRounds).notes(setup),
              testing::Contains(HasSubstr("the sum of fewer than one on average")));
}

}  // namespace
}  // namespace macaw::algorithms
