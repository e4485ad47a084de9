#include "data/histogram.h"

#include <gmock/gmock.h>

#include <ctime>
#include <numeric>

#include "absl/strings/str_join.h"
#include "data/partition_file.h"
#include "tests/data/npz_files.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Histogram Of(std::vector<std::vector<uint32_t>> rows) {
  Histogram histogram{.clients = rows.size(), .classes = rows.front().size()};
  for (const auto& row : rows)
    histogram.counts.insert(histogram.counts.end(), row.begin(), row.end());
  return histogram;
}

// Rows of class 0, 1, …, 0, 1, …
Pool PoolOf(uint64_t rows, int32_t classes) {
  Pool pool{.rows = rows, .class_count = classes};
  for (uint64_t i = 0; i < rows; ++i)
    pool.classes.push_back(static_cast<int32_t>(i % static_cast<uint64_t>(classes)));
  return pool;
}

std::vector<std::vector<uint32_t>> CountsOf(const RowLists& lists, const Pool& pool) {
  std::vector<std::vector<uint32_t>> counts(
      lists.clients(), std::vector<uint32_t>(static_cast<size_t>(pool.class_count)));
  std::vector<bool> used(pool.rows);
  for (uint64_t c = 0; c < lists.clients(); ++c) {
    for (const uint32_t row : lists.Of(c)) {
      EXPECT_FALSE(used[row]) << "row " << row << " twice";
      used[row] = true;
      ++counts[c][static_cast<size_t>(pool.classes[row])];
    }
  }
  return counts;
}

TEST(DivideByHistogram, GivesEachClientItsRowsOfEachClass) {
  const std::vector<std::vector<uint32_t>> wanted = {{3, 0, 5}, {0, 0, 0}, {1, 9, 2}};
  const Pool pool = PoolOf(60, 3);
  const auto division = DivideByHistogram({.seed = 4}, Of(wanted), pool);
  ASSERT_TRUE(division.ok()) << division.status();
  EXPECT_EQ(CountsOf(division->lists, pool), wanted);
  EXPECT_THAT(division->names, IsEmpty());
  EXPECT_THAT(division->notes, ElementsAre(HasSubstr("1 clients of the histogram have no row"),
                                           HasSubstr("40 of the 60 training rows")));
  EXPECT_EQ(DivideByHistogram({.seed = 4}, Of(wanted), pool)->lists.rows, division->lists.rows);
  EXPECT_NE(DivideByHistogram({.seed = 5}, Of(wanted), pool)->lists.rows, division->lists.rows);
}

TEST(DivideByHistogram, TakesSomeClientsAndFewerAreAPartOfMore) {
  std::vector<std::vector<uint32_t>> rows;
  for (uint32_t i = 0; i < 50; ++i) rows.push_back({i % 4, 1});
  const Pool pool = PoolOf(1000, 2);
  const auto ten = DivideByHistogram({.clients = 10, .seed = 1}, Of(rows), pool);
  const auto thirty = DivideByHistogram({.clients = 30, .seed = 1}, Of(rows), pool);
  ASSERT_TRUE(ten.ok() && thirty.ok());
  ASSERT_EQ(ten->names.size(), 10u);
  ASSERT_EQ(ten->lists.clients(), 10u);
  const auto counts = CountsOf(ten->lists, pool);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(counts[i], rows[std::stoul(ten->names[i])]) << i;
    EXPECT_THAT(thirty->names, testing::Contains(ten->names[i]));
    if (i == 0) continue;
    EXPECT_LT(std::stoul(ten->names[i - 1]), std::stoul(ten->names[i]));
  }
  EXPECT_NE(DivideByHistogram({.clients = 10, .seed = 2}, Of(rows), pool)->names, ten->names);
  EXPECT_THAT(std::string(DivideByHistogram({.clients = 51}, Of(rows), pool).status().message()),
              AllOf(HasSubstr("50 clients"), HasSubstr("partition.clients = 51")));
}

TEST(DivideByHistogram, ScalesEveryClassByTheScarcestOne) {
  // 100 clients ask for 12 rows of class 0 and 4 of class 1; there are 300 of each.
  const std::vector<std::vector<uint32_t>> rows(100, {12, 4});
  const Pool pool = PoolOf(600, 2);
  const auto division = DivideByHistogram({.seed = 3}, Of(rows), pool);
  ASSERT_TRUE(division.ok()) << division.status();
  EXPECT_THAT(division->notes, ElementsAre(AllOf(HasSubstr("class 0"), HasSubstr("0.25")),
                                           HasSubstr("of the 600 training rows")));
  uint64_t first = 0, second = 0;
  for (const auto& counts : CountsOf(division->lists, pool)) {
    EXPECT_THAT(counts[0], testing::AnyOf(2u, 3u, 4u));
    EXPECT_THAT(counts[1], testing::AnyOf(0u, 1u, 2u));
    first += counts[0], second += counts[1];
  }
  EXPECT_NEAR(static_cast<double>(first), 300, 1);
  EXPECT_NEAR(static_cast<double>(second), 100, 1);
}

TEST(DivideByHistogram, NamesTheClassOfWhichThereIsNoRow) {
  Pool pool = PoolOf(20, 2);
  pool.class_count = 3;
  const auto refusal = [&](const Histogram& histogram, const Pool& of) {
    return std::string(DivideByHistogram({.path = "h.npy"}, histogram, of).status().message());
  };
  EXPECT_THAT(refusal(Of({{1, 1, 4}, {0, 0, 3}}), pool),
              AllOf(HasSubstr("h.npy"), HasSubstr("7 rows of class 2")));
  EXPECT_TRUE(DivideByHistogram({}, Of({{1, 1, 0}}), pool).ok());
  EXPECT_THAT(refusal(Of({{1, 1}}), pool), AllOf(HasSubstr("2 columns"), HasSubstr("3 classes")));
  EXPECT_THAT(refusal(Of({{1, 1}}), Pool{.rows = 9}), HasSubstr("regression targets"));
}

TEST(DivideByHistogram, IsFastForThousandsOfClients) {
  std::vector<std::vector<uint32_t>> rows;
  for (uint32_t i = 0; i < 3382; ++i) rows.push_back(std::vector<uint32_t>(10, 5 + i % 9));
  const std::clock_t start = std::clock();  // of this process alone
  ASSERT_TRUE(DivideByHistogram({}, Of(rows), PoolOf(60'000, 10)).ok());
  EXPECT_LT(std::clock() - start, std::clock_t{CLOCKS_PER_SEC});
}

class HistogramFile : public testing::Test {
 protected:
  Histogram Read(const std::string& name, const std::string& bytes) {
    const auto histogram = ReadHistogram(folder_.Write(name, bytes));
    EXPECT_TRUE(histogram.ok()) << histogram.status();
    return histogram.value_or(Histogram());
  }
  std::string Refusal(const std::string& bytes) {
    return std::string(ReadHistogram(folder_.Write("h", bytes)).status().message());
  }
  TemporaryFolder folder_;
};

TEST_F(HistogramFile, IsAnArrayAnArchiveOrAText) {
  const std::vector<int64_t> counts = {1, 2, 3, 4, 5, 6};
  const std::vector<uint32_t> expected = {1, 2, 3, 4, 5, 6};
  const std::string npy = NpyOf("<i8", {2, 3}, counts);
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>("h.npy", npy),
        {"d.npy", NpyOf<double>("<f8", {2, 3}, {1, 2, 3, 4, 5, 6})},
        {"h.npz", ZipBytes({{"anything.npy", npy}})},
        {"two.npz", ZipBytes({{"more.npy", NpyOf("<i8", {1}, std::vector<int64_t>{7})},
                              {"histogram.npy", npy}})},
        {"h.csv", "zero,one,two\r1,2,3\r4,5,6"},
        {"h.txt",
         "\xEF\xBB\xBF"
         "1 2 3\n\n4 5 6\n"},
        {"h.csv.gz", Gzip("1;2;3\n4;5;6\n")}}) {
    const Histogram histogram = Read(name, bytes);
    EXPECT_EQ(histogram.clients, 2u) << name;
    EXPECT_EQ(histogram.classes, 3u) << name;
    EXPECT_EQ(histogram.counts, expected) << name;
  }
}

TEST_F(HistogramFile, IsRefusedWithThePlace) {
  EXPECT_THAT(Refusal(NpyOf("<i8", {2, 2}, std::vector<int64_t>{1, 2, 3, -4})),
              AllOf(HasSubstr("-4"), HasSubstr("client 1"), HasSubstr("class 1")));
  EXPECT_THAT(Refusal(NpyOf<double>("<f8", {1, 2}, {1, 0.5})), HasSubstr("0.5"));
  EXPECT_THAT(Refusal(NpyOf("<i8", {4}, std::vector<int64_t>{1, 2, 3, 4})), HasSubstr("matrix"));
  EXPECT_THAT(Refusal(ZipBytes({{"a.npy", NpyOf("<i8", {1}, std::vector<int64_t>{1})},
                                {"b.npy", NpyOf("<i8", {1}, std::vector<int64_t>{1})}})),
              HasSubstr("2 arrays"));
  EXPECT_THAT(Refusal("1,2\n3,x\n"), AllOf(HasSubstr("line 2"), HasSubstr("\"x\"")));
  EXPECT_THAT(Refusal("1,2\n3\n"), AllOf(HasSubstr("line 2"), HasSubstr("1 numbers")));
  EXPECT_THAT(Refusal("1,-2\n"), HasSubstr("\"-2\""));
  EXPECT_THAT(Refusal("a,b\n"), HasSubstr("no clients"));
  EXPECT_THAT(Refusal("3,4,5\n1,,2\n"), AllOf(HasSubstr("line 2"), HasSubstr("empty cell")));
  EXPECT_THAT(Refusal(",0,1\n0,4,5\n"), AllOf(HasSubstr("line 1"), HasSubstr("empty cell")));
  EXPECT_THAT(Refusal("3\t\t5\n"), HasSubstr("empty cell"));
  EXPECT_THAT(Refusal("3,4\n,\n"), AllOf(HasSubstr("line 2"), HasSubstr("empty cell")));
  EXPECT_THAT(std::string(ReadHistogram("").status().message()), HasSubstr("partition.path"));
}

// pandas writes the columns' numbers above a matrix.
TEST_F(HistogramFile, MayNotBeginWithTheNumbersOfItsColumns) {
  for (const char* line : {"0,1,2", "0 1 2", "0,1"}) {
    EXPECT_THAT(Refusal(absl::StrCat(line, "\n", line, "\n")),
                AllOf(HasSubstr("line 1"), HasSubstr("header or the first client")));
  }
  EXPECT_EQ(Read("h.csv", "a,b,c\n0,1,2\n").clients, 1u) << "a line of words is the header";
  EXPECT_EQ(Read("h.csv", "5,0,2\n0,1,2\n").clients, 2u) << "nor is a later line one";
  EXPECT_EQ(Read("h.csv", "5, 0, 2,\n0,\t1, 2,\n").clients, 2u) << "a separator ends the lines";
  EXPECT_EQ(Read("h.csv", "0\n1\n").clients, 2u) << "one class";
}

TEST_F(HistogramFile, DividesADatasetAndLeavesTheOtherSplitsWhereTheyAre) {
  std::string table = "x,y\n";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&table, i, ",", i % 2, "\n");
  const DataOptions data{.source = "csv",
                         .path = folder_.Write("t.csv", table),
                         .test_fraction = 0.1,
                         .val_fraction = 0.25};
  const PartitionOptions partition{.scheme = kHistogramScheme,
                                   .path = folder_.Write("h.csv", "8,4\n0,20\n40,0\n")};
  const auto dataset = OpenDataset(data, partition);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_EQ(info.clients, 3u);
  EXPECT_TRUE(info.divided);
  EXPECT_EQ(info.test_examples, 20u);
  EXPECT_EQ(info.train_examples, 9u + 15 + 30);  // a quarter of each client's rows validates
  EXPECT_EQ((*dataset)->Examples(ClientId(2), Split::kValidation), 10u);
  for (const RowCopy& row : Copy(**dataset, 1, Split::kTrain)) EXPECT_EQ(row.label, 1);
  // Exported as a file of row numbers, it is the same division.
  const std::string split = folder_.path() + "/split.json";
  ASSERT_TRUE(ExportPartition(**dataset, split).ok());
  const auto again = OpenDataset(data, {.scheme = "file", .path = split});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CopyAll(**again), CopyAll(**dataset));
  EXPECT_THAT(
      std::string(
          OpenDataset(data, {.scheme = kHistogramScheme, .path = "/nope"}).status().message()),
      HasSubstr("partition.path: /nope does not exist"));
}

}  // namespace
}  // namespace macaw::data
