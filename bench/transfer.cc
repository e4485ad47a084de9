// How fast blobs travel between server and worker, beside memcpy: a broadcast of 4 bytes a
// parameter down and a sum of 8 bytes a parameter up, over a private Unix socket, for 1e3 … 1e8
// parameters. Naming a blob (BlobDigest) is a column of its own. Best of several. Beyond 1 MiB the
// other side maps the blob, page by page; "send" has it sent instead, "tcp" sent over loopback TCP,
// "kept" so, and uploads written to files on their way (partial_uploads).
//
//   bench_transfer [LARGEST [send | tcp | kept]]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/blob_digest.h"
#include "core/random.h"
#include "proto/fleet/link.h"
#include "proto/wire/remote.h"
#include "proto/wire/shared_memory.h"
#include "testing/forwarding.h"

namespace macaw::bench {
namespace {

// Serves one blob, and takes every commit without looking at it.
class OneBlob final : public fleet::AnsweringHandler {
 public:
  void Commit(const fleet::Caller&, fleet::CommitRequest,
              fleet::Reply<fleet::CommitReply> reply) override {
    std::move(reply)(fleet::CommitReply{.verdict = fleet::Verdict::kAccepted});
  }
  std::shared_ptr<const AlignedBuffer> FindBlob(const fleet::Caller&,
                                                const Digest& digest) override {
    absl::MutexLock lock(&mutex_);
    return blob_.digest == digest ? blob_.bytes : nullptr;
  }
  void Serve(fleet::Blob blob) {
    absl::MutexLock lock(&mutex_);
    blob_ = std::move(blob);
  }

 private:
  absl::Mutex mutex_;
  fleet::Blob blob_ ABSL_GUARDED_BY(mutex_);
};

template <typename F>
double Best(const F& run) {
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int i = 0; i < 200 && (i < 3 || spent < 1.0); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (!run()) return 0;
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::min(best, took);
    spent += took;
  }
  return best;
}

AlignedBuffer RandomBytes(size_t size, uint64_t seed) {
  AlignedBuffer buffer = AlignedBuffer::Shareable(size);  // as senders make it
  RandomStream({.seed = seed}).FillU64(buffer.As<uint64_t>());
  return buffer;
}

absl::Status Row(OneBlob& handler, fleet::FleetLink& link, uint64_t parameters) {
  const size_t down_bytes = 4 * parameters, up_bytes = 8 * parameters;
  AlignedBuffer from = RandomBytes(up_bytes, parameters), to = AlignedBuffer::Unset(up_bytes);
  const double copied = Best([&] {
    std::memcpy(to.bytes().data(), from.bytes().data(), up_bytes);
    return true;
  });
  to = AlignedBuffer();
  const double named = Best([&] { return !BlobDigest(std::as_const(from).bytes()).IsZero(); });
  const fleet::Blob up = fleet::Blob::Of(std::move(from));
  const fleet::Blob down = fleet::Blob::Of(RandomBytes(down_bytes, parameters + 1));
  handler.Serve(down);
  const fleet::Blob name{
      .digest = down.digest, .size = down.size, .place = wire::PublishShared(down)};
  const double fetched = Best([&] { return link.Fetch(name).ok(); });
  fleet::CommitRequest request{.session = SessionId(1)};
  request.part = fleet::Part{.round = Round(1), .sums = up};
  const double committed = Best([&] {
    ++request.commit_id;
    return link.Commit(request).ok();
  });
  if (fetched == 0 || committed == 0) return absl::InternalError("a transfer failed");
  const auto rate = [](size_t bytes, double seconds) {
    return 1e-9 * static_cast<double>(bytes) / seconds;
  };
  std::printf("%11llu | %8.2f | %8.2f | %10.3f %8.2f | %10.3f %8.2f\n",
              static_cast<unsigned long long>(parameters), rate(up_bytes, copied),
              rate(up_bytes, named), 1e3 * fetched, rate(down_bytes, fetched), 1e3 * committed,
              rate(up_bytes, committed));
  std::fflush(stdout);
  return absl::OkStatus();
}

enum class Way : uint8_t { kMap, kSend, kTcp, kKept };

absl::Status Main(uint64_t largest, Way way) {
  const bool share = way == Way::kMap;
  const std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/macaw-transfer-", getpid());
  std::filesystem::create_directories(folder);
  OneBlob handler;
  absl::Status status;
  {
    auto server = wire::FleetServer::Start(
        {.listen = way >= Way::kTcp ? "127.0.0.1:0" : "unix:" + folder + "/socket",
         .share_memory = share,
         .partial_uploads = way == Way::kKept ? folder + "/uploads" : ""},
        handler);
    if (!server.ok()) return server.status();
    auto link = wire::Dial({.server = (*server)->address(), .share_memory = share});
    if (!link.ok()) return link.status();
    std::printf("%11s | %8s | %8s | %19s | %19s\n", "parameters", "memcpy", "naming",
                "down, 4 B a param.", "up, 8 B a param.");
    std::printf("%11s | %8s | %8s | %10s %8s | %10s %8s\n", "", "GB/s", "GB/s", "ms", "GB/s", "ms",
                "GB/s");
    for (uint64_t parameters = 1000; status.ok() && parameters <= largest; parameters *= 10) {
      status = Row(handler, **link, parameters);
    }
  }
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  const double largest = argc > 1 ? std::atof(argv[1]) : 1e8;
  const std::string word = argc > 2 ? argv[2] : "";
  using macaw::bench::Way;
  const Way way = word == "send"   ? Way::kSend
                  : word == "tcp"  ? Way::kTcp
                  : word == "kept" ? Way::kKept
                                   : Way::kMap;
  const absl::Status status = macaw::bench::Main(static_cast<uint64_t>(largest), way);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_transfer: %s\n", std::string(status.message()).c_str());
  return 1;
}
