#include "cli/standing/queue_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class QueuePageTest : public testing::Test {
 protected:
  void Submit(const std::string& name, const std::string& by = "ada") {
    ASSERT_TRUE(
        queue_->Submit({.request_id = name, .name = name, .by = by, .plan = "x = 1\n"}, now_).ok());
  }
  std::unique_ptr<QueuePage> Start(const std::string& token = "") {
    auto page =
        QueuePage::Start({.host = "127.0.0.1", .port = 0, .token = token}, "here:47127", *queue_);
    EXPECT_TRUE(page.ok()) << page.status();
    return *std::move(page);
  }
  static std::string Get(const QueuePage& page, const std::string& path) {
    httplib::Client client("127.0.0.1", page.port());
    const auto answer = client.Get(path.c_str());
    return answer ? absl::StrCat(answer->status, " ", answer->body) : "no answer";
  }

  const testing_support::TemporaryFolder folder_;
  const std::unique_ptr<RunQueue> queue_ = *RunQueue::Open(folder_.path());
  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
};

TEST_F(QueuePageTest, ShowsWhatBecameOfEachRunWhileNoneIsOpen) {
  const auto page = Start();
  EXPECT_THAT(Get(*page, "/"),
              AllOf(HasSubstr("no run is open, 0 wait"), HasSubstr("no run was submitted")));
  Submit("one");
  Submit("two", "<b>eve</b>");
  ASSERT_TRUE(queue_->Begin(now_).ok());
  EXPECT_THAT(Get(*page, "/"),
              AllOf(HasSubstr("the run one is open; its page: here:47127, 1 waits"),
                    HasSubstr("&lt;b&gt;eve"), Not(HasSubstr("<b>eve"))));
  EXPECT_THAT(Get(*page, "/metrics"),
              AllOf(HasSubstr("macaw_standing_runs{state=\"running\"} 1\n"),
                    HasSubstr("macaw_standing_runs{state=\"waiting\"} 1\n"),
                    HasSubstr("begun_timestamp_seconds{run=\"one\"} 1800000000\n")));
  ASSERT_TRUE(queue_->End("one", QueuedState::kFailed, "no disk", now_).ok());
  EXPECT_THAT(Get(*page, "/"), AllOf(HasSubstr("no run is open"), HasSubstr("no disk")));
  EXPECT_THAT(Get(*page, "/metrics"), HasSubstr("macaw_standing_runs{state=\"failed\"} 1\n"));
  EXPECT_THAT(Get(*page, "/runs.json"), HasSubstr("\"failed\""));
  EXPECT_THAT(Get(*page, "/rows.jsonl"), HasSubstr("404"));
}

TEST_F(QueuePageTest, AsksForItsToken) {
  const auto page = Start("s3cret");
  for (const std::string path : {"/", "/runs.json", "/metrics"}) {
    EXPECT_THAT(Get(*page, path), HasSubstr("401")) << path;
    EXPECT_THAT(Get(*page, path + "?token=s3cret"), HasSubstr("200")) << path;
  }
}

TEST_F(QueuePageTest, ShowsTheNewestRuns) {
  std::vector<QueuedRun> runs(300);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].name = absl::StrCat("run-", i, ".");
  EXPECT_THAT(QueueHtml(runs, ""),
              AllOf(HasSubstr("run-299."), HasSubstr("run-100."), Not(HasSubstr("run-99.")),
                    HasSubstr("the newest 200 of 300 runs")));
}

TEST(PageAddress, OfOtherMachinesNeedsAToken) {
  const testing_support::TemporaryFolder folder;
  const std::string file = folder / "token";
  ASSERT_TRUE(AtomicWriteFile(file, " s3cret \nmore\n").ok());
  const auto at = [](const std::string& http, const std::string& token = "") {
    return ReadPageAddress(http, token, "--http", "--http-token");
  };
  ASSERT_TRUE(at(":80").ok());
  EXPECT_EQ(at(":80")->host, "127.0.0.1");
  EXPECT_EQ(at("0.0.0.0:80", file)->token, "s3cret");
  EXPECT_THAT(std::string(at("0.0.0.0:80").status().message()),
              AllOf(HasSubstr("--http = \"0.0.0.0:80\""), HasSubstr("--http-token")));
  EXPECT_THAT(std::string(at("unix:/x").status().message()), HasSubstr("not a Unix socket"));
  EXPECT_THAT(std::string(at("here").status().message()), HasSubstr("--http"));
  ASSERT_TRUE(AtomicWriteFile(file, "\n").ok());
  EXPECT_THAT(std::string(at("0.0.0.0:80", file).status().message()), HasSubstr("is empty"));
}

}  // namespace
}  // namespace macaw::cli
