#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "macaw/v1/fleet.grpc.pb.h"

namespace macaw::wire {

// The connection to a server. gRPC alone would redial a broken connection again and again at its
// own pace, and only while somebody polls. Here each call dials at most once, so the caller decides
// how often to look for a lost server. Thread-safe.
class Connection {
 public:
  struct Line {
    Line(std::shared_ptr<grpc::Channel> made, int64_t made_with)
        : channel(std::move(made)), stub(channel), version(made_with) {}
    const std::shared_ptr<grpc::Channel> channel;
    v1::Fleet::Stub stub;
    const int64_t version;
    // Whether a call has been answered over the present connection. Until then the server may know
    // nothing of this end, and is sent at most kMaxFirstBytes.
    std::atomic<bool> introduced = false;
  };
  using MakeChannel = std::function<std::shared_ptr<grpc::Channel>()>;
  // Changes when later calls need a new channel: this end has a new certificate.
  using Version = std::function<int64_t()>;

  Connection(MakeChannel make, Version version)
      : make_(std::move(make)), version_(std::move(version)), line_(MakeLine()) {}

  // The line for one call. If it cannot be connected now, the call fails with the reason. `stop` is
  // polled while this waits.
  std::shared_ptr<Line> Dial(absl::FunctionRef<bool()> stop) ABSL_LOCKS_EXCLUDED(mutex_);
  // Call this after a call failed with `status`. A line that could not be connected, or on which
  // nothing came back in time, is not used by the next call, which dials a new one.
  void CallEnded(const std::shared_ptr<Line>& line, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::shared_ptr<Line> MakeLine() const {
    const int64_t version = version_();  // before the channel: it may be newer, never older
    return std::make_shared<Line>(make_(), version);
  }

  const MakeChannel make_;
  const Version version_;
  absl::Mutex mutex_;
  std::shared_ptr<Line> line_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
