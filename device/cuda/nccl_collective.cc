#include "device/cuda/nccl_collective.h"

#include <nccl.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/logging.h"
#include "core/status.h"
#include "device/cuda/cuda_device.h"

namespace macaw::device {
namespace {

class NcclCollective final : public Collective {
 public:
  NcclCollective(NcclApi api, NcclSeams seams, NcclOptions options)
      : api_(api), seams_(std::move(seams)), options_(options) {}

  ~NcclCollective() override {
    if (!working_) return;
    absl::Status status;
    for (const Peer& peer : peers_)
      status.Update(Check(api_.comm_finalize(peer.communicator), "finalizing"));
    if (status.ok()) status = WaitFor("the end", options_.call_seconds);
    if (!status.ok()) {
      Abort().IgnoreError();
      return;
    }
    for (const Peer& peer : peers_) api_.comm_destroy(peer.communicator);
  }

  absl::Status Start(const std::vector<NcclPeer>& peers) {
    ncclUniqueId id;
    MACAW_RETURN_IF_ERROR(Check(api_.get_unique_id(&id), "making a unique id"));
    for (const NcclPeer& peer : peers) {
      Peer mine;
      mine.index = peer.index;
      MACAW_ASSIGN_OR_RETURN(mine.queue, peer.device->MakeQueue());
      mine.stream = static_cast<cudaStream_t>(seams_.stream_of(*mine.queue));
      peers_.push_back(std::move(mine));
    }
    working_ = true;
    return Do("the start", options_.start_seconds, [&](Peer& peer, int rank) {
      MACAW_RETURN_IF_ERROR(seams_.use_device(peer.index));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      return Check(
          api_.comm_init(&peer.communicator, static_cast<int>(peers_.size()), id, rank, &config),
          "making a communicator");
    });
  }

  size_t devices() const override { return peers_.size(); }
  std::string name() const override { return absl::StrCat("nccl ", NcclVersionText(api_.version)); }

  absl::Status Reduce(Operation operation, std::span<const int64_t* const> parts, int64_t* to,
                      size_t count) override {
    if (count == 0) return absl::OkStatus();
    return Do("a sum", options_.call_seconds, [&](Peer& peer, int rank) {
      return Check(api_.reduce(parts[static_cast<size_t>(rank)], rank == 0 ? to : nullptr, count,
                               ncclInt64, operation == Operation::kSum ? ncclSum : ncclMax, 0,
                               peer.communicator, peer.stream),
                   "ncclReduce");
    });
  }

 private:
  struct Peer {
    int index = 0;
    std::unique_ptr<Queue> queue;  // of the collective alone
    cudaStream_t stream = nullptr;
    ncclComm_t communicator = nullptr;
  };

  absl::Status Check(ncclResult_t result, absl::string_view what) const {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(name(), ", ", what, ": ", api_.error_string(result)));
  }

  // One call for each device, as a group, until all are done. After an error everything is aborted.
  template <typename F>
  absl::Status Do(absl::string_view what, double seconds, F&& call) {
    if (!working_) {
      return absl::FailedPreconditionError(
          absl::StrCat(name(), " was given up after an earlier error"));
    }
    absl::Status status = Check(api_.group_start(), "beginning a group");
    int rank = 0;
    for (Peer& peer : peers_) {
      if (status.ok()) status = call(peer, rank++);
    }
    // Also after an error, or the thread stays in the group.
    status.Update(Check(api_.group_end(), what));
    if (status.ok()) status = WaitFor(what, seconds);
    if (status.ok()) return status;
    if (const absl::Status aborted = Abort(); !aborted.ok()) return aborted;
    return status;
  }

  // Until the communicators and the streams are done with what they were given.
  absl::Status WaitFor(absl::string_view what, double seconds) const {
    const TimePoint end = seams_.clock->Now() + FromSeconds(seconds);
    while (true) {
      bool busy = false;
      for (const Peer& peer : peers_) {
        ncclResult_t state = ncclSuccess;
        MACAW_RETURN_IF_ERROR(
            Check(api_.async_error(peer.communicator, &state), "asking for errors"));
        MACAW_RETURN_IF_ERROR(Check(state, absl::StrCat(what, " on cuda:", peer.index)));
        busy = busy || state == ncclInProgress;
      }
      if (!busy) {
        MACAW_ASSIGN_OR_RETURN(const bool done, StreamsAreDone());
        if (done) return absl::OkStatus();
      }
      if (seams_.clock->Now() >= end) {
        return absl::DeadlineExceededError(
            absl::StrCat(name(), ": ", what, " was not done after ", seconds, " s"));
      }
      seams_.pause();
    }
  }

  absl::StatusOr<bool> StreamsAreDone() const {
    for (const Peer& peer : peers_) {
      MACAW_ASSIGN_OR_RETURN(const bool done, seams_.stream_done(peer.stream));
      if (!done) return false;
    }
    return true;
  }

  // Ends what the communicators do. Once it returns OK, nothing of it writes to the devices.
  absl::Status Abort() {
    working_ = false;
    for (Peer& peer : peers_) {
      if (peer.communicator != nullptr) api_.comm_abort(peer.communicator);
      peer.communicator = nullptr;
    }
    const TimePoint end = seams_.clock->Now() + FromSeconds(options_.abort_seconds);
    while (true) {
      const absl::StatusOr<bool> done = StreamsAreDone();
      if (!done.ok()) return done.status();
      if (*done) return absl::OkStatus();
      if (seams_.clock->Now() >= end) break;
      seams_.pause();
    }
    for (Peer& peer : peers_) peer.queue.release();  // NOLINT: a queue's end would wait for ever
    return absl::UnavailableError(absl::StrCat(
        name(), ": an aborted call has not left the devices after ", options_.abort_seconds, " s"));
  }

  const NcclApi api_;
  const NcclSeams seams_;
  const NcclOptions options_;
  std::vector<Peer> peers_;
  bool working_ = false;  // whether there are communicators
};

}  // namespace

NcclSeams NcclSeams::OfCuda() {
  NcclSeams seams;
  seams.use_device = UseCudaDevice;
  seams.stream_of = CudaStreamOf;
  seams.stream_done = CudaStreamIsDone;
  seams.pause = [] { std::this_thread::sleep_for(std::chrono::microseconds(20)); };
  seams.clock = &SteadyClock();
  return seams;
}

absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(NcclApi api, NcclSeams seams,
                                                               std::vector<NcclPeer> peers,
                                                               NcclOptions options) {
  if (peers.empty()) return absl::InvalidArgumentError("a collective needs at least one device");
  auto collective = std::make_unique<NcclCollective>(api, std::move(seams), options);
  MACAW_RETURN_IF_ERROR(collective->Start(peers));
  return collective;
}

absl::StatusOr<std::unique_ptr<Collective>> MakeGpuCollective(std::vector<NcclPeer> peers,
                                                              NcclOptions options) {
  std::vector<Device*> devices;
  for (const NcclPeer& peer : peers) devices.push_back(peer.device);
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Collective> host, MakeHostCollective(devices));
  if (peers.size() < 2) return host;
  absl::StatusOr<std::unique_ptr<Collective>> nccl =
      [&]() -> absl::StatusOr<std::unique_ptr<Collective>> {
    MACAW_ASSIGN_OR_RETURN(const NcclApi api, LoadNccl());
    return MakeNcclCollective(api, NcclSeams::OfCuda(), peers, options);
  }();
  if (absl::IsUnavailable(nccl.status())) return nccl.status();
  if (!nccl.ok()) {
    Logger("device").Warning(
        absl::StrCat("collective=host because \"", nccl.status().message(), "\""));
    return host;
  }
  Logger("device").Info(
      absl::StrCat("collective=\"", (*nccl)->name(), "\" devices=", peers.size()));
  return WithFallback(*std::move(nccl), std::move(host));
}

}  // namespace macaw::device
