#include "server/split_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/random.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::server {
namespace {

// A model of layers of these many numbers, some of them buffers, of which "still" ones are frozen.
LayoutPtr LayoutOf(const std::vector<std::pair<std::string, int64_t>>& tensors, DType dtype) {
  std::vector<LayoutEntry> entries;
  for (const auto& [name, size] : tensors) {
    const bool is_buffer = name.find("mean") != std::string::npos;
    entries.push_back(
        {.name = name, .shape = {size}, .group = is_buffer ? Group::kBuffer : Group::kParameter});
  }
  return *ParameterLayout::Make(std::move(entries), dtype);
}

void FillAtRandom(FlatVector& vector, uint64_t seed) {
  RandomStream random({.seed = seed, .purpose = Purpose::kTest});
  DispatchDType(vector.layout()->dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : vector.layout()->entries()) {
      for (T& x : vector.As<T>().subspan(entry.offset, entry.size))
        x = static_cast<T>(random.Normal());
    }
  });
}

// As a whole: in one leaf of its digest; over many leaves with trained numbers in few; with the
// last leaf short or not, and trained or not; with buffers.
const std::vector<std::pair<std::string, int64_t>> kModels[] = {
    {{"still a", 3}, {"b", 5}, {"still c", 1}},
    {{"b", 5}, {"still a", 100'000}, {"c", 70'001}, {"still d", 3}, {"mean", 9}},
    {{"still a", 50'000}, {"b", 17}, {"still c", 2'500'000}, {"d", 40}},
    {{"still a", 16'384 * 3 - 32}, {"b", 16}},
    {{"b", 40'000}, {"still mean", 40'000}}};

class SplitModelTest : public testing::TestWithParam<DType> {};

TEST_P(SplitModelTest, NamesAndMakesWhatOneBlobWouldBe) {
  for (const auto& tensors : kModels) {
    const LayoutPtr layout = LayoutOf(tensors, GetParam());
    const auto parts = std::make_shared<const algorithms::ModelParts>(
        layout, algorithms::ParameterGroup::Matching(layout, "still*"));
    FlatVector model(layout), base(parts->base.layout()), trained(parts->trained.layout());
    FillAtRandom(model, 1);
    parts->base.Extract(model.view(), base.view());
    const auto split = std::make_shared<const SplitModel>(parts, base.view());
    WholeNames names(split);
    for (uint64_t round = 2; round < 6; ++round) {
      parts->trained.Extract(model.view(), trained.view());
      const ConstVectorView whole = model.view(), sent = trained.view();
      const fleet::Blob expected = fleet::Blob::Of(fleet::EncodeVectors({&whole, 1}));
      const fleet::Blob joined = names.Of(fleet::Blob::Of(fleet::EncodeVectors({&sent, 1})));
      EXPECT_EQ(joined.digest, expected.digest);
      EXPECT_EQ(joined.size, expected.size);
      EXPECT_EQ(joined.bytes, nullptr);
      ASSERT_TRUE(joined.has_parts());
      EXPECT_EQ(joined.base().digest, split->base().digest);
      EXPECT_EQ(joined.least_bytes(), joined.trained().size);
      const AlignedBuffer made = split->Encode(joined.trained().bytes->bytes());
      EXPECT_TRUE(std::ranges::equal(made.bytes(), expected.bytes->bytes()));
      const FlatVector again = split->Join(sent);
      EXPECT_TRUE(std::ranges::equal(again.view().bytes, whole.bytes));
      EXPECT_EQ(DigestOfTensors(split->Tensors(sent)), DigestOfValues(whole));
      // The next round moves what is trained.
      FillAtRandom(trained, round);
      parts->trained.Insert(trained.view(), model.view());
    }
  }
}

TEST_P(SplitModelTest, ReadsAnyRangeOfTheWhole) {
  const LayoutPtr layout = LayoutOf(kModels[1], GetParam());
  const auto parts = std::make_shared<const algorithms::ModelParts>(
      layout, algorithms::ParameterGroup::Matching(layout, "still*"));
  FlatVector model(layout), base(parts->base.layout()), trained(parts->trained.layout());
  FillAtRandom(model, 1);
  parts->base.Extract(model.view(), base.view());
  parts->trained.Extract(model.view(), trained.view());
  const SplitModel split(parts, base.view());
  const ConstVectorView whole = model.view(), sent = trained.view();
  const AlignedBuffer expected = fleet::EncodeVectors({&whole, 1});
  const AlignedBuffer part = fleet::EncodeVectors({&sent, 1});
  ASSERT_EQ(split.bytes(), expected.size());
  RandomStream random({.seed = 5, .purpose = Purpose::kTest});
  for (int i = 0; i < 300; ++i) {
    const uint64_t at = random.Below(expected.size());
    const uint64_t size = std::min<uint64_t>(expected.size() - at, 1 + random.Below(200'000));
    std::vector<std::byte> read(size);
    split.Read(part.bytes(), at, read);
    EXPECT_TRUE(std::ranges::equal(read, expected.bytes().subspan(at, size))) << at << " " << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, SplitModelTest, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace macaw::server
