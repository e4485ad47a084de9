#include "data/synthetic.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "core/memory.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::HasSubstr;

DataOptions Options(uint64_t clients) {
  return {.source = "synthetic", .seed = 3, .synthetic = {.clients = clients, .max_size = 400}};
}
std::unique_ptr<Dataset> Make(const DataOptions& options) { return *OpenDataset(options, {}); }

TEST(Synthetic, ResidentAndOnDemandGiveTheSameBytes) {
  DataOptions options = Options(20);
  options.val_fraction = 0.2;
  options.heldout_clients = 0.1;
  options.resident = "true";
  const auto resident = Make(options);
  options.resident = "false";
  const auto on_demand = Make(options);
  EXPECT_EQ(CopyAll(*resident), CopyAll(*on_demand));
  EXPECT_EQ(resident->info().digest, on_demand->info().digest);
  EXPECT_GT(resident->info().mean_classes_per_client, 1);
}

TEST(Synthetic, HeldoutClientsKeepRowsToTuneOn) {
  DataOptions options = Options(20);
  options.heldout_clients = 0.1;
  const auto plain = Make(options);
  options.heldout_tuning = 0.5;
  const auto dataset = Make(options);
  int heldout = 0;
  for (uint64_t c = 0; c < 20; ++c) {
    const uint32_t tests = plain->Examples(ClientId(c), Split::kTest);
    const bool out = plain->Examples(ClientId(c), Split::kTrain) == 0;
    heldout += out ? 1 : 0;
    EXPECT_EQ(dataset->Examples(ClientId(c), Split::kTrain),
              plain->Examples(ClientId(c), Split::kTrain));
    EXPECT_EQ(dataset->Examples(ClientId(c), Split::kValidation), out ? tests / 2 : 0);
    EXPECT_EQ(dataset->Examples(ClientId(c), Split::kTest), out ? tests - tests / 2 : tests);
  }
  EXPECT_EQ(heldout, 2);
  EXPECT_NE(dataset->info().digest, plain->info().digest);
}

TEST(Synthetic, AClientDoesNotDependOnThePopulation) {
  DataOptions options = Options(5000);
  options.resident = "false";
  const auto few = Make(Options(5)), many = Make(options);
  EXPECT_EQ(Copy(*few, 4, Split::kTrain), Copy(*many, 4, Split::kTrain));
}

TEST(Synthetic, TheSeedDecides) {
  DataOptions options = Options(3);
  const auto first = CopyAll(*Make(options));
  EXPECT_EQ(first, CopyAll(*Make(options)));
  options.seed = 4;
  EXPECT_NE(first, CopyAll(*Make(options)));
}

// The bits are part of every stored result; a change here changes all of them.
TEST(Synthetic, HasTheseBits) {
  const std::vector<RowCopy> rows = Copy(*Make(Options(3)), 1, Split::kTrain);
  std::string all;
  for (const RowCopy& row : rows) all += row.features + static_cast<char>(row.label);
  EXPECT_EQ(DigestOf(all).Hex().substr(0, 16), "8e24e006a8873c18");
}

TEST(Synthetic, SplitsAreThatFractionOfEachClient) {
  DataOptions options = Options(50);
  options.test_fraction = 0.2;
  options.val_fraction = 0.25;
  const auto dataset = Make(options);
  uint64_t test = 0;
  for (uint64_t c = 0; c < 50; ++c) {
    const uint32_t sizes[] = {dataset->Examples(ClientId(c), Split::kTrain),
                              dataset->Examples(ClientId(c), Split::kValidation),
                              dataset->Examples(ClientId(c), Split::kTest)};
    const uint32_t n = sizes[0] + sizes[1] + sizes[2];
    EXPECT_GE(n, 50u);
    EXPECT_LE(n, 400u);
    EXPECT_EQ(sizes[2], static_cast<uint32_t>(0.2 * n));
    EXPECT_NEAR(sizes[1], 0.25 * (n - sizes[2]), 0.76);
    test += sizes[2];
  }
  EXPECT_EQ(dataset->info().test_examples, test);
  EXPECT_EQ(dataset->CentralTest().size(), test);
}

TEST(Synthetic, HasThePapersDistribution) {
  DataOptions options = Options(2000);
  options.synthetic.max_size = 0;
  options.resident = "false";
  options.test_fraction = 0;
  const auto dataset = Make(options);
  // Sizes: the median of ⌊LogNormal(4, 2)⌋ + 50 is e^4 + 50.
  std::vector<uint32_t> sizes;
  for (uint64_t c = 0; c < 2000; ++c)
    sizes.push_back(dataset->Examples(ClientId(c), Split::kTrain));
  std::nth_element(sizes.begin(), sizes.begin() + 1000, sizes.end());
  EXPECT_NEAR(sizes[1000], std::exp(4.0) + 50, 8);
  // Within a client feature j has variance j^-1.2; across clients its mean has variance β² + 1.
  double center_squares = 0;
  std::vector<double> variance(60);
  for (uint64_t c = 0; c < 300; ++c) {
    const std::vector<RowCopy> rows = Copy(*dataset, c, Split::kTrain);
    const size_t n = std::min<size_t>(rows.size(), 200);
    std::vector<double> mean(60), squares(60);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<float> x = Floats(rows[i]);
      for (size_t j = 0; j < 60; ++j) mean[j] += x[j] / n, squares[j] += double{x[j]} * x[j] / n;
    }
    for (size_t j = 0; j < 60; ++j) {
      variance[j] += (squares[j] - mean[j] * mean[j]) * n / (n - 1) / 300;
      center_squares += mean[j] * mean[j] / (300 * 60);
    }
  }
  for (const size_t j : {1, 2, 10, 60}) {
    EXPECT_NEAR(variance[j - 1] / std::pow(j, -1.2), 1, 0.05) << j;
  }
  EXPECT_NEAR(center_squares, 2.0, 0.3);
}

TEST(Synthetic, IidClientsShareOneModel) {
  DataOptions options = Options(40);
  options.synthetic.iid = true;
  const auto dataset = Make(options);
  std::vector<double> mean(60);
  uint64_t rows = 0;
  for (uint64_t c = 0; c < 40; ++c) {
    for (const RowCopy& row : Copy(*dataset, c, Split::kTrain)) {
      const std::vector<float> x = Floats(row);
      for (size_t j = 0; j < 60; ++j) mean[j] += x[j];
      ++rows;
    }
  }
  for (const double sum : mean) EXPECT_NEAR(sum / static_cast<double>(rows), 0, 0.06);
  // Feature 1 dominates, so the class mostly depends on it: clients agree on which classes are
  // frequent.
  EXPECT_GT(dataset->info().mean_classes_per_client, 3);
}

TEST(Synthetic, AMillionClientsOpenAtOnce) {
  DataOptions options = Options(1000000);
  const uint64_t before = *ProportionalSetSize();
  const auto dataset = Make(options);
  const uint64_t after = *ProportionalSetSize();
  EXPECT_EQ(dataset->info().clients, 1000000u);
  EXPECT_GT(dataset->info().train_examples, 100000000u);
  EXPECT_FALSE(dataset->Client(ClientId(999999), Split::kTrain)->empty());
  // All rows together would need more than 24 GB.
  EXPECT_LT(after, before + (uint64_t{200} << 20));
}

TEST(Synthetic, RefusesImpossibleOptions) {
  EXPECT_THAT(OpenDataset(Options(0), {}).status().message(), HasSubstr("data.synthetic.clients"));
  DataOptions options = Options(3);
  options.synthetic.alpha = -1;
  EXPECT_THAT(OpenDataset(options, {}).status().message(), HasSubstr("data.synthetic.alpha"));
  options = Options(3);
  options.input_shape = {1, 28, 28};
  EXPECT_THAT(OpenDataset(options, {}).status().message(), HasSubstr("is [60]: 784 elements"));
  options.input_shape = {3, 4, 5};
  EXPECT_EQ((*OpenDataset(options, {}))->info().input_shape, options.input_shape);
  EXPECT_THAT(OpenDataset(Options(3), {.scheme = "iid"}).status().message(),
              HasSubstr("has its own clients"));
}

}  // namespace
}  // namespace macaw::data
