#include "codecs/low_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace macaw::codecs {
namespace {

using testing::HasSubstr;

LayoutPtr Layout(DType dtype = DType::kF64) {
  return *ParameterLayout::Make({{.name = "bias", .shape = {5}},
                                 {.name = "weight", .shape = {6, 2, 4}},
                                 {.name = "small", .shape = {2, 2}},
                                 {.name = "mean", .shape = {7, 9}, .group = Group::kBuffer}},
                                dtype);
}

FlatVector Normals(const LayoutPtr& layout, uint64_t seed) {
  FlatVector vector(layout);
  RandomStream random({.seed = seed});
  DispatchDType(layout->dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : layout->entries()) {
      for (T& value : vector.As<T>().subspan(entry.offset, entry.size))
        value = static_cast<T>(random.Normal());
    }
  });
  return vector;
}

RandomStream Stream(uint64_t seed) { return RandomStream({.seed = seed}); }

TEST(LowRank, TakesMatricesThatItMakesSmaller) {
  const LowRank form = *LowRank::Make(Layout(), 2);  // 2·(6 + 8) < 48
  ASSERT_EQ(form.factor()->entries().size(), 1u);
  EXPECT_EQ(form.factor()->entries()[0].shape, (std::vector<int64_t>{8, 2}));
  ASSERT_EQ(form.rest()->entries().size(), 3u);
  EXPECT_EQ(form.rest()->entries()[2].group, Group::kBuffer);
  EXPECT_EQ(form.MostSent(false), 16u + 5 + 4 + 63);
  EXPECT_EQ(form.MostSent(true), 12u + 16 + 5 + 4 + 63);
  EXPECT_THAT(std::string(LowRank::Make(Layout(), 4).status().message()), HasSubstr("rank 4"));
}

TEST(LowRank, ProductsByHand) {
  const LayoutPtr layout = *ParameterLayout::Make({{.name = "m", .shape = {3, 4}}}, DType::kF64);
  const LowRank form = *LowRank::Make(layout, 1);
  EXPECT_EQ(form.rest(), nullptr);
  FlatVector m(layout), p(form.factor()), q(form.factor()), out(form.factor()), back(layout);
  for (size_t i = 0; i < 12; ++i) m.As<double>()[i] = static_cast<double>(i);
  for (size_t i = 0; i < 4; ++i) q.As<double>()[i] = static_cast<double>(i);
  form.Project(m.view(), Factor::kP, q.view(), out.view());
  EXPECT_THAT(out.As<double>().first(4), testing::ElementsAre(14, 38, 62, 0));
  form.Expand(Factor::kP, out.view(), q.view(), back.view());
  EXPECT_THAT(back.As<double>().first(12),
              testing::ElementsAre(0, 14, 28, 42, 0, 38, 76, 114, 0, 62, 124, 186));
  for (size_t i = 0; i < 3; ++i) p.As<double>()[i] = 1;
  form.Project(m.view(), Factor::kQ, p.view(), out.view());
  EXPECT_THAT(out.As<double>().first(4), testing::ElementsAre(12, 15, 18, 21));
}

class LowRankOf : public testing::TestWithParam<DType> {};

// A matrix of rank r is the product of its factors, whichever basis spans its rows.
TEST_P(LowRankOf, KeepsMatricesOfItsRank) {
  const LayoutPtr layout = Layout(GetParam());
  const LowRank form = *LowRank::Make(layout, 2);
  FlatVector p = Normals(form.factor(), 1), q = Normals(form.factor(), 2), m = Normals(layout, 3);
  form.Expand(Factor::kP, p.view(), q.view(), m.view());
  form.Orthonormalise(Factor::kQ, Stream(4), q.view());
  FlatVector sent(form.factor()), back = m.Clone();
  form.Project(m.view(), Factor::kP, q.view(), sent.view());
  form.Expand(Factor::kP, sent.view(), q.view(), back.view());
  const double tolerance = GetParam() == DType::kF32 ? 1e-5 : 1e-12;
  DispatchDType(GetParam(), [&]<typename T>(T) {
    for (size_t i = 0; i < m.As<T>().size(); ++i)
      EXPECT_NEAR(m.As<T>()[i], back.As<T>()[i], tolerance) << i;
  });
}

TEST_P(LowRankOf, TheRestComesBackAsItIs) {
  const LayoutPtr layout = Layout(GetParam());
  const LowRank form = *LowRank::Make(layout, 2);
  const FlatVector m = Normals(layout, 3);
  FlatVector rest(form.rest()), back(layout);
  FlatVector matrices = m.Clone();
  form.ZeroRest(matrices.view());
  form.TakeRest(matrices.view(), rest.view());
  EXPECT_EQ(DigestOfValues(rest.view()), DigestOfValues(FlatVector(form.rest()).view()));
  form.TakeRest(m.view(), rest.view());
  form.PutRest(rest.view(), back.view());
  DispatchDType(GetParam(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : layout->entries()) {
      for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i)
        EXPECT_EQ(back.As<T>()[i], entry.name == "weight" ? T{0} : m.As<T>()[i]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, LowRankOf, testing::Values(DType::kF32, DType::kF64));

// Also of a zero vector, of equal columns, and of columns of very different sizes.
TEST(LowRank, ColumnsBecomeOrthonormal) {
  const LowRank form = *LowRank::Make(Layout(), 3);
  for (int kind = 0; kind < 4; ++kind) {
    FlatVector factor = kind == 0 ? FlatVector(form.factor()) : Normals(form.factor(), 9);
    const std::span<double> values = factor.As<double>();
    for (size_t row = 0; row < 8; ++row) {
      if (kind == 1) values[row * 3 + 2] = values[row * 3];
      if (kind == 2) values[row * 3 + 1] *= 1e-200;
      if (kind == 3) values[row * 3] *= 1e100;
    }
    FlatVector again = factor.Clone();
    form.Orthonormalise(Factor::kQ, Stream(5), factor.view());
    form.Orthonormalise(Factor::kQ, Stream(5), again.view());
    EXPECT_EQ(DigestOfValues(factor.view()), DigestOfValues(again.view()));
    for (size_t a = 0; a < 3; ++a) {
      for (size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (size_t row = 0; row < 8; ++row) product += values[row * 3 + a] * values[row * 3 + b];
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-12) << kind << ": " << a << ", " << b;
      }
    }
  }
}

// Rows beyond those of P stay zero: they cost nothing on the wire.
TEST(LowRank, UnusedRowsStayZero) {
  const LowRank form = *LowRank::Make(Layout(), 2);
  FlatVector p(form.factor()), out = Normals(form.factor(), 1);
  form.Orthonormalise(Factor::kP, Stream(1), p.view());
  FlatVector q(form.factor());
  form.Orthonormalise(Factor::kQ, Stream(2), q.view());
  form.Project(Normals(Layout(), 3).view(), Factor::kP, q.view(), out.view());
  for (const FlatVector* vector : {&p, &out}) {
    for (size_t i = 6 * 2; i < 8 * 2; ++i) EXPECT_EQ(vector->As<double>()[i], 0) << i;
  }
}

}  // namespace
}  // namespace macaw::codecs
