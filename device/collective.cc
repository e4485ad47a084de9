#include "device/collective.h"

#include <algorithm>
#include <utility>

#include "core/logging.h"
#include "core/parallel_for.h"
#include "core/status.h"

namespace macaw::device {
namespace {

void Combine(Collective::Operation operation, const int64_t* from, int64_t* into, size_t count) {
  constexpr size_t kGrain = size_t{1} << 17;  // integers
  ParallelFor(count, kGrain, [&](size_t begin, size_t end) {
    if (operation == Collective::Operation::kSum) {
      for (size_t i = begin; i < end; ++i) into[i] += from[i];
    } else {
      for (size_t i = begin; i < end; ++i) into[i] = std::max(into[i], from[i]);
    }
  });
}

class HostCollective final : public Collective {
 public:
  // Bytes that one device has in the host's memory at a time.
  static constexpr size_t kPiece = size_t{16} << 20;

  struct Peer {
    std::unique_ptr<Queue> queue;
    Memory host;
  };

  explicit HostCollective(std::vector<Peer> peers) : peers_(std::move(peers)) {}

  size_t devices() const override { return peers_.size(); }
  std::string name() const override { return "host"; }

  absl::Status Reduce(Operation operation, std::span<const int64_t* const> parts, int64_t* to,
                      size_t count) override {
    constexpr size_t kIntegers = kPiece / sizeof(int64_t);
    for (size_t at = 0; at < count; at += kIntegers) {
      const size_t size = std::min(kIntegers, count - at), bytes = size * sizeof(int64_t);
      std::vector<const int64_t*> here;
      for (size_t d = 0; d < peers_.size(); ++d) {
        peers_[d].queue->CopyOut({peers_[d].host.data(), bytes},
                                 reinterpret_cast<const std::byte*>(parts[d] + at));
        here.push_back(peers_[d].host.As<int64_t>());
      }
      for (const Peer& peer : peers_) MACAW_RETURN_IF_ERROR(peer.queue->Wait());
      int64_t* const out = peers_[0].host.As<int64_t>();
      for (size_t d = 1; d < here.size(); ++d) Combine(operation, here[d], out, size);
      peers_[0].queue->CopyIn(reinterpret_cast<std::byte*>(to + at),
                              {peers_[0].host.data(), bytes});
      MACAW_RETURN_IF_ERROR(peers_[0].queue->Wait());
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Peer> peers_;
};

class Fallback final : public Collective {
 public:
  Fallback(std::unique_ptr<Collective> first, std::unique_ptr<Collective> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  size_t devices() const override { return second_->devices(); }
  std::string name() const override { return first_ != nullptr ? first_->name() : second_->name(); }

  absl::Status Reduce(Operation operation, std::span<const int64_t* const> parts, int64_t* to,
                      size_t count) override {
    return Try("reduce", [&](Collective& way) { return way.Reduce(operation, parts, to, count); });
  }

 private:
  template <typename F>
  absl::Status Try(absl::string_view what, F&& call) {
    if (first_ != nullptr) {
      const absl::Status status = call(*first_);
      if (status.ok() || absl::IsUnavailable(status)) return status;
      Logger("device").Warning(absl::StrCat("collective=", second_->name(), " instead of=\"",
                                            first_->name(), "\" from this ", what,
                                            " on, because \"", status.message(), "\""));
      first_ = nullptr;
    }
    return call(*second_);
  }

  std::unique_ptr<Collective> first_;  // null once it has failed
  const std::unique_ptr<Collective> second_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeHostCollective(std::vector<Device*> devices) {
  if (devices.empty()) return absl::InvalidArgumentError("a collective needs at least one device");
  std::vector<HostCollective::Peer> peers;
  for (Device* const device : devices) {
    HostCollective::Peer peer;
    MACAW_ASSIGN_OR_RETURN(peer.queue, device->MakeQueue());
    MACAW_ASSIGN_OR_RETURN(peer.host, device->AllocateHost(HostCollective::kPiece));
    peers.push_back(std::move(peer));
  }
  return std::make_unique<HostCollective>(std::move(peers));
}

std::unique_ptr<Collective> WithFallback(std::unique_ptr<Collective> first,
                                         std::unique_ptr<Collective> second) {
  return std::make_unique<Fallback>(std::move(first), std::move(second));
}

}  // namespace macaw::device
