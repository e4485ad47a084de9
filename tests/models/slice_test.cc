#include "models/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace macaw::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ModelSpec NetworkOf(std::vector<std::string> layers, std::vector<int64_t> input = {2, 6, 6}) {
  ModelConfig config;
  config.name = "layers";
  config.layers = std::move(layers);
  config.input_shape = std::move(input);
  config.classes = 3;
  return *BuildSpec(config, DType::kF32);
}

const std::vector<std::string> kConvolutions = {"conv 5 3", "relu",        "maxpool 2", "flatten",
                                                "linear 7", "dropout 0.5", "tanh",      "linear 3"};

std::vector<std::string> TensorsIn(const ModelSpec& spec) {
  std::vector<std::string> tensors;
  for (const LayoutEntry& entry : spec.layout->entries()) {
    std::string text = entry.name;
    for (const int64_t extent : entry.shape) text += " " + std::to_string(extent);
    tensors.push_back(text);
  }
  return tensors;
}

std::string RefusalOf(const ModelSpec& spec, double rate = 0.5) {
  return std::string(SliceOf(spec, {.rate = rate}).status().message());
}

TEST(Slice, OfChannelsIsRoundedUp) {
  EXPECT_EQ(ChannelsOf(64, 0.0625), 4);
  EXPECT_EQ(ChannelsOf(5, 0.5), 3);
  EXPECT_EQ(ChannelsOf(30, 0.1), 3);  // 3.0000000000000004 in double
  EXPECT_EQ(ChannelsOf(31, 0.1), 4);
  EXPECT_EQ(ChannelsOf(2, 0.01), 1);
  EXPECT_EQ(ChannelsOf(7, 1), 7);
}

TEST(Slice, KeepsInputsAndOutputsAndTheNamesOfTensors) {
  const ModelSpec slice = *SliceOf(NetworkOf(kConvolutions), {.rate = 0.5});
  // Images of 3 channels of 2 × 2 numbers are flattened.
  EXPECT_THAT(TensorsIn(slice), ElementsAre("0.weight 3 2 3 3", "0.bias 3", "4.weight 4 12",
                                            "4.bias 4", "7.weight 3 4", "7.bias 3"));
  EXPECT_EQ(slice.outputs, 3);
  EXPECT_EQ(slice.shapes.back(), std::vector<int64_t>({3}));
}

TEST(Slice, OfRateOneIsTheModel) {
  const ModelSpec whole = NetworkOf(kConvolutions);
  const ModelSpec slice = *SliceOf(whole, {.rate = 1, .scaled = true});
  EXPECT_EQ(slice.layout->digest(), whole.layout->digest());
  EXPECT_EQ(slice.layers.size(), whole.layers.size());
}

// Behind a flatten the first channels are the first columns, in blocks of an image's numbers.
TEST(Slice, TakesTheFirstRowsAndColumns) {
  const ModelSpec whole = NetworkOf(kConvolutions);
  const ModelSpec spec = *SliceOf(whole, {.rate = 0.5});
  FlatVector model(whole.layout), slice(spec.layout), back(whole.layout);
  for (size_t i = 0; i < model.As<float>().size(); ++i)
    model.As<float>()[i] = static_cast<float>(i + 1);
  ExtractSlice(model.view(), slice.view());
  const auto at = [](const FlatVector& vector, size_t entry, size_t place) {
    return vector.As<float>()[vector.layout()->entries()[entry].offset + place];
  };
  for (size_t o = 0; o < 3; ++o) {  // conv: [5, 2, 3, 3] to [3, 2, 3, 3]
    for (size_t k = 0; k < 18; ++k) EXPECT_EQ(at(slice, 0, o * 18 + k), at(model, 0, o * 18 + k));
  }
  for (size_t o = 0; o < 4; ++o) {  // linear: [7, 5 · 4] to [4, 3 · 4]
    for (size_t channel = 0; channel < 3; ++channel) {
      for (size_t pixel = 0; pixel < 4; ++pixel) {
        EXPECT_EQ(at(slice, 2, o * 12 + channel * 4 + pixel),
                  at(model, 2, o * 20 + channel * 4 + pixel));
      }
    }
  }
  for (size_t o = 0; o < 3; ++o) {  // the output layer: [3, 7] to [3, 4]
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(at(slice, 4, o * 4 + k), at(model, 4, o * 7 + k));
  }
  InsertSlice(slice.view(), back.view());
  uint64_t taken = 0;
  for (size_t i = 0; i < model.As<float>().size(); ++i) {
    if (back.As<float>()[i] == 0) continue;
    EXPECT_EQ(back.As<float>()[i], model.As<float>()[i]);
    ++taken;
  }
  EXPECT_EQ(taken, spec.layout->count());
}

// The scaler passes a ReLU and a max pool, and nothing else.
TEST(Slice, ScalesHiddenOutputsAlone) {
  const ModelSpec slice = *SliceOf(NetworkOf(kConvolutions), {.rate = 0.25, .scaled = true});
  std::vector<size_t> scales;
  for (size_t i = 0; i < slice.layers.size(); ++i) {
    const auto* scale = std::get_if<Scale>(&slice.layers[i]);
    if (scale == nullptr) continue;
    scales.push_back(i);
    EXPECT_EQ(scale->factor, 4);
  }
  EXPECT_THAT(scales, ElementsAre(3, 6));  // behind the pool, and behind the first linear layer
  EXPECT_EQ(slice.layers.size(), kConvolutions.size() + 2);
  EXPECT_EQ(slice.tensors[3].second, 0u);
  EXPECT_EQ(slice.tensors[5], std::make_pair(size_t{2}, size_t{2}));
}

// Without its Scales the slice computes what it did with them: they pass what stands before them.
TEST(Slice, FoldsTheScalerIntoTheWeightsBeforeIt) {
  const std::vector<std::string> layers = {"conv 4 3", "batchnorm", "relu",    "flatten",
                                           "linear 6", "relu",      "linear 3"};
  const ModelSpec whole = NetworkOf(layers);
  const ModelSpec slice = *SliceOf(whole, {.rate = 0.5, .scaled = true});
  FlatVector part(slice.layout);
  for (size_t i = 0; i < part.As<float>().size(); ++i)
    part.As<float>()[i] = static_cast<float>(i + 1);
  FlatVector folded = FlatVector::CopyOf(part.view(), slice.layout);
  FoldScales(slice, folded.view());
  for (const LayoutEntry& entry : slice.layout->entries()) {
    const bool hidden = entry.name.starts_with("0.") || entry.name.starts_with("4.");
    for (size_t i = entry.offset; i < entry.offset + entry.size; ++i)
      EXPECT_EQ(folded.As<float>()[i], (hidden ? 2 : 1) * part.As<float>()[i]) << entry.name;
  }
  FlatVector same = FlatVector::CopyOf(part.view(), slice.layout);
  FoldScales(*SliceOf(whole, {.rate = 0.5}), same.view());
  EXPECT_EQ(DigestOfValues(same.view()), DigestOfValues(part.view())) << "no scaler";
}

TEST(Slice, OfNormsHasTheirChannels) {
  const ModelSpec spec = *SliceOf(NetworkOf({"conv 8 3", "groupnorm 2", "conv 8 3", "batchnorm",
                                             "globalavgpool", "flatten", "linear 3"}),
                                  {.rate = 0.5});
  EXPECT_THAT(TensorsIn(spec),
              ElementsAre("0.weight 4 2 3 3", "0.bias 4", "1.weight 4", "1.bias 4",
                          "2.weight 4 4 3 3", "2.bias 4", "3.weight 4", "3.bias 4", "6.weight 3 4",
                          "6.bias 3", "3.running_mean 4", "3.running_var 4"));
  EXPECT_EQ(spec.buffers[3], std::make_pair(size_t{10}, size_t{2}));
}

TEST(Slice, SaysWhichLayerCannotBeNarrowed) {
  EXPECT_THAT(RefusalOf(NetworkOf({"conv 4 3", "block 8", "flatten", "linear 3"})),
              AllOf(HasSubstr("layer 2"), HasSubstr("\"block\" cannot be narrowed")));
  EXPECT_THAT(RefusalOf(NetworkOf({"flatten", "residual [linear 72]", "linear 3"})),
              AllOf(HasSubstr("layer 2"), HasSubstr("\"residual\"")));
  EXPECT_THAT(RefusalOf(NetworkOf({"linear 8", "layernorm", "linear 3"}, {4})),
              HasSubstr("\"layernorm\""));
  EXPECT_THAT(RefusalOf(NetworkOf({"embedding 9 4", "attention heads 2", "mean", "linear 3"}, {5})),
              HasSubstr("takes sequences"));
  EXPECT_THAT(RefusalOf(NetworkOf({"conv 6 3", "groupnorm 3", "flatten", "linear 3"}), 0.25),
              AllOf(HasSubstr("3 groups"), HasSubstr("2 channels")));
  EXPECT_THAT(RefusalOf(NetworkOf(kConvolutions), 0), HasSubstr("above 0"));
  EXPECT_THAT(RefusalOf(NetworkOf(kConvolutions), 1.5), HasSubstr("at most 1"));
}

}  // namespace
}  // namespace macaw::models
