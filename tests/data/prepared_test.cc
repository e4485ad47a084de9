#include "data/prepared.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_join.h"
#include "core/buffer.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "data/overlap.h"
#include "data/subset.h"
#include "testing/python.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DataOptions Prepared(const std::string& path) { return {.source = "prepared", .path = path}; }

void ExpectRoundTrip(const Dataset& dataset, const std::string& path) {
  ASSERT_TRUE(WritePrepared(dataset, path).ok());
  const auto again = OpenDataset(Prepared(path), {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CopyAll(dataset), CopyAll(**again));
  const DatasetInfo& a = dataset.info();
  const DatasetInfo& b = (*again)->info();
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.feature_type, b.feature_type);
  EXPECT_EQ(a.input_shape, b.input_shape);
  EXPECT_EQ(a.classes, b.classes);
  EXPECT_EQ(a.transform.scale.value_or(1.0), b.transform.scale.value_or(1.0));
  EXPECT_EQ(a.clients, b.clients);
  EXPECT_EQ(a.train_examples, b.train_examples);
  EXPECT_EQ(a.train_tokens, b.train_tokens);
  EXPECT_EQ(a.test_examples, b.test_examples);
  for (uint64_t c = 0; c < a.clients; ++c) {
    EXPECT_EQ(dataset.ClientName(ClientId(c)), (*again)->ClientName(ClientId(c)));
  }
}

TEST(PreparedFile, RoundTripsPooledSyntheticAndNamedData) {
  const TemporaryFolder folder;
  const std::string images = folder.Write("m-images-idx3-ubyte", IdxImages(90));
  folder.Write("m-labels-idx1-ubyte", IdxLabels(90, 5));
  const auto idx =
      OpenDataset({.source = "idx", .path = images, .val_fraction = 0.2, .heldout_clients = 0.2},
                  {.scheme = "dirichlet-class", .clients = 11});
  ASSERT_TRUE(idx.ok()) << idx.status();
  ExpectRoundTrip(**idx, folder.path() + "/idx.safetensors");

  const auto synthetic = OpenDataset({.source = "synthetic",
                                      .val_fraction = 0.1,
                                      .resident = "false",
                                      .synthetic = {.clients = 9, .max_size = 99}},
                                     {});
  ExpectRoundTrip(**synthetic, folder.path() + "/synthetic.safetensors");

  const std::string csv = folder.Write("r.csv", "1,2,0.5\n3,4,0.25\n5,6,7\n");
  const std::string split = folder.Write("p.json", R"({"zürich": [2], " ": [0], "x": []})");
  const auto named = OpenDataset({.source = "csv", .path = csv}, {.scheme = "file", .path = split});
  ASSERT_TRUE(named.ok()) << named.status();
  ExpectRoundTrip(**named, folder.path() + "/named.safetensors");
}

// Without a central test set, too, as the files of owners and devices are.
TEST(PreparedFile, KeepsTheLengthsOfTexts) {
  const TemporaryFolder folder;
  const std::string texts = folder.Write(
      "texts.json",
      R"({"users": ["ann", "bob"], "num_samples": [2, 1], "user_data": {)"
      R"("ann": {"x": ["to be", "or"], "y": [" ", " "]}, "bob": {"x": ["not"], "y": ["!"]}}})");
  const auto dataset =
      OpenDataset({.source = "leaf", .path = texts, .test_fraction = 0}, {.scheme = "natural"});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_tokens, 10u);
  ExpectRoundTrip(**dataset, folder.path() + "/texts.safetensors");
  const auto bob = SubsetOf(**dataset, {.begin = 1, .end = 2});
  EXPECT_EQ((*bob)->info().train_tokens, 3u);
  ASSERT_TRUE(WritePrepared(**bob, folder.path() + "/bob.safetensors").ok());
  EXPECT_EQ((*OpenDataset(Prepared(folder.path() + "/bob.safetensors"), {}))->info().train_tokens,
            3u);
}

// A table's rows as [positions, width].
TEST(PreparedFile, KeepsTheNamesOfColumnsWhoseRowsHaveAnotherShape) {
  const TemporaryFolder folder;
  const std::string table =
      folder.Write("t.csv", "y,a1,b1,a2,b2,a3,b3\n1,2,3,4,5,6,7\n0,7,6,5,4,3,2\n");
  const auto dataset = OpenDataset(
      {.source = "csv", .path = table, .input_shape = {3, 2}, .label_column = "y"}, {.clients = 2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::string path = folder.path() + "/t.safetensors";
  ExpectRoundTrip(**dataset, path);
  const auto again = OpenDataset(Prepared(path), {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT((*again)->info().input_shape, ElementsAre(3, 2));
  EXPECT_EQ((*again)->info().feature_names, (*dataset)->info().feature_names);
  EXPECT_EQ((*again)->info().feature_names.size(), 6u);
}

// The number of a file's bytes that are in memory.
uint64_t BytesInMemory(const std::string& path) {
  const auto file = MappedFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((file->bytes().size() + page - 1) / page);
  EXPECT_EQ(
      ::mincore(const_cast<std::byte*>(file->bytes().data()), file->bytes().size(), pages.data()),
      0);
  return page * static_cast<uint64_t>(std::ranges::count_if(pages, [](auto p) { return p & 1; }));
}

// qemu's user emulation drops every hint about memory, even one that does not exist; the kernel
// then reads ahead.
bool HintsAreDropped() {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  AlignedBuffer memory(2 * page);
  const auto begin = (reinterpret_cast<uintptr_t>(memory.bytes().data()) + page - 1) / page * page;
  constexpr int kNoSuchHint = 12345;
  return ::madvise(reinterpret_cast<void*>(begin), page, kNoSuchHint) == 0;
}

TEST(PreparedFile, OpensAFileOfGigabytesAtOnceAndServesItInPlace) {
  // A sparse file: 2.4 GB of zeros after the tables, on disk a few pages.
  constexpr uint64_t kClients = 100000, kRowsEach = 24, kPixels = 1000;
  constexpr uint64_t kRows = kClients * kRowsEach;
  std::vector<int64_t> offsets;
  for (uint64_t c = 0; c <= kClients; ++c) offsets.push_back(static_cast<int64_t>(c * kRowsEach));
  const uint64_t table = 8 * offsets.size(), labels = 4 * kRows;
  std::string header = absl::StrCat(
      R"({"train_offsets":{"dtype":"I64","shape":[)", offsets.size(), R"(],"data_offsets":[0,)",
      table, R"(]},"labels":{"dtype":"I32","shape":[)", kRows, R"(],"data_offsets":[)", table, ",",
      table + labels, R"(]},"features":{"dtype":"U8","shape":[)", kRows, ",", kPixels,
      R"(],"data_offsets":[)", table + labels, ",", table + labels + kRows * kPixels, "]}}");
  std::string head(8, '\0');
  const uint64_t header_size = header.size();
  std::memcpy(head.data(), &header_size, 8);
  head += header;
  head.append(reinterpret_cast<const char*>(offsets.data()), table);
  const TemporaryFolder folder;
  const std::string path = folder.Write("huge.safetensors", head);
  std::error_code error;
  std::filesystem::resize_file(path, 8 + header.size() + table + labels + kRows * kPixels, error);
  if (error) GTEST_SKIP() << "cannot make a sparse file here: " << error.message();

  const auto dataset = OpenDataset(Prepared(path), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const uint64_t in_memory = BytesInMemory(path);
  EXPECT_EQ((*dataset)->info().clients, kClients);
  const Rows a = *(*dataset)->Client(ClientId(7), Split::kTrain),
             b = *(*dataset)->Client(ClientId(8), Split::kTrain);
  EXPECT_TRUE(a.index.empty());
  EXPECT_EQ(a.size(), kRowsEach);
  EXPECT_EQ(b.block.features - a.block.features, static_cast<ptrdiff_t>(kRowsEach * kPixels));
  if (HintsAreDropped()) GTEST_SKIP() << "an emulator drops the hint that rows are read singly";
  EXPECT_LT(in_memory, kRows * kPixels / 10) << "opening must not read the rows";
}

// Small valid tensors; each test damages one of them.
class SpoiledFile : public testing::Test {
 protected:
  std::string Refusal() {
    EXPECT_TRUE(WriteSafetensors(path_, tensors_, metadata_).ok());
    const auto dataset = OpenDataset(Prepared(path_), {.clients = 1});
    EXPECT_FALSE(dataset.ok());
    EXPECT_THAT(dataset.status().message(), HasSubstr(path_));
    return std::string(dataset.status().message());
  }
  template <typename T>
  void Set(const std::string& name, const char* dtype, std::vector<uint64_t> shape,
           std::span<const T> values) {
    std::erase_if(tensors_, [&](const TensorToWrite& t) { return t.name == name; });
    tensors_.push_back({name, dtype, std::move(shape), std::as_bytes(values)});
  }
  void SetUp() override {
    Set<float>("features", "F32", {3, 2}, features_);
    Set<int32_t>("labels", "I32", {3}, labels_);
    Set<int64_t>("train_offsets", "I64", {3}, offsets_);
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/spoiled.safetensors";
  std::vector<TensorToWrite> tensors_;
  std::map<std::string, std::string> metadata_;
  const std::vector<float> features_ = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> labels_ = {0, 1, 1}, bad_labels_ = {0, -1, 1};
  const std::vector<int64_t> offsets_ = {0, 1, 3}, falling_ = {0, 2, 1}, beyond_ = {0, 1, 4},
                             negative_ = {-1, 1, 3};
  const std::vector<float> targets_ = {0, NAN, 1};
  const std::vector<int32_t> lengths_ = {1, 2, 3};
};

TEST_F(SpoiledFile, IsRefusedByTensor) {
  Set<int32_t>("labels", "I32", {3}, bad_labels_);
  EXPECT_THAT(Refusal(), HasSubstr("label -1 of row 1"));
  Set<float>("labels", "F32", {3}, targets_);
  EXPECT_THAT(Refusal(), HasSubstr("\"labels\" is not finite at row 1"));
  Set<float>("labels", "F32", {2}, std::span(targets_).first(2));
  EXPECT_THAT(Refusal(), HasSubstr("one label for each of 3 rows"));
  Set<int64_t>("labels", "I64", {3}, offsets_);
  EXPECT_THAT(Refusal(), HasSubstr("expected I32"));
  SetUp();
  for (const auto* bad : {&falling_, &beyond_, &negative_}) {
    Set<int64_t>("train_offsets", "I64", {3}, *bad);
    EXPECT_THAT(Refusal(), HasSubstr("offsets must ascend"));
  }
  SetUp();
  Set<int64_t>("val_offsets", "I64", {2}, std::span(offsets_).first(2));
  EXPECT_THAT(Refusal(), HasSubstr("as long as train_offsets"));
}

// Lengths are in positions, so another shape may have no room for them.
TEST_F(SpoiledFile, IsRefusedWithAShapeThatIsShorterThanItsLengths) {
  const std::vector<float> sequences(18, 0.5f);
  const std::vector<int32_t> lengths = {1, 0, 6};
  Set<float>("features", "F32", {3, 6}, std::span<const float>(sequences));
  Set<int32_t>("lengths", "I32", {3}, std::span<const int32_t>(lengths));
  EXPECT_TRUE(WriteSafetensors(path_, tensors_, metadata_).ok());
  DataOptions options = Prepared(path_);
  options.classes = 2;
  options.input_shape = {6, 1};
  EXPECT_TRUE(OpenDataset(options, {}).ok());
  options.input_shape = {3, 2};
  const absl::Status refused = OpenDataset(options, {}).status();
  EXPECT_THAT(refused.message(), HasSubstr("data.input_shape"));
  EXPECT_THAT(refused.message(), HasSubstr("row 2"));
}

TEST_F(SpoiledFile, IsRefusedByShapeLengthAndMetadata) {
  Set<int32_t>("lengths", "I32", {3}, lengths_);
  EXPECT_THAT(Refusal(), HasSubstr("\"lengths\" is 3 at row 2"));
  tensors_.pop_back();
  metadata_["classes"] = "1";
  EXPECT_THAT(Refusal(), HasSubstr("data.classes is 1"));
  metadata_ = {{"mean", "0.1,x"}};
  EXPECT_THAT(Refusal(), HasSubstr("metadata \"mean\""));
  metadata_.clear();
  Set<float>("features", "F32", {6}, features_);
  EXPECT_THAT(Refusal(), HasSubstr("at least one axis"));
  std::erase_if(tensors_, [](const TensorToWrite& t) { return t.name == "features"; });
  EXPECT_THAT(Refusal(), HasSubstr("no tensor \"features\""));
}

TEST_F(SpoiledFile, SaysThatTestRowsAreTrainingRows) {
  const auto notes = [&] {
    EXPECT_TRUE(WriteSafetensors(path_, tensors_, metadata_).ok());
    const auto dataset = OpenDataset(Prepared(path_), {});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return absl::StrJoin((*dataset)->info().notes, "\n");
  };
  EXPECT_EQ(notes(), "");
  const std::vector<int64_t> central = {1, 3}, first = {0, 1};
  Set<int64_t>("central_test", "I64", {2}, central);
  EXPECT_THAT(notes(), HasSubstr("2 of the 2 rows of central_test are rows of train_offsets"));
  Set<int64_t>("train_offsets", "I64", {2}, first);
  EXPECT_EQ(notes(), "");
  Set<int64_t>("test_offsets", "I64", {2}, first);
  EXPECT_THAT(notes(), HasSubstr("rows of test_offsets"));
}

TEST_F(SpoiledFile, SaysWhatItDoesNotRead) {
  const std::vector<int64_t> central = {1, 2}, first = {0, 1}, last = {2, 3}, none = {0, 0};
  const auto notes = [&](PartitionOptions partition = {}) {
    EXPECT_TRUE(WriteSafetensors(path_, tensors_, metadata_).ok());
    const auto dataset = OpenDataset(Prepared(path_), partition);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return absl::StrJoin((*dataset)->info().notes, "\n");
  };
  Set<int64_t>("central-test", "I64", {2}, central);
  Set<float>("sample_weight", "F32", {3}, std::span(features_).first(3));
  EXPECT_EQ(notes(), "not read: \"central-test\", \"sample_weight\"");
  tensors_.pop_back();
  tensors_.pop_back();
  Set<int64_t>("client_name_offsets", "I64", {3}, offsets_);
  EXPECT_EQ(notes(), "not read: \"client_name_offsets\"");
  tensors_.pop_back();

  Set<int64_t>("train_offsets", "I64", {2}, central);
  EXPECT_EQ(notes(),
            "2 of the 3 rows are in no client's offsets and in no central set and stay unused");
  Set<int64_t>("central_test", "I64", {2}, first);
  EXPECT_THAT(notes(), HasSubstr("1 of the 3 rows"));
  Set<int64_t>("test_offsets", "I64", {2}, last);
  EXPECT_EQ(notes(), "");
  EXPECT_THAT(notes({.scheme = "iid", .clients = 1}),
              HasSubstr("1 of the 3 rows are neither in train_offsets"));
  Set<int64_t>("test_offsets", "I64", {2}, none);
  Set<int64_t>("central_val", "I64", {2}, last);
  EXPECT_EQ(notes(), "");
}

TEST_F(SpoiledFile, IsRefusedWithoutANameForEachClient) {
  const auto named = [&](const std::string& text, const std::vector<int64_t>& offsets) {
    Set<char>("client_names", "U8", {text.size()}, std::span(text.data(), text.size()));
    Set<int64_t>("client_name_offsets", "I64", {3}, offsets);
    return Refusal();
  };
  EXPECT_THAT(named("anna", {0, 0, 4}), HasSubstr("a name for client 0 that is empty"));
  EXPECT_THAT(named("annann", {0, 3, 6}),
              HasSubstr("a name for client 1 that client 0 has, too (\"ann\")"));
  EXPECT_THAT(named("ann\xE9", {0, 3, 4}), HasSubstr("not UTF-8"));
}

TEST_F(SpoiledFile, SaysThatATestFractionHasNoEffect) {
  const std::vector<int64_t> central = {2, 3}, first = {0, 1, 2};
  Set<int64_t>("central_test", "I64", {2}, central);
  Set<int64_t>("train_offsets", "I64", {3}, first);
  ASSERT_TRUE(WriteSafetensors(path_, tensors_, metadata_).ok());
  for (const double fraction : {0.3, 0.0}) {  // 0 asks for nothing
    DataOptions options = Prepared(path_);
    options.test_fraction = fraction;
    const auto dataset = OpenDataset(options, {});
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(
        absl::StrJoin((*dataset)->info().notes, "\n"),
        fraction == 0.3
            ? "the data says itself which rows train and which are tests; data.test_fraction = "
              "0.3 has no effect"
            : "");
  }
}

TEST_F(SpoiledFile, MustNameAllItsClassesOrNone) {
  metadata_["class_names"] = R"(["cat", "dog"])";
  ASSERT_TRUE(WriteSafetensors(path_, tensors_, metadata_).ok());
  EXPECT_THAT((*OpenDataset(Prepared(path_), {}))->info().class_names, ElementsAre("cat", "dog"));
  for (const char* bad :
       {R"(["cat"])", R"(["cat", 7])", "cat, dog", R"({"a": "cat", "b": "dog"})"}) {
    metadata_["class_names"] = bad;
    EXPECT_THAT(Refusal(), HasSubstr("metadata \"class_names\" must be a JSON list of 2 names"));
  }
}

// Equal rows at different places are found by reading them.
TEST(Overlap, CountsTestRowsThatEqualATrainingRow) {
  const TemporaryFolder folder;
  DataOptions options{.source = "csv", .path = folder.Write("a.csv", "1,2,0\n3,4,1\n5,6,0\n")};
  options.test_path = folder.Write("t.csv", "3,4,1\n3,4,0\n1,2,0\n9,9,1\n");
  const auto dataset = OpenDataset(options, {.clients = 2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto overlap = TestRowsInTraining(**dataset);
  ASSERT_TRUE(overlap.ok());
  EXPECT_EQ(overlap->test_rows, 4u);
  EXPECT_EQ(overlap->in_training, 2u);  // the same features with another label do not count
}

TEST_F(SpoiledFile, WithoutOffsetsIsDividedByThePartition) {
  std::erase_if(tensors_, [](const TensorToWrite& t) { return t.name == "train_offsets"; });
  ASSERT_TRUE(WriteSafetensors(path_, tensors_, {}).ok());
  DataOptions options = Prepared(path_);
  options.test_fraction = 0;
  const auto dataset = OpenDataset(options, {.clients = 3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (uint64_t c = 0; c < 3; ++c) EXPECT_EQ((*dataset)->Examples(ClientId(c), Split::kTrain), 1u);
}

TEST_F(SpoiledFile, ThatHasClientsAndNoSplitsOfTheirsIsDividedFurther) {
  ASSERT_TRUE(WriteSafetensors(path_, tensors_, {}).ok());
  DataOptions options = Prepared(path_);
  options.test_fraction = 0;
  options.client_test_fraction = 0.5;
  const auto dataset = OpenDataset(options, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().clients, 2u);
  EXPECT_EQ((*dataset)->Examples(ClientId(0), Split::kTrain), 1u);
  EXPECT_EQ((*dataset)->Examples(ClientId(1), Split::kTrain), 1u);
  EXPECT_EQ((*dataset)->Examples(ClientId(1), Split::kTest), 1u);
  std::vector<RowCopy> second = Copy(**dataset, 1, Split::kTrain);
  second.push_back(Copy(**dataset, 1, Split::kTest)[0]);
  std::ranges::sort(second);
  EXPECT_EQ(Floats(second[0]), (std::vector<float>{3, 4}));
  EXPECT_EQ(Floats(second[1]), (std::vector<float>{5, 6}));
}

TEST_F(SpoiledFile, KeepsItsOwnSplits) {
  Set<int64_t>("test_offsets", "I64", {3}, offsets_);
  ASSERT_TRUE(WriteSafetensors(path_, tensors_, {}).ok());
  DataOptions options = Prepared(path_);
  options.val_fraction = 0.1;
  EXPECT_THAT(OpenDataset(options, {}).status().message(), HasSubstr("holds its own splits"));
}

// The program in the guide writes a file that can be opened.
TEST(PreparedFile, TheGuidesTenLinesOfNumpyWriteOne) {
  if (const std::string why = testing_support::WhyNoPython("numpy"); !why.empty())
    GTEST_SKIP() << why;
  const std::string guide = *ReadFile(std::string(MACAW_SOURCE_DIR) + "/docs/guides/data.md");
  const size_t begin = guide.find("```python\nimport json, struct") + 10,
               end = guide.find("```", begin);
  ASSERT_LT(begin, end);
  const std::string program = guide.substr(begin, end - begin);
  EXPECT_LE(std::count(program.begin(), program.end(), '\n'), 10);
  const TemporaryFolder folder;
  folder.Write("ten.py", program);
  const testing_support::Printed run = testing_support::RunShell(
      absl::StrCat("cd ", folder.path(), " && ", testing_support::Python(), " ten.py"));
  ASSERT_EQ(run.exit, 0) << run.text;
  const auto dataset = OpenDataset(Prepared(folder.path() + "/mine.safetensors"), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().clients, 100u);
  EXPECT_EQ((*dataset)->info().classes, 10);
  EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(1, 28, 28));
  const std::vector<RowCopy> rows = Copy(**dataset, 1, Split::kTrain);
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_EQ(rows[0].label, 9);  // row 9
  EXPECT_EQ((*dataset)->CentralTest().size(), 100u);
}

// So does the program for tweets, whose file is in Latin-1.
TEST(PicturesAndTexts, TheGuidesProgramMakesRowsOfSentiment140) {
  if (const std::string why = testing_support::WhyNoPython("numpy"); !why.empty())
    GTEST_SKIP() << why;
  const std::string guide = *ReadFile(std::string(MACAW_SOURCE_DIR) + "/docs/guides/data.md");
  const size_t begin = guide.find("```python\nimport collections") + 10;
  const size_t end = guide.find("```", begin);
  ASSERT_LT(begin, end);
  const TemporaryFolder folder;
  folder.Write("texts.py", guide.substr(begin, end - begin));
  folder.Write(
      "training.1600000.processed.noemoticon.csv",
      "\"0\",\"1\",\"Mon Apr 06 22:19:45 PDT 2009\",\"NO_QUERY\",\"ann\",\"caf\xE9 closed\"\n"
      "\"4\",\"2\",\"Mon Apr 06 22:19:49 PDT 2009\",\"NO_QUERY\",\"Jos\xE9\",\"good, good\"\n"
      "\"4\",\"3\",\"Mon Apr 06 22:19:53 PDT 2009\",\"NO_QUERY\",\"ann\",\"a \"\"good\"\" caf\xE9\"\n");
  const testing_support::Printed run = testing_support::RunShell(
      absl::StrCat("cd ", folder.path(), " && ", testing_support::Python(), " texts.py"));
  ASSERT_EQ(run.exit, 0) << run.text;
  const auto dataset = OpenDataset(
      {.source = "npz", .path = folder.path() + "/sent140.npz", .test_fraction = 0}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_EQ(info.clients, 2u);
  EXPECT_EQ((*dataset)->ClientName(ClientId(1)), "Jos\xC3\xA9");
  EXPECT_EQ(info.classes, 2);
  EXPECT_EQ(info.feature_type, FeatureType::kI32);
  EXPECT_THAT(info.input_shape, ElementsAre(40));
  EXPECT_EQ(Copy(**dataset, 0, Split::kTrain)[1].label, 1);
}

}  // namespace
}  // namespace macaw::data
