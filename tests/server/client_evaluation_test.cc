// Each client's metrics of an evaluation, as clients_evaluated.json has them.
#include "server/client_evaluation.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace macaw::server {
namespace {

using nlohmann::json;

TEST(ClientEvaluation, ListsTheMetricsOfEachClientWithRows) {
  EvaluationSums sums;
  sums.round = Round(7);
  sums.clients[static_cast<size_t>(EvaluatedRows::kClients)] = {
      {.client = ClientId(0), .sums = {4, 2, 3}},
      {.client = ClientId(1), .sums = {0, 0, 0}},
      {.client = ClientId(5), .sums = {2, 8, 1}}};
  sums.clients[static_cast<size_t>(EvaluatedRows::kHeldout)] = {
      {.client = ClientId(9), .sums = {1, std::numeric_limits<double>::infinity(), 0}}};
  EXPECT_EQ(json::parse(ClientEvaluationText(sums, TaskKind::kClassification)), json::parse(R"({
    "round": 7,
    "clients_test": {"client": [0, 5], "rows": [4, 2], "loss": [0.5, 4.0], "accuracy": [0.75, 0.5]},
    "heldout_test": {"client": [9], "rows": [1], "loss": [null], "accuracy": [0.0]}})"));
}

TEST(ClientEvaluation, SaysWhichOfSeveralModelsEachClientChose) {
  EvaluationSums sums;
  sums.clients[static_cast<size_t>(EvaluatedRows::kClients)] = {
      {.client = ClientId(0), .sums = {4, 2, 3}, .choice = 1},
      {.client = ClientId(1), .sums = {2, 8, 1}, .choice = 0}};
  const json text =
      json::parse(ClientEvaluationText(sums, TaskKind::kClassification, /*several_models=*/true));
  EXPECT_EQ(text["clients_test"]["model"], json::parse("[1, 0]"));
}

TEST(ClientEvaluation, IsEmptyWhereNoClientIsEvaluated) {
  EvaluationSums sums;
  sums.central = {10, 5, 5};
  sums.clients[static_cast<size_t>(EvaluatedRows::kClients)] = {
      {.client = ClientId(1), .sums = {0, 0, 0}}};
  EXPECT_EQ(ClientEvaluationText(sums, TaskKind::kClassification), "");
}

}  // namespace
}  // namespace macaw::server
