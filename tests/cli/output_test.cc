#include "cli/simulate/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/config/key_error.h"

namespace macaw::cli {
namespace {

using nlohmann::json;

class JsonLines : public testing::Test {
 protected:
  json Last() const { return json::parse(lines_.back()); }

  std::vector<std::string> lines_;
  const std::unique_ptr<Output> output_ =
      OutputAsJson([this](const std::string& line) { lines_.push_back(line); });
};

TEST_F(JsonLines, TellTheStoryOfARunInOrder) {
  output_->Say("data", "1,000 clients");
  output_->Event({{"event", "begun"}, {"folder", "/runs/a"}, {"rounds", 3}});
  output_->Row(R"({"round":1,"train_loss":0.5})");
  output_->Message("worker-0 was started again");
  output_->Result({.folder = "/runs/a"});
  output_->End(0, "", "");
  std::vector<std::string> events;
  for (const std::string& line : lines_) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    events.push_back(json::parse(line)["event"]);
  }
  EXPECT_THAT(events, testing::ElementsAre("said", "begun", "round", "message", "result", "end"));
  EXPECT_EQ(json::parse(lines_[1])["rounds"], 3);
  EXPECT_EQ(json::parse(lines_[2])["row"]["train_loss"], 0.5);
}

TEST_F(JsonLines, OfAnErrorNameTheKeyAndTheOneThatWasMeant) {
  output_->Error(WithKeyError(absl::InvalidArgumentError("exp.toml:3: unknown key local.rl"),
                              {.place = "exp.toml:3", .key = "local.rl", .meant = "local.lr"}),
                 2);
  EXPECT_EQ(Last()["code"], 2);
  EXPECT_EQ(Last()["message"], "exp.toml:3: unknown key local.rl");
  EXPECT_EQ(Last()["place"], "exp.toml:3");
  EXPECT_EQ(Last()["key"], "local.rl");
  EXPECT_EQ(Last()["meant"], "local.lr");
}

TEST_F(JsonLines, WarnOfAResultFarUnderItsBest) {
  RunResult result{.folder = "/runs/a"};
  result.bests["test_accuracy"] = {.value = 0.9, .round = 4};
  result.final["test_accuracy"] = 0.2;
  result.settings["model.classes"] = "10";
  output_->Result(result);
  ASSERT_EQ(Last()["warnings"].size(), 1u);
  EXPECT_THAT(Last()["warnings"][0].get<std::string>(), testing::HasSubstr("test_accuracy"));
}

TEST_F(JsonLines, AreJsonWhateverBytesAMessageHolds) {
  output_->Error(absl::NotFoundError("no file \xff\n\"x\""), 2);
  EXPECT_THAT(Last()["message"].get<std::string>(), testing::HasSubstr("\"x\""));
  EXPECT_EQ(Last()["key"], "");
}

TEST_F(JsonLines, SayWhichFolderGoesOn) {
  output_->End(130, "runs/a", "macaw simulate --resume runs/a");
  EXPECT_EQ(Last()["code"], 130);
  EXPECT_EQ(Last()["go_on"].get<std::string>().front(), '/');
}

}  // namespace
}  // namespace macaw::cli
