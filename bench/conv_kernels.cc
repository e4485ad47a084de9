// The convolutions of the built-in models on one thread: time, GFLOP/s and share of the processor's
// multiply-add peak of the fused kernels, beside LibTorch's eager ones on the same shapes.
//
//   bench_conv_kernels [instruction set]
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bench/conv_eager.h"
#include "bench/fma_peak.h"
#include "bench/thread_clock.h"
#include "core/random.h"
#include "training/fused/conv.h"

namespace macaw::bench {
namespace {

using training::fused::Block;
using training::fused::ConvPlan;
using training::fused::Isa;
using training::fused::Shape;

constexpr size_t kBatch = 20;

struct Case {
  const char* name;
  ConvPlan plan;
  bool data;  // the gradient by the input is wanted: not for a first layer
};

std::vector<Case> Cases() {
  const Shape mnist = {.channels = 1, .height = 28, .width = 28};
  const auto woven = [](size_t channels, size_t side) {
    return Shape{channels, side, side, Shape::Order::kInterleaved, channels};
  };
  return {
      {"lenet5 conv 1", {mnist, 6, 5, 1, 2, true, true, 2}, false},
      {"lenet5 conv 2", {woven(6, 14), 16, 5, 1, 0, true, true, 2}, true},
      {"cnn conv 1", {mnist, 32, 5, 1, 2, true, true, 2}, false},
      {"cnn conv 2", {woven(32, 14), 64, 5, 1, 2, true, true, 2}, true},
      {"simple_cnn conv 1", {mnist, 32, 3, 1, 0, true, true, 1}, false},
      {"simple_cnn conv 2", {woven(32, 26), 64, 3, 1, 0, true, true, 2}, true},
      {"64 to 64, 3x3, no pool", {woven(64, 16), 64, 3, 1, 1, true, true, 1}, true},
      {"64 to 128, stride 2", {woven(64, 16), 128, 3, 2, 1, true, true, 1}, true},
  };
}

struct Free {
  void operator()(float* data) const { operator delete[](data, std::align_val_t(64)); }
};
using Floats = std::unique_ptr<float[], Free>;

Floats Normals(size_t count) {
  Floats floats(new (std::align_val_t(64)) float[count + 64]);
  RandomStream random(StreamKey{.extra = count});
  random.FillNormal({floats.get(), count + 64});
  return floats;
}

struct Times {
  double forward, backward;
};

Times TimeFused(Isa isa, const Case& c) {
  const std::unique_ptr<Block> block = MakeConv(isa, c.plan);
  const size_t in = kBatch * block->in().stride(), out = kBatch * block->out().stride();
  const auto tensors = block->tensors();
  const size_t packed = tensors.back().offset + tensors.back().size;
  const Floats x = Normals(in), y = Normals(out), dy = Normals(out), dx = Normals(in);
  const Floats weights = Normals(packed), gradient = Normals(packed);
  const Floats kept = Normals(block->kept(kBatch)), scratch = Normals(block->scratch(kBatch));
  const double forward = Shortest([&] {
    block->Forward({kBatch, x.get(), y.get(), weights.get(), kept.get(), scratch.get(), nullptr});
  });
  const double backward = Shortest([&] {
    block->Backward({kBatch, x.get(), y.get(), weights.get(), kept.get(), scratch.get(), dy.get(),
                     c.data ? dx.get() : nullptr, gradient.get()});
  });
  return {forward, backward};
}

int Main(const std::string& wanted) {
  std::printf(
      "batch %zu, one thread; share: of the measured peak, counting all of a step's\n"
      "multiply-adds, those of zeros that the kernels leave out included\n\n",
      kBatch);
  for (const Isa isa : training::fused::SupportedIsas()) {
    const std::string name(training::fused::Name(isa));
    if (!wanted.empty() && wanted != name) continue;
    const double peak = MeasureFmaPeak(isa);
    std::printf("%s: peak %.1f GFLOP/s\n", name.c_str(), peak);
    std::printf("%-24s %9s %8s %6s %9s %8s %6s %10s %7s\n", "", "forward", "GFLOP/s", "share",
                "backward", "GFLOP/s", "share", "eager", "ratio");
    for (const Case& c : Cases()) {
      const ConvPlan& p = c.plan;
      const size_t height = (p.in.height + 2 * p.padding - p.kernel) / p.stride + 1;
      const double flop =
          2e-9 * kBatch * p.outputs * height * height * p.in.channels * p.kernel * p.kernel;
      const Times fused = TimeFused(isa, c);
      const double eager = TimeEager(p, kBatch, c.data);
      const double passes = c.data ? 2 : 1;
      std::printf("%-24s %6.0f us %8.1f %5.0f%% %6.0f us %8.1f %5.0f%% %7.0f us %6.1fx\n", c.name,
                  1e6 * fused.forward, flop / fused.forward, 100 * flop / fused.forward / peak,
                  1e6 * fused.backward, passes * flop / fused.backward,
                  100 * passes * flop / fused.backward / peak, 1e6 * eager,
                  eager / (fused.forward + fused.backward));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) { return macaw::bench::Main(argc > 1 ? argv[1] : ""); }
