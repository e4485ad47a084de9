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
  EXPECT_EQ(form.factor()->entries()[0].shape, (std::vector<int64_t>{2, 8}));
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
  form.Orthonormalise(Factor::kQ, form.StartRanks(), Stream(4), q.view());
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
      if (kind == 1) values[2 * 8 + row] = values[row];
      if (kind == 2) values[8 + row] *= 1e-200;
      if (kind == 3) values[row] *= 1e100;
    }
    FlatVector again = factor.Clone();
    form.Orthonormalise(Factor::kQ, form.StartRanks(), Stream(5), factor.view());
    form.Orthonormalise(Factor::kQ, form.StartRanks(), Stream(5), again.view());
    EXPECT_EQ(DigestOfValues(factor.view()), DigestOfValues(again.view()));
    for (size_t a = 0; a < 3; ++a) {
      for (size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (size_t row = 0; row < 8; ++row) product += values[a * 8 + row] * values[b * 8 + row];
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-12) << kind << ": " << a << ", " << b;
      }
    }
  }
}

// What the columns of P leave of the tensor stays zero: it costs nothing on the wire.
TEST(LowRank, WhatColumnsDoNotUseStaysZero) {
  const LowRank form = *LowRank::Make(Layout(), 2);
  FlatVector p(form.factor()), out = Normals(form.factor(), 1);
  form.Orthonormalise(Factor::kP, form.StartRanks(), Stream(1), p.view());
  FlatVector q(form.factor());
  form.Orthonormalise(Factor::kQ, form.StartRanks(), Stream(2), q.view());
  form.Project(Normals(Layout(), 3).view(), Factor::kP, q.view(), out.view());
  for (const FlatVector* vector : {&p, &out}) {
    for (size_t i = 6 * 2; i < 8 * 2; ++i) EXPECT_EQ(vector->As<double>()[i], 0) << i;
  }
}

// ---- Ranks that are chosen

// Of 20 × 30 and 6 × 8: with rank 3 there is room for 6, and for 3, since 4·(6 + 8) > 48.
LowRank Chosen(DType dtype = DType::kF64, uint32_t rank = 3) {
  return *LowRank::Make(*ParameterLayout::Make({{.name = "large", .shape = {20, 30}},
                                                {.name = "bias", .shape = {5}},
                                                {.name = "small", .shape = {6, 2, 4}}},
                                               dtype),
                        rank, Ranks::kChosen);
}

TEST(ChosenRanks, HaveRoomForTwiceTheRankWhereThatIsLess) {
  const LowRank form = Chosen();
  EXPECT_EQ(form.factor()->entries()[0].shape, (std::vector<int64_t>{6, 30}));
  EXPECT_EQ(form.factor()->entries()[1].shape, (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(form.errors()->entries()[0].size, 5u) << "2 to 6";
  EXPECT_EQ(form.errors()->entries()[1].size, 2u) << "2 and 3";
  EXPECT_EQ(form.errors()->dtype(), DType::kF64);
  EXPECT_EQ(Chosen(DType::kF32).errors()->dtype(), DType::kF64);
  EXPECT_EQ(form.LeastRank(), 2u);
  EXPECT_EQ(form.MostRank(), 6u);
  EXPECT_EQ(form.StartRanks(), (std::vector<uint32_t>{3, 3}));
  EXPECT_EQ(form.MeanRank({3, 3}), 3);
  EXPECT_EQ(form.MeanRank({2, 3}), (2 * 50 + 3 * 14) / 64.0);
  EXPECT_EQ(Chosen(DType::kF64, 1).LeastRank(), 1u);
  EXPECT_EQ(LowRank::Make(Layout(), 2)->errors(), nullptr);
}

TEST(ChosenRanks, AreKnownByTheBasis) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const LowRank form = Chosen(dtype);
    FlatVector q = Normals(form.factor(), 1);
    for (const std::vector<uint32_t>& ranks :
         {std::vector<uint32_t>{3, 3}, {6, 2}, {2, 3}, {5, 2}}) {
      form.Orthonormalise(Factor::kQ, ranks, Stream(2), q.view());
      EXPECT_EQ(form.RanksOf(Factor::kQ, q.view()), ranks);
    }
  }
}

TEST(ChosenRanks, TheFirstColumnsAreThoseOfASmallerRank) {
  const LowRank form = Chosen();
  const FlatVector start = Normals(form.factor(), 1);
  FlatVector few = start.Clone(), many = start.Clone();
  form.Orthonormalise(Factor::kQ, {2, 2}, Stream(3), few.view());
  form.Orthonormalise(Factor::kQ, {6, 3}, Stream(3), many.view());
  const uint64_t small = form.factor()->entries()[1].offset;
  for (size_t i = 0; i < size_t{2} * 30; ++i)
    EXPECT_EQ(few.As<double>()[i], many.As<double>()[i]) << i;
  for (size_t i = 0; i < size_t{2} * 8; ++i)
    EXPECT_EQ(few.As<double>()[small + i], many.As<double>()[small + i]) << i;
  // And of a rank that falls those that it had.
  const FlatVector before = many.Clone();
  form.Orthonormalise(Factor::kQ, {2, 2}, Stream(4), many.view());
  for (size_t i = 0; i < size_t{2} * 30; ++i)
    EXPECT_NEAR(before.As<double>()[i], many.As<double>()[i], 1e-14) << i;
  for (size_t i = size_t{2} * 30; i < size_t{6} * 30; ++i) EXPECT_EQ(many.As<double>()[i], 0) << i;
}

TEST(ChosenRanks, GoWhereTheErrorsAre) {
  const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "a", .shape = {12, 12}}, {.name = "b", .shape = {12, 12}}}, DType::kF32);
  const LowRank form = *LowRank::Make(layout, 2, Ranks::kChosen);
  FlatVector m(layout), errors(form.errors());
  // Singular values 8, 4, 2, 1, ½ … and 8, 0.1, 0.1.
  for (size_t i = 0; i < 12; ++i) {
    m.As<float>()[i * 12 + i] = static_cast<float>(std::ldexp(8.0, -static_cast<int>(i)));
    const uint64_t b = layout->entries()[1].offset;
    m.As<float>()[b + i * 12 + i] = i == 0 ? 8.0F : i < 3 ? 0.125F : 0.0F;
  }
  form.Errors(m.view(), Stream(1), errors.view());
  // Of ranks 1 to 4: (16·4/3, 4·4/3, 4/3, 1/3), less 4^-8/3 each, and (1/32, 1/64, 0, 0).
  const uint64_t b = form.errors()->entries()[1].offset;
  const double first[] = {64.0 / 3, 16.0 / 3, 4.0 / 3, 1.0 / 3}, second[] = {1 / 32.0, 1 / 64.0};
  for (size_t r = 0; r < 4; ++r) EXPECT_NEAR(errors.As<double>()[r], first[r], 2e-5) << r;
  for (size_t r = 0; r < 2; ++r) EXPECT_NEAR(errors.As<double>()[b + r], second[r], 1e-12) << r;
  // 3 and 1 leave out 4/3 + 1/32 and have as many numbers as 2 and 2; 2 and 1 leave out too much.
  EXPECT_EQ(form.Choose(errors.view()), (std::vector<uint32_t>{3, 1}));
}

TEST(ChosenRanks, ErrorsOfWhatIsNotFiniteAreNoNumbers) {
  const LowRank form = Chosen(DType::kF32);
  FlatVector m(*ParameterLayout::Make({{.name = "large", .shape = {20, 30}},
                                       {.name = "bias", .shape = {5}},
                                       {.name = "small", .shape = {6, 2, 4}}},
                                      DType::kF32));
  FlatVector errors(form.errors());
  form.Errors(m.view(), Stream(1), errors.view());
  for (const double error : errors.As<double>()) EXPECT_EQ(error, 0);
  m.As<float>()[7] = std::nanf("");
  form.Errors(m.view(), Stream(1), errors.view());
  EXPECT_TRUE(std::isnan(errors.As<double>()[0]));
}

}  // namespace
}  // namespace macaw::codecs
