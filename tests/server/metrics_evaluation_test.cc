// What evaluations add to a row of the metrics, and which of them a run can have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/metrics.h"
#include "tests/server/metrics_rows.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using fixtures::FourClients;
using Json = nlohmann::json;

TEST(MetricsRow, AddsTheEvaluation) {
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  EvaluationSums sums{.round = Round(7), .central = {200, 50, 150}};
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {10, 20, 10}},
                                      {ClientId(1), {0, 0, 0}},  // has no test rows
                                      {ClientId(2), {30, 30, 15}}};
  sums.Of(EvaluatedRows::kGlobal) = {{ClientId(0), {10, 40, 5}}, {ClientId(2), {30, 40, 5}}};
  sums.Of(EvaluatedRows::kTuned) = {{ClientId(0), {10, 5, 9}}};
  sums.Of(EvaluatedRows::kValidation) = {{ClientId(0), {4, 2, 3}}};
  sums.missing[static_cast<size_t>(EvaluatedRows::kClients)] = 4;
  row.AddEvaluation(sums);
  EXPECT_EQ(*row.Get("clients_test_clients"), 2) << "the statistics are over these";
  EXPECT_EQ(*row.Get("clients_test_missing"), 4);
  EXPECT_EQ(*row.Get("clients_val_clients"), 1);
  EXPECT_EQ(*row.Get("clients_val_missing"), 0);
  EXPECT_FALSE(row.Get("heldout_test_clients").has_value());
  EXPECT_FALSE(row.Get("test_group0_accuracy").has_value());
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_tuned_accuracy"), 0.9);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_global_loss"), 2);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_global_accuracy"), 0.25);
  EXPECT_DOUBLE_EQ(*row.Get("clients_val_loss"), 0.5);
  EXPECT_DOUBLE_EQ(*row.Get("clients_val_accuracy_worst10"), 0.75);
  EXPECT_DOUBLE_EQ(*row.Get("test_loss"), 0.25);
  EXPECT_DOUBLE_EQ(*row.Get("test_accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_loss"), 50.0 / 40);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_accuracy"), 25.0 / 40);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_accuracy_mean"), 0.75) << "over clients with rows";
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_loss_p50"), 1.5);
  EXPECT_FALSE(row.Get("no_such_column").has_value());
}

TEST(MetricsRow, HasColumnsOfEachGroupOfConceptShift) {
  const ConceptGroups groups({.concept_shift = ConceptShift::kRotation, .concept_shift_groups = 2},
                             /*seed=*/1);
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  EvaluationSums sums{.round = Round(7), .central = {20, 10, 12}};
  sums.central_groups = {{10, 2, 10}, {10, 8, 2}};
  std::vector<double> accuracy(2), clients(2);
  for (uint64_t k = 0; k < 40; ++k) {
    const uint32_t group = groups.Of(ClientId(k));
    const double correct = group == 0 ? 3 : 1;
    const double rows = k < 10 ? 0 : 4;  // the first have no test rows
    sums.Of(EvaluatedRows::kClients).push_back({ClientId(k), {rows, 1, rows > 0 ? correct : 0}});
    clients[group] += rows > 0 ? 1 : 0;
  }
  row.AddEvaluation(sums, {}, groups);
  EXPECT_DOUBLE_EQ(*row.Get("test_accuracy"), 0.6);
  EXPECT_DOUBLE_EQ(*row.Get("test_group0_accuracy"), 1);
  EXPECT_DOUBLE_EQ(*row.Get("test_group1_accuracy"), 0.2);
  EXPECT_DOUBLE_EQ(*row.Get("test_group1_loss"), 0.8);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_group0_accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_group1_accuracy"), 0.25);
  EXPECT_EQ(*row.Get("clients_test_group0_clients"), clients[0]);
  EXPECT_EQ(clients[0] + clients[1], 30);
  EXPECT_EQ(*row.Get("clients_test_group1_clients"), clients[1]);
}

TEST(MetricsRow, AddsTheObjectiveOverAllTrainingRows) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "w", .shape = {3}},
                              {.name = "b", .shape = {1}},
                              {.name = "running", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  FlatVector model(layout);
  const std::vector<double> w = {1, -2, 0.5};
  std::copy(w.begin(), w.end(), model.As<double>().begin());
  model.As<double>()[layout->Find("b")->offset] = 3;
  model.As<double>()[layout->Find("running")->offset] = 100;  // a buffer: not penalised
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddPenalty(0.5, model.view());
  EXPECT_FALSE(row.Get("train_objective").has_value());
  row.AddEvaluation({.round = Round(7), .train = {40, 10, 30}});
  EXPECT_DOUBLE_EQ(*row.Get("l2_penalty"), 0.25 * (1 + 4 + 0.25 + 9));
  EXPECT_DOUBLE_EQ(*row.Get("clients_train_loss"), 0.25);
  EXPECT_DOUBLE_EQ(*row.Get("clients_train_accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(*row.Get("train_objective"), 0.25 + 0.25 * 14.25);
}

// A client without a finite loss would make every mean over clients infinite, and a stop rule on
// one of them useless. One below 0 would be the best of the run for good.
TEST(MetricsRow, LeavesOutAFewClientsWithoutALossThatRowsCanGive) {
  for (const double loss :
       {static_cast<double>(INFINITY), -static_cast<double>(INFINITY), std::nan(""), -1e49, -0.1}) {
    EvaluationSums sums{.round = Round(7)};
    sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {10, 5, 8}},
                                        {ClientId(1), {4, loss, 4}},
                                        {ClientId(2), {2, 3, 1}},
                                        {ClientId(3), {0, 0, 0}}};
    sums.missing[static_cast<size_t>(EvaluatedRows::kClients)] = 1;
    MetricsRow row(TaskKind::kClassification, FourClients(), {});
    row.AddEvaluation(sums);
    const Json json = Json::parse(row.Text());
    EXPECT_DOUBLE_EQ(json["clients_test_loss"], 8.0 / 12);
    EXPECT_DOUBLE_EQ(json["clients_test_accuracy"], 9.0 / 12);
    EXPECT_DOUBLE_EQ(json["clients_test_loss_mean"], 1);
    EXPECT_EQ(json["clients_test_clients"], 2);
    EXPECT_EQ(json["clients_test_missing"], 2);
  }
}

// Rounding puts a loss of 0 a little below it.
TEST(MetricsRow, CountsALossOfZeroThatWasRounded) {
  EvaluationSums sums{.round = Round(7)};
  sums.Of(EvaluatedRows::kClients) = {
      {ClientId(0), {10, 5, 8}}, {ClientId(1), {4, -1e-7, 4}}, {ClientId(2), {2, 3, 1}}};
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(sums);
  const Json json = Json::parse(row.Text());
  EXPECT_EQ(json["clients_test_clients"], 3);
  EXPECT_EQ(json["clients_test_missing"], 0);
}

TEST(MetricsRow, LeavesOutAClientWhoseErrorsAreBelowZero) {
  EvaluationSums sums{.round = Round(7)};
  sums.Of(EvaluatedRows::kClients) = {
      {ClientId(0), {10, 5, 8}}, {ClientId(1), {4, 1, -1e40}}, {ClientId(2), {2, 3, 1}}};
  MetricsRow row(TaskKind::kRegression, PhaseReport{.round = Round(7)}, {});
  row.AddEvaluation(sums);
  const Json json = Json::parse(row.Text());
  EXPECT_DOUBLE_EQ(json["clients_test_mae"], 9.0 / 12);
  EXPECT_EQ(json["clients_test_missing"], 1);
}

// A program's own loss may be below 0 everywhere.
TEST(MetricsRow, ShowsLossesBelowZeroThatMostClientsHave) {
  EvaluationSums sums{.round = Round(7)};
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {10, -5, 8}}, {ClientId(1), {4, -3, 4}}};
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(sums);
  const Json json = Json::parse(row.Text());
  EXPECT_DOUBLE_EQ(json["clients_test_loss"], -8.0 / 14);
  EXPECT_EQ(json["clients_test_clients"], 2);
}

// A loss that is finite and huge is a value that a model may have, so it counts.
TEST(MetricsRow, HasMediansThatOneLyingClientDoesNotMoveBeyondItsNeighbours) {
  EvaluationSums sums{.round = Round(7)};
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {10, 5, 8}},
                                      {ClientId(1), {10, 6, 7}},
                                      {ClientId(2), {10, 7, 6}},
                                      {ClientId(3), {10, 1e50, 0}}};
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(sums);
  const Json json = Json::parse(row.Text());
  EXPECT_GT(json["clients_test_loss"], 1e48);
  EXPECT_DOUBLE_EQ(json["clients_test_loss_p50"], 0.65);
  EXPECT_DOUBLE_EQ(json["clients_test_accuracy"], 21.0 / 40) << "by its share of the rows";
}

// A model that has diverged is not that of the clients for which it has not.
TEST(MetricsRow, ShowsThatAModelHasDiverged) {
  EvaluationSums sums{.round = Round(7)};
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {10, 5, 8}}, {ClientId(1), {4, INFINITY, 4}}};
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(sums);
  const Json json = Json::parse(row.Text());
  EXPECT_TRUE(json["clients_test_loss"].is_null());
  EXPECT_EQ(json["clients_test_clients"], 2);
  EXPECT_EQ(json["clients_test_missing"], 0);
}

TEST(MetricsRow, ABackdoorsSuccessIsTheAccuracyOnItsRows) {
  MetricsRow row(TaskKind::kClassification, {.round = Round(1)}, {});
  EvaluationSums sums{.round = Round(1), .central = {10, 5, 9}};
  row.AddEvaluation(sums);
  EXPECT_FALSE(row.Get(kBackdoorSuccess).has_value());
  sums.backdoor = {8, 90, 2};
  row.AddEvaluation(sums);
  EXPECT_EQ(row.Get(kBackdoorSuccess), 0.25);
}

// Two classes: 3 of 4 rows of class 0 and 1 of 2 of class 1 are right.
EvaluationSums Counted() {
  EvaluationSums sums{.round = Round(4), .central = {6, 3, 4}};
  sums.counts[0] = {.at = {0, 1, 2, 3}, .count = {3, 1, 1, 1}};
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {4, 1, 3}, {0.25}},
                                      {ClientId(1), {2, 1, 1}, {std::nan("")}}};
  sums.counts[static_cast<size_t>(EvaluatedRows::kClients)] = sums.counts[0];
  return sums;
}

TEST(MetricsRow, HasMetricsOfClasses) {
  const training::ClassCounts counts =
      training::ClassCounts::Of({.balanced_accuracy = true}, TaskKind::kClassification, 2);
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(Counted(), counts);
  EXPECT_DOUBLE_EQ(*row.Get("test_balanced_accuracy"), 0.625);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_balanced_accuracy"), 0.625);
  EXPECT_EQ(row.Get("clients_test_balanced_accuracy_mean"), 0.25) << "where it is defined";
  EXPECT_FALSE(row.Get("test_f1").has_value());
  EXPECT_FALSE(row.Get("heldout_test_balanced_accuracy").has_value());
}

// The counts of classes have the rows of all clients.
TEST(MetricsRow, CountsTheClassesOfClientsWithoutAFiniteLoss) {
  const training::ClassCounts counts =
      training::ClassCounts::Of({.balanced_accuracy = true}, TaskKind::kClassification, 2);
  EvaluationSums sums = Counted();
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {3, 1, 2}, {0.25}},
                                      {ClientId(1), {2, INFINITY, 1}, {0.5}},
                                      {ClientId(2), {1, 1, 1}, {0.75}}};
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(sums, counts);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_balanced_accuracy"), 0.625);
  EXPECT_EQ(row.Get("clients_test_balanced_accuracy_mean"), 0.5);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_loss"), 2.0 / 4);

  const std::vector<ClientGroups> divisions = {*GroupsByName({"a=a*"})};
  for (auto& client : sums.clients[static_cast<size_t>(EvaluatedRows::kClients)]) client.group = 0;
  sums.group_counts = {sums.counts[static_cast<size_t>(EvaluatedRows::kClients)]};
  MetricsRow grouped(TaskKind::kClassification, FourClients(), {});
  grouped.AddEvaluation(sums, counts, {}, {.balanced_accuracy = true}, divisions);
  EXPECT_DOUBLE_EQ(*grouped.Get("clients_test_group_a_balanced_accuracy"), 0.625);
  EXPECT_DOUBLE_EQ(*grouped.Get("clients_test_group_a_loss"), 2.0 / 4);
  EXPECT_EQ(grouped.Get("clients_test_group_a_clients"), 2);
}

TEST(MetricsRow, HasR2OfAllRowsAndOverClients) {
  MetricsRow row(TaskKind::kRegression, {.round = Round(1)}, {});
  EvaluationSums sums{.round = Round(1), .central = {4, 1.5, 2, 11.5, 62.25}};
  // Labels 0 and 2, then 4 and 8; the last client has one row.
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {2, 1, 1, 2, 4}},
                                      {ClientId(1), {2, 4, 2, 12, 80}},
                                      {ClientId(2), {1, 9, 3, 6, 36}}};
  row.AddEvaluation(sums, {}, {}, {.r2 = true});
  EXPECT_NEAR(*row.Get("test_r2"), 0.9486081370449679, 1e-15);
  EXPECT_NEAR(*row.Get("clients_test_r2"), 1 - 14.0 / (120 - 80), 1e-15);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_r2_mean"), 0.5) << "1/2 and 1/2; one row has none";
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_loss"), 14.0 / 5);
  EXPECT_FALSE(row.Get("val_r2").has_value());
}

TEST(MetricsRow, HasPerplexities) {
  MetricsRow row(TaskKind::kNextToken, {.round = Round(1)}, {});
  EvaluationSums sums{.round = Round(1), .central = {8, 8 * std::log(3.0), 2}};
  sums.Of(EvaluatedRows::kClients) = {{ClientId(0), {2, 2 * std::log(2.0), 1}},
                                      {ClientId(1), {2, 2 * std::log(8.0), 1}}};
  row.AddEvaluation(sums, {}, {}, {.perplexity = true});
  EXPECT_DOUBLE_EQ(*row.Get("test_perplexity"), 3);
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_perplexity"), 4) << "of the mean loss of a token";
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_perplexity_worst10"), 8) << "less is better";
  EXPECT_DOUBLE_EQ(*row.Get("clients_test_perplexity_mean"), 5);
}

TEST(MetricsRow, IsUndefinedWhereRowsAreNotCounted) {
  const training::ClassCounts counts =
      training::ClassCounts::Of({.balanced_accuracy = true}, TaskKind::kClassification, 2);
  EvaluationSums sums = Counted();
  sums.counts[0].count[0] = 2;
  MetricsRow row(TaskKind::kClassification, FourClients(), {});
  row.AddEvaluation(sums, counts);
  EXPECT_TRUE(std::isnan(*row.Get("test_balanced_accuracy")));
}

TEST(Confusion, HasTheMatrixAndEachClass) {
  const training::ClassCounts counts =
      training::ClassCounts::Of({.f1 = true, .confusion = true}, TaskKind::kClassification, 2);
  const Json json = Json::parse(ConfusionText(Counted(), counts));
  EXPECT_EQ(json["round"], 4);
  EXPECT_EQ(json["test"]["rows"], 6);
  EXPECT_EQ(json["test"]["confusion"], Json::parse("[[3, 1], [1, 1]]"));
  EXPECT_EQ(json["test"]["recall"], Json::parse("[0.75, 0.5]"));
  EXPECT_EQ(json["clients_test"]["confusion"], json["test"]["confusion"]);
  EXPECT_FALSE(json.contains("heldout_test"));
}

TEST(CheckEvaluationOf, RefusesWhatCannotBeEvaluated) {
  const auto check = [](auto change) {
    RunPlan run;
    run.task = TaskKind::kClassification;
    run.model.classes = 10;
    algorithms::Description algorithm;
    change(run, algorithm);
    return std::string(CheckEvaluationOf(run, algorithm).message());
  };
  EXPECT_EQ(check([](auto& run, auto&) { run.evaluation.metrics.f1 = true; }), "");
  EXPECT_NE(check([](auto& run, auto&) {
              run.evaluation.metrics.f1 = true;
              run.task = TaskKind::kRegression;
            }).find("regression"),
            std::string::npos);
  EXPECT_NE(check([](auto& run, auto&) {
              run.evaluation.metrics.f1 = true;
              run.model.classes = 100000;
            }).find("100000"),
            std::string::npos);
  const auto top5 = [](int64_t classes) {
    return [classes](auto& run, auto&) {
      run.evaluation.metrics.top5 = true;
      run.model.classes = classes;
    };
  };
  EXPECT_EQ(check(top5(100000)), "") << "top5 has no matrix";
  EXPECT_NE(check(top5(5)).find("top5"), std::string::npos);
  EXPECT_NE(check([](auto& run, auto&) { run.evaluation.metrics.r2 = true; }).find("r2"),
            std::string::npos);
  EXPECT_NE(
      check([](auto& run, auto&) { run.evaluation.metrics.perplexity = true; }).find("next-token"),
      std::string::npos);
  const auto groups = [&](bool balanced) {
    return check([balanced](auto& run, auto&) {
      run.evaluation.groups = {"a=x*", "a_balanced=y*"};
      run.evaluation.metrics.balanced_accuracy = balanced;
    });
  };
  EXPECT_EQ(groups(false), "");
  EXPECT_NE(groups(true).find("a_balanced"), std::string::npos) << "two columns of one name";
  EXPECT_NE(check([](auto& run, auto& algorithm) {
              run.evaluation.heldout = true;
              algorithm.has_common_model = false;
            }).find("evaluation.heldout"),
            std::string::npos);
  const auto train = [&](bool several_models) {
    return check([several_models](auto& run, auto& algorithm) {
      run.evaluation.train = true;
      algorithm.has_common_model = false;
      algorithm.has_several_models = several_models;
    });
  };
  EXPECT_EQ(train(true), "") << "each client is evaluated at the model that it takes";
  EXPECT_NE(train(false).find("evaluation.splits with \"train\""), std::string::npos);
}

}  // namespace
}  // namespace macaw::server
