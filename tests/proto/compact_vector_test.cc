#include "proto/fleet/compact_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "core/random.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::fleet {
namespace {

using testing::HasSubstr;

constexpr ValueForms kForms = {.short_floats = true, .levels = 127};

LayoutPtr Layout(DType dtype = DType::kF32) {
  return *ParameterLayout::Make(
      {{"w", {3, 700}}, {"b", {5}}, {.name = "mean", .shape = {40}, .group = Group::kBuffer}},
      dtype);
}

// Whole multiples, up to `most`, of a step.
FlatVector Levels(const LayoutPtr& layout, int most, uint64_t seed) {
  FlatVector vector(layout);
  RandomStream random({.seed = seed, .purpose = Purpose::kTest});
  for (const LayoutEntry& entry : layout->entries()) {
    for (uint64_t i = 0; i < entry.size; ++i) {
      const auto k = static_cast<int>(random.Below(2 * most + 1)) - most;
      vector.As<float>()[entry.offset + i] = 0.0123f * static_cast<float>(k) + 0.0f;
    }
  }
  return vector;
}

AlignedBuffer Whole(ConstVectorView vector) { return EncodeVectors({&vector, 1}); }

bool Same(const absl::StatusOr<AlignedBuffer>& a, const AlignedBuffer& b) {
  return a.ok() && std::ranges::equal(a->bytes(), b.bytes());
}

TEST(CompactVector, GivesTheBytesOfTheVector) {
  const LayoutPtr layout = Layout();
  FlatVector vector = Levels(layout, 7, 1);
  vector.As<float>()[600] = -0.0f;
  const auto form = EncodeCompact(std::as_const(vector).view(), kForms);
  ASSERT_TRUE(form.has_value());
  EXPECT_LT(form->size(), vector.view().bytes.size() / 2);
  EXPECT_TRUE(Same(ExpandCompact(form->bytes(), layout), Whole(std::as_const(vector).view())));
}

TEST(CompactVector, GivesTheBytesOfAChangedVector) {
  const LayoutPtr layout = Layout();
  const FlatVector before = Levels(layout, 100, 2), change = Levels(layout, 1, 3);
  FlatVector after = before.Clone();
  AddChange(change.view(), after.view());
  const uint64_t mean = layout->entries()[2].offset;
  EXPECT_EQ(after.As<float>()[mean], change.As<float>()[mean]) << "a buffer is replaced";
  EXPECT_EQ(after.As<float>()[0], before.As<float>()[0] + change.As<float>()[0]);
  const auto form =
      EncodeCompactChange(before.view(), change.view(), std::as_const(after).view(), kForms);
  ASSERT_TRUE(form.has_value());
  EXPECT_LT(form->size(), after.view().bytes.size() / 12);
  const AlignedBuffer held = Whole(before.view());
  EXPECT_TRUE(
      Same(ExpandCompact(form->bytes(), layout, held.bytes()), Whole(std::as_const(after).view())));
  // Another vector changed gives another one, whose digest tells.
  const AlignedBuffer other = Whole(change.view());
  EXPECT_FALSE(Same(ExpandCompact(form->bytes(), layout, other.bytes()),
                    Whole(std::as_const(after).view())));
}

TEST(CompactVector, HasNoFormThatWouldNotGiveTheBytes) {
  FlatVector vector = Levels(Layout(), 7, 1);
  vector.As<float>()[vector.layout()->entries()[0].size] = 1;  // between two tensors
  EXPECT_FALSE(EncodeCompact(std::as_const(vector).view(), kForms).has_value());
  const FlatVector doubles(Layout(DType::kF64));
  EXPECT_FALSE(EncodeCompact(doubles.view(), kForms).has_value());
  FlatVector random(Layout());
  RandomStream stream({.seed = 4, .purpose = Purpose::kTest});
  for (float& x : random.As<float>()) x = static_cast<float>(stream.Normal());
  EXPECT_FALSE(EncodeCompact(std::as_const(random).view(), kForms).has_value()) << "not shorter";
  const FlatVector before = Levels(Layout(), 100, 2), change = Levels(Layout(), 1, 3);
  EXPECT_FALSE(
      EncodeCompactChange(before.view(), change.view(), before.view(), kForms).has_value());
}

TEST(CompactVector, RefusesWhatItIsNot) {
  const LayoutPtr layout = Layout();
  const FlatVector vector = Levels(layout, 7, 1);
  const AlignedBuffer held = Whole(vector.view());
  const auto form = EncodeCompact(vector.view(), kForms);
  const auto change =
      EncodeCompactChange(FlatVector(layout).view(), vector.view(), vector.view(), kForms);
  ASSERT_TRUE(form.has_value() && change.has_value());
  const auto why = [&](std::span<const std::byte> bytes, const LayoutPtr& as,
                       std::span<const std::byte> before) {
    return std::string(ExpandCompact(bytes, as, before).status().message());
  };
  EXPECT_THAT(why(change->bytes(), layout, {}), HasSubstr("a change of a vector that is not here"));
  EXPECT_THAT(why(form->bytes(), layout, held.bytes()), HasSubstr("it is no change"));
  EXPECT_THAT(why(form->bytes(), ParameterLayout::Scalars("w", 3, DType::kF32), {}),
              HasSubstr("disagree about the model"));
  EXPECT_THAT(why(form->bytes().first(20), layout, {}), HasSubstr("shorter than its header"));
  EXPECT_NE(why(form->bytes().first(form->size() - 1), layout, {}), "");
  std::vector<std::byte> longer(form->bytes().begin(), form->bytes().end());
  longer.push_back(std::byte{1});
  EXPECT_NE(why(longer, layout, {}), "");
}

TEST(CompactVector, IsSafeForAnyBytes) {
  const LayoutPtr layout = Layout();
  const FlatVector vector = Levels(layout, 7, 1);
  const auto form = EncodeCompact(vector.view(), kForms);
  ASSERT_TRUE(form.has_value());
  RandomStream random({.seed = 9, .purpose = Purpose::kTest});
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes(form->bytes().begin(), form->bytes().end());
    for (uint64_t n = 1 + random.Below(4); n > 0; --n)
      bytes[48 + random.Below(bytes.size() - 48)] = static_cast<std::byte>(random.Below(256));
    if (i % 3 == 0) bytes.resize(random.Below(bytes.size()));
    read += ExpandCompact(bytes, layout).ok();
  }
  EXPECT_GT(read, 0) << "values alone were changed";
}

}  // namespace
}  // namespace macaw::fleet
