#include "core/peer/peer.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace macaw::peer {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);  // between two pieces of work
constexpr Duration kYield = std::chrono::milliseconds(1);
constexpr Duration kGrace =
    std::chrono::seconds(2);      // between the end of a channel and of its process
constexpr double kForever = 1e9;  // seconds

int Milliseconds(Duration duration) {
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(duration).count()));
}

}  // namespace

Peer::~Peer() {
  if (!ended_ && options_.farewell > Duration::zero()) (void)Finish(options_.farewell);
}

absl::StatusOr<std::string> Peer::Ask(std::string line, const Patience& patience,
                                      std::span<const int> files, WorkCounter* work) {
  if (!ended_) (void)channel_.Receive(options_.longest_answer);
  if (!ended_ && channel_.TakeLine().has_value()) {
    (void)Finish(Duration::zero());
    return absl::InternalError(
        absl::StrCat(options_.name, " sent a line before it was asked, and was killed"));
  }
  line += '\n';
  return Wait(std::move(line), patience, files, work);
}

absl::StatusOr<std::string> Peer::Wait(std::string unsent, const Patience& patience,
                                       std::span<const int> files, WorkCounter* work) {
  const auto fail = [&](auto&&... what) {
    return absl::InternalError(absl::StrCat(options_.name, " ", what...));
  };
  if (ended_) return fail("has ended");
  const TimePoint begin = SteadyClock().Now();
  const TimePoint deadline = begin + FromSeconds(std::min(patience.seconds, kForever));
  const TimePoint yields = options_.yields ? begin + kYield : begin;
  TimePoint tick = begin + kTick;
  bool alive = true;
  while (true) {
    const bool sent = channel_.Send(unsent, files);
    const bool open = channel_.Receive(options_.longest_answer) && sent;
    if (std::optional<std::string> line = channel_.TakeLine(); line.has_value()) {
      if (work != nullptr) work->Count();
      return *std::move(line);
    }
    if (!open || !alive) {
      const End end = Finish(kGrace);
      return end.by_itself ? fail("ended: ", end.how)
                           : fail("closed its channel, did not end and was killed");
    }
    if (channel_.waiting() > options_.longest_answer) {
      (void)Finish(Duration::zero());
      return fail("answered more than ", options_.longest_answer, " bytes without an end of line");
    }
    const TimePoint now = SteadyClock().Now();
    if (now >= deadline) {
      (void)Finish(Duration::zero());
      const std::string limit =
          patience.limit.empty() ? "" : absl::StrCat(" (", patience.limit, ")");
      return fail("took longer than ", patience.seconds, " s", limit, " and was killed");
    }
    if (now >= tick) {
      tick = now + kTick;
      if (work != nullptr) work->Count();
    }
    if (now < yields) {
      ::sched_yield();
    } else {
      alive = Sleep(std::min(deadline, tick), !unsent.empty());
    }
  }
}

bool Peer::Sleep(TimePoint until, bool sends) {
  std::array<pollfd, 3> files = {
      {{channel_.file(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0},
       {process_->output(), POLLIN, 0},
       {process_->ended(), POLLIN, 0}}};
  (void)::poll(files.data(), files.size(), Milliseconds(until - SteadyClock().Now()));
  if (files[1].revents != 0) process_->ReadOutput();
  return files[2].revents == 0;
}

Peer::End Peer::Finish(Duration farewell) {
  ended_ = true;
  channel_.Close();
  const TimePoint deadline = SteadyClock().Now() + farewell;
  bool alive = true;
  while (alive && SteadyClock().Now() < deadline) alive = Sleep(deadline, /*sends=*/false);
  process_->Kill();  // also what it started
  return {.by_itself = !alive, .how = process_->Reap()};
}

}  // namespace macaw::peer
