#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/config.h"
#include "testing/other_value.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {

// The minimal configuration with some other keys, in which a key has an effect or has none.

inline Config Minimal() {
  absl::StatusOr<Config> config = Parse(kMinimal);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

// A value of a key.
struct Assignment {
  const Field* field;
  Value value;
};

// As `--set` takes it.
inline std::string Set(const std::string& key, const Value& value) {
  return absl::StrCat(key, "=", ToToml(value));
}

// Each choice of each key; another value, and 0, 1, false or "", of each key without choices.
inline const std::vector<Assignment>& AllAssignments() {
  static const auto* const assignments = [] {
    auto* all = new std::vector<Assignment>;
    const Config minimal = Minimal();
    const auto add = [&](const Field& field, const Value& value) {
      Config config = minimal;
      if (field.set(config, value)) all->push_back({&field, value});
    };
    for (const Field& field : AllFields()) {
      for (const std::string& choice : field.choices) add(field, Value{choice});
      if (field.key == "evaluation.splits") add(field, Value{Array{Value{std::string("train")}}});
      if (field.key == "update.codec") add(field, Value{Array{Value{std::string("acpsgd 4")}}});
      if (!field.choices.empty()) continue;
      if (const auto other = settings::OtherValue(field, minimal)) add(field, *other);
      for (const Value& little :
           {Value{int64_t{0}}, Value{int64_t{1}}, Value{0.0}, Value{false}, Value{std::string()}}) {
        add(field, little);
      }
    }
    return all;
  }();
  return *assignments;
}

inline Config After(const std::vector<Assignment>& assignments) {
  Config config = Minimal();
  for (const Assignment& one : assignments) EXPECT_TRUE(one.field->set(config, one.value));
  return config;
}

// One or two assignments after which `need` of `key` holds and all of the assigned keys have an
// effect, or nothing.
inline std::vector<Assignment> MeetingOne(const Field& key, const settings::Need<Config>& need,
                                          const Config& config) {
  // Whether the assigned keys have an effect once `key` is given, too.
  const auto good = [&](Config changed, const std::vector<Assignment>& made) {
    if (!need.holds(changed)) return false;
    if (const auto value = settings::OtherValue(key, changed)) key.set(changed, *value);
    return std::ranges::all_of(made,
                               [&](const Assignment& one) { return one.field->Applies(changed); });
  };
  std::vector<Assignment> near;  // of the tables that the need names
  for (const Assignment& one : AllAssignments()) {
    Config changed = config;
    if (one.field->key == key.key || !one.field->set(changed, one.value)) continue;
    if (good(changed, {one})) return {one};
    const std::string table = one.field->key.substr(0, one.field->key.find('.') + 1);
    if (absl::StrContains(need.words, table)) near.push_back(one);
  }
  for (const Assignment& first : near) {
    for (const Assignment& second : near) {
      Config changed = config;
      if (first.field->set(changed, first.value) && second.field->set(changed, second.value) &&
          good(changed, {first, second})) {
        return {first, second};
      }
    }
  }
  return {};
}

// Assignments after which all needs of `key` hold.
inline const std::vector<Assignment>& Meeting(const Field& key) {
  static auto* const known = new std::map<std::string, std::vector<Assignment>>;
  const auto [found_before, is_new] = known->try_emplace(key.key);
  std::vector<Assignment>& made = found_before->second;
  if (!is_new) return made;
  while (const auto* need = settings::Missing(key.needs, After(made))) {
    const std::vector<Assignment> found = MeetingOne(key, *need, After(made));
    if (found.empty()) {
      ADD_FAILURE() << key.key << ": no keys were found for its need of " << need->words;
      break;
    }
    made.insert(made.end(), found.begin(), found.end());
  }
  return made;
}

// The same for the reader, with what it asks for beside a value.
inline void AddTo(std::vector<std::string>& set, const std::string& key, const Value& value) {
  set.push_back(Set(key, value));
  const auto is = [&](const char* word) { return value == Value{std::string(word)}; };
  if (key == "attack.kind" && !is("none")) set.push_back("attack.fraction=0.25");
  if (key == "privacy.mechanism" && !is("none"))
    set.insert(set.end(), {"privacy.clip=0.5", "privacy.noise=0.7"});
  if (key == "local.lr_schedule.kind" && (is("step") || is("exponential")))
    set.push_back("local.lr_schedule.gamma=0.5");
}
inline std::vector<std::string> AsSet(const std::vector<Assignment>& assignments) {
  std::vector<std::string> set;
  for (const Assignment& one : assignments) AddTo(set, one.field->key, one.value);
  return set;
}

}  // namespace macaw::cli
