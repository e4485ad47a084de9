#include "server/model_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/fleet/vector_codec.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using testing::HasSubstr;
using testing_support::Registry;
using testing_support::TinyDelta;
using testing_support::TinyLayout;
using testing_support::TinyModel;

constexpr double kBound = 64;

class ModelKeeperTest : public testing::Test {
 protected:
  ModelKeeperTest() { Use("fedavg"); }

  void Use(const std::string& algorithm) {
    RunConfig run = testing_support::TinyRun(1);
    run.algorithm = *Registry().Complete({algorithm, {}});
    run.contribution_bound = kBound;
    setup_ = algorithms::SetupOf(run, TinyLayout());
    channels_ = (*(*Registry().Find(algorithm))->schema(setup_)).up;
    keeper_.emplace(*ModelKeeper::Make(**Registry().Find(algorithm), setup_, TinyModel()));
  }

  static PhaseOrder Order(uint32_t round) {
    return {
        .round = Round(round),
        .grid = {
            .max_weight = 4, .total_weight = 6, .max_multiplicity = 1, .total_multiplicity = 2}};
  }

  // Client 1 with weight 2 and client 5 with weight 4, as far as `clients` names them.
  fleet::Part Part(uint32_t round, const std::vector<uint64_t>& clients) const {
    fleet::Part part{.round = Round(round)};
    auto sum = *aggregation::ExactSum::Make(channels_, Order(round).grid);
    for (const uint64_t client : clients) {
      const double weight = client == 1 ? 2 : 4;
      const FlatVector delta = TinyDelta(ClientId(client), keeper_->Model());
      const ConstVectorView values[] = {delta.view()};
      EXPECT_TRUE(sum.Add({.client = ClientId(client), .weight = weight, .values = values}).ok());
      part.included.push_back({.attempt = {ClientId(client), {1, client}}, .weight = weight});
    }
    part.sums = fleet::Blob::Of(sum.Encode());
    return part;
  }

  float Bias() const { return keeper_->Model().As<float>()[TinyLayout()->Find("0.bias")->offset]; }

  algorithms::Setup setup_;
  std::vector<aggregation::ChannelSpec> channels_;
  std::optional<ModelKeeper> keeper_;
};

TEST_F(ModelKeeperTest, TakesNoVectorsOfOtherClientsThanThePartNames) {
  Use("median");  // collects every client's own vector
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  fleet::Part part = Part(1, {1, 5});
  EXPECT_TRUE(keeper_->Decode(part).ok());
  part.included[1].attempt.client = ClientId(6);  // who weighs as much as client 5
  EXPECT_THAT(keeper_->Decode(part).status().ToString(), HasSubstr("other clients"));
}

TEST_F(ModelKeeperTest, KnowsHowLargeTheSumsOfAWholeCohortAre) {
  EXPECT_FALSE(keeper_->MostSumsBytes().ok()) << "no round is open";
  for (const char* algorithm : {"fedavg", "median"}) {
    Use(algorithm);
    ASSERT_TRUE(keeper_->Open(Order(1)).ok());
    EXPECT_EQ(*keeper_->MostSumsBytes(), Part(1, {1, 5}).sums.size) << algorithm;
  }
}

TEST_F(ModelKeeperTest, SendsTheModelUnderItsDigest) {
  const auto blob = keeper_->Open(Order(1));
  ASSERT_TRUE(blob.ok()) << blob.status();
  EXPECT_EQ(blob->digest, keeper_->ModelBlob().digest) << "FedAvg sends the model and no more";
  const LayoutPtr layouts[] = {TinyLayout()};
  const auto views = fleet::DecodeVectors(blob->bytes->bytes(), layouts);
  ASSERT_TRUE(views.ok()) << views.status();
  EXPECT_TRUE(std::ranges::equal(views->front().bytes, keeper_->Model().bytes));
}

TEST_F(ModelKeeperTest, AppliesTheMeanOfPartsThatCameApart) {
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  for (const uint64_t client : {5, 1})
    ASSERT_TRUE(keeper_->Add(*keeper_->Decode(Part(1, {client}))).ok());
  // The bias is 4; clients 1 and 5 pull it to 4 and 8: (2·0 + 4·2) / 6.
  const auto another_phase = keeper_->Apply(Round(1), Phase(0));
  ASSERT_TRUE(another_phase.ok()) << another_phase.status();
  EXPECT_FALSE(*another_phase);
  EXPECT_FLOAT_EQ(Bias(), 4 + 8.0f / 6);
  ASSERT_EQ(keeper_->headroom().size(), 1u);
  EXPECT_EQ(keeper_->headroom()[0].second, 2 / kBound);
}

TEST_F(ModelKeeperTest, ForgetsARoundThatWasOpenedAndNotApplied) {
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  ASSERT_TRUE(keeper_->Add(*keeper_->Decode(Part(1, {1}))).ok());
  ASSERT_TRUE(keeper_->Open(Order(2)).ok());
  ASSERT_TRUE(keeper_->Add(*keeper_->Decode(Part(2, {5}))).ok());
  ASSERT_TRUE(keeper_->Apply(Round(2), Phase(0)).ok());
  EXPECT_EQ(Bias(), 6) << "of client 5 alone";
}

TEST_F(ModelKeeperTest, LeavesTheModelAloneWhenNobodyContributed) {
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  const Digest before = DigestOfValues(keeper_->Model());
  ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
  EXPECT_EQ(DigestOfValues(keeper_->Model()), before);
}

TEST_F(ModelKeeperTest, DecodesOnlyWhatTheOpenPhaseCanUse) {
  EXPECT_THAT(keeper_->Decode(fleet::Part{.round = Round(1)}).status().ToString(),
              HasSubstr("not open"));
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  EXPECT_TRUE(keeper_->Decode(Part(1, {1, 5})).ok());
  EXPECT_THAT(keeper_->Decode(Part(2, {1})).status().ToString(), HasSubstr("not open"));
  fleet::Part part = Part(1, {1, 5});
  part.included.pop_back();
  EXPECT_THAT(keeper_->Decode(part).status().ToString(), HasSubstr("sums hold 2"));
  part = Part(1, {1, 5});
  part.included[0].weight = 3;
  EXPECT_THAT(keeper_->Decode(part).status().ToString(), HasSubstr("sums hold 6"));
  part = Part(1, {1, 5});
  part.included[0].multiplicity = 2;
  EXPECT_FALSE(keeper_->Decode(part).ok());
}

TEST_F(ModelKeeperTest, ComesBackFromWhatItSaved) {
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  ASSERT_TRUE(keeper_->Add(*keeper_->Decode(Part(1, {1, 5}))).ok());
  ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
  auto other = *ModelKeeper::Make(**Registry().Find("fedavg"), setup_, TinyModel());
  EXPECT_NE(DigestOfValues(other.Model()), DigestOfValues(keeper_->Model()));
  ASSERT_TRUE(other.Load(keeper_->Save()).ok());
  EXPECT_EQ(DigestOfValues(other.Model()), DigestOfValues(keeper_->Model()));
  EXPECT_FALSE(other.Load({}).ok());
  EXPECT_EQ(DigestOfValues(other.Model()), DigestOfValues(keeper_->Model())) << "unchanged";
}

}  // namespace
}  // namespace macaw::server
