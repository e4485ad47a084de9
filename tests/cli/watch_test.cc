#include "cli/watch/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using macaw::testing_support::TemporaryFolder;
using testing::HasSubstr;
using Json = nlohmann::json;

void AddRound(const std::string& folder, int round) {
  std::ofstream(folder + "/metrics.jsonl", std::ios::app)
      << "{\"round\":" << round << ",\"train_loss\":" << 1.0 / round << "}\n";
}

class Watch : public testing::Test {
 protected:
  Watch() {
    std::filesystem::create_directory(run_);
    AddRound(run_, 1);
  }
  std::string Get(const std::string& path, int expected = 200,
                  const httplib::Headers& headers = {}) {
    httplib::Client client("127.0.0.1", page_->port());
    const auto answer = client.Get(path, headers);
    EXPECT_TRUE(answer) << path;
    if (!answer) return "";
    EXPECT_EQ(answer->status, expected) << path;
    return answer->body;
  }
  void Start() {
    auto page = LivePage::Start({run_}, 0);
    ASSERT_TRUE(page.ok()) << page.status();
    page_ = *std::move(page);
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  std::unique_ptr<LivePage> page_;
};

TEST_F(Watch, ShowsRoundsAsTheyEnd) {
  Start();
  const std::string page = Get("/");
  EXPECT_THAT(page, HasSubstr("\"train_loss\":{\"x\":[1]"));
  EXPECT_THAT(page, HasSubstr("fetch(\"version\")"));
  const std::string before = Get("/version");
  EXPECT_EQ(Get("/version"), before) << "nothing has happened";
  AddRound(run_, 2);
  EXPECT_NE(Get("/version"), before);
  EXPECT_EQ(Json::parse(Get("/data.json"))["runs"][0]["rounds"], 2);
}

TEST_F(Watch, SaysWhatIsMissingWhileItRuns) {
  Start();
  std::filesystem::remove_all(run_);
  EXPECT_THAT(Get("/data.json", 503), HasSubstr("holds no run"));
}

TEST_F(Watch, AnswersThisMachineAlone) {
  Start();
  EXPECT_THAT(Get("/data.json", 403, {{"Host", "evil.example"}}), HasSubstr("localhost"));
}

TEST_F(Watch, SaysWhyItDoesNotStart) {
  EXPECT_THAT(LivePage::Start({folder_ / "nothing"}, 0).status().ToString(),
              HasSubstr("holds no run"));
  Start();
  EXPECT_THAT(LivePage::Start({run_}, page_->port()).status().ToString(), HasSubstr("port in use"));
}

}  // namespace
}  // namespace macaw::cli
