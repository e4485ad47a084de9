#include "proto/fleet/vector_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/random.h"
#include "proto/fleet/messages.h"

namespace macaw::fleet {
namespace {

using testing::HasSubstr;

struct Vectors {
  std::vector<LayoutPtr> layouts;
  std::vector<FlatVector> values;
  std::vector<ConstVectorView> views() const {
    std::vector<ConstVectorView> views;
    for (const FlatVector& v : values) views.push_back(v.view());
    return views;
  }
};

Vectors Sample() {
  Vectors v;
  v.layouts.push_back(*ParameterLayout::Make({{"0.weight", {3, 5}}, {"0.bias", {3}}}, DType::kF32));
  v.layouts.push_back(ParameterLayout::Scalars("tau", 7, DType::kF64));
  RandomStream stream({.seed = 5});
  for (const LayoutPtr& layout : v.layouts) {
    v.values.emplace_back(layout);
    DispatchDType(layout->dtype(), [&]<typename T>(T) {
      for (T& x : v.values.back().As<T>()) x = static_cast<T>(stream.Normal());
    });
  }
  return v;
}

AlignedBuffer CopyOf(std::span<const std::byte> bytes) {
  AlignedBuffer copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
  return copy;
}

TEST(VectorCodec, DecodesWhatItEncoded) {
  const Vectors v = Sample();
  const AlignedBuffer bytes = EncodeVectors(v.views());
  const auto decoded = DecodeVectors(bytes.bytes(), v.layouts);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::ranges::equal((*decoded)[i].bytes, v.values[i].view().bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*decoded)[i].bytes.data()) % 64, 0u);
    EXPECT_EQ((*decoded)[i].layout, v.layouts[i].get());
  }
}

TEST(VectorCodec, LargeOnesCanBeMappedByTheirReceiver) {
  const FlatVector large(ParameterLayout::Scalars("w", 300'000, DType::kF32));
  const ConstVectorView view = large.view();
  const Blob blob = Blob::Of(EncodeVectors({&view, 1}));
  EXPECT_GE(blob.bytes->memory_file(), 0);
}

TEST(VectorCodec, EqualVectorsGiveEqualBytes) {
  const AlignedBuffer a = EncodeVectors(Sample().views()), b = EncodeVectors(Sample().views());
  EXPECT_EQ(DigestOf(a.bytes()), DigestOf(b.bytes()));
}

TEST(VectorCodec, CarriesNoVectorsToo) {
  const AlignedBuffer bytes = EncodeVectors({});
  EXPECT_TRUE(DecodeVectors(bytes.bytes(), {}).ok());
}

TEST(VectorCodec, RefusesOtherLayoutsByNumber) {
  const Vectors v = Sample();
  const AlignedBuffer bytes = EncodeVectors(v.views());
  const std::vector<LayoutPtr> swapped = {v.layouts[1], v.layouts[0]};
  EXPECT_THAT(DecodeVectors(bytes.bytes(), swapped).status().message(),
              HasSubstr("vector 0 has another layout"));
  const std::vector<LayoutPtr> fewer = {v.layouts[0]};
  EXPECT_THAT(DecodeVectors(bytes.bytes(), fewer).status().message(),
              HasSubstr("2 vectors where 1"));
}

TEST(VectorCodec, RefusesEveryTruncationAndAnyExtension) {
  const Vectors v = Sample();
  const AlignedBuffer bytes = EncodeVectors(v.views());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(DecodeVectors(CopyOf(bytes.bytes().first(n)).bytes(), v.layouts).ok()) << n;
  }
  AlignedBuffer longer(bytes.size() + 1);
  std::memcpy(longer.bytes().data(), bytes.bytes().data(), bytes.size());
  EXPECT_FALSE(DecodeVectors(std::as_const(longer).bytes(), v.layouts).ok());
}

TEST(VectorCodec, RefusesEveryFlippedHeaderByte) {
  const Vectors v = Sample();
  const AlignedBuffer bytes = EncodeVectors(v.views());
  for (size_t i = 0; i < 128; ++i) {  // header and the padding behind it
    AlignedBuffer damaged = CopyOf(bytes.bytes());
    damaged.bytes()[i] ^= std::byte{0x10};
    EXPECT_FALSE(DecodeVectors(std::as_const(damaged).bytes(), v.layouts).ok()) << i;
  }
}

TEST(VectorCodec, SurvivesRandomBytes) {
  const Vectors v = Sample();
  RandomStream stream({.seed = 11});
  for (int i = 0; i < 2000; ++i) {
    AlignedBuffer noise(stream.Below(400));
    for (std::byte& b : noise.bytes()) b = static_cast<std::byte>(stream.NextU32());
    EXPECT_FALSE(DecodeVectors(std::as_const(noise).bytes(), v.layouts).ok());
  }
}

}  // namespace
}  // namespace macaw::fleet
