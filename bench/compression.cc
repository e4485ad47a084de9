// Compressors of updates on small problems, and their speed.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/factored.h"
#include "bench/frame.h"
#include "codecs/codec.h"
#include "codecs/rotation.h"
#include "sdk/testing/round_loop.h"

namespace macaw::bench {
namespace {

using algorithms::Description;
using algorithms::Numbers;

// ---- Participation: n clients with f_i = ½‖x − b_i‖², one step of size η a round

constexpr size_t kSide = 6, kSize = kSide * kSide, kClients = 8;
constexpr int kRounds = 2000, kMeasured = 1000, kSeeds = 3;

// The mean distance to the optimum over the last rounds; NaN: it diverges.
double DistanceOf(const UpdateConfig& update, uint64_t cohort, double step, uint64_t seed) {
  RandomStream random({.seed = seed});
  std::vector<algorithms::TestPopulationClient> population;
  Numbers optimum(kSize);
  for (size_t i = 0; i < kClients; ++i) {
    Numbers b(kSize);
    for (size_t j = 0; j < kSize; ++j) {
      b[j] = random.Normal();
      optimum[j] += b[j] / kClients;
    }
    population.push_back({std::make_shared<algorithms::SquaredDistance>(std::move(b)), 1});
  }
  const Description dense = algorithms::Builtin("fedavg");
  const Description rule = algorithms::IsFactored(update) ? algorithms::Factored(dense, update)
                           : update.on()                  ? algorithms::Compressed(dense, update)
                                                          : dense;
  CohortConfig drawn;
  drawn.size = cohort;
  drawn.weight = WeightPolicy::kUniform;
  algorithms::RoundLoop::Options options;
  options.steps = 1;
  options.start = Numbers(kSize);
  options.lr = step;
  options.layout = *ParameterLayout::Make({{.name = "w", .shape = {kSide, kSide}}}, DType::kF64);
  options.cohort = drawn;
  options.seed = seed;
  algorithms::RoundLoop loop(rule, population, options);
  double sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (!loop.SampledRounds(1, cohort).ok()) return std::nan("");
    const Numbers x = loop.Model();
    double squares = 0;
    for (size_t j = 0; j < kSize; ++j) squares += (x[j] - optimum[j]) * (x[j] - optimum[j]);
    if (!(squares < 1e12)) return std::nan("");
    if (round >= kRounds - kMeasured) sum += std::sqrt(squares) / kMeasured;
  }
  return sum;
}

struct Row {
  const char* name;
  std::vector<std::string> codec;
  const char* feedback;
};

void Participation() {
  const std::vector<Row> rows = {
      {"dense", {}, "none"},
      {"random-k 1/6", {"randomk 0.1667"}, "none"},
      {"random-k 1/6", {"randomk 0.1667"}, "residual"},
      {"random-k 1/6", {"randomk 0.1667"}, "ef21"},
      {"top-k 1/6", {"topk 0.1667"}, "none"},
      {"top-k 1/6", {"topk 0.1667"}, "residual"},
      {"top-k 1/6", {"topk 0.1667"}, "ef21"},
      {"sign", {"sign"}, "none"},
      {"sign", {"sign"}, "residual"},
      {"sign", {"sign"}, "ef21"},
      {"qsgd 4", {"qsgd 4"}, "none"},
      {"TernGrad", {"terngrad"}, "none"},
      {"rotated TernGrad", {"rotate", "terngrad"}, "none"},
      {"rotated sign", {"rotate", "sign"}, "none"},
      {"rotated sign", {"rotate", "sign"}, "ef21"},
      {"rotated sign, unbiased", {"rotate", "sign unbiased"}, "none"},
      {"PowerSGD rank 1", {"powersgd 1"}, "none"},
      {"PowerSGD rank 1", {"powersgd 1"}, "residual"},
      {"ACP-SGD rank 1", {"acpsgd 1"}, "none"},
      {"ACP-SGD rank 1", {"acpsgd 1"}, "residual"},
  };
  const double steps[] = {0.2, 0.05, 0.01};
  std::printf(
      "Distance to the optimum: %zu clients, ½‖x − b_i‖² in %zu dimensions, mean of the last "
      "%d of %d rounds and of %d seeds\n\n",
      kClients, kSize, kMeasured, kRounds, kSeeds);
  std::printf("| codec | feedback |");
  for (const uint64_t cohort : {kClients, size_t{2}}) {
    for (const double step : steps)
      std::printf(" %llu of %zu, step %g |", static_cast<unsigned long long>(cohort), kClients,
                  step);
  }
  std::printf("\n|---|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    std::printf("| %s | %s |", row.name, row.codec.empty() ? "" : row.feedback);
    for (const uint64_t cohort : {kClients, size_t{2}}) {
      for (const double step : steps) {
        double mean = 0;
        for (uint64_t seed = 1; seed <= kSeeds; ++seed)
          mean += DistanceOf({.codec = row.codec, .feedback = row.feedback}, cohort, step, seed) /
                  kSeeds;
        std::printf(std::isnan(mean) ? " diverges |" : " %.2g |", mean);
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  }
}

// ---- Speed: a vector of LeNet-5's size and one of ResNet-18's

constexpr aggregation::GridOrder kOrder{
    .max_weight = 60, .total_weight = 6000, .max_multiplicity = 1, .total_multiplicity = 100};

// The compact form of a sum, and the seconds that it takes to write and to read it.
struct OnTheWire {
  size_t bytes = 0;
  double writing = 0, reading = 0;
};
OnTheWire Measured(const aggregation::ExactSum& sum,
                   const std::vector<aggregation::ChannelSpec>& channels) {
  std::shared_ptr<const AlignedBuffer> encoded;
  OnTheWire wire;
  wire.writing = Shortest([&] {
    encoded = std::make_shared<const AlignedBuffer>(
        *aggregation::ExactSum::EncodeTogether({&sum, 1}, aggregation::SumForm::kCompact));
  });
  wire.reading = Shortest([&] { (void)aggregation::ExactSum::Decode(encoded, channels, kOrder); });
  wire.bytes = encoded->size();
  return wire;
}

void Speed() {
  constexpr uint64_t kSummed = 4;
  for (const int64_t size : {int64_t{61706}, int64_t{11173962}}) {
    const LayoutPtr layout = ParameterLayout::Scalars("w", size, DType::kF32);
    FlatVector from(layout), to(layout);
    const auto draw = [&](uint64_t client) {
      RandomStream random({.seed = client});
      random.FillNormal(from.As<float>().first(static_cast<size_t>(size)));
      for (float& value : from.As<float>()) value *= 1e-3f;
    };
    const double bytes = 4.0 * static_cast<double>(size);
    const auto copy = [&] { std::memcpy(to.view().bytes.data(), from.view().bytes.data(), bytes); };
    const double copying = Shortest(copy);
    std::printf("%lld weights; memcpy %.1f GB/s\n\n", static_cast<long long>(size),
                bytes / copying / 1e9);
    std::printf(
        "| codec | GB/s | of memcpy | bytes | of dense | write GB/s | read GB/s | of %d clients: "
        "bytes | write GB/s | read GB/s |\n|---|---|---|---|---|---|---|---|---|---|\n",
        static_cast<int>(kSummed));
    for (const char* line : {"", "topk 0.01", "randomk 0.01", "threshold 0.0025", "qsgd 7",
                             "terngrad", "sign", "bits 8", "bits 4", "bf16", "f16", "rotate"}) {
      const std::string name = line;
      const bool rotates = name == "rotate";
      const auto codec = *codecs::ParseCodec({rotates || name.empty() ? "bf16" : name});
      const auto code = [&](uint64_t client) {
        codecs::Draws draws{RandomStream({.seed = client}), RandomStream({.seed = 2})};
        copy();
        if (rotates) {
          codecs::Rotate(to.view(), draws.common);
        } else if (!name.empty()) {
          codec->Apply(to.view(), draws);
        }
      };
      const std::vector<aggregation::ChannelSpec> channels = {
          {.name = "delta",
           .layout = layout,
           .coded = !name.empty(),
           .levels = rotates || name.empty() ? 0 : codec->levels()}};
      aggregation::ExactSum sum = *aggregation::ExactSum::Make(channels, kOrder);
      OnTheWire alone, summed;
      double coding = 0;
      bool added = true;
      for (uint64_t client = 1; client <= kSummed; ++client) {
        draw(client);
        if (client == 1) coding = Shortest([&] { code(1); });
        code(client);
        const ConstVectorView values[] = {to.view()};
        added &= sum.Add({.client = ClientId(client), .weight = 60, .values = values}).ok();
        if (client == 1 && added) alone = Measured(sum, channels);
      }
      if (!added) continue;
      summed = Measured(sum, channels);
      std::printf("| %s | ", name.empty() ? "none" : line);
      if (name.empty()) {
        std::printf(" | |");
      } else {
        std::printf("%.2f | %.3f |", bytes / coding / 1e9, copying / coding);
      }
      const auto speed = [&](double seconds) { return bytes / seconds / 1e9; };
      std::printf(" %zu | 1/%.1f | %.2f | %.2f | %zu | %.2f | %.2f |\n", alone.bytes,
                  bytes / static_cast<double>(alone.bytes), speed(alone.writing),
                  speed(alone.reading), summed.bytes, speed(summed.writing), speed(summed.reading));
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what != "participation" && what != "speed") {
    std::fprintf(stderr, "usage: bench_compression participation|speed\n");
    return 2;
  }
  macaw::bench::PrintHeading(argc, argv);
  what == "speed" ? macaw::bench::Speed() : macaw::bench::Participation();
  return 0;
}
