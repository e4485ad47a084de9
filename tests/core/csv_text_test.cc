#include "core/csv_text.h"

#include <gmock/gmock.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace macaw {
namespace {

using testing::ElementsAre;

TEST(CsvText, CountsTheLinesOnWhichRecordsBegin) {
  CsvText table("a,b\n\n\"1\r\n2\",x\r\r\"3\r4\",y\nz,z", ',');
  std::vector<int64_t> lines;
  while (table.Next()) {
    EXPECT_TRUE(table.status().ok());
    EXPECT_EQ(table.cells().size(), 2u);
    lines.push_back(table.line());
  }
  EXPECT_THAT(lines, ElementsAre(1, 3, 6, 8));
}

TEST(CsvText, SkipsAByteOrderMarkInFrontOfTheFirstRecordAlone) {
  const std::string mark = "\xEF\xBB\xBF", text = mark + "\"a;b\";c\n" + mark + "d;e\n";
  EXPECT_EQ(FindSeparator(text), ';');
  CsvText table(text, ';');
  ASSERT_TRUE(table.Next());
  EXPECT_THAT(table.cells(), ElementsAre("a;b", "c"));
  ASSERT_TRUE(table.Next());
  EXPECT_THAT(table.cells(), ElementsAre(mark + "d", "e"));
  EXPECT_FALSE(CsvText(mark, ',').Next());
}

// What is written as a table is read as it was, whatever the cells hold.
TEST(CsvText, ReadsBackWhatWasWritten) {
  std::mt19937 random(5);
  constexpr char kCharacters[] = "ab,;\t\"\n\r x";
  for (int trial = 0; trial < 300; ++trial) {
    const char separator = ",;\t"[random() % 3];
    const absl::string_view end = std::vector<absl::string_view>{"\n", "\r\n", "\r"}[random() % 3];
    std::vector<std::vector<std::string>> rows(1 + random() % 5, std::vector<std::string>(3));
    std::string text;
    for (auto& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) {
        for (size_t n = 1 + random() % 6; n > 0; --n) row[i] += kCharacters[random() % 10];
        std::string quoted;
        for (const char c : row[i]) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
        absl::StrAppend(&text, i > 0 ? std::string(1, separator) : "", "\"", quoted, "\"");
      }
      absl::StrAppend(&text, end);
    }
    CsvText table(text, separator);
    for (const auto& row : rows) {
      ASSERT_TRUE(table.Next());
      ASSERT_TRUE(table.status().ok()) << table.status() << text;
      EXPECT_EQ(std::vector<std::string>(table.cells().begin(), table.cells().end()), row) << text;
    }
    EXPECT_FALSE(table.Next());
  }
}

TEST(CsvText, RereadsTheLaterLinesOfARecord) {
  CsvText table("\"a\nb\",1\nc,2\n", ',');
  ASSERT_TRUE(table.Next());
  table.RereadLaterLines();
  ASSERT_TRUE(table.Next());
  EXPECT_EQ(table.line(), 2);
  EXPECT_THAT(table.cells(), ElementsAre("b\"", "1"));
  ASSERT_TRUE(table.Next());
  EXPECT_EQ(table.line(), 3);
  EXPECT_FALSE(table.Next());
}

TEST(CsvText, ManyMarksThatAreNeverClosedCostNoMoreThanTheirLines) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "\"a,1\n";
  CsvText table(text, ',');
  int64_t records = 0;
  while (table.Next()) ++records;
  EXPECT_EQ(records, 200'000);
}

}  // namespace
}  // namespace macaw
