// Rules that solve for a model from sums over rows: ridge, kmeans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "core/random.h"
#include "models/spec.h"
#include "training/api/row_statistics.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

using Table = std::vector<std::vector<double>>;

// A client's rows.
struct SummedRows {
  Table x;
  std::vector<int64_t> classes;
  std::vector<double> targets;
};

// A run without a trainer: a client's statistics are added up here.
class SummingRun {
 public:
  SummingRun(const std::string& rule, const std::vector<std::string>& layers, int64_t width,
             int64_t outputs, std::map<std::string, ParameterValue> parameters, TaskKind task) {
    registry_.AddBuiltin(BuiltinAlgorithms());
    setup_.model.name = "layers";
    setup_.model.layers = layers;
    setup_.model.input_shape = {width};
    setup_.model.classes = outputs;
    spec_ = *models::BuildSpec(setup_.model, DType::kF64);
    setup_.layout = spec_.layout;
    setup_.task = task;
    setup_.clients = 5;
    setup_.total_weight = 5;
    setup_.seed = 4;
    setup_.cohort.size = 5;
    setup_.config = *registry_.Complete({rule, std::move(parameters)});
    const Description& description = **registry_.Find(rule);
    schema_ = *MakeSchema(description, setup_);
    client_ = *description.client(setup_);
    server_ = *description.server(setup_, models::InitialModel(spec_, 5));
    for (const NamedLayout& item : schema_.state) zero_.emplace_back(item.layout);
  }

  absl::Status Round(const std::map<size_t, SummedRows>& clients) {
    aggregation::ExactSum sum =
        *aggregation::ExactSum::Make(UpChannels(schema_, Phase(0)),
                                     {.max_weight = 1, .total_weight = 5, .total_multiplicity = 5});
    for (const auto& [client, rows] : clients) {
      workspace_.Reset();
      const std::vector<ConstVectorView> broadcast = {server_->Model()};
      std::vector<ConstVectorView> state;
      for (const FlatVector& item : states_.contains(client) ? states_[client] : zero_)
        state.push_back(item.view());
      ClientContext context;
      context.client = ClientId(client);
      context.broadcast = broadcast;
      context.state = state;
      context.schema = &schema_;
      const training::LocalPlan plan = *client_->Prepare(context, workspace_);
      std::vector<training::StageOutcome> outcomes;
      FlatVector sums;
      for (const training::Stage& stage : plan.stages) {
        EXPECT_EQ(stage.kind, training::StageKind::kStatistics);
        sums = FlatVector(stage.statistics->layout());
        Add(*stage.statistics, rows, std::get<ConstVectorView>(stage.start), sums.view());
        outcomes.emplace_back().end = sums.view();
      }
      const ClientResult result = *client_->Conclude(context, outcomes, workspace_);
      const auto values = *UpViews(schema_, Phase(0), result, workspace_);
      if (const absl::Status added = sum.Add({.client = ClientId(client), .values = values});
          !added.ok())
        return added;
      const auto next = *StateViews(schema_, state, result);
      if (next.empty()) continue;
      std::vector<FlatVector> kept;
      for (size_t i = 0; i < next.size(); ++i)
        kept.push_back(FlatVector::CopyOf(next[i], schema_.state[i].layout));
      states_[client] = std::move(kept);
    }
    const ServerContext context{.round = macaw::Round(++round_),
                                .seed = setup_.seed,
                                .metrics = &metrics,
                                .schema = &schema_};
    return server_->Apply(context, *std::move(sum).Report()).status();
  }

  // What follows from these sums, whatever clients have sent.
  absl::Status Apply(const std::map<std::string, std::vector<double>>& by_entry) {
    const aggregation::ChannelSpec spec = UpChannels(schema_, Phase(0)).front();
    aggregation::Aggregate aggregate{.clients = 1, .channels = {}};
    aggregation::AggregatedChannel& channel = aggregate.channels.emplace_back();
    channel.name = spec.name;
    channel.value = FlatVector(spec.layout);
    for (const auto& [entry, numbers] : by_entry) {
      const auto at = static_cast<ptrdiff_t>(spec.layout->Find(entry)->offset);
      std::ranges::copy(numbers, channel.value.As<double>().begin() + at);
    }
    const ServerContext context{.round = macaw::Round(++round_),
                                .seed = setup_.seed,
                                .metrics = &metrics,
                                .schema = &schema_};
    return server_->Apply(context, std::move(aggregate)).status();
  }

  // The model's weights [outputs, width] and biases.
  double Weight(size_t k, size_t i) const { return At(0, k * Width() + i); }
  double Bias(size_t k) const { return At(1, k); }
  ServerAlgorithm& server() { return *server_; }
  const models::ModelSpec& spec() const { return spec_; }
  std::map<std::string, double> metrics;

 private:
  size_t Width() const { return static_cast<size_t>(spec_.layout->entries()[0].shape[1]); }
  double At(size_t e, size_t i) const {
    return server_->Model().As<double>()[spec_.layout->entries()[e].offset + i];
  }
  // In two parts, which must not matter.
  static void Add(const training::RowStatistics& statistics, const SummedRows& rows,
                  ConstVectorView at, VectorView sums) {
    const size_t count = rows.x.size();
    for (const auto& [begin, end] : {std::pair<size_t, size_t>(0, count / 2), {count / 2, count}}) {
      std::vector<double> features;
      for (size_t r = begin; r < end; ++r)
        features.insert(features.end(), rows.x[r].begin(), rows.x[r].end());
      const auto part = [&](const auto& labels) {
        return labels.empty()
                   ? labels
                   : std::decay_t<decltype(labels)>(labels.begin() + static_cast<ptrdiff_t>(begin),
                                                    labels.begin() + static_cast<ptrdiff_t>(end));
      };
      const std::vector<int64_t> classes = part(rows.classes);
      const std::vector<double> targets = part(rows.targets);
      statistics.Add(
          {.width = rows.x[0].size(), .features = features, .classes = classes, .targets = targets},
          at, sums);
    }
  }

  Registry registry_;
  Setup setup_;
  models::ModelSpec spec_;
  Schema schema_;
  std::unique_ptr<ClientAlgorithm> client_;
  std::unique_ptr<ServerAlgorithm> server_;
  Workspace workspace_;
  std::vector<FlatVector> zero_;
  std::map<size_t, std::vector<FlatVector>> states_;
  uint32_t round_ = 0;
};

std::map<size_t, SummedRows> RegressionClients() {
  RandomStream random({.seed = 8});
  std::map<size_t, SummedRows> clients;
  for (size_t client = 0; client < 3; ++client) {
    for (size_t r = 0; r < 4 + client; ++r) {
      const std::vector<double> x = {random.Normal(), random.Normal() + 1, random.Normal()};
      clients[client].targets.push_back(2 * x[0] - x[1] + 0.5 + 0.3 * random.Normal());
      clients[client].x.push_back(x);
    }
  }
  return clients;
}

// At the minimum the gradient over all rows vanishes: Σ e·x + λw = 0, Σ e = 0.
void ExpectTheMinimum(const SummingRun& run, const std::map<size_t, SummedRows>& clients,
                      double lambda) {
  std::vector<double> gradient = {lambda * run.Weight(0, 0), lambda * run.Weight(0, 1),
                                  lambda * run.Weight(0, 2), 0};
  for (const auto& [client, rows] : clients) {
    for (size_t r = 0; r < rows.x.size(); ++r) {
      double error = run.Bias(0) - rows.targets[r];
      for (size_t i = 0; i < 3; ++i) error += run.Weight(0, i) * rows.x[r][i];
      for (size_t i = 0; i < 3; ++i) gradient[i] += error * rows.x[r][i];
      gradient[3] += error;
    }
  }
  for (const double g : gradient) EXPECT_NEAR(g, 0, 1e-12);
}

TEST(Ridge, OfAllClientsIsExactAfterOneRound) {
  for (const double lambda : {0.0, 0.7, 20.0}) {
    SummingRun run("ridge", {"linear 1"}, 3, 1, {{"lambda", lambda}}, TaskKind::kRegression);
    const auto clients = RegressionClients();
    ASSERT_TRUE(run.Round(clients).ok());
    ExpectTheMinimum(run, clients, lambda);
    EXPECT_EQ(run.metrics.at("rows"), 4 + 5 + 6);
  }
}

TEST(Ridge, CountsEachClientOnceAndAResumedServerGoesOn) {
  const auto clients = RegressionClients();
  SummingRun run("ridge", {"linear 1"}, 3, 1, {}, TaskKind::kRegression);
  ASSERT_TRUE(run.Round({{1, clients.at(1)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 5);
  ASSERT_TRUE(run.Round({}).ok());
  const ServerState saved = run.server().Save();
  ASSERT_TRUE(run.server().Load(saved).ok());
  ASSERT_TRUE(run.Round({{0, clients.at(0)}, {1, clients.at(1)}}).ok());
  ASSERT_TRUE(run.Round({{2, clients.at(2)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 15);
  ExpectTheMinimum(run, clients, 1);
}

TEST(Ridge, AFeatureThatSaysNothingHasNoWeight) {
  SummingRun run("ridge", {"linear 1"}, 2, 1, {{"lambda", 0.0}}, TaskKind::kRegression);
  const SummedRows rows{.x = {{1, 2}, {2, 4}, {3, 6}, {5, 10}}, .targets = {3, 5, 7, 11}};
  ASSERT_TRUE(run.Round({{0, rows}}).ok());
  EXPECT_NEAR(run.Weight(0, 0), 2, 1e-12);
  EXPECT_EQ(run.Weight(0, 1), 0);
  EXPECT_NEAR(run.Bias(0), 1, 1e-12);
}

TEST(Ridge, FitsAnOutputToEachClass) {
  SummingRun run("ridge", {"linear 3"}, 1, 3, {{"lambda", 0.0}}, TaskKind::kClassification);
  // With x² missing each output is a line through its class's share of the rows.
  const SummedRows rows{.x = {{-1}, {0}, {1}}, .classes = {0, 1, 2}};
  ASSERT_TRUE(run.Round({{0, rows}}).ok());
  const double slopes[] = {-0.5, 0, 0.5};
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(run.Weight(k, 0), slopes[k], 1e-14);
    EXPECT_NEAR(run.Bias(k), 1.0 / 3, 1e-14);
  }
  SummingRun signs("ridge", {"linear 1"}, 1, 1, {{"lambda", 0.0}}, TaskKind::kBinary);
  ASSERT_TRUE(signs.Round({{0, {.x = {{-2}, {2}}, .classes = {0, 1}}}}).ok());
  EXPECT_NEAR(signs.Weight(0, 0), 0.5, 1e-14);
  EXPECT_NEAR(signs.Bias(0), 0, 1e-14);
}

// Two clouds, of which each client has parts.
const std::map<size_t, SummedRows> kClouds = {
    {0, {.x = {{0, 0}, {10, 10}}, .classes = {0, 0}}},
    {1, {.x = {{0, 2}, {2, 0}, {12, 10}}, .classes = {0, 0, 0}}},
    {2, {.x = {{2, 2}, {10, 12}, {12, 12}}, .classes = {0, 0, 0}}}};

TEST(KMeans, MovesCentresToTheMeansOfTheirRows) {
  SummingRun run("kmeans", {"linear 3"}, 2, 3, {}, TaskKind::kClassification);
  ServerState state = run.server().Save();
  state.numbers.at("started") = 1;
  const auto set = [&](size_t c, double x, double y) {
    std::span<double> centre = state.vectors.at("model").As<double>().subspan(c * 2, 2);
    centre[0] = x;
    centre[1] = y;
  };
  set(0, -1, -1);
  set(1, 20, 20);
  set(2, 100, -100);  // nobody's
  ASSERT_TRUE(run.server().Load(state).ok());
  ASSERT_TRUE(run.Round(kClouds).ok());
  // ‖x − c‖²: 2 + 10 + 10 + 18 of four rows, 200 + 164 + 164 + 128 of the others.
  EXPECT_NEAR(run.metrics.at("inertia"), (40 + 656) / 8.0, 1e-12);
  EXPECT_EQ(run.metrics.at("empty"), 1);
  ASSERT_TRUE(run.Round(kClouds).ok());
  EXPECT_NEAR(run.metrics.at("inertia"), 2, 1e-12);
  const double expected[3][2] = {{1, 1}, {11, 11}, {100, -100}};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(run.Weight(c, i), expected[c][i], 1e-12);
    // So that the largest output is the nearest centre's.
    const double square = expected[c][0] * expected[c][0] + expected[c][1] * expected[c][1];
    EXPECT_NEAR(run.Bias(c), -square / 2, 1e-9);
  }
  const FlatVector before = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  ASSERT_TRUE(run.Round({}).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), DigestOfValues(before.view()));
}

// A client that says it had a part of a row throws no centre out of reach.
TEST(KMeans, ACentreOfLessThanARowStays) {
  SummingRun run("kmeans", {"linear 2"}, 1, 2, {{"start", std::string("model")}},
                 TaskKind::kClassification);
  const double before = run.Weight(0, 0);
  for (const double count : {0.0, 1e-300, -3.0}) {
    ASSERT_TRUE(run.Apply({{"centres", {1, 16}}, {"counts", {count, 8}}}).ok());
    EXPECT_EQ(run.Weight(0, 0), before) << count;
    EXPECT_EQ(run.Weight(1, 0), 2) << count;
    EXPECT_EQ(run.metrics.at("empty"), 1);
  }
  for (const double count : {1e-300, -3.0}) {
    ASSERT_TRUE(run.Apply({{"centres", {1, 16}}, {"counts", {count, 0}}}).ok());
    EXPECT_EQ(run.Weight(0, 0), before) << count;
  }
}

TEST(KMeans, BeginsAroundTheMeanOfAllRows) {
  SummingRun run("kmeans", {"linear 400"}, 2, 400, {}, TaskKind::kClassification);
  ASSERT_TRUE(run.Round(kClouds).ok());
  double mean = 0, square = 0;
  for (size_t c = 0; c < 400; ++c) {
    mean += run.Weight(c, 0) / 400;
    square += run.Weight(c, 0) * run.Weight(c, 0) / 400;
  }
  const double deviation = std::sqrt(26.0);  // of 0, 0, 2, 2, 10, 10, 12, 12
  EXPECT_NEAR(mean, 6, 5 * deviation / 20);
  EXPECT_NEAR(square - mean * mean, 26, 5 * 26 * std::sqrt(2.0 / 400));
  ASSERT_TRUE(run.Round(kClouds).ok());
  EXPECT_GT(run.metrics.at("empty"), 390);
}

TEST(KMeans, MayBeginAtTheModel) {
  SummingRun run("kmeans", {"linear 2"}, 2, 2, {{"start", "model"}}, TaskKind::kClassification);
  const FlatVector first = models::InitialModel(run.spec(), 5);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(run.Weight(1, i), first.As<double>()[2 + i]);
  EXPECT_NEAR(run.Bias(0),
              -(run.Weight(0, 0) * run.Weight(0, 0) + run.Weight(0, 1) * run.Weight(0, 1)) / 2,
              1e-15);
}

std::string RefusalOfLayers(const std::string& rule, const std::vector<std::string>& layers) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  algorithms::Setup setup;
  setup.model.name = "layers";
  setup.model.layers = layers;
  setup.model.input_shape = {1, 2, 2};
  setup.model.classes = 3;
  setup.layout = models::BuildSpec(setup.model, DType::kF32)->layout;
  setup.clients = 5;
  setup.total_weight = 5;
  setup.cohort.size = 5;
  setup.config = *registry.Complete({rule, {}});
  return std::string(MakeSchema(**registry.Find(rule), setup).status().message());
}

TEST(StatisticsRules, NeedOneLinearLayer) {
  for (const std::string rule : {"ridge", "kmeans"}) {
    EXPECT_EQ(RefusalOfLayers(rule, {"flatten", "linear 3"}), "");
    EXPECT_THAT(RefusalOfLayers(rule, {"flatten", "linear 4", "relu", "linear 3"}),
                HasSubstr("set model.layers = [\"linear K\"]"));
    EXPECT_THAT(RefusalOfLayers(rule, {"conv 3 2", "flatten"}), HasSubstr("one linear layer"));
  }
  EXPECT_EQ(RefusalOfLayers("ridge", {"flatten", "linear 3 nobias"}), "");
  EXPECT_THAT(RefusalOfLayers("kmeans", {"flatten", "linear 3 nobias"}), HasSubstr("\"nobias\""));
}

}  // namespace
}  // namespace macaw::algorithms
