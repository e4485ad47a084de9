#include "models/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace macaw::models {
namespace {

using testing::ElementsAre;

ModelSpec Chain(std::vector<std::string> layers, std::vector<int64_t> input, int64_t classes = 3) {
  ModelConfig config;
  config.name = "layers";
  config.layers = std::move(layers);
  config.input_shape = std::move(input);
  config.classes = classes;
  return *BuildSpec(config, DType::kF32);
}

// Sixteen equal layers in segments of three keep at most four inputs and three outputs.
TEST(Segments, OfAnEvenChainAreAboutItsRoot) {
  std::vector<std::string> layers(16, "linear 10");
  layers.push_back("linear 3");
  const Segments segments = SegmentsOf(Chain(layers, {10}));
  EXPECT_EQ(segments.whole, 163);
  EXPECT_LE(segments.most, 80);
  EXPECT_GE(segments.ends.size(), 4u);
  EXPECT_LE(segments.ends.size(), 8u);
  EXPECT_EQ(segments.ends.back(), 17u);
  EXPECT_EQ(segments.ends[segments.ends.size() - 2], 16u) << "the last layer keeps what it has";
}

// A block keeps more than ten times its input, so each is a segment.
TEST(Segments, OfAFewBlocksAreTheBlocks) {
  std::vector<std::string> layers(3, "transformer heads 2 ff 32");
  layers.insert(layers.end(), {"mean", "linear 3"});
  const Segments segments = SegmentsOf(Chain(layers, {6, 8}));
  ASSERT_GE(segments.ends.size(), 4u);
  EXPECT_THAT(std::vector<size_t>(segments.ends.begin(), segments.ends.begin() + 2),
              ElementsAre(1, 2));
  EXPECT_TRUE(segments.save());
}

// A wide layer between narrow ones is computed again, and no wide input is kept.
TEST(Segments, EndWhereLittleIsKept) {
  const Segments segments =
      SegmentsOf(Chain({"linear 4", "tanh", "linear 500", "tanh", "linear 4", "tanh", "linear 500",
                        "tanh", "linear 4", "tanh", "linear 3"},
                       {4}));
  EXPECT_TRUE(segments.save());
  size_t begin = 0;
  for (const size_t end : segments.ends) {
    EXPECT_TRUE(begin != 3 && begin != 4 && begin != 7 && begin != 8) << begin;
    begin = end;
  }
}

// A linear map's output in front of a tanh is not kept, so a cut there would keep one more.
TEST(Segments, OfActivationsEndBehindThem) {
  std::vector<std::string> layers;
  for (int i = 0; i < 9; ++i) layers.insert(layers.end(), {"linear 10", "tanh"});
  layers.push_back("linear 3");
  const Segments segments = SegmentsOf(Chain(layers, {10}));
  EXPECT_EQ(segments.whole, 93);
  EXPECT_LE(segments.most, 60);
  for (size_t i = 0; i + 1 < segments.ends.size(); ++i) EXPECT_EQ(segments.ends[i] % 2, 0u);
}

// More layers than the planner looks at: some in a row are one.
TEST(Segments, OfManyLayersTakeLittleTime) {
  std::vector<std::string> layers(1500, "linear 4");
  layers.push_back("linear 3");
  const Segments segments = SegmentsOf(Chain(layers, {4}));  // minutes, with each place tried
  EXPECT_EQ(segments.whole, 4 * 1500 + 3);
  EXPECT_TRUE(segments.save());
  EXPECT_LE(segments.most, 4 * 90) << "twice the root, about";
  EXPECT_TRUE(std::ranges::is_sorted(segments.ends));
  EXPECT_EQ(segments.ends.back(), 1501u);
  EXPECT_EQ(segments.ends[segments.ends.size() - 2], 1500u);
  for (size_t i = 0; i + 2 < segments.ends.size(); ++i) EXPECT_EQ(segments.ends[i] % 10, 0u);
}

TEST(Segments, AreOneWhereNoneSave) {
  const Segments one = SegmentsOf(Chain({"linear 3"}, {4}));
  EXPECT_FALSE(one.save());
  EXPECT_THAT(one.ends, ElementsAre(1));
  EXPECT_FALSE(SegmentsOf(Chain({"linear 8", "linear 3"}, {4})).save());
}

}  // namespace
}  // namespace macaw::models
