#include "data/trigger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace macaw::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

AttackConfig Backdoor(uint32_t side, uint32_t target, double poisoned) {
  AttackConfig attack{.kind = "backdoor", .fraction = 0.2};
  attack.trigger = side;
  attack.target = target;
  attack.poisoned = poisoned;
  return attack;
}

// Images of two channels of 2 × 3 pixels; row k has the values 10k, 10k + 1, ….
template <typename T>
struct Images {
  std::vector<T> values;
  std::vector<int32_t> classes;
  std::vector<uint32_t> index;
  inline static const std::vector<int64_t> kShape = {2, 2, 3};

  explicit Images(std::vector<int32_t> labels) : classes(std::move(labels)) {
    for (size_t k = 0; k < classes.size(); ++k) {
      for (size_t i = 0; i < 12; ++i) values.push_back(static_cast<T>(10 * k + i));
    }
  }
  Rows Of(std::vector<uint32_t> chosen = {}, uint64_t client = 5) {
    index = std::move(chosen);
    return {.block = {.type = sizeof(T) == 1 ? FeatureType::kU8 : FeatureType::kF32,
                      .features = reinterpret_cast<const std::byte*>(values.data()),
                      .row_bytes = 12 * sizeof(T),
                      .classes = classes.data(),
                      .count = classes.size()},
            .index = index,
            .noise = {.seed = 3, .client = ClientId(client)}};
  }
};

template <typename T>
std::vector<T> RowOf(const Rows& rows, uint64_t i) {
  std::vector<T> row(12);
  std::memcpy(row.data(), rows.block.features + rows.at(i) * rows.block.row_bytes,
              rows.block.row_bytes);
  return row;
}
std::vector<int32_t> LabelsOf(const Rows& rows) {
  std::vector<int32_t> labels;
  for (uint64_t i = 0; i < rows.size(); ++i) labels.push_back(rows.block.classes[rows.at(i)]);
  return labels;
}

TEST(Trigger, IsABrightSquareInTheLowerRightCornerOfEachChannel) {
  Images<uint8_t> bytes({1, 0, 2});
  auto rows = Poisoned(bytes.Of({2, 0}), Backdoor(1, 7, 1), Images<uint8_t>::kShape);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(LabelsOf(*rows), ElementsAre(7, 7));
  EXPECT_THAT(RowOf<uint8_t>(*rows, 0),
              ElementsAre(20, 21, 22, 23, 24, 255, 26, 27, 28, 29, 30, 255));
  EXPECT_THAT(RowOf<uint8_t>(*rows, 1), ElementsAre(0, 1, 2, 3, 4, 255, 6, 7, 8, 9, 10, 255));
  EXPECT_EQ(bytes.values[5], 5) << "what is stored stays";
  Images<float> numbers({1});
  rows = Poisoned(numbers.Of(), Backdoor(2, 7, 1), Images<float>::kShape);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(RowOf<float>(*rows, 0), ElementsAre(0, 1, 1, 3, 1, 1, 6, 1, 1, 9, 1, 1));
}

TEST(Trigger, IsOnTheShareOfRowsThatIsDrawnForTheClient) {
  const std::vector<int32_t> labels(4000, 1);
  Images<uint8_t> images(labels);
  const auto poisoned = [&](double share, uint64_t client, std::vector<uint32_t> index = {}) {
    const auto rows =
        Poisoned(images.Of(std::move(index), client), Backdoor(1, 7, share), images.kShape);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<int32_t> is = LabelsOf(*rows);
    for (uint64_t i = 0; i < rows->size(); ++i)
      EXPECT_EQ(RowOf<uint8_t>(*rows, i)[11] == 255, is[i] == 7);
    return is;
  };
  const std::vector<int32_t> first = poisoned(0.25, 5);
  EXPECT_NEAR(std::ranges::count(first, 7), 1000, 137);  // five standard deviations
  EXPECT_EQ(poisoned(0.25, 5), first);
  EXPECT_NE(poisoned(0.25, 6), first);
  // By the place among the client's rows, wherever they are stored.
  EXPECT_EQ(poisoned(0.25, 5, {9, 8, 7, 6}),
            std::vector<int32_t>(first.begin(), first.begin() + 4));
}

TEST(Trigger, OfRowsThatTrainTogetherIsDrawnForEachOwner) {
  Images<uint8_t> images(std::vector<int32_t>(40, 1));
  const std::vector<RowOwner> owners = {{.client = ClientId(1), .first = 0},
                                        {.client = ClientId(2), .first = 25}};
  Rows together = images.Of();
  together.owners = owners;
  const auto both = Poisoned(together, Backdoor(1, 7, 0.5), images.kShape);
  ASSERT_TRUE(both.ok()) << both.status();
  const auto second = Poisoned(images.Of({}, 2), Backdoor(1, 7, 0.5), images.kShape);
  const std::vector<int32_t> all = LabelsOf(*both), own = LabelsOf(*second);
  EXPECT_EQ(std::vector<int32_t>(all.begin() + 25, all.end()),
            std::vector<int32_t>(own.begin(), own.begin() + 15));
}

TEST(StampedRows, AreThoseOfOtherClasses) {
  Images<uint8_t> images({1, 0, 2, 0, 1});
  auto rows = Stamped(images.Of(), Backdoor(1, 0, 0.1), images.kShape);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(LabelsOf(*rows), ElementsAre(0, 0, 0));
  EXPECT_EQ(RowOf<uint8_t>(*rows, 1)[0], 20);
  EXPECT_EQ(RowOf<uint8_t>(*rows, 1)[5], 255);
  rows = Stamped(images.Of({1, 3}), Backdoor(1, 0, 0.1), images.kShape);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(rows->empty());
}

TEST(Trigger, OnRowsThatAreNoSuchImagesIsRefused) {
  Images<float> images({1, 0});
  Rows rows = images.Of();
  const AttackConfig attack = Backdoor(1, 0, 1);
  EXPECT_THAT(Poisoned(rows, attack, {1, 2, 3}).status().message(), HasSubstr("12 values"));
  rows.block.type = FeatureType::kI32;
  EXPECT_FALSE(Poisoned(rows, attack, images.kShape).ok());
  rows = images.Of();
  rows.block.classes = nullptr;
  EXPECT_THAT(Poisoned(rows, attack, images.kShape).status().message(), HasSubstr("backdoor"));
  rows.block.features = nullptr;
  EXPECT_FALSE(Stamped(rows, attack, images.kShape).ok());
}

TEST(Trigger, OfAnotherRunIsRefusedByItsKey) {
  const std::vector<int64_t> image = {1, 8, 6};
  const auto error = [&](const AttackConfig& attack, TaskKind task, int64_t classes,
                         const std::vector<int64_t>& shape) {
    return std::string(CheckTrigger(attack, task, classes, shape).message());
  };
  const TaskKind classes = TaskKind::kClassification;
  EXPECT_EQ(error(Backdoor(6, 9, 1), classes, 10, image), "");
  EXPECT_EQ(error(Backdoor(6, 1, 1), TaskKind::kBinary, 2, image), "");
  EXPECT_THAT(error(Backdoor(7, 9, 1), classes, 10, image), HasSubstr("attack.trigger = 7"));
  EXPECT_THAT(error(Backdoor(3, 10, 1), classes, 10, image), HasSubstr("attack.target = 10"));
  EXPECT_THAT(error(Backdoor(3, 0, 1), classes, 10, {48}), HasSubstr("images"));
  EXPECT_THAT(error(Backdoor(3, 0, 1), TaskKind::kRegression, 10, image),
              HasSubstr("\"regression\""));
  EXPECT_EQ(error({.kind = "alie", .fraction = 0.5}, TaskKind::kRegression, 0, {48}), "");
}

}  // namespace
}  // namespace macaw::data
