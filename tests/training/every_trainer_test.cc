// A trainer's Supports is a promise: whatever it says yes to, it computes as LibTorch does. Random
// models of all layers on rows of all shapes, every trainer that says yes, a few local steps.
//
// MACAW_NETWORKS=5000 tries more models, MACAW_FIRST_NETWORK=N begins with another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "models/parse.h"
#include "tests/training/device_testing.h"
#include "tests/training/random_network.h"
#include "tests/training/testing.h"
#include "training/fused/fused_trainer.h"

namespace macaw::training {
namespace {

constexpr uint64_t kNetworks = 1000;
// Of ends relative to what was learned, of gradients and losses relative to themselves. Rounding
// stays far below it (else RoundingOf), a value in the wrong place far above.
constexpr double kTolerance = 2e-4;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

struct NamedTrainer {
  std::string name;
  std::unique_ptr<LocalTrainer> trainer;
};

// What one network's stages are.
struct Work {
  TrainerSetup setup;
  FlatVector start;
  LocalPlan plan;
  ClientTask task;
};

// Training, then the gradient and the loss where it ended.
Work WorkOf(const models::ModelSpec& spec, RandomRun& random, uint64_t seed) {
  Work work;
  work.setup = random.Setup();
  work.start = models::InitialModel(spec, seed);
  const FlatVector change = random.Vector(0.1);
  for (size_t i = 0; i < change.As<float>().size(); ++i)
    work.start.As<float>()[i] += change.As<float>()[i];
  work.task = TaskOf(random.Rows(random.Below(24) == 0 ? 140 : 2 + random.Below(16)));
  Stage train = random.AnyStage(View(work.start), {View(work.start)}, work.task.train);
  train.kind = StageKind::kTrain;
  train.local.drop_last = false;
  // A few steps: a rounding error grows with each of hundreds.
  if (work.task.train.size() > 100 && train.local.batch_size != 0) train.local.batch_size = 33;
  Stage gradient = train, loss = train;
  gradient.kind = StageKind::kGradient;
  loss.kind = StageKind::kLoss;
  gradient.start = loss.start = StageEnd{0};
  work.plan.stages = {train, gradient, loss};
  return work;
}

// All trainers but the eager one on the host that say that they can do the work.
std::vector<NamedTrainer> TrainersFor(const Work& work, device::Device& device) {
  std::vector<NamedTrainer> trainers;
  const auto add = [&](std::string name, auto made) {
    EXPECT_TRUE(made.ok()) << name << " says that it supports the model, then: " << made.status();
    if (made.ok()) trainers.push_back({std::move(name), *std::move(made)});
  };
  if (fused::Supports(work.setup).ok()) {
    for (const fused::Isa isa : fused::SupportedIsas())
      add(absl::StrCat("fused ", fused::Name(isa)), fused::FusedTrainer::Make(work.setup, isa));
  }
  if (DeviceTrainer::Supports(work.setup).ok())
    add("device", DeviceTrainer::Make(work.setup, device));
  TrainerSetup elsewhere = work.setup;
  elsewhere.backend = TorchChoice();
  if (TorchBackend().Supports(elsewhere).ok())
    add(elsewhere.backend.devices[0], TorchBackend().MakeTrainer(elsewhere));
  return trainers;
}

// The larger one; infinite where one is not a number.
double Worse(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? HUGE_VAL : std::max(a, b);
}

double NormOf(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// ‖a − b‖ relative to what was learned, ‖b − start‖, or to what the weights' own rounding hides
// where a network learns next to nothing: `size` is that of its weights.
double DistanceOf(ConstVectorView a, ConstVectorView b, ConstVectorView start, double size) {
  const auto x = a.As<float>(), y = b.As<float>(), z = start.As<float>();
  std::vector<float> error, learned;
  for (size_t i = 0; i < x.size(); ++i) {
    error.push_back(x[i] - y[i]);
    learned.push_back(y[i] - z[i]);
  }
  return NormOf(error) / std::max(NormOf(learned), 1e-4 * size);
}

// The largest difference, each relative to its own kind of size.
double DifferenceOf(const std::vector<StageOutcome>& ours, const std::vector<StageOutcome>& theirs,
                    const Work& work) {
  const FlatVector zero(work.setup.spec.layout);
  const double size = NormOf(View(work.start).As<float>());
  double worst = Worse(DistanceOf(ours[0].end, theirs[0].end, View(work.start), size),
                       DistanceOf(ours[1].end, theirs[1].end, View(zero), size));
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].sums.size(), theirs[i].sums.size());
    EXPECT_EQ(ours[i].sums[0], theirs[i].sums[0]);
    worst = Worse(worst, std::abs(ours[i].sums[1] - theirs[i].sums[1]) /
                             std::max(1e-3, std::abs(theirs[i].sums[1])));
  }
  return worst;
}

double DifferenceOf(const absl::StatusOr<MetricSums>& ours,
                    const absl::StatusOr<MetricSums>& theirs) {
  EXPECT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
  if (!ours.ok() || !theirs.ok()) return HUGE_VAL;
  EXPECT_EQ((*ours)[0], (*theirs)[0]);
  const double loss = (*theirs)[1];
  return Worse(0, std::abs((*ours)[1] - loss) / std::max(1e-3, std::abs(loss)));
}

// The plan from another start. All its points are the start.
LocalPlan From(LocalPlan plan, ConstVectorView start) {
  for (Stage& stage : plan.stages) {
    if (std::holds_alternative<ConstVectorView>(stage.start)) stage.start = start;
    if (stage.correction.anchor.has_value()) stage.correction.anchor = start;
    for (Term& term : stage.correction.v) term.point = start;
  }
  return plan;
}

// The weights, each moved to one of the two numbers next to it.
FlatVector Beside(ConstVectorView weights, const LayoutPtr& layout, uint64_t seed) {
  FlatVector moved(layout);
  std::memcpy(moved.view().bytes.data(), weights.bytes.data(), weights.bytes.size());
  std::mt19937_64 random(seed);
  for (float& weight : moved.view().As<float>())
    weight = std::nextafter(weight, random() % 2 == 0 ? HUGE_VALF : -HUGE_VALF);
  return moved;
}

// How far LibTorch in single precision is from LibTorch in double precision: what rounding makes of
// this work. Few networks magnify it, such as batch norm of two equal rows. One run may round
// luckily, so this is the largest of some, whose starts differ by the last bit of each weight.
double RoundingOf(const RandomNetwork& network, const Work& work) {
  constexpr uint64_t kRuns = 8;
  TrainerSetup setup = work.setup;
  setup.spec = network.SpecIn(DType::kF64);
  setup.dtype = DType::kF64;
  const auto in_float = TorchBackend().MakeTrainer(work.setup);
  const auto in_double = TorchBackend().MakeTrainer(setup);
  EXPECT_TRUE(in_float.ok() && in_double.ok()) << in_float.status() << in_double.status();
  double largest = 0;
  for (uint64_t run = 0; run < kRuns; ++run) {
    const FlatVector start = Beside(View(work.start), work.setup.spec.layout, run);
    const FlatVector wide = Converted(View(start), setup.spec.layout);
    const auto narrow = MustRun(**in_float, From(work.plan, View(start)), work.task);
    std::vector<StageOutcome> exact = MustRun(**in_double, From(work.plan, View(wide)), work.task);
    std::vector<FlatVector> ends;
    for (size_t i = 0; i < 2; ++i) {
      ends.push_back(Converted(exact[i].end, work.setup.spec.layout));
      exact[i].end = std::as_const(ends.back()).view();
    }
    largest = Worse(largest, DifferenceOf(narrow, exact, work));
  }
  return largest;
}

// What was tried, so that a trainer that says no to everything is found, too.
struct Tried {
  std::map<std::string, uint64_t> networks;  // by trainer
  std::map<std::string, double> worst;       // likewise
  std::map<std::string, std::map<RowKind, uint64_t>> rows;
  std::set<std::pair<std::string, size_t>> layers;
  std::map<std::string, uint64_t> adapted;  // of them with adapters
  uint64_t sequences_with_lengths = 0;
  uint64_t rounded = 0;  // beyond the tolerance, as LibTorch itself
};

void Try(uint64_t seed, Tried& tried) {
  const RandomNetwork network(seed);
  SCOPED_TRACE(absl::StrCat("MACAW_FIRST_NETWORK=", seed, " MACAW_NETWORKS=1 ", network.Text()));
  if (testing::Test::HasFailure()) return;
  RandomRun random(network.spec(), seed, network.task());
  random.KeepToTheFusedTrainer();
  const Work work = WorkOf(network.spec(), random, seed);
  tried.layers.insert(network.layers().begin(), network.layers().end());
  if (network.rows() == RowKind::kSequence && work.task.train.block.lengths != nullptr)
    ++tried.sequences_with_lengths;
  const auto eager = TorchBackend().MakeTrainer(work.setup);
  ASSERT_TRUE(eager.ok()) << eager.status();
  const auto theirs = MustRun(**eager, work.plan, work.task);
  const uint64_t rows = work.task.train.size();
  const auto rated = (*eager)->Evaluate(View(work.start), work.task.train, 1, rows, 5);
  const auto device = TeamsOf(seed % 5 == 0 ? 3 : 1, seed);
  for (const NamedTrainer& ours : TrainersFor(work, *device)) {
    SCOPED_TRACE(ours.name);
    const auto outcomes = MustRun(*ours.trainer, work.plan, work.task);
    if (testing::Test::HasFailure()) return;
    const double worst = std::max(
        DifferenceOf(outcomes, theirs, work),
        DifferenceOf(ours.trainer->Evaluate(View(work.start), work.task.train, 1, rows, 5), rated));
    if (worst > kTolerance) {
      ++tried.rounded;
      EXPECT_LE(worst, 10 * RoundingOf(network, work));
    }
    ++tried.networks[ours.name];
    tried.adapted[ours.name] += network.adapted() ? 1 : 0;
    ++tried.rows[ours.name][network.rows()];
    if (worst <= kTolerance) tried.worst[ours.name] = std::max(tried.worst[ours.name], worst);
  }
}

TEST(EveryTrainer, ComputesWhatItSupportsAsLibTorchDoes) {
  const uint64_t count = FromEnvironment("MACAW_NETWORKS", kNetworks);
  const uint64_t first = FromEnvironment("MACAW_FIRST_NETWORK", 1);
  Tried tried;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Try(seed, tried);
    if (HasFailure()) return;
  }
  std::printf("%llu networks; %llu differences are of rounding, as LibTorch's own\n",
              static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(tried.rounded));
  for (const auto& [name, networks] : tried.networks) {
    std::printf("  %s: %llu of them, largest difference %.2g\n", name.c_str(),
                static_cast<unsigned long long>(networks), tried.worst[name]);
  }
  if (count < kNetworks) return;

  EXPECT_LE(tried.rounded, count / 100);
  // A device takes every list of layers. The fused trainer takes its share of each kind of rows.
  for (const char* name : {"device", "test:0"}) {
    EXPECT_EQ(tried.networks[name], count) << name;
    EXPECT_GE(tried.adapted[name], count / 8) << name;
  }
  for (const fused::Isa isa : fused::SupportedIsas()) {
    const std::string name = absl::StrCat("fused ", fused::Name(isa));
    EXPECT_GE(tried.networks[name], count / 4) << name;
    EXPECT_GE(tried.adapted[name], count / 20) << name;
    for (const RowKind rows :
         {RowKind::kVector, RowKind::kImage, RowKind::kSequence, RowKind::kOtherAxes}) {
      EXPECT_GE(tried.rows[name][rows], 5) << name << ", rows " << static_cast<int>(rows);
    }
  }
  EXPECT_GE(tried.sequences_with_lengths, 20);
  // Every layer was drawn: one that is new needs its numbers in random_network.cc.
  std::set<std::string> drawn;
  for (const auto& [kind, axes] : tried.layers) drawn.insert(kind);
  for (const models::LayerWords& words : models::AllLayerWords())
    EXPECT_TRUE(drawn.contains(words.text.substr(0, words.text.find(' ')))) << words.text;
  // Those of positions on sequences of numbers, too, and norms behind a flatten.
  for (const auto& [kind, axes] : std::vector<std::pair<std::string, size_t>>{
           {"linear", 2}, {"flatten", 2}, {"flatten", 3}, {"flatten", 4}, {"batchnorm", 1}}) {
    EXPECT_TRUE(tried.layers.contains({kind, axes})) << kind << " of " << axes << " axes";
  }
}

// What lies behind a row's length is padding, whatever its numbers are.
TEST(EveryTrainer, LeavesOutThePaddingOfSequencesOfNumbers) {
  for (const std::vector<std::string>& layers : std::vector<std::vector<std::string>>{
           {"linear 6", "attention heads 2", "mean", "linear 3"},
           {"positions", "gru 5", "last", "linear 3"},
           {"transformer heads 2 ff 5", "layernorm", "mean", "linear 3"}}) {
    const models::ModelSpec spec = SpecOf(layers, {5, 4}, 3, DType::kF32);
    TrainerSetup setup;
    setup.spec = spec;
    setup.dtype = DType::kF32;
    const FlatVector start = models::InitialModel(spec, 2);
    LocalPlan plan;
    plan.stages.push_back(StageFrom(View(start), 0.1));
    plan.stages[0].local.epochs = 3;
    const std::vector<int32_t> lengths = {1, 5, 3, 0, 4, 2};
    std::vector<std::vector<double>> numbers(lengths.size(), std::vector<double>(20));
    RandomStream stream({.seed = 9});
    for (auto& row : numbers) {
      for (double& value : row) value = stream.Normal();
    }
    std::vector<std::vector<double>> padded = numbers;
    for (size_t row = 0; row < lengths.size(); ++row) {
      // An empty row is one position.
      for (size_t i = 4 * static_cast<size_t>(std::max(lengths[row], 1)); i < 20; ++i)
        padded[row][i] += 7;
    }
    const std::vector<double> labels = {0, 1, 2, 0, 1, 2};
    const Examples plain(numbers, labels), with_padding(padded, labels);
    const auto run = [&](LocalTrainer& trainer, const Examples& examples, bool has_lengths) {
      data::Rows rows = examples.Classes();
      if (has_lengths) rows.block.lengths = lengths.data();
      return FlatVector::CopyOf(MustRun(trainer, plan, TaskOf(rows))[0].end, spec.layout);
    };
    const auto eager = *TorchBackend().MakeTrainer(setup);
    const auto device = TeamsOf(1);
    const auto on_device = DeviceTrainerOf(setup, *device);
    setup.backend = TorchChoice();
    const auto elsewhere = *TorchBackend().MakeTrainer(setup);
    for (LocalTrainer* const trainer :
         {eager.get(), elsewhere.get(), static_cast<LocalTrainer*>(on_device.get())}) {
      SCOPED_TRACE(absl::StrCat(trainer->name(), trainer == elsewhere.get() ? " elsewhere" : "",
                                ", ", layers[0]));
      const FlatVector first = run(*trainer, plain, true);
      EXPECT_LE(ErrorOf(View(run(*trainer, with_padding, true)), View(first), View(start)), 1e-5);
      EXPECT_GE(ErrorOf(View(run(*trainer, with_padding, false)), View(first), View(start)), 1e-2);
    }
  }
}

}  // namespace
}  // namespace macaw::training
