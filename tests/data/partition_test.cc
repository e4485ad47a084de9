#include "data/partition.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace macaw::data {
namespace {

using testing::HasSubstr;

Pool MakePool(uint64_t rows, int64_t classes) {
  Pool pool{.rows = rows, .class_count = classes};
  for (uint64_t i = 0; i < rows; ++i)
    pool.classes.push_back(static_cast<int32_t>(i % static_cast<uint64_t>(classes)));
  return pool;
}

std::vector<uint64_t> Sizes(const std::vector<uint32_t>& owners, uint64_t clients) {
  std::vector<uint64_t> sizes(clients);
  for (const uint32_t owner : owners) ++sizes.at(owner);
  return sizes;
}

std::vector<std::set<int32_t>> ClassesOf(const std::vector<uint32_t>& owners, const Pool& pool,
                                         uint64_t clients) {
  std::vector<std::set<int32_t>> classes(clients);
  for (size_t i = 0; i < owners.size(); ++i) classes[owners[i]].insert(pool.classes[i]);
  return classes;
}

double MeanClasses(const PartitionOptions& options, const Pool& pool) {
  const auto owners = AssignOwners(options, pool);
  EXPECT_TRUE(owners.ok()) << owners.status();
  double sum = 0;
  for (const auto& classes : ClassesOf(*owners, pool, options.clients))
    sum += static_cast<double>(classes.size());
  return sum / static_cast<double>(options.clients);
}

class EveryScheme : public testing::TestWithParam<std::string> {};

TEST_P(EveryScheme, GivesEachRowOneOwnerAndEachClientItsMinimum) {
  const Pool pool = MakePool(3000, 10);
  for (const uint64_t clients : {1, 7, 100, 750}) {
    for (const uint32_t min_size : {1, 3, 4}) {
      for (const double concentration : {0.05, 0.5, 3.0}) {
        const PartitionOptions options{.scheme = GetParam(),
                                       .clients = clients,
                                       .concentration = concentration,
                                       .classes_per_client = clients < 10 ? 10U : 2U,
                                       .min_size = min_size};
        if (GetParam() == "shards" && clients * options.classes_per_client > 3000) continue;
        const auto owners = AssignOwners(options, pool);
        ASSERT_TRUE(owners.ok()) << owners.status();
        ASSERT_EQ(owners->size(), 3000u);
        const std::vector<uint64_t> sizes = Sizes(*owners, clients);
        EXPECT_GE(*std::min_element(sizes.begin(), sizes.end()), min_size);
      }
    }
  }
}

TEST_P(EveryScheme, FollowsTheSeed) {
  const Pool pool = MakePool(2000, 10);
  PartitionOptions options{.scheme = GetParam(), .clients = 50, .seed = 1};
  const auto first = AssignOwners(options, pool);
  EXPECT_EQ(*first, *AssignOwners(options, pool));
  options.seed = 2;
  if (options.scheme == "sorted") {  // the only scheme without randomness
    EXPECT_EQ(*first, *AssignOwners(options, pool));
    return;
  }
  EXPECT_NE(*first, *AssignOwners(options, pool));
}

TEST_P(EveryScheme, RefusesMoreClientsThanRowsCanServe) {
  const auto owners =
      AssignOwners({.scheme = GetParam(), .clients = 50, .min_size = 5}, MakePool(249, 10));
  EXPECT_THAT(owners.status().message(),
              HasSubstr("min_size = 5 cannot be had from 249 training rows"));
  EXPECT_FALSE(AssignOwners({.scheme = GetParam(), .clients = 0}, MakePool(9, 3)).ok());
}

INSTANTIATE_TEST_SUITE_P(All, EveryScheme,
                         testing::Values("iid", "shards", "sorted", "dirichlet-class",
                                         "dirichlet-client", "dirichlet-quantity", "k-classes",
                                         "lognormal", "power-law"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Partition, IidSizesDifferByOneAtMost) {
  const auto owners = AssignOwners({.scheme = "iid", .clients = 7}, MakePool(100, 10));
  const std::vector<uint64_t> sizes = Sizes(*owners, 7);
  EXPECT_LE(
      *std::max_element(sizes.begin(), sizes.end()) - *std::min_element(sizes.begin(), sizes.end()),
      1u);
}

TEST(Partition, ShardsGiveFewClassesAndEqualSizes) {
  const Pool pool = MakePool(6000, 10);
  const PartitionOptions options{.scheme = "shards", .clients = 100, .classes_per_client = 2};
  const auto owners = AssignOwners(options, pool);
  for (const uint64_t size : Sizes(*owners, 100)) EXPECT_EQ(size, 60u);
  for (const auto& classes : ClassesOf(*owners, pool, 100)) EXPECT_LE(classes.size(), 2u);
}

TEST(Partition, SortedKeepsStoredOrderWithinAClass) {
  // Rows by class: 0: {0, 2, 4, 6}, 1: {1, 3, 5}; three blocks of ⌊7i/3⌋ = 0, 2, 4, 7.
  const auto owners = AssignOwners({.scheme = "sorted", .clients = 3}, MakePool(7, 2));
  EXPECT_THAT(*owners, testing::ElementsAre(0, 2, 0, 2, 1, 2, 1));
}

TEST(Partition, KClassesGivesExactlyKAndSharesEvenly) {
  const Pool pool = MakePool(6000, 10);
  const PartitionOptions options{.scheme = "k-classes", .clients = 40, .classes_per_client = 3};
  const auto owners = AssignOwners(options, pool);
  for (const auto& classes : ClassesOf(*owners, pool, 40)) EXPECT_EQ(classes.size(), 3u);
  for (const uint64_t size : Sizes(*owners, 40))
    EXPECT_EQ(size, 150u);  // 12 clients per class, 50 rows each
}

TEST(Partition, KClassesRefusesImpossibleRequests) {
  EXPECT_THAT(AssignOwners({.scheme = "k-classes", .clients = 40, .classes_per_client = 11},
                           MakePool(600, 10))
                  .status()
                  .message(),
              HasSubstr("classes_per_client = 11, but the data has 10 classes"));
  EXPECT_THAT(AssignOwners({.scheme = "k-classes", .clients = 4, .classes_per_client = 2},
                           MakePool(600, 10))
                  .status()
                  .message(),
              HasSubstr("would have no client"));
}

TEST(Partition, SmallerConcentrationMeansFewerClasses) {
  const Pool pool = MakePool(10000, 10);
  for (const char* scheme : {"dirichlet-class", "dirichlet-client"}) {
    double last = 0;
    for (const double concentration : {0.05, 0.3, 1.0, 100.0}) {
      const double mean =
          MeanClasses({.scheme = scheme, .clients = 100, .concentration = concentration}, pool);
      EXPECT_GT(mean, last) << scheme << " " << concentration;
      last = mean;
    }
    EXPECT_GT(last, 9.8) << scheme;
  }
}

TEST(Partition, DirichletClientKeepsSizesEqual) {
  const auto owners = AssignOwners(
      {.scheme = "dirichlet-client", .clients = 60, .concentration = 0.1}, MakePool(6000, 10));
  for (const uint64_t size : Sizes(*owners, 60)) EXPECT_EQ(size, 100u);
}

// With shares p ~ Dir(β) over C clients, E[Σp²] = (β + 1) / (Cβ + 1).
TEST(Partition, DirichletClassHasTheSpreadOfItsLaw) {
  const uint64_t clients = 50;
  const Pool pool = MakePool(100000, 100);
  const auto owners = AssignOwners(
      {.scheme = "dirichlet-class", .clients = clients, .concentration = 0.5, .min_size = 0}, pool);
  std::vector<std::vector<double>> share(100, std::vector<double>(clients));
  for (size_t i = 0; i < owners->size(); ++i)
    share[static_cast<size_t>(pool.classes[i])][(*owners)[i]] += 1.0 / 1000;
  double squares = 0;
  for (const auto& of_class : share) {
    for (const double p : of_class) squares += p * p / 100;
  }
  EXPECT_NEAR(squares, 1.5 / 26, 0.006);
}

TEST(Partition, PowerLawSizesFallByTheirRank) {
  const auto owners = AssignOwners({.scheme = "power-law", .clients = 100, .concentration = 1.0},
                                   MakePool(52000, 10));
  std::vector<uint64_t> sizes = Sizes(*owners, 100);
  std::sort(sizes.rbegin(), sizes.rend());
  EXPECT_NEAR(static_cast<double>(sizes[0]) / static_cast<double>(sizes[9]), 10, 0.1);
}

TEST(Partition, LogNormalSizesSpreadWithSigma) {
  const auto spread = [](double sigma) {
    const auto owners = AssignOwners(
        {.scheme = "lognormal", .clients = 500, .concentration = sigma}, MakePool(500000, 10));
    double sum = 0, squares = 0;
    for (const uint64_t size : Sizes(*owners, 500)) {
      const double log_size = std::log(static_cast<double>(size));
      sum += log_size / 500, squares += log_size * log_size / 500;
    }
    return std::sqrt(squares - sum * sum);
  };
  EXPECT_NEAR(spread(0.3), 0.3, 0.04);
  EXPECT_NEAR(spread(1.0), 1.0, 0.1);
}

TEST(Partition, DirichletQuantityHasTheLawsSecondMoment) {
  // E Σ q² of Dir_N(β) is (β + 1) / (N β + 1): 1.5 / 6 for ten clients and β = 0.5.
  const Pool pool = MakePool(5000, 10);
  double squares = 0;
  uint32_t largest_classes = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto owners = AssignOwners({.scheme = "dirichlet-quantity",
                                      .clients = 10,
                                      .concentration = 0.5,
                                      .min_size = 0,
                                      .seed = seed},
                                     pool);
    const std::vector<uint64_t> sizes = Sizes(*owners, 10);
    for (const uint64_t size : sizes) {
      const double share = static_cast<double>(size) / 5000;
      squares += share * share / 400;
    }
    const auto largest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
    largest_classes += ClassesOf(*owners, pool, 10)[static_cast<size_t>(largest)].size() == 10;
  }
  EXPECT_NEAR(squares, 0.25, 0.02);
  EXPECT_EQ(largest_classes, 400u);  // classes are not skewed
}

TEST(Partition, ByClassNeedsClasses) {
  EXPECT_THAT(
      AssignOwners({.scheme = "dirichlet-class", .clients = 2}, {.rows = 10}).status().message(),
      HasSubstr("regression targets"));
  EXPECT_TRUE(AssignOwners({.scheme = "iid", .clients = 2}, {.rows = 10}).ok());
}

TEST(Partition, MinimumTakesFromTheLargestOnly) {
  // Sizes by power law: clients between the minimum and the new common size keep every row.
  const Pool pool = MakePool(1000, 10);
  PartitionOptions options{
      .scheme = "power-law", .clients = 100, .concentration = 1.5, .min_size = 0};
  const auto before = *AssignOwners(options, pool);
  options.min_size = 3;
  const auto after = *AssignOwners(options, pool);
  const std::vector<uint64_t> old_size = Sizes(before, 100), new_size = Sizes(after, 100);
  const uint64_t level = *std::max_element(new_size.begin(), new_size.end());
  for (uint64_t c = 0; c < 100; ++c) {
    if (old_size[c] < 3) {
      EXPECT_EQ(new_size[c], 3u);
    } else if (old_size[c] < level - 1) {
      EXPECT_EQ(new_size[c], old_size[c]);
    } else {
      EXPECT_GE(new_size[c] + 1, level);
    }
  }
}

}  // namespace
}  // namespace macaw::data
