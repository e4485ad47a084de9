#include "proto/wire/connection.h"

#include <chrono>

namespace macaw::wire {
namespace {

// How long to wait for one attempt to connect (the call itself then waits for it, too), and how
// often to check whether to stop.
constexpr Duration kPatience = std::chrono::seconds(1);
constexpr Duration kPiece = std::chrono::milliseconds(50);

}  // namespace

std::shared_ptr<Connection::Line> Connection::Dial(absl::FunctionRef<bool()> stop) {
  const std::shared_ptr<Line> line = [this] {
    absl::MutexLock lock(&mutex_);
    if (line_->version != version_()) line_ = MakeLine();
    return line_;
  }();
  if (line->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY)
    line->introduced = false;
  const TimePoint end = SteadyClock().Now() + kPatience;
  while (true) {
    const auto state = line->channel->GetState(/*try_to_connect=*/true);
    const bool under_way = state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING;
    if (!under_way || stop() || SteadyClock().Now() >= end) return line;
    line->channel->WaitForStateChange(state, std::chrono::system_clock::now() + kPiece);
  }
}

void Connection::CallEnded(const std::shared_ptr<Line>& line, const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return;
  // Where nothing comes back in time, the connection may be dead at the other end only.
  const auto state = line->channel->GetState(/*try_to_connect=*/false);
  const bool good = state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_IDLE;
  if (good && !absl::IsDeadlineExceeded(status)) return;
  absl::MutexLock lock(&mutex_);
  if (line_ == line) line_ = MakeLine();
}

}  // namespace macaw::wire
