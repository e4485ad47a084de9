// Clients whose rows lie elsewhere: what a node says of them.
#include "data/declared.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/options.h"
#include "data/overlap.h"
#include "data/prepared.h"
#include "testing/temporary_folder.h"

namespace macaw::data {
namespace {

using macaw::testing_support::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class DeclaredData : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& json,
                                                const PartitionOptions& partition = {}) {
    return OpenDataset({.source = "declared", .path = folder_.Write("mine.json", json)}, partition);
  }
  std::string ErrorOf(const std::string& json) {
    const absl::Status status = Open(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  }

  const TemporaryFolder folder_;
  const std::string good_ =
      R"({"clients": [{"name": "hospital-7", "train": 600, "test": 100},
                      {"name": "hospital-9", "test": 5}],
          "input_shape": [1, 28, 28], "classes": 10})";
};

TEST_F(DeclaredData, HasNamesAndNumbersOfRowsAndNoRows) {
  const auto dataset = Open(good_);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_TRUE(info.declared);
  EXPECT_EQ(info.clients, 2u);
  EXPECT_EQ(info.train_clients, 1u);
  EXPECT_EQ(info.train_examples, 600u);
  EXPECT_EQ(info.test_examples, 0u);
  EXPECT_EQ(info.classes, 10);
  EXPECT_EQ(info.feature_type, FeatureType::kF32);
  EXPECT_THAT(info.input_shape, ElementsAre(1, 28, 28));
  EXPECT_EQ((*dataset)->ClientName(ClientId(1)), "hospital-9");
  EXPECT_EQ((*dataset)->Examples(ClientId(0), Split::kTest), 100u);
  EXPECT_EQ((*dataset)->Examples(ClientId(2), Split::kTrain), 0u);
  const Rows rows = *(*dataset)->Client(ClientId(0), Split::kTrain);
  EXPECT_EQ(rows.size(), 600u);
  EXPECT_EQ(rows.client_name, "hospital-7");
  EXPECT_EQ(rows.block.features, nullptr);
  EXPECT_FALSE((*dataset)->Client(ClientId(2), Split::kTrain).ok());
}

TEST_F(DeclaredData, IsNamedByAllThatItSays) {
  const auto digest = [&](const std::string& json) { return (*Open(json))->info().digest; };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string json = good_;
    json.replace(json.find(from), from.size(), to);
    return digest(json);
  };
  const Digest whole = digest(good_);
  EXPECT_EQ(digest(good_), whole);
  EXPECT_NE(changed("600", "601"), whole);
  EXPECT_NE(changed("hospital-9", "hospital-8"), whole);
  EXPECT_NE(changed("28, 28", "28, 27"), whole);
  EXPECT_NE(changed("10}", "11}"), whole);
  EXPECT_NE(changed("10}", "10, \"features\": \"uint8\"}"), whole);
  EXPECT_NE(changed("10}", "10, \"digest\": \"2026-11\"}"), whole);
}

TEST_F(DeclaredData, IsRefusedWithWhatIsWrong) {
  EXPECT_THAT(ErrorOf("[]"), AllOf(HasSubstr("mine.json"), HasSubstr("JSON object")));
  EXPECT_THAT(ErrorOf(R"({"clients": [], "input_shape": [2]})"), HasSubstr("\"clients\""));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a"}]})"), HasSubstr("input_shape"));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a"}], "input_shape": [0]})"),
              HasSubstr("input_shape"));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"train": 5}], "input_shape": [2]})"), HasSubstr("\"name\""));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a", "train": -5}], "input_shape": [2]})"),
              AllOf(HasSubstr("\"train\""), HasSubstr("\"a\"")));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a", "trian": 5}], "input_shape": [2]})"),
              HasSubstr("\"trian\""));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a"}, {"name": "a"}], "input_shape": [2]})"),
              HasSubstr("two clients"));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a"}], "input_shape": [2], "features": "f16"})"),
              HasSubstr("\"features\""));
  EXPECT_THAT(ErrorOf(R"({"clients": [{"name": "a"}], "input_shape": [2], "classes": "x"})"),
              HasSubstr("\"classes\""));
  EXPECT_FALSE(Open(good_, {.scheme = "iid"}).ok());
}

TEST_F(DeclaredData, CannotBeReadHere) {
  const auto dataset = *Open(good_);
  EXPECT_THAT(std::string(WritePrepared(*dataset, folder_ / "out").message()),
              HasSubstr("only declares"));
  EXPECT_EQ(TestRowsInTraining(*dataset)->test_rows, 0u);
}

}  // namespace
}  // namespace macaw::data
