// Every key of a configuration reaches everything that must know the keys. The tests walk over the
// sections, so a new key is tested without a line here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "cli/config/settings.h"
#include "cli/config/suggest.h"
#include "cli/config/writer.h"
#include "testing/other_value.h"
#include "tests/cli/config_test_util.h"
#include "tests/cli/key_contexts.h"

namespace macaw::cli {
namespace {

using settings::OtherValue;
using ::testing::HasSubstr;

// A configuration in which `key` has an effect.
Config WhereItApplies(const Field& key) { return After(Meeting(key)); }

// As the reader does when a key is given: other keys for the same thing are forgotten.
void ForgetOthers(Config& config, const Field& given) {
  for (const Field& other : AllFields()) {
    if (other.Excludes(given)) other.reset(config);
  }
}

// Each key, a configuration, and the same with another value of the key.
template <typename Test>
void ForEveryKey(const Test& test) {
  size_t keys = 0;
  for (const Field& field : AllFields()) {
    SCOPED_TRACE(field.key);
    Config before = WhereItApplies(field);
    ForgetOthers(before, field);
    Config after = before;
    const std::optional<Value> value = OtherValue(field, before);
    ASSERT_TRUE(value.has_value()) << "no other value was found for a test";
    ASSERT_TRUE(field.set(after, *value));
    ForgetOthers(after, field);
    test(field, before, after);
    ++keys;
  }
  EXPECT_GT(keys, 100u);
}

TEST(EveryKey, ForTheSameThingAsAnotherNamesAKeyThatThereIs) {
  std::map<std::string, Field> keys;
  for (const Field& field : AllFields()) keys.emplace(field.key, field);
  std::set<std::string> pairs;
  for (const auto& [key, field] : keys) {
    for (const std::string& other : field.instead_of) {
      ASSERT_TRUE(keys.contains(other)) << other;
      EXPECT_TRUE(field.Excludes(keys.at(other)) && keys.at(other).Excludes(field));
      pairs.insert(absl::StrCat(other, " | ", key));
    }
    EXPECT_FALSE(field.Excludes(field));
  }
  EXPECT_THAT(pairs, testing::UnorderedElementsAre(
                         "cohort.size | cohort.fraction", "local.epochs | local.steps",
                         "model.name | model.layers", "model.name | model.torchscript",
                         "model.layers | model.torchscript"));
}

TEST(EveryKey, IsExplainedWithItsDefaultAndItsRange) {
  const std::string help = ConfigHelp(TestCatalogue().algorithms());
  ForEveryKey([&](const Field& field, const Config&, const Config&) {
    EXPECT_FALSE(field.help.empty());
    const std::string name = field.key.substr(field.key.rfind('.') + 1);
    EXPECT_THAT("\n" + help, HasSubstr(absl::StrCat("\n", name, " = ")));
    EXPECT_THAT(help, HasSubstr(absl::StrCat("# ", field.help, " (", field.expected, ")")));
  });
}

TEST(EveryKey, SurvivesTheEffectiveFile) {
  ForEveryKey([](const Field& field, const Config&, const Config& after) {
    if (field.hidden && field.hidden(after)) return;  // another key for the same thing counts
    const auto document = ParseDocument(EffectiveToml(after), "effective.toml", "/elsewhere");
    ASSERT_TRUE(document.ok()) << document.status();
    const auto again = ReadNodeConfig(*document, {}, TestCatalogue());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(field.get(*again), field.get(after));
  });
}

TEST(EveryKey, OfANodeIsInTheFileThatItsWorkersRead) {
  std::map<std::string, settings::Field<NodeConfig>> node;
  const settings::Section<NodeConfig> section = NodeSection();
  for (const auto& field : section.fields()) node.emplace(field.key, field);
  ForEveryKey([&](const Field& field, const Config&, const Config& after) {
    const auto document = ParseDocument(NodeToml(after.node), "node.toml", "/elsewhere");
    ASSERT_TRUE(document.ok()) << document.status();
    const auto there = Lookup(*document, {}, field.key);
    ASSERT_TRUE(there.ok());
    const auto found = node.find(field.key);
    EXPECT_EQ(there->has_value(), found != node.end() && found->second.Shown(after.node));
  });
}

TEST(EveryKey, WithASlipIsFound) {
  std::vector<std::string> keys;
  for (const Field& field : AllFields()) keys.push_back(field.key);
  ForEveryKey([&](const Field& field, const Config&, const Config&) {
    EXPECT_EQ(NearestKey(field.key + "q", keys), field.key);
  });
}

// Which clients a round waits for is the server's to say, and decides the result.
bool ClosesRounds(const Field& field) {
  static const std::set<std::string> keys = {"round.deadline", "round.quorum", "round.enough",
                                             "round.below_quorum", "round.present_within"};
  return keys.contains(field.key);
}

TEST(EveryKey, ThatARunKeepsIsRefusedToAResume) {
  Config virtual_time = Minimal();
  virtual_time.run.devices.family = "phones";
  ForEveryKey([&](const Field& field, const Config&, const Config&) {
    static const std::set<std::string> files = {"data.path", "data.test_path", "partition.path"};
    const bool may_change = field.role == settings::Role::kCompute ||
                            field.role == settings::Role::kLength || files.contains(field.key);
    EXPECT_EQ(IsKeptByAResume(field.key, Minimal()), !may_change);
    EXPECT_EQ(IsKeptByAResume(field.key, virtual_time), !may_change || ClosesRounds(field));
    EXPECT_EQ(OnlyComputes(field.key),
              field.role == settings::Role::kCompute && !ClosesRounds(field));
  });
}

TEST(EveryKey, ThatDecidesAResultIsASettingOfTheSummary) {
  ForEveryKey([](const Field& field, const Config& before, const Config& after) {
    static const sdk::Catalogue catalogue = sdk::Catalogue::Builtins();
    const algorithms::Registry& registry = catalogue.algorithms();
    const bool shown = field.role == settings::Role::kResult ||
                       field.role == settings::Role::kLength || ClosesRounds(field);
    const bool elsewhere = field.key == "run.seed" || field.key == "algorithm.name" ||
                           (field.hidden && field.hidden(after));
    if (shown && !elsewhere) {
      EXPECT_NE(SettingsJson(after, registry), SettingsJson(before, registry));
    } else if (!shown) {
      EXPECT_EQ(SettingsJson(after, registry), SettingsJson(before, registry));
    }
  });
}

TEST(EveryKey, OfThePlanTravelsAndCountsInTheFingerprintIfItDecidesBits) {
  for (const settings::Field<RunPlan>& field : PlanSection().fields()) {
    SCOPED_TRACE(field.key);
    const Config before = WhereItApplies([&] {
      for (const Field& whole : AllFields()) {
        if (whole.key == field.key) return whole;
      }
      return Field{};  // not of a file: applies everywhere
    }());
    RunPlan plan = before.run;
    const std::optional<Value> value = OtherValue(field, plan);
    ASSERT_TRUE(value.has_value());
    ASSERT_TRUE(field.set(plan, *value));
    const absl::StatusOr<RunPlan> there = PlanOf(SettingsOf(plan));
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(*there, plan);
    const bool decides =
        field.role == settings::Role::kResult || field.role == settings::Role::kDerived;
    EXPECT_EQ(Fingerprint(plan) != Fingerprint(before.run), decides);
  }
}

TEST(PlanOf, RefusesWhatItDoesNotKnowByName) {
  std::vector<settings::Setting> settings = SettingsOf(Minimal().run);
  settings.push_back({"local.sharpness", Value{0.5}});
  settings.push_back({"algorithm.fedprox.mu", Value{0.5}});  // of another algorithm
  const absl::Status unknown = PlanOf(settings).status();
  EXPECT_TRUE(absl::IsUnimplemented(unknown));
  EXPECT_THAT(unknown.message(), HasSubstr("local.sharpness, algorithm.fedprox.mu"));
  const absl::Status wrong = PlanOf({{"local.lr", Value{-1.0}}}).status();
  EXPECT_EQ(wrong.message(), "local.lr must be a number > 0, found -1.0");
}

}  // namespace
}  // namespace macaw::cli
