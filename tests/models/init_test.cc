#include <gtest/gtest.h>

#include <cmath>

#include "models/spec.h"

namespace macaw::models {
namespace {

ModelSpec InitSpec(std::vector<std::string> layers, std::vector<int64_t> input, DType dtype) {
  return *BuildSpec({.name = "layers",
                     .layers = std::move(layers),
                     .input_shape = std::move(input),
                     .classes = 10},
                    dtype);
}

TEST(InitialModel, IsUniformWithinOneOverTheRootOfTheFanIn) {
  const ModelSpec spec = InitSpec({"conv 32 5", "flatten", "linear 10"}, {3, 12, 12}, DType::kF32);
  const FlatVector model = InitialModel(spec, 1);
  for (const auto& [name, fan_in] :
       {std::pair("0.weight", 75.0), std::pair("0.bias", 75.0), std::pair("2.weight", 2048.0)}) {
    const LayoutEntry& entry = *spec.layout->Find(name);
    const double bound = 1 / std::sqrt(fan_in);
    double sum = 0, squares = 0, largest = 0;
    for (const float value : model.As<float>().subspan(entry.offset, entry.size)) {
      sum += value;
      squares += value * value;
      largest = std::max<double>(largest, std::abs(value));
    }
    const double n = static_cast<double>(entry.size);
    EXPECT_LE(largest, bound * (1 + 1e-7)) << name;
    EXPECT_GT(largest, bound * 0.8) << name;
    // A uniform variable has variance bound²/3; four standard errors of mean and variance.
    EXPECT_NEAR(sum / n, 0, 4 * bound / std::sqrt(3 * n)) << name;
    EXPECT_NEAR(squares / n / (bound * bound / 3), 1, 4 * 0.9 / std::sqrt(n)) << name;
  }
}

// torch.nn.MultiheadAttention: Glorot's bound for the projection in, zeros for both biases.
TEST(InitialModel, StartsAttentionAsPyTorchDoes) {
  const ModelSpec spec =
      InitSpec({"embedding 10 32", "attention heads 4 causal", "linear 10"}, {6}, DType::kF64);
  const FlatVector model = InitialModel(spec, 1);
  const auto largest = [&](const char* name) {
    const LayoutEntry& entry = *spec.layout->Find(name);
    double most = 0;
    for (const double value : model.As<double>().subspan(entry.offset, entry.size))
      most = std::max(most, std::abs(value));
    return most;
  };
  EXPECT_LE(largest("1.in_proj_weight"), std::sqrt(6.0 / (32 + 96)));
  EXPECT_GT(largest("1.in_proj_weight"), 0.95 * std::sqrt(6.0 / (32 + 96)));
  EXPECT_LE(largest("1.out_proj.weight"), std::sqrt(1.0 / 32));
  EXPECT_GT(largest("1.out_proj.weight"), 0.95 * std::sqrt(1.0 / 32));
  EXPECT_EQ(largest("1.in_proj_bias"), 0);
  EXPECT_EQ(largest("1.out_proj.bias"), 0);
}

TEST(InitialModel, StartsNormsAtTheIdentity) {
  const ModelSpec spec =
      InitSpec({"conv 4 3", "groupnorm 2", "flatten", "linear 10"}, {1, 8, 8}, DType::kF64);
  const FlatVector model = InitialModel(spec, 1);
  const LayoutEntry& weight = *spec.layout->Find("1.weight");
  const LayoutEntry& bias = *spec.layout->Find("1.bias");
  for (uint64_t i = 0; i < weight.size; ++i) {
    EXPECT_EQ(model.As<double>()[weight.offset + i], 1.0);
    EXPECT_EQ(model.As<double>()[bias.offset + i], 0.0);
  }
}

TEST(InitialModel, DependsOnTheSeedAndTheTensorOnly) {
  const ModelSpec one = InitSpec({"linear 20", "linear 10"}, {30}, DType::kF64);
  const ModelSpec two = InitSpec({"linear 20", "relu", "linear 10"}, {30}, DType::kF64);
  EXPECT_EQ(DigestOfValues(InitialModel(one, 7).view()),
            DigestOfValues(InitialModel(two, 7).view()));
  EXPECT_NE(DigestOfValues(InitialModel(one, 7).view()),
            DigestOfValues(InitialModel(one, 8).view()));
}

TEST(InitialModel, IsTheSameNumbersInBothPrecisions) {
  const ModelSpec single = InitSpec({"linear 10"}, {30}, DType::kF32);
  const ModelSpec twice = InitSpec({"linear 10"}, {30}, DType::kF64);
  const FlatVector a = InitialModel(single, 3), b = InitialModel(twice, 3);
  for (uint64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(a.As<float>()[i], static_cast<float>(b.As<double>()[i]));
  }
}

// The bits are the start of every stored run; a change here changes all of them.
TEST(InitialModel, HasTheseBits) {
  const FlatVector model = InitialModel(InitSpec({"linear 10"}, {4}, DType::kF64), 1);
  EXPECT_EQ(model.As<double>()[0], 0x1.8569727fbe6a6p-2);
  EXPECT_EQ(model.As<double>()[39], -0x1.ff19324a972eap-2);
}

}  // namespace
}  // namespace macaw::models
