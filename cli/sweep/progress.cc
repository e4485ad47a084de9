#include "cli/sweep/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/simulate/progress.h"

namespace macaw::cli {
namespace {

constexpr Duration kRedraw = std::chrono::milliseconds(100);

}  // namespace

SweepProgress::SweepProgress(Options options, const Clock& clock,
                             std::function<void(absl::string_view)> write)
    : options_(std::move(options)),
      clock_(clock),
      write_(std::move(write)),
      began_(clock.Now()),
      drawn_(began_) {}

void SweepProgress::Update(size_t done, size_t jobs, uint64_t rounds_left) {
  done_ = done;
  jobs_ = jobs;
  rounds_left_ = rounds_left;
  rounds_since_ = 0;
}

void SweepProgress::Round(const std::string& job, uint32_t round) {
  uint32_t& last = rounds_[job];
  // How far a run was that goes on is known with its first round.
  const uint32_t more = last == 0 ? 1 : round - std::min(last, round);
  last = std::max(last, round);
  rounds_since_ += more;
  rounds_seen_ += more;
  if (clock_.Now() - drawn_ >= kRedraw) Draw();
}

void SweepProgress::End(const std::string& job, const std::string& line) {
  rounds_.erase(job);
  if (options_.quiet) return;
  if (options_.terminal) {
    Draw();
  } else {
    write_(absl::StrCat(line, "  ", Line(), "\n"));
  }
}

void SweepProgress::Say(absl::string_view message) {
  if (live_) write_("\r\x1b[K");
  live_ = false;
  write_(absl::StrCat(message, "\n"));
}

void SweepProgress::Finish() {
  if (live_) write_("\n");
  live_ = false;
}

std::string SweepProgress::Line(size_t room) const {
  std::string line = absl::StrCat(done_, " of ", jobs_, " done");
  if (!rounds_.empty()) absl::StrAppend(&line, ", ", rounds_.size(), " running");
  const double seconds = ToSeconds(clock_.Now() - began_);
  std::string left;
  if (rounds_seen_ > 0 && seconds > 0) {
    const auto rounds = static_cast<double>(rounds_left_ - std::min(rounds_left_, rounds_since_));
    left = absl::StrCat("  about ", ClockText(rounds * seconds / static_cast<double>(rounds_seen_)),
                        " left");
  }
  const std::string best = best_.empty() ? "" : absl::StrCat("  best ", best_);
  if (line.size() + best.size() + left.size() <= room) return line + best + left;
  if (line.size() + left.size() <= room) return line + left;
  return line.substr(0, room);
}

void SweepProgress::Draw() {
  drawn_ = clock_.Now();
  if (options_.quiet || !options_.terminal) return;
  const size_t width = options_.width();
  write_(absl::StrCat("\r", Line(width > 0 ? width - 1 : 0), "\x1b[K"));
  live_ = true;
}

}  // namespace macaw::cli
