// The queue of a standing server.
#include "cli/standing/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/standing/standing.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using testing::HasSubstr;
using testing::Optional;

class Queue : public testing::Test {
 protected:
  std::unique_ptr<RunQueue> Open() const { return *RunQueue::Open(folder_.path()); }
  static admin::Submission Run(const std::string& name) {
    admin::Submission submission;
    submission.request_id = "id of " + name;
    submission.name = name;
    submission.by = "ada";
    submission.plan = "[run]\n";
    return submission;
  }
  static QueuedRun Find(const RunQueue& queue, const std::string& name) {
    for (QueuedRun& run : queue.runs()) {
      if (run.name == name) return run;
    }
    ADD_FAILURE() << "no run " << name;
    return {};
  }

  const testing_support::TemporaryFolder folder_;
  const absl::Time now_ = absl::FromUnixSeconds(1800000000);
};

TEST_F(Queue, RunsAreDoneInTheOrderOfTheirSubmission) {
  const auto queue = Open();
  EXPECT_EQ(*queue->Begin(now_), std::nullopt);
  for (const char* name : {"b", "a", "c"}) ASSERT_TRUE(queue->Submit(Run(name), now_).ok());
  EXPECT_EQ(*ReadFile(queue->FolderOf("a") + "/plan.toml"), "[run]\n");
  EXPECT_EQ(queue->ahead_of("c"), 2u);
  for (const char* name : {"b", "a", "c"}) {
    EXPECT_THAT(*queue->Begin(now_), Optional(std::string(name)));
    ASSERT_TRUE(queue->End(name, QueuedState::kFinished, "", now_).ok());
  }
  EXPECT_EQ(*queue->Begin(now_), std::nullopt);
}

TEST_F(Queue, AnotherServerOfTheFolderFindsEverythingAndGoesOnWithTheOpenRun) {
  {
    const auto queue = Open();
    for (const char* name : {"done", "open", "next"}) {
      ASSERT_TRUE(queue->Submit(Run(name), now_).ok());
    }
    ASSERT_TRUE(queue->Begin(now_).ok());
    ASSERT_TRUE(queue->End("done", QueuedState::kFailed, "exit code 1: no disk", now_).ok());
    EXPECT_THAT(*queue->Begin(now_), Optional(std::string("open")));
  }
  const auto queue = Open();
  EXPECT_THAT(*queue->Begin(now_ + absl::Hours(1)), Optional(std::string("open")));
  EXPECT_EQ(Find(*queue, "open").began, now_);
  const QueuedRun done = Find(*queue, "done");
  EXPECT_EQ(done.state, QueuedState::kFailed);
  EXPECT_EQ(done.why, "exit code 1: no disk");
  EXPECT_EQ(done.by, "ada");
  EXPECT_EQ(Find(*queue, "next").state, QueuedState::kWaiting);
  EXPECT_THAT(JsonOf(queue->runs()), HasSubstr("\"ended\": \"2027-01-15T08:00:00Z\""));
}

TEST_F(Queue, ASubmissionThatIsRepeatedHasNoSecondEffectAndANameIsGivenOnce) {
  const auto queue = Open();
  ASSERT_TRUE(queue->Submit(Run("a"), now_).ok());
  EXPECT_TRUE(queue->Submit(Run("a"), now_).ok());
  EXPECT_EQ(queue->runs().size(), 1u);
  admin::Submission other = Run("a");
  other.request_id = "another";
  EXPECT_TRUE(absl::IsAlreadyExists(queue->Submit(other, now_)));
  ASSERT_TRUE(MakeDirectories(queue->FolderOf("by-hand")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(queue->Submit(Run("by-hand"), now_)));
  for (const char* name : {"", "../x", ".hidden", "a b", "a/b"}) {
    EXPECT_THAT(std::string(queue->Submit(Run(name), now_).message()), HasSubstr("is no name"));
  }
}

// A full disk: the submission is refused, and comes again when there is room.
TEST_F(Queue, ANameOfASubmissionThatCouldNotBeEnteredIsFree) {
  const auto queue = Open();
  ASSERT_TRUE(MakeDirectories(folder_ / "queue.json").ok());  // cannot be written
  EXPECT_FALSE(queue->Submit(Run("a"), now_).ok());
  EXPECT_TRUE(queue->runs().empty());
  ASSERT_EQ(::rmdir((folder_ / "queue.json").c_str()), 0);
  EXPECT_TRUE(queue->Submit(Run("a"), now_).ok());
  EXPECT_EQ(queue->runs().size(), 1u);
}

TEST_F(Queue, ARunThatIsStartedAgainSaysWhyAndStaysOpen) {
  const auto queue = Open();
  ASSERT_TRUE(queue->Submit(Run("a"), now_).ok());
  ASSERT_TRUE(queue->Begin(now_).ok());
  ASSERT_TRUE(queue->Note("a", "exit code 1: no disk").ok());
  EXPECT_EQ(Find(*queue, "a").why, "exit code 1: no disk");
  EXPECT_THAT(*queue->Begin(now_), Optional(std::string("a")));
  ASSERT_TRUE(queue->Withdraw("a", "withdrawn by ada", now_).ok());
  ASSERT_TRUE(queue->Note("a", "exit code 1: no disk").ok());
  EXPECT_EQ(Find(*queue, "a").why, "withdrawn by ada");
  ASSERT_TRUE(queue->End("a", QueuedState::kInterrupted, "exit code 1", now_).ok());
  EXPECT_EQ(Find(*queue, "a").state, QueuedState::kWithdrawn);
}

TEST_F(Queue, AWithdrawnRunIsNotBegunAndAnOpenOneEndsAsWithdrawn) {
  const auto queue = Open();
  for (const char* name : {"open", "waits"}) ASSERT_TRUE(queue->Submit(Run(name), now_).ok());
  ASSERT_TRUE(queue->Begin(now_).ok());
  EXPECT_FALSE(*queue->Withdraw("waits", "withdrawn by ada", now_));
  EXPECT_TRUE(*queue->Withdraw("open", "withdrawn by ada", now_));
  EXPECT_EQ(Find(*queue, "open").state, QueuedState::kRunning);
  ASSERT_TRUE(queue->End("open", QueuedState::kInterrupted, "", now_).ok());
  EXPECT_EQ(Find(*queue, "open").state, QueuedState::kWithdrawn);
  EXPECT_EQ(Find(*queue, "open").why, "withdrawn by ada");
  EXPECT_EQ(*queue->Begin(now_), std::nullopt);
  EXPECT_TRUE(absl::IsFailedPrecondition(queue->Withdraw("open", "", now_).status()));
  EXPECT_TRUE(absl::IsNotFound(queue->Withdraw("nobody", "", now_).status()));
}

TEST_F(Queue, AFileThatItDidNotWriteIsRefused) {
  for (const char* text : {"", "{}", "[1]", "[null]", "[[]]", "[{\"name\": \"a\"}]",
                           "[{\"name\": \"a\", \"state\": \"waiting\", \"withdrawn\": \"no\"}]",
                           "[{\"name\": \"../a\", \"state\": \"waiting\"}]"}) {
    ASSERT_TRUE(AtomicWriteFile(folder_ / "queue.json", text).ok());
    EXPECT_TRUE(absl::IsDataLoss(RunQueue::Open(folder_.path()).status())) << text;
  }
}

TEST(StartPolicy, GivesUpARunThatNoStartBringsFurther) {
  StartPolicy policy(3);
  EXPECT_EQ(policy.OnFailure(0), StartPolicy::kPause);
  EXPECT_EQ(policy.OnFailure(0), StartPolicy::kPause);
  EXPECT_EQ(policy.OnFailure(2), StartPolicy::kPause) << "it has done rounds";
  EXPECT_EQ(policy.in_vain(), 0u);
  EXPECT_EQ(policy.OnFailure(1), StartPolicy::kPause) << "these are done again";
  EXPECT_EQ(policy.OnFailure(2), StartPolicy::kPause);
  EXPECT_EQ(policy.OnFailure(2), std::nullopt);
  EXPECT_EQ(policy.in_vain(), 3u);
  StartPolicy endless(0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(endless.OnFailure(0), StartPolicy::kPause);
}

TEST(SubmittedPlan, NamesNothingOfTheServersMachine) {
  const std::string complete =
      "[run]\nrounds = 2\nclients = 4\ntrain_clients = 4\ntrain_examples = 40\ntask = "
      "\"classification\"\n[model]\nname = \"logistic\"\ninput_shape = [4]\nclasses = 2\n[cohort]\n"
      "size = 2\n[algorithm]\nname = \"fedavg\"\n[data.normalise]\nscale = 1.0\nmean = [0.0]\nstd = [1.0]\n";
  EXPECT_TRUE(CheckSubmittedPlan("a", complete).ok()) << CheckSubmittedPlan("a", complete);
  const std::pair<const char*, const char*> refused[] = {
      {"[data]\npath = \"/etc/passwd\"\n", "data.path"},
      {"[data]\nsource = \"prepared\"\n", "data.source"},
      {"[state]\nurl = \"unix:/run/redis.sock\"\n", "state.url"},
      {"[server]\nlisten = \"0.0.0.0:80\"\n", "server.listen is this server's own affair"},
      {"[server]\nhttp_token = \"/etc/shadow\"\n", "server.http_token"},
      {"[workers]\ncommand = [\"sh\"]\n", "workers.command"},
  };
  for (const auto& [text, expected] : refused) {
    EXPECT_THAT(std::string(CheckSubmittedPlan("a", complete + text).message()),
                HasSubstr(expected));
  }
  EXPECT_THAT(
      std::string(CheckSubmittedPlan("a", "plugins = [\"/tmp/x.so\"]\n" + complete).message()),
      HasSubstr("plugins"));
  EXPECT_THAT(std::string(CheckSubmittedPlan("a", "[run]\nrounds = 2\n").message()),
              HasSubstr("macaw plan"));
  EXPECT_THAT(std::string(CheckSubmittedPlan("a", "rounds = ").message()), HasSubstr("a:1"));
}

}  // namespace
}  // namespace macaw::cli
