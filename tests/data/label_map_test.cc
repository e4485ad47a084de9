#include "data/label_map.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <numeric>
#include <set>

namespace macaw::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

NoiseKey Of(uint64_t client, Split split = Split::kTrain, uint64_t seed = 3) {
  return {.seed = seed, .client = ClientId(client), .split = split, .clients = 100};
}

std::vector<int32_t> Labels(const TransformConfig& transform, const NoiseKey& key, int32_t stored,
                            uint64_t rows, int64_t classes = 10) {
  const RowChanges changes = ChangesOf(transform, key, classes);
  std::vector<int32_t> labels;
  for (uint64_t row = 0; row < rows; ++row)
    labels.push_back(changes.any() ? LabelOf(changes, key, row, stored) : stored);
  return labels;
}

TEST(LabelNoise, GivesThatShareOfRowsAnotherClassUniformly) {
  constexpr uint64_t kRows = 45000;
  std::map<int32_t, double> count;
  for (const int32_t label : Labels({.label_noise = 0.2}, Of(7), 4, kRows)) ++count[label];
  EXPECT_EQ(count.size(), 10u);
  // Five standard deviations: √(45000 · 0.8 · 0.2) = 85, and √(45000 · 0.0222) = 32.
  EXPECT_NEAR(count[4], 0.8 * kRows, 425);
  for (const auto& [label, rows] : count) {
    if (label == 4) continue;
    EXPECT_NEAR(rows, 0.2 / 9 * kRows, 160) << label;
  }
}

TEST(LabelNoise, OfOneLeavesNoLabelAndOfTwoClassesSwapsThem) {
  for (const int32_t label : Labels({.label_noise = 1}, Of(1), 0, 200)) EXPECT_NE(label, 0);
  EXPECT_THAT(Labels({.label_noise = 1}, Of(1), 0, 20, /*classes=*/2), Each(1));
  EXPECT_THAT(Labels({.label_noise = 1}, Of(1), 1, 20, /*classes=*/2), Each(0));
}

TEST(LabelNoise, BelongsToSeedClientAndRowAndLeavesOtherSplitsClean) {
  const TransformConfig noise{.label_noise = 0.5};
  const std::vector<int32_t> labels = Labels(noise, Of(5), 2, 400);
  const std::vector<int32_t> first(labels.begin(), labels.begin() + 50);
  EXPECT_EQ(Labels(noise, Of(5), 2, 50), first);  // whatever rows there are behind them
  EXPECT_NE(Labels(noise, Of(6), 2, 400), labels);
  EXPECT_NE(Labels(noise, Of(5, Split::kTrain, /*seed=*/4), 2, 400), labels);
  for (const Split split : {Split::kValidation, Split::kTest})
    EXPECT_FALSE(ChangesOf(noise, Of(5, split), 10).any());
}

TEST(LabelNoise, IsThatOfAShareOfTheClients) {
  const TransformConfig noise{.label_noise = 0.3, .label_noise_clients = 0.25};
  int noisy = 0;
  for (uint64_t client = 0; client < 4000; ++client)
    noisy += ChangesOf(noise, Of(client), 10).any() ? 1 : 0;
  EXPECT_NEAR(noisy, 1000, 137);  // five standard deviations
}

TEST(FlippedLabels, AreCountedFromTheOtherEndAfterAllOtherChanges) {
  RowChanges changes{.classes = 10, .flipped = true};
  EXPECT_TRUE(changes.labels());
  for (const int32_t label : {0, 4, 9}) EXPECT_EQ(LabelOf(changes, Of(1), 0, label), 9 - label);
  changes.renamed = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0};
  EXPECT_EQ(LabelOf(changes, Of(1), 0, 2), 9 - 3);
  changes.label_noise = 0.5;
  RowChanges unflipped = changes;
  unflipped.flipped = false;
  for (uint64_t row = 0; row < 50; ++row)
    EXPECT_EQ(LabelOf(changes, Of(1), row, 2), 9 - LabelOf(unflipped, Of(1), row, 2));
}

TEST(ConceptShift, PutsClientsIntoGroupsOfAboutEqualSizeBySeed) {
  const TransformConfig shift{.concept_shift = ConceptShift::kRotation};
  std::map<uint32_t, int> size;
  int moved = 0;
  for (uint64_t client = 0; client < 4000; ++client) {
    const uint32_t group = ConceptGroups(shift, Of(client).seed).Of(ClientId(client));
    ++size[group];
    moved += group != ConceptGroups(shift, 4).Of(ClientId(client)) ? 1 : 0;
    EXPECT_EQ(ChangesOf(shift, Of(client, Split::kTest), 10).quarter_turns, group);
    EXPECT_EQ(ChangesOf(shift, Of(client), 10).quarter_turns, group);
  }
  EXPECT_EQ(size.size(), 4u);
  for (const auto& [group, clients] : size) EXPECT_NEAR(clients, 1000, 137) << group;
  EXPECT_NEAR(moved, 3000, 137);
}

TEST(ConceptShift, RenamesClassesSoThatGroupsDisagreeAboutEachOfThem) {
  constexpr int32_t kClasses = 7;
  const TransformConfig shift{.concept_shift = ConceptShift::kLabelPermutation,
                              .concept_shift_groups = 7};
  std::map<uint32_t, std::vector<int32_t>> names;
  for (uint64_t client = 0; client < 200; ++client) {
    std::vector<int32_t> renamed;
    for (int32_t label = 0; label < kClasses; ++label)
      renamed.push_back(Labels(shift, Of(client), label, 1, kClasses)[0]);
    const uint32_t group = ConceptGroups(shift, Of(client).seed).Of(ClientId(client));
    EXPECT_EQ(names.emplace(group, renamed).first->second, renamed);  // one permutation a group
    EXPECT_EQ(std::set(renamed.begin(), renamed.end()).size(), 7u);
  }
  ASSERT_EQ(names.size(), 7u);
  EXPECT_THAT(names[0], ElementsAre(0, 1, 2, 3, 4, 5, 6));
  for (size_t label = 0; label < kClasses; ++label) {
    std::set<int32_t> of_label;
    for (const auto& [group, renamed] : names) of_label.insert(renamed[label]);
    EXPECT_EQ(of_label.size(), 7u) << label;
  }
}

// Three rows of 2 x 2 bytes.
struct Stored {
  std::vector<uint8_t> pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<int32_t> classes = {0, 1, 2};
  std::vector<uint32_t> index;
  Rows rows() const {
    return {.block = {.type = FeatureType::kU8,
                      .features = reinterpret_cast<const std::byte*>(pixels.data()),
                      .row_bytes = 4,
                      .classes = classes.data(),
                      .count = 3},
            .index = index,
            .keep_alive = nullptr,
            .noise = Of(1),
            .client_name = "ann"};
  }
};

std::vector<int> Pixels(const Rows& rows, uint64_t i) {
  const auto* pixels =
      reinterpret_cast<const uint8_t*>(rows.block.features + rows.at(i) * rows.block.row_bytes);
  return std::vector<int>(pixels, pixels + 4);
}

absl::StatusOr<Rows> Changed(const Rows& rows, const RowChanges& changes,
                             const std::vector<int64_t>& shape) {
  return ApplyChanges(rows, {&changes, 1}, shape);
}

TEST(ApplyChanges, TurnsImagesCounterclockwise) {
  const Stored stored;
  const auto turned = [&](uint32_t quarters) {
    return *Changed(stored.rows(), {.classes = 3, .quarter_turns = quarters}, {1, 2, 2});
  };
  // numpy.rot90([[1, 2], [3, 4]], k)
  EXPECT_THAT(Pixels(turned(1), 0), ElementsAre(2, 4, 1, 3));
  EXPECT_THAT(Pixels(turned(2), 0), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(Pixels(turned(3), 0), ElementsAre(3, 1, 4, 2));
  EXPECT_THAT(Pixels(turned(1), 2), ElementsAre(10, 12, 9, 11));
  EXPECT_THAT(stored.pixels[0], 1);
}

TEST(ApplyChanges, TurnsFloatsOfEachChannelAndRectanglesByHalf) {
  const std::vector<float> image = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // 2 x 2 x 3
  const int32_t label = 0;
  const Rows rows{.block = {.type = FeatureType::kF32,
                            .features = reinterpret_cast<const std::byte*>(image.data()),
                            .row_bytes = 48,
                            .classes = &label,
                            .count = 1}};
  const auto turned = Changed(rows, {.classes = 1, .quarter_turns = 2}, {2, 2, 3});
  ASSERT_TRUE(turned.ok()) << turned.status();
  const auto* values = reinterpret_cast<const float*>(turned->block.features);
  EXPECT_THAT(std::vector<float>(values, values + 12),
              ElementsAre(6, 5, 4, 3, 2, 1, 12, 11, 10, 9, 8, 7));
  EXPECT_THAT(Changed(rows, {.classes = 1, .quarter_turns = 1}, {2, 2, 3}).status().message(),
              HasSubstr("square"));
}

TEST(ApplyChanges, RelabelsTheRowsOfAnIndexInTheirOrderAndKeepsWhatItCopied) {
  Stored stored;
  stored.index = {2, 0};
  absl::StatusOr<Rows> rows = Changed(stored.rows(), {.classes = 3, .renamed = {1, 2, 0}}, {4});
  ASSERT_TRUE(rows.ok()) << rows.status();
  stored.pixels.assign(12, 0);
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->client_name, "ann");
  EXPECT_THAT(Pixels(*rows, 0), ElementsAre(9, 10, 11, 12));
  EXPECT_THAT(Pixels(*rows, 1), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(rows->block.classes[rows->at(0)], 0);
  EXPECT_EQ(rows->block.classes[rows->at(1)], 1);
}

TEST(ApplyChanges, CopiesNoFeaturesOfRowsThatLieTogether) {
  const Stored stored;
  const auto rows = Changed(stored.rows(), {.classes = 3, .renamed = {2, 0, 1}}, {4});
  EXPECT_EQ(rows->block.features, stored.rows().block.features);
  EXPECT_EQ(rows->block.classes[1], 0);
  const auto same = Changed(stored.rows(), {.classes = 3}, {4});
  EXPECT_EQ(same->block.classes, stored.classes.data());
}

TEST(ApplyChanges, TurnsOnlyImagesOfTheShapeThatIsAskedFor) {
  Stored stored;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 256, 256}, {1, 1, 1}}) {
    EXPECT_THAT(
        Changed(stored.rows(), {.classes = 3, .quarter_turns = 2}, shape).status().message(),
        HasSubstr("a row here has 4 values"));
  }
}

TEST(ApplyChanges, OfJoinedRowsAreThoseOfEachOwnersRowsAlone) {
  Stored stored;
  // Client 7 gave the first row, client 5 the other two.
  const std::vector<RowOwner> owners = {{ClientId(7), 0}, {ClientId(5), 1}};
  Rows joined = stored.rows();
  joined.owners = owners;
  const std::vector<RowChanges> changes = {{.classes = 3, .quarter_turns = 1},
                                           {.classes = 3, .label_noise = 0.9}};
  const Rows rows = *ApplyChanges(joined, changes, {1, 2, 2});
  EXPECT_THAT(Pixels(rows, 0), ElementsAre(2, 4, 1, 3));
  EXPECT_THAT(Pixels(rows, 1), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(rows.block.classes[0], 0);
  for (const uint64_t row : {0, 1}) {
    const int32_t stored_class = stored.classes[1 + row];
    EXPECT_EQ(rows.block.classes[1 + row], LabelOf(changes[1], Of(5), row, stored_class));
  }
  // The rows of a prefix, such as a dry run takes.
  joined.block.count = 1;
  EXPECT_THAT(Pixels(*ApplyChanges(joined, changes, {1, 2, 2}), 0), ElementsAre(2, 4, 1, 3));
}

TEST(ApplyChanges, RefusesTargetsDeclaredRowsAndClassesBeyondTheRuns) {
  const Stored stored;
  const auto refusal = [](const Rows& rows, const RowChanges& changes) {
    return std::string(Changed(rows, changes, {4}).status().message());
  };
  const RowChanges renamed{.classes = 3, .renamed = {2, 0, 1}};
  Rows rows = stored.rows();
  rows.block.classes = nullptr;
  EXPECT_THAT(refusal(rows, renamed), HasSubstr("regression"));
  rows.block.features = nullptr;
  EXPECT_THAT(refusal(rows, renamed), HasSubstr("declared"));
  EXPECT_THAT(refusal(stored.rows(), {.classes = 2, .label_noise = 0.1}), HasSubstr("class 2"));
}

TEST(CheckChanges, NamesTheKeyThatDoesNotFit) {
  const auto refusal = [](const TransformConfig& transform,
                          TaskKind task = TaskKind::kClassification, int64_t classes = 10,
                          const std::vector<int64_t>& shape = {1, 28, 28}) {
    return std::string(CheckChanges(transform, task, classes, shape).message());
  };
  const TransformConfig noise{.label_noise = 0.1},
      permuted{.concept_shift = ConceptShift::kLabelPermutation},
      turned{.concept_shift = ConceptShift::kRotation};
  for (const TransformConfig& fits : {noise, permuted, turned}) EXPECT_EQ(refusal(fits), "");
  EXPECT_EQ(refusal(turned, TaskKind::kRegression, 1), "");
  EXPECT_THAT(refusal(noise, TaskKind::kRegression, 1), HasSubstr("data.label_noise"));
  EXPECT_THAT(refusal(permuted, TaskKind::kNextToken), HasSubstr("data.concept_shift"));
  EXPECT_THAT(refusal(permuted, TaskKind::kBinary, 2), HasSubstr("data.concept_shift_groups"));
  EXPECT_THAT(refusal(turned, TaskKind::kClassification, 10, {784}), HasSubstr("data.input_shape"));
  EXPECT_THAT(refusal(turned, TaskKind::kClassification, 10, {1, 28, 30}), HasSubstr("square"));
  EXPECT_EQ(refusal({.concept_shift = ConceptShift::kRotation, .concept_shift_groups = 2},
                    TaskKind::kClassification, 10, {1, 28, 30}),
            "");
  EXPECT_THAT(refusal({.concept_shift = ConceptShift::kRotation, .concept_shift_groups = 3}),
              HasSubstr("data.concept_shift_groups = 3"));
}

}  // namespace
}  // namespace macaw::data
