#include "server/client_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/named_groups.h"

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EvaluationSums::ClientSums Evaluated(uint64_t id, std::vector<double> sums, uint32_t choice,
                                     std::optional<uint32_t> group) {
  return {.client = ClientId(id), .sums = std::move(sums), .choice = choice, .group = group};
}

constexpr int64_t kClasses = 2;

// Losses 1, 2, 0.5; accuracies 1/2, 1/4, 1. The last two clients are in no group or have no rows.
std::vector<EvaluationSums::ClientSums> Five() {
  return {Evaluated(0, {10, 10, 5}, 0, 0), Evaluated(1, {4, 8, 1}, 1, 1),
          Evaluated(2, {2, 1, 2}, 1, 0), Evaluated(3, {100, 1, 100}, 0, {}),
          Evaluated(4, {0, 0, 0}, 1, 1)};
}

// Of a run that asks for these metrics.
std::map<std::string, double> ColumnsBy(TaskKind task, const ClientGroups& groups,
                                        const EvaluationSums& sums, const EvaluationMetrics& asked,
                                        const std::set<std::string>& words = {}) {
  const training::ClassCounts counts = training::ClassCounts::Of(asked, task, kClasses);
  const auto values = GroupValues(task, groups, sums, sums, counts, asked);
  std::vector<std::string> names, expected;
  for (const auto& [name, value] : values) names.push_back(name);
  for (const GroupColumn& column : GroupColumns(task, groups))
    if (column.metric == nullptr || words.contains(column.metric)) expected.push_back(column.name);
  EXPECT_EQ(names, expected);
  return {values.begin(), values.end()};
}

std::map<std::string, double> ColumnsBy(const ClientGroups& groups,
                                        const std::vector<EvaluationSums::ClientSums>& clients) {
  EvaluationSums sums;
  sums.Of(EvaluatedRows::kClients) = clients;
  return ColumnsBy(TaskKind::kClassification, groups, sums, {});
}

TEST(ClientGroups, ByNameHaveTheMetricsOfAllTheirRows) {
  const auto columns = ColumnsBy(*GroupsByName({"a=x*", "b=y*"}), Five());
  EXPECT_DOUBLE_EQ(columns.at("clients_test_group_a_loss"), 11.0 / 12);
  EXPECT_DOUBLE_EQ(columns.at("clients_test_group_a_accuracy"), 7.0 / 12);
  EXPECT_EQ(columns.at("clients_test_group_a_clients"), 2);
  EXPECT_DOUBLE_EQ(columns.at("clients_test_group_b_loss"), 2);
  EXPECT_EQ(columns.at("clients_test_group_b_clients"), 1) << "one has no rows";
  EXPECT_DOUBLE_EQ(columns.at("clients_test_worst_group_accuracy"), 0.25);
  EXPECT_DOUBLE_EQ(columns.at("clients_test_worst_group_loss"), 2);
  EXPECT_DOUBLE_EQ(columns.at("clients_test_group_gap_accuracy"), 7.0 / 12 - 0.25);
  EXPECT_DOUBLE_EQ(columns.at("clients_test_group_gap_loss"), 2 - 11.0 / 12);
}

// Not the worst of the others.
TEST(ClientGroups, TheWorstOneIsUndefinedWhereTheLossOfOneIs) {
  auto clients = Five();
  clients[1].sums[1] = std::nan("");
  const auto columns = ColumnsBy(*GroupsByName({"a=x*", "b=y*"}), clients);
  EXPECT_TRUE(std::isnan(columns.at("clients_test_worst_group_loss")));
  EXPECT_TRUE(std::isnan(columns.at("clients_test_group_gap_loss")));
  EXPECT_DOUBLE_EQ(columns.at("clients_test_worst_group_accuracy"), 0.25);
}

TEST(ClientGroups, ByModelAreThoseThatEachClientChose) {
  EXPECT_FALSE(GroupsByModel(1).has_value());
  const auto columns = ColumnsBy(*GroupsByModel(3), Five());
  EXPECT_DOUBLE_EQ(columns.at("clients_test_model0_accuracy"), 105.0 / 110);
  EXPECT_EQ(columns.at("clients_test_model0_clients"), 2);
  EXPECT_DOUBLE_EQ(columns.at("clients_test_model1_accuracy"), 0.5);
  EXPECT_EQ(columns.at("clients_test_model2_clients"), 0);
  EXPECT_TRUE(std::isnan(columns.at("clients_test_model2_loss"))) << "nobody chose it";
  EXPECT_FALSE(columns.contains("clients_test_worst_group_accuracy"));
}

TEST(ClientGroups, WithoutClientsDoNotCountAsWorst) {
  const auto columns = ColumnsBy(*GroupsByName({"a=x*", "b=y*", "c=z*"}), Five());
  EXPECT_TRUE(std::isnan(columns.at("clients_test_group_c_accuracy")));
  EXPECT_DOUBLE_EQ(columns.at("clients_test_worst_group_accuracy"), 0.25);
}

// Labels 0 and 1 of two groups, and of the models that clients chose: the confusion matrices are
// sums of the clients'. A group that is not there, or whose rows are not all counted, has none.
TEST(ClientGroups, HaveTheMetricsOfClassesOfTheirRowsTogether) {
  EvaluationSums sums;
  sums.Of(EvaluatedRows::kClients) = {Evaluated(0, {6, 3, 4}, 0, 0), Evaluated(1, {2, 1, 2}, 1, 1),
                                      Evaluated(2, {3, 1, 2}, 1, 2),
                                      Evaluated(3, {1, 1, 1}, 1, {})};
  // By label and prediction: 3 of 4 rows of class 0 and 1 of 2 of class 1; all; 2 rows of 3.
  sums.group_counts = {{.at = {0, 1, 2, 3}, .count = {3, 1, 1, 1}},
                       {.at = {0, 3}, .count = {1, 1}},
                       {.at = {0}, .count = {2}}};
  sums.model_counts = {sums.group_counts[0], {.at = {0, 2, 3}, .count = {4, 1, 1}}};
  const EvaluationMetrics asked{.balanced_accuracy = true, .f1 = true};
  const std::set<std::string> words = {"balanced_accuracy", "f1"};
  const auto named = ColumnsBy(TaskKind::kClassification,
                               *GroupsByName({"a=a*", "b=b*", "c=c*", "d=d*"}), sums, asked, words);
  EXPECT_DOUBLE_EQ(named.at("clients_test_group_a_balanced_accuracy"), 0.625);
  EXPECT_DOUBLE_EQ(named.at("clients_test_group_b_balanced_accuracy"), 1);
  EXPECT_TRUE(std::isnan(named.at("clients_test_group_c_balanced_accuracy"))) << "a row is missing";
  EXPECT_TRUE(std::isnan(named.at("clients_test_group_d_f1"))) << "nobody was evaluated";
  EXPECT_DOUBLE_EQ(named.at("clients_test_worst_group_balanced_accuracy"), 0.625);
  EXPECT_DOUBLE_EQ(named.at("clients_test_group_gap_balanced_accuracy"), 0.375);
  EXPECT_DOUBLE_EQ(named.at("clients_test_group_a_accuracy"), 4.0 / 6);
  const auto chosen = ColumnsBy(TaskKind::kClassification, *GroupsByModel(2), sums, asked, words);
  EXPECT_DOUBLE_EQ(chosen.at("clients_test_model0_balanced_accuracy"), 0.625);
  EXPECT_DOUBLE_EQ(chosen.at("clients_test_model1_balanced_accuracy"), 0.75);
}

// R² is of the labels of the group together, and no mean of the clients'; of perplexities the
// largest is the worst.
TEST(ClientGroups, HaveTheMetricsOfSumsOfTheirRowsTogether) {
  EvaluationSums sums;  // labels 0 and 2, then 4 and 8; then one row
  sums.Of(EvaluatedRows::kClients) = {Evaluated(0, {2, 1, 1, 2, 4}, 0, 0),
                                      Evaluated(1, {2, 4, 2, 12, 80}, 0, 0),
                                      Evaluated(2, {1, 9, 3, 6, 36}, 0, 1)};
  const auto of_regression =
      ColumnsBy(TaskKind::kRegression, *GroupsByName({"a=a*", "b=b*"}), sums, {.r2 = true}, {"r2"});
  EXPECT_NEAR(of_regression.at("clients_test_group_a_r2"), 1 - 5.0 / (84 - 49), 1e-15);
  EXPECT_TRUE(std::isnan(of_regression.at("clients_test_group_b_r2"))) << "of one row";
  EXPECT_NEAR(of_regression.at("clients_test_worst_group_r2"), 1 - 5.0 / 35, 1e-15);
  EXPECT_EQ(of_regression.at("clients_test_group_gap_r2"), 0);
  sums.Of(EvaluatedRows::kClients) = {Evaluated(0, {2, 2 * std::log(2.0), 1}, 0, 0),
                                      Evaluated(1, {2, 2 * std::log(8.0), 1}, 0, 0),
                                      Evaluated(2, {1, std::log(3.0), 1}, 0, 1)};
  const auto of_tokens = ColumnsBy(TaskKind::kNextToken, *GroupsByName({"a=a*", "b=b*"}), sums,
                                   {.perplexity = true}, {"perplexity"});
  EXPECT_DOUBLE_EQ(of_tokens.at("clients_test_group_a_perplexity"), 4);
  EXPECT_DOUBLE_EQ(of_tokens.at("clients_test_worst_group_perplexity"), 4);
  EXPECT_DOUBLE_EQ(of_tokens.at("clients_test_group_gap_perplexity"), 1);
}

TEST(ClientGroups, HaveAColumnOnce) {
  for (const std::string name : {"worst", "group", "worst_group", "gaps", "accuracy", "loss"}) {
    std::vector<std::string> columns;
    for (GroupColumn& column :
         GroupColumns(TaskKind::kBinary, *GroupsByName({name + "=x*", "b=y*"})))
      columns.push_back(std::move(column.name));
    std::ranges::sort(columns);
    EXPECT_EQ(std::ranges::adjacent_find(columns), columns.end()) << name;
  }
}

TEST(NamedGroups, TakeTheFirstEntryThatMatches) {
  const NamedGroups groups = *NamedGroups::Parse({"phones=phone-*", "pads=pad-?", "phones=p*"});
  EXPECT_THAT(groups.names(), ElementsAre("phones", "pads"));
  EXPECT_EQ(groups.Of("phone-17"), 0u);
  EXPECT_EQ(groups.Of("pad-3"), 1u);
  EXPECT_EQ(groups.Of("pad-33"), 0u);
  EXPECT_FALSE(groups.Of("watch").has_value());
  const NamedGroups listed = *NamedGroups::Parse({"a=c1", "b=c?", "a=c2", "c=d", "b=d", "a=x*"});
  EXPECT_EQ(listed.Of("c1"), 0u) << "before the pattern";
  EXPECT_EQ(listed.Of("c2"), 1u) << "behind the pattern";
  EXPECT_EQ(listed.Of("d"), 2u) << "the first of two";
  EXPECT_EQ(listed.Of("x1"), 0u);
  EXPECT_FALSE(listed.Of("c").has_value());
  for (const char* bad : {"phones", "=x", "Phones=x", "a b=x", "a=", "gap=x", "gap_a=x"}) {
    EXPECT_THAT(std::string(NamedGroups::Parse({bad}).status().message()),
                testing::AllOf(HasSubstr("evaluation.groups"), HasSubstr(bad)));
  }
}

TEST(GroupMatches, NamesTheFirstOfManyEntriesWithoutClients) {
  const NamedGroups groups = *NamedGroups::Parse({"a=x", "a=c1", "b=y", "b=c?", "b=c2", "b=z"});
  GroupMatches matches(groups);
  EXPECT_EQ(matches.Add("c1"), 0u);
  EXPECT_EQ(matches.Add("c2"), 1u);
  EXPECT_FALSE(matches.Add("d").has_value());
  EXPECT_THAT(matches.Unmatched(),
              testing::AllOf(HasSubstr("4 of 6 patterns (\"a=x\", \"b=y\", \"b=c2\", …)"),
                             HasSubstr("named \"c1\", \"c2\", \"d\", …,")));
  EXPECT_EQ(GroupMatches(NamedGroups()).Unmatched(), "");
}

}  // namespace
}  // namespace macaw::server
