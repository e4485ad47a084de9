#include "server/early_stopping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(EarlyStopping, KnowsWhichMetricsAreBetterWhenSmall) {
  EXPECT_TRUE(HigherIsBetter("test_accuracy"));
  EXPECT_TRUE(HigherIsBetter("clients_test_recall"));
  EXPECT_FALSE(HigherIsBetter("test_loss"));
  EXPECT_FALSE(HigherIsBetter("test_mae"));
  EXPECT_FALSE(HigherIsBetter("backdoor_success"));
  EXPECT_FALSE(HigherIsBetter("clients_test_accuracy_std"));
  EXPECT_FALSE(HigherIsBetter("clients_test_accuracy_gini"));
  for (const char* column :
       {"rule_inertia", "rule_error", "rule_update_error", "rule_drift_mean", "rule_drift_max",
        "l2_penalty", "train_objective", "best_rule_inertia"})
    EXPECT_FALSE(HigherIsBetter(column)) << column;
  EXPECT_TRUE(HigherIsBetter("rule_update_agreement"));
}

// A group has any name (evaluation.groups).
TEST(EarlyStopping, JudgesTheColumnsOfAGroupByTheirMetric) {
  for (const char* name : {"loss", "mae", "no_loss_here", "bytes_x", "worst_group", "x_group_gap_y",
                           "_missing", "virtual_seconds_std"}) {
    EXPECT_TRUE(HigherIsBetter(absl::StrCat("clients_test_group_", name, "_accuracy"))) << name;
    EXPECT_FALSE(HigherIsBetter(absl::StrCat("clients_test_group_", name, "_mae"))) << name;
    EXPECT_FALSE(HigherIsBetter(absl::StrCat("clients_test_group_", name, "_loss"))) << name;
    EXPECT_FALSE(HigherIsBetter(absl::StrCat("clients_test_group_", name, "_ece"))) << name;
    EXPECT_TRUE(HigherIsBetter(absl::StrCat("clients_test_group_", name, "_top5"))) << name;
  }
  EXPECT_FALSE(HigherIsBetter("clients_test_worst_group_ece"));
  EXPECT_TRUE(HigherIsBetter("clients_test_worst_group_accuracy"));
  EXPECT_FALSE(HigherIsBetter("clients_test_worst_group_loss"));
  EXPECT_FALSE(HigherIsBetter("clients_test_group_gap_accuracy"));
}

TEST(EarlyStopping, StopsWhenTheMarkIsReachedFromEitherSide) {
  EarlyStopping up({.metric = "test_accuracy", .at_least = 0.9});
  EXPECT_FALSE(up.Observe(1, 0.89999).has_value());
  const auto reached = up.Observe(2, 0.9);
  ASSERT_TRUE(reached.has_value());
  EXPECT_THAT(*reached, AllOf(HasSubstr("test_accuracy"), HasSubstr("0.9"), HasSubstr("round 2")));

  EarlyStopping down({.metric = "test_loss", .at_least = 0.5});
  EXPECT_FALSE(down.Observe(1, 0.6).has_value());
  EXPECT_TRUE(down.Observe(2, 0.5).has_value());
}

TEST(EarlyStopping, CountsEvaluationsWithoutABetterOne) {
  EarlyStopping rule({.metric = "test_loss", .patience = 2});
  EXPECT_FALSE(rule.Observe(10, 1.0).has_value());
  EXPECT_FALSE(rule.Observe(20, 1.0).has_value()) << "equal is no progress";
  EXPECT_FALSE(rule.Observe(30, 0.8).has_value()) << "progress forgives what was before";
  EXPECT_FALSE(rule.Observe(40, 0.9).has_value());
  const auto reason = rule.Observe(50, 0.81);
  ASSERT_TRUE(reason.has_value());
  EXPECT_THAT(*reason, AllOf(HasSubstr("0.8"), HasSubstr("round 30"), HasSubstr("2 evaluations")));
}

TEST(EarlyStopping, DoesNotTakeWhatIsNotANumberForProgress) {
  EarlyStopping rule({.metric = "test_loss", .at_least = 0.1, .patience = 2});
  EXPECT_FALSE(rule.Observe(1, std::nan("")).has_value());
  EXPECT_FALSE(rule.Observe(2, 1.0).has_value()) << "the first number is progress";
  EXPECT_FALSE(rule.Observe(3, std::nan("")).has_value());
  EXPECT_TRUE(rule.Observe(4, std::nan("")).has_value());
}

// Such as a column whose first rows have no value.
TEST(EarlyStopping, CountsNothingBeforeTheFirstNumber) {
  EarlyStopping rule({.metric = "clients_test_loss", .patience = 2});
  for (const uint32_t round : {1u, 2u, 3u, 4u})
    EXPECT_FALSE(rule.Observe(round, std::nan("")).has_value()) << round;
  EXPECT_FALSE(rule.Observe(5, 1.0).has_value());
  EXPECT_FALSE(rule.Observe(6, 1.0).has_value());
  const auto reason = rule.Observe(7, std::nan(""));
  ASSERT_TRUE(reason.has_value());
  EXPECT_THAT(*reason, HasSubstr("has not improved on 1 of round 5"));
}

// The columns of a run with an algorithm that has a metric of its own, and one channel up.
std::vector<MetricColumn> Columns(TaskKind task, bool personal = false) {
  algorithms::Description algorithm;
  algorithm.has_personal_models = personal;
  algorithms::Schema schema;
  schema.up = {{.name = "delta"}};
  schema.metrics = {{"epsilon", std::nullopt}};
  return MetricColumns(task, algorithm, schema);
}

std::string Check(const StopRule& rule, const RunPlan& run, bool personal = false) {
  return CheckStopRule(rule, run, Columns(run.task, personal)).ToString();
}

TEST(EarlyStopping, SaysWhatMetricsOfClassesAndHeldoutClientsNeed) {
  RunPlan run;
  run.task = TaskKind::kBinary;
  EXPECT_THAT(Check({.metric = "test_auc", .patience = 1}, run),
              AllOf(HasSubstr("evaluation.metrics"), HasSubstr("auc")));
  EXPECT_THAT(Check({.metric = "heldout_test_tuned_f1_worst10", .patience = 1}, run),
              AllOf(HasSubstr("evaluation.heldout"), HasSubstr("evaluation.fine_tune.steps"),
                    HasSubstr("\"f1\"")));
  run.evaluation.metrics = {.f1 = true, .auc = true};
  run.evaluation.heldout = true;
  run.evaluation.fine_tune.steps = 1;
  for (const char* metric : {"test_auc", "heldout_test_tuned_f1_worst10", "heldout_test_loss"})
    EXPECT_EQ(Check({.metric = metric, .patience = 1}, run), "OK") << metric;
  EXPECT_TRUE(HigherIsBetter("test_balanced_accuracy") && HigherIsBetter("clients_test_f1_mean"));
  EXPECT_FALSE(HigherIsBetter("test_ece") || HigherIsBetter("clients_test_ece_worst10") ||
               HigherIsBetter("val_perplexity"));
  EXPECT_TRUE(HigherIsBetter("test_top5") && HigherIsBetter("clients_test_r2"));
  EXPECT_THAT(Check({.metric = "test_ece", .patience = 1}, run), HasSubstr("\"ece\""));
  EXPECT_THAT(Check({.metric = "test_top5", .patience = 1}, run), HasSubstr("no such column"));
  run.task = TaskKind::kRegression;
  EXPECT_THAT(Check({.metric = "test_auc", .patience = 1}, run), HasSubstr("no such column"));
}

TEST(EarlyStopping, TakesEveryColumnThatTheRunWillHave) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  run.evaluation.clients = run.evaluation.validation = run.evaluation.train = true;
  for (const char* metric :
       {"rule_epsilon", "used_bound_delta", "train_loss", "train_client_accuracy_p10", "left_out",
        "test_accuracy", "clients_test_accuracy", "clients_test_loss_worst10",
        "clients_train_accuracy", "l2_penalty", "train_objective"}) {
    EXPECT_EQ(Check({.metric = metric, .patience = 1}, run), "OK") << metric;
  }
  const StopRule personal{.metric = "personal_train_loss", .patience = 1};
  EXPECT_EQ(Check(personal, run, /*personal=*/true), "OK");
  EXPECT_NE(Check(personal, run), "OK") << "this algorithm has no personal models";
  EXPECT_EQ(Check({}, run), "OK") << "no rule";
}

TEST(EarlyStopping, RefusesAMetricThatTheRunDoesNotHaveAndNamesTheNearest) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  EXPECT_THAT(Check({.metric = "rule_epsilom", .patience = 1}, run),
              AllOf(HasSubstr("run.stop.metric"), HasSubstr("did you mean \"rule_epsilon\"")));
  EXPECT_THAT(Check({.metric = "train_client_loss_p99", .patience = 1}, run),
              HasSubstr("did you mean \"train_client_loss_p90\""));
  EXPECT_THAT(Check({.metric = "accuracy", .patience = 1}, run),
              AllOf(HasSubstr("test_accuracy"), HasSubstr("rule_epsilon")));
  run.task = TaskKind::kRegression;
  EXPECT_THAT(Check({.metric = "test_accuracy", .patience = 1}, run), HasSubstr("test_mae"));
}

// As Check, with the columns of this very run. `statistics`: its clients train nothing.
std::string CheckOfRun(const std::string& metric, const RunPlan& run, bool statistics = false) {
  algorithms::Description algorithm;
  algorithm.has_statistics = statistics;
  algorithms::Schema schema;
  schema.up = {{.name = "delta"}};
  const std::vector<MetricColumn> columns = ColumnsOf(run, algorithm, schema);
  return CheckStopRule({.metric = metric, .patience = 2}, run, columns).ToString();
}

TEST(EarlyStopping, RefusesColumnsOfVirtualTimeWithoutAClock) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  for (const char* metric : {"virtual_seconds", "late"}) {
    EXPECT_THAT(CheckOfRun(metric, run),
                HasSubstr(absl::StrCat("run.stop.metric \"", metric,
                                       "\" needs [devices], whose clock it reads")));
  }
  EXPECT_THAT(CheckOfRun("staleness", run), HasSubstr("\"staleness\" needs a round.mode"));
  EXPECT_THAT(CheckOfRun("accuracy", run),
              AllOf(HasSubstr("left_out"), Not(HasSubstr("virtual_seconds")),
                    Not(HasSubstr("late,")), Not(HasSubstr("staleness"))));
  run.devices.family = "lognormal";
  ASSERT_TRUE(run.devices.on());
  for (const char* metric : {"virtual_seconds", "late"})
    EXPECT_EQ(CheckOfRun(metric, run), "OK") << metric;
  EXPECT_THAT(CheckOfRun("staleness", run), HasSubstr("needs a round.mode"));
  run.asynchronous.mode = "buffered";
  EXPECT_EQ(CheckOfRun("staleness", run), "OK");
}

TEST(EarlyStopping, RefusesColumnsOfTrainingWhereClientsTrainNothing) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  run.algorithm.name = "ridge";
  run.evaluation.train = true;
  for (const char* metric : {"train_loss", "train_accuracy", "train_client_loss_mean"}) {
    EXPECT_THAT(CheckOfRun(metric, run, /*statistics=*/true),
                AllOf(HasSubstr(absl::StrCat("\"", metric, "\" never has a value")),
                      HasSubstr("\"ridge\"")));
    EXPECT_EQ(CheckOfRun(metric, run), "OK") << metric;
  }
  for (const char* metric : {"test_accuracy", "clients_train_loss", "train_objective", "clients"})
    EXPECT_EQ(CheckOfRun(metric, run, /*statistics=*/true), "OK") << metric;
  EXPECT_THAT(CheckOfRun("accuracy", run, /*statistics=*/true),
              AllOf(HasSubstr("test_accuracy"), Not(HasSubstr(" train_loss"))));
}

TEST(EarlyStopping, RefusesAShareAboveOne) {
  RunPlan run;
  run.task = TaskKind::kBinary;
  run.evaluation.clients = true;
  run.evaluation.metrics = {.f1 = true, .auc = true};
  for (const char* metric : {"test_accuracy", "train_accuracy", "test_precision", "test_f1",
                             "test_auc", "clients_test_recall_worst10"}) {
    EXPECT_THAT(Check({.metric = metric, .at_least = 97}, run),
                HasSubstr(absl::StrCat("run.stop.at_least is 97, and ", metric,
                                       " never reaches that: it is a share from 0 to 1")));
    EXPECT_EQ(Check({.metric = metric, .at_least = 1}, run), "OK") << metric;
  }
  // Less is better, or the range is not known.
  for (const char* metric : {"test_loss", "clients_test_accuracy_std", "rule_epsilon", "clients"})
    EXPECT_EQ(Check({.metric = metric, .at_least = 97}, run), "OK") << metric;
}

TEST(EarlyStopping, RefusesARuleThatCouldNeverFire) {
  RunPlan run;
  EXPECT_THAT(Check({.metric = "test_accuracy"}, run), HasSubstr("at_least, patience"));
  run.evaluation.clients = false;
  for (const char* metric : {"clients_test_loss", "clients_test_loss_p90"}) {
    EXPECT_THAT(Check({.metric = metric, .patience = 1}, run), HasSubstr("evaluation.clients"));
  }
  run.evaluation.validation = false;
  EXPECT_THAT(Check({.metric = "clients_val_accuracy", .patience = 1}, run),
              HasSubstr("splits with \"validation\""));
  run.evaluation.train = false;
  for (const char* metric : {"clients_train_loss", "train_objective", "l2_penalty"}) {
    EXPECT_THAT(Check({.metric = metric, .patience = 1}, run), HasSubstr("splits with \"train\""));
  }
  run.evaluation.central = false;
  EXPECT_THAT(Check({.metric = "test_loss", .patience = 1}, run), HasSubstr("evaluation.central"));
  EXPECT_EQ(Check({.metric = "train_loss", .patience = 1}, run), "OK");
  run.evaluation.every = 0;
  EXPECT_THAT(Check({.metric = "train_loss", .patience = 1}, run),
              HasSubstr("evaluation.every = 0 evaluates the last round's model alone"));
}

}  // namespace
}  // namespace macaw::server
