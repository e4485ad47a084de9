#include "cli/config/key_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/config/resolve.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

KeyError ErrorOf(const std::string& text, const std::vector<std::string>& set = {}) {
  return KeyErrorOf(Parse(text, set).status());
}

TEST(KeyError, OfAnUnknownKeyHasItsPlaceAndTheNearestKey) {
  const KeyError error = ErrorOf(kMinimal, {"local.learning_rate=0.1"});
  EXPECT_EQ(error.place, "--set local.learning_rate=0.1");
  EXPECT_EQ(error.key, "local.learning_rate");
  EXPECT_EQ(error.meant, "local.lr");
  EXPECT_EQ(ErrorOf(std::string(kMinimal) + "[loacl]\nlr = 1\n").meant, "local");
}

TEST(KeyError, OfAWrongValueHasItsKeyAndTheNearestWord) {
  EXPECT_EQ(ErrorOf(kMinimal, {"local.lr=-1"}).key, "local.lr");
  const KeyError error = ErrorOf(kMinimal, {"local.optimizer=adm"});
  EXPECT_EQ(error.key, "local.optimizer");
  EXPECT_EQ(error.meant, "adam");
}

TEST(KeyError, OfATableInPlaceOfAValueHasTheValuesKey) {
  const absl::Status status = Parse(kMinimal, {"run.rounds.first=3"}).status();
  EXPECT_EQ(KeyErrorOf(status).meant, "run.rounds");
  EXPECT_THAT(status.message(), testing::HasSubstr("run.rounds is one value and not a table"));
}

TEST(KeyError, OfANameThatDoesNotExistHasTheNearestName) {
  const KeyError algorithm = ErrorOf(kMinimal, {"algorithm.name=fedprxo"});
  EXPECT_EQ(algorithm.key, "algorithm.name");
  EXPECT_EQ(algorithm.meant, "fedprox");
  Config config = *Parse(kMinimal, {"model.name=lenet", "model.input_shape=[1,28,28]"});
  const KeyError model = KeyErrorOf(SpecOf(config).status());
  EXPECT_EQ(model.key, "model.name");
  EXPECT_EQ(model.meant, "lenet5");
  config = *Parse(
      kMinimal, {"model.name=lenet5", "model.input_shape=[1,28,28]", "model.frozen=[\"head.*\"]"});
  config.run.model.classes = 10;
  EXPECT_EQ(KeyErrorOf(SpecOf(config).status()).key, "model.frozen");
  config.run.model.frozen.clear();
  config.run.model.trained = {"head.*"};
  EXPECT_EQ(KeyErrorOf(SpecOf(config).status()).key, "model.trained");
  config.run.model.adapters = {"lora 2 head.*"};
  EXPECT_EQ(KeyErrorOf(SpecOf(config).status()).key, "model.adapters");
}

TEST(KeyError, OfAParameterNamesItsAlgorithm) {
  EXPECT_EQ(ErrorOf(kMinimal, {"algorithm.fedprox.mu=-1"}).key, "algorithm.fedprox.mu");
  EXPECT_EQ(ErrorOf(kMinimal, {"algorithm.fedprox.mu=fast"}).key, "algorithm.fedprox.mu");
  const KeyError error = ErrorOf(kMinimal, {"algorithm.fedprox.nu=1"});
  EXPECT_EQ(error.key, "algorithm.fedprox.nu");
  EXPECT_EQ(error.meant, "algorithm.fedprox.mu");
}

TEST(KeyError, WithoutAMarkIsTheFirstKeyThatTheMessageNames) {
  const auto key = [](const char* message) {
    return KeyErrorOf(absl::InvalidArgumentError(message)).key;
  };
  EXPECT_EQ(key("the cohort (cohort.size = 50) is larger than run.clients"), "cohort.size");
  EXPECT_EQ(key("give another local.lr."), "local.lr");
  EXPECT_EQ(key("no key is here: exp.toml, cohort"), "");
}

TEST(ReadConfig, TellsTheSourceOfAPathByItsContents) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder.Write("rows.csv", "a,b,label\n1,2,0\n3,4,1\n");
  const std::string rest = "[model]\nname = \"logistic\"\n[cohort]\nsize = 1\n";
  const auto config = Parse(rest, {"data.path=\"" + path + "\""});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.data.source, "csv");
  EXPECT_EQ(ErrorOf(rest, {"data.path=/not/there"}).key, "data.path");
}

}  // namespace
}  // namespace macaw::cli
