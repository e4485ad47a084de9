#include "data/gather.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/vector.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Rows of `features`, with the classes 10, 11, ...
template <typename T>
Rows RowsOver(const std::vector<T>& features, size_t elements) {
  static const std::vector<int32_t> classes = {10, 11, 12, 13, 14};
  return {.block = {.type = sizeof(T) == 1 ? FeatureType::kU8 : FeatureType::kF32,
                    .features = reinterpret_cast<const std::byte*>(features.data()),
                    .row_bytes = elements * sizeof(T),
                    .classes = classes.data(),
                    .count = features.size() / elements}};
}

template <typename T = float>
std::vector<T> Gathered(const BatchGather& gather, const Rows& rows,
                        const std::vector<uint32_t>& positions,
                        const AugmentKey* augment = nullptr) {
  AlignedBuffer features(positions.size() * gather.example_bytes());
  std::vector<int64_t> classes(positions.size());
  gather.Gather(rows, positions, augment, features.bytes(), classes, {});
  const auto values = features.As<T>();
  return {values.begin(), values.end()};
}

TEST(BatchGather, NormalisesBytesPerChannel) {
  const std::vector<uint8_t> pixels = {0, 51, 102, 255, 10, 20, 30, 40};
  const Rows rows = RowsOver(pixels, 4);
  const TransformConfig transform{.scale = 1.0 / 255, .mean = {0.2, 0.4}, .std = {0.5, 0.1}};
  const BatchGather gather(FeatureType::kU8, {2, 1, 2}, transform, DType::kF32);
  const std::vector<float> x = Gathered(gather, rows, {0});
  EXPECT_NEAR(x[0], -0.4, 1e-6);
  EXPECT_NEAR(x[1], 0.0, 1e-6);
  EXPECT_NEAR(x[2], 0.0, 1e-6);
  EXPECT_NEAR(x[3], 6.0, 1e-6);
  const BatchGather wide(FeatureType::kU8, {2, 1, 2}, transform, DType::kF64);
  EXPECT_NEAR(Gathered<double>(wide, rows, {0})[0], -0.4, 1e-15);
}

TEST(BatchGather, TakesRowsByPositionThroughTheIndex) {
  const std::vector<float> features = {0, 1, 2, 3, 4, 5};
  Rows rows = RowsOver(features, 2);
  const std::vector<uint32_t> index = {2, 0};
  rows.index = index;
  const BatchGather gather(FeatureType::kF32, {2}, {}, DType::kF32);
  std::vector<float> x(4);
  std::vector<int64_t> y(2);
  gather.Gather(rows, std::vector<uint32_t>{1, 0}, nullptr, std::as_writable_bytes(std::span(x)), y,
                {});
  EXPECT_THAT(x, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(y, ElementsAre(10, 12));
}

TEST(BatchGather, ConvertsTargetsToTheRunsType) {
  const std::vector<float> features = {1, 2}, targets = {0.5F, -0.25F};
  const Rows rows{.block = {.features = reinterpret_cast<const std::byte*>(features.data()),
                            .row_bytes = 4,
                            .targets = targets.data(),
                            .count = 2}};
  const BatchGather gather(FeatureType::kF32, {1}, {}, DType::kF64);
  std::vector<double> x(2), t(2);
  gather.Gather(rows, std::vector<uint32_t>{1, 0}, nullptr, std::as_writable_bytes(std::span(x)),
                {}, std::as_writable_bytes(std::span(t)));
  EXPECT_THAT(x, ElementsAre(2, 1));
  EXPECT_THAT(t, ElementsAre(-0.25, 0.5));
}

TEST(BatchGather, CopiesTokens) {
  const std::vector<int32_t> tokens = {5, -1, 7, 8};
  const Rows rows{.block = {.type = FeatureType::kI32,
                            .features = reinterpret_cast<const std::byte*>(tokens.data()),
                            .row_bytes = 8,
                            .count = 2}};
  const BatchGather gather(FeatureType::kI32, {2}, {}, DType::kF64);
  EXPECT_EQ(gather.example_bytes(), 8u);
  EXPECT_THAT(Gathered<int32_t>(gather, rows, {1, 0}), ElementsAre(7, 8, 5, -1));
}

TEST(BatchGather, BitsDoNotDependOnWhereRowsLie) {
  std::vector<float> values(5 * 123);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const BatchGather gather(FeatureType::kF32, {123}, {.scale = 0.3, .mean = {0.1}, .std = {0.7}},
                           DType::kF32);
  const std::vector<float> expected = Gathered(gather, RowsOver(values, 123), {3});
  for (size_t offset = 0; offset < 9; ++offset) {
    std::vector<std::byte> shifted(values.size() * 4 + offset);
    std::memcpy(shifted.data() + offset, values.data(), values.size() * 4);
    Rows rows = RowsOver(values, 123);
    rows.block.features = shifted.data() + offset;
    const std::vector<float> batch = Gathered(gather, rows, {0, 3, 1});
    EXPECT_EQ(std::memcmp(batch.data() + 123, expected.data(), 123 * 4), 0) << offset;
  }
}

std::vector<float> Image(int64_t side) {
  std::vector<float> image(static_cast<size_t>(side * side));
  std::iota(image.begin(), image.end(), 1.0F);
  return image;
}

TEST(BatchGather, FlipsHalfOfTheRowsLeftToRight) {
  const std::vector<float> image = Image(3);
  const Rows rows = RowsOver(image, 9);
  const BatchGather gather(FeatureType::kF32, {1, 3, 3}, {.flip = true}, DType::kF32);
  int flipped = 0;
  for (uint32_t epoch = 0; epoch < 400; ++epoch) {
    const AugmentKey key{.seed = 1, .epoch = epoch};
    const std::vector<float> x = Gathered(gather, rows, {0}, &key);
    if (x[0] == 3) {
      EXPECT_THAT(x, ElementsAre(3, 2, 1, 6, 5, 4, 9, 8, 7));
      ++flipped;
    } else {
      EXPECT_EQ(x, image);
    }
  }
  EXPECT_NEAR(flipped, 200, 50);
}

TEST(BatchGather, CropsAPaddedImageEverywhereItFits) {
  const std::vector<float> image = Image(3);
  const Rows rows = RowsOver(image, 9);
  const BatchGather gather(FeatureType::kF32, {1, 3, 3}, {.pad_crop = 1}, DType::kF32);
  std::map<std::pair<int, int>, int> seen;
  for (uint32_t epoch = 0; epoch < 900; ++epoch) {
    const AugmentKey key{.seed = 2, .epoch = epoch};
    const std::vector<float> x = Gathered(gather, rows, {0}, &key);
    int matches = 0;
    for (int down = -1; down <= 1; ++down) {
      for (int right = -1; right <= 1; ++right) {
        bool equal = true;
        for (int y = 0; y < 3; ++y) {
          for (int c = 0; c < 3; ++c) {
            const int from_y = y + down, from_c = c + right;
            const bool inside = from_y >= 0 && from_y < 3 && from_c >= 0 && from_c < 3;
            equal = equal && x[y * 3 + c] == (inside ? image[from_y * 3 + from_c] : 0);
          }
        }
        if (equal) ++matches, ++seen[{down, right}];
      }
    }
    ASSERT_EQ(matches, 1);
  }
  EXPECT_EQ(seen.size(), 9u);
  for (const auto& [place, count] : seen) EXPECT_NEAR(count, 100, 40);
}

TEST(BatchGather, PadsBeyondTheImageWithZeros) {
  const std::vector<float> image = Image(2);
  const BatchGather gather(FeatureType::kF32, {1, 2, 2}, {.pad_crop = 40}, DType::kF32);
  for (uint32_t epoch = 0; epoch < 50; ++epoch) {
    const AugmentKey key{.seed = 2, .epoch = epoch};
    const std::vector<float> x = Gathered(gather, RowsOver(image, 4), {0}, &key);
    EXPECT_LE(std::accumulate(x.begin(), x.end(), 0.0F), 10);
  }
}

// numpy.pad(numpy.arange(1, 13).reshape(3, 4), 2, mode): "constant", "reflect", "edge".
struct Padded {
  PadMode mode;
  std::array<std::array<float, 8>, 7> image;
};
const Padded kPadded[] = {{PadMode::kZeros,
                           {{{0, 0, 0, 0, 0, 0, 0, 0},
                             {0, 0, 0, 0, 0, 0, 0, 0},
                             {0, 0, 1, 2, 3, 4, 0, 0},
                             {0, 0, 5, 6, 7, 8, 0, 0},
                             {0, 0, 9, 10, 11, 12, 0, 0},
                             {0, 0, 0, 0, 0, 0, 0, 0},
                             {0, 0, 0, 0, 0, 0, 0, 0}}}},
                          {PadMode::kReflect,
                           {{{11, 10, 9, 10, 11, 12, 11, 10},
                             {7, 6, 5, 6, 7, 8, 7, 6},
                             {3, 2, 1, 2, 3, 4, 3, 2},
                             {7, 6, 5, 6, 7, 8, 7, 6},
                             {11, 10, 9, 10, 11, 12, 11, 10},
                             {7, 6, 5, 6, 7, 8, 7, 6},
                             {3, 2, 1, 2, 3, 4, 3, 2}}}},
                          {PadMode::kEdge,
                           {{{1, 1, 1, 2, 3, 4, 4, 4},
                             {1, 1, 1, 2, 3, 4, 4, 4},
                             {1, 1, 1, 2, 3, 4, 4, 4},
                             {5, 5, 5, 6, 7, 8, 8, 8},
                             {9, 9, 9, 10, 11, 12, 12, 12},
                             {9, 9, 9, 10, 11, 12, 12, 12},
                             {9, 9, 9, 10, 11, 12, 12, 12}}}}};

TEST(BatchGather, CropsFromWhatNumPyPadsThenFlips) {
  std::vector<float> image(2 * 12);  // the second channel is the first, and a hundred more
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = static_cast<float>(i % 12 + 1 + i / 12 * 100);
  for (const Padded& padded : kPadded) {
    const TransformConfig transform{.pad_crop = 2, .pad_mode = padded.mode, .flip = true};
    const BatchGather gather(FeatureType::kF32, {2, 3, 4}, transform, DType::kF32);
    std::set<std::tuple<int64_t, int64_t, bool>> seen;
    for (uint32_t epoch = 0; epoch < 600; ++epoch) {
      const AugmentKey key{.seed = 3, .epoch = epoch};
      const Move move = MoveOf(key, transform, 0);
      std::vector<float> expected;
      for (int64_t c = 0; c < 2; ++c) {
        for (int64_t y = 0; y < 3; ++y) {
          for (int64_t x = 0; x < 4; ++x) {
            const int64_t from = move.mirror ? 3 - x : x;
            const float pixel = padded.image.at(2 + move.down + y).at(2 + move.right + from);
            const bool zero = padded.mode == PadMode::kZeros && pixel == 0;
            expected.push_back(pixel + (c == 1 && !zero ? 100 : 0));
          }
        }
      }
      ASSERT_EQ(Gathered(gather, RowsOver(image, 24), {0}, &key), expected)
          << "mode " << static_cast<int>(padded.mode) << ", epoch " << epoch;
      seen.emplace(move.down, move.right, move.mirror);
    }
    EXPECT_EQ(seen.size(), 50u);  // every crop, as it is and mirrored
  }
}

TEST(BatchGather, RepeatsTheEdgeBeyondTheImage) {
  const std::vector<float> image = Image(2);
  const TransformConfig transform{.pad_crop = 40, .pad_mode = PadMode::kEdge};
  const BatchGather gather(FeatureType::kF32, {1, 2, 2}, transform, DType::kF32);
  for (uint32_t epoch = 0; epoch < 50; ++epoch) {
    const AugmentKey key{.seed = 2, .epoch = epoch};
    const Move move = MoveOf(key, transform, 0);
    const auto shown = [](int64_t at) { return std::clamp<int64_t>(at, 0, 1); };
    std::vector<float> expected;
    for (int64_t y = 0; y < 2; ++y) {
      for (int64_t x = 0; x < 2; ++x)
        expected.push_back(image[2 * shown(y + move.down) + shown(x + move.right)]);
    }
    EXPECT_EQ(Gathered(gather, RowsOver(image, 4), {0}, &key), expected);
  }
}

TEST(BatchGather, AugmentationFollowsItsKeyAndNotTheBatch) {
  std::vector<float> images(4 * 64);
  std::iota(images.begin(), images.end(), 0.0F);
  const Rows rows = RowsOver(images, 64);
  const TransformConfig transform{.pad_crop = 2, .flip = true};
  const BatchGather gather(FeatureType::kF32, {1, 8, 8}, transform, DType::kF32);
  const AugmentKey key{.seed = 1, .round = Round(3), .client = ClientId(4), .epoch = 1};
  const std::vector<float> all = Gathered(gather, rows, {0, 1, 2, 3}, &key);
  const std::vector<float> one = Gathered(gather, rows, {2}, &key);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + 2 * 64));
  for (int field = 0; field < 4; ++field) {
    AugmentKey other = key;
    if (field == 0) other.seed = 2;
    if (field == 1) other.round = Round(4);
    if (field == 2) other.client = ClientId(5);
    if (field == 3) other.epoch = 2;
    EXPECT_NE(Gathered(gather, rows, {0, 1, 2, 3}, &other), all) << field;
  }
}

Rows WithNoise(Rows rows, uint64_t client, Split split = Split::kTrain, uint64_t seed = 1) {
  rows.noise = {.seed = seed, .client = ClientId(client), .split = split, .clients = 10};
  return rows;
}

TEST(BatchGather, NoiseGrowsWithTheClientsRank) {
  const std::vector<float> zeros(10000);
  const Rows rows = RowsOver(zeros, 10000);
  const BatchGather gather(FeatureType::kF32, {10000}, {.client_noise = 2.0}, DType::kF32);
  const auto deviation = [&](uint64_t client) {
    double squares = 0;
    for (const float x : Gathered(gather, WithNoise(rows, client), {0}))
      squares += double{x} * x / 10000;
    return std::sqrt(squares);
  };
  EXPECT_NEAR(deviation(0), 0.2, 0.01);
  EXPECT_NEAR(deviation(9), 2.0, 0.1);
  EXPECT_EQ(Gathered(gather, rows, {0}), zeros);  // rows of no client: the central test set
}

TEST(BatchGather, NoiseBelongsToTheRowAndIsTheSameInTrainingAndEvaluation) {
  std::vector<float> stored(4 * 64);
  std::iota(stored.begin(), stored.end(), 0.0F);
  const Rows plain = RowsOver(stored, 64), rows = WithNoise(plain, 3);
  const BatchGather gather(FeatureType::kF32, {1, 8, 8}, {.client_noise = 0.5}, DType::kF32);
  const std::vector<float> evaluated = Gathered(gather, rows, {0, 1, 2, 3});
  EXPECT_NE(evaluated, stored);
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    const AugmentKey key{.seed = 1, .round = Round(epoch), .client = ClientId(3), .epoch = epoch};
    EXPECT_EQ(Gathered(gather, rows, {0, 1, 2, 3}, &key), evaluated);
  }
  const std::vector<float> third = Gathered(gather, rows, {2});
  EXPECT_TRUE(std::equal(third.begin(), third.end(), evaluated.begin() + 2 * 64));
  EXPECT_NE(Gathered(gather, WithNoise(plain, 4), {0}), Gathered(gather, rows, {0}));
  EXPECT_NE(Gathered(gather, WithNoise(plain, 3, Split::kTest), {0}), Gathered(gather, rows, {0}));
  EXPECT_NE(Gathered(gather, WithNoise(plain, 3, Split::kTrain, 2), {0}),
            Gathered(gather, rows, {0}));
  // In joined rows it stays that of the client who gave the row.
  const std::vector<RowOwner> owners = {{ClientId(8), 0}, {ClientId(3), 1}};
  Rows joined = WithNoise(RowsOver(stored, 64), 0);
  joined.owners = owners;
  Rows tail = rows;
  tail.block.features += tail.block.row_bytes;
  EXPECT_EQ(Gathered(gather, joined, {2}), Gathered(gather, tail, {1}));
  EXPECT_EQ(Gathered(gather, joined, {0}), Gathered(gather, WithNoise(plain, 8), {0}));
  // A flip mirrors the noise together with the image.
  const BatchGather flips(FeatureType::kF32, {1, 8, 8}, {.flip = true, .client_noise = 0.5},
                          DType::kF32);
  std::vector<float> mirrored = Gathered(flips, rows, {0});
  const std::vector<float> straight = mirrored;
  for (size_t line = 0; line < 8; ++line)
    std::reverse(mirrored.begin() + line * 8, mirrored.begin() + line * 8 + 8);
  bool flipped = false;
  for (uint32_t epoch = 0; epoch < 20; ++epoch) {
    const AugmentKey key{.seed = 1, .epoch = epoch};
    const std::vector<float> x = Gathered(flips, rows, {0}, &key);
    EXPECT_TRUE(x == straight || x == mirrored);
    flipped = flipped || x == mirrored;
  }
  EXPECT_TRUE(flipped);
}

TEST(BatchGather, ChecksTheTransformAgainstTheData) {
  const auto message = [](FeatureType type, std::vector<int64_t> shape,
                          const TransformConfig& transform) {
    return std::string(BatchGather::Check(type, shape, transform).message());
  };
  EXPECT_EQ(
      message(FeatureType::kU8, {3, 8, 8}, {.mean = {1, 2, 3}, .std = {1, 1, 2}, .pad_crop = 2}),
      "");
  EXPECT_THAT(message(FeatureType::kU8, {1, 8, 8}, {.mean = {1, 2}}),
              HasSubstr("2 numbers, the data has 1"));
  EXPECT_THAT(message(FeatureType::kU8, {1, 8, 8}, {.std = {0}}), HasSubstr("must be above 0"));
  EXPECT_THAT(message(FeatureType::kF32, {60}, {.flip = true}), HasSubstr("needs images"));
  EXPECT_THAT(message(FeatureType::kF32, {1, 2, 2}, {.pad_crop = -1}),
              HasSubstr("not be negative"));
  const auto padded = [&](int64_t pixels, PadMode mode) {
    return message(FeatureType::kU8, {3, 8, 6}, {.pad_crop = pixels, .pad_mode = mode});
  };
  EXPECT_EQ(padded(5, PadMode::kReflect), "");
  EXPECT_THAT(padded(6, PadMode::kReflect),
              AllOf(HasSubstr("data.augment.pad_crop is 6"), HasSubstr("at most 5")));
  EXPECT_EQ(padded(6, PadMode::kEdge), "");
  EXPECT_EQ(padded(6, PadMode::kZeros), "");
  EXPECT_THAT(message(FeatureType::kI32, {80}, {.scale = 0.5}), HasSubstr("tokens"));
  EXPECT_THAT(message(FeatureType::kF32, {}, {}), HasSubstr("empty"));
}

}  // namespace
}  // namespace macaw::data
