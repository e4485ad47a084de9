// What each key needs for an effect is said once, beside the key, and the reader holds every key to
// it. The tests walk over all keys; which keys always have an effect is listed here, so that a new
// key is decided on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/config/idle_keys.h"
#include "cli/config/writer.h"
#include "testing/other_value.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"
#include "tests/cli/key_contexts.h"

namespace macaw::cli {
namespace {

using settings::OtherValue;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Keys without needs: whatever the other keys are, these change something (or name it).
const std::set<std::string>& AlwaysEffective() {
  static const auto* const keys = new std::set<std::string>{
#include "tests/cli/always_effective.inc"
  };
  return *keys;
}

// Every conditional key with a value that asks for something.
template <typename Test>
size_t ForEveryConditionalKey(const Test& test) {
  const std::vector<Assignment>& all = AllAssignments();
  size_t keys = 0;
  for (const Field& field : AllFields()) {
    if (field.needs.empty()) continue;
    SCOPED_TRACE(field.key);
    const std::vector<Assignment> met = Meeting(field);
    const Config config = After(met);
    const std::optional<Value> value = OtherValue(field, config);
    if (!value.has_value()) {
      ADD_FAILURE() << "no other value";
      continue;
    }
    // evaluation.central asks for something where it is true, its default.
    const bool asks_by_default = field.key == "evaluation.central";
    test(field, met, asks_by_default ? Value{true} : *value, all);
    ++keys;
  }
  return keys;
}

TEST(EveryKey, HasANeedOrAlwaysAnEffect) {
  std::set<std::string> conditional, unconditional;
  for (const Field& field : AllFields())
    (field.needs.empty() ? unconditional : conditional).insert(field.key);
  const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
  for (const algorithms::Description* rule : builtins.algorithms().All()) {
    for (const algorithms::ParameterSpec& spec : rule->parameters) {
      const std::string key = absl::StrCat("algorithm.", rule->name, ".", spec.name);
      (spec.needs.empty() ? unconditional : conditional).insert(key);
    }
  }
  for (const std::string& key : unconditional) {
    EXPECT_TRUE(AlwaysEffective().contains(key))
        << key << " is new: give it Needs(…) where other keys decide whether it has an effect, or "
        << "list it in always_effective.inc";
  }
  for (const std::string& key : AlwaysEffective())
    EXPECT_TRUE(unconditional.contains(key)) << key << " has needs, or is no key any more";
  EXPECT_GT(conditional.size(), 60u);
  RecordProperty("conditional", static_cast<int>(conditional.size()));
  RecordProperty("always", static_cast<int>(unconditional.size()));
}

TEST(EveryConditionalKey, IsExplainedWithItsNeed) {
  const std::string help = ConfigHelp(sdk::Catalogue::Builtins().algorithms());
  for (const Field& field : AllFields()) {
    if (field.needs.empty()) continue;
    EXPECT_THAT(help, HasSubstr(absl::StrCat("# ", field.help, " (", field.expected, "); needs ",
                                             settings::NeedsText(field.needs))));
  }
}

TEST(EveryConditionalKey, WhoseNeedIsMetIsTakenWithoutAWord) {
  ForEveryConditionalKey([](const Field& field, const std::vector<Assignment>& met,
                            const Value& value, const std::vector<Assignment>&) {
    std::vector<std::string> set = AsSet(met);
    AddTo(set, field.key, value);
    const absl::StatusOr<Config> config = Parse(kMinimal, set);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(config->idle, IsEmpty());
    const auto document = ParseDocument(EffectiveToml(*config), "effective.toml", "/elsewhere");
    ASSERT_TRUE(document.ok()) << document.status();
    const auto again = ReadConfig(*document, {}, TestCatalogue());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(field.get(*again), field.get(*config));
  });
}

// For each need, other keys under which it is the first that is missing. Where these keys lack the
// same thing, the error may name one of them.
TEST(EveryConditionalKey, WithoutItsNeedIsRefusedAndSaysIt) {
  ForEveryConditionalKey([](const Field& field, const std::vector<Assignment>& met,
                            const Value& value, const std::vector<Assignment>& all) {
    bool named = false;
    for (const settings::Need<Config>& need : field.needs) {
      SCOPED_TRACE(need.words);
      const std::string without = absl::StrCat(" has no effect without ", need.words);
      bool refused = false;
      // From nothing, and from where the other needs are met, with one more key at most.
      for (const std::vector<Assignment>& base : {std::vector<Assignment>{}, met}) {
        Config start = After(base);
        for (size_t i = 0; i <= all.size() && !refused; ++i) {
          Config config = start;
          if (i < all.size() &&
              (all[i].field->key == field.key || !all[i].field->set(config, all[i].value))) {
            continue;
          }
          field.set(config, value);
          if (settings::Missing(field.needs, config) != &need) continue;
          std::vector<std::string> set = AsSet(base);
          if (i < all.size()) AddTo(set, all[i].field->key, all[i].value);
          set.push_back(Set(field.key, value));
          const absl::StatusOr<Config> read = Parse(kMinimal, set);
          EXPECT_FALSE(read.ok()) << "accepted with " << absl::StrJoin(set, " ");
          // An error may also be about another key of the context.
          refused = absl::StrContains(read.status().message(), without);
          named = named || absl::StrContains(read.status().message(),
                                             absl::StrCat(": ", field.key, without));
        }
      }
      EXPECT_TRUE(refused);
    }
    EXPECT_TRUE(named);
  });
}

TEST(EveryConditionalKey, OfAFileThatAnOverrideLeavesWithoutAnEffectIsLeftOut) {
  ForEveryConditionalKey([](const Field& field, const std::vector<Assignment>& met,
                            const Value& value, const std::vector<Assignment>& all) {
    std::vector<std::string> set = AsSet(met);
    AddTo(set, field.key, value);
    const absl::StatusOr<Config> of_file = Parse(kMinimal, set);
    ASSERT_TRUE(of_file.ok()) << of_file.status();
    const std::string file = EffectiveToml(*of_file);
    size_t left_out = 0;
    for (const Assignment& one : all) {
      Config changed = *of_file;
      if (one.field->key == field.key || !one.field->set(changed, one.value)) continue;
      if (field.Applies(changed)) continue;
      const std::vector<std::string> override = AsSet({one});
      const absl::StatusOr<Config> read = Parse(file, override);
      if (!read.ok()) {  // for another reason: the override itself, or what it asks for
        EXPECT_THAT(std::string(read.status().message()),
                    testing::Not(HasSubstr(absl::StrCat(": ", field.key, " has no effect"))));
        continue;
      }
      const auto found = std::ranges::find(read->idle, field.key, &IdleKey::key);
      ASSERT_NE(found, read->idle.end()) << "after " << override.front();
      EXPECT_THAT(found->why, HasSubstr("without "));
      // Where no test rows are evaluated, those of the central test set are not, either.
      if (field.key != "evaluation.central") {
        EXPECT_EQ(field.get(*read), field.get(Config()));
      }
      // A run has this file, and goes on with it.
      const absl::StatusOr<Config> again = Parse(EffectiveToml(*read));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_THAT(again->idle, IsEmpty());
      ++left_out;
    }
    // These need keys that nothing unsets.
    const bool can = field.key != "run.stop.metric" && field.key != "accept.run_when_every" &&
                     field.key != "update.feedback" && field.key != "broadcast.of";
    EXPECT_EQ(left_out > 0, can) << "overrides that take its effect: " << left_out;
  });
}

TEST(EveryDefault, HasNoWordSaid) {
  // Each key alone, with its default, as far as that may be written: 0, "auto" and the like.
  const Config defaults;
  for (const Field& field : AllFields()) {
    const std::optional<Value> value = field.get(defaults);
    if (!value.has_value() || !AsksForNothing(field, defaults) ||
        field.role == settings::Role::kDerived)
      continue;
    Config config = Minimal();
    if (!field.set(config, *value) || (field.hidden && field.hidden(config))) continue;
    if (field.key == "data.source" || field.key == "cohort.size") continue;
    const absl::StatusOr<Config> read = Parse(kMinimal, {Set(field.key, *value)});
    if (!read.ok()) {
      EXPECT_THAT(std::string(read.status().message()), testing::Not(HasSubstr("has no effect")))
          << field.key;
      continue;
    }
    EXPECT_THAT(read->idle, IsEmpty()) << field.key;
  }
}

// ---- a switch that is off in the file itself

TEST(ASwitchThatIsOff, LeavesTheRestOfItsTableOutWithANote) {
  struct Case {
    const char* file;
    const char* key;
    const char* why;
  };
  for (const Case& off : {
           Case{"[local]\nmomentum = 0\nnesterov = true\n", "local.nesterov",
                "without local.momentum above 0"},
           Case{"[attack]\nkind = \"none\"\nfraction = 0.2\n", "attack.fraction",
                "without attack.kind"},
           Case{"[privacy]\nmechanism = \"none\"\nclip = 1.5\n", "privacy.clip",
                "without privacy.mechanism"},
           Case{"[update]\ncodec = []\nfeedback = \"none\"\n", "update.feedback",
                "without update.codec"},
           Case{"[broadcast]\ncodec = []\nof = \"model\"\n", "broadcast.of",
                "without broadcast.codec"},
           Case{"[local]\nlr_schedule = {kind = \"constant\", gamma = 0.5}\n",
                "local.lr_schedule.gamma", "without local.lr_schedule.kind"},
       }) {
    SCOPED_TRACE(off.file);
    const std::string file = absl::StrCat(kMinimal, off.file);
    const absl::StatusOr<Config> read = Parse(file);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->idle.size(), 1u);
    EXPECT_EQ(read->idle[0].key, off.key);
    EXPECT_THAT(read->idle[0].why, testing::StartsWith(off.why));
    EXPECT_TRUE(read->idle[0].switched_off);
    EXPECT_THAT(Parse(EffectiveToml(*read))->idle, IsEmpty());
  }
}

TEST(ASwitchThatIsOff, IsOneThatTheFileGives) {
  for (const char* without : {"[local]\nnesterov = true\n", "[attack]\nfraction = 0.2\n",
                              "[local]\noptimizer = \"sgd\"\nbeta1 = 0.8\n"}) {
    EXPECT_THAT(std::string(Parse(absl::StrCat(kMinimal, without)).status().message()),
                HasSubstr("has no effect without"))
        << without;
  }
  // What the source of a path does not read is refused, though no line names the source.
  const testing_support::TemporaryFolder folder;
  const std::string cifar = folder.Write("c.bin", std::string(3073, '\1'));
  const std::string file = absl::StrCat("[data]\npath = \"", cifar, "\"\nclasses = 3\n",
                                        "[model]\nname = \"logistic\"\n[cohort]\nsize = 1\n");
  EXPECT_THAT(std::string(Parse(file).status().message()), HasSubstr("data.classes has no effect"));
  // What an override asks for is refused.
  EXPECT_THAT(
      std::string(Parse(absl::StrCat(kMinimal, "[local]\nmomentum = 0\n"), {"local.nesterov=true"})
                      .status()
                      .message()),
      HasSubstr("local.nesterov has no effect"));
}

// ---- rules

absl::StatusOr<Config> OfBuiltins(const std::string& file, const std::vector<std::string>& set) {
  std::vector<Override> overrides;
  for (const std::string& one : set) overrides.push_back(*ParseOverride(one));
  return ReadConfig(*ParseDocument(file, "exp.toml", "/configs"), overrides,
                    sdk::Catalogue::Builtins());
}

// The file with a key in its table. `given`: "local.epochs=3".
std::string WithKey(const std::string& file, const std::string& key, const std::string& given) {
  const size_t leaf = key.rfind('.') + 1;
  const std::string table = absl::StrCat("[", key.substr(0, leaf - 1), "]\n");
  const std::string with = absl::StrCat(table, given.substr(leaf), "\n");
  return absl::StrContains(file, table) ? absl::StrReplaceAll(file, {{table, with}})
                                        : absl::StrCat(file, with);
}

TEST(AKeyThatARuleDoesNotRead, IsRefusedWithTheRule) {
  const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
  size_t keys = 0;
  for (const algorithms::Description* rule : builtins.algorithms().All()) {
    for (const std::string& key : rule->ignores) {
      SCOPED_TRACE(rule->name + " " + key);
      const auto field = std::ranges::find(AllFields(), key, &Field::key);
      ASSERT_NE(field, AllFields().end());
      // A step needs its gamma, a cosine nothing.
      const std::string given = key == "local.lr_schedule.kind"
                                    ? Set(key, Value{std::string("cosine")})
                                    : Set(key, *OtherValue(*field, Minimal()));
      const std::string with_rule = absl::StrCat("algorithm.name=\"", rule->name, "\"");
      const std::string message = absl::StrCat(key, " has no effect with algorithm \"", rule->name);
      EXPECT_THAT(std::string(OfBuiltins(kMinimal, {given, with_rule}).status().message()),
                  HasSubstr(message));
      const std::string own =
          WithKey(absl::StrCat(kMinimal, "[algorithm]\nname = \"", rule->name, "\"\n"), key, given);
      const absl::StatusOr<Config> of_file = OfBuiltins(own, {});
      ASSERT_TRUE(of_file.ok()) << of_file.status();
      EXPECT_EQ(TextOf(of_file->idle.at(0)), message + "\"") << "the file names the rule itself";
      const std::string file = EffectiveToml(*OfBuiltins(kMinimal, {given}));
      const absl::StatusOr<Config> shared = OfBuiltins(file, {with_rule});
      ASSERT_TRUE(shared.ok()) << shared.status();
      // Another optimizer has another rate, of which a note is, too.
      const auto text = [](const IdleKey& idle) { return TextOf(idle); };
      EXPECT_EQ(std::ranges::count(shared->idle, message + "\"", text), 1);
      EXPECT_THAT(OfBuiltins(EffectiveToml(*shared), {})->idle, IsEmpty());
      ++keys;
    }
  }
  EXPECT_EQ(keys, 50u);
}

// The column l2_penalty is of the decay, whatever the rule does with it.
TEST(AKeyThatARuleDoesNotRead, MayBeReadByAnEvaluation) {
  const auto refusal = [](std::vector<std::string> set) {
    set.insert(set.end(), {"algorithm.name=ridge", "local.weight_decay=0.01"});
    return std::string(OfBuiltins(kMinimal, set).status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("local.weight_decay has no effect with algorithm"));
  EXPECT_EQ(refusal({R"(evaluation.splits=["test", "train"])"}), "");
}

TEST(EveryConditionalParameter, IsHeldToItsNeed) {
  const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
  size_t parameters = 0;
  for (const algorithms::Description* rule : builtins.algorithms().All()) {
    for (const algorithms::ParameterSpec& spec : rule->parameters) {
      for (const settings::Need<AlgorithmConfig>& need : spec.needs) {
        const std::string key = absl::StrCat("algorithm.", rule->name, ".", spec.name);
        SCOPED_TRACE(key);
        const std::string name = absl::StrCat("algorithm.name=\"", rule->name, "\"");
        const bool text = std::holds_alternative<std::string>(spec.default_value);
        const std::string given = absl::StrCat(key, text ? "=\"0.125\"" : "=0.125");
        size_t met = 0, refused = 0;
        for (const algorithms::ParameterSpec& other : rule->parameters) {
          for (const std::string& choice : other.choices) {
            const std::string context =
                absl::StrCat("algorithm.", rule->name, ".", other.name, "=\"", choice, "\"");
            const absl::StatusOr<Config> config = OfBuiltins(kMinimal, {name, context, given});
            if (config.ok()) {
              EXPECT_THAT(config->idle, IsEmpty());
              // A file with it, and another choice on the command line.
              const std::string file = EffectiveToml(*config);
              for (const std::string& changed : other.choices) {
                const absl::StatusOr<Config> read =
                    OfBuiltins(file, {absl::StrCat("algorithm.", rule->name, ".", other.name, "=\"",
                                                   changed, "\"")});
                ASSERT_TRUE(read.ok()) << read.status();
                if (!read->idle.empty()) {
                  EXPECT_EQ(read->idle[0].why, "without " + need.words);
                }
                EXPECT_THAT(OfBuiltins(EffectiveToml(*read), {})->idle, IsEmpty());
              }
              ++met;
            } else {
              EXPECT_THAT(std::string(config.status().message()),
                          HasSubstr(absl::StrCat(key, " has no effect without ", need.words)));
              ++refused;
            }
          }
        }
        EXPECT_GT(met, 0u);
        EXPECT_GT(refused, 0u);
        ++parameters;
      }
    }
  }
  EXPECT_EQ(parameters, 9u);
}

}  // namespace
}  // namespace macaw::cli
