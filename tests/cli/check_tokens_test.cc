// Tokens of the data that a model does not know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cli/config/key_error.h"
#include "cli/config/resolve.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;

// One client with one row of two tokens.
class TwoTokens final : public data::Dataset {
 public:
  TwoTokens(int32_t first, int32_t second) : tokens_{first, second} {
    info_.name = "two";
    info_.feature_type = data::FeatureType::kI32;
    info_.input_shape = {2};
    info_.classes = 80;
    info_.clients = info_.train_examples = 1;
  }
  const data::DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId, data::Split split) const override {
    return split == data::Split::kTrain ? 1 : 0;
  }
  absl::StatusOr<data::Rows> Client(ClientId, data::Split) const override {
    return data::Rows{.block = {.type = data::FeatureType::kI32,
                                .features = reinterpret_cast<const std::byte*>(tokens_),
                                .row_bytes = sizeof(tokens_),
                                .count = 1}};
  }
  data::Rows CentralTest() const override { return {}; }

 private:
  data::DatasetInfo info_;
  const int32_t tokens_[2];
};

absl::Status TokensOf(const data::Dataset& dataset, const std::string& model,
                      const std::string& task = "run.task=auto") {
  absl::StatusOr<Config> parsed = Parse(kMinimal, {"cohort.size=1", model, task});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  Config config = *std::move(parsed);
  EXPECT_TRUE(Resolve(config, dataset.info(), sdk::Catalogue::Builtins()).ok());
  const auto spec = SpecOf(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? CheckTokens(config, *spec, dataset) : spec.status();
}

TEST(CheckTokens, RefusesATokenBeyondTheEmbeddingAndSaysWhatToWrite) {
  const TwoTokens data(3, 90);
  const std::string layers = R"(model.layers=["embedding 80 8","lstm 4","linear 80"])";
  const absl::Status refused = TokensOf(data, layers);
  EXPECT_EQ(KeyErrorOf(refused).key, "model.layers");
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("0 to 79"), HasSubstr("training row 0 of client 0"),
                             HasSubstr("token 90"), HasSubstr("\"embedding 91 8\"")));
  EXPECT_TRUE(TokensOf(TwoTokens(3, 79), layers).ok());
  const absl::Status named = TokensOf(data, "model.name=char_lstm");
  EXPECT_EQ(KeyErrorOf(named).key, "model.classes");
  EXPECT_THAT(std::string(named.message()), HasSubstr("model.classes = 91"));
  EXPECT_THAT(std::string(TokensOf(TwoTokens(-1, 2), layers).message()), HasSubstr("token -1"));
}

TEST(CheckTokens, RefusesATokenToPredictForWhichTheModelHasNoOutput) {
  const std::string layers = R"(model.layers=["embedding 100 8","lstm 4","linear 80"])";
  const absl::Status refused = TokensOf(TwoTokens(3, 90), layers);
  EXPECT_EQ(KeyErrorOf(refused).key, "model");
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("predicts the tokens 0 to 79"), HasSubstr("token 90"),
                             HasSubstr("client 0"), HasSubstr("linear 91")));
  EXPECT_TRUE(TokensOf(TwoTokens(90, 79), layers).ok()) << "a row's first token is not predicted";
}

TEST(CheckTokens, SaysHowTextsAreClassifiedWhereTheModelHasOneVectorOfAText) {
  const std::string layers = R"(model.layers=["embedding 100 8","mean","linear 80"])";
  const absl::Status refused = TokensOf(TwoTokens(3, 90), layers);
  EXPECT_EQ(KeyErrorOf(refused).key, "run.task");
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("run.task = \"classification\""),
                             Not(HasSubstr("91 outputs at each position"))));
  EXPECT_TRUE(TokensOf(TwoTokens(3, 90), layers, "run.task=classification").ok());
}

}  // namespace
}  // namespace macaw::cli
