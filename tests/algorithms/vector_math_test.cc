#include "algorithms/api/vector_math.h"

#include <gtest/gtest.h>

#include <vector>

namespace macaw::algorithms {
namespace {

template <typename T>
class VectorMath : public ::testing::Test {
 protected:
  static constexpr DType kType = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
  const LayoutPtr layout_ = ParameterLayout::Scalars("x", 3, kType);

  FlatVector Of(T a, T b, T c) const {
    FlatVector vector(layout_);
    std::copy_n(std::vector<T>{a, b, c}.begin(), 3, vector.As<T>().begin());
    return vector;
  }
  static std::vector<T> Values(const FlatVector& vector) {
    return {vector.As<T>().begin(), vector.As<T>().begin() + 3};
  }
};
using ElementTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(VectorMath, ElementTypes);

TYPED_TEST(VectorMath, ComputesByHand) {
  using Expected = std::vector<TypeParam>;
  const FlatVector x = this->Of(1, -2, 4);
  FlatVector y = this->Of(10, 20, 30);
  Axpy(0.5, x.view(), y.view());
  EXPECT_EQ(this->Values(y), (Expected{10.5, 19, 32}));
  Add(x.view(), y.view());
  EXPECT_EQ(this->Values(y), (Expected{11.5, 17, 36}));
  Scale(2, y.view());
  EXPECT_EQ(this->Values(y), (Expected{23, 34, 72}));
  FlatVector out(this->layout_);
  Subtract(y.view(), x.view(), out.view());
  EXPECT_EQ(this->Values(out), (Expected{22, 36, 68}));
  Subtract(y.view(), out.view(), out.view());  // an operand may be the result
  EXPECT_EQ(this->Values(out), this->Values(x));
  EXPECT_EQ(Dot(x.view(), x.view()), 21);
  Copy(x.view(), y.view());
  EXPECT_EQ(this->Values(y), this->Values(x));
  Zero(y.view());
  EXPECT_EQ(this->Values(y), (Expected{0, 0, 0}));
}

TYPED_TEST(VectorMath, MapsEachElementInItsOwnType) {
  const FlatVector x = this->Of(1, -2, 4);
  const FlatVector z = this->Of(3, 3, 3);
  FlatVector y = this->Of(10, 20, 30);
  Map(
      y.view(), []<typename T>(T old, T a, T b) { return old + a * b; }, x.view(), z.view());
  EXPECT_EQ(this->Values(y), (std::vector<TypeParam>{13, 14, 42}));
  Fill(0.5, y.view());
  EXPECT_EQ(this->Values(y), (std::vector<TypeParam>{0.5, 0.5, 0.5}));
  EXPECT_EQ(y.template As<TypeParam>()[3], 0);  // the gap
}

TYPED_TEST(VectorMath, TellsParametersFromBuffers) {
  const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "w", .shape = {2}}, {.name = "mean", .shape = {1}, .group = Group::kBuffer}},
      this->kType);
  FlatVector v(layout), other(layout);
  Fill(3, v.view());
  Fill(1, other.view());
  const auto weight = [&] { return v.template As<TypeParam>()[1]; };
  const auto mean = [&] { return v.template As<TypeParam>()[layout->Find("mean")->offset]; };
  EXPECT_EQ(SquaredNorm(v.view()), 18);
  ScaleParameters(2, v.view());
  EXPECT_EQ(weight(), 6);
  EXPECT_EQ(mean(), 3);
  AddBuffers(other.view(), v.view());
  EXPECT_EQ(weight(), 6);
  EXPECT_EQ(mean(), 4);
  CopyBuffers(other.view(), v.view());
  EXPECT_EQ(mean(), 1);
  ZeroBuffers(v.view());
  EXPECT_EQ(weight(), 6);
  EXPECT_EQ(mean(), 0);
}

TEST(SameLayout, ComparesContentsAndNotObjects) {
  const LayoutPtr a = ParameterLayout::Scalars("x", 3, DType::kF32);
  const LayoutPtr b = ParameterLayout::Scalars("x", 3, DType::kF32);
  const LayoutPtr c = ParameterLayout::Scalars("y", 3, DType::kF32);
  EXPECT_TRUE(SameLayout(a.get(), b.get()));
  EXPECT_FALSE(SameLayout(a.get(), c.get()));
  EXPECT_FALSE(SameLayout(a.get(), nullptr));
}

}  // namespace
}  // namespace macaw::algorithms
