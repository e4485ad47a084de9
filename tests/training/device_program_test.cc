// A model as the kernel's operations, and the kernel's products and gradients.
#include <gmock/gmock.h>

#include "device/philox.h"
#include "models/named.h"
#include "tests/training/device_testing.h"
#include "tests/training/testing.h"
#include "training/device/product_shape.h"
#include "training/device/products-inl.h"
#include "training/device/program.h"

namespace macaw::training {
namespace {

using namespace ondevice;  // NOLINT: what is tested
using testing::HasSubstr;

TEST(DeviceDivisor, DividesAllNumbersBelowTwoToThe31) {
  RandomStream stream({.seed = 3});
  for (int i = 0; i < 20000; ++i) {
    const auto d = static_cast<uint32_t>(1 + (stream.Below(1u << 31) >> stream.Below(31)));
    const Divisor by(d);
    const auto n = static_cast<uint32_t>(stream.Below(1u << 31));
    ASSERT_EQ(by.Quotient(n), n / d) << n << " / " << d;
    ASSERT_EQ(by.Quotient(0x7FFFFFFF), 0x7FFFFFFF / d) << d;
    const uint32_t multiple = n / d * d;
    ASSERT_EQ(by.Quotient(multiple), multiple / d);
    const uint32_t below = multiple > 0 ? multiple - 1 : 0;
    ASSERT_EQ(by.Quotient(below), below / d);
  }
}

TEST(DevicePhilox, GivesTheWordsOfRandomStream) {
  const StreamKey key = {
      .seed = 9, .purpose = Purpose::kDropout, .client = ClientId(4), .extra = 7};
  const RandomStream::Name name = RandomStream(key).name();
  RandomStream stream(key);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(device::PhiloxWord(name.key, name.high, i), stream.NextU32()) << i;
  }
}

TEST(DeviceProduct, FitsEveryShapeIntoATeamAndItsMemory) {
  const std::vector<uint64_t> sizes = {1, 3, 6, 10, 25, 64, 100, 401, 1000, 25000};
  for (const uint64_t m : sizes) {
    for (const uint64_t n : sizes) {
      for (const uint64_t k : sizes) {
        const GemmShape shape = ShapeOfProduct(m, n, k);
        ASSERT_LE(1u << (shape.rows + shape.columns + shape.lanes), kMostThreads);
        const uint64_t tile_m = 4u << shape.rows, tile_n = 4u << shape.columns;
        ASSERT_GE(shape.depth, 1u << shape.lanes);
        ASSERT_EQ(shape.depth % (1u << shape.lanes), 0);
        ASSERT_LE((tile_m + tile_n + 8) * shape.depth, kTileFloats);
        ASSERT_LE((tile_m * tile_n) << shape.lanes, kTileFloats);
      }
    }
  }
}

struct ProductArgs {
  const float* a = nullptr;  // [m][k]
  const float* b = nullptr;  // [k][n]
  float* c = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  GemmShape shape;
};
constexpr device::Kernel<ProductArgs> kProduct = {"test.product"};
void Product(const ProductArgs& args, const device::Team& team) {
  TeamGemm(team, args.shape, args.m, args.n, args.k, ByRow{args.a, args.k},
           ByColumn{args.b, args.n},
           [&](uint32_t m, uint32_t n, float sum) { args.c[m * args.n + n] = sum; });
}

TEST(DeviceProduct, HasTheSameBitsByTilesAndByElements) {
  RandomStream stream({.seed = 12});
  for (int i = 0; i < 12; ++i) {
    ProductArgs args;
    args.m = 1 + static_cast<uint32_t>(stream.Below(30));
    args.n = 1 + static_cast<uint32_t>(stream.Below(30));
    args.k = 1 + static_cast<uint32_t>(stream.Below(100));
    args.shape.rows = static_cast<uint32_t>(stream.Below(3));
    args.shape.columns = static_cast<uint32_t>(stream.Below(3));
    args.shape.lanes = static_cast<uint32_t>(stream.Below(3));
    args.shape.depth = static_cast<uint32_t>((1 + stream.Below(5)) << args.shape.lanes);
    SCOPED_TRACE(testing::Message() << args.m << " × " << args.n << " × " << args.k);
    std::vector<float> inputs(args.m * args.k + args.k * args.n);
    for (float& x : inputs) x = static_cast<float>(stream.Normal());
    std::vector<std::vector<float>> results;
    const uint32_t shares = 1u << (args.shape.rows + args.shape.columns + args.shape.lanes);
    for (const uint32_t threads : {1u, 3u, shares, shares + 5}) {
      FakeDeviceOptions options;
      options.threads = threads;
      FakeDevice device({device::HostEntry<ProductArgs, Product>(kProduct)}, options);
      const auto memory = *device.Allocate((inputs.size() + args.m * args.n) * sizeof(float));
      const auto queue = *device.MakeQueue();
      queue->CopyIn(memory.data(), std::as_bytes(std::span(inputs)));
      args.a = memory.As<float>();
      args.b = args.a + args.m * args.k;
      args.c = memory.As<float>() + inputs.size();
      queue->Run(kProduct, {.threads = threads, .shared_bytes = kSharedBytes}, args);
      std::vector<float>& result = results.emplace_back(args.m * args.n);
      queue->CopyOut(std::as_writable_bytes(std::span(result)),
                     memory.data() + inputs.size() * sizeof(float));
      ASSERT_TRUE(queue->Wait().ok());
      EXPECT_EQ(result, results[0]) << threads << " threads";
    }
    for (uint32_t at = 0; at < args.m * args.n; ++at) {
      double exact = 0;
      for (uint32_t k = 0; k < args.k; ++k) {
        exact += static_cast<double>(inputs[at / args.n * args.k + k]) *
                 inputs[args.m * args.k + k * args.n + at % args.n];
      }
      EXPECT_NEAR(results[0][at], exact, 1e-4);
    }
  }
}

TEST(DeviceProgram, TakesTheNamedModels) {
  for (const ModelConfig& config : models::ExampleConfigs()) {
    const auto spec = models::BuildSpec(config, DType::kF32);
    ASSERT_TRUE(spec.ok());
    const absl::StatusOr<CompiledModel> model = CompiledModel::Compile(*spec, 10);
    ASSERT_TRUE(model.ok()) << config.name << ": " << model.status();
    EXPECT_EQ(model->takes_whole_batches, config.name == "resnet18");
    EXPECT_EQ(model->keeps_gradients, spec->takes_tokens());
  }
}

TEST(DeviceProgram, RefusesActivationsThatAreTooLarge) {
  const auto compile = [](const std::vector<std::string>& layers, int64_t positions) {
    return CompiledModel::Compile(SpecOf(layers, {positions}, 5, DType::kF32), 10).status();
  };
  const std::vector<std::string> sees = {"embedding 5 4", "attention heads 2", "mean", "linear 5"};
  EXPECT_TRUE(compile(sees, 100).ok());
  // The weights of 4000 positions for each other.
  EXPECT_THAT(compile(sees, 4000).message(), HasSubstr("activations of this size"));
  EXPECT_TRUE(absl::IsUnimplemented(compile(sees, 4000)));
}

TEST(DeviceProgram, KeepsGradientsApartWhileTheyAreNeeded) {
  const models::ModelSpec spec =
      SpecOf({"conv 4 3 pad 1", "groupnorm 2", "relu", "block 4", "block 6 stride 2",
              "globalavgpool", "flatten", "linear 5"},
             {2, 8, 8}, 5, DType::kF32);
  const CompiledModel model = *CompiledModel::Compile(spec, 10);
  EXPECT_EQ(model.Lowest(nullptr), 0);
  std::vector<bool> trainable(spec.layout->entries().size());
  trainable.back() = true;
  EXPECT_EQ(model.Lowest(&trainable), model.ops.size() - 1);
  // No operation writes where it still reads, or where its two inputs' gradients would meet.
  const auto meet = [](const Value& a, const Value& b) {
    return a.gradient != kNothing && b.gradient != kNothing && a.gradient < b.gradient + b.size &&
           b.gradient < a.gradient + a.size;
  };
  for (const Op& op : model.ops) {
    EXPECT_FALSE(meet(op.in, op.out));
    if (op.kind != OpKind::kAdd) continue;
    EXPECT_FALSE(meet(op.in2, op.out));
    EXPECT_FALSE(meet(op.in, op.in2));
  }
}

TEST(DeviceProgram, GoesByColumnsWhereInputChannelsAreFew) {
  const auto convolutions = [](const std::string& name) {
    ModelConfig config;
    config.name = name;
    config.input_shape = {1, 28, 28};
    config.classes = 10;
    const CompiledModel model =
        *CompiledModel::Compile(*models::BuildSpec(config, DType::kF32), 20);
    std::vector<bool> by_columns;
    for (const Op& op : model.ops) {
      if (op.kind == OpKind::kConv) by_columns.push_back(op.columns != kNothing);
    }
    return by_columns;
  };
  // The first convolution's input gradient is never asked for.
  EXPECT_THAT(convolutions("lenet5"), testing::ElementsAre(false, true));
  EXPECT_THAT(convolutions("cnn"), testing::ElementsAre(false, false));
}

// The change of the loss along a direction, by differences and by the gradient, tensor by tensor.
TEST(DeviceGradients, AreThoseOfTheLoss) {
  struct Case {
    std::vector<std::string> layers;
    std::vector<int64_t> input;
  };
  const std::vector<Case> cases = {
      {{"linear 6", "tanh", "linear 5", "sigmoid", "linear 4"}, {7}},
      {{"linear 6", "relu", "linear 4 nobias"}, {7}},
      {{"conv 3 3", "tanh", "conv 4 2 stride 2 pad 1", "tanh", "flatten", "linear 4"}, {2, 7, 6}},
      {{"conv 3 2", "tanh", "avgpool 3 stride 2", "conv 3 1", "globalavgpool", "flatten",
        "linear 4"},
       {2, 8, 7}},
      {{"conv 4 3", "groupnorm 2", "tanh", "flatten", "linear 4"}, {2, 6, 6}},
      {{"conv 4 3 pad 1", "tanh", "block 4", "globalavgpool", "flatten", "linear 4"}, {1, 6, 5}},
      {{"block 4 stride 2 groups 1", "flatten", "linear 4"}, {3, 6, 6}},
      {{"conv 3 3 nobias", "batchnorm", "tanh", "flatten", "linear 4"}, {2, 6, 5}},
      {{"linear 6", "batchnorm", "sigmoid", "linear 4"}, {7}},
      {{"block 4 stride 2 batchnorm", "flatten", "linear 4"}, {3, 6, 6}},
      {{"linear 6", "layernorm", "gelu", "residual [linear 6, tanh]", "linear 4"}, {7}},
      {{"embedding 5 3", "positions", "flatten", "linear 4"}, {4}},
      {{"embedding 5 3", "lstm 4 layers 2", "last", "linear 4"}, {6}},
      {{"embedding 4 3", "lstm 5", "linear 4"}, {4}},
      {{"embedding 5 3", "gru 4 layers 2", "mean", "linear 4"}, {6}},
      {{"embedding 4 3", "gru 5", "layernorm", "linear 4"}, {4}},
      {{"embedding 5 6", "attention heads 2", "mean", "linear 4"}, {5}},
      {{"embedding 4 6", "positions", "transformer heads 3 ff 5 causal", "linear 4"}, {5}},
      // With few windows, so that no maximum changes hands within a step.
      {{"conv 3 3 pad 2 nobias", "sigmoid", "maxpool 3 stride 2", "flatten", "linear 4"},
       {1, 4, 5}},
  };
  for (size_t c = 0; c < cases.size(); ++c) {
    RandomRun random(SpecOf(cases[c].layers, cases[c].input, 4, DType::kF32), c);
    const models::ModelSpec& spec = random.spec();
    const auto device = TeamsOf(1);
    const auto trainer = DeviceTrainerOf(random.Setup(), *device);
    const FlatVector at = random.Vector(0.4);
    const ClientTask task = TaskOf(random.Rows(5));
    const auto run = [&](StageKind kind, const FlatVector& point) {
      LocalPlan plan;
      plan.stages = {StageFrom(View(point), 0.1)};
      plan.stages[0].kind = kind;
      plan.stages[0].local.label_smoothing = 0.1;
      return MustRun(*trainer, plan, task)[0];
    };
    const StageOutcome outcome = run(StageKind::kGradient, at);
    // The loss of a gradient is with the moments of its batch, as batch norm's gradient is.
    const StageKind loss_kind = spec.has_buffers() ? StageKind::kGradient : StageKind::kLoss;
    const std::vector<float> gradient(outcome.end.As<float>().begin(),
                                      outcome.end.As<float>().end());
    for (const LayoutEntry& entry : spec.layout->entries()) {
      // Along the gradient itself, where the loss changes most.
      double slope = 0;
      for (uint64_t i = 0; i < entry.size; ++i) {
        slope += std::pow(static_cast<double>(gradient[entry.offset + i]), 2);
      }
      const double length = std::sqrt(slope);
      if (length < 1e-4) continue;  // e.g. a bias before a norm
      const auto loss = [&](double by) {
        FlatVector moved = at.Clone();
        for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
          moved.As<float>()[i] += static_cast<float>(by * gradient[i] / length);
        }
        const StageOutcome there = run(loss_kind, moved);
        return there.sums[1] / there.sums[0];
      };
      const double step = 5e-4;  // small, so that hardly any maximum changes hands
      EXPECT_NEAR((loss(step) - loss(-step)) / (2 * step), length, 0.01 * length + 4e-4)
          << "model " << c << ", " << entry.name;
    }
  }
}

}  // namespace
}  // namespace macaw::training
