#include "cli/simulate/client_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/fleet/client_table.h"
#include "server/journal/holdings.h"
#include "server/log/writer.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::TemporaryFolder;

// An owner whose clients are `names`.
server::JournalNode Owner(const std::string& name, const std::vector<std::string>& names) {
  fleet::ClientTable table;
  table.names = names;
  table.rows.assign(names.size(), 5);
  server::JournalNode node;
  node.request.name = name;
  node.request.owner = true;
  node.request.clients = names.size();
  node.request.data_digest = Digester().Add(absl::string_view(name)).Finish();
  node.request.table = fleet::Blob::Of(table.Encode());
  return node;
}

std::vector<std::string> NamesOfFleet(const std::vector<server::JournalNode>& owners) {
  const TemporaryFolder folder;
  folder.Write("config.toml", "[run]\nname = \"fleet\"\n");
  auto holdings = server::Holdings::Open(folder.path(), /*fresh=*/true);
  EXPECT_TRUE(holdings.ok()) << holdings.status();
  for (const server::JournalNode& owner : owners) EXPECT_TRUE(holdings->Add(owner).ok());
  EXPECT_TRUE(holdings->Sync().ok());
  const auto names = ClientNamesOf(folder.path());
  EXPECT_TRUE(names.ok()) << names.status();
  return names.value_or(std::vector<std::string>());
}

// As the server numbers them, whoever came first.
TEST(ClientNames, OfAFleetAreThoseOfItsOwnersInOrder) {
  EXPECT_THAT(NamesOfFleet({Owner("b", {"ward-10", "hospital-b"}), Owner("a", {"ward-9"})}),
              ElementsAre("hospital-b", "ward-9", "ward-10"));
  EXPECT_THAT(NamesOfFleet({Owner("b", {"1"}), Owner("a", {"0"})}), IsEmpty()) << "numbers alone";
  EXPECT_THAT(NamesOfFleet({}), IsEmpty());
}

// Of a run with cohort.eligible, whose log has this first record.
std::vector<std::string> NamesWithPatterns(const server::log::RunOpened& opened) {
  const TemporaryFolder folder;
  const std::string rows = folder.Write(
      "rows.csv", "x,y,client\n1,0,zoe\n2,1,zoe\n3,0,ann\n4,1,ann\n5,0,yan\n6,1,yan\n");
  folder.Write("config.toml",
               absl::StrCat("[data]\nsource = \"csv\"\npath = \"", rows,
                            "\"\nlabel_column = \"y\"\nclient_column = \"client\"\n[model]\nname = "
                            "\"logistic\"\n[cohort]\nsize = 2\neligible = [\"*\"]\n"));
  auto log = server::log::Writer::Open(folder.path() + "/rounds.log", DigestOf("run"), {});
  EXPECT_TRUE(log.ok()) << log.status();
  log->Append(1, opened);
  EXPECT_TRUE(log->Write().ok());
  const auto names = ClientNamesOf(folder.path());
  EXPECT_TRUE(names.ok()) << names.status();
  return names.value_or(std::vector<std::string>());
}

TEST(ClientNames, OfASimulationWithPatternsAreInTheOrderOfItsData) {
  EXPECT_THAT(NamesWithPatterns({.keeps_places = true}), ElementsAre("zoe", "ann", "yan"));
  EXPECT_THAT(NamesWithPatterns({}), ElementsAre("ann", "yan", "zoe")) << "of 0.1.0";
}

TEST(ClientNames, AreTakenAsWellAsNumbers) {
  const std::vector<std::string> names = {"hospital-a", "hospital-b", "7"};
  EXPECT_EQ(*ClientNumber("hospital-b", names), 1u);
  EXPECT_EQ(*ClientNumber("8", names), 8u) << "a number is a number";
  EXPECT_EQ(*ClientNumber("7", names), 2u) << "which no client has";
  EXPECT_EQ(*ClientNumber("12", {}), 12u);
  EXPECT_THAT(std::string(ClientNumber("hospital-c", names).status().message()),
              AllOf(HasSubstr("\"hospital-c\""), HasSubstr("did you mean")));
  EXPECT_THAT(std::string(ClientNumber("hospital-c", {}).status().message()),
              HasSubstr("numbers alone"));
}

TEST(ClientNames, ThatAreNumbersOfOthersAreAskedAbout) {
  const std::vector<std::string> names = {"3", "1", "two", "0"};
  EXPECT_THAT(std::string(ClientNumber("3", names).status().message()),
              AllOf(HasSubstr("3 is the number of client \"0\" and the name of client 0"),
                    HasSubstr("\"#3\""), HasSubstr("\"#0\"")));
  EXPECT_FALSE(ClientNumber("0", names).ok());
  EXPECT_EQ(*ClientNumber("#3", names), 3u);
  EXPECT_EQ(*ClientNumber("#0", names), 0u);
  EXPECT_EQ(*ClientNumber("1", names), 1u) << "its number and its name";
  EXPECT_EQ(*ClientNumber("2", names), 2u) << "nobody's name";
  EXPECT_EQ(*ClientNumber("#9", {}), 9u);
  EXPECT_FALSE(ClientNumber("#x", names).ok());
  EXPECT_TRUE(IsClientNumber("#3") && IsClientNumber("3"));
  EXPECT_FALSE(IsClientNumber("#") || IsClientNumber("two"));
}

TEST(ClientNames, AreNotThereWithoutARun) {
  const TemporaryFolder folder;
  EXPECT_FALSE(ClientNamesOf(folder.path()).ok());
}

}  // namespace
}  // namespace macaw::cli
