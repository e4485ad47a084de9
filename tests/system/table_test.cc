// Every rule beside all that can surround one: each cell of the table is refused by a sentence, or
// equal to another run, or lawful (surroundings.h). Where LibTorch is built in, none is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/in_process.h"
#include "tests/system/libtorch.h"
#include "tests/system/surroundings.h"
#include "tests/system/table_rules.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Execution;
using testing_support::InProcess;
using testing_support::kEveryRule;
using testing_support::kHooks;
using testing_support::kTableClients;
using testing_support::Names;
using testing_support::Refusal;
using testing_support::RowsOf;
using testing_support::RunBytes;
using testing_support::Settings;
using testing_support::Surrounding;
using testing_support::Surroundings;
using testing_support::TableRule;
using testing_support::TableRules;
using testing_support::TemporaryFolder;

// The folder of the runs, in memory where there is such a place: hundreds of runs make files and
// replace them, and a file system on a disk makes them slowly where many have just gone.
class RunsFolder {
 public:
  RunsFolder() : path_((access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir()) + kName) {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot make " << path_;
  }
  ~RunsFolder() { Remove(""); }
  RunsFolder(const RunsFolder&) = delete;
  RunsFolder& operator=(const RunsFolder&) = delete;

  std::string operator/(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  void Remove(const std::string& name) const {
    std::error_code ignored;
    std::filesystem::remove_all(*this / name, ignored);
  }

 private:
  static constexpr char kName[] = "/macaw_XXXXXX";
  std::string path_;
};

class RuleInASurrounding : public testing::TestWithParam<TableRule> {
 protected:
  const std::string& rule() const { return GetParam().name; }
  bool pooled() const { return rule() == "pooled"; }
  bool NeedsLibTorch() const { return kHooks.contains(rule()) || rule() == "fedbn"; }

  absl::StatusOr<InProcess> With(const Settings& settings) const {
    Settings all = GetParam().settings;
    all.insert(all.end(), settings.begin(), settings.end());
    return InProcess::Checked(config_, all);
  }
  std::string Folder(const std::string& name) const { return runs_ / name; }

  // The run of these settings, done once.
  const RunBytes& Reference(const Settings& settings) {
    const auto [found, is_new] = references_.try_emplace(absl::StrJoin(settings, " "));
    if (!is_new) return found->second;
    const absl::StatusOr<InProcess> run = With(settings);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return found->second;
    const auto bytes = run->Run({.folder = Folder(absl::StrCat("like-", references_.size()))});
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (bytes.ok()) found->second = *bytes;
    return found->second;
  }

  void ExpectCell(const Surrounding& surrounding) {
    const absl::StatusOr<InProcess> run = With(surrounding.settings);
    const std::string refusal = surrounding.RefusalOf(rule());
    if (!refusal.empty()) {
      ASSERT_FALSE(run.ok()) << "it is not refused: " << refusal;
      EXPECT_THAT(std::string(run.status().message()), HasSubstr(refusal));
      return;
    }
    ASSERT_TRUE(run.ok()) << run.status();
    if (surrounding.only_checked) return;
    const std::string folder = Folder(surrounding.name);
    if (const std::string end = surrounding.EndOf(rule()); !end.empty())
      return ExpectEnd(*run, folder, end);
    const RunBytes bytes = surrounding.IsLike(rule()) ? ExpectEqual(*run, surrounding, folder)
                                                      : ExpectLawful(*run, folder);
    EXPECT_EQ(bytes.model.size(), 64u);
    runs_.Remove(surrounding.name);
    if (!surrounding.shows) return;
    const std::vector<nlohmann::json> rows = RowsOf(bytes);
    EXPECT_EQ(std::ranges::any_of(rows, surrounding.shows), !surrounding.unseen.contains(rule()))
        << bytes.metrics;
  }

 private:
  RunBytes ExpectEqual(const InProcess& run, const Surrounding& surrounding,
                       const std::string& folder) {
    const auto bytes = run.Run({.folder = folder + "/one", .slots = 2});
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (!bytes.ok()) return {};
    const RunBytes& like = Reference(*surrounding.like);
    EXPECT_EQ(bytes->model, like.model);
    if (!surrounding.states_differ) {
      EXPECT_EQ(bytes->states, like.states);
    }
    return *bytes;
  }

  static void ExpectEnd(const InProcess& run, const std::string& folder, const std::string& why) {
    for (const uint32_t interrupted : {0U, 2U}) {
      const auto ended =
          run.Run({.folder = absl::StrCat(folder, "/", interrupted), .interrupted = interrupted});
      EXPECT_THAT(std::string(ended.status().message()), HasSubstr(why));
    }
  }

  RunBytes ExpectLawful(const InProcess& run, const std::string& folder) const {
    const auto interrupted = run.Run({.folder = folder + "/interrupted", .interrupted = 2});
    EXPECT_TRUE(interrupted.ok()) << "interrupted: " << interrupted.status();
    // Of the pooled rule one client has all rows, which no owner gives away.
    const Execution divided{.folder = folder + "/divided",
                            .owners = pooled() ? 0U : 4U,
                            .workers = pooled() ? 2U : 1U,
                            .slots = 2};
    const auto owners = run.Run(divided);
    EXPECT_TRUE(owners.ok()) << "divided among owners: " << owners.status();
    if (!interrupted.ok() || !owners.ok()) return {};
    EXPECT_EQ(*owners, *interrupted);
    const auto again = run.Run({.folder = folder + "/again", .repeats = divided.folder});
    EXPECT_TRUE(again.ok()) << "from its log: " << again.status();
    if (!again.ok()) return {};
    EXPECT_EQ(again->model, owners->model) << "from its log";
    EXPECT_EQ(again->states, owners->states) << "from its log";
    EXPECT_EQ(testing_support::DifferenceOfLogs(divided.folder, folder + "/again"), std::nullopt);
    return *owners;
  }

  const TemporaryFolder folder_;  // of configurations and data
  const RunsFolder runs_;
  const std::string config_ = testing_support::WriteTableRun(folder_);
  std::map<std::string, RunBytes> references_;
};

TEST_P(RuleInASurrounding, IsRefusedOrEqualOrLawful) {
  if (NeedsLibTorch()) MACAW_NEEDS_LIBTORCH();
  for (const Surrounding& surrounding : Surroundings()) {
    if (surrounding.needs_libtorch && !testing_support::kHasLibTorch) continue;
    SCOPED_TRACE(absl::StrCat(rule(), " in ", surrounding.name));
    ExpectCell(surrounding);
  }
}

// A fleet's devices have one client each, and a node without clients has the test set.
TEST_P(RuleInASurrounding, EndsOnDevicesOfOneClientEachAsInASimulation) {
  if (NeedsLibTorch()) MACAW_NEEDS_LIBTORCH();
  const absl::StatusOr<InProcess> owned = With({absl::StrCat("workers.owners=", kTableClients)});
  if (pooled()) {
    EXPECT_THAT(owned.status().ToString(), HasSubstr("owners keep their rows"));
    return;
  }
  ASSERT_TRUE(owned.ok()) << owned.status();
  const auto bytes = owned->Run({.folder = Folder("fleet"), .owners = kTableClients});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const RunBytes& plain = Reference({});
  EXPECT_EQ(*bytes, plain);
}

// What is recorded for each client of a round is the model of a run in which nobody waited for it.
TEST_P(RuleInASurrounding, HasTheModelWithoutAClientThatAReplayWithoutItHas) {
  if (NeedsLibTorch()) MACAW_NEEDS_LIBTORCH();
  const absl::StatusOr<InProcess> run =
      With({"run.rounds=1", "evaluation.leave_one_out=1", "evaluation.unlearn=[0]"});
  const auto leaving_out =
      std::ranges::find(Surroundings(), std::string("ModelsWithoutEachClient"), &Surrounding::name);
  ASSERT_NE(leaving_out, Surroundings().end());
  if (!leaving_out->RefusalOf(rule()).empty()) {
    EXPECT_FALSE(run.ok());
    return;
  }
  ASSERT_TRUE(run.ok()) << run.status();
  const Execution whole{.folder = Folder("whole")};
  const auto bytes = run->Run(whole);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto lines = ReadFile(whole.folder + "/contributions.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto line = nlohmann::json::parse(*lines);
  ASSERT_EQ(line["client"].size(), line["model"].size());
  ASSERT_GE(line["client"].size(), pooled() ? 1U : 5U);
  // The run that is repeated has the same rounds but for this key (macaw replay).
  const absl::StatusOr<InProcess> repeats = With({"run.rounds=1"});
  ASSERT_TRUE(repeats.ok()) << repeats.status();
  for (size_t k = 0; k < line["client"].size(); ++k) {
    const auto client = line["client"][k].get<uint64_t>();
    SCOPED_TRACE(absl::StrCat("without client ", client));
    const auto without = repeats->Run({.folder = Folder(absl::StrCat("without-", client)),
                                       .repeats = whole.folder,
                                       .without = {client}});
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(without->model, line["model"][k].get<std::string>());
    for (size_t i = 0; i < line.value("unlearned_client", nlohmann::json::array()).size(); ++i) {
      if (line["unlearned_client"][i] == client) {
        EXPECT_EQ(line["unlearned_model"][i], line["model"][k]) << "after one round";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, RuleInASurrounding, testing::ValuesIn(TableRules()),
                         [](const auto& test) { return test.param.name; });

TEST(TableOfRules, HasEveryBuiltInRule) {
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  for (const algorithms::Description* rule : registry.All()) {
    EXPECT_TRUE(std::ranges::any_of(
        TableRules(), [&](const TableRule& row) { return row.algorithm == rule->name; }))
        << rule->name << " is new: give it a row in table_rules.cc, and say in surroundings.cc "
        << "what refuses it";
  }
}

TEST(TableOfRules, SaysOfEachRuleWhatItsDescriptionSays) {
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  for (const TableRule& row : TableRules()) {
    const algorithms::Description& rule = **registry.Find(row.algorithm);
    EXPECT_EQ(testing_support::kSums.contains(row.name), rule.has_statistics) << row.name;
    EXPECT_EQ(kHooks.contains(row.name), rule.has_hooks) << row.name;
    EXPECT_EQ(testing_support::kArrivals.contains(row.name), rule.asynchronous) << row.name;
    EXPECT_EQ(testing_support::kByNumber.contains(row.name), rule.numbers_clients) << row.name;
    EXPECT_EQ(testing_support::kFollowsSent.contains(row.name), rule.state_follows_sent)
        << row.name;
  }
}

TEST(TableOfSurroundings, NamesRulesThatThereAreAndRefusesSomeAlone) {
  Names names;
  for (const Surrounding& surrounding : Surroundings()) {
    SCOPED_TRACE(surrounding.name);
    EXPECT_TRUE(names.insert(surrounding.name).second) << "twice";
    Names refused;
    for (const Refusal& refusal : surrounding.refused) {
      EXPECT_FALSE(refusal.words.empty());
      for (const std::string& rule : refusal.rules) {
        EXPECT_TRUE(kEveryRule.contains(rule)) << rule;
        refused.insert(rule);
      }
    }
    EXPECT_LT(refused.size(), kEveryRule.size()) << "no rule runs in it";
    for (const std::string& rule : surrounding.unseen) EXPECT_TRUE(kEveryRule.contains(rule));
  }
  EXPECT_GE(names.size(), 75u);
}

}  // namespace
}  // namespace macaw
