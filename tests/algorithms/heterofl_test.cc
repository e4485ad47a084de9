#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "models/slice.h"
#include "models/spec.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/heterofl_network.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Whether a model of rate 0.5 has the number, from the sizes of the network.
bool HalfHas(size_t entry, size_t place) {
  switch (entry) {
    case 0:  // conv [4, 1, 3, 3]
      return place / 9 < 2;
    case 1:
      return place < 2;
    case 2:  // linear [6, 4 · 2 · 2]
      return place / 16 < 3 && place % 16 / 4 < 2;
    case 3:
      return place < 3;
    case 4:  // output [3, 6]
      return place % 6 < 3;
    default:
      return true;
  }
}

// The halves of a run of four clients with weights 1 to 4, and what happens between them; clients'
// training is made up.
class HeteroFlRun {
 public:
  explicit HeteroFlRun(Parameters parameters, DType dtype = DType::kF64) {
    Registry registry;
    registry.AddBuiltin(BuiltinAlgorithms());
    setup_.model = SmallNetwork();
    spec_ = *models::BuildSpec(setup_.model, dtype);
    setup_.layout = spec_.layout;
    setup_.clients = 4;
    setup_.total_weight = 10;
    setup_.seed = 3;
    setup_.cohort.size = 4;
    setup_.config = *registry.Complete({"heterofl", std::move(parameters)});
    rule_ = **registry.Find("heterofl");
    schema_ = *MakeSchema(rule_, setup_);
    client_ = *rule_.client(setup_);
    server_ = *rule_.server(setup_, models::InitialModel(spec_, 5));
  }

  const models::ModelSpec& spec() const { return spec_; }
  ServerAlgorithm& server() { return *server_; }
  std::vector<std::string> Notes() const { return rule_.notes(setup_); }
  std::map<std::string, double> metrics;

  ClientContext Context(size_t client, uint32_t round = 1) {
    broadcast_ = {server_->Model()};
    ClientContext context;
    context.round = macaw::Round(round);
    context.client = ClientId(client);
    context.weight = static_cast<double>(client + 1);
    context.local = setup_.local;
    context.broadcast = broadcast_;
    context.seed = setup_.seed;
    context.schema = &schema_;
    return context;
  }
  training::Stage StageOf(size_t client, uint32_t round = 1) {
    workspace_.Reset();
    return client_->Prepare(Context(client, round), workspace_)->stages.at(0);
  }

  std::string Refusal(size_t client) {
    workspace_.Reset();
    return std::string(client_->Prepare(Context(client), workspace_).status().message());
  }

  // What clients trained: by client, the end of its stage from the stage's start; `classes` of its
  // outcome.
  using Train = std::function<void(size_t client, VectorView end)>;
  absl::Status Round(const std::vector<size_t>& cohort, const Train& train,
                     const std::map<size_t, std::vector<bool>>& classes = {}) {
    const std::vector<aggregation::ChannelSpec> channels = UpChannels(schema_, Phase(0));
    aggregation::ExactSum sum = *aggregation::ExactSum::Make(
        channels, {.max_weight = 4, .total_weight = 10, .total_multiplicity = 4});
    for (const size_t client : cohort) {
      const training::Stage stage = StageOf(client);
      const ClientContext context = Context(client);
      const auto start = std::get<ConstVectorView>(stage.start);
      FlatVector end = FlatVector::CopyOf(start, SliceLayout(stage.width.rate));
      train(client, end.view());
      training::StageOutcome outcome;
      outcome.end = end.view();
      if (classes.contains(client)) outcome.classes = classes.at(client);
      const ClientResult result = *client_->Conclude(context, {&outcome, 1}, workspace_);
      const std::vector<ConstVectorView> values = *UpViews(schema_, Phase(0), result, workspace_);
      const aggregation::Contribution contribution{
          .client = ClientId(client), .weight = context.weight, .values = values};
      bytes[client] = sum.BytesAlone(contribution);
      if (const absl::Status added = sum.Add(contribution); !added.ok()) return added;
    }
    const ServerContext context{.round = macaw::Round(1), .metrics = &metrics, .schema = &schema_};
    return server_->Apply(context, *std::move(sum).Report()).status();
  }
  std::map<size_t, uint64_t> bytes;  // of each client's part in the last round

  // What follows from these means of the round's clients, whatever clients have sent.
  absl::Status Apply(double delta, const std::vector<double>& held) {
    aggregation::Aggregate aggregate{.clients = 2, .channels = {}};
    for (const aggregation::ChannelSpec& spec : UpChannels(schema_, Phase(0))) {
      aggregation::AggregatedChannel& channel = aggregate.channels.emplace_back();
      channel.name = spec.name;
      channel.weight = 2;
      channel.value = FlatVector(spec.layout);
      if (spec.name == "delta") Fill(delta, channel.value.view());
      if (spec.name == "held") std::ranges::copy(held, channel.value.As<double>().begin());
    }
    const ServerContext context{.round = macaw::Round(1), .metrics = &metrics, .schema = &schema_};
    return server_->Apply(context, std::move(aggregate)).status();
  }

  LayoutPtr SliceLayout(double rate) const {
    return rate == 1 ? spec_.layout : models::SliceOf(spec_, {.rate = rate})->layout;
  }

 private:
  Setup setup_;
  models::ModelSpec spec_;
  Description rule_;
  Schema schema_;
  std::unique_ptr<ClientAlgorithm> client_;
  std::unique_ptr<ServerAlgorithm> server_;
  Workspace workspace_;
  std::vector<ConstVectorView> broadcast_;
};

const Parameters kHalves = {{"rates", "1 0.5"}, {"mask", false}};

// Every number of a client's part moves by the client's own step.
void MoveBy(double step, VectorView end) {
  for (const LayoutEntry& entry : end.layout->entries())
    for (double& value : end.As<double>().subspan(entry.offset, entry.size)) value += step;
}
double StepOf(size_t client) { return 0.25 * static_cast<double>(client + 1); }

// What each number of the model has moved by.
using Expected = std::function<double(size_t entry, size_t place)>;
void ExpectMoved(HeteroFlRun& run, const FlatVector& before, const Expected& expected) {
  const std::vector<LayoutEntry>& entries = run.spec().layout->entries();
  const ConstVectorView after = run.server().Model();
  for (size_t e = 0; e < entries.size(); ++e) {
    for (size_t i = 0; i < entries[e].size; ++i) {
      const size_t at = entries[e].offset + i;
      EXPECT_NEAR(after.As<double>()[at] - before.As<double>()[at], expected(e, i), 1e-13)
          << entries[e].name << " " << i;
    }
  }
}

TEST(HeteroFl, OfRatesOfOneIsFedAvg) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop heterofl(Builtin("heterofl"), Q4(), {.parameters = {{"rates", "1"}}, .dtype = dtype});
    RoundLoop fedavg(Builtin("fedavg"), Q4(), {.dtype = dtype});
    for (int round = 0; round < 5; ++round) {
      ASSERT_TRUE(heterofl.SampledRounds(1, 3).ok());
      ASSERT_TRUE(fedavg.SampledRounds(1, 3).ok());
      EXPECT_EQ(heterofl.ModelDigest(), fedavg.ModelDigest());
      EXPECT_EQ(heterofl.metrics().at("mean_rate"), 1);
    }
  }
}

TEST(HeteroFl, AClientTrainsItsSlice) {
  HeteroFlRun run(kHalves);
  for (size_t client = 0; client < 4; ++client) {
    const training::Stage stage = run.StageOf(client);
    const bool half = client >= 2;  // "fix": the first clients have the widest model
    EXPECT_EQ(stage.width, (half ? models::Width{.rate = 0.5, .scaled = true} : models::Width()));
    EXPECT_FALSE(stage.masks_classes);
    const auto start = std::get<ConstVectorView>(stage.start);
    EXPECT_EQ(start.layout->digest(), run.SliceLayout(half ? 0.5 : 1)->digest());
    FlatVector expected(run.SliceLayout(half ? 0.5 : 1));
    models::ExtractSlice(run.server().Model(), expected.view());
    EXPECT_EQ(DigestOfValues(start), DigestOfValues(expected.view()));
  }
}

TEST(HeteroFl, EachNumberMovesByTheMeanOfThoseWhoTrainIt) {
  HeteroFlRun run(kHalves);
  const FlatVector before = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  ASSERT_TRUE(
      run.Round({0, 1, 2, 3}, [](size_t client, VectorView end) { MoveBy(StepOf(client), end); })
          .ok());
  const double all = (1 * .25 + 2 * .5 + 3 * .75 + 4 * 1.) / 10, wide = (1 * .25 + 2 * .5) / 3;
  ExpectMoved(run, before, [&](size_t e, size_t i) { return HalfHas(e, i) ? all : wide; });
  EXPECT_NEAR(run.metrics.at("mean_rate"), (3 * 1 + 7 * 0.5) / 10, 1e-15);
}

TEST(HeteroFl, WhatNobodyTrainsStays) {
  HeteroFlRun run(kHalves);
  const FlatVector before = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  ASSERT_TRUE(
      run.Round({2, 3}, [](size_t client, VectorView end) { MoveBy(StepOf(client), end); }).ok());
  const double narrow = (3 * .75 + 4 * 1.) / 7;
  ExpectMoved(run, before, [&](size_t e, size_t i) { return HalfHas(e, i) ? narrow : 0; });
  const Digest moved = DigestOfValues(run.server().Model());
  ASSERT_TRUE(run.Round({}, nullptr).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), moved);
}

// Honest clients' mean is no larger than their updates may be. One that says it had next to nothing
// of the wide part divides by next to nothing.
TEST(HeteroFl, AClientThatLiesAboutItsWidthMovesNoNumberBeyondTheBound) {
  const double bound = algorithms::Setup().contribution_bound;
  for (const double wide : {1e-300, 1e-12, -1e-12, -0.7}) {
    HeteroFlRun run(kHalves);
    const FlatVector before = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
    ASSERT_TRUE(run.Apply(3, {wide, 0.5}).ok());
    const std::vector<LayoutEntry>& entries = run.spec().layout->entries();
    const ConstVectorView after = run.server().Model();
    for (size_t e = 0; e < entries.size(); ++e) {
      for (size_t i = 0; i < entries[e].size; ++i) {
        const size_t at = entries[e].offset + i;
        const double share = HalfHas(e, i) ? wide + 0.5 : wide;
        const double moved = share > 0 ? std::min(3 / share, bound) : 0;
        EXPECT_NEAR(after.As<double>()[at] - before.As<double>()[at], moved, 1e-9) << e << " " << i;
      }
    }
  }
}

// A class without rows is trained by nobody: decay moves it at the client, and the client does not
// count in its mean.
TEST(HeteroFl, AClassMovesByThoseWhoHaveIt) {
  HeteroFlRun run(Parameters{{"rates", "1 0.5"}});
  EXPECT_TRUE(run.StageOf(0).masks_classes);
  const FlatVector before = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  const std::map<size_t, std::vector<bool>> classes = {{1, {true, true, false}},
                                                       {2, {false, true, false}}};
  ASSERT_TRUE(
      run.Round(
             {0, 1, 2}, [](size_t client, VectorView end) { MoveBy(StepOf(client), end); }, classes)
          .ok());
  const auto mean = [](std::vector<size_t> of) {
    double sum = 0, weight = 0;
    for (const size_t client : of) {
      const auto w = static_cast<double>(client + 1);
      sum += w * StepOf(client);
      weight += w;
    }
    return weight > 0 ? sum / weight : 0;
  };
  const std::vector<std::vector<size_t>> have = {{0, 1}, {0, 1, 2}, {0}};
  ExpectMoved(run, before, [&](size_t e, size_t i) {
    std::vector<size_t> who = {0, 1, 2};
    if (e >= 4) who = have[e == 4 ? i / 6 : i];
    if (!HalfHas(e, i)) std::erase(who, size_t{2});
    return mean(who);
  });
}

TEST(HeteroFl, ANarrowClientSendsLess) {
  HeteroFlRun run(kHalves, DType::kF32);
  const auto random = [](size_t client, VectorView end) {
    RandomStream stream({.seed = 9, .client = ClientId(client)});
    for (const LayoutEntry& entry : end.layout->entries())
      for (float& value : end.As<float>().subspan(entry.offset, entry.size))
        value += static_cast<float>(stream.Normal());
  };
  ASSERT_TRUE(run.Round({0, 3}, random).ok());
  const auto whole = static_cast<double>(run.spec().layout->count()),
             half = static_cast<double>(run.SliceLayout(0.5)->count());
  EXPECT_LT(half / whole, 0.5);
  EXPECT_LT(static_cast<double>(run.bytes[3]),
            (half / whole + 0.15) * static_cast<double>(run.bytes[0]));
}

// An evaluation has no scaler: the factor 1/r that the slice was trained with is in the weights of
// hidden layers. Those of the output layer are as they are.
TEST(HeteroFl, EvaluatesASliceAsItWasTrainedWithZerosAround) {
  for (const bool scaler : {true, false}) {
    Parameters parameters = kHalves;
    parameters["evaluate"] = 0.5;
    parameters["scaler"] = scaler;
    HeteroFlRun run(parameters);
    for (int round = 0; round < 2; ++round) {
      const ConstVectorView model = run.server().Model(), result = run.server().Result();
      const std::vector<LayoutEntry>& entries = run.spec().layout->entries();
      for (size_t e = 0; e < entries.size(); ++e) {
        const double factor = scaler && e < 4 ? 2 : 1;
        for (size_t i = 0; i < entries[e].size; ++i) {
          const size_t at = entries[e].offset + i;
          EXPECT_EQ(result.As<double>()[at], HalfHas(e, i) ? factor * model.As<double>()[at] : 0);
        }
      }
      ASSERT_TRUE(run.Round({0, 2}, [](size_t, VectorView end) { MoveBy(1, end); }).ok());
    }
    HeteroFlRun resumed(parameters);
    ASSERT_TRUE(resumed.server().Load(run.server().Save()).ok());
    EXPECT_EQ(DigestOfValues(resumed.server().Result()), DigestOfValues(run.server().Result()));
  }
}

std::vector<double> RatesOf(const Parameters& parameters, uint32_t round) {
  HeteroFlRun run(parameters);
  std::vector<double> rates;
  for (size_t client = 0; client < 400; ++client)
    rates.push_back(run.StageOf(client, round).width.rate);
  return rates;
}

TEST(HeteroFl, DrawsRatesOnceOrInEachRound) {
  Parameters parameters = {{"rates", "1 0.5 0.25"}, {"shares", "6 3 1"}, {"assign", "once"}};
  const std::vector<double> once = RatesOf(parameters, 1);
  EXPECT_EQ(RatesOf(parameters, 2), once);
  parameters["assign"] = "dynamic";
  const std::vector<double> dynamic = RatesOf(parameters, 1);
  EXPECT_NE(RatesOf(parameters, 2), dynamic);
  EXPECT_EQ(RatesOf(parameters, 1), dynamic);
  for (const std::vector<double>& rates : {once, dynamic}) {
    // Within five standard deviations of a binomial's.
    EXPECT_NEAR(std::ranges::count(rates, 1.0), 240, 5 * std::sqrt(400 * .6 * .4));
    EXPECT_NEAR(std::ranges::count(rates, 0.25), 40, 5 * std::sqrt(400 * .1 * .9));
  }
}

// Of four clients, the first ⌊4·s_1/Σs⌋ have the widest model.
TEST(HeteroFl, FixDividesTheClientsByShares) {
  const std::map<std::string, size_t> wide = {
      {"1 2", 1}, {"1 1", 2}, {"50 50", 2}, {"30 70", 1}, {"999999999 333333333", 3}};
  for (const auto& [shares, count] : wide) {
    HeteroFlRun run(Parameters{{"rates", "1 0.5"}, {"shares", shares}});
    for (size_t client = 0; client < 4; ++client)
      EXPECT_EQ(run.StageOf(client).width.rate, client < count ? 1 : 0.5)
          << shares << " " << client;
  }
}

TEST(HeteroFl, NotesWhatNoClientTrains) {
  const auto notes = [](Parameters parameters) {
    return HeteroFlRun(std::move(parameters)).Notes();
  };
  EXPECT_THAT(notes({{"rates", "0.5 0.25"}}), testing::ElementsAre(HasSubstr("rate 0.5 lacks")));
  EXPECT_THAT(notes({{"rates", "1 0.5"}, {"evaluate", 0.5}}), testing::IsEmpty());
}

TEST(HeteroFl, AClientBeyondTheNumbersHasNoRate) {
  for (const Parameters& parameters :
       {Parameters{{"rates", "1 0.5"}},
        Parameters{{"rates", "1 0.5"}, {"assign", "list"}, {"each", "0.5 1 0.5 1"}}}) {
    HeteroFlRun run(parameters);
    EXPECT_EQ(run.Refusal(3), "");
    EXPECT_THAT(run.Refusal(4), AllOf(HasSubstr("client 4 has no rate"), HasSubstr("4 clients")));
  }
  HeteroFlRun drawn(Parameters{{"rates", "1 0.5"}, {"assign", "once"}});
  EXPECT_EQ(drawn.Refusal(4), "");
}

TEST(HeteroFl, TakesAListOfRates) {
  HeteroFlRun run(Parameters{{"rates", "1 0.5"}, {"assign", "list"}, {"each", "0.5 1 0.5 1"}});
  const double expected[] = {0.5, 1, 0.5, 1};
  for (size_t client = 0; client < 4; ++client)
    EXPECT_EQ(run.StageOf(client).width.rate, expected[client]);
}

}  // namespace
}  // namespace macaw::algorithms
