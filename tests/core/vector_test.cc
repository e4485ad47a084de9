#include "core/vector.h"

#include <gtest/gtest.h>

namespace macaw {
namespace {

TEST(ParameterLayout, AlignsEveryTensorAndPutsBuffersLast) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "stat", .shape = {3}, .group = Group::kBuffer},
                              {.name = "w", .shape = {10, 60}},
                              {.name = "b", .shape = {10}}},
                             DType::kF32);
  EXPECT_EQ(layout->entries()[0].name, "w");
  EXPECT_EQ(layout->entries()[2].name, "stat");
  for (const LayoutEntry& entry : layout->entries()) EXPECT_EQ(entry.offset % 16, 0u);
  EXPECT_EQ(layout->count(), 613u);
  EXPECT_EQ(layout->parameter_size(), 608u + 16u);
  EXPECT_EQ(layout->size(), 608u + 16u + 16u);
}

TEST(ParameterLayout, RefusesEmptyOrRepeatedNamesAndBadShapes) {
  EXPECT_FALSE(ParameterLayout::Make({{.name = "w", .shape = {0}}}, DType::kF32).ok());
  EXPECT_FALSE(ParameterLayout::Make({{.name = "w", .shape = {-1}}}, DType::kF32).ok());
  EXPECT_FALSE(
      ParameterLayout::Make({{.name = "w", .shape = {1l << 40, 1l << 40}}}, DType::kF32).ok());
  EXPECT_FALSE(
      ParameterLayout::Make({{.name = "w", .shape = {1}}, {.name = "w", .shape = {1}}}, DType::kF32)
          .ok());
}

TEST(ParameterLayout, DigestTellsNamesShapesAndDtypeApart) {
  const auto digest = [](std::string name, std::vector<int64_t> shape, DType dtype) {
    return (*ParameterLayout::Make({{.name = std::move(name), .shape = std::move(shape)}}, dtype))
        ->digest();
  };
  const Digest base = digest("w", {2, 3}, DType::kF32);
  EXPECT_EQ(base, digest("w", {2, 3}, DType::kF32));
  EXPECT_NE(base, digest("v", {2, 3}, DType::kF32));
  EXPECT_NE(base, digest("w", {3, 2}, DType::kF32));
  EXPECT_NE(base, digest("w", {2, 3}, DType::kF64));
}

TEST(Zeros, AreOneVectorALayout) {
  const LayoutPtr one = ParameterLayout::Scalars("a", 1, DType::kF64),
                  three = ParameterLayout::Scalars("b", 3, DType::kF64);
  const std::vector<FlatVector> vectors = Zeros(std::vector<LayoutPtr>{one, three});
  ASSERT_EQ(vectors.size(), 2u);
  EXPECT_EQ(vectors[0].layout(), one);
  EXPECT_EQ(vectors[1].layout(), three);
  for (const double value : vectors[1].As<double>()) EXPECT_EQ(value, 0);
}

TEST(DigestOfValues, LeavesTheGapsOut) {
  const LayoutPtr layout = *ParameterLayout::Make({{.name = "w", .shape = {3}}}, DType::kF32);
  FlatVector vector(layout);
  vector.As<float>()[0] = 1;
  const Digest digest = DigestOfValues(vector.view());
  EXPECT_EQ(digest, DigestOf(std::as_bytes(vector.As<float>().first(3))));
  vector.As<float>()[3] = 42;  // in the gap
  EXPECT_EQ(DigestOfValues(vector.view()), digest);
}

}  // namespace
}  // namespace macaw
