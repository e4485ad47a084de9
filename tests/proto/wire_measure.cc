#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "proto/wire/remote.h"
#include "testing/fake_handler.h"
#include "testing/test_address.h"

// Server and client as two processes over a Unix socket: latency of a unary call, throughput of a
// large blob, and the server's peak memory above the blob itself.  wire_measure [MiB]
namespace macaw::wire {
namespace {

double PeakMiB() {  // VmHWM
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

// `sums` from an upload stays in `blob`; Release prints the peak.
class MeasuringHandler final : public fleet::AnsweringHandler {
 public:
  explicit MeasuringHandler(size_t mib)
      : blob_(fleet::RandomBlob(mib << 20, 1)), start_(PeakMiB()) {}
  void Lease(const fleet::Caller&, fleet::LeaseRequest,
             fleet::Reply<fleet::LeaseReply> reply) override {
    fleet::LeaseReply lease;
    lease.next = fleet::Next::kWork;
    lease.training.emplace();
    lease.training->broadcast = fleet::Broadcast::Of({blob_});
    std::move(reply)(lease);
  }
  void Commit(const fleet::Caller&, fleet::CommitRequest,
              fleet::Reply<fleet::CommitReply> reply) override {
    std::move(reply)(fleet::CommitReply{fleet::Verdict::kAccepted, ""});
  }
  void Release(const fleet::Caller&, fleet::ReleaseRequest request,
               fleet::Reply<fleet::ReleaseReply> reply) override {
    std::printf(
        "server: peak %.0f MiB%s; %.0f MiB before any call, with its own blob of %.0f MiB\n",
        PeakMiB(), request.leaving ? " after the upload" : " after the download", start_,
        blob_.size / double{1 << 20});
    std::fflush(stdout);
    std::move(reply)(fleet::ReleaseReply{});
  }
  std::shared_ptr<const AlignedBuffer> FindBlob(const fleet::Caller&,
                                                const Digest& digest) override {
    return digest == blob_.digest ? blob_.bytes : nullptr;
  }

 private:
  const fleet::Blob blob_;
  const double start_;
};

int Serve(const std::string& address, size_t mib, int ready, int stop) {
  MeasuringHandler handler(mib);
  const auto server = FleetServer::Start({.listen = address}, handler);
  if (!server.ok()) return std::fprintf(stderr, "%s\n", server.status().ToString().c_str()), 1;
  char byte = 0;
  if (write(ready, &byte, 1) != 1) return 1;
  return read(stop, &byte, 1) == 0 ? 0 : 1;  // the client closes its end
}

int Measure(const std::string& address, size_t mib) {
  const auto link = *Dial({.server = address});
  if (auto hello = link->Hello({}); !hello.ok())
    return std::fprintf(stderr, "%s\n", hello.status().ToString().c_str()), 1;
  std::vector<double> microseconds;
  for (int i = 0; i < 5000; ++i) {
    const TimePoint start = SteadyClock().Now();
    if (!link->Heartbeat({}).ok()) return 1;
    microseconds.push_back(1e6 * ToSeconds(SteadyClock().Now() - start));
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("unary call: median %.0f us, p99 %.0f us\n", microseconds[2500], microseconds[4950]);

  const auto lease = link->Lease({});
  TimePoint start = SteadyClock().Now();
  const auto fetched = link->Fetch(lease->training->broadcast.channels[0]);
  if (!fetched.ok()) return std::fprintf(stderr, "%s\n", fetched.status().ToString().c_str()), 1;
  std::printf("download: %.2f GB/s\n",
              fetched->size / 1e9 / ToSeconds(SteadyClock().Now() - start));
  link->Release({}).IgnoreError();

  fleet::CommitRequest commit;
  commit.part.emplace();
  commit.part->sums = fleet::RandomBlob(mib << 20, 2);
  start = SteadyClock().Now();
  const auto reply = link->Commit(commit);
  if (!reply.ok()) return std::fprintf(stderr, "%s\n", reply.status().ToString().c_str()), 1;
  std::printf("upload: %.2f GB/s\n", (mib << 20) / 1e9 / ToSeconds(SteadyClock().Now() - start));
  link->Release({.leaving = true}).IgnoreError();
  return 0;
}

int Main(size_t mib) {
  const SocketFolder folder;
  int ready[2], stop[2];
  if (pipe(ready) != 0 || pipe(stop) != 0) return 1;
  if (const pid_t child = fork(); child == 0) {  // before gRPC has started any thread
    close(stop[1]);
    _exit(Serve(folder.address(), mib, ready[1], stop[0]));
  }
  close(ready[1]);
  char byte;
  if (read(ready[0], &byte, 1) != 1) return 1;
  const int result = Measure(folder.address(), mib);
  close(stop[1]);
  wait(nullptr);
  return result;
}

}  // namespace
}  // namespace macaw::wire

int main(int argc, char** argv) { return macaw::wire::Main(argc > 1 ? std::atoi(argv[1]) : 512); }
