#include "server/early_stopping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(EarlyStopping, KnowsWhichMetricsAreBetterWhenSmall) {
  EXPECT_TRUE(HigherIsBetter("test_accuracy"));
  EXPECT_TRUE(HigherIsBetter("clients_test_recall"));
  EXPECT_FALSE(HigherIsBetter("test_loss"));
  EXPECT_FALSE(HigherIsBetter("test_mae"));
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

TEST(EarlyStopping, RefusesARuleThatCouldNeverFire) {
  RunPlan run;
  run.evaluation.clients = true;
  const auto check = [&](const StopRule& rule) { return CheckStopRule(rule, run).ToString(); };
  EXPECT_EQ(check({}), "OK") << "no rule";
  EXPECT_EQ(check({.metric = "clients_test_accuracy", .patience = 1}), "OK");
  EXPECT_THAT(check({.metric = "accuracy", .patience = 1}),
              AllOf(HasSubstr("run.stop.metric"), HasSubstr("test_accuracy")));
  EXPECT_THAT(check({.metric = "test_accuracy"}), HasSubstr("at_least, patience"));
  run.evaluation.clients = false;
  EXPECT_THAT(check({.metric = "clients_test_loss", .patience = 1}),
              HasSubstr("evaluation.clients"));
  run.evaluation.train = true;
  EXPECT_EQ(check({.metric = "train_objective", .patience = 1}), "OK");
  run.evaluation.train = false;
  EXPECT_THAT(check({.metric = "clients_train_loss", .patience = 1}),
              HasSubstr("splits with \"train\""));
  EXPECT_EQ(check({.metric = "test_loss", .patience = 1}), "OK");
  run.task = TaskKind::kRegression;
  EXPECT_THAT(check({.metric = "test_accuracy", .patience = 1}), HasSubstr("test_mae"));
}

}  // namespace
}  // namespace macaw::server
