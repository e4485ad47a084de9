#include "codecs/majority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/codecs/codec_util.h"

namespace macaw::codecs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64};

TEST(Majority, VotesAreSignsAndOfZeroThereIsNone) {
  for (const DType dtype : kDTypes) {
    FlatVector v = VectorOf({{3, -0.001, 0, -0.0, 1e-30}, {-7}}, dtype);
    ToVotes(v.view());
    EXPECT_THAT(TensorsOf(v), ElementsAre(Doubles{1, -1, 0, 0, 1}, Doubles{-1}));
    EXPECT_FALSE(std::signbit(TensorsOf(v)[0][3])) << "-0 would take four bytes on the wire";
  }
}

TEST(Majority, DecidesForTheLargerSideAndInATieForNone) {
  for (const DType dtype : kDTypes) {
    FlatVector m = VectorOf({{0.2, -1e-12, 0, 1}, {-0.5}}, dtype);
    Decide(0.25, m.view());
    EXPECT_THAT(TensorsOf(m), ElementsAre(Doubles{0.25, -0.25, 0, 0.25}, Doubles{-0.25}));
  }
}

TEST(Majority, AClientThatDivergedIsNotHidden) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    for (const DType dtype : kDTypes) {
      FlatVector v = VectorOf({{1, bad, -1}}, dtype);
      ToVotes(v.view());
      EXPECT_FALSE(std::isfinite(TensorsOf(v)[0][1])) << bad;
    }
  }
}

TEST(Majority, LeavesStatisticsAlone) {
  for (const DType dtype : kDTypes) {
    FlatVector v(*ParameterLayout::Make(
        {{.name = "w", .shape = {1}}, {.name = "mean", .shape = {1}, .group = Group::kBuffer}},
        dtype));
    DispatchDType(dtype, [&]<typename T>(T) {
      for (const LayoutEntry& entry : v.layout()->entries()) v.As<T>()[entry.offset] = T{-3};
    });
    ToVotes(v.view());
    EXPECT_THAT(TensorsOf(v), ElementsAre(Doubles{-1}, Doubles{-3}));
    Decide(0.5, v.view());
    EXPECT_THAT(TensorsOf(v), ElementsAre(Doubles{-0.5}, Doubles{-3}));
  }
}

TEST(Majority, ItsLineHasAStepAndStandsAlone) {
  EXPECT_FALSE(HasMajority({"topk 0.1", "sign"}));
  EXPECT_TRUE(HasMajority({"rotate", "majority"}));
  EXPECT_EQ(*StepOfMajority({"  majority   0.25 "}), 0.25);
  const auto refusal = [](const std::vector<std::string>& lines) {
    return std::string(StepOfMajority(lines).status().message());
  };
  EXPECT_THAT(refusal({"majority"}), AllOf(HasSubstr("\"majority\""), HasSubstr("is missing")));
  EXPECT_THAT(refusal({"majority 0"}), HasSubstr("not 0"));
  EXPECT_THAT(refusal({"majority 1e9"}), HasSubstr("(0, 1000]"));
  EXPECT_THAT(refusal({"majority 1e-50"}), HasSubstr("zero in floats"));
  EXPECT_THAT(refusal({"majority 1 2"}), HasSubstr("'2'"));
  EXPECT_THAT(refusal({"majority 1", "bits 8"}), HasSubstr("stands alone"));
  EXPECT_THAT(refusal({"topk 0.1", "majority 1"}), HasSubstr("stands alone"));
  EXPECT_THAT(refusal({"rotate", "majority 1"}), HasSubstr("take \"rotate\" out"));
  // As a codec of one vector, of what goes down.
  EXPECT_THAT(std::string(ParseCodec({"majority 1"}).status().message()),
              HasSubstr("update.codec alone"));
  EXPECT_THAT(std::string(ParseCodec({"mayority 1"}).status().message()),
              HasSubstr("did you mean 'majority'"));
}

}  // namespace
}  // namespace macaw::codecs
