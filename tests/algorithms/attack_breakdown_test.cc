#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_join.h"
#include "algorithms/builtin.h"
#include "tests/algorithms/attack_util.h"

// When rules break down under attack, and which runs refuse attacks.

namespace macaw::algorithms {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- breakdown

// Clients around one optimum, so that rules may be judged by their distance from it.
std::vector<TestPopulationClient> Twenty() {
  std::vector<TestPopulationClient> clients;
  for (int k = 0; k < 20; ++k) {
    const double shift = .02 * (k - 9.5);
    clients.push_back(
        {std::make_shared<Quadratic>(std::array<std::array<double, 2>, 2>{{{1, .1}, {.1, .8}}},
                                     std::array<double, 2>{3 + shift, -2 + .5 * shift}),
         10});
  }
  return clients;
}

// How far from the honest optimum the rule ends.
double Error(const std::string& rule, const AttackConfig& attack) {
  std::map<std::string, ParameterValue> parameters;
  if (rule == "krum") parameters = {{"f", int64_t{8}}};
  if (rule == "trimmed_mean") parameters = {{"beta", .45}};
  if (rule == "centered_clipping") parameters = {{"radius", .2}, {"iterations", int64_t{5}}};
  RoundLoop loop(Under(attack, rule, 20), Twenty(),
                 {.parameters = parameters, .cohort = {.size = 20}});
  const absl::Status status = loop.Rounds(40);  // an update that has grown beyond its bound
  EXPECT_TRUE(status.ok() || absl::IsOutOfRange(status)) << status;
  return status.ok() ? Distance(loop.Model(), {3, -2}) : INFINITY;
}

const std::vector<std::string>& Robust() {
  static const auto& rules = *new std::vector<std::string>{"median", "trimmed_mean", "krum",
                                                           "geometric_median", "centered_clipping"};
  return rules;
}

TEST(Breakdown, RobustRulesStayNearTheOptimumUntilAMajorityIsHostile) {
  for (const std::string& rule : Robust()) {
    EXPECT_LT(Error(rule, Of("none", 0)), .25) << rule;
    for (const AttackConfig& attack : {Of("sign-flip", .4, 4), Of("inner-product", .4, 4)}) {
      EXPECT_LT(Error(rule, attack), .5) << rule << " " << attack.kind;
    }
    EXPECT_GT(Error(rule, Of("sign-flip", .6, 4)), 2) << rule;
  }
}

TEST(Breakdown, AMeanFailsAtOnce) {
  EXPECT_LT(Error("fedavg", Of("none", 0)), .25);
  EXPECT_GT(Error("fedavg", Of("sign-flip", .2, 10)), 2);
  EXPECT_GT(Error("fedavg", Of("scaling", .2, 100)), 2);
  EXPECT_GT(Error("fedavg", Of("inner-product", .2, 10)), 2);
}

// ---- refusals and words

std::string Refusal(const std::string& rule, const AttackConfig& attack, uint64_t clients = 100,
                    TaskKind task = TaskKind::kClassification) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  Setup setup;
  setup.config = *registry.Complete({rule, {}});
  setup.layout = Plain(2, DType::kF32);
  setup.cohort.size = rule == "pooled" ? 1 : 10;
  setup.clients = rule == "pooled" ? 1 : clients;
  setup.task = task;
  return std::string(MakeSchema(Under(attack, rule, clients), setup).status().message());
}

TEST(Attacks, WithoutAMeaningAreRefused) {
  EXPECT_EQ(Refusal("median", Of("alie", .2)), "");
  EXPECT_THAT(Refusal("local", Of("sign-flip", .2)), HasSubstr("share no model"));
  EXPECT_EQ(Refusal("ifca", Of("sign-flip", .2)), "");
  EXPECT_THAT(Refusal("ifca", Of("alie", .2)), HasSubstr("share one model"));
  EXPECT_THAT(Refusal("pooled", Of("sign-flip", .2)), HasSubstr("all training rows"));
  EXPECT_THAT(Refusal("fedavg", Of("sign-flip", .2), 0), HasSubstr("run.clients"));
  EXPECT_EQ(Refusal("fedavg", Of("label-flip", .2)), "");
  EXPECT_EQ(Refusal("fedavg", Of("label-flip", .2), 100, TaskKind::kBinary), "");
  EXPECT_THAT(Refusal("fedavg", Of("label-flip", .2), 100, TaskKind::kRegression),
              HasSubstr("\"regression\""));
  EXPECT_EQ(Refusal("fedavg", Of("backdoor", .2)), "");
  EXPECT_THAT(Refusal("fedavg", Of("backdoor", .2), 100, TaskKind::kNextToken),
              HasSubstr("classes"));
}

TEST(Attacks, ThatNeedAMeanRefuseAChannelThatHasNone) {
  Description largest = Builtin("fedavg");
  largest.schema = [inner =
                        largest.schema](const algorithms::Setup& setup) -> absl::StatusOr<Schema> {
    absl::StatusOr<Schema> schema = inner(setup);
    if (schema.ok()) schema->up[0].reduction = aggregation::Reduction::kMax;
    return schema;
  };
  RoundLoop loop(Builtin("fedavg"), Q4(), {});
  for (const auto& [kind, refused] : {std::pair("alie", true), std::pair("sign-flip", false)}) {
    const AttackConfig attack = Of(kind, .5);
    const auto schema =
        MakeSchema(Attacked(largest, attack, HostileClients(attack, 4, kSeed)), loop.setup());
    EXPECT_EQ(schema.ok(), !refused);
    EXPECT_THAT(schema.status().message(), HasSubstr(refused ? "'delta'" : ""));
  }
}

TEST(Attacks, AreAnnounced) {
  RoundLoop loop(Builtin("fedavg"), Q4(), {});
  const std::vector<std::string> notes =
      Under(Of("sign-flip", .3), "fedavg", 10).notes(loop.setup());
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes.back(), HasSubstr("3 of 10 clients are hostile"));
}

TEST(Registry, RunsARuleUnderAttackOnlyIfTheRunHasOne) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  RunPlan run;
  run.clients = 10;
  run.algorithm = *registry.Complete({"fedavg", {}});
  const auto metrics = [&] {
    return registry.RuleOf(run)->schema(SetupOf(run, Plain(2, DType::kF32)))->metrics.size();
  };
  EXPECT_EQ(metrics(), 0u);
  run.attack = Of("scaling", 0);
  EXPECT_EQ(metrics(), 0u);
  run.attack = Of("scaling", .1);
  EXPECT_EQ(metrics(), 1u);
  run.algorithm.name = "fedavgg";
  EXPECT_FALSE(registry.RuleOf(run).ok());
}

// The notes of a rule for 20 of 100 clients a round, of which `fraction` are hostile.
std::string NotesUnder(const std::string& rule, double fraction,
                       const std::map<std::string, ParameterValue>& parameters = {}) {
  RoundLoop loop(Builtin(rule), Twenty(), {.parameters = parameters, .cohort = {.size = 20}});
  return absl::StrJoin(Under(Of("sign-flip", fraction), rule, 100).notes(loop.setup()), "\n");
}

TEST(Attacks, BeyondWhatTheRuleIsSetUpForAreAnnounced) {
  EXPECT_THAT(NotesUnder("krum", .4),
              AllOf(HasSubstr("8 clients on average of a round's 20"),
                    HasSubstr("krum withstands 1"), HasSubstr("algorithm.krum.f")));
  const std::map<std::string, ParameterValue> multi = {{"f", int64_t{3}}, {"m", int64_t{5}}};
  EXPECT_THAT(NotesUnder("krum", .2, multi), HasSubstr("krum withstands 3"));
  EXPECT_THAT(NotesUnder("krum", .15, multi), Not(HasSubstr("withstands")));
  EXPECT_THAT(NotesUnder("krum", .4, {{"f", int64_t{8}}}), Not(HasSubstr("withstands")));
  EXPECT_THAT(NotesUnder("trimmed_mean", .3),
              AllOf(HasSubstr("withstands 2"), HasSubstr("algorithm.trimmed_mean.beta")));
  EXPECT_THAT(NotesUnder("median", .5), HasSubstr("median withstands 9"));
  EXPECT_THAT(NotesUnder("median", .45), Not(HasSubstr("withstands")));
  EXPECT_THAT(NotesUnder("geometric_median", .5), HasSubstr("withstands 9"));
  EXPECT_THAT(NotesUnder("fedavg", .5), Not(HasSubstr("withstands")));
}

TEST(Attacks, WithSquaresBeyondTheSumsAreRefusedByTheKey) {
  for (const double bound : {1e35, 1e-35}) {
    RoundLoop loop(Builtin("fedavg"), Q4(), {});
    algorithms::Setup setup = loop.setup();
    setup.contribution_bound = bound;
    const auto schema = [&](const std::string& rule, const std::string& kind) {
      return MakeSchema(Under(Of(kind, .5), rule, 4), setup).status();
    };
    EXPECT_THAT(std::string(schema("fedavg", "alie").message()),
                AllOf(HasSubstr("run.contribution_bound"), HasSubstr("attack.kind = \"alie\"")));
    EXPECT_TRUE(schema("fedavg", "sign-flip").ok()) << "adds no squares";
    EXPECT_TRUE(schema("median", "alie").ok()) << "sees each client's own vector";
  }
}

}  // namespace
}  // namespace macaw::algorithms
