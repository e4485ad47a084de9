#include "server/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/files.h"
#include "server/summary.h"
#include "testing/temporary_folder.h"
#include "tests/server/metrics_rows.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using fixtures::FourClients;
using fixtures::Record;
using Json = nlohmann::json;

TEST(MetricsRow, SaysWhatTrainingGave) {
  const MetricsRow row(TaskKind::kClassification, FourClients(), {{"delta", 0.125}});
  const Json json = Json::parse(row.Text());
  EXPECT_EQ(json["round"], 7);
  EXPECT_EQ(json["clients"], 4);
  EXPECT_EQ(json["left_out"], 1);
  EXPECT_EQ(json["examples"], 60);
  EXPECT_EQ(json["steps"], 9);
  EXPECT_EQ(json["bytes_up"], 4000);
  EXPECT_EQ(json["bytes_down"], 5000);
  EXPECT_DOUBLE_EQ(json["train_loss"], 136.0 / 112);  // weighted by the rows trained on
  EXPECT_DOUBLE_EQ(json["train_accuracy"], 103.0 / 112);
  EXPECT_EQ(json["used_bound_delta"], 0.125);
  EXPECT_FALSE(json.contains("test_loss"));
  EXPECT_EQ(row.Text().find("{\"round\":7,\"clients\":4"), 0u) << "the order of the documentation";
}

// A row that an earlier release has written from what a node told may say anything.
TEST(Summary, AddsUpBytesThatARowHasAsFloats) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const auto bytes = [&](const std::string& rows) {
    EXPECT_TRUE(AtomicWriteFile(path, rows).ok());
    const auto summary = SummaryOf(path, {.settings = "{}", .inputs = "{}"});
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? Json((*summary)["bytes"]) : Json();
  };
  EXPECT_EQ(bytes("{\"round\":1,\"bytes_up\":7,\"bytes_down\":1e15}\n"
                  "{\"round\":2,\"bytes_up\":2.5e15,\"bytes_down\":1}\n"),
            Json({{"up", 2'500'000'000'000'007}, {"down", 1'000'000'000'000'001}}));
  EXPECT_EQ(bytes("{\"round\":1,\"bytes_up\":1e300,\"bytes_down\":-1e300}\n"),
            Json({{"up", std::numeric_limits<int64_t>::max()}, {"down", 0}}));
}

TEST(MetricsRow, HasNoAccuracyThatAProgramHasNotSaid) {
  PhaseReport report = FourClients();
  report.records[1].sums[2] = std::nan("");
  Json json = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_DOUBLE_EQ(json["train_loss"], 136.0 / 112);
  EXPECT_TRUE(json["train_accuracy"].is_null());
  EXPECT_DOUBLE_EQ(json["train_client_accuracy_mean"], 1.25 / 3) << "of those that say it";
  for (fleet::ClientRecord& record : report.records) record.sums[2] = std::nan("");
  json = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_TRUE(json["train_accuracy"].is_null());
  EXPECT_FALSE(json.contains("train_client_accuracy_mean"));
}

TEST(MetricsRow, CountsWhatTheRoundsEarlierPhasesLeftOut) {
  PhaseReport report = FourClients();
  report.phase = Phase(1);
  report.left_out_before = {{.attempt = {ClientId(1), {1, 7}}}, {.attempt = {ClientId(8), {1, 8}}}};
  const Json json = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_EQ(json["left_out"], 3);
  EXPECT_EQ(json["clients"], 4);
}

TEST(MetricsRow, NamesTheLossesOfPersonalModelsApart) {
  PhaseReport report = FourClients();
  const Json without = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_FALSE(without.contains("personal_train_loss"));
  report.records[1].personal_sums = {2, 1, 2};
  report.records[2].personal_sums = {6, 5, 3};
  report.records[3].personal_sums = {0, 0, 0};  // trained on no row
  const Json json = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_EQ(json["train_loss"], without["train_loss"]);
  EXPECT_DOUBLE_EQ(json["personal_train_loss"], 6.0 / 8);
  EXPECT_DOUBLE_EQ(json["personal_train_accuracy"], 5.0 / 8);
  EXPECT_DOUBLE_EQ(json["personal_train_client_accuracy_mean"], 0.75);
}

TEST(MetricsRow, SpreadsOverClientsLikeNumPy) {
  const Json json = Json::parse(MetricsRow(TaskKind::kClassification, FourClients(), {}).Text());
  // Expected values are from numpy.quantile([1, 2, 3, 4], [.1, .5, .9]) and similar calls.
  EXPECT_DOUBLE_EQ(json["train_client_loss_mean"], 2.5);
  EXPECT_DOUBLE_EQ(json["train_client_loss_std"], std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(json["train_client_loss_p10"], 1.3);
  EXPECT_DOUBLE_EQ(json["train_client_loss_p50"], 2.5);
  EXPECT_DOUBLE_EQ(json["train_client_loss_p90"], 3.7);
  // (Σ_ij |x_i − x_j|) / (2·n²·mean) of 1, 2, 3, 4.
  EXPECT_DOUBLE_EQ(json["train_client_loss_gini"], 20.0 / (2 * 16 * 2.5));
  EXPECT_DOUBLE_EQ(json["train_client_loss_worst10"], 4);
  EXPECT_DOUBLE_EQ(json["train_client_accuracy_worst10"], 0);
  EXPECT_DOUBLE_EQ(json["train_client_accuracy_p50"], 0.375);
  EXPECT_DOUBLE_EQ(json["train_client_accuracy_p90"], 0.85);
}

TEST(MetricsRow, TakesTheWorstTenthOfManyClients) {
  PhaseReport report{.round = Round(1)};
  for (uint64_t k = 0; k < 30; ++k)
    report.records.push_back(Record(k, 1, 1, {1, static_cast<double>(k), 0}));
  const Json json = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_DOUBLE_EQ(json["train_client_loss_worst10"], (29 + 28 + 27) / 3.0);
}

TEST(MetricsRow, WritesNullForWhatIsNotANumber) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  PhaseReport report{.round = Round(1),
                     .records = {Record(0, 1, 1, {1, kNan, 1}), Record(1, 1, 1, {1, 2, 0}),
                                 Record(2, 1, 1, {1, kNan, 1}), Record(3, 1, 1, {1, 1, 1})}};
  const Json json = Json::parse(MetricsRow(TaskKind::kClassification, report, {}).Text());
  EXPECT_TRUE(json["train_loss"].is_null());
  EXPECT_TRUE(json["train_client_loss_mean"].is_null());
  EXPECT_TRUE(json["train_client_loss_p90"].is_null()) << "the diverged ones are the worst";
  EXPECT_DOUBLE_EQ(json["train_client_loss_p10"], 1.3);
  EXPECT_DOUBLE_EQ(json["train_accuracy"], 0.75);
  const MetricsRow empty(TaskKind::kClassification, {.round = Round(1)}, {});
  EXPECT_EQ(Json::parse(empty.Text()).size(), 7u) << "no client, no quotient";
}

TEST(MetricsRow, ComesBackFromItsText) {
  MetricsRow row(TaskKind::kRegression,
                 {.round = Round(3),
                  .records = {Record(0, 3, 1, {3, 0.1, 1.0 / 3}), Record(1, 7, 1, {7, 1e-300, 5})}},
                 {{"delta", 0.1 + 0.2}, {"nothing", std::nan("")}});
  const std::string text = row.Text();
  auto parsed = MetricsRow::Parse(TaskKind::kRegression, text);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->Text(), text);
  EXPECT_EQ(*parsed->Get("used_bound_delta"), 0.1 + 0.2) << "to the last bit";
  // A resumed run adds the same columns to the row as the first run would have.
  const EvaluationSums sums{.round = Round(3), .central = {3, 1, 2}};
  row.AddEvaluation(sums);
  parsed->AddEvaluation(sums);
  EXPECT_EQ(parsed->Text(), row.Text());
}

TEST(MetricsRow, RefusesTextThatIsNoRow) {
  for (const char* text : {"", "{", "[1]", "null", "{\"clients\":3}", "\xff", "{\"round\":null}",
                           "{\"round\":\"1\"}", "{\"round\":-1}", "{\"round\":1e30}"}) {
    EXPECT_FALSE(MetricsRow::Parse(TaskKind::kClassification, text).has_value()) << text;
  }
}

TEST(MetricsRow, HasTheRulesOwnMetricsUnderTheirNames) {
  const MetricsRow row(TaskKind::kClassification, FourClients(), {{"delta", .5}},
                       {{"clip_rate", .25}, {"epsilon", INFINITY}});
  const Json json = Json::parse(row.Text());
  EXPECT_EQ(json["used_bound_delta"], .5);
  EXPECT_EQ(json["rule_clip_rate"], .25);
  EXPECT_TRUE(json["rule_epsilon"].is_null()) << "no row holds what is not a number";
}

// Whether an entry of DescribeColumns is of this column.
bool IsDescribed(const std::string& column) {
  return std::ranges::any_of(DescribeColumns(), [&](const ColumnHelp& entry) {
    const std::string pattern = std::regex_replace(entry.columns, std::regex(R"(\*|[A-Z]+)"), ".+");
    return std::regex_match(column, std::regex(pattern));
  });
}

TEST(MetricsRow, HasTheListedColumnsAndNoOthers) {
  algorithms::Description algorithm;
  algorithm.has_personal_models = true;
  algorithms::Schema schema;
  schema.up = {{.name = "delta"}};
  schema.metrics = {{"epsilon", std::nullopt}};
  const FlatVector model(ParameterLayout::Scalars("w", 3, DType::kF32));
  for (const TaskKind task : {TaskKind::kClassification, TaskKind::kBinary, TaskKind::kRegression,
                              TaskKind::kNextToken, TaskKind::kReconstruction}) {
    const EvaluationMetrics asked = {.balanced_accuracy = true,
                                     .f1 = true,
                                     .auc = true,
                                     .top5 = true,
                                     .ece = true,
                                     .r2 = true,
                                     .perplexity = true};
    const std::vector<double> sums(training::SchemaFor(task).sums.size(), 1);
    // With labels 0 and 1, so that R² is defined.
    const std::vector<double> rated =
        task == TaskKind::kRegression ? std::vector<double>{2, 1, 1, 1, 1} : sums;
    PhaseReport report{.round = Round(1), .records = {Record(0, 1, 1, sums)}};
    report.records[0].personal_sums = sums;
    report.virtual_time.emplace();  // with all columns of virtual time
    report.mean_staleness = 0;
    MetricsRow row(task, report, {{"delta", 0.5}}, {{"epsilon", 1}});
    row.AddPenalty(0.5, model.view());
    const training::ClassCounts counts = training::ClassCounts::Of(asked, task, 2);
    const std::vector<EvaluationSums::ClientSums> client = {
        {ClientId(0), rated, std::vector<double>(counts.names().size(), 0.5)}};
    EvaluationSums evaluated{
        .round = Round(1), .central = rated, .train = rated, .validation = rated};
    for (size_t rows = 0; rows < kEvaluatedRows; ++rows) {
      if (IsOfClients(static_cast<EvaluatedRows>(rows))) evaluated.clients[rows] = client;
    }
    const bool classes = task == TaskKind::kClassification || task == TaskKind::kBinary;
    if (classes) evaluated.backdoor = sums;
    row.AddEvaluation(evaluated, counts, {}, asked);
    std::set<std::string> written, listed = {"round"};
    const Json json = Json::parse(row.Text());
    for (const auto& [name, value] : json.items()) written.insert(name);
    for (const MetricColumn& column :
         MetricColumns(task, algorithm, schema, /*groups=*/1, /*backdoor=*/classes))
      EXPECT_TRUE(listed.insert(column.name).second) << column.name;
    EXPECT_EQ(listed, written);
    for (const std::string& name : written)
      EXPECT_TRUE(IsDescribed(name)) << name << " is in no entry of DescribeColumns";
  }
}

}  // namespace
}  // namespace macaw::server
