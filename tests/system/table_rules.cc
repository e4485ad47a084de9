#include "tests/system/table_rules.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/random.h"

namespace macaw::testing_support {
namespace {

constexpr int kRows = 160, kWidth = 6, kClasses = 3, kTestRows = 40;
constexpr int kOfOneRow = 7, kHuge = 5, kEmpty = 4;

TableRule Row(const std::string& name, const std::vector<std::string>& parameters = {},
              const std::vector<std::string>& more = {}, const std::string& algorithm = "") {
  TableRule rule{.name = name, .algorithm = algorithm.empty() ? name : algorithm};
  rule.settings = {"algorithm.name=" + rule.algorithm};
  for (const std::string& parameter : parameters)
    rule.settings.push_back(absl::StrCat("algorithm.", rule.algorithm, ".", parameter));
  rule.settings.insert(rule.settings.end(), more.begin(), more.end());
  return rule;
}

std::string NameOf(int client) { return absl::StrFormat("c%02d", client); }

// Classes are by the largest of the first three features, which is raised.
std::string Csv(int huge_begin, int huge_end) {
  RandomStream random({.seed = 5});
  std::string table = "a,b,c,d,e,f,kind\n";
  for (int row = 0; row < kRows; ++row) {
    std::array<double, kWidth> x{};
    for (double& value : x) value = random.Normal();
    const auto largest = std::max_element(x.begin(), x.begin() + kClasses) - x.begin();
    x[static_cast<size_t>(largest)] += 1;
    const bool huge = row >= huge_begin && row < huge_end;
    for (const double value : x) absl::StrAppend(&table, huge ? value * 1e30 : value, ",");
    absl::StrAppend(&table, std::array{"ash", "oak", "elm"}[static_cast<size_t>(largest)], "\n");
  }
  return table;
}

struct Division {
  nlohmann::ordered_json split;
  int huge_begin = 0, huge_end = 0;
};

// `empty`: has no training rows. `one_more`: a client behind the others has test rows alone.
Division Divide(int empty, bool one_more) {
  Division division;
  int next = 0;
  const auto take = [&](int rows) {
    nlohmann::ordered_json taken = nlohmann::ordered_json::array();
    for (int i = 0; i < rows; ++i) taken.push_back(next++);
    return taken;
  };
  for (int client = 0; client < static_cast<int>(kTableClients); ++client) {
    const int begin = next;
    const nlohmann::ordered_json rows = take(client == kOfOneRow ? 1 : 3 + client * 7 % 10);
    division.split[NameOf(client)] = client == empty ? nlohmann::ordered_json::array() : rows;
    if (client == kHuge) {
      division.huge_begin = begin;
      division.huge_end = next;
    }
  }
  if (one_more) division.split[NameOf(kTableClients)] = nlohmann::ordered_json::array();
  division.split["test"] = take(kTestRows);
  for (int client = 0; client < 9; ++client)
    division.split["client_test"][NameOf(client)] = take(2);
  if (one_more) division.split["client_test"][NameOf(kTableClients)] = take(3);
  return division;
}

}  // namespace

void PrintTo(const TableRule& rule, std::ostream* out) { *out << rule.name; }

const std::vector<TableRule>& TableRules() {
  static const auto& rules = *new std::vector<TableRule>{
      Row("fedavg"),
      Row("gd"),
      Row("fedprox", {"mu=0.5"}),
      Row("scaffold"),
      Row("scaffold_by_gradients", {"option=1", "weighted=true"}, {}, "scaffold"),
      Row("feddyn", {"alpha=0.1"}),
      Row("fedadagrad", {"server_lr=0.03"}),
      Row("fedadam", {"server_lr=0.03"}),
      Row("fedyogi", {"server_lr=0.03"}),
      Row("fedavgm"),
      Row("fednova", {"mu=0.1"}),
      Row("fednova_with_momentum", {"server_momentum=0.5"}, {}, "fednova"),
      Row("qfedavg"),
      Row("mime"),
      Row("mimelite", {"base=adam"}),
      Row("local"),
      Row("pooled"),
      Row("ditto"),
      Row("fedbn", {}, {R"(model.layers=["linear 4", "batchnorm", "relu", "linear 3"])"}),
      Row("fedrep", {"head_epochs=1"}),
      Row("fedper"),
      Row("moon", {"mu=2"}),
      Row("median"),
      Row("trimmed_mean", {"beta=0.2"}),
      Row("krum"),
      Row("geometric_median"),
      Row("rfa_in_buckets", {"weighted=true", "bucket_size=2"}, {}, "geometric_median"),
      Row("centered_clipping"),
      Row("norm_bound", {"weighted=true", "bound=0.1"}),
      Row("fltrust", {"root=0"}, {"cohort.size=12"}),
      Row("fedexp", {"epsilon=0.01"}),
      Row("term", {"t=0.5"}),
      Row("afl", {"mixture_lr=0.02"}),
      Row("fedsam"),
      Row("pfedme", {"lambda=5", "personal_steps=3"}),
      Row("apfl", {"alpha_lr=0.01"}),
      Row("perfedavg"),
      Row("heterofl", {R"(rates="1 0.5")", "evaluate=0.5"}),
      Row("ifca", {"clusters=2"}),
      Row("ridge", {}, {R"(model.layers=["linear 3"])"}),
      Row("kmeans", {}, {R"(model.layers=["linear 3"])"}),
      Row("daef", {},
          {"run.task=reconstruction",
           R"(model.layers=["linear 3", "tanh", "linear 4", "sigmoid", "linear 6"])"}),
  };
  return rules;
}

const Names kEveryRule = [] {
  Names names;
  for (const TableRule& rule : TableRules()) names.insert(rule.name);
  return names;
}();
const Names kSums = {"ridge", "kmeans", "daef"};
const Names kHooks = {"mime", "mimelite", "fedsam", "pfedme", "apfl", "perfedavg", "moon"};
const Names kFollowsSent = {"scaffold", "scaffold_by_gradients", "feddyn"};
const Names kKeepsState = kFollowsSent + Names{"ditto",  "fedbn", "fedrep", "fedper", "local",
                                               "pfedme", "apfl",  "moon",   "ridge"};
const Names kSeveralPhases = {"mime", "term", "daef"};
const Names kCollects = {"median",         "trimmed_mean",      "krum",       "geometric_median",
                         "rfa_in_buckets", "centered_clipping", "norm_bound", "fltrust"};
const Names kMeanOfThoseWhoCame =
    kFollowsSent + Names{"fedexp", "qfedavg", "term", "ifca", "heterofl"};
const Names kArrivals = {"fedavg",  "fedprox", "fedsam",    "fedavgm",
                         "fedadam", "fedyogi", "fedadagrad"};
const Names kByNumber = {"afl", "heterofl"};
const Names kNoOptions = kSums + Names{"gd"};

std::string WriteTableRun(const TemporaryFolder& folder) {
  const Division plain = Divide(/*empty=*/-1, /*one_more=*/false);
  folder.Write("rows.csv", Csv(0, 0));
  folder.Write("huge.csv", Csv(plain.huge_begin, plain.huge_end));
  folder.Write("split.json", plain.split.dump());
  folder.Write("empty-last.json", Divide(-1, true).split.dump());
  folder.Write("empty-within.json", Divide(kEmpty, false).split.dump());
  return folder.Write("run.toml", R"([run]
name = "table"
rounds = 4
seed = 11
checkpoint_every = 1
[data]
source = "csv"
path = "rows.csv"
[partition]
scheme = "file"
path = "split.json"
[model]
layers = ["linear 4", "relu", "linear 3"]
[cohort]
size = 5
[local]
epochs = 2
batch_size = 4
lr = 0.05
[evaluation]
clients = true
[server]
lease_timeout = 30
[state]
sync = false
)");
}

}  // namespace macaw::testing_support
