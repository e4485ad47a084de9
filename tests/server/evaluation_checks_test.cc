// What a node reports of rows that only it has is bounded by what it said of them before the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "plan/run_plan.h"
#include "server/engine/part_checks.h"

namespace macaw::server {
namespace {

using fleet::EvaluationKind;
using testing::HasSubstr;

class EvaluationChecks : public testing::Test {
 protected:
  EvaluationChecks() {
    run_.task = TaskKind::kClassification;
    run_.model.input_shape = {10};
    // The second client has test rows, the first one validation rows, and the third no rows to
    // train on.
    fleet::ClientTable table{.rows = {4, 4, 0},
                             .names = {"a", "b", "c"},
                             .test_rows = {0, 7, 5},
                             .validation_rows = {3, 0, 0}};
    const fleet::RegisterRequest node{
        .clients = 3, .table = fleet::Blob::Of(table.Encode()), .owner = true};
    roster_.Add(node, std::move(table));
    roster_.Begin();
  }
  std::string Error(EvaluationKind kind, uint64_t client, double rows, double loss) const {
    const fleet::EvaluationTask task{.kind = kind, .client = ClientId(client)};
    const fleet::EvaluationResult result{.round = Round(1), .sums = {rows, loss, 0}};
    return std::string(
        CheckEvaluation(run_, roster_, /*keeps_states=*/false, task, result).message());
  }
  std::string Error(EvaluationKind kind, uint64_t client, double rows) const {
    return Error(kind, client, rows, rows > 0 ? 0.5 : 0);
  }
  RunPlan run_;
  Roster roster_;
};

TEST_F(EvaluationChecks, AClientHasAsManyTestRowsAsItsNodeSaid) {
  for (const EvaluationKind kind : {EvaluationKind::kClientTest, EvaluationKind::kClientTestGlobal,
                                    EvaluationKind::kClientTuned}) {
    EXPECT_EQ(Error(kind, 1, 7), "");
    EXPECT_EQ(Error(kind, 0, 0), "");
    for (const double lie : {0.0, 6.0, 8.0, 1e15})
      EXPECT_THAT(Error(kind, 1, lie), HasSubstr("does not report the rows")) << lie;
    EXPECT_THAT(Error(kind, 0, 1), HasSubstr("does not report the rows"));
  }
}

TEST_F(EvaluationChecks, AClientWithoutTrainingRowsIsNotTuned) {
  EXPECT_EQ(Error(EvaluationKind::kClientTuned, 2, 0), "");
  EXPECT_EQ(Error(EvaluationKind::kClientTuned, 2, 5), "") << "held out, on its validation rows";
  EXPECT_THAT(Error(EvaluationKind::kClientTuned, 2, 4), HasSubstr("does not report the rows"));
  EXPECT_THAT(Error(EvaluationKind::kClientTest, 2, 0), HasSubstr("does not report the rows"));
}

// It would be in the sum over all clients, and no client with rows could be left out for it.
TEST_F(EvaluationChecks, NoRowsHaveNoLoss) {
  for (const double loss : {1e40, -1.0, static_cast<double>(INFINITY), std::nan("")}) {
    EXPECT_THAT(Error(EvaluationKind::kClientTest, 0, 0, loss), HasSubstr("losses of no rows"));
    EXPECT_THAT(Error(EvaluationKind::kClientTuned, 2, 0, loss), HasSubstr("losses of no rows"));
  }
}

// They leave the client out of the means, and end no commit.
TEST_F(EvaluationChecks, AModelThatHasDivergedMayHaveAnyLoss) {
  for (const double loss : {1e40, 1e60, -1e60, static_cast<double>(INFINITY), std::nan("")})
    EXPECT_EQ(Error(EvaluationKind::kClientTest, 1, 7, loss), "") << loss;
}

TEST_F(EvaluationChecks, AndAsManyValidationRows) {
  EXPECT_EQ(Error(EvaluationKind::kClientValidation, 0, 3), "");
  EXPECT_THAT(Error(EvaluationKind::kClientValidation, 0, 4),
              HasSubstr("does not report the rows"));
  EXPECT_THAT(Error(EvaluationKind::kClientValidation, 1, 7),
              HasSubstr("does not report the rows"));
}

// The server does not know how many rows are of the class that a backdoor aims at.
TEST_F(EvaluationChecks, ABackdoorHasNoMoreRowsThanTheTask) {
  const auto error = [&](double rows) {
    const fleet::EvaluationTask task{
        .kind = EvaluationKind::kCentralBackdoor, .begin = 100, .end = 140};
    const fleet::EvaluationResult result{.round = Round(1), .sums = {rows, rows > 0 ? 0.5 : 0, 0}};
    return std::string(
        CheckEvaluation(run_, roster_, /*keeps_states=*/false, task, result).message());
  };
  EXPECT_EQ(error(40), "");
  EXPECT_EQ(error(0), "");
  EXPECT_THAT(error(41), HasSubstr("does not report the rows"));
}

TEST_F(EvaluationChecks, AChoiceIsOfAModelThatThereIs) {
  const fleet::EvaluationTask task{.kind = EvaluationKind::kClientTest, .client = ClientId(1)};
  const fleet::EvaluationResult result{.round = Round(1), .sums = {7, 0.5, 0}, .choice = 1};
  EXPECT_TRUE(CheckEvaluation(run_, roster_, false, task, result, /*models=*/2).ok());
  EXPECT_THAT(std::string(CheckEvaluation(run_, roster_, false, task, result).message()),
              HasSubstr("a model that the rule does not have"));
}

// With r2, the sums of the labels follow those of the task.
TEST_F(EvaluationChecks, R2NeedsTheSumsOfLabels) {
  run_.task = TaskKind::kRegression;
  run_.evaluation.metrics.r2 = true;
  EXPECT_THAT(Error(EvaluationKind::kClientTest, 1, 7), HasSubstr("does not report the rows"));
  const fleet::EvaluationTask task{.kind = EvaluationKind::kClientTest, .client = ClientId(1)};
  const fleet::EvaluationResult result{.round = Round(1), .sums = {7, 0.5, 0, 14, 30}};
  EXPECT_TRUE(CheckEvaluation(run_, roster_, /*keeps_states=*/false, task, result).ok());
  run_.evaluation.metrics.r2 = false;
  EXPECT_FALSE(CheckEvaluation(run_, roster_, /*keeps_states=*/false, task, result).ok());
}

// How many of a row's tokens are in use is the node's to say.
TEST_F(EvaluationChecks, ARowHasNoMoreTokensThanPositions) {
  run_.task = TaskKind::kNextToken;
  EXPECT_EQ(Error(EvaluationKind::kClientTest, 1, 70), "");
  EXPECT_EQ(Error(EvaluationKind::kClientTest, 1, 12), "");
  EXPECT_THAT(Error(EvaluationKind::kClientTest, 1, 71), HasSubstr("does not report the rows"));
}

}  // namespace
}  // namespace macaw::server
