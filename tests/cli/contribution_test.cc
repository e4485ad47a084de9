#include "cli/results/contribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/results/model_distance.h"
#include "core/safetensors.h"
#include "core/vector.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::TemporaryFolder;

// Client 3 is in both rounds, 5 and 8 in one each; the model without 8 was not evaluated.
constexpr char kLines[] =
    R"({"round":2,"client":[3,5],"weight":[1,1],"cosine":[0.5,null],)"
    R"("model":["aa","bb"],"test_loss":[0.5,0.5],"delta_test_loss":[-0.25,0.125],)"
    R"("test_accuracy":[0.5,0.5],"delta_test_accuracy":[0.0625,-0.125]})"
    "\n"
    R"({"round":4,"client":[3,8],"weight":[1,1],"cosine":[1.0,0.25],)"
    R"("model":["cc","dd"],"test_loss":[0.5,null],"delta_test_loss":[-0.25,null],)"
    R"("test_accuracy":[0.5,null],"delta_test_accuracy":[0.0625,null]})"
    "\n";

std::vector<ClientContribution> Read(const std::string& text) {
  const TemporaryFolder folder;
  folder.Write("contributions.jsonl", text);
  const auto clients = ReadContributions(folder.path());
  EXPECT_TRUE(clients.ok()) << clients.status();
  return clients.value_or(std::vector<ClientContribution>());
}

TEST(Contribution, IsAddedUpOverRoundsTheMostHelpfulFirst) {
  const std::vector<ClientContribution> clients = Read(kLines);
  ASSERT_EQ(clients.size(), 3u);
  EXPECT_EQ(clients[0].client, 3u);
  EXPECT_EQ(clients[0].rounds, 2u);
  EXPECT_EQ(clients[0].cosine, 0.75);
  EXPECT_EQ(clients[0].deltas.at("test_loss"), -0.5);
  EXPECT_EQ(clients[0].deltas.at("test_accuracy"), 0.125);
  EXPECT_EQ(clients[1].client, 5u);
  EXPECT_EQ(clients[2].client, 8u) << "nothing is known of it";
  EXPECT_TRUE(clients[2].deltas.empty());
}

TEST(Contribution, IsShownFromBothEnds) {
  const auto all = ContributionLines(Read(kLines), 10);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_THAT(all[0],
              ElementsAre("client", "rounds", "cosine", "delta test_accuracy", "delta test_loss"));
  EXPECT_THAT(all[1], ElementsAre("3", "2", "0.750", "+0.12500", "-0.50000"));
  EXPECT_THAT(all[2], ElementsAre("5", "1", "-", "-0.12500", "+0.12500"));
  EXPECT_THAT(all[3], ElementsAre("8", "1", "0.250", "-", "-"));
  const auto ends = ContributionLines(Read(kLines), 1);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[1][0], "3");
  EXPECT_EQ(ends[2][0], "8");
}

// evaluation.unlearn: the newest line counts. Client 9 was left out of no round.
TEST(Contribution, HasTheNewestModelsWithoutAClient) {
  const std::string text = absl::StrCat(
      kLines, R"({"round":5,"client":[],"unlearned_client":[3],"unlearned_rounds":[2],)"
              R"("unlearned_model":["ee"],"unlearned_test_loss":[0.75]})"
              "\n"
              R"({"round":6,"client":[],"unlearned_client":[3,9],"unlearned_rounds":[3,1],)"
              R"("unlearned_model":["ff","00"],"unlearned_test_loss":[0.5,null]})"
              "\n");
  const std::vector<ClientContribution> clients = Read(text);
  ASSERT_EQ(clients.size(), 4u);
  EXPECT_EQ(clients[0].client, 3u);
  EXPECT_EQ(clients[0].rounds, 2u);
  EXPECT_EQ(clients[0].unlearned_rounds, 3u);
  EXPECT_EQ(clients[0].unlearned.at("test_loss"), 0.5);
  const auto lines = ContributionLines(clients, 10);
  EXPECT_THAT(lines[0], ElementsAre("client", "rounds", "cosine", "delta test_accuracy",
                                    "delta test_loss", "unlearned rounds", "unlearned test_loss"));
  EXPECT_THAT(lines[1], ElementsAre("3", "2", "0.750", "+0.12500", "-0.50000", "3", "0.50000"));
  EXPECT_THAT(lines[2], ElementsAre("5", "1", "-", "-0.12500", "+0.12500", "-", "-"));
  EXPECT_THAT(lines, Contains(ElementsAre("9", "0", "-", "-", "-", "1", "-")));
  EXPECT_THAT(ContributionJson(clients),
              HasSubstr(R"("unlearned_rounds":3,"unlearned_test_loss":0.5})"));
  EXPECT_EQ(
      Read(absl::StrCat(kLines, R"({"round":6,"client":[],"unlearned_client":["3"]})")).size(), 3u);
}

TEST(DistanceOfModels, IsThatOfAllNumbers) {
  const TemporaryFolder folder;
  const auto layout = ParameterLayout::Make(
      {{.name = "w", .shape = {2}}, {.name = "b", .shape = {1}}}, DType::kF32);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto other = ParameterLayout::Make({{.name = "w", .shape = {2}}}, DType::kF32);
  ASSERT_TRUE(other.ok()) << other.status();
  const auto write = [&](const std::string& name, const LayoutPtr& of, float b) {
    FlatVector model(of);
    for (const LayoutEntry& entry : of->entries()) {
      for (size_t i = 0; i < entry.size; ++i)
        model.As<float>()[entry.offset + i] = entry.name == "b" ? b : 1.0F;
    }
    EXPECT_TRUE(WriteModel(folder / name, std::as_const(model).view(), {}).ok());
  };
  write("a", *layout, 2);
  write("b", *layout, 5);
  write("c", *other, 0);
  EXPECT_EQ(DistanceOfModels(folder / "a", folder / "b").value_or(-1), 3);
  EXPECT_EQ(DistanceOfModels(folder / "a", folder / "a").value_or(-1), 0);
  EXPECT_FALSE(DistanceOfModels(folder / "a", folder / "c").ok());
  EXPECT_FALSE(DistanceOfModels(folder / "c", folder / "a").ok());
}

TEST(Contribution, HasTheClientsNamesWhereThereAreAny) {
  const std::vector<std::string> names = {"a", "b", "c", "hospital-d", "e", "f"};
  const auto lines = ContributionLines(Read(kLines), 10, names);
  EXPECT_THAT(lines[0], ElementsAre("client", "name", "rounds", "cosine", "delta test_accuracy",
                                    "delta test_loss"));
  EXPECT_THAT(lines[1], ElementsAre("3", "hospital-d", "2", "0.750", "+0.12500", "-0.50000"));
  EXPECT_EQ(lines[3][1], "8") << "the names end before it";
  EXPECT_EQ(ContributionJson(Read(kLines), names),
            R"([{"client":3,"name":"hospital-d","rounds":2,"cosine":0.75,)"
            R"("delta_test_accuracy":0.125,"delta_test_loss":-0.5},)"
            R"({"client":5,"name":"f","rounds":1,"cosine":null,)"
            R"("delta_test_accuracy":-0.125,"delta_test_loss":0.125},)"
            R"({"client":8,"name":"8","rounds":1,"cosine":0.25}])");
  EXPECT_THAT(ContributionJson(Read(kLines)), Not(HasSubstr("name")));
}

TEST(Contribution, HasEveryDigitAsCsv) {
  const std::string line =
      R"({"round":2,"client":[1,2],"cosine":[0.125,null],"delta_test_loss":[-0.000001234567,null]})"
      "\n";
  EXPECT_EQ(ContributionCsv(Read(line)),
            "client,rounds,cosine,delta test_loss\n"
            "1,1,0.125,-1.2345669999999999e-06\n"
            "2,1,,\n");
}

// The last line of a run that goes on may not be whole.
TEST(Contribution, StopsAtALineThatIsTorn) {
  const std::string text = kLines;
  EXPECT_EQ(Read(text.substr(0, text.size() - 20)).size(), 2u);
}

// A file may be anybody's.
TEST(Contribution, RefusesALineThatIsNoneOfARun) {
  const TemporaryFolder folder;
  const auto why = [&](const std::string& text) {
    folder.Write("contributions.jsonl", text);
    return std::string(ReadContributions(folder.path()).status().message());
  };
  for (const char* clients : {R"(["3"])", "[-3]", "[3.5]", "[{}]", "[null]"}) {
    const std::string line = std::string(R"({"round":6,"client":)") + clients + "}\n";
    EXPECT_THAT(why(kLines + line), HasSubstr("contributions.jsonl:3 is no line")) << clients;
    EXPECT_THAT(why(line + kLines), HasSubstr("contributions.jsonl:1 is no line")) << clients;
  }
  const std::string torn = absl::StrCat(R"({"round":1,"client":[3)", "\n", kLines);
  EXPECT_THAT(why(torn), HasSubstr("contributions.jsonl:1 is no line"));
}

TEST(Contribution, NamesTheKeyWhereARunHasNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(ReadContributions(folder.path()).status().ToString(),
              HasSubstr("evaluation.leave_one_out"));
}

}  // namespace
}  // namespace macaw::cli
