#include "models/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/random.h"

namespace macaw::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig NetOf(std::vector<std::string> adapters, std::vector<std::string> trained = {}) {
  return {.name = "layers",
          .layers = {"flatten", "linear 6", "relu", "linear 4 nobias"},
          .input_shape = {1, 4, 5},
          .classes = 4,
          .adapters = std::move(adapters),
          .trained = std::move(trained)};
}

// A model of tokens with every layer that has a linear map.
ModelConfig TextOf(std::vector<std::string> adapters) {
  return {.name = "layers",
          .layers = {"embedding 9 8", "transformer heads 2 ff 12 causal",
                     "residual [layernorm, attention heads 2 causal, residual [linear 8, tanh]]",
                     "linear 9"},
          .input_shape = {5},
          .classes = 9,
          .adapters = std::move(adapters)};
}

ModelSpec Built(const ModelConfig& config, DType dtype = DType::kF64) {
  absl::StatusOr<ModelSpec> spec = BuildSpec(config, dtype);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

std::string Refusal(const ModelConfig& config) {
  return std::string(BuildSpec(config, DType::kF64).status().message());
}

std::vector<std::string> AdaptersOf(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const LayoutEntry& entry : spec.layout->entries()) {
    std::string shape;
    for (const int64_t extent : entry.shape) absl::StrAppend(&shape, " ", extent);
    if (entry.name.find("lora_") != std::string::npos) names.push_back(entry.name + shape);
  }
  return names;
}

std::vector<double> Numbers(const ModelSpec& spec, const FlatVector& model,
                            const std::string& name) {
  const LayoutEntry& entry = *spec.layout->Find(name);
  const std::span<const double> values = model.As<double>().subspan(entry.offset, entry.size);
  return {values.begin(), values.end()};
}

// A model whose tensors are all drawn, A and B, too.
FlatVector Drawn(const ModelSpec& spec, uint64_t seed) {
  FlatVector model(spec.layout);
  RandomStream stream({.seed = seed});
  for (const LayoutEntry& entry : spec.layout->entries()) {
    for (double& value : model.As<double>().subspan(entry.offset, entry.size))
      value = stream.Normal();
  }
  return model;
}

TEST(ParseAdapter, ReadsRankAlphaStartAndPattern) {
  const AdapterRule plain = *ParseAdapter("lora 8 0.*");
  EXPECT_EQ(plain.adapter.rank, 8);
  EXPECT_EQ(plain.adapter.scale, 1);
  EXPECT_EQ(plain.adapter.start, AdapterStart::kZero);
  EXPECT_EQ(plain.glob, "0.*");
  const AdapterRule full = *ParseAdapter("lora 4 start pissa alpha 6 *.linear2*");
  EXPECT_EQ(full.adapter.rank, 4);
  EXPECT_EQ(full.adapter.scale, 1.5);
  EXPECT_EQ(full.adapter.start, AdapterStart::kPissa);
  EXPECT_EQ(full.glob, "*.linear2*");
}

TEST(ParseAdapter, SaysWhatIsWrong) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"dora 8 *", "words are missing"},
           {"lora 8", "words are missing"},
           {"lora 0 *", "at least 1, got \"0\""},
           {"lora eight *", "got \"eight\""},
           {"lora 8 alpha -1 *", "a number above 0, got \"-1\""},
           {"lora 8 alpha nan *", "got \"nan\""},
           {"lora 8 start random *", "zero or pissa, got \"random\""},
           {"lora 8 start hdpissa *", "each client other singular vectors"},
           {"lora 8 dropout 0.1 *", "does not take \"dropout\""},
           {"lora 8 alpha 4", "ends with one pattern"},
           {"lora 8 0.* 3.*", "ends with one pattern"}}) {
    const std::string message(ParseAdapter(text).status().message());
    EXPECT_THAT(message, HasSubstr(why)) << text;
    EXPECT_THAT(message, HasSubstr("model.adapters: \"" + text + "\"")) << text;
  }
}

TEST(Adapters, HaveTheNamesOfPeft) {
  EXPECT_THAT(AdaptersOf(Built(NetOf({"lora 2 *"}))),
              ElementsAre("1.lora_A.weight 2 20", "1.lora_B.weight 6 2", "3.lora_A.weight 2 6",
                          "3.lora_B.weight 4 2"));
  EXPECT_THAT(AdaptersOf(Built(TextOf({"lora 3 1.linear2*", "lora 1 *in_proj*", "lora 2 *"}))),
              ElementsAre("1.self_attn.lora_A.weight 1 8", "1.self_attn.lora_B.weight 24 1",
                          "1.self_attn.out_proj.lora_A.weight 2 8",
                          "1.self_attn.out_proj.lora_B.weight 8 2", "1.linear1.lora_A.weight 2 8",
                          "1.linear1.lora_B.weight 12 2", "1.linear2.lora_A.weight 3 12",
                          "1.linear2.lora_B.weight 8 3", "2.1.lora_A.weight 1 8",
                          "2.1.lora_B.weight 24 1", "2.1.out_proj.lora_A.weight 2 8",
                          "2.1.out_proj.lora_B.weight 8 2", "2.2.0.lora_A.weight 2 8",
                          "2.2.0.lora_B.weight 8 2", "3.lora_A.weight 2 8", "3.lora_B.weight 9 2"));
}

TEST(Adapters, OfNoLinearLayerAreRefused) {
  EXPECT_THAT(Refusal(NetOf({"lora 2 2.*"})),
              HasSubstr("names no weight that is left of 1.weight, 3.weight"));
  EXPECT_THAT(Refusal(NetOf({"lora 2 1.*", "lora 1 1.weight"})),
              HasSubstr("\"lora 1 1.weight\": the pattern names no weight that is left"));
  EXPECT_THAT(Refusal(NetOf({"lora 5 *"})),
              HasSubstr("the rank is larger than a side of 3.weight [4, 6]"));
  ModelConfig convolution = NetOf({"lora 1 0.*"});
  convolution.layers = {"conv 2 3", "flatten", "linear 4"};
  EXPECT_THAT(Refusal(convolution), HasSubstr("left of 2.weight"));
  EXPECT_THAT(Refusal({.name = "torchscript",
                       .input_shape = {4},
                       .classes = 2,
                       .adapters = {"lora 1 *"},
                       .tensors = {"parameter a.weight 2 4"}}),
              HasSubstr("a module of PyTorch brings its own"));
}

TEST(Adapters, FreezeWhatIsNotNamed) {
  EXPECT_THAT(Built(NetOf({"lora 2 1.*"})).frozen,
              ElementsAre(true, true, false, false, true));  // W, b, A, B; W
  EXPECT_THAT(Built(NetOf({"lora 2 1.*"}, {"3.*", "1.bias"})).frozen,
              ElementsAre(true, false, false, false, false));
  ModelConfig second = NetOf({"lora 2 *"});
  second.frozen = {"*.lora_A.weight"};
  EXPECT_THAT(Built(second).frozen, ElementsAre(true, true, true, false, true, true, false));
  EXPECT_THAT(Built(NetOf({}, {"3.*"})).frozen, ElementsAre(true, true, false));
  EXPECT_THAT(Built(NetOf({}, {"*", "!1.bias"})).frozen, ElementsAre(false, true, false));
  EXPECT_THAT(Refusal(NetOf({"lora 2 1.*"}, {"4.*"})),
              HasSubstr("model.trained: \"4.*\" is no tensor of the model; it has 1.weight"));
  ModelConfig none = NetOf({"lora 2 1.*"});
  none.frozen = {"*lora*"};
  EXPECT_THAT(Refusal(none), HasSubstr("nothing to train"));
  EXPECT_THAT(Refusal(NetOf({}, {"*", "!*"})), HasSubstr("model.trained names no parameter"));
}

TEST(Adapters, LeaveTheOtherInitialValuesAsTheyAre) {
  const ModelSpec plain = Built(TextOf({})), adapted = Built(TextOf({"lora 2 *"}));
  const FlatVector without = InitialModel(plain, 7), with = InitialModel(adapted, 7);
  for (const LayoutEntry& entry : plain.layout->entries())
    EXPECT_EQ(Numbers(adapted, with, entry.name), Numbers(plain, without, entry.name));
  const FlatVector again = WithInitialAdapters(adapted, without, 7);
  EXPECT_EQ(DigestOfValues(again.view()), DigestOfValues(with.view()));
  const FlatVector other = WithInitialAdapters(adapted, InitialModel(plain, 8), 7);
  EXPECT_EQ(Numbers(adapted, other, "3.lora_A.weight"), Numbers(adapted, with, "3.lora_A.weight"));
  EXPECT_NE(Numbers(adapted, other, "3.weight"), Numbers(adapted, with, "3.weight"));
}

// The variance of peft's Kaiming-uniform A, 1/(3·in), of a normal distribution.
TEST(Adapters, BeginWithNormalAAndZeroB) {
  ModelConfig config = NetOf({"lora 40 1.*"});
  config.layers = {"flatten", "linear 64", "linear 4"};
  config.input_shape = {300};
  const ModelSpec spec = Built(config);
  const FlatVector model = InitialModel(spec, 3);
  const std::vector<double> a = Numbers(spec, model, "1.lora_A.weight");
  double sum = 0, squares = 0, fourth = 0;
  for (const double value : a) {
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  const auto n = static_cast<double>(a.size());
  const double variance = 1.0 / 900;
  EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n / variance, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n / (variance * variance), 3, 4 * std::sqrt(96 / n));
  EXPECT_THAT(Numbers(spec, model, "1.lora_B.weight"), testing::Each(0.0));
}

TEST(Adapters, OfAFileHaveTheScalesOfTheModel) {
  const ModelSpec spec = Built(NetOf({"lora 2 alpha 4 1.*", "lora 1 3.*"}));
  const auto refusal = [&](const std::vector<std::string>& rules) {
    return std::string(CheckScales(spec, rules).message());
  };
  EXPECT_EQ(refusal({"lora 2 alpha 4 1.*", "lora 1 3.*"}), "");
  EXPECT_EQ(refusal({"lora 1 start pissa 3.weight", "lora 2 alpha 4.0 *"}), "");
  EXPECT_THAT(
      refusal({"lora 2 1.*", "lora 1 3.*"}),
      AllOf(HasSubstr("1.weight"), HasSubstr("α/r = 1"), HasSubstr("\"lora 2 alpha 2 …\"")));
  EXPECT_THAT(refusal({"lora 2 alpha 4 1.*", "lora 1 alpha 3 3.*"}),
              AllOf(HasSubstr("3.weight"), HasSubstr("\"lora 1 alpha 3 …\"")));
}

TEST(MergeAdapters, AddsTheScaledProductToTheWeight) {
  const ModelSpec spec = Built(TextOf({"lora 2 alpha 5 1.linear1*", "lora 1 2.1.in_proj*"}));
  const FlatVector model = Drawn(spec, 4);
  const absl::StatusOr<MergedModel> merged = MergeAdapters(spec, model);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->spec.layout->digest(), Built(TextOf({})).layout->digest());
  EXPECT_EQ(merged->spec.tensors, Built(TextOf({})).tensors);
  EXPECT_TRUE(merged->spec.frozen.empty());
  EXPECT_TRUE(merged->spec.adapters.empty());
  for (const LayoutEntry& entry : merged->spec.layout->entries()) {
    const std::vector<double> found = Numbers(merged->spec, merged->model, entry.name);
    std::vector<double> expected = Numbers(spec, model, entry.name);
    const bool first = entry.name == "1.linear1.weight",
               second = entry.name == "2.1.in_proj_weight";
    if (!first && !second) {
      EXPECT_EQ(found, expected) << entry.name;
      continue;
    }
    const std::string place = first ? "1.linear1." : "2.1.";
    const std::vector<double> a = Numbers(spec, model, place + "lora_A.weight");
    const std::vector<double> b = Numbers(spec, model, place + "lora_B.weight");
    const size_t rank = first ? 2 : 1, in = 8;
    for (size_t o = 0; o < expected.size() / in; ++o) {
      for (size_t i = 0; i < in; ++i) {
        for (size_t k = 0; k < rank; ++k)
          expected[o * in + i] += (first ? 2.5 : 1.0) * b[o * rank + k] * a[k * in + i];
        EXPECT_NEAR(found[o * in + i], expected[o * in + i], 1e-13) << entry.name;
      }
    }
  }
}

TEST(StartAdapters, PissaLeavesTheModelAndTakesItsLargestParts) {
  for (const char* rule : {"lora 2 start pissa 1.*", "lora 3 alpha 12 start pissa *"}) {
    const ModelSpec spec = Built(NetOf({rule}));
    FlatVector model = InitialModel(spec, 5);
    const MergedModel before = *MergeAdapters(spec, model);  // B is zero
    ASSERT_TRUE(StartAdapters(spec, model).ok());
    const MergedModel after = *MergeAdapters(spec, model);
    for (size_t i = 0; i < before.model.As<double>().size(); ++i)
      EXPECT_NEAR(after.model.As<double>()[i], before.model.As<double>()[i], 1e-14) << rule;
    for (const AdaptedWeight& adapted : spec.adapters) {
      const auto& entries = spec.layout->entries();
      const std::vector<double> w =
          Numbers(before.spec, before.model, entries[adapted.weight].name);
      const std::vector<double> rest = Numbers(spec, model, entries[adapted.weight].name);
      const std::vector<double> a = Numbers(spec, model, entries[adapted.a].name);
      const std::vector<double> b = Numbers(spec, model, entries[adapted.b].name);
      const auto rank = static_cast<size_t>(adapted.adapter.rank);
      const size_t in = a.size() / rank, out = b.size() / rank;
      // A·Aᵀ = Bᵀ·B = diag(σ)/scale, with falling σ, and what is left is orthogonal to both.
      double before_k = HUGE_VAL;
      for (size_t k = 0; k < rank; ++k) {
        for (size_t l = 0; l <= k; ++l) {
          double of_a = 0, of_b = 0;
          for (size_t i = 0; i < in; ++i) of_a += a[k * in + i] * a[l * in + i];
          for (size_t o = 0; o < out; ++o) of_b += b[o * rank + k] * b[o * rank + l];
          EXPECT_NEAR(of_a, of_b, 1e-13);
          if (l < k) {
            EXPECT_NEAR(of_a, 0, 1e-13);
            continue;
          }
          EXPECT_LT(of_a, before_k);
          before_k = of_a;
        }
        for (size_t o = 0; o < out; ++o) {
          double product = 0;
          for (size_t i = 0; i < in; ++i) product += rest[o * in + i] * a[k * in + i];
          EXPECT_NEAR(product, 0, 1e-13);
        }
      }
      // No direction of what is left is as long as the last that was taken.
      double squares = 0;
      for (const double value : rest) squares += value * value;
      const double sigma = before_k * adapted.adapter.scale;
      EXPECT_LE(squares, static_cast<double>(std::min(in, out) - rank) * sigma * sigma);
      EXPECT_NE(rest, w);
    }
  }
}

TEST(StartAdapters, PissaRefusesAWeightWithoutSoManyParts) {
  const ModelSpec spec = Built(NetOf({"lora 2 start pissa 1.*"}));
  FlatVector model = InitialModel(spec, 5);
  const LayoutEntry& entry = *spec.layout->Find("1.weight");
  const std::span<double> weight = model.As<double>().subspan(entry.offset, entry.size);
  for (size_t i = 0; i < weight.size(); ++i)  // of rank 1
    weight[i] = static_cast<double>(i / 20 + 1) * static_cast<double>(i % 20 + 1);
  EXPECT_THAT(StartAdapters(spec, model).ToString(),
              HasSubstr("1.weight has fewer than 2 singular values above 0"));
  weight[3] = std::nan("");
  EXPECT_THAT(StartAdapters(spec, model).ToString(), HasSubstr("1.weight is not finite"));
}

}  // namespace
}  // namespace macaw::models
