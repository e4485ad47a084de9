#include "data/owners_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/options.h"
#include "testing/temporary_folder.h"

namespace macaw::data {
namespace {

class OwnersRowsTest : public testing::Test {
 protected:
  // Rows of these clients, one of whose columns says whose they are where `column` is set.
  std::unique_ptr<Dataset> Open(const std::string& column, PartitionOptions partition = {}) {
    DataOptions data{.source = "csv",
                     .path = folder_.Write("rows.csv", "who,x,kind\n1,3,a\n1,4,b\n2,5,a\n"),
                     .test_path = folder_.Write("tests.csv", "who,x,kind\n2,6,b\n1,7,a\n"),
                     .test_fraction = 0,
                     .client_column = column};
    auto dataset = OpenDataset(data, partition);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return OwnersRows(*std::move(dataset), "phone-7");
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(OwnersRowsTest, OfDataWithoutClientsAreOneClientNamedLikeTheNode) {
  const auto dataset = Open(kNoColumn, {.clients = 1});
  EXPECT_EQ(dataset->info().clients, 1u);
  EXPECT_EQ(dataset->ClientName(ClientId(0)), "phone-7");
  EXPECT_EQ(dataset->Examples(ClientId(0), Split::kTrain), 3u);
  EXPECT_EQ(dataset->Examples(ClientId(0), Split::kTest), 2u);
  const auto rows = dataset->Client(ClientId(0), Split::kTest);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->client_name, "phone-7");
}

TEST_F(OwnersRowsTest, AreNoTestSetForAll) {
  for (const auto& dataset : {Open("who"), Open(kNoColumn, {.clients = 1})}) {
    EXPECT_EQ(dataset->info().test_examples, 0u);
    EXPECT_TRUE(dataset->CentralTest().empty());
    EXPECT_TRUE(dataset->CentralValidation().empty());
  }
}

TEST_F(OwnersRowsTest, KeepTheNamesAndTestRowsOfTheirClients) {
  const auto dataset = Open("who");
  ASSERT_EQ(dataset->info().clients, 2u);
  EXPECT_EQ(dataset->ClientName(ClientId(0)), "1");
  for (ClientId client; client.value < 2; ++client.value)
    EXPECT_EQ(dataset->Examples(client, Split::kTest), 1u);
}

}  // namespace
}  // namespace macaw::data
