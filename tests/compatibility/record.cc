// Writes the recording of this release: record_fleet FOLDER. From fixed seeds, so a second call
// writes the same messages; the killed run has other times and a new name.
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "proto/wire/limits.h"
#include "testing/random_message.h"
#include "tests/compatibility/recording.h"
#include "tests/server/tiny_run.h"

namespace macaw::compatibility {
namespace {

using server::fixtures::FakeWorker;
using server::fixtures::StartTiny;
using server::fixtures::TemporaryFolder;
using server::fixtures::TinyOptions;

constexpr wire::InlineRule kInline{.max_inline = 1000};

Message Recorded(const google::protobuf::Message& message) {
  return {.type = message.GetTypeName(),
          .bytes = message.SerializeAsString(),
          .text = message.ShortDebugString()};
}

std::vector<Message> EachMessage() {
  std::vector<Message> messages;
  wire::RandomMessage random(1);
  wire::ForEachConvertedMessage(
      random, [&](const auto& message, const auto&) { messages.push_back(Recorded(message)); });
  messages.push_back(Recorded(random.Make<v1::Chunk>()));
  messages.push_back(Recorded(random.Make<v1::DownloadRequest>()));
  messages.push_back(Recorded(random.Make<v1::UploadReply>()));
  messages.push_back(Recorded(random.Make<v1::EnrolRequest>()));
  messages.push_back(Recorded(random.Make<v1::EnrolReply>()));
  messages.push_back(Recorded(random.Make<v1::RenewRequest>()));
  messages.push_back(Recorded(random.Make<v1::Refusal>()));
  return messages;
}

// Drives a worker through the first round and keeps what it sends.
class Session {
 public:
  std::vector<Call> Record() {
    const fleet::HelloRequest hello{wire::kProtocolMajor, wire::kProtocolMinor,
                                    "macaw-worker " MACAW_VERSION};
    Keep("Hello", wire::ToWire(hello));
    Keep("Register", wire::ToWire(worker_.identity(), kInline));
    EXPECT_TRUE(worker_.Register().ok());
    bool trained = false;
    while (!trained) {
      const auto running = static_cast<uint32_t>(commit_.part ? commit_.part->included.size() : 0);
      const fleet::LeaseRequest lease{
          .session = session_, .wanted = 1, .running = running, .wait = FromSeconds(1)};
      Keep("Lease", wire::ToWire(lease));
      const fleet::LeaseReply reply = worker_.Lease();
      if (reply.evaluation.has_value()) worker_.Evaluate(*reply.evaluation, commit_);
      if (reply.training.has_value()) Train(*reply.training);
      trained = reply.next == fleet::Next::kCommit || (reply.training && reply.training->last);
      if (trained || !commit_.part.has_value()) Commit();
    }
    return std::move(calls_);
  }

 private:
  template <typename Proto>
  void Keep(const std::string& method, const Proto& message) {
    calls_.push_back({method, message.SerializeAsString()});
  }

  void Train(const fleet::TrainingLease& lease) {
    fleet::HeartbeatRequest beat{.session = session_, .progress = calls_.size()};
    for (const fleet::Assignment& assignment : lease.assignments)
      beat.held.push_back({assignment.client, assignment.fence});
    Keep("Heartbeat", wire::ToWire(beat));
    worker_.Train(lease, commit_);
  }

  void Commit() {
    if (commit_.part.has_value()) {
      std::vector<server::fixtures::Summand> summands;
      for (const fleet::ClientRecord& record : commit_.part->included)
        summands.push_back({record.attempt.client, record.weight, record.multiplicity});
      commit_.part->sums = worker_.Sums(summands);
    }
    Keep("Commit", wire::ToWire(commit_, kInline));
    fleet::CommitRequest own = commit_;
    own.session = worker_.session();
    EXPECT_EQ(worker_.Commit(own).verdict, fleet::Verdict::kAccepted);
    commit_ = {.session = session_, .commit_id = commit_.commit_id + 1};
  }

  const TemporaryFolder folder_;
  const std::unique_ptr<server::Coordinator> coordinator_ =
      StartTiny(TinyOptions(folder_.path(), 1));
  FakeWorker worker_{*coordinator_};
  const SessionId session_{kSession};
  fleet::CommitRequest commit_{.session = session_, .commit_id = 1};
  std::vector<Call> calls_;
};

std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = std::filesystem::relative(entry.path(), folder).string();
    if (entry.is_regular_file() && path != ".lock") files[path] = *ReadFile(entry.path());
  }
  return files;
}

KilledRun RecordKilledRun() {
  const TemporaryFolder whole, killed;
  server::fixtures::Finish(TinyOptions(whole.path(), 3));
  server::Options options = TinyOptions(killed.path(), 3);
  options.config.durability = "commit";
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  EXPECT_TRUE(worker.Register().ok());
  worker.RunThrough(1);
  fleet::CommitRequest commit = *worker.WorkOnPart();
  commit.part->included.resize(1);
  const fleet::ClientRecord& only = commit.part->included[0];
  commit.part->sums = worker.Sums({{only.attempt.client, only.weight, only.multiplicity}});
  EXPECT_EQ(worker.Commit(commit).verdict, fleet::Verdict::kAccepted);
  KilledRun run{.files = FilesIn(killed.path()),
                .digest = server::fixtures::RunBytes(whole.path()).digest};
  coordinator->Interrupt();
  EXPECT_FALSE(worker.Work().has_value());
  return run;
}

int Main(const std::string& folder) {
  const Recording recording{.version = MACAW_VERSION,
                            .messages = EachMessage(),
                            .session = Session().Record(),
                            .killed = RecordKilledRun()};
  const std::string path = absl::StrCat(folder, "/fleet-", recording.version, ".json");
  const absl::Status written = AtomicWriteFile(path, ToJson(recording));
  std::printf("%s: %s\n", path.c_str(), written.ToString().c_str());
  return written.ok() && !testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace
}  // namespace macaw::compatibility

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: record_fleet FOLDER\n");
    return 2;
  }
  return macaw::compatibility::Main(arguments[1]);
}
