// Tables as people have them: words for users and classes, columns by name. No mistake may go
// unnoticed.
#include <gmock/gmock.h>

#include "data/prepared.h"
#include "tests/data/csv_fixture.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Csv : public CsvFixture {};

TEST_F(Csv, FindsTheLabelColumnByNameNumberOrPosition) {
  for (const char* column : {"class", "1"}) {
    const auto dataset = Whole(With("u,\"class\",v\n1,7,2\n3,5,4\n", {.label_column = column}));
    ASSERT_NE(dataset, nullptr) << column;
    EXPECT_EQ(dataset->info().classes, 2);
    EXPECT_THAT(dataset->info().class_names, ElementsAre("5", "7"));
    EXPECT_THAT(dataset->info().feature_names, ElementsAre("u", "v"));
    const std::vector<RowCopy> rows = Copy(*dataset, 0, Split::kTrain);
    EXPECT_THAT(Floats(rows[1]), ElementsAre(3, 4));
    EXPECT_EQ(rows[0].label, 1);  // 7 is the second of {5, 7}
  }
  const auto regression = Whole(With("1;2;0.5\n3;4;1.5\n"));
  EXPECT_EQ(regression->info().classes, 0);
  EXPECT_EQ(Copy(*regression, 0, Split::kTrain)[1].target, 1.5F);
}

TEST_F(Csv, LeavesOutAsManyUnreadableRowsAsItsOwnerAllowsAndCountsThem) {
  const std::string text =
      "who,x,kind\nann,1,cat\nbob,two,dog\n,3,cat\nann,4\nbob,5,\ncyd,inf,owl\nbob,7,cat\n";
  DataOptions options = With(text, {.client_column = "who"});
  options.unreadable_rows = 0.8;
  const auto dataset = OpenDataset(options, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_THAT(info.notes, ElementsAre(AllOf(HasSubstr("5 of 7 rows"), HasSubstr("a.csv line 3"),
                                            HasSubstr("\"two\" is not a finite number"))));
  // Nothing of such a row stays: neither its client, nor its label, nor a cell.
  EXPECT_THAT(info.class_names, ElementsAre("cat"));
  EXPECT_EQ(info.clients, 2u);
  EXPECT_EQ((*dataset)->ClientName(ClientId(1)), "bob");
  EXPECT_THAT(Floats(Copy(**dataset, 0, Split::kTrain)[0]), ElementsAre(1));
  EXPECT_THAT(Floats(Copy(**dataset, 1, Split::kTrain)[0]), ElementsAre(7));

  options.unreadable_rows = 0.7;
  const std::string refused(OpenDataset(options, {}).status().message());
  EXPECT_THAT(refused, AllOf(HasSubstr("a.csv line 3"), HasSubstr("5 of 7 rows"),
                             HasSubstr("data.unreadable_rows")));
  options.unreadable_rows = 0;
  EXPECT_THAT(std::string(OpenDataset(options, {}).status().message()),
              AllOf(HasSubstr("a.csv line 3"), testing::Not(HasSubstr("of 7 rows"))));
}

TEST_F(Csv, WhatTheFirstLineDecidesIsNeverLeftOut) {
  DataOptions options = With("\"x,kind\n1,2\n");
  options.unreadable_rows = 0.9;
  EXPECT_THAT(std::string(OpenDataset(options, {.clients = 1}).status().message()),
              HasSubstr("a.csv line 1"));
}

TEST_F(Csv, ColumnsThatFloat32HardlyTellsApartAreNoted) {
  std::string text = "t,near,far,same,user,ms,y\n";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&text, 1700000000 + 10 * i, ",", 10 * i, ",", 1700000000 + 10000 * i,
                    ",1.7e12,u,", 1700000000000 + 1000 * i, ",", i % 2, "\n");
  }
  DataOptions options = With(text, {.client_column = "user", .drop_columns = {"near"}});
  EXPECT_THAT(Whole(options)->info().notes,
              ElementsAre(AllOf(HasSubstr("column \"t\" has numbers from 1700000000 to 1700000590"),
                                HasSubstr("steps of 128 there: subtract")),
                          HasSubstr("column \"ms\"")));
  // Rows for tests are not looked at.
  options.test_path = options.path;
  options.path =
      folder_.Write("train.csv", "t,near,far,same,user,ms,y\n1,2,3,4,u,5,0\n6,7,8,9,u,1,1\n");
  EXPECT_THAT(Whole(options)->info().notes, IsEmpty());
}

TEST_F(Csv, WordsAreClassesInSortedOrder) {
  const auto dataset = Whole(With("\xEF\xBB\xBFx,pet\n1,dog\n2,cat\n3,dog\n"));
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->info().classes, 2);
  EXPECT_THAT(dataset->info().class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(dataset->info().feature_names, ElementsAre("x"));
  const std::vector<RowCopy> rows = Copy(*dataset, 0, Split::kTrain);
  EXPECT_EQ(rows[0].label, 1);
  EXPECT_EQ(rows[1].label, 0);
  EXPECT_EQ(rows[2].label, 1);
  EXPECT_THAT(Whole(With("x,y\n1,0\n2,1\n"))->info().class_names, IsEmpty());  // just numbers
}

TEST_F(Csv, ClassNamesNumberTheWordsAlsoWhereOneIsMissing) {
  DataOptions options = With("x,pet\n1,dog\n2,bird\n");
  options.class_names = {"bird", "cat", "dog"};
  const auto dataset = Whole(options);
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->info().classes, 3);
  EXPECT_THAT(dataset->info().class_names, ElementsAre("bird", "cat", "dog"));
  EXPECT_EQ(Copy(*dataset, 0, Split::kTrain)[0].label, 2);
  EXPECT_EQ(Copy(*dataset, 0, Split::kTrain)[1].label, 0);

  options.class_names = {"dog", "bird"};  // another order makes other data of it
  const auto turned = Whole(options);
  EXPECT_EQ(Copy(*turned, 0, Split::kTrain)[0].label, 0);
  EXPECT_NE(turned->info().digest, dataset->info().digest);

  options.class_names = {"Vogel", "Hund"};  // other words for bird and dog
  EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[0].label, 1);

  options.class_names = {"bird", "cat"};
  EXPECT_THAT(std::string(OpenDataset(options, {.clients = 1}).status().message()),
              AllOf(HasSubstr("\"dog\""), HasSubstr("data.class_names")));
}

TEST_F(Csv, WordsOfSomeClassesAreNotNumberedBySight) {
  DataOptions options = With("x,pet\n1,dog\n2,bird\n");
  options.classes = 3;  // a cat is missing here, or an owl: is a dog 1 or 2?
  EXPECT_THAT(std::string(OpenDataset(options, {.clients = 1}).status().message()),
              AllOf(HasSubstr("a.csv"), HasSubstr("bird, dog"), HasSubstr("data.class_names")));
  options.class_names = {"Vogel", "Hund", "Katze"};
  EXPECT_THAT(std::string(OpenDataset(options, {.clients = 1}).status().message()),
              HasSubstr("data.class_names"));
  options.class_names = {"bird", "cat", "dog"};
  EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[0].label, 2);
  options.class_names.clear();
  options.classes = 2;  // all are here
  EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[0].label, 1);
}

TEST_F(Csv, NumbersBelowDataClassesAreClassesAlsoWhereOneIsMissing) {
  DataOptions options = With("x,y\n1,0\n2,3\n");
  EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[1].label, 1) << "two classes";
  options.classes = 4;
  EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[1].label, 3);
  options.classes = 3;
  EXPECT_THAT(std::string(OpenDataset(options, {.clients = 1}).status().message()),
              AllOf(HasSubstr("data.classes is 3"), HasSubstr("which classes are missing")));
  options = With("x,y\n1,1\n2,1\n");
  options.classes = 2;
  EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[1].label, 1) << "of 0 and 1, or of -1 and 1";
}

TEST_F(Csv, TheClientColumnNamesTheNaturalClients) {
  const std::string text = "who,x,y\nzoe,1,a\nann,2,b\nzoe,3,b\n\"ann\",4,a\nbob,5,a\n";
  for (const char* column : {"who", "0"}) {
    const auto dataset = OpenDataset(With(text, {.client_column = column}), {});
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->info().clients, 3u);
    EXPECT_EQ((*dataset)->ClientName(ClientId(0)), "zoe");  // in the order of their first rows
    EXPECT_EQ((*dataset)->ClientName(ClientId(1)), "ann");
    EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(1));
    const std::vector<RowCopy> zoe = Copy(**dataset, 0, Split::kTrain);
    ASSERT_EQ(zoe.size(), 2u);
    EXPECT_THAT(Floats(zoe[1]), ElementsAre(3));
    EXPECT_EQ(zoe[1].label, 1);
    EXPECT_EQ((*dataset)->Examples(ClientId(2), Split::kTrain), 1u);
  }
  // Another scheme divides the same rows and ignores the column.
  const auto divided =
      OpenDataset(With(text, {.client_column = "who"}), {.scheme = "iid", .clients = 5});
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_EQ((*divided)->info().clients, 5u);
}

TEST_F(Csv, ASecondFileHoldsTheClientsOwnTestRows) {
  DataOptions options = With("user,x,y\nann,1,0\nbob,2,1\n", {.client_column = "user"});
  options.test_path = folder_.Write("test.csv", "user,x,y\nbob,7,0\ncid,8,1\n");
  const auto dataset = OpenDataset(options, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->info().clients, 3u);  // one of them never trains
  EXPECT_EQ((*dataset)->Examples(ClientId(2), Split::kTrain), 0u);
  EXPECT_EQ((*dataset)->Examples(ClientId(2), Split::kTest), 1u);
  EXPECT_THAT(Floats(Copy(**dataset, 1, Split::kTest)[0]), ElementsAre(7));
  EXPECT_EQ((*dataset)->CentralTest().size(), 2u);

  options.test_path = folder_.Write("turned.csv", "user,y,x\nbob,0,7\n");
  EXPECT_THAT(std::string(OpenDataset(options, {}).status().message()),
              AllOf(HasSubstr("turned.csv line 1"), HasSubstr("user, y, x")));
}

TEST_F(Csv, AClientColumnNeverBecomesAFeatureUnnoticed) {
  for (const char* name : {"user", "User ID", "client_id", "deviceId", "subject"}) {
    EXPECT_THAT(Refusal(std::string(name) + ",x,y\n1,2,0\n2,3,1\n"),
                AllOf(HasSubstr("data.client_column"), HasSubstr(name)));
  }
  const auto feature = Whole(With("user,x,y\n1,2,0\n2,3,1\n", {.client_column = kNoColumn}));
  ASSERT_NE(feature, nullptr);
  EXPECT_THAT(feature->info().feature_names, ElementsAre("user", "x"));
  // Words where a feature is expected: the column is probably the client.
  EXPECT_THAT(Refusal("name,x,y\nann,2,0\n"),
              AllOf(HasSubstr("column \"name\": \"ann\""), HasSubstr("data.client_column")));
  // A column that another program wrote to number its rows.
  EXPECT_THAT(Refusal(",x,y\n0,2,0\n"), HasSubstr("data.drop_columns = [\"0\"]"));
}

TEST_F(Csv, DroppedColumnsAreNeitherFeatureNorChecked) {
  const auto dataset =
      Whole(With("id,x,when,y\nr1,2,Mon,0\nr2,3,,1\n", {.drop_columns = {"when", "0"}}));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->info().feature_names, ElementsAre("x"));
  EXPECT_THAT(Floats(Copy(*dataset, 0, Split::kTrain)[1]), ElementsAre(3));
}

TEST_F(Csv, CellsInQuotationMarksMayHoldTheSeparator) {
  const auto dataset =
      OpenDataset(With("who,x,y\n\"Roe, Jane\",1,\"a \"\"b\"\"\"\n\"Roe, Jane\", 2 ,c\n",
                       {.client_column = "who"}),
                  {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->ClientName(ClientId(0)), "Roe, Jane");
  EXPECT_THAT((*dataset)->info().class_names, ElementsAre("a \"b\"", "c"));
  EXPECT_THAT(Refusal("a,b\n\"1,2\n"), HasSubstr("line 2: cell 0 opens a quotation mark"));
  EXPECT_THAT(Refusal("a,b\n\"1\"2,2\n"), HasSubstr("line 2: cell 0 goes on"));
}

TEST_F(Csv, TabsSeparateEmptyCells) {
  EXPECT_THAT(Refusal("x\tz\ty\n1\t\t0\n"), HasSubstr("line 2: column \"z\": \"\""));
  EXPECT_EQ(Whole(With("x\ty\n1\t0\n 2\t\"1\"\n"))->info().classes, 2);
}

TEST_F(Csv, TargetsThatFloat32HardlyTellsApartAreNoted) {
  const auto notes = [&](const char* name, const auto& target, const char* labels = "auto") {
    return Whole(With(Table(absl::StrCat("x,", name),
                            [&](int i) { return absl::StrCat(i, ",", target(i)); }),
                      {.labels = labels}))
        ->info()
        .notes;
  };
  const auto near = [](int i) { return absl::StrCat(1700000000 + i, ".5"); };
  EXPECT_THAT(notes("when", near),
              ElementsAre(AllOf(HasSubstr("column \"when\" has numbers from 1700000000.5"),
                                HasSubstr("steps of 128"))));
  EXPECT_THAT(notes("when", [](int i) { return absl::StrCat(i, ".5"); }), IsEmpty());
  EXPECT_THAT(notes("class", [](int i) { return absl::StrCat(1700000000 + i); }), IsEmpty());
  const auto large = [](int i) { return absl::StrCat(9007199254740992 + int64_t{i % 2}); };
  EXPECT_THAT(notes("id", large, "numbers"),
              ElementsAre(AllOf(HasSubstr("column \"id\""), HasSubstr("2^53"))));
  const auto larger = [](int i) { return absl::StrCat(9007199254740992 + int64_t{i}); };
  EXPECT_THAT(notes("id", larger, "numbers"),
              ElementsAre(HasSubstr("column \"id\" has numbers from")));
  // Rows for tests are not looked at.
  DataOptions options = With("x,when\n1,0.5\n2,1.5\n");
  options.test_path =
      folder_.Write("t.csv", Table("x,when", [&](int i) { return "1," + near(i); }));
  EXPECT_THAT(Whole(options)->info().notes, IsEmpty());
}

TEST_F(Csv, RefusesDamageByLineAndColumn) {
  EXPECT_THAT(Refusal("a,b\n1,2\n1\n"), HasSubstr("line 3: has 1 cells, the first line has 2"));
  EXPECT_THAT(Refusal("1,2\nnan,2\n"), HasSubstr("line 2: column 0: \"nan\""));
  EXPECT_THAT(Refusal("age,b\n1,2\nold,2\n"), HasSubstr("line 3: column \"age\": \"old\""));
  EXPECT_THAT(Refusal("1,2\n1,\n"), HasSubstr("column 1: \"\" is no label"));
  EXPECT_THAT(Refusal("x,y\n1,cat\n1,NAN\n"), HasSubstr("column \"y\": \"NAN\""));
  EXPECT_THAT(Refusal("x,y\n1,cat\n1,3\n"), HasSubstr("\"3\" is a number"));
  EXPECT_THAT(Refusal("x,y\n1,3\n1,cat\n"), HasSubstr("\"cat\" is a word"));
  EXPECT_THAT(Refusal("who,x,y\n,1,0\n", {.client_column = "who"}),
              HasSubstr("line 2: column \"who\" names no client"));
  EXPECT_THAT(Refusal("a,b\n"), HasSubstr("no examples"));
  EXPECT_THAT(Refusal("1\n2\n"), HasSubstr("at least one feature"));
}

TEST_F(Csv, RefusesMissingColumnsAndColumnsNamedTwice) {
  EXPECT_THAT(Refusal("a,b\n1,2\n", {.label_column = "c"}),
              AllOf(HasSubstr("data.label_column \"c\""), HasSubstr("(a, b)")));
  EXPECT_THAT(Refusal("1,2\n", {.client_column = "c"}), HasSubstr("has no header"));
  EXPECT_THAT(Refusal("a,b,c\n1,2,3\n", {.label_column = "a", .client_column = "0"}),
              HasSubstr("data.label_column names column \"a\""));
  EXPECT_THAT(Refusal("a,a,c\n1,2,3\n", {.label_column = "a"}), HasSubstr("two columns"));
  EXPECT_THAT(Refusal("x,y\n1,a\n2,b\n3,c\n", {.classes = 2}), HasSubstr("data.classes is 2"));
}

TEST_F(Csv, WordsThatAreNotUtf8AreRefusedWithTheLineAndWhatToDo) {
  const auto refused = [&](const std::string& text, const std::string& line,
                           DataOptions options = {}) {
    EXPECT_THAT(Refusal(text, std::move(options)),
                AllOf(HasSubstr("a.csv line " + line), HasSubstr("UTF-8"),
                      HasSubstr("iconv -f LATIN1 -t UTF-8")))
        << text;
  };
  refused("a,y\n1,no\n2,\xE9t\xE9\n", "3");                                   // a class
  refused("who,a,y\nann,1,0\nJos\xE9,2,1\n", "3", {.client_column = "who"});  // a client
  refused("\xE9tat,y\n1,0\n", "1");                                           // a feature
  // A row that cannot be read may be left out, like any other.
  DataOptions options = With("a,y\n1,no\n2,\xE9t\xE9\n3,no\n");
  options.unreadable_rows = 0.5;
  const auto left_out = OpenDataset(options, {.clients = 1});
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_THAT((*left_out)->info().notes, ElementsAre(HasSubstr("1 of 3 rows")));
  // Columns that are not used do not count, and UTF-8 does.
  const auto dropped = Whole(
      With("a,t\xEBxt,y\n1,caf\xE9,\xC3\xA9t\xC3\xA9\n2,th\xE9,no\n", {.drop_columns = {"1"}}));
  ASSERT_NE(dropped, nullptr);
  EXPECT_THAT(dropped->info().class_names, ElementsAre("no", "\xC3\xA9t\xC3\xA9"));
}

TEST_F(Csv, OtherEncodingsAndZeroBytesAreNamed) {
  std::string wide;
  for (const char c : std::string("x,y\n1,0\n")) wide += std::string(1, c) + '\0';
  EXPECT_THAT(Refusal(wide), AllOf(HasSubstr("a.csv"), HasSubstr("iconv -f UTF-16LE")));
  EXPECT_THAT(Refusal(std::string("x,y\n1,\0,0\n", 11)), HasSubstr("a.csv line 2"));
}

TEST_F(Csv, LinesEndInThreeWaysAndTheLastNeedNotEnd) {
  const auto expected = CopyAll(*Whole(With("x,y\n1,a\n2,b\n3,a\n")));
  for (const char* text :
       {"x,y\r1,a\r2,b\r3,a\r", "x,y\r\n1,a\r\n2,b\r\n3,a\r\n", "x,y\r\n1,a\n2,b\r3,a",
        "x,y\r1,a\r2,b\r3,a", "x,y\n\r\n1,a\n\r2,b\r\r3,a"}) {
    const auto dataset = Whole(With(text));
    ASSERT_NE(dataset, nullptr) << text;
    EXPECT_EQ(CopyAll(*dataset), expected) << text;
  }
}

TEST_F(Csv, ACellInQuotationMarksMayHoldLineBreaks) {
  const auto dataset = Whole(
      With("x,\"the\nclass\"\n1,\"two\r\nlines, \"\"quoted\"\"\"\r\n2,\"\none; more\"\n3,plain\n"));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->info().class_names,
              ElementsAre("\none; more", "plain", "two\r\nlines, \"quoted\""));
  // A message names the line on which the row begins, and the rows behind a mark that is never
  // closed are read.
  EXPECT_THAT(Refusal("x,y\n1,\"a\nb\"\ntwo,c\n"), HasSubstr("a.csv line 4"));
  DataOptions options = With("x,y\n1,a\n2,\"b\n3,a\n4,b\n");
  options.unreadable_rows = 0.25;
  const auto rest = OpenDataset(options, {.clients = 1});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ((*rest)->info().train_examples, 3u);
  // So are those behind a mark that a later row's closes.
  options = With("x,y\n1,a\n2,\"b\n3,a\n4,\"c\"\n5,b\n");
  options.unreadable_rows = 0.2;
  EXPECT_EQ((*OpenDataset(options, {.clients = 1}))->info().train_examples, 4u);
}

TEST_F(Csv, TheSeparatorIsFoundOutsideOfQuotationMarks) {
  const auto dataset = Whole(With("\"size, cm\";\"kind, of\"\n1;\"a,b\"\n2;c\n"));
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->info().feature_names, ElementsAre("size, cm"));
  EXPECT_THAT(dataset->info().class_names, ElementsAre("a,b", "c"));
  // Where the first line alone does not say it, the second one does.
  EXPECT_THAT(Whole(With("size (a, b);kind\n1;a\n2;c\n"))->info().feature_names,
              ElementsAre("size (a, b)"));
}

TEST_F(Csv, AKeySetsTheSeparator) {
  for (const auto& [separator, text] : {std::pair("|", "x|y\n1|a,b\n2|c\n"),
                                        {"tab", "x\ty\n1\ta,b\n2\tc\n"},
                                        {";", "x;y\n1;a,b\n2;c\n"}}) {
    const auto dataset = Whole(With(text, {.separator = separator}));
    ASSERT_NE(dataset, nullptr) << separator;
    EXPECT_THAT(dataset->info().class_names, ElementsAre("a,b", "c")) << separator;
  }
  EXPECT_THAT(Refusal("x|y\n1|2\n"), HasSubstr("data.separator"));
  EXPECT_NE(Whole(With("1,2,3\n"))->info().digest.Hex(),
            Whole(With("1,2,3\n", {.separator = ","}))->info().digest.Hex());
}

TEST_F(Csv, WellKnownFilesThatAreNotReadAreNamed) {
  EXPECT_THAT(
      Refusal("\"0\",\"1467810369\",\"Mon Apr 06 22:19:45 PDT 2009\",\"NO_QUERY\",\"_TheSpecialOne_"
              "\",\"@switchfoot - Awww, caf\xE9\"\n"),
      AllOf(HasSubstr("Sentiment140"), HasSubstr("numpy.savez")));
  EXPECT_THAT(Refusal("202599\n5_o_Clock_Shadow Arched_Eyebrows Young\n000001.jpg -1  1 1\n"),
              AllOf(HasSubstr("CelebA"), HasSubstr("numpy.savez")));
  EXPECT_THAT(Refusal("image_id,5_o_Clock_Shadow,Young\n000001.jpg,-1,1\n"),
              AllOf(HasSubstr("picture"), HasSubstr("data.drop_columns")));
  // Without the names of the pictures it is a table like any other.
  const auto table =
      Whole(With("image_id,5_o_Clock_Shadow,Young\n000001.jpg,-1,1\n000002.jpg,1,-1\n",
                 {.drop_columns = {"image_id"}}));
  ASSERT_NE(table, nullptr);
  EXPECT_THAT(table->info().class_names, ElementsAre("-1", "1"));
}

TEST_F(Csv, WholeNumbersAreTargetsWhereLabelsAreNumbers) {
  const std::string text = "age,price\n30,104\n41,250\n29,104\n";
  EXPECT_EQ(Whole(With(text))->info().classes, 2);
  const auto regression = Whole(With(text, {.labels = "numbers"}));
  EXPECT_EQ(regression->info().classes, 0);
  EXPECT_TRUE(regression->info().class_names.empty());
  EXPECT_EQ(Copy(*regression, 0, Split::kTrain)[1].target, 250.0F);
  EXPECT_NE(Whole(With(text))->info().digest, regression->info().digest);
  EXPECT_THAT(Refusal("age,price\n30,dear\n", {.labels = "numbers"}),
              AllOf(HasSubstr("\"dear\" is a word"), HasSubstr("data.labels")));
}

TEST_F(Csv, TheDigestFollowsTheChoiceOfColumns) {
  const std::string text = "a,b,c\n1,0,1\n2,1,0\n";
  const auto digest = [&](DataOptions options) {
    return Whole(With(text, std::move(options)))->info().digest;
  };
  EXPECT_NE(digest({}), digest({.label_column = "b"}));
  EXPECT_NE(digest({}), digest({.drop_columns = {"a"}}));
  EXPECT_EQ(digest({.label_column = "b"}), digest({.label_column = "b"}));
}

TEST_F(Csv, NamesSurviveAPreparedFile) {
  const auto dataset =
      OpenDataset(With("who,x,y\nann,1,dog\nbob,2,cat\n", {.client_column = "who"}), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::string path = folder_.path() + "/p.safetensors";
  ASSERT_TRUE(WritePrepared(**dataset, path).ok());
  const auto prepared = OpenDataset({.source = "prepared", .path = path}, {});
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ((*prepared)->info().class_names, (*dataset)->info().class_names);
  EXPECT_EQ((*prepared)->info().feature_names, (*dataset)->info().feature_names);
  EXPECT_EQ(CopyAll(**prepared), CopyAll(**dataset));
}

}  // namespace
}  // namespace macaw::data
