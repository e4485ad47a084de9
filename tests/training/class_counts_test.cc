#include "training/api/class_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "training/objective.h"

namespace macaw::training {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

constexpr EvaluationMetrics kAll = {
    .balanced_accuracy = true, .f1 = true, .auc = true, .confusion = true};

MATCHER(IsClose, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-12; }

// Outputs in eighths, 4 a row.
constexpr int kOutputs[] = {
    -7,  0,   -3,  1,  14,  -14, -4,  -9,  14, 6,  19,  -9, 6,   -4,  0,   -6,  11, 10,  5,  -10,
    1,   -7,  13,  19, -9,  0,   13,  18,  14, 4,  -13, 7,  7,   -12, -7,  1,   7,  8,   3,  11,
    5,   4,   4,   3,  -11, -13, 5,   5,   3,  -5, -8,  -2, 5,   9,   -3,  -3,  2,  22,  -3, 3,
    -2,  3,   -2,  12, 9,   5,   13,  -10, 2,  -2, -4,  0,  -5,  -3,  9,   -12, -3, 22,  13, -8,
    -14, 5,   -14, 2,  0,   19,  -12, 5,   1,  -3, 10,  10, -1,  21,  3,   12,  13, 2,   2,  -10,
    2,   -1,  7,   12, -7,  2,   -13, -1,  -4, 19, 14,  4,  2,   10,  -13, -4,  14, -3,  0,  -8,
    14,  -13, 14,  11, 2,   -1,  16,  1,   7,  -5, -2,  7,  -13, -14, 6,   4,   9,  -14, 12, -3,
    -2,  14,  -11, 13, 15,  -2,  -12, 1,   6,  11, 5,   -5, -13, 11,  -6,  5,   11, -4,  12, 9};
constexpr int64_t kLabels[] = {3, 2, 2, 3, 0, 3, 3, 0, 0, 1, 1, 3, 3, 0, 1, 3, 0, 3, 0, 1,
                               3, 1, 1, 1, 2, 1, 3, 1, 1, 2, 0, 2, 0, 3, 3, 3, 0, 0, 1, 3};
// Outputs of a binary model in 1/1024, which lie in cells of their own near 0.
constexpr int kFine[] = {0,  39, 34, 16, 42,  -10, -22, -2, -25, 28, -5, 9, -6, 41,
                         -9, 1,  39, 1,  36,  36,  28,  15, 17,  17, 20, 8, 39, 35,
                         -8, 7,  13, 26, -25, -26, -3,  -4, -21, 1,  3,  28};
constexpr int64_t kFineLabels[] = {1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1,
                                   1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};

std::vector<float> Scaled(std::span<const int> numbers, float by) {
  std::vector<float> scaled;
  for (const int number : numbers) scaled.push_back(static_cast<float>(number) * by);
  return scaled;
}

SparseCounts Count(const ClassCounts& counts, size_t width, std::span<const float> outputs,
                   std::span<const int64_t> labels) {
  std::vector<double> all(counts.size());
  counts.Add(outputs.data(), width, labels, all);
  return SparseCounts::Of(all);
}

// Expected numbers here and below: scikit-learn 1.9.1 (NumPy 2.4.6), confusion_matrix,
// balanced_accuracy_score, f1_score (macro; binary), recall_score, precision_score, and
// roc_auc_score of one class against all, of the same outputs; the scores of roc_auc_score are the
// numbers of the cells.
TEST(ClassCounts, AreThoseOfScikitLearn) {
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kClassification, 4);
  const SparseCounts counted = Count(counts, 4, Scaled(kOutputs, 0.125F), kLabels);
  ASSERT_TRUE(counts.Fit(counted, 40));
  EXPECT_THAT(counts.Confusion(counted),
              ElementsAre(ElementsAre(6, 2, 2, 0), ElementsAre(1, 7, 1, 2), ElementsAre(3, 0, 2, 0),
                          ElementsAre(3, 3, 4, 4)));
  EXPECT_THAT(counts.names(), ElementsAre("balanced_accuracy", "f1", "auc"));
  EXPECT_THAT(
      counts.Values(counted, 40),
      Pointwise(IsClose(), {0.48051948051948046, 0.45403726708074532, 0.77022896643586303}));
  const ClassCounts::PerClass each = counts.Each(counted);
  EXPECT_THAT(each.recall,
              Pointwise(IsClose(), {0.6, 0.63636363636363635, 0.4, 0.2857142857142857}));
  EXPECT_THAT(each.precision, Pointwise(IsClose(), {0.46153846153846156, 0.58333333333333337,
                                                    0.22222222222222221, 0.66666666666666663}));
  EXPECT_THAT(each.f1, Pointwise(IsClose(), {0.52173913043478259, 0.60869565217391308,
                                             0.2857142857142857, 0.4}));
  EXPECT_THAT(each.auc, Pointwise(IsClose(), {0.77666666666666662, 0.84326018808777425,
                                              0.62857142857142856, 0.83241758241758246}));
}

TEST(ClassCounts, LeaveOutAClassThatNoRowHas) {
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kClassification, 4);
  std::vector<int64_t> labels(std::begin(kLabels), std::end(kLabels));
  std::ranges::replace(labels, 3, 0);
  const SparseCounts counted = Count(counts, 4, Scaled(kOutputs, 0.125F), labels);
  // Class 3 has no recall and no AUC, but it is predicted, so its F1 is 0.
  EXPECT_THAT(counts.Values(counted, 40),
              Pointwise(IsClose(), {0.4704545454545454, 0.34522410609367127, 0.68896123333084536}));
  EXPECT_TRUE(std::isnan(counts.Each(counted).recall[3]));
}

TEST(ClassCounts, OfABinaryTaskAreOfClass1) {
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kBinary, 1);
  const SparseCounts counted = Count(counts, 1, Scaled(kFine, 1.0F / 1024), kFineLabels);
  EXPECT_THAT(counts.Confusion(counted), ElementsAre(ElementsAre(8, 10), ElementsAre(6, 16)));
  EXPECT_THAT(
      counts.Values(counted, 40),
      Pointwise(IsClose(), {0.58585858585858586, 0.66666666666666663, 0.76010101010101006}));
  // Release 0.1.0 has several of these outputs in a cell of 1/128.
  EXPECT_NEAR(counts.Values(counts.OfRelease010(counted), 40)[2], 0.76136363636363635, 1e-12);
}

// The share of pairs of a row of class `of` and another one in which the first has the larger
// score; a tie is half a pair.
double AreaOf(std::span<const double> scores, std::span<const int64_t> labels, int64_t of) {
  double below = 0, pairs = 0;
  for (size_t p = 0; p < labels.size(); ++p) {
    for (size_t n = 0; n < labels.size(); ++n) {
      if (labels[p] != of || labels[n] == of) continue;
      below += scores[n] < scores[p] ? 1 : scores[n] == scores[p] ? 0.5 : 0;
      pairs += 1;
    }
  }
  return below / pairs;
}

// The AUC of the scores and the share of pairs in one cell, by looking at every pair.
TEST(ClassCounts, RoundScoresByLessThanHalfThePairsInACell) {
  RandomStream stream({.seed = 3});
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kBinary, 1);
  for (const double spread : {1e-5, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0}) {
    std::vector<float> outputs;
    std::vector<int64_t> labels;
    for (int i = 0; i < 400; ++i) {
      labels.push_back(static_cast<int64_t>(stream.Below(3) == 0));
      outputs.push_back(static_cast<float>(spread * (stream.Normal() + labels.back())));
    }
    const auto cell = [](float z) {
      const double size = std::max(std::abs(static_cast<double>(z)), 0x1p-16);  // no z is an end
      if (size >= 1 && size < 16) return std::floor(static_cast<double>(z) * 128);
      const double octave = std::floor(std::log2(size));  // of 128 cells; none is 0 to 3
      const double cell = 1e6 * octave + std::floor((size / std::exp2(octave) - 1) * 128);
      return z < 0 ? -1 - cell : cell;
    };
    double tied = 0, pairs = 0;
    for (size_t p = 0; p < labels.size(); ++p) {
      for (size_t n = 0; n < labels.size(); ++n) {
        if (labels[p] != 1 || labels[n] != 0) continue;
        tied += cell(outputs[n]) == cell(outputs[p]) ? 1 : 0;
        pairs += 1;
      }
    }
    const double auc = counts.Values(Count(counts, 1, outputs, labels), 400)[2];
    const double exact = AreaOf(std::vector<double>(outputs.begin(), outputs.end()), labels, 1);
    EXPECT_LE(std::abs(auc - exact), tied / (2 * pairs) + 1e-12) << spread;
    if (spread >= 0.001) {
      EXPECT_LT(std::abs(auc - exact), 5e-4) << spread;
    }
  }
}

// A model that has learnt little, with few and with many classes.
TEST(ClassCounts, TellScoresApartThatDifferLittle) {
  for (const int64_t classes : {2, 10, 100, 600}) {
    const ClassCounts counts = ClassCounts::Of({.auc = true}, TaskKind::kClassification, classes);
    const auto width = static_cast<size_t>(classes);
    RandomStream stream({.seed = 5, .client = ClientId{width}});
    std::vector<float> outputs(500 * width);
    std::vector<int64_t> labels;
    for (size_t row = 0; row < 500; ++row) {
      // Class 0 has half of the rows, so that its AUC is of many pairs.
      labels.push_back(static_cast<int64_t>(row % 2 == 0 ? 0 : stream.Below(width)));
      for (size_t c = 0; c < width; ++c)
        outputs[row * width + c] = static_cast<float>(0.01 * stream.Normal());
      outputs[row * width + static_cast<size_t>(labels.back())] += 0.01F;
    }
    std::vector<double> scores;  // log-odds of class 0
    for (size_t row = 0; row < 500; ++row) {
      double others = 0;
      for (size_t c = 1; c < width; ++c)
        others += std::exp(static_cast<double>(outputs[row * width + c]));
      scores.push_back(static_cast<double>(outputs[row * width]) - std::log(others));
    }
    const SparseCounts counted = Count(counts, width, outputs, labels);
    ASSERT_TRUE(counts.Fit(counted, 500));
    EXPECT_NEAR(counts.Each(counted).auc[0], AreaOf(scores, labels, 0), classes > 100 ? 5e-3 : 1e-3)
        << classes;
  }
}

TEST(ClassCounts, KeepTheOrderOfVerySureOutputs) {
  // The softmax of the best class is 1 in float32 and in double; its log-odds are 10 and 12.
  const ClassCounts counts = ClassCounts::Of({.auc = true}, TaskKind::kClassification, 2);
  const std::vector<float> outputs = {10, 0, 12, 0};
  EXPECT_EQ(counts.Values(Count(counts, 2, outputs, std::vector<int64_t>{1, 0}), 2)[0], 1);
  EXPECT_EQ(counts.Values(Count(counts, 2, outputs, std::vector<int64_t>{0, 1}), 2)[0], 0);
}

TEST(ClassCounts, KeepTheOrderOfOutputsOfAnySize) {
  const ClassCounts two = ClassCounts::Of({.auc = true}, TaskKind::kClassification, 2);
  const ClassCounts binary = ClassCounts::Of({.auc = true}, TaskKind::kBinary, 1);
  for (const float size : {10.0F, 20.0F, 200.0F, 2000.0F, 200000.0F}) {
    for (const float sign : {1.0F, -1.0F}) {
      const float less = sign * size, more = less + 0.1F * size;
      const auto auc = [](const ClassCounts& counts, size_t width, std::vector<float> outputs) {
        return counts.Values(Count(counts, width, outputs, std::vector<int64_t>{0, 1}), 2)[0];
      };
      EXPECT_EQ(auc(binary, 1, {less, more}), 1) << less;
      EXPECT_EQ(auc(binary, 1, {more, less}), 0) << less;
      EXPECT_EQ(auc(two, 2, {0, less, 0, more}), 1) << less;
      EXPECT_EQ(auc(two, 2, {0, more, 0, less}), 0) << less;
    }
  }
}

// Release 0.1.0 counts a score beyond ±16 in the cell before it, and one near the centre in the
// linear cell there.
TEST(ClassCounts, AreReadAndWrittenForRelease010) {
  for (const EvaluationMetrics& metrics :
       {EvaluationMetrics{.auc = true}, EvaluationMetrics{.f1 = true, .auc = true, .ece = true}}) {
    const ClassCounts counts = ClassCounts::Of(metrics, TaskKind::kClassification, 3);
    const std::vector<float> far = {90, 0, 40, 0, 50, 90, 70, 0, 0, -3, 40, 2, 5, 5, 5},
                             near = {25, 0, -25, -25, 0, 25, 25, 0, 0, -25, 25, 0, 5, 5, 5};
    const std::vector<int64_t> labels = {0, 2, 1, 1, 0};
    const SparseCounts of_near = Count(counts, 3, near, labels);
    const SparseCounts without = counts.OfRelease010(of_near);
    ASSERT_TRUE(counts.Fit(without, 5));
    EXPECT_FALSE(counts.Fit(without, 4));
    // Nothing is in later cells, and nothing is left to move.
    EXPECT_EQ(counts.OfRelease010(without).at, without.at);
    EXPECT_EQ(counts.OfRelease010(without).count, without.count);
    const size_t later = counts.size() - size_t{3} * 2 * 2 * 4096;
    EXPECT_LT(without.at.back(), later);
    EXPECT_GE(of_near.at.back(), later);
    if (!metrics.ece) {  // the largest confidences differ
      const SparseCounts of_far = Count(counts, 3, far, labels);
      EXPECT_EQ(counts.OfRelease010(of_far).at, without.at);
      EXPECT_EQ(counts.OfRelease010(of_far).count, without.count);
      EXPECT_NE(of_far.at, of_near.at);
    }
  }
}

// The rows of a worker of 0.1.0 and of another one are compared in the cells that both have.
TEST(ClassCounts, OfBothReleasesAreAddedInTheCellsOf010) {
  const ClassCounts counts = ClassCounts::Of({.auc = true}, TaskKind::kBinary, 1);
  const std::vector<float> outputs = Scaled(kFine, 1.0F / 1024);
  const std::span<const float> all = outputs;
  const std::span<const int64_t> labels = kFineLabels;
  std::vector<double> sum(counts.size());
  const auto add = [&](const SparseCounts& part) {
    for (size_t i = 0; i < part.at.size(); ++i) sum[part.at[i]] += part.count[i];
  };
  add(counts.OfRelease010(Count(counts, 1, all.first(20), labels.first(20))));
  add(Count(counts, 1, all.last(20), labels.last(20)));
  EXPECT_NEAR(counts.Values(SparseCounts::Of(sum), 40)[0], 0.76136363636363635, 1e-12);
}

TEST(ClassCounts, AreUndefinedWhereAnOutputIsNotFinite) {
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kClassification, 2);
  std::vector<float> outputs = {1, 0, 0, 1, 1, 0};
  const std::vector<int64_t> labels = {0, 1, 0};
  EXPECT_THAT(counts.Values(Count(counts, 2, outputs, labels), 3), ElementsAre(1, 1, 1));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    outputs[2] = bad;
    const SparseCounts counted = Count(counts, 2, outputs, labels);
    EXPECT_TRUE(counts.Fit(counted, 3));
    for (const double value : counts.Values(counted, 3)) EXPECT_TRUE(std::isnan(value));
  }
}

// Labels that follow each other in steps of three; expected: NumPy's of the same outputs.
TEST(ClassCounts, HaveTheLabelsAmongTheFiveLargestOutputs) {
  const ClassCounts counts = ClassCounts::Of({.top5 = true}, TaskKind::kClassification, 8);
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < 20; ++row) labels.push_back(row * 3 % 8);
  const SparseCounts counted = Count(counts, 8, Scaled(kOutputs, 0.125F), labels);
  EXPECT_TRUE(counts.Fit(counted, 20));
  EXPECT_FALSE(counts.Fit(counted, 19));
  EXPECT_THAT(counts.Values(counted, 20), ElementsAre(0.45));
  // Of equal outputs the first one is the larger.
  const std::vector<float> equal(8, 1.0F);
  EXPECT_EQ(counts.Values(Count(counts, 8, equal, std::vector<int64_t>{4}), 1)[0], 1);
  EXPECT_EQ(counts.Values(Count(counts, 8, equal, std::vector<int64_t>{5}), 1)[0], 0);
}

// Expected: NumPy's of the same outputs, with confidences rounded to 2⁻²⁴.
TEST(ClassCounts, HaveTheCalibrationError) {
  const ClassCounts counts = ClassCounts::Of({.ece = true}, TaskKind::kClassification, 4);
  const SparseCounts counted = Count(counts, 4, Scaled(kOutputs, 0.125F), kLabels);
  EXPECT_TRUE(counts.Fit(counted, 40));
  EXPECT_FALSE(counts.Fit(counted, 39));
  EXPECT_THAT(counts.Values(counted, 40), Pointwise(IsClose(), {0.22730601578950882}));
  EXPECT_NEAR(counts.Values(counted, 40)[0], 0.22730601295735803, 0x1p-25) << "not rounded";
  const ClassCounts binary = ClassCounts::Of({.ece = true}, TaskKind::kBinary, 1);
  EXPECT_THAT(binary.Values(Count(binary, 1, Scaled(kFine, 0.125F), kFineLabels), 40),
              Pointwise(IsClose(), {0.23480866700410843}));
}

TEST(ClassCounts, OfOneRowHaveItsDistanceFromBeingRight) {
  const ClassCounts counts = ClassCounts::Of({.ece = true}, TaskKind::kClassification, 3);
  const std::vector<float> equal(3, 0.0F), sure = {100.0F, 0.0F, 0.0F};
  const auto error = [&](const std::vector<float>& outputs, int64_t label) {
    const SparseCounts counted = Count(counts, 3, outputs, std::vector<int64_t>{label});
    EXPECT_TRUE(counts.Fit(counted, 1));
    return counts.Values(counted, 1)[0];
  };
  EXPECT_NEAR(error(equal, 0), 2.0 / 3, 0x1p-25);
  EXPECT_NEAR(error(equal, 1), 1.0 / 3, 0x1p-25);
  EXPECT_EQ(error(sure, 0), 0);
  EXPECT_EQ(error(sure, 2), 1);
}

TEST(ClassCounts, RefuseCalibrationsThatNoRowsHave) {
  const ClassCounts counts = ClassCounts::Of({.ece = true}, TaskKind::kClassification, 4);
  const SparseCounts good = Count(counts, 4, Scaled(kOutputs, 0.125F), kLabels);
  std::vector<double> whole(counts.size());
  for (size_t i = 0; i < good.at.size(); ++i) whole[good.at[i]] = good.count[i];
  for (size_t bin = 0; bin < kCalibrationBins; ++bin) {
    if (whole[5 * bin] == 0) continue;
    const auto changed = [&](size_t place, double value) {
      std::vector<double> bad = whole;
      bad[5 * bin + place] = value;
      return counts.Fit(SparseCounts::Of(bad), 40);
    };
    EXPECT_FALSE(changed(1, whole[5 * bin] + 1)) << "more right rows than rows";
    EXPECT_FALSE(changed(2, 257 * whole[5 * bin])) << "a confidence above 1";
    EXPECT_FALSE(changed(2, 0)) << "a confidence below the bin";
    EXPECT_FALSE(changed(4, 256 * whole[5 * bin])) << "a digit of more than 8 bits";
  }
}

// Merged counts are those of all rows, whatever the order and the parts.
TEST(ClassCounts, AddUpExactly) {
  const ClassCounts counts =
      ClassCounts::Of({.top5 = true, .ece = true}, TaskKind::kClassification, 8);
  RandomStream stream({.seed = 4});
  std::vector<float> outputs(8 * 300);
  std::vector<int64_t> labels(300);
  for (float& output : outputs) output = static_cast<float>(stream.Normal());
  for (int64_t& label : labels) label = static_cast<int64_t>(stream.Below(8));
  std::vector<double> whole(counts.size()), parts(counts.size());
  counts.Add(outputs.data(), 8, labels, whole);
  for (size_t first = 300; first > 0; first -= 50)
    counts.Add(outputs.data() + 8 * (first - 50), 8, std::span(labels).subspan(first - 50, 50),
               parts);
  EXPECT_EQ(whole, parts);
}

TEST(ClassCounts, FitOnlyRowsThatThereAre) {
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kBinary, 1);
  const SparseCounts good = Count(counts, 1, Scaled(kFine, 0.25F), kFineLabels);
  EXPECT_TRUE(counts.Fit(good, 40));
  EXPECT_TRUE(counts.Fit({}, 40)) << "a trainer may leave them out";
  EXPECT_FALSE(counts.Fit(good, 39));
  const auto changed = [&](auto change) {
    SparseCounts bad = good;
    change(bad);
    return counts.Fit(bad, 1000);
  };
  EXPECT_FALSE(changed([](SparseCounts& bad) { bad.count[0] += 1; })) << "not in the histograms";
  EXPECT_FALSE(changed([](SparseCounts& bad) { bad.count[0] = 0; }));
  EXPECT_FALSE(changed([](SparseCounts& bad) { bad.count.pop_back(); }));
  EXPECT_FALSE(changed([](SparseCounts& bad) { std::swap(bad.at[0], bad.at[1]); }));
  EXPECT_FALSE(changed([&](SparseCounts& bad) { bad.at.back() = counts.size(); }));
  // One row: the matrix says class 0, the histogram class 1.
  const auto only = [](const ClassCounts& of, int64_t label, size_t width) {
    const std::vector<float> outputs(width, 1.0F);
    return Count(of, width, outputs, std::vector<int64_t>{label});
  };
  const SparseCounts zero = only(counts, 0, 1), one = only(counts, 1, 1);
  EXPECT_TRUE(counts.Fit(zero, 1));
  EXPECT_TRUE(counts.Fit(one, 1));
  EXPECT_FALSE(
      counts.Fit({.at = {zero.at[0], one.at[1]}, .count = {zero.count[0], one.count[1]}}, 1));
  // Without a matrix: a row that is of no class.
  const ClassCounts curves = ClassCounts::Of({.auc = true}, TaskKind::kClassification, 2);
  SparseCounts row = only(curves, 0, 2);
  EXPECT_TRUE(curves.Fit(row, 1));
  const SparseCounts other = only(curves, 1, 2);
  row.at[0] = other.at[0];
  EXPECT_FALSE(curves.Fit(row, 1));
}

TEST(ClassCounts, AreNothingUnlessAsked) {
  EXPECT_EQ(ClassCounts::Of({}, TaskKind::kClassification, 10).size(), 0u);
  EXPECT_EQ(ClassCounts::Of(kAll, TaskKind::kRegression, 1).size(), 0u);
  EXPECT_EQ(ClassCounts::Of({.f1 = true}, TaskKind::kClassification, 10).size(), 100u);
  EXPECT_EQ(ClassCounts::Of({.auc = true}, TaskKind::kClassification, 10).per_row(), 10u);
  // Of each of 100 curves two histograms of three groups of cells.
  EXPECT_EQ(ClassCounts::Of({.auc = true}, TaskKind::kClassification, 100).size(), 614'400u);
  EXPECT_EQ(ClassCounts::Of({.r2 = true, .perplexity = true}, TaskKind::kClassification, 10).size(),
            0u);
  EXPECT_EQ(ClassCounts::Of({.top5 = true}, TaskKind::kBinary, 1).names().size(), 0u);
}

TEST(Objective, PutsTheCountsBehindTheSums) {
  const Objective objective = *Objective::Make(TaskKind::kClassification, 4, LocalConfig());
  const ClassCounts counts = ClassCounts::Of(kAll, TaskKind::kClassification, 4);
  const Objective counting = objective.Plain(counts);
  const std::vector<float> outputs = Scaled(kOutputs, 0.125F);
  std::vector<double> sums(objective.metrics()), more(counting.metrics());
  objective.Rate<float>(outputs, {.classes = kLabels}, {}, {}, sums);
  counting.Rate<float>(outputs, {.classes = kLabels}, {}, {}, more);
  ASSERT_EQ(more.size(), sums.size() + counts.size());
  EXPECT_TRUE(std::equal(sums.begin(), sums.end(), more.begin()));
  const SparseCounts counted = SparseCounts::Of(std::span(more).subspan(sums.size()));
  EXPECT_EQ(counted.at, Count(counts, 4, outputs, kLabels).at);
  const auto confusion = counts.Confusion(counted);
  EXPECT_EQ(confusion[0][0] + confusion[1][1] + confusion[2][2] + confusion[3][3], sums[2]);
}

}  // namespace
}  // namespace macaw::training
