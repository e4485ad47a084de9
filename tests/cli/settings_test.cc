#include "cli/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cli/config/inputs.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;

std::string SettingsOf(const std::string& text, const std::vector<std::string>& set = {}) {
  const absl::StatusOr<Config> config = Parse(text, set);
  EXPECT_TRUE(config.ok()) << config.status();
  return SettingsJson(*config, TestCatalogue().algorithms());
}

constexpr char kPlain[] = R"({"data.source":"synthetic","model.name":"logistic","cohort.size":10})";

TEST(Settings, AreWhatDiffersFromTheDefaults) {
  EXPECT_EQ(SettingsOf(kMinimal), kPlain);
  EXPECT_EQ(SettingsOf(kMinimal, {"local.lr=0.05", "local.steps=3", "local.batch_size=10"}),
            R"({"data.source":"synthetic","model.name":"logistic","cohort.size":10,)"
            R"("local.steps":3,"local.lr":0.05})");
}

TEST(Settings, HaveTheParametersOfTheAlgorithmThatRunsAndOfNoOther) {
  EXPECT_EQ(
      SettingsOf(kMinimal,
                 {"algorithm.name=fedprox", "algorithm.fedprox.mu=0.5", "algorithm.other.count=9"}),
      absl::StrCat(std::string(kPlain, sizeof(kPlain) - 2), R"(,"algorithm.fedprox.mu":0.5})"));
  EXPECT_EQ(SettingsOf(kMinimal, {"algorithm.name=fedprox"}), kPlain);
}

TEST(Settings, AreTheSameForEverySeedMachineAndFolder) {
  EXPECT_EQ(SettingsOf(kMinimal,
                       {"run.seed=7", "run.name=x", "run.out=/here", "workers.slots=3",
                        "server.lease_timeout=3", "server.durability=commit", "state.keep=false",
                        "scheduler.policy=random", "run.checkpoint_every=2"}),
            kPlain);
  const std::vector<std::string> csv = {"data.source=csv", "data.path=/a/rows.csv"};
  EXPECT_EQ(SettingsOf(kMinimal, csv),
            SettingsOf(kMinimal, {"data.source=csv", "data.path=/b/c/rows.csv"}));
}

TEST(Settings, HaveNoTestFractionThatIsTheDefault) {
  EXPECT_EQ(SettingsOf(kMinimal, {"data.test_fraction=0.1"}), kPlain);
  EXPECT_NE(SettingsOf(kMinimal, {"data.test_fraction=0.2"}), kPlain);
  const std::vector<std::string> prepared = {"data.source=prepared", "data.path=/rows.safetensors"};
  std::vector<std::string> cut = prepared;
  cut.push_back("data.test_fraction=0.1");
  EXPECT_NE(SettingsOf(kMinimal, cut), SettingsOf(kMinimal, prepared))
      << "clients of a prepared file keep their rows by default";
}

TEST(Settings, NameASeedThatDoesNotFollowTheRuns) {
  EXPECT_EQ(SettingsOf(kMinimal, {"data.source=idx", "run.seed=7", "partition.seed=5"}),
            R"({"data.source":"idx","partition.seed":5,"model.name":"logistic",)"
            R"("cohort.size":10})");
}

// Two runs with other values are no seeds of one configuration.
TEST(Settings, SayWhichClientsARoundWaitsFor) {
  for (const char* key : {"round.enough=3", "round.deadline=20.0", "round.below_quorum=drop"}) {
    EXPECT_NE(SettingsOf(kMinimal, {key}), kPlain) << key;
    EXPECT_NE(SettingsOf(kMinimal, {"devices.family=phones", key}),
              SettingsOf(kMinimal, {"devices.family=phones"}))
        << key;
  }
  EXPECT_FALSE(OnlyComputes("round.enough"));
}

TEST(KeysThatMayChange, HaveThoseOfARoundUnlessItsTimeIsVirtual) {
  const Config plain = *Parse(kMinimal),
               timed = *Parse(kMinimal, std::vector<std::string>{"devices.family=phones"});
  EXPECT_THAT(KeysThatMayChange(plain), testing::IsSupersetOf({"round.enough", "round.deadline"}));
  EXPECT_THAT(KeysThatMayChange(timed), testing::Not(testing::Contains("round.enough")));
  EXPECT_THAT(KeysThatMayChange(timed), testing::Contains("server.*"));
}

TEST(Inputs, AreDigestsOfWhatFilesAndFoldersHold) {
  const testing_support::TemporaryFolder folder;
  const std::string a = folder.Write("a/x.csv", "1,2\n"), b = folder.Write("b/x.csv", "1,3\n"),
                    same = folder.Write("c/x.csv", "1,2\n");
  EXPECT_EQ(DigestOfInput(a).size(), 16u);
  EXPECT_EQ(DigestOfInput(a), DigestOfInput(same)) << "not where it is";
  EXPECT_NE(DigestOfInput(a), DigestOfInput(b));
  EXPECT_EQ(DigestOfInput(folder / "a"), DigestOfInput(folder / "c"));
  EXPECT_NE(DigestOfInput(folder / "a"), DigestOfInput(folder / "b"));
  folder.Write("c/more/y.csv", "");
  EXPECT_NE(DigestOfInput(folder / "a"), DigestOfInput(folder / "c"));
  EXPECT_EQ(DigestOfInput(folder / "nowhere"), "");
}

TEST(Inputs, OfALargeFileAreSamples) {
  const testing_support::TemporaryFolder folder;
  std::string bytes((64 << 20) + 12345, 'x');
  const std::string before = DigestOfInput(folder.Write("large", bytes));
  bytes.back() = 'y';
  EXPECT_NE(DigestOfInput(folder.Write("large", bytes)), before);
  bytes.back() = 'x';
  bytes.front() = 'y';
  EXPECT_NE(DigestOfInput(folder.Write("large", bytes)), before);
}

TEST(Inputs, OfAFolderOfLessHaveEveryByteOfEachFile) {
  const testing_support::TemporaryFolder folder;
  for (const char* name : {"a", "b", "c"}) folder.Write(absl::StrCat("in/", name), "small");
  std::string bytes(20 << 20, 'x');  // more than an even share
  folder.Write("in/large", bytes);
  const std::string before = DigestOfInput(folder / "in");
  bytes[(10 << 20) + 300'001] = 'y';
  folder.Write("in/large", bytes);
  EXPECT_NE(DigestOfInput(folder / "in"), before);
}

TEST(Inputs, AreNamedByTheirKeys) {
  const testing_support::TemporaryFolder folder;
  const std::string rows = folder.Write("rows.csv", "1,2\n");
  const auto config = Parse(kMinimal, {"data.source=csv", "data.path=" + rows,
                                       "model.init=" + folder / "first-{seed}.safetensors"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(InputDigests().Json(*config),
            absl::StrCat(R"({"data.path":")", DigestOfInput(rows), R"("})"));
}

TEST(Inputs, HaveWhatPythonSaysOfItsFunctions) {
  const testing_support::TemporaryFolder folder;
  const auto inputs = [&](const std::string& name, const std::string& text) {
    const std::string command = absl::StrCat("workers.command=[\"python3\", \"-c\", \"main()\", \"",
                                             folder.Write(name, text), "\"]");
    const auto config = Parse(kMinimal, {"workers.backend=process", command});
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? InputDigests().Json(*config) : "";
  };
  EXPECT_EQ(inputs("a.json", R"({"path": ["/here"], "identity": "0123456789abcdef"})"),
            R"({"workers.command":"0123456789abcdef"})");
  for (const char* other : {"", "[]", "{", R"({"identity": 3})", R"({"path": []})"})
    EXPECT_EQ(inputs("b.json", other), "{}") << other;
  EXPECT_EQ(inputs("c.py", R"({"identity": "0123456789abcdef"})"), "{}");
}

TEST(DefaultOf, KnowsKeysAndParameters) {
  const sdk::Catalogue catalogue = TestCatalogue();
  EXPECT_EQ(DefaultOf("local.lr", catalogue.algorithms()), "0.1");
  EXPECT_EQ(DefaultOf("data.test_fraction", catalogue.algorithms()), "0.1");
  EXPECT_EQ(DefaultOf("algorithm.fedprox.mu", catalogue.algorithms()), "0.01");
  EXPECT_EQ(DefaultOf("algorithm.nobody.mu", catalogue.algorithms()), "");
}

TEST(UnusedParameters, AreThoseOfOtherAlgorithms) {
  const auto config = Parse(
      kMinimal, {"algorithm.name=fedprox", "algorithm.fedprox.mu=0.5", "algorithm.other.count=9"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(UnusedParameters(*config), ElementsAre("algorithm.other.count"));
}

}  // namespace
}  // namespace macaw::cli
