// DAEF: a deep autoencoder that is solved for, a layer a phase.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "plan/broadcast.h"
#include "tests/algorithms/summing_run.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

constexpr size_t kWidth = 6;

Table DaefRows() {
  RandomStream random({.seed = 12});
  Table rows;
  for (size_t r = 0; r < 60; ++r) {
    const double a = random.Normal(), b = random.Normal();
    std::vector<double> x = {a, b, a + b, 0.3 * a * b, std::sin(a), 0.5 - b};
    for (double& value : x) value += 0.1 * random.Normal();
    rows.push_back(std::move(x));
  }
  return rows;
}

// The rows among so many clients, in pieces of different sizes.
std::map<size_t, SummedRows> Among(size_t clients) {
  std::map<size_t, SummedRows> division;
  const Table rows = DaefRows();
  for (size_t r = 0; r < rows.size(); ++r) {
    const size_t client = r * r / rows.size() * clients / rows.size();
    division[client].x.push_back(rows[r]);
  }
  return division;
}

SummingRun Autoencoder(const std::vector<std::string>& layers, double hidden, double last) {
  return {"daef",
          layers,
          kWidth,
          kWidth,
          {{"lambda_hidden", hidden}, {"lambda_last", last}},
          TaskKind::kReconstruction};
}

const std::vector<std::string> kDeep = {"linear 2", "tanh",     "linear 4",
                                        "sigmoid",  "linear 5", "linear 6"};

double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

// z = W·h + b of the layer whose tensors are e and e + 1.
std::vector<double> Through(const SummingRun& run, size_t e, const std::vector<double>& h) {
  std::vector<double> z(run.spec().layout->entries()[e].shape[0]);
  for (size_t k = 0; k < z.size(); ++k) {
    z[k] = run.At(e + 1, k);
    for (size_t i = 0; i < h.size(); ++i) z[k] += run.At(e, k * h.size() + i) * h[i];
  }
  return z;
}

std::vector<double> EachOf(const std::vector<double>& z, double (*f)(double)) {
  std::vector<double> h;
  for (const double value : z) h.push_back(f(value));
  return h;
}

// The initial layer of tensors e and e + 1 at h.
std::vector<double> RandomLayer(const SummingRun& run, size_t e, const std::vector<double>& h) {
  const FlatVector initial = models::InitialModel(run.spec(), 5);
  const std::vector<LayoutEntry>& entries = run.spec().layout->entries();
  std::vector<double> z(entries[e].shape[0]);
  for (size_t k = 0; k < z.size(); ++k) {
    z[k] = initial.As<double>()[entries[e + 1].offset + k];
    for (size_t i = 0; i < h.size(); ++i)
      z[k] += initial.As<double>()[entries[e].offset + k * h.size() + i] * h[i];
  }
  return z;
}

// A row on its way through kDeep: what comes out of the first layer, and out of it and the second.
struct OnTheWay {
  std::vector<double> z1, h1, z2, h2;
};
OnTheWay Way(const SummingRun& run, const std::vector<double>& x) {
  OnTheWay way;
  way.z1 = Through(run, 0, x);
  way.h1 = EachOf(way.z1, std::tanh);
  way.z2 = Through(run, 2, way.h1);
  way.h2 = EachOf(way.z2, Sigmoid);
  return way;
}

// At the minimum of Σ w·(z − v·u − c)² + λ(‖v‖² + c²) over `rows` its gradient is 0. c is not in
// the model: it is the minimum for this v.
struct Fitted {
  double weight = 1, z = 0;
  std::vector<double> u;
};
void ExpectTheMinimumAt(const std::vector<double>& v, double lambda,
                        const std::vector<Fitted>& rows) {
  double c = 0, weights = lambda;
  std::vector<double> gradient;
  for (const double value : v) gradient.push_back(-lambda * value);
  const auto error = [&v](const Fitted& row) {
    double error = row.z;
    for (size_t i = 0; i < v.size(); ++i) error -= v[i] * row.u[i];
    return error;
  };
  for (const Fitted& row : rows) {
    c += row.weight * error(row);
    weights += row.weight;
  }
  c /= weights;
  for (const Fitted& row : rows) {
    for (size_t i = 0; i < v.size(); ++i) gradient[i] += row.weight * (error(row) - c) * row.u[i];
  }
  for (const double g : gradient) EXPECT_NEAR(g, 0, 1e-11);
}

TEST(Daef, EncodesByTheFirstEigenvectors) {
  SummingRun run = Autoencoder(kDeep, 0.5, 0.5);
  ASSERT_TRUE(run.Round(Among(3)).ok());
  double last = INFINITY;
  std::vector<std::vector<double>> found;
  for (size_t k = 0; k < 2; ++k) {
    std::vector<double> u(kWidth), image(kWidth);
    for (size_t i = 0; i < kWidth; ++i) u[i] = run.Weight(k, i);
    for (const std::vector<double>& x : DaefRows()) {
      double product = 0;
      for (size_t i = 0; i < kWidth; ++i) product += u[i] * x[i];
      for (size_t i = 0; i < kWidth; ++i) image[i] += product * x[i];
    }
    double value = 0, norm = 0, largest = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      value += u[i] * image[i];
      norm += u[i] * u[i];
      if (std::abs(u[i]) > std::abs(largest)) largest = u[i];
    }
    EXPECT_NEAR(norm, 1, 1e-14);
    for (size_t i = 0; i < kWidth; ++i) EXPECT_NEAR(image[i], value * u[i], 1e-11);
    EXPECT_LT(value, last);
    EXPECT_GT(largest, 0) << "of both signs";
    EXPECT_EQ(run.Bias(k), 0);
    last = value;
    found.push_back(u);
  }
  // What all the others leave of the trace is less than the second: it is no later one.
  double trace = 0;
  for (const std::vector<double>& x : DaefRows()) {
    for (const double value : x) trace += value * value;
    for (const std::vector<double>& u : found) {
      double product = 0;
      for (size_t i = 0; i < kWidth; ++i) product += u[i] * x[i];
      trace -= product * product;
    }
  }
  EXPECT_LT(trace, last);
}

TEST(Daef, EachLayerIsTheMinimumOverAllRows) {
  SummingRun run = Autoencoder(kDeep, 0.5, 0.3);
  ASSERT_TRUE(run.Round(Among(4)).ok());
  const Table x = DaefRows();
  // Layer 2 [4, 2]: column k returns z₁[k] from a random layer, before tanh.
  for (size_t k = 0; k < 2; ++k) {
    std::vector<Fitted> rows;
    for (const std::vector<double>& row : x) {
      const OnTheWay way = Way(run, row);
      const double slope = 1 - way.h1[k] * way.h1[k];
      rows.push_back({slope * slope, way.z1[k], EachOf(RandomLayer(run, 2, way.h1), Sigmoid)});
    }
    std::vector<double> v;
    for (size_t j = 0; j < 4; ++j) v.push_back(run.At(2, j * 2 + k));
    ExpectTheMinimumAt(v, 0.5, rows);
  }
  // Layer 3 [5, 4], which has no activation, behind sigmoid.
  for (size_t k = 0; k < 4; ++k) {
    std::vector<Fitted> rows;
    for (const std::vector<double>& row : x) {
      const OnTheWay way = Way(run, row);
      const double slope = way.h2[k] * (1 - way.h2[k]);
      rows.push_back({slope * slope, way.z2[k], RandomLayer(run, 4, way.h2)});
    }
    std::vector<double> v;
    for (size_t j = 0; j < 5; ++j) v.push_back(run.At(4, j * 4 + k));
    ExpectTheMinimumAt(v, 0.5, rows);
  }
  // Biases of hidden layers are the initial ones.
  const FlatVector initial = models::InitialModel(run.spec(), 5);
  for (const size_t e : {3, 5}) {
    const LayoutEntry& entry = run.spec().layout->entries()[e];
    for (size_t i = 0; i < entry.size; ++i)
      EXPECT_EQ(run.At(e, i), initial.As<double>()[entry.offset + i]);
  }
}

TEST(Daef, TheLastLayerReturnsTheInputsAndItsErrorIsReported) {
  SummingRun run = Autoencoder(kDeep, 0.5, 0.3);
  ASSERT_TRUE(run.Round(Among(2)).ok());
  std::vector<double> gradient(kWidth * 6);
  double error = 0;
  for (size_t k = 0; k < kWidth; ++k) {
    for (size_t j = 0; j < 5; ++j) gradient[k * 6 + j] = 0.3 * run.At(6, k * 5 + j);
    gradient[k * 6 + 5] = 0.3 * run.At(7, k);
  }
  for (const std::vector<double>& x : DaefRows()) {
    std::vector<double> h = Through(run, 4, Way(run, x).h2);
    const std::vector<double> back = Through(run, 6, h);
    h.push_back(1);
    for (size_t k = 0; k < kWidth; ++k) {
      const double off = back[k] - x[k];
      error += off * off;
      for (size_t j = 0; j < 6; ++j) gradient[k * 6 + j] += off * h[j];
    }
  }
  for (const double g : gradient) EXPECT_NEAR(g, 0, 1e-11);
  EXPECT_NEAR(run.metrics.at("error"), error / (60 * kWidth), 1e-12);
  EXPECT_EQ(run.metrics.at("rows"), 60);
}

TEST(Daef, AnyDivisionOfTheRowsGivesTheSameModel) {
  SummingRun one = Autoencoder(kDeep, 0.5, 0.3);
  ASSERT_TRUE(one.Round(Among(1)).ok());
  for (const size_t clients : {2, 3, 5}) {
    SummingRun several = Autoencoder(kDeep, 0.5, 0.3);
    auto division = Among(clients);
    division[4];  // without rows, if it is not there
    ASSERT_TRUE(several.Round(division).ok());
    const std::span<const double> a = one.server().Model().As<double>(),
                                  b = several.server().Model().As<double>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  }
}

// Without activations and λ the decoder is the encoder's transpose: x̂ is x's projection.
TEST(Daef, WithoutActivationsItIsPrincipalComponents) {
  SummingRun run = Autoencoder({"linear 2 nobias", "linear 6 nobias"}, 1, 0);
  ASSERT_TRUE(run.Round(Among(3)).ok());
  for (size_t k = 0; k < 2; ++k) {
    for (size_t i = 0; i < kWidth; ++i) EXPECT_NEAR(run.At(1, i * 2 + k), run.Weight(k, i), 1e-12);
  }
}

TEST(Daef, EachRoundBeginsAtTheInitialLayersAndOneWithoutClientsChangesNothing) {
  SummingRun run = Autoencoder(kDeep, 0.5, 0.3);
  ASSERT_TRUE(run.Round({{0, Among(3).at(0)}}).ok());
  const Digest part = DigestOfValues(run.server().Model());
  ASSERT_TRUE(run.Round({}).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), part);
  ASSERT_TRUE(run.Round(Among(3), Phase(2)).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), part) << "all were lost in the midst";
  ASSERT_TRUE(run.Round(Among(3)).ok());
  const Digest all = DigestOfValues(run.server().Model());
  EXPECT_NE(all, part);

  SummingRun first = Autoencoder(kDeep, 0.5, 0.3);
  ASSERT_TRUE(first.Round(Among(3)).ok());
  EXPECT_EQ(DigestOfValues(first.server().Model()), all);

  // A resumed server has the initial layers from what was saved.
  ServerState state = first.server().Save();
  SummingRun resumed = Autoencoder(kDeep, 0.5, 0.3);
  ASSERT_TRUE(resumed.Round({{1, Among(3).at(1)}}).ok());
  ASSERT_TRUE(resumed.server().Load(state).ok());
  EXPECT_EQ(DigestOfValues(resumed.server().Model()), all);
  ASSERT_TRUE(resumed.Round(Among(3)).ok());
  EXPECT_EQ(DigestOfValues(resumed.server().Model()), all);
}

// Sums that no rows have may have no finite solution.
TEST(Daef, LeavesTheModelWhereASolutionIsNotFinite) {
  SummingRun run = Autoencoder({"linear 2 nobias", "linear 6 nobias"}, 1, 0);
  const Digest initial = DigestOfValues(run.server().Model());
  ASSERT_TRUE(run.Apply({{"gram", {4, 0, 0, 0, 0, 0, 0, 1}}, {"rows", {1}}}).ok());
  ASSERT_TRUE(
      run.Apply({{"grams", {1e-300}}, {"moments", {0x1p80}}, {"rows", {1}}}, Phase(1)).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), initial);
  ASSERT_TRUE(run.Round(Among(3)).ok());
  EXPECT_NE(DigestOfValues(run.server().Model()), initial);
}

std::string RefusalOfDaef(const std::vector<std::string>& layers, int64_t outputs = kWidth,
                          TaskKind task = TaskKind::kReconstruction, RunPlan run = {}) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  run.algorithm = *registry.Complete({"daef", {}});
  Setup setup;
  setup.model.name = "layers";
  setup.model.layers = layers;
  setup.model.input_shape = {kWidth};
  if (layers[0] == "flatten") setup.model.input_shape = {1, 2, outputs / 2};
  setup.model.classes = outputs;
  setup.layout = models::BuildSpec(setup.model, DType::kF32)->layout;
  setup.clients = 5;
  setup.total_weight = 5;
  setup.cohort.size = 5;
  setup.task = task;
  setup.config = run.algorithm;
  const auto rule = registry.RuleOf(run);
  const absl::Status status = rule.ok() ? MakeSchema(*rule, setup).status() : rule.status();
  return std::string(status.message());
}

TEST(Daef, TakesChainsThatReturnTheirInputs) {
  EXPECT_EQ(RefusalOfDaef(kDeep), "");
  EXPECT_EQ(RefusalOfDaef({"flatten", "linear 2 nobias", "tanh", "linear 6 nobias"}), "");
  EXPECT_THAT(RefusalOfDaef({"linear 2", "relu", "linear 6"}), HasSubstr("layer 2 "));
  EXPECT_THAT(RefusalOfDaef({"linear 2", "tanh", "tanh", "linear 6"}), HasSubstr("layer 3 "));
  EXPECT_THAT(RefusalOfDaef({"linear 6"}), HasSubstr("an encoder"));
  EXPECT_THAT(RefusalOfDaef({"linear 7", "tanh", "linear 6"}), HasSubstr("narrower than 7"));
  EXPECT_THAT(RefusalOfDaef({"linear 2", "tanh", "linear 3"}, 3), HasSubstr("\"linear 6\""));
  EXPECT_THAT(RefusalOfDaef({"linear 2", "tanh", "linear 6", "tanh"}), HasSubstr("\"linear 6\""));
  EXPECT_THAT(RefusalOfDaef({"linear 6", "tanh", "linear 6000", "linear 6"}),
              HasSubstr("linear layer 2"));
  std::vector<std::string> tower(kMostPhases, "linear 6");
  EXPECT_EQ(RefusalOfDaef(tower), "");
  tower.emplace_back("linear 6");
  EXPECT_THAT(RefusalOfDaef(tower), HasSubstr("a phase a layer, 64 at most"));
  EXPECT_THAT(RefusalOfDaef({"flatten", "linear 2", "linear 8194"}, 8194),
              HasSubstr("8194² sums for the encoder"));
  EXPECT_THAT(RefusalOfDaef(kDeep, kWidth, TaskKind::kClassification),
              HasSubstr("\"reconstruction\""));
}

TEST(Daef, IsRefusedWhereItsSumsWouldBeOthers) {
  const auto refusal = [](auto&& change) {
    RunPlan run;
    change(run);
    return RefusalOfDaef(kDeep, kWidth, TaskKind::kReconstruction, run);
  };
  EXPECT_THAT(refusal([](RunPlan& run) {
                run.broadcast.codec = {"bits 8"};
                run.broadcast.of = "model";
              }),
              HasSubstr("broadcast.codec"));
  EXPECT_NE(refusal([](RunPlan& run) { run.update.codec = {"bits 8"}; }), "");
  EXPECT_NE(refusal([](RunPlan& run) { run.privacy.mechanism = "central"; }), "");
  EXPECT_NE(refusal([](RunPlan& run) { run.asynchronous.mode = "buffered"; }), "");
  EXPECT_NE(refusal([](RunPlan& run) { run.model.frozen = {"0.*"}; }), "");
}

}  // namespace
}  // namespace macaw::algorithms
