// Which feedback a run has, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/around/compressed.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Setup FeedbackSetup(const CohortConfig& cohort, uint64_t clients = 10,
                    const std::string& rule = "fedavg") {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  Setup setup;
  setup.config = *registry.Complete({rule, {}});
  setup.layout = *ParameterLayout::Make({{.name = "w", .shape = {4}}}, DType::kF32);
  setup.cohort = cohort;
  setup.clients = clients;
  setup.total_weight = static_cast<double>(clients);
  return setup;
}

// The names of the clients' states, or the refusal.
std::string StateOf(const UpdateConfig& update, const Setup& setup, AroundCompression around = {}) {
  const absl::StatusOr<Schema> schema =
      MakeSchema(Compressed(Builtin(setup.config.name), update, around), setup);
  if (!schema.ok()) return std::string(schema.status().message());
  std::string names;
  for (const NamedLayout& item : schema->state) absl::StrAppend(&names, item.name, " ");
  return names;
}

TEST(Feedback, AutoFollowsCodecRuleAndCohort) {
  const UpdateConfig topk = Update({"topk 0.1"});
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(10))), "update_residual_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3))), "update_sent_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3, "available"))), "update_sent_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3, "poisson"))), "update_residual_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3)), {.noised = true}), "update_residual_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3), 0)), "update_residual_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3), 10, "median")), "update_residual_delta ");
  EXPECT_EQ(StateOf(topk, FeedbackSetup(CohortOf(3), 10, "scaffold")), "control ");
  for (const char* line : {"randomk 0.1", "qsgd 4", "terngrad", "bits 8", "bf16", "f16"})
    EXPECT_EQ(StateOf(Update({line}), FeedbackSetup(CohortOf(3))), "") << line;
}

TEST(Feedback, IsWhatTheRunAsksFor) {
  EXPECT_EQ(StateOf(Update({"topk 0.1"}, "none"), FeedbackSetup(CohortOf(3))), "");
  EXPECT_EQ(StateOf(Update({"topk 0.1"}, "residual"), FeedbackSetup(CohortOf(3))),
            "update_residual_delta ");
  EXPECT_EQ(StateOf(Update({"qsgd 4"}, "ef21"), FeedbackSetup(CohortOf(10))), "update_sent_delta ");
  for (const char* rule : {"scaffold", "feddyn"})
    EXPECT_THAT(StateOf(Update({"topk 0.1"}, "residual"), FeedbackSetup(CohortOf(10), 10, rule)),
                AllOf(HasSubstr("residual"), HasSubstr(rule)));
}

TEST(Feedback, ThatDecaysIsAResidualAndItsRound) {
  UpdateConfig decays = Update({"topk 0.1"}, "auto");
  decays.residual_decay = 0.9;
  EXPECT_EQ(StateOf(decays, FeedbackSetup(CohortOf(10))),
            "update_residual_delta update_round_delta ");
  for (const char* feedback : {"ef21", "none"}) {
    decays.feedback = feedback;
    EXPECT_THAT(StateOf(decays, FeedbackSetup(CohortOf(3))),
                AllOf(HasSubstr("update.residual_decay"), HasSubstr(feedback)));
  }
  decays.feedback = "auto";
  EXPECT_THAT(StateOf(decays, FeedbackSetup(CohortOf(3))), HasSubstr("update.residual_decay"));
  decays.residual_decay = 1;
  EXPECT_EQ(StateOf(decays, FeedbackSetup(CohortOf(3))), "update_sent_delta ");
}

TEST(Feedback, OfEf21IsRefusedWhereThereIsNoSumOfAllClients) {
  const UpdateConfig ef21 = Update({"topk 0.1"}, "ef21");
  EXPECT_THAT(StateOf(ef21, FeedbackSetup(CohortOf(3, "poisson"))), HasSubstr("poisson"));
  EXPECT_THAT(StateOf(ef21, FeedbackSetup(CohortOf(3, "proportional"))), HasSubstr("proportional"));
  EXPECT_THAT(StateOf(ef21, FeedbackSetup(CohortOf(3), 10, "median")), HasSubstr("median"));
  EXPECT_THAT(StateOf(ef21, FeedbackSetup(CohortOf(3), 10, "scaffold")),
              AllOf(HasSubstr("scaffold"), testing::Not(HasSubstr("residual"))));
  EXPECT_THAT(StateOf(ef21, FeedbackSetup(CohortOf(3)), {.noised = true}), HasSubstr("[privacy]"));
  EXPECT_THAT(StateOf(ef21, FeedbackSetup(CohortOf(3), 0)), HasSubstr("train_clients"));
}

TEST(Feedback, KeepsNothingOfAClientThatMayComeTwice) {
  const algorithms::Setup setup = FeedbackSetup(CohortOf(3, "proportional"));
  EXPECT_THAT(StateOf(Update({"topk 0.1"}), setup), HasSubstr("update.feedback = \"none\""));
  EXPECT_EQ(StateOf(Update({"topk 0.1"}, "none"), setup), "");
}

TEST(Compressed, IsRefusedWhereItMakesNoSense) {
  const algorithms::Setup setup = FeedbackSetup(CohortOf(3));
  EXPECT_THAT(StateOf(Update({"topc 0.1"}), setup),
              AllOf(HasSubstr("update.codec"), HasSubstr("topk")));
  EXPECT_THAT(StateOf(Update({"topk 0.1"}), FeedbackSetup(CohortOf(3), 10, "local")),
              HasSubstr("update.codec"));
  const auto refusal = [&](const Description& rule) {
    return std::string(MakeSchema(Compressed(rule, Update({"bits 8"})), setup).status().message());
  };
  Description rule = Builtin("fedavg");
  const auto changed = [&](auto change) {
    Description other = rule;
    other.schema = [schema = rule.schema,
                    change](const algorithms::Setup& s) -> absl::StatusOr<Schema> {
      absl::StatusOr<Schema> made = schema(s);
      change(*made);
      return made;
    };
    return other;
  };
  EXPECT_EQ(refusal(rule), "");
  rule.pools_clients = true;
  EXPECT_THAT(refusal(rule), HasSubstr("update.codec"));
  rule.pools_clients = false;
  EXPECT_THAT(refusal(changed([](Schema& s) { s.up[0].reduction = aggregation::Reduction::kMax; })),
              HasSubstr("'delta'"));
  EXPECT_THAT(refusal(changed([](Schema& s) { s.up[0].layout = Plain(3, DType::kF32); })),
              HasSubstr("fedavg"));
  EXPECT_THAT(refusal(changed([](Schema& s) {
                s.metrics = {{kUpdateErrorMetric, std::nullopt}};
              })),
              HasSubstr(kUpdateErrorMetric));
  EXPECT_THAT(refusal(changed([](Schema& s) {
                s.state = {{"memory", s.down[0].layout}};
              })),
              AllOf(HasSubstr("memory"), HasSubstr("state_follows_sent")));
  rule.in_python = true;
  EXPECT_THAT(refusal(changed([](Schema& s) {
                s.state = {{"memory", s.down[0].layout}};
              })),
              AllOf(HasSubstr("memory"), HasSubstr("has_independent_state = True"),
                    testing::Not(HasSubstr("state_follows_sent"))))
      << "it has no such flag";
}

TEST(Compressed, SaysWhichFeedbackItTookAndWhatAClientKeeps) {
  const auto notes = [](const UpdateConfig& update, const CohortConfig& cohort) {
    const algorithms::Setup setup = FeedbackSetup(cohort);
    std::string text;
    for (const std::string& note : Compressed(Builtin("fedavg"), update).notes(setup))
      absl::StrAppend(&text, note, "\n");
    return text;
  };
  EXPECT_THAT(
      notes(Update({"topk 0.1", "bits 8"}), CohortOf(3)),
      AllOf(HasSubstr("\"topk 0.1\", \"bits 8\""), HasSubstr("ef21"), HasSubstr("64 bytes")));
  EXPECT_THAT(notes(Update({"bits 8"}), CohortOf(3)), HasSubstr("\"none\""));
  EXPECT_THAT(notes(Update({"topk 0.1"}, "none"), CohortOf(3)), HasSubstr("biased"));
  EXPECT_THAT(notes(Update({"topk 0.1"}, "residual"), CohortOf(3)), HasSubstr("noise"));
  UpdateConfig decays = Update({"topk 0.1"}, "residual");
  decays.residual_decay = 0.25;
  EXPECT_THAT(notes(decays, CohortOf(3)), AllOf(HasSubstr("0.25"), HasSubstr("128 bytes")));
}

// What the clip sees is what the server will decode.
TEST(Compressed, StandsDirectlyAroundTheRule) {
  RunPlan run;
  run.update = Update({"topk 0.5"}, "residual");
  run.privacy = {.mechanism = "gaussian", .clip = 1, .noise = 1};
  run.cohort = CohortOf(3, "poisson");
  run.clients = 10;
  run.model.frozen = {"frozen"};
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  run.algorithm = *registry.Complete({"fedavg", {}});
  const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "w", .shape = {2}}, {.name = "frozen", .shape = {2}}}, DType::kF32);
  const absl::StatusOr<Schema> schema = MakeSchema(*registry.RuleOf(run), SetupOf(run, layout));
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->state.at(0).name, "update_residual_delta");
  EXPECT_EQ(schema->state.at(0).layout->count(), 2u) << "the trained tensors alone";
  EXPECT_EQ(schema->up.at(0).bound, 1) << "the clip's";
  EXPECT_EQ(schema->metrics.at(0).name, kUpdateErrorMetric);
}

}  // namespace
}  // namespace macaw::algorithms
