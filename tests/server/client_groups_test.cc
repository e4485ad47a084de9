#include "server/client_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/named_groups.h"

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EvaluationSums::ClientSums Evaluated(uint64_t id, std::vector<double> sums, uint32_t choice,
                                     std::optional<uint32_t> group) {
  return {.client = ClientId(id), .sums = std::move(sums), .choice = choice, .group = group};
}

// Losses 1, 2, 0.5; accuracies 1/2, 1/4, 1. The last two clients are in no group or have no rows.
std::vector<EvaluationSums::ClientSums> Five() {
  return {Evaluated(0, {10, 10, 5}, 0, 0), Evaluated(1, {4, 8, 1}, 1, 1),
          Evaluated(2, {2, 1, 2}, 1, 0), Evaluated(3, {100, 1, 100}, 0, {}),
          Evaluated(4, {0, 0, 0}, 1, 1)};
}

std::map<std::string, double> ColumnsBy(const ClientGroups& groups,
                                        const std::vector<EvaluationSums::ClientSums>& clients) {
  const auto values = GroupValues("clients_test_", TaskKind::kClassification, groups, clients);
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  EXPECT_EQ(names, GroupColumns("clients_test_", TaskKind::kClassification, groups));
  return {values.begin(), values.end()};
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

TEST(ClientGroups, HaveAColumnOnce) {
  for (const std::string name : {"worst", "group", "worst_group", "gaps", "accuracy", "loss"}) {
    std::vector<std::string> columns =
        GroupColumns("clients_test_", TaskKind::kBinary, *GroupsByName({name + "=x*", "b=y*"}));
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
  for (const char* bad : {"phones", "=x", "Phones=x", "a b=x", "a=", "gap=x", "gap_a=x"}) {
    EXPECT_THAT(std::string(NamedGroups::Parse({bad}).status().message()),
                testing::AllOf(HasSubstr("evaluation.groups"), HasSubstr(bad)));
  }
}

}  // namespace
}  // namespace macaw::server
