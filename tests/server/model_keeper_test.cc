#include "server/model_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>

#include "algorithms/around/channels.h"
#include "algorithms/mean_delta.h"
#include "proto/fleet/compact_vector.h"
#include "proto/fleet/vector_codec.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::Registry;
using fixtures::TinyDelta;
using fixtures::TinyLayout;
using fixtures::TinyModel;
using testing::HasSubstr;

constexpr double kBound = 64;

class ModelKeeperTest : public testing::Test {
 protected:
  ModelKeeperTest() { Use("fedavg"); }

  void Use(const std::string& algorithm) {
    RunPlan run = fixtures::TinyRun(1);
    run.algorithm = *Registry().Complete({algorithm, {}});
    run.contribution_bound = kBound;
    setup_ = algorithms::SetupOf(run, TinyLayout());
    channels_ = (*algorithms::SchemaOf(**Registry().Find(algorithm), setup_)).up;
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
      const std::vector<ConstVectorView> values(channels_.size(), delta.view());
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

TEST_F(ModelKeeperTest, ForgetsWhatItsAlgorithmHasSummedAndKeepsTheModel) {
  Use("scaffold");
  EXPECT_TRUE(keeper_->begins_anew());
  const Digest first = DigestOfValues(keeper_->Save().vectors.at("control").view());
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  auto sum = keeper_->Decode(Part(1, {1, 5}));
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_TRUE(keeper_->Add(*std::move(sum)).ok());
  ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
  EXPECT_NE(DigestOfValues(keeper_->Save().vectors.at("control").view()), first);
  const Digest model = keeper_->ModelBlob().digest;
  ASSERT_TRUE(keeper_->ForgetStates().ok());
  EXPECT_EQ(DigestOfValues(keeper_->Save().vectors.at("control").view()), first);
  EXPECT_EQ(keeper_->ModelBlob().digest, model);
  Use("fedavg");
  EXPECT_FALSE(keeper_->begins_anew());
}

TEST_F(ModelKeeperTest, NamesTheFloatSumsThatHaveTheBoundOfTheRun) {
  EXPECT_EQ(keeper_->BoundedByTheRun(), std::vector<std::string>{"delta"});
  Use("median");
  EXPECT_TRUE(keeper_->BoundedByTheRun().empty()) << "vectors are kept as they are";
  Use("fednova");
  EXPECT_EQ(keeper_->BoundedByTheRun(), std::vector<std::string>{"direction"})
      << "tau is of float64, with a bound of its own";
}

TEST_F(ModelKeeperTest, RefusesARuleThatSumsStatesAndCannotForgetThem) {
  algorithms::Description rule = **Registry().Find("fedavg");
  rule.schema = [inside = rule.schema](const algorithms::Setup& setup) {
    absl::StatusOr<algorithms::Schema> schema = inside(setup);
    if (schema.ok())
      schema->state.push_back({.name = "own", .layout = setup.layout, .summed = true});
    return schema;
  };
  EXPECT_THAT(ModelKeeper::Make(rule, setup_, TinyModel()).status().ToString(),
              HasSubstr("ForgetStates"));
}

class SavingNumbers final : public algorithms::MeanDeltaServer {
 public:
  SavingNumbers(const algorithms::Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)) {
    kept_.Vector("three", FlatVector(ParameterLayout::Scalars("value", 3, DType::kF64)));
  }
};

// Else the run would end, and its checkpoints be of no use.
TEST_F(ModelKeeperTest, RefusesARuleThatSavesWhatItsSchemaDoesNotName) {
  algorithms::Description rule = **Registry().Find("fedavg");
  rule.server = algorithms::MakeServer<SavingNumbers>;
  EXPECT_THAT(
      ModelKeeper::Make(rule, setup_, TinyModel()).status().ToString(),
      testing::AllOf(HasSubstr("algorithm fedavg: the server half saves the vector 'three'"),
                     HasSubstr("Schema::saved")));
}

TEST_F(ModelKeeperTest, TakesNoVectorsOfOtherClientsThanThePartNames) {
  Use("median");  // collects every client's own vector
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  fleet::Part part = Part(1, {1, 5});
  EXPECT_TRUE(keeper_->Decode(part).ok());
  part.included[1].attempt.client = ClientId(6);  // has the same weight as client 5
  EXPECT_THAT(keeper_->Decode(part).status().ToString(), HasSubstr("other clients"));
}

// The vectors of these many clients, all of them zeros, in some 13 bytes each.
fleet::Blob ZerosOf(uint64_t clients, const std::vector<aggregation::ChannelSpec>& channels,
                    const aggregation::GridOrder& grid) {
  auto sum = *aggregation::ExactSum::Make(channels, grid);
  const FlatVector zeros(channels[0].layout);
  const std::vector<ConstVectorView> values = {zeros.view()};
  EXPECT_TRUE(sum.Add({.client = ClientId(0), .weight = 1, .values = values}).ok());
  const AlignedBuffer one =
      *aggregation::ExactSum::EncodeTogether({&sum, 1}, aggregation::SumForm::kCompact);
  // clients and multiplicity, and the vectors of the one channel (exact_sum_header.h).
  constexpr size_t kClients = 48, kTimes = 56, kAlone = 72, kCollected = 88, kHead = 96;
  const size_t vector = one.size() - kHead;
  AlignedBuffer all(kHead + clients * vector);
  std::byte* const to = all.bytes().data();
  std::memcpy(to, one.bytes().data(), kHead);
  for (const size_t at : {kClients, kTimes, kCollected})
    std::memcpy(to + at, &clients, sizeof(clients));
  std::memset(to + kAlone, 0, sizeof(double));
  for (uint64_t client = 0; client < clients; ++client) {
    std::memcpy(to + kHead + client * vector, one.bytes().data() + kHead, vector);
    std::memcpy(to + kHead + client * vector, &client, sizeof(client));
  }
  return fleet::Blob::Of(std::move(all));
}

uint64_t MostMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) << 10;
}

// A device of one client sends a few kB that say they are of the whole cohort.
TEST_F(ModelKeeperTest, MakesNoVectorsOfClientsThatThePartDoesNotName) {
  constexpr uint64_t kMany = 4000;
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "0.weight", .shape = {1 << 16}}}, DType::kF32);
  RunPlan run = fixtures::TinyRun(1);
  run.algorithm = *Registry().Complete({"median", {}});
  const algorithms::Setup setup = algorithms::SetupOf(run, layout);
  const algorithms::Description& median = **Registry().Find("median");
  ModelKeeper keeper = *ModelKeeper::Make(median, setup, FlatVector(layout));
  EXPECT_TRUE(keeper.collects());
  PhaseOrder order = Order(1);
  order.grid = {.max_weight = 1,
                .total_weight = static_cast<double>(kMany),
                .max_multiplicity = 1,
                .total_multiplicity = kMany};
  ASSERT_TRUE(keeper.Open(order).ok());
  const auto channels = algorithms::UpChannels(*algorithms::MakeSchema(median, setup), Phase(0));
  ASSERT_EQ(channels.size(), 1u);
  fleet::Part part{.round = Round(1)};
  for (uint64_t client = 0; client < 2; ++client)
    part.included.push_back({.attempt = {ClientId(client), {1, client}}, .weight = 0.5});
  part.sums = ZerosOf(2, channels, order.grid);
  EXPECT_TRUE(keeper.Decode(part).ok()) << "what it would be if it were named";
  part.included.pop_back();
  part.sums = ZerosOf(kMany, channels, order.grid);
  ASSERT_LT(part.sums.size, 100'000u);
  const uint64_t before = MostMemory();
  EXPECT_THAT(keeper.Decode(part).status().ToString(),
              HasSubstr("names 1 clients but its sums hold 4000"));
  EXPECT_LT(MostMemory() - before, uint64_t{256} << 20);
}

TEST_F(ModelKeeperTest, KnowsHowLargeTheSumsOfAWholeCohortAre) {
  EXPECT_FALSE(keeper_->MostSums().ok()) << "no round is open";
  for (const char* algorithm : {"fedavg", "median"}) {
    Use(algorithm);
    ASSERT_TRUE(keeper_->Open(Order(1)).ok());
    const absl::StatusOr<LargestSums> most = keeper_->MostSums();
    ASSERT_TRUE(most.ok()) << most.status();
    EXPECT_EQ(most->bytes, Part(1, {1, 5}).sums.size) << algorithm;
    for (const uint64_t more : {2, 3}) EXPECT_EQ(most->Of(more), most->bytes) << algorithm;
    EXPECT_EQ(most->Of(1), Part(1, {5}).sums.size) << algorithm;
    EXPECT_EQ(most->Of(0), Part(1, {}).sums.size) << algorithm;
    EXPECT_GE(most->alone, Part(1, {5}).sums.size) << algorithm;
    EXPECT_LT(most->alone, 2 * Part(1, {5}).sums.size) << algorithm;
  }
}

TEST_F(ModelKeeperTest, SendsOnlyTheChannelsOfThePhase) {
  Use("mime");  // with momentum: x, c and m
  const uint64_t vector = TinyLayout()->bytes();
  PhaseOrder order = Order(1);
  const fleet::Broadcast first = keeper_->Open(order)->newest;  // x
  order.phase = Phase(1);
  const fleet::Broadcast second = keeper_->Open(order)->newest;  // x, c, m
  EXPECT_LT(first.size(), 2 * vector);
  EXPECT_EQ(second.channels.size(), 3u);
  EXPECT_GE(second.size(), 3 * vector);
  EXPECT_EQ(second.channels[0].digest, first.name) << "x did not change between the phases";
  EXPECT_EQ(second.channels[0].bytes, first.channels[0].bytes) << "and is not encoded again";
}

TEST_F(ModelKeeperTest, SendsAChannelThatDidNotChangeAsTheSameBlob) {
  Use("scaffold");  // x and c
  const fleet::Broadcast first = keeper_->Open(Order(1))->newest;
  ASSERT_EQ(first.channels.size(), 2u);
  // Nobody takes part in round 1, and clients 1 and 5 change both in round 2.
  ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
  const fleet::Broadcast second = keeper_->Open(Order(2))->newest;
  EXPECT_EQ(second.name, first.name);
  EXPECT_EQ(second.channels[1].bytes, first.channels[1].bytes) << "the same memory";
  ASSERT_TRUE(keeper_->Add(*keeper_->Decode(Part(2, {1, 5}))).ok());
  ASSERT_TRUE(keeper_->Apply(Round(2), Phase(0)).ok());
  const fleet::Broadcast third = keeper_->Open(Order(3))->newest;
  EXPECT_NE(third.name, second.name);
  for (const size_t c : {0, 1}) EXPECT_NE(third.channels[c].digest, second.channels[c].digest) << c;
}

// A coded model travels in few bytes, and its whole bytes are there for whoever asks for them.
TEST_F(ModelKeeperTest, OffersAShortFormOfACodedModel) {
  RunPlan run = fixtures::TinyRun(1);
  run.algorithm = *Registry().Complete({"fedavg", {}});
  run.broadcast = {.codec = {"bits 4"}, .of = "model"};
  const algorithms::Description rule = *Registry().RuleOf(run);
  setup_ = algorithms::SetupOf(run, TinyLayout());
  FlatVector start(TinyLayout());
  for (const LayoutEntry& entry : TinyLayout()->entries()) {
    for (uint64_t i = 0; i < entry.size; ++i)
      start.As<float>()[entry.offset + i] = 0.01f * static_cast<float>(1 + i % 13);
  }
  keeper_.emplace(*ModelKeeper::Make(rule, setup_, std::move(start)));
  const fleet::Broadcast broadcast = keeper_->Open(Order(1))->newest;
  const fleet::Blob& blob = broadcast.channels.at(0);
  ASSERT_EQ(blob.compact.size(), 1u);
  EXPECT_TRUE(blob.compact[0].base.IsZero());
  EXPECT_EQ(broadcast.size(), blob.compact[0].size);
  const auto whole = fleet::ExpandCompact(blob.compact[0].bytes->bytes(), TinyLayout());
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(std::ranges::equal(whole->bytes(), blob.bytes->bytes()));
}

// Rounds that do not wait for each other: clients may have begun from models of earlier rounds.
TEST_F(ModelKeeperTest, KeepsTheModelsFromWhichClientsTrain) {
  RunPlan run = fixtures::TinyRun(1);
  run.algorithm = *Registry().Complete({"fedavg", {}});
  run.contribution_bound = kBound;
  run.devices.family = "phones";
  run.asynchronous.mode = "buffered";
  const algorithms::Description rule = *Registry().RuleOf(run);
  setup_ = algorithms::SetupOf(run, TinyLayout());
  absl::StatusOr<ModelKeeper> keeper = ModelKeeper::Make(rule, setup_, TinyModel());
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  keeper_.emplace(*std::move(keeper));
  const auto order = [this](uint32_t round, std::vector<uint32_t> staleness,
                            std::vector<uint32_t> kept) {
    PhaseOrder made = Order(round);
    made.staleness = std::move(staleness);
    made.kept = std::move(kept);
    return made;
  };
  std::vector<Digest> models;  // by round after which they were the newest
  for (uint32_t round = 1; round <= 3; ++round) {
    const absl::StatusOr<PhaseModels> opened = keeper_->Open(order(round, {}, {1, 2}));
    ASSERT_TRUE(opened.ok()) << opened.status();
    models.push_back(opened->newest.name);
    ASSERT_TRUE(keeper_->Add(*keeper_->Decode(Part(round, {1, 5}))).ok());
    ASSERT_TRUE(keeper_->Apply(Round(round), Phase(0)).ok());
  }
  ModelKeeper resumed = *ModelKeeper::Make(rule, setup_, TinyModel());
  ASSERT_TRUE(resumed.Load(keeper_->Save()).ok());
  for (ModelKeeper* keeper : {&*keeper_, &resumed}) {
    const absl::StatusOr<PhaseModels> fourth = keeper->Open(order(4, {1, 3}, {2}));
    ASSERT_TRUE(fourth.ok()) << fourth.status();
    ASSERT_EQ(fourth->older.size(), 2u);
    EXPECT_EQ(fourth->older[0].staleness, 1u);
    EXPECT_EQ(fourth->older[0].broadcast.name, models[2]);
    EXPECT_EQ(fourth->older[1].staleness, 3u);
    EXPECT_EQ(fourth->older[1].broadcast.name, models[0]);
  }
  // Of the models that nobody needs none is kept, newer or older than those that are.
  ASSERT_TRUE(keeper_->Open(order(4, {1}, {3})).ok());
  EXPECT_EQ(keeper_->Save().vectors.size(), 1u + 3) << "the model, and those of 0, 2 and 3";
  EXPECT_FALSE(keeper_->Open(order(4, {2}, {3})).ok());
  EXPECT_TRUE(keeper_->Open(order(4, {3}, {})).ok());
}

// A round's bytes do not depend on when the server was started.
TEST_F(ModelKeeperTest, AChangeThatChangesNothingHasAFormOfItsOwn) {
  RunPlan run = fixtures::TinyRun(1);
  run.algorithm = *Registry().Complete({"fedavg", {}});
  run.cohort.size = run.clients;
  run.broadcast = {.codec = {"threshold 1000"}, .of = "change"};
  const algorithms::Description rule = *Registry().RuleOf(run);
  setup_ = algorithms::SetupOf(run, TinyLayout());
  keeper_.emplace(*ModelKeeper::Make(rule, setup_, TinyModel()));
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
  ModelKeeper resumed = *ModelKeeper::Make(rule, setup_, TinyModel());
  ASSERT_TRUE(resumed.Load(keeper_->Save()).ok());
  const fleet::Broadcast again = keeper_->Open(Order(2))->newest,
                         first = resumed.Open(Order(2))->newest;
  EXPECT_EQ(again.name, first.name);
  EXPECT_EQ(again.size(), first.size());
  EXPECT_LT(again.size(), TinyLayout()->bytes());
}

// FedAvg that also reports metrics: the number of clients, and what it spent.
class Spending final : public algorithms::MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;
  absl::StatusOr<algorithms::AfterApply> Apply(const algorithms::ServerContext& context,
                                               aggregation::Aggregate aggregate) override {
    EXPECT_EQ(aggregate.channels.size(), 1u) << "metrics are not the rule's channels";
    context.Report("epsilon", 0.5 * context.round.value);
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }
};

class RuleMetrics : public ModelKeeperTest {
 protected:
  RuleMetrics() {
    rule_ = **Registry().Find("fedavg");
    rule_.schema = [](const algorithms::Setup& setup) -> absl::StatusOr<algorithms::Schema> {
      algorithms::Schema schema = algorithms::MeanDeltaSchema(setup);
      schema.metrics = {{"clipped", aggregation::Reduction::kFixedSum, /*bound=*/1},
                        {"epsilon", std::nullopt}};
      return schema;
    };
    rule_.server = algorithms::MakeServer<Spending>;
    keeper_.emplace(*ModelKeeper::Make(rule_, setup_, TinyModel()));
    schema_ = *algorithms::SchemaOf(rule_, setup_);
  }

  // A part of clients 1 and 5, each of which reports `clipped`.
  fleet::Part PartOf(double clipped) {
    fleet::Part part = Part(1, {1, 5});
    auto sum =
        *aggregation::ExactSum::Make(algorithms::UpChannels(schema_, Phase(0)), Order(1).grid);
    algorithms::Workspace workspace;
    for (const fleet::ClientRecord& record : part.included) {
      const FlatVector delta = TinyDelta(record.attempt.client, keeper_->Model());
      const auto values = algorithms::UpViews(
          schema_, Phase(0), {.up = {{"delta", delta.view()}}, .metrics = {{"clipped", clipped}}},
          workspace);
      EXPECT_TRUE(values.ok()) << values.status();
      EXPECT_TRUE(
          sum.Add({.client = record.attempt.client, .weight = record.weight, .values = *values})
              .ok());
    }
    sums_ = sum.Encode();
    part.sums = fleet::Blob::Of(sum.Encode());
    return part;
  }

  algorithms::Description rule_;
  algorithms::Schema schema_;
  AlignedBuffer sums_;
};

TEST_F(RuleMetrics, OfClientsAndOfTheServerAreKeptForTheRow) {
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  ASSERT_TRUE(keeper_->Add(*keeper_->Decode(PartOf(0.75))).ok());
  ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
  EXPECT_EQ(keeper_->metrics(), (ModelKeeper::Numbers{{"clipped", 1.5}, {"epsilon", 0.5}}));
  ASSERT_EQ(keeper_->headroom().size(), 1u) << "a metric has no column used_bound_…";
  ASSERT_TRUE(keeper_->Open(Order(2)).ok());
  ASSERT_TRUE(keeper_->Apply(Round(2), Phase(0)).ok());  // no client was counted
  EXPECT_EQ(keeper_->metrics(), (ModelKeeper::Numbers{{"clipped", 0}, {"epsilon", 1}}));
}

TEST_F(RuleMetrics, NoBytesOfAPartMakeOneLargerThanItsClientsMayClaim) {
  ASSERT_TRUE(keeper_->Open(Order(1)).ok());
  const fleet::Part honest = PartOf(1);
  int accepted = 0;
  for (size_t word = 0; word < sums_.size() / sizeof(uint64_t); ++word) {
    for (const uint64_t lie : {~uint64_t{0} >> 1, uint64_t{1} << 60, uint64_t{0x7ff8} << 48}) {
      AlignedBuffer bytes(sums_.size());
      std::memcpy(bytes.bytes().data(), sums_.bytes().data(), sums_.size());
      std::memcpy(bytes.bytes().data() + word * sizeof(lie), &lie, sizeof(lie));
      fleet::Part part = honest;
      part.sums = fleet::Blob::Of(std::move(bytes));
      absl::StatusOr<aggregation::ExactSum> sum = keeper_->Decode(part);
      if (!sum.ok()) continue;
      ++accepted;
      ASSERT_TRUE(keeper_->Open(Order(1)).ok());
      ASSERT_TRUE(keeper_->Add(*std::move(sum)).ok());
      ASSERT_TRUE(keeper_->Apply(Round(1), Phase(0)).ok());
      EXPECT_LE(std::fabs(keeper_->metrics()[0].second), 2 + 1e-9) << "word " << word;
      ASSERT_TRUE(keeper_->Open(Order(1)).ok());
    }
  }
  EXPECT_GT(accepted, 0) << "padding, at least";
}

TEST_F(ModelKeeperTest, SendsTheModelUnderItsDigest) {
  const auto broadcast = keeper_->Open(Order(1));
  ASSERT_TRUE(broadcast.ok()) << broadcast.status();
  ASSERT_EQ(broadcast->newest.channels.size(), 1u) << "FedAvg sends the model and no more";
  EXPECT_EQ(broadcast->newest.name, keeper_->ModelBlob().digest);
  const LayoutPtr layouts[] = {TinyLayout()};
  const auto views = fleet::DecodeVectors(broadcast->newest.channels[0].bytes->bytes(), layouts);
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

// Of a run whose bias is frozen.
class FrozenKeeper : public testing::Test {
 protected:
  FrozenKeeper() {
    RunPlan run = fixtures::TinyRun(1);
    run.algorithm = *Registry().Complete({"fedavgm", {}});
    run.model.frozen = {"0.bias"};
    setup_ = algorithms::SetupOf(run, TinyLayout());
    rule_ = *Registry().RuleOf(run);
  }
  ModelKeeper Make(FlatVector initial) const {
    return *ModelKeeper::Make(rule_, setup_, std::move(initial));
  }
  static FlatVector WithBias(float bias) {
    FlatVector model = TinyModel();
    model.As<float>()[TinyLayout()->Find("0.bias")->offset] = bias;
    return model;
  }
  static float BiasOf(const ModelKeeper& keeper) {
    return keeper.split()->base_view().As<float>()[0];
  }

  algorithms::Setup setup_;
  algorithms::Description rule_;
};

TEST_F(FrozenKeeper, SendsWhatIsTrainedUnderTheNameOfTheWhole) {
  ModelKeeper keeper = Make(TinyModel());
  const auto models = keeper.Open({.round = Round(1)});
  ASSERT_TRUE(models.ok()) << models.status();
  const FlatVector whole = TinyModel();
  const ConstVectorView view = whole.view();
  const fleet::Blob& sent = models->newest.channels[0];
  EXPECT_EQ(sent.digest, fleet::Blob::Of(fleet::EncodeVectors({&view, 1})).digest);
  ASSERT_TRUE(sent.has_parts());
  EXPECT_EQ(sent.bytes, nullptr);
  EXPECT_EQ(keeper.ModelBlob().digest, sent.digest);
  const algorithms::ServerState saved = keeper.Save();
  for (const auto& [name, vector] : saved.vectors)
    EXPECT_EQ(vector.layout()->Find("0.bias"), nullptr) << name;
}

// Release 0.1.0 saved whole models.
TEST_F(FrozenKeeper, TakesAStateOfAnEarlierRelease) {
  ModelKeeper keeper = Make(TinyModel());
  algorithms::ServerState state = keeper.Save();
  state.vectors["whole_model"] = WithBias(9);
  state.vectors["model_after_3"] = WithBias(9);
  ASSERT_TRUE(keeper.Load(state).ok());
  EXPECT_EQ(BiasOf(keeper), 9);
  const algorithms::ServerState saved = keeper.Save();
  EXPECT_FALSE(saved.vectors.contains("whole_model"));
  const FlatVector& older = saved.vectors.at("model_after_3");
  EXPECT_EQ(older.layout()->digest(), keeper.split()->parts().trained.layout()->digest());
  EXPECT_EQ(older.As<float>()[2], 3);
  EXPECT_EQ(keeper.ModelBlob().digest, Make(WithBias(9)).ModelBlob().digest);
}

}  // namespace
}  // namespace macaw::server
