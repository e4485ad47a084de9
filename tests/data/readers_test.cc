#include <gmock/gmock.h>

#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// One client with all rows, to look at what was read.
std::unique_ptr<Dataset> OpenWhole(DataOptions options) {
  options.test_fraction = 0;
  absl::StatusOr<std::unique_ptr<Dataset>> dataset =
      OpenDataset(options, {.scheme = "iid", .clients = 1});
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return dataset.ok() ? *std::move(dataset) : nullptr;
}

std::string Refusal(const DataOptions& options) {
  const auto dataset = OpenDataset(options, {.clients = 1});
  EXPECT_FALSE(dataset.ok()) << "opened";
  const std::string message(dataset.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(Idx, ReadsImagesWithTheLabelsBesideThem) {
  const TemporaryFolder folder;
  const std::string images = folder.Write("a-images-idx3-ubyte", IdxImages(7));
  folder.Write("a-labels-idx1-ubyte.gz", Gzip(IdxLabels(7, 3)));
  const auto dataset = OpenWhole({.source = "idx", .path = images});
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->info().input_shape, ElementsAre(1, 2, 3));
  EXPECT_EQ(dataset->info().classes, 3);
  EXPECT_EQ(dataset->info().transform.scale, 1.0 / 255);
  const std::vector<RowCopy> rows = Copy(*dataset, 0, Split::kTrain);
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[4].features, std::string("\4\5\6\7\10\11"));
  EXPECT_EQ(rows[4].label, 1);
}

TEST(Idx, TakesTheSmallFileOfAFolderAsTestSet) {
  const TemporaryFolder folder;
  folder.Write("train-images-idx3-ubyte.gz", Gzip(IdxImages(8)));
  folder.Write("train-labels-idx1-ubyte", IdxLabels(8, 2));
  folder.Write("t10k-images-idx3-ubyte", IdxImages(3));
  folder.Write("t10k-labels-idx1-ubyte", IdxLabels(3, 2));
  const auto dataset = OpenDataset({.source = "idx", .path = folder.path()}, {.clients = 2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples, 8u);
  EXPECT_EQ((*dataset)->CentralTest().size(), 3u);
}

TEST(Idx, SplitsATestSetOffWhenThereIsOneFile) {
  const TemporaryFolder folder;
  folder.Write("t10k-images-idx3-ubyte", IdxImages(30));
  folder.Write("t10k-labels-idx1-ubyte", IdxLabels(30, 2));
  const auto dataset =
      OpenDataset({.source = "idx", .path = folder.path(), .test_fraction = 0.2}, {.clients = 3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples, 24u);
  EXPECT_EQ((*dataset)->info().test_examples, 6u);
}

TEST(Idx, RefusesDamageByNameAndPlace) {
  const TemporaryFolder folder;
  const std::string images = folder.Write("x-images-idx3-ubyte", IdxImages(4));
  EXPECT_THAT(Refusal({.source = "idx", .path = images}), HasSubstr("no labels beside"));
  const std::string labels = folder.Write("x-labels-idx1-ubyte", IdxLabels(3, 2));
  EXPECT_THAT(Refusal({.source = "idx", .path = images}), HasSubstr("4 images"));
  folder.Write("x-labels-idx1-ubyte",
               BigEndian(0x801) + BigEndian(4) + std::string("\0\1\0\310", 4));
  EXPECT_THAT(Refusal({.source = "idx", .path = images}),
              HasSubstr("label 200 of row 3 is out of range"));
  folder.Write("x-labels-idx1-ubyte", IdxLabels(4, 4));
  EXPECT_THAT(Refusal({.source = "idx", .path = images, .classes = 3}),
              HasSubstr("label 3 of row 3"));
  folder.Write("x-images-idx3-ubyte", IdxImages(4).substr(0, 30));
  EXPECT_THAT(Refusal({.source = "idx", .path = images}), HasSubstr("cut short"));
  folder.Write("x-images-idx3-ubyte", IdxLabels(40, 4));
  EXPECT_THAT(Refusal({.source = "idx", .path = images}), HasSubstr("magic number is 0x00000801"));
  folder.Write("x-images-idx3-ubyte", "");
  EXPECT_THAT(Refusal({.source = "idx", .path = images}), HasSubstr("is empty"));
  folder.Write("x-images-idx3-ubyte", Gzip(IdxImages(4)).substr(0, 25));
  EXPECT_THAT(Refusal({.source = "idx", .path = images}), HasSubstr("cut short"));
  EXPECT_THAT(Refusal({.source = "idx", .path = folder.path()}),
              HasSubstr("holds no train-images"));
  EXPECT_THAT(Refusal({.source = "idx", .path = "/no/such/file"}), HasSubstr("/no/such/file"));
}

TEST(Cifar, ReadsRecordsAndRefusesLabelsOutOfRange) {
  const TemporaryFolder folder;
  const auto record = [](char label, char fill) {
    return std::string(1, label) + std::string(3072, fill);
  };
  folder.Write("cifar-10-batches-bin/data_batch_1.bin", record(3, 'a') + record(9, 'b'));
  folder.Write("cifar-10-batches-bin/test_batch.bin", record(0, 'c'));
  const auto dataset = OpenDataset({.source = "cifar10", .path = folder.path()}, {.clients = 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(3, 32, 32));
  EXPECT_EQ((*dataset)->info().classes, 10);
  EXPECT_EQ(Copy(**dataset, 0, Split::kTrain)[1], (RowCopy{std::string(3072, 'b'), 9}));
  EXPECT_EQ(Copy((*dataset)->CentralTest())[0].label, 0);

  const std::string bad = folder.Write("bad.bin", record(1, 'a') + record(10, 'b'));
  EXPECT_THAT(Refusal({.source = "cifar10", .path = bad}),
              HasSubstr("label 10 of row 1 is out of range"));
  EXPECT_THAT(Refusal({.source = "cifar100", .path = bad}), HasSubstr("not a multiple of 3074"));
  const std::string fine = folder.Write("train.bin", std::string("\23") + record(99, 'z'));
  EXPECT_EQ(Copy(*OpenWhole({.source = "cifar100", .path = fine}), 0, Split::kTrain)[0].label, 99);
}

TEST(Libsvm, MakesDenseRowsOfTheLargestIndexAndMapsLabels) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("data", "+1 2:0.5 4:-3 # note\n\n-1 1:7\r\n+1\n");
  const std::string test = folder.Write("test", "-1 5:2\n");
  DataOptions options{.source = "libsvm", .path = path, .test_path = test};
  const auto dataset = OpenWhole(options);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->info().input_shape, ElementsAre(5));
  EXPECT_EQ(dataset->info().classes, 2);
  const std::vector<RowCopy> rows = Copy(*dataset, 0, Split::kTrain);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(Floats(rows[0]), ElementsAre(0, 0.5, 0, -3, 0));
  EXPECT_THAT(Floats(rows[1]), ElementsAre(7, 0, 0, 0, 0));
  EXPECT_EQ(rows[0].label, 1);
  EXPECT_EQ(rows[1].label, 0);
  EXPECT_THAT(Floats(Copy(dataset->CentralTest())[0]), ElementsAre(0, 0, 0, 0, 2));
}

TEST(Libsvm, TakesFractionsAsRegressionTargets) {
  const TemporaryFolder folder;
  const auto dataset =
      OpenWhole({.source = "libsvm", .path = folder.Write("r", "0.25 1:1\n3 1:2\n")});
  EXPECT_EQ(dataset->info().classes, 0);
  EXPECT_EQ(Copy(*dataset, 0, Split::kTrain)[0].target, 0.25F);
}

TEST(Targets, ThatFloat32HardlyTellsApartAreNoted) {
  const TemporaryFolder folder;
  const auto noted = [](const DataOptions& options) {
    const auto dataset = OpenDataset(options, {.clients = 1});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_THAT(
        (*dataset)->info().notes,
        testing::Contains(HasSubstr("label has numbers from 1700000000.5 to 1700000001.5")));
  };
  noted({.source = "libsvm", .path = folder.Write("r", "1700000000.5 1:1\n1700000001.5 1:2\n")});
  noted({.source = "leaf",
         .path = folder.Write("a.json", R"({"users": ["u"], "num_samples": [2], "user_data": {
             "u": {"x": [[1], [2]], "y": [1700000000.5, 1700000001.5]}}})"),
         .test_fraction = 0});
}

TEST(Libsvm, LeavesOutUnreadableRowsUpToTheShareThatItsOwnerAllows) {
  const TemporaryFolder folder;
  DataOptions options{.source = "libsvm",
                      .path = folder.Write("l.txt", "1 1:0.5\n0 2:1 1:9 3:4\n0 2:1\nx 1:1\n"),
                      .test_fraction = 0,
                      .unreadable_rows = 0.5};
  const auto dataset = OpenDataset(options, {.clients = 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().notes,
              testing::ElementsAre(testing::AllOf(testing::HasSubstr("2 of 4 rows"),
                                                  testing::HasSubstr("l.txt line 2"))));
  const std::vector<RowCopy> rows = Copy(**dataset, 0, Split::kTrain);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(Floats(rows[0]), testing::ElementsAre(0.5F, 0));
  EXPECT_THAT(Floats(rows[1]), testing::ElementsAre(0, 1));
  options.unreadable_rows = 0.4;
  EXPECT_FALSE(OpenDataset(options, {.clients = 1}).ok());
}

TEST(Libsvm, RefusesDamageByLine) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    return Refusal({.source = "libsvm", .path = folder.Write("bad", text)});
  };
  EXPECT_THAT(refusal("1 1:1\n1 0:1\n"), HasSubstr("line 2: index 0"));
  EXPECT_THAT(refusal("1 1:1 1:2\n"), HasSubstr("must ascend"));
  EXPECT_THAT(refusal("1 1:nan\n"), HasSubstr("line 1: value \"nan\" of index 1"));
  EXPECT_THAT(refusal("1 1:1e60\n"), HasSubstr("not a finite number"));
  EXPECT_THAT(refusal("x 1:1\n"), HasSubstr("label \"x\""));
  EXPECT_THAT(refusal("1 7\n"), HasSubstr("\"7\" is not index:value"));
  EXPECT_THAT(refusal("1 4294967295:1\n"), HasSubstr("is the index 4294967295 right"));
  EXPECT_THAT(refusal("# nothing\n"), HasSubstr("holds no examples"));
}

TEST(Libsvm, LinesEndInThreeWaysAndAMarkOfUtf8IsNoNumber) {
  const TemporaryFolder folder;
  const auto rows = [&](const std::string& text) {
    const auto dataset =
        OpenDataset({.source = "libsvm", .path = folder.Write("l.txt", text), .test_fraction = 0},
                    {.clients = 1});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? CopyAll(**dataset) : std::vector<std::vector<RowCopy>>();
  };
  const auto expected = rows("1 1:1\n-1 2:1\n");
  EXPECT_EQ(rows("1 1:1\r-1 2:1"), expected);
  EXPECT_EQ(rows("1 1:1\r\n# caf\xE9\r-1 2:1\n"), expected);
  EXPECT_EQ(rows("\xEF\xBB\xBF"
                 "1 1:1\n-1 2:1\n"),
            expected);
  std::string wide;
  for (const char c : std::string("1 1:1\n")) wide += std::string(1, c) + '\0';
  EXPECT_THAT(Refusal({.source = "libsvm", .path = folder.Write("w", wide)}),
              HasSubstr("iconv -f UTF-16LE"));
}

constexpr char kLeafTrain[] =
    R"({"users": ["b", "a"], "num_samples": [1, 2], "user_data": {
        "a": {"x": [[1, 2], [3, 4.5]], "y": [0, 1.0]}, "b": {"y": [2], "x": [[5, 6]]}}})";
constexpr char kLeafTest[] =
    R"({"users": ["a", "new"], "num_samples": [1, 1], "user_data": {
        "a": {"x": [[7, 8]], "y": [1]}, "new": {"x": [[9, 9]], "y": [0]}}})";

TEST(Leaf, UsersAreTheNaturalClientsWithTheirOwnTestRows) {
  const TemporaryFolder folder;
  folder.Write("train/all_data.json", kLeafTrain);
  folder.Write("test/all_data.json", kLeafTest);
  const auto opened = OpenDataset({.source = "leaf", .path = folder.path()}, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& dataset = **opened;
  ASSERT_EQ(dataset.info().clients, 3u);
  EXPECT_EQ(dataset.info().classes, 3);
  EXPECT_EQ(dataset.ClientName(ClientId(0)), "b");
  EXPECT_EQ(dataset.ClientName(ClientId(2)), "new");
  const std::vector<RowCopy> rows = Copy(dataset, 1, Split::kTrain);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(Floats(rows[1]), ElementsAre(3, 4.5));
  EXPECT_EQ(rows[1].label, 1);
  EXPECT_THAT(Floats(Copy(dataset, 1, Split::kTest)[0]), ElementsAre(7, 8));
  EXPECT_EQ(dataset.Examples(ClientId(0), Split::kTest), 0u);
  EXPECT_TRUE(Copy(dataset, 0, Split::kTest).empty());
  EXPECT_EQ(dataset.Examples(ClientId(2), Split::kTrain), 0u);
  EXPECT_EQ(dataset.CentralTest().size(), 2u);
  EXPECT_NEAR(dataset.info().mean_classes_per_client, 1.0, 1e-12);  // 1, 2 and 0 classes
}

TEST(Leaf, RowsAreImagesWhereTheInputShapeSaysSo) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("a.json", kLeafTrain);
  const auto opened = OpenDataset(
      {.source = "leaf", .path = path, .test_fraction = 0, .input_shape = {1, 2, 1}}, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT((*opened)->info().input_shape, ElementsAre(1, 2, 1));
  EXPECT_THAT(Floats(Copy(**opened, 1, Split::kTrain)[1]), ElementsAre(3, 4.5));
  const auto refused = OpenDataset({.source = "leaf", .path = path, .input_shape = {1, 2, 2}}, {});
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("data.input_shape is [1, 2, 2]"), HasSubstr("is [2]"),
                    HasSubstr("a.json"), HasSubstr("4 elements against 2")));
}

TEST(Leaf, TakesTheTestSetFromTestPathToo) {
  const TemporaryFolder folder;
  const std::string train = folder.Write("a.json", kLeafTrain),
                    test = folder.Write("b.json", kLeafTest);
  const auto dataset = OpenDataset({.source = "leaf", .path = train, .test_path = test}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->CentralTest().size(), 2u);
}

TEST(Leaf, ReadsTextAsTokensWithTheirLengths) {
  const TemporaryFolder folder;
  const std::string train = folder.Write("a.json", R"({"users": ["ROMEO", "JULIET"],
      "user_data": {"JULIET": {"x": ["ab", "~"], "y": ["c", "\n"]},
                    "ROMEO": {"x": ["z\n \u00e9"], "y": ["!"]}}})");
  const std::string test = folder.Write("b.json", R"({"users": ["JULIET"],
      "user_data": {"JULIET": {"x": ["hello"], "y": ["?"]}}})");
  const auto opened = OpenDataset({.source = "leaf", .path = train, .test_path = test}, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& dataset = **opened;
  EXPECT_EQ(dataset.info().feature_type, FeatureType::kI32);
  EXPECT_THAT(dataset.info().input_shape, ElementsAre(5));  // the longest row of both files
  EXPECT_EQ(dataset.info().classes, 97);
  EXPECT_EQ(dataset.info().train_examples, 3u);
  EXPECT_EQ(dataset.info().train_tokens, 2u + 1u + 5u);
  const auto tokens = [&](ClientId client, Split split, uint64_t i) {
    const Rows rows = *dataset.Client(client, split);
    const auto* row = reinterpret_cast<const int32_t*>(rows.block.features) + 5 * rows.at(i);
    return std::vector<int32_t>(row, row + rows.block.lengths[rows.at(i)]);
  };
  EXPECT_EQ(dataset.ClientName(ClientId(0)), "ROMEO");
  EXPECT_THAT(tokens(ClientId(0), Split::kTrain, 0),
              ElementsAre(2 + 'z' - ' ', 1, 2, 0, 0));  // é is two bytes of UTF-8
  EXPECT_THAT(tokens(ClientId(1), Split::kTrain, 0), ElementsAre(2 + 'a' - ' ', 2 + 'b' - ' '));
  EXPECT_THAT(tokens(ClientId(1), Split::kTrain, 1), ElementsAre(96));
  EXPECT_THAT(tokens(ClientId(1), Split::kTest, 0).size(), 5u);
  const Rows juliet = *dataset.Client(ClientId(1), Split::kTrain);
  EXPECT_EQ(juliet.block.classes[juliet.at(0)], 2 + 'c' - ' ');
  EXPECT_EQ(juliet.block.classes[juliet.at(1)], 1);
  EXPECT_EQ(TokensOf(juliet), 3u);
}

// The fuzzer found that a newline in a user's name, or in a cell, broke the message into two lines.
TEST(Leaf, ARefusalIsOneLineWhateverTheUserIsNamed) {
  const TemporaryFolder folder;
  for (const std::string data :
       {R"({"c": {"x": [[1]], "y": [0]}})", R"({"a\nü": {"x": [["q\nr"]], "y": [0]}})",
        R"({"a\nü": {"x": [null], "y": [0]}})", R"({"a\nü": {"x": [[1]], "y": []}})"}) {
    const std::string path =
        folder.Write("u.json", R"({"users": ["a\nü"], "user_data": )" + data + "}");
    const absl::Status status = OpenDataset({.source = "leaf", .path = path}, {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("user \"a\\nü\"")) << data;
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("\n"))) << data;
  }
}

TEST(Leaf, OtherEncodingsAreNamedAndAMarkOfUtf8IsRead) {
  const TemporaryFolder folder;
  const std::string text = R"({"users": ["u"], "user_data": {"u": {"x": [[1]], "y": [0]}}})";
  std::string latin = text, wide = "\xFF\xFE";
  latin.replace(latin.find("[\"u"), 3, "[\"\xE9");
  for (const char c : text) wide += std::string(1, c) + '\0';
  EXPECT_THAT(Refusal({.source = "leaf", .path = folder.Write("l.json", latin)}),
              AllOf(HasSubstr("l.json line 1"), HasSubstr("iconv -f LATIN1")));
  EXPECT_THAT(Refusal({.source = "leaf", .path = folder.Write("w.json", wide)}),
              HasSubstr("iconv -f UTF-16LE"));
  EXPECT_TRUE(
      OpenDataset({.source = "leaf", .path = folder.Write("m.json", "\xEF\xBB\xBF" + text)}, {})
          .ok());
}

TEST(Leaf, SaysWhatSent140AndCelebaAreAndWhatToDo) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& data) {
    return Refusal({.source = "leaf",
                    .path = folder.Write("l.json", R"({"users": ["u"], "num_samples": [1],
                                                      "user_data": {"u": )" +
                                                       data + "}}")});
  };
  EXPECT_THAT(
      refusal(R"({"x": [["1467810369", "Mon Apr 06", "NO_QUERY", "u", "Awww"]], "y": [0]})"),
      AllOf(HasSubstr("Sent140"), HasSubstr("numpy.savez")));
  EXPECT_THAT(refusal(R"({"x": ["000001.jpg"], "y": [1]})"),
              AllOf(HasSubstr("CelebA"), HasSubstr("000001.jpg"), HasSubstr("numpy.savez")));
}

TEST(Leaf, RefusesDamageByUserAndRow) {
  const TemporaryFolder folder;
  EXPECT_THAT(Refusal({.source = "leaf",
                       .path = folder.Write("unnamed.json", R"({"users": [""], "user_data": {
                           "": {"x": [[1]], "y": [0]}}})")}),
              HasSubstr("a user has no name"));
  const auto refusal = [&](const std::string& data, const std::string& counts = "[1]") {
    return Refusal(
        {.source = "leaf",
         .path = folder.Write("bad.json", R"({"users": ["u"], "num_samples": )" + counts +
                                              R"(, "user_data": {"u": )" + data + "}}")});
  };
  EXPECT_THAT(refusal(R"({"x": [["id", "some text"]], "y": [1]})"),
              HasSubstr("a row of text is one string in \"x\""));
  EXPECT_THAT(refusal(R"({"x": ["some text"], "y": ["er"]})"), HasSubstr("one character behind"));
  EXPECT_THAT(refusal(R"({"x": ["some text"], "y": [1]})"), HasSubstr("rows of text need"));
  EXPECT_THAT(refusal(R"({"x": [[1]], "y": ["e"]})"), HasSubstr("rows of text need"));
  EXPECT_THAT(refusal(R"({"x": ["text", [1, 2, 3, 4]], "y": ["e", "f"]})", "[2]"),
              HasSubstr("some rows of the file are text and some are numbers"));
  EXPECT_THAT(refusal(R"({"x": [[1], "t"], "y": ["e", "f"]})", "[2]"),
              HasSubstr("some rows of the file are text and some are numbers"));
  EXPECT_THAT(refusal(R"({"x": [[1, 2], [3]], "y": [0, 1]})"), HasSubstr("row 1 has 1 features"));
  EXPECT_THAT(refusal(R"({"x": [[1]], "y": [0, 1]})"), HasSubstr("1 rows of \"x\" but 2 of \"y\""));
  EXPECT_THAT(refusal(R"({"x": [[1]], "y": [0]})", "[4]"), HasSubstr("\"num_samples\" says 4"));
  EXPECT_THAT(refusal(R"({"x": [[1e99]], "y": [0]})"), HasSubstr("not finite"));
  for (const char* word : {"NaN", "Infinity", "-Infinity", "None", "nan"}) {
    const std::string rows = absl::StrCat(R"({"x": [[1, )", word, R"(]], "y": [0]})");
    EXPECT_THAT(refusal(rows.c_str()), AllOf(HasSubstr("is not JSON at byte"), HasSubstr("NaN")));
  }
  EXPECT_THAT(refusal(R"({"x": [[1]], "y": [-1]})"), HasSubstr("label -1 of row 0 is negative"));
  EXPECT_THAT(refusal(R"({"x": [[null]], "y": [0]})"), HasSubstr("null"));
  const std::string cut = folder.Write("cut.json", std::string(kLeafTrain).substr(0, 100));
  EXPECT_THAT(Refusal({.source = "leaf", .path = cut}),
              AllOf(HasSubstr("is not JSON at byte"), HasSubstr("cut short")));
  EXPECT_THAT(Refusal({.source = "leaf", .path = folder.Write("n.json", "[1, 2]")}),
              HasSubstr("not a JSON object"));
}

}  // namespace
}  // namespace macaw::data
