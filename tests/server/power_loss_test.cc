// The machine of a server with durable commits loses its power. At that moment a file has what was
// synced, and of the bytes after that any part, or zeros. Whatever is left, the next server must
// know every commit that was acknowledged.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "server/opening.h"
#include "testing/file_limit.h"
#include "tests/server/tiny_run.h"

namespace {

// The disk as this process sees it. Syncing a file only notes its size, and calls `before`.
struct Disk {
  std::mutex mutex;
  std::map<std::string, uint64_t> synced;  // sizes, by path
  std::function<void()> before;
};
Disk& TheDisk() {
  static auto* const disk = new Disk();
  return *disk;
}

int NoteSync(int fd) {
  char path[4096] = {};
  const ssize_t size =
      ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof(path) - 1);
  if (size <= 0) return 0;
  Disk& disk = TheDisk();
  if (disk.before) disk.before();
  const std::lock_guard lock(disk.mutex);
  std::error_code ignored;
  disk.synced[path] = std::filesystem::file_size(path, ignored);
  return 0;
}

}  // namespace

// In place of the C library's.
extern "C" int fdatasync(int fd) { return NoteSync(fd); }
extern "C" int fsync(int fd) { return NoteSync(fd); }

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::RunBytes;
using fixtures::Slurp;
using fixtures::StartTiny;
using fixtures::TinyModel;
using fixtures::TinyOptions;
using testing_support::TemporaryFolder;
namespace fs = std::filesystem;

constexpr uint32_t kRounds = 6;

Options DurableOptions(const std::string& run_dir) {
  Options options = TinyOptions(run_dir, kRounds);
  options.config.durability = "commit";
  options.config.checkpoint_every = 2;
  return options;
}

using Commits = std::set<std::pair<Round, Attempt>>;

// Files that a run appends to. All others are replaced as a whole.
bool IsAppendedTo(const std::string& name) {
  return name == "rounds.log" || name == "metrics.jsonl" || name == "journal/nodes" ||
         absl::StartsWith(name, "journal/parts-");
}

// A run's folder at the moment when the power fails.
struct Moment {
  std::map<std::string, std::string> files;  // with everything that was written
  std::map<std::string, uint64_t> synced;    // sizes of those that are appended to
  Commits acknowledged;
};

void WriteTo(const std::string& folder, const std::map<std::string, std::string>& files) {
  fs::remove_all(folder);
  for (const auto& [name, bytes] : files) {
    const fs::path path = fs::path(folder) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
}

enum class End : uint8_t { kInterrupted, kFinished };

// A run of two workers. The second one joins in round 3. The power may fail before each sync, and
// after the last one.
class RunWithMoments {
 public:
  explicit RunWithMoments(End end) {
    TheDisk().before = [this] { Take(); };
    const auto coordinator = StartTiny(DurableOptions(folder_.path()));
    FakeWorker first(*coordinator, "first"), second(*coordinator, "second");
    EXPECT_TRUE(first.Register().ok());
    Work(first, 2);
    EXPECT_TRUE(second.Register().ok());
    // Behind the newest checkpoint, so that a round is lost if the last one is not written.
    const uint32_t last = end == End::kFinished ? UINT32_MAX : 5;
    std::thread beside([&] { Work(first, last); });
    Work(second, last);
    beside.join();
    if (end == End::kInterrupted) (void)first.Work();  // round 5 is closed
    {
      const std::lock_guard lock(TheDisk().mutex);
      running_ = moments_.size();
    }
    if (end == End::kInterrupted) coordinator->Interrupt();
    const auto outcome = coordinator->Wait();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    TheDisk().before = nullptr;
    Take();
    if (!outcome.ok()) return;
    // An interruption drops the open round.
    for (size_t i = running_; i < moments_.size(); ++i) {
      std::erase_if(moments_[i].acknowledged,
                    [&](const auto& one) { return one.first.value > outcome->rounds; });
    }
  }

  const std::vector<Moment>& moments() const { return moments_; }
  size_t running() const { return running_; }  // moments before the interruption

 private:
  void Work(FakeWorker& worker, uint32_t last_round) {
    while (const auto request = worker.Work()) {
      ASSERT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
      if (!request->part.has_value()) continue;
      {
        const std::lock_guard lock(TheDisk().mutex);
        for (const fleet::ClientRecord& record : request->part->included)
          acknowledged_.emplace(request->part->round, record.attempt);
      }
      if (request->part->round.value >= last_round) return;
    }
  }

  void Take() {  // on the thread that writes the folder
    Moment moment;
    {
      const std::lock_guard lock(TheDisk().mutex);
      moment.acknowledged = acknowledged_;
      const std::string prefix = fs::canonical(folder_.path()).string() + "/";
      for (const auto& [path, size] : TheDisk().synced) {
        if (absl::StartsWith(path, prefix)) moment.synced[path.substr(prefix.size())] = size;
      }
    }
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      const std::string path = entry.path().string();
      if (entry.is_regular_file() && !path.ends_with(".part"))
        moment.files[path.substr(folder_.path().size() + 1)] = Slurp(path);
    }
    const std::lock_guard lock(TheDisk().mutex);
    moments_.push_back(std::move(moment));
  }

  const TemporaryFolder folder_;
  Commits acknowledged_;
  std::vector<Moment> moments_;
  size_t running_ = 0;
};

// Both workers start again, under their names, and work until the run ends.
void FinishWithBoth(Coordinator& coordinator) {
  FakeWorker first(coordinator, "first"), second(coordinator, "second");
  first.identity().incarnation = second.identity().incarnation = 8;
  ASSERT_TRUE(first.Register().ok());
  ASSERT_TRUE(second.Register().ok());
  std::thread beside([&] { first.RunToEnd(); });
  second.RunToEnd();
  beside.join();
  const auto outcome = coordinator.Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

const RunWithMoments& TheRun(End end = End::kInterrupted) {
  static const auto* const interrupted = new RunWithMoments(End::kInterrupted);
  static const auto* const finished = new RunWithMoments(End::kFinished);
  return end == End::kFinished ? *finished : *interrupted;
}

// The acknowledged commits that a server does not know which opens the folder.
Commits Forgotten(const std::string& folder, Commits acknowledged) {
  Options options = DurableOptions(folder);
  options.resume = true;
  const absl::StatusOr<Opening> opening =
      Open(std::move(options), TinyModel(), fixtures::Registry());
  const bool over = absl::IsOutOfRange(opening.status());  // it has its last checkpoint
  if (over && FileExists(folder + "/summary.json") && FileExists(folder + "/model.safetensors"))
    return {};
  EXPECT_TRUE(opening.ok()) << opening.status();
  if (!opening.ok()) return acknowledged;
  std::erase_if(acknowledged,
                [&](const auto& one) { return one.first.value <= opening->engine.completed; });
  for (const auto& [place, story] : opening->restored.phases) {
    for (const Restored::AcceptedPart& accepted : story.accepted) {
      for (const fleet::ClientRecord& record : accepted.part.included)
        acknowledged.erase({place.first, record.attempt});
    }
  }
  return acknowledged;
}

// Sizes to which a file may have been cut: about `most` between what was synced and what was
// written.
std::vector<uint64_t> CutsOf(const Moment& moment, const std::string& name, uint64_t most) {
  const uint64_t written = moment.files.at(name).size();
  const auto synced = moment.synced.find(name);
  const uint64_t from = synced == moment.synced.end() ? 0 : std::min(synced->second, written);
  std::vector<uint64_t> cuts;
  const uint64_t step = std::max<uint64_t>(1, (written - from) / most);
  for (uint64_t at = from; at < written; at += step) cuts.push_back(at);
  cuts.push_back(written);
  return cuts;
}

enum class Others : uint8_t { kWhole, kAsSynced };
enum class Tail : uint8_t { kCut, kZeros };

std::map<std::string, std::string> Left(const Moment& moment, const std::string& name, uint64_t cut,
                                        Others others, Tail tail) {
  std::map<std::string, std::string> files = moment.files;
  for (auto& [other, bytes] : files) {
    if (!IsAppendedTo(other)) continue;
    if (other == name) {
      const size_t written = bytes.size();
      bytes.resize(cut);
      if (tail == Tail::kZeros) bytes.resize(written, '\0');
    } else if (others == Others::kAsSynced) {
      bytes.resize(CutsOf(moment, other, 1).front());
    }
  }
  return files;
}

class PowerLossOfARun : public testing::TestWithParam<End> {};

TEST_P(PowerLossOfARun, KeepsEveryAcknowledgedCommit) {
  const TemporaryFolder folder;
  const std::string left = folder / "run";
  const std::vector<Moment>& moments = TheRun(GetParam()).moments();
  ASSERT_GT(moments.size(), 12u);
  size_t powers_lost = 0;
  for (size_t i = 0; i < moments.size(); ++i) {
    const Moment& moment = moments[i];
    if (moment.acknowledged.empty()) continue;
    for (const auto& [name, bytes] : moment.files) {
      if (!IsAppendedTo(name)) continue;
      for (const uint64_t cut : CutsOf(moment, name, 8)) {
        for (const Others others : {Others::kWhole, Others::kAsSynced}) {
          for (const Tail tail : {Tail::kCut, Tail::kZeros}) {
            if (tail == Tail::kZeros && cut == bytes.size()) continue;
            WriteTo(left, Left(moment, name, cut, others, tail));
            ++powers_lost;
            ASSERT_THAT(Forgotten(left, moment.acknowledged), testing::IsEmpty())
                << "moment " << i << ", " << name << " cut at " << cut << " of " << bytes.size()
                << (others == Others::kWhole ? "" : ", the others as synced")
                << (tail == Tail::kCut ? "" : ", then zeros");
          }
        }
      }
    }
  }
  EXPECT_GT(powers_lost, 500u);
}

TEST_P(PowerLossOfARun, EndsWithTheModelThatItHasWithoutIt) {
  const TemporaryFolder whole, folder;
  Finish(DurableOptions(whole.path()));
  const RunBytes expected(whole.path());
  const std::vector<Moment>& moments = TheRun(GetParam()).moments();
  for (size_t i = 0; i < moments.size(); ++i) {
    if (moments[i].acknowledged.empty()) continue;
    const Others others = i % 2 == 0 ? Others::kAsSynced : Others::kWhole;
    const bool has_nodes = moments[i].files.contains("journal/nodes");  // not after its end
    const std::string name = i % 3 == 0 && has_nodes ? "journal/nodes" : "rounds.log";
    const std::string left = folder / absl::StrCat("run-", i);
    const std::vector<uint64_t> cuts = CutsOf(moments[i], name, 3);
    WriteTo(left, Left(moments[i], name, cuts[i % cuts.size()], others, Tail::kCut));
    Options options = DurableOptions(left);
    options.resume = true;
    auto coordinator = Coordinator::Start(options, TinyModel(), fixtures::Registry());
    const bool over = GetParam() == End::kFinished && absl::IsOutOfRange(coordinator.status());
    ASSERT_TRUE(over || coordinator.ok()) << coordinator.status();
    if (!over) FinishWithBoth(**coordinator);
    EXPECT_EQ(RunBytes(left), expected) << "moment " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ends, PowerLossOfARun, testing::Values(End::kInterrupted, End::kFinished));

// A file that is lost although it was synced is no crash. Then the server may go back to a
// checkpoint, or refuse, but it must not count on what is lost.
TEST(PowerLoss, AFileThatIsLostAloneEndsInTheSameModelOrARefusal) {
  const TemporaryFolder whole, folder;
  Finish(DurableOptions(whole.path()));
  const RunBytes expected(whole.path());
  const std::vector<Moment>& moments = TheRun().moments();
  const Moment& newest = moments[TheRun().running() - 1];
  const Moment& earlier = moments[TheRun().running() / 2];
  size_t refused = 0, ended = 0;
  for (const auto& [name, bytes] : newest.files) {
    if (name == "run-id" || name == "epoch") continue;
    for (const bool stale : {false, true}) {
      std::map<std::string, std::string> files = newest.files;
      files.erase(name);
      const auto old = earlier.files.find(name);
      if (stale && old == earlier.files.end()) continue;
      if (stale) files[name] = old->second;
      const std::string left = folder / absl::StrCat("run-", ended + refused);
      WriteTo(left, files);
      Options options = DurableOptions(left);
      options.resume = true;
      const absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
          Coordinator::Start(options, TinyModel(), fixtures::Registry());
      if (!coordinator.ok()) {
        ++refused;
        EXPECT_THAT(std::string(coordinator.status().message()), testing::HasSubstr(left));
        continue;
      }
      FinishWithBoth(**coordinator);
      ++ended;
      const RunBytes got(left);
      EXPECT_EQ(got.digest, expected.digest) << name << (stale ? " is stale" : " is lost");
    }
  }
  EXPECT_GT(ended, 4u);
}

TEST(PowerLoss, ACommitThatCouldNotBeWrittenIsNotAcknowledged) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(DurableOptions(folder.path()));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  worker.RunThrough(1);
  const auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  absl::StatusOr<fleet::CommitReply> reply = absl::UnknownError("none");
  {
    const macaw::testing_support::FileLimit full(fs::file_size(folder / "journal/parts-1"));
    reply = worker.link().Commit(*request);
    EXPECT_FALSE(coordinator->Wait().ok());
  }
  EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
}

// A disk that is full for a minute: the run goes on inside the round afterwards, so nobody may hear
// that it is over.
TEST(PowerLoss, AFullDiskEndsTheServerAndNotTheRun) {
  const TemporaryFolder undisturbed;
  Finish(DurableOptions(undisturbed.path()));
  const TemporaryFolder folder;
  {
    const auto coordinator = StartTiny(DurableOptions(folder.path()));
    FakeWorker worker(*coordinator, "first");
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(1);
    const auto request = worker.WorkOnPart();
    ASSERT_TRUE(request.has_value());
    FakeWorker waiting(*coordinator, "second");
    ASSERT_TRUE(waiting.Register().ok());
    const auto ask = [&waiting] {
      return waiting.link().Lease({.session = waiting.session(), .wanted = 1}).status();
    };
    std::future<absl::Status> heard = std::async(std::launch::async, [&] {
      absl::StatusOr<fleet::LeaseReply> reply = fleet::LeaseReply{};
      while (reply.ok() && reply->next != fleet::Next::kFinished) {
        reply = waiting.link().Lease(
            {.session = waiting.session(), .wanted = 0, .wait = FromSeconds(60)});
      }
      return reply.status();
    });
    const macaw::testing_support::FileLimit full(fs::file_size(folder / "journal/parts-1"));
    EXPECT_TRUE(absl::IsUnavailable(worker.link().Commit(*request).status()));
    const absl::Status why = coordinator->Wait().status();
    EXPECT_THAT(std::string(why.message()), testing::HasSubstr("journal/parts-1"));
    const absl::Status told = heard.get();
    EXPECT_TRUE(absl::IsUnavailable(told)) << told;
    EXPECT_TRUE(absl::IsUnavailable(ask())) << ask();
  }
  Options options = DurableOptions(folder.path());
  options.resume = true;
  FinishWithBoth(*StartTiny(std::move(options)));
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(folder.path()));
}

}  // namespace
}  // namespace macaw::server
