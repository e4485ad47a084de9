#pragma once

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "testing/temporary_folder.h"

namespace macaw::testing_support {

using Settings = std::vector<std::string>;  // each "key=value"

// The rules whose clients send sums over their rows and train nothing, each with the keys that make
// it the rule of the runs below.
struct SumsRule {
  std::string name;
  Settings settings;
};
inline void PrintTo(const SumsRule& rule, std::ostream* out) { *out << rule.name; }

inline std::vector<SumsRule> SumsRules() {
  const std::string linear = R"(model.layers=["linear 3"])";
  return {
      {"ridge", {"algorithm.name=ridge", linear}},
      {"kmeans", {"algorithm.name=kmeans", linear}},
      {"daef",
       {"algorithm.name=daef", "run.task=reconstruction",
        R"(model.layers=["linear 3", "tanh", "linear 4", "sigmoid", "linear 6"])"}},
  };
}

// How many of the clients below have training rows, and that of a single row.
inline constexpr int kSumsClients = 11;
inline constexpr int kClientOfOneRow = 7;

// A table of 160 rows of six features and three classes. Client 4 of the twelve has no training
// row, client 7 has one, and the others have from three to a dozen; most have test rows, too.
// Returns the path of the run's configuration.
inline std::string SumsConfig(const TemporaryFolder& folder) {
  constexpr int kRows = 160, kWidth = 6, kClasses = 3;
  RandomStream random({.seed = 5});
  std::string table = "a,b,c,d,e,f,kind\n";
  for (int row = 0; row < kRows; ++row) {
    std::array<double, kWidth> x{};
    for (double& value : x) value = random.Normal();
    const auto largest = std::max_element(x.begin(), x.begin() + kClasses) - x.begin();
    x[static_cast<size_t>(largest)] += 1;
    for (const double value : x) absl::StrAppend(&table, value, ",");
    absl::StrAppend(&table, std::array{"ash", "oak", "elm"}[static_cast<size_t>(largest)], "\n");
  }
  folder.Write("rows.csv", table);
  nlohmann::ordered_json split;
  int next = 0;
  const auto take = [&](int rows) {
    nlohmann::ordered_json taken = nlohmann::ordered_json::array();
    for (int i = 0; i < rows; ++i) taken.push_back(next++);
    return taken;
  };
  for (int client = 0; client < kSumsClients + 1; ++client) {
    const int rows = client == 4 ? 0 : client == kClientOfOneRow ? 1 : 3 + client * 7 % 10;
    split[absl::StrCat("c", client)] = take(rows);
  }
  split["test"] = take(40);
  for (int client = 0; client < 9; ++client)
    split["client_test"][absl::StrCat("c", client)] = take(3);
  folder.Write("split.json", split.dump());
  return folder.Write("run.toml", R"([run]
name = "sums"
rounds = 4
seed = 11
checkpoint_every = 1
[data]
source = "csv"
path = "rows.csv"
[partition]
scheme = "file"
path = "split.json"
[cohort]
size = 5
[evaluation]
clients = true
[server]
lease_timeout = 5
)");
}

}  // namespace macaw::testing_support
