#include "server/selection.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace macaw::server {
namespace {

std::string Usual(const std::set<std::string>& columns) {
  return UsualMetric([&](const std::string& column) { return columns.contains(column); });
}

TEST(Selection, TellsWhichRowsAColumnIsOf) {
  EXPECT_EQ(RowsOfMetric("test_accuracy"), MetricRows::kTest);
  EXPECT_EQ(RowsOfMetric("clients_test_tuned_loss"), MetricRows::kTest);
  EXPECT_EQ(RowsOfMetric("heldout_test_accuracy"), MetricRows::kTest);
  EXPECT_EQ(RowsOfMetric("val_loss"), MetricRows::kValidation);
  EXPECT_EQ(RowsOfMetric("clients_val_accuracy"), MetricRows::kValidation);
  for (const char* column : {"train_loss", "train_objective", "rule_epsilon", "clients_train_loss"})
    EXPECT_EQ(RowsOfMetric(column), MetricRows::kTraining) << column;
}

TEST(Selection, LeavesStatisticsAndCountsOut) {
  EXPECT_TRUE(OfUntrainedRows("val_accuracy"));
  EXPECT_TRUE(OfUntrainedRows("clients_test_loss"));
  EXPECT_FALSE(OfUntrainedRows("clients_test_loss_std"));
  EXPECT_FALSE(OfUntrainedRows("clients_test_accuracy_worst10"));
  EXPECT_FALSE(OfUntrainedRows("clients_test_clients"));
  EXPECT_FALSE(OfUntrainedRows("train_loss"));
}

TEST(Selection, TellsWhatOneClientMovesAsFarAsItLikes) {
  for (const char* column :
       {"clients_test_loss", "clients_test_loss_mean", "clients_test_loss_worst10", "train_loss",
        "clients_val_mae", "train_objective", "clients_test_perplexity", "clients_test_r2"})
    EXPECT_TRUE(IsMovedByOneClient(column)) << column;
  for (const char* column :
       {"test_loss", "val_loss", "clients_test_accuracy", "clients_test_loss_p50",
        "train_client_loss_p10", "clients_test_missing", "clients_test_balanced_accuracy",
        "rule_epsilon", "virtual_seconds"})
    EXPECT_FALSE(IsMovedByOneClient(column)) << column;
}

TEST(Selection, PrefersValidationRows) {
  const std::set<std::string> test = {"train_loss", "test_loss", "test_accuracy"};
  EXPECT_EQ(Usual(test), "test_accuracy");
  std::set<std::string> both = test;
  both.insert({"val_loss", "val_accuracy"});
  EXPECT_EQ(Usual(both), "val_accuracy");
  both = test;
  both.insert({"clients_val_loss", "clients_val_accuracy"});
  EXPECT_EQ(Usual(both), "clients_val_accuracy") << "the clients' validation rows, without others";
  EXPECT_EQ(Usual({"train_loss", "val_loss"}), "val_loss") << "a regression without test rows";
}

TEST(Selection, JudgesARuleWithPersonalModelsByThem) {
  const std::set<std::string> ditto = {"train_loss",        "test_loss",
                                       "test_accuracy",     "clients_test_global_loss",
                                       "clients_test_loss", "clients_test_accuracy"};
  EXPECT_EQ(Usual(ditto), "clients_test_accuracy");
  std::set<std::string> validated = ditto;
  validated.insert({"val_accuracy", "clients_val_accuracy"});
  EXPECT_EQ(Usual(validated), "clients_val_accuracy");
  validated.erase("clients_val_accuracy");
  EXPECT_EQ(Usual(validated), "val_accuracy") << "rather than test rows";
}

TEST(Selection, FallsBackToTraining) {
  EXPECT_EQ(Usual({"train_loss"}), "train_loss");
  EXPECT_EQ(Usual({"train_loss", "train_objective"}), "train_objective");
  EXPECT_EQ(Usual({"train_loss", "clients_test_loss"}), "clients_test_loss");
}

}  // namespace
}  // namespace macaw::server
