// States a second and bytes a second of each store of client states, beside a plain file and plain
// Redis pipelines that move the same bytes: what headers, checksums, copies and names cost.
//
// A part is 100 states (fewer of large ones) written and flushed, as a worker does before a commit;
// then the same number is read in random order. Figures are the best of several repetitions; the
// page cache is warm but for the lines that say cold, where it was dropped before each repetition.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/simulate/private_redis.h"
#include "core/child.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/random.h"
#include "core/status.h"
#include "state/blob.h"
#include "state/cached_store.h"
#include "state/disk_store.h"
#include "state/memory_store.h"
#include "state/redis_store.h"

namespace macaw {
namespace {

using state::ClientStateStore;

constexpr size_t kPart = 100;                        // states between two flushes, as of a cohort
constexpr uint64_t kPartBytes = uint64_t{40} << 20;  // or fewer, of large ones

struct Job {
  uint64_t floats = 0;  // of a state
  size_t states = 0;
  uint64_t bytes() const { return floats * sizeof(float); }
  size_t part() const { return std::clamp<size_t>(kPartBytes / bytes(), 1, kPart); }
};

// Something that keeps states: a part of them at a time, by number.
struct Subject {
  std::string name;
  std::function<absl::Status(size_t first, size_t count)> put;
  std::function<absl::Status(std::span<const size_t> which)> get;
  std::function<void()> before_reads = [] {};
};

struct Result {
  double put = 0, get = 0;  // seconds for all states, the best
};

// Vectors of all states, so that no two have the same bytes.
std::vector<float> Contents(const Job& job, size_t i) {
  RandomStream stream({.seed = 1, .extra = i});
  std::vector<float> values(job.floats);
  stream.FillNormal(values);
  return values;
}

Attempt VersionOf(size_t i, uint64_t base) { return {ClientId(i), {1, base + i + 1}}; }

std::vector<size_t> RandomOrder(size_t count) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  RandomStream({.seed = 2}).Shuffle(std::span(order));
  return order;
}

absl::StatusOr<Result> Measure(const Subject& subject, const Job& job) {
  Result result;
  const TimePoint start = SteadyClock().Now();
  for (size_t first = 0; first < job.states; first += job.part())
    MACAW_RETURN_IF_ERROR(subject.put(first, std::min(job.part(), job.states - first)));
  result.put = ToSeconds(SteadyClock().Now() - start);
  subject.before_reads();
  const std::vector<size_t> order = RandomOrder(job.states);
  const TimePoint middle = SteadyClock().Now();
  for (size_t first = 0; first < job.states; first += job.part())
    MACAW_RETURN_IF_ERROR(
        subject.get(std::span(order).subspan(first, std::min(job.part(), job.states - first))));
  result.get = ToSeconds(SteadyClock().Now() - middle);
  return result;
}

class Bench {
 public:
  Bench(Job job, std::string folder, std::string redis)
      : job_(job),
        folder_(std::move(folder)),
        redis_(std::move(redis)),
        schema_({ParameterLayout::Scalars("control", job.floats, DType::kF32)}) {
    vectors_.reserve(job.part());
    for (size_t i = 0; i < job.part(); ++i) {  // reused by every part: making them is not measured
      FlatVector vector(schema_[0]);
      std::ranges::copy(Contents(job, i), vector.As<float>().begin());
      vectors_.push_back(std::move(vector));
    }
  }

  // Each call makes a fresh subject: no version is written twice.
  absl::StatusOr<Subject> Make(const std::string& name) {
    std::filesystem::remove_all(folder_);
    MACAW_RETURN_IF_ERROR(MakeDirectories(folder_));
    base_ += 10 * job_.states;
    if (name.starts_with("plain file")) return PlainFile(name);
    if (name == "plain Redis pipeline") return PlainRedis(name);
    MACAW_ASSIGN_OR_RETURN(store_, Store(name));
    Subject subject = OfStore(name);
    if (name == "disk, cold") subject.before_reads = [this] { DropCache(); };
    return subject;
  }

 private:
  absl::StatusOr<std::unique_ptr<ClientStateStore>> Store(const std::string& name) {
    const Digest run = DigestOf(absl::StrCat("bench ", ++runs_));
    if (name == "memory")
      return std::make_unique<state::MemoryStateStore>(schema_, uint64_t{1} << 40);
    if (name.starts_with("Redis"))
      return state::RedisStateStore::Open({.url = *state::ParseRedisUrl(redis_)}, schema_, run);
    MACAW_ASSIGN_OR_RETURN(
        std::unique_ptr<ClientStateStore> disk,
        state::DiskStateStore::Open(folder_, schema_, run,
                                    name == "disk, no sync"
                                        ? state::DiskStateStore::Durability::kProcess
                                        : state::DiskStateStore::Durability::kMachine));
    if (name != "disk, all in the tier") return disk;
    return std::make_unique<state::CachedStateStore>(std::move(disk), uint64_t{1} << 40);
  }

  Subject OfStore(const std::string& name) {
    return {.name = name,
            .put = [this](size_t first, size_t count) -> absl::Status {
              std::vector<state::NamedBlob> blobs;
              for (size_t i = first; i < first + count; ++i) {
                const ConstVectorView views[] = {vectors_[i - first].view()};
                MACAW_ASSIGN_OR_RETURN(AlignedBuffer blob,
                                       state::EncodeBlob(VersionOf(i, base_), views, schema_));
                blobs.push_back(
                    {VersionOf(i, base_), std::make_shared<const AlignedBuffer>(std::move(blob))});
              }
              MACAW_RETURN_IF_ERROR(store_->PutBlobs(blobs));
              return store_->Flush();
            },
            .get = [this](std::span<const size_t> which) -> absl::Status {
              std::vector<Attempt> versions;
              for (const size_t i : which) versions.push_back(VersionOf(i, base_));
              std::vector<absl::StatusOr<state::BlobPtr>> blobs = store_->GetBlobs(versions);
              for (size_t i = 0; i < versions.size(); ++i) {
                MACAW_RETURN_IF_ERROR(blobs[i].status());
                MACAW_RETURN_IF_ERROR(
                    state::OpenBlob(*std::move(blobs[i]), versions[i], schema_).status());
              }
              return absl::OkStatus();
            }};
  }

  // One file, a record after the other, one sync a part; reads into a buffer of their own.
  Subject PlainFile(const std::string& name) {
    const auto fd = std::make_shared<Fd>(
        ::open((folder_ + "/plain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    Subject subject{.name = name,
                    .put = [this, fd, sync = name != "plain file, no sync"](
                               size_t first, size_t count) -> absl::Status {
                      for (size_t i = first; i < first + count; ++i) {
                        const auto offset = static_cast<off_t>(i * job_.bytes());
                        if (::pwrite(fd->get(), vectors_[i - first].view().bytes.data(),
                                     job_.bytes(), offset) != static_cast<ssize_t>(job_.bytes()))
                          return absl::ErrnoToStatus(errno, "cannot write");
                      }
                      return !sync || ::fdatasync(fd->get()) == 0
                                 ? absl::OkStatus()
                                 : absl::ErrnoToStatus(errno, "cannot sync");
                    },
                    .get = [this, fd](std::span<const size_t> which) -> absl::Status {
                      for (const size_t i : which) {
                        auto buffer = AlignedBuffer::Unset(job_.bytes());
                        const auto offset = static_cast<off_t>(i * job_.bytes());
                        if (::pread(fd->get(), buffer.bytes().data(), job_.bytes(), offset) !=
                            static_cast<ssize_t>(job_.bytes()))
                          return absl::ErrnoToStatus(errno, "cannot read");
                      }
                      return absl::OkStatus();
                    }};
    if (name == "plain file, cold") subject.before_reads = [this] { DropCache(); };
    return subject;
  }

  // A part is one pipeline of SET, or of GET.
  Subject PlainRedis(const std::string& name) {
    const auto pool = std::make_shared<state::RedisPool>(
        state::RedisPool::Options{.url = *state::ParseRedisUrl(redis_)});
    const auto keys = [this](std::span<const size_t> which) {
      std::vector<std::string> keys;
      for (const size_t i : which) keys.push_back(absl::StrCat("plain:", base_ + i));
      return keys;
    };
    return {
        .name = name,
        .put =
            [this, pool, keys](size_t first, size_t count) {
              std::vector<size_t> which;
              for (size_t i = first; i < first + count; ++i) which.push_back(i);
              const std::vector<std::string> names = keys(which);
              std::vector<state::RedisCommand> commands;
              for (size_t i = 0; i < count; ++i) {
                const auto bytes = vectors_[i].view().bytes;
                commands.push_back(
                    {"SET", names[i],
                     absl::string_view(reinterpret_cast<const char*>(bytes.data()), job_.bytes())});
              }
              return pool->Call(commands).status();
            },
        .get =
            [pool, keys](std::span<const size_t> which) {
              const std::vector<std::string> names = keys(which);
              std::vector<state::RedisCommand> commands;
              for (const std::string& key : names) commands.push_back({"GET", key});
              return pool->Call(commands).status();
            }};
  }

  // Of this folder's files, as far as the kernel listens.
  void DropCache() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const Fd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
      (void)::fdatasync(fd.get());
      (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  }

  const Job job_;
  const std::string folder_, redis_;
  const state::StateSchema schema_;
  std::vector<FlatVector> vectors_;
  std::unique_ptr<ClientStateStore> store_;
  uint64_t base_ = 0;
  uint64_t runs_ = 0;
};

void FlushRedis(const std::string& url) {
  state::RedisPool pool({.url = *state::ParseRedisUrl(url)});
  const state::RedisCommand all[] = {{"FLUSHALL"}};
  (void)pool.Call(all);
}

absl::Status Run(const std::string& folder, int repetitions, uint64_t megabytes) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder + "/logs"));
  MACAW_ASSIGN_OR_RETURN(const cli::PrivateRedis redis, cli::PrivateRedis::Start(folder));
  for (const uint64_t floats : {uint64_t{610}, uint64_t{44426}, uint64_t{1000000}}) {
    const size_t states =
        std::clamp<size_t>((megabytes << 20) / (floats * sizeof(float)), 20, 20000);
    const Job job{.floats = floats, .states = states};
    std::cout << absl::StrFormat("\n%d states of %d floats (%d bytes), parts of %d, best of %d\n",
                                 job.states, job.floats, job.bytes(), job.part(), repetitions)
              << absl::StrFormat("%-28s %12s %8s   %12s %8s\n", "", "put states/s", "GB/s",
                                 "get states/s", "GB/s")
              << std::flush;
    for (const char* name : {"memory", "disk, all in the tier", "disk", "disk, no sync",
                             "plain file", "plain file, no sync", "disk, cold", "plain file, cold",
                             "Redis", "plain Redis pipeline"}) {
      Result best;
      for (int i = 0; i < repetitions; ++i) {
        Bench bench(job, folder + "/disk", redis.url());
        MACAW_ASSIGN_OR_RETURN(const Subject subject, bench.Make(name));
        MACAW_ASSIGN_OR_RETURN(const Result result, Measure(subject, job));
        best.put = i == 0 ? result.put : std::min(best.put, result.put);
        best.get = i == 0 ? result.get : std::min(best.get, result.get);
        if (std::string(name).find("Redis") != std::string::npos) FlushRedis(redis.url());
      }
      const auto count = static_cast<double>(job.states);
      const double gigabytes = count * static_cast<double>(job.bytes()) / 1e9;
      std::cout << absl::StrFormat("%-28s %12.0f %8.3f   %12.0f %8.3f\n", name, count / best.put,
                                   gigabytes / best.put, count / best.get, gigabytes / best.get)
                << std::flush;
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("States and bytes a second of each store of client states", "bench_state");
  std::string folder = "runs/bench_state";
  int repetitions = 3;
  uint64_t megabytes = 64;
  app.add_option("--folder", folder, "Where to write; removed afterwards")->capture_default_str();
  app.add_option("--repetitions", repetitions, "The best one counts")->capture_default_str();
  app.add_option("--megabytes", megabytes, "Of states, a repetition")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  ::signal(SIGPIPE, SIG_IGN);
  const absl::Status status = Run(folder, std::max(repetitions, 1), megabytes);
  std::filesystem::remove_all(folder);
  if (status.ok()) return 0;
  std::cerr << "bench_state: error: " << status.message() << std::endl;
  return 1;
}

}  // namespace
}  // namespace macaw

int main(int argc, char** argv) { return macaw::Main(argc, argv); }
