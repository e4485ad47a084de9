#include "cli/config/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/other_value.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;

json Described() { return json::parse(DescribeJson(TestCatalogue(), "1.2.3")); }

std::map<std::string, json> KeysByName() {
  std::map<std::string, json> keys;
  const json described = Described();
  for (const json& key : described["keys"]) keys[key["key"]] = key;
  return keys;
}

std::string TypeOf(const Value& value) {
  if (value.As<bool>() != nullptr) return "boolean";
  if (value.As<int64_t>() != nullptr) return "integer";
  if (value.As<double>() != nullptr) return "number";
  if (value.As<std::string>() != nullptr) return "string";
  const Array* const list = value.As<Array>();
  return list == nullptr || list->empty() ? "list of strings"
                                          : "list of " + TypeOf(list->front()) + "s";
}

// A number may be given as an integer.
bool Allows(const std::vector<std::string>& types, std::string type) {
  if (settings::Contains(types, type)) return true;
  const size_t integer = type.find("integer");
  if (integer == std::string::npos) return false;
  return settings::Contains(types, type.replace(integer, 7, "number"));
}

TEST(Description, GivesEveryKeyTheTypesOfItsValues) {
  const std::map<std::string, json> keys = KeysByName();
  EXPECT_EQ(keys.size(), AllFields().size());
  const Config defaults;
  for (const Field& field : AllFields()) {
    SCOPED_TRACE(field.key);
    const std::vector<std::string> types = keys.at(field.key)["types"];
    std::vector<Value> values;
    const bool hidden = field.hidden && field.hidden(defaults);
    const std::optional<Value> standard = hidden ? std::nullopt : field.get(defaults);
    const std::optional<Value> other = settings::OtherValue(field, defaults);
    if (standard.has_value()) values.push_back(*standard);
    if (other.has_value()) values.push_back(*other);
    for (const Value& value : values)
      EXPECT_TRUE(Allows(types, TypeOf(value))) << Describe(value) << " of " << json(types);
    EXPECT_FALSE(types.empty());
  }
}

TEST(Description, HasDefaultHelpAndWordsOfAKey) {
  const std::map<std::string, json> keys = KeysByName();
  const json& lr = keys.at("local.lr");
  EXPECT_EQ(lr["types"], json({"number"}));
  EXPECT_EQ(lr["default"], 0.1);
  EXPECT_EQ(lr["expected"], "a number > 0");
  EXPECT_EQ(lr["role"], "result");
  EXPECT_THAT(keys.at("local.optimizer")["choices"], ElementsAre("sgd", "adam", "adamw"));
  EXPECT_EQ(keys.at("data.label_column")["types"], json({"integer", "string"}));
  EXPECT_FALSE(keys.at("cohort.size").contains("default"));
  EXPECT_TRUE(keys.at("data.path")["path"]);
}

TEST(Description, HasAlgorithmsPartitionsModelsAndLayers) {
  const json described = Described();
  EXPECT_EQ(described["version"], "1.2.3");
  EXPECT_EQ(described["algorithms"][1]["name"], "fedprox");
  const json& mu = described["algorithms"][1]["parameters"][0];
  EXPECT_EQ(mu["name"], "mu");
  EXPECT_EQ(mu["type"], "number");
  EXPECT_EQ(mu["default"], 0.01);
  EXPECT_EQ(mu["expected"], "a number >= 0");
  std::set<std::string> names;
  for (const char* list : {"partitions", "models"}) {
    for (const json& item : described[list]) names.insert(item["name"]);
  }
  EXPECT_THAT(names, Contains("dirichlet-class"));
  EXPECT_THAT(names, Contains("lenet5"));
  EXPECT_GT(described["layers"].size(), 10u);
}

std::string MarkdownTable(const char* head, const json& rows, const char* name) {
  std::string table = absl::StrCat("| ", head, " | is |\n|---|---|\n");
  for (const json& row : rows) {
    absl::StrAppend(&table, "| `", row[name].get<std::string>(), "` | ",
                    row["help"].get<std::string>(), " |\n");
  }
  return table;
}

TEST(Describe, TheGuideHasTheTableOfColumns) {
  const std::string guide = *ReadFile(MACAW_SOURCE_DIR "/docs/guides/runs.md");
  const json described = Described();
  for (const std::string& table : {MarkdownTable("column", described["columns"], "columns"),
                                   MarkdownTable("statistic", described["statistics"], "name")}) {
    EXPECT_THAT(guide, testing::HasSubstr(table)) << "copy the table into docs/guides/runs.md";
  }
}

}  // namespace
}  // namespace macaw::cli
