#include "data/partition_file.h"

#include <gmock/gmock.h>

#include "absl/strings/str_join.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::HasSubstr;

class PartitionFile : public testing::Test {
 protected:
  void SetUp() override {
    data_ = {.source = "idx",
             .path = folder_.Write("m-images-idx3-ubyte", IdxImages(100)),
             .val_fraction = 0.2,
             .heldout_clients = 0.2};
    folder_.Write("m-labels-idx1-ubyte", IdxLabels(100, 10));
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Read(const std::string& json) {
    return OpenDataset(data_, {.scheme = "file", .path = folder_.Write("p.json", json)});
  }
  TemporaryFolder folder_;
  DataOptions data_;
};

TEST_F(PartitionFile, RoundTripGivesTheSameRowsEverywhere) {
  const auto dataset = OpenDataset(data_, {.scheme = "dirichlet-class", .clients = 10});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::string path = folder_.path() + "/exported.json";
  ASSERT_TRUE(ExportPartition(**dataset, path).ok());
  const auto again = OpenDataset(data_, {.scheme = "file", .path = path});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CopyAll(**dataset), CopyAll(**again));
  EXPECT_EQ((*dataset)->info().digest, (*again)->info().digest);
}

TEST_F(PartitionFile, ReadsAnotherSystemsSplitInItsOrder) {
  data_.val_fraction = data_.heldout_clients = 0;
  const auto dataset = Read(R"({"zoe": [5, 3], "ann": [], "bob": [99], "test": [1, 2]})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->info().clients, 3u);
  EXPECT_EQ((*dataset)->ClientName(ClientId(0)), "zoe");
  const std::vector<RowCopy> rows = Copy(**dataset, 0, Split::kTrain);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].features[0], 5);
  EXPECT_EQ(rows[1].features[0], 3);
  EXPECT_EQ((*dataset)->Examples(ClientId(1), Split::kTrain), 0u);
  EXPECT_EQ((*dataset)->CentralTest().size(), 2u);
}

TEST_F(PartitionFile, SaysThatItLeavesNoCentralTestSetAndWhatItDoesNotUse) {
  std::string all = "{\"a\": [0";
  for (int row = 1; row < 100; ++row) absl::StrAppend(&all, ", ", row);
  const auto notes = [&](const std::string& json) {
    const auto dataset = Read(json);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return absl::StrJoin((*dataset)->info().notes, "\n");
  };
  EXPECT_THAT(notes(all + "]}"), testing::AllOf(HasSubstr("data.test_fraction = 0.1 has no effect"),
                                                testing::Not(HasSubstr("stay unused"))));
  EXPECT_THAT(notes(R"({"a": [1, 2], "test": [3]})"),
              testing::AllOf(HasSubstr("97 of the 100 rows"), testing::Not(HasSubstr("fraction"))));
  data_.test_fraction = 0;
  EXPECT_EQ(notes(all + "]}"), "");
}

TEST_F(PartitionFile, RefusesARowThatAListHasTwice) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"a": [1, 2, 1]})", "\"a\" lists row 1 twice"},
      {R"({"a": [1], "test": [7, 7, 8]})", "\"test\" lists row 7 twice"},
      {R"({"a": [1], "central_validation": [5, 6, 5]})",
       "\"central_validation\" lists row 5 twice"},
      {R"({"a": [1], "validation": {"a": [4, 4]}})", "\"a\" in \"validation\" lists row 4 twice"},
      {R"({"a": [1], "client_test": {"a": [9, 3, 9]}})",
       "\"a\" in \"client_test\" lists row 9 twice"}};
  for (const auto& [text, words] : wrong)
    EXPECT_THAT(Read(text).status().message(), HasSubstr(words)) << text;
  EXPECT_TRUE(
      Read(R"({"a": [1], "b": [2], "test": [3], "client_test": {"a": [3], "b": [3]}})").ok())
      << "test rows may be several clients'";
}

TEST_F(PartitionFile, RefusesInvalidDivisions) {
  EXPECT_THAT(Read(R"({"a": [1, 2], "b": [2]})").status().message(),
              HasSubstr("\"b\" lists row 2, which is in another list too"));
  EXPECT_THAT(Read(R"({"a": [1, 100]})").status().message(),
              HasSubstr("row 100, but the data has 100 rows"));
  EXPECT_THAT(Read(R"({"a": [1, -1]})").status().message(), HasSubstr("row -1"));
  EXPECT_THAT(Read(R"({"a": [1.5]})").status().message(), HasSubstr("row 1.5"));
  EXPECT_THAT(Read(R"({"a": [1], "test": [1], "validation": {}})").status().message(),
              HasSubstr("row 1 trains a client and is in \"test\""));
  EXPECT_THAT(Read(R"({"a": [1], "validation": {"b": [2]}})").status().message(),
              HasSubstr("who is no client"));
  EXPECT_THAT(Read(R"({"a": [1], "a": [2]})").status().message(), HasSubstr("comes twice"));
  EXPECT_THAT(Read(R"({"a": [1], "validation": {"a": [2], "a": [3]}})").status().message(),
              HasSubstr(R"("validation" names "a" twice)"));
  EXPECT_THAT(Read(R"({"a": [1], "client_test": {"a": [2]}, "client_test": {"a": [3]}})")
                  .status()
                  .message(),
              HasSubstr(R"("client_test" names "a" twice)"));
  EXPECT_THAT(Read(R"({"a": [1], "": [2]})").status().message(),
              HasSubstr("client 1 has an empty name"));
  EXPECT_THAT(Read(R"({"a": {"b": [1]}})").status().message(), HasSubstr("expected a list"));
  EXPECT_THAT(Read(R"({"a": [[1]]})").status().message(), HasSubstr("a list where none belongs"));
  EXPECT_THAT(Read(R"([1, 2])").status().message(), HasSubstr("a list where none belongs"));
  EXPECT_THAT(Read(R"({"a": [1], )").status().message(), HasSubstr("is not JSON"));
  EXPECT_THAT(Read("{}").status().message(), HasSubstr("names no client"));
  EXPECT_THAT(OpenDataset(data_, {.scheme = "file"}).status().message(),
              HasSubstr("needs partition.path"));
}

// The fuzzer found that a newline in a client's name broke the message into two lines.
TEST_F(PartitionFile, ARefusalIsOneLineWhateverTheClientIsNamed) {
  const std::vector<std::string> texts = {R"({"a\nü": true})", R"({"a\nü": [1], "a\nü": [2]})",
                                          R"({"a\nü": [1, 1]})",
                                          R"({"b": [1], "validation": {"a\nü": [2]}})"};
  for (const std::string& text : texts) {
    const absl::Status status = Read(text).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("a\\nü")) << text;
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("\n"))) << text;
  }
}

TEST_F(PartitionFile, SyntheticClientsCannotBeExported) {
  const auto dataset = OpenDataset({.source = "synthetic", .synthetic = {.clients = 3}}, {});
  EXPECT_THAT(ExportPartition(**dataset, folder_.path() + "/x.json").message(),
              HasSubstr("cannot be exported"));
}

}  // namespace
}  // namespace macaw::data
