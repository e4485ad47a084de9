#include "cli/config/rule_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "core/files.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPages[] = MACAW_SOURCE_DIR "/docs/rules";

const algorithms::Registry& BuiltIns() {
  static const algorithms::Registry* const registry = [] {
    auto* made = new algorithms::Registry;
    made->AddBuiltin(algorithms::BuiltinAlgorithms());
    return made;
  }();
  return *registry;
}

TEST(RulePages, EveryBuiltInHasItsFormula) {
  for (const algorithms::Description* rule : BuiltIns().All()) {
    SCOPED_TRACE(rule->name);
    EXPECT_FALSE(rule->formula.empty());
    EXPECT_NE(rule->formula.back(), '\n');
    EXPECT_EQ(rule->name == "fedavg", rule->formula == (*BuiltIns().Find("fedavg"))->formula)
        << "taken over from FedAvg";
  }
}

TEST(RulePages, ThoseInTheTreeAreTheOnesThatAreWritten) {
  const std::map<std::string, std::string> pages = RulePages(BuiltIns());
  std::set<std::string> in_tree;
  for (const auto& entry : std::filesystem::directory_iterator(kPages))
    in_tree.insert(entry.path().filename().string());
  for (const auto& [name, page] : pages) {
    const auto text = ReadFile(std::string(kPages) + "/" + name);
    EXPECT_EQ(text.value_or(""), page) << "run `macaw algorithms --pages docs/rules`";
    in_tree.erase(name);
  }
  EXPECT_THAT(in_tree, testing::IsEmpty()) << "pages of no rule";
}

TEST(RulePages, TheTerminalShowsFormulaParametersAndWhatTravels) {
  const std::string text = RuleText(BuiltIns(), **BuiltIns().Find("scaffold"));
  EXPECT_THAT(text, HasSubstr("y ← y − η·(g − c_i + c)"));
  EXPECT_THAT(text, HasSubstr("[algorithm.scaffold]\n"));
  EXPECT_THAT(text, testing::ContainsRegex("To the server\n  delta +plain mean\n"));
  EXPECT_THAT(text, testing::ContainsRegex("Kept by each client\n  control "));
}

TEST(RulePages, ARuleWithoutFormulaOrParametersHasNoEmptySections) {
  algorithms::Registry registry;
  algorithms::Description plain = **BuiltIns().Find("local");
  plain.name = "plain";
  plain.formula = "";
  plain.remarks = "";
  ASSERT_TRUE(registry.Add(plain).ok());
  const std::string page = RulePages(registry).at("plain.md");
  EXPECT_THAT(page, Not(HasSubstr("```text")));
  EXPECT_THAT(page, Not(HasSubstr("| key of")));
  EXPECT_THAT(page, Not(HasSubstr("Before you choose it")));
  EXPECT_THAT(page, Not(HasSubstr("To the server")));
}

TEST(RulePages, ATableStaysATable) {
  algorithms::Registry registry;
  algorithms::Description rule = **BuiltIns().Find("fedavg");
  rule.parameters = {{.name = "size", .default_value = "a|b", .help = "over |S|, *any* of it"}};
  ASSERT_TRUE(registry.Add(rule).ok());
  EXPECT_THAT(RulePages(registry).at("fedavg.md"),
              HasSubstr("| `size` | `\"a\\|b\"` | over \\|S\\|, \\*any\\* of it | a string |\n"));
}

}  // namespace
}  // namespace macaw::cli
