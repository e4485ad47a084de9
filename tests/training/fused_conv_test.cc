#include <cmath>
#include <cstring>
#include <limits>

#include "core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/training/fused_conv_testing.h"
#include "training/fused/conv.h"

namespace macaw::training::fused {
namespace {

using fixtures::ConvCase;
using fixtures::ConvNumbers;
using fixtures::Reference;
using fixtures::RunBlock;

// Small integers: every sum is exact in f32, so results must be equal, and a pool has ties.
constexpr int kWhole = 3;

TEST(FusedConv, EqualsADoubleReferenceExactlyOnWholeNumbers) {
  for (const ConvCase& conv : fixtures::HandPickedConvs()) {
    const ConvNumbers given = fixtures::WholeNumbers(conv, kWhole);
    const ConvNumbers wanted = Reference(conv, given);
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(conv.Text() + " on " + std::string(Name(isa)));
      EXPECT_EQ(fixtures::Differences(RunBlock(isa, conv, given), wanted), "");
    }
  }
}

TEST(FusedConv, EqualsADoubleReferenceExactlyOnRandomShapes) {
  RandomStream random(StreamKey{.seed = 7});
  for (int i = 0; i < 120; ++i) {
    const ConvCase conv = fixtures::RandomConv(random);
    const ConvNumbers given = fixtures::WholeNumbers(conv, kWhole);
    const ConvNumbers wanted = Reference(conv, given);
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(conv.Text() + " on " + std::string(Name(isa)));
      ASSERT_EQ(fixtures::Differences(RunBlock(isa, conv, given), wanted), "");
    }
  }
}

TEST(FusedConv, IsCloseToADoubleReferenceOnRealNumbers) {
  for (const ConvCase& conv : fixtures::HandPickedConvs()) {
    const ConvNumbers given = fixtures::NormalNumbers(conv);
    const ConvNumbers wanted = Reference(conv, given);
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(conv.Text() + " on " + std::string(Name(isa)));
      EXPECT_EQ(fixtures::Differences(RunBlock(isa, conv, given), wanted, 3e-6), "");
    }
  }
}

TEST(FusedConv, HasTheSameBitsAtOtherAddresses) {
  for (const ConvCase& conv : fixtures::HandPickedConvs()) {
    const ConvNumbers given = fixtures::NormalNumbers(conv);
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(conv.Text() + " on " + std::string(Name(isa)));
      const ConvNumbers made = RunBlock(isa, conv, given);
      for (const size_t shift : {16, 48, 1008}) {
        EXPECT_EQ(fixtures::Differences(RunBlock(isa, conv, given, shift), made), "");
      }
    }
  }
}

// An example's results do not depend on the rest of the batch.
TEST(FusedConv, GivesAnExampleTheSameBitsInAnyBatch) {
  for (ConvCase conv : fixtures::HandPickedConvs()) {
    conv.n = 7;
    const ConvNumbers given = fixtures::NormalNumbers(conv);
    ConvCase last = conv;
    last.n = 1;
    ConvNumbers alone = given;
    const auto keep_last = [](std::vector<double>& values) {
      values.erase(values.begin(), values.end() - static_cast<ptrdiff_t>(values.size() / 7));
    };
    keep_last(alone.x);
    keep_last(alone.d_out);
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(conv.Text() + " on " + std::string(Name(isa)));
      ConvNumbers all = RunBlock(isa, conv, given);
      const ConvNumbers one = RunBlock(isa, last, alone);
      for (auto* values : {&all.out, &all.d_in}) {
        values->pop_back();  // the sum of padding
        keep_last(*values);
        values->push_back(0);
      }
      all.d_weight = one.d_weight;
      all.d_bias = one.d_bias;
      EXPECT_EQ(fixtures::Differences(one, all), "");
    }
  }
}

TEST(FusedConv, ANotANumberPassesReluAndPool) {
  for (const size_t pool : {1, 2, 3}) {
    const ConvCase conv{
        {.in = {.channels = 1, .height = 6, .width = 6}, .outputs = 3, .relu = true, .pool = pool},
        1};
    for (size_t i = 0; i < 36; ++i) {
      ConvNumbers given = fixtures::WholeNumbers(conv, kWhole);
      given.weight = {1, 1, 1};
      given.x[i] = std::numeric_limits<double>::quiet_NaN();
      for (const Isa isa : SupportedIsas()) {
        SCOPED_TRACE(conv.Text() + " on " + std::string(Name(isa)));
        const ConvNumbers made = RunBlock(isa, conv, given);
        const size_t side = 6 / pool, at = i / 6 / pool * side + i % 6 / pool;
        ASSERT_EQ(made.out.size(), 3 * side * side + 1);
        for (size_t o = 0; o < made.out.size() - 1; ++o) {
          EXPECT_EQ(std::isnan(made.out[o]), o % (side * side) == at) << o << " for " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace macaw::training::fused
