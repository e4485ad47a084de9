// Whether a table's first line is a header.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/data/csv_fixture.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CsvHeader : public CsvFixture {};

TEST_F(CsvHeader, ALineOfNumbersIsAHeaderIfAColumnIsNamedAfterOneOfThem) {
  const auto dataset = Whole(With("label,0,1\n7,1,2\n5,3,4\n", {.label_column = "label"}));
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->info().train_examples, 2u);
  EXPECT_THAT(dataset->info().feature_names, ElementsAre("0", "1"));
}

const char* const kWords[] = {"x", "y", "z"};

// What pandas writes of columns without names, and of one that has been added.
TEST_F(CsvHeader, AHeaderOfTheColumnsNumbersIsRecognised) {
  const auto fractions = [](int i) { return absl::StrCat(0.25 + i, ",-0.5,"); };
  const auto wholes = [](int i) { return absl::StrCat(i % 7, ",", (3 * i) % 5, ","); };
  for (const std::string& text :
       {Table("0,1,2", [&](int i) { return absl::StrCat(fractions(i), i % 3); }),
        Table("0,1,2", [&](int i) { return absl::StrCat(fractions(i), i, ".0"); }),
        Table("0,1,label", [&](int i) { return absl::StrCat(fractions(i), kWords[i % 3]); }),
        Table("0,1,label", [&](int i) { return absl::StrCat(wholes(i), kWords[i % 3]); }),
        Table("0,1,label", [&](int i) { return absl::StrCat(wholes(i), i % 3); }),
        Table("0,1,2", [&](int i) { return absl::StrCat(wholes(i), kWords[i % 3]); }),
        Table("\"0\",\"1\",\"2\",\"3\",\"4\"",
              [&](int i) { return absl::StrCat(wholes(i), wholes(i + 1), i % 2); }),
        Table("0,1,2,3,4,5,6,7",
              [&](int i) { return absl::StrCat(wholes(i), wholes(i), wholes(i), "4,", i); })}) {
    const auto dataset = Whole(With(text));
    ASSERT_NE(dataset, nullptr) << text;
    EXPECT_EQ(dataset->info().train_examples, 20u) << text;
    EXPECT_EQ(dataset->info().feature_names[0], "0") << text;
    EXPECT_THAT(dataset->info().notes,
                Contains(AllOf(HasSubstr("a.csv line 1 (0, 1"), HasSubstr("taken for a header"),
                               HasSubstr("data.header = false"))))
        << text;
    // As a row it is another set of data, or none: its label is a word among numbers.
    const auto rows = OpenDataset(With(text, {.header = false}), {.clients = 1});
    if (rows.ok()) {
      EXPECT_NE((*rows)->info().digest, dataset->info().digest) << text;
    }
  }
}

TEST_F(CsvHeader, AFirstRowThatCountsIsNoHeader) {
  for (const std::string& text :
       {// An enumeration, one of longer rows, and sequences that count.
        Table("0,1,2", [](int i) { return absl::StrCat("0,", i % 5, ",", i % 3); }),
        Table("0,1,2,3,4,5,6,7",
              [](int i) { return absl::StrCat("0,1,2,3,4,5,", 7 + i, ",", 8 + i); }),
        Table("0,1,2,3,4",
              [](int i) { return absl::StrCat(i + 1, ",", i + 2, ",", i + 3, ",", i + 4, ",5"); }),
        // A function's values from 0 on, a class that is elsewhere, and one that is missing.
        Table("0,1", [](int i) { return absl::StrCat(i + 0.5, ",", 0.25 - i); }),
        Table("0,1,x", [](int i) { return absl::StrCat(i, ",3,", kWords[i % 3]); }),
        Table("0,first", [](int i) { return absl::StrCat(i, ".5,", kWords[i % 3]); }),
        Table("1,0,first", [](int i) { return absl::StrCat(i, ",3,", kWords[i % 3]); }),
        // Too few rows to say it.
        std::string("0,1,2\n0.5,1.5,1\n0.25,2.5,1\n1.5,2.5,0\n")}) {
    const auto dataset = Whole(With(text));
    ASSERT_NE(dataset, nullptr) << text;
    EXPECT_EQ(dataset->info().train_examples,
              static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')))
        << text;
    EXPECT_THAT(dataset->info().feature_names, IsEmpty()) << text;
  }
  // What cannot be read stays an error, and a header takes in no damaged row.
  EXPECT_THAT(Refusal(Table("0,1,NA", [](int i) { return absl::StrCat(i, ",3,", i % 3); })),
              HasSubstr("line 2"));
  EXPECT_THAT(Refusal(Table("0,?,2", [](int i) { return absl::StrCat(i, ",3,", i % 3); })),
              AllOf(HasSubstr("line 1: column 1: \"?\""), HasSubstr("data.header = true")));
}

TEST_F(CsvHeader, AFirstLineThatMayBeAHeaderIsNotedUntilItIsSaid) {
  const std::string years =
      Table("2019,2020,2021", [](int i) { return absl::StrCat(i, ".5,", i % 4, ",", i % 3); });
  for (const std::string& text :
       {years,
        Table("2019,2020,2021", [](int i) { return absl::StrCat(i, ",", i % 4, ",", i % 3); }),
        Table("0,1", [](int i) { return absl::StrCat(i + 0.5, ",", 0.25 - i); }),
        Table("2019,2020,label", [](int i) { return absl::StrCat(i, ",3,", kWords[i % 3]); })}) {
    EXPECT_THAT(Whole(With(text))->info().notes,
                Contains(AllOf(HasSubstr("a.csv line 1 ("), HasSubstr("read as a row"),
                               HasSubstr("data.header = true or false"))))
        << text;
    EXPECT_EQ(Whole(With(text))->info().train_examples, 21u) << text;
    for (const bool header : {false, true}) {
      const auto said = Whole(With(text, {.header = header}));
      ASSERT_NE(said, nullptr) << text;
      EXPECT_THAT(said->info().notes, IsEmpty()) << text;
      EXPECT_EQ(said->info().train_examples, header ? 20u : 21u) << text;
    }
  }
  EXPECT_THAT(Whole(With(years, {.header = true}))->info().feature_names,
              ElementsAre("2019", "2020"));
  // A column that is named by such a number.
  EXPECT_THAT(Whole(With(years, {.label_column = "2021"}))->info().feature_names,
              ElementsAre("2019", "2020"));
  EXPECT_THAT(Whole(With(years, {.drop_columns = {"2019"}}))->info().feature_names,
              ElementsAre("2020"));
  // Whole numbers in whole columns, and fractions, say nothing.
  for (const char* first : {"5,3,1", "2.5,3,1"}) {
    const std::string text =
        Table(first, [&](int i) { return absl::StrCat(i, *first == '5' ? "" : ".5", ",3,1"); });
    EXPECT_THAT(Whole(With(text))->info().notes, IsEmpty()) << first;
  }
}

TEST_F(CsvHeader, TheColumnsNumbersAndANameAreNotedOverAFewRows) {
  for (const int rows : {1, 2, 5, 9}) {
    std::string text = "0,1,label\n";
    for (int i = 0; i < rows; ++i) absl::StrAppend(&text, i, ",", i, ",", kWords[i % 2], "\n");
    const auto dataset = Whole(With(text));
    ASSERT_NE(dataset, nullptr) << text;
    EXPECT_EQ(dataset->info().train_examples, static_cast<uint64_t>(rows) + 1) << text;
    EXPECT_THAT(dataset->info().notes,
                ElementsAre(AllOf(HasSubstr("a.csv line 1 (0, 1, label)"),
                                  HasSubstr("read as a row"), HasSubstr("data.header = true"))))
        << text;
  }
  // A label that other rows have, too, is none of a header.
  EXPECT_THAT(Whole(With("0,1,x\n2,3,y\n4,5,x\n"))->info().notes, IsEmpty());
}

TEST_F(CsvHeader, AKeySaysWhetherTheFirstLineIsAHeader) {
  EXPECT_THAT(Refusal("a,b\n1,2\n", {.header = false}), HasSubstr("a.csv line 1"));
  DataOptions options = With("5,6\n1,2\n3,4\n", {.header = true});
  options.test_path = folder_.Write("t.csv", "5,6\n7,2\n");
  const auto dataset = Whole(options);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->info().feature_names, ElementsAre("5"));
  EXPECT_EQ(dataset->info().train_examples, 2u);
  EXPECT_EQ(dataset->CentralTest().size(), 1u);
  options.test_path = folder_.Write("t.csv", "7,2\n8,4\n");
  EXPECT_THAT(std::string(OpenDataset(options, {.clients = 1}).status().message()),
              AllOf(HasSubstr("t.csv line 1"), HasSubstr("5, 6")));
  // The name of rows' numbers is empty where pandas has named the other columns by theirs.
  EXPECT_THAT(Refusal(",0,1\n0,5,6\n"), HasSubstr("data.drop_columns = [\"\"]"));
  EXPECT_THAT(Whole(With(",0,1\n0,5,6\n", {.drop_columns = {""}}))->info().feature_names,
              ElementsAre("0"));
  // A class that is called like "no column" is no name of one.
  EXPECT_EQ(Whole(With("1,none\n2,some\n", {.client_column = kNoColumn}))->info().train_examples,
            2u);
}

TEST_F(CsvHeader, ASecondFileRepeatsTheRecognisedHeader) {
  DataOptions options =
      With(Table("0,1,2", [](int i) { return absl::StrCat(i, ".5,1.5,", i % 3); }));
  options.test_path = folder_.Write("t.csv", "0,1,2\n7,2,1\n");
  EXPECT_EQ(Whole(options)->CentralTest().size(), 1u);
  options.test_path = folder_.Write("t.csv", "7,2,1\n8,2,0\n");
  EXPECT_EQ(Whole(options)->CentralTest().size(), 2u);
}

}  // namespace
}  // namespace macaw::data
