// The loops besides the blocks, on every instruction set, compared with the code that all trainers
// share.
#include <gmock/gmock.h>

#include <limits>
#include <set>

#include "tests/training/fused_testing.h"
#include "training/fused/kernels.h"

namespace macaw::training::fused {
namespace {

class FusedKernels : public testing::TestWithParam<Isa> {
 protected:
  const Kernels& kernels_ = KernelsOf(GetParam());
};
INSTANTIATE_TEST_SUITE_P(OnEach, FusedKernels, testing::ValuesIn(SupportedIsas()), IsaName);

struct Rated {
  std::vector<float> logits;  // [n, classes]
  std::vector<int64_t> labels;
  std::vector<float> gradient;  // [n, classes]
  std::vector<double> sums = std::vector<double>(3, 1.0);
};

Rated RandomRows(size_t n, size_t classes, double scale, uint64_t seed) {
  RandomStream stream({.seed = seed});
  Rated rows;
  for (size_t i = 0; i < n * classes; ++i) {
    rows.logits.push_back(static_cast<float>(scale * stream.Normal()));
  }
  for (size_t i = 0; i < n; ++i) {
    rows.labels.push_back(static_cast<int64_t>(stream.Below(classes)));
  }
  rows.gradient.resize(n * classes);
  return rows;
}

LocalConfig Options(size_t classes, bool weighted, double smoothing) {
  LocalConfig local;
  local.label_smoothing = smoothing;
  for (size_t c = 0; weighted && c < classes; ++c) local.class_weights.push_back(0.5 + 0.1 * c);
  return local;
}

Mean ByObjective(size_t classes, const LocalConfig& local, Rated& rows) {
  const Objective objective = *Objective::Make(TaskKind::kClassification, classes, local);
  const Labels<float> labels{.classes = rows.labels};
  const Mean mean = objective.MeanOf(labels);
  objective.Rate<float>(rows.logits, labels, mean, rows.gradient, rows.sums);
  return mean;
}

bool ByKernel(const Kernels& kernels, size_t classes, const LocalConfig& local, const Mean& mean,
              Rated& rows) {
  const size_t n = rows.labels.size(), stride = RoundUp(classes);
  Buffer logits(n * stride), gradient(n * stride, 5.0f);
  for (size_t r = 0; r < n; ++r) {
    std::copy_n(rows.logits.data() + r * classes, classes, logits.data() + r * stride);
  }
  const SoftmaxRule rule{
      .classes = classes, .weights = local.class_weights, .smoothing = local.label_smoothing};
  const bool done =
      kernels.softmax(rule, mean, n, logits.data(), rows.labels.data(), gradient.data(), rows.sums);
  for (size_t r = 0; done && r < n; ++r) {
    std::copy_n(gradient.data() + r * stride, classes, rows.gradient.data() + r * classes);
    for (size_t c = classes; c < stride; ++c) EXPECT_EQ(gradient[r * stride + c], 0.0f);
  }
  return done;
}

TEST_P(FusedKernels, SoftmaxIsTheObjective) {
  for (const size_t classes : {2, 3, 10, 16, 17, 62, 200}) {
    for (const size_t n : {1, 10, 16, 17, 45}) {
      for (const double scale : {0.1, 3.0, 40.0}) {
        for (const double smoothing : {0.0, 0.2}) {
          const LocalConfig local = Options(classes, n % 2 == 0, smoothing);
          Rated expected = RandomRows(n, classes, scale, classes + n);
          Rated actual = expected;
          const Mean mean = ByObjective(classes, local, expected);
          ASSERT_TRUE(ByKernel(kernels_, classes, local, mean, actual));
          EXPECT_EQ(actual.sums[0], expected.sums[0]);
          EXPECT_NEAR(actual.sums[1], expected.sums[1], 1e-6 * expected.sums[1]);
          EXPECT_EQ(actual.sums[2], expected.sums[2]);
          double error = 0, size = 0;
          for (size_t i = 0; i < actual.gradient.size(); ++i) {
            error = std::max(error, std::abs(double{actual.gradient[i]} - expected.gradient[i]));
            size = std::max(size, std::abs(double{expected.gradient[i]}));
          }
          EXPECT_LT(error, 1e-6 * size) << classes << " classes, " << n << " rows, " << scale;
        }
      }
    }
  }
}

// A row that is learned well: loss and gradient are small differences of nearly equal numbers.
TEST_P(FusedKernels, SoftmaxIsExactWhereLittleIsLeft) {
  for (const float lead : {5.0f, 15.0f, 30.0f}) {
    const LocalConfig local;
    Rated expected;
    expected.logits.assign(10, 0.0f);
    expected.logits[4] = lead;
    expected.labels = {4};
    expected.gradient.resize(10);
    expected.sums.assign(3, 0.0);
    Rated actual = expected;
    const Mean mean = ByObjective(10, local, expected);
    ASSERT_TRUE(ByKernel(kernels_, 10, local, mean, actual));
    EXPECT_NEAR(actual.sums[1] / expected.sums[1], 1, 1e-2 * std::exp(lead - 30) + 1e-6);
    for (size_t c = 0; c < 10; ++c) {
      EXPECT_NEAR(actual.gradient[c] / expected.gradient[c], 1, 1e-2 * std::exp(lead - 30) + 1e-6);
    }
  }
}

TEST_P(FusedKernels, SoftmaxCountsTheFirstOfEqualLogits) {
  Rated rows = RandomRows(3, 20, 0, 1);
  rows.labels = {0, 3, 19};
  rows.logits[20 + 3] = rows.logits[20 + 2] = 1;
  rows.logits[40 + 19] = 1;
  rows.sums.assign(3, 0.0);
  const LocalConfig local;
  ASSERT_TRUE(ByKernel(kernels_, 20, local, {.divisor = 3, .rows = 3}, rows));
  EXPECT_EQ(rows.sums[2], 2);  // rows 0 and 2
}

TEST_P(FusedKernels, SoftmaxLeavesWhatIsNotFiniteToTheObjective) {
  const LocalConfig local;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::nanf("")}) {
    Rated rows = RandomRows(20, 10, 1, 1);
    rows.logits[57] = bad;
    const std::vector<double> before = rows.sums;
    EXPECT_FALSE(ByKernel(kernels_, 10, local, {.divisor = 20, .rows = 20}, rows));
    EXPECT_EQ(rows.sums, before);
  }
}

TEST_P(FusedKernels, StepHasTheBitsOfTheSharedStep) {
  constexpr size_t kCount = 96, kBegin = 16, kEnd = 80;
  for (int options = 0; options < 32; ++options) {
    const SgdRule rule{.lr = 0.1,
                       .momentum = (options & 1) != 0 ? 0.9 : 0.0,
                       .nesterov = (options & 2) != 0,
                       .weight_decay = (options & 4) != 0 ? 0.01 : 0.0,
                       .mu = (options & 8) != 0 ? 0.5 : 0.0};
    const bool v = (options & 16) != 0;
    RandomStream stream({.seed = 3});
    std::vector<Buffer> buffers;
    for (int i = 0; i < 5; ++i) {
      buffers.emplace_back(kCount);
      for (size_t k = 0; k < kCount; ++k) buffers[i][k] = static_cast<float>(stream.Normal());
    }
    Buffer weights(kCount), momentum(kCount);
    std::copy_n(buffers[0].data(), kCount, weights.data());
    std::copy_n(buffers[2].data(), kCount, momentum.data());
    const auto vectors = [&](Buffer& w, Buffer& m) -> SgdVectors<float> {
      const auto all = [](Buffer& b) { return std::span<float>(b.data(), kCount); };
      return {.weights = all(w),
              .gradient = all(buffers[1]),
              .momentum = all(m),
              .anchor = all(buffers[3]),
              .v = v ? all(buffers[4]) : std::span<float>()};
    };
    kernels_.sgd(rule, 0.7, kBegin, kEnd, vectors(weights, momentum));
    SgdStep<float>(rule, 0.7, {{kBegin, kEnd}}, vectors(buffers[0], buffers[2]));
    EXPECT_EQ(weights.First(kCount), buffers[0].First(kCount)) << options;
    EXPECT_EQ(momentum.First(kCount), buffers[2].First(kCount)) << options;
  }
}

TEST_P(FusedKernels, CopyRowsFromAnyAddress) {
  std::vector<std::byte> stored(4096);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const size_t width : {1, 3, 4, 15, 16, 17, 31, 60, 64, 100}) {
    const std::vector<const std::byte*> rows = {&stored[0], &stored[1001], &stored[2]};
    const size_t stride = RoundUp(width);
    Buffer to(3 * stride, 9.0f);
    kernels_.copy_rows(rows.data(), rows.size(), width, to.data());
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(std::memcmp(to.data() + r * stride, rows[r], width * sizeof(float)), 0) << width;
      for (size_t i = width; i < stride; ++i) EXPECT_EQ(to[r * stride + i], 0.0f);
    }
  }
}

TEST_P(FusedKernels, AddIsElementByElement) {
  Buffer more(32, 1.5f), sum(32, 2.0f);
  kernels_.add(more.data(), 16, sum.data());
  EXPECT_EQ(sum[15], 3.5f);
  EXPECT_EQ(sum[16], 2.0f);
}

TEST(Isa, IsTheBestOrTheOneAskedFor) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(std::set<Isa>(isas.begin(), isas.end()).size(), isas.size());
  EXPECT_EQ(*ChooseIsa("auto"), isas.front());
  for (const Isa isa : isas) EXPECT_EQ(*ChooseIsa(Name(isa)), isa);
  EXPECT_THAT(std::string(ChooseIsa("mmx").status().message()),
              testing::AllOf(testing::HasSubstr("mmx"), testing::HasSubstr(Name(isas.back()))));
}

}  // namespace
}  // namespace macaw::training::fused
